"""Owns the rules on fields and types: what may stand where in a Messages request body."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from tests.fakes.anthropic_server.errors import ApiError, broken
from tests.fakes.anthropic_server.models import ModelFacts
from tests.fakes.anthropic_server.units import Json

ID_PATTERN = re.compile(r"^[a-zA-Z0-9_-]+$")
NAME_PATTERN = re.compile(r"^[a-zA-Z0-9_-]{1,128}$")
MAX_MESSAGES = 100_000
VERSION_WITHOUT_SAMPLING = "2026-10-21"
BINDING_BETA = "thinking-binding-controls-2026-08-01"

BODY_FIELDS = frozenset(
    {
        "model",
        "messages",
        "max_tokens",
        "cache_control",
        "container",
        "diagnostics",
        "inference_geo",
        "metadata",
        "output_config",
        "service_tier",
        "speed",
        "stop_sequences",
        "stream",
        "system",
        "thinking",
        "tool_choice",
        "tools",
        "temperature",
        "top_p",
        "top_k",
    }
)
COUNT_FIELDS = frozenset(
    {
        "model",
        "messages",
        "cache_control",
        "output_config",
        "speed",
        "system",
        "thinking",
        "tool_choice",
        "tools",
    }
)
# Fields that exist only under a beta header; any of the named betas opens the field.
BETA_FIELDS: dict[str, tuple[str, ...]] = {
    "context_management": ("context-management-2025-06-27", "compact-2026-01-12"),
    "compaction": ("compact-2026-09-04",),
    "mcp_servers": ("mcp-client-2025-04-04", "mcp-client-2025-11-20"),
}

BLOCK_FIELDS: dict[str, frozenset[str]] = {
    "text": frozenset({"type", "text", "cache_control", "citations"}),
    "image": frozenset({"type", "source", "cache_control", "transformations"}),
    "document": frozenset({"type", "source", "cache_control", "citations", "context", "title"}),
    "search_result": frozenset(
        {"type", "source", "title", "content", "cache_control", "citations"}
    ),
    "tool_use": frozenset({"type", "id", "name", "input", "cache_control", "caller"})
    | {"toolset_name"},
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"})
    | {"toolset_name"},
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
}
# Blocks made by the server's own tools go back untouched; their inside is not looked at.
OPAQUE_BLOCKS = frozenset(
    {
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "container_upload",
        "tool_reference",
        "compaction",
        "mcp_tool_use",
        "mcp_tool_result",
    }
)
ASSISTANT_ONLY = frozenset({"tool_use", "thinking", "redacted_thinking", "server_tool_use"})
USER_ONLY = frozenset({"tool_result", "image", "document", "search_result"})
NESTED_TYPES = frozenset({"text", "image", "document", "search_result", "tool_reference"})
TOOL_FIELDS = frozenset(
    {
        "name",
        "description",
        "input_schema",
        "cache_control",
        "type",
        "strict",
        "allowed_callers",
        "defer_loading",
        "eager_input_streaming",
        "input_examples",
    }
)
THINKING_FIELDS: dict[str, frozenset[str]] = {
    "enabled": frozenset({"type", "budget_tokens", "display"}),
    "adaptive": frozenset({"type", "display"}),
    "between_tools": frozenset({"type"}),
    "disabled": frozenset({"type"}),
}


def _extra(path: str) -> ApiError:
    return broken("30", f"{path}: Extra inputs are not permitted")


def _required(path: str) -> ApiError:
    return broken("shape", f"{path}: Field required")


def _no_extras(path: str, value: Json, allowed: Collection[str]) -> None:
    for key in value:
        if key not in allowed:
            raise _extra(f"{path}.{key}" if path else key)


def check_shape(body: Json, facts: ModelFacts, betas: Collection[str], counting: bool) -> None:
    """All rules that need no view of the whole conversation."""
    _check_body_fields(body, betas, counting)
    _check_messages_field(body)
    for i, message in enumerate(body["messages"]):
        _check_message(f"messages.{i}", message)
    _check_system(body.get("system"))
    _check_tools(body.get("tools"))
    _check_thinking_fields(body.get("thinking"), betas)
    _check_stop_sequences(body.get("stop_sequences"))
    if "cache_control" in body:
        check_mark("cache_control", body["cache_control"])
    _check_metadata(body.get("metadata"))


def _check_body_fields(body: Json, betas: Collection[str], counting: bool) -> None:
    allowed = COUNT_FIELDS if counting else BODY_FIELDS
    for key in body:
        opened = any(beta in betas for beta in BETA_FIELDS.get(key, ()))
        if key not in allowed and not opened:
            raise _extra(key)
    if not isinstance(body.get("stream", False), bool):
        raise broken("shape", "stream: Input should be a valid boolean")


def _check_messages_field(body: Json) -> None:
    messages = body.get("messages")
    if "messages" not in body:
        raise _required("messages")
    if not isinstance(messages, list):
        raise broken("shape", "messages: Input should be a valid list")
    if not messages:
        raise broken("1", "messages: at least one message is required")
    if len(messages) > MAX_MESSAGES:
        raise broken("1", f"messages: too many messages ({len(messages)} > {MAX_MESSAGES})")


def _check_message(path: str, message: object) -> None:
    if not isinstance(message, dict):
        raise broken("shape", f"{path}: Input should be a valid dictionary or object")
    for key in ("role", "content"):
        if key not in message:
            raise _required(f"{path}.{key}")
    _no_extras(path, message, ("role", "content"))
    role, content = message["role"], message["content"]
    if role not in ("user", "assistant", "system"):
        raise broken("shape", f"{path}.role: Input should be 'user' or 'assistant'")
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise broken("shape", f"{path}.content: Input should be a valid list")
    for j, block in enumerate(content):
        _check_block(f"{path}.content.{j}", block, role)


def _kind_of(path: str, block: object) -> str:
    if not isinstance(block, dict):
        raise broken("shape", f"{path}: Input should be a valid dictionary or object")
    if "type" not in block:
        raise _required(f"{path}.type")
    kind = block["type"]
    if kind not in BLOCK_FIELDS and kind not in OPAQUE_BLOCKS:
        tags = ", ".join(f"'{t}'" for t in sorted(BLOCK_FIELDS))
        raise broken(
            "shape",
            f"{path}: Input tag '{kind}' found using 'type' does not match any of the"
            f" expected tags: {tags}",
        )
    return str(kind)


def _check_block(path: str, block: object, role: str) -> None:
    kind = _kind_of(path, block)
    assert isinstance(block, dict)
    _check_side(path, kind, role)
    if kind in OPAQUE_BLOCKS:
        return
    inner = f"{path}.{kind}"
    _no_extras(inner, block, BLOCK_FIELDS[kind])
    if block.get("cache_control") is not None:
        check_mark(f"{inner}.cache_control", block["cache_control"])
    if kind == "text" and role == "user" and block.get("citations"):
        raise broken("shape", f"{inner}.citations: citations are not allowed on user text blocks")
    _check_strings(inner, kind, block)
    if kind == "tool_use":
        _check_tool_use(inner, block)
    elif kind == "tool_result":
        _check_tool_result(inner, block)


_STRINGS: dict[str, tuple[str, ...]] = {
    "text": ("text",),
    "tool_use": ("id", "name"),
    "tool_result": ("tool_use_id",),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
}


def _check_strings(path: str, kind: str, block: Json) -> None:
    for key in _STRINGS.get(kind, ()):
        if key not in block:
            raise _required(f"{path}.{key}")
        if not isinstance(block[key], str):
            raise broken("shape", f"{path}.{key}: Input should be a valid string")


def _check_side(path: str, kind: str, role: str) -> None:
    if role == "system" and kind != "text":
        raise broken("4b", f"{path}: only `text` blocks are allowed in `system` messages")
    if kind in ASSISTANT_ONLY and role != "assistant":
        raise broken("side", f"{path}: `{kind}` blocks can only be in `assistant` messages")
    if kind in USER_ONLY and role != "user":
        raise broken("side", f"{path}: `{kind}` blocks can only be in `user` messages")


def _check_pattern(path: str, value: str, pattern: re.Pattern[str]) -> None:
    if pattern.fullmatch(value) is None:
        raise broken("15", f"{path}: String should match pattern '{pattern.pattern}'")


def _check_tool_use(path: str, block: Json) -> None:
    _check_pattern(f"{path}.id", block["id"], ID_PATTERN)
    _check_pattern(f"{path}.name", block["name"], NAME_PATTERN)
    if "input" not in block:
        raise _required(f"{path}.input")
    if not isinstance(block["input"], dict):
        raise broken("W12", f"{path}.input: Input should be a valid dictionary")


def _check_tool_result(path: str, block: Json) -> None:
    _check_pattern(f"{path}.tool_use_id", block["tool_use_id"], ID_PATTERN)
    if not isinstance(block.get("is_error", False), bool):
        raise broken("shape", f"{path}.is_error: Input should be a valid boolean")
    content = block.get("content")
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        raise broken("shape", f"{path}.content: Input should be a valid list")
    for k, nested in enumerate(content):
        if _kind_of(f"{path}.content.{k}", nested) not in NESTED_TYPES:
            tags = ", ".join(f"'{t}'" for t in sorted(NESTED_TYPES))
            raise broken("shape", f"{path}.content.{k}: Input should be one of {tags}")
        _check_block(f"{path}.content.{k}", nested, "user")


def check_mark(path: str, mark: object) -> None:
    """A cache mark is `{"type": "ephemeral", "ttl": "5m" | "1h"}`."""
    if mark is None:
        return
    if not isinstance(mark, dict):
        raise broken("shape", f"{path}: Input should be a valid dictionary or object")
    if mark.get("type") != "ephemeral":
        raise broken("shape", f"{path}.type: Input should be 'ephemeral'")
    if mark.get("ttl", "5m") not in ("5m", "1h"):
        raise broken("shape", f"{path}.ttl: Input should be '5m' or '1h'")
    _no_extras(path, mark, ("type", "ttl"))


def _check_system(system: object) -> None:
    if system is None or isinstance(system, str):
        return
    if not isinstance(system, list):
        raise broken("shape", "system: Input should be a valid list")
    for i, block in enumerate(system):
        if not isinstance(block, dict) or block.get("type") != "text":
            raise broken("shape", f"system.{i}.type: Input should be 'text'")
        _no_extras(f"system.{i}", block, BLOCK_FIELDS["text"])
        _check_strings(f"system.{i}", "text", block)
        check_mark(f"system.{i}.cache_control", block.get("cache_control"))


def _check_tools(tools: object) -> None:
    if tools is None:
        return
    if not isinstance(tools, list):
        raise broken("shape", "tools: Input should be a valid list")
    names: set[str] = set()
    for i, tool in enumerate(tools):
        name = _check_tool(i, tool)
        if name in names:
            raise broken("15", "tools: Tool names must be unique.")
        names.add(name)


def _check_tool(i: int, tool: object) -> str:
    if not isinstance(tool, dict):
        raise broken("shape", f"tools.{i}: Input should be a valid dictionary or object")
    check_mark(f"tools.{i}.cache_control", tool.get("cache_control"))
    if tool.get("type") not in (None, "custom"):
        return str(tool.get("name", tool["type"]))  # a tool that the provider runs itself
    path = f"tools.{i}.custom"
    _no_extras(path, tool, TOOL_FIELDS)
    if "name" not in tool:
        raise _required(f"{path}.name")
    _check_pattern(f"{path}.name", str(tool["name"]), NAME_PATTERN)
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        raise _required(f"{path}.input_schema")
    if "type" not in schema:
        raise broken("15", f"{path}.input_schema.type: Field required")
    if schema["type"] != "object":
        raise broken("15", f"{path}.input_schema.type: Input should be 'object'")
    return str(tool["name"])


def _check_thinking_fields(thinking: object, betas: Collection[str]) -> None:
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if not isinstance(thinking, dict) or kind not in THINKING_FIELDS:
        tags = ", ".join(f"'{t}'" for t in THINKING_FIELDS)
        raise broken("shape", f"thinking.type: Input should be one of {tags}")
    allowed = set(THINKING_FIELDS[kind])
    if BINDING_BETA in betas:
        allowed.add("block_binding")
    _no_extras(f"thinking.{kind}", thinking, allowed)
    binding = thinking.get("block_binding")
    if isinstance(binding, dict):
        behavior = binding.get("prefix_mismatch_behavior")
        if behavior not in (None, "error", "drop_block"):
            raise broken(
                "shape",
                f"thinking.{kind}.block_binding.prefix_mismatch_behavior: Input should be 'error'"
                " or 'drop_block'",
            )


def _check_stop_sequences(sequences: object) -> None:
    if sequences is None:
        return
    if not isinstance(sequences, list) or not all(isinstance(s, str) for s in sequences):
        raise broken("shape", "stop_sequences: Input should be a valid list")
    if any(not s.strip() for s in sequences):
        raise broken("shape", "stop_sequences: each stop sequence must contain non-whitespace")


def _check_metadata(metadata: object) -> None:
    if isinstance(metadata, dict):
        _no_extras("metadata", metadata, ("user_id",))


def surrogate_free(value: object) -> bool:
    """Whether all strings can be written as UTF-8."""
    return all(_encodable(text) for text in _strings(value))


def _encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
