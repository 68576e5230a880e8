"""Owns one compression: leaves over messages, nodes over nodes, each kept before it is used."""

from __future__ import annotations

from collections.abc import Sequence

from plugins.context_engine.lossless.nodes import Node, key_of, make_node
from plugins.context_engine.lossless.options import Sizes
from plugins.context_engine.lossless.reading import transcript
from plugins.context_engine.lossless.summarising import Summariser, Task
from plugins.context_engine.lossless.tree import Cut, Item, Leaf, leaves, to_condense
from plugins.context_engine.lossless.vault import Vault

CHARS_PER_TOKEN = 4
MOST_MATERIAL_TOKENS = 60_000
"""What one call of the model reads at most; a single huge message is cut to it."""


class Grower:
    """Makes the nodes of one compression.

    A node is named by what it is made from, and kept in the file before the list with it is given
    away. Where the host throws that list away, the next compression finds the node and asks no
    model again.
    """

    def __init__(
        self,
        vault: Vault,
        conversation: int,
        summariser: Summariser,
        sizes: Sizes,
        fanout: int,
        at: float,
        *,
        focus: str,
        memory: str,
    ) -> None:
        self.sizes = sizes
        self._vault = vault
        self._conversation = conversation
        self._summariser = summariser
        self._fanout = fanout
        self._at = at
        self._focus = focus
        self._memory = memory

    def grown(self, parts: Cut, *, must_shrink: bool) -> list[Item]:
        """What stands between the system message and the tail from now on.

        ``must_shrink``: somebody asked for it; without new leaves, nodes are condensed early.
        """
        planned = leaves(parts, self.sizes)
        roots = [self._node(part.items) if isinstance(part, Leaf) else part for part in planned]
        pinned = parts.body[parts.pinned].ref if parts.pinned >= 0 else ""
        early = must_shrink and not any(isinstance(part, Leaf) for part in planned)
        while (
            found := to_condense(roots, self.sizes, self._fanout, pinned, early=early)
        ) is not None:
            early = False
            roots[found.start : found.stop] = [self._node(roots[found.start : found.stop])]
        return roots

    def _node(self, items: Sequence[Item]) -> Item:
        sources = [item.source for item in items]
        node = self._vault.made_from(self._conversation, key_of(sources, self._focus))
        if node is None:
            made = self._made(items)
            self._vault.add(self._conversation, made, self._at)
            node = self._vault.node(self._conversation, made.id) or made
        return Item({"role": "user", "content": node.content}, node.tokens, node.id, node)

    def _made(self, items: Sequence[Item]) -> Node:
        size = sum(item.tokens for item in items)
        body_tokens = self.sizes.body_tokens
        task = Task(
            material=self._material(items, MOST_MATERIAL_TOKENS),
            outline=lambda: self._material(items, body_tokens),
            room_tokens=size,
            body_tokens=body_tokens,
            focus=self._focus,
            memory=self._memory,
        )
        body, mode = self._summariser.text(task)
        first, last = self._span(items)
        return make_node(
            [item.source for item in items],
            body,
            mode,
            focus=self._focus,
            depth=max((i.node.depth + 1 for i in items if i.node is not None), default=0),
            source_tokens=size,
            messages=sum(item.messages for item in items),
            first_at=first,
            last_at=last,
        )

    def _material(self, items: Sequence[Item], tokens: int) -> str:
        """What the items say, each with its share of the room at least."""
        chars = tokens * CHARS_PER_TOKEN
        total = sum(item.tokens for item in items) * CHARS_PER_TOKEN
        each = chars if total <= chars else max(120, chars // len(items))
        blocks = []
        for item in items:
            if item.node is None:
                blocks.append(transcript([item.message], each))
            else:
                blocks.append(f"[SUMMARY OF EARLIER MESSAGES]\n{item.node.body[:each]}")
        return "\n\n".join(blocks)

    def _span(self, items: Sequence[Item]) -> tuple[float, float]:
        seen = self._vault.seen_at(
            self._conversation, [item.ref for item in items if item.node is None]
        )
        times = [seen.get(item.ref, self._at) for item in items if item.node is None]
        times += [t for i in items if i.node is not None for t in (i.node.first_at, i.node.last_at)]
        return min(times), max(times)
