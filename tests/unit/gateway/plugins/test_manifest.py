"""plugin.yaml: what counts in it, what is forgiven, and errors that name file and line."""

from __future__ import annotations

import pytest

from gateway.plugins.manifest import External, Kind, ManifestError, parse_manifest


def read(text: str) -> object:
    return parse_manifest(text.encode(), "p/plugin.yaml", "folder")


def test_every_key_that_counts() -> None:
    manifest = parse_manifest(
        b"""
name: hermes-lcm
version: 0.10
description: |
  keeps
  everything
author: somebody
license: MIT
kind: standalone
requires_env: [A_KEY, {name: B_KEY, description: x}]
provides_tools: [lcm_grep]
provides_hooks: {post_llm_call: why}
hooks: on_session_end
pip_dependencies: ["mem0ai>=2,<3"]
external_dependencies: [{name: brv, install: "curl x", check: "brv --version"}]
requires_hermes: ">=0.19"
config_schema: {a: 1}
something_else: 3
""",
        "p/plugin.yaml",
        "folder",
    )
    assert (manifest.name, manifest.version, manifest.kind) == ("hermes-lcm", "0.10", "standalone")
    assert manifest.description == "keeps everything"
    assert manifest.requires_env == ("A_KEY", "B_KEY")
    assert (manifest.provides_hooks, manifest.hooks) == (("post_llm_call",), ("on_session_end",))
    assert manifest.external_dependencies == (External("brv", "curl x"),)
    assert manifest.pip_dependencies == ("mem0ai>=2,<3",)
    assert manifest.config_schema == {"a": 1}


def test_an_empty_one_is_called_as_its_folder() -> None:
    for text in ("", "# nothing", "name:", "---"):
        manifest = parse_manifest(text.encode(), "p/plugin.yaml", "folder")
        assert (manifest.name, manifest.kind) == ("folder", "")


def test_a_kind_that_nobody_knows_is_forgiven_and_said() -> None:
    manifest = parse_manifest(b"name: x\nkind: dashboard", "p/plugin.yaml", "folder")
    assert manifest.kind == Kind.STANDALONE
    assert manifest.remarks == (
        "p/plugin.yaml:2: kind 'dashboard' is not known; taken for standalone",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: [a", "p/plugin.yaml:1:9: not valid YAML"),
        ("a: 1\nname: ../x", "p/plugin.yaml:2: name '../x' can not be"),
        ("a: 1\n\nname: {a: b}", "p/plugin.yaml:3: name must be a text"),
        ("- a", "p/plugin.yaml:1: must consist of `key: value`"),
        ("just words", "p/plugin.yaml:1: must consist"),
        ("requires_env: [[1]]", "p/plugin.yaml:1: requires_env must be a list of names"),
        ("hooks: [true]", "p/plugin.yaml:1: hooks must be a list of names"),
        ("version: [1]", "p/plugin.yaml:1: version must be a text"),
        ("\ttab: 1", "p/plugin.yaml:1:1: not valid YAML"),
        ("a: !!python/object:os.system x", "not valid YAML: could not determine a constructor"),
        ("[" * 5000, "nested too deeply"),
        ("? [a, b]\n: 1", "p/plugin.yaml:1:3: not valid YAML"),
        ("d: 2020-13-45", "not valid YAML"),
    ],
)
def test_broken_ones(text: str, said: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read(text)
    assert said in str(caught.value)


def test_bytes_that_are_no_text_and_too_many_of_them() -> None:
    with pytest.raises(ManifestError, match=r"p/plugin\.yaml: is not UTF-8"):
        parse_manifest(b"\xff\xfe\x00", "p/plugin.yaml", "x")
    with pytest.raises(ManifestError, match="more than 200,000 bytes"):
        parse_manifest(b"#" * 300_000, "p/plugin.yaml", "x")


def test_what_it_says_can_not_steer_a_terminal() -> None:
    manifest = parse_manifest(b'name: x\ndescription: "a\\e[31mb\\nc"', "f", "x")
    assert manifest.description == "a [31mb c"
