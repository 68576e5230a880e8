"""Owns the Protocols of the store: sessions and their turns, and everything as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.archive_ports import Archive
from agent.forgetting import Forgetting
from agent.jobs.ports import JobStore
from agent.ledger import Ledger
from agent.lineages import Lineages
from agent.mail import (
    Address,
    OutboxDraft,
    OutboxItem,
)
from agent.mail_ports import Mailbox
from agent.memory.notes import NoteStore
from agent.messages import Draft, Row
from agent.pairings import Pairings
from agent.ports import Usage
from agent.prepared import Shelf
from agent.remembered import Remembered
from agent.sessions import (
    ChangeResult,
    CompressionState,
    Conversation,
    EndReason,
    InterruptedTurn,
    LastSaid,
    LoadedSession,
    RewriteRequest,
    Session,
    SessionPrefix,
    SplitRequest,
    TurnOpening,
    TurnOutcome,
    TurnTicket,
)


@dataclass(frozen=True, slots=True)
class StoreWork:
    """What a store is writing, while everything else that is to be written waits."""

    seconds: float
    """For so long. Infinite: nothing will ever be written again by this process."""
    what: str = ""
    """Work on all that is stored, in words; "": a transaction, which takes milliseconds."""
    bound_seconds: float | None = None
    """How long such work may take, by how much is stored; None: as long as any transaction."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Rows as stored, in the order given."""

    rows: tuple[Row, ...] = field(default=())


class SessionStore(Ledger, Shelf, Protocol):
    """Conversations, sessions, messages. Each method is one transaction, durable when it returns.

    A method that raises has changed nothing, except `StoreUnavailable`: outcome unknown.
    A cancelled call may have happened. Rows of an ended session never change.
    """

    # conversations

    async def conversation_for_key(self, session_key: str) -> Conversation | None:
        """The conversation that this key leads to now."""
        ...

    async def conversation(self, conversation_id: str) -> Conversation | None:
        """By id."""
        ...

    async def start_conversation(
        self,
        session_key: str,
        owner: str,
        prefix: SessionPrefix,
        *,
        end_reason: EndReason = "reset",
    ) -> Session:
        """Lead the key to a new, empty conversation; the old one's tip ends with this reason."""
        ...

    async def last_said(self, session_key: str) -> LastSaid | None:
        """When something was last said in the conversation that this key leads to.

        None: there is no conversation, or nothing in it.
        """
        ...

    async def silent_since(
        self, before: float, *, after: float = 0.0, limit: int = 100
    ) -> Sequence[LastSaid]:
        """The same of every place where something was last said in between, the oldest first."""
        ...

    # sessions

    async def session(self, session_id: str) -> Session:
        """By id, live or ended.

        Raises:
            SessionNotFound: never existed.
        """
        ...

    async def tip(self, session_id: str) -> Session:
        """Forward along the continuations from any id of a lineage to its newest session.

        Raises:
            SessionNotFound: never existed.
        """
        ...

    async def load(self, session_id: str, *, ticket: TurnTicket | None = None) -> LoadedSession:
        """The session and its active rows, repaired.

        What a crash left is repaired, stored and stays repaired: a call without a result gets a
        stub result; a result without a call is taken out. Appends at the end of the list are no
        revision; anything else bumps it. An ended session is given back repaired but not changed,
        and so is one in which a turn is running that is not ``ticket``: its open calls are being
        answered at this moment. Stand-ins that only such a view holds have ids below zero.

        Raises:
            SessionNotFound: never existed.
        """
        ...

    async def lineage(self, session_id: str) -> list[Session]:
        """Root first, up to the tip, for any id of it.

        Raises:
            SessionNotFound: never existed.
        """
        ...

    async def split(self, request: SplitRequest) -> ChangeResult:
        """Close the parent, make the child, move the conversation's tip.

        Applied only if the parent is the tip and live, its revision is the expected one, and the
        covered row is an active row of it. Rows after the covered one are copied behind the
        entries. Copies keep content, wire content, kind and origin, and lose their thinking; drafts
        are stored as they are. The child inherits source, model, prompt and tools (or gets the
        request's prefix), a numbered title (``name #2``), no usage anchor, revision 0.

        Raises:
            SessionNotFound: the parent or the conversation never existed.
            ValueError: the plan keeps a row that it does not cover, keeps one twice, or would leave
                no message at all.
        """
        ...

    async def rewrite(self, request: RewriteRequest) -> ChangeResult:
        """Replace the active rows up to the covered one, in the same session, by these entries.

        Replaced rows stay (inactive, marked compacted). Bumps the revision, strips thinking from
        every row behind the first change, clears the usage anchor, discards what was prepared.
        Applied under the same conditions as `split`, and under those of `RewriteRequest.at_rest`.

        Raises:
            SessionNotFound: never existed.
            ValueError: as for `split`.
        """
        ...

    async def set_compression(self, session_id: str, state: CompressionState) -> None:
        """Store what compaction remembers (cool-downs, counters). Ignored for an ended session."""
        ...

    async def set_option(self, session_id: str, name: str, value: str | None) -> bool:
        """Set (None: unset) an option in the session's ``model_config``, which no request shows.

        The session's children inherit it. False: the session has ended, nothing was changed.

        Raises:
            SessionNotFound: never existed.
        """
        ...

    async def acquire_lease(self, conversation_id: str, holder: str, ttl_seconds: float) -> bool:
        """Announce a compression, so that nobody pays for it twice. False: somebody else holds it.

        An expired lease, or one that ends further off than ``ttl_seconds`` (clock set back), is
        free. The holder of a lease prolongs it.

        Raises:
            SessionNotFound: the conversation never existed.
        """
        ...

    async def release_lease(self, conversation_id: str, holder: str) -> None:
        """Let go; does nothing if somebody else holds it by now."""
        ...

    # turns

    async def begin_turn(self, opening: TurnOpening) -> TurnTicket:
        """Claim the inbox rows, store the user's message and the turn's row: one transaction.

        The key's conversation and its first session are made if they are missing; an ended tip
        without a successor is reopened (unless somebody ended it on purpose: reset, idle, daily;
        then another conversation starts); unanswered calls at the end of the list are answered by
        stubs first. Called again with an inbox row that a turn has claimed which is not over, it
        gives that turn back, running, and stores nothing; rows that waited still wait. Rows that
        were answered before do not hinder those that wait.

        Raises:
            StaleTurn: every one of these inbox rows was answered before.
        """
        ...

    async def append(
        self,
        ticket: TurnTicket,
        session_id: str,
        messages: Sequence[Draft],
        *,
        anchor_usage: Usage | None = None,
    ) -> Appended:
        """Store a step of the turn (an assistant message, or tool results).

        ``anchor_usage`` becomes the session's usage anchor at the first of these rows, and is
        entered in the ledger of requests.

        Raises:
            StaleTurn: the turn is not running any more.
            SessionEnded: this is not the conversation's live tip.
        """
        ...

    async def steer(
        self, ticket: TurnTicket, session_id: str, inbox_ids: Sequence[int], message: Draft
    ) -> Appended | None:
        """Take waiting messages into a running turn: rows claimed, words stored, one transaction.

        For between two steps. The rows are answered together with the turn's own, an undo takes
        the words back with their turn, and a retry asks them again.

        None, and nothing is stored: one of the rows does not wait any more, there is none, or the
        list ends in calls that are not answered yet (words between a call and its result would
        break it). After `StoreUnavailable` only the list tells whether the words are in it.

        Raises:
            StaleTurn: the turn is not running any more; nothing is stored.
            SessionEnded: this is not the live tip.
        """
        ...

    async def note_preview(self, ticket: TurnTicket, address: Address, message_id: str) -> bool:
        """Remember the message in which a running turn shows what it has so far; the newest counts.

        To be stored before it is edited for the first time. Whatever ends the turn puts the first
        answer that it owes to this chat (and thread) in the message's place.

        False, and nothing is stored: the chat has got another id meanwhile.

        Raises:
            StaleTurn: the turn is not running any more.
        """
        ...

    async def preview_of(self, ticket: TurnTicket) -> str | None:
        """That message's id, also after a restart; None: there is none, or not any more."""
        ...

    async def leave_preview(self, ticket: TurnTicket) -> None:
        """That message stays what it is: nothing takes its place any more. There may be none.

        Raises:
            StaleTurn: the turn is not running any more.
        """
        ...

    async def left_preview_of(self, ticket: TurnTicket) -> str | None:
        """The message that a turn has left last, until it shows itself in another one."""
        ...

    async def finish_turn(
        self,
        ticket: TurnTicket,
        session_id: str,
        outcome: TurnOutcome,
        *,
        final: Draft | None = None,
        anchor_usage: Usage | None = None,
        outbox: Sequence[OutboxDraft] = (),
    ) -> tuple[OutboxItem, ...]:
        """The second atomic step: final message, owed answers, inbox answered, turn over.

        The first answer to the chat in which the turn has a preview edits that message.

        Raises:
            StaleTurn: the turn is not running any more; nothing is stored.
            SessionEnded: with a final message only: this is not the live tip.
        """
        ...

    async def interrupt_turn(self, ticket: TurnTicket) -> None:
        """Mark a running turn as cut off by an orderly shutdown; it is resumed at the next start.

        Does nothing if the turn is not running.
        """
        ...

    async def recover_turns(self, *, crash_limit: int = 3) -> list[InterruptedTurn]:
        """Called once at start-up: every turn that was cut off, oldest first.

        Counts a crash for each that was running; the count begins anew at one if the turn stored a
        step of its own since the last crash. One that reaches the limit is not given back: it is
        over as failed, its inbox rows are answered, and a notice is owed to its chat; the
        conversation goes on with the next message.
        The leases of the run before are void: whoever held them is gone.
        """
        ...

    async def results_of_turn(self, ticket: TurnTicket) -> list[Row]:
        """What the turn's tools have given back so far, in order, each as it was first stored.

        Also where a compression has condensed it since.
        """
        ...

    async def resume_turn(self, ticket: TurnTicket) -> LoadedSession:
        """Make a cut-off turn the running one again, and load its conversation's tip, repaired.

        Raises:
            StaleTurn: the turn is over.
        """
        ...


class Store(
    SessionStore,
    Mailbox,
    Archive,
    Lineages,
    Pairings,
    Remembered,
    NoteStore,
    JobStore,
    Forgetting,
    Protocol,
):
    """All of it, with its life."""

    async def identity(self) -> str:
        """Stays with this store for ever; a new one in the same place has another.

        Row ids begin anew with a new store, so what goes out under a row's id needs both.
        """
        ...

    def trouble(self) -> str | None:
        """Why nothing can be stored at the moment, in words; None: nothing is known against it.

        Comes back at once, so that whoever watches the daemon sees what its callers wait for.
        """
        ...

    def at_work(self) -> StoreWork | None:
        """What is being written at the moment; None: nothing. At once, as `trouble`."""
        ...

    async def maintain(self) -> bool:
        """One small step of upkeep, for a quiet moment. True: there is more to do.

        A search index that is damaged or was made by an older version is made anew in such steps,
        each a transaction of its own; meanwhile searches look through what is not in it yet.
        """
        ...

    async def close(self) -> None:
        """Finish what is queued and let go. May be called twice."""
        ...
