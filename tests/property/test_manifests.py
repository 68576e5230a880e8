"""Manifests: whatever stands in the file, it is one or the error names the file; nothing hangs."""

from __future__ import annotations

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.plugins.manifest import LONGEST_TEXT, Kind, Manifest, ManifestError, parse_manifest
from gateway.plugins.names import is_plugin_name, module_slug

KEYS = st.sampled_from(
    [
        *("name", "version", "description", "author", "license", "kind", "requires_env", "hooks"),
        *("provides_tools", "provides_hooks", "pip_dependencies", "external_dependencies"),
        *("requires_hermes", "config_schema", "else"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.binary(max_size=200))
@example(b"a: &a [*a]")
@example(b"&a a: *a")
@example(b"a: &a {b: *a}\n<<: *a")
@example(b"0x: 1_0\n1: 2")
@example(b"= : =")
def test_any_bytes(data: bytes) -> None:
    judge(data)


@given(st.dictionaries(KEYS, VALUES))
def test_any_values(values: dict[str, object]) -> None:
    judge(yaml.safe_dump(values, allow_unicode=True).encode("utf-8", "replace"))


def judge(data: bytes) -> None:
    try:
        manifest = parse_manifest(data, "p/plugin.yaml", "folder")
    except ManifestError as exc:
        said = str(exc)
    else:
        said = ""
        check(manifest)
    assert not said or said.startswith("p/plugin.yaml:")


def check(manifest: Manifest) -> None:
    assert is_plugin_name(manifest.name)
    assert manifest.kind in ("", *Kind)
    assert f"hermes_plugins.{module_slug(manifest.name)}".replace(".", "").isidentifier()
    for text in (manifest.version, manifest.description, *manifest.requires_env):
        assert len(text) <= LONGEST_TEXT
        assert text.isprintable()
