"""Owns the nouns of forgetting: what is held of a person, what stands for their words; its port."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Protocol

from agent.mail import Address, OutboxDraft, OutboxItem
from agent.messages import SUMMARY_END, SUMMARY_HEADER, Message, MessageKind

TOMBSTONE = "[erased: whoever this was from asked to be forgotten]"
"""In place of what somebody said, and of what came of it."""
ERASED_SUMMARY = "\n\n".join(
    (SUMMARY_HEADER, "What stood here was erased, as somebody asked to be forgotten.", SUMMARY_END)
)
"""In place of a summary or a digest: still one, for whoever reads it as such."""


def tombstone_of(message: Message, kind: MessageKind | None) -> Message:
    """The message with its place, its role and its pairs, and without a word of what it said."""
    stands: Message = {"role": message["role"], "content": message["content"]}
    if message["content"] is not None:
        stands["content"] = ERASED_SUMMARY if kind in ("summary", "micro") else TOMBSTONE
    if calls := message.get("tool_calls"):
        stands["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["function"]["name"], "arguments": "{}"},
            }
            for call in calls
        ]
    if "tool_call_id" in message:
        stands["tool_call_id"] = message["tool_call_id"]
        if "name" in message:
            stands["name"] = message["name"]
    return stands


@dataclass(frozen=True, slots=True)
class Holdings:
    """How much of a person is held, or was erased."""

    messages: int = 0
    """Said by them, and said and done for them."""
    conversations: int = 0
    """Their own."""
    shared: int = 0
    """Conversations of several people in which they had a part."""
    notes: int = 0
    files: int = 0
    jobs: int = 0
    mail: int = 0
    """Messages and commands as they came in, the wish itself not counted."""
    keys: tuple[str, ...] = ()
    """Session keys of the conversations in which there is anything of them."""
    conversation_ids: tuple[str, ...] = ()
    """Those conversations."""

    @property
    def nothing(self) -> bool:
        """Is there not a thing?"""
        return not (self.messages or self.notes or self.files or self.jobs or self.mail)


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """Somebody shall be forgotten: stored before the first thing goes, until the last has gone.

    It holds ids, hashes and numbers, and no words.
    """

    owner: str
    """``platform:user id``."""
    upto_inbox_id: int
    """What came in later is new, and stays."""
    answer_to: Address | None = None
    """Where it is said when it is done; None: nobody waits in a chat."""
    erased: Holdings | None = None
    """None: the rows are still there."""
    file_names: tuple[str, ...] = ()
    """Kept files that nobody else has; they go once the rows are gone."""

    def dumped(self) -> str:
        """As it is stored."""
        return json.dumps(asdict(self))

    @staticmethod
    def loaded(text: str) -> ForgetRequest:
        """As it was stored."""
        fields = json.loads(text)
        to, erased = fields["answer_to"], fields["erased"]
        if erased is not None:
            lists = {name: tuple(erased[name]) for name in ("keys", "conversation_ids")}
            erased = Holdings(**{**erased, **lists})
        return ForgetRequest(
            fields["owner"],
            fields["upto_inbox_id"],
            None if to is None else Address(**to),
            erased,
            tuple(fields["file_names"]),
        )

    def gone(self, erased: Holdings, file_names: Sequence[str]) -> ForgetRequest:
        """The rows are gone; these files are left to go."""
        return replace(self, erased=erased, file_names=tuple(file_names))


class Answer(StrEnum):
    """What a plugin says of what it keeps of a person."""

    ERASED = "erased"
    KEEPS = "keeps"
    """It can not erase one person."""
    FAILED = "failed"
    """It can, and could not now."""


@dataclass(frozen=True, slots=True)
class PluginAnswer:
    """By which plugin."""

    name: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class Cleared:
    """What retention took away in one step."""

    conversations: int = 0
    messages: int = 0
    text_bytes: int = 0
    """Of the messages' texts."""
    more: bool = False
    """There are more to go."""


@dataclass(frozen=True, slots=True)
class ClearedConversation:
    """One that retention took away, and of which plugins are still to be told."""

    id: str
    session_ids: tuple[str, ...]
    """All it had, in order of their ids."""


class Forgetting(Protocol):
    """The one exception to "nothing is deleted". Same guarantees as `SessionStore`."""

    async def holdings(self, owner: str) -> Holdings:
        """What is held of this person."""
        ...

    async def begin_forgetting(
        self, owner: str, *, inbox_id: int | None = None, answer_to: Address | None = None
    ) -> ForgetRequest:
        """Store that this person is to be forgotten; asked again, what was stored first counts.

        ``inbox_id``: the row that asks for it is answered in the same transaction, and what came
        behind it stays. None: everything that is there now goes.
        """
        ...

    async def forgetting(self) -> list[ForgetRequest]:
        """Who is being forgotten, and is not forgotten yet."""
        ...

    async def sessions_of(self, conversation_ids: Sequence[str]) -> tuple[str, ...]:
        """Ids of all sessions of these conversations, those that have ended too."""
        ...

    async def erase(self, owner: str) -> ForgetRequest:
        """Take the rows away, in one transaction; done before, nothing more is done.

        A person's own conversations become empty shells that are nobody's, and their key leads to
        none. Elsewhere their messages, and what was said and done for them, become tombstones; so
        does whatever was derived since (summaries, digests), and a conversation that is in use goes
        on in a child behind the changed list. Others' words stay as they are. The ledger keeps its
        numbers. The search index is made anew from here on (`Store.maintain`).

        Raises:
            LookupError: nobody asked to forget this person.
        """
        ...

    async def finish_forgetting(
        self, owner: str, owed: Sequence[OutboxDraft] = ()
    ) -> tuple[OutboxItem, ...]:
        """All of it is gone: strike the request out, and owe these words, in one transaction.

        Nothing is owed if it was struck out before.
        """
        ...

    async def clear_silent(self, before: float, *, conversations: int = 20) -> Cleared:
        """Delete what has been silent since before this time, whole lineages only, a few at a time.

        A conversation goes with all that it was forked from and all that was forked from it, or not
        at all: only if nothing was said in any of them since, no turn of them is open, and no
        command came from where it is the one at hand. Its key leads to none then. Rows of the inbox
        that are younger than a week stay, without their words: they tell repeats. The ledger keeps
        its numbers. The newest message of all stays with its conversation. With the last step, mail
        of that age that belongs to no conversation goes too. What is gone is noted, in the same
        transaction, for those who keep something of it beside the store (`cleared`).
        """
        ...

    async def cleared(self, *, limit: int = 100) -> Sequence[ClearedConversation]:
        """What `clear_silent` took away and nobody has struck out since, in order of ids."""
        ...

    async def strike_cleared(self, conversation_ids: Sequence[str]) -> None:
        """Plugins were told of these, or there are none."""
        ...

    async def clear_files(self, before: float) -> tuple[str, ...]:
        """Strike out kept files older than this that no message and no owed answer names.

        Gives back those that nobody has any more.
        """
        ...
