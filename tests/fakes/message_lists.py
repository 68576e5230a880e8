"""Owns hypothesis strategies for whole message lists, as a store would give them to an engine."""

from __future__ import annotations

import json
from typing import Any, cast

from hypothesis import strategies as st

from agent.messages import SUMMARY_END, SUMMARY_HEADER, Message

_SAMPLES = (
    "ok",
    "please look at /srv/app/main.py and tell me about error E4012",
    "请把部署脚本改成每天凌晨三点运行，日志写到 /var/log/deploy.log",
    "デプロイは毎日3時に実行してください。",
    "안녕하세요, 로그 파일을 확인해 주세요",
    "👩‍👩‍👧‍👦 family 🇩🇪 flag e\u0301 combining",
    "~~~ user m1\nnot a fence\n~~~",
    f"{SUMMARY_HEADER}\nthis only looks like a summary\n{SUMMARY_END}",
    "## Exact identifiers (newest first)\n- nothing",
    "password: hunter2hunter2",
    "𠀀𠀁𠀂 extension B",
    "half \ud83d surrogate",
)

texts = st.one_of(
    st.sampled_from(_SAMPLES),
    st.text(min_size=1, max_size=40).filter(lambda text: bool(text.strip())),
    st.builds(lambda text, n: text * n, st.sampled_from(_SAMPLES), st.integers(2, 30)),
)


@st.composite
def user_messages(draw: st.DrawFn) -> Message:
    text = draw(texts)
    if draw(st.integers(0, 9)) == 0:
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        return cast(Message, {"role": "user", "content": [{"type": "text", "text": text}, image]})
    return cast(Message, {"role": "user", "content": text})


@st.composite
def tool_group(draw: st.DrawFn, number: int) -> list[Message]:
    """An assistant message with 1-4 calls, and all their results."""
    calls: list[dict[str, Any]] = []
    for k in range(draw(st.integers(1, 4))):
        arguments = {"path": f"/f/{number}", "content": draw(texts) * draw(st.integers(1, 8))}
        calls.append(
            {
                "id": f"call_{number}_{k}",
                "type": "function",
                "function": {
                    "name": draw(st.sampled_from(("shell", "read_file", "recall"))),
                    "arguments": json.dumps(arguments, ensure_ascii=draw(st.booleans())),
                },
            }
        )
    head: dict[str, Any] = {
        "role": "assistant",
        "content": draw(st.one_of(st.none(), texts)),
        "tool_calls": calls,
    }
    if draw(st.integers(0, 3)) == 0:
        head["anthropic_content_blocks"] = [
            {"type": "thinking", "thinking": "hm", "signature": "S1"},
            *({"type": "tool_use", "id": c["id"], "name": "x", "input": {}} for c in calls),
        ]
    results = [
        {
            "role": "tool",
            "tool_call_id": call["id"],
            "name": call["function"]["name"],
            "content": draw(texts) * draw(st.sampled_from((1, 1, 5, 20))),
        }
        for call in calls
    ]
    return cast(list[Message], [head, *results])


@st.composite
def exchange(draw: st.DrawFn, number: int, *, finished: bool = True) -> list[Message]:
    """A user message, rounds of tools, and (if finished) the reply."""
    messages = [draw(user_messages())]
    for k in range(draw(st.integers(0, 3))):
        messages.extend(draw(tool_group(number * 10 + k)))
    if finished or len(messages) == 1:
        messages.append(cast(Message, {"role": "assistant", "content": draw(texts)}))
    return messages


@st.composite
def conversations(
    draw: st.DrawFn, *, max_exchanges: int = 8, rows: bool | None = None
) -> list[Message]:
    """A whole list: perhaps a system row, perhaps one long turn, perhaps open at its end."""
    messages: list[Message] = []
    if draw(st.booleans()):
        messages.append(cast(Message, {"role": "system", "content": "You are an assistant."}))
    count = draw(st.integers(1, max_exchanges))
    for number in range(count):
        messages.extend(draw(exchange(number)))
    match draw(st.integers(0, 3)):
        case 0:
            messages.append(draw(user_messages()))
        case 1:
            messages.append(draw(user_messages()))
            for k in range(draw(st.integers(1, 10))):
                messages.extend(draw(tool_group(1000 + k)))
        case _:
            pass
    if rows if rows is not None else draw(st.booleans()):
        for i, message in enumerate(messages):
            if message["role"] != "system":
                message["_row"] = 100 + i
    return messages
