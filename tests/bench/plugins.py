"""Owns the bench of a start with ten plugins: the whole process, beside one without plugins."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.bench.measure import Result, process
from tests.fakes.plugins import ENGINE, write_plugin

ROUNDS = 15
PLUGINS = 10
MODULE = "\n".join(f"def function_{n}(value):\n    return [value, {n}]" for n in range(200))
CODE = """
import json, logging, re, sqlite3, threading
from . import config, store, tools
{engine}
def register(ctx):
    ctx.register_context_engine(Engine())
    ctx.register_command("{name}", lambda raw: raw, description="x")
    for n in range(8):
        schema = {{"name": f"{name}_{{n}}", "description": "x", "parameters": {{"type": "object"}}}}
        ctx.register_tool(f"{name}_{{n}}", "{name}", schema, lambda arguments, **more: "")
    for hook in ("pre_llm_call", "post_llm_call", "on_session_end"):
        ctx.register_hook(hook, lambda **more: None)
"""


def run() -> list[Result]:
    posthouse = str(Path(sys.executable).with_name("posthouse"))
    with tempfile.TemporaryDirectory() as folder:
        with_them, without = Path(folder, "with"), Path(folder, "without")
        names = [f"plugin{n}" for n in range(PLUGINS)]
        for home in (with_them, without):
            home.mkdir()
            for name in names:
                code = CODE.format(engine=ENGINE.format(name=name), name=name)
                modules = {"config": MODULE, "store": MODULE, "tools": MODULE}
                write_plugin(home / "plugins", name, code, **modules)
        (with_them / "config.yaml").write_text(f"plugins: {{enabled: [{', '.join(names)}]}}\n")
        walls: list[list[float]] = [[], []]
        peaks: list[list[float]] = [[], []]
        for number in range(ROUNDS + 1):
            for side, home in enumerate((with_them, without)):
                # Nothing on standard input: it starts, is ready, has nothing to do, and ends.
                # Compiled modules are kept, as they are where nobody forbids it.
                around = {"POSTHOUSE_HOME": str(home), "PYTHONDONTWRITEBYTECODE": ""}
                wall, peak = process([posthouse, "chat"], around)
                if number:  # the first one compiles and makes the store
                    walls[side].append(wall * 1000)
                    peaks[side].append(peak)
    return [
        Result("start with ten plugins, wall", "ms", *walls, at_most=1.3),
        Result("start with ten plugins, RSS", "MiB", *peaks, at_most=1.3),
    ]
