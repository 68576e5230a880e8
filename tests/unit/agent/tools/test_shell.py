"""`shell`: only what a person has allowed, bounded in every way, and nothing of it stays behind."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.approvals import Proposal, Ruling
from agent.errors import ToolError
from agent.ports import PatientTool, ToolContext, ToolResult
from agent.tools import commands, room
from agent.tools.command_runner import Kept, descendants
from agent.tools.commands import RUNNER, CommandFailed, LocalRunner, Outcome, Request
from agent.tools.room import MEGABYTE, Bounds, Room
from agent.tools.shell import ShellTool, problem_with_command, readable, told
from agent.tools.workspace import Workspaces


class Person:
    """An `agent.approvals.Approver` that says what it is told to."""

    def __init__(self, allowed: bool = True, words: str = "approved by the user") -> None:
        self.ruling = Ruling(allowed, words)
        self.asked: list[Proposal] = []
        self.meanwhile: Callable[[], Any] = lambda: None

    async def ask(self, proposal: Proposal) -> Ruling:
        self.asked.append(proposal)
        self.meanwhile()
        return self.ruling


def context(person: Person | None, place: str = "test:1") -> ToolContext:
    return ToolContext("c", "test:1", True, "t", place=place, approver=person)


class Scene:
    def __init__(self, tmp_path: Path, seconds: float = 20.0) -> None:
        self.person = Person()
        self.root = tmp_path / "workspace"
        self._seconds = seconds
        self.bound(Bounds(keep_free_bytes=0))
        self.folder = self.root / "test-1"

    def bound(self, bounds: Bounds) -> None:
        workspaces = Workspaces(self.root, bounds)
        self.tool = ShellTool(LocalRunner(), workspaces, seconds=self._seconds, look_seconds=0.05)

    async def run(self, command: str) -> str:
        return (await self.result(command)).text

    async def result(self, command: str) -> ToolResult:
        return await self.tool.run({"command": command}, context(self.person))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in (b"Z", b"X")


async def gone(pid: int, seconds: float = 20.0) -> bool:
    until = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < until:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)
    return not alive(pid)


# --- what is asked


async def test_a_person_is_asked_for_exactly_what_runs(scene: Scene) -> None:
    text = await scene.run("echo one; echo two >&2; pwd")
    assert scene.person.asked == [
        Proposal("shell", "run this command", (("", "echo one; echo two >&2; pwd"),))
    ]
    head, *said = text.splitlines()
    assert head.startswith("exit code 0 after ")
    assert head.endswith(" s (approved by the user)")
    assert said == ["one", "two", str(scene.folder)]
    assert isinstance(scene.tool, PatientTool)


async def test_without_a_yes_nothing_runs(scene: Scene) -> None:
    scene.person.ruling = Ruling(False, "denied by the user, who says: no")
    with pytest.raises(ToolError, match=r"^denied by the user, who says: no$"):
        await scene.run("touch ran")
    with pytest.raises(ToolError, match="nobody can be asked"):
        await scene.tool.run({"command": "touch ran"}, context(None))
    with pytest.raises(ToolError, match="no workspace"):
        await scene.tool.run({"command": "touch ran"}, context(scene.person, place=""))
    assert not scene.folder.exists()


@pytest.mark.parametrize(
    "command",
    [
        "systemctl restart posthouse",
        "sudo systemctl  --no-block stop posthouse.service",
        "service posthouse restart",
        "sleep 1; systemctl kill -s HUP posthouse@main",
        "pkill -f posthouse",
        "killall python3",
        "kill OWN_PID",
        "kill -TERM -OWN_PID",
        "kill -9 -1",
        "",
        " \n",
        "x" * 20_001,
        "a\x00b",
        "\ud800",
    ],
)
def test_what_is_not_even_asked(command: str) -> None:
    command = command.replace("OWN_PID", str(os.getpid()))
    assert problem_with_command(command, os.getpid())


@pytest.mark.parametrize(
    "command",
    [
        "systemctl status nginx; grep posthouse notes.txt",
        "kill 123",
        "kill -1 77",
        "ls posthouse",
        "python x.py",
        "echo " + "x" * 10_000,
    ],
)
def test_and_what_may_be(command: str) -> None:
    assert problem_with_command(command, 4_000_000) == ""


# --- what it finds


async def test_nothing_of_our_environment_is_there(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "secret-1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret-2")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/run/secret-3")
    monkeypatch.setenv("BASH_ENV", "/dev/null")
    monkeypatch.setenv("LD_PRELOAD", "")
    text = await scene.run("env; cat /proc/$PPID/environ | tr '\\0' '\\n'")
    assert "secret" not in text
    names = {line.partition("=")[0] for line in text.splitlines()[1:]}
    known = {"PATH", "HOME", "LANG", "TERM", "PAGER", "PWD", "OLDPWD", "SHLVL", "_"}
    assert names <= known
    assert f"HOME={scene.folder}" in text


async def test_no_open_file_of_ours_is_there(scene: Scene, tmp_path: Path) -> None:
    with (tmp_path / "state.db").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        text = await scene.run("ls -l /proc/$$/fd /proc/$PPID/fd")
    assert "state.db" not in text


async def test_there_is_no_input_and_no_terminal(scene: Scene) -> None:
    text = await scene.run("cat; read x || echo none; tty; test -t 1 || echo no tty")
    assert text.splitlines()[1:] == ["none", "not a tty", "no tty"]


async def test_files_are_for_their_owner_alone(scene: Scene) -> None:
    text = await scene.run("umask; touch a; mkdir b; stat -c %a . a b")
    assert text.splitlines()[1:] == ["0077", "700", "600", "700"]
    assert (scene.root.stat().st_mode & 0o777) == 0o700


async def test_two_people_have_two_folders(scene: Scene) -> None:
    await scene.run("echo mine > a")
    other = await scene.tool.run({"command": "ls"}, context(scene.person, place="test:2"))
    assert other.text.endswith("(no output)")


# --- how it ends


@pytest.mark.parametrize(
    ("command", "head"),
    [
        ("exit 3", "exit code 3 after"),
        ("kill -9 $$", "ended by SIGKILL after"),
        ("no-such-command", "exit code 127 after"),
        ("cd / && rmdir /proc/1", "exit code 1 after"),
    ],
)
async def test_how_it_ended_is_told(scene: Scene, command: str, head: str) -> None:
    result = await scene.result(command)
    assert result.text.startswith(head)
    assert not result.is_error


async def test_a_limit_ends_all_of_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path, seconds=3.0)  # three have to begin in it
    result = await scene.result(STUBBORN)
    assert result.text.startswith("not finished after ")
    assert "begun" in result.text
    assert result.is_error
    pids = [int(p) for p in (scene.folder / "pids").read_text().split()]
    assert len(pids) == 3
    assert not any(alive(pid) for pid in pids)


STUBBORN = """
echo begun
trap '' TERM HUP INT
echo $$ >> pids
(trap '' TERM; echo $BASHPID >> pids; while :; do sleep 1; done) &
setsid bash -c 'trap "" TERM; echo $$ >> pids; while :; do sleep 1; done' &
while :; do sleep 1; done
"""
"""Does not end when it is asked to, nor does its child, nor its child in another session."""


async def until_begun(scene: Scene) -> list[int]:
    for _ in range(1000):
        file = scene.folder / "pids"
        if file.exists() and len(file.read_text().split()) == 3:
            return [int(p) for p in file.read_text().split()]
        await asyncio.sleep(0.01)
    raise AssertionError("it has not begun")


async def test_a_stop_ends_all_of_it_at_once(scene: Scene) -> None:
    running = asyncio.ensure_future(scene.run(STUBBORN))
    pids = await until_begun(scene)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [await gone(pid) for pid in pids] == [True] * 3


async def test_so_does_the_death_of_whoever_started_it(scene: Scene, tmp_path: Path) -> None:
    request = {"command": STUBBORN, "folder": str(scene.folder), "seconds": 60, "keep_bytes": 100}
    scene.folder.mkdir(parents=True)
    code = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-I', '-S', {str(RUNNER)!r}],"
        " stdin=subprocess.PIPE)\n"
        f"p.stdin.write({(json.dumps(request) + chr(10)).encode()!r}); p.stdin.flush()\n"
        "time.sleep(60)\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    pids = await until_begun(scene)
    parent.kill()
    await parent.wait()
    assert [await gone(pid) for pid in pids] == [True] * 3


async def test_a_runner_that_is_hindered_is_ended_with_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.tools.commands.STARTING_SECONDS", 3.0)
    scene = Scene(tmp_path, seconds=1.0)
    with pytest.raises(ToolError, match="did not end in time"):
        await scene.run("echo $$ > pid; kill -STOP $PPID; sleep 60")
    assert await gone(int((scene.folder / "pid").read_text()))


async def test_a_runner_that_is_killed_is_told(scene: Scene) -> None:
    with pytest.raises(ToolError, match="not known: its runner was ended"):
        await scene.run("kill -9 $PPID; sleep 0.1")


def test_a_runner_that_ends_late_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine its end takes longer than anybody waits, and the loop may end first."""
    monkeypatch.setattr(commands, "ENDING_SECONDS", 0.0)
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)

    async def run() -> None:
        request = Request("echo $$ > pid; mv pid begun; trap '' TERM; sleep 60", tmp_path)
        running = asyncio.ensure_future(LocalRunner().run(request))
        while not (tmp_path / "begun").exists():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait({running})

    asyncio.run(run())
    gc.collect()
    assert lost == []
    assert asyncio.run(gone(int((tmp_path / "begun").read_text())))


async def test_what_is_left_running_ends_with_it(scene: Scene) -> None:
    text = await scene.run("sleep 60 & echo $! > pid; setsid sleep 61 & echo done")
    assert re.search(r"\n\[\d process(es)? that it had left running ended with it\]\n", text)
    assert text.endswith("done")
    assert await gone(int((scene.folder / "pid").read_text()))


async def test_last_words_of_what_is_left_are_heard(scene: Scene) -> None:
    text = await scene.run("(sleep 0.1; echo later) & echo first")
    assert text.splitlines()[1:] == ["first", "later"]


async def test_processes_that_multiply_come_to_an_end(tmp_path: Path) -> None:
    scene = Scene(tmp_path, seconds=1.0)
    await scene.run("f() { sleep 0.2; (f &) ; (f &) ; }; f; f; sleep 30")
    assert [p for p in descendants(os.getpid()) if "sleep" in command_of(p)] == []


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


async def test_memory_and_files_are_bounded(scene: Scene) -> None:
    grow = "python3 -c 'x = bytearray(700 * 1024 * 1024)' 2>&1 | tail -1"
    assert "MemoryError" in await scene.run(f"{sys.executable.join(grow.split('python3', 1))}")
    text = await scene.run("head -c 300M /dev/zero > big; stat -c %s big; ulimit -c")
    assert text.splitlines()[-2:] == [str(256 * 1024 * 1024), "0"]


# --- what it says


async def test_gigabytes_are_bounded(scene: Scene) -> None:
    started = time.monotonic()
    result = await scene.result("yes abcdefg")
    assert "it wrote too much (" in result.text
    assert result.is_error
    assert len(result.text) < 70_000
    assert "bytes left out" in result.text
    assert time.monotonic() - started < 20


async def test_of_long_output_both_ends_are_kept(scene: Scene) -> None:
    text = await scene.run("seq 1 100000")
    assert text.splitlines()[1:4] == ["1", "2", "3"]
    assert text.endswith("99999\n100000")
    assert "bytes left out; redirect into a file" in text


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (b"\x1b[31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07x", "x"),
        (b"a\rb\r\nc", "a\nb\nc"),
        (b"\xff\xfe\xfa", "\ufffd\ufffd\ufffd"),
        ("äöü 你好 😀".encode(), "äöü 你好 😀"),
        (b"bell\x07 back\x08", "bell\ufffd back\ufffd"),
        (b"\n\nx\n", "x"),
    ],
)
def test_output_is_readable(output: bytes, shown: str) -> None:
    assert readable(output) == shown


async def test_binary_output_is_named(scene: Scene) -> None:
    text = await scene.run("head -c 5000 /dev/zero")
    assert text.endswith("(binary output, 5,000 bytes, not shown)")


def test_both_ends_are_kept_in_bounded_memory() -> None:
    for pieces in ([b"x"] * 5000, [b"abc" * 4000], [b"ab", b"", b"c" * 99]):
        kept, whole = Kept(100), b"".join(pieces)
        for piece in pieces:
            kept.add(piece)
            assert len(kept.head) + len(kept.tail) <= 50 + 100
        assert kept.total == len(whole)
        assert whole.startswith(bytes(kept.head))
        assert whole.endswith(kept.last)
        assert len(kept.head) + len(kept.last) == min(len(whole), 100)


def test_an_outcome_that_was_forged_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from agent.tools.commands import outcome_of

    for said in (b"", b"{", b"[]", b"{}", b"null", b'{"exit": 0}', b"[" * 100_000):
        with pytest.raises(CommandFailed):
            outcome_of(said)


def test_a_signal_without_a_name_is_told() -> None:
    outcome = Outcome("exit", None, 64 + 3, 0.1, b"", b"", 0, 0)
    assert told(outcome, "ok").startswith("ended by signal 67 after 0.1 s (ok)")
    assert signal.SIGKILL.name in told(Outcome("exit", None, 9, 0.1, b"", b"", 0, 0), "ok")


async def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="could not be started"):
        await LocalRunner().run(Request("true", tmp_path / "none"))


async def test_a_workspace_that_is_a_link_is_none(scene: Scene, tmp_path: Path) -> None:
    scene.root.mkdir()
    scene.folder.symlink_to(tmp_path)
    with pytest.raises(ToolError, match=r"link|folder"):
        await scene.run("ls")


# --- room


async def test_a_command_that_fills_its_workspace_is_ended(scene: Scene) -> None:
    scene.bound(Bounds(most_bytes=5 * MEGABYTE, keep_free_bytes=0))
    filling = "echo $$ > pid; for n in $(seq 100000); do head -c 200000 /dev/zero > f$n; done"
    with pytest.raises(ToolError, match=r"nothing of it deleted: the workspace is full \(5 MB"):
        await scene.run(filling)
    assert await gone(int((scene.folder / "pid").read_text()))
    files = len(list(scene.folder.iterdir()))
    await asyncio.sleep(0.1)
    assert len(list(scene.folder.iterdir())) == files > 20
    text = await scene.run("echo more > more; rm f*; ls")
    assert "[the workspace is full" in text
    assert "can delete, and write nothing" in text
    assert sorted(p.name for p in scene.folder.iterdir()) == ["more", "pid"]
    assert (scene.folder / "more").read_bytes() == b""
    assert "nothing" not in await scene.run("echo more > more && cat more")
    assert (scene.folder / "more").read_text() == "more\n"


async def test_no_file_becomes_larger_than_the_room_that_is_left(scene: Scene) -> None:
    scene.bound(Bounds(most_bytes=3 * MEGABYTE, keep_free_bytes=0))
    await scene.run("head -c 1000000 /dev/zero > one")
    await scene.run("head -c 200000000 /dev/zero > two")
    assert (scene.folder / "two").stat().st_size <= 2.1 * MEGABYTE


async def test_folders_without_number_are_too_many_as_well(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MAX_ENTRIES", 200)
    with pytest.raises(ToolError, match="200 entries at most"):
        await scene.run("for n in $(seq 1000000); do mkdir -p a/$n/b/$n; done")


async def test_what_lies_too_deep_to_be_counted_is_too_much(scene: Scene) -> None:
    deep = "n=$(printf %0200d 0); for i in $(seq 40); do mkdir $n && cd $n || break; done"
    with pytest.raises(ToolError, match="the workspace is full"):
        await scene.run(f"{deep}; sleep 10")
    await scene.run("rm -r 0*")
    assert list(scene.folder.iterdir()) == []


async def test_what_is_closed_to_counting_is_too_much(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command can close a folder, and nobody would see what lies in it."""

    def opened(path: Any, flags: int, *args: Any, dir_fd: int | None = None) -> int:
        if dir_fd is not None and os.stat(path, dir_fd=dir_fd).st_mode & 0o700 == 0:
            raise PermissionError(errno.EACCES, "also where the tests run as root")
        return os_open(path, flags, *args, dir_fd=dir_fd)

    os_open = os.open
    monkeypatch.setattr(room.os, "open", opened)
    with pytest.raises(ToolError, match="the workspace is full"):
        await scene.run("mkdir shut; echo much > shut/much; chmod 0 shut; sleep 10")
    await scene.run("chmod 700 shut")
    assert "full" not in await scene.run("cat shut/much")


async def test_with_too_little_room_on_the_disk_a_command_can_only_make_some(
    scene: Scene,
) -> None:
    await scene.run("echo old > old; echo keep > keep")
    scene.bound(Bounds(keep_free_bytes=2**60))
    text = await scene.run("rm old; echo new > new; ls")
    assert "[the server's disk is nearly full" in text
    assert (scene.folder / "new").read_bytes() == b""
    assert (scene.folder / "keep").read_text() == "keep\n"


async def test_the_disk_is_asked_also_while_nothing_is_counted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []

    def slow(folder: int, most_bytes: int) -> tuple[int, int]:
        counted.append(most_bytes)
        if len(counted) == 2:
            time.sleep(1.5)  # so it is counted again in fifteen seconds
        return 0, 0

    def free(folder: int) -> SimpleNamespace:
        full = (scene.folder / "full").exists()
        return SimpleNamespace(
            f_bavail=0 if full else 2**40, f_frsize=1, f_favail=10**6, f_files=10**7
        )

    scene.bound(Bounds(keep_free_bytes=MEGABYTE))
    monkeypatch.setattr(room, "measured", slow)
    monkeypatch.setattr(room.os, "fstatvfs", free)
    with pytest.raises(ToolError, match="disk is nearly full"):
        await scene.run("sleep 0.6; touch full; sleep 30")
    assert len(counted) == 2, "at the start, and once since"


async def test_a_stop_while_it_is_looked_at_ends_it(scene: Scene) -> None:
    running = asyncio.ensure_future(scene.run("echo $$ > pid; sleep 30"))
    pid = scene.folder / "pid"
    while not pid.exists() or not pid.read_text():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await gone(int(pid.read_text()))


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (Room(0, 0, 2**40, 10**6, 10**7), ""),
        (Room(500 * MEGABYTE, 0, 2**40, 10**6, 10**7), ""),
        (Room(500 * MEGABYTE + 1, 0, 2**40, 10**6, 10**7), "the workspace is full"),
        (Room(0, room.MAX_ENTRIES, 2**40, 10**6, 10**7), "the workspace is full"),
        (Room(0, 0, 499 * MEGABYTE, 10**6, 10**7), "disk is nearly full"),
        (Room(0, 0, 2**40, 9_999, 10**7), "hardly any more files"),
        (Room(0, 0, 2**40, 600, 10_000), ""),  # a small disk
        (Room(0, 0, 2**40, 0, 0), ""),  # one that takes any number
    ],
)
def test_what_there_is_room_for(found: Room, why: str) -> None:
    said = room.lacking(found, Bounds())
    assert (why in said) if why else (said == "")


def test_how_much_a_disk_takes(tmp_path: Path) -> None:
    few = Bounds(most_bytes=1, keep_free_bytes=0)  # of a workspace, and this is none
    assert room.disk_lack(tmp_path, few, 1000) == ""
    assert "nearly full" in room.disk_lack(tmp_path, few, 2**60)
    assert "have to stay free" in room.disk_lack(tmp_path, Bounds(keep_free_bytes=2**60), 1)


def test_what_began_without_room_may_go_on_unless_it_makes_it_worse() -> None:
    start = Room(0, 0, 400 * MEGABYTE, 10**6, 10**7)
    better = replace(start, free_bytes=450 * MEGABYTE)
    worse = replace(start, free_bytes=300 * MEGABYTE)
    fewer = replace(start, free_files=10**6 - 2_000)
    ends = [bool(room.outgrown(start, now, Bounds())) for now in (start, better, worse, fewer)]
    assert ends == [False, False, True, True]
