"""Owns what is being worked on: ids that stand on every line which is logged meanwhile."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

_WORK: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar(
    "work", default=MappingProxyType({})
)


@contextmanager
def about(**ids: str) -> Iterator[None]:
    """Put these ids on every line that is logged inside, in tasks that start there as well."""
    token = _WORK.set({**_WORK.get(), **ids})
    try:
        yield
    finally:
        _WORK.reset(token)


def work_at_hand() -> Mapping[str, str]:
    """The ids of here and now."""
    return _WORK.get()
