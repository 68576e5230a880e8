"""What an operator types: chat, demo, status, sessions, lineage; with and without a daemon."""

from __future__ import annotations

import json
import re
import time

import pytest

from tests.acceptance.harness import (
    TelegramChat,
    World,
    answered,
    eventually,
    run_command,
    settled,
)

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]


async def test_chat_through_a_pipe_without_a_daemon(world: World) -> None:
    """No token, no key, no config file: the offline model answers, and the end of input ends it."""
    result = await run_command(world.home, "chat", stdin="hello\n")
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    assert "Traceback" not in result.stderr
    database = world.database()
    assert [row["content"] for row in database.originals("user")] == ["hello"]
    assert database.unsettled() == {}


async def test_who_wants_to_leave_hears_how(world: World) -> None:
    result = await run_command(world.home, "chat", stdin="/exit\n/quit\n")
    assert result.stdout.count("Ctrl-D ends the chat.") == 2, result.stderr


async def test_run_through_a_pipe_is_a_chat_too(world: World) -> None:
    """As in a clean clone: the console is the only platform, and end of input ends it with 0."""
    result = await run_command(world.home, "run", stdin="hello\nwhat time is it\n")
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    assert len(world.database().originals("user")) == 2
    assert "nothing left to do: no chat platform is configured" in result.stderr


async def test_a_script_gets_its_answers_in_order(world: World) -> None:
    """A command is answered at once, but not before the answer to the line before it."""
    said = (await run_command(world.home, "chat", stdin="hello\n/whoami\n")).stdout
    assert 0 <= said.index("Hello!") < said.index("console:")
    world.configure()
    await world.run("telegram")
    said = (await run_command(world.home, "chat", stdin="hello\n/whoami\n")).stdout
    assert 0 <= said.index("reply to: hello") < said.rindex("console:")


async def test_chat_attaches_to_the_running_daemon(world: World) -> None:
    world.configure()
    daemon = await world.run("telegram")
    result = await run_command(world.home, "chat", stdin="first\nsecond\n")
    assert result.returncode == 0, result.stderr
    first, second = (result.stdout.find(f"reply to: {word}") for word in ("first", "second"))
    assert 0 <= first < second
    assert daemon.exit_code is None
    again = await run_command(world.home, "chat", stdin="third\n")
    assert again.returncode == 0
    assert "reply to: third" in again.stdout
    assert "first" not in again.stdout


async def test_chat_without_any_input_ends(world: World) -> None:
    result = await run_command(world.home, "chat", stdin="")
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""


async def test_the_demo_shows_it_within_twenty_seconds(world: World) -> None:
    """A compression, hygiene after a restart, a recall from the first session, and the lineage."""
    for once_more in (True, False):
        begun = time.monotonic()
        result = await run_command(world.home, "demo", seconds=60.0)
        seconds = time.monotonic() - begun
        print(f"demo: {seconds:.1f} s")
        assert result.returncode == 0, result.stderr
        # Again where the machine did something else meanwhile: it needs a second of it.
        if seconds < 20.0 or not once_more:
            break
    assert seconds < 20.0
    said = result.stdout
    grown = [said.find(f"session 1: {n} messages") for n in (2, 6, 20)]
    assert -1 < grown[0] < grown[1] < grown[2]
    half, restarted = (
        said.index("== Half of the window is full"),
        said.index("is stopped, and start"),
    )
    net = said.index("== Hygiene, before the turn")
    assert grown[2] < half < said.index("session 2 goes on") < restarted
    assert restarted < net < said.index("session 3 goes on")
    numbers = "".join(char for char in said if char != ",")
    for notice, bar in re.findall(r"\((\d+)/\d+ tokens;[^#]*?prompt (\d+) tokens", numbers):
        assert notice == bar, "what is told of the same prompt is the same number"
    shrunk = re.findall(r"would have had (\d+) tokens[^#]*? messages: (\d+) tokens", numbers)
    assert len(shrunk) == 2
    for (before, after), limit in zip(shrunk, (0.5 * 8000, 0.85 * 8000), strict=True):
        assert limit <= int(before) > int(after)
        assert f"prompt {after} tokens" in numbers
    asked = said.rindex("you: recall")
    found = " ".join(said[said.index("Found again: “", asked) :].split())
    assert re.match(r"Found again: “[^”]*locker[^”]*BLUE-HERON-1183[^”]*”.* session 1\)", found), (
        "what the first session was told is found from the last one"
    )
    lineage = said[said.index("This is the lineage") :]
    assert re.search(r"^s_\w+ .* compression .*\n(?:s_.*\n)*s_\w+ .* live ", lineage, re.MULTILINE)
    assert len(said.splitlines()) < 115
    assert "Traceback" not in result.stderr
    assert not (world.home / "state.db").exists(), "the demo leaves the home alone"


async def test_status(world: World) -> None:
    nobody = await run_command(world.home, "status", "--json")
    assert nobody.returncode == 1
    assert json.loads(nobody.stdout)["ready"] is False

    world.configure()
    daemon = await world.run()
    result = await run_command(world.home, "status", "--json")
    assert result.returncode == 0, result.stderr
    status = json.loads(result.stdout)
    assert status["home"] == str(world.home)
    assert status["ready"] is True
    assert status["platforms"]["telegram"] == {"state": "running", "reason": ""}
    assert status["platforms"]["discord"]["state"] == "running"
    assert re.match(r"\d+\.\d+", status["version"])
    for_people = await run_command(world.home, "status")
    assert for_people.returncode == 0
    assert "ready" in for_people.stdout

    await daemon.kill()
    after = await run_command(world.home, "status", "--json")
    assert after.returncode == 1


async def test_listings_while_the_daemon_runs(world: World) -> None:
    """Sessions, search and lineage read the store beside its one writer."""
    world.configure()
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    count = 0
    while not world.database().path.exists() or not any(
        len(chain) >= 3 for chain in world.database().chains().values()
    ):
        count += 1
        assert count < 60
        chat.say(f"number {count}: {'the quartz lighthouse stands in the fog ' * 25}")
        await answered(chat, f"reply to: number {count}:", daemon)

    listed = json.loads((await run_command(world.home, "sessions", "list", "--json")).stdout)
    chain = next(iter(world.database().chains().values()))
    assert {s["id"] for s in listed} == set(chain)
    for any_id in (chain[0], chain[-1]):
        result = await run_command(world.home, "lineage", any_id, "--json")
        lineage = json.loads(result.stdout)
        assert [s["id"] for s in lineage] == chain
        assert set(lineage[0]) == {
            "id", "parent_session_id", "link", "end_reason", "message_count", "tokens",
        }  # fmt: skip
        assert [s["end_reason"] for s in lineage[:-1]] == ["compression"] * (len(chain) - 1)
        assert lineage[-1]["end_reason"] is None
    found = json.loads(
        (await run_command(world.home, "sessions", "search", "quartz lighthouse", "--json")).stdout
    )
    assert found
    assert set(found[0]) == {"message_id", "session_id", "role", "snippet", "score"}
    originals = {
        row["id"] for role in ("user", "assistant") for row in world.database().originals(role)
    }
    assert {hit["message_id"] for hit in found} <= originals
    shown = await run_command(world.home, "sessions", "show", chain[-1], "--json")
    rows = json.loads(shown.stdout)["messages"]
    assert [r["id"] for r in rows] == [r["id"] for r in world.database().active(chain[-1])]
    unknown = await run_command(world.home, "lineage", "ses_unknown")
    assert unknown.returncode == 1
    assert "Traceback" not in unknown.stderr
    assert daemon.exit_code is None


async def test_commands_in_the_chat(world: World) -> None:
    """/status, /lineage, /compress, /new, /help: each answered in words, in order."""
    # Never by itself: the only compression is the one that is asked for.
    world.configure(compression={"background": False, "threshold": 0.7})
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    for n in range(10):
        chat.say(f"part {n}: {'a long way to the next posthouse ' * 20}")
    await answered(chat, "reply to: part 9", daemon)
    for command in ("/status", "/lineage", "/help", "/compress the way", "/new"):
        before = len(chat.shown())
        chat.say(command)
        await eventually(
            lambda b=before: len(chat.shown()) > b,  # type: ignore[misc]
            30.0,
            f"an answer to {command}",
            alive=daemon,
        )
    chat.say("after all of them")
    await answered(chat, "reply to: after all of them", daemon)
    database = world.database()
    await settled(world)
    conversations = database.conversations()
    assert len(conversations) == 2
    assert sorted(len(chain) for chain in database.chains().values()) == [1, 2]
    (old,) = [chain for chain in database.chains().values() if len(chain) == 2]
    (done,) = [line for line in daemon.log_lines() if line["message"] == "compression done"]
    told = [line for line in daemon.log_lines() if line["message"] == "command"]
    assert [line["command"] for line in told] == ["status", "lineage", "help", "compress", "new"]
    # Where each was given: by the old conversation's id all of it is found in the journal.
    assert {line["conversation_id"] for line in [*told, done]} == {told[0]["conversation_id"]}
    assert [line["session_id"] for line in told] == [old[0]] * 4 + [old[1]]
