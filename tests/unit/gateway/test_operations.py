"""What operators touch: the log, the service manager, the control socket, the unit, the CLI."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ConfigError, PosthouseError
from agent.messages import Draft
from gateway import __version__
from gateway.cli import exits
from gateway.cli.main import build_parser, main
from gateway.cli.output import plain
from gateway.cli.run import LogLevel, quiet_level
from gateway.cli.settings import Settings
from gateway.config.models import Config
from gateway.control import (
    NotAnswering,
    ask,
    connect,
    read_line,
    send_line,
    socket_path,
)
from gateway.control_server import ControlServer
from gateway.daemon import RESTART_WANTED
from gateway.logs import about, set_up
from gateway.platforms.console.streams import MAX_LINE_BYTES
from gateway.platforms.contract import ChatGone
from gateway.sdnotify import ServiceManager
from storage.sqlite import open_store
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.platform import inbound
from tests.unit.gateway.rig import Rig, said

ROOT = Path(__file__).parents[3]
TOKEN = "123456:AAF-secret-token-of-the-bot"


class TestLog:
    @pytest.fixture(autouse=True)
    def restore(self) -> Iterator[None]:
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        yield
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(False)

    def lines(self, style: str, env: dict[str, str] | None = None) -> io.StringIO:
        stream = io.StringIO()
        set_up(level="DEBUG", style=style, secrets=[TOKEN], env=env or {}, stream=stream)
        return stream

    @pytest.mark.parametrize("style", ["plain", "json", "auto"])
    def test_no_secret_in_message_fields_or_traceback(self, style: str) -> None:
        stream = self.lines(style, {"JOURNAL_STREAM": "8:1"} if style == "auto" else None)
        log = logging.getLogger("anything")
        log.info("GET https://x/bot%s/getMe", TOKEN, extra={"url": f"https://x/bot{TOKEN}/"})
        try:
            raise ConnectionError(f"https://x/bot{TOKEN}/getMe refused")
        except ConnectionError:
            log.exception("failed")
        assert TOKEN not in stream.getvalue()
        assert stream.getvalue().count("[secret]") >= 3

    def test_request_lines_of_http_clients_are_silent(self) -> None:
        stream = self.lines("plain")
        for name in ("httpx", "httpx2", "httpcore", "telegram.Bot", "discord.http"):
            logging.getLogger(name).info("request")
        assert stream.getvalue() == ""

    def test_ids_stand_on_every_line(self) -> None:
        stream = self.lines("json")
        with about(conversation_id="c_1", turn_id="t_1"):
            logging.getLogger("x").info("inside", extra={"turn_id": "t_2"})
        logging.getLogger("x").info("outside")
        inside, outside = map(json.loads, stream.getvalue().splitlines())
        assert (inside["conversation_id"], inside["turn_id"]) == ("c_1", "t_2")
        assert "conversation_id" not in outside

    async def test_whatever_a_turn_logs_carries_its_ids(self, clock: FakeClock) -> None:
        stream = self.lines("json")
        rig = Rig(clock)

        async def script(*_: object) -> Draft:
            logging.getLogger("some.library").warning("deep inside")
            return said("done")

        rig.loop.scripts["hello"] = script
        rig.platform.fail(ChatGone("blocked"))
        await rig.intake.receive(inbound("hello"))
        await rig.settle()
        lines = [json.loads(line) for line in stream.getvalue().splitlines()]
        deep, turn = (next(x for x in lines if x["message"] == m) for m in ("deep inside", "turn"))
        assert deep["turn_id"] == turn["turn_id"]
        assert deep["conversation_id"] == turn["conversation_id"]
        refused = next(x for x in lines if x["message"] == "answer refused")
        assert "turn_id" not in refused  # a chat's delivery goes on to the answers of other turns

    def test_every_line_of_a_stack_trace_has_its_priority(self) -> None:
        stream = self.lines("auto", {"JOURNAL_STREAM": "8:1"})
        logging.getLogger("x").error("two\nlines")
        assert [line[:3] for line in stream.getvalue().splitlines()] == ["<3>", "<3>"]


class TestServiceManager:
    def test_speaks_to_the_socket(self, tmp_path: Path) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
            path = tmp_path / "notify"
            server.bind(str(path))
            env = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "6000000"}
            manager = ServiceManager(env)
            assert manager.watchdog_seconds == 6
            manager.ready("2 platforms")
            assert server.recv(100) == b"READY=1\nSTATUS=2 platforms"
            manager.alive()
            assert server.recv(100) == b"WATCHDOG=1"
            manager.stopping(20)
            assert server.recv(100) == b"STOPPING=1\nEXTEND_TIMEOUT_USEC=20000000"

    def test_without_a_manager_nothing_happens(self) -> None:
        manager = ServiceManager({})
        manager.ready("x")
        manager.alive()
        assert manager.watchdog_seconds is None

    def test_watchdog_of_another_process_is_not_ours(self) -> None:
        env = {"WATCHDOG_USEC": "6000000", "WATCHDOG_PID": str(os.getpid() + 1)}
        assert ServiceManager(env).watchdog_seconds is None


class TestControl:
    async def test_question_and_answer(self, tmp_path: Path) -> None:
        async def status(request: dict[str, Any], reader: Any, writer: Any) -> None:
            await send_line(writer, {"ready": True, "asked": request["op"]})

        server = ControlServer(tmp_path / "c.sock", {"status": status})
        await server.start()
        try:
            assert (tmp_path / "c.sock").stat().st_mode & 0o777 == 0o600
            answer = await asyncio.to_thread(ask, server.path, {"op": "status"})
            assert answer == {"ready": True, "asked": "status"}
            unknown = await asyncio.to_thread(ask, server.path, {"op": "x"})
            assert unknown == {"error": "unknown operation 'x'"}
        finally:
            await server.close()
        assert ask(server.path, {"op": "status"}) is None
        assert not server.path.exists()

    @pytest.mark.parametrize("backlog", [0, 8])
    def test_one_that_hangs_is_not_called_gone(self, tmp_path: Path, backlog: int) -> None:
        """Frozen: the kernel still takes up connections for it, or not even that any more."""
        path = tmp_path / "c.sock"
        with socket.socket(socket.AF_UNIX) as hanging, contextlib.ExitStack() as callers:
            hanging.bind(str(path))
            hanging.listen(backlog)
            with contextlib.suppress(BlockingIOError):
                while backlog == 0:
                    caller = callers.enter_context(socket.socket(socket.AF_UNIX))
                    caller.setblocking(False)
                    caller.connect(str(path))
            with pytest.raises(NotAnswering, match="runs, and does not answer"):
                ask(path, {"op": "status"}, seconds=0.05)

    def test_one_that_ends_in_the_middle_of_its_answer(self, tmp_path: Path) -> None:
        path = tmp_path / "c.sock"

        def answer(listening: socket.socket) -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b'{"ready": tr')

        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen()
            dying = threading.Thread(target=answer, args=(listening,))
            dying.start()
            assert ask(path, {"op": "status"}) is None
            dying.join()

    @pytest.mark.parametrize("nothing", [b"", b"\n"])
    async def test_who_asks_nothing_is_told_nothing(self, tmp_path: Path, nothing: bytes) -> None:
        async def status(request: dict[str, Any], reader: Any, writer: Any) -> None:
            await send_line(writer, {"ready": True})

        server = ControlServer(tmp_path / "c.sock", {"status": status})
        await server.start()
        try:
            reader, writer = await asyncio.open_unix_connection(str(server.path))
            writer.write(nothing)
            writer.write_eof()
            assert await read_line(reader) is None
            writer.close()
            assert await asyncio.to_thread(ask, server.path, {"op": "status"})
        finally:
            await server.close()

    async def test_file_of_a_dead_daemon_is_replaced(self, tmp_path: Path) -> None:
        path = tmp_path / "c.sock"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        server = ControlServer(path, {})
        await server.start()
        await server.close()

    async def test_only_a_dead_socket_is_replaced(self, tmp_path: Path) -> None:
        notes = tmp_path / "notes.txt"
        notes.write_text("precious")
        with pytest.raises(ConfigError, match="no socket"):
            await ControlServer(notes, {}).start()
        assert notes.read_text() == "precious"
        live = ControlServer(tmp_path / "c.sock", {})
        await live.start()
        try:
            with pytest.raises(ConfigError, match="another process listens"):
                await ControlServer(live.path, {}).start()
            answer = await asyncio.to_thread(ask, live.path, {"op": "x"})
            assert answer == {"error": "unknown operation 'x'"}
        finally:
            await live.close()

    async def test_a_folder_that_is_not_there_is_told_in_words(self, tmp_path: Path) -> None:
        path = tmp_path / "missing" / "c.sock"
        with pytest.raises(ConfigError, match=r"control_socket.*No such file"):
            await ControlServer(path, {}).start()

    @pytest.mark.skipif(os.getuid() == 0, reason="root may connect to everything")
    def test_a_socket_of_somebody_else(self, tmp_path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(tmp_path / "c.sock"))
            server.listen()
            (tmp_path / "c.sock").chmod(0)
            with pytest.raises(PosthouseError, match="another user"):
                ask(tmp_path / "c.sock", {"op": "status"})

    async def test_the_longest_answer_and_the_longest_line_fit(self, tmp_path: Path) -> None:
        longest = "\x01" * MAX_LINE_BYTES  # each is six bytes on the wire

        async def chat(request: dict[str, Any], reader: Any, writer: Any) -> None:
            message = await read_line(reader)
            await send_line(writer, message or {})

        server = ControlServer(tmp_path / "c.sock", {"chat": chat})
        await server.start()
        try:
            reader, writer = await connect(server.path)
            await send_line(writer, {"op": "chat"})
            echo = asyncio.ensure_future(read_line(reader))
            await send_line(writer, {"text": longest})
            assert await echo == {"text": longest}
            writer.close()
        finally:
            await server.close()

    async def test_who_reads_nothing_does_not_outlast_the_server(self, tmp_path: Path) -> None:
        """Left to the loop's end, its cancellation would be an error in the log, and a crash."""

        asked = asyncio.Event()

        async def chat(request: dict[str, Any], reader: Any, writer: Any) -> None:
            asked.set()
            await send_line(writer, {"text": "x" * MAX_LINE_BYTES})

        server = ControlServer(tmp_path / "c.sock", {"chat": chat})
        await server.start()
        with socket.socket(socket.AF_UNIX) as client:
            client.setblocking(False)
            client.connect(str(server.path))
            client.send(b'{"op": "chat"}\n')
            await asked.wait()
            await server.close()
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}

    async def test_what_is_nested_without_end_is_no_fault_of_ours(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        server = ControlServer(tmp_path / "c.sock", {})
        await server.start()
        reader, writer = await connect(server.path)
        writer.write(b"[" * 100_000 + b"\n")
        with caplog.at_level("INFO"):
            answer = await read_line(reader)
        assert answer is not None
        assert "nested too deep" in answer["error"]
        writer.close()
        await server.close()
        assert [(r.levelname, r.message) for r in caplog.records] == [
            ("INFO", "control connection ended")
        ]

    @pytest.mark.parametrize("answer", [b"220 mail ESMTP\r\n", b"[]\n", b"\xff\xfe\n"])
    def test_another_program_at_its_place_is_named(self, tmp_path: Path, answer: bytes) -> None:
        path = tmp_path / "c.sock"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()

            def serve() -> None:
                client, _ = server.accept()
                with client:
                    client.recv(1000)
                    client.sendall(answer)

            serving = threading.Thread(target=serve)
            serving.start()
            with pytest.raises(PosthouseError, match="does not answer as posthouse does"):
                ask(path, {"op": "status"})
            serving.join()

    def test_long_home_gets_a_short_socket(self, tmp_path: Path) -> None:
        home = tmp_path / ("x" * 120)
        path = socket_path(None, home, {"XDG_RUNTIME_DIR": "/run/user/1"})
        assert path.parent == Path("/run/user/1")
        assert path == socket_path(None, home, {"XDG_RUNTIME_DIR": "/run/user/1"})
        assert path != socket_path(None, tmp_path / ("y" * 120), {"XDG_RUNTIME_DIR": "/run/user/1"})
        assert socket_path(None, Path("/h"), {}) == Path("/h/control.sock")


class TestUnit:
    text = (ROOT / "systemd" / "posthouse.service").read_text()

    def value(self, name: str) -> str:
        found = re.search(rf"^{name}=(.*)$", self.text, re.MULTILINE)
        assert found, name
        return found[1]

    def test_a_stop_never_ends_in_sigkill(self) -> None:
        assert int(self.value("TimeoutStopSec")) >= Config().gateway.drain_seconds + 30
        assert self.value("KillMode") == "mixed"

    def test_a_document_that_takes_all_memory_stops_no_daemon(self) -> None:
        """Left alone, systemd stops a whole service for one process that was out of memory."""
        assert self.value("OOMPolicy") == "continue"

    def test_what_a_person_has_to_heal_is_not_restarted(self) -> None:
        codes = self.value("RestartPreventExitStatus").split()
        assert set(codes) == {str(exits.HOME_IN_USE), str(exits.BAD_CONFIG)}
        assert self.value("Restart") == "on-failure"

    def test_it_is_started_again_for_ever_but_not_at_once(self) -> None:
        """A start takes most of a second of one core; a cause may be gone after hours."""
        assert self.value("StartLimitIntervalSec") == "0"
        assert float(self.value("RestartSec")) >= 5

    def test_a_restart_that_was_asked_for_is_one(self) -> None:
        forced = self.value("RestartForceExitStatus").split()
        assert forced == [str(exits.RESTART_WANTED)] == [str(RESTART_WANTED)]

    def test_type_and_state(self) -> None:
        assert self.value("Type") == "notify"
        assert self.value("StateDirectory") == "posthouse"

    @pytest.mark.skipif(
        not Path("/usr/bin/systemd-analyze").exists(), reason="systemd-analyze is not installed"
    )
    def test_systemd_accepts_it(self, tmp_path: Path) -> None:
        unit = tmp_path / "posthouse.service"
        # The command does not exist here; everything else is judged as it stands.
        unit.write_text(re.sub(r"(?m)^(Exec\w+)=.*$", r"\1=/bin/true", self.text))
        result = subprocess.run(
            ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
        )
        assert (result.returncode, result.stderr) == (0, "")


class TestCommandLine:
    @pytest.fixture
    def stored(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A home with an empty store."""
        monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))

        async def create() -> None:
            store = await open_store(tmp_path / "state.db", clock=FakeClock(), ids=SequentialIds())
            await store.close()

        asyncio.run(create())
        return tmp_path

    def test_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            main(["--version"])
        assert caught.value.code == 0
        assert capsys.readouterr().out == f"posthouse {__version__}\n"

    @pytest.mark.parametrize("option", ["--help", "--version"])
    def test_help_loads_nothing_heavy(self, option: str) -> None:
        code = (
            f"import sys; sys.argv = ['posthouse', '{option}']\n"
            "try:\n import gateway.cli.main as m; m.main()\n"
            "except SystemExit: pass\n"
            "print(*sys.modules, file=sys.stderr)"
        )
        result = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
        )
        loaded = set(result.stderr.split())
        heavy = {"anthropic", "telegram", "discord", "aiosqlite", "asyncio", "pydantic", "yaml"}
        assert not loaded & heavy

    def test_bad_config_exits_78_and_names_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))
        (tmp_path / "config.yaml").write_text("compression:\n  treshold: 1\n")
        assert main(["config", "check"]) == 78
        assert "config.yaml:2:3: compression.treshold: unknown key" in capsys.readouterr().err

    def test_a_platform_that_is_on_without_a_token_is_said(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))
        monkeypatch.delenv("DISCORD_BOT_TOKEN", raising=False)
        (tmp_path / "config.yaml").write_text("discord: {enabled: true}\n")
        assert main(["config", "check"]) == 0
        assert "there is no DISCORD_BOT_TOKEN: put it alone into secrets/DISCORD_BOT_TOKEN in" in (
            capsys.readouterr().out
        )

    @pytest.mark.parametrize(
        ("text", "token", "said"),
        [
            ("", "", "would start: console; model offline"),
            ("", "1:x", "would start: telegram; model offline"),
            ("", "1:x", "warning: nobody is allowed to talk to telegram: set telegram.allow_from"),
            (
                "telegram: {allow_from: [1]}",
                "",
                "TELEGRAM_BOT_TOKEN, so it stays off: put it alone into secrets/TELEGRAM_BOT_",
            ),
            ("telegram: {allow_from: [1]}\nmodel: {base_url: 'http://x'}", "1:x", "model claude-"),
            ("", "x", "warning: TELEGRAM_BOT_TOKEN does not look like one"),
        ],
    )
    def test_check_says_what_would_start_and_for_whom(
        self,
        text: str,
        token: str,
        said: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))
        monkeypatch.setenv("TELEGRAM_BOT_TOKEN", token)
        for name in ("DISCORD_BOT_TOKEN", "ANTHROPIC_API_KEY"):
            monkeypatch.delenv(name, raising=False)
        (tmp_path / "config.yaml").write_text(text)
        assert main(["config", "check"]) == 0
        shown = capsys.readouterr().out
        assert said in shown
        assert ("warning" in shown) == (bool(text) != bool(token)), "nothing to warn of otherwise"

    @pytest.mark.parametrize("text", ["telegram: {enabled: false, allow_from: [1]}", ""])
    def test_what_is_switched_off_or_left_alone_is_no_warning(
        self,
        text: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))
        monkeypatch.delenv("TELEGRAM_BOT_TOKEN", raising=False)
        (tmp_path / "config.yaml").write_text(text)
        assert main(["config", "check", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["warnings"] == []

    def test_everything_on_the_command_line_is_explained(self) -> None:
        waiting = [("posthouse", build_parser())]
        for name, parser in waiting:
            assert parser.description, name
            for action in parser._actions:
                assert action.help or isinstance(action.choices, dict), (name, action.dest)
                if isinstance(action, argparse._SubParsersAction):
                    waiting += [(f"{name} {key}", one) for key, one in action.choices.items()]
        assert len(waiting) > 20

    def test_the_readme_has_every_command(self) -> None:
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        subs = next(a for a in build_parser()._actions if isinstance(a.choices, dict))
        missing = [name for name in subs.choices if f"`posthouse {name}" not in readme]
        assert missing == []

    def test_without_a_command_the_help_is_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([]) == 2
        assert "posthouse demo" in capsys.readouterr().err

    def test_a_file_that_is_no_export_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path / "home"))
        (tmp_path / "README.md").write_text("# posthouse\n")
        assert main(["sessions", "import", str(tmp_path / "README.md")]) == 1
        said = capsys.readouterr().err
        assert "README.md is no posthouse export and no state.db of Hermes Agent" in said
        assert "(line 1 is no JSON)" in said
        assert not (tmp_path / "home").exists(), "nothing was begun for it"

    def test_show_hides_secrets(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))
        monkeypatch.setenv("TELEGRAM_BOT_TOKEN", TOKEN)
        (tmp_path / "config.yaml").write_text(
            "telegram: {webhook: {secret: hush-hush}}\nauxiliary: {x: {api_key: hush-hush}}\n"
        )
        for extra in ([], ["--json"]):
            assert main(["config", "show", *extra]) == 0
            shown = capsys.readouterr().out
            assert "hush-hush" not in shown
            assert TOKEN not in shown
            assert "TELEGRAM_BOT_TOKEN" in shown

    def test_status_without_a_daemon(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))
        assert main(["status", "--json"]) == 1
        answer = json.loads(capsys.readouterr().out)
        assert answer["ready"] is False
        assert answer["platforms"] == {}

    def test_status_of_one_that_hangs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))
        monkeypatch.setitem(Settings.ask.__kwdefaults__, "seconds", 0.05)
        with socket.socket(socket.AF_UNIX) as hanging:
            hanging.bind(str(tmp_path / "control.sock"))
            hanging.listen()
            assert main(["status", "--json"]) == 1
            answer = json.loads(capsys.readouterr().out)
            assert (answer["running"], answer["ready"]) == (True, False)
            assert main(["status"]) == 1
            said = capsys.readouterr().out
        assert "runs, and does not answer" in said
        assert "posthouse run" not in said

    def test_schema_is_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["config", "schema"]) == 0
        assert json.loads(capsys.readouterr().out)["title"] == "config.yaml"

    @pytest.mark.parametrize("command", [["sessions", "show", "x"], ["lineage", "x"]])
    def test_before_anything_is_stored(
        self,
        command: list[str],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))
        assert main(command) == 1
        assert f"nothing is stored yet in {tmp_path}" in capsys.readouterr().err

    @pytest.mark.parametrize("ident", ["x", "", "' OR 1=1 --", "\udcff", "a" * 100_000])
    @pytest.mark.parametrize("command", [["sessions", "show"], ["lineage"]])
    def test_an_id_that_is_none(
        self, command: list[str], ident: str, stored: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([*command, ident]) == 1
        said = capsys.readouterr().err
        assert said.startswith("posthouse: there is no session ")
        assert len(said) < 250

    @pytest.mark.parametrize("limit", ["0", "-1", "x", "1.5", "", "9" * 5000])
    def test_a_limit_that_is_none(
        self, limit: str, stored: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit):
            main(["sessions", "list", "--limit", limit])
        assert "is no whole number of at least 1" in capsys.readouterr().err

    def test_a_limit_beyond_what_a_database_counts_to(self, stored: Path) -> None:
        assert main(["sessions", "list", "--limit", "9" * 30]) == 0
        assert main(["sessions", "search", "x", "--limit", "9" * 30]) == 0

    @pytest.mark.parametrize("broken", [None, Path("/dev/full")])
    def test_an_output_that_takes_nothing(
        self,
        broken: Path | None,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        if broken is None:
            monkeypatch.setattr(sys, "stdout", None)
            assert main(["config", "schema"]) == 1
        else:
            with contextlib.suppress(OSError), broken.open("w") as stream:
                monkeypatch.setattr(sys, "stdout", stream)
                assert main(["config", "schema"]) == 1
        assert "posthouse: standard output" in capsys.readouterr().err

    def test_a_demo_that_nobody_watches_ends(self) -> None:
        """`posthouse demo | head -1`: no trace-back, and no second performance."""
        with subprocess.Popen(
            [sys.executable, "-m", "gateway", "demo"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline().startswith("posthouse demo:")
            process.stdout.close()
            assert process.stderr.read() == ""
            assert process.wait(timeout=20) == 0

    def test_stored_text_can_not_steer_a_terminal(self) -> None:
        assert plain("a\x1b[2Jb\x07\nc\x9b") == "a[2Jb c"
        assert plain("a\u202eb\u2067c\u2028d") == "abc d"


@pytest.mark.parametrize(
    ("configured", "on_screen", "elsewhere"),
    [
        ("DEBUG", "DEBUG", "DEBUG"),
        ("INFO", "ERROR", "WARNING"),
        ("WARNING", "ERROR", "WARNING"),
        ("ERROR", "ERROR", "ERROR"),
    ],
)
def test_only_errors_come_between_what_a_person_reads(
    configured: LogLevel, on_screen: LogLevel, elsewhere: LogLevel
) -> None:
    assert quiet_level(configured, terminal=True) == on_screen
    assert quiet_level(configured, terminal=False) == elsewhere
