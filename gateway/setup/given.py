"""Owns a set-up without questions: answers from flags and the environment, tried as by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent.errors import PosthouseError
from gateway.config.zones import is_zone, nearest_zones
from gateway.doctor.ground import Ground
from gateway.probing import discord, telegram
from gateway.probing.model import NoCatalogue, UnknownModel, ask_model
from gateway.probing.web import Refused, Unreachable
from gateway.setup.wishes import (
    ANTHROPIC_KEY,
    DISCORD_TOKEN,
    TELEGRAM_TOKEN,
    Wishes,
    as_numbers,
    read_ids,
)


@dataclass(frozen=True, slots=True)
class Answers:
    """What the flags say; None or nothing: it stays as it is."""

    telegram_ids: Sequence[str] = ()
    discord_ids: Sequence[str] = ()
    telegram_admins: Sequence[str] = ()
    discord_admins: Sequence[str] = ()
    no_admins: bool = False
    """Also not whoever is the only one."""
    model: str | None = None
    timezone: str | None = None


@dataclass(frozen=True, slots=True)
class Servers:
    """Who is asked."""

    telegram: str
    discord: str
    model: str | None


def from_answers(
    answers: Answers, ground: Ground, servers: Servers, *, offline: bool
) -> tuple[Wishes, list[str]]:
    """What is to be written, and what could not be tried.

    Raises:
        PosthouseError: one line for each answer that is wrong; nothing is written then.
    """
    wrong: list[str] = []
    untried: list[str] = []
    settings: dict[str, object] = {}
    telegram_ids, discord_ids = (
        read_ids(",".join(ids)) for ids in (answers.telegram_ids, answers.discord_ids)
    )
    wrong += [
        f"{word[:40]!r} is no numeric id (names change hands, ids do not)"
        for word in (*telegram_ids.wrong, *discord_ids.wrong, *discord_ids.groups)
    ]
    if telegram_ids.people:
        settings["telegram.allow_from"] = as_numbers(telegram_ids.people)
    if telegram_ids.groups:
        settings["telegram.allow_chats"] = as_numbers(telegram_ids.groups)
    if discord_ids.people:
        settings["discord.allow_from"] = as_numbers(discord_ids.people)
    for platform, ids, named, config in (
        ("telegram", telegram_ids, answers.telegram_admins, ground.config.telegram),
        ("discord", discord_ids, answers.discord_admins, ground.config.discord),
    ):
        let_in = ids.people or tuple(config.allow_from)
        admins = read_ids(",".join(named))
        wrong += [
            f"--{platform}-admin {word[:40]}: nobody of this id may talk (--{platform}-id)"
            for word in (*admins.wrong, *admins.groups, *admins.people)
            if word == "*" or word not in let_in
        ]
        chosen = admins.people
        if not named and not config.admins and not answers.no_admins and len(ids.people) == 1:
            chosen = tuple(one for one in ids.people if one != "*")  # whoever sets it up
        if chosen:
            settings[f"{platform}.admins"] = as_numbers(chosen)
    if answers.model:
        settings["model.name"] = answers.model
    if answers.timezone:
        if not is_zone(answers.timezone):
            near = "".join(
                f"; did you mean {name}?" for name in nearest_zones(answers.timezone)[:1]
            )
            wrong.append(f"{answers.timezone[:40]!r} is no time zone{near}")
        settings["timezone"] = answers.timezone
    if not offline:
        model = answers.model or ground.config.model.name
        for name, trouble, unsure in _tried(ground, servers, model):
            (untried if unsure else wrong).append(f"{name}: {trouble}")
    if wrong:
        raise PosthouseError("\n".join(wrong))
    return Wishes(_of_this_shell(ground.env), settings), untried


def _of_this_shell(env: Mapping[str, str]) -> dict[str, str]:
    """Kept, so that a service finds them too."""
    names = (TELEGRAM_TOKEN, DISCORD_TOKEN, ANTHROPIC_KEY)
    return {name: env[name].strip() for name in names if env.get(name, "").strip()}


def _tried(ground: Ground, servers: Servers, model: str) -> list[tuple[str, str, bool]]:
    """Secret, trouble, and whether that only means that nobody could be asked."""
    secrets, found = ground.secrets, list[tuple[str, str, bool]]()
    asked: dict[str, tuple[str | None, Callable[[str], object]]] = {
        TELEGRAM_TOKEN: (
            secrets.telegram_bot_token,
            lambda token: telegram.ask_bot(servers.telegram, token),
        ),
        DISCORD_TOKEN: (
            secrets.discord_bot_token,
            lambda token: discord.ask_bot(servers.discord, token),
        ),
        ANTHROPIC_KEY: (
            secrets.anthropic_api_key,
            lambda key: ask_model(servers.model, key, model),
        ),
    }
    for name, (secret, ask) in asked.items():
        if not secret:
            continue
        try:
            ask(secret)
        except UnknownModel as exc:
            near = f"; near it: {', '.join(exc.nearest)}" if exc.nearest else ""
            found.append(("model", f"{exc}{near}", False))
        except Refused as exc:
            found.append((name, str(exc), False))
        except NoCatalogue:
            continue
        except Unreachable as exc:
            found.append((name, f"not tried, {exc}", True))
    return found
