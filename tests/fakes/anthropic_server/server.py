"""Owns the sockets: the aiohttp application, streaming, faults on the wire, life cycle."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.fakes.anthropic_server.engine import Engine, Judged, Settings, TooLong
from tests.fakes.anthropic_server.errors import ApiError, broken, error_envelope
from tests.fakes.anthropic_server.faults import (
    Cut,
    Drop,
    Hang,
    HttpFault,
    Plan,
    StreamPlan,
    check_name,
    plan_for,
)
from tests.fakes.anthropic_server.models import KNOWN_IDS, ModelFacts, model_info
from tests.fakes.anthropic_server.records import Records, RequestRecord
from tests.fakes.anthropic_server.request import MessageRequest
from tests.fakes.anthropic_server.responders import MODES, summary_text
from tests.fakes.anthropic_server.rules import MAX_BODY, parse_body
from tests.fakes.anthropic_server.script import (
    Answer,
    Fault,
    Item,
    Match,
    Reply,
    Responder,
    Rule,
    Script,
)
from tests.fakes.anthropic_server.sse import (
    Event,
    Final,
    encode_event,
    events_of,
    message_object,
)
from tests.fakes.anthropic_server.units import Json

DEFAULT_KEY = "test-key"
STREAM_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


class AnthropicServer:
    """A strict Messages API on 127.0.0.1; see the package docstring for its use."""

    def __init__(
        self,
        *,
        api_key: str | Iterable[str] | None = DEFAULT_KEY,
        responder: Responder | None = None,
        summary_responder: Responder | None = None,
        models: Iterable[ModelFacts] = (),
        clock: Callable[[], float] = time.monotonic,
        keep: int | None = None,
        port: int = 0,
        **settings: Any,
    ) -> None:
        self.api_keys = {api_key} if isinstance(api_key, str) else set(api_key or ())
        self.responder = responder
        self.summary_responder = summary_responder
        self.settings = Settings(**settings)
        self.clock_offset = 0.0
        self._clock = clock
        self._port = port
        self.engine = Engine(self.settings, {m.id: m for m in models}, self.now)
        self.records = Records(self.now, keep)
        self._script = Script()
        self._release = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.app = web.Application(client_max_size=2 * MAX_BODY, middlewares=[_envelopes])
        self._add_routes()

    # -- life cycle ----------------------------------------------------------------------------

    async def start(self) -> Self:
        """Bind and serve."""
        # A handler must notice at once that its client has gone, and end then.
        self._runner = web.AppRunner(
            self.app, handler_cancellation=True, shutdown_timeout=0.2, access_log=None
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        """Let hanging requests go, and close."""
        self.release()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        return self._port

    @property
    def base_url(self) -> str:
        """What the SDK wants as `base_url`."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def api_key(self) -> str:
        """A key that is accepted."""
        return next(iter(sorted(self.api_keys)), DEFAULT_KEY)

    def now(self) -> float:
        """The clock of cache and records."""
        return self._clock() + self.clock_offset

    def advance(self, seconds: float) -> None:
        """Move the clock on, for cache lifetimes."""
        self.clock_offset += seconds

    # -- scripting -----------------------------------------------------------------------------

    def script(self, *items: Item) -> None:
        """Queue answers or faults for the next requests that are no summary calls."""
        self._script.main.extend(_checked(item) for item in items)

    def script_summary(self, *items: Item) -> None:
        """Queue answers or faults for the next summary calls."""
        self._script.summary.extend(_checked(item) for item in items)

    def when(self, match: Match, do: Item, times: int | None = 1) -> Rule:
        """Answer matching requests with `do`; rules come before the queues, `None` is for ever."""
        rule = Rule(match, _checked(do), times)
        self._script.rules.append(rule)
        return rule

    def fault_next(self, fault: Fault | str, times: int = 1, **match: Any) -> Rule:
        """Let the next `times` requests (that match) fail."""
        fault = Fault(fault) if isinstance(fault, str) else fault
        return self.when(Match(**match), fault, times)

    def clear_script(self) -> None:
        """Forget all that is scripted."""
        self._script.clear()

    def pending(self) -> int:
        """Scripted items that have not been used."""
        return self._script.pending()

    def release(self) -> None:
        """Let every hanging request go on."""
        self._release.set()
        self._release = asyncio.Event()

    # -- what was seen -------------------------------------------------------------------------

    @property
    def requests(self) -> list[RequestRecord]:
        """Every `POST /v1/messages`."""
        return list(self.records.requests)

    @property
    def other_requests(self) -> list[RequestRecord]:
        """`count_tokens` and `models`."""
        return list(self.records.others)

    @property
    def summary_requests(self) -> list[RequestRecord]:
        """Summary calls only."""
        return [r for r in self.records.requests if r.summary]

    @property
    def compaction_requests(self) -> list[RequestRecord]:
        """Those that asked for a summary of the API's own."""
        return [r for r in self.records.requests if "compaction" in (r.body or {})]

    @property
    def main_requests(self) -> list[RequestRecord]:
        """Everything but summary calls."""
        return [r for r in self.records.requests if not r.summary]

    @property
    def rejected(self) -> list[RequestRecord]:
        """Requests that broke a rule of the API."""
        return self.records.rejected

    @property
    def warnings(self) -> list[tuple[int, str, str]]:
        """(request number, rule, text) of points that are doubtful but accepted."""
        return list(self.records.warnings)

    def stats(self) -> Json:
        """Counters."""
        return {**self.records.stats(), "pending": self.pending()}

    def reset(self) -> None:
        """Forget requests, script and cache; settings stay."""
        self.records.clear()
        self._script.clear()
        self.engine.cache.clear()

    async def wait_for(self, count: int, timeout: float = 30.0) -> bool:
        """Whether `count` requests in all have arrived in time."""
        return await self.records.wait_until(
            lambda: self.records.counts["requests"] >= count, timeout
        )

    async def wait_idle(self, timeout: float = 30.0) -> bool:
        """Whether nothing was in flight any more in time."""
        return await self.records.wait_until(lambda: self.records.in_flight == 0, timeout)

    # -- routes --------------------------------------------------------------------------------

    def _add_routes(self) -> None:
        router = self.app.router
        router.add_post("/v1/messages", self._post_messages)
        router.add_post("/v1/messages/count_tokens", self._post_count)
        router.add_get("/v1/models", self._get_models)
        router.add_get("/v1/models/{id}", self._get_model)

    @asynccontextmanager
    async def _recorded(self, request: web.Request, size: int) -> AsyncIterator[RequestRecord]:
        record = self.records.open(request.path, request.headers, size)
        try:
            yield record
        except ApiError as error:
            self.records.judge(
                record,
                _verdict(error),
                rule=error.rule,
                message=error.message,
                status=error.status,
            )
            error.request_id = _request_id(record)
            raise
        except (asyncio.CancelledError, ConnectionError):
            record.client_gone = True
            raise
        except Exception as error:
            self.records.judge(record, "crashed", message=repr(error), status=500)
            raise ApiError(500, repr(error), request_id=_request_id(record)) from error
        finally:
            self.records.close(record)

    def _authorize(self, headers: Mapping[str, str]) -> None:
        bearer = headers.get("Authorization", "")
        own = "" if self.settings.bearer_only else headers.get("x-api-key")
        key = own or bearer.removeprefix("Bearer ")
        if not key:
            raise ApiError(401, "x-api-key header is required")
        if self.api_keys and key not in self.api_keys:
            raise ApiError(401, "invalid x-api-key")

    def _read(self, request: web.Request, raw: bytes, record: RequestRecord) -> Json:
        self._authorize(request.headers)
        if "anthropic-version" not in request.headers:
            raise broken("headers", "anthropic-version: header is required")
        body = parse_body(raw)
        record.body = body
        record.stream = bool(body.get("stream"))
        return body

    def _judge(self, request: web.Request, raw: bytes, record: RequestRecord) -> Judged:
        body = self._read(request, raw, record)
        counting = request.path.endswith("/count_tokens")
        judged = self.engine.judge(record.number, body, request.headers, counting)
        record.summary = judged.request.is_summary
        record.input_tokens = judged.input_tokens
        record.transformations = judged.bound.transformations
        self.records.warn(record, judged.warnings)
        return judged

    async def _post_messages(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        async with self._recorded(request, len(raw)) as record:
            judged = self._judge(request, raw, record)
            plan = await self._plan(judged.request, record)
            if isinstance(plan, Hang):
                self.records.judge(record, "fault")
                await self._release.wait()
                plan = StreamPlan(self._as_answer(await self._respond(judged.request)))
            if isinstance(plan, Drop):
                self.records.judge(record, "fault")
                return self._dropped(request)
            if isinstance(plan, HttpFault):
                return self._http_fault(plan, record)
            return await self._answer(request, record, judged, plan)

    async def _post_count(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        async with self._recorded(request, len(raw)) as record:
            judged = self._judge(request, raw, record)
            self.records.judge(record, "ok", status=200)
            return _json({"input_tokens": judged.input_tokens}, record)

    async def _get_models(self, request: web.Request) -> web.StreamResponse:
        async with self._recorded(request, 0) as record:
            self._authorize(request.headers)
            ids = [*self.engine.models, *KNOWN_IDS]
            data = [model_info(self.engine.facts(i)) for i in ids]
            self.records.judge(record, "ok", status=200)
            page = {"data": data, "has_more": False, "first_id": ids[0], "last_id": ids[-1]}
            return _json(page, record)

    async def _get_model(self, request: web.Request) -> web.StreamResponse:
        async with self._recorded(request, 0) as record:
            self._authorize(request.headers)
            facts = self.engine.facts(request.match_info["id"])
            self.records.judge(record, "ok", status=200)
            return _json(model_info(facts), record)

    # -- what to answer ------------------------------------------------------------------------

    async def _plan(self, request: MessageRequest, record: RequestRecord) -> Plan:
        item = self._script.next_for(request)
        reply = await self._respond(request) if item is None else await _resolve(item, request)
        if isinstance(reply, Fault):
            record.fault = reply.name
            return plan_for(reply, request)
        return StreamPlan(self._as_answer(reply))

    async def _respond(self, request: MessageRequest) -> Reply:
        if request.is_summary:
            if self.summary_responder is not None:
                return await _resolve(self.summary_responder, request)
            return summary_text(request, self.settings.summary_tokens)
        if request.compacts:
            return summary_text(request, self.settings.summary_tokens)
        if self.responder is not None:
            return await _resolve(self.responder, request)
        return MODES[self.settings.mode](request)

    def _as_answer(self, reply: Reply) -> Answer:
        if isinstance(reply, Fault):
            raise TypeError(f"a fault cannot follow a hang: {reply!r}")
        answer = Answer(reply) if isinstance(reply, str) else reply
        defaults = {
            name: getattr(self.settings, name)
            for name in ("chunk_delay", "first_delay")
            if not getattr(answer, name) and getattr(self.settings, name)
        }
        return replace(answer, **defaults) if defaults else answer

    # -- answers on the wire -------------------------------------------------------------------

    def _http_fault(self, fault: HttpFault, record: RequestRecord) -> web.Response:
        request_id = _request_id(record)
        self.records.judge(record, "fault", status=fault.status, message=fault.message)
        envelope = error_envelope(fault.kind, fault.message, request_id, fault.code)
        text = fault.raw if fault.raw is not None else json.dumps(envelope)
        headers = {"request-id": request_id, **fault.headers}
        return web.Response(
            text=text, status=fault.status, headers=headers, content_type=fault.content_type
        )

    def _dropped(self, request: web.Request) -> web.Response:
        if request.transport is not None:
            request.transport.close()
        return web.Response()

    def _finish(self, judged: Judged, answer: Answer) -> Final:
        if judged.request.compacts and self.settings.compaction != "none":
            said = answer.content if isinstance(answer.content, str) else ""
            return self.engine.compact(judged, said)
        return self.engine.finish(judged, answer)

    async def _answer(
        self, request: web.Request, record: RequestRecord, judged: Judged, plan: StreamPlan
    ) -> web.StreamResponse:
        final = self._finish(judged, plan.answer)
        verdict = "fault" if record.fault else "ok"
        self.records.judge(
            record,
            verdict,
            status=200,
            usage=dict(final.usage),
            stop_reason=final.stop_reason,
            answer=list(final.content),
        )
        if plan.answer.first_delay:
            await asyncio.sleep(plan.answer.first_delay)
        if judged.request.stream:
            return await self._stream(request, record, final, plan)
        return await self._whole(request, record, final, plan)

    async def _whole(
        self, request: web.Request, record: RequestRecord, final: Final, plan: StreamPlan
    ) -> web.StreamResponse:
        if plan.cut is None:
            return _json(message_object(final), record)
        if plan.cut.how == "error":
            status = 529 if plan.cut.kind == "overloaded_error" else 500
            return self._http_fault(HttpFault(status, plan.cut.kind, plan.cut.message), record)
        if plan.cut.how == "hang":
            await self._release.wait()
            return _json(message_object(final), record)
        body = json.dumps(message_object(final)).encode()
        response = web.StreamResponse(headers={"request-id": _request_id(record)})
        response.content_type = "application/json"
        response.content_length = len(body)
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
        self._sever(request, plan.cut)
        return response

    async def _stream(
        self, request: web.Request, record: RequestRecord, final: Final, plan: StreamPlan
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"request-id": _request_id(record), **STREAM_HEADERS})
        await response.prepare(request)
        events = list(events_of(final))
        if plan.cut is None:
            await self._send(response, events, plan.answer.chunk_delay)
            await response.write_eof()
            return response
        at = _cut_position(events, plan.cut)
        await self._send(response, events[:at], plan.answer.chunk_delay)
        await self._end(request, response, record, events[at:], plan.cut)
        return response

    async def _send(self, response: web.StreamResponse, events: list[Event], delay: float) -> None:
        if not delay:
            await response.write(b"".join(event.encode() for event in events))
            return
        for event in events:
            await response.write(event.encode())
            if event.is_delta:
                await asyncio.sleep(delay)

    async def _end(
        self,
        request: web.Request,
        response: web.StreamResponse,
        record: RequestRecord,
        rest: list[Event],
        cut: Cut,
    ) -> None:
        if cut.how == "error":
            envelope = error_envelope(cut.kind, cut.message, _request_id(record))
            await response.write(encode_event("error", envelope))
        elif cut.how == "garbage":
            await response.write(b"event: content_block_delta\ndata: {not json\n\n")
        elif cut.how == "hang":
            await self._release.wait()
            await self._send(response, rest, 0.0)
        elif cut.how in ("drop", "reset"):
            self._sever(request, cut)
            return
        await response.write_eof()

    def _sever(self, request: web.Request, cut: Cut) -> None:
        """End the connection inside a body that promised more."""
        if request.transport is None:
            return
        if cut.how == "reset":
            request.transport.abort()
        else:
            request.transport.close()


def _checked(item: Item) -> Item:
    if isinstance(item, Fault):
        check_name(item)
    return item


async def _resolve(item: Item, request: MessageRequest) -> Reply:
    if isinstance(item, (str, Answer, Fault)):
        return item
    reply = item(request)
    return await reply if inspect.isawaitable(reply) else reply


def _verdict(error: ApiError) -> str:
    if isinstance(error, TooLong):
        return "too_long"
    return {401: "unauthorized", 404: "not_found"}.get(error.status, "rejected")


def _request_id(record: RequestRecord) -> str:
    return f"req_{record.number:024d}"


def _json(body: Json, record: RequestRecord) -> web.Response:
    return web.Response(
        body=json.dumps(body, ensure_ascii=False).encode(),
        content_type="application/json",
        headers={"request-id": _request_id(record)},
    )


def _cut_position(events: list[Event], cut: Cut) -> int:
    """How many events go out before the stream ends early."""
    deltas = [i for i, event in enumerate(events) if event.is_delta]
    if not deltas:
        return 1
    after = max(1, len(deltas) // 2) if cut.after is None else cut.after
    if after <= 0:
        return deltas[0]
    return deltas[min(after, len(deltas)) - 1] + 1


@web.middleware
async def _envelopes(
    request: web.Request, handler: Callable[[web.Request], Any]
) -> web.StreamResponse:
    """Errors leave in the API's envelope, also those of the web framework."""
    try:
        return await handler(request)
    except ApiError as error:
        return _error_response(error)
    except web.HTTPException as error:
        rule = "29" if error.status == 413 else ""
        return _error_response(ApiError(error.status, error.reason, rule=rule))


def _error_response(error: ApiError) -> web.Response:
    return web.Response(
        body=error.body(),
        status=error.status,
        content_type="application/json",
        headers={"request-id": error.request_id, **error.headers},
    )
