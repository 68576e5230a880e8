"""Owns the rules on the conversation: order of turns, empty content, calls and results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.fakes.anthropic_server.errors import ApiError, broken
from tests.fakes.anthropic_server.models import ModelFacts
from tests.fakes.anthropic_server.units import THINKING_TYPES, Json, blocks_of

PREFILL = (
    "This model does not support assistant message prefill."
    " The conversation must end with a user message."
)


@dataclass
class Turn:
    """Neighbouring messages of one role, which the API merges."""

    role: str
    last_index: int
    blocks: list[tuple[str, Json]] = field(default_factory=list)  # (path, block)

    def of_type(self, kind: str) -> list[tuple[str, Json]]:
        """The blocks of one type with their paths."""
        return [(path, b) for path, b in self.blocks if b.get("type") == kind]


def turns_of(messages: Sequence[Json]) -> list[Turn]:
    """Messages merged into turns; a system message is no turn of its own."""
    turns: list[Turn] = []
    for i, message in enumerate(messages):
        if message["role"] == "system":
            continue
        if not turns or turns[-1].role != message["role"]:
            turns.append(Turn(message["role"], i))
        turns[-1].last_index = i
        for j, block in enumerate(blocks_of(message["content"])):
            turns[-1].blocks.append((f"messages.{i}.content.{j}", block))
    return turns


def check_turns(body: Json, facts: ModelFacts, resumes: bool) -> None:
    """Rules 2 to 14; `resumes` says that the request goes on after a `pause_turn` answer."""
    messages: list[Json] = body["messages"]
    _check_first(messages)
    _check_system_messages(messages, facts)
    _check_empty_messages(messages)
    _check_texts(body)
    turns = turns_of(messages)
    _check_ids_unique(turns)
    _check_results_known(turns)
    _check_calls_answered(turns)
    if messages[-1]["role"] == "assistant" and not resumes:
        _check_prefill(messages[-1], facts)


def _is_compaction(message: Json) -> bool:
    blocks = blocks_of(message["content"])
    return bool(blocks) and blocks[0].get("type") == "compaction"


def _check_first(messages: Sequence[Json]) -> None:
    first = messages[0]
    if first["role"] == "assistant" and not _is_compaction(first):
        raise broken("2", 'messages: first message must use the "user" role')


def _check_system_messages(messages: Sequence[Json], facts: ModelFacts) -> None:
    for i, message in enumerate(messages):
        if message["role"] != "system":
            continue
        if not facts.system_in_messages:
            raise broken(
                "4",
                'messages: Unexpected role "system". The Messages API accepts a top-level `system`'
                ' parameter, not "system" as an input message role.',
            )
        before = messages[i - 1]["role"] if i else None
        if before != "user":
            raise broken(
                "4b", f"messages.{i}: a `system` message must come immediately after a user turn"
            )


def _check_empty_messages(messages: Sequence[Json]) -> None:
    last = len(messages) - 1
    for i, message in enumerate(messages):
        optional = i == last and message["role"] == "assistant"
        if not message["content"] and not optional:
            raise broken(
                "5",
                f"messages.{i}: all messages must have non-empty content"
                " except for the optional final assistant message",
            )


def _check_text(where: str, text: str) -> None:
    if not text:
        raise broken("6", f"{where}: text content blocks must be non-empty")
    if not text.strip():
        raise broken("7", f"{where}: text content blocks must contain non-whitespace text")


def _check_texts(body: Json) -> None:
    system = body.get("system")
    if isinstance(system, list):
        for block in system:
            _check_text("system", block["text"])
    for message in body["messages"]:
        content = message["content"]
        if isinstance(content, str):
            if content:
                _check_text("messages", content)
            continue
        for text in _texts(content):
            _check_text("messages", text)


def _texts(blocks: Sequence[Json]) -> Iterator[str]:
    for block in blocks:
        if block["type"] == "text":
            yield block["text"]
        elif block["type"] == "tool_result" and isinstance(block.get("content"), list):
            yield from _texts(block["content"])


def _check_ids_unique(turns: Sequence[Turn]) -> None:
    seen: set[str] = set()
    for turn in turns:
        for path, block in turn.of_type("tool_use"):
            if block["id"] in seen:
                raise broken("12", f"{path}: `tool_use` ids must be unique")
            seen.add(block["id"])


def _check_results_known(turns: Sequence[Turn]) -> None:
    for n, turn in enumerate(turns):
        previous = turns[n - 1] if n else None
        called = {b["id"] for _, b in previous.of_type("tool_use")} if previous else set()
        answered: set[str] = set()
        for path, block in turn.of_type("tool_result"):
            call = block["tool_use_id"]
            if call not in called:
                raise broken(
                    "11",
                    f"{path}: unexpected `tool_use_id` found in `tool_result` blocks: {call}."
                    " Each `tool_result` block must have a corresponding `tool_use` block in the"
                    " previous message.",
                )
            if call in answered:
                raise broken(
                    "13",
                    f"{path}: each tool_use must have a single result."
                    f" Found multiple `tool_result` blocks with id: {call}",
                )
            answered.add(call)


def _check_calls_answered(turns: Sequence[Turn]) -> None:
    for n, turn in enumerate(turns):
        calls = [b["id"] for _, b in turn.of_type("tool_use")]
        if not calls:
            continue
        following = turns[n + 1] if n + 1 < len(turns) else None
        results = _leading_results(following) if following else set()
        missing = [call for call in calls if call not in results]
        if missing:
            late = following is not None and _answers_late(following, missing)
            raise _unanswered("14" if late else "10", turn.last_index, missing)


def _leading_results(turn: Turn) -> set[str]:
    found: set[str] = set()
    for _, block in turn.blocks:
        if block.get("type") != "tool_result":
            break
        found.add(block["tool_use_id"])
    return found


def _answers_late(turn: Turn, missing: Sequence[str]) -> bool:
    return {b["tool_use_id"] for _, b in turn.of_type("tool_result")} >= set(missing)


def _unanswered(rule: str, index: int, missing: Sequence[str]) -> ApiError:
    return broken(
        rule,
        f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately"
        f" after: {', '.join(missing)}. Each `tool_use` block must have a corresponding"
        " `tool_result` block in the next message.",
    )


def _check_prefill(message: Json, facts: ModelFacts) -> None:
    if not facts.prefill:
        raise broken("9", PREFILL)
    blocks = blocks_of(message["content"])
    text = blocks[-1].get("text", "") if blocks else ""
    if text != text.rstrip():
        raise broken("8", "messages: final assistant content cannot end with trailing whitespace")


def check_thinking_first(body: Json) -> None:
    """Rule 22: with a thinking budget, the open tool loop starts with a thinking block."""
    thinking = body.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return  # adaptive thinking may leave a turn without thought
    turns = turns_of(body["messages"])
    if not turns or turns[-1].role != "user" or not turns[-1].of_type("tool_result"):
        return
    path, block = turns[-2].blocks[0]
    if block["type"] not in THINKING_TYPES:
        raise broken(
            "22",
            f"{path}.type: Expected `thinking` or `redacted_thinking`, but found"
            f" `{block['type']}`. When `thinking` is enabled, a final `assistant` message must"
            " start with a thinking block (preceeding the lastmost set of `tool_use` and"
            " `tool_result` blocks). We recommend you include thinking blocks from previous"
            " turns. To avoid this requirement, disable `thinking`.",
        )


def turn_warnings(body: Json) -> list[tuple[str, str]]:
    """What the API may accept but this project does not want to send."""
    found: list[tuple[str, str]] = []
    messages = body["messages"]
    for i in range(1, len(messages)):
        if messages[i]["role"] == messages[i - 1]["role"]:
            found.append(("W2", f"messages.{i}: same role as the message before"))
    uses_tools = any(
        b.get("type") in ("tool_use", "tool_result")
        for m in messages
        for b in blocks_of(m["content"])
    )
    if uses_tools and not body.get("tools"):
        found.append(("16", "tool blocks in the history, but no `tools` in the request"))
    system = body.get("system")
    if isinstance(system, str) and not system.strip():
        found.append(("6", "system: blank text"))
    return found
