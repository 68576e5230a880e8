"""The daemon with broken plugins: it starts, answers, says what is wrong, and ends."""

from __future__ import annotations

import json
import os
import sqlite3

import pytest

from tests.acceptance.harness import TelegramChat, World, answered, eventually, run_command
from tests.fakes.plugins import NOTHING, write_plugin

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

GOOD = """
import os, sys, threading
print("noise on standard output")
seen = [os.environ.get(name, "nothing") for name in ("TELEGRAM_BOT_TOKEN", "ANTHROPIC_API_KEY")]
with open(os.environ["HERMES_HOME"] + "/seen.txt", "w") as file:
    file.write(" ".join(seen))
# A thread that never ends, and that the interpreter would wait for.
threading.Thread(target=threading.Event().wait, daemon=False).start()
def register(ctx):
    ctx.register_command("hi", print)
"""


async def test_broken_plugins_stop_nothing(world: World) -> None:
    world.configure(
        plugins={"enabled": ["good", "bad", "hangs", "torn", "gone"]},
        telegram={"webhook": {"secret": "not-for-plugins"}},
    )
    plugins = world.home / "plugins"
    write_plugin(plugins, "good", GOOD, "name: good\nrequires_env: [ANTHROPIC_API_KEY]")
    write_plugin(plugins, "bad", "raise SystemExit(3)")
    write_plugin(plugins, "hangs", "import time\ntime.sleep(3600)\n" + NOTHING)
    write_plugin(plugins, "torn", NOTHING, "name: [")
    daemon = await world.run("telegram")

    status = daemon.status()
    assert status is not None
    assert status["details"]["plugins"] == (
        "1 loaded (good); 3 failed (bad, hangs, torn): `posthouse plugins list`"
    )
    remarks = status["details"]["remarks"]
    assert "plugin bad failed: SystemExit: 3" in remarks
    assert "plugin hangs is late: did not finish within 10 s" in remarks
    assert "plugin.yaml:1:" in remarks
    assert "plugins.enabled names 'gone', but there is no such plugin" in remarks
    chat = TelegramChat(world)
    chat.say("are you there?")
    await answered(chat, "reply to: are you there?", daemon)

    # What the running daemon knows, by the command.
    done = await run_command(world.home, "plugins", "list", "--json")
    rows = {r["name"]: r for r in json.loads(done.stdout)}
    assert (rows["good"]["state"], rows["good"]["gives"]) == ("loaded", ["/hi"])
    assert [rows[n]["state"] for n in ("bad", "hangs", "torn")] == ["failed", "late", "failed"]
    assert rows["bad"]["trace"][-1] == "SystemExit: 3"

    # What plugins see: their own home, declared secrets only, a copy of the list of sessions.
    hermes = world.home / "hermes"
    assert (hermes / "seen.txt").read_text() == f"nothing {world.anthropic.api_key}"
    assert "not-for-plugins" not in (hermes / "config.yaml").read_text()
    assert os.readlink(hermes / "plugins") == "../plugins"
    code, _ = await daemon.terminate()  # not held up by the plugin's thread
    assert code == 0
    world.configure(plugins={"enabled": ["good"]})
    again = await world.run("telegram")

    def listed() -> bool:
        with sqlite3.connect(f"file:{hermes}/state.db?mode=ro", uri=True) as copy:
            return copy.execute("SELECT count(*) FROM sessions").fetchone() == (1,)

    await eventually(listed, 10, "the session in the copy")
    code, _ = await again.terminate()
    assert code == 0
