"""Owns what people read of a plugin's command that gave no answer of its own."""

from __future__ import annotations

DONE = "Done."
CUT = "\n\n[the rest is too long to be shown]"


def failed(name: str) -> str:
    """It raised."""
    return f"/{name} did not work: the plugin behind it failed. The log on the server says why."


def took_too_long(name: str, seconds: float) -> str:
    """It was left behind."""
    return (
        f"/{name} has not answered for {seconds:.0f} seconds, so I stopped waiting. It may still "
        "be at work; please look again later."
    )


def hangs(name: str) -> str:
    """It is not even tried."""
    return (
        f"/{name} hangs: earlier calls of it have not come back, so I do not start another one. "
        "A restart helps."
    )
