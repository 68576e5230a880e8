"""Owns which of the keywords that are offered a plugin's function takes, by its signature.

Older plugins lack newer arguments. Asking the signature, and not calling twice, keeps a
``TypeError`` from inside a plugin what it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any


def accepted(call: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Those keywords that it takes; all of them if it takes any, or can not be asked."""
    names = names_taken(call)
    return dict(offered) if names is None else {k: v for k, v in offered.items() if k in names}


def names_taken(call: Callable[..., Any]) -> frozenset[str] | None:
    """Its parameters that can be given by name; None: any."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(
        p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    )
