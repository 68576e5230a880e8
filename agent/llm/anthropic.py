"""Owns the Anthropic SDK, which only this and `loading` import; the home of its errors."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.errors import (
    BlockUnsendable,
    CompactionRefused,
    ModelAuthError,
    ModelBadRequest,
    ModelConnectionError,
    ModelError,
    ModelNotFound,
    ModelTimeout,
    OutputLimitTooHigh,
)
from agent.llm.answers import message_of
from agent.llm.background import in_daemon_thread
from agent.llm.failures import Refusal, classify, retry_after, without_secret
from agent.llm.loading import preload, rehearse
from agent.llm.native import (
    NOT_KNOWN,
    NativeControls,
    betas_of,
    block_left_out,
    cleared_tokens,
    is_beta,
    the_block,
)
from agent.llm.pictures import PictureLoader
from agent.llm.thinking import ThinkingControls
from agent.llm.validator import validate
from agent.llm.wire import Body, build_body
from agent.messages import clean_text
from agent.native_block import readable_text
from agent.ports import Clock, ModelRequest, ModelResponse, NativeSummary, Usage
from agent.prompt_caching import cache_marks, is_native

if TYPE_CHECKING:
    import anthropic
    from anthropic.lib.streaming import AsyncMessageStream, BetaAsyncMessageStream
    from anthropic.types import Message
    from anthropic.types.beta import BetaMessage

    ApiMessage = Message | BetaMessage

DEFAULT_BASE_URL = "https://api.anthropic.com"
MAX_NAME_CHARS = 200
"""Of what a server calls its model and its answers: both are kept."""
MIN_LEARNED_OUTPUT_TOKENS = 256
"""A server that names less makes no sense; every answer would be cut for it."""
COUNT_DEADLINE_SECONDS = 10.0
"""For a count that only settles a border; the turn waits for it."""
LOADING_SECONDS = 60.0
"""For a canned answer, which takes 50 ms."""

log = logging.getLogger(__name__)


class AnthropicModel:
    """A model behind the Messages API (`agent.ports.LanguageModel`).

    Retries nothing but a request for what the endpoint does not know or take of it: parameters of
    thinking, edits of the context, a summary that was its own.
    """

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None,
        clock: Clock,
        base_url: str | None = None,
        thinking: Mapping[str, Any] | None = None,
        drop_unbound_thinking: bool | None = None,
        diagnoses: bool | None = None,
        max_concurrent_requests: int = 100,
        answer_deadline_seconds: float = 600.0,
        silence_seconds: float = 120.0,
        pictures: PictureLoader | None = None,
    ) -> None:
        """Make no connection yet.

        ``thinking``: the provider's own parameter; None: what the model's family needs.
        ``drop_unbound_thinking`` asks the provider to drop thinking blocks that stand behind
        another prefix, instead of refusing the request; None: if the family binds them.
        ``diagnoses``: ask why a prompt was not read from the cache; None: on the native API.
        ``max_concurrent_requests`` stays within the SDK's pool of kept connections.
        ``pictures``: where those come from that a message only names; None: there are none.
        """
        self._name = name
        self._api_key = api_key
        self._clock = clock
        self._base_url = base_url
        self._thinking = ThinkingControls(name, thinking, drop_unbound=drop_unbound_thinking)
        self._native = NativeControls(name, base_url)
        self._diagnoses = is_native(base_url) if diagnoses is None else diagnoses
        self._slots = asyncio.Semaphore(max_concurrent_requests)
        self._answer_deadline_seconds = answer_deadline_seconds
        self._silence_seconds = silence_seconds
        self._pictures = pictures
        self._client: anthropic.AsyncAnthropic | None = None
        self._connecting = asyncio.Lock()
        self._closed = False
        self._max_output_tokens: int | None = None

    @property
    def name(self) -> str:
        return self._name

    async def load(self) -> None:
        """The SDK, a client, and how answers are read (`agent.ports.LoadableModel`)."""
        async with self._request(LOADING_SECONDS):
            await in_daemon_thread(rehearse, "rehearse-model-sdk")

    async def respond(
        self, request: ModelRequest, *, on_text: Callable[[str], None] | None = None
    ) -> ModelResponse:
        request = await self._with_pictures(request)
        while True:
            level = self._thinking.level
            body = self._conversation_body(request)
            self._native.add_edits(body, request.edits)
            try:
                response = await self._stream(body, on_text)
                return replace(response, block_left_out=block_left_out(request.messages, body))
            except OutputLimitTooHigh as exc:
                self._learn_output_limit(exc, request)
                raise
            except ModelBadRequest as exc:
                if (
                    self._thinking.refused(exc, body, level)
                    or self._no_diagnoses(exc, body)
                    or self._native.refused(exc, body)
                ):
                    continue
                if type(exc) in (ModelBadRequest, CompactionRefused):
                    rules = validate(body, continues_pause=request.continues_pause)
                    log.warning(
                        "The provider refused a request",
                        extra={"broken_rules": [str(rule) for rule in rules]},
                    )
                raise

    async def compact(self, request: ModelRequest, *, instructions: str = "") -> NativeSummary:
        """Have the provider summarise the request's messages (`agent.ports.CompactingModel`)."""
        self._native.require_compaction()
        request = await self._with_pictures(request)
        body = self._conversation_body(request)
        if block_left_out(request.messages, body):
            raise BlockUnsendable("the summary at the beginning is not its maker's any more")
        body.pop("diagnostics", None)
        body["compaction"] = {"type": "summarize"}
        if instructions.strip():
            body["compaction"]["instructions"] = clean_text(instructions)
        _name_betas(body)
        try:
            # Whole, not as a stream: the block has to come back to the letter.
            deadline = self._answer_deadline_seconds
            async with self._request(deadline) as client:
                message = await client.beta.messages.create(**body, timeout=deadline)
                try:
                    block = the_block(message.content, str(message.stop_reason))
                except (TypeError, AttributeError) as exc:
                    raise self._native.no_compaction("the answer could not be read") from exc
                return NativeSummary(
                    block=block,
                    text=clean_text(readable_text(block)),
                    maker=self._native.maker,
                    usage=_compaction_usage(message),
                    model=_name(message.model),
                )
        except (ModelBadRequest, ModelNotFound) as exc:
            if isinstance(exc, CompactionRefused) and exc.code == NOT_KNOWN:
                raise self._native.no_compaction(str(exc)) from exc
            raise self._native.not_compacted(exc, body) from exc

    @property
    def missing_native(self) -> tuple[str, ...]:
        """What of native context management the endpoint was found not to have, in words."""
        return self._native.missing

    async def count_tokens(self, request: ModelRequest) -> int | None:
        try:
            body = self._body(await self._with_pictures(request))
            del body["max_tokens"]
            async with self._request(COUNT_DEADLINE_SECONDS) as client:
                if is_beta(body):
                    _name_betas(body)
                    return _told(await client.beta.messages.count_tokens(**body), "input_tokens")
                return _told(await client.messages.count_tokens(**body), "input_tokens")
        except ModelError as exc:
            log.info("no token count from the provider", extra={"reason": type(exc).__name__})
            return None

    async def window_tokens(self) -> int | None:
        try:
            async with self._request(30.0) as client:
                info = await client.models.retrieve(self._name)
                self._max_output_tokens = _told(info, "max_tokens") or self._max_output_tokens
                return _told(info, "max_input_tokens")
        except ModelAuthError as exc:  # asked at the start: the operator looks at the log just now
            log.warning(
                "the model's provider refused the key: check ANTHROPIC_API_KEY (or model.base_url)",
                extra={"reason": str(exc)},
            )
            return None
        except ModelError as exc:
            log.info("no window from the provider", extra={"reason": type(exc).__name__})
            return None

    async def aclose(self) -> None:
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _with_pictures(self, request: ModelRequest) -> ModelRequest:
        if self._pictures is None:
            return request
        messages = await self._pictures.loaded(request.messages)
        return request if messages is request.messages else replace(request, messages=messages)

    def _body(self, request: ModelRequest) -> Body:
        model = request.model or self._name
        if request.cache_ttl is not None and not cache_marks(model, self._base_url).on:
            request = replace(request, cache_ttl=None)
        return build_body(request, model, maker=self._native.reader(request.messages))

    def _conversation_body(self, request: ModelRequest) -> Body:
        """The body with what this endpoint takes beside the messages."""
        body = self._body(request)
        if self._max_output_tokens is not None and request.model is None:
            body["max_tokens"] = min(body["max_tokens"], self._max_output_tokens)
        if request.side_task:
            return body
        if self._diagnoses and request.cache_ttl is not None:
            body["diagnostics"] = {"previous_message_id": request.previous_answer_id or None}
        self._thinking.add_to(body)
        return body

    def _no_diagnoses(self, error: ModelBadRequest, body: Body) -> bool:
        """Was the question for a diagnosis refused? Then it is not put again."""
        if "diagnostics" not in body or "diagnostics" not in str(error):
            return False
        self._diagnoses = False
        return True

    async def _stream(self, body: Body, on_text: Callable[[str], None] | None) -> ModelResponse:
        out = _TextOut(on_text)
        async with self._request(self._answer_deadline_seconds) as client:
            if not is_beta(body):
                async with client.messages.stream(**body) as stream:
                    return await _read(stream, out)
            _name_betas(body)
            async with client.beta.messages.stream(**body) as beta_stream:
                return await _read(beta_stream, out)

    def _learn_output_limit(self, error: OutputLimitTooHigh, request: ModelRequest) -> None:
        """What the model can never do is not asked for again; beside a prompt it may be less."""
        limit = error.limit_tokens or 0
        if error.of_model and limit >= MIN_LEARNED_OUTPUT_TOKENS and request.model is None:
            self._max_output_tokens = min(self._max_output_tokens or limit, limit)

    @asynccontextmanager
    async def _request(self, deadline_seconds: float) -> AsyncIterator[anthropic.AsyncAnthropic]:
        """A slot and a client; whatever fails inside leaves as one of our errors."""
        client = await self._connected()
        import anthropic  # noqa: PLC0415 - loaded by now; only named here
        import httpx2  # noqa: PLC0415 - likewise

        async with self._slots:
            try:
                async with asyncio.timeout(deadline_seconds):
                    yield client
            except TimeoutError as exc:
                raise ModelTimeout(f"no answer within {deadline_seconds:g} s") from exc
            except anthropic.APIStatusError as exc:
                raise classify(self._refusal(exc)) from None
            except (anthropic.APITimeoutError, httpx2.TimeoutException):
                raise ModelTimeout("the provider fell silent") from None
            except json.JSONDecodeError:
                raise ModelConnectionError("the answer could not be read") from None
            except (anthropic.AnthropicError, httpx2.HTTPError, httpx2.StreamError, OSError) as exc:
                raise ModelConnectionError(f"no connection: {type(exc).__name__}") from None

    def _refusal(self, exc: anthropic.APIStatusError) -> Refusal:
        text = exc.api_message or (exc.body if isinstance(exc.body, str) else "")
        return Refusal(
            status=exc.status_code,
            kind=str(exc.type or ""),
            text=clean_text(without_secret(str(text), self._api_key)),
            code=exc.error_code or "",
            request_id=exc.request_id,
            retry_after_seconds=retry_after(exc.response.headers, self._clock.now()),
        )

    async def _connected(self) -> anthropic.AsyncAnthropic:
        async with self._connecting:
            self._require_open()
            if self._client is None:
                if not self._api_key and self._base_url is None:
                    raise ModelAuthError("no API key is configured")
                client = await in_daemon_thread(self._make_client, "load-model-sdk")
                if self._closed:  # meanwhile
                    await client.close()
                self._require_open()
                self._client = client
            return self._client

    def _require_open(self) -> None:
        if self._closed:
            raise ModelConnectionError("the model is closed")

    def _make_client(self) -> anthropic.AsyncAnthropic:
        """Slow on first use: imports the SDK and reads the certificates."""
        preload()
        import anthropic  # noqa: PLC0415 - heavy: never on the start path

        return anthropic.AsyncAnthropic(
            # A server of one's own may want no key, but the SDK wants one.
            api_key=self._api_key or "none",
            default_headers=self._bearer(),
            base_url=self._base_url or DEFAULT_BASE_URL,
            max_retries=0,
            timeout=anthropic.Timeout(self._silence_seconds, connect=10.0),
        )

    def _bearer(self) -> dict[str, str]:
        """The key where others that speak the Messages API look for it (OpenRouter)."""
        if self._api_key is None or is_native(self._base_url):
            return {}
        return {"Authorization": f"Bearer {self._api_key}"}


class _TextOut:
    """Hands on the visible text; half of a surrogate pair waits for its other half."""

    def __init__(self, on_text: Callable[[str], None] | None) -> None:
        self._on_text = on_text
        self._half = ""

    def write(self, delta: str) -> None:
        if self._on_text is None:
            return
        if not delta.isascii() or self._half:
            delta = self._half + delta
            self._half = delta[-1] if "\ud800" <= delta[-1:] <= "\udbff" else ""
            delta = clean_text(delta[: len(delta) - len(self._half)])
        if delta:
            self._on_text(delta)


def _name_betas(body: Body) -> None:
    """In one header, in place: the SDK would let ours replace its own."""
    body["extra_headers"] = {"anthropic-beta": ",".join(betas_of(body))}


async def _read(
    stream: AsyncMessageStream[None] | BetaAsyncMessageStream[None], out: _TextOut
) -> ModelResponse:
    """Read to the end mark.

    Raises:
        ModelConnectionError: there was none, or what came was no stream of events.
    """
    ended = False
    try:
        async for event in stream:
            if event.type == "text":
                out.write(event.text)
            elif event.type == "message_stop":
                ended = True
        message = stream.current_message_snapshot if ended else None
        if message is None or message.stop_reason is None:
            raise ModelConnectionError(
                "the answer ended without its end mark", request_id=stream.request_id
            )
        return _response(message)
    except (
        TypeError, ValueError, RuntimeError, LookupError, AttributeError, AssertionError,
    ) as exc:  # fmt: skip
        # The SDK reads what a server sends without distrust; so any of these is the server's.
        log.warning("Unreadable answer stream", exc_info=exc)
        raise ModelConnectionError("the answer could not be read") from exc


def _response(message: ApiMessage) -> ModelResponse:
    told = getattr(message, "input_transformations", None) or ()
    changes = [t if isinstance(t, dict) else t.to_dict() for t in told]
    dropped = [t for t in changes if t.get("type") == "thinking_dropped"]
    if dropped:
        reasons = sorted({str(t.get("reason", ""))[:40] for t in dropped})
        log.info("The provider dropped thinking", extra={"blocks": len(dropped), "why": reasons})
    return ModelResponse(
        message=message_of([block.to_dict() for block in message.content]),
        stop_reason=str(message.stop_reason),
        usage=_usage(message),
        model=_name(message.model),
        dropped_thinking=len(dropped),
        answer_id=_name(message.id),
        cleared_tokens=cleared_tokens(getattr(message, "context_management", None)),
        cache_diagnosis=_diagnosis(message),
    )


def _name(value: object) -> str:
    return clean_text(str(value or ""))[:MAX_NAME_CHARS]


def _diagnosis(message: ApiMessage) -> str:
    """What the provider says has changed; it may not know yet when it answers."""
    reason = getattr(getattr(message, "diagnostics", None), "cache_miss_reason", None)
    kind = getattr(reason, "type", "")
    return kind.removesuffix("_changed") if isinstance(kind, str) else ""


def _usage(message: ApiMessage) -> Usage | None:
    """What the answer took. Of several passes over the prompt the last one tells its size."""
    passes = _iterations(message, "message")
    usage = _taken(passes[-1] if passes else message.usage, _name(message.model))
    # Some servers report nothing: that is no measurement of an empty prompt.
    return usage if usage.prompt_tokens > 0 else None


def _compaction_usage(message: BetaMessage) -> Usage | None:
    """What a compaction took: told apart, and in no total."""
    passes = _iterations(message, "compaction")
    usage = _taken(passes[-1] if passes else message.usage, _name(message.model))
    return usage if usage.prompt_tokens > 0 else None


def _iterations(message: ApiMessage, kind: str) -> list[Any]:
    found = getattr(message.usage, "iterations", None)
    return [each for each in found or () if getattr(each, "type", "") == kind]


def _taken(raw: Any, model: str) -> Usage:
    return Usage(
        input_tokens=int(raw.input_tokens or 0),
        output_tokens=int(raw.output_tokens or 0),
        cache_read_tokens=int(raw.cache_read_input_tokens or 0),
        cache_write_tokens=int(raw.cache_creation_input_tokens or 0),
        model=model,
    )


def _told(answer: object, name: str) -> int | None:
    """A number of tokens that the provider told; the SDK hands on whatever a server sends."""
    value = getattr(answer, name, None)
    return value if isinstance(value, int) and value > 0 else None
