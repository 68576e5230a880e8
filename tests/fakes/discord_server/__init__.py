"""A Discord on the loopback interface: REST and gateway, scriptable, for all tests."""

from tests.fakes.discord_server.control import ControlError, DiscordControl
from tests.fakes.discord_server.faults import Fault
from tests.fakes.discord_server.interactions import Interaction
from tests.fakes.discord_server.pointing import discord_py_at
from tests.fakes.discord_server.rest import Call, SentMessage
from tests.fakes.discord_server.server import DiscordServer
from tests.fakes.discord_server.state import Channel, Guild, Member, Message, Role, User

__all__ = [
    "Call",
    "Channel",
    "ControlError",
    "DiscordControl",
    "DiscordServer",
    "Fault",
    "Guild",
    "Interaction",
    "Member",
    "Message",
    "Role",
    "SentMessage",
    "User",
    "discord_py_at",
]
