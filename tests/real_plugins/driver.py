"""Owns a process in which plugins of others are loaded; what came of each is a line of JSON.

``python -m tests.real_plugins.driver HOME NAME…``: as the daemon would load them, each as if the
configuration named it, then asked what an engine or a provider is asked first.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from agent.clock import SystemClock
from agent.context_engine import ContextEngine
from agent.memory_provider import MemoryProvider
from gateway.config.environment import Home, Secrets
from gateway.config.models import Config
from gateway.plugins.manager import PluginManager, PluginRecord
from gateway.plugins.report import row
from gateway.wiring.plugins import PluginHouse
from gateway.wiring.surroundings import Surroundings

WINDOW_TOKENS = 4000


async def loaded(home: Path, names: list[str]) -> list[PluginRecord]:
    """What became of each."""
    around = Surroundings(Home(home, "a test"), Secrets(), os.environ)
    house = PluginHouse(Config(), around, SystemClock())
    found = await house.find()
    by_name = {name: plugin for plugin in found for name in plugin.names}
    loader = house.loader()
    manager = PluginManager(loader.only_noted_all(found))
    remarks = await house.set_up([by_name[name] for name in names], None, manager)
    assert not remarks, remarks
    return [await loader.load(by_name[name]) for name in names]


def about(record: PluginRecord) -> dict[str, Any]:
    """The row of `posthouse plugins`, and what the plugin itself says."""
    said = row(record)
    given = record.collected
    if given is None or record.register_again is None:
        return said
    if isinstance(given.memory_provider, MemoryProvider):
        said |= provider_says(given.memory_provider)
    if isinstance(given.engine, ContextEngine):
        again = record.register_again()
        assert again.engine is not None
        said |= engine_says(again.engine)
        said["own_instance"] = again.engine is not given.engine
    return said


def provider_says(provider: MemoryProvider) -> dict[str, Any]:
    """Before it is initialised."""
    available = provider.is_available()
    return {
        "available": available,
        "tools": [schema["name"] for schema in provider.get_tool_schemas()],
        "settings": [field["key"] for field in provider.get_config_schema()],
        "remembered": remembers(provider) if available else "",
    }


def remembers(provider: MemoryProvider) -> str:
    """One fact by a tool of the provider that needs nothing, and what it finds of it."""
    home = os.environ["HERMES_HOME"]
    provider.initialize("s_1", hermes_home=home, platform="console", agent_context="primary")
    fact = {"action": "add", "content": "Ada drinks Darjeeling tea", "category": "user_pref"}
    answer = json.loads(provider.handle_tool_call("fact_store", fact))
    assert "error" not in answer, answer
    found = provider.prefetch("Which tea does Ada drink?", session_id="s_1")
    provider.shutdown()
    return found


def engine_says(engine: ContextEngine) -> dict[str, Any]:
    """One compression of a list that is too long."""
    engine.update_model("claude-sonnet-5-5", WINDOW_TOKENS)
    engine.on_session_start("s_1", platform="console", conversation_id="c_1")
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be kind."}]
    for turn in range(30):
        lines = "\n".join(f"line {n} of turn {turn}: nothing of note here" for n in range(60))
        messages += [
            {"role": "user", "content": f"Question {turn}?\n{lines}"},
            {"role": "assistant", "content": f"Answer {turn}.\n{lines}"},
        ]
    before = json.dumps(messages)
    engine.update_from_response({"prompt_tokens": WINDOW_TOKENS - 1, "completion_tokens": 1})
    asked = engine.should_compress()
    result = engine.compress(json.loads(before), current_tokens=WINDOW_TOKENS - 1)
    return {"asked": asked, "before": len(before), "after": len(json.dumps(result))}


def main() -> None:
    """Print what became of each of the named plugins."""
    home, *names = sys.argv[1:]
    with redirect_stdout(sys.stderr):  # what plugins print is no answer
        records = asyncio.run(loaded(Path(home), names))
        said = [json.dumps(about(record)) for record in records]
    print("\n".join(said), flush=True)
    os._exit(0)  # threads of plugins may never end


if __name__ == "__main__":
    main()
