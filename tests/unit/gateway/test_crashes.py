"""What is left behind by what nobody foresaw: where it was, never what anybody wrote."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.errors import HomeInUse
from gateway.crashes import report
from gateway.crashes.catching import CrashHandler, caught
from gateway.crashes.runs import KEPT as RUNS_KEPT
from gateway.crashes.runs import cut_off, recorded, runs
from gateway.crashes.shelf import KEPT, CrashShelf, folder_of, kept
from gateway.logs import Redactor
from gateway.tasks import spawn

ROOT = Path(__file__).parents[3]
WORDS = "what a person wrote"
SECRET = "sk-secret-0123456789"


def broken(depth: int = 3, words: str = WORDS) -> None:
    local = f"local {words}"
    if depth:
        broken(depth - 1, words)
    else:
        raise KeyError(local)


def error_of(call: Callable[[], None]) -> BaseException:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError


@pytest.fixture
def shelf(tmp_path: Path) -> CrashShelf:
    return CrashShelf(tmp_path, Redactor([SECRET]), lambda: 1_800_000_000.0)


def test_a_report_says_where_and_never_what(shelf: CrashShelf) -> None:
    def both() -> None:
        try:
            broken()
        except KeyError as error:
            raise OSError(28, f"{WORDS} and {SECRET}", WORDS) from error

    path = shelf.error(f"gateway.turns: crashed {SECRET}\nforged", error_of(both))
    assert path is not None
    text = path.read_text()
    assert text.startswith("posthouse crash report\nwhat: gateway.turns: crashed [secret] forged\n")
    assert "builtins.OSError [28]" in text
    assert "caused by builtins.KeyError" in text
    assert "test_crashes.py" in text
    assert "in broken" in text
    assert "version: " in text
    assert WORDS not in text
    assert SECRET not in text
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_the_last_ones_are_kept(tmp_path: Path, shelf: CrashShelf) -> None:
    for number in range(KEPT + 5):
        shelf.stacks(f"what {number}", "frames")
    found = kept(tmp_path)
    assert len(found) == KEPT
    assert f"what {KEPT + 4}" in [crash.what for crash in found]
    assert "what 0" not in [crash.what for crash in found]


def test_the_same_fault_is_written_down_once(tmp_path: Path, shelf: CrashShelf) -> None:
    for number in range(50):
        shelf.error("in a loop", error_of(lambda n=number: broken(words=str(n))))
    assert len(kept(tmp_path)) == 1


@pytest.mark.parametrize("depth", [0, 900])
def test_reports_are_bounded(shelf: CrashShelf, depth: int) -> None:
    error = ExceptionGroup("many", [ValueError(str(n)) for n in range(1000)])
    error.__cause__ = error_of(lambda: broken(depth))
    error.__cause__.__cause__ = error  # a circle
    path = shelf.error("x" * 10_000, error)
    assert path is not None
    assert path.stat().st_size <= report.MOST_CHARS + 1
    assert len(path.read_text().splitlines()) < 100


def test_a_disk_that_takes_nothing_is_no_second_crash(tmp_path: Path) -> None:
    (tmp_path / "crashes").write_text("a file where the folder should be")
    assert CrashShelf(tmp_path, str, lambda: 0.0).stacks("what", "frames") is None
    assert CrashShelf(tmp_path / "gone", str, lambda: 0.0).stacks("what", "frames") is None
    assert kept(tmp_path) == []


def test_a_link_in_its_place_is_not_followed(tmp_path: Path, shelf: CrashShelf) -> None:
    first = shelf.stacks("one", "frames")
    assert first is not None
    other = tmp_path / "precious"
    other.write_text("precious")
    following = first.name.replace("-1.txt", "-2.txt")
    (first.parent / following).symlink_to(other)
    assert shelf.stacks("two", "frames") is None
    assert other.read_text() == "precious"


@pytest.fixture
def _logged(shelf: CrashShelf) -> Iterator[None]:
    with caught(shelf, process=False):
        yield


@pytest.mark.usefixtures("_logged")
async def test_a_task_that_crashes_leaves_one(tmp_path: Path) -> None:
    async def crash() -> None:
        broken()

    task = spawn(crash(), name="some task")
    await asyncio.wait([task])
    await asyncio.sleep(0)
    (crash_,) = kept(tmp_path)
    assert crash_.what == "gateway.tasks: background task crashed"


@pytest.mark.usefixtures("_logged")
async def test_what_asyncio_quotes_is_in_none(tmp_path: Path) -> None:
    asyncio.get_running_loop().call_soon(broken, 0, WORDS)
    await asyncio.sleep(0)
    (crash,) = kept(tmp_path)
    assert crash.what == "asyncio: nobody caught an error"
    assert WORDS not in crash.path.read_text()


@pytest.mark.usefixtures("_logged")
async def test_a_watchdog_that_is_not_fed_leaves_what_everybody_is_at(tmp_path: Path) -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    task = spawn(stuck(), name="platform-telegram")
    await asyncio.sleep(0)
    log = logging.getLogger("gateway.watchdog")
    for _ in range(3):
        log.critical("only a new start helps this", extra={"what": "telegram", "reason": WORDS})
    log.critical("nothing can be stored", extra={"reason": WORDS})
    (crash,) = kept(tmp_path)
    assert crash.what == "only a new start helps: telegram"
    text = crash.path.read_text()
    assert "task platform-telegram: " in text
    assert "thread MainThread" in text
    assert WORDS not in text
    task.cancel()


def test_of_many_threads_the_main_one_is_shown_first() -> None:
    over = threading.Event()
    threads = [threading.Thread(target=over.wait, name=f"other {n}") for n in range(3)]
    for thread in threads:
        thread.start()
    names = {t.ident: t.name for t in threading.enumerate() if t.ident is not None}
    text = report.of_threads(dict(reversed(sys._current_frames().items())), names)
    over.set()
    for thread in threads:
        thread.join()
    assert text.startswith("thread MainThread\n")


@pytest.mark.usefixtures("_logged")
def test_what_is_no_crash_leaves_none(tmp_path: Path) -> None:
    log = logging.getLogger("gateway.x")
    log.error("only words")
    try:
        broken()
    except KeyError:
        log.warning("foreseen", exc_info=True)
        logging.getLogger("some_plugin").exception("of others")
    assert kept(tmp_path) == []


def test_what_ends_a_run_leaves_one_and_what_is_foreseen_does_not(
    tmp_path: Path, shelf: CrashShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("excepthook", "unraisablehook"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    with pytest.raises(HomeInUse), caught(shelf, process=True):
        raise HomeInUse("x")
    assert kept(tmp_path) == []
    with pytest.raises(KeyError), caught(shelf, process=True):
        broken()
    assert kept(tmp_path)[0].what == "posthouse ended by an error that nobody caught"
    assert not any(isinstance(h, CrashHandler) for h in logging.getLogger().handlers)


def test_hooks_print_nothing_past_the_log(tmp_path: Path) -> None:
    """Thread, interpreter, object that dies: all of it goes through the log, without secrets."""
    code = f"""
import threading
from pathlib import Path
from gateway.crashes.catching import caught
from gateway.crashes.shelf import CrashShelf
from gateway.logs import set_up
redact = set_up(level="INFO", style="plain", secrets=[{SECRET!r}], env={{}})
class Dying:
    def __del__(self):
        raise ValueError("dying {SECRET}")
def crash():
    raise ValueError("thread {SECRET}")
with caught(CrashShelf(Path({str(tmp_path)!r}), redact, lambda: 0.0), process=True):
    thread = threading.Thread(target=crash)
    thread.start()
    thread.join()
    Dying()
    raise ValueError("top {SECRET}")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert SECRET not in done.stdout + done.stderr
    assert all(f"{which} [secret]" in done.stderr for which in ("thread", "dying", "top"))
    assert sorted(c.what for c in kept(tmp_path)) == [
        "gateway.crashes.catching: a thread crashed",
        "posthouse ended by an error that nobody caught",
    ]


# --- the book of runs ---------------------------------------------------------------------------


def test_the_book_of_runs(tmp_path: Path) -> None:
    times = iter(range(100, 10_000, 100))
    with recorded(tmp_path, lambda: float(next(times))) as record:
        assert [run.code for run in runs(tmp_path)] == [None]
        record.ended(75)
    with pytest.raises(ValueError, match="x"), recorded(tmp_path, lambda: float(next(times))):
        raise ValueError("x")
    with recorded(tmp_path, lambda: float(next(times))):
        pass  # killed: nobody has said how it ended
    with recorded(tmp_path, lambda: float(next(times))) as record:
        found = runs(tmp_path)
    assert [run.code for run in found] == [75, 1, None, None]
    assert [run.started_at for run in cut_off(found)] == [500.0]
    assert (tmp_path / "runs.json").stat().st_mode & 0o777 == 0o600
    for _ in range(RUNS_KEPT + 10):
        with recorded(tmp_path, lambda: 1.0) as record:
            record.ended(0)
    assert len(runs(tmp_path)) == RUNS_KEPT
    assert [p.name for p in tmp_path.iterdir()] == ["runs.json"]


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"started_at": "x"}]', "null", "[[]]", "\xff"])
def test_a_broken_book_begins_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "runs.json").write_text(text, encoding="latin-1")
    assert runs(tmp_path) == []
    with recorded(tmp_path, lambda: 1.0) as record:
        record.ended(0)
    assert len(runs(tmp_path)) == 1


def test_a_home_that_takes_nothing_stops_no_run(tmp_path: Path) -> None:
    with recorded(tmp_path / "gone", lambda: 1.0) as record:
        record.ended(0)
    assert runs(tmp_path / "gone") == []


def test_reports_are_where_doctor_looks(tmp_path: Path, shelf: CrashShelf) -> None:
    shelf.stacks("what", "frames")
    (folder_of(tmp_path) / "notes.txt").write_text("of somebody else")
    os.utime(folder_of(tmp_path) / "notes.txt", (1.0, 1.0))
    assert [crash.what for crash in kept(tmp_path)] == ["what", ""]
