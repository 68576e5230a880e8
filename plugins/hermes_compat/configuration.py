"""Owns reading and writing the copy of the configuration that plugins see."""

from __future__ import annotations

import copy
import logging
import os
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plugins.hermes_compat.host import config_file

log = logging.getLogger(__name__)

_lock = threading.RLock()
_last: tuple[tuple[str, int, int, int], dict[str, Any]] | None = None
"""(which file it was, what stood in it): some plugins read it with each call."""


def read() -> dict[str, Any]:
    """All of it, a dict of the caller's own; ``{}`` where there is none that can be read."""
    global _last
    # Suites run without our dependencies: there is no configuration to be read there either.
    try:
        import yaml  # noqa: PLC0415
    except ImportError:
        return {}
    file = config_file()
    try:
        with _lock:
            facts = file.stat()
            which = (str(file), facts.st_ino, facts.st_mtime_ns, facts.st_size)
            if _last is None or _last[0] != which:
                found = yaml.safe_load(file.read_text(encoding="utf-8-sig"))
                _last = which, found if isinstance(found, dict) else {}
            return copy.deepcopy(_last[1])
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as exc:
        log.warning("the plugins' copy of the configuration can not be read: %s", exc)
        return {}


def write(configuration: Mapping[str, Any]) -> None:
    """Replace it.

    Raises:
        OSError: it can not be written.
        ImportError: PyYAML is not there (in a plugin's own test suite).
    """
    import yaml  # noqa: PLC0415

    text = yaml.safe_dump(dict(configuration), sort_keys=False, allow_unicode=True)
    with _lock:
        replace_file(config_file(), text)


def replace_file(file: Path, text: str, mode: int = 0o600) -> None:
    """Write a file so that whoever reads it finds the old text or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, mode)
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
