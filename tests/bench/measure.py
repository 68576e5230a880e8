"""Owns how a bench reports: ours beside its limit twin from one alternating run, by the ratio."""

from __future__ import annotations

import math
import os
import random
import statistics
import subprocess
import time
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


def process(
    command: Sequence[str], environment: dict[str, str] | None = None
) -> tuple[float, float]:
    """Wall seconds and peak RSS (MiB) of one run of a command."""
    start = time.perf_counter()
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **(environment or {})},
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{command} ended with {child.returncode}")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


WORDS = ("deploy", "session", "gateway", "token", "context", "window", "retry", "database", "queue")
CJK = "会话压缩网关消息数据库索引查询令牌上下文摘要窗口错误重试超时频道配置工作队列"


def text(source: random.Random, chars: int, *, cjk: bool = False) -> str:
    if cjk:
        return "".join(source.choice(CJK) for _ in range(chars))
    return " ".join(source.choice(WORDS) for _ in range(chars // 4))[:chars]
