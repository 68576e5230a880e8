"""Owns the `recall` tool: looking up what was said, in this conversation and its sessions before.

In a direct chat the search covers the person's other conversations too; in a group it never leaves
the group's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any

from agent.archive_ports import Archive
from agent.errors import ToolError
from agent.messages import Message, Row, ToolSchema, text_of
from agent.model_metadata import estimate_tokens_rough
from agent.ports import ToolContext, ToolResult
from agent.sessions import Hit, SearchScope

MAX_QUERIES = 5
MAX_LIMIT = 20
MAX_AROUND = 10
_REF = re.compile(r"(?:recall\s+)?(?:ref\s+)?(\S{1,200})", re.IGNORECASE)
_ROW_REF = re.compile(r"(m?)(\d{1,18})")
_AROUND_CHARS = 600
MAX_SKIP = 200
_SPARE = 12
"""Hits asked for beyond those wanted: phrasings share some, one more says that there are."""
_NOTHING = "Nothing found. Other words, or fewer, may help."
_NO_MORE = "No more hits."

_SCHEMA = ToolSchema(
    name="recall",
    description=(
        "Look up what was said earlier and is no longer in view: all of this conversation since it "
        "began, in a direct chat the person's other conversations too (in a group never), word for "
        "word, summaries or not, tool results included. Use it before you say that you do not "
        "remember, and whenever an exact value matters (a path, a number, a name, an error, a "
        "rule) that a summary only touches. Three ways: search with `queries`; open one message "
        'whole with `ref` (a mark like "recall ref m123" names one); read what was said around a '
        "hit with `around`. A hit is one line with its reference, date and role; what holds now is "
        "usually the newest, and a hit says if a newer one has the same words."
    ),
    parameters={
        "type": "object",
        "properties": {
            "queries": {
                "type": "array",
                "items": {"type": "string"},
                "description": (
                    "What to search for, one to five phrasings, tried together. Plain words or a "
                    "question in the language that was spoken; names, paths and codes as they are "
                    'written; "in quotes" what stood exactly so. Give synonyms as further '
                    "phrasings: words are matched, not meanings."
                ),
            },
            "limit": {"type": "integer", "description": "Hits wanted, 1 to 20; default 8."},
            "skip": {
                "type": "integer",
                "description": "With queries: leave out so many of the best hits, to read on.",
            },
            "ref": {
                "type": "string",
                "description": 'One message to open: "m123", or the id of a tool call.',
            },
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

    def __init__(
        self,
        archive: Archive,
        *,
        zone: Callable[[], tzinfo] = lambda: UTC,
        page_tokens: Callable[[], int] = lambda: 2500,
    ) -> None:
        """Make it.

        ``page_tokens`` is asked for each page and stays below the registry's cap, so that a page
        comes whole: both follow the window.
        """
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
        skip = _between(arguments.get("skip", 0), 0, MAX_SKIP)
        return await self._search(queries, limit, skip, context)

    # --- search

    async def _search(
        self, queries: Sequence[str], limit: int, skip: int, context: ToolContext
    ) -> ToolResult:
        wanted = skip + limit + _SPARE
        # The question, and what this turn said to it, is not what is looked for.
        asked, scope = context.user_row_id or None, _scope(context)
        hits = merge_hits(
            [await self._archive.search(q, scope, limit=wanted, before_id=asked) for q in queries]
        )
        shown = hits[skip : skip + limit]
        if not shown:
            return ToolResult(_NO_MORE if skip else _NOTHING)
        lines, room = [""], self._page_tokens()
        for hit in shown:
            line = self._hit_line(hit)
            room -= estimate_tokens_rough(line)
            if room < 0 and len(lines) > 1:
                break
            lines.append(line)
        count = len(lines) - 1
        lines[0] = f"{count} found, best first:"
        if len(hits) > skip + count:
            lines.append(f"[more: the same queries with skip {skip + count}]")
        return ToolResult("\n".join(lines))

    def _hit_line(self, hit: Hit) -> str:
        newer = f" (newer with the same words: m{hit.newer_id})" if hit.newer_id else ""
        when = self._when(hit.created_at)
        return f"m{hit.message_id} · {when} · {hit.role}: {hit.snippet}{newer}"

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
        """By the number of a message or the id of a call.

        A capped tool result names its call: when it was written it had no number yet. Some
        providers number their calls, so digits alone are a call first.
        """
        named = _REF.fullmatch(ref)
        if named is None:
            raise _unknown(ref)
        numbered = _ROW_REF.fullmatch(named[1])
        if numbered and numbered[1]:
            row = await self._numbered(int(numbered[2]), context)
            row = row or await self._result_of_call(named[1], context)
        else:
            row = await self._result_of_call(named[1], context)
            if row is None and numbered:
                row = await self._numbered(int(numbered[2]), context)
        if row is None:
            raise _unknown(ref)
        return row

    async def _numbered(self, message_id: int, context: ToolContext) -> Row | None:
        """A foreign message is answered like one that does not exist."""
        if not await self._visible(message_id, context):
            return None
        return next(iter(await self._archive.window(message_id, before=0, after=0)), None)

    async def _result_of_call(self, call_id: str, context: ToolContext) -> Row | None:
        """Of this conversation first: ids of calls may repeat elsewhere."""
        for scope in _scopes(context):
            row = await self._archive.result_of_call(scope, call_id)
            if row is not None:
                return row
        return None

    async def _around(self, ref: str, before: int, after: int, context: ToolContext) -> ToolResult:
        message_id = (await self._row(ref, context)).id
        found = await self._archive.window(message_id, before=before, after=after)
        # Around the end of what a fork shares stands what it does not.
        rows = [row for row in found if await self._visible(row.id, context)]
        shown: dict[int, str] = {}
        room = self._page_tokens()
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

    async def _visible(self, message_id: int, context: ToolContext) -> bool:
        for scope in _scopes(context):
            if await self._archive.in_scope(scope, message_id):
                return True
        return False

    def _page(self, text: str, offset: int) -> tuple[str, int | None]:
        """What fits from there on, and where it goes on."""
        rest = text[offset:]
        tokens, room = estimate_tokens_rough(rest), self._page_tokens()
        if tokens <= room:
            return rest, None
        end = max(1, len(rest) * room // tokens)
        return rest[:end], offset + end

    def _when(self, at: float) -> str:
        return f"{datetime.fromtimestamp(at, self._zone()):%Y-%m-%d %H:%M}"


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


def _scopes(context: ToolContext) -> list[SearchScope]:
    """What may be seen: this conversation; in a direct chat the person's others too."""
    own = SearchScope(conversation_id=context.conversation_id)
    return [own, SearchScope(owner=context.owner)] if context.direct_chat else [own]


def _scope(context: ToolContext) -> SearchScope:
    return _scopes(context)[-1]


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
        f"[called {c['function']['name']} with {_readable(c['function']['arguments'])}]"
        for c in message.get("tool_calls") or ()
    )
    return "\n".join(p for p in parts if p) or "(no text)"


def _readable(arguments: str) -> str:
    """JSON in its own letters; what is no JSON as it is."""
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments


def _unknown(ref: str) -> ToolError:
    return ToolError(f"there is no message {ref[:40]!r} in this conversation")
