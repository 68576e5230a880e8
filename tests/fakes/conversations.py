"""Owns whole conversations as people have them, of every kind, with known facts planted in them.

Plain Python and a seed: the same arguments always give the same conversation.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, cast

from agent.messages import Message
from agent.model_metadata import estimate_message_tokens

Place = Literal["user", "assistant", "result", "arguments"]
Language = Literal["en", "zh", "ja"]


@dataclass(frozen=True, slots=True)
class Fact:
    """A string that must not be lost. Every one is said in one message only."""

    text: str
    place: Place
    row: int
    """The ``_row`` of its message."""
    exact: bool
    """An identifier (path, number, id, error line), and no name."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A list as a store gives it to an engine, and what is in it."""

    kind: str
    messages: list[Message]
    facts: tuple[Fact, ...]


_FILLER: dict[Language, tuple[str, ...]] = {
    "en": (
        "We looked at it together and it seemed fine at first.",
        "Could you check why the nightly run takes so long now?",
        "The second attempt went through without any trouble at all.",
        "I would rather keep the old layout until the release is out.",
        "Nobody has touched that part since the summer, as far as I know.",
    ),
    "zh": (
        "我们一起看过了，起初一切都很正常。",
        "请帮我查一下夜间任务为什么变慢了。",
        "第二次尝试顺利通过，没有任何问题。",
        "在发布之前我想保留旧的布局。",
        "据我所知，从夏天起就没有人动过那部分。",
    ),
    "ja": (
        "最初は問題ないように見えました。",
        "夜間の処理が遅くなった理由を調べてください。",
        "二回目は何の問題もなく通りました。",
        "リリースまでは古い配置のままにしたいです。",
        "夏以降、その部分は誰も触っていないはずです。",
    ),
}
_SAYS: dict[Language, tuple[str, ...]] = {
    "en": ("Please note {}.", "It is about {}, as before.", "What matters is {} here."),
    "zh": ("请注意{}这一点。", "这次是关于 {} 的。", "重点是{}，别忘了。"),
    "ja": ("{}に注意してください。", "今回は {} の件です。", "重要なのは{}です。"),
}
_WORDS = ("deploy", "ledger", "harbor", "pricing", "survey", "mirror", "invoice", "garden")
_SYLLABLES = ("ka", "lo", "min", "tar", "ve", "shu", "rin", "do", "bel", "ost")
_TOOLS = ("shell", "read_file", "fetch_url")
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)


@dataclass(slots=True)
class _Author:
    """Writes a conversation message by message."""

    rng: random.Random
    language: Language = "en"
    messages: list[Message] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    tokens: int = 0

    # --- texts

    def new_fact(self) -> tuple[str, bool]:
        """A string that was not used yet, and whether it is an identifier."""
        rng = self.rng
        while True:
            word = rng.choice(_WORDS)
            number = rng.randrange(10_000, 99_999)
            text, exact = rng.choice(
                (
                    (f"/srv/{word}/{number:x}/{rng.choice(_WORDS)}.py", True),
                    (f"{number},{rng.randrange(100, 999)}.{rng.randrange(10, 99)}", True),
                    (f"{word[:3].upper()}-{number}", True),
                    (f"{word.title()}Error: code {number} in line {rng.randrange(1000)}", True),
                    (f"{''.join(rng.choices(_SYLLABLES, k=3)).title()} Q. Number{number}", False),
                )
            )
            if text not in self.used:
                self.used.add(text)
                return text, exact

    def text(self, place: Place, sentences: int, facts: int) -> str:
        """Sentences with facts among them; the facts belong to the message that comes next."""
        lines = [self.rng.choice(_FILLER[self.language]) for _ in range(sentences)]
        for _ in range(facts):
            fact, exact = self.new_fact()
            self.facts.append(Fact(fact, place, self.next_row, exact))
            if "Error" in fact and place in ("result", "assistant"):
                said = f"\n{fact}\n"
            else:
                said = self.rng.choice(_SAYS[self.language]).format(fact)
            lines.insert(self.rng.randint(0, len(lines)), said)
        return (" " if self.language == "en" else "").join(lines)

    # --- messages

    @property
    def next_row(self) -> int:
        return 1000 + len(self.messages)

    def add(self, **message: Any) -> None:
        said = cast(Message, {**message, "_row": self.next_row})
        self.tokens += estimate_message_tokens(said)
        self.messages.append(said)

    def user(self, sentences: int = 3, *, facts: int = 1, photo: bool = False) -> None:
        text = self.text("user", sentences, facts)
        if photo:
            image = {"type": "image_url", "image_url": {"url": PIXEL}}
            self.add(role="user", content=[{"type": "text", "text": text}, image])
        else:
            self.add(role="user", content=text)

    def reply(self, sentences: int = 5, *, facts: int = 1) -> None:
        self.add(role="assistant", content=self.text("assistant", sentences, facts))

    def round_of_tools(
        self,
        calls: int = 1,
        *,
        sentences: int = 30,
        facts: int = 1,
        says: bool = False,
        thinking: bool = False,
    ) -> None:
        """An assistant message with calls, and their results."""
        number = len(self.messages)
        made = []
        content = self.text("assistant", 2, 1) if says else None
        for k in range(calls):
            arguments = {
                "path": f"/tmp/{number}",
                "note": self.text("arguments", self.rng.choice((1, 1, 20)), 1),
            }
            made.append(
                {
                    "id": f"toolu_{number}_{k}",
                    "type": "function",
                    "function": {
                        "name": self.rng.choice(_TOOLS),
                        "arguments": json.dumps(arguments, ensure_ascii=False),
                    },
                }
            )
        extra: dict[str, Any] = {}
        if thinking:
            extra["anthropic_content_blocks"] = _signed(content, made, number)
        self.add(role="assistant", content=content, tool_calls=made, **extra)
        for call in made:
            self.add(
                role="tool",
                tool_call_id=call["id"],
                name=cast(Any, call["function"])["name"],
                content=self.text("result", sentences, facts),
            )


def _signed(text: str | None, calls: list[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "hm " * 40, "signature": f"sig{number}"}
    ]
    if text is not None:
        blocks.append({"type": "text", "text": text})
    blocks.extend(
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"]),
        }
        for call in calls
    )
    return blocks


# --- kinds: each writes one exchange (or the whole turn) ----------------------------------------


def _chat(author: _Author) -> None:
    author.user(author.rng.choice((1, 3, 12)), facts=author.rng.randint(0, 2))
    author.reply(author.rng.choice((2, 8, 30)), facts=author.rng.randint(0, 2))


def _tools(author: _Author) -> None:
    author.user(2)
    for _ in range(author.rng.randint(1, 4)):
        author.round_of_tools(sentences=author.rng.choice((2, 20, 60)), says=True, facts=2)
    author.reply(4)


def _mixed(author: _Author) -> None:
    author.language = author.rng.choice(("en", "zh", "ja"))
    author.rng.choice((_chat, _tools, _parallel, _photos))(author)


def _parallel(author: _Author) -> None:
    author.user(2)
    author.round_of_tools(author.rng.randint(2, 6), sentences=15)
    author.reply(3)


def _photos(author: _Author) -> None:
    author.user(2, photo=True)
    author.reply(6, facts=2)


def _thinking(author: _Author) -> None:
    author.user(2)
    for _ in range(author.rng.randint(1, 3)):
        author.round_of_tools(sentences=20, thinking=True, says=author.rng.random() < 0.5)
    author.reply(3)


def _huge(author: _Author) -> None:
    author.user(2)
    author.round_of_tools(sentences=author.rng.choice((100, 200, 500)), facts=5)
    author.reply(3)


def _long_turn(author: _Author) -> None:
    if not author.messages:
        author.user(6, facts=2)
    author.round_of_tools(author.rng.choice((1, 1, 3)), sentences=author.rng.choice((3, 25)))


KINDS: dict[str, tuple[Callable[[_Author], None], Language]] = {
    "chat": (_chat, "en"),
    "tools": (_tools, "en"),
    "chat_zh": (_chat, "zh"),
    "tools_zh": (_tools, "zh"),
    "chat_ja": (_chat, "ja"),
    "tools_ja": (_tools, "ja"),
    "mixed": (_mixed, "en"),
    "parallel": (_parallel, "en"),
    "photos": (_photos, "en"),
    "thinking": (_thinking, "en"),
    "huge": (_huge, "en"),
    "long_turn": (_long_turn, "en"),
}


def conversation(
    kind: str, seed: int, *, tokens: int = 18_000, open_end: bool = False
) -> Conversation:
    """A sound conversation of at least so many estimated tokens, without a system row.

    Args:
        kind: One of `KINDS`.
        seed: Which of them.
        tokens: Its size.
        open_end: It ends with a question that nobody has answered yet.
    """
    written = _written(kind, seed, tokens, open_end)
    return replace(written, messages=[cast(Message, {**m}) for m in written.messages])


@lru_cache(maxsize=256)
def _written(kind: str, seed: int, tokens: int, open_end: bool) -> Conversation:
    """Many tests ask for the same one."""
    write, language = KINDS[kind]
    author = _Author(random.Random(f"{kind}:{seed}"), language)
    while author.tokens < tokens:
        write(author)
    if open_end and kind != "long_turn":
        author.user(1)
    return Conversation(kind, author.messages, tuple(author.facts))


# --- broken lists -------------------------------------------------------------------------------


def _called(call_id: str, text: str | None = None) -> Message:
    function = {"name": "shell", "arguments": '{"command": "ls"}'}
    call = {"id": call_id, "type": "function", "function": function}
    return cast(Message, {"role": "assistant", "content": text, "tool_calls": [call]})


def _result(call_id: str, text: str = "done") -> Message:
    return cast(
        Message, {"role": "tool", "tool_call_id": call_id, "name": "shell", "content": text}
    )


def _said(role: str, content: Any) -> Message:
    return cast(Message, {"role": role, "content": content})


def broken(tokens: int = 18_000) -> dict[str, list[Message]]:
    """Lists as crashes, imports and other people's engines leave them; no row is known."""
    base = [_bare(m) for m in conversation("tools", 7, tokens=tokens).messages]
    cut = len(base) // 2
    results = [i for i, m in enumerate(base) if m["role"] == "tool"]
    first = results[0]
    doubled = results[len(results) // 2]
    return {
        "orphan result": [*base[:3], _result("nobody", "who asked? " * 200), *base[3:]],
        "doubled result": [*base[: doubled + 1], base[doubled], *base[doubled + 1 :]],
        "result before its call": [
            *base[: first - 1],
            base[first],
            base[first - 1],
            *base[first + 1 :],
        ],
        "unanswered call": [m for i, m in enumerate(base) if i != doubled],
        "unanswered call at the end": [*base, _said("user", "and now?"), _called("last")],
        "same call id twice": [
            *base,
            _said("user", "again"),
            _called("twin"),
            _result("twin", "one " * 100),
            _called("twin"),
            _result("twin", "two " * 100),
            _said("assistant", "both done"),
        ],
        "system row inside": [*base[:cut], _said("system", "be brief"), *base[cut:]],
        "no user row": [m for m in base if m["role"] != "user"],
        "begins with the assistant": [_said("assistant", "hello"), *base],
        "only user rows": [_said("user", f"line {k} " + "word " * 300) for k in range(60)],
        "only tool results": [_result(f"r{k}", "text " * 300) for k in range(60)],
        "one giant message": [_said("user", "huge " * tokens)],
        "one giant answer": [_said("user", "go"), _said("assistant", "huge " * tokens)],
        "giant result in a list of three": [
            _said("user", "read"),
            _called("big"),
            _result("big", "row of text\n" * tokens),
        ],
        "lone surrogates": [
            _said(m["role"], "half \ud83d of it " + "text " * 200) if m["role"] == "user" else m
            for m in base
        ],
        "empty contents": [
            _said(m["role"], ("", None, [], "  \n")[i % 4])
            if m["role"] == "assistant" and not m.get("tool_calls")
            else m
            for i, m in enumerate(base)
        ],
        "empty results": [
            cast(Message, {**m, "content": ("", None, [])[i % 3]})
            if m["role"] == "tool" and i % 2
            else m
            for i, m in enumerate(base)
        ],
        "arguments that are no JSON": [
            *base[:2],
            cast(
                Message,
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "bad", "function": {"name": "f", "arguments": '{"a": "' + "x" * 900}}
                    ],
                },
            ),
            _result("bad"),
            *base[2:],
        ],
        "two messages": base[:2],
        "nothing": [],
    }


def _bare(message: Message) -> Message:
    return cast(Message, {k: v for k, v in message.items() if not k.startswith("_")})
