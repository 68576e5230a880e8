"""Wrong configuration, wrong tokens, a second instance: refused in words, nothing harmed."""

from __future__ import annotations

import pytest

from tests.acceptance.harness import (
    DISCORD_USER,
    DiscordChat,
    TelegramChat,
    World,
    answered,
    run_command,
)

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

BAD_CONFIG = 78
HOME_IN_USE = 73


async def test_one_bad_token_does_not_stop_the_other_platform(world: World) -> None:
    world.configure()
    world.telegram.token_valid = False
    daemon = await world.run("discord", secrets=world.secrets)

    status = daemon.status()
    assert status is not None
    assert status["platforms"]["telegram"]["state"] == "failed-config"
    assert "token" in status["platforms"]["telegram"]["reason"].lower()
    chat = DiscordChat(world)
    chat.say("are you there?")
    await answered(chat, "reply to: are you there?", daemon)
    assert world.telegram.token not in daemon.log_text()
    code, _ = await daemon.terminate()
    assert code == 0


async def test_a_bad_discord_token_leaves_telegram_alone(world: World) -> None:
    world.configure()
    world.discord.set_token("another-token")
    daemon = await world.run(
        "telegram", secrets={**world.secrets, "DISCORD_BOT_TOKEN": "revoked-discord-token"}
    )

    status = daemon.status()
    assert status is not None
    assert status["platforms"]["discord"]["state"] == "failed-config"
    chat = TelegramChat(world)
    chat.say("are you there?")
    await answered(chat, "reply to: are you there?", daemon)
    assert "revoked-discord-token" not in daemon.log_text()


async def test_no_platform_can_run(world: World) -> None:
    world.configure()
    world.telegram.token_valid = False
    secrets = {**world.secrets, "DISCORD_BOT_TOKEN": "revoked-discord-token"}
    daemon = world.daemon(secrets=secrets).start()

    # An end waits for an import that is under way, which takes its time on a busy machine.
    assert await daemon.exited(60.0) == BAD_CONFIG
    assert "no platform can run" in daemon.log_text()


async def test_a_second_instance_is_refused_and_the_first_unharmed(world: World) -> None:
    world.configure()
    first = await world.run("telegram")
    second = await run_command(world.home, "run", secrets=world.secrets)

    assert second.returncode == HOME_IN_USE
    assert str(world.home) in second.stderr
    assert first.exit_code is None
    chat = TelegramChat(world)
    chat.say("still there?")
    await answered(chat, "reply to: still there?", first)
    assert len(chat.shown()) == 1


async def test_the_lock_of_a_killed_daemon_is_free(world: World) -> None:
    """Liveness is a held lock, never a file that somebody left behind."""
    world.configure()
    first = await world.run("telegram")
    await first.kill()
    assert (world.home / "posthouse.lock").exists()
    assert first.socket.exists()
    second = await world.run("telegram")
    assert second.exit_code is None


async def test_every_command_finds_a_daemon_of_another_configuration(world: World) -> None:
    """Started with `--config F`, which puts the socket elsewhere; commands know nothing of F."""
    socket = world.home.parent / "elsewhere.sock"
    written = world.configure(gateway={"control_socket": str(socket)})
    elsewhere = written.rename(world.home.parent / "other.yaml")
    daemon = world.daemon(config=elsewhere, secrets=world.secrets_for("telegram"))
    daemon.socket = socket
    await daemon.start().ready("telegram")
    for arguments in (["status"], ["jobs"], ["pair", "list"], ["top"], ["doctor", "--offline"]):
        found = await run_command(world.home, *arguments)
        assert "does not run" not in found.stdout, arguments
        assert "not running" not in found.stdout, arguments
        assert found.returncode == 0, (arguments, found.stderr)
    chat = await run_command(world.home, "chat", stdin="hello\n", secrets=world.secrets)
    assert (chat.returncode, "reply to: hello" in chat.stdout) == (0, True), chat.stderr
    gone = await run_command(world.home, "forget", "telegram:987", "--yes")
    assert gone.returncode == 0, gone.stderr

    await daemon.kill()
    assert socket.exists()
    status = await run_command(world.home, "status")
    assert (status.returncode, "start it with" in status.stdout) == (1, True)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("model:\n  contxt_length: 8000\n", 2, ["model.contxt_length", "context_length"]),
        ("telegram:\n  enabled: maybe\n", 2, ["telegram.enabled"]),
        ("model:\n  name: a\nmodel:\n  name: b\n", 3, ["model"]),
        ("model:\n  name: [unclosed\n", 3, []),
        ("tlegram: {}\n", 1, ["tlegram", "telegram"]),
        ("gateway:\n  drain_seconds: soon\n", 2, ["gateway.drain_seconds"]),
    ],
)
async def test_a_wrong_config_is_refused_with_its_place(
    world: World, text: str, line: int, said: list[str]
) -> None:
    world.home.mkdir()
    path = world.home / "config.yaml"
    path.write_text(text, encoding="utf-8")
    result = await run_command(world.home, "run", secrets=world.secrets)

    assert result.returncode == BAD_CONFIG
    assert f"{path}:{line}" in result.stderr
    for part in said:
        assert part in result.stderr
    assert "Traceback" not in result.stderr
    assert not (world.home / "state.db").exists()


async def test_secrets_from_files(world: World) -> None:
    """`<NAME>_FILE` works for each of them, and nothing of them is in the log."""
    world.configure(logging={"level": "DEBUG"})
    secrets = {}
    for name, value in world.secrets.items():
        path = world.home.parent / name.lower()
        path.write_text(value + "\n", encoding="utf-8")
        secrets[f"{name}_FILE"] = str(path)
    daemon = await world.run(secrets=secrets)
    telegram, discord = TelegramChat(world), DiscordChat(world, DISCORD_USER)
    telegram.say("one")
    discord.say("two")
    await answered(telegram, "reply to: one", daemon)
    await answered(discord, "reply to: two", daemon)
    await daemon.terminate()
    for value in world.secrets.values():
        assert value not in daemon.log_text()
