"""Owns what nobody caught: the interpreter's last hooks, and errors that were logged as crashes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from types import TracebackType

from gateway.crashes.report import of_threads
from gateway.crashes.shelf import CrashShelf
from gateway.stacks import where

log = logging.getLogger(__name__)

_WATCHDOG = "gateway.watchdog"
_OURS = frozenset({"agent", "gateway", "storage", "asyncio"})


class CrashHandler(logging.Handler):
    """Of each error with a stack that our supervised borders log, a report.

    Broad `except` stands at supervised borders only, and is always logged (house rule 10): so
    those records are just what nobody foresaw. Code of plugins logs under names of its own.
    """

    def __init__(self, shelf: CrashShelf) -> None:
        super().__init__(logging.ERROR)
        self._shelf = shelf

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == _WATCHDOG and record.levelno >= logging.CRITICAL:
            self._unfed(record)
            return
        error = record.exc_info[1] if record.exc_info else None
        if error is None or record.name.partition(".")[0] not in _OURS:
            return
        # The words before anything was put into them are constants of ours; asyncio's are made of
        # whatever a task or a callback was called with.
        ours = record.name != "asyncio"
        what = f"{record.name}: {record.msg}"[:200] if ours else "asyncio: nobody caught an error"
        try:
            self._shelf.error(what, error)
        except Exception:  # noqa: BLE001 - the supervised border: no second crash
            return

    def _unfed(self, record: logging.LogRecord) -> None:
        """A manager will end this process: what everybody is at is worth more than its core."""
        lost = getattr(record, "what", None)
        if lost is None:
            return
        try:
            tasks = [f"task {task.get_name()}: {where(task)}" for task in asyncio.all_tasks()]
            names = {t.ident: t.name for t in threading.enumerate() if t.ident is not None}
            body = "\n".join([*sorted(tasks), of_threads(sys._current_frames(), names)])
            self._shelf.stacks(f"only a new start helps: {lost}", body)
        except Exception:  # noqa: BLE001 - as above
            return


@contextlib.contextmanager
def caught(shelf: CrashShelf, *, process: bool) -> Iterator[None]:
    """Reports of what is logged as a crash, while the block runs; ``process``: the hooks, too.

    The hooks stay behind the block: what comes up to the interpreter does so after it.
    """
    handler = CrashHandler(shelf)
    logging.getLogger().addHandler(handler)
    if process:
        sys.excepthook = _at_the_top
        threading.excepthook = _in_thread
        sys.unraisablehook = _unraisable
    try:
        yield
    except Exception as error:
        if process and not _is_foreseen(error):
            shelf.error("posthouse ended by an error that nobody caught", error)
        raise
    finally:
        logging.getLogger().removeHandler(handler)


def _is_foreseen(error: Exception) -> bool:
    from agent.errors import PosthouseError  # noqa: PLC0415 - it is loaded by then

    return isinstance(error, PosthouseError | BrokenPipeError)


# To the log, whose handlers know the secrets; the interpreter would print past them.


def _at_the_top(
    kind: type[BaseException], error: BaseException, where: TracebackType | None
) -> None:
    log.critical("posthouse ends by an error that nobody caught", exc_info=error)


def _in_thread(arguments: threading.ExceptHookArgs) -> None:
    if arguments.exc_value is None or issubclass(arguments.exc_type, SystemExit):
        return
    name = arguments.thread.name if arguments.thread is not None else ""
    log.error("a thread crashed", extra={"thread_name": name}, exc_info=arguments.exc_value)


def _unraisable(arguments: sys.UnraisableHookArgs) -> None:
    if arguments.exc_value is None:
        return
    log.warning("an error that nobody could be told of", exc_info=arguments.exc_value)
