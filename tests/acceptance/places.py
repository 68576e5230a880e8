"""Owns the places where people tell things: what can be done in each, and what it shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gateway.approval_text import APPROVE, DENY
from tests.acceptance.harness import World
from tests.fakes.discord_server import Channel

QUESTION = "May I"
ANSWERED = re.compile(r"\bre (F\d{3}):")


class TelegramPlace:
    """A private chat, or (by its id) a group, which may get another id."""

    platform = "telegram"

    def __init__(self, world: World, user_id: int, group_id: int | None = None) -> None:
        self._server = world.telegram
        self._user_id = user_id
        self._group = group_id is not None
        self.chat_ids = [user_id if group_id is None else group_id]
        """All that it has had, today's last."""
        if group_id is not None:
            self._server.add_group(group_id)

    @property
    def is_private(self) -> bool:
        return not self._group

    def _where(self) -> dict[str, Any]:
        return {"chat_id": self.chat_ids[-1], "user_id": self._user_id}

    def _addressed(self, text: str) -> str:
        return f"@{self._server.state.bot['username']} {text}" if self._group else text

    def say(self, text: str) -> Any:
        words = self._addressed(text)
        return self._server.message(self._server._text(words), **self._where())

    def edit(self, message: Any, text: str) -> None:
        chat_id = message["message"]["chat"]["id"]
        self._server.edit_message(
            message["message"]["message_id"], self._addressed(text), chat_id=chat_id
        )

    def paste(self, text: str) -> None:
        self._server.paste(text, **self._where())

    def show(self, pictures: Sequence[bytes], caption: str) -> None:
        """One picture, or an album."""
        words = self._addressed(caption)
        if len(pictures) == 1:
            self._server.photo(pictures[0], caption=words, **self._where())
        else:
            group = f"album-{self._server.state.next_message_id(self._chat())}"
            self._server.album(list(pictures), caption=words, media_group_id=group, **self._where())

    def hand_over(self, name: str, data: bytes, caption: str) -> None:
        words = self._addressed(caption)
        self._server.document(data, name, caption=words, **self._where())

    def question(self, about: str) -> int | None:
        """The number of the message that asks before this deed."""
        for message in self._server.visible(self.chat_ids[-1]):
            if QUESTION in message.text and about in message.text and message.reply_markup:
                return message.message_id
        return None

    def decide(self, question: int, yes: bool) -> None:
        label = APPROVE if yes else DENY
        self._server.press(question, label, **self._where())

    def move(self, new_id: int) -> None:
        self._server.migrate(self.chat_ids[-1], new_id, user_id=self._user_id)
        self.chat_ids.append(new_id)

    def shown(self) -> list[str]:
        """What the chat of today shows, behind what those before it show beside that.

        An answer that was being shown when the chat moved stands in the old one as far as it had
        come: nobody can change anything there any more. It comes whole where the chat is today.
        """
        *before, today = ([*self._server.visible_texts(chat)] for chat in self.chat_ids)
        told = {tag for text in today for tag in ANSWERED.findall(text)}
        old = [
            text
            for chat in before
            for text in chat
            if not told.intersection(ANSWERED.findall(text))
        ]
        return [*old, *today]

    def _chat(self) -> Any:
        return self._server._chat(self.chat_ids[-1])


class DiscordPlace:
    """A direct channel, or a channel of a guild, where the bot is mentioned."""

    platform = "discord"

    def __init__(self, world: World, user_id: int, channel: Channel | None = None) -> None:
        self._server = world.discord
        self._user_id = user_id
        self._mention = channel is not None
        self._channel = channel or world.discord.open_dm(user_id)

    @property
    def is_private(self) -> bool:
        return not self._mention

    def say(self, text: str, **options: Any) -> Any:
        return self._server.user_says(
            self._channel, self._user_id, text, mention_bot=self._mention, **options
        )

    def edit(self, message: Any, text: str) -> None:
        words = f"<@{self._server.bot.id}> {text}" if self._mention else text
        self._server.user_edits(message, words)

    def paste(self, text: str) -> None:
        self._server.user_pastes(self._channel, self._user_id, text)

    def show(self, pictures: Sequence[bytes], caption: str) -> None:
        files = [(f"{n}.png", data, "image/png") for n, data in enumerate(pictures)]
        self.say(caption, files=files)

    def hand_over(self, name: str, data: bytes, caption: str) -> None:
        self.say(caption, files=[(name, data, "text/plain")])

    def question(self, about: str) -> int | None:
        for message in self._server.visible(self._channel):
            own = message.author_id == self._server.bot.id
            if own and QUESTION in message.content and about in message.content:
                return message.id
        return None

    def decide(self, question: int, yes: bool) -> None:
        """By its button; in the words of a command in a channel of many."""
        message = self._server.world.message(question)
        for row in [] if self._mention else message.components:
            for button in row["components"]:
                if button.get("label") == (APPROVE if yes else DENY):
                    self._server.click(message, self._user_id, button["custom_id"])
                    return
        self.say("/approve" if yes else "/deny")

    def shown(self) -> list[str]:
        return self._server.bot_texts(self._channel)


Place = TelegramPlace | DiscordPlace
