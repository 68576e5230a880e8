"""The reload: what changes at once, what waits for a start, and what a bad file does not do."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.main import main
from gateway.config.environment import Home, Secrets, find_home
from gateway.config.models import Config
from gateway.config.reading import FileText, Reading, Source
from gateway.config.shape import all_paths
from gateway.config.taking_effect import (
    GATE_KEYS,
    TAKES_EFFECT,
    changed_paths,
    takes_effect,
    with_paths,
)
from gateway.control import send_line
from gateway.control_server import ControlServer
from gateway.intake.intake import GatewayIntake
from gateway.reloading import Reload, Reloads
from gateway.wiring.assembling import build_daemon
from gateway.wiring.surroundings import Surroundings
from tests.fakes.clock import FakeClock

WHOLE = """\
logging:
  level: WARNING
telegram:
  allow_from: [111, 222]
  admins: [111]
"""


class House:
    """A folder with a configuration, and reloads over it."""

    def __init__(self, folder: Path, clock: FakeClock, text: str = WHOLE) -> None:
        self.clock = clock
        self.file = folder / "config.yaml"
        self.file.write_text(text)
        self.env = {"POSTHOUSE_HOME": str(folder)}
        self.home: Home = find_home(self.env)
        source = Source(self.home, self.env)
        self.reloads = Reloads(source.reading(source.text()), source, clock)
        self.seen: list[Config] = []

        async def take(config: Config) -> None:
            self.seen.append(config)

        self.reloads.on(["telegram.allow_from", "logging"], take)

    async def reload(self, meanwhile: Callable[[], None] = lambda: None) -> Reload:
        task = asyncio.create_task(self.reloads.reload())
        while not task.done():
            await asyncio.sleep(0.002)
            if (seconds := self.clock.next_wake_seconds) is not None:
                meanwhile()
                await self.clock.advance(seconds)
        return task.result()


@pytest.fixture
def house(tmp_path: Path, clock: FakeClock) -> House:
    return House(tmp_path, clock)


async def test_what_has_an_owner_changes_at_once(house: House) -> None:
    house.file.write_text(WHOLE.replace("[111, 222]", "[222]").replace("WARNING", "DEBUG"))
    came = await house.reload()
    assert set(came.applied) == {"telegram.allow_from", "logging.level"}
    assert came.restart == came.errors == ()
    assert [c.telegram.allow_from for c in house.seen] == [["222"]]
    assert house.reloads.config.logging.level == "DEBUG"
    assert house.reloads.details() == {}


async def test_a_disk_that_hangs_ends_this_reload_and_not_the_next(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.reloading.READ_SECONDS", 0.05)
    back = threading.Event()

    class Hanging(Source):
        """Its file lies on a server that does not answer."""

        def text(self) -> FileText:
            back.wait(20)
            return Source(self.home, self.env).text()

    source = Hanging(house.home, house.env)
    reading = Source(house.home, house.env).reading(Source(house.home, house.env).text())
    house.reloads = Reloads(reading, source, house.clock)
    try:
        came = await house.reload()
    finally:
        back.set()
    assert came.errors == ("the configuration or a secret was not read within 0.05 seconds",)
    monkeypatch.setattr("gateway.reloading.READ_SECONDS", 20)
    assert await house.reload() == Reload()


async def test_nothing_changed_says_so(house: House, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert await house.reload() == Reload()
    assert not house.seen
    (record,) = [r for r in caplog.records if r.name == "gateway.reloading"]
    assert vars(record)["changed"] == "nothing"


async def test_what_nobody_takes_over_waits_until_it_is_as_it_was(house: House) -> None:
    house.file.write_text(WHOLE + "model: {name: other}\ngateway: {busy_mode: steer}\n")
    came = await house.reload()
    assert came.applied == ()
    # The table says that busy_mode may change; in this house nobody takes it over.
    assert set(came.restart) == {"model.name", "gateway.busy_mode"}
    assert house.reloads.config.model.name == Config().model.name
    assert "model.name" in house.reloads.details()["waits for a restart"]
    house.file.write_text(WHOLE)
    assert await house.reload() == Reload()
    assert house.reloads.details() == {}


async def test_each_key_and_secret_that_waits_is_named(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secrets = house.home.secrets
    secrets.mkdir(mode=0o700)
    (secrets / "DISCORD_BOT_TOKEN").write_text("new\n")
    (secrets / "DISCORD_BOT_TOKEN").chmod(0o600)
    house.file.write_text(
        WHOLE + "model: {fallback: [claude-haiku-5-5]}\nplugins: {enabled: [mine]}\nmine: {a: 1}\n"
    )
    came = await house.reload()
    waiting = {"model.fallback", "plugins.enabled", "mine", "DISCORD_BOT_TOKEN"}
    assert set(came.restart) == waiting
    assert set(house.reloads.details()["waits for a restart"].split(", ")) == waiting

    async def reload(request: dict[str, Any], reader: Any, writer: Any) -> None:
        await send_line(writer, asdict(came))

    monkeypatch.setenv("POSTHOUSE_HOME", str(house.home.path))
    server = ControlServer(house.home.path / "control.sock", {"reload": reload})
    await server.start()
    try:
        assert await asyncio.to_thread(main, ["config", "reload"]) == 0
    finally:
        await server.close()
    said = capsys.readouterr().out
    for name in waiting:
        assert f"waits for a restart: {name}\n" in said
    assert said.count("to restart it: ") == 1


async def test_a_bad_file_changes_nothing_and_is_seen_until_it_is_mended(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    before = house.reloads.config
    house.file.write_text(WHOLE.replace("WARNING", "LOUD").replace("[111, 222]", "[3]"))
    with caplog.at_level(logging.INFO):
        came = await house.reload()
    (error,) = came.errors
    assert f"{house.file}:2" in error
    assert "logging.level" in error
    assert house.reloads.config is before
    assert not house.seen
    assert error in house.reloads.details()["CONFIGURATION REFUSED"]
    assert [r.levelname for r in caplog.records if r.name == "gateway.reloading"] == ["ERROR"]
    house.file.write_text(WHOLE)
    await house.reload()
    assert house.reloads.details() == {}


@pytest.mark.parametrize("text", ["", "\n\n", None])
async def test_a_file_that_is_emptied_or_gone_is_no_wish_for_the_defaults(
    house: House, text: str | None
) -> None:
    if text is None:
        house.file.unlink()
    else:
        house.file.write_text(text)
    (error,) = (await house.reload()).errors
    assert "is empty or gone" in error
    assert house.reloads.config.telegram.allow_from == ["111", "222"]


async def test_every_piece_of_a_file_that_is_being_written_waits_for_the_rest(
    tmp_path: Path, clock: FakeClock
) -> None:
    """Whatever stands there at the first look: the whole text is what counts, or nothing changes.

    A piece that is a valid configuration by itself would shut people out for a moment.
    """
    target = WHOLE.replace("WARNING", "ERROR")
    for length in range(len(target)):
        house = House(tmp_path, clock)
        house.file.write_text(target[:length])
        came = await house.reload(lambda: house.file.write_text(target))  # noqa: B023 - at once
        assert came.applied == ("logging.level",), length
        assert not house.seen[0].telegram.pairing


async def test_an_editor_that_moves_the_old_file_away_first(
    tmp_path: Path, clock: FakeClock
) -> None:
    for option in (None, str(tmp_path / "config.yaml")):
        house = House(tmp_path, clock)
        source = Source(house.home, house.env, option)
        house.reloads = Reloads(source.reading(source.text()), source, clock)
        house.file.unlink()
        assert await house.reload(lambda: house.file.write_text(WHOLE)) == Reload()  # noqa: B023
        house.file.unlink()
        (error,) = (await house.reload()).errors
        assert ("no such file" if option else "is empty or gone") in error


async def test_a_file_that_never_comes_to_rest_is_not_taken(house: House) -> None:
    times = iter(range(1000))
    came = await house.reload(lambda: house.file.write_text(WHOLE + f"# {next(times)}\n"))
    assert "still being written" in came.errors[0]


async def test_a_changed_secret_waits_and_is_not_shown(house: House, tmp_path: Path) -> None:
    named = tmp_path / "token"
    named.write_text("12:AAAA-before")
    house.env["TELEGRAM_BOT_TOKEN_FILE"] = str(named)
    came = await house.reload()
    assert came.restart == ("TELEGRAM_BOT_TOKEN",)
    named.unlink()
    (error,) = (await house.reload()).errors
    assert error.startswith("TELEGRAM_BOT_TOKEN_FILE: ")
    assert "AAAA" not in str(house.reloads.details())


async def test_secrets_of_servers_of_tools_are_read_again_as_well(
    tmp_path: Path, clock: FakeClock
) -> None:
    named = tmp_path / "token"
    named.write_text("one-secret")
    named.chmod(0o600)
    house = House(tmp_path, clock, text="{}\n")
    house.env["TRACKER_FILE"] = str(named)
    house.file.write_text(
        "agent: {tools: {mcp: {a: {url: 'https://x.org', headers: {A: '${TRACKER}'}}}}}\n"
    )
    source = Source(house.home, house.env)
    house.reloads = Reloads(source.reading(source.text()), source, clock)
    readings: list[Reading] = []
    house.reloads.on_reading(readings.append)
    assert await house.reload() == Reload()
    named.write_text("another-secret")
    assert (await house.reload()).restart == ("TRACKER",)
    assert [reading.hidden for reading in readings] == [("one-secret",), ("another-secret",)]
    named.unlink()
    (error,) = (await house.reload()).errors
    assert error.startswith("TRACKER_FILE: ")


async def test_a_fault_of_ours_is_not_the_last_reload(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    def stumbles(reading: Reading) -> None:
        if not caplog.records:
            raise RuntimeError("not this time")

    house.reloads.on_reading(stumbles)
    house.file.write_text(WHOLE.replace("222", "3"))
    assert "fault of ours" in (await house.reload()).errors[0]
    assert (await house.reload()).applied == ("telegram.allow_from",)


async def test_who_fails_to_take_over_is_asked_again(house: House) -> None:
    asked: list[int] = []

    async def fails_once(config: Config) -> None:
        asked.append(config.gateway.queue_limit)
        if len(asked) == 1:
            raise RuntimeError("not now")

    house.reloads.on(["gateway.queue_limit"], fails_once)
    house.file.write_text(WHOLE.replace("222", "3") + "gateway: {queue_limit: 7}\n")
    came = await house.reload()
    assert came.applied == ("telegram.allow_from",)
    assert came.restart == ("gateway.queue_limit",)
    assert (await house.reload()).applied == ("gateway.queue_limit",)
    assert asked == [7, 7]


async def test_without_a_file_there_is_nothing_to_read_again(house: House) -> None:
    alone = Reloads(house.reloads._started, None, house.clock)
    assert (await alone.reload()).errors


def test_nobody_can_take_over_what_needs_a_start(house: House) -> None:
    with pytest.raises(ValueError, match=r"model\.name"):
        house.reloads.looked_at("model.name")


def leaves() -> set[str]:
    """The keys that hold a value."""
    paths = set(all_paths(Config))
    return {p for p in paths if not any(other.startswith(p + ".") for other in paths)}


def test_every_key_is_in_the_table() -> None:
    missing = {
        path
        for path in leaves()
        if not any(path == entry or path.startswith(entry + ".") for entry in TAKES_EFFECT)
    }
    assert not missing, "say in gateway/config/taking_effect.py when it takes effect"
    assert set(TAKES_EFFECT) <= set(all_paths(Config))
    needless = {e for e, when in TAKES_EFFECT.items() if _without(e) == when}
    assert not needless


def _without(entry: str) -> str | None:
    parent = entry.rpartition(".")[0]
    while parent and parent not in TAKES_EFFECT:
        parent = parent.rpartition(".")[0]
    return TAKES_EFFECT[parent] if parent else None


async def test_the_daemon_takes_over_what_the_table_says(tmp_path: Path) -> None:
    env = {"POSTHOUSE_HOME": str(tmp_path)}
    around = Surroundings(
        find_home(env), Secrets(), env, only_console=True, set_up_log=lambda reading: None
    )
    made = await build_daemon(Config(), around)
    reloads = made._parts.reloads
    assert reloads is not None
    promised = {path for path in leaves() if takes_effect(path) == "reload"}
    await made._parts.store.close()
    assert not {path for path in promised if not reloads.is_taken_over(path)}


def test_the_paths_of_what_differs() -> None:
    old = Config()
    new = Config.model_validate(
        {
            "telegram": {"allow_from": [1], "webhook": {"port": 1}},
            "auxiliary": {"a": {"model": "m"}},
            "agent": {"tools": {"mcp": {"x": {"command": "a"}}}},
            "jobs": [],
        }
    )
    assert set(changed_paths(old, new)) == {
        "telegram.allow_from",
        "telegram.webhook.port",
        "auxiliary",
        "agent.tools.mcp",
    }
    mixed = with_paths(old, new, frozenset({"telegram.webhook", "agent.tools"}))
    assert mixed.telegram.webhook.port == 1
    assert mixed.telegram.allow_from == []
    assert takes_effect("telegram.webhook.port") == "restart"
    assert list(mixed.agent.tools.mcp) == ["x"]


def test_the_documentation_names_every_entry_of_the_table() -> None:
    text = (Path(__file__).parents[3] / "docs/configuration.md").read_text(encoding="utf-8")
    at_once, _, later = text.partition("At once, or with the next turn:")[2].partition(
        "With the next start: "
    )
    later = later.partition("\n\n")[0]
    for entry, when in TAKES_EFFECT.items():
        if entry not in GATE_KEYS:
            assert f"`{entry}`" in (later if when == "restart" else at_once), entry


async def test_the_parts_of_a_daemon_have_the_new_values(tmp_path: Path, clock: FakeClock) -> None:
    house = House(tmp_path, clock, text="logging: {level: INFO}\n")
    source = Source(house.home, house.env)
    seen: list[Reading] = []
    around = Surroundings(
        house.home,
        Secrets(),
        house.env,
        only_console=True,
        source=source,
        reading=source.reading(source.text()),
        set_up_log=seen.append,
    )
    made = await build_daemon(Config(), around)
    parts = made._parts
    try:
        assert parts.reloads is not None
        parts.reloads._clock = clock
        house.reloads = parts.reloads
        host = parts.dispatch._host
        before = host.status.triggers().effective_tokens
        house.file.write_text(
            "logging: {level: DEBUG}\n"
            "gateway: {busy_mode: steer, queue_limit: 7, drain_seconds: 1}\n"
            "compression: {threshold: 0.25}\n"
            "agent: {system_prompt: You are a ferry., max_iterations: 3}\n"
            "budget: {usd_per_user_day: 1.5}\n"
            "timezone: Asia/Tokyo\n"
        )
        came = await house.reload()
        assert came.restart == came.errors == ()
        assert [reading.config.logging.level for reading in seen] == ["DEBUG"]
        assert (host.busy_mode(), parts.dispatch._busy_mode()) == ("steer", "steer")
        assert isinstance(parts.intake, GatewayIntake)
        assert parts.intake._limits.queue_limit == 7
        assert parts.drain_seconds() == 1
        assert host.status.triggers().effective_tokens == before // 2
        assert host.prefix_for("console").system_prompt.startswith("You are a ferry.")
        assert str(host.accounts.zone) == "Asia/Tokyo"
        assert host.accounts._limit_usd == 1.5
        assert parts.delivery._settings.zone() == host.accounts.zone
    finally:
        await parts.store.close()
