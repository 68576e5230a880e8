"""Owns the configuration as plugins read and write it: a copy (`hermes_cli.config`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plugins.hermes_compat import configuration, host

__all__ = [
    "cfg_get",
    "get_config_path",
    "get_hermes_home",
    "load_config",
    "load_config_readonly",
    "save_config",
]


def get_hermes_home() -> Path:
    """As `hermes_constants.get_hermes_home`."""
    return host.hermes_home()


def get_config_path() -> Path:
    """Where the copy lies."""
    return host.config_file()


def load_config() -> dict[str, Any]:
    """The operator's settings without secrets, a fresh dict."""
    return configuration.read()


def load_config_readonly() -> dict[str, Any]:
    """As `load_config`."""
    return configuration.read()


def save_config(config: Mapping[str, Any], *_: Any, **__: Any) -> None:
    """Write the copy; the operator's file is never written, and the next start copies it anew."""
    configuration.write(config)


def cfg_get(cfg: Any, *keys: str, default: Any = None) -> Any:
    """What stands at a path of keys; ``default`` where the path leads nowhere."""
    for key in keys:
        if not isinstance(cfg, dict) or key not in cfg:
            return default
        cfg = cfg[key]
    return cfg
