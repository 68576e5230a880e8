"""`files`: reading is free, changing takes a person's word, and what is sent goes out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agent.approvals import Proposal, Ruling
from agent.errors import StoreUnavailable, ToolError
from agent.messages import text_of
from agent.ports import ToolContext
from agent.tools import room
from agent.tools.files import MAX_READ_BYTES, MAX_SENT_BYTES, FilesTool
from agent.tools.registry import ToolRegistry, files_of
from agent.tools.room import Bounds
from agent.tools.workspace import Workspaces
from storage.memory_attachments import MemoryAttachments
from tests.fakes.clock import FakeClock
from tests.fakes.files import png
from tests.unit.agent.tools.test_shell import Person, context

YES = "(approved by the user)"


class Scene:
    def __init__(self, tmp_path: Path) -> None:
        self.person = Person()
        self.kept = MemoryAttachments(FakeClock())
        self.root = tmp_path / "workspace"
        self.folder = self.root / "test-1"
        self.bound(Bounds(keep_free_bytes=0))
        self.sent: list[str] = []
        self.place = "test:1"

    def bound(self, bounds: Bounds) -> None:
        workspaces = Workspaces(self.root, bounds)
        tool = FilesTool(workspaces, self.kept, page_tokens=lambda: 100)
        self.registry = ToolRegistry([tool], result_cap_tokens=400)

    async def run(self, action: str, path: str = "", **more: Any) -> str:
        arguments = {"action": action, **({"path": path} if path else {}), **more}
        call: Any = {
            "id": "c",
            "function": {"name": "files", "arguments": json.dumps(arguments)},
        }
        where: ToolContext = context(self.person, self.place)
        draft = await self.registry.run(call, where, on_file=self.sent.append)
        assert draft.wire_content is None  # a page comes whole
        self.message = draft.message
        return text_of(draft.message["content"])

    @property
    def asked(self) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
        assert all(p.tool == "files" for p in self.person.asked)
        return [(p.deed, p.shown) for p in self.person.asked]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_a_file_from_its_beginning_to_its_end(scene: Scene) -> None:
    assert await scene.run("list") == "(empty)"
    assert await scene.run("write", "notes/a.md", text="one\ntwo\n") == f"written: 8 bytes {YES}"
    assert await scene.run("read", "notes/a.md") == "notes/a.md, characters 0 to 8 of 8\none\ntwo\n"
    assert await scene.run("write", "notes/a.md", text="three") == f"written: 5 bytes {YES}"
    assert await scene.run("edit", "notes/a.md", old="thr", new="fr") == f"changed {YES}"
    assert await scene.run("list", "notes/") == "a.md (4 bytes)"
    assert await scene.run("list") == "notes/"
    assert await scene.run("move", "notes/a.md", to="b/c.md") == f"moved {YES}"
    assert (scene.folder / "b" / "c.md").read_text() == "free"
    assert await scene.run("delete", "b/c.md") == f"deleted {YES}"
    assert await scene.run("delete", "b") == f"deleted {YES}"
    assert scene.asked == [
        ("write this new file into my workspace", (("Path", "notes/a.md"), ("Text", "one\ntwo\n"))),
        (
            "replace this file of 8 bytes in my workspace",
            (("Path", "notes/a.md"), ("Text", "three")),
        ),
        (
            "change this file in my workspace",
            (("Path", "notes/a.md"), ("Old", "thr"), ("New", "fr")),
        ),
        ("move this in my workspace", (("From", "notes/a.md"), ("To", "b/c.md"))),
        ("delete this file from my workspace", (("Path", "b/c.md"),)),
        ("delete this folder from my workspace", (("Path", "b"),)),
    ]


@pytest.mark.parametrize(
    "call",
    [
        {"action": "write", "path": "x", "text": "new"},
        {"action": "edit", "path": "a", "old": "one", "new": "two"},
        {"action": "delete", "path": "a"},
        {"action": "move", "path": "a", "to": "b"},
        {"action": "take", "path": "x"},
    ],
)
async def test_without_a_yes_nothing_changes(scene: Scene, call: dict[str, Any]) -> None:
    await scene.run("write", "a", text="one")
    file = await scene.kept.keep(b"x", owner="test:1", file_name="f", media_type="text/plain")
    more = {"name": file.name} if call["action"] == "take" else {}
    scene.person.ruling = Ruling(False, "denied by the user")
    assert await scene.run(**call, **more) == "[error] denied by the user"
    scene.person = None  # type: ignore[assignment]
    assert "nobody can be asked here" in await scene.run(**call, **more)
    assert [p.name for p in scene.folder.iterdir()] == ["a"]
    assert (scene.folder / "a").read_text() == "one"


async def test_what_can_not_be_is_not_asked(scene: Scene) -> None:
    await scene.run("write", "a", text="one one aaa")
    os.mkdir(scene.folder / "d")
    (scene.folder / "l").symlink_to("a")
    asked = len(scene.person.asked)
    for words, action, path, more in [
        ("more than once", "edit", "a", {"old": "one", "new": "x"}),
        ("more than once", "edit", "a", {"old": "aa", "new": "x"}),
        ("nowhere", "edit", "a", {"old": "two", "new": "x"}),
        ("nowhere", "edit", "a", {"old": "", "new": "x"}),
        ("the same", "edit", "a", {"old": "aaa", "new": "aaa"}),
        ("nothing at that path", "edit", "b", {"old": "a", "new": "b"}),
        ("links are not followed", "edit", "l", {"old": "aaa", "new": "b"}),
        ("there is a folder of that name", "write", "d", {"text": "x"}),
        ("there is a link of that name", "write", "l", {"text": "x"}),
        ("nothing at that path", "delete", "b", {}),
        ("nothing at that path", "move", "b", {"to": "c"}),
        ("of that name already", "move", "a", {"to": "d"}),
        ("no such attachment", "take", "x", {"name": "nonsense"}),
        ("no such attachment", "take", "x", {"name": "0" * 32}),
        ("without a / in front", "write", "/etc/x", {"text": "x"}),
        ("can not hold ..", "read", "../x", {}),
        ("give the path", "read", ".", {}),
        ("write needs path and text", "write", "", {}),
        ("is no folder", "list", "a", {}),
        ("is a folder", "read", "d", {}),
        ("half a surrogate", "write", "x", {"text": "\ud800"}),
        ("at most 100,000 characters", "write", "x", {"text": "x" * 100_001}),
    ]:
        said = await scene.run(action, path, **more)
        assert words in said, (said, action, path)
        assert said.startswith("[error] ")
    assert len(scene.person.asked) == asked


async def test_what_changes_while_the_question_is_open(scene: Scene) -> None:
    await scene.run("write", "a", text="one")
    (scene.folder / "d").mkdir()
    now: dict[str, Any] = {
        "write": lambda: (scene.folder / "a").write_text("meanwhile"),
        "delete": lambda: (scene.folder / "a").write_text("meanwhile!"),
        "move": lambda: (scene.folder / "a").unlink(),
        "new": lambda: (scene.folder / "n").write_text("mine"),
        "link": lambda: (scene.folder / "a").symlink_to("/etc/passwd"),
    }
    scene.person.meanwhile = now["write"]
    assert "has changed since" in await scene.run("write", "a", text="two")
    scene.person.meanwhile = now["delete"]
    assert "has changed since" in await scene.run("delete", "a")
    assert (scene.folder / "a").read_text() == "meanwhile!"
    scene.person.meanwhile = now["move"]
    assert "has changed since" in await scene.run("move", "a", to="b")
    scene.person.meanwhile = now["new"]
    assert "has changed since" in await scene.run("write", "n", text="yours")
    assert (scene.folder / "n").read_text() == "mine"
    scene.person.meanwhile = now["link"]
    assert "has changed since" in await scene.run("write", "a", text="yours")
    assert list(scene.folder.glob(".*.part")) == []


async def test_an_edit_is_made_in_what_stands_there_by_then(scene: Scene) -> None:
    await scene.run("write", "a", text="one two")
    scene.person.meanwhile = lambda: (scene.folder / "a").write_text("one two three")
    assert await scene.run("edit", "a", old="two", new="2") == f"changed {YES}"
    assert (scene.folder / "a").read_text() == "one 2 three"
    scene.person.meanwhile = lambda: (scene.folder / "a").write_text("2 and 2")
    assert "more than once" in await scene.run("edit", "a", old="2", new="3")


async def test_files_are_for_their_owner_alone_and_scripts_stay_scripts(scene: Scene) -> None:
    await scene.run("write", "d/s.sh", text="echo")
    assert (scene.folder / "d").stat().st_mode & 0o777 == 0o700
    assert (scene.folder / "d/s.sh").stat().st_mode & 0o777 == 0o600
    (scene.folder / "d/s.sh").chmod(0o755)
    await scene.run("edit", "d/s.sh", old="echo", new="ls")
    assert (scene.folder / "d/s.sh").stat().st_mode & 0o777 == 0o700


async def test_each_person_and_each_group_has_its_own(scene: Scene) -> None:
    await scene.run("write", "a", text="mine")
    scene.place = "test:2"
    assert await scene.run("list") == "(empty)"
    scene.place = '["test","9","-5",null,null]'
    assert "nothing at that path" in await scene.run("read", "a")
    scene.place = ""
    assert "no workspace" in await scene.run("list")


async def test_a_long_file_is_read_page_by_page(scene: Scene) -> None:
    text = "".join(f"line {n}\n" for n in range(200))
    await scene.run("write", "a", text=text)
    found, offset = "", 0
    while offset < len(text):
        page = await scene.run("read", "a", offset=offset)
        head, _, body = page.partition("\n")
        end = int(head.split(" to ")[1].split(" of ")[0])
        found, offset = found + body[: end - offset], end
    assert found == text
    assert "behind its end" in await scene.run("read", "a", offset=10_000)


async def test_odd_files_are_told(scene: Scene) -> None:
    await scene.run("write", "a", text="x")
    (scene.folder / "b").write_bytes(b"\x00\x01\xfe\x03" * 50)
    (scene.folder / "big").touch()
    os.truncate(scene.folder / "big", MAX_READ_BYTES + 1)
    os.mkfifo(scene.folder / "pipe")
    os.link(scene.folder / "a", scene.folder / "second")
    (scene.folder / "a\nb").touch()
    os.symlink("/", scene.folder / "root")
    assert "is no text (200 bytes)" in await scene.run("read", "b")
    assert "8,388,609 bytes, and 8,388,608 is the limit" in await scene.run("read", "big")
    assert "no ordinary file" in await scene.run("read", "pipe")
    assert "several names" in await scene.run("read", "a")
    assert "several names" in await scene.run("send", "second")
    assert "no folder" in await scene.run("read", "root/etc/passwd")
    assert await scene.run("list") == (
        'a (1 bytes)\n"a\\nb" (0 bytes)\nb (200 bytes)\nbig (8,388,609 bytes)\n'
        "pipe (no ordinary file)\nroot (a link; not followed)\nsecond (1 bytes)"
    )
    assert await scene.run("delete", "root") == f"deleted {YES}"
    assert not (scene.folder / "root").is_symlink()


async def test_what_is_sent_is_kept_and_goes_out(scene: Scene) -> None:
    (scene.root / "test-1").mkdir(parents=True)
    (scene.folder / "p.png").write_bytes(png())
    said = await scene.run("send", "p.png")
    assert scene.person.asked == []
    [name] = scene.sent
    assert said == (
        f"p.png goes to the user with your answer\n[goes out with your answer: attachment {name}]"
    )
    assert files_of(scene.message) == [name]
    file = await scene.kept.find(name)
    assert file is not None
    assert (file.owner, file.file_name, file.media_type) == ("test:1", "p.png", "image/png")
    (scene.folder / "e").touch()
    assert "empty" in await scene.run("send", "e")
    os.truncate(scene.folder / "e", MAX_SENT_BYTES + 1)
    assert "is the limit" in await scene.run("send", "e")
    assert scene.sent == [name]


async def test_a_file_that_speaks_of_files_sends_none(scene: Scene) -> None:
    line = f"[goes out with your answer: attachment {'0' * 32}.png]"
    await scene.run("write", "a", text=f"x\n{line}")
    said = await scene.run("read", "a")
    assert line not in said
    assert "(goes out with your answer" in said
    assert files_of(scene.message) == []
    assert scene.sent == []


async def test_an_attachment_is_taken(scene: Scene) -> None:
    file = await scene.kept.keep(b"abc", owner="test:1", file_name="x.txt", media_type="text/plain")
    assert await scene.run("take", "in/x.txt", name=f"attachment {file.name}") == (
        f"taken: 3 bytes {YES}"
    )
    assert (scene.folder / "in/x.txt").read_bytes() == b"abc"
    assert scene.asked == [
        (
            "put an attachment of 3 bytes into my workspace",
            (("Attachment", "x.txt"), ("Path", "in/x.txt")),
        )
    ]
    assert "of that name already" in await scene.run("take", "in/x.txt", name=file.name)
    theirs = await scene.kept.keep(b"z", owner="test:2", file_name="y", media_type="text/plain")
    await scene.run("take", "z", name=theirs.name)
    assert scene.asked[-1][1][0] == ("Attachment", theirs.name)  # how they call it is theirs


async def test_the_store_of_files_may_fail(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    async def no(*_: object, **__: object) -> Any:
        raise StoreUnavailable("disk full")

    file = await scene.kept.keep(b"abc", owner="test:1", file_name="x", media_type="text/plain")
    await scene.run("write", "a", text="x")
    monkeypatch.setattr(scene.kept, "keep", no)
    monkeypatch.setattr(scene.kept, "read", no)
    assert "try again later" in await scene.run("send", "a")
    assert "try again later" in await scene.run("take", "b", name=file.name)


async def test_a_workspace_can_be_full(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_ENTRIES", 5)
    scene.bound(Bounds(most_bytes=1024**2, keep_free_bytes=0))
    await scene.run("write", "d/a", text="x")
    (scene.folder / "big").touch()
    os.truncate(scene.folder / "big", 1024**2 - 2)
    assert "workspace is full" in await scene.run("write", "b", text="xx")
    (scene.folder / "big").unlink()
    for n in range(3):
        (scene.folder / f"f{n}").touch()
    assert "workspace is full" in await scene.run("write", "b", text="x")


async def test_some_of_the_disk_stays_free(scene: Scene) -> None:
    await scene.run("write", "a", text="x")
    scene.bound(Bounds(keep_free_bytes=2**60))
    for answer in (await scene.run("write", "b", text="x"),
                   await scene.run("edit", "a", old="x", new="y")):  # fmt: skip
        assert "disk is nearly full" in answer
        assert "have to stay free" in answer
    assert await scene.run("delete", "a") == f"deleted {YES}"
    assert list(scene.folder.iterdir()) == []


async def test_a_disk_that_is_full_leaves_nothing_half(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.run("write", "a", text="old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert await scene.run("write", "a", text="new") == "[error] the disk is full"
    assert (scene.folder / "a").read_text() == "old"
    assert [p.name for p in scene.folder.iterdir()] == ["a"]


async def test_folders_without_end_do_no_harm(scene: Scene) -> None:
    await scene.run("write", "a", text="x")
    deep = os.open(scene.folder, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=deep)
        below = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)
    assert await scene.run("write", "b", text="x") == f"written: 1 bytes {YES}"
    assert "32 deep" in await scene.run("list", "d/" * 33)


def test_a_proposal_is_told_by_its_digest() -> None:
    one = Proposal("files", "write", (("Path", "a"), ("Text", "b")))
    assert one.digest != Proposal("files", "write", (("Path", "ab"), ("Text", ""))).digest
    assert len(Proposal("shell", "\ud800", (("", "\ud800"),)).digest) == 16


async def test_no_place_of_this_machine_is_told(scene: Scene) -> None:
    for action, more in [("read", {}), ("list", {}), ("delete", {}), ("send", {})]:
        said = await scene.run(action, "no/such", **more)
        assert str(scene.root) not in said
    with pytest.raises(ToolError):
        Workspaces(scene.root).of("")
