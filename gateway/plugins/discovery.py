"""Owns which plugins there are: every source in order, which of two counts. Imports none."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.metadata import EntryPoint
from pathlib import Path

from gateway.plugins.manifest import Kind, Manifest, ManifestError, parse_manifest
from gateway.plugins.names import (
    is_engine_name,
    is_folder_name,
    may_be_chosen,
    module_slug,
)

MANIFESTS = ("plugin.yaml", "plugin.yml")
ENGINES, MEMORY = "context_engine", "memory"
"""Categories whose plugins are selected by name."""
LOOKED_INTO_BYTES = 8192
MOST_FILES, MOST_BYTES = 50, 500_000
"""What is looked through for how a provider imports itself."""
_REGISTERS = re.compile(
    rb"^def register\b|^from \S+ import .*\bregister\b|^\s*register\s*=", re.MULTILINE
)
_MEMORY_MARKS = (b"register_memory_provider", b"MemoryProvider")


class Source(StrEnum):
    """Where a plugin is from; a later one takes the place of an earlier one with the same key."""

    BUNDLED = "bundled"
    USER = "user"
    PROJECT = "project"
    ENTRY_POINT = "entry point"


class Role(StrEnum):
    """What selects a plugin."""

    GENERAL = "plugins.enabled"
    ENGINE = "context.engine"
    MEMORY = "memory.provider"


@dataclass(frozen=True, slots=True)
class Found:
    """One plugin, not imported."""

    key: str
    source: Source
    role: Role
    manifest: Manifest
    folder: Path | None = None
    entry_point: EntryPoint | None = None
    file: Path | None = None
    """What is imported; None: nothing can be."""
    module_name: str = ""
    error: str = ""
    """Why it can not be loaded, whatever is enabled."""

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that the configuration may call it."""
        folder = (self.folder.name,) if self.folder is not None else ()
        return tuple(dict.fromkeys((self.key, self.manifest.name, *folder)))

    @property
    def names_of_provider(self) -> tuple[str, ...]:
        """What ``memory.provider`` may call it: its folder's name, or its own."""
        folder = (self.folder.name,) if self.folder is not None else ()
        return tuple(dict.fromkeys((*folder, self.manifest.name)))

    @property
    def where(self) -> str:
        """For people: the folder (and where it leads), or the package."""
        if self.folder is not None:
            there = self.folder.resolve()
            led = f" -> {there}" if self.folder.is_symlink() else ""
            return f"{self.folder}{led}"
        return f"package {self.manifest.path}" if self.manifest.path else "package"


def in_folders(bundled: Path | None, user: Path, project: Path | None = None) -> list[Found]:
    """All plugins that are folders, in the order of their sources."""
    found: list[Found] = []
    for source, root in (
        (Source.BUNDLED, bundled),
        (Source.USER, user),
        (Source.PROJECT, project),
    ):
        if root is not None:
            found += _in_root(root, source)
    return found


def in_force(found: Sequence[Found]) -> tuple[list[Found], list[tuple[Found, Found]]]:
    """Those that count, and (what does not, what took its place)."""
    last: dict[tuple[str, str], Found] = {}
    for plugin in found:
        last[_place(plugin)] = plugin
    over = [(p, last[_place(p)]) for p in found if last[_place(p)] is not p]
    return [p for p in found if last[_place(p)] is p], over


def _place(plugin: Found) -> tuple[str, str]:
    # What is selected by name is not overridden by what only looks like it elsewhere; there the
    # shipped one comes first, which whoever selects sees to.
    return (plugin.key, "" if plugin.role is Role.GENERAL else f"{plugin.role}{plugin.source}")


def _folders(root: Path) -> Iterator[Path]:
    try:
        entries = sorted(root.iterdir())
    except OSError:
        return
    for entry in entries:
        # A link is followed: whoever may put one here may put anything here.
        if is_folder_name(entry.name) and os.path.isdir(entry):
            yield entry


def _in_root(root: Path, source: Source) -> Iterator[Found]:
    for folder in _folders(root):
        if folder.name in (ENGINES, MEMORY):
            role = Role.ENGINE if folder.name == ENGINES else Role.MEMORY
            for inner in _folders(folder):
                found = _selected(inner, source, role)
                if found is not None:
                    yield found
        elif _manifest_file(folder) is not None or _is_file(folder / "__init__.py"):
            found = _general(folder, source, category="")
            if found is not None:
                yield found
        else:
            for inner in _folders(folder):
                if _manifest_file(inner) is not None:
                    found = _general(inner, source, category=folder.name)
                    if found is not None:
                        yield found


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # False also where nobody may look; `Path.is_file` raises there


def _manifest_file(folder: Path) -> Path | None:
    return next((folder / name for name in MANIFESTS if _is_file(folder / name)), None)


def _manifest(folder: Path, key: str, source: Source) -> tuple[Manifest, str]:
    """The manifest, and what is wrong with it."""
    about = Manifest(folder.name, key=key, source=source.value, path=str(folder))
    file = _manifest_file(folder)
    if file is None:
        return about, ""
    try:
        with file.open("rb") as stream:
            read = parse_manifest(stream.read(1_000_000), str(file), folder.name)
    except ManifestError as exc:
        return about, str(exc)
    except OSError as exc:
        return about, f"{file}: can not be read: {exc.strerror}"
    return replace(read, source=source.value, path=str(folder)), ""


def _selected(folder: Path, source: Source, role: Role) -> Found | None:
    """An engine or a provider in the folder of its kind: its name is the folder's."""
    name = folder.name
    file = folder / "__init__.py"
    if not _is_file(file):
        return None
    key = f"{folder.parent.name}/{name}"
    manifest, error = _manifest(folder, key, source)
    manifest = replace(manifest, key=key)
    valid = is_engine_name(name) if role is Role.ENGINE else may_be_chosen(name)
    if not valid:
        error = f"{name!r} can not be selected: names are made of a-z, 0-9, _ and -, and not ours"
    if role is Role.ENGINE:
        module = f"plugins.context_engine.{name}"
    else:
        module = _memory_module(folder, source)
    return Found(key, source, role, manifest, folder, None, file, module, error)


def _general(folder: Path, source: Source, *, category: str) -> Found | None:
    file, error = _code_of(folder)
    has_manifest = _manifest_file(folder) is not None
    head = _head(file)
    remembers = any(mark in head for mark in _MEMORY_MARKS)
    if not has_manifest and not remembers:
        # Of ours, folders beside plugins are no plugins; a user's folder was meant as one.
        if source is Source.BUNDLED:
            return None
        error = f"there is no {MANIFESTS[0]} in {folder}"
    manifest, broken = _manifest(folder, "", source)
    key = f"{category}/{folder.name}" if category else manifest.name
    manifest = replace(manifest, key=key)
    exclusive = manifest.kind == Kind.EXCLUSIVE or (not manifest.kind and remembers)
    role = Role.MEMORY if exclusive else Role.GENERAL
    if role is Role.MEMORY:
        module = _memory_module(folder, source)
        if not may_be_chosen(folder.name):
            error = error or f"{folder.name!r} can not be selected: names are a-z, 0-9, _ and -"
    elif file is not None and file.parent.parent.name == "src":
        module = file.parent.name  # as if it were installed: it may import itself by this name
    else:
        module = f"hermes_plugins.{module_slug(key)}"
    return Found(key, source, role, manifest, folder, None, file, module, broken or error)


def _memory_module(folder: Path, source: Source) -> str:
    """Under which name a memory provider is imported: providers import themselves by it.

    One that was shipped with its host and is now in the folder of a user still says
    ``from plugins.memory.<name> import …``.
    """
    shipped = f"plugins.memory.{folder.name}"
    if source is Source.BUNDLED:
        return shipped
    says = re.compile(rf"^\s*(?:from|import)\s+{re.escape(shipped)}\b".encode(), re.MULTILINE)
    for file in sorted(folder.glob("*.py"))[:MOST_FILES]:
        text = _head(file, MOST_BYTES) if _is_file(file) else b""
        if shipped.encode() in text and says.search(text):
            return shipped
    return f"_hermes_user_memory.{folder.name}"


def _code_of(folder: Path) -> tuple[Path | None, str]:
    """What is to be imported, or why there is nothing."""
    root = folder / "__init__.py"
    if _is_file(root):
        return root, ""
    packages = [p / "__init__.py" for p in _folders(folder / "src")]
    packages = [p for p in packages if _is_file(p)]
    if len(packages) > 1:
        packages = [p for p in packages if _REGISTERS.search(_head(p, MOST_BYTES))]
    if len(packages) == 1 and packages[0].parent.name.isidentifier():
        return packages[0], ""
    what = "several packages in src/" if packages else "no __init__.py and no src/<package>"
    return None, f"there is {what} in {folder}"


def _head(file: Path | None, size: int = LOOKED_INTO_BYTES) -> bytes:
    if file is None:
        return b""
    try:
        with file.open("rb") as stream:
            return stream.read(size)
    except OSError:
        return b""
