"""Owns which tools the assistant has, by the configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from datetime import tzinfo
from functools import partial

from agent.archive_ports import Archive
from agent.attachments import Attachments
from agent.media.pictures import PictureMaker
from agent.memory.desk import NoteDesk
from agent.ports import Clock, Tool
from agent.tools.attachments import OpenAttachmentTool
from agent.tools.clock import CurrentTimeTool
from agent.tools.command_socket import SocketRunner
from agent.tools.commands import CommandRunner, LocalRunner
from agent.tools.fetch import FetchUrlTool
from agent.tools.files import FilesTool
from agent.tools.memory import ForgetTool, RememberTool
from agent.tools.recall import RecallTool
from agent.tools.registry import ToolRegistry
from agent.tools.room import MEGABYTE, Bounds, disk_lack
from agent.tools.schedule import Jobs, ScheduleTool
from agent.tools.shell import ShellTool
from agent.tools.workspace import Workspaces
from gateway.config.environment import Home
from gateway.config.models import Tools
from gateway.fetching.door import WebDoor
from gateway.fetching.named import NamedHosts
from gateway.intake.wording import set_off

log = logging.getLogger(__name__)


def build_tools(
    wanted: Tools,
    home: Home,
    *,
    notes: NoteDesk,
    jobs: Jobs,
    clock: Clock,
    zone: Callable[[], tzinfo],
    archive: Archive,
    attachments: Attachments,
    pictures: PictureMaker,
    result_tokens: Callable[[], int],
    without: Collection[str] = (),
) -> ToolRegistry:
    """All that are switched on. ``result_tokens``: of a result as it is sent.

    ``without``: names whose place a plugin takes; the operator has allowed it.
    """

    def page_tokens() -> int:
        # A page comes whole: its frame has to fit under the cap as well.
        return result_tokens() * 3 // 5

    opener = OpenAttachmentTool(attachments, page_tokens=page_tokens, pictures=pictures)
    tools: list[Tool] = [
        CurrentTimeTool(clock, zone),
        RecallTool(archive, zone=zone, page_tokens=page_tokens),
        opener,
        RememberTool(notes),
        ForgetTool(notes),
        ScheduleTool(jobs),
    ]
    if wanted.fetch_url:
        door = WebDoor(NamedHosts.parsed(wanted.fetch_url_hosts))
        fetch = FetchUrlTool(
            *(door, attachments, opener),
            clock=clock,
            page_tokens=page_tokens,
            set_off=set_off,
            disk_lack=partial(disk_lack, home.path, bounds_of(wanted)),
        )
        tools.append(fetch)
    workspaces = Workspaces(home.workspace, bounds_of(wanted))
    if wanted.files:
        tools.append(FilesTool(workspaces, attachments, page_tokens=page_tokens))
    if wanted.shell:
        tools.append(ShellTool(command_runner(home), workspaces))
    ours = [tool for tool in tools if tool.schema.name not in without]
    return ToolRegistry(ours, result_cap_tokens=result_tokens)


def bounds_of(wanted: Tools) -> Bounds:
    """How much may be in each workspace, and how much stays free beside them."""
    return Bounds(wanted.workspace_mb * MEGABYTE, wanted.keep_free_mb * MEGABYTE)


def command_runner(home: Home) -> CommandRunner:
    """The unit of the service manager that is there for commands, else a process of our own.

    Decided once: should that unit go away, commands fail; they do not move in with us unasked.
    """
    if home.tools_socket.is_socket():
        log.info("commands run in a unit of their own", extra={"socket": str(home.tools_socket)})
        return SocketRunner(home.tools_socket)
    return LocalRunner()
