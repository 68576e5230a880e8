"""Owns which providers are named beside the one of the model: none.

(`hermes_cli.runtime_provider`)
"""

from __future__ import annotations

from typing import Any

__all__: list[str] = []


def _get_named_custom_provider(requested_provider: str) -> dict[str, Any] | None:
    """None: one provider is configured, under ``model``."""
    return None
