"""Owns how a bench reports: ours beside its limit twin from one alternating run, by the ratio."""

from __future__ import annotations

import math
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

median = statistics.median


@dataclass(frozen=True, slots=True)
class Result:
    """One row, from rounds in which ours and the limit took turns."""

    name: str
    unit: str
    ours: Sequence[float]
    limit: Sequence[float]
    at_most: float | None = None
    """Budget for the ratio ours / limit where less is better."""
    at_least: float | None = None
    """Budget for the ratio where more is better."""
    note: str = ""

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios: a busy moment hits both sides of one round."""
        return median(mine / floor for mine, floor in zip(self.ours, self.limit, strict=True))

    @property
    def met(self) -> bool:
        low = self.at_least is None or self.ratio >= self.at_least
        return low and (self.at_most is None or self.ratio <= self.at_most)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "met": self.met}

    def line(self) -> str:
        budget = f"<= {self.at_most:.2f}" if self.at_most is not None else f">= {self.at_least:.2f}"
        return (
            f"{'ok  ' if self.met else 'MISS'} {self.name:<28} {median(self.ours):>9.1f} "
            f"{self.unit:<6} limit {median(self.limit):>9.1f}  ratio {self.ratio:>5.2f} "
            f"(budget {budget}) {self.note}".rstrip()
        )


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(percent / 100 * len(ordered)) - 1))]


_OF_ONE_PROCESS = """
import os, sys, time
null = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0), (os.POSIX_SPAWN_DUP2, 1, 2)]
begun = time.perf_counter()
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=null)
_, status, usage = os.wait4(pid, 0)
print(time.perf_counter() - begun, usage.ru_maxrss, os.waitstatus_to_exitcode(status))
"""
"""A process's peak begins with what the one that started it has: that has to be a small one."""


def process(
    command: Sequence[str], environment: dict[str, str] | None = None
) -> tuple[float, float]:
    """Wall seconds and peak RSS (MiB) of one run of a command, named by its whole path."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _OF_ONE_PROCESS, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        text=True,
        check=True,
    )
    wall, peak, code = done.stdout.split()
    if code != "0":
        raise RuntimeError(f"{command} ended with {code}")
    return float(wall), int(peak) / 1024


WORDS = ("deploy", "session", "gateway", "token", "context", "window", "retry", "database", "queue")
CJK = "会话压缩网关消息数据库索引查询令牌上下文摘要窗口错误重试超时频道配置工作队列"


def text(source: random.Random, chars: int, *, cjk: bool = False) -> str:
    if cjk:
        return "".join(source.choice(CJK) for _ in range(chars))
    return " ".join(source.choice(WORDS) for _ in range(chars // 4))[:chars]
