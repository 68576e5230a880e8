"""Owns what a memory provider of others hears and brings, turn by turn: one for a conversation."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from agent.compaction.host.foreign_lists import as_text
from agent.context_engine import sanitize_memory_context
from agent.daemon_threads import DaemonThreads
from agent.errors import StoreError, ToolError
from agent.memory.desk import Action
from agent.memory.notes import Note
from agent.memory.provider_host import ProviderHost, ProviderTrouble
from agent.memory.provider_words import ABOUT, NAME, as_given, known_at_start, shows_block
from agent.memory.unheard import Unheard
from agent.memory_provider import MemoryProvider
from agent.messages import Message, Row
from agent.ports import Clock
from agent.turn_companions import Boundary, History, TurnFacts

log = logging.getLogger(__name__)

PREFETCH_SECONDS = 3.0
"""So long a message waits for what its provider brings, whatever it does."""
START_SECONDS = 30.0
REST_SECONDS = 600.0
"""After one that could not be made or started."""
COMPRESS_SECONDS = 8.0
TOOL_SECONDS = 110.0
CLOSE_SECONDS = 5.0
MAX_AWAKE = 128
_REASONS = {"resume": "resume", "branch": "branch", "reset": "new_session", "undo": "undo"}

Make = Callable[[], Awaitable[MemoryProvider | None]]
RowsOf = Callable[[str], Awaitable[list[Row]]]
"""The list of a session, also of one that has ended."""


@dataclass(slots=True, eq=False)
class _Awake:
    """The provider of one conversation."""

    host: ProviderHost
    session_id: str
    turns: int = 0
    told_about: str = ""
    """The session that its block was brought into."""


class ProviderCompanion:
    """`agent.turn_companions.TurnCompanion` for an external provider."""

    name = NAME
    needs_session = True

    def __init__(
        self,
        provider_name: str,
        make: Make,
        clock: Clock,
        *,
        rows_of: RowsOf,
        hermes_home: str,
        identity: str,
    ) -> None:
        """``make`` gives an instance of its own; None: there is none to be had."""
        self._provider_name = provider_name
        self._rows_of = rows_of
        self._make = make
        self._clock = clock
        self._hermes_home, self._identity = hermes_home, identity
        self._threads = DaemonThreads(MAX_AWAKE, name="memory provider")
        self._starting: dict[str, asyncio.Task[_Awake | None]] = {}
        self._awake: OrderedDict[str, _Awake] = OrderedDict()
        self._resting: dict[str, float] = {}
        """Until when it is not started in a conversation again."""
        self._unheard, self._lost = Unheard(), 0

    @property
    def lost(self) -> int:
        """Calls that could not be made, since the start."""
        return self._lost + self._unheard.lost + sum(a.host.lost for a in self._awake.values())

    # --- around a turn

    async def before(self, facts: TurnFacts, history: History) -> str:
        """Its block, where the session does not show it yet, and what it finds; in time or not."""
        looking = asyncio.ensure_future(self._brought(facts, history))
        deadline = asyncio.ensure_future(self._clock.sleep(PREFETCH_SECONDS))
        try:
            await asyncio.wait({looking, deadline}, return_when=asyncio.FIRST_COMPLETED)
            if not looking.done():
                log.warning("memory brought nothing in time", extra=self._extra)
                return ""
            return looking.result()
        except ProviderTrouble:
            return ""
        finally:
            deadline.cancel()
            looking.cancel()

    async def _brought(self, facts: TurnFacts, history: History) -> str:
        awake = await self._of(facts)
        if awake is None:
            return ""
        host = awake.host
        await self._moved_on(awake, facts.session_id)
        if facts.is_retry:
            self._switched(awake, facts.session_id, reason="retry", rewound=True)
        awake.turns += 1
        host.tell(
            "on_turn_start", awake.turns, facts.user_text,
            model=facts.model, platform=facts.platform, session_id=facts.session_id,
        )  # fmt: skip
        block = await self._block(awake, facts, history)
        found = ""
        if host.has("prefetch"):
            found = await host.ask(
                "prefetch", facts.user_text, session_id=facts.session_id, seconds=PREFETCH_SECONDS
            )
        found = sanitize_memory_context(found) if isinstance(found, str) else ""
        return "\n\n".join(filter(None, (block, found.strip())))

    async def _moved_on(self, awake: _Awake, session_id: str) -> None:
        """Since its last call the conversation may have been compressed: that session is over."""
        if awake.session_id == session_id:
            return
        held: list[Row] = []
        if awake.host.has("on_session_end"):
            try:
                held = await self._rows_of(awake.session_id)
            except StoreError:
                log.warning("memory was not told what a session held", exc_info=True)
        # Whoever stops waiting has told nothing yet: the next call begins here again.
        old, awake.session_id = awake.session_id, session_id
        if held:
            awake.host.tell("on_session_end", as_given(held))
        self._switched(awake, old, reason="compression")

    @staticmethod
    def _switched(
        awake: _Awake, old: str, *, reason: str, reset: bool = False, rewound: bool = False
    ) -> None:
        awake.host.tell(
            "on_session_switch", awake.session_id,
            parent_session_id=old, reset=reset, rewound=rewound, reason=reason,
        )  # fmt: skip

    async def _block(self, awake: _Awake, facts: TurnFacts, history: History) -> str:
        if awake.told_about == facts.session_id or not awake.host.has("system_prompt_block"):
            return ""
        if not facts.is_first_turn and shows_block(await history()):
            awake.told_about = facts.session_id
            return ""
        block = await awake.host.ask("system_prompt_block", seconds=PREFETCH_SECONDS)
        awake.told_about = facts.session_id
        text = sanitize_memory_context(block).strip() if isinstance(block, str) else ""
        return f"{ABOUT}{text}" if text else ""

    async def after(
        self,
        facts: TurnFacts,
        answer: str,
        history: History,
        *,
        completed: bool,
        interrupted: bool,
    ) -> None:
        """What was said and answered, for it to keep."""
        awake = self._awake.get(facts.conversation_id)
        if awake is None or not completed:
            return
        await self._moved_on(awake, facts.session_id)
        keywords: dict[str, Any] = {"session_id": facts.session_id}
        if awake.host.has("sync_turn") and awake.host.takes("sync_turn", "messages"):
            keywords["messages"] = as_given(await history())
        awake.host.tell("sync_turn", facts.user_text, answer, **keywords)
        awake.host.tell("queue_prefetch", facts.user_text, session_id=facts.session_id)

    # --- around a conversation

    async def crossed(self, boundary: Boundary, history: History) -> None:
        """It goes along where its place is led."""
        awake = self._awake.get(boundary.old_conversation_id)
        if awake is None:
            self._unheard.moved(boundary.old_conversation_id, boundary.new_conversation_id)
            return
        if boundary.reason == "reset" and awake.host.has("on_session_end"):
            awake.host.tell("on_session_end", as_given(await history()))
        if boundary.new_conversation_id != boundary.old_conversation_id:
            if boundary.new_conversation_id in self._awake:
                return  # that conversation has one of its own
            self._awake[boundary.new_conversation_id] = self._awake.pop(
                boundary.old_conversation_id
            )
        old, awake.session_id = awake.session_id, boundary.new_session_id
        self._switched(
            awake,
            old,
            reason=_REASONS[boundary.reason],
            reset=boundary.reason == "reset",
            rewound=boundary.reason == "undo",
        )

    async def to_keep(self, conversation_id: str, messages: list[Message]) -> str:
        """What a summary of these messages shall keep (`on_pre_compress`)."""
        awake = self._awake.get(conversation_id)
        if awake is None or not awake.host.has("on_pre_compress"):
            return ""
        given = [dict(message) for message in messages]
        try:
            text = await awake.host.ask("on_pre_compress", given, seconds=COMPRESS_SECONDS)
        except ProviderTrouble:
            return ""
        return text if isinstance(text, str) else ""

    def written(self, action: Action, conversation_id: str, note: Note) -> None:
        """As `agent.memory.desk.Mirror`: our notes are told to it as well."""
        awake = self._awake.get(conversation_id)
        if awake is None:
            self._unheard.keep(conversation_id, (action, note))
        else:
            self._mirror(awake, action, note)

    @staticmethod
    def _mirror(awake: _Awake, action: Action, note: Note) -> None:
        about = {"note": note.id, "owner": note.owner, "session_id": awake.session_id}
        awake.host.tell("on_memory_write", action, "memory", note.text, metadata=about)

    async def call_tool(self, conversation_id: str, name: str, arguments: Mapping[str, Any]) -> str:
        """Run one of its tools.

        Raises:
            ToolError: it is not awake, failed or was late.
        """
        awake = self._awake.get(conversation_id)
        if awake is None:
            raise ToolError("the memory is not available at the moment; go on without it")
        try:
            text: str = await awake.host.ask(
                "handle_tool_call", name, dict(arguments), seconds=TOOL_SECONDS, then=as_text
            )
        except ProviderTrouble as trouble:
            raise ToolError(str(trouble)) from trouble
        return text

    async def forget(self, conversation_ids: Collection[str]) -> None:
        """What was said there is erased: its instances go, and what they were not told yet."""
        hosts = []
        for conversation_id in conversation_ids:
            self._unheard.take(conversation_id)
            if (task := self._starting.get(conversation_id)) is not None:
                task.cancel()
            if (awake := self._awake.pop(conversation_id, None)) is not None:
                awake.host.unsay()
                awake.host.tell("shutdown")
                self._lost += awake.host.lost
                hosts.append(awake.host)
        await asyncio.gather(*(host.quiet(CLOSE_SECONDS) for host in hosts))
        for host in hosts:
            host.drop()

    async def close(self) -> None:
        """The daemon goes down: each may finish what is queued, all in the same few seconds."""
        for task in self._starting.values():
            task.cancel()
        hosts = [awake.host for awake in self._awake.values()]
        for host in hosts:
            host.tell("shutdown")
        done = await asyncio.gather(*(host.quiet(CLOSE_SECONDS) for host in hosts))
        if not all(done):
            log.error("memory is not quiet", extra={**self._extra, "late": done.count(False)})
        for host in hosts:
            host.drop()

    # --- waking

    async def _of(self, facts: TurnFacts) -> _Awake | None:
        """The conversation's provider, made and started if it is missing."""
        conversation_id = facts.conversation_id
        awake = self._awake.get(conversation_id)
        if awake is not None:
            self._awake.move_to_end(conversation_id)
            return awake
        now = self._clock.monotonic()
        if conversation_id in self._starting or self._resting.get(conversation_id, now) > now:
            return None  # one message has waited for it in vain: that is enough
        starting = asyncio.get_running_loop().create_task(self._start(facts))
        self._starting[conversation_id] = starting
        starting.add_done_callback(lambda _: self._starting.pop(conversation_id, None))
        # A message that does not wait any more does not end what the next one will need.
        return await asyncio.shield(starting)

    async def _start(self, facts: TurnFacts) -> _Awake | None:
        provider = await self._make()
        if provider is None:
            self._rest(facts.conversation_id)
            return None
        host = ProviderHost(provider, self._provider_name, self._threads, self._clock)
        try:
            await host.ask(
                "initialize",
                facts.session_id,
                **known_at_start(facts, self._hermes_home, self._identity),
                seconds=START_SECONDS,
            )
        except ProviderTrouble:
            log.exception("memory did not start", extra=self._extra)
            self._rest(facts.conversation_id)
            return None
        awake = self._awake[facts.conversation_id] = _Awake(host, facts.session_id)
        for action, note in self._unheard.take(facts.conversation_id):
            self._mirror(awake, action, note)
        while len(self._awake) > MAX_AWAKE:
            _, longest_unused = self._awake.popitem(last=False)
            self._lost += longest_unused.host.lost
            longest_unused.host.tell("shutdown")
        return awake

    def _rest(self, conversation_id: str) -> None:
        """Each try may cost a thread, which nobody gets back."""
        self._resting[conversation_id] = self._clock.monotonic() + REST_SECONDS
        while len(self._resting) > MAX_AWAKE:
            del self._resting[next(iter(self._resting))]

    @property
    def _extra(self) -> dict[str, str]:
        return {"provider": self._provider_name}
