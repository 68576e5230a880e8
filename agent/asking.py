"""Owns one question to the model within a turn, and every way of making it fit."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from agent.cache_watch import TurnCache
from agent.errors import (
    BlockUnsendable,
    ContextOverflow,
    ModelBadRequest,
    ModelError,
    OutputLimitTooHigh,
    RequestTooLarge,
    StoreError,
    ThinkingMismatch,
)
from agent.history import History, images_left_out, thinking_stripped
from agent.image_tokens import ImageTokens, sample
from agent.llm.images import newest_that_fit
from agent.messages import Entry, Message
from agent.ports import (
    CompactionDecision,
    CompactionResult,
    CompactionTrigger,
    Compactor,
    ContextEdits,
    LanguageModel,
    ModelRequest,
    ModelResponse,
    TurnObserver,
    Usage,
    entry_of,
)
from agent.prompt_caching import CacheTtl
from agent.sessions import RewriteRequest, TurnTicket
from agent.store_ports import SessionStore

MAX_COMPACTIONS = 3
MAX_LOWERED = 3
MIN_OUTPUT_TOKENS = 256
"""If less than this is left for the answer, it is the prompt that is too long."""
BORDER_RATIO = 0.15
"""An estimate so near to the trigger, on either side, may be turned round by a real count."""

log = logging.getLogger(__name__)


class Asker:
    """Asks with what the history holds; keeps what it had to learn until the turn is over."""

    def __init__(
        self,
        *,
        history: History,
        ticket: TurnTicket,
        model: LanguageModel,
        store: SessionStore,
        compactor: Compactor,
        observer: TurnObserver,
        max_tokens: int,
        cache_ttl: CacheTtl | None,
        cache: TurnCache | None = None,
        image_tokens: ImageTokens | None = None,
        edits: ContextEdits | None = None,
    ) -> None:
        self._history = history
        self._ticket = ticket
        self._model = model
        self._store = store
        self._compactor = compactor
        self._observer = observer
        self._max_tokens = max_tokens
        self._ceiling_tokens: int | None = None
        self._cache_ttl = cache_ttl
        self._cache = cache
        self._image_tokens = image_tokens
        self._edits = edits
        self._lowered = 0
        self._counted = False
        self._selects = True
        """An engine may choose what is sent; not any more in this turn, once that was refused."""
        self._own: Sequence[Message] = ()
        """What would be sent if nobody chose."""
        self._thinking_stripped = False
        self._compaction_failed = False
        self._compacted = 0
        """Compressions that this turn had made; what was ready before it is none of them."""
        self._shown = False
        self._sure = ""
        self.calls = 0
        """Answers got so far."""
        self.compactions = 0
        self.total = Usage()
        self._not_entered: Usage | None = None

    async def ask(self, *, continues_pause: bool = False) -> ModelResponse:
        """One complete answer.

        Raises:
            ModelError: Nothing helped.
        """
        await self.enter_unused()
        while True:
            await self._fit_images()
            request = await self._request(continues_pause)
            if self._cache is not None:
                self._cache.sends()
            try:
                response = await self._model.respond(request, on_text=self._show)
            except ModelError as exc:
                if not self._was_the_selection(request, exc):
                    await self._recover(exc)
            else:
                return await self._take_in(request, response)
            self.take_back()
            # What was changed may have ended the pause.
            continues_pause = continues_pause and self._ends_with_assistant()

    def entered(self) -> None:
        """The last answer becomes a message: the ledger has its usage from there."""
        self._not_entered = None

    async def enter_unused(self) -> None:
        """Enter the last answer in the ledger if no message came of it; it was paid for as well."""
        usage, self._not_entered = self._not_entered, None
        if usage is None:
            return
        entry = entry_of(usage, "turn", self._ticket.conversation_id)
        try:
            await self._store.enter_request(entry)
        except StoreError:
            log.warning("An answer is missing in the ledger", exc_info=True)

    def take_back(self, *, all_of_it: bool = False) -> None:
        """What was shown so far is not the answer, except what is sure to be part of it."""
        if all_of_it:
            self._sure = ""
        if self._shown:
            self._show("")

    def keep_shown(self, text: str) -> None:
        """This text, shown last, is part of the answer whatever comes; more of it follows."""
        self._sure += text + "\n\n"
        if self._shown:
            self._observer.on_text("\n\n")

    async def compact_if_due(self, trigger: CompactionTrigger) -> None:
        """Compress before the next call, if it is time; a failure is no obstacle to asking."""
        if self._compaction_failed or self._compacted >= MAX_COMPACTIONS:
            return
        decision = self._compactor.due(self._history.loaded)
        if self._is_borderline(decision):
            await self._count_exactly()
            decision = self._compactor.due(self._history.loaded)
        if decision.ask:
            await self._let_it_decide(trigger)
            due = self._compactor.due(self._history.loaded)
            decision = replace(due, due=False)
        if decision.due:
            self._compaction_failed = not await self._compact(trigger, proven=False)
        elif decision.prune and trigger == "loop":
            pruned = await self._compactor.compact(self._history.loaded, "prune")
            self._history.replace(pruned.loaded)

    async def _let_it_decide(self, trigger: CompactionTrigger) -> None:
        """Somebody else's engine is asked; before a turn's first question until it is content."""
        passes = MAX_COMPACTIONS if trigger == "preflight" else 1
        for _ in range(passes):
            if self._compacted >= MAX_COMPACTIONS:
                return
            result = await self._compacted_by(trigger, proven=False)
            if result.outcome == "aborted":
                self._compaction_failed = True
            if result.outcome != "compressed":
                return

    async def make_room(self) -> bool:
        """The model stopped because the window is full: compress. False: it did not help."""
        self.take_back()
        if self._compacted >= MAX_COMPACTIONS:
            return False
        return await self._compact("overflow", proven=True)

    def raise_budget(self) -> bool:
        """Twice the room for the answer; False if the provider has said that there is no more."""
        wanted = self._max_tokens * 2
        if self._ceiling_tokens is not None:
            wanted = min(wanted, self._ceiling_tokens)
        if wanted <= self._max_tokens:
            return False
        self._max_tokens = wanted
        return True

    # --- recoveries: each returns when it is worth asking again, and raises when it is not

    async def _recover(self, error: ModelError) -> None:
        match error:
            case ContextOverflow():
                await self._overflowed(error)
            case OutputLimitTooHigh():
                await self._lower_budget(error)
            case RequestTooLarge():
                await self._drop_images(error)
            case ThinkingMismatch():
                await self._strip_thinking(error)
            case BlockUnsendable():
                await self._overflowed(error)  # there is no way on with this list: it is made anew
            case _:
                raise error

    def _was_the_selection(self, request: ModelRequest, error: ModelError) -> bool:
        """Was it a request that an engine chose, and refused for what it says? Then no more."""
        chosen = self._selects and request.messages is not self._own
        if not chosen or isinstance(error, OutputLimitTooHigh):
            return False
        if not isinstance(error, ModelBadRequest):
            return False
        self._selects = False
        log.warning("A request that the context engine chose was refused", exc_info=error)
        return True

    async def _overflowed(self, error: ModelError, limit_tokens: int | None = None) -> None:
        if isinstance(error, ContextOverflow):
            limit_tokens = error.limit_tokens
        if limit_tokens is not None:
            self._compactor.note_limit(limit_tokens)
        if self._compacted >= MAX_COMPACTIONS or not await self._compact("overflow", proven=True):
            raise error

    async def _lower_budget(self, error: OutputLimitTooHigh) -> None:
        """The answer may not be so long: that says nothing about the prompt."""
        limit = error.limit_tokens
        if limit is None or limit >= self._max_tokens:
            limit = self._max_tokens // 2
        self._lowered += 1
        if self._lowered > MAX_LOWERED:
            raise error
        if limit < MIN_OUTPUT_TOKENS:
            await self._overflowed(error)
            return
        self._max_tokens = self._ceiling_tokens = limit

    async def _drop_images(self, error: RequestTooLarge) -> None:
        """First all but the newest image, then that one too, then the history shrinks."""
        images = len(self._history.pictures)
        if images == 0:
            await self._overflowed(error)
        else:
            await self._leave_out_images(keep=1 if images > 1 else 0)

    async def _fit_images(self) -> None:
        """Pictures that one request can not carry go for good, so that its beginning stays."""
        keep = newest_that_fit(self._history.pictures)
        if keep is not None:
            await self._leave_out_images(keep)

    async def _leave_out_images(self, keep: int) -> None:
        entries = images_left_out(self._history.loaded.rows, keep)
        if entries is not None:
            log.info("Images left out", extra={"session_id": self._history.session_id})
            await self._rewrite(entries)

    async def _strip_thinking(self, error: ThinkingMismatch) -> None:
        """The prefix is another one than that which the thinking was made behind.

        It will not fit ever again, so it is taken out of the stored list, once.
        """
        loaded = self._history.loaded
        entries = thinking_stripped(loaded.rows)
        if self._thinking_stripped or entries is None:
            raise error
        self._thinking_stripped = True
        log.warning("Thinking no longer fits its prefix", extra={"session_id": loaded.session.id})
        await self._rewrite(entries)

    async def _rewrite(self, entries: Sequence[Entry]) -> None:
        """Store another list in the place of this one: one revision, and go on with that."""
        loaded = self._history.loaded
        result = await self._store.rewrite(
            RewriteRequest(
                session_id=loaded.session.id,
                expected_revision=loaded.session.revision,
                covered_row_id=loaded.last_row_id,
                entries=tuple(entries),
            )
        )
        self._history.replace(await self._store.load(result.tip.id, ticket=self._ticket))

    # --- steps

    async def _compact(self, trigger: CompactionTrigger, *, proven: bool) -> bool:
        before = self._history.loaded.session
        after = (await self._compacted_by(trigger, proven=proven)).loaded.session
        # Somebody else may have been first: then it is their result that is tried.
        return (before.id, before.revision) != (after.id, after.revision)

    async def _compacted_by(self, trigger: CompactionTrigger, *, proven: bool) -> CompactionResult:
        before = self._history.loaded.session
        result = await self._compactor.compact(
            self._history.loaded,
            trigger,
            overflow_proven=proven,
            notify=self._observer.on_notice,
        )
        self._history.replace(result.loaded)
        after = result.loaded.session
        if (before.id, before.revision) != (after.id, after.revision):
            self.compactions += 1
            self._compacted += not result.prepared
        return result

    def _is_borderline(self, decision: CompactionDecision) -> bool:
        """Could a real count turn this decision round? Asked once in a turn at most."""
        session = self._history.loaded.session
        measured = session.anchor is not None or session.compression.awaiting_usage
        threshold = decision.threshold_tokens
        if self._counted or measured or decision.reason or threshold <= 0:
            return False
        return abs(decision.tokens - threshold) <= BORDER_RATIO * threshold

    async def _count_exactly(self) -> None:
        """Have the provider count the prompt; where it can not, the estimate stands."""
        self._counted = True
        tokens = await self._model.count_tokens(await self._request(continues_pause=False))
        if tokens is not None and tokens > 0:
            self._history.measured(tokens)

    async def _take_in(self, request: ModelRequest, response: ModelResponse) -> ModelResponse:
        """What an answer's usage tells; the answer with all of it."""
        self.calls += 1
        usage = response.usage
        loaded = self._history.loaded
        if usage is None:
            await self._compactor.note_usage(loaded, None)
            return response
        usage = replace(usage, model=usage.model or response.model)
        if self._cache is not None:
            cause = self._cache.answered(request, loaded.session, usage, response)
            usage = replace(usage, cache_miss=cause)
        if request.cache_ttl == "1h":  # one life for all that a request writes
            usage = replace(usage, cache_write_1h_tokens=usage.cache_write_tokens)
        self._not_entered = usage
        self._learn_image_tokens(response, usage)
        self.total = replace(
            self.total,
            input_tokens=self.total.input_tokens + usage.input_tokens,
            output_tokens=self.total.output_tokens + usage.output_tokens,
            cache_read_tokens=self.total.cache_read_tokens + usage.cache_read_tokens,
            cache_write_tokens=self.total.cache_write_tokens + usage.cache_write_tokens,
        )
        self._history.replace(
            await self._compactor.note_usage(loaded, usage, notify=self._observer.on_notice)
        )
        return replace(response, usage=usage)

    def _learn_image_tokens(self, response: ModelResponse, usage: Usage) -> None:
        loaded = self._history.loaded
        model = loaded.session.prefix.model
        if self._image_tokens is None or response.dropped_thinking:
            return
        if usage.model.startswith(model):  # not what a fallback makes of a picture
            self._image_tokens.learn(model, sample(loaded, usage.prompt_tokens))

    async def _request(self, continues_pause: bool) -> ModelRequest:
        loaded = self._history.loaded
        session = loaded.session
        messages = self._own = self._history.to_send()
        if self._selects and not continues_pause:
            messages = await self._compactor.select(
                loaded, messages, answer_tokens=self._max_tokens
            )
        prefix = session.prefix
        before = ""
        if self._cache is not None:
            before = self._cache.answer_before(session.conversation_id)
        return ModelRequest(
            system=prefix.system_prompt,
            messages=messages,
            max_tokens=self._max_tokens,
            tools=prefix.tools,
            cache_ttl=self._cache_ttl,
            continues_pause=continues_pause,
            edits=self._edits,
            previous_answer_id=before,
        )

    def _ends_with_assistant(self) -> bool:
        rows = self._history.loaded.rows
        return bool(rows) and rows[-1].message["role"] == "assistant"

    def _show(self, delta: str) -> None:
        self._observer.on_text(delta)
        if not delta and self._sure:
            self._observer.on_text(delta := self._sure)
        self._shown = delta != ""
