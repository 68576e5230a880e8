"""Owns side tasks: the model as worker threads see it, and `call_llm` for engines and plugins."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from agent.errors import ModelAuthError, ModelConnectionError, ModelTimeout, StoreError
from agent.ledger import Ledger, Purpose
from agent.messages import Message, text_of
from agent.ports import LanguageModel, ModelRequest, ModelResponse, SideModel, entry_of

DEFAULT_MAX_TOKENS = 4096
DEFAULT_TIMEOUT_SECONDS = 120.0

log = logging.getLogger(__name__)


class LoopSideModel:
    """A `LanguageModel` of the event loop, called from worker threads (`agent.ports.SideModel`).

    What it is answered is entered in the ledger before the answer is handed over, whatever becomes
    of it then. An answer that comes after its time-out is not seen, and not entered.
    """

    def __init__(
        self,
        model: LanguageModel,
        loop: asyncio.AbstractEventLoop,
        *,
        ledger: Ledger | None = None,
        conversation_id: str | None = None,
        purpose: Purpose = "other",
    ) -> None:
        """``conversation_id`` and ``purpose``: what the entries say; see `on_account`."""
        self._model = model
        self._loop = loop
        self._ledger = ledger
        self._conversation_id = conversation_id
        self._purpose: Purpose = purpose

    def on_account(self, conversation_id: str, purpose: Purpose) -> LoopSideModel:
        """The same model, asked on behalf of a conversation."""
        return LoopSideModel(
            self._model,
            self._loop,
            ledger=self._ledger,
            conversation_id=conversation_id,
            purpose=purpose,
        )

    def complete(
        self,
        *,
        system: str,
        prompt: str,
        max_tokens: int,
        timeout_seconds: float,
        model: str | None = None,
    ) -> ModelResponse:
        self._refuse_the_loop()
        request = ModelRequest(
            system=system,
            messages=[{"role": "user", "content": prompt}],
            max_tokens=max_tokens,
            # Naming the main model would switch its fallbacks off.
            model=None if model == self._model.name else model,
            side_task=True,
            purpose=self._purpose,
        )
        answer = self._ask(request)
        try:
            future = asyncio.run_coroutine_threadsafe(answer, self._loop)
        except RuntimeError as exc:
            answer.close()
            raise ModelConnectionError("the daemon is shutting down") from exc
        try:
            return future.result(timeout_seconds)
        except concurrent.futures.CancelledError as exc:
            raise ModelConnectionError("the daemon is shutting down") from exc
        except TimeoutError as exc:
            future.cancel()
            raise ModelTimeout(f"no answer within {timeout_seconds:g} s") from exc

    async def _ask(self, request: ModelRequest) -> ModelResponse:
        response = await self._model.respond(request)
        usage = response.usage
        if self._ledger is None or usage is None:
            return response
        usage = replace(usage, model=usage.model or response.model)
        try:
            await self._ledger.enter_request(entry_of(usage, self._purpose, self._conversation_id))
        except StoreError:  # what was paid for is not thrown away for want of a book-keeper
            log.warning("an answer is missing in the ledger", exc_info=True)
        return response

    def _refuse_the_loop(self) -> None:
        """Waiting for the loop on the loop would never end."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        if running is self._loop:
            raise RuntimeError("side tasks run in worker threads, not on the event loop")


# --- call_llm -----------------------------------------------------------------------------------

FINISH_REASONS: Mapping[str, str] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
"""Our stop reasons by the names that plugins know; any other one keeps its name."""


@dataclass(frozen=True, slots=True)
class CompletionMessage:
    """What was answered."""

    content: str
    role: str = "assistant"
    tool_calls: None = None


@dataclass(frozen=True, slots=True)
class CompletionChoice:
    """The one choice that there is."""

    message: CompletionMessage
    finish_reason: str = "stop"
    index: int = 0


@dataclass(frozen=True, slots=True)
class CompletionUsage:
    """Tokens, by the names that plugins know."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Both."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer in the shape that plugins know."""

    choices: tuple[CompletionChoice, ...]
    model: str = ""
    usage: CompletionUsage = field(default_factory=CompletionUsage)


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """What the operator has set for one kind of side task."""

    model: str | None = None
    timeout_seconds: float | None = None


USUAL_TASK = "compression"
"""Its settings count for every task that has none of its own, one by one."""


@dataclass(frozen=True, slots=True)
class _Backend:
    model: SideModel
    tasks: Mapping[str, TaskSettings]

    def settings(self, task: str | None) -> TaskSettings:
        """Those of a task, whatever it is called; what is None is left to the main model."""
        usual = self.tasks.get(USUAL_TASK, TaskSettings())
        own = self.tasks.get(task or "", usual)
        return TaskSettings(own.model or usual.model, own.timeout_seconds or usual.timeout_seconds)


_lock = threading.Lock()
_backend: _Backend | None = None


def install(model: SideModel | None, *, tasks: Mapping[str, TaskSettings] | None = None) -> None:
    """Say what `call_llm` uses; None takes it away. ``tasks``: by their names."""
    global _backend
    with _lock:
        _backend = None if model is None else _Backend(model, dict(tasks or {}))


_charged: ContextVar[tuple[str, Purpose] | None] = ContextVar("who pays", default=None)


@contextmanager
def charged_to(conversation_id: str, purpose: Purpose = "other") -> Iterator[None]:
    """What `call_llm` is asked inside is on this conversation's account.

    For whoever runs code of plugins for a conversation, on the thread that runs it.
    """
    token = _charged.set((conversation_id, purpose))
    try:
        yield
    finally:
        _charged.reset(token)


def call_llm(
    task: str | None = None,
    *,
    messages: Sequence[Mapping[str, Any]],
    provider: str | None = None,
    model: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    main_runtime: Any = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    tools: Any = None,
    timeout: float | None = None,
    extra_body: Any = None,
    reasoning_config: Any = None,
    api_mode: str | None = None,
    stream: bool = False,
    stream_options: Any = None,
) -> Completion:
    """Ask the side model and wait: for worker threads only.

    The configured provider answers, whatever ``provider``, ``base_url``, ``api_key`` and
    ``main_runtime`` say; ``temperature``, ``tools``, ``extra_body``, ``reasoning_config``,
    ``stream`` and the like are accepted and not sent: the answer is one text, whole.

    ``task`` says what it is for: ``auxiliary.<task>`` of the configuration counts. Any name will
    do; one without settings has those of ``compression``, and without these the main model.
    ``model`` and ``timeout`` (seconds) win over the task's.

    Raises:
        ModelError: As `agent.ports.SideModel.complete`.
        RuntimeError: It was called on the event loop.
    """
    with _lock:
        backend = _backend
    if backend is None:
        raise ModelAuthError("no model is configured for side tasks")
    settings = backend.settings(task)
    system, prompt = _flattened(messages)
    model_of_account, account = backend.model, _charged.get()
    if account is not None and isinstance(model_of_account, LoopSideModel):
        model_of_account = model_of_account.on_account(*account)
    response = model_of_account.complete(
        system=system,
        prompt=prompt,
        max_tokens=max_tokens or DEFAULT_MAX_TOKENS,
        timeout_seconds=timeout or settings.timeout_seconds or DEFAULT_TIMEOUT_SECONDS,
        model=model or settings.model,
    )
    return _completion(response)


def _flattened(messages: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """(system text, prompt); a conversation of several turns becomes one text with labels."""
    system = [text_of(m.get("content")) for m in messages if m.get("role") == "system"]
    said = [m for m in messages if m.get("role") != "system"]
    if len(said) == 1:
        return "\n\n".join(system), text_of(said[0].get("content"))
    lines = [f"[{str(m.get('role', 'user')).upper()}]\n{text_of(m.get('content'))}" for m in said]
    return "\n\n".join(system), "\n\n".join(lines)


def _completion(response: ModelResponse) -> Completion:
    message: Message = response.message
    usage = response.usage
    return Completion(
        choices=(
            CompletionChoice(
                CompletionMessage(text_of(message["content"])),
                FINISH_REASONS.get(response.stop_reason, response.stop_reason),
            ),
        ),
        model=response.model,
        usage=CompletionUsage(usage.prompt_tokens, usage.output_tokens)
        if usage is not None
        else CompletionUsage(),
    )
