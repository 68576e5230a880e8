"""Owns the words of what is done to whole conversations: short, kind, with the next step. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.counting import counted
from agent.lineages import ConversationInfo
from agent.messages import Row
from agent.sessions import EndReason, Session, SessionInfo
from gateway.commands.wording import ago, shown

NOTHING_TO_TAKE_BACK = "There is no message here that I could take back."
UNDO_USAGE = "Please say how many messages: /undo takes back the last one, /undo 3 the last three."
NOT_COMPRESSED_YET = (
    "Nothing has been compressed in this conversation, so there is nothing to undo."
)
UNCOMPRESSED_ALREADY = (
    "The last compression is taken back already; everything is here word for word."
)
NOTHING_FURTHER_BACK = "I can not go further back than that."
ONLY_A_SUMMARY = "Further back is only the summary of the conversation that this is a copy of."
BEHIND_THE_SUMMARY = (
    "Further back is only the summary; /uncompress brings the messages back, then /undo can go on."
)
LEFT_OUT = (
    "Further back is only what was left out of my view to make room; /uncompress brings it back, "
    "then /undo can go on."
)
MOVED_ON = "The conversation moved on in that moment, so I left it as it is. Please try again."
NOTHING_TO_BRANCH = "There is nothing in this conversation yet that a copy could hold."
NO_TITLE = "This conversation has no name yet. /title and a few words give it one."
NOTHING_IN_TITLE = "There is nothing to see in that name, so this conversation has none now."
NO_SESSIONS = "There are no conversations here yet. Write something and one begins."
ALREADY_HERE = "That is the conversation you are in."
BUSY_ELSEWHERE = (
    "That conversation is open in another chat, and I am at work on it there. Please wait until I "
    "am done, then /resume it here."
)
NEWER = "‹ Newer"
OLDER = "Older ›"
RESUME_HINT = "Go back to one with /resume and its number or name."
LINEAGE_LINES = 20
_ONLY_A_SUMMARY = "only a summary so far"
_ENDS: Mapping[EndReason, str] = {
    "compression": "ended by compression",
    "switch": "ended by new settings (model, prompt or tools)",
    "uncompress": "ended by /uncompress",
    "reset": "ended by /new",
    "idle": "ended after a long silence",
    "daily": "ended by the daily reset",
}


@dataclass(frozen=True, slots=True)
class Origin:
    """What a conversation is a copy of."""

    conversation_id: str
    session_id: str
    name: str | None
    """As a person called it."""


def _way_to(origin: Origin) -> str:
    """What /resume takes to lead there; a name only where it can mean nothing else."""
    name = origin.name
    plain = name is not None and shown(name) == name and not name.isdecimal()
    return name if name is not None and plain else origin.conversation_id


# --- sessions -----------------------------------------------------------------------------------


def chain_text(
    chain: Sequence[Session], infos: Mapping[str, SessionInfo], origin: Origin | None
) -> str:
    """The sessions of a conversation, root first; ``origin``: what the root is a branch of."""
    lines = [_line(n, session, infos.get(session.id)) for n, session in enumerate(chain, 1)]
    if len(lines) > LINEAGE_LINES:
        left_out = len(lines) - LINEAGE_LINES
        lines = [lines[0], f"… {left_out:,} more …", *lines[left_out + 1 :]]
    head = "This conversation has one session:"
    if len(chain) > 1:
        head = f"This conversation has {counted(len(chain), 'session')}, oldest first:"
    return "\n".join([*([_branch_of(origin)] if origin is not None else []), head, *lines])


def _branch_of(origin: Origin) -> str:
    name = f" of “{shown(origin.name)}”" if origin.name else ""
    return (
        f"It is a branch{name}, from session {origin.session_id}; "
        f"/resume {_way_to(origin)} leads back there."
    )


def _line(number: int, session: Session, info: SessionInfo | None) -> str:
    size = counted(session.message_count, "message")
    if info is not None:
        size += f", about {info.tokens:,} tokens"
    return f"{number}. {session.id}: {size}, {_end(session)}"


def _end(session: Session) -> str:
    if session.ended_at is None:
        return "now"
    return _ENDS[session.end_reason] if session.end_reason else "ended by a crash"


# --- going back ---------------------------------------------------------------------------------


def taken_back(said: Sequence[str], limit: str) -> str:
    """What an undo took, in order. ``limit``: why it could not take all, in words; "": it did."""
    one = len(said) == 1
    what = "your last message" if one else f"your last {len(said)} messages"
    lines = [f"Taken back: {what} and all that came of {'it' if one else 'them'}."]
    lines += [f"- {shown(text) or '(no text)'}" for text in said]
    if limit:
        lines.append(limit)
    lines.append("The chat still shows it, but I do not know it any more. Just write on.")
    return "\n".join(lines)


def uncompressed(messages: int, tokens: int, hold_tokens: int) -> str:
    """It is all there again."""
    return (
        f"Uncompressed: {counted(messages, 'message')} word for word again, about {tokens:,} "
        f"tokens. I will not compress this conversation by myself before it has "
        f"{hold_tokens:,} tokens; /compress with a focus does it your way."
    )


def copied_summary(origin: Origin) -> str:
    """An /uncompress in a copy that was made behind the summary."""
    return (
        "This is a copy that began with the summary, so I have no more than that here. The "
        f"messages themselves are in the conversation that it comes from: "
        f"/resume {_way_to(origin)} leads there."
    )


def does_not_fit(tokens: int, limit_tokens: int, window_tokens: int) -> str:
    """An /uncompress that is refused."""
    return (
        f"Not uncompressed: everything together would have about {tokens:,} tokens, and I can hold "
        f"at most {limit_tokens:,} of the model's {window_tokens:,}. Nothing is lost: ask me, and "
        "I look up what you need."
    )


# --- other conversations ------------------------------------------------------------------------


def branched(title: str | None, rows: Sequence[Row], origin: Origin) -> str:
    """In the copy; ``rows``: what it holds."""
    name = f" “{shown(title)}”" if title else ""
    return (
        f"You are in a copy of this conversation now{name}: it holds {_held(rows)}. The one you "
        f"come from stays as it is; /resume {_way_to(origin)} leads back to it."
    )


def _held(rows: Sequence[Row]) -> str:
    messages = sum(row.kind is None for row in rows)
    summary = any(row.kind in ("summary", "micro") for row in rows)
    if not summary:
        return "its one message" if messages == 1 else f"all {messages:,} messages"
    if not messages:
        return "the summary"
    last = "message" if messages == 1 else f"{messages:,} messages"
    return f"the summary and the last {last}"


def titled(title: str) -> str:
    """What the conversation is called."""
    return f"This conversation is called “{shown(title, 100)}”."


def named(title: str) -> str:
    """What it is called from now on."""
    return f"This conversation is called “{shown(title, 100)}” now."


def name_of(info: ConversationInfo) -> str:
    """What a conversation is called, or else how it began."""
    if info.name and (name := shown(info.name)):
        return f"“{name}”"
    if opening := shown(info.opening):
        return opening
    return f"({_ONLY_A_SUMMARY})" if _is_summary_only(info) else "(nothing said yet)"


def _is_summary_only(info: ConversationInfo) -> bool:
    """Its list holds something, and nobody said it: a copy of a conversation behind its summary."""
    return info.last_message_at is not None and not info.message_count and not info.opening


def listing(infos: Sequence[ConversationInfo], session_key: str, now: float, first: int = 1) -> str:
    """A numbered list from ``first`` on, as it is shown at this key."""
    entries = enumerate(infos, first)
    return "\n".join(_entry(n, info, session_key, now) for n, info in entries)


def more(count: int, page: int | None) -> str:
    """Below a list: what is not in it, and how to see that; "": nothing is."""
    if count <= 0:
        return ""
    how = "/sessions and a word finds one" if page is None else f"/sessions {page} shows the next"
    return f"… and {count:,} more; {how}."


def _entry(number: int, info: ConversationInfo, session_key: str, now: float) -> str:
    when = ago(now - (info.last_message_at or info.started_at))
    mark = ""
    if info.routed:
        mark = " ← here" if info.session_key == session_key else ", open in another chat"
    name = name_of(info)
    size = "" if _ONLY_A_SUMMARY in name else f"{_size(info)}, "
    return f"{number}. {name}: {size}{when}{mark}"


def _size(info: ConversationInfo) -> str:
    if _is_summary_only(info):
        return _ONLY_A_SUMMARY
    if info.opening and not info.message_count:
        return "a copy so far"
    return counted(info.message_count, "message")


def found_nothing(words: str) -> str:
    """No conversation by these words."""
    return f"I found no conversation here for “{shown(words)}”. /sessions lists them."


def ambiguous(words: str, entries: str) -> str:
    """Several conversations by these words."""
    return f"Several conversations could be meant by “{shown(words)}”:\n{entries}"


def resumed(info: ConversationInfo, now: float, *, moved: bool) -> str:
    """Where one is now."""
    when = ago(now - (info.last_message_at or info.started_at))
    # A name has its quotes already; how it began needs them here, in the middle of a sentence.
    unnamed = not (info.name and shown(info.name)) and shown(info.opening)
    name = f"“{unnamed}”" if unnamed else name_of(info)
    size = "" if _ONLY_A_SUMMARY in name else f"{_size(info)}, "
    text = f"Back in {name}: {size}the last {when}."
    if moved:
        text += " It was open in another chat; a message there begins a new conversation."
    return f"{text} Just write on."
