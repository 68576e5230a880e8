"""Owns how a session stands in the columns of its row (pure)."""

from __future__ import annotations

import dataclasses
import json
from functools import lru_cache
from typing import Any

from agent.messages import ToolSchema
from agent.sessions import CompressionState, Session, SessionPrefix, UsageAnchor
from storage.codec import dump_json

SELECT_SESSION = (
    "SELECT id, conversation_id, parent_session_id, link, revision, source, model, system_prompt,"
    " tools, model_config, title, started_at, ended_at, end_reason, message_count,"
    " anchor_prompt_tokens, anchor_output_tokens, anchor_row_id, compression, manifest"
    " FROM sessions"
)


def dump_compression(state: CompressionState) -> str:
    """Only what differs from the defaults, so that an old row reads well under new fields."""
    default = CompressionState()
    fields = {
        field.name: value
        for field in dataclasses.fields(state)
        if (value := getattr(state, field.name)) != getattr(default, field.name)
    }
    return dump_json(fields)


@lru_cache(maxsize=256)
def load_compression(text: str) -> CompressionState:
    """Fields that this version does not know are left out."""
    known = {field.name for field in dataclasses.fields(CompressionState)}
    stored = json.loads(text)
    return CompressionState(**{name: stored[name] for name in stored.keys() & known})


@lru_cache(maxsize=64)
def _load_tools(text: str) -> tuple[ToolSchema, ...]:
    return tuple(ToolSchema(**tool) for tool in json.loads(text))


def session_of(row: tuple[Any, ...]) -> Session:
    """A row of `SELECT_SESSION`."""
    (
        session_id, conversation_id, parent_id, link, revision, source, model, system_prompt,
        tools, model_config, title, started_at, ended_at, end_reason, message_count,
        anchor_prompt, anchor_output, anchor_row, compression, manifest,
    ) = row  # fmt: skip
    return Session(
        id=session_id,
        conversation_id=conversation_id,
        parent_session_id=parent_id,
        link=link,
        revision=revision,
        prefix=SessionPrefix(
            source, model, system_prompt, _load_tools(tools), json.loads(model_config)
        ),
        title=title,
        started_at=started_at,
        ended_at=ended_at,
        end_reason=end_reason,
        message_count=message_count,
        anchor=None
        if anchor_prompt is None
        else UsageAnchor(anchor_prompt, anchor_output, anchor_row),
        compression=load_compression(compression),
        manifest=None if manifest is None else json.loads(manifest),
    )
