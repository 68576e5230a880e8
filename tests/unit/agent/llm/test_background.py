"""Slow steps in threads of their own: their results, and an interpreter that ends beside one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from agent.llm.background import in_daemon_thread, let_finish


async def test_what_it_returns_or_raises_arrives() -> None:
    assert await in_daemon_thread(lambda: 7, "seven") == 7

    def broken() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await in_daemon_thread(broken, "broken")


async def test_the_wait_at_the_end_is_bounded() -> None:
    gate = threading.Event()
    task = asyncio.ensure_future(in_daemon_thread(gate.wait, "hanging"))
    await asyncio.sleep(0)
    let_finish(0.01)  # comes back although the thread hangs
    assert not task.done()
    gate.set()
    assert await task


def test_an_interpreter_that_ends_waits_for_an_import() -> None:
    program = """
import asyncio, sys, time
from agent.llm.background import in_daemon_thread

def step():
    time.sleep(0.5)
    print("whole", flush=True)

async def main():
    asyncio.ensure_future(in_daemon_thread(step, "import"))
    await asyncio.sleep(0.01)

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "whole\n"


def test_a_process_that_has_stopped_waits_for_no_import() -> None:
    program = """
import asyncio, sys, time
from agent.llm.background import in_daemon_thread
from gateway.cli.leaving import leave_for_sure

async def main():
    asyncio.ensure_future(in_daemon_thread(lambda: time.sleep(60.0), "import"))
    await asyncio.sleep(0.01)

asyncio.run(main())
print("all said", end="")
leave_for_sure(75)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=9, check=False
    )
    assert (done.returncode, done.stdout) == (75, "all said")
