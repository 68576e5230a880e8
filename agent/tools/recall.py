"""Owns the `recall` tool: looking up what was said, in this conversation and its sessions before.

In a direct chat the search covers the person's other conversations too; in a group it never leaves
the group's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any

from agent.errors import ToolError
from agent.messages import Message, Row, ToolSchema, text_of
from agent.model_metadata import estimate_tokens_rough
from agent.ports import Archive, ToolContext, ToolResult
from agent.sessions import Hit, SearchScope

MAX_QUERIES = 5
MAX_LIMIT = 20
MAX_AROUND = 10
_ROW_REF = re.compile(r"(?:recall\s+ref\s+)?m?(\d{1,18})")
_CALL_REF = re.compile(r"(?:recall\s+ref\s+)?([a-zA-Z0-9_-]{1,128})")
_SESSIONS_SEARCHED = 20
_AROUND_CHARS = 600

_SCHEMA = ToolSchema(
    name="recall",
    description=(
        "Look up earlier messages that are no longer in view. Either search with `queries` (plain "
        "words or a question; several phrasings find more), or open one message whole with `ref` "
        '(for example "m123", as in "recall ref m123"), or read what was said around a hit with '
        "`around`. Use it before saying that you do not remember."
    ),
    parameters={
        "type": "object",
        "properties": {
            "queries": {
                "type": "array",
                "items": {"type": "string"},
                "description": "What to search for, in one to five phrasings.",
            },
            "limit": {"type": "integer", "description": "Hits wanted, 1 to 20; default 8."},
            "ref": {"type": "string", "description": "Reference of one message to open."},
            "offset": {
                "type": "integer",
                "description": "With ref: the character to go on reading at.",
            },
            "around": {"type": "string", "description": "Reference of a message to read around."},
            "before": {"type": "integer", "description": "With around: messages before; 5."},
            "after": {"type": "integer", "description": "With around: messages after; 5."},
        },
        "additionalProperties": False,
    },
)


class RecallTool:
    """Search, paging around a hit, opening a reference (`agent.ports.Tool`)."""

    schema = _SCHEMA

    def __init__(self, archive: Archive, *, zone: tzinfo = UTC, page_tokens: int = 2500) -> None:
        """Make it. ``page_tokens`` stays below the registry's cap, so that a page comes whole."""
        self._archive = archive
        self._zone = zone
        self._page_tokens = page_tokens

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        if ref := str(arguments.get("ref", "")).strip():
            return await self._open(ref, max(0, int(arguments.get("offset", 0))), context)
        if around := str(arguments.get("around", "")).strip():
            before = _between(arguments.get("before", 5), 0, MAX_AROUND)
            after = _between(arguments.get("after", 5), 0, MAX_AROUND)
            return await self._around(around, before, after, context)
        queries = _queries(arguments.get("queries", ()))
        if not queries:
            raise ToolError("give queries, ref or around")
        limit = _between(arguments.get("limit", 8), 1, MAX_LIMIT)
        return await self._search(queries, limit, context)

    # --- search

    async def _search(self, queries: Sequence[str], limit: int, context: ToolContext) -> ToolResult:
        scope = (
            SearchScope(owner=context.owner)
            if context.direct_chat
            else SearchScope(conversation_id=context.conversation_id)
        )
        found = [await self._archive.search(q, scope, limit=limit * 2) for q in queries]
        hits = [h for h in merge_hits(found) if _is_earlier(h, context)][:limit]
        if not hits:
            return ToolResult("Nothing found. Other words, or fewer, may help.")
        lines = [f"{len(hits)} found, best first:"]
        room = self._page_tokens
        for hit in hits:
            line = f"m{hit.message_id} · {self._when(hit.created_at)} · {hit.role}: {hit.snippet}"
            room -= estimate_tokens_rough(line)
            if room < 0 and len(lines) > 1:
                lines.append(f"({len(hits) - len(lines) + 1} more left out)")
                break
            lines.append(line)
        return ToolResult("\n".join(lines))

    # --- one message

    async def _open(self, ref: str, offset: int, context: ToolContext) -> ToolResult:
        row = await self._row(ref, context)
        text = _whole(row.message)
        page, next_offset = self._page(text, offset)
        head = f"m{row.id} · {self._when(row.created_at)} · {row.message['role']}"
        if next_offset is not None:
            head += f" · characters {offset} to {next_offset} of {len(text)}"
            page += f"\n[goes on: ref m{row.id}, offset {next_offset}]"
        return ToolResult(f"{head}\n{page}")

    async def _row(self, ref: str, context: ToolContext) -> Row:
        numbered = _ROW_REF.fullmatch(ref)
        if numbered:
            message_id = int(numbered[1])
            await self._check(message_id, context)
            rows = await self._archive.window(message_id, before=0, after=0)
            if rows:
                return rows[0]
        elif call := _CALL_REF.fullmatch(ref):
            row = await self._result_of_call(call[1], context)
            if row is not None:
                return row
        raise _unknown(ref)

    async def _result_of_call(self, call_id: str, context: ToolContext) -> Row | None:
        """A capped tool result names its call: when it was written it had no number yet.

        Stand-ins that a compression put in its place are passed over.
        """
        sessions = await self._archive.list_sessions(
            conversation_id=context.conversation_id, limit=_SESSIONS_SEARCHED
        )
        for session in sessions:
            for row in reversed(await self._archive.all_rows(session.id)):
                if row.message.get("tool_call_id") == call_id and row.kind is None:
                    return row
        return None

    async def _around(self, ref: str, before: int, after: int, context: ToolContext) -> ToolResult:
        numbered = _ROW_REF.fullmatch(ref)
        if numbered is None:
            raise _unknown(ref)
        message_id = int(numbered[1])
        await self._check(message_id, context)
        rows = await self._archive.window(message_id, before=before, after=after)
        if not rows:
            raise _unknown(ref)
        shown: dict[int, str] = {}
        room = self._page_tokens
        at = next((i for i, row in enumerate(rows) if row.id == message_id), 0)
        # The message itself first, then outwards: what does not fit is what lies farthest off.
        for i in sorted(range(len(rows)), key=lambda i: abs(i - at)):
            line = self._line(rows[i], whole=i == at)
            room -= estimate_tokens_rough(line)
            if room < 0 and shown:
                break
            shown[i] = line
        return ToolResult("\n".join(shown[i] for i in sorted(shown)))

    def _line(self, row: Row, *, whole: bool) -> str:
        text = _whole(row.message)
        page = self._page(text, 0)[0] if whole else text[:_AROUND_CHARS]
        cut = " […]" if len(page) < len(text) else ""
        return f"m{row.id} · {self._when(row.created_at)} · {row.message['role']}: {page}{cut}"

    # --- shared

    async def _check(self, message_id: int, context: ToolContext) -> None:
        """Whose is it? A foreign message is answered like one that does not exist."""
        conversation = await self._archive.conversation_of_message(message_id)
        if conversation is None or not (
            conversation.id == context.conversation_id
            or (context.direct_chat and conversation.owner == context.owner)
        ):
            raise _unknown(f"m{message_id}")

    def _page(self, text: str, offset: int) -> tuple[str, int | None]:
        """What fits from there on, and where it goes on."""
        rest = text[offset:]
        tokens = estimate_tokens_rough(rest)
        if tokens <= self._page_tokens:
            return rest, None
        end = max(1, len(rest) * self._page_tokens // tokens)
        return rest[:end], offset + end

    def _when(self, at: float) -> str:
        return f"{datetime.fromtimestamp(at, self._zone):%Y-%m-%d %H:%M}"


def merge_hits(found: Iterable[Sequence[Hit]]) -> list[Hit]:
    """The hits of several phrasings as one list, best first.

    Scores compare within one search only: a message counts by its best share of a best score, and
    a little more for each further phrasing that finds it.
    """
    best: dict[int, Hit] = {}
    shares: dict[int, list[float]] = {}
    for hits in found:
        top = max((h.score for h in hits), default=0.0)
        for hit in hits:
            best.setdefault(hit.message_id, hit)
            shares.setdefault(hit.message_id, []).append(hit.score / top if top > 0 else 0.5)
    weight = {i: max(s) + 0.2 * (len(s) - 1) for i, s in shares.items()}
    return sorted(best.values(), key=lambda h: (-weight[h.message_id], -h.message_id))


def _is_earlier(hit: Hit, context: ToolContext) -> bool:
    """The question itself, and what this turn said, is not what is looked for."""
    return not context.user_row_id or hit.message_id < context.user_row_id


def _queries(value: object) -> list[str]:
    texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    cleaned = [str(t).strip() for t in texts if str(t).strip()]
    return list(dict.fromkeys(cleaned))[:MAX_QUERIES]


def _between(value: int, low: int, high: int) -> int:
    return min(high, max(low, int(value)))


def _whole(message: Message) -> str:
    """All that a message says, calls included."""
    parts = [text_of(message["content"])]
    parts.extend(
        f"[called {c['function']['name']} with {c['function']['arguments']}]"
        for c in message.get("tool_calls") or ()
    )
    return "\n".join(p for p in parts if p) or "(no text)"


def _unknown(ref: str) -> ToolError:
    return ToolError(f"there is no message {ref[:40]!r} in this conversation")
