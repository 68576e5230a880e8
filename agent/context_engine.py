"""Owns the public contract of context engines: what the host calls, when, and what it may expect.

Third-party engines import this module, so it needs nothing but the standard library. A class that
implements the four abstract members is a complete engine; everything else has a default that does
nothing.

**Life of an engine.** One instance serves one conversation: the host makes it from what the plugin
registered, by ``clone_for_agent()`` if the engine has that, else by a deep copy, else by calling
the plugin's ``register`` anew. `model_thresholds` and `update_model` come first, then
``bind_session_state(session_db=, session_id=)`` if the engine has that, `get_tool_schemas`, and
`on_session_start`; then, for each turn, `update_from_response` after every answer of the model and
`should_compress` wherever the list might be too long; `compress` when it is; `on_session_end` where
a session ends. Around a compression the host calls `compress`, stores the result as a child
session, and announces it with `on_session_end` of the old one and ``on_session_start(new_id,
boundary_reason="compression", old_session_id=…)``; so does whatever else makes a child session,
with a reason of its own. Where a person begins afresh, it is `on_session_end`, `on_session_reset`,
`on_session_start`. ``shutdown()``, if the engine has it, is called before an instance is dropped:
at the end of the daemon behind an `on_session_end`, or alone when the conversation was long unused
and gets another instance with its next message.

**Threads.** Engines are synchronous. The host calls them from worker threads, one call at a time,
not always from the same thread, with deadlines. An engine that comes back late is left alone until
it has come back; what it returns by then is thrown away.

**Messages** are OpenAI-shaped dicts: ``role`` (system, user, assistant, tool), ``content`` (text, a
list of parts, or None), ``tool_calls`` with JSON text as arguments, ``tool_call_id``. A key that
begins with ``_`` is the host's bookkeeping: carry it along with a message that is kept or shortened
and leave it off new ones. Lists handed in are copies; an engine may change them.

**Failure.** Any method may raise. The host logs it, shows the reason where somebody waits for it,
and goes on as if the engine had changed nothing.
"""

# ruff: noqa: B027  (optional methods do nothing by default, on purpose)

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

MEMORY_CONTEXT_MAX_CHARS = 6000
"""Longest memory text that reaches an engine."""
_MEMORY_HEAD_CHARS = 4000
_MEMORY_TAIL_CHARS = 1500


def sanitize_memory_context(text: object) -> str:
    """The text of a memory provider as an engine may have it: a string, trimmed, not too long.

    A text over `MEMORY_CONTEXT_MAX_CHARS` keeps its beginning and its end. Anything but a string
    becomes ``""``.
    """
    if not isinstance(text, str):
        return ""
    text = text.strip()
    if len(text) <= MEMORY_CONTEXT_MAX_CHARS:
        return text
    cut = len(text) - _MEMORY_HEAD_CHARS - _MEMORY_TAIL_CHARS
    head, tail = text[:_MEMORY_HEAD_CHARS], text[-_MEMORY_TAIL_CHARS:]
    return f"{head}\n[… {cut} characters left out …]\n{tail}"


class ContextEngine(ABC):
    """Decides when a conversation is too long for the model's window, and makes it shorter.

    The attributes are read by the host at any time; an engine keeps them current. There is no
    ``__init__`` here, so a subclass need not call one.
    """

    last_prompt_tokens: int = 0
    """Prompt size of the last response. 0: none yet, estimate. -1: a compression happened and no
    response came since, so the size is unknown. Readers clamp it at 0."""
    last_completion_tokens: int = 0
    last_total_tokens: int = 0
    threshold_tokens: int = 0
    """Prompt size from which on this engine wants to compress."""
    context_length: int = 0
    """The model's window."""
    compression_count: int = 0
    """Compressions in this conversation so far."""

    threshold_percent: float = 0.75
    """Share of the window, for engines that derive `threshold_tokens` from it."""
    protect_first_n: int = 3
    protect_last_n: int = 6
    emit_automatic_compaction_status: bool = True
    """False: the host says nothing to the user when it compresses by itself."""
    model_thresholds: dict[str, float] | None = None
    """Per-model share of the window; the host sets it before the first `update_model`. The longest
    key that is part of the model's name wins; ``provider:part`` counts for that provider only."""

    # --- required -------------------------------------------------------------------------------

    @property
    @abstractmethod
    def name(self) -> str:
        """The value of ``context.engine`` that selects this engine: ``[a-z0-9_-]+``, constant."""

    @abstractmethod
    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Take note of what a response really took.

        Called after every response that carries usage, with ``prompt_tokens``,
        ``completion_tokens``, ``total_tokens``, ``input_tokens``, ``output_tokens``,
        ``cache_read_tokens``, ``cache_write_tokens`` and ``reasoning_tokens``. The prompt size is
        input + cache read + cache write. Called once with ``{}`` if a response without usage is the
        first one after a compression.
        """

    @abstractmethod
    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Should the list be compressed now?

        Args:
            prompt_tokens: The size to judge; None: the last one noted. Returns at once.
        """

    @abstractmethod
    def compress(
        self,
        messages: list[dict[str, Any]],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,
        memory_context: str = "",
    ) -> list[dict[str, Any]]:
        """Give back a shorter list that says the same.

        The host takes the result only if it is a non-empty list of messages, differs from the
        input, and is smaller by the host's own count; it repairs tool pairs by itself. A list equal
        to the input means "nothing done". The host leaves out the arguments that an engine's
        signature does not have.

        Args:
            messages: The whole list, a copy. The system message is not always part of it.
            current_tokens: Prompt size as far as known.
            focus_topic: What the user wants to be kept above all, from ``/compress <focus>``.
            force: The user asked for it: cool-downs and the like do not count.
            memory_context: Text of the memory provider to be kept, source material and no order.
        """

    # --- optional: deciding ---------------------------------------------------------------------

    def should_compress_info(self, prompt_tokens: int | None = None) -> tuple[bool, str | None]:
        """`should_compress` with a reason.

        The reason is set only if the size is over the threshold and something forbids to compress:
        ``cooldown:<seconds>``, ``ineffective`` or ``blocked``. The host tells the user once per
        kind (the part before the colon).
        """
        return self.should_compress(prompt_tokens), None

    def should_compress_preflight(self, messages: list[dict[str, Any]]) -> bool:
        """Extra check at the start of a turn. Not asked by this host: `should_compress` decides."""
        return False

    def should_defer_preflight_to_real_usage(self, rough_tokens: int) -> bool:
        """True: an estimate is no reason to compress now; wait for the next real size."""
        return False

    def has_content_to_compress(self, messages: list[dict[str, Any]]) -> bool:
        """False: ``/compress`` answers "nothing to compress" without calling `compress`."""
        return True

    def pending_compression_operation(self, messages: list[dict[str, Any]]) -> str | None:
        """What `compress` would do, if it is less than a whole compression.

        ``sanitize``: clean up only, so the host need not ask the memory provider.
        """
        return None

    # --- optional: other changes to the list ----------------------------------------------------

    def prune_tool_results_only(
        self, messages: list[dict[str, Any]], current_tokens: int | None = None
    ) -> tuple[list[dict[str, Any]], int]:
        """Shorten old tool results without a model call, between two rounds of tools.

        Returns the list and the number of results that were shortened: the same list object and 0
        if there was nothing to do.
        """
        return messages, 0

    def select_context(
        self,
        request_messages: list[dict[str, Any]],
        *,
        conversation_messages: list[dict[str, Any]] | None = None,
        incoming_message: dict[str, Any] | None = None,
        budget_tokens: int = 0,
    ) -> list[dict[str, Any]] | None:
        """Send other messages with this request; nothing of it is stored.

        Runs before cache marks are set, for every request. None, ``[]``, anything that is no list
        of dicts, and an exception leave the request exactly as it was.

        Args:
            request_messages: What would be sent.
            conversation_messages: What is stored.
            incoming_message: The user message that this turn answers.
            budget_tokens: The model's window; 0: unknown.
        """
        return None

    def on_turn_complete(
        self, messages: list[dict[str, Any]], usage: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """A turn has ended normally.

        Keywords: turn_id, task_id, api_call_count, interrupted, failed, turn_exit_reason.
        """

    # --- optional: life of the conversation -----------------------------------------------------

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        """A session begins, or the engine joins one that is there (after a restart, say).

        Keywords: platform, model, context_length, conversation_id (the session key), and with the
        first one hermes_home. Where it continues another session, after that one's
        `on_session_end`, also old_session_id and why: ``boundary_reason`` is ``compression``,
        ``switch`` (another prompt, tool list or model), ``uncompress``, or, without an end of the
        old one, ``branch``. Called once more for the same session if the chat got another key.
        """

    def on_session_end(self, session_id: str, messages: list[dict[str, Any]]) -> None:
        """A session ends; never after a turn.

        A child continues it, a person begins afresh, or the host goes down (and goes on with the
        same session when it is back).
        """

    def on_session_reset(self) -> None:
        """The conversation starts anew: forget what was counted."""
        self.last_prompt_tokens = 0
        self.last_completion_tokens = 0
        self.last_total_tokens = 0
        self.compression_count = 0

    def on_forget_person(
        self,
        owner: str,
        *,
        conversation_ids: Sequence[str],
        session_ids: Sequence[str],
        **kwargs: Any,
    ) -> bool | None:
        """A person asked to be forgotten: erase what this engine keeps of them, on disk too.

        Called on an instance that was made for it, serves no conversation and is dropped behind it;
        those of the conversations concerned were shut down before. It may be called again for the
        same person, after a crash or a failure. True: nothing of them is left. False, an exception
        or a missed deadline (60 s): not now, it is tried again. None: this engine can not; whoever
        asked is told so.

        Args:
            owner: ``platform:user id``.
            conversation_ids: Conversations, as `on_session_start` calls them, that are this
                person's alone: everything that was ever said there goes.
            session_ids: All sessions of all conversations in which they had a part, their own and
                those shared with others. Summaries over what they said there go, too.
            kwargs: ``hermes_home``.
        """
        return None

    def on_forget_sessions(self, session_ids: Sequence[str], **kwargs: Any) -> bool | None:
        """Conversations were deleted as nothing was said in them for long: erase what is kept.

        Called as `on_forget_person` is, and answered as that. Nobody comes back to these sessions.
        A place in which one of them was may have newer conversations, which stay.

        Args:
            session_ids: All sessions of some conversations, and of all that hang together with
                them by forks.
            kwargs: ``hermes_home``.
        """
        return None

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: str = "",
        provider: str = "",
        api_mode: str = "",
    ) -> None:
        """The model or its window is another one now: at start, on a switch, on a lower limit.

        The host gives no key: ``api_key`` is "". Side tasks go through `agent.auxiliary_client`.
        """
        self.context_length = context_length
        share = self.threshold_percent
        best = -1
        for key, value in (self.model_thresholds or {}).items():
            owner, colon, part = key.partition(":")
            if colon and owner == provider and part and part in model and len(part) * 2 + 1 > best:
                share, best = value, len(part) * 2 + 1
            elif not colon and key and key in model and len(key) * 2 > best:
                share, best = value, len(key) * 2
        self.threshold_tokens = int(context_length * share)

    # --- optional: tools and status -------------------------------------------------------------

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Tools of this engine: ``{name, description, parameters}``, constant for its life."""
        return []

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Run one of this engine's tools; gives back JSON text.

        Keywords: messages (the live list).
        """
        return json.dumps({"error": f"unknown context engine tool: {name}"})

    def get_status(self) -> dict[str, Any]:
        """Figures for ``/status``, with at least the five keys given here."""
        used = max(0, self.last_prompt_tokens)
        share = 100.0 * used / self.context_length if self.context_length > 0 else 0.0
        return {
            "last_prompt_tokens": used,
            "threshold_tokens": self.threshold_tokens,
            "context_length": self.context_length,
            "usage_percent": min(100.0, share),
            "compression_count": self.compression_count,
        }

    def get_automatic_compaction_status_message(
        self, *, phase: str, default_message: str, **context: Any
    ) -> str | None:
        """What the user reads while the host compresses by itself; None: nothing.

        Args:
            phase: ``preflight`` or ``compress``.
            default_message: What the host would say.
            context: Figures: approx_tokens, threshold_tokens.
        """
        return default_message
