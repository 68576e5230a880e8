"""Installed, ready, answering, reloaded, ended, started again; what systemd says of it."""

from __future__ import annotations

import asyncio

import pytest

from gateway import __version__
from gateway.texts import restarted
from tests.acceptance.harness import TELEGRAM_USER
from tests.fakes.person import Person
from tests.systemd.machine import ENVIRONMENT, PROGRAM
from tests.systemd.service import SECRETS, UNIT, Service

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]


async def test_from_nothing_to_an_answer(service: Service) -> None:
    await service.start()
    assert await service.show("ActiveState") == "active"
    assert (await service.show("StatusText")).startswith("telegram running")
    assert await service.show("UnitFileState") == "enabled"
    chat = service.chat()
    chat.say("hello")
    await service.answered(chat, "reply to: hello")
    # The same command line, as root, finds the service's home by itself.
    assert "ready" in await service.posthouse("status")
    assert "telegram" in await service.posthouse("sessions", "list")
    # So does the doctor its secrets.
    await service.run("chmod", "644", f"{SECRETS}/TELEGRAM_BOT_TOKEN")
    said = await service.posthouse("doctor", "--offline")
    assert f"ANTHROPIC_API_KEY: from {SECRETS}/ANTHROPIC_API_KEY" in said
    assert "no chat platform is set up" not in said
    assert f"chmod 600 {SECRETS}/TELEGRAM_BOT_TOKEN" in said
    # Secrets are neither in the environment nor in what systemd tells everybody.
    pid = await service.main_pid()
    environ = await service.run("cat", f"/proc/{pid}/environ")
    for value in service.world.secrets.values():
        assert value not in environ + await service.systemctl("show", UNIT)
    entries = await service.entries(f"_SYSTEMD_UNIT={UNIT}")
    assert {int(entry["PRIORITY"]) for entry in entries} <= {4, 5, 6}
    assert "ready" in await service.words(f"_SYSTEMD_UNIT={UNIT}")
    assert "gateway.watchdog" in await service.posthouse("service", "logs", "-n", "50")


async def test_nothing_but_its_home_can_be_written(service: Service) -> None:
    await service.start()
    pid = await service.main_pid()
    inside = ("nsenter", "-t", str(pid), "-m", "sh", "-c")
    for folder in ("/etc", "/usr", "/opt/posthouse", "/var/lib", "/var/log"):
        said = await service.run(*inside, f"touch {folder}/x", check=False)
        assert "Read-only" in said, folder
    assert await service.run(*inside, "ls -A /home /root", check=False) == "/home:\n\n/root:\n"
    await service.run(*inside, "touch /var/lib/posthouse/x")


async def test_installing_again_changes_what_has_changed(service: Service) -> None:
    await service.start()
    before = await service.main_pid()
    said = await service.posthouse("service", "install")
    assert "was installed already" in said
    assert "write" not in said
    unit = "/etc/systemd/system/posthouse.service"
    older = (await service.run("cat", unit)).replace("RestartSec=5", "RestartSec=2")
    service.write(unit, older, 0o644)
    assert "posthouse.service anew" in await service.posthouse("service", "install", "--dry-run")
    said = await service.posthouse("service", "install")
    assert "would" not in said
    assert "write /etc/systemd/system/posthouse.service anew" in said
    assert "tools.socket" not in said.replace("systemctl", "")
    assert await service.main_pid() == before, "a running one goes on until it is told to restart"
    service.keep_secrets(TRACKER_TOKEN="for-a-server-of-tools")
    await service.posthouse("service", "install", "--now")
    assert await service.main_pid() != before
    held = await service.run("sh", "-c", f"cat /run/credentials/{UNIT}/TRACKER_TOKEN")
    assert held == "for-a-server-of-tools\n"
    # The file goes, the start stays possible.
    await service.run("rm", "/etc/posthouse/TRACKER_TOKEN")
    await service.systemctl("restart", UNIT)


async def test_a_home_and_secrets_are_taken_over(service: Service) -> None:
    """Who has tried it by hand first goes on with what was said."""
    world = service.world
    service.configure()
    await service.run("sh", "-c", "mv /var/lib/private/posthouse /root/.posthouse")
    # One where `posthouse init` has put it, one from this environment.
    service.write("/root/.posthouse/secrets/ANTHROPIC_API_KEY", world.anthropic.api_key)
    env = {"TELEGRAM_BOT_TOKEN": world.telegram.token, "POSTHOUSE_HOME": "/root/.posthouse"}
    words = ("service", "install", "--import-secrets", "--from", "/root/.posthouse", "--now")
    said = await service.posthouse(*words, **env)
    assert not any(value in said for value in world.secrets.values())
    assert await service.run("stat", "-c", "%a", "/etc/posthouse/TELEGRAM_BOT_TOKEN") == "600\n"
    chat = service.chat()
    chat.say("moved")
    await service.answered(chat, "reply to: moved")
    assert len(world.anthropic.records.requests) == 1
    said = await service.run("stat", "-c", "%a %U", "/var/lib/posthouse/secrets/ANTHROPIC_API_KEY")
    assert said.startswith("600 ")
    assert "root" not in said
    said = await service.posthouse("service", "install", "--from", "/root/.posthouse", check=False)
    assert "has something in it" in said


async def test_init_installs_it_for_who_says_yes(service: Service) -> None:
    """What it asked for serves at once, and what the service has to read is readable."""
    world, machine = service.world, service.machine
    flags = ["--telegram-base-url", world.telegram.base_url]
    flags += ["--model-base-url", world.anthropic.base_url]
    await service.run("sh", "-c", "find /opt/posthouse -name '*.pyc' -delete")
    async with Person(["init", *flags], ENVIRONMENT, (*machine.inside, PROGRAM)) as person:
        await person.answers(("no Telegram (not shown): ", world.telegram.token))
        await person.answers(("Ids", str(TELEGRAM_USER)), ("be an admin", ""))
        await person.answers(("no Discord (not shown): ", ""))
        await person.answers(("no key (not shown): ", world.anthropic.api_key), ("Model", ""))
        await person.answers(("Zone", "Europe/Berlin"), ("Write it?", "y"))
        await person.answers(("Install it as a service, and start it?", "y"))
        await person.sees("posthouse is installed.")
        assert await person.ends() == 0
    assert not any(value in person.seen for value in world.secrets.values())
    chat = service.chat()
    chat.say("hello")
    await service.answered(chat, "reply to: hello")
    compiled = "find /opt/posthouse/gateway -name '*.pyc' | xargs stat -c %a | sort -u"
    assert await service.run("sh", "-c", compiled) == "644\n"
    said = await service.posthouse("init", "--yes", "--timezone", "Asia/Tokyo", "--replace")
    assert "the gateway runs already" in said.lower()


async def test_taken_away_its_data_stay(service: Service) -> None:
    await service.start()
    said = await service.posthouse("service", "uninstall")
    assert "kept: /var/lib/private/posthouse" in said
    assert await service.show("LoadState") == "not-found"
    assert (service.home / "state.db").exists()
    assert "say --yes" in await service.posthouse("service", "uninstall", "--purge", check=False)
    assert (service.home / "state.db").exists()
    await service.posthouse("service", "uninstall", "--purge", "--yes")
    assert not service.home.exists()
    assert await service.run("sh", "-c", "ls -d /etc/posthouse || true") != "/etc/posthouse\n"


async def test_a_reload_changes_it_and_a_bad_file_does_not(service: Service) -> None:
    await service.start()
    pid = await service.main_pid()
    service.configure(logging={"format": "auto", "level": "DEBUG"})
    await service.systemctl("reload", UNIT)
    for _ in range(100):
        if "logging.level" in await service.words(f"_SYSTEMD_UNIT={UNIT}"):
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError(await service.words())
    (service.home / "config.yaml").write_text("gateway: [")
    assert "failed" in await service.systemctl("reload", UNIT, check=False)
    said = await service.words(f"_SYSTEMD_UNIT={UNIT}")
    assert "config.yaml:1:11: not valid YAML" in said
    assert "the last good configuration is in force" in said
    assert await service.show("ActiveState") == "active"
    chat = service.chat()
    chat.say("still there?")
    await service.answered(chat, "reply to: still there?")
    assert await service.main_pid() == pid


async def test_a_stop_in_the_middle_of_a_turn(service: Service) -> None:
    """Within drain_seconds (3 here); nothing is killed, and the turn goes on at the next start."""
    await service.start()
    chat = service.chat()
    service.world.anthropic.fault_next("hang", text="long")
    chat.say("long")
    await service.at_work()
    await service.systemctl("stop", UNIT)
    assert await service.show("Result") == "success"
    assert await service.show("ExecMainStatus") == "0"
    assert "SIGKILL" not in await service.words()
    await service.systemctl("start", UNIT)
    await service.answered(chat, "reply to: long")


async def test_a_kill_in_the_middle_of_a_turn(service: Service) -> None:
    await service.start()
    chat = service.chat()
    service.world.anthropic.fault_next("hang", text="cut off")
    chat.say("cut off")
    await service.at_work()
    chat.say("and this?")
    await service.stored("SELECT count(*) FROM inbox", 2)
    await service.kill()
    await service.answered(chat, "reply to: and this?")
    shown = [text for text in chat.shown() if "reply to: cut off" in text]
    assert len(shown) == 1
    assert await service.show("NRestarts") == "1"


async def test_a_restart_that_an_admin_asks_for(service: Service) -> None:
    await service.start(telegram={"admins": [TELEGRAM_USER]})
    chat = service.chat()
    before = await service.main_pid()
    chat.say("/restart")
    await service.answered(chat, restarted(__version__, 0))
    assert await service.main_pid() != before
    assert await service.show("NRestarts") == "1"


async def test_it_is_never_given_up(service: Service) -> None:
    """Six ends in a few seconds: systemd's own limit, five in ten seconds, does not hold."""
    await service.start()
    for n in range(6):
        await service.until("NRestarts", str(n))
        pid = 0
        while not pid:
            pid = await service.main_pid()
        await service.kill()
    await service.until("NRestarts", "6")
    await service.until("ActiveState", "active")


@pytest.mark.parametrize(
    ("config", "said"), [("gateway: {drain_second: 3}", "drain_second"), ("a: [", "config.yaml")]
)
async def test_a_broken_configuration_waits_for_a_person(
    service: Service, config: str, said: str
) -> None:
    service.configure()
    (service.home / "config.yaml").write_text(config)
    await service.posthouse("service", "install", "--now", check=False)
    await service.until("ActiveState", "failed")
    assert await service.show("ExecMainStatus") == "78"
    assert await service.show("NRestarts") == "0"
    assert said in await service.systemctl("status", "--no-pager", "--full", UNIT, check=False)


async def test_a_home_in_use_is_left_alone(service: Service) -> None:
    await service.start()
    await service.systemctl("stop", UNIT)
    holder = "import fcntl,sys,time; f=open(sys.argv[1],'r+'); fcntl.flock(f,2); time.sleep(60)"
    lock = "/var/lib/private/posthouse/posthouse.lock"
    run = ("systemd-run", "--unit=holder", "/opt/posthouse/.venv/bin/python", "-c", holder, lock)
    await service.run(*run)
    try:
        await asyncio.sleep(0.5)
        await service.systemctl("start", UNIT, check=False)
        await service.until("ActiveState", "failed")
        assert await service.show("ExecMainStatus") == "73"
        status = await service.systemctl("status", "--no-pager", "--full", UNIT, check=False)
        assert "another posthouse" in status
    finally:
        await service.systemctl("stop", "holder")


async def test_a_bad_token_is_the_end_of_its_platform_only(service: Service) -> None:
    service.configure()
    secrets = service.world.secrets_for("telegram", "discord")
    service.keep_secrets(**{**secrets, "DISCORD_BOT_TOKEN": "never.was.right"})
    await service.posthouse("service", "install", "--now")
    text = await service.show("StatusText")
    assert "telegram running" in text
    assert "discord failed-config" in text
    chat = service.chat()
    chat.say("and you?")
    await service.answered(chat, "reply to: and you?")
