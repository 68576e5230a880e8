"""Whatever is wrong, at every key: refused, with line and column, path and words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.errors import ConfigError
from gateway.config.loading import parse, parse_config
from gateway.config.models import Config
from gateway.config.overlay import variable
from gateway.config.shape import all_paths, field_at, model_in, takes_text

SHIPPED = Path(__file__).parents[3] / "config.yaml"


def annotation_of(path: str) -> Any:
    field = field_at(tuple(path.split(".")))
    assert field is not None
    return field.annotation


LEAVES = [path for path in all_paths(Config) if model_in(annotation_of(path)) is None]
NONSENSE: list[Any] = [{"nonsense": [1]}, [{"a": 1}], "\x01nonsense", -1, 1e9, True]


def document(path: str, value: Any) -> str:
    nested: Any = value
    for part in reversed(path.split(".")):
        nested = {part: nested}
    return "# the first line\n" + yaml.safe_dump(nested, default_flow_style=False)


@pytest.mark.parametrize("path", LEAVES)
def test_nonsense_is_refused_at_every_key_with_its_place(path: str) -> None:
    """Some of it is fine for some keys (any text for a name, any number for a limit); never all."""
    refused = 0
    for value in NONSENSE:
        text = document(path, value)
        try:
            parse_config(text, "c.yaml")
        except ConfigError as exc:
            refused += 1
            for problem in exc.problems:
                match = re.match(r"c\.yaml:(\d+):(\d+): ", problem)
                assert match, problem
                line = text.splitlines()[int(match[1]) - 1]
                assert int(match[1]) > 1
                assert 1 <= int(match[2]) <= len(line) + 1
                assert path in problem or "not valid YAML" in problem
    assert refused >= (1 if path in ("plugins.entries", "jobs") else 2), path


@pytest.mark.parametrize("path", LEAVES)
def test_nonsense_in_its_variable_is_refused_by_name(path: str) -> None:
    if path in ("plugins.entries", "jobs"):
        return
    name = variable(path)
    if takes_text(annotation_of(path)):
        return  # any text is taken as it stands; what it may be is for the key's own rules
    with pytest.raises(ConfigError) as caught:
        parse("", "c.yaml", {name: "[1, {a: 2}]"})
    assert all(problem.startswith(f"{name}: ") for problem in caught.value.problems)


def test_every_beginning_of_a_file_is_refused_or_is_a_configuration() -> None:
    """Half-written files: nothing else than these two ever comes out."""
    text = SHIPPED.read_text(encoding="utf-8")
    whole = 0
    refused: list[str] = []
    for length in range(0, len(text), 41):
        try:
            config, _ = parse_config(text[:length], "c.yaml")
        except ConfigError as exc:
            refused += exc.problems
        else:
            whole += 1
            assert isinstance(config, Config)
    assert whole
    assert refused
    assert all(line.startswith("c.yaml:") for line in refused)
