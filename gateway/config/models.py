"""Owns the shape of config.yaml as a whole; its sections are in modules of their own."""

from __future__ import annotations

from pydantic import field_validator

from gateway.config.sections.answering import (
    Agent,
    CacheTtl,
    Compression,
    Context,
    Memory,
    Model,
    SideTask,
    Tools,
)
from gateway.config.sections.jobs import ConfiguredJob, JobList, JobTarget
from gateway.config.sections.running import Backup, Budget, Logging, Plugins, Sessions
from gateway.config.sections.talking import (
    Console,
    Discord,
    Gateway,
    Http,
    Telegram,
    TelegramWebhook,
    WhoMayCommand,
)
from gateway.config.sections.values import Ids, PlainIds, Section, plain_id
from gateway.config.zones import is_zone, nearest_zones

__all__ = [
    "Agent",
    "Backup",
    "Budget",
    "CacheTtl",
    "Compression",
    "Config",
    "ConfiguredJob",
    "Console",
    "Context",
    "Discord",
    "Gateway",
    "Http",
    "Ids",
    "JobTarget",
    "Logging",
    "Memory",
    "Model",
    "PlainIds",
    "Plugins",
    "Section",
    "Sessions",
    "SideTask",
    "Telegram",
    "TelegramWebhook",
    "Tools",
    "WhoMayCommand",
    "plain_id",
    "unavailable",
]


class Config(Section):
    """config.yaml."""

    model: Model = Model()
    context: Context = Context()
    compression: Compression = Compression()
    agent: Agent = Agent()
    gateway: Gateway = Gateway()
    telegram: Telegram = Telegram()
    discord: Discord = Discord()
    timezone: str | None = None
    """A name such as Europe/Berlin; null: the system's."""
    console: Console = Console()
    sessions: Sessions = Sessions()
    backup: Backup = Backup()
    auxiliary: dict[str, SideTask] = {}
    """Side tasks by their names; what is not set for one is as for compression."""
    memory: Memory = Memory()
    plugins: Plugins = Plugins()
    jobs: JobList = []
    """What is done at set times."""
    budget: Budget = Budget()
    logging: Logging = Logging()

    @property
    def wants_plugins(self) -> bool:
        """Is there code of others to load?"""
        return bool(
            self.plugins.enabled or self.memory.provider or self.context.engine != "compressor"
        )

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str | None) -> str | None:
        if value is not None and not is_zone(value):
            near = "".join(f"; did you mean {name}?" for name in nearest_zones(value)[:1])
            raise ValueError(
                f"{value!r} is no time zone name{near or ', for example Europe/Berlin'}"
            )
        return value


def unavailable(config: Config) -> list[str]:
    """One line for each key that is set and has no effect."""
    lines: list[str] = []
    for name, task in config.auxiliary.items():
        elsewhere = [key for key in ("base_url", "api_key") if (task.model_extra or {}).get(key)]
        if elsewhere:
            lines.append(
                f"auxiliary.{name}: {', '.join(elsewhere)} without effect: side tasks go where "
                "`model` says"
            )
    return lines
