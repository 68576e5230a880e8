"""Whole turns with tools that act: asked, allowed or not, run, answered; stopped, cut off."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from agent.loop import TurnLoop
from agent.messages import text_of
from agent.sessions import SessionPrefix
from agent.tools.clock import CurrentTimeTool
from agent.tools.command_runner import descendants
from agent.tools.commands import LocalRunner
from agent.tools.files import FilesTool
from agent.tools.registry import ToolRegistry
from agent.tools.room import Bounds
from agent.tools.shell import ShellTool
from agent.tools.workspace import Workspaces
from gateway import approval_text as words
from gateway import texts
from gateway.config.models import Tools
from gateway.wiring.tools import bounds_of
from storage.memory_attachments import MemoryAttachments
from tests.fakes.clock import FakeClock
from tests.fakes.platform import inbound
from tests.fakes.scripted_model import ScriptedModel, answer, call
from tests.unit.gateway.rig import Rig
from tests.unit.gateway.test_approvals import Watched

KEY = '["fake","900","111",null,"111"]'
FIRST, SECOND = "300001", "300002"
ACTING = ("files", "shell")


class Scene(Rig):
    """The rig with the real loop, real tools and a scripted model."""

    def __init__(self, clock: FakeClock, home: Path) -> None:
        self.model = ScriptedModel()
        self.home = home
        self.on: tuple[str, ...] = ACTING
        self.attachments = MemoryAttachments(clock)
        self.ids = iter(range(1, 1000))
        super().__init__(clock, platform=Watched(limit=3000, now=clock.monotonic))

    def boot(self) -> None:
        workspaces = Workspaces(self.home / "workspace")
        acting: dict[str, Any] = {
            "files": FilesTool(workspaces, self.attachments, page_tokens=lambda: 1000),
            "shell": ShellTool(LocalRunner(), workspaces),
        }
        clock_tool = CurrentTimeTool(self.clock)
        tools = ToolRegistry([clock_tool, *(acting[name] for name in self.on)])
        if hasattr(self, "store"):
            self.prefix = SessionPrefix("fake", "scripted", "be kind", tools.schemas)
            self.agent_loop = TurnLoop(store=self.store, model=self.model, tools=tools)
        super().boot()

    def begin(self) -> None:
        self.prefix = SessionPrefix("fake", "scripted", "be kind")
        self.boot()

    async def say(self, text: str) -> None:
        await self.intake.receive(inbound(text, message_id=str(next(self.ids))))
        await self.settle()

    async def until(self, wanted: Callable[[], bool]) -> None:
        """Threads and processes know no fake clock."""
        for _ in range(1500):
            await asyncio.sleep(0.005)
            if wanted():
                return
        raise AssertionError(self.shown)

    async def until_said(self, text: str) -> None:
        await self.until(lambda: any(text in shown for shown in self.shown))

    @property
    def shown(self) -> list[str]:
        return [sent.text for sent in self.platform.chat]

    def script(self, *items: Any) -> None:
        self.model.script.extend(items)

    @property
    def folder(self) -> Path:
        return self.home / "workspace" / "fake-111"

    async def results(self) -> list[str]:
        return [text for role, text in await self.rows(KEY) if role == "tool"]


@pytest.fixture
async def scene(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(clock, tmp_path)
    scene.begin()
    yield scene
    scene.model.verify()
    for _ in range(500):  # what was cut off ends soon, and all that it had started
        if len(asyncio.all_tasks()) == 1 and not descendants(os.getpid()):
            break
        await asyncio.sleep(0.01)


def run(command: str) -> Any:
    return answer("", call("shell", {"command": command}))


async def test_ask_press_run_answer(scene: Scene) -> None:
    scene.script(run("echo 6 times 7 is $((6*7)) > a; cat a"), "it is 42")
    await scene.say("how much?")
    await scene.until_said("May I run this command?")
    assert not scene.folder.exists()
    await scene.say(f"/approve {FIRST}")
    await scene.until_said("it is 42")
    assert scene.shown[1:] == [words.APPROVED, "it is 42"]
    [result] = await scene.results()
    assert result.startswith("exit code 0 after ")
    assert result.endswith("(approved by the user)\n6 times 7 is 42")


async def test_a_no_reaches_the_model_and_nothing_runs(scene: Scene) -> None:
    scene.script(run("touch ran"), "then not")
    await scene.say("go")
    await scene.until_said("May I")
    await scene.say("/deny not on this server")
    await scene.until_said("then not")
    [result] = await scene.results()
    assert result.startswith("[error] denied by the user, who says: not on this server.")
    assert not scene.folder.exists()


async def test_nobody_answers(scene: Scene) -> None:
    scene.script(run("touch ran"), run("touch ran"), "nobody was there")
    await scene.say("go")
    await scene.until_said("May I")
    await scene.clock.advance(301)
    await scene.until_said("nobody was there")
    assert scene.shown[1] == words.expired("run this command", 5)
    first, second = await scene.results()
    assert "not answered within 5 minutes" in first
    assert "not asked" in second
    assert not scene.folder.exists()


async def test_a_stop_while_it_asks_and_while_it_runs(scene: Scene) -> None:
    scene.script(run("touch ran"), run("echo $$ > pid; sleep 60"), "good morning")
    await scene.say("go")
    await scene.until_said("May I")
    await scene.say("/stop")
    assert scene.shown[-1] == texts.STOPPED
    await scene.say("again")
    await scene.until_said(SECOND)
    await scene.say(f"/approve {SECOND}")
    await scene.until(lambda: (scene.folder / "pid").exists() and pid_in(scene.folder) > 0)
    pid = pid_in(scene.folder)
    await scene.say("/stop")
    await scene.until(lambda: scene.shown.count(texts.STOPPED) == 2)
    await scene.until(lambda: not Path(f"/proc/{pid}").exists())
    assert not (scene.folder / "ran").exists()
    await scene.say("hello")
    await scene.until_said("good morning")
    assert all("interrupted" in result for result in await scene.results())


def pid_in(folder: Path) -> int:
    text = (folder / "pid").read_text().strip()
    return int(text) if text else 0


async def test_a_restart_while_it_asks(scene: Scene) -> None:
    scene.script(run("touch ran"))
    await scene.say("go")
    await scene.until_said("May I")
    await scene.stop()
    scene.boot()
    scene.script(run("touch again"), "all ready")
    await scene.recovery.run()
    await scene.until_said(SECOND)
    # The call that was cut off is answered as such, and is not run by anybody's late yes.
    await scene.say(f"/approve {FIRST}")
    assert scene.shown[-1] == words.OVER
    [stub] = [m for m in scene.model.requests[-1].messages if m["role"] == "tool"]
    assert "interrupted" in text_of(stub["content"])
    await scene.say(f"/approve {SECOND}")
    await scene.until_said("all ready")
    assert [p.name for p in scene.folder.iterdir()] == ["again"]


async def test_a_restart_in_the_middle_of_a_command_runs_it_once(scene: Scene) -> None:
    scene.script(run("echo x >> ran; sleep 60"))
    await scene.say("go")
    await scene.until_said("May I")
    await scene.say("/approve")
    await scene.until(lambda: (scene.folder / "ran").exists())
    scene.kill()
    await scene.settle()
    scene.boot()
    scene.script("I do not know whether it is done")
    await scene.recovery.run()
    await scene.until_said("I do not know")
    assert (scene.folder / "ran").read_text() == "x\n"


async def test_a_file_is_written_after_a_yes_and_sent_with_the_answer(scene: Scene) -> None:
    scene.script(
        answer("", call("files", {"action": "write", "path": "a.txt", "text": "hello"})),
        answer("", call("files", {"action": "send", "path": "a.txt"})),
        "here it is",
    )
    await scene.say("go")
    await scene.until_said("May I write this new file into my workspace?")
    assert "Path:\n```\na.txt\n```\nText:\n```\nhello\n```" in scene.shown[0]
    await scene.say("/approve")
    await scene.until_said("here it is")
    assert (await scene.results())[0] == "written: 5 bytes (approved by the user)"
    reply = [d for d in scene.platform.planned if d.text == "here it is"]
    assert [len(d.files) for d in reply] == [1]
    assert await scene.attachments.read(reply[0].files[0]) == b"hello"


async def test_a_file_is_sent_also_if_the_answer_was_cut_off(scene: Scene) -> None:
    await scene.say("/new")
    scene.folder.mkdir(parents=True)
    (scene.folder / "a.txt").write_text("hello")
    scene.script(
        answer("", call("files", {"action": "send", "path": "a.txt"})),
        run("true"),
    )
    await scene.say("go")
    await scene.until_said("May I run")
    await scene.stop()
    scene.boot()
    scene.script("here it is")
    await scene.recovery.run()
    await scene.until_said("here it is")
    [reply] = [d for d in scene.platform.planned if d.text == "here it is"]
    assert len(reply.files) == 1
    # A later turn does not send it again.
    scene.script("you are welcome")
    await scene.say("thanks")
    await scene.until_said("you are welcome")
    [later] = [d for d in scene.platform.planned if d.text == "you are welcome"]
    assert later.files == ()


async def test_a_tool_that_is_switched_reaches_a_living_conversation(scene: Scene) -> None:
    scene.script("one")
    await scene.say("a")
    await scene.until_said("one")
    scene.on = ()
    scene.boot()
    scene.script(run("touch ran"), "gone")
    await scene.say("b")
    await scene.until_said("gone")
    scene.on = ("files",)
    scene.boot()
    scene.script("three", "four")
    await scene.say("c")
    await scene.until_said("three")
    await scene.say("d")
    await scene.until_said("four")
    offered = [tuple(t.name for t in r.tools) for r in scene.model.requests]
    assert offered == [
        ("current_time", "files", "shell"),
        ("current_time",),
        ("current_time",),
        ("current_time", "files"),
        ("current_time", "files"),
    ]
    [result] = await scene.results()
    assert "no longer available" in result
    conversation = await scene.store.conversation_for_key(KEY)
    lineage = await scene.store.lineage(conversation.tip_session_id)
    assert [s.end_reason for s in lineage] == ["switch", "switch", None]


def test_how_much_room_there_is_stands_in_the_configuration() -> None:
    assert bounds_of(Tools()) == Bounds()
    wanted = Tools(workspace_mb=7, keep_free_mb=3)
    assert bounds_of(wanted) == Bounds(7 * 1024**2, 3 * 1024**2)
