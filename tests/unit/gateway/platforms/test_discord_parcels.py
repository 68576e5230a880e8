"""What one Discord message carries: whose files, their names, what is said of those left out."""

from __future__ import annotations

import pytest

from agent.attachments import StoredFile
from agent.mail import Address, OutboxDraft
from gateway import texts
from gateway.platforms.discord.out.parcels import MAX_FILES, Packing, Parcel
from gateway.platforms.discord.out.planning import plan
from storage.memory_attachments import MemoryAttachments
from tests.fakes.clock import FakeClock

ADDRESS = Address("discord", "9", "1")
OWNER = "discord:1"
LIMIT_BYTES = 1_000


class Shelf(MemoryAttachments):
    """Files may vanish."""

    gone: frozenset[str] = frozenset()

    async def read(self, name: str) -> bytes:
        if name in self.gone:
            raise LookupError(name)
        return await super().read(name)


@pytest.fixture
def shelf() -> Shelf:
    return Shelf(FakeClock())


async def put(shelf: Shelf, data: bytes, name: str = "a.txt", owner: str = OWNER) -> StoredFile:
    return await shelf.keep(data, owner=owner, file_name=name, media_type="text/plain")


async def packed(shelf: Shelf, text: str, *names: str) -> list[Parcel]:
    packing = Packing(shelf)
    draft = OutboxDraft(ADDRESS, text, files=names, files_owner=OWNER)
    parcels = []
    for part in plan(draft):
        async with packing.packed(part.payload, LIMIT_BYTES) as parcel:
            parcels.append(parcel)
    return parcels


async def test_twelve_files_go_in_several_messages_behind_the_words(shelf: Shelf) -> None:
    names = [(await put(shelf, f"{n}".encode(), f"{n}.txt")).name for n in range(12)]
    words, *parcels = await packed(shelf, "see", *names)
    assert (words.content, words.files) == ("see", ())
    assert [len(parcel.files) for parcel in parcels] == [MAX_FILES, MAX_FILES, 2]
    assert [file.name for parcel in parcels for file in parcel.files] == [
        f"{n}.txt" for n in range(12)
    ]


async def test_only_what_was_kept_for_this_person_goes_out_under_their_name(shelf: Shelf) -> None:
    theirs = await put(shelf, b"secret", "salaries.txt", owner="discord:2")
    shared = await put(shelf, b"known", "evil.exe", owner="discord:2")
    await put(shelf, b"known", "notes.txt")
    (parcel,) = await packed(shelf, "", theirs.name, "/etc/passwd", shared.name)
    assert [file.name for file in parcel.files] == ["notes.txt"]
    assert parcel.content.count(texts.FILE_NOT_KEPT) == 2
    assert "salaries" not in parcel.content


async def test_what_can_not_go_is_said_and_the_rest_goes(shelf: Shelf) -> None:
    large = await put(shelf, b"x" * (LIMIT_BYTES + 1), "large.txt")
    vanished = await put(shelf, b"v", "vanished.txt")
    empty = await put(shelf, b"", "empty.txt")
    fine = await put(shelf, b"f", "fine.txt")
    shelf.gone = frozenset({vanished.name})
    names = [large.name, vanished.name, empty.name, fine.name]
    (parcel,) = await packed(shelf, "", *names)
    assert [file.name for file in parcel.files] == ["fine.txt"]
    assert [line.partition("”")[0] for line in parcel.content.splitlines()] == [
        "I could not send “large.txt",
        "I could not send “vanished.txt",
        "I could not send “empty.txt",
    ]
    assert texts.FILE_EMPTY in parcel.content


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "_.._etc_passwd"),
        ("a\r\nb\0.txt", "ab.txt"),
        ("cv_\u202egpj.exe", "cv_gpj.exe"),
        ("...", ""),
        ("\ud83d.txt", "\ufffd.txt"),
        ("x" * 300 + ".tar", "x" * 96 + ".tar"),
    ],
)
async def test_hostile_names(shelf: Shelf, name: str, shown: str) -> None:
    kept = await put(shelf, b"x", name)
    (parcel,) = await packed(shelf, "", kept.name)
    assert [file.name for file in parcel.files] == [shown or kept.name]
