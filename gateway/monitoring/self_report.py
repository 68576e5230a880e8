"""Owns what the daemon says about itself: at start, in ``/status``, to ``posthouse status``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from agent.compaction.micro.progress import MicroSettings
from agent.model_metadata import IMAGE_TOKENS, Triggers, start_warnings
from agent.prices import price_table
from agent.prompt_caching import CacheTtl, cache_line, cache_marks, ttl_for
from agent.spending import FREE_MODELS
from gateway.commands.wording import percent
from gateway.config.models import Config, unavailable
from gateway.intake.access import PlatformPolicy
from gateway.intake.who_may_talk import in_words, warnings_of
from gateway.supervisor import Supervisor
from gateway.windows.book import WindowBook
from gateway.windows.rules import micro_of

log = logging.getLogger(__name__)

_OWN = "posthouse's own compression works in its place"
WINDOW_SOURCES: Mapping[str, str] = {
    "built-in": "built in",
    "config": "as config.yaml says",
    "error": "as the provider said when a prompt was too long",
    "provider": "as the provider says",
    "table": "as posthouse knows this model",
    "default": "assumed: nothing says how large it is",
}
"""How it is known how large the window is."""


class PluginFacts(Protocol):
    """What is known of plugins."""

    def troubles(self) -> list[str]:
        """A line for each that should run and does not."""
        ...

    def keep_what_is_old(self) -> list[str]:
        """Those that keep what retention deletes, by name."""
        ...

    def summary(self) -> str:
        """In one line."""
        ...

    def memory(self) -> str:
        """Which memory provider works; "": none is asked for."""
        ...

    def engine(self) -> str:
        """Which context engine works; "": the built-in one, as configured."""
        ...

    def engine_threshold(self, window_tokens: int) -> int | None:
        """From where on it compresses; None: the built-in one works, or it does not say."""
        ...


class ToolServerFacts(Protocol):
    """What is known of the servers of tools."""

    def troubles(self) -> list[str]:
        """A line for each thing that should be otherwise."""
        ...

    def summary(self) -> str:
        """In one line."""
        ...


class SelfReport:
    """The facts behind `gateway.commands.contract.Status`, always those of now."""

    def __init__(
        self,
        config: Callable[[], Config],
        *,
        model: str,
        book: WindowBook,
        triggers: Callable[[], Triggers],
        prefix_tokens: Callable[[], int],
        image_tokens: Callable[[str], int] = lambda model: IMAGE_TOKENS,
        missing_native: Callable[[], Sequence[str]] = lambda: (),
        plugins: PluginFacts | None = None,
        tool_servers: ToolServerFacts | None = None,
        provider: Callable[[], Sequence[str]] = lambda: (),
    ) -> None:
        """``provider``: what the model's provider has against us, a line each."""
        self._config = config
        self._model = model
        self._book = book
        self._triggers = triggers
        self._prefix_tokens = prefix_tokens
        self._image_tokens = image_tokens
        self._missing_native = missing_native
        self._plugins = plugins
        self._tool_servers = tool_servers
        self._provider = provider
        self._supervisor: Supervisor | None = None

    def watch(self, supervisor: Supervisor) -> None:
        """Whose platforms to report on."""
        self._supervisor = supervisor

    def window_tokens(self) -> int | None:
        """As `gateway.commands.contract.Status`."""
        return self._book.window.tokens

    def triggers(self) -> Triggers:
        """As `gateway.commands.contract.Status`: with the threshold of the engine that works."""
        known = self._triggers()
        if self._plugins is None:
            return known
        threshold = self._plugins.engine_threshold(known.window_tokens)
        return known if threshold is None else replace(known, threshold_tokens=threshold)

    def cache_ttl(self) -> CacheTtl | None:
        """As `gateway.commands.contract.Status`."""
        wanted = self._config().model
        if not cache_marks(self._model, wanted.base_url).on:
            return None
        return ttl_for(wanted.cache_ttl, for_person=True)

    def cache(self) -> str:
        """As `gateway.commands.contract.Status`."""
        model = self._config().model
        return cache_line(self._model, model.base_url, model.cache_ttl)

    def summary_model(self) -> str | None:
        """As `gateway.commands.contract.Status`."""
        return self._config().compression.summary_model

    def micro(self) -> MicroSettings | str:
        if not self._config().compression.enabled:
            return "compression.enabled is false"
        return micro_of(self._config())

    def image_tokens(self, model: str) -> int:
        """As `gateway.commands.contract.Status`."""
        return self._image_tokens(model)

    def platforms(self) -> Mapping[str, tuple[str, str]]:
        """As `gateway.commands.contract.Status`."""
        if self._supervisor is None:
            return {}
        return {n: (s.state.value, s.reason) for n, s in self._supervisor.status.items()}

    def memory(self) -> str:
        """As `gateway.commands.contract.Status.memory`."""
        return self._plugins.memory() if self._plugins is not None else ""

    def engine(self) -> str:
        """As `gateway.commands.contract.Status.engine`."""
        return self._plugins.engine() if self._plugins is not None else ""

    def remarks(self) -> list[str]:
        """As `gateway.commands.contract.Status.remarks`."""
        return [*self._provider(), *self._lasting_remarks()]

    def _lasting_remarks(self) -> list[str]:
        """Stand-ins, odd numbers, keys without effect."""
        lines = start_warnings(self.triggers(), self._prefix_tokens())
        lines += self._plugins.troubles() if self._plugins is not None else []
        lines += self._tool_servers.troubles() if self._tool_servers is not None else []
        lines += self._native_remarks() + self._retention_remarks()
        return [*lines, *self._budget_remarks(), *unavailable(self._config())]

    def _native_remarks(self) -> list[str]:
        """The provider's own context management, where it is asked for and can not be had."""
        wanted = self._config().compression.native
        needed = {"edits": "context edits", "compact": "compaction"}.get(wanted)
        if needed not in self._missing_native():
            return []
        return [f"compression.native is {wanted}, but the model's endpoint has no {needed}: {_OWN}"]

    def _retention_remarks(self) -> list[str]:
        """Deletion by age that leaves something behind says so."""
        if self._config().sessions.retention_days is None or self._plugins is None:
            return []
        return [
            f"sessions.retention_days does not reach {name}: it has no way to erase old "
            "conversations, so it keeps what it has of them (docs/forgetting.md)"
            for name in self._plugins.keep_what_is_old()
        ]

    def _budget_remarks(self) -> list[str]:
        """A budget that can not see what it should limit says so."""
        if self._config().budget.usd_per_user_day is None:
            return []
        model, summary = self._config().model, self._config().compression.summary_model
        asked = [self._model, *(model.fallback if self._model == model.name else [])]
        prices = price_table()
        blind = [
            name
            for name in dict.fromkeys([*asked, *([summary] if summary else [])])
            if name not in FREE_MODELS and prices.find(name) is None
        ]
        return [
            f"budget.usd_per_user_day does not limit {name}: its price is not known, so its "
            "requests count as nothing"
            for name in blind
        ]

    def details(self) -> dict[str, str]:
        """For ``posthouse status``."""
        triggers = self.triggers()
        window = self._book.window
        off = "" if self._config().compression.enabled else " (compression is off)"
        facts = {
            "model": self._model,
            "window": f"{window.tokens:,} tokens ({WINDOW_SOURCES[self._window_source()]})",
            "compression from": f"{triggers.effective_tokens:,} tokens, "
            f"{percent(triggers.effective_tokens, triggers.window_tokens)} of the window{off}",
            "prompt cache": self.cache(),
        }
        if self._plugins is not None:
            facts["plugins"] = self._plugins.summary()
            if engine := self.engine():
                facts["context engine"] = engine
            if memory := self.memory():
                facts["memory"] = memory
        if self._tool_servers is not None:
            facts["MCP servers"] = self._tool_servers.summary()
        remarks = self._lasting_remarks()  # of the provider, `Overview.status` tells
        return {**facts, "remarks": "\n".join(remarks)} if remarks else facts

    def _window_source(self) -> str:
        if self._model == "offline" and self._config().model.context_length is None:
            return "built-in"  # nobody configured it, whatever the book takes it for
        return self._book.window.source

    def say_at_start(self, policies: Mapping[str, PlatformPolicy]) -> None:
        """Into the log, once."""
        triggers = self.triggers()
        log.info(
            "model",
            extra={
                "model": self._model,
                "window_tokens": self._book.window.tokens,
                "window_source": self._window_source(),
                "context_engine": self.engine() or "built-in",
                "compression_from_tokens": triggers.effective_tokens,
                "hygiene_from_tokens": triggers.hygiene_tokens,
                "prompt_cache": self.cache(),
            },
        )
        if self._model == "offline":
            log.info(
                "no model provider is configured: the built-in offline model answers; "
                "`posthouse init` sets up a real one"
            )
        for line in self.remarks():
            log.warning(line)
        self.say_who_may_talk(policies)

    def say_who_may_talk(self, policies: Mapping[str, PlatformPolicy]) -> None:
        """Into the log: at the start, and whenever it changes."""
        for name, policy in policies.items():
            log.info("who may talk", extra={"platform": name, "who": in_words(policy)})
            for line in warnings_of(name, policy):
                log.warning(line)
