"""An operator, who is root, in the home of a service that is stopped: it starts afterwards."""

from __future__ import annotations

import pytest

from tests.systemd.service import HOME, UNIT, Service

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]


async def test_what_root_does_meanwhile_is_left_to_the_service(service: Service) -> None:
    await service.start()
    chat = service.chat()
    chat.say("hello")
    await service.answered(chat, "reply to: hello")
    await service.systemctl("stop", UNIT)
    assert "telegram" in await service.posthouse("sessions", "list")
    await service.posthouse("pair", "list")
    await service.posthouse("jobs", "list")
    await service.posthouse("backup")
    await service.posthouse("backup", "/root/elsewhere")
    await service.posthouse("restore", "/root/elsewhere", "--yes")
    await service.posthouse("forget", "telegram:1234567", "--yes")
    for command in (["run"], ["chat"], ["plugins", "check", "example"]):
        said = await service.posthouse(*command, check=False)
        assert "`systemctl start posthouse`" in said, command
    roots = await service.run("find", HOME, "-user", "root", "-not", "-type", "s")
    assert roots == ""
    await service.systemctl("start", UNIT)
    assert await service.show("ActiveState") == "active"
    chat.say("still there?")
    await service.answered(chat, "reply to: still there?")
