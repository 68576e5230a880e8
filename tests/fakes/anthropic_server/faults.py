"""Owns the named faults: what each one does to the answer of one request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.fakes.anthropic_server.errors import DEFAULT_MESSAGES, error_type
from tests.fakes.anthropic_server.request import MessageRequest
from tests.fakes.anthropic_server.script import Answer, Fault, text, thinking, tool_use

PARTIAL_TEXT = "The three causes are the following, in order of their weight."
CUT_INPUT = {"path": "a.txt"}
CUT_JSON = '{"path":"a.txt","content":"abc'
ALL_DELTAS = 1_000_000
HTML = "<html><head><title>Bad gateway</title></head><body><h1>502</h1></body></html>"


@dataclass(frozen=True)
class Cut:
    """Where and how a stream ends early."""

    how: str  # "error" | "drop" | "reset" | "eof" | "hang" | "garbage"
    after: int | None = None  # content deltas let through; None: half of them, in a tool call all
    kind: str = "overloaded_error"
    message: str = "Overloaded"


@dataclass(frozen=True)
class HttpFault:
    """An answer that is no Messages answer."""

    status: int
    kind: str = ""
    message: str = ""
    code: str = ""
    raw: str | None = None
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Hang:
    """No answer at all until released or disconnected."""


@dataclass(frozen=True)
class Drop:
    """The connection ends before any answer."""


@dataclass(frozen=True)
class StreamPlan:
    """An answer, maybe cut."""

    answer: Answer
    cut: Cut | None = None


Plan = HttpFault | Hang | Drop | StreamPlan
Params = Mapping[str, Any]
Maker = Callable[[MessageRequest, Params], Plan]


def _http(status: int, params: Params) -> HttpFault:
    headers = {str(k): str(v) for k, v in dict(params.get("headers", {})).items()}
    if "retry_after" in params:
        headers["retry-after"] = str(params["retry_after"])
    elif status == 429:
        headers["retry-after"] = "1"
    return HttpFault(
        status,
        kind=str(params.get("type", error_type(status))),
        message=str(params.get("message", DEFAULT_MESSAGES.get(status, "error"))),
        headers=headers,
    )


def _html(status: int, params: Params) -> HttpFault:
    body = str(params.get("body", HTML))
    return HttpFault(status, raw=body, content_type="text/html")


def _answer(**fields: Any) -> Maker:
    def make(request: MessageRequest, params: Params) -> Plan:
        return StreamPlan(replace(Answer(**fields), **dict(params)))

    return make


def _text_base(params: Params) -> Answer:
    return Answer(str(params.get("text", PARTIAL_TEXT)), thinking=False)


def _tool_name(request: MessageRequest, params: Params) -> str:
    if "tool" in params:
        return str(params["tool"])
    return str(request.tool_names[0]) if request.tool_names else "write_file"


def _tool_base(request: MessageRequest, params: Params) -> Answer:
    call = tool_use(_tool_name(request, params), params.get("input", CUT_INPUT))
    said = str(params.get("text", ""))
    content = [*([text(said)] if said else []), call]
    return Answer(content, thinking=False, input_json=str(params.get("input_json", CUT_JSON)))


def _cut(how: str, *, in_tool: bool = False) -> Maker:
    def make(request: MessageRequest, params: Params) -> Plan:
        base = _tool_base(request, params) if in_tool else _text_base(params)
        kind = str(params.get("type", "overloaded_error"))
        message = str(params.get("message", "Overloaded"))
        after = params.get("after", ALL_DELTAS if in_tool else None)
        return StreamPlan(base, Cut(how, after, kind, message))

    return make


def _max_tokens_tool(request: MessageRequest, params: Params) -> Plan:
    """A whole tool call, then one that the output limit cut inside its input."""
    name = _tool_name(request, params)
    whole = tool_use(str(params.get("whole", name)), params.get("whole_input", {"path": "b.txt"}))
    cut = tool_use(name, {"path": "a.txt"})
    content = [cut] if params.get("alone") else [whole, cut]
    partial = str(params.get("input_json", CUT_JSON))
    return StreamPlan(Answer(content, stop_reason="max_tokens", thinking=False, input_json=partial))


def _only_tool(request: MessageRequest, params: Params) -> Plan:
    return StreamPlan(Answer([tool_use(_tool_name(request, params))], thinking=False))


def _slow(request: MessageRequest, params: Params) -> Plan:
    delay = float(params.get("delay", 0.05))
    pieces = int(params.get("pieces", 8))
    answer = Answer(str(params.get("text", PARTIAL_TEXT)), chunk_delay=delay, pieces=pieces)
    return StreamPlan(replace(answer, first_delay=float(params.get("first", 0.0))))


def _too_long(request: MessageRequest, params: Params) -> Plan:
    got, limit = int(params.get("tokens", 233_153)), int(params.get("limit", 200_000))
    message = str(params.get("message", f"prompt is too long: {got} tokens > {limit} maximum"))
    return HttpFault(400, error_type(400), message)


def _output_too_long(request: MessageRequest, params: Params) -> Plan:
    got, limit = int(params.get("tokens", 188_240)), int(params.get("limit", 200_000))
    wanted = int(request.body.get("max_tokens", 21_333))
    message = (
        f"input length and `max_tokens` exceed context limit: {got} + {wanted} > {limit},"
        " decrease input length or `max_tokens` and try again"
    )
    return HttpFault(400, error_type(400), message)


def _compaction(status: int, code: str) -> Maker:
    def make(request: MessageRequest, params: Params) -> Plan:
        message = str(params.get("message", "The compaction did not work."))
        return HttpFault(status, error_type(status), message, code=code)

    return make


# Every error that the API names for its own compaction; a parameter `message` changes the words.
COMPACTION_ERRORS = {
    "compaction_block_ambiguous": 400,
    "compaction_block_misplaced": 400,
    "compaction_content_mismatch": 400,
    "compaction_incomplete_turn": 400,
    "compaction_nothing_to_summarize": 400,
    "compaction_signature_invalid": 400,
    "compaction_too_many_tool_references": 400,
    "compaction_tool_changes_mismatch": 400,
    "compaction_unavailable": 529,
    "compaction_something_new": 400,
}

_REFUSAL = {"type": "refusal", "category": None, "explanation": None}

MAKERS: dict[str, Maker] = {
    **{code: _compaction(status, code) for code, status in COMPACTION_ERRORS.items()},
    "html200": lambda r, p: _html(200, p),
    "html502": lambda r, p: _html(502, p),
    "502": lambda r, p: _html(502, p),
    "too_long": _too_long,
    "output_too_long": _output_too_long,
    "hang": lambda r, p: Hang(),
    "drop": lambda r, p: Drop(),
    "slow": _slow,
    "stream_error": _cut("error"),
    "stream_error_tool": _cut("error", in_tool=True),
    "drop_text": _cut("drop"),
    "drop_tool": _cut("drop", in_tool=True),
    "reset_text": _cut("reset"),
    "eof": _cut("eof"),
    "eof_tool": _cut("eof", in_tool=True),
    "hang_text": _cut("hang"),
    "hang_tool": _cut("hang", in_tool=True),
    "garbage": _cut("garbage"),
    "empty": _answer(content=[], stop_reason="end_turn", thinking=False),
    "whitespace": _answer(content=" \n", stop_reason="end_turn", thinking=False),
    "null_text": _answer(content="null", stop_reason="end_turn", thinking=False),
    "only_thinking": _answer(content=[thinking("Hm.")], stop_reason="end_turn", thinking=False),
    "only_tool": _only_tool,
    "refusal": _answer(content=[], stop_reason="refusal", stop_details=_REFUSAL, thinking=False),
    "refusal_text": _answer(content="I cannot", stop_reason="refusal", thinking=False),
    "max_tokens": _answer(content="This sentence ends in the", stop_reason="max_tokens"),
    "max_tokens_thinking": _answer(
        content=[thinking("I still think about")], stop_reason="max_tokens", thinking=False
    ),
    "max_tokens_tool": _max_tokens_tool,
    "pause_turn": _answer(content="Searching, wait.", stop_reason="pause_turn", thinking=False),
    "window_exceeded": _answer(
        content="Cut by the window", stop_reason="model_context_window_exceeded"
    ),
    "stop_null": _answer(content="No reason given.", stop_reason=None),
    "stop_unknown": _answer(content="New reason.", stop_reason="brand_new"),
}


def plan_for(fault: Fault, request: MessageRequest) -> Plan:
    """What a named fault does; a bare number is an HTTP status."""
    maker = MAKERS.get(fault.name)
    if maker is not None:
        return maker(request, fault.params)
    if fault.name.isdigit() and 400 <= int(fault.name) < 600:
        return _http(int(fault.name), fault.params)
    raise ValueError(f"unknown fault {fault.name!r}; known: {sorted(MAKERS)} or a status")


def check_name(fault: Fault) -> None:
    """Refuse a misspelt name when it is scripted, not when it fires."""
    if fault.name not in MAKERS and not (fault.name.isdigit() and 400 <= int(fault.name) < 600):
        raise ValueError(f"unknown fault {fault.name!r}; known: {sorted(MAKERS)} or a status")
