"""What the configuration hands to a plugin, and what it needs beside itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.plugins.manifest import External, Manifest
from gateway.plugins.needs import excludes, missing, written_by_anybody
from gateway.plugins.settings import PluginSettings, setting


def test_settings_come_from_the_entry_and_from_the_section() -> None:
    said = PluginSettings(
        entries={"my-plug": {"settings": {"a": 1}, "allow_tool_override": True}, "x": None},
        sections={"my_plug": {"a": 0, "b": {"c": 2}}},
    )
    settings = said.settings(["cat/my_plug", "My Plug"])
    assert settings == {"a": 1, "b": {"c": 2}}
    assert said.entry(["my-plug"])["allow_tool_override"] is True
    assert (setting(settings, "b.c"), setting(settings, "b.d", 7), setting(settings, "z")) == (
        2,
        7,
        None,
    )
    assert said.settings(["x"]) == {}
    assert PluginSettings(entries={"x": {"settings": "odd"}}).settings(["x"]) == {}


@pytest.mark.parametrize(
    ("asked", "left_out"),
    [
        ("", False),
        (">=0.19", False),
        (">=0.19,<1", False),
        (">=0.22", True),
        ("<0.21", True),
        ("==0.21.*", False),
        ("==0.20.*", True),
        ("~=0.19", False),
        ("!=0.21", True),
        ("0.19.0", False),
        ("0.30", True),
        ("whatever", False),
        (">= 0.19.0rc1", False),
    ],
)
def test_versions(asked: str, left_out: bool) -> None:
    assert excludes(asked, (0, 21)) is left_out


def test_what_is_missing_is_named_with_the_way_to_get_it() -> None:
    manifest = Manifest(
        "x",
        pip_dependencies=("no-such-package-here>=2,<3", "pydantic>=2", "???"),
        requires_env=("HERE", "EMPTY", "GONE"),
        external_dependencies=(External("sh"), External("no-such-program", "curl x | sh")),
        requires_hermes=">=3",
    )
    assert missing(manifest, {"HERE": "1", "EMPTY": " "}) == [
        "packages are missing; into posthouse's environment: "
        "pip install 'no-such-package-here>=2,<3'",
        "environment variables are not set: EMPTY, GONE",
        "the program no-such-program is not there (its author says: curl x | sh)",
        "it asks for Hermes Agent >=3; here it gets what 0.21 offers",
    ]


def test_what_everybody_may_write_to_is_named(tmp_path: Path) -> None:
    folder, file, shared = tmp_path / "a", tmp_path / "a" / "f", tmp_path / "shared"
    for path in (folder, shared):
        path.mkdir()
    file.write_text("")
    shared.chmod(0o1777)  # as /tmp: others' files are safe from each other there
    assert written_by_anybody(folder, file, shared, tmp_path / "gone") == []
    file.chmod(0o666)
    folder.chmod(0o777)
    (line,) = written_by_anybody(folder, file, shared)
    assert line.startswith(f"everybody may write to {folder}, {file}, and")
