"""Where plugins are found, in which order, and which of two counts. Nothing is imported."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from gateway.plugins.discovery import Found, Role, Source, in_folders, in_force
from gateway.plugins.packages import in_packages, installed_entry_points
from gateway.plugins.settings import PluginSettings
from tests.fakes.plugins import engine, provider, write_plugin

BOOBY_TRAP = "raise SystemExit('discovery must not import')\n"


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    bundled, user = tmp_path / "app" / "plugins", tmp_path / "home" / "plugins"
    bundled.mkdir(parents=True)
    user.mkdir(parents=True)
    return bundled, user


def keys(found: list[Found]) -> list[tuple[str, Source, Role]]:
    return [(f.key, f.source, f.role) for f in found]


def test_folders_and_one_category_level(roots: tuple[Path, Path]) -> None:
    _, user = roots
    write_plugin(user, "flat", BOOBY_TRAP, "name: other-name")
    write_plugin(user / "cat", "deep", BOOBY_TRAP, "name: x")
    write_plugin(user / "cat" / "more", "deeper", BOOBY_TRAP)
    write_plugin(user, ".hidden", BOOBY_TRAP)
    write_plugin(user, "__pycache__", BOOBY_TRAP)
    (user / "file.py").write_text(BOOBY_TRAP)
    found = in_folders(None, user)
    assert [f.key for f in found] == ["cat/deep", "other-name"]
    assert [f.module_name for f in found] == [
        "hermes_plugins.cat__deep",
        "hermes_plugins.other_name",
    ]
    assert found[1].names == ("other-name", "flat")
    assert not any(f.error for f in found)


def test_yml_counts_as_well_and_yaml_first(roots: tuple[Path, Path]) -> None:
    _, user = roots
    folder = write_plugin(user, "a", manifest=None)
    (folder / "plugin.yml").write_text("name: from-yml")
    assert in_folders(None, user)[0].key == "from-yml"
    (folder / "plugin.yaml").write_text("name: from-yaml")
    assert in_folders(None, user)[0].key == "from-yaml"


def test_what_is_selected_by_name_is_called_by_its_folder(roots: tuple[Path, Path]) -> None:
    bundled, user = roots
    write_plugin(bundled / "context_engine", "lossless", engine("lossless"), None)
    write_plugin(user / "context_engine", "snapcompact", engine("snapcompact"), "name: Snap")
    write_plugin(bundled / "memory", "holographic", provider("holographic"))
    write_plugin(user / "memory", "mine", provider("mine"))
    write_plugin(user, "nowledge-mem", provider("nowledge-mem"))
    found = in_folders(bundled, user)
    assert keys(found) == [
        ("context_engine/lossless", Source.BUNDLED, Role.ENGINE),
        ("memory/holographic", Source.BUNDLED, Role.MEMORY),
        ("context_engine/snapcompact", Source.USER, Role.ENGINE),
        ("memory/mine", Source.USER, Role.MEMORY),
        ("nowledge-mem", Source.USER, Role.MEMORY),
    ]
    assert [f.module_name for f in found] == [
        "plugins.context_engine.lossless",
        "plugins.memory.holographic",
        "plugins.context_engine.snapcompact",
        "_hermes_user_memory.mine",
        "_hermes_user_memory.nowledge-mem",
    ]


@pytest.mark.parametrize("name", ["compressor", "UPPER", "with space", "dotted.name"])
def test_an_engine_with_a_name_that_it_can_not_have(roots: tuple[Path, Path], name: str) -> None:
    """B105: whatever folder is there, it can not be selected and is not imported."""
    _, user = roots
    write_plugin(user / "context_engine", name, BOOBY_TRAP)
    found = in_folders(None, user)
    assert "can not be selected" in found[0].error


def test_marks_of_memory_make_a_plugin_exclusive_unless_it_says_otherwise(
    roots: tuple[Path, Path],
) -> None:
    _, user = roots
    write_plugin(user, "says", "# MemoryProvider\n", "name: says\nkind: standalone")
    write_plugin(user, "late-mark", "#" * 9000 + "\n# MemoryProvider\n")
    write_plugin(user, "kind", "", "name: kind\nkind: exclusive")
    roles = {f.key: f.role for f in in_folders(None, user)}
    assert roles == {"says": Role.GENERAL, "late-mark": Role.GENERAL, "kind": Role.MEMORY}


def test_src_layouts(roots: tuple[Path, Path]) -> None:
    _, user = roots
    for folder, packages in (
        ("one", ["lossless_hermes"]),
        ("none", []),
        ("two", ["a_package", "b_package"]),
        ("two-none", ["a_package", "b_package"]),
    ):
        path = write_plugin(user, folder, None)
        (path / "src").mkdir()
        for package in packages:
            (path / "src" / package).mkdir()
            code = "def register(ctx): pass" if package != "a_package" else ""
            code = "" if folder == "two-none" else code
            (path / "src" / package / "__init__.py").write_text(code)
    found = {f.key: f for f in in_folders(None, user)}
    # Categories are looked into only where there is no manifest, so all of them are here.
    assert found["one"].module_name == "lossless_hermes"
    assert found["one"].file == user / "one" / "src" / "lossless_hermes" / "__init__.py"
    assert found["two"].module_name == "b_package"
    assert "no __init__.py" in found["none"].error
    assert found["two-none"].file is None
    assert found["two-none"].error


def test_broken_manifests_and_none_are_found_with_their_error(roots: tuple[Path, Path]) -> None:
    bundled, user = roots
    write_plugin(user, "broken", BOOBY_TRAP, "name: [")
    write_plugin(user, "none", BOOBY_TRAP, None)
    write_plugin(bundled, "hermes_compat", BOOBY_TRAP, None)
    found = in_folders(bundled, user)
    assert [f.key for f in found] == ["broken", "none"]
    assert f"{user}/broken/plugin.yaml:1" in found[0].error
    assert "there is no plugin.yaml" in found[1].error


def test_a_link_is_followed_and_keeps_its_own_name(
    roots: tuple[Path, Path], tmp_path: Path
) -> None:
    _, user = roots
    write_plugin(tmp_path / "elsewhere", "checkout", manifest="name: hermes-lcm")
    (user / "hermes-lcm").symlink_to(tmp_path / "elsewhere" / "checkout")
    (user / "dangling").symlink_to(tmp_path / "nowhere")
    (user / "loop").symlink_to(user / "loop")
    found = in_folders(None, user)
    assert [f.key for f in found] == ["hermes-lcm"]
    assert found[0].where.endswith(f"hermes-lcm -> {tmp_path}/elsewhere/checkout")


def test_a_folder_that_can_not_be_read_hides_no_other(roots: tuple[Path, Path]) -> None:
    _, user = roots
    write_plugin(user, "a")
    assert [f.key for f in in_folders(user / "not-there", user)] == ["a"]
    assert in_folders(None, user / "a" / "plugin.yaml") == []


def test_entry_points_and_the_later_source_counts(roots: tuple[Path, Path], tmp_path: Path) -> None:
    bundled, user = roots
    for root in (bundled, user, tmp_path / "project"):
        write_plugin(root, "same", BOOBY_TRAP)
    points = [
        EntryPoint("same", "json", "hermes_agent.plugins"),
        EntryPoint("only-here", "json:loads", "hermes_agent.plugins"),
        EntryPoint("../evil", "json", "hermes_agent.plugins"),
    ]
    found = [*in_folders(bundled, user, tmp_path / "project"), *in_packages(points)]
    counting, over = in_force(found)
    assert keys(counting) == [
        ("../evil", Source.ENTRY_POINT, Role.GENERAL),
        ("only-here", Source.ENTRY_POINT, Role.GENERAL),
        ("same", Source.ENTRY_POINT, Role.GENERAL),
    ]
    assert counting[0].error
    assert [(a.source, b.source) for a, b in over] == [
        (Source.BUNDLED, Source.ENTRY_POINT),
        (Source.USER, Source.ENTRY_POINT),
        (Source.PROJECT, Source.ENTRY_POINT),
    ]


def test_nothing_is_selected_unless_it_is_named(roots: tuple[Path, Path]) -> None:
    bundled, user = roots
    write_plugin(bundled, "shipped")
    write_plugin(user / "cat", "deep", manifest="name: Deep One")
    write_plugin(user / "context_engine", "eng", engine("eng"))
    write_plugin(user, "mem", provider("mem"))
    found = in_folders(bundled, user)
    silent = PluginSettings()
    assert not any(silent.is_selected(f) for f in found)
    # `enabled` does not reach what is selected by a key of its own.
    listed = PluginSettings(enabled=("cat/deep", "eng", "context_engine/eng", "mem"))
    assert [f.key for f in found if listed.is_selected(f)] == ["cat/deep"]
    assert PluginSettings(enabled=("Deep One",)).is_selected(found[1])
    chosen = PluginSettings(engine="eng", provider="mem", disabled=("mem",))
    assert [f.key for f in found if chosen.is_selected(f)] == ["context_engine/eng", "mem"]
    assert [f.key for f in found if chosen.is_disabled(f)] == ["mem"]


def test_a_package_with_broken_metadata_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (
        ("aaa", "[hermes_agent.plugins]\nthis is no entry point\n"),
        ("bbb", "[hermes_agent.plugins]\nodd = not a module at all !\nfine = json\n"),
        ("ccc", "[other]\nx = json\n"),
    ):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nSummary: does {name}\n"
        )
        (folder / "entry_points.txt").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    found = {f.key: f for f in in_packages(installed_entry_points())}
    assert found["fine"].error == ""
    assert (found["fine"].manifest.version, found["fine"].manifest.description) == (
        "1.0",
        "does bbb",
    )
    assert found["fine"].where == "package bbb"
    assert "does not name a module" in found["odd"].error
    assert "x" not in found
