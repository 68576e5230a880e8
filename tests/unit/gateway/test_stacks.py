"""What is shown when somebody asks what everybody is doing."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.stacks import log_tasks, where


async def deep(gate: asyncio.Event) -> None:
    await gate.wait()


async def middle(gate: asyncio.Event) -> None:
    await deep(gate)


async def test_each_task_with_where_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    gate = asyncio.Event()
    task = asyncio.get_running_loop().create_task(middle(gate), name="the one")
    await asyncio.sleep(0)
    names = [part.split(" ")[-1] for part in where(task).split(" < ")]
    assert names == ["wait", "deep", "middle"]
    with caplog.at_level(logging.WARNING):
        log_tasks()
    lines = {r.__dict__.get("task"): r.__dict__.get("at") for r in caplog.records}
    assert "test_stacks.py" in lines["the one"]
    gate.set()
    await task
    assert where(task) == "nowhere"
