"""Owns the Protocols of the store: sessions and their turns, mail, the archive, all as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.forgetting import Forgetting
from agent.jobs.ports import JobStore
from agent.ledger import Ledger, LedgerReader
from agent.lineages import Lineages, UsageTotals
from agent.mail import (
    Address,
    Cursor,
    InboxItem,
    InboxRecord,
    OutboxDraft,
    OutboxItem,
    OutboxPart,
    PartDraft,
    Receipt,
    SendState,
)
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
    Hit,
    InterruptedTurn,
    LastSaid,
    LoadedSession,
    RewriteRequest,
    SearchScope,
    Session,
    SessionInfo,
    SessionPrefix,
    SplitRequest,
    TurnOpening,
    TurnOutcome,
    TurnTicket,
)


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


class Mailbox(Protocol):
    """What came in and what is owed. Same guarantees as `SessionStore`."""

    async def accept(self, record: InboxRecord, cursor: Cursor | None = None) -> Receipt:
        """Store an inbound message once; the cursor moves in the same transaction.

        A repeat, by (platform, bot, kind, update) within a week or by (platform, bot, chat,
        message, kind), stores nothing and gives the first row's id; an empty ``message_id`` is no
        message's. Cursors only move forward. The receipt tells where the chat is today.
        """
        ...

    async def revise(self, record: InboxRecord) -> bool:
        """Let a waiting message say what it says after an edit: its text and its payload.

        Found by (platform, bot, chat, message, kind). False: it does not wait (any more), so it
        stays as it was read. An edit that is older than the one it shows already (by its
        ``update_id``) changes nothing.
        """
        ...

    async def move_chat(
        self, platform: str, bot_id: str, old_chat_id: str, new_chat_id: str
    ) -> bool:
        """A chat has got another id: routes, waiting messages and what is owed follow.

        One transaction. What came to the new id before it was known to be the old one's heir is
        kept: where both ids lead to a conversation, the old one's goes on under the key, and the
        other stays in ``/sessions``. Numbers of messages and of threads mean nothing in the new
        chat: they are dropped, and so is the old chat's cursor.

        From now on the old id means the new one in whatever the store is asked or given: a key, a
        message, an answer. Nothing leads to the old id any more, however late it comes.

        False: nothing was done. This was known already; or the old id has moved elsewhere before,
        or would come back to itself: what was said first stays.
        """
        ...

    async def moved_chats(self, platform: str, bot_id: str) -> dict[str, str]:
        """Old id → id of today, also over several moves."""
        ...

    async def knows_chat(self, platform: str, bot_id: str, chat_id: str) -> bool:
        """Does a conversation, a waiting message or an owed answer lead to this chat?"""
        ...

    async def quarantine(
        self, platform: str, bot_id: str, update_id: str, raw: str, reason: str
    ) -> None:
        """Keep an update that could not be read, so that it does not block those behind it."""
        ...

    async def open_inbox(self) -> list[InboxItem]:
        """Everything in state ``new``, oldest first."""
        ...

    async def newest_items(self, platform: str, bot_id: str, *, among: int) -> list[InboxItem]:
        """What this bot was sent of the newest ``among`` rows, in any state, oldest first."""
        ...

    async def inbox_items(self, inbox_ids: Sequence[int]) -> list[InboxItem]:
        """These rows in any state, by id: where an interrupted turn's answer goes, and to whom.

        Unknown ids are left out.
        """
        ...

    async def answer_inbox(
        self, inbox_ids: Sequence[int], outbox: Sequence[OutboxDraft] = ()
    ) -> tuple[OutboxItem, ...]:
        """Mark as answered and owe these answers: for whatever needs no turn.

        Nothing is owed, and nothing given back, if all of these rows were answered before: so that
        a call whose outcome is unknown can be repeated.
        """
        ...

    async def owe(self, draft: OutboxDraft, conversation_id: str | None = None) -> OutboxItem:
        """Owe an answer that belongs to no inbound message."""
        ...

    async def await_restart(
        self, inbox_id: int, outbox: Sequence[OutboxDraft] = ()
    ) -> tuple[OutboxItem, ...]:
        """As `answer_inbox`, for a row that asks for a restart: its chat waits for the next start.

        One transaction, so that the row can not ask again whatever happens to this process.

        Raises:
            StoreError: there is no such row.
        """
        ...

    async def say_restarted(self, text: str) -> tuple[OutboxItem, ...]:
        """Owe this to each chat that waits for a start, once; from then on none waits."""
        ...

    async def owed(self) -> list[OutboxItem]:
        """Everything in state ``planned``, ``sending`` or ``unknown``, oldest first, with parts."""
        ...

    async def plan_parts(
        self, outbox_id: int, parts: Sequence[PartDraft]
    ) -> tuple[OutboxPart, ...]:
        """Store the parts, once: if there are some already, those are given back unchanged.

        An answer that is over (sent, also as nothing at all, or failed) gets none any more.

        Raises:
            StoreError: there is no such answer.
        """
        ...

    async def mark_part(
        self,
        part_id: int,
        state: SendState,
        *,
        platform_message_id: str | None = None,
        error: str | None = None,
    ) -> None:
        """Store what became of a part. ``sending`` counts an attempt.

        The item follows its parts: sent when all are, failed when one has failed, unknown when one
        is unknown and none is left to send.

        Raises:
            StoreError: there is no such part.
        """
        ...

    async def fail_outbox(self, outbox_id: int, error: str) -> None:
        """Give up on an answer and on its parts that are not sent.

        Raises:
            StoreError: there is no such answer.
        """
        ...

    async def cursors(self, platform: str, bot_id: str) -> dict[str, str]:
        """Channel id → newest stored message id."""
        ...

    async def set_cursor(self, cursor: Cursor) -> None:
        """Move a cursor forward without a message (its channel's messages are of no interest)."""
        ...


class Archive(LedgerReader, Protocol):
    """Looking at what is stored. Reads only."""

    async def search(
        self, query: str, scope: SearchScope, *, limit: int = 10, before_id: int | None = None
    ) -> list[Hit]:
        """Best first. Any text is a valid query; copies are folded into their originals.

        ``before_id``: who asks is not what is looked for. From this message on only results of
        tools count (a long turn is compressed while it runs); the rest is neither found, nor named
        as newer, nor has it a part in what another one scores. An original's id bounds its copies
        too.
        """
        ...

    async def window(self, message_id: int, *, before: int = 5, after: int = 5) -> list[Row]:
        """The originals around a message in its session, in order, itself included.

        Empty if there is no such message.
        """
        ...

    async def conversation_of_message(self, message_id: int) -> Conversation | None:
        """Whose a message is."""
        ...

    async def in_scope(self, scope: SearchScope, message_id: int) -> bool:
        """May whoever searches in this scope see this message? False for one that nobody knows."""
        ...

    async def result_of_call(self, scope: SearchScope, call_id: str) -> Row | None:
        """The result of a tool call as it was stored first, whole; the newest, if ids repeat."""
        ...

    async def list_sessions(
        self, *, conversation_id: str | None = None, limit: int = 50
    ) -> list[SessionInfo]:
        """Newest first."""
        ...

    async def session_infos(self, session_ids: Sequence[str]) -> list[SessionInfo]:
        """In the order asked; unknown ids are left out."""
        ...

    async def openings(self, conversation_ids: Sequence[str]) -> dict[str, str]:
        """How conversations began: a person's first words there, cut; left out where none are."""
        ...

    async def session_ids(self, beginning: str, *, limit: int = 10) -> list[str]:
        """Ids that begin so, in order; exactly that letter case, nothing in it is a pattern."""
        ...

    async def all_rows(self, session_id: str) -> list[Row]:
        """Every row of a session, replaced ones included, by id."""
        ...

    async def active_rows(self, session_id: str) -> list[Row]:
        """The list as it stands, in order; nothing is repaired.

        Raises:
            SessionNotFound: never existed.
        """
        ...

    async def lineage(self, session_id: str) -> list[Session]:
        """As `SessionStore.lineage`: the command line has only this half of the store."""
        ...

    async def usage_totals(self, conversation_id: str) -> UsageTotals:
        """As `agent.lineages.Lineages.usage_totals`, for the same reason."""
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

    def at_work_seconds(self) -> float:
        """For how long the transaction that is under way has been so; 0.0: none is.

        Infinite: nothing will ever be written again by this process. At once, as `trouble`.
        """
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
