"""Owns the contract of `agent.attachments.Attachments`; a subclass gives the ``files`` fixture."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from agent.attachments import NAME, Attachments, StoredFile
from tests.fakes.clock import FakeClock

OWNER = "telegram:222"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


async def keep(files: Attachments, data: bytes = PNG, **changes: str) -> StoredFile:
    fields = {"owner": OWNER, "file_name": "cat.png", "media_type": "image/png"}
    return await files.keep(data, **{**fields, **changes})


class AttachmentContract:
    async def test_what_is_kept_is_read(self, files: Attachments, clock: FakeClock) -> None:
        kept = await keep(files)
        digest = hashlib.sha256(PNG).hexdigest()[:32]
        assert kept == StoredFile(
            f"{digest}.png", OWNER, "cat.png", "image/png", len(PNG), clock.now()
        )
        assert await files.read(kept.name) == PNG
        assert await files.find(kept.name) == kept

    async def test_an_owner_finds_their_own(self, files: Attachments) -> None:
        kept = await keep(files)
        assert await files.find(kept.name, owner=OWNER) == kept
        assert await files.find(kept.name, owner="telegram:333") is None
        again = await keep(files, owner="telegram:333", file_name="tom.png")
        assert await files.find(kept.name, owner="telegram:333") == again
        assert again.file_name == "tom.png"
        for odd in ("../../etc/passwd", "/etc/passwd", "", f"{kept.name}/", "%"):
            assert await files.find(odd, owner=OWNER) is None

    @pytest.mark.parametrize("data", [b"", b"\0", b"x" * 3_000_000])
    async def test_any_size(self, files: Attachments, data: bytes) -> None:
        kept = await keep(files, data)
        assert kept.size_bytes == len(data)
        assert await files.read(kept.name) == data

    @pytest.mark.parametrize(
        ("media_type", "end"),
        [
            ("image/png", ".png"),
            ("image/JPEG", ".jpg"),
            ("text/plain; charset=utf-8", ".txt"),
            ("application/pdf", ".pdf"),
            ("application/octet-stream", ""),
            ("image/../../etc", ""),
            ("", ""),
            ("\ud83d", ""),
        ],
    )
    async def test_a_name_says_what_it_is(
        self, files: Attachments, media_type: str, end: str
    ) -> None:
        kept = await keep(files, media_type=media_type)
        assert NAME.fullmatch(kept.name)
        assert kept.name[32:] == end
        assert await files.read(kept.name) == PNG

    @pytest.mark.parametrize(
        "file_name", ["../../etc/passwd", "a\0b", "猫.png", "", "x" * 5000, "half \ud83d"]
    )
    async def test_what_its_sender_calls_it_is_only_shown(
        self, files: Attachments, file_name: str
    ) -> None:
        kept = await keep(files, file_name=file_name)
        assert kept.file_name == file_name.replace("\ud83d", "\ufffd")
        assert await files.find(kept.name) == kept

    async def test_the_same_bytes_are_one_file(self, files: Attachments, clock: FakeClock) -> None:
        first = await keep(files)
        await clock.advance(60)
        again = await keep(files, file_name="dog.png")
        assert again == StoredFile(
            first.name, OWNER, "dog.png", "image/png", len(PNG), first.created_at
        )
        assert await files.find(first.name) == again
        other = await keep(files, owner="discord:9", file_name="cow.png")
        assert (other.name, other.owner, other.file_name) == (first.name, "discord:9", "cow.png")
        # Whoever sent it first is found.
        assert await files.find(first.name) == again
        assert await files.read(first.name) == PNG

    async def test_at_once(self, files: Attachments) -> None:
        kept = await asyncio.gather(*(keep(files, b"%d" % (n % 3)) for n in range(12)))
        assert len({file.name for file in kept}) == 3
        for n in range(3):
            assert await files.read(kept[n].name) == b"%d" % n

    @pytest.mark.parametrize(
        "name",
        ["0" * 32, "0" * 32 + ".png", "../state.db", "", ".", "0" * 32 + "/x", "\0", "A" * 32],
    )
    async def test_there_is_no_such_file(self, files: Attachments, name: str) -> None:
        await keep(files)
        assert await files.find(name) is None
        with pytest.raises(LookupError):
            await files.read(name)
