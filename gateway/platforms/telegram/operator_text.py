"""Owns what an operator reads of Telegram's updates when they do not come, with the next step."""

from __future__ import annotations

SECOND_POLLER = (
    "another program polls with this bot's token; end it, or give one of the two its own bot"
)
WEBHOOK_ELSEWHERE = (
    "another address was set for this bot's updates, or none; set again (if this comes back, "
    "another program uses this bot's token)"
)
WEBHOOK_REMOVED = (
    "a webhook was set for this bot and stood in the way of polling; removed (if it comes back, "
    "another program uses this bot's token)"
)


def webhook_failing(pending: int, error: str) -> str:
    """Updates wait at Telegram and do not arrive here."""
    waiting = "an update waits" if pending == 1 else f"{pending:,} updates wait"
    said = f" (it says: {error})" if error else ""
    return (
        f"{waiting} at Telegram and can not be delivered{said}; check telegram.webhook.url, the "
        "reverse proxy and its certificate"
    )
