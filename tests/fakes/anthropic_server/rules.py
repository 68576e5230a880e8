"""Owns the order in which a request body is judged: one call, first broken rule wins."""

from __future__ import annotations

import json
from collections.abc import Collection

from tests.fakes.anthropic_server.errors import ApiError, broken
from tests.fakes.anthropic_server.models import ModelFacts
from tests.fakes.anthropic_server.rule_images import check_images
from tests.fakes.anthropic_server.rule_native import check_native
from tests.fakes.anthropic_server.rule_params import (
    check_marks,
    check_params,
    check_tool_choice,
    param_warnings,
)
from tests.fakes.anthropic_server.rule_shape import check_shape, surrogate_free
from tests.fakes.anthropic_server.rule_turns import (
    check_thinking_first,
    check_turns,
    turn_warnings,
)
from tests.fakes.anthropic_server.units import Json

MAX_BODY = 32 * 1024 * 1024


def parse_body(raw: bytes) -> Json:
    """Rule 29 and the encoding rules; the decoded object otherwise."""
    if len(raw) > MAX_BODY:
        raise ApiError(413, "Request exceeds the maximum size", rule="29")
    try:
        body = json.loads(raw.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise broken("json", f"The request body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise broken("json", "Input should be a valid dictionary or object")
    # Only an escape can smuggle half a surrogate pair through valid UTF-8.
    if b"\\ud" in raw.lower() and not surrogate_free(body):
        raise broken("W14", "The request body is not valid JSON: no low surrogate in string")
    return body


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def check_request(
    body: Json,
    facts: ModelFacts,
    *,
    version: str = "2023-06-01",
    betas: Collection[str] = (),
    counting: bool = False,
    resumes: bool = False,
) -> list[tuple[str, str]]:
    """Raise ApiError for the first broken rule; return (rule, text) of doubtful points."""
    check_shape(body, facts, betas, counting)
    check_native(body, facts, betas)
    check_marks(body)
    check_turns(body, facts, resumes)
    check_images(body)
    if counting:
        check_tool_choice(body, facts)
    else:
        check_params(body, facts, version)
    check_thinking_first(body)
    return turn_warnings(body) + param_warnings(body, facts)
