"""Owns the manager of plugins as they reach for it (`hermes_cli.plugins`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from plugins.hermes_compat import host

__all__ = ["PluginContext", "PluginManager", "get_plugin_manager"]


@runtime_checkable
class PluginContext(Protocol):
    """The ``ctx`` of `register`: for annotations and `isinstance`."""

    def register_context_engine(self, engine: Any) -> None:
        """Offer a context engine."""

    def register_command(self, name: str, handler: Any) -> None:
        """Offer a command."""

    def register_hook(self, hook_name: str, callback: Callable[..., Any]) -> None:
        """Be called at a point of each turn."""


class PluginManager:
    """What stands in where no daemon runs: it keeps hooks and calls none."""

    def __init__(self) -> None:
        self._hooks: dict[str, list[Callable[..., Any]]] = {}

    @property
    def hooks(self) -> dict[str, list[Callable[..., Any]]]:
        """Callbacks by the name of their hook."""
        return self._hooks


_standing_in = PluginManager()


def get_plugin_manager() -> Any:
    """The manager of this process. Its ``_hooks`` is a dict of lists, and the live one."""
    manager = host.current().manager
    return _standing_in if manager is None else manager
