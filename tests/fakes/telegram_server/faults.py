"""Scripted faults: which calls go wrong, how, and how often."""

from __future__ import annotations

import fnmatch
from dataclasses import asdict, dataclass, fields
from typing import Any

from tests.fakes.telegram_server.wire import ApiError, Json, flood

KINDS = (
    "flood", "error", "html", "drop", "hang", "migrate", "garbage", "odd",
    "drip", "short", "endless", "packed", "moved",
)  # fmt: skip
DOWNLOAD_KINDS = frozenset({"drip", "short", "endless", "packed", "moved"})
"""Of a file's bytes: see `downloads`."""


@dataclass
class Fault:
    """One rule. `after` means the method is carried out first and only the answer suffers."""

    kind: str
    method: str = "*"
    chat_id: int | None = None
    times: int | None = 1
    skip: int = 0
    after: bool = False
    retry_after: int = 1
    code: int = 500
    text: str = "Internal Server Error"
    seconds: float | None = None
    migrate_to: int | None = None
    hits: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown fault {self.kind!r}; one of {', '.join(KINDS)}")

    @classmethod
    def flood(cls, retry_after: int, method: str = "sendMessage", **rest: Any) -> Fault:
        """429 with a waiting time."""
        return cls("flood", method, retry_after=retry_after, **rest)

    @classmethod
    def error(cls, code: int, text: str, method: str = "sendMessage", **rest: Any) -> Fault:
        """Any error envelope; the description is sent as given."""
        return cls("error", method, code=code, text=text, **rest)

    @classmethod
    def html(cls, code: int = 502, method: str = "*", **rest: Any) -> Fault:
        """A page of the front server where JSON was expected."""
        return cls("html", method, code=code, **rest)

    @classmethod
    def drop(cls, method: str = "sendMessage", *, after: bool = False, **rest: Any) -> Fault:
        """The connection is reset, before the call is handled or after it was accepted."""
        return cls("drop", method, after=after, **rest)

    @classmethod
    def hang(
        cls,
        method: str = "sendMessage",
        seconds: float | None = None,
        *,
        after: bool = False,
        **rest: Any,
    ) -> Fault:
        """No answer for some seconds, or for ever (until the client leaves or `release`)."""
        return cls("hang", method, seconds=seconds, after=after, **rest)

    @classmethod
    def migrate(cls, migrate_to: int, method: str = "sendMessage", **rest: Any) -> Fault:
        """400 that names the supergroup a group has become."""
        return cls("migrate", method, migrate_to=migrate_to, **rest)

    @classmethod
    def garbage(cls, method: str = "sendMessage", *, after: bool = False, **rest: Any) -> Fault:
        """200 with a body that is cut off inside the JSON."""
        return cls("garbage", method, after=after, **rest)

    @classmethod
    def odd(cls, text: str, method: str = "sendMessage", **rest: Any) -> Fault:
        """200 with a body that is JSON, or nearly, but not what was asked for."""
        return cls("odd", method, text=text, **rest)

    @classmethod
    def download(cls, kind: str, **rest: Any) -> Fault:
        """A file's bytes that come slowly, not all, without end, packed, or from elsewhere."""
        return cls(kind, "downloadFile", **rest)

    @classmethod
    def from_json(cls, body: Json) -> Fault:
        """A rule from the control API; unknown fields are an error, not a surprise."""
        known = {item.name for item in fields(cls)} - {"hits"}
        unknown = set(body) - known
        if unknown:
            raise ValueError(f"unknown fault fields {sorted(unknown)}; one of {sorted(known)}")
        return cls(**body)

    def to_json(self) -> Json:
        """The rule with what it has done so far."""
        return asdict(self)

    def matches(self, method: str, chat_id: int | None) -> bool:
        """Is this rule about such a call?"""
        if self.chat_id is not None and self.chat_id != chat_id:
            return False
        return fnmatch.fnmatchcase(method.lower(), self.method.lower())

    def api_error(self) -> ApiError | None:
        """The error envelope of a rule that has one."""
        if self.kind == "flood":
            return flood(self.retry_after)
        if self.kind == "error":
            return ApiError(self.code, self.text)
        if self.kind == "migrate":
            text = "Bad Request: group chat was upgraded to a supergroup chat"
            return ApiError(400, text, {"migrate_to_chat_id": self.migrate_to})
        return None


class FaultBook:
    """The rules in force; the first that matches a call is used up by it."""

    def __init__(self) -> None:
        self.rules: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        """Put a rule behind those that are there."""
        self.rules.append(fault)
        return fault

    def clear(self) -> None:
        """Everything works again."""
        self.rules.clear()

    def take(self, method: str, chat_id: int | None) -> Fault | None:
        """The fault for this call, counted; rules that are used up leave the book."""
        for fault in self.rules:
            if not fault.matches(method, chat_id):
                continue
            if fault.skip > 0:
                fault.skip -= 1
                continue
            fault.hits += 1
            if fault.times is not None:
                fault.times -= 1
                if fault.times <= 0:
                    self.rules.remove(fault)
            return fault
        return None
