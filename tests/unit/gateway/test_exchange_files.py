"""Pictures and documents travel with their conversation, and nothing that is not theirs."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from agent.attachments import picture_part
from agent.clock import RandomIds, SystemClock
from agent.errors import ImportRefused
from agent.exchange.files import files_of, names_in
from agent.exchange.jsonl import read_files, read_lines, write_lines
from agent.exchange.markdown import write_markdown
from agent.exchange.records import Portable, PortableFile
from agent.messages import Draft
from agent.sessions import SessionPrefix, TurnOpening, session_key
from gateway.cli.main import main
from gateway.config.environment import Home
from gateway.wiring.exchange import exported_file, take_in_file
from gateway.wiring.kept_files import kept_files
from storage.sqlite import open_store
from tests.fakes.files import png
from tests.fakes.portables import portable_chain

KEY = session_key("telegram", "1", "7", None, "7")
OWNER = "telegram:7"


async def talk_in(home: Home) -> tuple[Portable, list[str]]:
    """A message with a picture and a document in a home; the conversation and their names."""
    store = await open_store(home.database, clock=SystemClock(), ids=RandomIds())
    try:
        files = kept_files(home, store)
        kept = [
            await files.keep(data, owner=OWNER, file_name=name, media_type=kind)
            for data, name, kind in (
                (png(), "a.png", "image/png"),
                (b"dear diary", "d.txt", "text/plain"),
            )
        ]
        line = f'look\n[attached file "d.txt", 10 bytes, text/plain: attachment {kept[1].name}]'
        content: list[dict[str, Any]] = [
            {"type": "text", "text": line},
            picture_part(kept[0].name, kept[0].size_bytes),
        ]
        message = Draft({"role": "user", "content": content})
        prefix = SessionPrefix("telegram", "m", "s", ())
        ticket = await store.begin_turn(TurnOpening(KEY, OWNER, (), message, prefix))
        await store.finish_turn(ticket, ticket.session_id, "done")
        return await store.portable(ticket.session_id), [k.name for k in kept]
    finally:
        await store.close()


async def export(home: Home, portable: Portable) -> str:
    files = [await exported_file(home, name, portable.owner) for name in files_of(portable)]
    return "".join(write_lines([portable], files))


async def test_a_conversation_takes_its_files_along(tmp_path: Path) -> None:
    here, there = Home(tmp_path / "a", "test"), Home(tmp_path / "b", "test")
    here.path.mkdir()
    there.path.mkdir()
    portable, names = await talk_in(here)
    assert sorted(files_of(portable)) == sorted(names)
    text = await export(here, portable)
    path = tmp_path / "export.jsonl"
    path.write_text(text, encoding="utf-8")
    (taken,) = await take_in_file(there, path, None)
    store = await open_store(there.database, clock=SystemClock(), ids=RandomIds())
    try:
        again = await store.portable(taken.tip_session_id)
        files = kept_files(there, store)
        assert [await files.read(name) for name in names] == [png(), b"dear diary"]
        found = await files.find(names[1])
        assert found is not None
        assert (found.owner, found.file_name) == (OWNER, "d.txt")
    finally:
        await store.close()
    assert await export(there, again) == text
    with pytest.raises(ImportRefused):  # whole or not at all, and once
        await take_in_file(there, path, None)


async def test_for_another_owner_the_files_are_theirs(tmp_path: Path) -> None:
    here, there = Home(tmp_path / "a", "test"), Home(tmp_path / "b", "test")
    here.path.mkdir()
    there.path.mkdir()
    portable, names = await talk_in(here)
    path = tmp_path / "export.jsonl"
    path.write_text(await export(here, portable), encoding="utf-8")
    await take_in_file(there, path, "discord:9")
    store = await open_store(there.database, clock=SystemClock(), ids=RandomIds())
    try:
        found = await kept_files(there, store).find(names[0])
        assert found is not None
        assert found.owner == "discord:9"
    finally:
        await store.close()


async def test_a_file_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    here, there = Home(tmp_path / "a", "test"), Home(tmp_path / "b", "test")
    here.path.mkdir()
    there.path.mkdir()
    portable, names = await talk_in(here)
    (here.attachments / names[0]).unlink()
    text = await export(here, portable)
    gone = [json.loads(line) for line in text.splitlines() if '"data":null' in line]
    assert [value["name"] for value in gone] == [names[0]]
    path = tmp_path / "export.jsonl"
    path.write_text(text, encoding="utf-8")
    assert len(await take_in_file(there, path, None)) == 1
    assert (await exported_file(there, names[0], OWNER)).data is None
    assert (await exported_file(there, names[1], OWNER)).data == b"dear diary"


async def test_how_somebody_else_called_the_same_file_stays_there(tmp_path: Path) -> None:
    here = Home(tmp_path, "test")
    _, names = await talk_in(here)
    assert (await exported_file(here, names[1], OWNER)).file_name == "d.txt"
    assert (await exported_file(here, names[1], "discord:9")).file_name == ""


def test_without_files_the_form_is_the_first_one() -> None:
    assert next(write_lines([portable_chain()])) == '{"posthouse_export":1}\n'


def file_of(data: bytes | None, name: str = "") -> PortableFile:
    digest = hashlib.sha256(data or b"").hexdigest()[:32]
    return PortableFile(name or f"{digest}.txt", "a\n\ud800.txt", "text/plain", data)


def test_files_come_back_one_by_one_and_are_counted() -> None:
    files = [file_of(b"a"), file_of(None), file_of(b"")]
    lines = list(write_lines([portable_chain()], files))
    assert read_lines(lines) == [portable_chain()]
    assert list(read_files(lines)) == files
    assert list(read_files(write_lines([portable_chain()]))) == []
    assert '"files":3' in lines[-1]


def refused(*lines: str) -> str:
    with pytest.raises(ImportRefused) as caught:
        read_lines(io.StringIO("".join(lines)))
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": "../../etc/passwd"}, "name is none of ours"),
        ({"name": 5}, "name is none of ours"),
        ({"name": "0" * 32 + ".txt"}, "does not fit its name"),
        ({"data": "!"}, "no base64"),
        ({"data": 5}, "no base64"),
        ({"data": "é"}, "no base64"),
        ({"media_type": None}, "without file_name or media_type"),
    ],
)
def test_a_hostile_file_is_refused_with_its_line(change: dict[str, Any], told: str) -> None:
    head, file, *rest = write_lines([portable_chain()], [file_of(b"a")])
    value = {**json.loads(file), **change}
    said = refused(head, json.dumps(value) + "\n", *rest)
    assert said.startswith("line 2 ")
    assert told in said


def test_a_file_in_the_wrong_place_is_refused() -> None:
    head, file, *rest = write_lines([portable_chain()], [file_of(b"a")])
    assert "behind a conversation" in refused(head, rest[0], file, *rest[1:])
    assert "unknown type" in refused('{"posthouse_export":1}\n', file, *rest)
    assert "other files" in refused(head, *rest)


def test_only_our_own_lines_and_addresses_name_files() -> None:
    name = "0" * 32 + ".png"
    assert list(names_in(f'[attached file "x": attachment {name}]')) == [name]
    assert list(names_in(f"attachment {name} and {name}")) == []
    assert list(names_in([picture_part(name, 1), {"type": "text", "text": "x"}])) == [name]
    assert list(names_in([picture_part("../x", 1), {"type": "image_url"}])) == []
    assert list(names_in(None)) == []


async def test_markdown_says_where_a_picture_lies(tmp_path: Path) -> None:
    here = Home(tmp_path, "test")
    portable, names = await talk_in(here)
    text = "".join(write_markdown(portable))
    assert f"*(1 picture: `{names[0]}` in `attachments`)*" in text


def test_an_export_replaces_no_file_unless_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))
    portable, _ = asyncio.run(talk_in(Home(tmp_path, "test")))
    file = tmp_path / "mine.md"
    file.write_text("what I wrote")
    command = ["sessions", "export", portable.sessions[0].id, "--format", "markdown"]
    assert main([*command, "--output", str(file)]) != 0
    assert "is there already" in capsys.readouterr().err
    assert file.read_text() == "what I wrote"
    assert main([*command, "--output", str(file), "--force"]) == 0
    assert "; 1 session, 1 message." in file.read_text()


def test_exporting_from_the_command_line_takes_no_loop_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gateway.cli.exchange import write_file

    here = Home(tmp_path, "test")
    portable, names = asyncio.run(talk_in(here))
    files = (asyncio.run(exported_file(here, name, OWNER)) for name in names)
    write_file(tmp_path / "out", write_lines([portable], files))
    with (tmp_path / "out").open(encoding="utf-8") as file:
        assert [each.name for each in read_files(file)] == names
