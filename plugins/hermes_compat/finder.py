"""Owns how the host's module names are found: last of all, each from one file of `surface`.

Whatever is installed, or lies beside a plugin, under one of these names comes first. A module is
executed under the name that was asked for, so that its classes and its place agree with what
plugins expect.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from plugins.hermes_compat import host
from plugins.hermes_compat.gateway_config import load_gateway_config
from plugins.hermes_compat.host import Host

SURFACE = Path(__file__).resolve().parent / "surface"
_PACKAGES_OF_OURS = {"agent", "gateway", "plugins"}
"""They exist; only single modules are added to them."""
_LENT = (("gateway.config", "load_gateway_config", load_gateway_config),)
"""Names that plugins import from modules that do exist: (module, name, value)."""


class SurfaceFinder(MetaPathFinder):
    """Finds the modules of the surface."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files = dict(files)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """The spec of a name that is in the table; nothing else is looked up on disk."""
        file = self.files.get(fullname)
        if file is None:
            return None
        inside = [str(file.parent)] if file.name == "__init__.py" else None
        return spec_from_file_location(fullname, file, submodule_search_locations=inside)


def surface_files(root: Path = SURFACE) -> dict[str, Path]:
    """Every module of the surface by its name."""
    found: dict[str, Path] = {}
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name and name not in _PACKAGES_OF_OURS:
            found[name] = file
    return found


def install(home: Path | None = None, manager: object | None = None) -> SurfaceFinder:
    """Make the names importable for this process; doing it again only says for whom.

    Args:
        home: The folder that plugins take for their home; None: what the environment says.
        manager: What `hermes_cli.plugins.get_plugin_manager` gives; None: an empty one.
    """
    host.bind(Host(home, manager))
    for module, name, value in _LENT:
        # A suite may have a module of its own where ours would be.
        with contextlib.suppress(ModuleNotFoundError):
            setattr(importlib.import_module(module), name, value)
    for finder in sys.meta_path:
        if isinstance(finder, SurfaceFinder):
            return finder
    finder = SurfaceFinder(surface_files())
    sys.meta_path.append(finder)
    return finder


def uninstall() -> None:
    """Take the names out again, with the modules that were imported by them."""
    host.bind(Host())
    for finder in [f for f in sys.meta_path if isinstance(f, SurfaceFinder)]:
        sys.meta_path.remove(finder)
        for name, file in finder.files.items():
            module = sys.modules.get(name)
            if module is None or getattr(module, "__file__", None) != str(file):
                continue
            del sys.modules[name]
            parent, _, child = name.rpartition(".")
            holder = sys.modules.get(parent)
            if holder is not None and holder.__dict__.get(child) is module:
                delattr(holder, child)
    for module_name, name, value in _LENT:
        module = sys.modules.get(module_name)
        if module is not None and module.__dict__.get(name) is value:
            delattr(module, name)
