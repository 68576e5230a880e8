"""The fake platform keeps the contract that it stands for."""

from __future__ import annotations

import pytest

from agent.mail import Address, PartDraft
from gateway.delivery.splitting import utf16_len
from gateway.platforms.contract import SendError, SendFlood
from tests.contract.platform_suite import PlatformSuite
from tests.fakes.platform import FakePlatform


class _House:
    def __init__(self, *, dedupes: bool) -> None:
        self.platform = FakePlatform(dedupes_sends=dedupes)
        self.address = Address("fake", "900", "111")

    def fits(self, part: PartDraft) -> bool:
        text = part.payload["text"]
        return bool(text.strip()) and utf16_len(text) <= self.platform.limit

    def shown(self) -> list[str]:
        return self.platform.texts()

    def fail(self, kind: type[SendError], *, delivered: bool = False) -> None:
        error = SendFlood(3) if kind is SendFlood else kind("as told")
        self.platform.fail(error, delivered=delivered)


class TestFakePlatform(PlatformSuite):
    @pytest.fixture(params=[True, False], ids=["dedupes", "marks"])
    def house(self, request: pytest.FixtureRequest) -> _House:
        return _House(dedupes=request.param)
