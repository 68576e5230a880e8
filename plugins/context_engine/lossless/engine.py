"""Owns the lossless context engine: a tree of summaries over messages that are all kept."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.context_engine import ContextEngine, sanitize_memory_context
from agent.model_metadata import estimate_message_tokens
from plugins.context_engine.lossless.belonging import Belonging, Start
from plugins.context_engine.lossless.database import FILE_NAME, Database
from plugins.context_engine.lossless.forgetting import forget, forget_sessions, in_file
from plugins.context_engine.lossless.growing import Grower
from plugins.context_engine.lossless.nodes import Node
from plugins.context_engine.lossless.options import Options, sizes_for
from plugins.context_engine.lossless.reading import Message, calls_to, digest, sameness, stored_form
from plugins.context_engine.lossless.records import OWN_TOOLS, Seen
from plugins.context_engine.lossless.schema import LosslessError
from plugins.context_engine.lossless.sessions import Sessions
from plugins.context_engine.lossless.summarising import Ask, Summariser, ask_side_model
from plugins.context_engine.lossless.tools import Tools, schemas
from plugins.context_engine.lossless.tree import Item, Leaf, cut, leaves, taken_back
from plugins.context_engine.lossless.vault import Vault


class LosslessEngine(ContextEngine):
    """One conversation's engine. Every method may be called from another thread than the last."""

    threshold_percent = 0.75

    def __init__(
        self,
        options: Options | None = None,
        *,
        home: Path | None = None,
        ask: Ask | None = None,
        now: Callable[[], float] = time.time,  # noqa: TID251  (a plugin has no clock of its host's)
    ) -> None:
        """Take the settings.

        Args:
            options: What is set.
            home: Where the file is; None: as the host says, else ``HERMES_HOME``.
            ask: Makes the summaries; None: the host's model for side tasks.
            now: Seconds since 1970.
        """
        self._options = options or Options()
        self.threshold_percent = self._options.threshold
        self._home = home
        self._ask = ask
        self._now = now
        self._database: Database | None = None
        self._vault: Vault | None = None
        self._belonging: Belonging | None = None
        self._untold: list[Start] = []
        self._last_list: tuple[str, list[str]] = ("", [])
        """The session and the digests of what stood in its list when it was seen last."""

    @property
    def name(self) -> str:
        return "lossless"

    def clone_for_agent(self) -> LosslessEngine:
        """An engine for one conversation more: the same settings and file, nothing else."""
        return LosslessEngine(self._options, home=self._home, ask=self._ask, now=self._now)

    # --- the file ------------------------------------------------------------------------------

    def check_file(self) -> None:
        """Can the file be used? Where it lies is not always known yet.

        Raises:
            LosslessError: It can not.
        """
        folder = self._folder()
        if folder is not None:
            database = Database(folder / FILE_NAME)
            try:
                database.check()
            finally:
                database.close()

    def _folder(self) -> Path | None:
        if self._home is not None:
            return self._home
        named = os.environ.get("HERMES_HOME", "").strip()  # noqa: TID251  (set by the host, for plugins)
        return Path(named) if named else None

    def _open(self) -> tuple[Vault, Belonging]:
        if self._vault is None or self._belonging is None:
            folder = self._folder()
            if folder is None:
                raise LosslessError("the host did not say where plugins keep their files")
            self._database = Database(folder / FILE_NAME)
            self._vault = Vault(self._database)
            self._belonging = Belonging(Sessions(self._database), self._vault)
        while self._untold:
            self._belonging.starts(self._untold.pop(0), self._now())
        return self._vault, self._belonging

    def shutdown(self) -> None:
        """Close the file; the engine may be used again."""
        if self._database is not None:
            self._database.close()

    # --- life of the conversation --------------------------------------------------------------

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        if self._home is None and (home := kwargs.get("hermes_home")):
            self._home = Path(str(home))
        self._untold.append(
            Start(
                session_id,
                str(kwargs.get("conversation_id") or ""),
                str(kwargs.get("old_session_id") or ""),
                str(kwargs.get("boundary_reason") or ""),
            )
        )
        self._open()

    def on_session_end(self, session_id: str, messages: list[dict[str, Any]]) -> None:
        self._seen(messages, complete=False)

    def on_session_reset(self) -> None:
        super().on_session_reset()
        self._last_list = ("", [])

    def on_turn_complete(
        self, messages: list[dict[str, Any]], usage: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        self._seen(messages)

    def on_forget_person(
        self,
        owner: str,
        *,
        conversation_ids: Sequence[str],
        session_ids: Sequence[str],
        hermes_home: str = "",
        **kwargs: Any,
    ) -> bool | None:
        """Who said what is not in the file: the conversations go from it whole."""
        return self._erase(hermes_home, lambda file: forget(file, conversation_ids, session_ids))

    def on_forget_sessions(
        self, session_ids: Sequence[str], *, hermes_home: str = "", **kwargs: Any
    ) -> bool | None:
        """Conversations go with the last of their sessions."""
        return self._erase(hermes_home, lambda file: forget_sessions(file, session_ids))

    def _erase(self, hermes_home: str, work: Callable[[Database], int]) -> bool:
        if self._home is None and hermes_home:
            self._home = Path(hermes_home)
        folder = self._folder()
        return folder is not None and in_file(folder / FILE_NAME, work)

    # --- when ----------------------------------------------------------------------------------

    def update_from_response(self, usage: dict[str, Any]) -> None:
        prompt = int(usage.get("prompt_tokens") or 0)
        if prompt > 0:
            self.last_prompt_tokens = prompt
            self.last_completion_tokens = int(usage.get("completion_tokens") or 0)
            self.last_total_tokens = prompt + self.last_completion_tokens

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        size = self.last_prompt_tokens if prompt_tokens is None else prompt_tokens
        return 0 < self.threshold_tokens <= size

    def should_defer_preflight_to_real_usage(self, rough_tokens: int) -> bool:
        return self.last_prompt_tokens == -1

    def has_content_to_compress(self, messages: list[dict[str, Any]]) -> bool:
        sizes = sizes_for(self.threshold_tokens, self._options)
        items = self._items(messages, self._open()[1].nodes_in(messages, self._now())[1])
        parts = cut(items, sizes, self.protect_last_n)
        nodes = sum(item.node is not None for item in parts.body)
        return nodes > 1 or any(isinstance(part, Leaf) for part in leaves(parts, sizes))

    # --- compressing ---------------------------------------------------------------------------

    def compress(
        self,
        messages: list[dict[str, Any]],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,
        memory_context: str = "",
    ) -> list[dict[str, Any]]:
        vault, _ = self._open()
        conversation, items = self._seen(messages)
        grower = Grower(
            vault,
            conversation,
            Summariser(self._ask or ask_side_model(self._options.summary_timeout_seconds)),
            sizes_for(self._room(items, current_tokens), self._options),
            self._options.fanout,
            self._now(),
            focus=focus_topic or "",
            memory=sanitize_memory_context(memory_context),
        )
        parts = cut(items, grower.sizes, self.protect_last_n)
        roots = grower.grown(parts, must_shrink=force)
        result = [*parts.system, *roots, *parts.tail]
        if _size(result) >= _size(items):
            return messages
        self.compression_count += 1
        return [dict(item.message) for item in result]

    def _room(self, items: Sequence[Item], current_tokens: int | None) -> int:
        """What of the threshold the list may take: every prompt carries more than messages."""
        beside = max(0, (current_tokens or 0) - _size(items))
        return max(self.threshold_tokens // 4, self.threshold_tokens - beside)

    def _seen(
        self, messages: Sequence[Mapping[str, Any]], *, complete: bool = True
    ) -> tuple[int, list[Item]]:
        """Keep what a list holds; gives the conversation and the list, its nodes known as such."""
        vault, belonging = self._open()
        conversation, nodes = belonging.nodes_in(messages, self._now())
        items = self._items(messages, nodes)
        said = [item for item in items if item.node is None and not _is_system(item)]
        own: set[str] = set()
        for item in said:
            own |= calls_to(OWN_TOOLS, item.message)
        seen = [
            Seen(i.message, i.ref, i.tokens, i.message.get("tool_call_id") in own) for i in said
        ]
        fuller = vault.keep(conversation, seen, self._now())
        items = [replace(i, ref=fuller[i.ref]) if i.ref in fuller else i for i in items]
        if complete:
            self._note_taken_back(vault, conversation, belonging.session_id, items)
        return conversation, items

    def _note_taken_back(
        self, vault: Vault, conversation: int, session_id: str, items: Sequence[Item]
    ) -> None:
        """Was the end of the list taken back since it was seen last (undo, retry)?"""
        before_session, before = self._last_list
        after = [sameness(item.message) for item in items]
        self._last_list = (session_id, after)
        if before_session != session_id:
            return
        gone = taken_back(before, after, plain=[_is_plain(item) for item in items])
        if gone:
            vault.take_back(conversation, gone)

    @staticmethod
    def _items(messages: Sequence[Mapping[str, Any]], nodes: Mapping[int, Node]) -> list[Item]:
        items = []
        for i, message in enumerate(messages):
            node = nodes.get(i)
            tokens = estimate_message_tokens(message)  # type: ignore[arg-type]
            ref = node.id if node is not None else digest(stored_form(message))
            items.append(Item(message, tokens, ref, node))
        return items

    # --- tools and status ----------------------------------------------------------------------

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return schemas()

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        messages: list[Message] = kwargs.get("messages") or []
        try:
            conversation, items = self._seen(messages, complete=bool(messages))
            return Tools(self._open()[0], conversation, items).run(name, args)
        except LosslessError as exc:
            return json.dumps({"error": f"the originals can not be read now: {exc}"})

    def get_status(self) -> dict[str, Any]:
        status = super().get_status()
        if self._vault is not None and self._belonging is not None:
            conversation = self._belonging.conversation(self._now())
            status["originals"], status["nodes"] = self._vault.figures(conversation)
        return status


def _is_plain(item: Item) -> bool:
    """Does the host's bookkeeping say that it stands as it was said?"""
    return "_row" in item.message and item.message.get("_kind") is None


def _is_system(item: Item) -> bool:
    return item.message.get("role") == "system"


def _size(items: Sequence[Item]) -> int:
    return sum(item.tokens for item in items)
