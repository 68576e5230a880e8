"""Owns why a prompt was not read from the provider's cache: the last request against this one."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from agent.messages import Message
from agent.ports import Clock, ModelRequest, ModelResponse, Usage
from agent.prompt_caching import TTL_SECONDS, min_cacheable_tokens
from agent.sessions import Session

log = logging.getLogger(__name__)

MAX_CONVERSATIONS = 512
HIT_RATIO = 0.9
"""So much of what the last request left in the cache has to be read for a hit."""

CacheMiss = Literal[
    "",
    "first",
    "model",
    "system",
    "tools",
    "revision",
    "messages",
    "expired",
    "short",
    "native edit",
    "provider",
]
"""Why the prefix was not read. ``""``: it was. ``first``: nothing is known of an earlier request (a
new conversation, or a restart). ``revision``: a compression or a rewrite. ``messages``: the list
changed within a revision, which is a bug of ours. ``expired``: idle for longer than the entry
lives. ``short``: below the provider's minimum. ``native edit``: the provider cleared parts of the
prompt, as it was asked to. ``provider``: no cause of ours."""


_DIAGNOSES: Mapping[str, CacheMiss] = {
    "model": "model",
    "system": "system",
    "tools": "tools",
    "messages": "messages",
}


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A request, as far as it decides what the cache finds. Of fixed size, whatever the length."""

    session_id: str
    revision: int
    model: str
    """Who answered: a fallback has a cache of its own."""
    system: int
    tools: int
    messages: int
    """How many there were."""
    chain: int
    """A hash over all of them, in order."""
    ttl_seconds: float
    sent_at: float
    """By the monotonic clock."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """What the provider held of it afterwards."""
    answer_id: str = ""


def fingerprint(
    request: ModelRequest, session: Session, model: str, now: float, chain: int
) -> Fingerprint:
    """What is remembered of a request. Hashes hold for the life of this process only."""
    return Fingerprint(
        session_id=session.id,
        revision=session.revision,
        model=model,
        system=hash(request.system),
        tools=hash(tuple((t.name, t.description, _frozen(t.parameters)) for t in request.tools)),
        messages=len(request.messages),
        chain=chain,
        ttl_seconds=TTL_SECONDS[request.cache_ttl or "5m"],
        sent_at=now,
    )


def miss_cause(
    last: Fingerprint | None, now: Fingerprint, messages: Sequence[Message], usage: Usage
) -> CacheMiss:
    """Why the prefix that ``last`` left in the cache was not read by ``now``.

    Args:
        last: The request before, in this conversation; None: unknown.
        now: This request.
        messages: Its messages, of which the older ones are compared.
        usage: What its answer took.
    """
    if last is None:
        return "" if usage.cache_read_tokens else "first"
    if usage.cache_read_tokens and usage.cache_read_tokens >= HIT_RATIO * last.cached_tokens:
        return ""
    if now.model != last.model:
        return "model"
    if now.system != last.system:
        return "system"
    if now.tools != last.tools:
        return "tools"
    if (now.session_id, now.revision) != (last.session_id, last.revision):
        return "revision"
    if now.messages < last.messages or Chain().over(messages[: last.messages]) != last.chain:
        return "messages"
    if now.sent_at - last.sent_at >= last.ttl_seconds:
        return "expired"
    if last.prompt_tokens < min_cacheable_tokens(last.model):
        return "short"
    return "provider"


class CacheWatch:
    """Remembers the last request of each conversation that was busy lately."""

    def __init__(
        self,
        clock: Clock,
        *,
        max_conversations: int = MAX_CONVERSATIONS,
        on_miss: Callable[[str], None] = lambda cause: None,
    ) -> None:
        """``on_miss``: told of the cause of each."""
        self._clock = clock
        self._on_miss = on_miss
        self._max = max_conversations
        self._last: OrderedDict[str, Fingerprint] = OrderedDict()

    def turn(self) -> TurnCache:
        """The watch over the requests of one turn."""
        return TurnCache(self, self._clock)

    def answer_before(self, conversation_id: str) -> str:
        """The provider's name of the conversation's last answer; "": unknown."""
        last = self._last.get(conversation_id)
        return last.answer_id if last is not None else ""

    def answered(
        self,
        request: ModelRequest,
        session: Session,
        usage: Usage,
        response: ModelResponse,
        sent_at: float,
        chain: int,
    ) -> CacheMiss:
        """Take in an answer; why its prompt was not read from the cache."""
        if request.cache_ttl is None:
            return ""
        now = fingerprint(request, session, usage.model, sent_at, chain)
        last = self._last.get(session.conversation_id)
        cause = miss_cause(last, now, request.messages, usage)
        if cause == "messages":
            log.warning(
                "the list of messages changed within a revision",
                extra={"session_id": session.id, "revision": session.revision},
            )
        elif cause == "provider" and response.cleared_tokens:
            cause = "native edit"
        elif cause == "provider":
            # Ours was the same: if the provider saw another one, something between us changed it.
            cause = _DIAGNOSES.get(response.cache_diagnosis, "provider")
            log.info(
                "prompt cache missed without a cause of ours",
                extra={"session_id": session.id, "provider_says": response.cache_diagnosis},
            )
        if cause:
            self._on_miss(cause)
        self._last[session.conversation_id] = replace(
            now,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cache_read_tokens + usage.cache_write_tokens,
            answer_id=response.answer_id,
        )
        self._last.move_to_end(session.conversation_id)
        while len(self._last) > self._max:
            self._last.popitem(last=False)
        return cause


class TurnCache:
    """The requests of one turn, which grow: what was hashed for one is not hashed again."""

    def __init__(self, watch: CacheWatch, clock: Clock) -> None:
        self._watch = watch
        self._clock = clock
        self._chain = Chain()
        self._sent_at = clock.monotonic()

    def sends(self) -> None:
        """A request goes out: the life of what it leaves in the cache is counted from here."""
        self._sent_at = self._clock.monotonic()

    def answer_before(self, conversation_id: str) -> str:
        """As `CacheWatch.answer_before`."""
        return self._watch.answer_before(conversation_id)

    def answered(
        self, request: ModelRequest, session: Session, usage: Usage, response: ModelResponse
    ) -> CacheMiss:
        """Take in its answer; why its prompt was not read from the cache."""
        chain = self._chain.over(request.messages) if request.cache_ttl is not None else 0
        return self._watch.answered(request, session, usage, response, self._sent_at, chain)


class Chain:
    """A hash over a list of messages that mostly grows."""

    def __init__(self) -> None:
        self._count = 0
        self._newest: Message | None = None
        self._value = 0

    def over(self, messages: Sequence[Message]) -> int:
        """The hash of the whole list; only what is new in it is looked at.

        A list that does not go on with the very objects of the one before is another list.
        """
        known = self._count
        if known > len(messages) or (known and messages[known - 1] is not self._newest):
            known, self._value = 0, 0
        for message in messages[known:]:
            self._value = hash((self._value, _frozen(message)))
        self._count = len(messages)
        self._newest = messages[-1] if messages else None
        return self._value


def _frozen(value: Any) -> Any:
    """The value as something that can be hashed; strings keep their own hash, which is cached."""
    if isinstance(value, dict):
        return tuple((key, _frozen(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in value)
    return value
