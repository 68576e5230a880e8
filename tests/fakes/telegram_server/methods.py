"""The method table of the Bot API, with everything that sends nothing into a chat."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from tests.fakes.telegram_server.sending import Sending
from tests.fakes.telegram_server.state import Call, State
from tests.fakes.telegram_server.updates import KINDS, UpdateQueue, conflict
from tests.fakes.telegram_server.webhook import Webhook
from tests.fakes.telegram_server.wire import ApiError, Json, Params, bad_request, words

LONG_POLL_LIMIT = 50
PATH_SECONDS = 3600
MAX_DOWNLOAD = 20 * 1024 * 1024
_SCOPES = words(
    "default all_private_chats all_group_chats all_chat_administrators chat "
    "chat_administrators chat_member"
)
Method = Callable[[Params, Call], Any]


class Methods:
    """Finds a method by its name, whatever its case, and carries it out."""

    def __init__(self, state: State, updates: UpdateQueue, webhook: Webhook) -> None:
        self.state = state
        self.updates = updates
        self.webhook = webhook
        self.reads_groups = True  # its privacy mode is off
        sending = Sending(state)
        self.sending = sending
        table: dict[str, Method] = {
            "sendMessage": sending.send_message,
            "editMessageText": sending.edit_text,
            "editMessageCaption": sending.edit_caption,
            "editMessageReplyMarkup": sending.edit_markup,
            "deleteMessage": sending.delete,
            "setMessageReaction": sending.react,
            "sendChatAction": sending.chat_action,
            "sendMessageDraft": sending.draft,
            "getMe": self.get_me,
            "getChat": self.get_chat,
            "getChatMember": self.get_chat_member,
            "getChatAdministrators": self.get_chat_administrators,
            "getFile": self.get_file,
            "getUpdates": self.get_updates,
            "setWebhook": self.set_webhook,
            "deleteWebhook": self.delete_webhook,
            "getWebhookInfo": lambda params, call: self.webhook.info(),
            "setMyCommands": self.set_commands,
            "getMyCommands": self.get_commands,
            "deleteMyCommands": self.delete_commands,
            "answerCallbackQuery": self.answer_callback,
        }
        for kind in ("document", "photo", "voice", "audio", "video"):
            table[f"send{kind.capitalize()}"] = sending.send_file(kind)
        self.names = {name.lower(): name for name in table}
        self._table = {name.lower(): method for name, method in table.items()}

    async def run(self, name: str, params: Params, call: Call) -> Any:
        """Carry out one call; an unknown method is a 404."""
        method = self._table.get(name.lower())
        if method is None:
            raise ApiError(404, "Not Found")
        result = method(params, call)
        return await result if isinstance(result, Awaitable) else result

    # --- who and where

    def get_me(self, params: Params, call: Call) -> Json:
        return {
            **self.state.bot,
            "can_join_groups": True,
            "can_read_all_group_messages": self.reads_groups,
            "supports_inline_queries": False,
            "can_connect_to_business": False,
            "has_main_web_app": False,
        }

    def get_chat(self, params: Params, call: Call) -> Json:
        chat = self.state.chat(params.text("chat_id"))
        gifts = ("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription")
        return {
            **chat.wire(),
            "accent_color_id": 0,
            "max_reaction_count": 11,
            "accepted_gift_types": dict.fromkeys((*gifts, "gifts_from_channels"), False),
        }

    def get_chat_member(self, params: Params, call: Call) -> Json:
        chat = self.sending.writable(params)
        user_id = params.integer("user_id")
        if user_id == self.state.bot_id:
            return self._member(user_id, "administrator" if chat.bot_is_admin else "member")
        if user_id not in chat.members:
            raise bad_request("PARTICIPANT_ID_INVALID")
        return self._member(user_id, chat.members[user_id])

    def get_chat_administrators(self, params: Params, call: Call) -> list[Json]:
        chat = self.sending.writable(params)
        if chat.type == "private":
            raise bad_request("there are no administrators in the private chat")
        chiefs = {"administrator", "creator"}
        return [self._member(user, role) for user, role in chat.members.items() if role in chiefs]

    def _member(self, user_id: int, status: str) -> Json:
        user = self.state.users.get(user_id, self.state.bot)
        body: Json = {"user": user, "status": status}
        if status == "creator":
            body["is_anonymous"] = False
        elif status == "administrator":
            rights = (
                "can_be_edited is_anonymous can_manage_chat can_delete_messages "
                "can_manage_video_chats can_restrict_members can_promote_members "
                "can_change_info can_invite_users can_post_stories can_edit_stories "
                "can_delete_stories"
            )
            body.update(dict.fromkeys(rights.split(), False))
        elif status == "kicked":
            body["until_date"] = 0
        return body

    # --- files

    def get_file(self, params: Params, call: Call) -> Json:
        file_id = params.text("file_id")
        if not file_id:
            raise bad_request("file_id not specified")
        stored = self.state.files.get(file_id)
        if stored is None:
            raise bad_request("invalid file_id")
        if stored.size > MAX_DOWNLOAD:
            raise bad_request("file is too big")
        stored.open_until = self.state.clock() + PATH_SECONDS
        return {
            "file_id": stored.file_id,
            "file_unique_id": stored.unique_id,
            "file_size": stored.size,
            "file_path": stored.path,
        }

    # --- updates

    def _allow(self, params: Params) -> None:
        wanted = params.parsed("allowed_updates", "allowed_updates")
        if wanted is None:
            return
        # Without any known name in it the list stands for the default.
        known = frozenset(str(name).lower() for name in wanted) & KINDS
        self.updates.allowed = known or None

    async def get_updates(self, params: Params, call: Call) -> list[Json]:
        if self.webhook.url:
            raise conflict(
                "can't use getUpdates method while webhook is active; "
                "use deleteWebhook to delete the webhook first"
            )
        self._allow(params)
        limit = params.integer("limit", 100)
        limit = limit if 1 <= limit <= 100 else 100
        timeout = min(max(params.integer("timeout"), 0), LONG_POLL_LIMIT)
        return await self.updates.poll(params.integer("offset"), limit, timeout)

    async def set_webhook(self, params: Params, call: Call) -> bool:
        url = params.text("url")
        if not url:
            return await self.delete_webhook(params, call)
        if not re.match(r"https?://[^/\s]+", url):
            raise bad_request("bad webhook: invalid webhook URL specified")
        secret = params.text("secret_token")
        if len(secret) > 256:
            raise bad_request("secret token is too long")
        if not re.fullmatch(r"[A-Za-z0-9_-]*", secret):
            raise bad_request("secret token contains unallowed characters")
        self._allow(params)
        self.updates.interrupt(conflict("terminated by setWebhook request"))
        self._drop_if_asked(params)
        await self.webhook.set(url, secret, params.integer("max_connections", 40))
        return True

    async def delete_webhook(self, params: Params, call: Call) -> bool:
        await self.webhook.stop()
        self._drop_if_asked(params)
        return True

    def _drop_if_asked(self, params: Params) -> None:
        if params.flag("drop_pending_updates"):
            self.updates.drop_pending()

    # --- commands and buttons

    def _scope(self, params: Params) -> tuple[str, str]:
        scope = params.parsed("scope", "BotCommandScope") or {"type": "default"}
        if scope.get("type") not in _SCOPES:
            raise bad_request("can't parse BotCommandScope: Unsupported type specified")
        if scope["type"].startswith("chat") and "chat_id" not in scope:
            raise bad_request("can't parse BotCommandScope: Can't find field \"chat_id\"")
        if "chat_id" in scope:
            self.state.chat(str(scope["chat_id"]))
        return json.dumps(scope, sort_keys=True), params.text("language_code")

    def set_commands(self, params: Params, call: Call) -> bool:
        commands = params.parsed("commands", "bot commands")
        if not isinstance(commands, list):
            raise bad_request("can't parse commands JSON array: expected an Array")
        if len(commands) > 100:
            raise bad_request("BOT_COMMANDS_TOO_MUCH")
        for command in commands:
            if not re.fullmatch(r"[a-z0-9_]{1,32}", str(command.get("command", ""))):
                raise bad_request("BOT_COMMAND_INVALID")
            if not 1 <= len(str(command.get("description", ""))) <= 256:
                raise bad_request("BOT_COMMAND_DESCRIPTION_INVALID")
        self.state.commands[self._scope(params)] = commands
        return True

    def get_commands(self, params: Params, call: Call) -> list[Json]:
        return self.state.commands.get(self._scope(params), [])

    def delete_commands(self, params: Params, call: Call) -> bool:
        self.state.commands.pop(self._scope(params), None)
        return True

    def answer_callback(self, params: Params, call: Call) -> bool:
        query_id = params.text("callback_query_id")
        if query_id not in self.state.open_queries:
            raise bad_request(
                "query is too old and response timeout expired or query ID is invalid"
            )
        if len(params.text("text")) > 200:
            raise bad_request("MESSAGE_TOO_LONG")
        self.state.open_queries.discard(query_id)
        self.state.callback_answers.append(dict(params.values))
        return True
