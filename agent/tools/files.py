"""Owns the `files` tool: a folder to keep work in; what changes something takes a person's word."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from agent.approvals import Proposal, require_approval
from agent.attachments import NAME, Attachments
from agent.daemon_threads import DaemonThreads
from agent.errors import StoreUnavailable, ToolError
from agent.media.documents import decoded
from agent.media.kinds import media_type_of
from agent.messages import ToolSchema
from agent.ports import ToolContext, ToolResult
from agent.tools.paging import text_page
from agent.tools.paths import Entry, Seen, shown_name
from agent.tools.workspace import Workspace, Workspaces

MAX_TEXT_CHARS = 100_000
MAX_READ_BYTES = 8 * 1024 * 1024
MAX_SENT_BYTES = 10 * 1024 * 1024
"""What both platforms take from a bot."""
MAX_LIMIT_CHARS = 100_000

_NEEDED: Mapping[str, tuple[str, ...]] = {
    "list": (),
    "read": ("path",),
    "write": ("path", "text"),
    "edit": ("path", "old", "new"),
    "delete": ("path",),
    "move": ("path", "to"),
    "send": ("path",),
    "take": ("name", "path"),
}


class FilesTool:
    """Lists, reads and sends; writes, changes, moves and deletes (`agent.ports.PatientTool`)."""

    deadline_seconds = None
    """It waits for a person; nothing else in it takes long."""
    schema = ToolSchema(
        name="files",
        description=(
            "Your workspace: a folder with files that stay from one conversation to the next. "
            "list (of a folder), read (page by page), send (the file goes to the user with your "
            "answer): at once. write (the whole file), edit (old is replaced by new; old must "
            "stand there exactly once), delete, move, take (an attachment that somebody sent): the "
            "user is asked each time. If the user says no, do not try another way."
        ),
        parameters={
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": list(_NEEDED)},
                "path": {
                    "type": "string",
                    "description": "Inside the workspace, such as notes/todo.md; list: a folder.",
                },
                "text": {"type": "string", "description": "write: all of the file."},
                "old": {"type": "string", "description": "edit: what stands there."},
                "new": {"type": "string", "description": "edit: what shall stand there."},
                "to": {"type": "string", "description": "move: the new path."},
                "name": {"type": "string", "description": "take: the attachment's NAME."},
                "offset": {"type": "integer", "description": "read: characters to skip."},
                "limit": {"type": "integer", "description": "read: at most so many characters."},
            },
            "required": ["action"],
            "additionalProperties": False,
        },
    )

    def __init__(
        self,
        workspaces: Workspaces,
        attachments: Attachments,
        *,
        page_tokens: Callable[[], int],
    ) -> None:
        """``page_tokens``: of one result, so that it comes whole."""
        self._workspaces = workspaces
        self._attachments = attachments
        self._page_tokens = page_tokens
        self._threads = DaemonThreads(1, name="text of files")

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        action = str(arguments["action"])
        missing = [name for name in _NEEDED[action] if name not in arguments]
        if missing:
            raise ToolError(f"{action} needs {' and '.join(missing)}")
        workspace = self._workspaces.of(context.place)
        path = str(arguments.get("path", ""))
        match action:
            case "list":
                return await self._list(workspace, path)
            case "read":
                return await self._read(workspace, path, arguments)
            case "send":
                return await self._send(workspace, path, context)
            case "write":
                return await self._write(workspace, path, str(arguments["text"]), context)
            case "edit":
                old, new = str(arguments["old"]), str(arguments["new"])
                return await self._edit(workspace, path, old, new, context)
            case "delete":
                return await self._delete(workspace, path, context)
            case "move":
                return await self._move(workspace, path, str(arguments["to"]), context)
            case _:
                return await self._take(workspace, str(arguments["name"]), path, context)

    # at once

    async def _list(self, workspace: Workspace, path: str) -> ToolResult:
        entries, more = await workspace.entries(path)
        if not entries:
            return ToolResult("(empty)")
        lines = [_line(entry) for entry in entries]
        return ToolResult("\n".join([*lines, *(["[there are more]"] if more else [])]))

    async def _read(
        self, workspace: Workspace, path: str, arguments: Mapping[str, Any]
    ) -> ToolResult:
        data = await workspace.read(path, MAX_READ_BYTES)
        offset = max(0, int(arguments.get("offset", 0)))
        limit = min(MAX_LIMIT_CHARS, max(1, int(arguments.get("limit", MAX_LIMIT_CHARS))))
        # A large one takes a moment, and the loop has others to serve.
        page = partial(_text_page, path, data, offset, limit, self._page_tokens())
        return ToolResult(await asyncio.wrap_future(self._threads.submit(page)))

    async def _send(self, workspace: Workspace, path: str, context: ToolContext) -> ToolResult:
        data = await workspace.read(path, MAX_SENT_BYTES)
        if not data:
            raise ToolError("that file is empty, and an empty file can not be sent")
        file_name = path.rstrip("/").rpartition("/")[2]
        try:
            kept = await self._attachments.keep(
                data,
                owner=context.owner,
                file_name=file_name,
                media_type=media_type_of(data),
            )
        except StoreUnavailable as exc:
            raise ToolError("it can not be sent right now; try again later") from exc
        return ToolResult(f"{path} goes to the user with your answer", files=(kept.name,))

    # after a yes

    async def _write(
        self, workspace: Workspace, path: str, text: str, context: ToolContext
    ) -> ToolResult:
        data = _as_bytes(text)
        before = await workspace.look(path)
        if before is not None and before.kind != "file":
            raise ToolError(f"there is a {before.kind} of that name; take another one")
        deed = "write this new file into my workspace"
        if before is not None:
            deed = f"replace this file of {before.size_bytes:,} bytes in my workspace"
        allowed = await _allowed(context, deed, ("Path", path), ("Text", text))
        await workspace.write(path, data, before)
        return ToolResult(f"written: {len(data)} bytes ({allowed})")

    async def _edit(
        self, workspace: Workspace, path: str, old: str, new: str, context: ToolContext
    ) -> ToolResult:
        await self._edited(workspace, path, old, new)  # in vain is not asked
        allowed = await _allowed(
            context, "change this file in my workspace", ("Path", path), ("Old", old), ("New", new)
        )
        data, before = await self._edited(workspace, path, old, new)
        await workspace.write(path, data, before)
        return ToolResult(f"changed ({allowed})")

    async def _edited(
        self, workspace: Workspace, path: str, old: str, new: str
    ) -> tuple[bytes, Seen]:
        """The file as it would be, and as it was seen."""
        before = await workspace.look(path)
        if before is None:
            raise ToolError("there is nothing at that path; write makes a new file")
        data = await workspace.read(path, MAX_READ_BYTES)
        at = data.find(_as_bytes(old)) if old else -1
        if at < 0 or data.find(_as_bytes(old), at + 1) >= 0:
            where = "nowhere" if at < 0 else "more than once"
            raise ToolError(
                f"old stands {where} in that file; give a text that stands there exactly once"
            )
        if old == new:
            raise ToolError("old and new are the same")
        return data.replace(_as_bytes(old), _as_bytes(new)), before

    async def _delete(self, workspace: Workspace, path: str, context: ToolContext) -> ToolResult:
        before = await self._there(workspace, path)
        deed = f"delete this {before.kind if before.kind != 'other' else 'entry'}"
        allowed = await _allowed(context, f"{deed} from my workspace", ("Path", path))
        await workspace.delete(path, before)
        return ToolResult(f"deleted ({allowed})")

    async def _move(
        self, workspace: Workspace, path: str, to: str, context: ToolContext
    ) -> ToolResult:
        before = await self._there(workspace, path)
        if await workspace.look(to) is not None:
            raise ToolError("there is something of that name already; delete it first")
        allowed = await _allowed(context, "move this in my workspace", ("From", path), ("To", to))
        await workspace.move(path, to, before)
        return ToolResult(f"moved ({allowed})")

    async def _take(
        self, workspace: Workspace, name: str, path: str, context: ToolContext
    ) -> ToolResult:
        found = NAME.search(name)
        file = await self._attachments.find(found[0]) if found is not None else None
        if file is None:
            raise ToolError(
                "there is no such attachment; copy its NAME from the line that names it"
            )
        before = await workspace.look(path)
        if before is not None:
            raise ToolError("there is something of that name already; take another path")
        deed = f"put an attachment of {file.size_bytes:,} bytes into my workspace"
        own = file.owner == context.owner and bool(file.file_name)
        what = ("Attachment", file.file_name if own else file.name)
        allowed = await _allowed(context, deed, what, ("Path", path))
        try:
            data = await self._attachments.read(file.name)
        except LookupError as exc:
            raise ToolError("that attachment is gone") from exc
        except StoreUnavailable as exc:
            raise ToolError("it can not be read right now; try again later") from exc
        await workspace.write(path, data, None)
        return ToolResult(f"taken: {len(data)} bytes ({allowed})")

    @staticmethod
    async def _there(workspace: Workspace, path: str) -> Seen:
        before = await workspace.look(path)
        if before is None:
            raise ToolError("there is nothing at that path; list the folder")
        return before


async def _allowed(context: ToolContext, deed: str, *shown: tuple[str, str]) -> str:
    return await require_approval(context.approver, Proposal("files", deed, shown))


def _as_bytes(text: str) -> bytes:
    if len(text) > MAX_TEXT_CHARS:
        raise ToolError(f"at most {MAX_TEXT_CHARS:,} characters at once; write it in pieces")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolError("that is no valid text (half a surrogate pair)") from None


def _text_page(path: str, data: bytes, offset: int, limit: int, room: int) -> str:
    text = decoded(data)
    if text is None:
        return f"{path} is no text ({len(data):,} bytes); send shows it to the user."
    return text_page(path, text, offset, limit, room)


def _line(entry: Entry) -> str:
    name = shown_name(entry.name)
    match entry.kind:
        case "folder":
            return f"{name}/"
        case "file":
            return f"{name} ({entry.size_bytes:,} bytes)"
        case "link":
            return f"{name} (a link; not followed)"
        case _:
            return f"{name} (no ordinary file)"
