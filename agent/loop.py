"""Owns one turn of the agent: model and tools in alternation until there is an answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Literal

from agent.asking import Asker
from agent.cache_watch import CacheWatch
from agent.history import History
from agent.image_tokens import ImageTokens
from agent.messages import Draft, ToolCall, text_of, to_engine
from agent.ports import (
    Compactor,
    ContextEdits,
    LanguageModel,
    ModelResponse,
    Steering,
    ToolContext,
    TurnObserver,
    Usage,
)
from agent.prompt_caching import ttl_for
from agent.sessions import LoadedSession, TurnTicket
from agent.store_ports import SessionStore
from agent.tools.registry import ToolRegistry
from agent.verdicts import (
    CALL_SMALLER,
    CALL_TOO_LONG,
    CUT_CALL,
    FINISH_NOW,
    GO_ON,
    KNOWN_STOPS,
    NOTHING,
    OUT_OF_STEPS,
    PAUSED_TOO_OFTEN,
    REFUSED,
    Verdict,
    cut_answer,
    final_answer,
    judge,
    note_to_model,
    notice,
    thought_answer,
)

MAX_CUT_RETRIES = 2
MAX_EMPTY_RETRIES = 1
MAX_PAUSES = 5
MAX_SESSIONS_BUDGET = 3
"""A split gives a fresh budget of iterations; a whole turn has this many budgets at most."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """The limits of a turn."""

    max_iterations: int = 90
    max_tokens: int = 8192
    """Of one answer, already fitted to the window."""
    cache_ttl: Literal["5m", "1h", "auto"] | None = "5m"
    """``auto``: by who waits for the answer. None: no cache marks."""
    parallel_tools: int = 8
    edits: ContextEdits | None = None
    """What the provider may clear from long prompts by itself."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How a turn ended. The final message is handed over, not stored."""

    session_id: str
    """The tip, if it was split on the way."""
    final: Draft
    text: str
    """What the user reads: the final message, and before it what a pause had cut from it."""
    usage: Usage | None = None
    """Of the last response; None if the final message is not the model's own."""
    model_calls: int = 0
    tool_calls: int = 0
    compactions: int = 0
    total: Usage = field(default_factory=Usage)
    """Of all responses together."""
    loaded: LoadedSession | None = None
    """The list as the last request had it; the final message is not in it."""
    turn_id: str = ""


class TurnLoop:
    """Runs turns; holds nothing of any of them."""

    def __init__(
        self,
        *,
        store: SessionStore,
        model: LanguageModel,
        tools: ToolRegistry,
        settings: LoopSettings | Callable[[], LoopSettings] | None = None,
        cache_watch: CacheWatch | None = None,
        image_tokens: ImageTokens | None = None,
    ) -> None:
        """Take the parts that all turns share.

        ``settings`` is asked anew for each turn where it is a function: the room for an answer
        follows the window, which may be learned while the daemon runs.
        """
        self._store = store
        self._model = model
        self._tools = tools
        self._settings = settings if settings is not None else LoopSettings()
        self._cache_watch = cache_watch
        self._image_tokens = image_tokens

    async def __call__(
        self,
        ticket: TurnTicket,
        loaded: LoadedSession,
        *,
        compactor: Compactor,
        context: ToolContext,
        observer: TurnObserver,
        steering: Steering | None = None,
    ) -> TurnResult:
        """Go on from the stored rows until there is an answer.

        Everything before the final message is stored when its next step begins. Cancelled at any
        point, what is stored is a list that the store knows how to repair. ``steering`` is asked
        behind tools, as long as another step follows.

        Raises:
            ModelError: No usable answer, after every recovery; the stored rows stay.
            StaleTurn: The turn is over; nothing more was written.
            SessionEnded: Somebody else moved the tip; call again with that.
        """
        history = History(loaded)
        settings = self._settings if isinstance(self._settings, LoopSettings) else self._settings()
        asker = Asker(
            history=history,
            ticket=ticket,
            model=self._model,
            store=self._store,
            compactor=compactor,
            observer=observer,
            max_tokens=settings.max_tokens,
            cache_ttl=ttl_for(settings.cache_ttl, for_person=context.for_person),
            cache=self._cache_watch.turn() if self._cache_watch is not None else None,
            edits=settings.edits,
            image_tokens=self._image_tokens,
        )
        turn = _Turn(
            ticket=ticket,
            history=history,
            asker=asker,
            store=self._store,
            tools=self._tools,
            context=replace(context, messages=lambda: to_engine(history.loaded.rows)),
            observer=observer,
            settings=settings,
            steering=steering,
        )
        return await turn.run()


class _Turn:
    """One running turn: its counters, and what it has got so far."""

    def __init__(
        self,
        *,
        ticket: TurnTicket,
        history: History,
        asker: Asker,
        store: SessionStore,
        tools: ToolRegistry,
        context: ToolContext,
        observer: TurnObserver,
        settings: LoopSettings,
        steering: Steering | None,
    ) -> None:
        self._ticket = ticket
        self._history = history
        self._asker = asker
        self._store = store
        self._tools = tools
        self._context = context
        self._observer = observer
        self._settings = settings
        self._steering = steering
        self._iterations = 0
        self._all_iterations = 0
        self._budget_session = history.session_id
        self._tool_calls = 0
        self._cuts = 0
        self._empties = 0
        self._pauses = 0
        self._said: list[str] = []

    async def run(self) -> TurnResult:
        try:
            return await self._until_answered()
        finally:  # also if nothing comes of the turn
            await self._asker.enter_unused()

    async def _until_answered(self) -> TurnResult:
        await self._take_up()
        await self._asker.compact_if_due("preflight")
        while not self._out_of_steps():
            response = await self._asker.ask(continues_pause=self._is_paused())
            result = await self._take(response)
            if result is not None:
                return result
        return await self._last_word()

    async def _take_up(self) -> None:
        """Where a crash left an answer that the provider had paused, it is asked to go on.

        In a row of its own: what is sent has to be stored, or the next request begins otherwise.
        """
        rows = self._history.loaded.rows
        if rows and rows[-1].message["role"] == "assistant":
            await self._keep([note_to_model(GO_ON)])

    # --- one answer

    async def _take(self, response: ModelResponse) -> TurnResult | None:
        """Do what an answer asks for; None: the turn goes on."""
        verdict = judge(response)
        match verdict:
            case Verdict.TOOLS:
                await self._run_tools(response)
            case Verdict.PAUSED:
                return await self._pause(response)
            case Verdict.CUT_SHORT:
                return await self._cut_short(response)
            case Verdict.WINDOW_FULL:
                if not await self._asker.make_room():
                    return self._window_full(response)
            case Verdict.EMPTY if self._empties < MAX_EMPTY_RETRIES:
                self._empties += 1
                self._asker.take_back()
            case Verdict.EMPTY:
                thought = thought_answer(response.message)
                if thought is None:
                    return self._give(NOTHING)
                self._observer.on_text(text_of(thought.message["content"]))
                return self._result(thought, response.usage)
            case Verdict.REFUSED:
                return self._give(REFUSED)
            case Verdict.CUT_TEXT:
                return self._result(cut_answer(response.message), response.usage)
            case Verdict.ANSWER:
                self._report_unknown(response)
                return self._result(final_answer(response.message), response.usage)
        return None

    async def _run_tools(self, response: ModelResponse) -> None:
        self._asker.take_back(all_of_it=True)
        self._said.clear()
        await self._keep([Draft(response.message)], response.usage)
        calls = response.message["tool_calls"]
        self._tool_calls += len(calls)
        if len(calls) == 1:
            await self._keep([await self._run(calls[0])])
        else:
            await self._run_at_once(calls)
        self._iterations += 1
        self._all_iterations += 1
        await self._take_in_words()
        await self._asker.compact_if_due("loop")

    async def _take_in_words(self) -> None:
        """The model reads with the results what was said meanwhile.

        Where no step is left, that is better off with a turn of its own.
        """
        if self._steering is None or self._out_of_steps():
            return
        rows = await self._steering.take_in(self._ticket, self._history.session_id)
        if rows:
            self._history.append(rows, None)

    async def _run(self, call: ToolCall) -> Draft:
        self._observer.on_tool(call["function"]["name"])
        return await self._tools.run(call, self._context, on_file=self._observer.on_file)

    async def _run_at_once(self, calls: Sequence[ToolCall]) -> None:
        """Run all, store each as soon as those before it are stored."""
        slots = asyncio.Semaphore(self._settings.parallel_tools)
        in_turn: dict[str, asyncio.Lock] = {}  # which wakes who has waited longest

        async def run(call: ToolCall) -> Draft:
            order = self._tools.order_of(call)
            behind = nullcontext() if order is None else in_turn.setdefault(order, asyncio.Lock())
            async with behind, slots:
                return await self._run(call)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(run(call)) for call in calls]
                ready: list[Draft] = []
                for task, following in zip(tasks, [*tasks[1:], None], strict=True):
                    ready.append(await task)
                    if following is None or not following.done():
                        await self._keep(ready)
                        ready = []
        except BaseExceptionGroup as group_error:
            # A store error; tools do not raise. Callers handle errors, not groups of one.
            raise group_error.exceptions[0] from None

    async def _pause(self, response: ModelResponse) -> TurnResult | None:
        """The provider stopped in the middle and wants its answer back to go on with it."""
        self._pauses += 1
        text = text_of(response.message["content"])
        if self._pauses > MAX_PAUSES:
            return self._give(PAUSED_TOO_OFTEN)
        await self._keep([Draft(response.message)], response.usage)
        if text.strip():
            self._said.append(text)
            self._asker.keep_shown(text)
        return None

    def _is_paused(self) -> bool:
        rows = self._history.loaded.rows
        return self._pauses > 0 and bool(rows) and rows[-1].message["role"] == "assistant"

    async def _cut_short(self, response: ModelResponse) -> TurnResult | None:
        """First with more room for the answer, then with a word to the model, then not again."""
        self._cuts += 1
        self._asker.take_back()
        if self._cuts > MAX_CUT_RETRIES:
            return self._give(CALL_TOO_LONG)
        if self._cuts == 1 and self._asker.raise_budget():
            return None
        text = text_of(response.message["content"]).strip() or CUT_CALL
        cut = Draft({"role": "assistant", "content": text})
        await self._keep([cut, note_to_model(CALL_SMALLER)], response.usage)
        return None

    def _window_full(self, response: ModelResponse) -> TurnResult:
        if text_of(response.message["content"]).strip():
            return self._result(cut_answer(response.message), response.usage)
        return self._give(NOTHING)

    def _report_unknown(self, response: ModelResponse) -> None:
        if response.stop_reason not in KNOWN_STOPS:
            log.warning("Unknown stop reason", extra={"stop_reason": response.stop_reason})

    # --- the end

    def _out_of_steps(self) -> bool:
        if self._history.session_id != self._budget_session:
            self._budget_session = self._history.session_id
            self._iterations = 0
        limit = self._settings.max_iterations
        return self._iterations >= limit or self._all_iterations >= limit * MAX_SESSIONS_BUDGET

    async def _last_word(self) -> TurnResult:
        """One more answer, for which no tool is run.

        The tools stay in the request: without them its beginning would be another one, and all
        that the provider has cached and all thinking would be void.
        """
        await self._keep([note_to_model(FINISH_NOW)])
        response = await self._asker.ask()
        verdict = judge(response)
        if verdict is Verdict.REFUSED:
            return self._give(REFUSED)
        if not text_of(response.message["content"]).strip():
            return self._give(OUT_OF_STEPS)
        if verdict in (Verdict.CUT_TEXT, Verdict.WINDOW_FULL):
            return self._result(cut_answer(response.message), response.usage)
        return self._result(final_answer(response.message), response.usage)

    def _give(self, text: str) -> TurnResult:
        """An answer of the host's; what was shown of the model's is taken back."""
        self._asker.take_back(all_of_it=True)
        self._said.clear()
        return self._result(notice(text), None)

    def _result(self, final: Draft, usage: Usage | None) -> TurnResult:
        if usage is not None:
            self._asker.entered()
        return TurnResult(
            session_id=self._history.session_id,
            final=final,
            text="\n\n".join([*self._said, text_of(final.message["content"])]),
            usage=usage,
            model_calls=self._asker.calls,
            tool_calls=self._tool_calls,
            compactions=self._asker.compactions,
            total=self._asker.total,
            loaded=self._history.loaded,
            turn_id=self._ticket.turn_id,
        )

    async def _keep(self, drafts: Sequence[Draft], usage: Usage | None = None) -> None:
        appended = await self._store.append(
            self._ticket, self._history.session_id, drafts, anchor_usage=usage
        )
        if usage is not None:
            self._asker.entered()
        self._history.append(appended.rows, usage)
