"""Slash commands and buttons: the life of an interaction and its follow-up webhooks."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.discord_server import errors, payloads, state
from tests.fakes.discord_server.forms import command_problem
from tests.fakes.discord_server.state import Channel, Message, User, World

COMMAND, COMPONENT = 2, 3
PONG, ANSWER, DEFER_ANSWER, DEFER_UPDATE, UPDATE, CHOICES, MODAL = 1, 4, 5, 6, 7, 8, 9
TOKEN_LIFE = 15 * 60

_OPTION_TYPES = {bool: 5, int: 4, float: 10, str: 3}


@dataclass
class Interaction:
    """One press of a button or one slash command."""

    id: int
    token: str
    kind: int
    channel_id: int
    user_id: int
    created_at: float
    name: str
    source_id: int | None = None
    callbacks: list[dict[str, Any]] = field(default_factory=list)
    acked_at: float | None = None
    response_id: int | None = None
    followup_ids: list[int] = field(default_factory=list)

    @property
    def acked(self) -> bool:
        return self.acked_at is not None


class Interactions:
    """Creates interactions and keeps the rules of answering them."""

    def __init__(self, world: World, deadline: float) -> None:
        self.world = world
        self.deadline = deadline
        self.all: dict[int, Interaction] = {}
        # guild id (None: global) -> registered commands
        self.commands: dict[int | None, list[dict[str, Any]]] = {}

    # -- commands -------------------------------------------------------------------------------

    def register(self, guild_id: int | None, commands: list[dict[str, Any]]) -> list[Any]:
        problem = command_problem(commands)
        if problem is not None:
            raise problem
        old = {one["name"]: one["id"] for one in self.commands.get(guild_id, [])}
        self.commands[guild_id] = [
            self._stored(command, guild_id, old.get(command["name"])) for command in commands
        ]
        return self.commands[guild_id]

    def _stored(
        self, command: dict[str, Any], guild_id: int | None, known_id: str | None
    ) -> dict[str, Any]:
        defaults: dict[str, Any] = {
            "type": 1,
            "description": "",
            "default_member_permissions": None,
            "dm_permission": True,
            "nsfw": False,
            "options": [],
        }
        fixed = {
            "id": known_id or str(self.world.snowflakes.next()),
            "application_id": str(self.world.bot.id),
            "version": str(self.world.snowflakes.next()),
        }
        if guild_id is not None:
            fixed["guild_id"] = str(guild_id)
        return defaults | command | fixed

    def find_command(self, channel: Channel, name: str) -> dict[str, Any] | None:
        offered = self.commands.get(channel.guild_id, []) if channel.guild_id else []
        for command in [*offered, *self.commands.get(None, [])]:
            if command["name"] == name:
                return command
        return None

    # -- what people do -------------------------------------------------------------------------

    def slash(
        self, channel: Channel, user: User, name: str, options: Any = None, *, force: bool = False
    ) -> Interaction:
        """A slash command; a client only offers registered ones, so others need `force`."""
        command = self.find_command(channel, name)
        if command is None and not force:
            raise LookupError(f"the bot has not registered /{name}")
        declared = {one["name"] for one in (command or {}).get("options", [])}
        if command is not None and isinstance(options, dict) and not set(options) <= declared:
            raise LookupError(f"/{name} has no {sorted(set(options) - declared)}")
        command_id = command["id"] if command else str(self.world.snowflakes.next())
        data: dict[str, Any] = {
            "id": command_id,
            "name": name,
            "type": 1,
            "options": options if isinstance(options, list) else _options(options or {}),
            "resolved": {},
        }
        if command and "guild_id" in command:
            data["guild_id"] = command["guild_id"]
        return self._open(COMMAND, channel, user, name, data)

    def click(self, message: Message, user: User, custom_id: str) -> Interaction:
        if custom_id not in {one.get("custom_id") for one in _components(message.components)}:
            raise LookupError(f"message {message.id} has no button {custom_id!r}")
        channel = self.world.channels[message.channel_id]
        data = {"custom_id": custom_id, "component_type": 2}
        return self._open(COMPONENT, channel, user, custom_id, data, message)

    def _open(
        self,
        kind: int,
        channel: Channel,
        user: User,
        name: str,
        data: dict[str, Any],
        source: Message | None = None,
    ) -> Interaction:
        interaction = Interaction(
            id=self.world.snowflakes.next(),
            token=secrets.token_urlsafe(24),
            kind=kind,
            channel_id=channel.id,
            user_id=user.id,
            created_at=self.world.clock(),
            name=name,
            source_id=source.id if source else None,
        )
        self.all[interaction.id] = interaction
        event = self._event(interaction, channel, user, data)
        if source is not None:
            # Pressing a button shows the bot the message, whatever its intents.
            event["message"] = payloads.message_payload(self.world, source, see_content=True)
        self.world.emit(
            "INTERACTION_CREATE", lambda _see: event, guild_id=channel.guild_id, intent=0
        )
        return interaction

    def _event(
        self, interaction: Interaction, channel: Channel, user: User, data: dict[str, Any]
    ) -> dict[str, Any]:
        permissions = str(state.EVERYONE_MAY)
        event: dict[str, Any] = {
            "id": str(interaction.id),
            "application_id": str(self.world.bot.id),
            "token": interaction.token,
            "version": 1,
            "type": interaction.kind,
            "channel_id": str(channel.id),
            "channel": payloads.channel_payload(self.world, channel) | {"permissions": permissions},
            "locale": "en-US",
            "app_permissions": permissions,
            "entitlements": [],
            "authorizing_integration_owners": {"0": str(channel.guild_id or 0)},
            "context": 0 if channel.guild_id else 1,
            "attachment_size_limit": 10 << 20,
            "data": data,
        }
        if channel.guild_id is None:
            return event | {"user": payloads.user_payload(user)}
        member = self.world.member_of(channel, user.id)
        assert member is not None
        shown = payloads.member_payload(self.world, member, with_user=True)
        return event | {
            "guild_id": str(channel.guild_id),
            "guild_locale": "en-US",
            "guild": {"id": str(channel.guild_id), "locale": "en-US", "features": []},
            "member": shown | {"permissions": permissions},
        }

    # -- what the bot answers -------------------------------------------------------------------

    def to_answer(self, interaction_id: int, token: str) -> Interaction:
        """The interaction a callback is for, if it may still be acknowledged."""
        interaction = self.all.get(interaction_id)
        if interaction is None or interaction.token != token:
            raise errors.unknown_interaction()
        if interaction.acked:
            raise errors.already_acknowledged()
        if self.world.clock() - interaction.created_at > self.deadline:
            raise errors.unknown_interaction()
        return interaction

    def to_follow_up(self, token: str) -> Interaction:
        """The interaction behind a follow-up webhook."""
        found = next((one for one in self.all.values() if one.token == token), None)
        if found is None or not found.acked:
            raise errors.unknown_webhook()
        if self.world.clock() - found.created_at > TOKEN_LIFE:
            raise errors.invalid_webhook_token()
        return found

    def response_of(self, interaction: Interaction, which: str) -> Message:
        """`@original` or the id of one of this interaction's own messages."""
        message_id = interaction.response_id if which == "@original" else _number(which)
        own = {interaction.response_id, *interaction.followup_ids}
        found = self.world.messages.get(message_id or 0)
        if found is None or found.deleted or message_id not in own:
            raise errors.unknown_message()
        return found

    def metadata(self, interaction: Interaction, *, is_follow_up: bool = False) -> dict[str, Any]:
        metadata: dict[str, Any] = {
            "id": str(interaction.id),
            "type": interaction.kind,
            "name": interaction.name,
            "user": payloads.user_payload(self.world.users[interaction.user_id]),
            "authorizing_integration_owners": {},
        }
        if is_follow_up and interaction.response_id is not None:
            metadata["original_response_message_id"] = str(interaction.response_id)
        return metadata


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _options(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"name": name, "type": _OPTION_TYPES[type(value)], "value": value}
        for name, value in values.items()
    ]


def _components(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All components, whatever they are nested in."""
    flat = []
    for row in rows:
        flat.append(row)
        flat.extend(_components(row.get("components", [])))
        if "accessory" in row:
            flat.append(row["accessory"])
    return flat
