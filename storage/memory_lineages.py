"""Owns `agent.lineages.Lineages` in memory, over the tables of the in-memory store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from agent.errors import SessionEnded
from agent.lineages import ConversationInfo, UncompressRequest, UsageTotals
from agent.messages import Keep, Row, text_of
from agent.sessions import ChangeResult, Session
from agent.titles import given_name
from storage.memory_records import Segment, own
from storage.memory_tables import MemoryTables
from storage.places import key_of_today
from storage.repair import DELIBERATE_ENDS, plan_repair
from storage.titles import clean_title, unique_title
from storage.undoing import OPENING_CHARS, Backwards, undo_start, woven


class MemoryLineages:
    """What a person can do to a conversation as a whole."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    # undo a compression

    def before_compression(self, tip: Segment) -> list[Row]:
        """What the newest compression that is not undone replaced, and what came since."""
        backwards = Backwards()
        since: list[tuple[Segment, int]] = []
        segment: Segment | None = tip
        while segment is not None:
            for replaced in reversed(segment.replaced_lists):
                if backwards.is_boundary("compression"):
                    everything = {row.id: row for row in _everything(segment)}
                    base = [everything[row_id] for row_id in replaced.row_ids]
                    return self._woven(base, [*since, (segment, replaced.carried_row_id)])
            since.append((segment, segment.carried_row_id))
            parent = self._continued(segment.session)
            if parent is not None and backwards.is_boundary(parent.session.end_reason):
                return self._woven(parent.rows, since)
            segment = parent
        return []

    def _continued(self, session: Session) -> Segment | None:
        if session.link != "continuation" or session.parent_session_id is None:
            return None
        return self._tables.segment(session.parent_session_id)

    def _woven(self, base: Sequence[Row], since: Sequence[tuple[Segment, int]]) -> list[Row]:
        news = [row for segment, after in reversed(since) for row in _said_since(segment, after)]
        taken_back = {row.root_id for segment, _ in since for row in segment.taken_back}
        return woven(base, news, taken_back)

    def uncompress(self, request: UncompressRequest) -> ChangeResult:
        tables = self._tables
        tip = tables.tip_of(request.conversation_id)
        refused = ChangeResult(False, tip.session)
        if tip.session.id != request.tip_id:
            return refused
        revision = request.expected_revision
        if tip.rows or request.covered_row_id:
            if tables.covered(tip, revision, request.covered_row_id) is None:
                return refused
        elif not tables.is_live_tip(tip.session) or tip.session.revision != revision:
            return refused  # an undo has emptied the list
        whole = self.before_compression(tip)
        if not whole:
            return refused
        entries = [Keep(row.id) for row in whole]
        known = {row.id: row for row in whole}
        child = tables.continue_in_child(tip, "uncompress", entries, known, request.compression)
        return ChangeResult(True, child.session)

    # fork, take back

    def branch(self, session_id: str, session_key: str, owner: str) -> Session:
        tables = self._tables
        parent = tables.segment(session_id)
        session = parent.session
        if not parent.rows or tables.tip_of(session.conversation_id) is not parent:
            raise SessionEnded(session_id)
        repair = plan_repair(parent.rows)
        entries = repair.entries if repair is not None else [Keep(row.id) for row in parent.rows]
        title = session.title and unique_title(session.title, self._titles(owner))
        fork = tables.new_conversation(
            session_key, owner, session.prefix, forked_from=session, title=title
        )
        tables.fill(fork, entries, {row.id: row for row in parent.rows})
        return fork.session

    def take_back(self, tip: Segment, count: int) -> tuple[Row, ...]:
        """The rows of the last turns, out of the list; none if there is nothing to take."""
        start = undo_start(tip.rows, count, self._tables.steered)
        if start is None:
            return ()
        removed = tip.rows[start:]
        del tip.rows[start:]
        tip.taken_back.extend(removed)
        self._tables.new_revision(tip)
        return tuple(own(removed))

    # names and listings

    def set_title(self, conversation_id: str, title: str | None) -> Session:
        conversation = self._tables.conversation(conversation_id)
        tip = self._tables.tip_of(conversation_id)
        title = clean_title(title)
        if title is not None:
            title = unique_title(title, self._titles(conversation.owner, but_of=conversation_id))
        tip.session = replace(tip.session, title=title)
        return tip.session

    def _titles(self, owner: str, *, but_of: str = "") -> list[str]:
        return [
            title
            for conversation in self._tables.conversations.values()
            if conversation.owner == owner and conversation.id != but_of
            if (title := self._tables.tip_of(conversation.id).session.title) is not None
        ]

    def uncompressed(self, session_id: str) -> tuple[Row, ...]:
        conversation_id = self._tables.segment(session_id).session.conversation_id
        return tuple(own(self.before_compression(self._tables.tip_of(conversation_id))))

    def conversations_of(self, owner: str, *, limit: int = 20) -> list[ConversationInfo]:
        return self.infos(owner=owner, limit=limit)

    def conversations_at(self, session_key: str, *, limit: int = 20) -> list[ConversationInfo]:
        key = key_of_today(session_key, self._tables.today)
        return self.infos(session_key=key, limit=limit)

    def infos(
        self, *, owner: str | None = None, session_key: str | None = None, limit: int
    ) -> list[ConversationInfo]:
        """Of an owner or at a key, the one with the newest message first."""
        found = [
            conversation_id
            for conversation_id, conversation in reversed(self._tables.conversations.items())
            if owner in (None, conversation.owner)
            and session_key in (None, conversation.session_key)
        ]
        found.sort(key=self._newest, reverse=True)
        return [self._info(conversation_id) for conversation_id in found[: max(0, limit)]]

    def _newest(self, conversation_id: str) -> int:
        rows = self._tables.tip_of(conversation_id).rows
        return rows[-1].root_id if rows else 0

    def _info(self, conversation_id: str) -> ConversationInfo:
        tables = self._tables
        conversation = tables.conversations[conversation_id]
        segments = tables.segments_of(conversation_id)
        tip = tables.tip_of(conversation_id)
        originals = [
            row
            for segment in segments
            for row in [*segment.rows, *segment.replaced]
            if row.kind is None and (row.origin_id is None or _was_forked_with(segment, row))
        ]
        return ConversationInfo(
            id=conversation_id,
            owner=conversation.owner,
            session_key=conversation.session_key,
            tip_session_id=tip.session.id,
            title=tip.session.title,
            name=given_name(segment.session.title for segment in segments),
            started_at=conversation.created_at,
            last_message_at=tip.rows[-1].created_at if tip.rows else None,
            message_count=len(originals),
            session_count=len(segments),
            routed=tables.routes.get(conversation.session_key) == conversation_id,
            opening=_opening(segments[0]),
        )

    def openings(self, conversation_ids: Sequence[str]) -> dict[str, str]:
        found = {
            one: _opening(self._tables.segments_of(one)[0])
            for one in conversation_ids
            if one in self._tables.conversations
        }
        return {one: opening for one, opening in found.items() if opening}

    def usage_totals(self, conversation_id: str) -> UsageTotals:
        used = [
            entry
            for _, entry in self._tables.requests
            if entry.conversation_id == conversation_id and entry.purpose == "turn"
        ]
        misses = Counter(entry.cache_miss for entry in used if entry.cache_miss)
        return UsageTotals(
            len(used),
            sum(entry.input_tokens for entry in used),
            sum(entry.output_tokens for entry in used),
            sum(entry.cache_read_tokens for entry in used),
            sum(entry.cache_write_tokens for entry in used),
            dict(misses),
        )

    # come back

    def resume(self, session_key: str, conversation_id: str) -> Session:
        tables = self._tables
        session_key = key_of_today(session_key, tables.today)
        conversation = tables.conversation(conversation_id)
        tables.require_rest(conversation_id, but_of_key=session_key)
        tip = tables.tip_of(conversation_id)
        tip.session = replace(tip.session, ended_at=None, end_reason=None)
        for key, led_to in list(tables.routes.items()):
            if led_to == conversation_id:
                del tables.routes[key]
        tables.conversations[conversation_id] = replace(conversation, session_key=session_key)
        tables.routes[session_key] = conversation_id
        return tip.session

    def live_tip(self, session_key: str) -> Segment | None:
        """Where the key's conversation goes on; None: it has none, or it was ended on purpose."""
        conversation = self._tables.conversation_for_key(session_key)
        if conversation is None:
            return None
        tip = self._tables.tip_of(conversation.id)
        if tip.session.end_reason in DELIBERATE_ENDS:
            return None
        tip.session = replace(tip.session, ended_at=None, end_reason=None)
        return tip


def _was_forked_with(segment: Segment, row: Row) -> bool:
    return segment.session.link == "branch" and row.id <= segment.carried_row_id


def _everything(segment: Segment) -> list[Row]:
    return [*segment.rows, *segment.replaced, *segment.taken_back]


def _said_since(segment: Segment, after_row_id: int) -> list[Row]:
    return sorted(
        (
            row
            for row in [*segment.rows, *segment.replaced]
            if row.id > after_row_id
            and row.origin_id is None
            and (row.kind is None or (row.kind == "stub" and row.message["role"] == "tool"))
        ),
        key=lambda row: row.id,
    )


def _opening(root: Segment) -> str:
    """As the SQL does it: the oldest first message of the list and of what was replaced."""
    said = [
        next(
            (
                row
                for row in sorted(rows, key=lambda row: row.seq)
                if row.message["role"] == "user" and row.kind is None
            ),
            None,
        )
        for rows in (root.rows, root.replaced)
    ]
    oldest = min((row for row in said if row is not None), key=lambda row: row.id, default=None)
    return "" if oldest is None else text_of(oldest.message["content"])[:OPENING_CHARS]
