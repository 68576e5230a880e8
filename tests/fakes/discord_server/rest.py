"""The REST half: routes under /api/v10, their rules, and the scripted faults in front of them."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import unicodedata
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes.discord_server import errors, payloads, state
from tests.fakes.discord_server.errors import ApiError
from tests.fakes.discord_server.faults import Fault, FaultBook
from tests.fakes.discord_server.forms import check_components, check_files
from tests.fakes.discord_server.interactions import (
    ANSWER,
    CHOICES,
    DEFER_ANSWER,
    DEFER_UPDATE,
    MODAL,
    PONG,
    UPDATE,
    Interaction,
    Interactions,
)
from tests.fakes.discord_server.state import Channel, Message, World

API = "/api/v10"
_CHANNEL_IN_PATH = re.compile(r"/channels/(\d+)")
_CUSTOM_EMOJI = re.compile(r"\w+:\d+")
# Interactions carry their right in the path, so these ask for no token.
_NO_TOKEN = ("/interactions/", "/webhooks/", "/gateway")

BODY: web.RequestKey[Any] = web.RequestKey("body", object)
FILES = web.RequestKey("files", list[tuple[str, bytes, str]])
_UNANSWERED = 499  # what a handler returns whose connection is gone


@dataclass
class Call:
    """One request, as it came, with the status it got (0: none)."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    at: float
    status: int = 0
    code: int | None = None
    fault: str | None = None
    files: list[str] = field(default_factory=list)


@dataclass
class SentMessage:
    """A message that the bot made, with exactly what it asked for."""

    id: int
    channel_id: int
    content: str
    nonce: str | int | None
    reference: dict[str, Any] | None
    allowed_mentions: dict[str, Any] | None
    kind: str
    at: float
    flags: int = 0
    files: list[str] = field(default_factory=list)
    edits: list[str] = field(default_factory=list)
    repeats: int = 0
    deleted: bool = False
    pings: list[int] = field(default_factory=list)
    pings_everyone: bool = False

    @property
    def reply_to(self) -> int | None:
        return None if self.reference is None else int(self.reference["message_id"])

    @property
    def text(self) -> str:
        """What it says now."""
        return self.edits[-1] if self.edits else self.content


@dataclass
class Typing:
    channel_id: int
    at: float


def reply(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """A JSON answer. discord.py compares the content type literally: no charset may follow."""
    body = json.dumps(data).encode()
    return web.Response(
        body=body, status=status, content_type="application/json", headers=headers or {}
    )


def no_content() -> web.Response:
    return web.Response(status=204)


class Rest:
    """Handlers. Each raises ApiError or answers; the middleware does what is common."""

    def __init__(
        self,
        world: World,
        interactions: Interactions,
        *,
        token: Callable[[], str],
        allowed_intents: Callable[[], int],
        gateway_info: Callable[[], dict[str, Any]],
        nonce_window: float,
        changed: Callable[[], None],
    ) -> None:
        self.world = world
        self.interactions = interactions
        self.faults = FaultBook()
        self.calls: list[Call] = []
        self.sent: list[SentMessage] = []
        self.typings: list[Typing] = []
        self.crashes: list[Exception] = []
        self.release = asyncio.Event()
        self.tells_nonces = True  # whether the history does
        self.history_quirk: Callable[[list[dict[str, Any]]], Any] = lambda page: page
        self._by_id: dict[int, SentMessage] = {}
        self._nonces: dict[tuple[int, str], tuple[float, int]] = {}
        self._token = token
        self._allowed_intents = allowed_intents
        self._gateway_info = gateway_info
        self._nonce_window = nonce_window
        self._changed = changed

    def routes(self) -> list[web.RouteDef]:
        channel, message = f"{API}/channels/{{channel}}", "/messages/{message}"
        app, hook = f"{API}/applications/{{app}}", f"{API}/webhooks/{{app}}/{{token}}"
        return [
            web.get(f"{API}/gateway", self.get_gateway),
            web.get(f"{API}/gateway/bot", self.get_gateway_bot),
            web.get(f"{API}/users/@me", self.get_me),
            web.get(f"{API}/users/@me/guilds", self.get_my_guilds),
            web.post(f"{API}/users/@me/channels", self.open_dm),
            web.get(f"{API}/users/{{user}}", self.get_user),
            web.get(f"{API}/oauth2/applications/@me", self.get_application),
            web.get(f"{API}/applications/@me", self.get_application),
            web.get(f"{API}/guilds/{{guild}}", self.get_guild),
            web.get(f"{API}/guilds/{{guild}}/channels", self.get_guild_channels),
            web.get(f"{API}/guilds/{{guild}}/threads/active", self.get_active_threads),
            web.get(f"{API}/guilds/{{guild}}/members/{{user}}", self.get_member),
            web.get(channel, self.get_channel),
            web.patch(channel, self.edit_channel),
            web.post(f"{channel}/typing", self.type_in),
            web.get(f"{channel}/messages", self.get_history),
            web.post(f"{channel}/messages", self.create_message),
            web.get(channel + message, self.get_message),
            web.patch(channel + message, self.edit_message),
            web.delete(channel + message, self.delete_message),
            web.post(f"{channel}/threads", self.create_thread),
            web.post(f"{channel}{message}/threads", self.create_thread),
            web.put(f"{channel}/thread-members/@me", self.join_thread),
            web.put(f"{channel}{message}/reactions/{{emoji}}/@me", self.add_reaction),
            web.delete(f"{channel}{message}/reactions/{{emoji}}/@me", self.remove_reaction),
            web.get(f"{app}/commands", self.get_commands),
            web.put(f"{app}/commands", self.put_commands),
            web.get(f"{app}/guilds/{{guild}}/commands", self.get_commands),
            web.put(f"{app}/guilds/{{guild}}/commands", self.put_commands),
            web.post(f"{API}/interactions/{{id}}/{{token}}/callback", self.callback),
            web.post(hook, self.follow_up),
            web.get(f"{hook}/messages/{{which}}", self.get_response),
            web.patch(f"{hook}/messages/{{which}}", self.edit_response),
            web.delete(f"{hook}/messages/{{which}}", self.delete_response),
        ]

    # -- common to all routes -------------------------------------------------------------------

    @web.middleware
    async def middleware(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Record, apply a fault, ask for the token, answer errors in Discord's shape."""
        if not request.path.startswith("/api/"):
            return await handler(request)
        path = request.path.removeprefix(API)
        raw = await self._read(request)
        call = Call(request.method, path, dict(request.query), request[BODY], self.world.clock())
        call.files = [name for name, _, _ in request[FILES]]
        self.calls.append(call)
        found = _CHANNEL_IN_PATH.search(path)
        fault = self.faults.take(request.method, path, int(found.group(1)) if found else None, raw)
        if fault is None:
            response = await self._answer(request, handler, call)
        else:
            call.fault = fault.kind
            response = await self._faulty(request, handler, call, fault)
        call.status = 0 if response.status == _UNANSWERED else response.status
        self._changed()
        return response

    async def _read(self, request: web.Request) -> str:
        """Parse the body once: JSON, or multipart with `payload_json` and files."""
        request[FILES] = []
        if request.content_type == "multipart/form-data":
            form = await request.post()
            said = form.get("payload_json", "{}")
            # With a content type of its own, as Discord's page has it, it is no text to aiohttp.
            raw = said.decode() if isinstance(said, bytes | bytearray) else str(said)
            for value in form.values():
                if isinstance(value, web.FileField):
                    kind = value.content_type or "application/octet-stream"
                    request[FILES].append((value.filename, value.file.read(), kind))
        else:
            raw = await request.text()
        try:
            request[BODY] = json.loads(raw) if raw else None
        except ValueError:
            request[BODY] = errors.invalid_json()
        return raw

    async def _answer(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
        call: Call,
    ) -> web.StreamResponse:
        try:
            self._check_token(request)
            if isinstance(request[BODY], ApiError):
                raise request[BODY]
            return await handler(request)
        except ApiError as error:
            call.code = error.code
            return reply(error.body(), error.status)
        except Exception as error:
            if isinstance(error, web.HTTPException):
                return self._http_error(error)
            # A bug of this server: discord.py would repeat a 500 and hide it.
            self.crashes.append(error)
            raise

    def _http_error(self, error: web.HTTPException) -> web.Response:
        known = {404: errors.not_found(), 405: errors.method_not_allowed()}
        answer = known.get(error.status)
        if answer is None:
            raise error
        return reply(answer.body(), answer.status)

    def _check_token(self, request: web.Request) -> None:
        path = request.path.removeprefix(API)
        if path.startswith(_NO_TOKEN) and path != "/gateway/bot":
            if "Authorization" in request.headers and not path.startswith("/gateway"):
                # Discord would not mind; but it is nobody's business there.
                raise ApiError(400, 0, "the right to this stands in its path")
            return
        if request.headers.get("Authorization") != f"Bot {self._token()}":
            raise errors.unauthorized()

    async def _faulty(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
        call: Call,
        fault: Fault,
    ) -> web.StreamResponse:
        if fault.handled:
            # The effect happens and the sender never learns of it.
            await self._answer(request, handler, call)
            self._changed()
        if fault.kind == "slow":
            await self._pause(fault.seconds)
            return await self._answer(request, handler, call)
        if fault.kind == "hang":
            self._changed()
            await self.release.wait()
            return _dropped(request, reset=False)
        if fault.kind in ("drop", "reset"):
            return _dropped(request, reset=fault.kind == "reset")
        return _refusal(fault)

    async def _pause(self, seconds: float) -> None:
        """Wait, but no longer than the server lives."""
        waiting = asyncio.ensure_future(self.release.wait())
        await asyncio.wait([waiting], timeout=seconds)
        waiting.cancel()

    # -- users, guilds, channels ----------------------------------------------------------------

    async def get_gateway(self, _request: web.Request) -> web.Response:
        return reply({"url": self._gateway_info()["url"]})

    async def get_gateway_bot(self, _request: web.Request) -> web.Response:
        return reply(self._gateway_info())

    async def get_me(self, _request: web.Request) -> web.Response:
        return reply(payloads.own_user_payload(self.world.bot))

    async def get_my_guilds(self, _request: web.Request) -> web.Response:
        return reply([payloads.guild_facts(guild) for guild in self.world.guilds.values()])

    async def get_application(self, _request: web.Request) -> web.Response:
        return reply(payloads.application_payload(self.world, self._allowed_intents()))

    async def get_user(self, request: web.Request) -> web.Response:
        return reply(payloads.user_payload(self.world.user(_snowflake(request, "user"))))

    async def open_dm(self, request: web.Request) -> web.Response:
        body = _object(request)
        recipient = str(body.get("recipient_id", ""))
        user = self.world.users.get(int(recipient)) if recipient.isdecimal() else None
        if user is None or user is self.world.bot:
            raise errors.invalid_recipients()
        return reply(payloads.channel_payload(self.world, self.world.dm_with(user)))

    def _guild(self, request: web.Request) -> state.Guild:
        guild = self.world.guild(_snowflake(request, "guild"))
        if self.world.bot.id not in guild.members:
            raise errors.missing_access()
        return guild

    async def get_guild(self, request: web.Request) -> web.Response:
        return reply(payloads.guild_facts(self._guild(request)))

    async def get_guild_channels(self, request: web.Request) -> web.Response:
        channels = [self.world.channels[one] for one in self._guild(request).channels]
        shown = [one for one in channels if not one.is_thread]
        return reply([payloads.channel_payload(self.world, one) for one in shown])

    async def get_active_threads(self, request: web.Request) -> web.Response:
        channels = [self.world.channels[one] for one in self._guild(request).channels]
        threads = [one for one in channels if one.is_thread and not one.archived]
        shown = [one for one in threads if self.world.bot_sees(one)]
        shapes = [payloads.channel_payload(self.world, one) for one in shown]
        return reply({"threads": shapes, "members": []})

    async def get_member(self, request: web.Request) -> web.Response:
        member = self._guild(request).members.get(_snowflake(request, "user"))
        if member is None:
            raise errors.unknown_member()
        return reply(payloads.member_payload(self.world, member, with_user=True))

    def _channel(self, request: web.Request, *needs: str) -> Channel:
        """The channel of the path: it exists, the bot sees it and may do what is needed."""
        channel = self.world.channel(_snowflake(request, "channel"))
        if not self.world.bot_sees(channel):
            raise errors.missing_access()
        if not all(self.world.may(channel, need) for need in needs):
            raise errors.missing_permissions()
        return channel

    def _message(self, request: web.Request, channel: Channel) -> Message:
        return self.world.message_in(channel, _snowflake(request, "message"))

    async def get_channel(self, request: web.Request) -> web.Response:
        return reply(payloads.channel_payload(self.world, self._channel(request)))

    async def edit_channel(self, request: web.Request) -> web.Response:
        channel = self._channel(request)
        body = _object(request)
        if channel.guild_id is None:
            raise errors.dm_action()
        if not channel.is_thread or channel.owner_id != self.world.bot.id:
            self._channel(request, "manage")
        channel.name = str(body.get("name", channel.name))
        channel.archived = bool(body.get("archived", channel.archived))
        channel.locked = bool(body.get("locked", channel.locked))
        shape = payloads.channel_payload(self.world, channel)
        event = "THREAD_UPDATE" if channel.is_thread else "CHANNEL_UPDATE"
        self._emit_guild(channel, event, shape)
        return reply(shape)

    def _emit_guild(self, channel: Channel, event: str, shape: dict[str, Any]) -> None:
        self.world.emit(
            event,
            lambda _see: shape,
            guild_id=channel.guild_id,
            intent=state.INTENT_GUILDS,
        )

    async def create_thread(self, request: web.Request) -> web.Response:
        parent = self._channel(request, "send")
        name = str(_object(request).get("name", ""))
        if not 1 <= len(name) <= 100:
            text = "Must be between 1 and 100 in length."
            raise errors.invalid_form("name", "BASE_TYPE_BAD_LENGTH", text)
        if parent.guild_id is None or parent.is_thread:
            raise ApiError(400, 50024, "Cannot execute action on this channel type")
        thread_id = self.world.snowflakes.next()
        if "message" in request.match_info:
            # A thread on a message has that message's id, so there can be only one.
            thread_id = self._message(request, parent).id
            if thread_id in self.world.channels:
                raise ApiError(400, 160004, "A thread has already been created for this message")
        thread = self.add_thread(parent, name, thread_id, self.world.bot.id)
        return reply(payloads.channel_payload(self.world, thread), 201)

    def add_thread(
        self, parent: Channel, name: str, thread_id: int, owner: int, *, deliver: bool = True
    ) -> Channel:
        thread = Channel(
            thread_id, state.PUBLIC_THREAD, name, parent.guild_id, parent.id, owner_id=owner
        )
        self.world.channels[thread.id] = thread
        guild = self.world.guild_of(parent)
        assert guild is not None
        guild.channels.append(thread.id)
        shape = payloads.channel_payload(self.world, thread)
        if deliver and self.world.bot_sees(thread):
            self._emit_guild(thread, "THREAD_CREATE", shape | {"newly_created": True})
        return thread

    async def join_thread(self, request: web.Request) -> web.Response:
        self._channel(request)
        return no_content()

    async def type_in(self, request: web.Request) -> web.Response:
        channel = self._channel(request, "send")
        self.typings.append(Typing(channel.id, self.world.clock()))
        self.world.typing(channel, self.world.bot.id)
        return no_content()

    # -- messages -------------------------------------------------------------------------------

    def _shape(self, message: Message) -> dict[str, Any]:
        """REST blanks content too, by what the application was granted."""
        see = bool(self._allowed_intents() & state.INTENT_CONTENT)
        return payloads.message_payload(self.world, message, see_content=see)

    async def get_history(self, request: web.Request) -> web.Response:
        channel = self._channel(request)
        query = request.query
        limit = query.get("limit", "50")
        if not limit.isdecimal() or int(limit) < 1:
            text = "Value should be greater than or equal to 1."
            raise errors.invalid_form("limit", "NUMBER_TYPE_MIN", text)
        if int(limit) > 100:
            text = "Value should be less than or equal to 100."
            raise errors.invalid_form("limit", "NUMBER_TYPE_MAX", text)
        asked = {name: query[name] for name in ("before", "after", "around") if name in query}
        for name, value in asked.items():
            if not value.isdecimal():
                raise errors.not_a_snowflake(name, value)
        if len(asked) > 1:
            text = "Only one of before, after and around may be given."
            raise errors.invalid_form("_errors", "MUTUALLY_EXCLUSIVE", text)
        if not self.world.may(channel, "history"):
            return reply([])  # Discord shows an empty channel rather than an error
        anchor = {name: int(value) for name, value in asked.items()}
        page = self.world.history(channel, limit=int(limit), **anchor)
        shapes = [self._shape(message) for message in page]
        if not self.tells_nonces:
            for shape in shapes:
                shape.pop("nonce", None)
        return reply(self.history_quirk(shapes))

    async def get_message(self, request: web.Request) -> web.Response:
        channel = self._channel(request, "history")
        return reply(self._shape(self._message(request, channel)))

    async def create_message(self, request: web.Request) -> web.Response:
        channel = self._channel(request, "send")
        self._check_can_write(channel)
        body = _object(request)
        nonce = self._nonce(body)
        repeat = self._repeated(channel, nonce, body)
        if repeat is not None:
            return reply(self._shape(repeat))
        message = self._made(request, channel, body, kind="message")
        if nonce is not None:
            self._nonces[(channel.id, str(nonce))] = (self.world.clock(), message.id)
        return reply(self._shape(message))

    def _check_can_write(self, channel: Channel) -> None:
        if channel.type == state.DM:
            assert channel.recipient_id is not None
            user = self.world.users[channel.recipient_id]
            if user.bot or not user.accepts_dm:
                raise errors.cannot_dm()
        if channel.is_thread and channel.archived and channel.locked:
            raise errors.archived_thread()

    def _nonce(self, body: dict[str, Any]) -> str | int | None:
        nonce = body.get("nonce")
        if nonce is None:
            return None
        if isinstance(nonce, bool) or not isinstance(nonce, str | int):
            raise errors.invalid_form("nonce", "NONCE_TYPE", "Must be a string or an integer.")
        if len(str(nonce)) > state.NONCE_LIMIT:
            raise errors.too_long("nonce", state.NONCE_LIMIT)
        return nonce

    def _repeated(
        self, channel: Channel, nonce: str | int | None, body: dict[str, Any]
    ) -> Message | None:
        """The message this nonce made before, if it is enforced and not too long ago.

        Discord's page says "in the past few minutes": the window is a parameter.
        """
        if nonce is None or not body.get("enforce_nonce"):
            return None
        at, message_id = self._nonces.get((channel.id, str(nonce)), (None, 0))
        if at is None or self.world.clock() - at > self._nonce_window:
            return None
        self._by_id[message_id].repeats += 1
        # A message deleted meanwhile is not made anew: the repeat is answered 404.
        return self.world.message(message_id)

    def _made(
        self,
        request: web.Request,
        channel: Channel,
        body: dict[str, Any],
        *,
        kind: str,
        interaction: Interaction | None = None,
    ) -> Message:
        """Check what is asked for and post it."""
        content = _content(body) or ""
        if interaction is None:
            self._check_attach(channel, request[FILES])
        check_files(body, request[FILES], premium_tier=self._premium_tier(channel))
        check_components(body.get("components") or [])
        _check_filled(content, body, request[FILES])
        reference = self._reference(channel, body)
        mentions = body.get("allowed_mentions")
        fields: dict[str, Any] = {
            "attachments": [self.world.attach(channel, *one) for one in request[FILES]],
            "embeds": body.get("embeds") or [],
            "components": body.get("components") or [],
            "flags": int(body.get("flags") or 0),
            "nonce": body.get("nonce"),
        }
        if interaction is not None:
            is_more = kind == "followup"
            fields["interaction"] = self.interactions.metadata(interaction, is_follow_up=is_more)
            fields["webhook_id"] = self.world.bot.id
            fields["nonce"] = None  # webhooks know none
            fields["type"] = state.REPLY if is_more else state.COMMAND_RESPONSE
            if is_more and interaction.response_id is not None:
                answered = {"message_id": str(interaction.response_id)}
                reference = {"type": 0, "channel_id": str(channel.id), **answered}
        message = self.world.new_message(
            channel,
            self.world.bot.id,
            content,
            reference=reference,
            ping_reply=mentions is None or bool(mentions.get("replied_user")),
            **fields,
        )
        self._record(message, content, body, kind, request[FILES])
        return self.world.post(channel, message)

    def _premium_tier(self, channel: Channel) -> int:
        guild = self.world.guild_of(channel)
        return 0 if guild is None else guild.premium_tier

    def _check_attach(self, channel: Channel, files: list[Any]) -> None:
        if files and not self.world.may(channel, "attach"):
            raise errors.missing_permissions()

    def _reference(self, channel: Channel, body: dict[str, Any]) -> dict[str, Any] | None:
        asked = body.get("message_reference")
        if asked is None:
            return None
        if not isinstance(asked, dict) or not str(asked.get("message_id", "")).isdecimal():
            raise errors.not_a_snowflake("message_reference.message_id", asked)
        if int(asked.get("channel_id", channel.id)) != channel.id:
            text = "Cannot reply to a message in a different channel"
            code = "REPLIES_CANNOT_REFERENCE_OTHER_CHANNEL"
            raise errors.invalid_form("message_reference", code, text)
        message_id = int(asked["message_id"])
        if message_id in channel.messages:
            reference = {"type": 0, "channel_id": str(channel.id), "message_id": str(message_id)}
            guild = {} if channel.guild_id is None else {"guild_id": str(channel.guild_id)}
            return reference | guild
        if asked.get("fail_if_not_exists", True):
            code = "REPLIES_UNKNOWN_MESSAGE"
            raise errors.invalid_form("message_reference", code, "Unknown message")
        return None  # sent as an ordinary message

    def _record(
        self, message: Message, content: str, body: dict[str, Any], kind: str, files: list[Any]
    ) -> None:
        mentions = body.get("allowed_mentions")
        sent = SentMessage(
            id=message.id,
            channel_id=message.channel_id,
            content=content,
            nonce=body.get("nonce"),
            reference=body.get("message_reference"),
            allowed_mentions=mentions,
            kind=kind,
            at=message.created_at,
            flags=message.flags,
            files=[name for name, _, _ in files],
        )
        self._find_pings(sent, message)
        self.sent.append(sent)
        self._by_id[message.id] = sent

    def _find_pings(self, sent: SentMessage, message: Message) -> None:
        """Whom this rings, by the allowed mentions: what a test of politeness asks."""
        policy = sent.allowed_mentions
        parse = ["users", "roles", "everyone"] if policy is None else policy.get("parse", [])
        named = {int(user) for user in (policy or {}).get("users", [])}
        replied = self.world.replied_to(message)
        replied_id = replied.author_id if replied is not None else None
        quiet = policy is not None and not policy.get("replied_user")
        for user in message.mentions:
            by_text = f"<@{user}>" in message.content or f"<@!{user}>" in message.content
            rung_by_text = by_text and ("users" in parse or user in named)
            if rung_by_text or (user == replied_id and not quiet):
                sent.pings.append(user)
        channel = self.world.channels[message.channel_id]
        shouts = "@everyone" in message.content or "@here" in message.content
        if shouts and "everyone" in parse and self.world.may(channel, "everyone"):
            sent.pings_everyone = message.mention_everyone = True

    async def edit_message(self, request: web.Request) -> web.Response:
        channel = self._channel(request)
        message = self._message(request, channel)
        if message.author_id != self.world.bot.id:
            raise errors.not_the_author()
        self._edited(request, message)
        return reply(self._shape(message))

    def _edited(self, request: web.Request, message: Message) -> None:
        body = _object(request)
        content = _content(body)
        channel = self.world.channels[message.channel_id]
        check_files(body, request[FILES], premium_tier=self._premium_tier(channel))
        check_components(body.get("components") or [])
        new: dict[str, Any] = {
            name: body[name] or [] for name in ("embeds", "components") if name in body
        }
        if "content" in body:
            new["content"] = (content or "").strip()
        if "flags" in body:
            new["flags"] = int(body["flags"] or 0) | (message.flags & state.EPHEMERAL)
        if "attachments" in body:
            kept = {str(one.get("id")) for one in body["attachments"] or []}
            new["attachments"] = [one for one in message.attachments if one["id"] in kept]
        added = [self.world.attach(channel, *one) for one in request[FILES]]
        if added:
            new["attachments"] = [*new.get("attachments", message.attachments), *added]
        after = {
            name: new.get(name, getattr(message, name))
            for name in ("content", "embeds", "components", "attachments")
        }
        _check_filled(after["content"], after, after["attachments"])
        new["flags"] = new.get("flags", message.flags) & ~state.LOADING
        self.world.edit(message, new)
        sent = self._by_id.get(message.id)
        if sent is not None and content is not None:
            sent.edits.append(content)

    async def delete_message(self, request: web.Request) -> web.Response:
        channel = self._channel(request)
        message = self._message(request, channel)
        if message.author_id != self.world.bot.id:
            if channel.guild_id is None:
                raise errors.dm_action()
            self._channel(request, "manage")
        self._deleted(message)
        return no_content()

    def _deleted(self, message: Message) -> None:
        self.world.delete(message)
        if message.id in self._by_id:
            self._by_id[message.id].deleted = True

    async def add_reaction(self, request: web.Request) -> web.Response:
        channel = self._channel(request, "history", "react")
        message, emoji = self._message(request, channel), request.match_info["emoji"]
        if not _is_emoji(emoji):
            raise errors.unknown_emoji()
        self.world.react(message, self.world.bot.id, emoji)
        return no_content()

    async def remove_reaction(self, request: web.Request) -> web.Response:
        channel = self._channel(request)
        message, emoji = self._message(request, channel), request.match_info["emoji"]
        if not _is_emoji(emoji):
            raise errors.unknown_emoji()
        self.world.react(message, self.world.bot.id, emoji, add=False)
        return no_content()

    # -- application commands and interactions --------------------------------------------------

    def _command_scope(self, request: web.Request) -> int | None:
        if _snowflake(request, "app") != self.world.bot.id:
            raise ApiError(403, 20012, "You are not authorized to perform this action")
        return self._guild(request).id if "guild" in request.match_info else None

    async def get_commands(self, request: web.Request) -> web.Response:
        return reply(self.interactions.commands.get(self._command_scope(request), []))

    async def put_commands(self, request: web.Request) -> web.Response:
        return reply(self.interactions.register(self._command_scope(request), request[BODY]))

    async def callback(self, request: web.Request) -> web.Response:
        interaction_id = _snowflake(request, "id")
        interaction = self.interactions.to_answer(interaction_id, request.match_info["token"])
        body = _object(request)
        message = self._called_back(request, interaction, int(body.get("type", 0)), body)
        # Only a callback that was accepted uses the interaction up.
        interaction.acked_at = self.world.clock()
        interaction.callbacks.append(body)
        if request.query.get("with_response") not in ("true", "1", "True"):
            return no_content()
        return reply(self._callback_result(interaction, int(body["type"]), message))

    def _called_back(
        self, request: web.Request, interaction: Interaction, kind: int, body: dict[str, Any]
    ) -> Message | None:
        data = dict(body.get("data") or {})
        channel = self.world.channel(interaction.channel_id)
        if kind == ANSWER:
            message = self._made(request, channel, data, kind="response", interaction=interaction)
        elif kind == DEFER_ANSWER:
            message = self._thinking(channel, interaction, int(data.get("flags") or 0))
        elif kind == UPDATE and interaction.source_id is not None:
            message = self.world.message(interaction.source_id)
            request[BODY] = data
            self._edited(request, message)
        elif kind == DEFER_UPDATE and interaction.source_id is not None:
            message = self.world.message(interaction.source_id)
        elif kind in (PONG, CHOICES, MODAL):
            return None
        else:
            text = f"Value must be one of {{4, 5, 6, 7, 8, 9}}, not {kind}."
            raise errors.invalid_form("type", "BASE_TYPE_CHOICES", text)
        interaction.response_id = message.id
        return message

    def _thinking(self, channel: Channel, interaction: Interaction, flags: int) -> Message:
        """The "is thinking" message of a deferred answer."""
        message = self.world.new_message(
            channel,
            self.world.bot.id,
            "",
            type=state.COMMAND_RESPONSE,
            interaction=self.interactions.metadata(interaction),
            webhook_id=self.world.bot.id,
            flags=(flags & state.EPHEMERAL) | state.LOADING,
        )
        self._record(message, "", {}, "deferred", [])
        return self.world.post(channel, message)

    def _callback_result(
        self, interaction: Interaction, kind: int, message: Message | None
    ) -> dict[str, Any]:
        about: dict[str, Any] = {"id": str(interaction.id), "type": interaction.kind}
        result: dict[str, Any] = {"interaction": about}
        if message is not None:
            about["response_message_id"] = str(message.id)
            about["response_message_loading"] = bool(message.flags & state.LOADING)
            about["response_message_ephemeral"] = message.ephemeral
            result["resource"] = {"type": kind, "message": self._shape(message)}
        return result

    def _interaction(self, request: web.Request) -> Interaction:
        if _snowflake(request, "app") != self.world.bot.id:
            raise errors.unknown_webhook()
        return self.interactions.to_follow_up(request.match_info["token"])

    async def follow_up(self, request: web.Request) -> web.Response:
        interaction = self._interaction(request)
        original = self.world.messages.get(interaction.response_id or 0)
        if original is not None and original.flags & state.LOADING:
            # The first follow-up after a deferred answer fills that answer in.
            self._edited(request, original)
            return reply(self._shape(original))
        channel = self.world.channel(interaction.channel_id)
        body = _object(request)
        message = self._made(request, channel, body, kind="followup", interaction=interaction)
        interaction.followup_ids.append(message.id)
        return reply(self._shape(message))

    def _response(self, request: web.Request) -> Message:
        interaction = self._interaction(request)
        return self.interactions.response_of(interaction, request.match_info["which"])

    async def get_response(self, request: web.Request) -> web.Response:
        return reply(self._shape(self._response(request)))

    async def edit_response(self, request: web.Request) -> web.Response:
        message = self._response(request)
        self._edited(request, message)
        return reply(self._shape(message))

    async def delete_response(self, request: web.Request) -> web.Response:
        self._deleted(self._response(request))
        return no_content()


def _snowflake(request: web.Request, name: str) -> int:
    value = request.match_info[name]
    if not value.isdecimal():
        raise errors.not_a_snowflake(f"{name}_id", value)
    return int(value)


def _object(request: web.Request) -> dict[str, Any]:
    body = request[BODY]
    if not isinstance(body, dict):
        raise errors.invalid_json()
    return body


def _content(body: dict[str, Any]) -> str | None:
    content = body.get("content")
    if content is None:
        return None
    if not isinstance(content, str):
        raise errors.invalid_form("content", "BASE_TYPE_STRING", "Must be a string.")
    if len(content) > state.CONTENT_LIMIT:
        raise errors.too_long("content", state.CONTENT_LIMIT)
    return content


def _check_filled(content: str, body: dict[str, Any], files: list[Any]) -> None:
    if len(body.get("embeds") or []) > 10:
        raise errors.too_long("embeds", 10)
    more = ("embeds", "components", "sticker_ids", "poll")
    if not content.strip() and not files and not any(body.get(name) for name in more):
        raise errors.empty_message()


def _is_emoji(emoji: str) -> bool:
    """A custom `name:id`, or some symbol; keycaps (1⃣) are symbols with a combining mark."""
    if _CUSTOM_EMOJI.fullmatch(emoji):
        return True
    return any(unicodedata.category(char) in ("So", "Sk", "Me", "Sm") for char in emoji)


def _dropped(request: web.Request, *, reset: bool) -> web.Response:
    """Close the connection unanswered: politely (FIN), or with a reset as crashed proxies do."""
    transport = request.transport
    if transport is not None:
        if reset:
            sock = transport.get_extra_info("socket")
            linger = struct.pack("ii", 1, 0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        transport.abort()
    return web.Response(status=_UNANSWERED)


def _refusal(fault: Fault) -> web.Response:
    if fault.kind == "rate_limit":
        return _rate_limited(fault)
    if fault.kind == "cloudflare":
        # No Via header and no JSON: the ban page in front of the API.
        return web.Response(status=429, text="error code: 1015", content_type="text/plain")
    if fault.status in (502, 503, 504) and fault.code == 0:
        return web.Response(status=fault.status, text=fault.text(), content_type="text/plain")
    return reply({"message": fault.text(), "code": fault.code}, fault.status)


def _rate_limited(fault: Fault) -> web.Response:
    # discord.py takes a 429 without Via for a ban and gives up at once.
    headers = {
        "Via": "1.1 google",
        "Retry-After": str(max(1, round(fault.retry_after))),
        "X-RateLimit-Scope": fault.scope,
    }
    if fault.is_global:
        headers["X-RateLimit-Global"] = "true"
    body = {
        "message": fault.message or "You are being rate limited.",
        "retry_after": fault.retry_after,
        "global": fault.is_global,
    }
    return reply(body, 429, headers)
