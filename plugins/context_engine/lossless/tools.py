"""Owns the engine's tools: search the originals, describe the tree, expand a node."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plugins.context_engine.lossless.nodes import Node, shown_time
from plugins.context_engine.lossless.ranking import ranked
from plugins.context_engine.lossless.reading import readable
from plugins.context_engine.lossless.records import Original
from plugins.context_engine.lossless.tree import Item, is_said
from plugins.context_engine.lossless.vault import Vault
from plugins.context_engine.lossless.words import clean, excerpt, question

SEARCH, DESCRIBE, EXPAND = "lossless_search", "lossless_describe", "lossless_expand"
MOST_HITS = 20
PAGE_CHARS = 12_000
MOST_ENTRY_CHARS = 4_000
"""Of one message on a page of several; its own ref shows all of it."""
MOST_QUERY_CHARS = 2_000
LOOKED_AT = 60
"""So many of the likeliest hits are read to find the best ones."""
MOST_RANKED_CHARS = 100_000

_REF = {
    "type": "string",
    "description": "A node (n followed by 20 digits and letters, as it stands in its summary) or "
    "an original (o and a number, as lossless_search gives it).",
}


def schemas() -> list[dict[str, Any]]:
    """The tools as the model is told of them."""
    return [
        _schema(
            SEARCH,
            "Search the original messages of this conversation, also those that are only shown as "
            "summaries. Gives excerpts with a ref for lossless_expand.",
            {
                "query": {"type": "string", "description": "Words that stand in the message."},
                "limit": {"type": "integer", "description": f"1 to {MOST_HITS}; 5 if left out."},
                "role": {
                    "type": "string",
                    "enum": ["user", "assistant", "tool"],
                    "description": "Only what this role said.",
                },
            },
            ["query"],
        ),
        _schema(
            DESCRIBE,
            "Describe a summary node: how many messages, when, how large, what it is made of. "
            "Without a node: all nodes that are in view.",
            {"node": _REF},
            [],
        ),
        _schema(
            EXPAND,
            "Read what a summary node stands for, one level down, or one original message whole. "
            "Long answers come in pages: ask again with the number in `next`.",
            {"ref": _REF, "from": {"type": "integer", "description": "`next` of the last page."}},
            ["ref"],
        ),
    ]


def _schema(
    name: str, description: str, properties: dict[str, Any], required: list[str]
) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"name": name, "description": description, "parameters": parameters}


class _Refused(Exception):
    """A call that can not be answered, in words for the model."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools in one conversation, beside its list of now."""

    vault: Vault
    conversation: int
    items: Sequence[Item]

    def run(self, name: str, args: Mapping[str, Any]) -> str:
        """One call; JSON, whatever comes of it."""
        try:
            match name:
                case "lossless_search":
                    answer = self._search(args)
                case "lossless_describe":
                    answer = self._describe(args)
                case "lossless_expand":
                    answer = self._expand(args)
                case _:
                    raise _Refused(f"there is no tool {name}; use {SEARCH}, {DESCRIBE} or {EXPAND}")
        except _Refused as exc:
            answer = {"error": str(exc)}
        return clean(json.dumps(answer, ensure_ascii=False))

    # --- search --------------------------------------------------------------------------------

    def _search(self, args: Mapping[str, Any]) -> dict[str, Any]:
        query = _text(args, "query")[:MOST_QUERY_CHARS]
        asked = question(query)
        if not asked:
            raise _Refused("the query holds no word; say words that stand in the message")
        role = args.get("role") or ""
        if role not in ("", "user", "assistant", "tool"):
            raise _Refused("role is user, assistant or tool")
        limit = min(MOST_HITS, max(1, _number(args, "limit", 5)))
        likely = self.vault.search(
            self.conversation, asked, LOOKED_AT, role=role, without=self._of_this_turn()
        )
        texts = [readable(json.loads(hit.stored))[:MOST_RANKED_CHARS] for hit, _ in likely]
        hits = [likely[i] for i in ranked(query, texts)[:limit]]
        answer: dict[str, Any] = {"results": [_hit(hit, node, query) for hit, node in hits]}
        if not hits:
            answer["advice"] = "nothing was found; try other words, or fewer of them"
        return answer

    def _of_this_turn(self) -> list[str]:
        """What is being said now: it asks, and is no answer."""
        count = len(self.items)
        newest = next((i for i in reversed(range(count)) if is_said(self.items[i])), count)
        return [item.ref for item in self.items[newest:] if item.node is None]

    # --- describe ------------------------------------------------------------------------------

    def _describe(self, args: Mapping[str, Any]) -> dict[str, Any]:
        if not args.get("node"):
            nodes = [item.node for item in self.items if item.node is not None]
            originals, made = self.vault.figures(self.conversation)
            return {
                "in_view": [_about(node) for node in nodes],
                "originals_kept": originals,
                "nodes_kept": made,
            }
        node = self._node(_text(args, "node"))
        children = [self._child(source.kind, source.ref) for source in node.sources]
        shown = children[:100]
        answer = {**_about(node), "children": shown}
        if len(children) > len(shown):
            answer["more_children"] = len(children) - len(shown)
        return answer

    def _child(self, kind: str, ref: str) -> dict[str, Any]:
        if kind == "node":
            return _about(self._node(ref))
        original = self._original(digest=ref)
        return {"ref": f"o{original.number}", "role": original.role, "tokens": original.tokens}

    # --- expand --------------------------------------------------------------------------------

    def _expand(self, args: Mapping[str, Any]) -> dict[str, Any]:
        ref = _text(args, "ref")
        start = max(0, _number(args, "from", 0))
        if ref[:1] == "o" and ref[1:].isdecimal() and len(ref) < 19:
            return self._one_original(self._original(number=int(ref[1:])), start)
        node = self._node(ref)
        if start >= len(node.sources):
            raise _Refused(f"{ref} has {len(node.sources)} parts; `from` is one of 0 and up")
        parts: list[dict[str, Any]] = []
        room = PAGE_CHARS
        for source in node.sources[start:]:
            part = self._part(source.kind, source.ref)
            size = len(json.dumps(part, ensure_ascii=False))
            if parts and size > room:
                break
            parts.append(part)
            room -= size
        answer: dict[str, Any] = {"node": node.id, "parts": parts, "of": len(node.sources)}
        if start + len(parts) < len(node.sources):
            answer["next"] = start + len(parts)
        return answer

    def _part(self, kind: str, ref: str) -> dict[str, Any]:
        if kind == "node":
            child = self._node(ref)
            return {**_about(child), "summary": child.body}
        original = self._original(digest=ref)
        text = readable(json.loads(original.stored))
        part = {**_of_original(original), "text": text[:MOST_ENTRY_CHARS]}
        if len(text) > MOST_ENTRY_CHARS:
            part["cut"] = (
                f"{len(text) - MOST_ENTRY_CHARS} characters more: expand o{original.number}"
            )
        return part

    def _one_original(self, original: Original, start: int) -> dict[str, Any]:
        text = readable(json.loads(original.stored))
        if start and start >= len(text):
            raise _Refused(f"o{original.number} has {len(text)} characters; begin before its end")
        answer = {**_of_original(original), "text": text[start : start + PAGE_CHARS]}
        answer["of_characters"] = len(text)
        if start + PAGE_CHARS < len(text):
            answer["next"] = start + PAGE_CHARS
        return answer

    def _node(self, ref: str) -> Node:
        node = self.vault.node(self.conversation, ref)
        if node is None:
            raise _Refused(
                f"there is no node {ref[:40]} in this conversation; {DESCRIBE} without a node "
                "lists those in view"
            )
        return node

    def _original(self, *, number: int = 0, digest: str = "") -> Original:
        original = self.vault.original(self.conversation, number=number, digest=digest)
        if original is None:
            raise _Refused(
                f"there is no original {f'o{number}' if number else digest} in this conversation; "
                f"{SEARCH} gives refs"
            )
        return original


def _about(node: Node) -> dict[str, Any]:
    return {
        "node": node.id,
        "depth": node.depth,
        "messages": node.messages,
        "from_utc": shown_time(node.first_at),
        "to_utc": shown_time(node.last_at),
        "tokens": node.tokens,
        "stands_for_tokens": node.source_tokens,
        "parts": len(node.sources),
        "made": "without a model" if node.mode == "cut" else "by a model",
    }


def _of_original(original: Original) -> dict[str, Any]:
    return {
        "ref": f"o{original.number}",
        "role": original.role,
        "seen_utc": shown_time(original.seen_at),
        "tokens": original.tokens,
    }


def _hit(original: Original, node: str, query: str) -> dict[str, Any]:
    said = excerpt(readable(json.loads(original.stored)), query)
    return {**_of_original(original), "node": node or None, "excerpt": said}


def _text(args: Mapping[str, Any], name: str) -> str:
    value = args.get(name)
    if not isinstance(value, str) or not value.strip():
        raise _Refused(f"{name} is missing: a text")
    return value.strip()


def _number(args: Mapping[str, Any], name: str, usual: int) -> int:
    value = args.get(name, usual)
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        value = int(value.strip()[:12])
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Refused(f"{name} has to be a whole number")
    return value
