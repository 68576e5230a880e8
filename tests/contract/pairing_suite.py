"""Owns the contract of `agent.pairings.Pairings`; a subclass gives the ``store`` fixture."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace
from typing import Any

from agent import pairings
from agent.pairings import PairingRequest, digest_of, is_valid, locked_until
from agent.store_ports import Store
from tests.fakes.clock import FakeClock


def request_of(clock: FakeClock, code: str, user: str = "222", **changes: Any) -> PairingRequest:
    salt = f"salt of {user}".encode()
    made = PairingRequest(
        "telegram",
        user,
        "Eve",
        salt,
        digest_of(salt, code),
        asked_at=clock.now(),
        expires_at=clock.now() + pairings.VALID_SECONDS,
    )
    return replace(made, **changes)


class PairingContract:
    async def test_a_right_code_lets_its_user_in_once(self, store: Store, clock: FakeClock) -> None:
        asked = request_of(clock, "ABCDEFGH", shown_name="Eve \ud83d 墨水 🎉")
        assert await store.ask_pairing(asked)
        (kept,) = (await store.pairings()).requests
        assert kept == replace(asked, shown_name=kept.shown_name)
        kept.shown_name.encode()
        clock.jump(60)
        # as people type: small letters, spaces, dashes
        approval = await store.approve_pairing(" abcd-efgh ")
        assert (approval.outcome, approval.locked_until) == ("approved", None)
        assert approval.person is not None
        assert (approval.person.user_id, approval.person.approved_at) == ("222", clock.now())
        book = await store.pairings()
        assert (book.requests, book.paired) == ((), (approval.person,))
        assert (await store.approve_pairing("ABCDEFGH")).outcome == "wrong"

    async def test_nothing_of_a_code_is_kept_but_its_hash(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.ask_pairing(request_of(clock, "ABCDEFGH"))
        (kept,) = (await store.pairings()).requests
        for field in fields(kept):
            assert "ABCDEFGH" not in str(getattr(kept, field.name))
        assert len(kept.digest) == 32

    async def test_a_code_counts_for_an_hour(self, store: Store, clock: FakeClock) -> None:
        await store.ask_pairing(request_of(clock, "ABCDEFGH"))
        clock.jump(pairings.VALID_SECONDS - 1)
        assert is_valid((await store.pairings()).requests[0], clock.now())
        clock.jump(1)
        assert (await store.approve_pairing("ABCDEFGH")).outcome == "wrong"
        # what has expired makes room, and goes
        for n in range(3):
            assert await store.ask_pairing(request_of(clock, "ABCDEFGH", f"30{n}"))
        assert {r.user_id for r in (await store.pairings()).requests} == {"300", "301", "302"}

    async def test_a_clock_that_was_set_back_ends_a_code_early(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.ask_pairing(request_of(clock, "ABCDEFGH"))
        clock.jump(-86_400)
        assert (await store.approve_pairing("ABCDEFGH")).outcome == "wrong"
        assert await store.ask_pairing(request_of(clock, "HGFEDCBA"))
        clock.jump(86_400 * 400)
        assert (await store.approve_pairing("HGFEDCBA")).outcome == "wrong"
        assert await store.ask_pairing(request_of(clock, "ABCDEFGH"))

    async def test_three_may_wait_on_each_platform(self, store: Store, clock: FakeClock) -> None:
        for n in range(3):
            assert await store.ask_pairing(request_of(clock, "ABCDEFGH", f"20{n}"))
        assert not await store.ask_pairing(request_of(clock, "ABCDEFGH", "203"))
        there = request_of(clock, "ABCDEFGH", "200", platform="discord")
        assert await store.ask_pairing(there)
        # somebody of the three may have a new code all the same, in the place of the old one
        clock.jump(pairings.ASK_AGAIN_SECONDS)
        assert await store.ask_pairing(request_of(clock, "NEWCODEX", "201"))
        assert len((await store.pairings()).requests) == 4
        assert await store.revoke_pairing("telegram", "200")
        assert await store.ask_pairing(request_of(clock, "ABCDEFGH", "203"))

    async def test_one_code_for_each_in_ten_minutes(self, store: Store, clock: FakeClock) -> None:
        assert await store.ask_pairing(request_of(clock, "FIRSTONE"))
        assert not await store.ask_pairing(request_of(clock, "SECONDXX"))
        clock.jump(pairings.ASK_AGAIN_SECONDS - 1)
        assert not await store.ask_pairing(request_of(clock, "SECONDXX"))
        clock.jump(1)
        assert await store.ask_pairing(request_of(clock, "SECONDXX"))
        assert (await store.approve_pairing("FIRSTONE")).outcome == "wrong"
        assert (await store.approve_pairing("SECONDXX")).outcome == "approved"

    async def test_five_wrong_codes_lock_for_an_hour(self, store: Store, clock: FakeClock) -> None:
        await store.ask_pairing(request_of(clock, "ABCDEFGH"))
        for wrong in ("", "ABCDEFG", "x" * 100_000, "\ud83d\0'--", "ABCDEFGJ"):
            approval = await store.approve_pairing(wrong)
            assert approval.outcome == "wrong"
            clock.jump(60)
        assert approval.locked_until is not None
        for _ in range(3):  # tries while it is locked do not make it longer
            refused = await store.approve_pairing("ABCDEFGH")
            assert (refused.outcome, refused.person) == ("locked", None)
            assert refused.locked_until == approval.locked_until
        book = await store.pairings()
        assert locked_until(book.failures, clock.now()) == approval.locked_until
        clock.jump(approval.locked_until - clock.now())
        await store.ask_pairing(request_of(clock, "ABCDEFGH", "333"))
        assert (await store.approve_pairing("ABCDEFGH")).outcome == "approved"

    async def test_wrong_codes_of_long_ago_do_not_count(
        self, store: Store, clock: FakeClock
    ) -> None:
        for _ in range(20):
            approval = await store.approve_pairing("WRONGONE")
            assert (approval.outcome, approval.locked_until) == ("wrong", None)
            clock.jump(pairings.LOCK_SECONDS / 4)
        assert len((await store.pairings()).failures) <= 5

    async def test_a_right_code_begins_the_count_anew(self, store: Store, clock: FakeClock) -> None:
        for n in range(3):
            for _ in range(4):
                assert (await store.approve_pairing("WRONGONE")).outcome == "wrong"
            await store.ask_pairing(request_of(clock, "ABCDEFGH", f"20{n}"))
            assert (await store.approve_pairing("ABCDEFGH")).outcome == "approved"
        assert (await store.pairings()).failures == ()

    async def test_a_lock_does_not_outlive_a_clock_that_was_set_back(
        self, store: Store, clock: FakeClock
    ) -> None:
        for _ in range(5):
            await store.approve_pairing("WRONGONE")
        clock.jump(-86_400 * 3)
        await store.ask_pairing(request_of(clock, "ABCDEFGH"))
        assert (await store.approve_pairing("ABCDEFGH")).outcome == "approved"

    async def test_what_was_approved_is_taken_back(self, store: Store, clock: FakeClock) -> None:
        await store.ask_pairing(request_of(clock, "ABCDEFGH"))
        await store.approve_pairing("ABCDEFGH")
        assert not await store.revoke_pairing("discord", "222")
        assert await store.revoke_pairing("telegram", "222")
        assert not await store.revoke_pairing("telegram", "222")
        assert (await store.pairings()).paired == ()

    async def test_a_request_is_taken_back(self, store: Store, clock: FakeClock) -> None:
        await store.ask_pairing(request_of(clock, "ABCDEFGH"))
        assert await store.revoke_pairing("telegram", "222")
        assert (await store.approve_pairing("ABCDEFGH")).outcome == "wrong"

    async def test_many_at_once_are_as_one_after_the_other(
        self, store: Store, clock: FakeClock
    ) -> None:
        asked = [request_of(clock, f"CODE{n:04}", str(500 + n)) for n in range(20)]
        taken = await asyncio.gather(*map(store.ask_pairing, asked))
        assert sum(taken) == 3
        code = f"CODE{taken.index(True):04}"
        found = await asyncio.gather(*(store.approve_pairing(code) for _ in range(4)))
        assert [a.outcome for a in found].count("approved") == 1
        assert len((await store.pairings()).paired) == 1
