"""Owns the strict reading of Telegram's numbers: what is none is refused (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LARGEST_NUMBER = 2**53
_LONGEST_DIGITS = 100
_GENERAL_TOPIC = 1
"""Its messages name no topic, and nothing can be sent to it by this number."""
_LATEST_DATE = 253_402_300_799  # the end of the year 9999


def json_integer(digits: str) -> int | float:
    """For the JSON reader: one absurd number is no reason not to read the rest.

    Python itself would give up on it.
    """
    return int(digits) if len(digits) <= _LONGEST_DIGITS else float(digits)


def identifier(value: object) -> str:
    """The id of a user, a chat or a message.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > LARGEST_NUMBER:
        raise TypeError("an id that is no number of Telegram's")
    return str(value)


def date(value: object) -> float:
    """Unix seconds by Telegram's clock; whether it can be true is not ours to say.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LATEST_DATE:
        raise TypeError("a date that is none")
    return float(value)


def thread(message: Mapping[str, Any], *, direct: bool) -> str | None:
    """The topic; a chain of answers in a group without topics has such a number too.

    Raises:
        TypeError: it is no number.
    """
    number = message.get("message_thread_id")
    if number is None or not message.get("is_topic_message"):
        return None
    if number == _GENERAL_TOPIC and not direct:
        return None
    return identifier(number)
