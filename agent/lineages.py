"""Owns what a person can do to a conversation as a whole: its nouns and the port behind them.

Going back, forking, naming, coming back to an older one. Each method of the port is one
transaction, as in `agent.store_ports.SessionStore`, and leaves exactly one live tip per
conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.mail import OutboxDraft, OutboxItem
from agent.messages import Draft, Row
from agent.sessions import ChangeResult, CompressionState, Session, TurnOpening, TurnTicket


@dataclass(frozen=True, slots=True)
class ConversationInfo:
    """A line of a person's list of conversations."""

    id: str
    owner: str
    session_key: str
    """Where it lives: where it began, or where it was resumed last."""
    tip_session_id: str
    title: str | None
    """Of the tip, with what its continuations count."""
    name: str | None
    """What a person called it (`agent.titles.given_name`)."""
    started_at: float
    last_message_at: float | None
    message_count: int
    """Original messages over all its sessions, and those that it was forked with."""
    session_count: int
    routed: bool
    """Is this where its session key leads now? No other key ever does."""
    opening: str = ""
    """How it began: the first words of a person in it, 200 characters of them at most."""


@dataclass(frozen=True, slots=True)
class UncompressRequest:
    """Undo the newest compression of a conversation, if nothing moved since it was measured."""

    conversation_id: str
    tip_id: str
    expected_revision: int
    covered_row_id: int
    """The newest row of the tip that the decision has seen; later ones come along."""
    compression: CompressionState
    """Of the child: with the hold that keeps it from being compressed again at once."""


@dataclass(frozen=True, slots=True)
class Undone:
    """What was taken back."""

    session: Session
    """The tip as it is now."""
    removed: tuple[Row, ...]
    """In order; the first one is what the person had said. Empty: there was nothing."""
    behind_summary: bool = False
    """A summary stands in what is left: the next undo can not go beyond it."""
    turns: int = 0
    """How many: what a person said into a turn that was running belongs to that turn."""
    rest: bool = False
    """The first of them only in part: its beginning had left the list before, so ``removed``
    begins with what was said into it while it ran."""
    owed: tuple[OutboxItem, ...] = ()
    """The answer, where the command's own row was answered with it."""

    @property
    def said(self) -> Draft | None:
        """The person's message that was taken back, as it can be asked again."""
        if not self.removed:
            return None
        first = self.removed[0]
        return Draft(first.message, first.wire_content)


@dataclass(frozen=True, slots=True)
class Answering:
    """A command's own row, answered in the transaction of its effect: so it happens once."""

    inbox_id: int
    words: Callable[[Undone], OutboxDraft]
    """Pure and quick: called inside the transaction."""


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """What the requests of a conversation took, all its sessions together, in tokens."""

    requests: int = 0
    input_tokens: int = 0
    """Without the cached part."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    misses: dict[str, int] = field(default_factory=dict)
    """Why a request did not find the prefix cached → how often."""

    @property
    def prompt_tokens(self) -> int:
        """Everything that was read, cached or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def hit_share(self) -> float | None:
        """Which part of all prompts came from the cache, 0 to 1; None: nothing was asked yet."""
        return self.cache_read_tokens / self.prompt_tokens if self.prompt_tokens else None


class Lineages(Protocol):
    """Conversations as their owners handle them."""

    async def uncompressed(self, session_id: str) -> tuple[Row, ...]:
        """What a conversation would hold with its newest compression undone, in order.

        The full list that this compression replaced, and every original that came since. Empty:
        it was never compressed. Reads only.

        Raises:
            SessionNotFound: never existed.
        """
        ...

    async def uncompress(self, request: UncompressRequest) -> ChangeResult:
        """Make a child of the tip (``end_reason='uncompress'``) that holds `uncompressed`.

        Applied under the same conditions as a split, and on a list that an undo has emptied
        (``covered_row_id`` 0). Copies lose their thinking and keep their
        origin. Not applied either if there is nothing to undo.

        Raises:
            SessionNotFound: the conversation never existed.
        """
        ...

    async def branch(self, session_id: str, session_key: str, owner: str) -> Session:
        """Fork: a new conversation whose first session copies this one's list (``link='branch'``).

        The key leads to the fork from now on; the session forked from lives on as it is. The fork
        gets its parent's prefix and compression state, and a numbered title.

        Raises:
            SessionNotFound: never existed.
            SessionEnded: it has no messages, or it is not a tip.
        """
        ...

    async def undo(
        self, conversation_id: str, turns: int = 1, *, answering: Answering | None = None
    ) -> Undone:
        """Take back the last turns: the person's message and everything behind it.

        The rows stay (inactive, not compacted), out of the list and out of search; the revision
        rises. Never beyond the list's own first message of a person, nor beyond a summary. Not
        while a turn is running. With ``answering`` the command's row is answered in the same
        transaction, whatever was taken back.

        Raises:
            SessionNotFound: the conversation never existed.
            StaleTurn: a turn is running in it, or the command's row was answered before.
        """
        ...

    async def retry(self, opening: TurnOpening) -> TurnTicket | None:
        """`undo` of the last turn and `SessionStore.begin_turn` with its message: one transaction.

        The key's conversation is meant; the opening's own message is not used, that of the turn
        taken back is asked again as it was sent. Called again with the same inbox rows it behaves
        as `begin_turn` does. None: there is nothing to ask again, and nothing was changed.

        Raises:
            StaleTurn: a turn is running in it, or these inbox rows were answered before.
        """
        ...

    async def set_title(self, conversation_id: str, title: str | None) -> Session:
        """Name the tip; control and invisible characters go, 100 characters stay.

        A title that another conversation of the same owner has gets a number.

        Raises:
            SessionNotFound: the conversation never existed.
        """
        ...

    async def conversations_of(self, owner: str, *, limit: int = 20) -> Sequence[ConversationInfo]:
        """An owner's conversations, the one with the newest message first."""
        ...

    async def conversations_at(
        self, session_key: str, *, limit: int = 20
    ) -> Sequence[ConversationInfo]:
        """The conversations that live at this key, whoever began them; ordered alike."""
        ...

    async def resume(self, session_key: str, conversation_id: str) -> Session:
        """Lead the key to this conversation; its tip is live again (``ended_at`` NULL).

        It lives at this key from now on, and a key that led to it before leads nowhere: one way to
        a conversation, so one lane. The one that this key led to before stays as it is, without a
        way to it until it is resumed. Whether the person may have it is the caller's question.

        Raises:
            SessionNotFound: the conversation never existed.
            StaleTurn: a turn of another key is running in it, or waits to be resumed.
        """
        ...

    async def usage_totals(self, conversation_id: str) -> UsageTotals:
        """What its requests took so far; zeros for one that nobody knows."""
        ...
