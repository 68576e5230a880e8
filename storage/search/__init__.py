"""Search over what was said: a question's terms, candidates, their order, and the index itself."""

from storage.search.index import maintain, rebuild
from storage.search.lookup import search
from storage.search.reading import (
    active_rows,
    all_rows,
    conversation_of_message,
    in_scope,
    result_of_call,
    window,
)

__all__ = [
    "active_rows",
    "all_rows",
    "conversation_of_message",
    "in_scope",
    "maintain",
    "rebuild",
    "result_of_call",
    "search",
    "window",
]
