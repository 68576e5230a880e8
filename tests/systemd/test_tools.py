"""Commands of the shell tool, each in a unit of its own: what they reach, and what ends them."""

from __future__ import annotations

import asyncio

import pytest

from gateway import approval_text as words
from tests.acceptance.harness import TELEGRAM_USER, TelegramChat, eventually
from tests.fakes.anthropic_server import Answer, tool_use
from tests.systemd.service import HOME, PYTHON_THERE, UNIT, Service

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

PLACE = f"telegram-{TELEGRAM_USER}"


async def with_shell(service: Service) -> TelegramChat:
    await service.start(agent={"tools": {"shell": True}})
    assert "commands run in a unit of their own" in await service.words()
    return service.chat()


async def allowed(service: Service, chat: TelegramChat, command: str) -> None:
    """The model wants this command, and the person allows it."""
    world = service.world
    before = len([m for m in world.telegram.visible(TELEGRAM_USER) if "May I" in m.text])
    world.anthropic.script(Answer([tool_use("shell", {"command": command})]), "it is done")
    chat.say("do it")
    questions = await eventually(
        lambda: [m for m in world.telegram.visible(TELEGRAM_USER) if "May I" in m.text][before:],
        20.0,
        "a question",
        seen=chat.shown,
    )
    world.telegram.press(
        questions[0].message_id, words.APPROVE, chat_id=TELEGRAM_USER, user_id=TELEGRAM_USER
    )


async def result(service: Service, chat: TelegramChat, command: str) -> str:
    """What the model is told of it."""
    before = chat.shown().count("it is done")
    await allowed(service, chat, command)
    await eventually(
        lambda: chat.shown().count("it is done") > before, 40.0, "the answer", seen=chat.shown
    )
    told = "SELECT content FROM messages WHERE role = 'tool' ORDER BY id DESC LIMIT 1"
    return str(await service.one(told))


async def processes(service: Service, name: str) -> bool:
    return bool(await service.run("pgrep", "-f", name, check=False))


async def test_it_reaches_its_workspace_and_nothing_of_ours(service: Service) -> None:
    chat = await with_shell(service)
    pid = await service.main_pid()
    made = f"{HOME}/workspace/other"
    await service.run("sh", "-c", f"mkdir -p {made}; chown -R --reference={HOME} {HOME}/workspace")
    said = await result(
        service,
        chat,
        f"""echo $((6*7)) > a; pwd; ls -A ..; id -u
        cat {HOME}/state.db {HOME}/config.yaml {HOME}/tools.sock; ls {HOME}/workspace/other
        cat /run/credentials/*/* /etc/posthouse/*; cat /proc/*/environ
        touch {HOME}/y /etc/y /opt/posthouse/y
        echo mine > /dev/shm/mine; echo there > /tmp/t && cat /tmp/t
        p={pid}; kill -9 $p; kill -9 1; ls /proc | grep -c '^[0-9]'; env""",
    )
    written = service.home / "workspace" / PLACE / "a"
    assert written.read_text() == "42\n"
    assert written.stat().st_uid == service.home.stat().st_uid
    assert "state.db: No such file" in said
    assert "config.yaml: No such file" in said
    assert "other': No such file" in said
    assert "Read-only file system" in said
    assert "there" in said
    assert not any(value in said for value in service.world.secrets.values())
    assert await service.main_pid() == pid
    assert await service.show("NRestarts") == "0"
    # What it wrote is there for the next one, and nothing that it wrote elsewhere.
    said = await result(service, chat, "cat a; ls -A /dev/shm /tmp")
    assert "42" in said
    assert "mine" not in said
    assert await service.run("ls", "-A", "/dev/shm") == ""


async def test_what_takes_too_much_hurts_nobody_else(service: Service) -> None:
    chat = await with_shell(service)
    bomb = "bomb() { bomb | bomb & }; bomb 2>/dev/null; sleep 1; echo over"
    assert "over" in await result(service, chat, bomb)
    hog = "head -c 2G /dev/zero | tail; echo rest"
    assert "rest" in await result(service, chat, hog)
    chat.say("alive?")
    await service.answered(chat, "reply to: alive?")
    assert await service.show("NRestarts") == "0"
    limits = await service.run("systemctl", "show", "posthouse-tools@x.service")
    assert "MemoryMax=805306368" in limits
    assert "TasksMax=160" in limits


async def test_a_stop_ends_it(service: Service) -> None:
    chat = await with_shell(service)
    await allowed(service, chat, "setsid sleep 4321 & sleep 4321")
    await running(service, "sleep 4321")
    chat.say("/stop")
    await gone(service, "sleep 4321", 3.0)
    for _ in range(50):
        if not await service.run("systemctl", "--no-legend", "list-units", "posthouse-tools@*"):
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError("its unit is still there")


async def test_the_end_of_the_daemon_ends_it(service: Service) -> None:
    chat = await with_shell(service)
    await allowed(service, chat, "setsid sleep 5432 & sleep 5432")
    await running(service, "sleep 5432")
    await service.kill()
    await gone(service, "sleep 5432", 3.0)
    await service.until("ActiveState", "active")


async def test_nobody_else_gets_through_the_door(service: Service) -> None:
    """Root, and another user whom somebody lets to the socket."""
    await with_shell(service)
    made = f"{HOME}/workspace/{PLACE}"
    await service.run("sh", "-c", f"mkdir -p {made}; chown -R --reference={HOME} {HOME}/workspace")
    call = (
        f"import socket; s=socket.socket(socket.AF_UNIX); s.connect('{HOME}/tools.sock'); "
        f"s.sendall(b'{PLACE}\\n'+b'"
        '{"command":"id","folder":"/","seconds":5,"keep_bytes":100}'
        "\\n'); print(s.makefile().read())"
    )
    python = PYTHON_THERE
    assert "could not be shut in" in await service.run(python, "-c", call)
    assert "whose workspaces these are" in await service.words()
    as_nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    said = await service.run(*as_nobody, python, "-c", call, check=False)
    assert "PermissionError" in said
    # The user itself, for a folder elsewhere.
    about = service.home.stat()
    walk = call.replace(PLACE, "../..")
    owner = ("setpriv", f"--reuid={about.st_uid}", f"--regid={about.st_gid}", "--clear-groups")
    await service.run("chmod", "711", "/var/lib/private")
    said = await service.run(*owner, python, "-c", walk)
    assert "could not be shut in" in said
    assert "exit" in await service.run(*owner, python, "-c", call)
    await service.run("chmod", "700", "/var/lib/private")


async def test_without_its_units_it_does_not_move_in_unasked(service: Service) -> None:
    chat = await with_shell(service)
    await service.systemctl("stop", "posthouse-tools.socket")
    said = await result(service, chat, "echo hello > b")
    assert "commands can not be run right now" in said
    assert not (service.home / "workspace" / PLACE / "b").exists()
    await service.systemctl("start", "posthouse-tools.socket")
    assert "exit code 0" in await result(service, chat, "echo hello > b")


async def running(service: Service, name: str) -> None:
    for _ in range(100):
        if await processes(service, name):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{name} does not run\n{await service.words()}")


async def gone(service: Service, name: str, seconds: float) -> None:
    for _ in range(round(seconds / 0.1)):
        if not await processes(service, name):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{name} still runs\n{await service.words(f'_SYSTEMD_UNIT={UNIT}')}")
