"""Owns the rules on cache marks, thinking settings, sampling, tool choice and output size."""

from __future__ import annotations

from collections.abc import Iterator

from tests.fakes.anthropic_server.errors import broken
from tests.fakes.anthropic_server.models import ModelFacts
from tests.fakes.anthropic_server.rule_shape import VERSION_WITHOUT_SAMPLING
from tests.fakes.anthropic_server.units import Json

MAX_MARKS = 4
SAMPLING = ("temperature", "top_p", "top_k")
MIN_BUDGET = 1024


def marks_of(body: Json) -> Iterator[tuple[str, Json, Json]]:
    """(path, marked block, mark) in the order tools, system, messages."""
    for i, tool in enumerate(body.get("tools") or []):
        yield from _own_mark(f"tools.{i}", tool)
    system = body.get("system")
    for i, block in enumerate(system if isinstance(system, list) else []):
        yield from _own_mark(f"system.{i}", block)
    for i, message in enumerate(body["messages"]):
        if isinstance(message["content"], list):
            yield from _marks_in(f"messages.{i}.content", message["content"])


def _marks_in(path: str, blocks: list[Json]) -> Iterator[tuple[str, Json, Json]]:
    for j, block in enumerate(blocks):
        inner = f"{path}.{j}"
        nested = block.get("content")
        if block.get("type") == "tool_result" and isinstance(nested, list):
            yield from _marks_in(f"{inner}.tool_result.content", nested)
        yield from _own_mark(f"{inner}.{block.get('type')}", block)


def _own_mark(path: str, block: Json) -> Iterator[tuple[str, Json, Json]]:
    mark = block.get("cache_control")
    if isinstance(mark, dict):
        yield path, block, mark


def check_marks(body: Json) -> None:
    """Rules 17 to 19."""
    marks = list(marks_of(body))
    for path, block, _ in marks:
        if block.get("type") == "text" and not block.get("text"):
            raise broken("19", f"{path}: cache_control cannot be set for empty text blocks")
    automatic = isinstance(body.get("cache_control"), dict)
    count = len(marks) + automatic
    if count > MAX_MARKS:
        raise broken(
            "17",
            f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {count}.",
        )
    _check_ttls([(path, str(mark.get("ttl", "5m"))) for path, _, mark in marks])


def _check_ttls(ttls: list[tuple[str, str]]) -> None:
    shorter_seen = False
    for path, ttl in ttls:
        if ttl == "5m":
            shorter_seen = True
        elif shorter_seen:
            raise broken(
                "18",
                f"{path}.cache_control.ttl: a ttl='1h' cache_control block must not come after a"
                " ttl='5m' cache_control block. Note that blocks are processed in the following"
                " order: `tools`, `system`, `messages`.",
            )


def check_params(body: Json, facts: ModelFacts, version: str) -> None:
    """Rules 21, 24, 25 and the rules on tool choice."""
    _check_max_tokens(body, facts)
    _check_budget(body)
    _check_sampling(body, facts, version)
    check_tool_choice(body, facts)


def _check_max_tokens(body: Json, facts: ModelFacts) -> None:
    if "max_tokens" not in body:
        raise broken("25", "max_tokens: Field required")
    limit = body["max_tokens"]
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise broken("25", "max_tokens: Input should be a valid integer")
    if limit < 0 or (limit == 0 and body.get("stream")):
        raise broken("25", "max_tokens: Input should be greater than or equal to 1")
    if limit > facts.max_output:
        raise broken(
            "25",
            f"max_tokens: {limit} > {facts.max_output}, which is the maximum allowed number of"
            f" output tokens for {facts.id}",
        )


def _check_budget(body: Json) -> None:
    thinking = body.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int) or isinstance(budget, bool):
        raise broken("21", "thinking.enabled.budget_tokens: Field required")
    if budget < MIN_BUDGET:
        raise broken(
            "21",
            "thinking.enabled.budget_tokens: Input should be greater than or equal to"
            f" {MIN_BUDGET}",
        )
    if budget >= body["max_tokens"]:
        raise broken("21", "`max_tokens` must be greater than `thinking.budget_tokens`")


def _thinks(body: Json) -> bool:
    thinking = body.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") not in (None, "disabled")


def _check_sampling(body: Json, facts: ModelFacts, version: str) -> None:
    for key in SAMPLING:
        if key not in body:
            continue
        if facts.version >= (4, 7) or version >= VERSION_WITHOUT_SAMPLING:
            raise broken("24", f"`{key}` is deprecated for this model.")
    if not _thinks(body):
        return
    if body.get("temperature", 1) != 1:
        raise broken(
            "24", "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode."
        )
    if "top_k" in body:
        raise broken("24", "`top_k` must be unset when thinking is enabled or in adaptive mode.")


def check_tool_choice(body: Json, facts: ModelFacts) -> None:
    """Tool choice needs tools, names one of them, and does not force a thinking model."""
    choice = body.get("tool_choice")
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in ("auto", "any", "tool", "none"):
        raise broken(
            "shape", "tool_choice.type: Input should be one of 'auto', 'any', 'tool', 'none'"
        )
    tools = body.get("tools") or []
    if not tools:
        raise broken("shape", "tool_choice may only be specified while providing tools")
    if kind == "tool" and all(t.get("name") != choice.get("name") for t in tools):
        raise broken("shape", f"Tool '{choice.get('name')}' not found in provided tools")
    if kind in ("any", "tool") and (_thinks(body) or not facts.forced_tool_choice):
        raise broken("24", "Thinking may not be enabled when tool_choice forces tool use.")


def param_warnings(body: Json, facts: ModelFacts) -> list[tuple[str, str]]:
    """Settings that are out of date or doubtful for the model."""
    thinking = body.get("thinking")
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind == "enabled" and facts.version >= (4, 7):
        return [("21", "thinking.type `enabled` is out of date for this model; use `adaptive`")]
    if kind == "disabled" and facts.thinks_always:
        return [("21", "thinking cannot be switched off for this model")]
    return []
