"""Owns what rides in a person's message without being said in it: its fence, put on, taken off.

It stands before the person's words, in the form as sent only. What was said is never touched, so
search, recall, exports and engines do not see it. Nobody can write such a fence: a line of a
message that looks like one is set off (`gateway.intake.wording`), and so it is inside the fence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent.messages import Content, Draft, Part

OPENING = "[brought along: "
"""How a fence begins; nobody but us may write such a line."""
CLOSING = "[end of what was brought along]"
_AFTER = f"\n{CLOSING}\n\n"


def fenced(name: str, text: str) -> str:
    """The words of one companion, as they ride in a message; none of their lines is ours."""
    return f"{OPENING}{name}; nobody said this now]\n{text.strip()}{_AFTER}"


def onto(draft: Draft, brought: str) -> Draft:
    """The message with these fences before it, as sent; the same object if there are none."""
    if not brought:
        return draft
    sent = draft.message["content"] if draft.wire_content is None else draft.wire_content
    return replace(draft, wire_content=_before(sent, brought))


def anew(draft: Draft, brought: str) -> Draft:
    """A message that is sent again: with these fences in place of those that it had."""
    if draft.wire_content is None or not split(draft.wire_content)[0]:
        return onto(draft, brought)
    bare = without(draft.wire_content)
    said = draft.message["content"]
    return onto(replace(draft, wire_content=None if bare == said else bare), brought)


def split(sent: Content) -> tuple[list[str], str]:
    """The fences at the beginning of a message as sent, and the rest of that text."""
    text = _first_text(sent)
    fences: list[str] = []
    while text.startswith(OPENING):
        inner, closing, rest = text.partition(_AFTER)
        if not closing:
            break
        fences.append(inner + closing)
        text = rest
    return fences, text


def named(fences: Sequence[str], name: str) -> str:
    """The one of this companion; "": there is none."""
    start = f"{OPENING}{name};"
    return next((fence for fence in fences if fence.startswith(start)), "")


def without(sent: Content) -> Content:
    """The content without its fences."""
    fences, rest = split(sent)
    if not fences or sent is None:
        return sent
    if isinstance(sent, str):
        return rest
    return [{**sent[0], "text": rest}, *sent[1:]] if rest else sent[1:]


def _before(sent: Content, brought: str) -> Content:
    if sent is None or isinstance(sent, str):
        return brought + (sent or "")
    if sent and sent[0].get("type") == "text":
        return [{**sent[0], "text": f"{brought}{sent[0].get('text', '')}"}, *sent[1:]]
    first: Part = {"type": "text", "text": brought}
    return [first, *sent]


def _first_text(sent: Content) -> str:
    if isinstance(sent, str):
        return sent
    if sent and sent[0].get("type") == "text":
        return str(sent[0].get("text", ""))
    return ""
