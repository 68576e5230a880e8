"""The queue of updates: ids, confirmation by offset, long polls and who may poll."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from tests.fakes.telegram_server.wire import ApiError, Json, words

KEPT_CONFIRMED = 10_000
DAY = 86_400
# Only delivered when asked for by name.
_ASKED_FOR = frozenset({"chat_member", "message_reaction", "message_reaction_count"})
KINDS = words(
    "message edited_message channel_post edited_channel_post business_connection "
    "business_message edited_business_message deleted_business_messages message_reaction "
    "message_reaction_count inline_query chosen_inline_result callback_query shipping_query "
    "pre_checkout_query purchased_paid_media poll poll_answer my_chat_member chat_member "
    "chat_join_request chat_boost removed_chat_boost"
)


def conflict(text: str) -> ApiError:
    """A 409 with the platform's prefix."""
    return ApiError(409, f"Conflict: {text}")


@dataclass
class _Pending:
    update: Json
    created: float


class UpdateQueue:
    """Updates wait here until a later offset confirms them; no client state is kept."""

    def __init__(self, first_id: int, clock: Callable[[], float]) -> None:
        self.next_id = first_id
        self.clock = clock
        self.allowed: frozenset[str] | None = None
        self.delivered = 0
        self.confirmed_count = 0
        self.on_push: Callable[[], None] | None = None
        self._pending: dict[int, _Pending] = {}
        self._confirmed: dict[int, Json] = {}
        self._again: list[Json] = []
        self._waiter: asyncio.Future[ApiError | None] | None = None

    # --- coming in

    def wanted(self, kind: str) -> bool:
        """Would an update of this kind be kept? The filter acts when the update is made."""
        if self.allowed is not None:
            return kind in self.allowed
        return kind not in _ASKED_FOR

    def push(self, body: Json, *, force: bool = False) -> Json:
        """Give a body an id and queue it; what the bot did not ask for is only returned."""
        kind = next((key for key in body if key != "update_id"), "")
        update = dict(body) if "update_id" in body else {"update_id": self.next_id, **body}
        if not force and kind in KINDS and not self.wanted(kind):
            return update
        # Raw updates may bring an id of their own, even a strange one.
        number = update["update_id"]
        if not isinstance(number, int):
            raise ValueError("an update without a number could never be confirmed")
        self.next_id = max(self.next_id, number + 1)
        self._pending[number] = _Pending(update, self.clock())
        self._wake()
        return update

    def redeliver(self, update_id: int) -> Json:
        """Deliver an update once more, whatever offset the client is at by now."""
        update = self._confirmed.get(update_id)
        if update is None:
            update = self._pending[update_id].update
        self._again.append(update)
        self._wake()
        return update

    def renumber(self, next_id: int) -> None:
        """Go on with another number, as after a week without updates."""
        self.next_id = next_id

    def drop_pending(self) -> None:
        """Forget what was never fetched."""
        self._pending.clear()
        self._again.clear()

    # --- going out

    @property
    def pending(self) -> list[Json]:
        """Updates no offset has confirmed yet."""
        return [item.update for item in self._pending.values()]

    @property
    def polling(self) -> bool:
        """Is a long poll waiting right now?"""
        return self._waiter is not None

    def interrupt(self, error: ApiError | None) -> None:
        """End the waiting poll, with an error or with what there is."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(error)

    async def poll(self, offset: int, limit: int, timeout: float) -> list[Json]:
        """One getUpdates; an older one that still waits loses its place."""
        self.interrupt(
            conflict(
                "terminated by other getUpdates request; "
                "make sure that only one bot instance is running"
            )
        )
        offset = self._confirm(offset)
        ready = self._take(offset, limit)
        if not ready and timeout > 0:
            await self._wait(timeout)
            ready = self._take(offset, limit)
        self.delivered += len(ready)
        return ready

    async def _wait(self, timeout: float) -> None:
        waiter: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()
        self._waiter = waiter
        error: ApiError | None = None
        try:
            async with asyncio.timeout(timeout):
                error = await waiter
        except TimeoutError:
            return
        finally:
            if self._waiter is waiter:
                self._waiter = None
        if error is not None:
            raise error

    def _confirm(self, offset: int) -> int:
        """Forget what the offset confirms; returns the offset that counts for this poll."""
        self._expire()
        if offset < 0:
            keep = sorted(self._pending)[offset:]
            offset = keep[0] if keep else 0
        elif offset > self.next_id:
            # Numbers began anew since the client was here: its offset means nothing.
            return 0
        for update_id in [number for number in self._pending if number < offset]:
            self.confirm(update_id)
        return offset

    def confirm(self, update_id: int) -> None:
        """This update is done with; kept for a while so that it can be sent again."""
        done = self._pending.pop(update_id, None)
        if done is None:
            return
        self._confirmed[update_id] = done.update
        self.confirmed_count += 1
        if len(self._confirmed) > KEPT_CONFIRMED:
            self._confirmed.pop(next(iter(self._confirmed)))

    def _expire(self) -> None:
        horizon = self.clock() - DAY
        for number in [n for n, item in self._pending.items() if item.created < horizon]:
            del self._pending[number]

    def _take(self, offset: int, limit: int) -> list[Json]:
        ready = self.take_again(limit)
        numbers = sorted(number for number in self._pending if number >= offset)
        ready += [self._pending[number].update for number in numbers[: limit - len(ready)]]
        return ready

    def take_again(self, limit: int = 100) -> list[Json]:
        """The updates to be delivered a second time; they are handed out once."""
        ready = self._again[:limit]
        del self._again[:limit]
        return ready

    def _wake(self) -> None:
        self.interrupt(None)
        if self.on_push is not None:
            self.on_push()
