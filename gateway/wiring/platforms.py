"""Owns which platforms run, how each is made, and who may talk there, from the configuration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from agent.attachments import Attachments
from agent.errors import ConfigError
from agent.ports import Clock
from agent.store_ports import Store
from gateway.config.environment import Secrets, odd_secrets
from gateway.config.models import Config, WhoMayCommand
from gateway.config.tokens import missing_tokens
from gateway.intake.access import AccessRules, PlatformPolicy
from gateway.intake.command_rules import CommandRules, Scope
from gateway.platforms.console.convert import PLATFORM as CONSOLE
from gateway.platforms.console.convert import USER_ID
from gateway.platforms.contract import Platform
from gateway.wiring.surroundings import Surroundings

if TYPE_CHECKING:
    from gateway.wiring.plugins import Plugins


NO_PLATFORM = (
    "no platform can run: `posthouse init` sets one up (or set TELEGRAM_BOT_TOKEN or "
    "DISCORD_BOT_TOKEN); `posthouse chat` is the console"
)


def check_platforms(config: Config, around: Surroundings) -> None:
    """Refuse what can not work, before anything is opened.

    Raises:
        ConfigError: a platform is switched on without its token, or nothing is left to run.
    """
    if around.only_console:
        return
    problems = missing_tokens(config, around.secrets) + odd_secrets(around.secrets)
    if problems:
        raise ConfigError(problems)
    mute = around.console is None and not config.plugins.enabled  # one may bring a platform
    if mute and not enabled_platforms(config, around.secrets):
        raise ConfigError([NO_PLATFORM])


def enabled_platforms(config: Config, secrets: Secrets) -> list[str]:
    """The chat platforms that are on: ``auto`` means with a token."""
    tokens = {"telegram": secrets.telegram_bot_token, "discord": secrets.discord_bot_token}
    wanted = {"telegram": config.telegram.enabled, "discord": config.discord.enabled}
    return [name for name, token in tokens.items() if token and wanted[name] is not False]


async def build_platforms(
    config: Config,
    around: Surroundings,
    clock: Clock,
    store: Store,
    attachments: Attachments,
    plugins: Plugins | None = None,
) -> dict[str, Platform]:
    """The chat platforms by name; their SDKs are only imported where they are on.

    ``plugins``: their commands are in the menus, their platforms beside ours.

    Raises:
        ConfigError: there is none at all.
    """
    platforms: dict[str, Platform] = {}
    secrets = around.secrets
    if around.only_console:
        return platforms
    # Inside: who only asks who may talk (the doctor, a check) needs no command.
    from gateway.commands.menu import entries  # noqa: PLC0415
    from gateway.commands.registry import ALIASES, COMMANDS  # noqa: PLC0415

    foreign = plugins.gifts.commands if plugins is not None else {}
    menu = entries({**COMMANDS, **foreign}, ALIASES)
    enabled = enabled_platforms(config, secrets)
    if "telegram" in enabled and secrets.telegram_bot_token:
        # Inside: each SDK costs a quarter of a second and 15 to 20 MB.
        from gateway.platforms.telegram.adapter import TelegramPlatform  # noqa: PLC0415
        from gateway.platforms.telegram.client import TelegramSettings  # noqa: PLC0415
        from gateway.platforms.telegram.webhook import WebhookSettings  # noqa: PLC0415
        from gateway.platforms.telegram.webhook_door import DoorSettings  # noqa: PLC0415

        hook = config.telegram.webhook
        webhook = None
        if config.telegram.mode == "webhook" and hook.url is not None:
            webhook = WebhookSettings(
                hook.url,
                secret=secrets.telegram_webhook_secret or hook.secret,
                door=DoorSettings(hook.host, hook.port),
            )

        platforms["telegram"] = TelegramPlatform(
            TelegramSettings(
                secrets.telegram_bot_token,
                base_url=config.telegram.base_url,
                base_file_url=config.telegram.base_file_url,
                webhook=webhook,
            ),
            clock,
            attachments=attachments,
            menu=menu,
            remembered=store,
            admins=config.telegram.admins,
        )
    if "discord" in enabled and secrets.discord_bot_token:
        from gateway.platforms.discord.adapter import DiscordPlatform  # noqa: PLC0415
        from gateway.platforms.discord.settings import DiscordSettings  # noqa: PLC0415

        platforms["discord"] = DiscordPlatform(
            DiscordSettings(
                secrets.discord_bot_token,
                api_base=config.discord.api_base,
                gateway_url=config.discord.gateway_url,
            ),
            clock,
            nonce_scope=await store.identity(),
            attachments=attachments,
            menu=menu,
            remembered=store,
        )
    theirs = plugins.gifts.foreign if plugins is not None else None
    every = {**platforms, **(theirs.platforms if theirs is not None else {})}
    if not every and around.console is None:  # no plugin has brought one either
        raise ConfigError([NO_PLATFORM])
    return every


def pairing_platforms(config: Config) -> frozenset[str]:
    """Where a code lets people in."""
    wanted = {"telegram": config.telegram.pairing, "discord": config.discord.pairing}
    return frozenset(name for name, on in wanted.items() if on)


def build_policies(config: Config, names: set[str]) -> dict[str, PlatformPolicy]:
    """Who may talk, for the platforms that are on."""
    telegram, discord = config.telegram, config.discord
    policies = {
        "telegram": PlatformPolicy(
            AccessRules(
                allow_from=frozenset(telegram.allow_from),
                allow_chats=frozenset(telegram.allow_chats),
                admins=frozenset(telegram.admins),
            ),
            require_mention=telegram.require_mention,
            group_sessions_per_user=telegram.group_sessions_per_user,
            commands=command_rules(telegram),
            pairing=telegram.pairing,
        ),
        "discord": PlatformPolicy(
            AccessRules(
                allow_from=frozenset(discord.allow_from),
                allow_chats=frozenset(discord.allow_channels),
                allow_roles=frozenset(discord.allow_roles),
                admins=frozenset(discord.admins),
            ),
            require_mention=discord.require_mention,
            group_sessions_per_user=discord.group_sessions_per_user,
            commands=command_rules(discord),
            pairing=discord.pairing,
        ),
        # Whoever can write to the process's input, or to its socket, owns the server.
        CONSOLE: PlatformPolicy(
            AccessRules(allow_from=frozenset({USER_ID}), admins=frozenset({USER_ID}))
        ),
    }
    return {name: policy for name, policy in policies.items() if name in names}


def command_rules(section: WhoMayCommand) -> CommandRules:
    """Names may be written with their slash."""

    def scope(admins: Iterable[str], names: Iterable[str]) -> Scope:
        return Scope(frozenset(admins), frozenset(name.removeprefix("/").lower() for name in names))

    return CommandRules(
        scope(section.allow_admin_from, section.user_allowed_commands),
        scope(section.group_allow_admin_from, section.group_user_allowed_commands),
    )
