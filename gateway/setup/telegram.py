"""Owns what is asked about Telegram: the token, tried at once, and who may talk."""

from __future__ import annotations

import time

from gateway.cli.output import plain
from gateway.doctor.ground import Ground
from gateway.probing.telegram import Sender, TelegramBot, ask_bot, waiting_senders, webhook_of
from gateway.probing.web import Refused, Unreachable
from gateway.setup.people import ask_admins, ask_ids
from gateway.setup.talk import Talk
from gateway.setup.tokens import ask_token
from gateway.setup.wishes import TELEGRAM_TOKEN, Wishes, as_numbers

SEARCH_SECONDS = 120
POLL_SECONDS = 10
MOST_OFFERED = 5
_FIND = """\
   Who may talk to it? Numeric ids, with commas between them; or `find`: you write to the bot, and
   I look who that is."""


def ask_telegram(talk: Talk, ground: Ground, base_url: str, *, offline: bool) -> Wishes:
    """The bot's token, and who may talk to it."""
    talk.say(
        "\n1. Telegram\n"
        "   In Telegram, write /newbot to @BotFather; it gives you a token (123456789:AA…)."
    )
    found = ask_token(
        talk,
        ground,
        TELEGRAM_TOKEN,
        "Telegram",
        there=ground.secrets.telegram_bot_token,
        tried=None if offline else lambda token: _of(talk, base_url, token),
        refused="Copy it whole, from @BotFather: /mybots.",
    )
    if found is None:
        return Wishes()
    token, bot = found.text, found.bot
    kept = ground.config.telegram
    finder = None if bot is None or ground.runs else lambda: _find(talk, base_url, token, bot)
    let_in = ask_ids(
        talk, _FIND, kept.allow_from, kept.allow_chats, finder=finder, groups_allowed=True
    )
    settings = {
        "telegram.allow_from": as_numbers(let_in.people),
        "telegram.allow_chats": as_numbers(let_in.groups),
        "telegram.admins": as_numbers(ask_admins(talk, let_in, kept.admins)),
    }
    return Wishes(found.to_keep, settings)


def _of(talk: Talk, base_url: str, token: str) -> TelegramBot:
    """Whose it is, and who else uses it.

    Raises:
        Refused, Unreachable: as `ask_bot`.
    """
    bot, webhook = ask_bot(base_url, token), webhook_of(base_url, token)
    talk.say(f"   That is @{plain(bot.name)}.")
    if webhook:
        talk.say(
            "   Another program has set a webhook for this bot. posthouse removes it when it "
            "starts;\n   a program that still uses this bot would then get nothing more."
        )
    return bot


def _find(talk: Talk, base_url: str, token: str, bot: TelegramBot) -> str | None:
    """Who writes to the bot now, confirmed by whoever sits here; None: nobody."""
    talk.say(f"   Now send @{plain(bot.name)} any message ({SEARCH_SECONDS} seconds; Ctrl-C ends).")
    deadline = time.monotonic() + SEARCH_SECONDS
    asked: set[str] = set()
    while (left := deadline - time.monotonic()) > 0 and len(asked) < MOST_OFFERED:
        try:
            wait = min(POLL_SECONDS, max(1, int(left)))
            senders = waiting_senders(base_url, token, wait_seconds=wait)
        except (Refused, Unreachable) as exc:
            talk.say(f"   I can not look: {exc}.")
            return None
        new = _newest(senders, asked)
        if new is None:
            time.sleep(0.5)  # what waits is given at once, again and again
            continue
        asked.add(new.user_id)
        if talk.sure(f"   {plain(new.name, 60)}, id {new.user_id}: is that you?", default=False):
            return new.user_id
    talk.say("   Nobody else has written.")
    return None


def _newest(senders: list[Sender], asked: set[str]) -> Sender | None:
    """Of those that were not asked about: somebody may have written to the bot long ago."""
    new = [sender for sender in senders if sender.user_id not in asked]
    return max(new, key=lambda sender: sender.update_id, default=None)
