"""What is no single plain text, over the whole daemon: edits, pastes, pictures, documents."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.acceptance.harness import (
    DISCORD_USER,
    TELEGRAM_USER,
    Daemon,
    World,
    eventually,
    open_world,
)
from tests.acceptance.places import DiscordPlace, Place, TelegramPlace
from tests.fakes.anthropic_server import Answer, MessageRequest, tool_use
from tests.fakes.anthropic_server.request import result_text
from tests.fakes.anthropic_server.units import blocks_of
from tests.fakes.files import pdf, png
from tests.fakes.store_invariants import check_invariants

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.timeout(120),
    pytest.mark.asyncio(loop_scope="module"),
]
Shared = tuple[World, Daemon]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shared]:
    """One daemon for all of these tests."""
    async with open_world(tmp_path_factory.mktemp("forms"), window=None) as world:
        world.configure(model={"base_url": world.anthropic.base_url, "context_length": 100_000})
        yield world, await world.run()
        assert [(r.rule, r.message) for r in world.anthropic.rejected] == []
        check_invariants(world.database().path)


@pytest_asyncio.fixture(loop_scope="module", params=["telegram", "discord"])
async def place(served: Shared, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A chat on one platform, idle before and after."""
    world, daemon = served
    if request.param == "telegram":
        yield TelegramPlace(world, TELEGRAM_USER)
    else:
        yield DiscordPlace(world, DISCORD_USER)
    world.anthropic.clear_script()
    world.anthropic.release()
    assert daemon.exit_code is None
    await eventually(lambda: world.database().unsettled() == {}, 10.0, "everything settled")


async def answer_with(world: World, place: Place, words: str) -> str:
    """Wait for the bot's next message that says this."""
    (text,) = await eventually(
        lambda: [text for text in place.shown() if words in text], 20.0, f"an answer with {words}",
        seen=lambda: place.shown()[-3:],
    )  # fmt: skip
    return text


def asked_with(world: World, words: str) -> MessageRequest:
    """The first request whose newest message of a person says this."""
    for record in world.anthropic.main_requests:
        request = MessageRequest(record.number, record.body or {}, {})
        if words in request.fresh_text:
            return request
    raise AssertionError(f"no request with {words!r}")


def pictures_in(request: MessageRequest) -> list[str]:
    """Of its newest message."""
    return [b["source"]["data"] for b in request.last_blocks if b["type"] == "image"]


async def test_an_edit_counts_while_its_message_waits(served: Shared, place: Place) -> None:
    world, daemon = served
    world.anthropic.fault_next("hang", text="something long")
    place.say("something long")
    await eventually(lambda: world.anthropic.records.in_flight == 1, 10.0, "a turn", alive=daemon)
    message = place.say("meet at nine")
    waiting = "SELECT text FROM inbox WHERE state = 'new'"
    await eventually(lambda: world.database().rows(waiting), 10.0, "a waiting row", alive=daemon)
    place.edit(message, "meet at ten")
    await eventually(
        lambda: world.database().rows(waiting) == [{"text": "meet at ten"}], 10.0, "the edit",
        alive=daemon,
    )  # fmt: skip
    world.anthropic.release()
    await answer_with(world, place, "reply to: meet at ten")
    # What is answered stays as it was said: an edit is no new message.
    place.edit(message, "meet at eleven")
    place.say("and then")
    await answer_with(world, place, "reply to: and then")
    stored = "\n".join(str(row["content"]) for row in world.database().originals())
    assert "nine" not in stored
    assert "eleven" not in stored


async def test_a_paste_in_pieces_is_one_message(served: Shared, place: Place) -> None:
    world, _ = served
    lines = [f"{place.platform} line {n} of a long paste" for n in range(200)]
    before = len(world.database().originals())
    place.paste("\n".join(lines))
    await answer_with(world, place, f"reply to: {lines[0]}")
    (added,) = world.database().originals()[before:]
    # Discord takes white space off the end of a piece, and a line break stands there (ADR 36).
    assert str(added["content"]).split() == " ".join(lines).split()


async def test_a_picture_is_seen_with_its_words(served: Shared, place: Place) -> None:
    world, _ = served
    seen = png(5, 4, 90 + len(place.platform))
    place.show([seen], f"{place.platform}: what is this?")
    await answer_with(world, place, f"reply to: {place.platform}: what is this?")
    request = asked_with(world, f"{place.platform}: what is this?")
    assert pictures_in(request) == [base64.b64encode(seen).decode()]


async def test_an_album_is_one_message(served: Shared, place: Place) -> None:
    world, _ = served
    album = [png(6 + n, 4, 120 + len(place.platform)) for n in range(3)]
    before = len(world.database().originals())
    place.show(album, f"{place.platform}: our holidays")
    await answer_with(world, place, f"reply to: {place.platform}: our holidays")
    request = asked_with(world, f"{place.platform}: our holidays")
    assert pictures_in(request) == [base64.b64encode(data).decode() for data in album]
    assert len(world.database().originals()) == before + 1


@pytest.mark.parametrize("kind", ["txt", "pdf"])
async def test_a_document_is_opened_and_read(served: Shared, place: Place, kind: str) -> None:
    world, _ = served
    inside = f"the {kind} of {place.platform} says walnut"
    question = f"{place.platform}: what does this {kind} say?"

    def read_it(request: MessageRequest) -> Answer:
        results = [b for b in blocks_of(request.messages[-1]["content"]) if b["type"] != "text"]
        if results:
            return Answer(f"it says: {result_text(results[0])}")
        name = request.fresh_text.rpartition(": attachment ")[2].partition("]")[0]
        return Answer([tool_use("open_attachment", {"name": name})])

    world.anthropic.responder, usual = read_it, world.anthropic.responder
    try:
        data = inside.encode() if kind == "txt" else pdf([inside])
        place.hand_over(f"notes.{kind}", data, question)
        await answer_with(world, place, inside)
    finally:
        world.anthropic.responder = usual
    assert f'"notes.{kind}"' in asked_with(world, question).fresh_text
