"""Owns micro-compaction in a replay: the digest so far, and the next one that is paid for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.compaction.micro.condensing import MAX_INPUT_TOKENS, MAX_OUTPUT_TOKENS, TARGET_SHARE
from agent.compaction.micro.window import MIN_MESSAGES, find_cursor, find_exchange, find_window
from agent.messages import Row
from agent.model_metadata import MESSAGE_TOKENS
from agent.simulation.outcome import Bill
from agent.simulation.script import made_row, own_message
from agent.simulation.settings import Assumptions, Setting
from agent.simulation.squeezing import cut_rules

_FRAME_TOKENS = MESSAGE_TOKENS + 45
_ASKED_TOKENS = 500
"""What a call for a digest says beside the conversation."""
_MARKER = own_message("micro", "assistant")


@dataclass(frozen=True, slots=True)
class Spliced:
    """A list after a pass."""

    rows: list[Row]
    changed_from: int
    gained_tokens: int


@dataclass(slots=True)
class _Bought:
    """A digest that is paid for: it is stored once nobody is at work."""

    exchange: range
    """What it takes in; empty: it is the one so far, shortened."""
    body_tokens: int
    ready_at: float


class Digests:
    """The rolling digest of one conversation."""

    def __init__(self, setting: Setting, assumed: Assumptions, bill: Bill) -> None:
        self._setting = setting
        self._assumed = assumed
        self._bill = bill
        self._tokens = 0
        """Of the digest that is in the list."""
        self._bought: _Bought | None = None

    def list_changed(self, rows: Sequence[Row]) -> None:
        """Something else made another list: what was bought is for the one before."""
        self._bought = None
        if not any(row.kind == "micro" for row in rows):
            self._tokens = 0

    def pass_over(
        self,
        rows: Sequence[Row],
        now: float,
        *,
        decayed: bool,
        row_id: int,
        rests_until: Callable[[float], bool],
    ) -> Spliced | None:
        """One exchange goes into the digest, or a digest that is too long becomes shorter.

        Nobody waits for it: what is not ready before somebody speaks is stored after a later turn.

        Args:
            rows: The list after a finished turn.
            now: Seconds.
            decayed: There was a batch compression: the head is not protected any more.
            row_id: Of the new marker.
            rests_until: Does nobody say anything before that moment?
        """
        if len(rows) < MIN_MESSAGES:
            return None
        window = find_window(rows, cut_rules(self._setting, decayed=decayed))
        exchange = find_exchange(rows, find_cursor(rows), window)
        if exchange is None:
            return None
        if self._tokens >= self._setting.micro.defrag_threshold_tokens:
            newest = max(i for i, row in enumerate(rows) if row.kind == "micro")
            exchange = range(newest, newest)
        if self._bought is None or self._bought.exchange != exchange:
            self._bought = self._buy(rows, exchange, now)
        bought = self._bought
        if bought.ready_at > now and not rests_until(bought.ready_at):
            return None
        self._tokens, self._bought = bought.body_tokens, None
        return _splice(rows, bought, row_id)

    def _buy(self, rows: Sequence[Row], exchange: range, now: float) -> _Bought:
        limit = min(MAX_OUTPUT_TOKENS, self._setting.triggers.summary_ceiling_tokens)
        if exchange:
            tokens = sum(rows[i].tokens for i in exchange)
            asked = rows[exchange.start - 1].tokens if exchange.start else 0
            body = self._tokens + max(40, int(self._assumed.digest_share * tokens))
            material = min(MAX_INPUT_TOKENS, asked + tokens)
        else:
            limit = min(limit, max(64, self._setting.micro.defrag_threshold_tokens))
            body, material = self._tokens // 2, 0
        body = max(1, min(body, int(limit * TARGET_SHARE)))
        read = _ASKED_TOKENS + self._tokens + material
        self._bill.side_input += read
        self._bill.side_output += body
        return _Bought(exchange, body, now + self._assumed.seconds(read, body))


def _splice(rows: Sequence[Row], bought: _Bought, row_id: int) -> Spliced:
    """The marker in the place of the exchange; the marker that it grew from goes."""
    exchange = bought.exchange
    marker = made_row(row_id, _MARKER, _FRAME_TOKENS + bought.body_tokens, kind="micro")
    older = [i for i, row in enumerate(rows) if row.kind == "micro"]
    gone = sum(rows[i].tokens for i in {*older, *exchange})
    parts = rows[: exchange.start], [marker], rows[exchange.stop :]
    return Spliced(
        [row for part in parts for row in part if row is marker or row.kind != "micro"],
        min([*older[:1], exchange.start]),
        gone - marker.tokens,
    )
