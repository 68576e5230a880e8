"""Conversations as files from the command line, with and without a daemon; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.harness import World, run_command

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]


async def test_a_conversation_moves_to_another_home(world: World, tmp_path: Path) -> None:
    world.configure()
    await world.run("telegram")
    said = await run_command(world.home, "chat", stdin="remember the blue door\n")
    assert said.returncode == 0, said.stderr
    (session_id,) = {str(row["session_id"]) for row in world.database().originals("user")}
    file, elsewhere = tmp_path / "talk.jsonl", tmp_path / "elsewhere"

    exported = await run_command(
        world.home, "sessions", "export", session_id, "--output", str(file)
    )
    assert exported.returncode == 0, exported.stderr
    assert file.stat().st_mode & 0o777 == 0o600

    # Without a daemon, into an empty home; then through the one that is running here.
    taken = await run_command(elsewhere, "sessions", "import", str(file), "--json")
    assert taken.returncode == 0, taken.stderr
    assert json.loads(taken.stdout)[0]["tip_session_id"] == session_id
    again = await run_command(elsewhere, "sessions", "export", session_id)
    assert again.stdout == file.read_text(encoding="utf-8")

    twice = await run_command(elsewhere, "sessions", "import", str(file))
    assert twice.returncode == 1
    assert "is here already" in twice.stderr

    here = await run_command(world.home, "sessions", "import", str(file))
    assert here.returncode == 1
    assert "is here already" in here.stderr
    other = tmp_path / "other.jsonl"
    await run_command(elsewhere, "chat", stdin="something else\n")
    tips = json.loads((await run_command(elsewhere, "sessions", "list", "--json")).stdout)
    other_id = next(info["id"] for info in tips if info["id"] != session_id)
    await run_command(elsewhere, "sessions", "export", other_id, "--output", str(other))
    through = await run_command(
        world.home, "sessions", "import", str(other), "--owner", "telegram:123", "--json"
    )
    assert through.returncode == 0, through.stderr
    found = json.loads(
        (await run_command(world.home, "sessions", "search", "something", "--json")).stdout
    )
    assert {hit["session_id"] for hit in found} == {other_id}

    page = await run_command(world.home, "sessions", "export", session_id, "--format", "markdown")
    assert "remember the blue door" in page.stdout
    assert not list(world.home.glob(".import-*"))


async def test_what_can_not_be_taken_in_says_why(world: World, tmp_path: Path) -> None:
    world.configure()
    await world.run("telegram")
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text('{"posthouse_export":1}\n{"type":"conversation"}\n', encoding="utf-8")
    for home in (world.home, tmp_path / "empty"):
        cut = await run_command(home, "sessions", "import", str(wrong))
        assert cut.returncode == 1
        assert "cut off" in cut.stderr
    missing = await run_command(world.home, "sessions", "import", str(tmp_path / "none"))
    assert missing.returncode == 1
    assert "can not be read" in missing.stderr
    owner = await run_command(world.home, "sessions", "import", str(wrong), "--owner", "me")
    assert "telegram:123456" in owner.stderr
    unknown = await run_command(world.home, "sessions", "export", "s_none")
    assert unknown.returncode == 1
    assert "Traceback" not in unknown.stderr
