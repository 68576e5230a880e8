"""Kept pictures in a request: the same bytes every time, bounded, and none stops a conversation."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.attachments import StoredFile, picture_part
from agent.errors import StoreUnavailable
from agent.history import images_left_out
from agent.llm.images import (
    MAX_ALL_IMAGES_CHARS,
    MAX_IMAGES,
    base64_chars,
    limit_images,
    newest_that_fit,
)
from agent.llm.pictures import NOT_NOW, PictureLoader
from agent.llm.validator import validate
from agent.llm.wire import build_body, map_messages
from agent.messages import Message, Part, Row, text_of, wire_message
from agent.model_metadata import IMAGE_TOKENS, estimate_message_tokens
from agent.ports import ModelRequest
from storage.attachments import name_of
from storage.memory_attachments import MemoryAttachments
from tests.fakes.clock import FakeClock
from tests.fakes.files import png


class Counted(MemoryAttachments):
    """Counts what is read; ``broken`` can not be read, so often."""

    def __init__(self) -> None:
        super().__init__(FakeClock())
        self.reads: list[str] = []
        self.broken = 0

    async def read(self, name: str) -> bytes:
        self.reads.append(name)
        if self.broken:
            self.broken -= 1
            raise StoreUnavailable("a bad sector")
        return await super().read(name)

    async def part(self, data: bytes) -> Part:
        kept: StoredFile = await self.keep(
            data, owner="o", file_name="a.png", media_type="image/png"
        )
        return picture_part(kept.name, kept.size_bytes)


def user(*parts: Part | str) -> Message:
    content = [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]
    return {"role": "user", "content": content}


def shown(messages: Any) -> list[str]:
    """The pictures in a request as they are sent, and the notes for the others."""
    return [
        block["source"]["data"] if block["type"] == "image" else block["text"]
        for turn in map_messages(messages)
        for block in turn["content"]
        if block["type"] == "image" or block["text"].startswith("[image")
    ]


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def test_a_kept_picture_is_sent_with_its_bytes_and_read_once() -> None:
    kept = Counted()
    loader = PictureLoader(kept)
    messages = [user("look", await kept.part(png())), user("thanks")]
    first = await loader.loaded(messages)
    assert shown(first) == [b64(png())]
    assert json.dumps(first) == json.dumps(await loader.loaded(messages))
    assert len(kept.reads) == 1
    assert messages[0]["content"][1]["image_url"]["url"].startswith("attachment:")  # type: ignore[index]


async def test_words_alone_are_handed_through() -> None:
    messages: list[Message] = [{"role": "user", "content": "hi"}, user("hi"), user("x", _DATA)]
    assert await PictureLoader(Counted()).loaded(messages) is messages


_DATA: Part = {
    "type": "image_url",
    "image_url": {"url": f"data:image/png;base64,{b64(png())}"},
}


async def test_one_that_is_gone_or_not_to_be_read_is_a_note_and_the_others_stay() -> None:
    kept = Counted()
    loader = PictureLoader(kept)
    gone = picture_part(name_of(b"never kept", "image/png"), 10)
    part = await kept.part(png())
    assert shown(await loader.loaded([user(gone, part)])) == [
        "[image left out: the file is gone]",
        b64(png()),
    ]
    kept.broken = 1
    other = await kept.part(png(9, 9))
    assert shown(await loader.loaded([user(other)])) == [b64(png(9, 9))]  # asked twice
    kept.broken = 2
    third = await kept.part(png(8, 8))
    assert shown(await loader.loaded([user(third)])) == [f"[image left out: {NOT_NOW}]"]
    assert shown(await loader.loaded([user(third)])) == [b64(png(8, 8))]
    assert shown([user(part)]) == ["[image left out: the file is gone]"]  # nobody loads


async def test_what_is_remembered_is_bounded() -> None:
    kept = Counted()
    parts = [await kept.part(png(shade=shade)) for shade in range(20)]
    loader = PictureLoader(kept, max_cached_chars=1000)
    for part in parts * 2:
        await loader.loaded([user(part)])
        assert loader.cached_chars <= 1000
    await asyncio.gather(*(loader.loaded([user(parts[-1])]) for _ in range(5)))
    assert loader.cached_chars <= 1000


async def test_no_more_is_loaded_than_a_request_can_carry() -> None:
    kept = Counted()
    parts = [await kept.part(bytes([n]) * 4_000_000) for n in range(9)]
    loader = PictureLoader(kept)
    await loader.loaded([user(part) for part in parts])
    assert len(kept.reads) * base64_chars(parts[0]) < MAX_ALL_IMAGES_CHARS + 6_000_000
    assert kept.reads[0] == parts[-1]["image_url"]["url"].removeprefix("attachment:")


async def test_pictures_in_results_of_tools_are_sent_too() -> None:
    kept = Counted()
    part = await kept.part(png())
    call = {"id": "c", "function": {"name": "open_attachment", "arguments": "{}"}}
    messages = [
        user("show it again"),
        cast(Message, {"role": "assistant", "content": None, "tool_calls": [call]}),
        cast(
            Message,
            {
                "role": "tool",
                "tool_call_id": "c",
                "content": [{"type": "text", "text": "it"}, part],
            },
        ),
    ]
    body = build_body(
        ModelRequest("s", await PictureLoader(kept).loaded(messages), 100), "claude-x"
    )
    assert validate(body) == []
    assert body["messages"][2]["content"][0]["content"][1]["type"] == "image"


def test_a_picture_costs_the_same_whatever_its_address() -> None:
    here, kept = user("x", _DATA), user("x", picture_part("0" * 32 + ".png", 5))
    assert estimate_message_tokens(here) == estimate_message_tokens(kept) > IMAGE_TOKENS


# --- hundreds of them


def left(parts: list[Part]) -> list[Part]:
    """What a turn goes on with (`agent.asking`): the list as it is sent."""
    keep = newest_that_fit(parts)
    if keep is None:
        return parts
    rows = [Row(n, "s", n, user(part), 0.0) for n, part in enumerate(parts, 1)]
    entries = images_left_out(rows, keep)
    assert entries is not None
    sent = [
        wire_message(rows[n]) if not hasattr(entry, "message") else {"content": entry.wire_content}
        for n, entry in enumerate(entries)
    ]
    return [p for m in sent for p in cast("list[Part]", m["content"]) if p["type"] == "image_url"]


def test_two_hundred_photos_change_the_beginning_of_requests_a_few_times_only() -> None:
    parts: list[Part] = []
    changes = 0
    for n in range(200):
        parts.append(picture_part(f"{n:032x}.jpg", 400_000))
        now = left(parts)
        changes += now != parts
        parts = now
        assert len(parts) <= MAX_IMAGES
        assert sum(map(base64_chars, parts)) <= MAX_ALL_IMAGES_CHARS
    assert changes <= 10
    assert parts[-1]["image_url"]["url"] == f"attachment:{199:032x}.jpg"


def test_small_ones_are_counted_too() -> None:
    parts = [picture_part(f"{n:032x}.png", 100) for n in range(MAX_IMAGES + 1)]
    assert newest_that_fit(parts) == MAX_IMAGES // 2
    assert newest_that_fit(parts[1:]) is None
    block = {"type": "image", "source": {"type": "base64", "media_type": "x", "data": b64(png())}}
    content = [dict(block) for _ in range(MAX_IMAGES + 30)]
    limit_images([content])
    assert [b["type"] for b in content] == ["text"] * 30 + ["image"] * MAX_IMAGES


kept_sizes = st.one_of(st.integers(0, 6_000_000), st.sampled_from([None, "x", -1]))


@given(st.lists(kept_sizes, max_size=250))
@settings(max_examples=60)
def test_whatever_they_say_of_their_size_they_fit_and_then_stay(sizes: list[Any]) -> None:
    parts = [picture_part(f"{n:032x}.png", size) for n, size in enumerate(sizes)]
    keep = newest_that_fit(parts)
    kept = parts if keep is None else parts[len(parts) - keep :]
    assert keep is None or 0 < keep < len(parts)
    assert newest_that_fit(kept) is None
    assert sum(map(base64_chars, kept)) <= MAX_ALL_IMAGES_CHARS or len(kept) == 1


messages_with_files = st.lists(
    st.lists(
        st.one_of(
            st.text(max_size=8),
            st.integers(0, 5).map(lambda shade: ("kept", shade)),
            st.integers(0, 9).map(lambda n: ("gone", n)),
            st.just(_DATA),
        ),
        max_size=5,
    ),
    min_size=1,
    max_size=8,
)


@given(messages_with_files)
@settings(max_examples=60, deadline=None)
def test_any_mix_of_words_and_files_is_a_valid_request_and_the_same_again(
    mix: list[list[Any]],
) -> None:
    async def bodies() -> list[str]:
        kept = Counted()
        messages: list[Message] = []
        for said in mix:
            parts: list[Part | str] = []
            for each in said:
                match each:
                    case ("kept", shade):
                        parts.append(await kept.part(png(shade=shade)))
                    case ("gone", n):
                        parts.append(picture_part(f"{n:032x}.png", 5))
                    case _:
                        parts.append(each)
            messages.append(user(*parts))
        made = []
        for loader in (PictureLoader(kept), PictureLoader(kept, max_cached_chars=0)):
            body = build_body(ModelRequest("s", await loader.loaded(messages), 50), "claude-x")
            assert validate(body) == []
            made.append(json.dumps(body))
        assert all(text_of(m["content"]) is not None for m in messages)
        return made

    first, again = asyncio.run(bodies())
    assert first == again
