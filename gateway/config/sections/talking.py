"""Owns the sections of config.yaml about where people talk, and what the daemon does with it."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from gateway.config.sections.values import (
    HttpAddress,
    Ids,
    PlainIds,
    Section,
    SocketAddress,
    Switch,
    bare,
)

_DELIVERED_TO = (443, 80, 88, 8443)
"""The ports of webhooks that Telegram's own servers deliver to."""


class Http(Section):
    """The local HTTP endpoint: /healthz, /readyz and /metrics (Prometheus)."""

    host: str = Field("127.0.0.1", min_length=1)
    """Another one than loopback lets other machines read them."""
    port: int | None = Field(8787, ge=0, le=65535)
    """0: any that is free (`posthouse status` tells); null: off."""
    allowed_hosts: list[str] = []
    """Further names that requests may call it by, e.g. metrics.example.org."""


class Gateway(Section):
    """The daemon."""

    busy_mode: Literal["queue", "interrupt", "steer"] = "queue"
    """A message during a turn waits, ends the turn, or goes into it at its next step."""
    drain_seconds: float = Field(20, ge=0, le=600)
    """How long a stop waits for running turns."""
    queue_limit: int = Field(200, ge=1)
    """Waiting messages per conversation."""
    streaming: bool = True
    """Answers are shown while they are written, where the platform can."""
    control_socket: str | None = None
    """null: control.sock in the home folder."""
    http: Http = Http()


class TelegramWebhook(Section):
    """Webhook mode of Telegram."""

    url: Annotated[HttpAddress, AfterValidator(bare)] | None = None
    """As Telegram sees it, e.g. https://bot.example.org/telegram."""
    host: str = Field("127.0.0.1", min_length=1)
    """Where the reverse proxy hands it on to."""
    port: int = Field(8443, ge=0, le=65535)
    """The port of it."""
    secret: str | None = Field(None, pattern=r"^[A-Za-z0-9_-]{1,256}$")
    """Better: TELEGRAM_WEBHOOK_SECRET; neither: a new one with each start."""


class WhoMayCommand(Section):
    """Who may give the commands of plugins: in direct chats, and (``group_…``) in groups."""

    allow_admin_from: PlainIds = []
    """Who may give all commands of plugins in direct chats; neither list: everybody."""
    user_allowed_commands: list[str] = []
    """... and which of them everybody may give there; ["*"]: all."""
    group_allow_admin_from: PlainIds = []
    """The same for groups: who may give all of them."""
    group_user_allowed_commands: list[str] = []
    """The same for groups: which of them everybody may give."""


class Telegram(WhoMayCommand):
    """The Telegram bot."""

    enabled: Switch = "auto"
    """auto: when there is a token."""
    base_url: HttpAddress = "https://api.telegram.org/bot"
    """Where the bot API is."""
    base_file_url: HttpAddress = "https://api.telegram.org/file/bot"
    """Where it keeps files."""
    mode: Literal["polling", "webhook"] = "polling"
    """webhook: behind a reverse proxy (docs/webhook.md)."""
    webhook: TelegramWebhook = TelegramWebhook()
    allow_from: Ids = []
    """Numeric user ids, allowed everywhere; ["*"]: everybody."""
    allow_chats: PlainIds = []
    """Group ids (-100…): everyone in that group is allowed there."""
    admins: PlainIds = []
    """User ids that may change what a group shares: /new, /undo and so on."""
    pairing: bool = False
    """A stranger's direct message gets a code for `posthouse pair approve`."""
    group_sessions_per_user: bool = True
    """false: a group shares one conversation."""
    require_mention: bool = True
    """In groups: only answer when mentioned, replied to or given a command."""

    @model_validator(mode="after")
    def _reachable(self) -> Telegram:
        url, example = self.webhook.url, "https://bot.example.org/telegram"
        if self.mode == "webhook" and url is None:
            raise ValueError(
                f"mode is webhook, so webhook.url must say where Telegram reaches it: {example}"
            )
        official = self.base_url == Telegram.model_fields["base_url"].default
        if url is not None and official and not url.lower().startswith("https:"):
            raise ValueError(f"webhook.url must begin with https, as in {example}")
        if url is not None and official and (urlsplit(url).port or 443) not in _DELIVERED_TO:
            raise ValueError("webhook.url: Telegram delivers to port 443, 80, 88 and 8443 only")
        return self


class Discord(WhoMayCommand):
    """The Discord bot."""

    enabled: Switch = "auto"
    """auto: when there is a token."""
    api_base: HttpAddress = "https://discord.com/api/v10"
    """Where the API is."""
    gateway_url: SocketAddress | None = None
    """null: asked from the API."""
    allow_from: Ids = []
    """Numeric user ids, allowed everywhere; ["*"]: everybody."""
    allow_channels: PlainIds = []
    """Everyone in that channel and its threads is allowed there."""
    allow_roles: PlainIds = []
    """Members with that role are allowed in servers."""
    admins: PlainIds = []
    """User ids that may change what a channel shares: /new, /undo and so on."""
    pairing: bool = False
    """A stranger's direct message gets a code for `posthouse pair approve`."""
    group_sessions_per_user: bool = True
    """false: a channel shares one conversation."""
    require_mention: bool = True
    """In servers: only answer when mentioned; commands of the menu are answered anyway."""


class Console(Section):
    """Chat on standard input and output."""

    enabled: Switch = "auto"
    """auto: on a terminal, or if no other platform is enabled."""
