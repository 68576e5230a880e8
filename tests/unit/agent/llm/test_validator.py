"""Each rule: one wrong request, and the right one beside it."""

from __future__ import annotations

import base64
import copy
import struct
from typing import Any

import pytest

from agent.llm.validator import ThinkingLedger, validate

Json = dict[str, Any]


def text(value: str = "x", **more: Any) -> Json:
    return {"type": "text", "text": value, **more}


def use(id: str = "a", value: Any = None) -> Json:  # noqa: A002
    return {"type": "tool_use", "id": id, "name": "f", "input": {} if value is None else value}


def result(id: str = "a", **more: Any) -> Json:  # noqa: A002
    return {"type": "tool_result", "tool_use_id": id, "content": [text("r")], **more}


def user(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks) or [text()]}


def assistant(*blocks: Json) -> Json:
    return {"role": "assistant", "content": list(blocks) or [text()]}


def mark(ttl: str = "5m") -> Json:
    return {"cache_control": {"type": "ephemeral", "ttl": ttl}}


def png(width: int, height: int) -> Json:
    raw = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\0" * 20
    data = base64.b64encode(raw).decode()
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": data},
    }


def body(*messages: Json, **fields: Any) -> Json:
    return {"model": "m", "max_tokens": 10, "messages": list(messages), **fields}


COMPACTION = {"type": "compaction", "content": "c"}

WRONG: list[tuple[str, Json]] = [
    ("W1", body()),
    ("W1", body(assistant(), user())),
    ("W2", body(user(), user())),
    ("W2", body(user(), assistant(), assistant(), user())),
    ("W3", body(user(), assistant(use()), user())),
    ("W3", body(user(), assistant(use()))),
    ("W3", body(user(), assistant(use("a"), use("b")), user(result("a")))),
    ("W3", body(user(), assistant(use()), user(result(), result()))),
    ("W3", body(user(), assistant(use()), user(text(), result()))),
    ("W4", body(user(result()))),
    ("W4", body(user(), assistant(use()), user(result(), result("z")))),
    ("W5", body(user(), assistant(use("a b")), user(result("a b")))),
    ("W5", body(user(), assistant(use("")), user(result("")))),
    (
        "W5",
        body(user(), assistant(use()), user(result()), assistant(use()), user(result())),
    ),
    ("W6", body(user(text("")))),
    ("W6", body(user(text(" \n")))),
    ("W6", body({"role": "user", "content": []})),
    ("W6", body({"role": "user", "content": ""})),
    ("W6", body(user(), system=[text(" ")])),
    ("W6", body(user(), assistant(use()), user(result(content=[])))),
    ("W6", body(user(), assistant(use()), user(result(content=[text("")])))),
    ("W7", body(user(), assistant())),
    ("W7", body(user(), assistant(text("x ")))),
    ("W8", body(user(*[text(**mark()) for _ in range(5)]))),
    (
        "W8",
        body(
            user(*[text(**mark()) for _ in range(3)]),
            system=[text(**mark())],
            tools=[{"name": "f", "input_schema": {}, **mark()}],
        ),
    ),
    (
        "W8",
        body(user(), assistant(use()), user(result(content=[text(**mark()) for _ in range(5)]))),
    ),
    ("W9", body(user(text("", **mark())))),
    ("W9", body(user(), assistant({"type": "thinking", "thinking": "t", **mark()}), user())),
    ("W10", body(user(text(**mark("1h"))), system=[text(**mark("5m"))])),
    ("W12", body(user(), assistant(use(value=[1])), user(result()))),
    ("W13", body(user(png(8001, 10)))),
    ("W13", body(user(*[png(2001, 10) for _ in range(21)]))),
    ("W13", body(user(), assistant(use()), user(result(content=[png(9000, 1)])))),
    ("W14", body(user(text("\ud83d")))),
    ("W14", body(user(), _private=1)),
    ("W14", body({**user(), "_row": 1})),
    ("W14", body(user(text(_kind="x")))),
    ("W14", body(user(), assistant(use(value={"n": float("nan")})), user(result()))),
]

RIGHT: list[Json] = [
    body(user()),
    body({"role": "user", "content": "plain"}),
    body(assistant(COMPACTION), user()),
    body(user(), assistant(use("a"), use("b")), user(result("b"), result("a"), text())),
    body(user(*[png(2000, 2000) for _ in range(21)])),
    body(user(png(8000, 8000))),
    body(user(), assistant(use(value={"_id": 1})), user(result())),
    body(user(text(**mark("5m"))), system=[text(**mark("1h"))]),
    body(user(), assistant({"type": "brand_new"}), user()),
]


@pytest.mark.parametrize(("rule", "wrong"), WRONG)
def test_a_broken_rule_is_named(rule: str, wrong: Json) -> None:
    before = copy.deepcopy(wrong)
    assert rule in [v.rule for v in validate(wrong)]
    assert repr(wrong) == repr(before)


@pytest.mark.parametrize("right", RIGHT)
def test_a_sound_request_has_nothing_to_name(right: Json) -> None:
    assert validate(right) == []


def test_a_body_over_the_limit() -> None:
    assert [v.rule for v in validate(body(user(text("x" * (33 << 20)))))] == ["W13"]


def test_only_a_pause_may_end_with_the_assistant() -> None:
    paused = body(user(), assistant(text("on and on ")))
    assert validate(paused, continues_pause=True) == []
    assert {v.rule for v in validate(paused)} == {"W7"}


def test_thinking_is_bound_to_what_stood_before_it() -> None:
    ledger = ThinkingLedger()
    first = body(user(text("q", **mark())), system=[text("s")])
    said = [{"type": "thinking", "thinking": "t", "signature": "1"}, text("a")]
    ledger.record(first, said)
    plain = body(user(text("q")), assistant(*said), user(), system=[text("s")])
    assert validate(plain, ledger=ledger) == []
    for change in (
        {"system": [text("other")]},
        {"messages": [user(text("other")), *plain["messages"][1:]]},
        {"messages": [plain["messages"][0], assistant({**said[0], "thinking": "T"}), user()]},
        {"tools": [{"name": "f", "input_schema": {}}]},
    ):
        assert [v.rule for v in validate({**plain, **change}, ledger=ledger)] == ["W11"]
    absent = body(user(text("q")), assistant(said[1]), user(), system=[text("s")])
    assert validate(absent, ledger=ledger) == []
