"""Owns the dispatch of tool calls: every call gets exactly one result, whatever the tool does."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from agent.attachments import NAME
from agent.compaction.plan.clip import clip_to_tokens
from agent.errors import ToolError
from agent.llm.wire import ERROR_PREFIX, NO_OUTPUT
from agent.messages import Content, Draft, Message, Part, ToolCall, ToolSchema, clean_text, text_of
from agent.ports import OrderedTool, PatientTool, Tool, ToolContext, ToolResult
from agent.tools.arguments import problem_with

log = logging.getLogger(__name__)

_FILE = "[goes out with your answer: attachment "
_FILES_AT_THE_END = re.compile(rf"(?:\n{re.escape(_FILE)}{NAME.pattern}\])+\Z")


def files_of(result: Message) -> list[str]:
    """The kept files that a stored result said would go out with the answer."""
    found = _FILES_AT_THE_END.search(text_of(result["content"]))
    return NAME.findall(found[0]) if found is not None else []


def _kept(tool: str, files: Sequence[str]) -> list[str]:
    """Those that are names of kept files at all, each once; not paths, nor what ends our line."""
    kept = [name for name in dict.fromkeys(files) if NAME.fullmatch(name)]
    if len(kept) < len(set(files)):
        log.warning("A tool wants to send what is no kept file", extra={"tool": tool})
    return kept


def _with_files(text: str, files: Sequence[str]) -> str:
    """The text with what goes out; only a tool that sends can say so, not what a tool has read."""
    said = text.replace(_FILE, f"({_FILE[1:]}")
    return "\n".join([said, *(f"{_FILE}{name}]" for name in files)])


class CallWatcher(Protocol):
    """Sees every call whose arguments fit. Never raises; bounds its own time."""

    async def before(
        self, call: ToolCall, arguments: Mapping[str, Any], context: ToolContext
    ) -> str:
        """Why it must not run, for the model; "": it may."""
        ...

    async def after(
        self,
        call: ToolCall,
        arguments: Mapping[str, Any],
        context: ToolContext,
        result: ToolResult,
    ) -> ToolResult:
        """What the model is to read in place of this result; mostly the result itself."""
        ...


class ToolRegistry:
    """The tools of this process, by name."""

    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        result_cap_tokens: int | Callable[[], int] = 4000,
        deadline_seconds: float = 120.0,
    ) -> None:
        """Take the tools in.

        ``result_cap_tokens``: of a result as it is sent; a function where the window may change.

        Raises:
            ValueError: two tools have one name.
        """
        own = list(tools)
        names = [tool.schema.name for tool in own]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two tools are named {name!r}")
        self._by_source: dict[str, list[Tool]] = {"": own}
        self._tools: dict[str, Tool] = {}
        self._arrange()
        self._result_cap_tokens = result_cap_tokens
        self._deadline_seconds = deadline_seconds
        self._watcher: CallWatcher | None = None

    def watched_by(self, watcher: CallWatcher) -> None:
        """Ask this one about every call from now on."""
        self._watcher = watcher

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """Sorted by name; another list reaches conversations at the start of their next turn."""
        return tuple(tool.schema for tool in self._tools.values())

    def replace(self, source: str, tools: Iterable[Tool]) -> list[str]:
        """All tools of one source (plugins, the engine, a server), in place of those it had.

        The first to have a name keeps it, and ours are the first. Gives back the names of those
        that are left out, because another source has theirs, or the same one has it twice.
        """
        given = list(tools)
        self._by_source[source] = given
        self._arrange()
        counting = {id(tool) for tool in self._tools.values()}
        return [tool.schema.name for tool in given if id(tool) not in counting]

    def _arrange(self) -> None:
        by_name: dict[str, Tool] = {}
        for tools in self._by_source.values():
            for tool in tools:
                by_name.setdefault(tool.schema.name, tool)
        self._tools = dict(sorted(by_name.items()))

    def order_of(self, call: ToolCall) -> str | None:
        """What its tool changes in order (`OrderedTool.in_order`); None: it waits for nobody."""
        tool = self._tools.get(call["function"]["name"])
        return tool.in_order if isinstance(tool, OrderedTool) else None

    async def run(
        self,
        call: ToolCall,
        context: ToolContext,
        *,
        on_file: Callable[[str], None] | None = None,
    ) -> Draft:
        """Run one call; its tool message, whole as said and capped as sent.

        ``on_file`` is told of each file that the call wants to go out with the answer.

        Raises:
            asyncio.CancelledError: the user said stop.
        """
        name = call["function"]["name"]
        result = await self._result(call, context)
        files = _kept(name, result.files)
        if on_file is not None:
            for file in files:
                on_file(file)
        text = clean_text(result.text)
        if not text.strip():
            text = NO_OUTPUT
        text = _with_files(text, files)
        if result.is_error and not text.startswith(ERROR_PREFIX):
            text = f"{ERROR_PREFIX} {text}"
        message: Message = {
            "role": "tool",
            "tool_call_id": call["id"],
            "name": name,
            "content": _content(text, result.pictures),
        }
        cap = self._result_cap_tokens
        capped = clip_to_tokens(
            text,
            cap if isinstance(cap, int) else cap(),
            reference=f"recall ref {call['id']} has all of it",
        )
        sent = None if capped == text else _content(capped, result.pictures)
        return Draft(message, wire_content=sent)

    async def _result(self, call: ToolCall, context: ToolContext) -> ToolResult:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        tool = self._tools.get(name)
        if tool is None:
            return _error(f"the tool {name!r} is no longer available; go on without it")
        try:
            values, problem = _parsed(arguments)
            problem = problem or problem_with(values, tool.schema.parameters)
        except Exception as exc:  # noqa: BLE001 - a schema may be anything
            return self._failed(name, exc)
        if problem:
            return _error(f"invalid arguments for {name}: {problem}")
        if self._watcher is None:
            return await self._ran(name, tool, values, context)
        refusal = await self._watcher.before(call, values, context)
        if refusal:
            return _error(refusal)
        result = await self._ran(name, tool, values, context)
        return await self._watcher.after(call, values, context, result)

    async def _ran(
        self, name: str, tool: Tool, values: Mapping[str, Any], context: ToolContext
    ) -> ToolResult:
        try:
            seconds = self._deadline_of(tool)
            async with asyncio.timeout(seconds) as deadline:
                return await tool.run(values, context)
        except ToolError as exc:
            return _error(str(exc))
        except TimeoutError as exc:
            if deadline.expired():
                return _error(f"{name} took longer than {seconds or 0:g} s")
            return self._failed(name, exc)
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody said stop: something that the tool waited for was cancelled.
            return self._failed(name, exc)
        except Exception as exc:  # noqa: BLE001 - a tool is a supervised border: its bug ends its call
            return self._failed(name, exc)

    def _deadline_of(self, tool: Tool) -> float | None:
        return tool.deadline_seconds if isinstance(tool, PatientTool) else self._deadline_seconds

    @staticmethod
    def _failed(name: str, exc: BaseException) -> ToolResult:
        log.error("A tool failed", extra={"tool": name}, exc_info=exc)
        return _error(f"{name} failed unexpectedly")


def _content(text: str, pictures: Sequence[Part]) -> Content:
    return [{"type": "text", "text": text}, *pictures] if pictures else text


def _error(text: str) -> ToolResult:
    return ToolResult(text, is_error=True)


def _parsed(arguments: str) -> tuple[Mapping[str, Any], str]:
    """(arguments, "") or ({}, what is wrong with them)."""
    if not arguments.strip():
        return {}, ""
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError) as exc:
        return {}, f"not valid JSON ({exc})"
    if not isinstance(values, dict):
        return {}, "not a JSON object"
    return values, ""
