"""Owns what is asked about Discord: the token, its intent, the invitation, who may talk."""

from __future__ import annotations

from gateway.cli.output import plain
from gateway.doctor.ground import Ground
from gateway.probing.discord import DiscordBot, ask_bot
from gateway.probing.web import Refused, Unreachable
from gateway.setup.people import ask_admins, ask_ids
from gateway.setup.talk import Talk
from gateway.setup.tokens import ask_token
from gateway.setup.wishes import DISCORD_TOKEN, Wishes, as_numbers

_WHERE = """\
   Who may talk to it? Numeric ids, with commas between them. In Discord: Settings, Advanced,
   Developer Mode; then a right click on a name, Copy User ID.{find}"""


def ask_discord(talk: Talk, ground: Ground, api_base: str, *, offline: bool) -> Wishes:
    """The bot's token, and who may talk to it."""
    talk.say(
        "\n2. Discord\n"
        "   At https://discord.com/developers/applications: New Application, then Bot, Reset Token."
    )
    found = ask_token(
        talk,
        ground,
        DISCORD_TOKEN,
        "Discord",
        there=ground.secrets.discord_bot_token,
        tried=None if offline else lambda token: ask_bot(api_base, token),
        refused="Reset Token on the page Bot makes a new one.",
    )
    if found is None:
        return Wishes()
    bot = found.bot
    if bot is not None:
        talk.say(f"   That is {plain(bot.name)}.")
        bot = _with_intent(talk, api_base, found.text, bot)
        if not bot.servers:
            talk.say(f"   It is in no server yet. Invite it:\n   {bot.invitation}")
    owner = bot.owner if bot is not None else None
    kept = ground.config.discord
    let_in = ask_ids(
        talk,
        _WHERE.format(find=" Or `find`: whose application it is." if owner else ""),
        kept.allow_from,
        (),
        finder=(lambda: _owner(talk, owner)) if owner else None,
        groups_allowed=False,
    )
    settings = {
        "discord.allow_from": as_numbers(let_in.people),
        "discord.admins": as_numbers(ask_admins(talk, let_in, kept.admins)),
    }
    return Wishes(found.to_keep, settings)


def _with_intent(talk: Talk, api_base: str, token: str, bot: DiscordBot) -> DiscordBot:
    """Without the intent Discord refuses the bot, so look again until it is there, or is left."""
    while not bot.reads_text:
        talk.say(f"   Switch on MESSAGE CONTENT INTENT, and save:\n   {bot.page}")
        if talk.ask("   Enter: look again; `later`: go on without").lower() == "later":
            break
        try:
            bot = ask_bot(api_base, token)
        except (Refused, Unreachable) as exc:
            talk.say(f"   {exc}.")
    return bot


def _owner(talk: Talk, owner: tuple[str, str]) -> str | None:
    number, name = owner
    return (
        number
        if talk.sure(f"   {plain(name, 60)}, id {number}: is that you?", default=True)
        else None
    )
