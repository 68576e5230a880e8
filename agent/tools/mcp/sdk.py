"""Owns the client of the `mcp` package: negotiation, lists, calls, and its errors in our words."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import mcp_types as types
from jsonschema import (  # type: ignore[import-untyped]
    Draft202012Validator,
    SchemaError,
)
from mcp.client.client import Client
from mcp.client.session import IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from agent.llm.background import in_daemon_thread
from agent.tools.mcp import offers
from agent.tools.mcp.http import MAX_BODY_BYTES, http_client
from agent.tools.mcp.nouns import (
    Answer,
    DataPiece,
    HttpWay,
    Listing,
    Piece,
    Refused,
    ServerFailed,
    ServerSettings,
    StdioWay,
    TextPiece,
)
from agent.tools.mcp.stdio import stdio_transport
from agent.tools.mcp.trouble import Trouble

MAX_PAGES = 50
MAX_LISTED = 1_000
LIST_SECONDS = 30.0
_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, httpx2.HTTPError, OSError)

for _name in ("mcp", "client"):
    # What goes wrong is said by us; these print a server's words, which may be what people said.
    logging.getLogger(_name).setLevel(logging.CRITICAL)


class SdkConnection:
    """An `agent.tools.mcp.nouns.Connection`."""

    def __init__(self, name: str, trouble: Trouble) -> None:
        self.changed = asyncio.Event()
        self._name = name
        self._trouble = trouble
        self._client: Client | None = None

    @property
    def lost(self) -> asyncio.Event:
        return self._trouble.lost

    @property
    def reason(self) -> str:
        return self._trouble.in_words("the connection is gone")

    def use(self, client: Client) -> None:
        """It is reached."""
        self._client = client

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    async def heard(self, message: IncomingMessage) -> None:
        """A word of the server that answers nothing."""
        if isinstance(message, types.ToolListChangedNotification):
            self.changed.set()

    async def follow_changes(self) -> None:
        """Of servers of the newer protocol, which have to be asked for that."""
        offered = self.client.server_capabilities.tools
        modern = self.client.protocol_version in MODERN_PROTOCOL_VERSIONS
        if not modern or offered is None or not offered.list_changed:
            return
        with contextlib.suppress(MCPError, SubscriptionLost, TimeoutError, *_GONE):
            async with self.client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.changed.set()

    async def listing(self) -> Listing:
        tools: list[dict[str, Any]] = []
        cursor: str | None = None
        left_out: list[str] = []
        try:
            async with asyncio.timeout(LIST_SECONDS):
                for _ in range(MAX_PAGES):
                    params = types.PaginatedRequestParams(cursor=cursor)
                    page = await self.client.session.list_tools(params=params)
                    tools += [t.model_dump(by_alias=True, mode="json") for t in page.tools]
                    cursor = page.next_cursor
                    if cursor is None or len(tools) > MAX_LISTED:
                        break
        except TimeoutError as exc:
            raise ServerFailed("it does not say which tools it has") from exc
        except MCPError as exc:
            raise ServerFailed(f"it does not say which tools it has: {_short(exc)}") from exc
        except ValueError as exc:
            raise ServerFailed("what it says of its tools is not the protocol") from exc
        except _GONE as exc:
            raise ServerFailed(self._trouble.in_words("the connection is gone")) from exc
        if cursor is not None:
            left_out.append("its list does not end: the rest is not asked for")

        def made_fit() -> Listing:
            return offers.listing(
                self._name, tools[:MAX_LISTED], problem_of=_problem_of, left_out=left_out
            )

        return await in_daemon_thread(made_fit, "mcp-schemas")

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float) -> Answer:
        params = types.CallToolRequestParams(name=tool, arguments=dict(arguments))
        try:
            # Not `call_tool`: that one also holds results against schemas that the server chose,
            # with patterns that may take for ever.
            result = await self.client.session.send_request(
                types.CallToolRequest(params=params),
                types.CallToolResult,
                request_read_timeout_seconds=seconds,
            )
        except MCPError as exc:
            raise self._of_call(exc) from exc
        except ValueError as exc:
            raise ServerFailed("what it answered is not the protocol") from exc
        except _GONE as exc:
            self._trouble.note(_short(exc))
            raise ServerFailed("the connection to it broke") from exc
        return Answer(tuple(_pieces(result)), result.is_error)

    def _of_call(self, error: MCPError) -> Exception:
        if error.code == types.REQUEST_TIMEOUT:
            return TimeoutError()
        terminated = self._trouble.http_status == 404
        if error.code == types.CONNECTION_CLOSED or terminated:
            self._trouble.note("the connection is gone")
            return ServerFailed("the connection to it broke")
        if self._trouble.http_status is not None and error.code == types.INTERNAL_ERROR:
            return ServerFailed(self._trouble.in_words(_short(error)))
        return Refused(_short(error, 2_000))


@asynccontextmanager
async def connect(server: ServerSettings, *, legacy: bool) -> AsyncIterator[SdkConnection]:
    """As `agent.tools.mcp.nouns.Connector`. ``legacy``: only the older way to begin is tried."""
    trouble = Trouble()
    connection = SdkConnection(server.name, trouble)
    of_the_block: BaseException | None = None
    try:
        async with contextlib.AsyncExitStack() as stack:
            client = Client(
                await _transport(server, trouble, stack),
                mode="legacy" if legacy else "auto",
                read_timeout_seconds=LIST_SECONDS,
                message_handler=connection.heard,
                client_info=types.Implementation(name="posthouse", version="1"),
                cache=None,
            )
            await stack.enter_async_context(client)
            connection.use(client)
            following = asyncio.get_running_loop().create_task(
                connection.follow_changes(), name=f"changes of {server.name}"
            )
            try:
                yield connection
            except BaseException as exc:
                of_the_block = exc
                raise
            finally:
                following.cancel()
                await asyncio.wait({following})
    except Exception as exc:
        first = _first(exc)
        if first is of_the_block or isinstance(first, ServerFailed):
            raise first from exc
        otherwise = "it does not answer" if isinstance(first, TimeoutError) else _short(first)
        raise ServerFailed(trouble.in_words(otherwise)) from exc


async def _transport(
    server: ServerSettings, trouble: Trouble, stack: contextlib.AsyncExitStack
) -> Any:
    match server.way:
        case StdioWay() as way:
            return stdio_transport(server.name, way, trouble)
        case HttpWay() as way:
            client = await stack.enter_async_context(
                http_client(way, trouble, call_seconds=server.timeout_seconds)
            )
            return streamable_http_client(
                way.url, http_client=client, max_sse_event_size=MAX_BODY_BYTES
            )


def _first(error: BaseException) -> BaseException:
    """What is in the groups that libraries make of an error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _short(error: BaseException, chars: int = 200) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:chars]


def _problem_of(schema: Mapping[str, Any]) -> str:
    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as exc:
        return str(exc.message)
    except (ValueError, TypeError, RecursionError) as exc:
        return str(exc)
    return ""


def _pieces(result: types.CallToolResult) -> Iterator[Piece]:
    for block in result.content:
        match block:
            case types.TextContent():
                yield TextPiece(block.text)
            case types.ImageContent() | types.AudioContent():
                yield _data(block.data, block.mime_type, "")
            case types.ResourceLink():
                said = f"{block.description}" if block.description else ""
                yield TextPiece(f"[link: {block.name} {block.uri} {said}".rstrip() + "]")
            case types.EmbeddedResource(resource=types.TextResourceContents() as text):
                yield TextPiece(f"[{text.uri}]\n{text.text}")
            case types.EmbeddedResource(resource=types.BlobResourceContents() as blob):
                yield _data(blob.blob, blob.mime_type or "", str(blob.uri))
            case types.EmbeddedResource():
                yield TextPiece("[a resource of an unknown kind]")
    if result.structured_content is not None and not any(
        isinstance(block, types.TextContent) and block.text.strip() for block in result.content
    ):
        # Servers of the newer protocol say the same as text; this one has only this.
        yield TextPiece(json.dumps(result.structured_content, ensure_ascii=False))


def _data(encoded: str, media_type: str, uri: str) -> Piece:
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return TextPiece(f"[a part of type {media_type[:60]} that can not be read]")
    return DataPiece(data, media_type[:100], uri.rsplit("/", 1)[-1][:100])
