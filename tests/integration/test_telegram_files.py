"""Files that people send on Telegram, with the real SDK: found, loaded, refused, within bounds."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway import texts
from gateway.platforms.contract import (
    Attachment,
    FetchError,
    FetchRefused,
    FetchUnavailable,
    PlatformState,
)
from gateway.platforms.telegram.adapter import TelegramPlatform
from gateway.platforms.telegram.client import TelegramSettings
from tests.fakes.clock import FakeClock
from tests.fakes.intake import RecordingIntake
from tests.fakes.telegram_server import PNG, TOKEN, Fault, TelegramServer
from tests.integration.test_telegram import running

LIMIT = 1_000_000


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as running_server:
        yield running_server


@pytest.fixture
async def telegram(server: TelegramServer) -> AsyncIterator[TelegramPlatform]:
    settings = TelegramSettings(
        TOKEN,
        server.base_url,
        server.base_file_url,
        poll_timeout_seconds=1,
        send_timeout_seconds=1.0,
        fetch_timeout_seconds=3.0,  # longer than both calls, each of which may take its own time
    )
    platform = TelegramPlatform(settings, FakeClock())
    yield platform
    await platform.close()


async def received(
    server: TelegramServer, telegram: TelegramPlatform, count: int = 1
) -> RecordingIntake:
    intake = RecordingIntake()
    async with running(telegram, intake) as (reports, _):
        await reports.wait(PlatformState.RUNNING)
        await intake.wait_messages(count)
    return intake


def document(server: TelegramServer, data: bytes = b"some words", **rest: int) -> Attachment:
    value = server.document(data, **rest)["message"]["document"]
    return Attachment("file", value["file_id"], size_bytes=value["file_size"])


async def test_what_was_sent_is_loaded(server: TelegramServer, telegram: TelegramPlatform) -> None:
    server.photo(PNG, caption="look")
    server.document(b"%PDF", "Überblick 😀.pdf", "application/pdf")
    server.voice(b"OggS1234")
    server.media("video", b"film", "a.mp4", "video/mp4")
    server.media(
        "sticker", b"RIFFwebp", "s.webp", "image/webp", fields={"type": "regular", "emoji": "😀"}
    )
    server.media("sticker", fields={"type": "regular", "emoji": "😀", "is_video": True})
    intake = await received(server, telegram, 6)
    said = [message.text for message in intake.messages]
    assert said == ["look", "", "", "", "", "[moving sticker 😀]"]
    files = [file for message in intake.messages for file in message.attachments]
    assert [(f.kind, f.file_name, f.media_type, f.label) for f in files] == [
        ("image", "", "image/jpeg", "photo"),
        ("file", "Überblick 😀.pdf", "application/pdf", ""),
        ("audio", "", "audio/ogg", "voice message"),
        ("video", "a.mp4", "video/mp4", ""),
        ("image", "", "image/webp", "sticker 😀"),
    ]
    loaded = [await telegram.fetch(file, LIMIT) for file in files]
    assert loaded == [PNG, b"%PDF", b"OggS1234", b"film", b"RIFFwebp"]


async def test_an_album_is_one_message_each_with_its_file(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    server.album([PNG, PNG + b"2", PNG + b"3"], caption="three", caption_at=1)
    intake = await received(server, telegram, 3)
    assert {message.album_id for message in intake.messages} == {"g1"}
    assert [message.text for message in intake.messages] == ["", "three", ""]
    files = [file for message in intake.messages for file in message.attachments]
    assert [await telegram.fetch(file, LIMIT) for file in files] == [PNG, PNG + b"2", PNG + b"3"]


async def test_an_empty_file_and_one_of_exactly_the_limit_are_loaded(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    assert await telegram.fetch(document(server, b""), LIMIT) == b""
    whole = bytes(range(256)) * 40
    assert await telegram.fetch(document(server, whole), len(whole)) == whole


async def test_what_is_known_to_be_too_large_is_not_asked_for(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    file = document(server, b"x" * 11)
    with pytest.raises(FetchRefused) as caught:
        await telegram.fetch(file, 10)
    assert str(caught.value) == texts.file_too_large(10)
    assert len(server.calls) == 0
    # Said by nobody but getFile: still not a byte is loaded.
    with pytest.raises(FetchRefused):
        await telegram.fetch(replace(file, size_bytes=None), 10)
    assert len(server.calls_of("downloadFile")) == 0


async def test_what_telegram_itself_does_not_give_is_said_kindly(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    file = document(server, b"x", size=50 * 1024 * 1024)
    with pytest.raises(FetchRefused, match="20 MB"):
        await telegram.fetch(file, 100 * 1024 * 1024)


@pytest.mark.parametrize("declared", [0, 5])
async def test_a_file_that_is_larger_than_everybody_says_is_cut_off(
    server: TelegramServer, telegram: TelegramPlatform, declared: int
) -> None:
    file = document(server, b"x" * 5_000_000, size=declared)
    with pytest.raises(FetchRefused):
        await telegram.fetch(file, 10_000)
    server.fault(Fault.download("endless"))
    with pytest.raises(FetchRefused):
        await telegram.fetch(file, 1_000_000)


@pytest.mark.parametrize(
    ("fault", "error", "text"),
    [
        (Fault.download("short"), FetchUnavailable, texts.FILE_NOT_NOW),
        (Fault.download("packed"), FetchUnavailable, texts.FILE_NOT_NOW),
        (Fault.download("moved"), FetchUnavailable, texts.FILE_NOT_NOW),
        (Fault.download("drip", seconds=0.4), FetchUnavailable, texts.FILE_TOO_SLOW),
        (Fault.hang("downloadFile"), FetchUnavailable, texts.FILE_NOT_NOW),
        (Fault.drop("downloadFile"), FetchUnavailable, texts.FILE_NOT_NOW),
        (Fault.html(502, "downloadFile"), FetchUnavailable, texts.FILE_NOT_NOW),
        (Fault.error(404, "Not Found", "downloadFile"), FetchUnavailable, texts.FILE_NOT_NOW),
        (Fault.flood(9, "getFile"), FetchUnavailable, texts.FILE_NOT_NOW),
        (Fault.drop("getFile"), FetchUnavailable, texts.FILE_NOT_NOW),
        (Fault.hang("getFile"), FetchUnavailable, texts.FILE_NOT_NOW),
        (Fault.garbage("getFile"), FetchUnavailable, texts.FILE_NOT_NOW),
        (Fault.html(404, "getFile"), FetchUnavailable, texts.FILE_NOT_NOW),
        (Fault.error(401, "Unauthorized", "getFile"), FetchUnavailable, texts.FILE_NOT_NOW),
        (
            Fault.error(
                400, "Bad Request: wrong file_id or the file is temporarily unavailable", "getFile"
            ),
            FetchUnavailable,
            texts.FILE_NOT_NOW,
        ),
        (
            Fault.error(400, "Bad Request: wrong remote file identifier specified", "getFile"),
            FetchRefused,
            texts.FILE_GONE,
        ),
    ],
    ids=lambda value: f"{value.kind}-{value.method}" if isinstance(value, Fault) else "",
)
async def test_how_a_fetch_fails(
    server: TelegramServer,
    telegram: TelegramPlatform,
    fault: Fault,
    error: type[FetchError],
    text: str,
) -> None:
    file = document(server, b"some words")
    server.fault(Fault(**{**fault.to_json(), "hits": 0}))
    with pytest.raises(error) as caught:
        await telegram.fetch(file, LIMIT)
    assert (type(caught.value), str(caught.value)) == (error, text)
    assert await telegram.fetch(file, LIMIT) == b"some words", "and then it works again"


async def test_a_file_shorter_than_announced_is_no_file(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    file = replace(document(server, b"half", size=8), size_bytes=None)
    with pytest.raises(FetchUnavailable, match="only a part"):
        await telegram.fetch(file, LIMIT)


async def test_a_file_of_another_bot_is_gone(telegram: TelegramPlatform) -> None:
    with pytest.raises(FetchRefused, match="send it again"):
        await telegram.fetch(Attachment("file", "of-another-bot"), LIMIT)
    for ref in ("", "x" * 5000, "ä\x00", "\ud800"):
        with pytest.raises(FetchError):
            await telegram.fetch(Attachment("file", ref), LIMIT)


async def test_a_path_that_leads_elsewhere_is_never_asked_for(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    file = document(server)
    for path in (
        "../../etc/passwd", "/etc/passwd", "//elsewhere/x", "documents/../../x", "a//b", "a/", ".",
        "a\\..\\b", "documents/.../x", "", "a/\ud800", "/proc/self/status",
    ):  # fmt: skip
        server.state.files[file.ref].path = path
        with pytest.raises(FetchError):
            await telegram.fetch(file, LIMIT)
    assert len(server.calls_of("downloadFile")) == 0


async def test_a_path_with_odd_letters_stays_one_path(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    file = document(server)
    paths = ["a/a b?c=d#e.txt", "documents/%2e%2e/x", "http:/x", "photos/ü😀.jpg", "a:b@c"]
    for path in paths:
        server.state.files[file.ref].path = path
        assert await telegram.fetch(file, LIMIT) == b"some words"
    assert [call.params["path"] for call in server.calls_of("downloadFile")] == paths


async def test_nothing_is_loaded_once_it_is_closed(
    server: TelegramServer, telegram: TelegramPlatform
) -> None:
    file = document(server)
    await telegram.close()
    with pytest.raises(FetchUnavailable):
        await telegram.fetch(file, LIMIT)


async def test_no_failure_shows_the_token(
    server: TelegramServer, telegram: TelegramPlatform, caplog: pytest.LogCaptureFixture
) -> None:
    import traceback

    caplog.set_level(logging.DEBUG)
    file = document(server)
    shown: list[str] = []
    for fault in (
        Fault.drop("downloadFile"),
        Fault.drop("getFile"),
        Fault.error(400, f"Bad Request: {TOKEN}", "getFile"),
        Fault.download("short"),
        Fault.download("moved"),
        Fault.html(500, "*"),
    ):
        server.fault(fault)
        with pytest.raises(FetchError) as caught:
            await telegram.fetch(file, LIMIT)
        shown.append("".join(traceback.format_exception(caught.value)))
    await server.pause()
    with pytest.raises(FetchUnavailable) as caught:
        await telegram.fetch(file, LIMIT)
    shown.append("".join(traceback.format_exception(caught.value)))
    for text in (*shown, caplog.text):
        assert TOKEN.partition(":")[2] not in text
