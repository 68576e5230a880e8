"""Owns what every platform promises: a suite to be run over each one.

A class that derives from `PlatformSuite` gives a `house` fixture: the platform with a far end that
can be told what to do.
"""

from __future__ import annotations

from typing import Any, Protocol

import pytest

from agent.mail import Address, Button, OutboxDraft, OutboxPart, PartDraft
from gateway.platforms.contract import (
    Platform,
    SendError,
    SendFlood,
    SendRefused,
    SendUnavailable,
    SendUnknown,
)

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
TEXTS = [
    "hello",
    "",
    "  \n\t ",
    "a" * 4096,
    "a" * 4097,
    "word " * 5000,
    "\U0001f600" * 5000,
    FAMILY * 2000,
    "漢字。" * 3000,
    "```python\n" + "print('x')\n" * 900 + "```",
    "```" + "i" * 2000 + "\ncode\n```",
    "~~~\nunclosed\n" + "x\n" * 3000,
    "see http://h/a_b_c and x_y *open",
    "<script>alert(1)</script>",
    "<details>x</details>",
    "**bold " * 1500,
    "[link](javascript:alert(1)) [ok](https://example.invalid/a_(b))",
    "| a | b |\n|---|---|\n| 1 | 2 |\n" * 200,
    "- item\n  - nested\n    ```\n    code\n    ```\n" * 200,
    "\ud83d half a pair \udc00",
    "nul \x00 and \u2028 and \u202e",
    "\n" * 9000 + "x",
]


class FarEnd(Protocol):
    """The other side of a platform, as a test needs it."""

    @property
    def platform(self) -> Platform:
        """Connected and able to send."""
        ...

    @property
    def address(self) -> Address:
        """A chat that exists."""
        ...

    def fits(self, part: PartDraft) -> bool:
        """Is this part within the limits of the platform, and not blank?"""
        ...

    def shown(self) -> list[str]:
        """The texts of the chat, oldest first."""
        ...

    def fail(self, kind: type[SendError], *, delivered: bool = False) -> None:
        """The next send goes wrong so that this error is right; ``delivered``: it shows up."""
        ...


def said(text: str) -> OutboxDraft:
    """An answer that is nothing but text."""
    return OutboxDraft(Address("any", "any", "1"), text)


class PlatformSuite:
    """Derive, and give a ``house`` fixture."""

    @pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
    async def test_parts_are_never_blank_and_fit(self, house: FarEnd, text: str) -> None:
        parts = house.platform.render(said(text))
        assert parts
        assert all(house.fits(part) for part in parts)
        assert house.platform.render(said(text)) == parts

    @pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
    async def test_payloads_survive_the_store(self, house: FarEnd, text: str) -> None:
        import json

        for part in house.platform.render(said(text)):
            assert json.loads(json.dumps(part.payload)) == part.payload

    async def test_a_part_is_shown_and_has_an_id(self, house: FarEnd) -> None:
        first = await self._send(house, 1, "one")
        second = await self._send(house, 2, "two")
        assert first
        assert second
        assert first != second
        assert [t for t in house.shown() if t in ("one", "two")] == ["one", "two"]

    async def test_taking_buttons_leaves_the_words(self, house: FarEnd) -> None:
        draft = OutboxDraft(house.address, "which?", buttons=(Button("One", "/resume 1"),))
        [planned] = house.platform.render(draft)
        part = OutboxPart(1, 1, 0, "planned", planned.payload)
        message_id = await house.platform.send(house.address, part)
        for _ in range(2):
            await house.platform.take_buttons(house.address, message_id)
        assert "which?" in house.shown()[-1]

    @pytest.mark.parametrize(
        "kind", [SendUnavailable, SendFlood, SendRefused, SendUnknown], ids=lambda k: k.__name__
    )
    async def test_failures_have_their_class(self, house: FarEnd, kind: type[SendError]) -> None:
        house.fail(kind)
        with pytest.raises(SendError) as caught:
            await self._send(house, 1, "one")
        assert isinstance(caught.value, kind)
        if isinstance(caught.value, SendFlood):
            assert caught.value.retry_after_seconds > 0
        await self._send(house, 2, "two")
        assert "two" in house.shown()[-1]

    async def test_a_repeat_is_shown_once_or_marked(self, house: FarEnd) -> None:
        house.fail(SendUnknown, delivered=True)
        with pytest.raises(SendUnknown):
            await self._send(house, 1, "one")
        await self._send(house, 1, "one", repeat=True)
        shown = [text for text in house.shown() if "one" in text]
        if house.platform.dedupes_sends:
            assert shown == ["one"]
        else:
            assert shown[0] == "one"
            assert len(shown) == 2
            assert shown[1] != "one"

    async def test_typing_never_raises_and_close_may_be_called_twice(self, house: FarEnd) -> None:
        await house.platform.typing(house.address)
        await house.platform.close()
        await house.platform.close()

    async def _send(self, house: FarEnd, part_id: int, text: str, **options: Any) -> str:
        (draft,) = house.platform.render(said(text))
        part = OutboxPart(part_id, part_id, 0, "sending", draft.payload)
        return await house.platform.send(house.address, part, **options)
