"""Search over what was said: a question's terms, candidates, their order, and the index itself."""

from storage.search.index import Kept, maintain, rebuild
from storage.search.keeper import IndexKeeper
from storage.search.lookup import search, search_and_tell
from storage.search.reading import (
    active_rows,
    all_rows,
    conversation_of_message,
    in_scope,
    result_of_call,
    window,
)

__all__ = [
    "IndexKeeper",
    "Kept",
    "active_rows",
    "all_rows",
    "conversation_of_message",
    "in_scope",
    "maintain",
    "rebuild",
    "result_of_call",
    "search",
    "search_and_tell",
    "window",
]
