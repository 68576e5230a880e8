"""Owns what Discord's refusals mean for whoever wanted to send something (pure)."""

from __future__ import annotations

from gateway.platforms.contract import (
    ChatGone,
    EditRefused,
    SendFlood,
    SendRefused,
    SendUnavailable,
    SendUnknown,
)

CLOUDFLARE_SECONDS = 60.0
"""How long it is quiet after a refusal that does not say for how long."""
UNKNOWN_CHANNEL, UNKNOWN_MESSAGE = 10003, 10008
_TOO_LARGE, _INVALID_FORM = 40005, 50035
_GUARDS = {0, 40333}
"""What stands in front of Discord: a page without a code, or the network's own."""
_MISSING_RIGHT, _NO_REPLY_WITHOUT_HISTORY = 50013, 160002
_NOT_EDITABLE = {UNKNOWN_MESSAGE, 30046, 50005, 50083}
"""Gone · edited too often for its age · another bot's · in a thread that is archived."""


class Refusal(Exception):
    """An answer of 4xx, as it came."""

    def __init__(self, status: int, code: int, text: str) -> None:
        super().__init__(f"{status} (error code: {code}): {text}"[:300])
        self.status = status
        self.code = code
        self.text = text


class NoSuchReference(Exception):
    """The message to answer is gone; nothing was sent."""


class TooLarge(SendRefused):
    """The files are more than Discord takes at once."""


class MissingRight(ChatGone):
    """The bot may not do that there: if it were to send files, then perhaps only those."""


class Guarded(SendUnavailable):
    """It did not get past what stands in front of Discord: for now, or for what it says."""


class BadButtons(SendRefused):
    """It is the buttons that Discord does not take."""


def by_a_guard(status: int, code: int) -> bool:
    """Was it refused in front of Discord? That says nothing of the chat, and passes."""
    return status == 403 and code in _GUARDS


def send_error(status: int, code: int, text: str) -> Exception:
    """What it means for a message that was to be sent."""
    if code in (UNKNOWN_MESSAGE, _NO_REPLY_WITHOUT_HISTORY):
        return NoSuchReference(text)
    if code == _INVALID_FORM and "message_reference" in text.lower():
        return NoSuchReference(text)
    if code == _INVALID_FORM and ("components" in text.lower() or "custom_id" in text.lower()):
        return BadButtons(text)
    if status == 429:  # without the proof of coming from Discord itself
        return SendFlood(CLOUDFLARE_SECONDS)
    if status == 413 or code == _TOO_LARGE:
        return TooLarge(text)
    if by_a_guard(status, code):
        return Guarded(text)
    if status == 401:
        return SendUnavailable(text)
    if status >= 500 or status == 408:
        return SendUnknown(text)
    if code == _MISSING_RIGHT:
        return MissingRight(text)
    if status == 403 or code == UNKNOWN_CHANNEL:
        return ChatGone(text)
    return SendRefused(text)


def edit_error(status: int, code: int, text: str) -> Exception:
    """What it means for a message that was to be changed.

    Whatever stands in the way of the change, the words can still go out as a message of their own;
    if the whole chat is closed, that says so.
    """
    if code in _NOT_EDITABLE:
        return EditRefused(text)
    found = send_error(status, code, text)
    if isinstance(found, BadButtons | TooLarge) or code == UNKNOWN_CHANNEL:
        return found
    return EditRefused(text) if isinstance(found, SendRefused | NoSuchReference) else found
