"""A loopback Telegram Bot API server for tests, in the test's process or one of its own.

    async with TelegramServer() as server:
        bot = Bot(server.token, base_url=server.base_url, base_file_url=server.base_file_url)
        server.private_text("hello", user_id=111)
        server.fault(Fault.flood(37, "sendMessage", chat_id=111))
        await server.wait_sent(1, chat_id=111)

`python -m tests.fakes.telegram_server --port N` runs the same server with its control API;
RemoteTelegram starts and drives such a process. Nothing here knows the product under test.
"""

from __future__ import annotations

from tests.fakes.telegram_server.entities import utf16_len
from tests.fakes.telegram_server.faults import Fault
from tests.fakes.telegram_server.inbound import CHANNEL, GROUP, PNG, USER
from tests.fakes.telegram_server.remote import RemoteError, RemoteTelegram
from tests.fakes.telegram_server.server import TOKEN, TelegramServer
from tests.fakes.telegram_server.state import Call, Edit, SentMessage
from tests.fakes.telegram_server.wire import ApiError

__all__ = [
    "CHANNEL",
    "GROUP",
    "PNG",
    "TOKEN",
    "USER",
    "ApiError",
    "Call",
    "Edit",
    "Fault",
    "RemoteError",
    "RemoteTelegram",
    "SentMessage",
    "TelegramServer",
    "utf16_len",
]
