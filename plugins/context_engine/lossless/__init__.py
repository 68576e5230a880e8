"""Owns how the lossless context engine is registered (`context.engine: lossless`)."""

from __future__ import annotations

from typing import Any

from plugins.context_engine.lossless.engine import LosslessEngine
from plugins.context_engine.lossless.options import options_from

__all__ = ["LosslessEngine", "register"]


def register(ctx: Any) -> None:
    """Offer the engine; a file that it can not use is said here, at the start.

    Raises:
        LosslessError: The file is broken, of a newer version, or nobody's that we know.
        ValueError: A setting is wrong.
    """
    engine = LosslessEngine(options_from(ctx.get_config))
    engine.check_file()
    ctx.register_context_engine(engine)
