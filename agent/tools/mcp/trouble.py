"""Owns what is known of the end of a connection: that it is over, and the first reason for it."""

from __future__ import annotations

import asyncio


class Trouble:
    """Of one connection."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.reason = ""
        self.http_status: int | None = None
        """The last answer that was an error."""

    def note(self, reason: str) -> None:
        """It is over; the first reason stays."""
        self.reason = self.reason or reason
        self.lost.set()

    def in_words(self, otherwise: str) -> str:
        """Why."""
        if self.reason:
            return self.reason
        if self.http_status is not None:
            return f"it answers with HTTP {self.http_status}"
        return otherwise
