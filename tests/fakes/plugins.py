"""Owns plugins for tests: written into a folder, taken out of the process afterwards."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from plugins import hermes_compat

ENGINE = """
from agent.context_engine import ContextEngine

class Engine(ContextEngine):
    name = {name!r}
    def update_from_response(self, usage): pass
    def should_compress(self, prompt_tokens=None): return False
    def compress(self, messages, current_tokens=None, focus_topic=None): return messages
"""
PROVIDER = """
from agent.memory_provider import MemoryProvider

class Provider(MemoryProvider):
    name = {name!r}
    def is_available(self): return True
    def initialize(self, session_id, **kwargs): pass
    def get_tool_schemas(self): return []
"""
REGISTERS_ENGINE = "\ndef register(ctx):\n    ctx.register_context_engine(Engine())\n"
REGISTERS_PROVIDER = "\ndef register(ctx):\n    ctx.register_memory_provider(Provider())\n"
NOTHING = "def register(ctx):\n    pass\n"


def engine(name: str) -> str:
    """The code of a plugin with an engine."""
    return ENGINE.format(name=name) + REGISTERS_ENGINE


def provider(name: str) -> str:
    """The code of a plugin with a memory provider."""
    return PROVIDER.format(name=name) + REGISTERS_PROVIDER


def write_plugin(
    root: Path, folder: str, code: str | None = NOTHING, manifest: str | None = "", **files: str
) -> Path:
    """One plugin; no code or no manifest: None. ``files``: further modules, by their names."""
    path = root / folder
    path.mkdir(parents=True, exist_ok=True)
    if manifest is not None:
        (path / "plugin.yaml").write_text(manifest or f"name: {path.name}\n", encoding="utf-8")
    if code is not None:
        (path / "__init__.py").write_text(code, encoding="utf-8")
    for name, text in files.items():
        (path / f"{name}.py").write_text(text, encoding="utf-8")
    return path


@contextlib.contextmanager
def clean_modules() -> Iterator[None]:
    """What is imported inside is taken out of the process again."""
    before = dict(sys.modules)
    path = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = path
        hermes_compat.uninstall()
        for name in set(sys.modules) - set(before):
            if name.startswith("plugins.hermes_compat"):
                continue  # whoever was given names by it still refers to it
            if name.startswith(("hermes_plugins", "_hermes_user_memory", "plugins.")):
                del sys.modules[name]
