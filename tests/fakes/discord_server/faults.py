"""Scripted faults: which request is hit, how often, and what happens to it."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from typing import Any

# Shorthand for the statuses Discord and its proxies are seen to answer with.
_STATUS_TEXT = {
    500: "500: Internal Server Error",
    502: "502: Bad Gateway",
    503: "upstream connect error or disconnect/reset before headers",
    504: "504: Gateway Time-out",
}

KINDS = ("status", "rate_limit", "cloudflare", "drop", "reset", "hang", "slow")


@dataclass
class Fault:
    """One scripted fault.

    `times` is how many matching requests it hits (None: all), after letting `skip` of them pass.
    With `handled` the request takes effect first: its sender can not know the outcome.
    """

    kind: str
    method: str = "*"
    path: str = "*"
    channel_id: int | None = None
    contains: str | None = None
    times: int | None = 1
    skip: int = 0
    handled: bool = False
    status: int = 500
    code: int = 0
    message: str | None = None
    retry_after: float = 0.05
    scope: str = "user"
    seconds: float = 0.1
    hits: int = 0

    def matches(self, method: str, path: str, channel_id: int | None, text: str) -> bool:
        return (
            self.times != 0
            and fnmatch.fnmatchcase(method, self.method.upper())
            and fnmatch.fnmatchcase(path, self.path)
            and (self.channel_id is None or self.channel_id == channel_id)
            and (self.contains is None or self.contains in text)
        )

    @property
    def is_global(self) -> bool:
        return self.scope == "global"

    def text(self) -> str:
        return self.message or _STATUS_TEXT.get(self.status, f"{self.status}: Error")


@dataclass
class FaultBook:
    """The faults still to come, in the order they were scripted; the first match wins."""

    faults: list[Fault] = field(default_factory=list)

    def add(self, kind: str, **options: Any) -> Fault:
        fault = Fault(**_spelled_out(kind, options))
        self.faults.append(fault)
        return fault

    def take(self, method: str, path: str, channel_id: int | None, text: str) -> Fault | None:
        """The fault for this request, counted off."""
        for fault in self.faults:
            if not fault.matches(method, path, channel_id, text):
                continue
            if fault.skip > 0:
                fault.skip -= 1
                continue
            fault.hits += 1
            if fault.times is not None:
                fault.times -= 1
            return fault
        return None

    def clear(self) -> None:
        self.faults.clear()


def _spelled_out(kind: str, options: dict[str, Any]) -> dict[str, Any]:
    """Turn shorthands ("429", "429-global", "503") into the fields they stand for."""
    name = str(kind)
    if name == "429":
        return {"kind": "rate_limit", **options}
    if name == "429-global":
        return {"kind": "rate_limit", "scope": "global", **options}
    if name == "429-cloudflare":
        return {"kind": "cloudflare", **options}
    if name == "error":
        return {"kind": "status", **options}
    if name.isdigit():
        return {"kind": "status", "status": int(name), **options}
    if name not in KINDS:
        raise ValueError(f"unknown fault {name!r}")
    return {"kind": name, **options}
