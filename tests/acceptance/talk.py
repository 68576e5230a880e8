"""A long talk of numbered messages: what is said, what the model answers, and what must be shown.

Every message carries a tag (`T107`, `D231`); the answer to it is known in advance, paragraph by
paragraph, so that a lost, doubled or cut answer can be told from what the chats show.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from gateway.texts import POSSIBLE_REPEAT as REPEAT_MARK
from tests.acceptance.harness import Chat, Database
from tests.fakes.anthropic_server import Answer, MessageRequest, tool_use
from tests.fakes.anthropic_server import text as text_block

Kind = Literal["plain", "cjk", "emoji", "clock", "recall", "long", "heavy", "rounds", "dig"]

TAG: Final = re.compile(r"\b[TD]\d{3}\b")
ROUNDS: Final = 10
"""Tool rounds of the one long turn; together larger than the threshold."""
_WORDS: Final = [
    "harbour", "lantern", "gravel", "orchard", "compass", "thimble", "meadow", "railway",
    "copper", "saffron", "window", "ledger", "anchor", "violin", "pepper", "glacier", "ribbon",
    "tunnel", "walnut", "beacon", "marble", "cellar", "feather", "engine", "river",
]  # fmt: skip
_HAN: Final = "山水风云日月星辰江河湖海草木花鸟鱼虫春夏秋冬东西南北茶酒书画琴棋金石土火雨雪霜露"
_EMOJI: Final = ("👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "e\u0301", "𝒳", "🧑🏿‍🚀")
_FILLER_LINES: Final = 60


@dataclass(frozen=True)
class Said:
    """One message of a person."""

    tag: str
    chat: str
    kind: Kind
    text: str


class Talk:
    """The chats, what was said in them, and the model's side of it."""

    def __init__(self, chats: Mapping[str, Chat], seed: int) -> None:
        self.chats = dict(chats)
        self.said: dict[str, Said] = {}
        self._seed = seed
        self._numbers: Counter[str] = Counter()
        self._rounds: Counter[str] = Counter()

    # --- people

    def say(self, chat: str, kind: Kind) -> Said:
        """Say the next message there: `T107` is the seventh in the first chat on Telegram."""
        self._numbers[chat] += 1
        platform, _, number = chat.partition("-")
        tag = f"{platform[0].upper()}{number}{self._numbers[chat]:02d}"
        said = Said(tag, chat, kind, f"{tag} {self._wording(tag, kind)}")
        self.said[tag] = said
        self.chats[chat].say(said.text)
        return said

    def count(self, platform: str) -> int:
        """Messages said on a platform so far."""
        return sum(n for chat, n in self._numbers.items() if chat.startswith(platform))

    def _wording(self, tag: str, kind: Kind) -> str:
        # By tag, so that a chat is the same whatever the others do meanwhile.
        dice = random.Random(f"{self._seed} {tag}")
        match kind:
            case "plain" | "long":
                return f"please note: {_prose(dice, 60)}"
            case "clock":
                return f"what time is it? {_prose(dice, 20)}"
            case "dig":
                return "what did we say in the other conversation?"
            case "recall" | "rounds":
                return f"what did I say about {dice.choice(_WORDS)}? {_prose(dice, 10)}"
            case "cjk":
                return f"请记住：{_han(dice, 260)}。"
            case "heavy":
                return f"请全部记住：{_han(dice, 700)}。"
            case "emoji":
                return " ".join(dice.choices(_EMOJI, k=40))

    # --- the model

    def respond(self, request: MessageRequest) -> Answer:
        """The answer to the newest message, with tool calls before it where its kind wants some."""
        said = self.asked(request)
        if said is None:
            return Answer(f"nothing numbered: {request.last_user_text[:80]}")
        if self._rounds[said.tag] < _rounds(said.kind):
            self._rounds[said.tag] += 1
            return Answer([text_block(f"looking, {said.tag}"), *self._calls(said)])
        return Answer("\n\n".join(paragraphs(said)))

    def asked(self, request: MessageRequest) -> Said | None:
        """The message that a request wants an answer to."""
        tags = TAG.findall(request.last_user_text)
        return self.said.get(tags[-1]) if tags else None

    def _calls(self, said: Said) -> list[dict[str, Any]]:
        if said.kind == "clock":
            return [tool_use("current_time", {"timezone": "Asia/Tokyo"})]
        # Several calls at once make a group that is larger than the tail, so that a cut by tokens
        # alone would run through it.
        dice = random.Random(f"{self._seed} {said.tag} {self._rounds[said.tag]}")
        at_once = 3 if said.kind == "rounds" else 1
        limit = 20 if said.kind == "dig" else 5
        return [
            tool_use("recall", {"queries": dice.sample(_WORDS, 3), "limit": limit})
            for _ in range(at_once)
        ]

    # --- what is shown

    def unanswered(self, tags: Iterable[str] | None = None) -> list[str]:
        """Messages whose answer has not been shown to its end."""
        shown = {name: "\n".join(chat.shown()) for name, chat in self.chats.items()}
        return [
            said.tag
            for said in self.said.values()
            if (tags is None or said.tag in tags) and _last_line(said) not in shown[said.chat]
        ]

    def faults(self) -> list[str]:
        """Everything that is wrong with what the chats show, in words."""
        found: list[str] = []
        for name, chat in self.chats.items():
            found += self._faults_of(name, chat)
        return found

    def _faults_of(self, name: str, chat: Chat) -> list[str]:
        found: list[str] = []
        shown = chat.shown()
        first = [text for text, repeat in with_marks(shown) if not repeat]
        again = [text for text, repeat in with_marks(shown) if repeat]
        if again and chat.platform != "telegram":
            found.append(f"{name}: marked repeats {again}")
        mine = [said for said in self.said.values() if said.chat == name]
        for said in mine:
            for paragraph in paragraphs(said):
                unmarked = sum(text.count(paragraph) for text in first)
                marked = sum(text.count(paragraph) for text in again)
                if unmarked > 1 or unmarked + marked < 1:
                    found.append(
                        f"{name}: {paragraph[:40]!r} shown {unmarked} times, "
                        f"and {marked} times marked as a repeat"
                    )
        order = _order(shown, [said.tag for said in mine])
        if order != [said.tag for said in mine]:
            found.append(f"{name}: answered in the order {order}")
        return found

    def repeats(self) -> int:
        """Messages on Telegram that were marked as possible repeats."""
        return sum(
            repeat
            for chat in self.chats.values()
            for _, repeat in with_marks(chat.shown())
            if chat.platform == "telegram"
        )

    def notices(self) -> list[str]:
        """What the bot said beside its answers."""
        return [
            text
            for chat in self.chats.values()
            for text, _ in with_marks(chat.shown())
            if not TAG.search(text)
        ]

    # --- what is stored

    def missing(self, database: Database) -> list[str]:
        """Messages and answers that are not in the store exactly once as originals."""
        asked = Counter(_tag_of(row["content"]) for row in database.originals("user"))
        replies = Counter(
            row["content"] for row in database.originals("assistant") if row["content"]
        )
        found = [f"{tag}: {asked[tag]} rows" for tag in self.said if asked[tag] != 1]
        contents = {row["content"] for row in database.originals("user")}
        found += [
            f"{said.tag}: not word for word"
            for said in self.said.values()
            if said.text not in contents
        ]
        for said in self.said.values():
            count = replies["\n\n".join(paragraphs(said))]
            if count != 1:
                found.append(f"answer to {said.tag}: {count} rows")
        return found


def _prose(dice: random.Random, words: int) -> str:
    return " ".join(dice.choices(_WORDS, k=words))


def _han(dice: random.Random, count: int) -> str:
    return "".join(dice.choices(_HAN, k=count))


def _rounds(kind: Kind) -> int:
    return {"clock": 1, "recall": 1, "dig": 1, "rounds": ROUNDS}.get(kind, 0)


def paragraphs(said: Said) -> list[str]:
    """The answer to a message; each paragraph names it, so that none can be taken for another."""
    tag = said.tag
    match said.kind:
        case "long":
            filler = [
                f"line {n} of {tag} says that {' '.join(_WORDS[n % 5 : n % 5 + 9])}."
                for n in range(_FILLER_LINES)
            ]
            middle = filler
        case "heavy":
            middle = [f"全部收到 {tag}：{_HAN * 10}"]
        case "cjk":
            middle = [f"收到 {tag}：{_HAN * 3}"]
        case "emoji":
            middle = [f"received {tag} {''.join(_EMOJI)}"]
        case "dig":
            middle = []
        case _:
            middle = [f"noted {tag}: {' '.join(_WORDS)}"]
    return [f"re {tag}: yes.", *middle, _last_line(said)]


def _last_line(said: Said) -> str:
    return f"end of {said.tag}."


def _tag_of(content: object) -> str | None:
    match = TAG.search(content) if isinstance(content, str) else None
    return match[0] if match else None


def with_marks(shown: Iterable[str]) -> list[tuple[str, bool]]:
    """Each message, and whether it says of itself that it may be a repeat.

    Where a message has no room for the mark, the mark stands alone before it.
    """
    found: list[tuple[str, bool]] = []
    marked = False
    for text in shown:
        if text.strip() == REPEAT_MARK:
            marked = True
            continue
        own = text.startswith(REPEAT_MARK)
        found.append((text.removeprefix(REPEAT_MARK).lstrip(), own or marked))
        marked = False
    return found


def _order(shown: Iterable[str], tags: Iterable[str]) -> list[str]:
    """The tags in the order in which their answers begin; a repeat right behind counts once."""
    wanted = set(tags)
    begun = [
        match[1]
        for text in shown
        for match in re.finditer(r"re ([TD]\d{3}): yes\.", text)
        if match[1] in wanted
    ]
    return [tag for i, tag in enumerate(begun) if i == 0 or tag != begun[i - 1]]
