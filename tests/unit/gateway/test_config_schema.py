"""The JSON schema: what editors are told is what the loader does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from agent.errors import ConfigError
from gateway.cli.main import main
from gateway.config.loading import parse_config
from gateway.config.models import Config
from gateway.config.schema import json_schema
from gateway.config.shape import all_paths

ROOT = Path(__file__).parents[3]
SCHEMA = json_schema()
EDITOR = Draft202012Validator(SCHEMA)


def test_it_is_a_schema_and_the_same_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert json_schema() == SCHEMA
    assert main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA


def test_the_shipped_file_is_valid_and_so_are_the_defaults() -> None:
    EDITOR.validate(yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8")))
    EDITOR.validate(Config().model_dump(mode="json"))
    EDITOR.validate({})


@pytest.mark.parametrize(
    "text",
    [
        "model: {max_tokens: 100}",
        "compression:",
        "telegram: {allow_from: [111, '222', null], pairing: true}",
        "telegram: {enabled: auto, mode: polling}",
        "context: {engine: lcm}\nlcm: {anything: [1]}",
        "memory: {provider: holo}\nholo: {x: 1}",
        "plugins: {enabled: [a/my-plug]}\nmy_plug: {b: 2}",
        "auxiliary: {compression: {model: x, odd: [1]}}",
        "prompt_caching: {cache_ttl: 1h}",
        "agent: {max_turns: 3}\nmcp_servers: {a: {command: x}}",
        "agent: {tools: {mcp: {a: {command: [npx, -y]}, b: {url: 'https://x.org'}}}}",
        "gateway: {http: {port: null}}",
        "budget: {usd_per_user_day: 2.5}",
        "jobs: [{name: a, every: 2h, to: {platform: telegram, user: 111}, text: hello}]",
        "jobs: [{name: a, every: 60, to: {platform: telegram, user: '111'}, text: hello}]",
        # and what neither takes
        "jobs: [{name: a, every: 2h, text: hello}]",
        "jobs: [{name: a, evry: 2h, to: {platform: telegram, user: 1}, text: hello}]",
        "compression: {treshold: 0.7}",
        "compression: {threshold: '50%'}",
        "compression: {threshold: 1.5}",
        "compression: {protect_last_n: -1}",
        "compression: {target_ratio: 0.05}",
        "compression: {enabled: 'no'}",
        "model: {cache_ttl: 2h}",
        "gateway: {alow_from: []}",
        "alow_from: []",
        "tlegram: {}",
        "lcm: {a: 1}",
        "logging: DEBUG",
        "gateway: {busy_mode: wait}",
        "gateway: {http: {port: 70000}}",
        "agent: {tools: {mcp: {a: {colour: 1}}}}",
        "agent: {max_iterations: 0}",
        "model: {fallback: small}",
        "telegram: {allow_from: 12}",
    ],
)
def test_it_says_what_the_loader_says(text: str) -> None:
    try:
        parse_config(text, "c.yaml")
        taken = True
    except ConfigError:
        taken = False
    assert EDITOR.is_valid(yaml.safe_load(text)) is taken


def keys(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for key, found in schema.get("properties", {}).items():
        yield f"{path}{key}", found
        for choice in found.get("anyOf", []):
            if "$ref" in choice:
                yield from keys(SCHEMA["$defs"][choice["$ref"].rsplit("/", 1)[-1]], f"{path}{key}.")


def test_every_key_has_a_title_words_and_its_default() -> None:
    found = dict(keys(SCHEMA))
    assert set(all_paths(Config)) <= set(found)
    missing = [path for path, key in found.items() if not key.get("description")]
    assert not missing, "write a line below the key"
    plain = Config().model_dump(mode="json")
    for path in all_paths(Config):
        value: Any = plain
        for part in path.split("."):
            value = value[part]
        if not any("$ref" in choice for choice in found[path].get("anyOf", [])):
            assert found[path]["default"] == value, path
    for name, definition in SCHEMA["$defs"].items():
        for key, found_key in definition["properties"].items():
            assert found_key.get("description"), f"{name}.{key}"


def test_examples_are_valid() -> None:
    for path, key in keys(SCHEMA):
        for example in key.get("examples", []):
            config: Any = example
            for part in reversed(path.split(".")):
                config = {part: config}
            assert EDITOR.is_valid(config), path
