"""Owns the import of a plugin under its module name, and taking it back where that fails.

Synchronous code of others runs here: call it on a plugin thread only.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from agent.context_engine import ContextEngine
from agent.errors import PosthouseError
from agent.memory_provider import MemoryProvider
from gateway.plugins.discovery import Found, Role

Register = Callable[[Any], Any]
BUNDLED = Path(__file__).resolve().parents[2] / "plugins"
"""The folder of the plugins that are shipped."""


class PluginUnusable(PosthouseError):
    """A plugin that can not be loaded, for a reason in words."""


def import_plugin(found: Found) -> Register:
    """Import a plugin; gives what registers it.

    Raises:
        PluginUnusable: there is nothing in it that could be called.
        BaseException: whatever its code raises.
    """
    before = set(sys.modules)
    try:
        if found.entry_point is not None:
            return _register_of(found.entry_point.load(), found)
        if found.file is None:
            raise PluginUnusable(found.error or "there is nothing to import")
        return _register_of(_import_file(found.module_name, found.file), found)
    except BaseException:
        forget(found, before)
        raise


def forget(found: Found, before: set[str]) -> None:
    """Take a plugin's modules out again, so that a later try begins from nothing."""
    # Of a package that others may use as well, only what came with this import.
    root = found.module_name.split(".")[0] if found.entry_point is not None else found.module_name
    for name in list(sys.modules):
        of_it = name == root or name.startswith(f"{root}.")
        if of_it and (found.entry_point is None or name not in before):
            module = sys.modules.pop(name)
            parent, _, child = name.rpartition(".")
            holder = sys.modules.get(parent)
            if holder is not None and holder.__dict__.get(child) is module:
                delattr(holder, child)


def _import_file(name: str, file: Path) -> ModuleType:
    known = sys.modules.get(name)
    if known is not None and BUNDLED in file.parents and known.__file__ == str(file):
        return known  # one that is shipped is a module like others of ours
    parent, _, child = name.rpartition(".")
    holder = _parent(parent) if parent else None
    if not parent and importlib.util.find_spec(name) is not None:
        raise PluginUnusable(f"there is another package called {name}")
    spec = importlib.util.spec_from_file_location(
        name, file, submodule_search_locations=[str(file.parent)]
    )
    if spec is None or spec.loader is None:
        raise PluginUnusable(f"{file} can not be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    if holder is not None:
        setattr(holder, child, module)
    return module


def _parent(name: str) -> ModuleType:
    """The package above a plugin: one of ours, or one that exists only in memory."""
    known = sys.modules.get(name)
    if known is None:
        folder = BUNDLED.parent.joinpath(*name.split("."))
        if name.split(".")[0] == BUNDLED.name and (folder / "__init__.py").is_file():
            known = importlib.import_module(name)
        else:
            known = ModuleType(name)
            known.__path__ = [str(folder)] if folder.is_dir() else []
            sys.modules[name] = known
        above, _, child = name.rpartition(".")
        if above:
            setattr(_parent(above), child, known)
    if name == BUNDLED.name and str(BUNDLED) not in map(_resolved, known.__path__):
        raise PluginUnusable(
            "another installed package is called `plugins` and stands in the way of ours: "
            f"{next(iter(known.__path__), '?')}"
        )
    return known


def _resolved(path: str) -> str:
    return str(Path(path).resolve())


def _register_of(thing: Any, found: Found) -> Register:
    """What registers a plugin: its `register`, a callable entry point, or its only class."""
    register = getattr(thing, "register", None)
    if callable(register):
        return _checked(register)
    if isinstance(thing, ModuleType):
        return _by_class(thing, found)
    if callable(thing):
        return _checked(thing)
    raise PluginUnusable(f"{found.module_name} has no register(ctx)")


def _checked(register: Callable[..., Any]) -> Register:
    def call(ctx: Any) -> None:
        result = register(ctx)
        if inspect.iscoroutine(result):
            result.close()
            raise PluginUnusable("its register is async; it has to be a plain function")
        if inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise PluginUnusable("its register yields, so nothing of it ran; it has to be plain")

    return call


def _by_class(module: ModuleType, found: Found) -> Register:
    if found.role is Role.ENGINE:
        engine = _only_class(module, ContextEngine)
        return lambda ctx: ctx.register_context_engine(engine())
    if found.role is Role.MEMORY:
        provider = _only_class(module, MemoryProvider)
        return lambda ctx: ctx.register_memory_provider(provider())
    raise PluginUnusable(f"{found.file or found.module_name} has no register(ctx)")


def _only_class(module: ModuleType, base: type) -> Callable[[], Any]:
    kinds = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, base) and not inspect.isabstract(value)
    ]
    own = [kind for kind in kinds if kind.__module__.startswith(module.__name__)]
    chosen = list(dict.fromkeys(own or kinds))
    if len(chosen) != 1:
        what = "several" if chosen else "neither register(ctx) nor a"
        raise PluginUnusable(f"{module.__file__} has {what} {base.__name__} class")
    return chosen[0]
