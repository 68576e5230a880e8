"""Owns the process that reads a document: without our environment, bounded, killed in time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Mapping
from typing import Any

MAX_ANSWER_BYTES = 4 * 1024 * 1024

log = logging.getLogger(__name__)


class DocumentUnreadable(Exception):
    """No text can be had; the text says why, in words for a model."""


async def asked(
    module: str, question: Mapping[str, Any], data: bytes, *, deadline_seconds: float
) -> Mapping[str, Any]:
    """What a reader says of these bytes: an object of its own making.

    ``module``: its input is the question, on a line of its own, then the bytes; its command line
    can be read by every user of the machine. It is killed when it takes too long, and when the
    turn is stopped.

    Raises:
        DocumentUnreadable: it says ``error``, nothing, or nothing in time.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-m", module),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
        )
    except OSError as exc:
        log.warning("No process to read a document", exc_info=True)
        raise DocumentUnreadable("documents can not be read right now") from exc
    try:
        async with asyncio.timeout(deadline_seconds):
            out, _ = await process.communicate(json.dumps(question).encode() + b"\n" + data)
    except TimeoutError:
        raise DocumentUnreadable("it takes too long to read") from None
    finally:
        if process.returncode is None:  # also when the turn was stopped
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    found = _answer(out)
    if "error" in found:
        raise DocumentUnreadable(str(found["error"]))
    return found


def _answer(out: bytes) -> Mapping[str, Any]:
    """What the process said; it may have died, of what the document did to it."""
    try:
        found = json.loads(out) if len(out) <= MAX_ANSWER_BYTES else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise DocumentUnreadable("it is damaged, or too much to unpack")
    return found
