"""Owns small helpers that plugins import from their host (`utils`)."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from plugins.hermes_compat.configuration import replace_file

__all__ = ["atomic_json_write", "env_var_enabled", "is_truthy_value"]

_TRUE = {"1", "true", "yes", "on"}


def atomic_json_write(
    path: str | Path, data: Any, *, indent: int = 2, mode: int | None = None, **dump_kwargs: Any
) -> None:
    """Write JSON so that whoever reads the file finds the old text or the new one.

    Args:
        path: Where to; its folder is made.
        data: What.
        indent: Of the text.
        mode: Permissions; None: those it has, else for the owner only.
        dump_kwargs: For `json.dumps`.
    """
    file = Path(os.path.realpath(path))  # a link stays a link
    options = {"ensure_ascii": False, "indent": indent, **dump_kwargs}
    text = json.dumps(data, **options)
    if mode is None:
        mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else 0o600
    replace_file(file, text, mode)


def is_truthy_value(value: Any, default: bool = False) -> bool:
    """Does a setting mean yes? Texts do by ``1``, ``true``, ``yes`` and ``on``."""
    if value is None:
        return default
    return value.strip().lower() in _TRUE if isinstance(value, str) else bool(value)


def env_var_enabled(name: str, default: str = "") -> bool:
    """Does an environment variable mean yes?"""
    return is_truthy_value(os.environ.get(name, default))
