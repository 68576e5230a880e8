"""Programs of MCP servers inside the daemon's unit; what node needs, as docs/mcp.md says."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.acceptance.harness import eventually
from tests.fakes.anthropic_server import Answer, tool_use
from tests.systemd.service import PYTHON_THERE, SOON, UNIT, Service

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

DEMO = {"command": [PYTHON_THERE, "-m", "tests.fakes.mcp_server"], "cwd": "/opt/posthouse"}
DOCS = Path(__file__).parents[2] / "docs" / "mcp.md"


async def test_a_server_of_tools_and_its_end(service: Service) -> None:
    service.keep_secrets(DEMO_SECRET="for-the-server-only")
    demo = {**DEMO, "env": {"DEMO_TOKEN": "${DEMO_SECRET}"}, "approve": "never"}
    await service.start(agent={"tools": {"mcp": {"demo": demo}}})
    for _ in range(200):
        status = json.loads(await service.posthouse("status", "--json"))
        if "running" in str(status["details"].get("mcp demo", status["details"])):
            break
        await asyncio.sleep(0.1)
    service.world.anthropic.script(Answer([tool_use("mcp__demo__told", {})]), "it is done")
    chat = service.chat()
    chat.say("ask it")
    await eventually(lambda: "it is done" in chat.shown(), 30.0, "the answer", seen=chat.shown)
    told = "SELECT content FROM messages WHERE role = 'tool' ORDER BY id DESC LIMIT 1"
    assert "for-the-server-only False /opt/posthouse" in str(await service.one(told))
    assert await service.run("pgrep", "-f", "tests.fakes.mcp_server")
    await service.kill()
    await service.until("NRestarts", "1")
    await service.systemctl("stop", UNIT)
    assert not await service.run("pgrep", "-f", "tests.fakes.mcp_server", check=False)
    assert "for-the-server-only" not in json.dumps(await service.entries())


@pytest.mark.skipif(shutil.which("node", path="/usr/bin") is None, reason="node is not in /usr/bin")
async def test_node_needs_the_line_of_the_docs(service: Service) -> None:
    found = re.search(r"MemoryDenyWriteExecute=\w+", DOCS.read_text(encoding="utf-8"))
    assert found
    unit = (service.machine.root / "opt/posthouse/systemd/posthouse.service").read_text()
    program = "ExecStart=/usr/bin/node -e process.exitCode=7\nType=oneshot\nRestart=no\n"
    for line, works in (("", False), (found[0] + "\n", True)):
        text = re.sub(r"(?m)^(ExecStart|Type|Restart|WatchdogSec|RestartForce.*)=.*\n", "", unit)
        text = text.replace("[Service]\n", "[Service]\n" + program) + line
        text = text.replace(f"[Install]\nWantedBy=multi-user.target\n{line}", line)
        service.write(f"/run/systemd/system/{UNIT}", text, 0o644)
        await service.systemctl("daemon-reload")
        await service.systemctl("start", UNIT, check=False)
        assert (await service.show("ExecMainStatus") == "7") == works, await service.words()
    await service.run("rm", f"/run/systemd/system/{UNIT}")
    service.drop_in(SOON)
