"""Loading: module names, what counts as registering, failures that leave nothing behind."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from gateway.plugins.discovery import Found, in_folders
from gateway.plugins.loading import ONE_SECONDS, PluginLoader
from gateway.plugins.manager import PluginManager, PluginRecord, PluginState
from gateway.plugins.packages import in_packages
from gateway.plugins.settings import PluginSettings
from gateway.plugins.taken import TakenNames
from tests.fakes.clock import FakeClock
from tests.fakes.plugins import (
    ENGINE,
    NOTHING,
    PROVIDER,
    clean_modules,
    engine,
    provider,
    write_plugin,
)


@pytest.fixture(autouse=True)
def _tidy() -> Iterator[None]:
    with clean_modules():
        yield


def loader(clock: FakeClock | None = None, **settings: Any) -> PluginLoader:
    return PluginLoader(PluginSettings(**settings), TakenNames(), clock or FakeClock(), {})


async def load(root: Path, *points: EntryPoint, **settings: Any) -> dict[str, PluginRecord]:
    """All of a user's folder, enabled by their keys unless said otherwise."""
    found = [*in_folders(None, root), *in_packages(points)]
    settings.setdefault("enabled", tuple(f.key for f in found))
    return {r.key: r for r in await loader(**settings).load_all(found)}


async def only(root: Path, **settings: Any) -> PluginRecord:
    (record,) = (await load(root, **settings)).values()
    return record


async def test_a_plugin_is_a_package_under_its_own_name(tmp_path: Path) -> None:
    code = """
from . import inner
from .inner import VALUE
import hermes_plugins.cat__my_plug.inner as same
assert same is inner and __name__ == 'hermes_plugins.cat__my_plug'
def register(ctx):
    from .inner import VALUE
    ctx.register_tool(VALUE, 'x', {}, lambda a: '')
"""
    write_plugin(tmp_path / "cat", "my-plug", code, inner="VALUE = 'tool'")
    record = await only(tmp_path)
    assert (record.state, record.trace) == (PluginState.LOADED, ())
    assert record.collected is not None
    assert record.collected.gives() == ["tool tool"]
    assert "hermes_plugins.cat__my_plug.inner" in sys.modules


async def test_providers_and_engines_by_name_without_being_enabled(tmp_path: Path) -> None:
    helper = "from _hermes_user_memory.prov.inner import VALUE\n"
    write_plugin(tmp_path, "prov", helper + provider("prov"), inner="VALUE = 1")
    write_plugin(tmp_path / "context_engine", "eng", engine("eng"), None)
    records = await load(tmp_path, enabled=(), engine="eng", provider="prov")
    assert {r.state for r in records.values()} == {PluginState.LOADED}
    manager = PluginManager(records.values())
    assert manager.engine("eng") is records["context_engine/eng"]
    assert manager.provider("prov") is records["prov"]
    assert manager.engine("prov") is None
    assert "plugins.context_engine.eng" in sys.modules


async def test_a_class_is_enough_where_it_is_the_only_one(tmp_path: Path) -> None:
    write_plugin(tmp_path / "context_engine", "eng", ENGINE.format(name="eng"))
    write_plugin(tmp_path, "prov", PROVIDER.format(name="prov"))
    records = await load(tmp_path, engine="eng", provider="prov", enabled=())
    assert [r.state for r in records.values()] == [PluginState.LOADED] * 2
    write_plugin(tmp_path / "context_engine", "eng", ENGINE.format(name="a") + "class B(Engine): 0")
    with clean_modules():
        records = await load(tmp_path, engine="eng", enabled=())
    assert "has several ContextEngine class" in records["context_engine/eng"].reason


async def test_an_enabled_plugin_may_offer_the_engine(tmp_path: Path) -> None:
    """Its name counts, not that of its folder."""
    write_plugin(tmp_path, "hermes-lcm", engine("lcm"))
    records = await load(tmp_path, engine="lcm")
    assert PluginManager(records.values()).engine("lcm") is records["hermes-lcm"]
    nobody = await load(tmp_path, engine="lcm", enabled=())
    manager = PluginManager(nobody.values())
    assert manager.engine("lcm") is None
    assert manager.why_not("hermes-lcm") == (
        "plugin hermes-lcm is not enabled: plugins.enabled: [hermes-lcm]"
    )


async def test_registering_anew_gives_another_instance(tmp_path: Path) -> None:
    write_plugin(tmp_path, "lcm", engine("lcm"))
    record = await only(tmp_path)
    assert record.register_again is not None
    first, second = record.register_again(), record.register_again()
    assert first.engine is not None
    assert first.engine is not second.engine
    assert record.collected is not None
    assert first.engine is not record.collected.engine
    assert first.closed


async def test_entry_points_are_modules_or_callables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugin(
        tmp_path / "site", "ep_module", "def register(ctx):\n    ctx.register_hook('a', print)"
    )
    write_plugin(tmp_path / "site", "ep_call", "def setup(ctx):\n    ctx.register_hook('b', print)")
    write_plugin(tmp_path / "site", "ep_none", "X = 1")
    monkeypatch.syspath_prepend(tmp_path / "site")
    records = await load(
        tmp_path / "none",
        EntryPoint("one", "ep_module", "hermes_agent.plugins"),
        EntryPoint("two", "ep_call:setup", "hermes_agent.plugins"),
        EntryPoint("three", "ep_none", "hermes_agent.plugins"),
        EntryPoint("four", "ep_none:X", "hermes_agent.plugins"),
        EntryPoint("five", "ep_gone", "hermes_agent.plugins"),
    )
    states = {key: (r.state.value, r.reason) for key, r in records.items()}
    assert states["one"] == states["two"] == ("loaded", "")
    assert states["three"] == ("failed", "ep_none has no register(ctx)")
    assert states["four"] == ("failed", "ep_none has no register(ctx)")
    assert states["five"] == ("failed", "ModuleNotFoundError: No module named 'ep_gone'")
    hooks = PluginManager(records.values()).hooks
    assert hooks == {"a": [print], "b": [print]}
    assert "ep_none" not in sys.modules


async def test_a_src_layout_may_import_itself_by_its_name(tmp_path: Path) -> None:
    path = write_plugin(tmp_path, "lossless", None)
    package = path / "src" / "lossless_for_a_test"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import lossless_for_a_test.inner as i\nfrom .inner import V\n"
        "def register(ctx):\n    ctx.register_hook(i.V, print)"
    )
    (package / "inner.py").write_text("V = 'h'")
    try:
        record = await only(tmp_path)
    finally:
        for name in ("lossless_for_a_test", "lossless_for_a_test.inner"):
            sys.modules.pop(name, None)
    assert (record.reason, record.loaded) == ("", True)


async def test_a_src_layout_does_not_take_the_name_of_another_package(tmp_path: Path) -> None:
    path = write_plugin(tmp_path, "x", None)
    (path / "src" / "yaml").mkdir(parents=True)
    (path / "src" / "yaml" / "__init__.py").write_text(NOTHING)
    before = sys.modules.pop("yaml")
    try:
        record = await only(tmp_path)
    finally:
        sys.modules["yaml"] = before
    assert record.reason == "there is another package called yaml"


@pytest.mark.parametrize(
    ("code", "reason", "trace"),
    [
        ("import not_there_at_all", "ModuleNotFoundError: No module named", "import not_there"),
        ("def f(:", "SyntaxError", "def f(:"),
        ("1/0", "ZeroDivisionError: division by zero", "1/0"),
        ("import sys; sys.exit(3)", "SystemExit: 3", "sys.exit(3)"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt", "raise KeyboardInterrupt"),
        ("class E(BaseException): pass\nraise E('x')", "E: x", "raise E('x')"),
        ("raise StopIteration('x')", "StopIteration: x", "raise StopIteration"),
        ("raise RuntimeError('x') from ValueError('y')", "RuntimeError: x", "raise RuntimeError"),
        ("def f(): f()\nf()", "RecursionError: maximum recursion", "def f(): f()"),
        ("class E(Exception):\n def __str__(s): 1/0\nraise E", "E", None),
        ("x = 1", "has no register(ctx)", None),
        ("register = 3", "has no register(ctx)", None),
        ("async def register(ctx): pass", "its register is async", None),
        ("def register(ctx): yield", "its register yields", None),
        ("def register(): pass", "TypeError: register() takes 0", None),
        ("def register(ctx): raise ValueError('a\\x1b[31m\\nb')", "ValueError: a", "raise Value"),
        ("from . import gone", "ImportError: cannot import name 'gone'", "from . import gone"),
    ],
)
async def test_failures_are_recorded_and_leave_nothing(
    tmp_path: Path, code: str, reason: str, trace: str | None
) -> None:
    write_plugin(tmp_path, "bad", code)
    record = await only(tmp_path)
    assert record.state is PluginState.FAILED
    assert reason in record.reason
    if trace is not None:
        assert any(trace in line for line in record.trace)
    assert not any("gateway/plugins" in line for line in record.trace)
    assert len(record.trace) <= 12
    assert all(line.isprintable() for line in (record.reason, *record.trace))
    assert not [name for name in sys.modules if name.startswith("hermes_plugins.")]
    assert record.collected is None
    assert PluginManager([record]).troubles() == [f"plugin bad failed: {record.reason}"]


async def test_submodules_of_a_failed_plugin_go_as_well(tmp_path: Path) -> None:
    write_plugin(tmp_path, "bad", "from . import inner\n1/0", inner="")
    assert (await only(tmp_path)).state is PluginState.FAILED
    assert not [name for name in sys.modules if name.startswith("hermes_plugins.")]
    write_plugin(tmp_path, "bad", NOTHING)
    assert (await only(tmp_path)).state is PluginState.LOADED


async def test_names_of_a_failed_plugin_are_free(tmp_path: Path) -> None:
    takes = "def register(ctx):\n    ctx.register_command('c', print)\n"
    write_plugin(tmp_path, "a", takes + "    1/0")
    write_plugin(tmp_path, "b", takes)
    records = await load(tmp_path)
    assert [c.plugin for c in PluginManager(records.values()).commands] == ["b"]


async def test_a_folder_of_an_engine_that_registers_none_is_no_engine(tmp_path: Path) -> None:
    code = "def register(ctx):\n    ctx.register_context_engine(object())"
    write_plugin(tmp_path / "context_engine", "eng", code)
    write_plugin(tmp_path, "mem", "# MemoryProvider\n" + NOTHING)
    records = await load(tmp_path, engine="eng", provider="mem")
    assert records["context_engine/eng"].reason == (
        "it registered no context engine: context engine 'object' is no "
        "agent.context_engine.ContextEngine"
    )
    assert records["mem"].reason == "it registered no memory provider"


async def test_disabled_wins_and_nothing_else_is_imported(tmp_path: Path) -> None:
    trap = "import sys\nsys.modules['trap_was_imported'] = sys\n" + NOTHING
    for name in ("off", "silent"):
        write_plugin(tmp_path, name, trap)
    write_plugin(tmp_path / "context_engine", "eng", trap)
    write_plugin(tmp_path, "mem", "# MemoryProvider\n" + trap)
    records = await load(
        tmp_path,
        enabled=("off", "mem", "eng"),
        disabled=("off", "context_engine/eng"),
        engine="eng",
    )
    assert {key: r.state.value for key, r in records.items()} == {
        "context_engine/eng": "disabled",
        "mem": "not enabled",
        "off": "disabled",
        "silent": "not enabled",
    }
    assert "trap_was_imported" not in sys.modules


async def test_the_shipped_one_of_two_with_one_name_is_loaded(tmp_path: Path) -> None:
    for root in ("app", "home"):
        write_plugin(tmp_path / root / "context_engine", "eng", engine("eng"))
    found = in_folders(tmp_path / "app", tmp_path / "home")
    records = await loader(engine="eng").load_all(found)
    assert [r.state.value for r in records] == ["loaded", "overridden"]
    manager = PluginManager(records)
    assert manager.engine("eng") is records[0]


async def until_begun(clock: FakeClock) -> None:
    for _ in range(200):
        await asyncio.sleep(0.005)
        if clock._sleepers:
            return


async def test_one_that_hangs_is_late_and_what_it_still_gives_is_not_taken(tmp_path: Path) -> None:
    gate, over = threading.Event(), threading.Event()
    sys.gates_of_a_test = (gate, over)  # type: ignore[attr-defined]
    code = """
import sys
def register(ctx):
    ctx.register_command('early', print)
    sys.gates_of_a_test[0].wait(20)
    ctx.register_command('late', print)
    sys.gates_of_a_test[1].set()
"""
    write_plugin(tmp_path, "a", code)
    write_plugin(tmp_path, "b", "def register(ctx):\n    ctx.register_command('early', print)")
    clock = FakeClock()
    found = in_folders(None, tmp_path)
    loading = asyncio.ensure_future(loader(clock, enabled=("a", "b")).load_all(found))
    await until_begun(clock)
    await clock.advance(ONE_SECONDS)
    records = await loading
    gate.set()
    assert over.wait(20)
    assert [r.state.value for r in records] == ["late", "loaded"]
    assert "did not finish within 10 s" in records[0].reason
    manager = PluginManager(records)
    assert [(c.name, c.plugin) for c in manager.commands] == [("early", "b")]
    assert manager.troubles() == [f"plugin a is late: {records[0].reason}"]
    del sys.gates_of_a_test  # type: ignore[attr-defined]


async def test_the_start_does_not_wait_for_ten_that_hang(tmp_path: Path) -> None:
    gate = threading.Event()
    sys.gate_of_a_test = gate  # type: ignore[attr-defined]
    for n in range(10):
        write_plugin(tmp_path, f"p{n}", "import sys\nsys.gate_of_a_test.wait(20)\n" + NOTHING)
    clock = FakeClock()
    found = in_folders(None, tmp_path)
    enabled = tuple(f.key for f in found)
    loading = asyncio.ensure_future(loader(clock, enabled=enabled).load_all(found))
    begun = clock.monotonic()
    while not loading.done():
        await until_begun(clock)
        await clock.advance(ONE_SECONDS)
        await asyncio.sleep(0)
    assert clock.monotonic() - begun <= 40
    reasons = [r.reason for r in await loading]
    gate.set()
    assert sum("did not finish" in reason for reason in reasons) == 3
    assert sum("not begun" in reason for reason in reasons) == 7
    del sys.gate_of_a_test  # type: ignore[attr-defined]


async def test_hooks_that_are_appended_while_it_registers_are_what_it_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import sys
def register(ctx):
    sys.manager_of_test._hooks.setdefault('post_llm_call', []).append(lambda **more: None)
    ctx.register_command('x', print)
"""
    manager = PluginManager()
    monkeypatch.setattr(sys, "manager_of_test", manager, raising=False)
    write_plugin(tmp_path, "good", code)
    write_plugin(tmp_path, "fails", code + "    raise OSError\n")
    records = await load(tmp_path)
    assert not manager.hooks  # nothing is in force by it, and nothing of the one that failed
    manager.take(records.values())
    (shared,) = manager.hooks["post_llm_call"]
    again = records["good"].register_again
    assert again is not None
    (own,) = again().hooks  # as where it registers anew for one conversation
    assert own[0] == "post_llm_call"
    assert own[1] is not shared
    assert manager.hooks["post_llm_call"] == [shared]


def test_hooks_are_a_plain_dict_of_lists_that_plugins_append_to() -> None:
    manager = PluginManager()
    manager._hooks.setdefault("post_llm_call", []).append(print)
    assert type(manager.hooks) is dict
    assert manager.hooks is manager._hooks
    assert manager.hooks == {"post_llm_call": [print]}


def test_a_record_is_found_by_every_name(tmp_path: Path) -> None:
    write_plugin(tmp_path / "cat", "deep", manifest="name: nice")
    (found,) = in_folders(None, tmp_path)
    manager = PluginManager([PluginRecord(found, PluginState.LOADED)])
    assert all(manager.record(name) is not None for name in ("cat/deep", "deep", "nice"))
    assert manager.record("cat") is None
    assert isinstance(found, Found)


async def test_a_provider_may_import_itself_as_if_it_were_shipped(tmp_path: Path) -> None:
    """Those of Hermes Agent do, wherever they lie: one module, not two of one file."""
    code = "from plugins.memory.prov import inner\nfrom .inner import MARK\n"
    code += "assert inner.MARK is MARK\n"
    write_plugin(tmp_path, "prov", code + provider("prov"), inner="MARK = object()")
    record = (await load(tmp_path, provider="prov"))["prov"]
    assert (record.reason, record.loaded) == ("", True)
    assert record.found.module_name == "plugins.memory.prov"
    assert "_hermes_user_memory.prov" not in sys.modules
