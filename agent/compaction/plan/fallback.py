"""Owns the summary that needs no model: requests, tool lines, errors, the newest replies. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.compaction.calls.summary import Readable
from agent.compaction.plan.clip import clip, clip_to_tokens
from agent.compaction.plan.frame import clean_body
from agent.model_metadata import estimate_tokens_rough


def deterministic_body(
    items: Sequence[Readable],
    tool_line: Mapping[str, str],
    previous: str,
    budget_tokens: int,
) -> str:
    """A body made from the messages alone: requests, tool lines, errors, the newest reply.

    Only for when the provider has proven that the history does not fit and no model can summarise.

    Args:
        items: What is left out.
        tool_line: One line for each result, by call id.
        previous: Body of the summary so far.
        budget_tokens: About how long it may get.
    """
    asked: list[str] = []
    done: list[str] = []
    said: list[str] = []
    for item in items:
        message, text = item.message, item.text
        match message["role"]:
            case "user":
                asked.append(f"- {clip(' '.join(text.split()), 300)}")
            case "tool":
                call_id = message.get("tool_call_id", "")
                done.append(f"- {tool_line.get(call_id, clip(' '.join(text.split()), 120))}")
            case "assistant" if text.strip():
                said.append(f"- {clip(' '.join(text.split()), 240)}")
            case _:
                pass
    share = max(40, budget_tokens // 4)
    sections = (
        ("## Critical Context", clip_to_tokens(previous, share)),
        ("## Open User Requests", _newest_lines(asked, share)),
        ("## Progress\n### Done", _newest_lines(done, share)),
        ("## Key Decisions", _newest_lines(said, share)),
    )
    body = "\n\n".join(f"{title}\n{text}" for title, text in sections if text)
    return clean_body(body) or "(no summary could be made)"


def _newest_lines(lines: Sequence[str], budget_tokens: int) -> str:
    kept: list[str] = []
    left = budget_tokens
    for line in reversed(lines):
        left -= estimate_tokens_rough(line) + 1
        if left < 0 and kept:
            break
        kept.append(line)
    missing = len(lines) - len(kept)
    note = [f"- (and {missing} earlier)"] if missing else []
    return "\n".join([*note, *reversed(kept)])
