"""Owns single values in the objects of an export: what each has to be. Pure."""

# ruff: noqa: D103 - a function gives the field of this name as what its own name says
from __future__ import annotations

import re
from typing import Any, NoReturn, TypeGuard

from agent.exchange.records import LATEST_TIME
from agent.sessions import is_session_key

_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MAX_NUMBER = 2**53


class BrokenObject(ValueError):
    """It is not as it was written; says what is wrong with it."""


def id_in(value: dict[str, Any], name: str) -> str:
    found = value.get(name)
    if not isinstance(found, str) or _ID.fullmatch(found) is None:
        refuse(f"belongs to something whose {name} is no id of ours")
    return found


def session_key_in(value: dict[str, Any]) -> str:
    found = text_in(value, "session_key")
    if not is_session_key(found):
        refuse("follows a conversation whose session_key is none of ours")
    return found


def text_in(value: dict[str, Any], name: str) -> str:
    found = value.get(name)
    if not isinstance(found, str):
        refuse(f"needs the text {name}")
    return found


def optional_text_in(value: dict[str, Any], name: str) -> str | None:
    return None if value.get(name) is None else text_in(value, name)


def map_in(value: dict[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    if not isinstance(found, dict):
        refuse(f"needs the object {name}")
    return found


def count_in(value: dict[str, Any], name: str) -> int:
    found = value.get(name)
    if not is_count(found):
        refuse(f"needs the whole number {name}")
    return found


def time_in(value: dict[str, Any], name: str) -> float:
    found = value.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float):
        refuse(f"needs the time {name}")
    if not 0 <= found < LATEST_TIME:
        refuse(f"has a {name} that is no time")
    return float(found)


def refuse(what: str) -> NoReturn:
    raise BrokenObject(what)


def is_part(value: object) -> bool:
    """Does it say what it is? What that holds is looked at where it is used."""
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_NUMBER
