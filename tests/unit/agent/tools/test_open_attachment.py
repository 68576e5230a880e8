"""`open_attachment`: text page by page, pictures again, and clear words for the rest."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.attachments import StoredFile, picture_name, picture_part
from agent.errors import StoreUnavailable
from agent.media.documents import PdfText
from agent.messages import ToolSchema, text_of
from agent.model_metadata import estimate_tokens_rough
from agent.ports import ToolContext, ToolResult
from agent.tools.attachments import OpenAttachmentTool
from agent.tools.registry import ToolRegistry
from storage.memory_attachments import MemoryAttachments
from tests.fakes.clock import FakeClock
from tests.fakes.files import HTML, locked_pdf, pdf, photo, png

CONTEXT = ToolContext("c", "test:1", True, "t")
ROOM = 100


class Scene:
    def __init__(self) -> None:
        self.kept = MemoryAttachments(FakeClock())
        tool = OpenAttachmentTool(self.kept, page_tokens=lambda: ROOM)
        self.registry = ToolRegistry([tool], result_cap_tokens=2 * ROOM)

    async def keep(
        self, data: bytes, kind: str = "text/plain", name: str = "a.txt", owner: str = CONTEXT.owner
    ) -> str:
        kept = await self.kept.keep(data, owner=owner, file_name=name, media_type=kind)
        return kept.name

    async def open(self, name: str, **more: Any) -> Any:
        call = {"id": "c", "function": {"name": "open_attachment", "arguments": ""}}
        call["function"]["arguments"] = json.dumps({"name": name, **more})  # type: ignore[index]
        draft = await self.registry.run(call, CONTEXT)  # type: ignore[arg-type]
        assert draft.wire_content is None  # a page comes whole
        return draft.message["content"]


async def test_a_short_text_comes_whole() -> None:
    scene = Scene()
    name = await scene.keep(b"one\ntwo\n")
    assert await scene.open(name) == '"a.txt", characters 0 to 8 of 8\none\ntwo\n'
    assert await scene.open(f"attachment {name}") == await scene.open(name)
    assert await scene.open(f"attachment:{name}") == await scene.open(f" `{name}` ")
    assert await scene.open(await scene.keep(b"")) == '"a.txt" is empty.'


@given(st.text(alphabet="ab 界😀\n", max_size=3000), st.sampled_from(["utf-8", "utf-16"]))
@settings(max_examples=25, deadline=None)
async def test_the_pages_of_a_text_make_it_whole(text: str, codec: str) -> None:
    scene = Scene()
    name = await scene.keep(text.encode(codec))
    found, offset = "", 0
    while offset < len(text):
        page = await scene.open(name, offset=offset)
        assert estimate_tokens_rough(page) <= 2 * ROOM
        head, _, body = page.partition("\n")
        end = int(head.split(" to ")[1].split(" of ")[0])
        found += body[: end - offset]
        more = body[end - offset :]
        assert more == (f"\n[goes on: offset {end}]" if end < len(text) else "")
        assert end > offset
        offset = end
    assert found == text


async def test_how_somebody_else_calls_the_same_file_is_not_told() -> None:
    scene = Scene()
    name = await scene.keep(b"the same", name="what-i-think-of-bob.txt", owner="test:2")
    assert await scene.open(name) == f"the file {name}, characters 0 to 8 of 8\nthe same"


async def test_a_document_goes_on_where_it_stopped() -> None:
    scene = Scene()
    name = await scene.keep(pdf(["word " * 100, "last"]), "application/pdf", "b.pdf")
    first = await scene.open(name)
    assert first.startswith('"b.pdf", 2 pages\n[page 1 of 2]\nword word')
    assert first.endswith("\n[goes on: page 1, offset 384]")
    second = await scene.open(name, page=1, offset=384)
    assert second.endswith("[page 2 of 2]\nlast")
    short = await scene.open(name, limit=4)
    assert "\nword\n[goes on: page 1, offset 4]" in short


async def test_a_picture_is_shown_again() -> None:
    scene = Scene()
    for data, kind in ((png(), "image/png"), (photo(2000, 100), "image/jpeg")):
        name = await scene.keep(data, kind, "c.png")
        text, picture = await scene.open(name)
        assert text["text"].startswith('"c.png", ')
        shown = picture_name(picture)
        assert shown is not None
        assert (await scene.kept.read(shown) == data) == (data == png())


async def test_a_picture_stays_where_its_words_are_cut() -> None:
    class Talkative:
        schema = ToolSchema("look", "A tool.", {"type": "object", "properties": {}})

        async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
            return ToolResult("word " * 5000, pictures=(picture_part("0" * 32 + ".png", 9),))

    call = {"id": "c", "function": {"name": "look", "arguments": "{}"}}
    registry = ToolRegistry([Talkative()], result_cap_tokens=50)
    draft = await registry.run(call, CONTEXT)  # type: ignore[arg-type]
    for content in (draft.message["content"], draft.wire_content):
        assert isinstance(content, list)
        assert [part["type"] for part in content] == ["text", "image_url"]
    assert len(text_of(draft.wire_content)) < 1000 < len(text_of(draft.message["content"]))


@pytest.mark.parametrize(
    ("data", "kind", "told"),
    [
        (b"\x00\x01\x02" * 50, "application/octet-stream", "is no text"),
        (png()[:30], "image/png", "can not be shown: it is damaged"),
        (b"%PDF-1.4 nothing", "application/pdf", "can not be read: it is damaged"),
        (locked_pdf("x"), "application/pdf", "password"),
        (HTML, "text/html", "<script>alert(1)</script>"),
    ],
    ids=["binary", "picture", "document", "locked", "html"],
)
async def test_what_can_not_be_read_says_what_it_is(data: bytes, kind: str, told: str) -> None:
    scene = Scene()
    assert told in await scene.open(await scene.keep(data, kind))


@pytest.mark.parametrize(
    "name",
    ["", "notes.txt", "../../etc/passwd", "0" * 31, "0" * 33, "0" * 32 + "/../x", "0" * 32 + ".TXT",
     "0" * 32 + "\n", "x" * 5000, "\ud800", "0" * 32 + ".txt and more"],
)  # fmt: skip
async def test_only_names_are_taken(name: str) -> None:
    told = await Scene().open(name)
    assert told.startswith("[error]")
    assert len(told) < 300


async def test_what_is_not_there_or_not_to_be_had_is_said() -> None:
    scene = Scene()
    assert "there is no attachment" in await scene.open("0" * 32 + ".txt")
    name = await scene.keep(b"abc")
    assert "offset 3 is behind its end" in await scene.open(name, offset=3)
    assert '"offset"' not in await scene.open(name, offset=-5)

    class Broken(MemoryAttachments):
        async def read(self, name: str) -> bytes:
            raise StoreUnavailable("no")

        async def find(self, name: str, *, owner: str | None = None) -> StoredFile | None:
            return StoredFile(name, "o", "a", "text/plain", 1, 0.0)

    tool = OpenAttachmentTool(Broken(FakeClock()), page_tokens=lambda: ROOM)
    scene.registry = ToolRegistry([tool])
    assert "right now" in text_of(await scene.open("0" * 32))


async def test_one_pdf_is_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may take much memory, whoever else reads one."""
    under_way: list[int] = []

    async def slow(data: bytes, **_: Any) -> PdfText:
        under_way.append(len(under_way) + 1)
        await asyncio.sleep(0)
        assert len(under_way) == 1
        under_way.pop()
        return PdfText("words", 1, None)

    monkeypatch.setattr("agent.tools.attachments.pdf_text", slow)
    scene = Scene()
    name = await scene.keep(pdf(["a"]), "application/pdf", "b.pdf")
    answers = await asyncio.gather(*(scene.open(name) for _ in range(3)))
    assert answers == ['"b.pdf", 1 pages\nwords'] * 3
