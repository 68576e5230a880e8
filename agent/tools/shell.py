"""Owns the `shell` tool: runs a command in the workspace, once a person has allowed just that."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Mapping
from typing import Any

from agent.approvals import Proposal, require_approval
from agent.errors import ToolError
from agent.messages import ToolSchema
from agent.ports import ToolContext, ToolResult
from agent.tools.command_runner import MAX_FILE_BYTES
from agent.tools.commands import CommandFailed, CommandRunner, Outcome, Request
from agent.tools.room import Room, lacking, outgrown
from agent.tools.workspace import Workspace, Workspaces

MAX_COMMAND_CHARS = 20_000
SECONDS = 120.0
AT_ONCE = 4
"""Commands of all conversations together; others wait."""
KEEP_BYTES = 64_000
LOOK_SECONDS = 0.5

_UNIT = r"posthouse(?:[\w@.-]*)"
_STOPS_US = re.compile(
    rf"\b(?:systemctl|service)\b[^\n;|&]*\b{_UNIT}"
    rf"|\b(?:pkill|killall|skill|snice)\b[^\n;|&]*(?:{_UNIT}|\bpython)"
    r"|\bkill\b[^\n;|&]*\s\S+\s+-1(?:\s|\Z)"
)
"""Commands that would end the daemon, in the ways in which a model writes them. No wall: there are
countless others, and a person reads each command."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class ShellTool:
    """One command after the other, each with a person's word (`agent.ports.PatientTool`)."""

    deadline_seconds = None
    """It waits for a person; the command has a limit of its own."""
    schema = ToolSchema(
        name="shell",
        description=(
            "Runs a shell command in your workspace folder (the one of the files tool). The user "
            "is asked before each, so say first what it is for, and put what belongs together into "
            f"one command. No input, no terminal; ended after {SECONDS:.0f} seconds; nothing goes "
            "on in the background. Of long output you get the beginning and the end: redirect it "
            "into a file to read the rest. If the user says no, do not try another way."
        ),
        parameters={
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "As for sh -c; may have many lines."}
            },
            "required": ["command"],
            "additionalProperties": False,
        },
    )

    def __init__(
        self,
        runner: CommandRunner,
        workspaces: Workspaces,
        *,
        seconds: float = SECONDS,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """``look_seconds``: between two looks at how much room a running command leaves."""
        self._look_seconds = look_seconds
        self._runner = runner
        self._workspaces = workspaces
        self._seconds = seconds
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        command = str(arguments["command"])
        if problem := problem_with_command(command, os.getpid()):
            raise ToolError(problem)
        workspace = self._workspaces.of(context.place)
        proposal = Proposal("shell", "run this command", (("", command),))
        allowed = await require_approval(context.approver, proposal)
        folder = await workspace.path()
        async with self._slots:
            start = await workspace.room()
            lack = lacking(start, workspace.bounds)
            left = 0 if lack else workspace.bounds.most_bytes - start.used_bytes
            try:
                outcome = await self._watched(
                    Request(command, folder, self._seconds, KEEP_BYTES, min(left, MAX_FILE_BYTES)),
                    workspace,
                    start,
                )
            except CommandFailed as exc:
                raise ToolError(f"{exc} ({allowed})") from exc
        text = told(outcome, allowed)
        if lack:
            text += f"\n[{lack}; until then a command can delete, and write nothing]"
        return ToolResult(text, is_error=outcome.ended != "exit")

    async def _watched(self, request: Request, workspace: Workspace, start: Room) -> Outcome:
        """Run it; end it as soon as it takes more room than there is.

        Raises:
            CommandFailed: that, or whatever the runner says.
        """
        running = asyncio.ensure_future(self._runner.run(request))
        room, count_at = start, 0.0
        try:
            while not (await asyncio.wait({running}, timeout=self._look_seconds))[0]:
                began = time.monotonic()
                counts = began >= count_at
                room = await workspace.room(None if counts else room)
                if counts:  # many files take a while: a tenth of the time at most
                    count_at = began + 10 * (time.monotonic() - began)
                if why := outgrown(start, room, workspace.bounds):
                    raise CommandFailed(f"it was ended, and nothing of it deleted: {why}")
            return running.result()
        finally:
            running.cancel()
            await asyncio.wait({running})
            if not running.cancelled():
                running.exception()  # told already, or of no interest any more


def problem_with_command(command: str, daemon_pid: int) -> str:
    """Why nobody is even asked about it; "": it can be asked (pure)."""
    if not command.strip():
        return "the command is empty"
    if len(command) > MAX_COMMAND_CHARS:
        return (
            f"the command has {len(command)} characters, at most {MAX_COMMAND_CHARS} are taken: "
            "write a script into the workspace with the files tool, then run that"
        )
    if "\x00" in command:
        return "a command can not hold NUL characters"
    try:
        command.encode("utf-8")
    except UnicodeEncodeError:
        return "the command is no valid text (half a surrogate pair)"
    if _STOPS_US.search(command) or re.search(
        rf"\bkill\b[^\n;|&]*\s-?{daemon_pid}(?:\s|\Z)", command
    ):
        return (
            "that would stop or restart me in the middle of this very turn, so it is not run. An "
            "admin can say /restart in the chat, or use the service manager on the server"
        )
    return ""


def told(outcome: Outcome, allowed: str) -> str:
    """The outcome in words for the model, its output readable (pure)."""
    seconds = f"{outcome.seconds:.1f} s"
    match outcome.ended:
        case "exit" if outcome.exit_code is not None:
            head = f"exit code {outcome.exit_code} after {seconds}"
        case "exit":
            head = f"ended by {_signal_name(outcome.signal)} after {seconds}"
        case "time":
            head = f"not finished after {seconds}, the limit, so it was ended"
        case _:
            head = f"ended after {seconds}: it wrote too much ({outcome.total_bytes:,} bytes)"
    lines = [f"{head} ({allowed})"]
    if outcome.left_running and outcome.ended == "exit":
        many = "1 process" if outcome.left_running == 1 else f"{outcome.left_running} processes"
        lines.append(f"[{many} that it had left running ended with it]")
    return "\n".join([*lines, _output(outcome)])


def _output(outcome: Outcome) -> str:
    kept = len(outcome.head) + len(outcome.tail)
    missing = outcome.total_bytes - kept
    if not outcome.total_bytes:
        return "(no output)"
    if _is_binary(outcome.head):
        return f"(binary output, {outcome.total_bytes:,} bytes, not shown)"
    if missing <= 0:
        return readable(outcome.head + outcome.tail)
    gap = f"\n[… {missing:,} bytes left out; redirect into a file to read them …]\n"
    return readable(outcome.head) + gap + readable(outcome.tail)


def readable(output: bytes) -> str:
    """Output as text: no colours, no cursor tricks, whatever is no UTF-8 replaced (pure)."""
    text = output.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("\ufffd", _ESCAPES.sub("", text)).strip("\n")


def _is_binary(head: bytes) -> bool:
    looked_at = head[:4096]
    return looked_at.count(0) * 20 > len(looked_at)


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"
