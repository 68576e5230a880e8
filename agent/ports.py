"""Owns the Protocols that the core needs from outside; storage and gateway implement them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from agent.approvals import Approver
from agent.ledger import Purpose, RequestEntry
from agent.messages import Draft, Message, Part, Row, ToolSchema
from agent.sessions import (
    LoadedSession,
    TurnTicket,
)


class Clock(Protocol):
    """Time. Tests move it."""

    def now(self) -> float:
        """Unix seconds; may jump either way."""
        ...

    def monotonic(self) -> float:
        """Seconds since some point; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; returns at once for zero or less."""
        ...


class IdSource(Protocol):
    """Ids."""

    def new(self, prefix: str) -> str:
        """A new id ``prefix_…`` of ``[a-zA-Z0-9_]``, at most 32 characters, never made before."""
        ...


# --- the model ----------------------------------------------------------------------------------

StopReason = str
"""``end_turn, max_tokens, stop_sequence, tool_use, pause_turn, refusal,
model_context_window_exceeded``, or one that nobody knows yet."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a response took, in tokens."""

    input_tokens: int = 0
    """Without the cached part."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    model: str = ""
    """Who answered."""
    cache_miss: str = ""
    """Why the prefix was not found in the cache although it should have been; "": it was, or
    nothing is known."""
    cache_write_1h_tokens: int = 0
    """That part of ``cache_write_tokens`` that is kept for an hour."""

    @property
    def prompt_tokens(self) -> int:
        """Prompt size: everything that was read, cached or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens


def entry_of(usage: Usage, purpose: Purpose, conversation_id: str | None) -> RequestEntry:
    """An answer's usage as an entry of the ledger, for whoever is to be charged there."""
    return RequestEntry(
        purpose,
        usage.model,
        conversation_id,
        None,
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.cache_write_1h_tokens,
        usage.cache_miss,
    )


@dataclass(frozen=True, slots=True)
class ContextEdits:
    """What a provider may clear from a long prompt, on its side; our list keeps all of it."""

    trigger_tokens: int
    """Prompt size from which on tool results are cleared."""
    clear_at_least_tokens: int
    """Less is not worth the cached prefix that it breaks."""
    keep_tool_uses: int
    """The newest ones stay."""
    keep_thinking_turns: int = 1
    exclude_tools: tuple[str, ...] = ()
    """Tools whose results stay."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call. Messages are OpenAI-shaped, as sent, without a system message."""

    system: str
    messages: Sequence[Message]
    max_tokens: int
    tools: Sequence[ToolSchema] = ()
    cache_ttl: Literal["5m", "1h"] | None = None
    """None: no cache marks."""
    model: str | None = None
    """Another model of the same provider; None: the configured one."""
    continues_pause: bool = False
    """The list ends with an assistant message that a ``pause_turn`` interrupted."""
    side_task: bool = False
    """Not the conversation itself: asked without the thinking that is configured for it."""
    edits: ContextEdits | None = None
    """What the provider may leave out of a long prompt by itself; None: nothing."""
    purpose: Purpose = "turn"
    """What it is for, in the ledger and the metrics; changes nothing in what is sent."""
    previous_answer_id: str = ""
    """The provider's name of the conversation's last answer: what the cache is compared with."""


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """A complete answer. ``message`` is the assistant message, raw blocks beside it."""

    message: Message
    stop_reason: StopReason
    usage: Usage | None
    model: str
    dropped_thinking: int = 0
    """Thinking blocks that the provider said it dropped."""
    answer_id: str = ""
    """The provider's name of this answer."""
    cleared_tokens: int = 0
    """What the provider left out of the prompt, by `ModelRequest.edits`."""
    block_left_out: bool = False
    """The provider's own summary was refused; its text was sent in its place."""
    cache_diagnosis: str = ""
    """What the provider says has changed before the cached part: ``model``, ``system``, ``tools``
    or ``messages``; "": nothing, or it does not say."""


class LanguageModel(Protocol):
    """A model behind its provider's wire. Retries nothing by itself unless it says so."""

    @property
    def name(self) -> str:
        """The model's name, as configured."""
        ...

    async def respond(
        self, request: ModelRequest, *, on_text: Callable[[str], None] | None = None
    ) -> ModelResponse:
        """Ask once and give back the complete answer.

        ``on_text`` is called with each piece of visible text as it arrives, and with ``""`` when
        what was shown so far is void because the request is sent again.

        Raises:
            ModelError: the matching class of `agent.errors`. An answer without its end mark, an
                in-band error event and a broken connection are errors, never an answer.
        """
        ...

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """The exact prompt size by the provider, or None if it can not tell."""
        ...

    async def window_tokens(self) -> int | None:
        """The context length by the provider, or None if it can not tell."""
        ...

    async def aclose(self) -> None:
        """Let go of connections. May be called twice."""
        ...


@dataclass(frozen=True, slots=True)
class NativeSummary:
    """A summary that the provider wrote itself, to be sent back in place of what it read."""

    block: dict[str, Any]
    """As it came."""
    text: str
    """What of it can be read; "": nothing."""
    maker: str
    """Who alone reads the block (`agent.native_block.maker_of`)."""
    usage: Usage | None
    model: str


@runtime_checkable
class CompactingModel(Protocol):
    """A model whose provider compacts a conversation by itself, when it is asked to."""

    async def compact(self, request: ModelRequest, *, instructions: str = "") -> NativeSummary:
        """Have everything in the request's messages summarised.

        Raises:
            CompactionRefused: it did not work; the code says why.
            ModelError: as `LanguageModel.respond`.
        """
        ...


@runtime_checkable
class LoadableModel(Protocol):
    """A model that can do ahead of time what its first answer would wait for."""

    async def load(self) -> None:
        """Do it, in threads; asks nobody. May be called twice.

        Raises:
            ModelError: it can not be asked at all, as the first request would say.
        """
        ...


class SideModel(Protocol):
    """The model for side tasks (summaries, plugins), called from worker threads only."""

    def complete(
        self,
        *,
        system: str,
        prompt: str,
        max_tokens: int,
        timeout_seconds: float,
        model: str | None = None,
    ) -> ModelResponse:
        """Ask without tools, thinking or cache marks, and wait for the complete answer.

        Raises:
            ModelError: as `LanguageModel.respond`, after the retry policy gave up.
        """
        ...


# --- tools --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Where a call happens. ``conversation_id`` is stable; sessions are not named."""

    conversation_id: str
    owner: str
    direct_chat: bool
    turn_id: str
    user_row_id: int = 0
    """The message that this turn answers; 0: unknown. Looking back means: before this one."""
    for_person: bool = True
    """Somebody waits for the answer and will think about it; False: a job's turn."""
    place: str = ""
    """Whose lasting things may be seen here: in a direct chat the person's (``owner``), elsewhere
    those of this one place (its session key). "": nobody's."""
    messages: Callable[[], Sequence[Message]] | None = None
    """The list as it is at this moment, the call in it; None: nobody knows."""
    approver: Approver | None = None
    """Whom to ask before something is done that needs a person's word; None: nobody."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the model reads. The registry caps it."""

    text: str
    is_error: bool = False
    pictures: tuple[Part, ...] = ()
    """Shown behind the text (`agent.attachments.picture_part`)."""
    files: tuple[str, ...] = ()
    """Kept files that go out with the answer (`agent.attachments.StoredFile.name`)."""


class Tool(Protocol):
    """Something the model can call."""

    @property
    def schema(self) -> ToolSchema:
        """Constant for the life of the process."""
        ...

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Do it.

        Raises:
            ToolError: with a text for the model. Anything else is a bug and becomes a plain
                "failed" for the model and a stack trace in the log.
            asyncio.CancelledError: the user said stop; let it pass.
        """
        ...


@runtime_checkable
class PatientTool(Tool, Protocol):
    """A tool with a deadline of its own, because it waits for a person or for slow work."""

    @property
    def deadline_seconds(self) -> float | None:
        """In place of the registry's; None: it sees to its end itself."""
        ...


@runtime_checkable
class OrderedTool(Tool, Protocol):
    """A tool that changes something which the next call finds changed."""

    @property
    def in_order(self) -> str:
        """What it changes: calls of one answer with the same here go one after the other.

        In the order in which they were made. All others run side by side.
        """
        ...


class TurnObserver(Protocol):
    """Sees a turn happen. All calls are made on the event loop, return at once, never raise."""

    def on_text(self, delta: str) -> None:
        """More visible text of the answer; ``""``: what was shown so far is void."""
        ...

    def on_tool(self, name: str) -> None:
        """A tool is about to run."""
        ...

    def on_notice(self, text: str) -> None:
        """Something that the user should read (never part of the model's messages)."""
        ...

    def on_file(self, name: str) -> None:
        """A kept file that the user should get with the answer; maybe one that was said before."""
        ...


class Steering(Protocol):
    """What people say while a turn runs, for the turn to ask between two of its steps."""

    async def take_in(self, ticket: TurnTicket, session_id: str) -> Sequence[Row]:
        """Their words, stored behind the list as part of this turn, in order; mostly none.

        To be asked when every call of the list is answered.

        Raises:
            StaleTurn: The turn is over.
            SessionEnded: Somebody else moved the tip.
        """
        ...


# --- compaction ---------------------------------------------------------------------------------

CompactionTrigger = Literal[
    "preflight", "loop", "overflow", "hygiene", "manual", "ahead", "expired", "prune"
]
"""``ahead``: made before it is due, for later. ``expired``: only what is prepared, because the
provider has forgotten the prompt anyway. ``prune``: only old tool results become shorter."""
CompactionOutcome = Literal["not_needed", "compressed", "aborted"]


@dataclass(frozen=True, slots=True)
class CompactionDecision:
    """Should the loop compress before its next model call?"""

    due: bool
    tokens: int = 0
    """What the decision rests on: measured where there is an anchor, else estimated."""
    threshold_tokens: int = 0
    reason: str = ""
    """In words, for the log and the user."""
    prune: bool = False
    """It is not due, but old tool results may be shortened (trigger ``prune``)."""
    ask: bool = False
    """Somebody else's engine decides, whatever the size: `Compactor.compact` asks it."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What came of it. ``loaded`` is where the turn goes on, whatever the outcome."""

    outcome: CompactionOutcome
    loaded: LoadedSession
    tokens_before: int = 0
    tokens_after: int = 0
    """An estimate; the size is only known at the next usage."""
    reason: str = ""
    prepared: bool = False
    """It was made ahead of time: it counts against no limit on what one turn may ask for."""


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a turn came to its normal end."""

    turn_id: str
    usage: Usage | None
    """Of its last response."""
    model_calls: int = 0


class Compactor(Protocol):
    """Keeps the sessions of one conversation inside the window; owns engine and state."""

    def due(self, loaded: LoadedSession) -> CompactionDecision:
        """Cheap: called before every model call."""
        ...

    async def compact(
        self,
        loaded: LoadedSession,
        trigger: CompactionTrigger,
        *,
        focus: str | None = None,
        overflow_proven: bool = False,
        notify: Callable[[str], None] | None = None,
    ) -> CompactionResult:
        """Compress and split (or rewrite); never raises for a failure of model or engine.

        ``overflow_proven``: the provider has said that the prompt does not fit.
        """
        ...

    async def note_usage(
        self,
        loaded: LoadedSession,
        usage: Usage | None,
        *,
        notify: Callable[[str], None] | None = None,
    ) -> LoadedSession:
        """Take in a real prompt size (anti-thrash, pressure); gives back the session as it is now.

        Called for every response, before its message is stored; None: it carried none. ``notify``
        gets the pressure warning, when there is one to give.
        """
        ...

    async def select(
        self, loaded: LoadedSession, messages: Sequence[Message], *, answer_tokens: int
    ) -> Sequence[Message]:
        """What is sent with the next request; the same object where nothing is to be changed.

        Only engines of others choose. Nothing of it is stored. Never raises.

        Args:
            loaded: The list.
            messages: It, as it would be sent.
            answer_tokens: The room that the answer needs in the window.
        """
        ...

    async def after_turn(
        self, seen: LoadedSession, final: Draft, end: TurnEnd | None = None
    ) -> None:
        """A turn has come to its normal end.

        Micro-compaction, where it is on and something is due; an engine of others is told. For a
        task in the background. A message that comes meanwhile is not held up by it.

        Args:
            seen: The list as the turn knew it, before its answer.
            final: The answer.
            end: What is known of the turn.
        """
        ...

    def note_limit(self, limit_tokens: int) -> None:
        """The provider named its window; only ever lowers the one in use."""
        ...
