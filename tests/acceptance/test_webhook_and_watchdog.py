"""The daemon as a process: updates by webhook over kill -9, a network that comes late, systemd."""

from __future__ import annotations

import contextlib
import socket

import pytest

from gateway.cli.exits import BAD_CONFIG
from tests.acceptance.harness import TelegramChat, World, answered, eventually, settled
from tests.fakes.ports import free_port

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]


async def test_by_webhook_over_kills_and_back_to_polling(world: World) -> None:
    port = free_port()
    hook = {"url": f"http://127.0.0.1:{port}/telegram", "port": port}
    chat = TelegramChat(world)
    texts = []
    for n, mode in enumerate(["polling", "webhook", "webhook", "polling"]):
        world.configure(telegram={"mode": mode, "webhook": hook})
        chat.say(f"down {n}")
        daemon = await world.run("telegram")
        chat.say(f"up {n}")
        texts += [f"reply to: down {n}", f"reply to: up {n}"]
        await answered(chat, texts[-1], daemon)
        assert bool(world.telegram.webhook.url) == (mode == "webhook")
        if n == 1:
            await settled(world)  # killed before its mark, an answer would say it may be a repeat
            await daemon.kill()
        else:
            await daemon.terminate()
    # Each answered once, in order; beside it only that something was still under way.
    assert [text for text in chat.shown() if "reply to" in text] == texts
    await settled(world)
    assert world.database().integrity() == "ok"


async def test_webhook_without_an_address(world: World) -> None:
    world.configure(telegram={"mode": "webhook"})
    daemon = world.daemon(secrets=world.secrets_for("telegram")).start()
    assert await daemon.exited() == BAD_CONFIG
    assert "webhook.url" in daemon.log_text()


async def test_the_network_comes_late(world: World) -> None:
    """Ready, degraded, trying on: neither the end of the process nor of the other platform."""
    world.configure()
    await world.telegram.pause()
    daemon = await world.daemon().start().ready("discord")
    status = daemon.status()
    assert status is not None
    assert status["platforms"]["telegram"]["state"] == "retrying"
    assert "is the network up?" in status["platforms"]["telegram"]["reason"]
    chat = TelegramChat(world)
    chat.say("early")
    await world.telegram.resume()
    await answered(chat, "reply to: early", daemon)
    code, _ = await daemon.terminate()
    assert code == 0


async def test_no_platform_can_run(world: World) -> None:
    world.configure()
    secrets = {**world.secrets_for("telegram"), "TELEGRAM_BOT_TOKEN": "1:never-right"}
    daemon = world.daemon(secrets=secrets).start()
    # An end waits for an import that is under way, which takes its time on a busy machine.
    assert await daemon.exited(60) == BAD_CONFIG


async def test_the_service_manager_hears_from_it(world: World) -> None:
    path = world.home.parent / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.setblocking(False)
        world.configure()
        secrets = {
            **world.secrets_for("telegram"),
            "NOTIFY_SOCKET": str(path),
            "WATCHDOG_USEC": "1000000",
        }
        daemon = await world.run("telegram", secrets=secrets)
        heard: list[str] = []

        def listen() -> int:
            with contextlib.suppress(BlockingIOError):
                while True:
                    heard.extend(manager.recv(65536).decode().split("\n"))
            return heard.count("WATCHDOG=1")

        await eventually(lambda: listen() >= 4, 20.0, "the watchdog to be fed")
        assert "READY=1" in heard
        assert any(line.startswith("STATUS=telegram running") for line in heard)
        code, _ = await daemon.terminate()
        assert code == 0
        listen()
        assert "STOPPING=1" in heard
