"""Owns the offline model: what answers when no provider is configured. Deterministic."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Sequence

from agent.compaction.calls.summary import SUMMARY_TAG
from agent.errors import ContextOverflow
from agent.llm.offline_summary import summarise
from agent.llm.wire import ERROR_PREFIX
from agent.messages import Message, ToolCall, is_real_user, text_of
from agent.model_metadata import (
    estimate_messages_tokens_rough,
    estimate_tokens_rough,
    estimate_tools_tokens,
)
from agent.ports import ModelRequest, ModelResponse, Usage

NOTICE = (
    "No model provider is configured, so this is posthouse's built-in offline model. It keeps and "
    "looks up this conversation, tells the time and runs tools, but it does not understand what "
    "you write. For a real model: `posthouse init` asks for a key (or set ANTHROPIC_API_KEY, or "
    "model.base_url in config.yaml); then start posthouse again."
)
HINTS = 'Try: "what time is it", "recall <words>", or "use <tool> {<arguments as JSON>}".'
_SHORT_NOTICE = "(offline model: no provider is configured)"
_QUOTE_CHARS = 280
_MOST_NAMED = 30
"""Tools that are listed: servers may bring hundreds."""

_TIME = re.compile(
    r"\bwhat(?:'s| is)? (?:the )?(?:current )?(?:time|date|day)\b|\bcurrent time\b|\bwhat day is"
    r"|几点|今天(?:是)?几号|何時|何日",
    re.IGNORECASE,
)
_RECALL = re.compile(
    r"\b(?:recall|search(?: for)?|look up|do you remember|what did (?:i|we|you) (?:say|write)"
    r"(?: about)?)[ :]+(?P<en>[^\n]+)|(?:回忆|搜索|查找|思い出して|検索)[:: ]*(?P<cjk>[^\n]+)",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"(?:ref(?:erence)? )?(m\d+)\W*", re.IGNORECASE)
_USE = re.compile(
    r"\buse (?:the )?(?:tool )?(?P<name>[a-zA-Z0-9_-]+)\s*(?P<args>\{.*\})?", re.DOTALL
)
_GREETING = re.compile(
    r"\W*(?:(?:hi|hello|hey|good (?:morning|evening)|hallo)\b|你好|こんにちは)", re.IGNORECASE
)


class OfflineModel:
    """A model without a provider (`agent.ports.LanguageModel`)."""

    def __init__(self, *, window_tokens: int = 200_000, name: str = "offline") -> None:
        self._window_tokens = window_tokens
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    async def respond(
        self, request: ModelRequest, *, on_text: Callable[[str], None] | None = None
    ) -> ModelResponse:
        prompt_tokens = _prompt_tokens(request)
        if prompt_tokens > self._window_tokens:
            raise ContextOverflow(
                f"prompt is too long: {prompt_tokens} tokens > {self._window_tokens} maximum",
                limit_tokens=self._window_tokens,
            )
        calls: list[ToolCall] = []
        if request.system.startswith(SUMMARY_TAG):
            text = summarise(_newest_text(request.messages), request.max_tokens)
        else:
            calls = _calls(request)
            text = "" if calls else _answer(request)
        text, cut = _within(text, request.max_tokens)
        for word in re.findall(r"\s*\S+\s*$|\s*\S+", text):
            if on_text is not None:
                on_text(word)
            await asyncio.sleep(0)
        message: Message = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = calls
        return ModelResponse(
            message=message,
            stop_reason="tool_use" if calls else "max_tokens" if cut else "end_turn",
            usage=Usage(prompt_tokens, max(1, estimate_messages_tokens_rough([message]))),
            model=self._name,
        )

    async def count_tokens(self, request: ModelRequest) -> int | None:
        return None  # it has no other measure than the estimate that everybody has

    async def window_tokens(self) -> int | None:
        return self._window_tokens

    async def aclose(self) -> None:
        return None


def _prompt_tokens(request: ModelRequest) -> int:
    return (
        estimate_tokens_rough(request.system)
        + estimate_messages_tokens_rough(request.messages)
        + estimate_tools_tokens(request.tools)
    )


def _within(text: str, max_tokens: int) -> tuple[str, bool]:
    tokens = estimate_tokens_rough(text)
    if tokens <= max_tokens:
        return text, False
    return text[: len(text) * max_tokens // tokens], True


def _newest_text(messages: Sequence[Message]) -> str:
    return text_of(messages[-1]["content"]) if messages else ""


def _newest_user_text(messages: Sequence[Message]) -> str:
    """What the person wrote last; several messages in a row count as one."""
    texts: list[str] = []
    for message in reversed(messages):
        if message["role"] == "user" and is_real_user(message):
            texts.append(text_of(message["content"]))
        elif texts or message["role"] == "assistant":
            break
    return "\n".join(reversed(texts)).strip()


def _calls(request: ModelRequest) -> list[ToolCall]:
    """The calls that the person asks for in plain words, of tools that are there."""
    if not request.messages or request.messages[-1]["role"] != "user":
        return []
    text = _newest_user_text(request.messages)
    known = {tool.name for tool in request.tools}
    wanted = [(name, args) for name, args in _wanted(text) if name in known]
    return [
        {
            "id": _call_id(request.messages, n),
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(args, ensure_ascii=False)},
        }
        for n, (name, args) in enumerate(wanted)
    ]


def _wanted(text: str) -> list[tuple[str, dict[str, object]]]:
    found: list[tuple[str, dict[str, object]]] = []
    if use := _USE.search(text):
        try:
            args = json.loads(use["args"] or "{}")
        except (ValueError, RecursionError):
            args = {}
        if isinstance(args, dict):
            return [(use["name"], args)]
    if _TIME.search(text):
        found.append(("current_time", {}))
    if recall := _RECALL.search(text):
        words = (recall["en"] or recall["cjk"]).strip(" ?!.\"'。？！")
        if reference := _REFERENCE.fullmatch(words):
            found.append(("recall", {"ref": reference[1]}))
        elif words:
            found.append(("recall", {"queries": [words]}))
    return found


def _call_id(messages: Sequence[Message], n: int) -> str:
    """The same for the same conversation, another one wherever anything differs."""
    tail = repr([(m["role"], m.get("content"), m.get("tool_calls")) for m in messages[-8:]])
    seed = f"{len(messages)}|{n}|{tail}".encode("utf-8", "surrogatepass")
    return f"call_{hashlib.blake2b(seed, digest_size=10).hexdigest()}"


def _answer(request: ModelRequest) -> str:
    messages = request.messages
    results = _trailing_results(messages)
    if results:
        return "\n\n".join(_told(result) for result in results)
    text = _newest_user_text(messages)
    known = {tool.name for tool in request.tools}
    if missing := [name for name, _ in _wanted(text) if name not in known]:
        return f"I have no tool named {missing[0]}{_what_there_is(request)}. {_SHORT_NOTICE}"
    first = not any(m["role"] == "assistant" for m in messages)
    asks_for_help = re.fullmatch(r"\W*help\W*", text, re.IGNORECASE) is not None
    notice = f"{NOTICE} {HINTS}" if first or asks_for_help else _SHORT_NOTICE
    if not text:
        return f"There was no text in that message. {notice}"
    if _GREETING.match(text):
        return f"Hello! {notice}"
    said = " ".join(text.split())
    quoted = said if len(said) <= _QUOTE_CHARS else f"{said[:_QUOTE_CHARS]}…"
    return f"You wrote: “{quoted}” It is kept; you can recall it later. {notice}"


def _what_there_is(request: ModelRequest) -> str:
    """For whoever named a tool that is not there."""
    names = sorted(tool.name for tool in request.tools)
    if not names:
        return "; I have none at all"
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"; I have {', '.join(names[:_MOST_NAMED])}{more}"


def _trailing_results(messages: Sequence[Message]) -> list[Message]:
    results: list[Message] = []
    for message in reversed(messages):
        if message["role"] != "tool":
            break
        results.append(message)
    return results[::-1]


def _told(result: Message) -> str:
    text = text_of(result["content"]).strip()
    name = result.get("name", "the tool")
    if text.startswith(ERROR_PREFIX):
        return f"That did not work: {text.removeprefix(ERROR_PREFIX).strip()}"
    if name == "current_time":
        return f"It is {text}."
    if name == "recall":
        return f"This is what I found:\n{text}"
    return f"{name} gave:\n{text}"
