"""The loopback Discord server against its own rules, by hand and through the real discord.py."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import pathlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from tests.fakes.discord_server import ControlError, DiscordControl, DiscordServer, discord_py_at
from tests.fakes.discord_server.pointing import discord
from tests.fakes.discord_server.state import Channel, Snowflakes, User

TOKEN = "loopback-token"
GUILD_INTENTS = 1 << 0 | 1 << 9 | 1 << 12 | 1 << 15  # guilds, both kinds of messages, content


class Now:
    """A clock that stands where the test puts it."""

    def __init__(self) -> None:
        self.at = 1_800_000_000.0

    def __call__(self) -> float:
        return self.at


class Rest:
    """Requests as the bot would send them, without a library in between."""

    def __init__(self, server: DiscordServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.session = session

    async def __call__(
        self, method: str, path: str, body: Any = None, *, token: str | None = "", **query: Any
    ) -> tuple[int, Any]:
        """``token``: "": the right one, where one belongs; None: none."""
        if token == "":
            token = None if path.startswith(("/interactions/", "/webhooks/")) else TOKEN
        headers = {} if token is None else {"Authorization": f"Bot {token}"}
        url = self.server.api_base + path
        async with self.session.request(
            method, url, json=body, headers=headers, params=query
        ) as answer:
            if answer.status == 204:
                return 204, None
            if answer.content_type == "application/json":
                assert answer.headers["Content-Type"] == "application/json"
            return answer.status, json.loads(await answer.text())

    async def error(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, int]:
        status, answer = await self(method, path, body, **more)
        return status, answer["code"]


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
async def server(now: Now) -> AsyncIterator[DiscordServer]:
    async with DiscordServer(TOKEN, clock=now) as running:
        yield running


@pytest.fixture
async def rest(server: DiscordServer) -> AsyncIterator[Rest]:
    async with aiohttp.ClientSession() as session:
        yield Rest(server, session)


@pytest.fixture
def alice(server: DiscordServer) -> User:
    return server.add_user("alice", id_=111)


@pytest.fixture
def channel(server: DiscordServer, alice: User) -> Channel:
    guild = server.add_guild("home")
    server.add_member(guild, alice)
    return server.add_channel(guild, "general")


# -- REST, by hand -------------------------------------------------------------------------------


async def test_rest_asks_for_the_right_token(rest: Rest, channel: Channel) -> None:
    for token in (None, "wrong"):
        assert await rest.error("GET", "/users/@me", token=token) == (401, 0)
        path = f"/channels/{channel.id}/messages"
        assert await rest.error("POST", path, {"content": "hi"}, token=token) == (401, 0)
    assert rest.server.sent == []


async def test_account_and_application(rest: Rest) -> None:
    status, me = await rest("GET", "/users/@me")
    assert (status, me["id"], me["bot"]) == (200, str(rest.server.bot.id), True)
    _, application = await rest("GET", "/oauth2/applications/@me")
    assert application["id"] == me["id"]
    assert application["flags"] & 1 << 19
    assert {"name", "icon", "description", "bot_public", "verify_key", "owner", "team"} <= set(
        application
    )
    _, gateway = await rest("GET", "/gateway", token=None)
    assert gateway == {"url": rest.server.gateway_url}
    _, info = await rest("GET", "/gateway/bot")
    assert info["shards"] == 1
    assert info["session_start_limit"]["max_concurrency"] == 1
    assert await rest.error("GET", "/gateway/bot", token=None) == (401, 0)
    assert await rest.error("GET", "/nothing/here") == (404, 0)
    assert await rest.error("PUT", "/users/@me") == (405, 0)


async def test_channel_errors(rest: Rest, channel: Channel) -> None:
    server = rest.server
    path = f"/channels/{channel.id}"
    assert await rest.error("GET", "/channels/1") == (404, 10003)
    assert await rest.error("GET", "/channels/general") == (400, 50035)
    assert await rest.error("POST", "/channels/1/messages", {"content": "x"}) == (404, 10003)
    assert await rest.error("POST", "/channels/1/typing") == (404, 10003)
    server.deny(channel, "send")
    assert await rest.error("POST", f"{path}/messages", {"content": "x"}) == (403, 50013)
    assert await rest.error("POST", f"{path}/typing") == (403, 50013)
    server.deny(channel, "view")
    assert await rest.error("POST", f"{path}/messages", {"content": "x"}) == (403, 50001)
    assert await rest.error("GET", path) == (403, 50001)
    server.allow(channel, "view", "send")
    assert (await rest("POST", f"{path}/messages", {"content": "x"}))[0] == 200
    server.kick_bot(channel.guild_id or 0)
    assert await rest.error("GET", path) == (403, 50001)
    server.remove_channel(channel)
    assert await rest.error("GET", path) == (404, 10003)


@pytest.mark.parametrize("body", [{}, {"content": ""}, {"content": " \n\t"}, {"content": None}])
async def test_empty_message(rest: Rest, channel: Channel, body: dict[str, Any]) -> None:
    assert await rest.error("POST", f"/channels/{channel.id}/messages", body) == (400, 50006)
    assert rest.server.visible(channel) == []


@pytest.mark.parametrize("letter", ["x", "ü", "漢", "😀"])
async def test_length_is_counted_in_code_points(rest: Rest, channel: Channel, letter: str) -> None:
    path = f"/channels/{channel.id}/messages"
    assert (await rest("POST", path, {"content": letter * 2000}))[0] == 200
    status, answer = await rest("POST", path, {"content": letter * 2001})
    assert (status, answer["code"], answer["message"]) == (400, 50035, "Invalid Form Body")
    reason = answer["errors"]["content"]["_errors"][0]
    assert reason == {
        "code": "BASE_TYPE_MAX_LENGTH",
        "message": "Must be 2000 or fewer in length.",
    }
    message = rest.server.sent[0].id
    long = {"content": letter * 2001}
    assert await rest.error("PATCH", f"{path}/{message}", long) == (400, 50035)


async def test_wrong_bodies(rest: Rest, channel: Channel) -> None:
    path = f"/channels/{channel.id}/messages"
    assert await rest.error("POST", path, {"content": 7}) == (400, 50035)
    assert await rest.error("POST", path, ["content"]) == (400, 50109)
    url = rest.server.api_base + path
    headers = {"Authorization": f"Bot {TOKEN}", "Content-Type": "application/json"}
    async with rest.session.post(url, data="{", headers=headers) as answer:
        assert (answer.status, (await answer.json())["code"]) == (400, 50109)


async def test_white_space_at_the_ends_is_cut(rest: Rest, channel: Channel) -> None:
    await rest("POST", f"/channels/{channel.id}/messages", {"content": "\n  a\n b \n"})
    assert rest.server.texts(channel) == ["a\n b"]
    assert rest.server.sent[0].content == "\n  a\n b \n"


async def test_edit_and_delete(rest: Rest, channel: Channel, alice: User) -> None:
    server, path = rest.server, f"/channels/{channel.id}/messages"
    theirs = server.user_says(channel, alice, "mine")
    _, made = await rest("POST", path, {"content": "one"})
    own = f"{path}/{made['id']}"
    status, edited = await rest("PATCH", own, {"content": "two"})
    assert (status, edited["content"]) == (200, "two")
    assert edited["edited_timestamp"] is not None
    assert server.sent[0].edits == ["two"]
    assert server.sent[0].text == "two"
    assert server.texts(channel) == ["mine", "two"]
    assert await rest.error("PATCH", own, {"content": ""}) == (400, 50006)
    assert await rest.error("PATCH", f"{path}/{theirs.id}", {"content": "x"}) == (403, 50005)
    assert await rest.error("PATCH", f"{path}/5", {"content": "x"}) == (404, 10008)
    assert await rest.error("DELETE", f"{path}/5") == (404, 10008)
    assert await rest.error("DELETE", f"{path}/{theirs.id}") == (403, 50013)
    assert await rest("DELETE", own) == (204, None)
    assert await rest.error("GET", own) == (404, 10008)
    assert await rest.error("PATCH", own, {"content": "x"}) == (404, 10008)
    assert server.sent[0].deleted
    assert server.texts(channel) == ["mine"]
    dm = server.user_dms(alice, "psst")
    assert await rest.error("DELETE", f"/channels/{dm.channel_id}/messages/{dm.id}") == (403, 50003)


async def test_managers_may_delete_what_others_wrote(
    rest: Rest, channel: Channel, alice: User
) -> None:
    guild = channel.guild_id or 0
    role = rest.server.add_role(guild, "manager", permissions=1 << 13)
    rest.server.add_member(guild, rest.server.bot, roles=[role])
    message = rest.server.user_says(channel, alice, "x")
    path = f"/channels/{channel.id}/messages/{message.id}"
    assert await rest("DELETE", path) == (204, None)


async def test_nonce_repeats_make_no_second_message(rest: Rest, now: Now, channel: Channel) -> None:
    path = f"/channels/{channel.id}/messages"
    body = {"content": "once", "nonce": "part-1", "enforce_nonce": True}
    _, first = await rest("POST", path, body)
    now.at += 100
    _, second = await rest("POST", path, body | {"content": "another text"})
    assert second["id"] == first["id"]
    assert second["content"] == "once"
    assert second["nonce"] == "part-1"
    assert rest.server.texts(channel) == ["once"]
    assert rest.server.sent[0].repeats == 1
    _, other = await rest("POST", path, body | {"nonce": "part-2"})
    assert other["id"] != first["id"]
    await rest("DELETE", f"{path}/{other['id']}")
    again = await rest.error("POST", path, body | {"nonce": "part-2"})
    assert again == (404, 10008)
    now.at += 81
    _, later = await rest("POST", path, body)
    assert later["id"] not in (first["id"], other["id"])


async def test_nonce_is_only_kept_when_it_is_enforced(rest: Rest, channel: Channel) -> None:
    path = f"/channels/{channel.id}/messages"
    for _ in range(2):
        await rest("POST", path, {"content": "twice", "nonce": "same"})
    assert rest.server.texts(channel) == ["twice", "twice"]


async def test_nonce_belongs_to_a_channel(rest: Rest, channel: Channel) -> None:
    other = rest.server.add_channel(channel.guild_id or 0, "other")
    body = {"content": "x", "nonce": "n", "enforce_nonce": True}
    for place in (channel, other):
        await rest("POST", f"/channels/{place.id}/messages", body)
    assert len(rest.server.sent) == 2


async def test_nonce_has_a_length(rest: Rest, channel: Channel) -> None:
    path = f"/channels/{channel.id}/messages"
    long = {"content": "x", "nonce": "n" * 26, "enforce_nonce": True}
    assert await rest.error("POST", path, long) == (400, 50035)
    assert await rest.error("POST", path, {"content": "x", "nonce": [1]}) == (400, 50035)
    assert (await rest("POST", path, {"content": "x", "nonce": "n" * 25}))[0] == 200
    assert (await rest("POST", path, {"content": "x", "nonce": 12}))[1]["nonce"] == 12


async def test_replies(rest: Rest, channel: Channel, alice: User) -> None:
    server, path = rest.server, f"/channels/{channel.id}/messages"
    question = server.user_says(channel, alice, "?")
    reference = {"message_id": str(question.id), "channel_id": str(channel.id)}
    _, answer = await rest("POST", path, {"content": "!", "message_reference": reference})
    assert answer["type"] == 19
    assert answer["message_reference"]["message_id"] == str(question.id)
    assert answer["referenced_message"]["content"] == "?"
    assert [user["id"] for user in answer["mentions"]] == [str(alice.id)]
    assert server.sent[0].reply_to == question.id
    server.user_deletes(question)
    _, later = await rest("GET", f"{path}/{answer['id']}")
    assert later["referenced_message"] is None
    gone = {"content": "!", "message_reference": reference}
    status, refusal = await rest("POST", path, gone)
    assert (status, refusal["code"]) == (400, 50035)
    reason = refusal["errors"]["message_reference"]["_errors"][0]
    assert reason["code"] == "REPLIES_UNKNOWN_MESSAGE"
    gone["message_reference"] = reference | {"fail_if_not_exists": False}
    status, plain = await rest("POST", path, gone)
    assert (status, plain["type"]) == (200, 0)
    assert "message_reference" not in plain
    other = server.add_channel(channel.guild_id or 0, "other")
    wrong = {"content": "!", "message_reference": {"message_id": plain["id"], "channel_id": "1"}}
    assert await rest.error("POST", f"/channels/{other.id}/messages", wrong) == (400, 50035)


async def test_allowed_mentions_decide_who_is_rung(
    rest: Rest, channel: Channel, alice: User
) -> None:
    server, path = rest.server, f"/channels/{channel.id}/messages"
    question = server.user_says(channel, alice, "?")
    body = {
        "content": f"<@{alice.id}> @everyone",
        "message_reference": {"message_id": str(question.id)},
    }
    policies = [None, {"parse": []}, {"parse": ["users"]}, {"users": [str(alice.id)]}]
    policies += [{"parse": [], "replied_user": True}]
    for policy in policies:
        await rest("POST", path, body | ({"allowed_mentions": policy} if policy else {}))
    assert [one.allowed_mentions for one in server.sent] == policies
    assert [bool(one.pings) for one in server.sent] == [True, False, True, True, True]
    assert not any(one.pings_everyone for one in server.sent)
    role = server.add_role(channel.guild_id or 0, "loud", permissions=1 << 17)
    server.add_member(channel.guild_id or 0, server.bot, roles=[role])
    await rest("POST", path, {"content": "@here"})
    assert server.sent[-1].pings_everyone


async def test_history_pages_in_discords_order(rest: Rest, channel: Channel, alice: User) -> None:
    path = f"/channels/{channel.id}/messages"
    ids = [rest.server.user_says(channel, alice, str(number)).id for number in range(120)]

    async def page(**query: int) -> list[int]:
        _, messages = await rest("GET", path, **query)
        return [int(one["content"]) for one in messages]

    assert await page() == list(range(119, 69, -1))
    assert len(await page(limit=100)) == 100
    assert await page(after=ids[10], limit=3) == [13, 12, 11]
    assert await page(after=ids[118]) == [119]
    assert await page(after=ids[119]) == []
    assert await page(after=0, limit=2) == [1, 0]
    assert await page(before=ids[10], limit=3) == [9, 8, 7]
    assert await page(around=ids[10], limit=3) == [11, 10, 9]
    assert await rest.error("GET", path, limit=101) == (400, 50035)
    assert await rest.error("GET", path, limit=0) == (400, 50035)
    assert await rest.error("GET", path, after="yesterday") == (400, 50035)
    assert await rest.error("GET", path, after=1, before=2) == (400, 50035)
    assert await rest.error("GET", "/channels/4/messages") == (404, 10003)


async def test_history_needs_its_right(rest: Rest, channel: Channel, alice: User) -> None:
    message = rest.server.user_says(channel, alice, "x")
    rest.server.deny(channel, "history")
    path = f"/channels/{channel.id}/messages"
    assert await rest("GET", path) == (200, [])
    assert await rest.error("GET", f"{path}/{message.id}") == (403, 50013)
    rest.server.deny(channel, "view")
    assert await rest.error("GET", path) == (403, 50001)


async def test_rest_blanks_content_without_the_grant(
    rest: Rest, channel: Channel, alice: User
) -> None:
    server, path = rest.server, f"/channels/{channel.id}/messages"
    server.user_says(channel, alice, "secret")
    server.user_says(channel, alice, "for you", mention_bot=True)
    await rest("POST", path, {"content": "own"})
    server.set_privileged()
    _, messages = await rest("GET", path)
    assert [one["content"] for one in messages] == ["own", f"<@{server.bot.id}> for you", ""]


async def test_direct_messages(rest: Rest, alice: User) -> None:
    server = rest.server
    robot = server.add_user("robot", bot=True)
    status, dm = await rest("POST", "/users/@me/channels", {"recipient_id": str(alice.id)})
    assert (status, dm["type"], dm["recipients"][0]["id"]) == (200, 1, str(alice.id))
    again = await rest("POST", "/users/@me/channels", {"recipient_id": str(alice.id)})
    assert again[1]["id"] == dm["id"]
    path = f"/channels/{dm['id']}/messages"
    assert (await rest("POST", path, {"content": "hello"}))[0] == 200
    server.block_dm(alice)
    assert await rest.error("POST", path, {"content": "hello"}) == (403, 50007)
    _, other = await rest("POST", "/users/@me/channels", {"recipient_id": str(robot.id)})
    path = f"/channels/{other['id']}/messages"
    assert await rest.error("POST", path, {"content": "hello"}) == (403, 50007)
    for wrong in ("3", str(server.bot.id), "alice"):
        body = {"recipient_id": wrong}
        assert await rest.error("POST", "/users/@me/channels", body) == (400, 50033)
    assert await rest.error("GET", "/users/3") == (404, 10013)
    assert (await rest("GET", f"/users/{alice.id}"))[1]["username"] == "alice"


async def test_threads(rest: Rest, channel: Channel, alice: User) -> None:
    server = rest.server
    thread = server.add_thread(channel, "topic")
    _, shape = await rest("GET", f"/channels/{thread.id}")
    assert (shape["type"], shape["parent_id"]) == (11, str(channel.id))
    path = f"/channels/{thread.id}/messages"
    server.archive(thread)
    assert (await rest("POST", path, {"content": "wakes it"}))[0] == 200
    assert not thread.archived
    server.archive(thread, locked=True)
    assert await rest.error("POST", path, {"content": "x"}) == (400, 50083)
    server.user_says(thread, alice, "moderators may")
    server.deny(channel, "send_in_threads")
    assert await rest.error("POST", path, {"content": "x"}) == (403, 50013)
    server.allow(channel, "send_in_threads")
    server.deny(channel, "send")
    assert (await rest("POST", path, {"content": "only the parent is closed"}))[0] == 200
    server.deny(channel, "view")
    assert await rest.error("POST", path, {"content": "x"}) == (403, 50001)


async def test_making_threads(rest: Rest, channel: Channel, alice: User) -> None:
    path = f"/channels/{channel.id}"
    message = rest.server.user_says(channel, alice, "start")
    status, thread = await rest("POST", f"{path}/messages/{message.id}/threads", {"name": "t"})
    assert (status, thread["id"], thread["owner_id"]) == (
        201,
        str(message.id),
        str(rest.server.bot.id),
    )
    again = await rest.error("POST", f"{path}/messages/{message.id}/threads", {"name": "t"})
    assert again == (400, 160004)
    assert await rest.error("POST", f"{path}/threads", {"name": ""}) == (400, 50035)
    dm = rest.server.open_dm(alice)
    assert await rest.error("POST", f"/channels/{dm.id}/threads", {"name": "t"}) == (400, 50024)
    renamed = await rest("PATCH", f"/channels/{thread['id']}", {"name": "better"})
    assert renamed[1]["name"] == "better"
    assert await rest.error("PATCH", path, {"name": "better"}) == (403, 50013)
    _, active = await rest("GET", f"/guilds/{channel.guild_id}/threads/active")
    assert [one["name"] for one in active["threads"]] == ["better"]


async def test_reactions(rest: Rest, channel: Channel, alice: User) -> None:
    message = rest.server.user_says(channel, alice, "x")
    path = f"/channels/{channel.id}/messages/{message.id}/reactions"
    assert await rest("PUT", f"{path}/👀/@me") == (204, None)
    _, shape = await rest("GET", path.removesuffix("/reactions"))
    assert (shape["reactions"][0]["emoji"]["name"], shape["reactions"][0]["me"]) == ("👀", True)
    assert await rest("DELETE", f"{path}/👀/@me") == (204, None)
    assert await rest.error("PUT", f"{path}/eyes/@me") == (400, 10014)
    assert await rest.error("PUT", path.replace(str(message.id), "4") + "/👀/@me") == (404, 10008)
    rest.server.deny(channel, "react")
    assert await rest.error("PUT", f"{path}/👀/@me") == (403, 50013)


def wrong_options() -> list[list[dict[str, Any]]]:
    good = {"name": "text", "description": "what", "type": 3}
    choice = {"name": "on", "value": "on"}
    return [
        [good | {"name": "Text"}],
        [good | {"description": ""}],
        [good | {"type": 12}],
        [good, good],
        [good, good | {"name": "more", "required": True}],
        [good | {"choices": [choice] * 26}],
        [good | {"choices": [choice | {"value": "x" * 101}]}],
        [good | {"max_length": 6001}],
        [good | {"name": f"o{n}"} for n in range(26)],
    ]


BUTTON = {"type": 2, "style": 2, "label": "Yes", "custom_id": "/yes"}


@pytest.mark.parametrize(
    "rows",
    [
        [{"type": 1, "components": []}],
        [{"type": 2, "components": [BUTTON]}],
        [{"type": 1, "components": [BUTTON | {"custom_id": f"{n}"} for n in range(6)]}],
        [{"type": 1, "components": [BUTTON]}] * 6,
        [{"type": 1, "components": [BUTTON, BUTTON]}],
        [{"type": 1, "components": [BUTTON | {"style": 7}]}],
        [{"type": 1, "components": [BUTTON | {"label": ""}]}],
        [{"type": 1, "components": [BUTTON | {"label": "x" * 81}]}],
        [{"type": 1, "components": [BUTTON | {"custom_id": ""}]}],
        [{"type": 1, "components": [BUTTON | {"custom_id": "x" * 101}]}],
    ],
)
async def test_buttons_that_can_not_be(rest: Rest, channel: Channel, rows: Any) -> None:
    path = f"/channels/{channel.id}/messages"
    body = {"content": "sure?", "components": rows}
    assert await rest.error("POST", path, body) == (400, 50035)
    good = {"content": "sure?", "components": [{"type": 1, "components": [BUTTON]}]}
    _, message = await rest("POST", path, good)
    assert await rest.error("PATCH", f"{path}/{message['id']}", body) == (400, 50035)


async def test_files_that_can_not_be(rest: Rest, channel: Channel) -> None:
    url = f"{rest.server.api_base}/channels/{channel.id}/messages"

    async def post(body: dict[str, Any], *files: bytes) -> tuple[int, int]:
        form = aiohttp.FormData(quote_fields=False)
        form.add_field("payload_json", json.dumps(body))
        for n, data in enumerate(files):
            form.add_field(f"files[{n}]", io.BytesIO(data), filename="b.bin")
        headers = {"Authorization": f"Bot {TOKEN}"}
        async with rest.session.post(url, data=form, headers=headers) as answer:
            return answer.status, (await answer.json()).get("code", 0)

    assert await post({}, b"x" * (10 << 20)) == (200, 0)
    assert await post({}, b"x" * ((10 << 20) + 1)) == (413, 40005)
    assert await post({}, *[b"x"] * 11) == (400, 50035)
    assert await post({"attachments": [{"id": 0, "filename": "b"}]}, b"x") == (200, 0)
    assert await post({"attachments": [{"id": 1, "filename": "b"}]}, b"x") == (400, 50035)
    assert await post({"attachments": [{"id": "x"}]}, b"x") == (400, 50035)


async def test_commands(rest: Rest, channel: Channel, alice: User) -> None:
    server, path = rest.server, f"/applications/{rest.server.bot.id}/commands"
    good = {"name": "status", "description": "How it goes", "type": 1}
    _, stored = await rest("PUT", path, [good])
    assert stored[0]["name"] == "status"
    assert await rest("GET", path) == (200, stored)
    _, again = await rest("PUT", path, [good])
    assert again[0]["id"] == stored[0]["id"]
    for wrong in (
        [good | {"name": "Status"}],
        [good | {"name": "two words"}],
        [good | {"name": "x" * 33}],
        [good | {"description": ""}],
        [good | {"description": "x" * 101}],
        *([good | {"options": options}] for options in wrong_options()),
        [good, good],
        {"name": "status"},
    ):
        assert await rest.error("PUT", path, wrong) == (400, 50035)
    many = [good | {"name": f"c{number}"} for number in range(101)]
    assert await rest.error("PUT", path, many) == (400, 30032)
    assert await rest.error("PUT", "/applications/1/commands", []) == (403, 20012)
    assert [one["name"] for one in server.commands()] == ["status"]
    with pytest.raises(LookupError):
        server.slash(channel, alice, "unknown")


async def test_interactions_by_hand(rest: Rest, now: Now, channel: Channel, alice: User) -> None:
    server = rest.server
    hook = f"/webhooks/{server.bot.id}"

    def callback(interaction: Any) -> str:
        return f"/interactions/{interaction.id}/{interaction.token}/callback"

    one = server.slash(channel, alice, "x", force=True)
    answer = {"type": 4, "data": {"content": "hi"}}
    assert await rest.error("POST", f"{hook}/{one.token}", {"content": "early"}) == (404, 10015)
    assert await rest.error("POST", callback(one), {"type": 4, "data": {}}) == (400, 50006)
    assert await rest.error("POST", callback(one), {"type": 77}) == (400, 50035)
    assert await rest("POST", callback(one), answer, token=None) == (204, None)
    assert await rest.error("POST", callback(one), answer) == (400, 40060)
    assert server.texts(channel) == ["hi"]
    signed = {"token": TOKEN}  # the right to answer stands in the path, and nothing else belongs
    assert await rest.error("POST", f"{hook}/{one.token}", {"content": "x"}, **signed) == (400, 0)
    assert await rest.error("POST", callback(one), answer, **signed) == (400, 0)
    late = server.slash(channel, alice, "x", force=True)
    now.at += 3.1
    assert await rest.error("POST", callback(late), answer) == (404, 10062)
    unknown = "/interactions/5/nope/callback"
    assert await rest.error("POST", unknown, answer) == (404, 10062)
    path = f"{hook}/{one.token}/messages"
    assert (await rest("PATCH", f"{path}/@original", {"content": "ho"}))[0] == 200
    assert await rest.error("PATCH", f"{path}/@original", {"content": "x" * 2001}) == (400, 50035)
    assert await rest.error("PATCH", f"{path}/17", {"content": "ho"}) == (404, 10008)
    assert (await rest("DELETE", f"{path}/@original")) == (204, None)
    assert await rest.error("PATCH", f"{path}/@original", {"content": "x"}) == (404, 10008)
    assert await rest.error("POST", f"{hook}/nope", {"content": "x"}) == (404, 10015)
    now.at += 15 * 60
    assert await rest.error("POST", f"{hook}/{one.token}", {"content": "x"}) == (401, 50027)


async def test_deferred_answers(rest: Rest, channel: Channel, alice: User) -> None:
    server = rest.server
    one = server.slash(channel, alice, "x", force=True)
    path = f"/interactions/{one.id}/{one.token}/callback"
    status, result = await rest("POST", path, {"type": 5}, with_response="true")
    assert status == 200
    assert result["interaction"]["response_message_loading"]
    hook = f"/webhooks/{server.bot.id}/{one.token}"
    _, first = await rest("POST", hook, {"content": "fills it in"})
    assert first["id"] == str(one.response_id)
    _, second = await rest("POST", hook, {"content": "secret", "flags": 64, "nonce": "n"})
    assert second["id"] != first["id"]
    assert second["message_reference"]["message_id"] == first["id"]
    told = second["interaction_metadata"]
    assert (told["id"], told["original_response_message_id"]) == (str(one.id), first["id"])
    assert "nonce" not in second
    assert server.texts(channel) == ["fills it in"]  # what is ephemeral is nobody else's
    assert [one.text for one in server.sent] == ["fills it in", "secret"]
    _, history = await rest("GET", f"/channels/{channel.id}/messages")
    assert [message["content"] for message in history] == ["fills it in"]


async def test_faults_by_hand(rest: Rest, channel: Channel) -> None:
    server, path = rest.server, f"/channels/{channel.id}/messages"
    body = {"content": "x"}
    server.fault("429", method="POST", path="/channels/*/messages", retry_after=1.5)
    status, answer = await rest("POST", path, body)
    assert (status, answer["retry_after"], answer["global"]) == (429, 1.5, False)
    server.fault("429-global", channel_id=channel)
    assert (await rest("POST", path, body))[1]["global"] is True
    server.fault("500", contains='"x"', skip=1, times=2)
    statuses = [(await rest("POST", path, body))[0] for _ in range(4)]
    assert statuses == [200, 500, 500, 200]
    server.fault("403", code=50013, message="Missing Permissions", method="DELETE", times=None)
    assert (await rest("POST", path, body))[0] == 200
    assert await rest.error("DELETE", f"{path}/1") == (403, 50013)
    assert await rest.error("DELETE", f"{path}/1") == (403, 50013)
    server.clear_faults()
    assert await rest.error("DELETE", f"{path}/1") == (404, 10008)
    with pytest.raises(ValueError, match="unknown fault"):
        server.fault("gremlins")
    with pytest.raises(ValueError, match="unknown rights"):
        server.deny(channel, "everything")


@pytest.mark.parametrize("kind", ["drop", "reset"])
@pytest.mark.parametrize("handled", [False, True])
async def test_lost_connections(rest: Rest, channel: Channel, kind: str, handled: bool) -> None:
    server, path = rest.server, f"/channels/{channel.id}/messages"
    server.fault(kind, method="POST", handled=handled)
    with pytest.raises(aiohttp.ClientConnectionError):
        await rest("POST", path, {"content": "x"})
    assert server.texts(channel) == (["x"] if handled else [])
    assert (server.calls[-1].status, server.calls[-1].fault) == (0, kind)


async def test_slow_and_hanging_answers(rest: Rest, channel: Channel) -> None:
    server, path = rest.server, f"/channels/{channel.id}/messages"
    server.fault("slow", seconds=0.05)
    assert (await rest("POST", path, {"content": "slow"}))[0] == 200
    server.fault("hang", handled=True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await rest("POST", path, {"content": "hung"})
    server.fault("hang")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await rest("POST", path, {"content": "never"})
    assert server.texts(channel) == ["slow", "hung"]


async def test_files_both_ways(rest: Rest, channel: Channel, alice: User) -> None:
    server = rest.server
    message = server.user_says(channel, alice, files=[("a.txt", b"abc", "text/plain")])
    path = f"/channels/{channel.id}/messages/{message.id}"

    async def address() -> str:
        found = (await rest("GET", path))[1]["attachments"][0]["url"]
        assert isinstance(found, str)
        return found

    url = await address()
    async with rest.session.get(url) as answer:
        assert (await answer.read(), answer.content_type) == (b"abc", "text/plain")
    server.expire_links()
    async with rest.session.get(url) as answer:
        assert answer.status == 404
    async with rest.session.get(await address()) as answer:
        assert answer.status == 200
    server.deny(channel, "attach")
    form = aiohttp.FormData(quote_fields=False)
    form.add_field("payload_json", json.dumps({"content": ""}))
    form.add_field("files[0]", b"data", filename="b.bin", content_type="application/x-thing")
    headers = {"Authorization": f"Bot {TOKEN}"}
    url = f"{server.api_base}/channels/{channel.id}/messages"
    async with rest.session.post(url, data=form, headers=headers) as answer:
        assert (answer.status, (await answer.json())["code"]) == (403, 50013)


def test_snowflakes_increase_whatever_the_clock_does() -> None:
    now = Now()
    flakes = Snowflakes(now)
    ids = [flakes.next(), flakes.next()]
    now.at -= 1000
    ids.append(flakes.next())
    now.at += 5000
    ids.append(flakes.next())
    assert ids == sorted(set(ids))
    assert discord.utils.snowflake_time(ids[-1]).timestamp() == now.at


# -- the gateway, by hand ------------------------------------------------------------------------


class Socket:
    """A gateway client that does only what the test says."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.ws = ws

    async def send(self, op: int, data: Any) -> None:
        await self.ws.send_json({"op": op, "d": data})

    async def frame(self) -> dict[str, Any]:
        frame: dict[str, Any] = await self.ws.receive_json(timeout=2)
        return frame

    async def event(self, name: str) -> dict[str, Any]:
        """The next frame, which has to be this event."""
        frame = await self.frame()
        assert frame["t"] == name, frame
        return frame

    async def close_code(self) -> int | None:
        while (await self.ws.receive(timeout=2)).type is aiohttp.WSMsgType.TEXT:
            pass
        return self.ws.close_code

    async def identify(self, **changes: Any) -> dict[str, Any]:
        await self.send(2, identity(**changes))
        return await self.event("READY")


def identity(**changes: Any) -> dict[str, Any]:
    return {"token": TOKEN, "properties": {}, "intents": GUILD_INTENTS} | changes


@contextlib.asynccontextmanager
async def dial(rest: Rest, query: str = "v=10&encoding=json") -> AsyncIterator[Socket]:
    async with rest.session.ws_connect(f"{rest.server.gateway_url}?{query}") as ws:
        yield Socket(ws)


@contextlib.asynccontextmanager
async def dialled(rest: Rest) -> AsyncIterator[Socket]:
    """A socket past its HELLO."""
    async with dial(rest) as socket:
        assert (await socket.frame())["op"] == 10
        yield socket


async def test_hello_heartbeat_and_ready(rest: Rest, channel: Channel) -> None:
    async with dial(rest) as socket:
        hello = await socket.frame()
        assert (hello["op"], hello["d"]["heartbeat_interval"]) == (10, 41250)
        await socket.send(1, None)
        assert (await socket.frame())["op"] == 11
        ready = await socket.identify()
        assert ready["s"] == 1
        assert ready["d"]["resume_gateway_url"] == rest.server.gateway_url
        assert ready["d"]["guilds"] == [{"id": str(channel.guild_id), "unavailable": True}]
        guild = await socket.event("GUILD_CREATE")
        assert [one["name"] for one in guild["d"]["channels"]] == ["general"]
        assert [one["user"]["username"] for one in guild["d"]["members"]] == ["posthouse"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"token": "wrong"}, 4004),
        ({"intents": GUILD_INTENTS | 1 << 1}, 4014),
        ({"intents": GUILD_INTENTS | 1 << 8}, 4014),
        ({"intents": -1}, 4013),
        ({"intents": 1 << 40}, 4013),
        ({"shard": [1, 1]}, 4010),
    ],
)
async def test_identify_is_refused(rest: Rest, changes: dict[str, Any], code: int) -> None:
    async with dialled(rest) as socket:
        await socket.send(2, identity(**changes))
        assert await socket.close_code() == code
    assert rest.server.gateway.sessions == {}


async def test_content_intent_must_be_granted(rest: Rest) -> None:
    rest.server.set_privileged()
    async with dialled(rest) as socket:
        await socket.send(2, identity())
        assert await socket.close_code() == 4014


async def test_protocol_errors(rest: Rest) -> None:
    async with dial(rest, "v=6&encoding=json") as socket:
        assert await socket.close_code() == 4012
    async with dialled(rest) as socket:
        await socket.ws.send_str("{")
        assert await socket.close_code() == 4002
    async with dialled(rest) as socket:
        await socket.send(3, {})
        assert await socket.close_code() == 4003
    async with dialled(rest) as socket:
        await socket.send(99, {})
        assert await socket.close_code() == 4001
    async with dialled(rest) as socket:
        await socket.identify()
        await socket.send(2, identity())
        assert await socket.close_code() == 4005


async def test_resume_replays_what_was_missed(rest: Rest, channel: Channel, alice: User) -> None:
    server = rest.server
    async with dialled(rest) as socket:
        ready = await socket.identify()
        await socket.event("GUILD_CREATE")
        server.user_says(channel, alice, "seen")
        last = (await socket.event("MESSAGE_CREATE"))["s"]
        server.kill_sockets()
        server.user_says(channel, alice, "missed")
        await server.wait_for(lambda: not server.connected)
        server.user_says(channel, alice, "missed too")
    resume = {"token": TOKEN, "session_id": ready["d"]["session_id"], "seq": last}
    async with dialled(rest) as socket:
        await socket.send(6, resume | {"seq": 99})
        assert await socket.close_code() == 4007
    async with dialled(rest) as socket:
        await socket.send(6, resume)
        assert (await socket.event("MESSAGE_CREATE"))["d"]["content"] == "missed"
        assert (await socket.event("MESSAGE_CREATE"))["d"]["content"] == "missed too"
        resumed = await socket.event("RESUMED")
        assert resumed["s"] == last + 3
    async with dialled(rest) as socket:
        await socket.send(6, resume | {"token": "wrong"})
        assert await socket.close_code() == 4004


async def test_sessions_end(rest: Rest, now: Now) -> None:
    server = rest.server

    async def session(code: int) -> dict[str, Any]:
        async with dialled(rest) as socket:
            ready = await socket.identify()
            await socket.ws.close(code=code)
        await server.wait_for(lambda: not server.connected)
        return {"token": TOKEN, "session_id": ready["d"]["session_id"], "seq": 1}

    async def resumed(state: dict[str, Any]) -> bool:
        async with dialled(rest) as socket:
            await socket.send(6, state)
            frame = await socket.frame()
            assert frame["t"] == "RESUMED" or (frame["op"], frame["d"]) == (9, False)
            return frame["t"] == "RESUMED"

    assert await resumed(await session(4000))
    assert not await resumed(await session(1000))  # a client that says goodbye
    old = await session(4000)
    now.at += 61
    assert not await resumed(old)
    kept = await session(4000)
    server.forget_sessions()
    assert not await resumed(kept)


async def test_identify_replays_nothing(rest: Rest, channel: Channel, alice: User) -> None:
    async with dialled(rest) as socket:
        await socket.identify()
    rest.server.user_says(channel, alice, "while away")
    async with dialled(rest) as socket:
        await socket.identify()
        await socket.event("GUILD_CREATE")
        rest.server.user_says(channel, alice, "now")
        assert (await socket.event("MESSAGE_CREATE"))["d"]["content"] == "now"
    assert rest.server.texts(channel) == ["while away", "now"]


async def test_events_are_filtered_by_intents(rest: Rest, channel: Channel, alice: User) -> None:
    server = rest.server
    async with dialled(rest) as socket:
        await socket.identify(intents=1 << 0 | 1 << 12)
        await socket.event("GUILD_CREATE")
        server.user_says(channel, alice, "not asked for")
        server.user_dms(alice, "asked for")
        message = await socket.event("MESSAGE_CREATE")
        assert message["d"]["content"] == "asked for"
        assert "guild_id" not in message["d"]


async def test_content_is_blanked_without_the_intent(
    rest: Rest, channel: Channel, alice: User
) -> None:
    server = rest.server
    own = f"/channels/{channel.id}/messages"
    async with dialled(rest) as socket:
        await socket.identify(intents=GUILD_INTENTS & ~(1 << 15))
        await socket.event("GUILD_CREATE")
        server.user_says(channel, alice, "plain", files=[("a", b"a", "text/plain")])
        server.user_says(channel, alice, "for you", mention_bot=True)
        server.user_dms(alice, "direct")
        await rest("POST", own, {"content": "own"})
        reply = server.user_says(channel, alice, "re", reply_to=server.sent[0].id)
        server.user_says(channel, alice, "re", reply_to=server.sent[0].id, ping=False)
        server.user_edits(reply, "re-edited")
        frames = [await socket.frame() for _ in range(7)]
    contents = [frame["d"]["content"] for frame in frames]
    mention = f"<@{server.bot.id}> for you"
    assert contents == ["", mention, "direct", "own", "re", "", "re-edited"]
    assert frames[0]["d"]["attachments"] == []
    assert frames[5]["d"]["referenced_message"]["content"] == "own"


async def test_shards_get_their_own_guilds(rest: Rest, alice: User) -> None:
    server = rest.server
    homes = {}
    for shard in (0, 1):
        guild = server.add_guild(f"shard {shard}", id_=(1000 + shard) << 22)
        homes[shard] = server.add_channel(guild)
    for shard in (0, 1):
        async with dialled(rest) as socket:
            ready = await socket.identify(shard=[shard, 2])
            assert ready["d"]["shard"] == [shard, 2]
            await socket.event("GUILD_CREATE")
            for number in (0, 1):
                server.user_says(homes[number], alice, f"in {number}")
            server.user_dms(alice, "direct")
            assert (await socket.event("MESSAGE_CREATE"))["d"]["content"] == f"in {shard}"
            if shard == 0:
                assert (await socket.event("MESSAGE_CREATE"))["d"]["content"] == "direct"


async def test_zombies_say_nothing(rest: Rest, channel: Channel, alice: User) -> None:
    async with dialled(rest) as socket:
        await socket.identify()
        await socket.event("GUILD_CREATE")
        rest.server.make_zombies()
        rest.server.user_says(channel, alice, "unheard")
        await socket.send(1, 2)
        with pytest.raises(TimeoutError):
            await socket.ws.receive(timeout=0.1)


async def test_member_requests(rest: Rest, channel: Channel, alice: User) -> None:
    async with dialled(rest) as socket:
        await socket.identify()
        await socket.event("GUILD_CREATE")
        wanted = {"guild_id": str(channel.guild_id), "user_ids": [str(alice.id)], "limit": 1}
        await socket.send(8, wanted | {"nonce": "n"})
        chunk = (await socket.event("GUILD_MEMBERS_CHUNK"))["d"]
        assert [one["user"]["username"] for one in chunk["members"]] == ["alice"]
        assert chunk["nonce"] == "n"


# -- the real discord.py -------------------------------------------------------------------------


class Bot(discord.Client):
    """The real client, noting what it hears."""

    def __init__(self, intents: discord.Intents, **options: Any) -> None:
        options = {"guild_ready_timeout": 0.05, "max_messages": None} | options
        super().__init__(intents=intents, **options)
        self.heard: list[discord.Message] = []
        self.noted: list[str] = []
        self.task: asyncio.Task[None] | None = None
        self.answer: Callable[[discord.Message], Awaitable[Any]] | None = None

    async def on_ready(self) -> None:
        self.noted.append("ready")

    async def on_resumed(self) -> None:
        self.noted.append("resumed")

    async def on_message(self, message: discord.Message) -> None:
        self.heard.append(message)
        if self.answer is not None and message.author != self.user:
            await self.answer(message)

    @property
    def texts(self) -> list[str]:
        return [message.content for message in self.heard]


def intents() -> discord.Intents:
    chosen = discord.Intents.none()
    chosen.guilds = chosen.guild_messages = chosen.dm_messages = chosen.message_content = True
    return chosen


async def until(condition: Callable[[], Any], timeout: float = 30.0) -> None:
    """Wait for something in the client, which has nothing to wait on."""
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def running(server: DiscordServer, **options: Any) -> AsyncIterator[Bot]:
    """The client, ready."""
    bot = Bot(intents(), **options)
    with discord_py_at(server.api_base, server.gateway_url):
        task = bot.task = asyncio.create_task(bot.start(TOKEN))
        try:
            await until(lambda: "ready" in bot.noted or task.done())
            if task.done():
                await task
            yield bot
        finally:
            await bot.close()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(0)  # lets the last events be handled that were dispatched


@pytest.mark.parametrize("compress", [True, False])
async def test_guild_round_trip(now: Now, compress: bool) -> None:
    async with DiscordServer(TOKEN, clock=now, compress=compress) as server:
        alice = server.add_user("alice")
        guild = server.add_guild("home")
        role = server.add_role(guild, "staff")
        server.add_member(guild, alice, roles=[role], nick="Al")
        channel = server.add_channel(guild)
        async with running(server) as bot:

            async def answer(message: discord.Message) -> None:
                async with message.channel.typing():
                    await message.reply("pong", allowed_mentions=discord.AllowedMentions.none())

            bot.answer = answer
            ping = server.user_says(channel, alice, "ping", mention_bot=True)
            sent = await server.wait_sent()
            await until(lambda: len(bot.heard) == 2)
        heard = bot.heard[0]
        assert isinstance(heard.author, discord.Member)
        assert (heard.author.display_name, [one.name for one in heard.author.roles]) == (
            "Al",
            ["@everyone", "staff"],
        )
        assert bot.user in heard.mentions
        assert heard.created_at.timestamp() == pytest.approx(now.at, abs=0.01)
        assert (sent[0].content, sent[0].reply_to, sent[0].pings) == ("pong", ping.id, [])
        assert bot.heard[1].author == bot.user
        assert bot.heard[1].type is discord.MessageType.reply
        assert [one.channel_id for one in server.typings] == [channel.id]
        paths = [call.path for call in server.calls[:2]]
        assert paths == ["/users/@me", "/oauth2/applications/@me"]


async def test_direct_message_round_trip(server: DiscordServer, alice: User) -> None:
    async with running(server) as bot:
        bot.answer = lambda message: message.channel.send(f"re: {message.content}")
        message = server.user_dms(alice, "hello")
        await server.wait_sent()
        opened = await (await bot.fetch_user(alice.id)).create_dm()
        await opened.send("again")
    assert opened.id == message.channel_id
    assert bot.heard[0].guild is None
    assert server.bot_texts(opened.id) == ["re: hello", "again"]


async def test_thread_round_trip(server: DiscordServer, channel: Channel, alice: User) -> None:
    old = server.add_thread(channel, "old")
    async with running(server) as bot:
        bot.answer = lambda message: message.channel.send("in thread")
        new = server.add_thread(channel, "new")
        for thread in (old, new):
            server.user_says(thread, alice, "hello")
        await server.wait_sent(2)
        assert {message.channel.name for message in bot.heard} == {"old", "new"}  # type: ignore[union-attr]
        assert all(isinstance(one.channel, discord.Thread) for one in bot.heard)
        server.archive(old)
        fetched = await bot.fetch_channel(old.id)
        assert isinstance(fetched, discord.Thread)
        assert fetched.archived
        assert fetched.parent_id == channel.id
    assert server.texts(old) == server.texts(new) == ["hello", "in thread"]


@pytest.mark.parametrize("way", ["op 7", "op 9 true", "close 4000", "close 1000", "cut"])
async def test_resume_delivers_once(
    server: DiscordServer, channel: Channel, alice: User, way: str
) -> None:
    async with running(server) as bot:
        server.user_says(channel, alice, "before")
        await until(lambda: bot.texts == ["before"])
        match way:
            case "op 7":
                server.reconnect()
            case "op 9 true":
                server.invalidate_session(resumable=True)
            case "cut":
                server.kill_sockets()
            case _:
                server.kill_sockets(int(way.split()[1]))
        server.user_says(channel, alice, "going down")
        await server.wait_connected(False)
        server.user_says(channel, alice, "while down")
        await until(lambda: "resumed" in bot.noted)
        server.user_says(channel, alice, "after")
        await until(lambda: "after" in bot.texts)
        assert bot.texts == ["before", "going down", "while down", "after"]
        assert bot.noted == ["ready", "resumed"]
        assert server.stats()["identifies"] == 1


async def test_zombie_is_noticed(server: DiscordServer, channel: Channel, alice: User) -> None:
    server.settings.heartbeat_interval = 0.05
    async with running(server, heartbeat_timeout=0.5) as bot:
        server.make_zombies()
        server.user_says(channel, alice, "held back")
        await until(lambda: "resumed" in bot.noted)
        assert bot.texts == ["held back"]


async def test_invalid_session_means_a_new_one(
    server: DiscordServer, channel: Channel, alice: User
) -> None:
    async with running(server) as bot:
        server.invalidate_session()
        await server.wait_connected(False)
        message = server.user_says(channel, alice, "while down")
        # discord.py waits five seconds before any IDENTIFY but its first.
        await until(lambda: bot.noted == ["ready", "ready"], timeout=10)
        assert bot.texts == []
        place = bot.get_channel(channel.id)
        assert isinstance(place, discord.TextChannel)
        caught = [one async for one in place.history(after=discord.Object(message.id - 1))]
        assert [one.content for one in caught] == ["while down"]
        assert server.stats()["identifies"] == 2


async def test_server_comes_back_on_the_same_port(
    server: DiscordServer, channel: Channel, alice: User
) -> None:
    async with running(server) as bot:
        port = server.port
        await server.stop()
        server.user_says(channel, alice, "while down")
        await server.start()
        assert server.port == port
        await until(lambda: "resumed" in bot.noted, timeout=20)
        assert bot.texts == ["while down"]


async def test_bad_token(server: DiscordServer) -> None:
    bot = Bot(intents())
    with discord_py_at(server.api_base, server.gateway_url), pytest.raises(discord.LoginFailure):
        await bot.start("wrong")
    await bot.close()


async def test_token_reset_while_connected(server: DiscordServer) -> None:
    async with running(server) as bot:
        server.set_token("another")
        server.kill_sockets(4000)
        assert bot.task is not None
        with pytest.raises(discord.ConnectionClosed) as caught:
            await bot.task
        assert caught.value.code == 4004


async def test_missing_intents(server: DiscordServer) -> None:
    server.set_privileged()
    bot = Bot(intents())
    with (
        discord_py_at(server.api_base, server.gateway_url),
        pytest.raises(discord.PrivilegedIntentsRequired),
    ):
        await bot.start(TOKEN)
    await bot.close()


async def text_channel(bot: Bot, channel: Channel) -> discord.TextChannel:
    found = bot.get_channel(channel.id)
    assert isinstance(found, discord.TextChannel)
    return found


async def test_nonce_through_the_client(server: DiscordServer, channel: Channel) -> None:
    async with running(server) as bot:
        place = await text_channel(bot, channel)
        first = await place.send("part", nonce="turn-1.0")
        second = await place.send("part", nonce="turn-1.0")
    assert first.id == second.id
    assert first.nonce == "turn-1.0"
    assert server.texts(channel) == ["part"]


async def test_ambiguous_send_is_settled_by_the_nonce(
    server: DiscordServer, channel: Channel
) -> None:
    server.fault("drop", method="POST", path="/channels/*/messages", handled=True)
    async with running(server) as bot:
        place = await text_channel(bot, channel)
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await place.send("part", nonce="n")
        await place.send("part", nonce="n")
    assert server.texts(channel) == ["part"]
    assert server.sent[0].repeats == 1


async def test_history_after(server: DiscordServer, channel: Channel, alice: User) -> None:
    server.user_says(channel, alice, "old")
    mark = server.user_says(channel, alice, "mark")
    for number in range(150):
        server.user_says(channel, alice, str(number))
    async with running(server) as bot:
        place = await text_channel(bot, channel)
        after = discord.Object(mark.id)
        read = [one.content async for one in place.history(after=after, limit=120)]
        assert read == [str(number) for number in range(120)]
        last = [one.content async for one in place.history(limit=2)]
        assert last == ["149", "148"]
        assert bot.texts == []


async def test_rate_limits_are_waited_out(server: DiscordServer, channel: Channel) -> None:
    async with running(server) as bot:
        place = await text_channel(bot, channel)
        for kind in ("429", "429-global"):
            server.fault(kind, path="/channels/*/messages", retry_after=0.2)
            before = asyncio.get_running_loop().time()
            await place.send(kind)
            assert asyncio.get_running_loop().time() - before >= 0.2
        server.fault("429-cloudflare")
        with pytest.raises(discord.HTTPException) as caught:
            await place.send("banned")
        assert caught.value.status == 429
    assert server.texts(channel) == ["429", "429-global"]


async def test_server_errors(server: DiscordServer, channel: Channel) -> None:
    async with running(server) as bot:
        place = await text_channel(bot, channel)
        server.fault("500")
        await place.send("repeated by discord.py")
        server.fault("503")
        with pytest.raises(discord.DiscordServerError):
            await place.send("not repeated")
    assert server.texts(channel) == ["repeated by discord.py"]


async def test_each_send_has_a_nonce_of_its_own(server: DiscordServer, channel: Channel) -> None:
    """discord.py makes one up per call: its own repeats are safe, ours need one nonce for both."""
    async with running(server) as bot:
        place = await text_channel(bot, channel)
        server.fault("500", handled=True)
        await place.send("single")
        server.fault("drop", handled=True)
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await place.send("doubled")
        await place.send("doubled")
    assert server.texts(channel) == ["single", "doubled", "doubled"]


async def test_errors_as_the_client_sees_them(
    server: DiscordServer, channel: Channel, alice: User
) -> None:
    async with running(server) as bot:
        place = await text_channel(bot, channel)
        theirs = server.user_says(channel, alice, "x")
        with pytest.raises(discord.HTTPException, match="2000 or fewer") as long:
            await place.send("x" * 2001)
        assert long.value.code == 50035
        with pytest.raises(discord.HTTPException) as empty:
            await place.send("")
        assert empty.value.code == 50006
        with pytest.raises(discord.Forbidden) as other:
            await place.get_partial_message(theirs.id).edit(content="y")
        assert other.value.code == 50005
        with pytest.raises(discord.NotFound) as gone:
            await place.fetch_message(3)
        assert gone.value.code == 10008
        reference = discord.MessageReference(message_id=3, channel_id=channel.id)
        with pytest.raises(discord.HTTPException, match="Unknown message") as unknown:
            await place.send("x", reference=reference)
        assert unknown.value.code == 50035
        reference.fail_if_not_exists = False
        assert (await place.send("x", reference=reference)).reference is None
        server.deny(channel, "send")
        await until(lambda: not place.permissions_for(place.guild.me).send_messages)
        with pytest.raises(discord.Forbidden) as denied:
            await place.send("x")
        assert denied.value.code == 50013


async def test_files_through_the_client(
    server: DiscordServer, channel: Channel, alice: User
) -> None:
    async with running(server) as bot:
        server.user_says(channel, alice, files=[("in.txt", b"from alice", "text/plain")])
        await until(lambda: bot.heard)
        assert await bot.heard[0].attachments[0].read() == b"from alice"
        place = await text_channel(bot, channel)
        import io

        sent = await place.send(file=discord.File(io.BytesIO(b"to alice"), "out.txt"))
        assert await sent.attachments[0].read() == b"to alice"
    assert server.sent[0].files == ["out.txt"]


async def test_slash_commands_and_buttons(
    server: DiscordServer, channel: Channel, alice: User
) -> None:
    async with running(server) as bot:
        tree = discord.app_commands.CommandTree(bot)

        class Buttons(discord.ui.View):
            @discord.ui.button(label="Yes", custom_id="yes")
            async def yes(self, interaction: discord.Interaction, _button: Any) -> None:
                await interaction.response.edit_message(content="chosen", view=None)

        @tree.command(name="ask", description="Ask something")
        async def ask(interaction: discord.Interaction, what: str) -> None:
            await interaction.response.defer()
            await interaction.edit_original_response(content=f"about {what}")
            await interaction.followup.send("choose", view=Buttons(timeout=5))
            await interaction.followup.send("psst", ephemeral=True)

        await tree.sync()
        asked = server.slash(channel, alice, "ask", {"what": "tea"})
        await server.wait_sent(3)
        assert server.texts(channel) == ["about tea", "choose"]
        button = server.visible(channel)[-1]
        with pytest.raises(LookupError):
            server.click(button, alice, "no")
        pressed = server.click(button, alice, "yes")
        await server.wait_for(lambda: pressed.acked)
        await server.wait_for(lambda: server.texts(channel) == ["about tea", "chosen"])
        dm = server.open_dm(alice)
        server.slash(dm, alice, "ask", {"what": "milk"})
        await server.wait_sent(6)
    assert asked.acked
    assert server.texts(dm) == ["about milk", "choose"]
    assert [one.kind for one in server.sent[:3]] == ["deferred", "followup", "followup"]


async def test_what_other_voices_look_like(
    server: DiscordServer, channel: Channel, alice: User
) -> None:
    robot = server.add_user("robot", bot=True)
    async with running(server) as bot:
        server.webhook_says(channel, "from a hook")
        server.user_says(channel, robot, "from a bot", mention_bot=True)
        server.system_message(channel, alice, "join")
        pieces = server.user_pastes(channel, alice, "x" * 2500)
        await until(lambda: len(bot.heard) == 5)
        hook, other, system, one, two = bot.heard
        assert hook.webhook_id is not None
        assert other.author.bot
        assert bot.user in other.mentions
        assert system.is_system()
        assert [len(one.content), len(two.content)] == [2000, 500]
        assert [one.id, two.id] == [piece.id for piece in pieces]
        server.redeliver(pieces[0])
        await until(lambda: len(bot.heard) == 6)
        assert bot.heard[5].id == one.id


async def test_edits_previews_and_deletions(
    server: DiscordServer, channel: Channel, alice: User
) -> None:
    seen: list[Any] = []
    async with running(server) as bot:

        @bot.event
        async def on_raw_message_edit(event: discord.RawMessageUpdateEvent) -> None:
            seen.append((event.data["content"], event.data["edited_timestamp"] is not None))

        @bot.event
        async def on_raw_message_delete(event: discord.RawMessageDeleteEvent) -> None:
            seen.append(event.message_id)

        message = server.user_says(channel, alice, "one")
        server.user_edits(message, "two")
        server.unfurl(message)
        server.user_deletes(message)
        await until(lambda: len(seen) == 3)
        hidden = server.user_says(channel, alice, "only in history", deliver=False)
        await asyncio.sleep(0.02)
    # The preview's update keeps the stamp of the earlier edit, as Discord does.
    assert seen == [("two", True), ("two", True), message.id]
    assert bot.texts == ["one"]
    assert server.visible(channel) == [hidden]


async def test_guild_appears_and_goes(server: DiscordServer, alice: User) -> None:
    async with running(server) as bot:
        guild = server.add_guild("late")
        channel = server.add_channel(guild, "first")
        await until(lambda: bot.get_channel(channel.id))
        server.user_says(channel, alice, "hello")
        await until(lambda: bot.texts == ["hello"])
        server.kick_bot(guild)
        await until(lambda: not bot.guilds)
        server.user_says(channel, alice, "unheard")
        server.user_dms(alice, "heard")
        await until(lambda: len(bot.heard) == 2)
        assert bot.texts == ["hello", "heard"]


async def test_refused_while_it_reconnects(server: DiscordServer) -> None:
    async with running(server) as bot:
        server.refuse_gateway(1)
        server.kill_sockets(4000)
        await until(lambda: "resumed" in bot.noted, timeout=20)
        stats = server.stats()
        assert (stats["refused"], stats["identifies"], stats["resumes"]) == (1, 1, 1)


async def test_refused_at_the_first_dial(server: DiscordServer) -> None:
    """discord.py 2.7.1 does not survive this: it asks a socket that it never had."""
    server.refuse_gateway()
    with pytest.raises(AttributeError, match="sequence"):
        async with running(server):
            pass


def test_the_addresses_are_put_back() -> None:
    before = discord.http.Route.BASE, discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY
    with discord_py_at("http://127.0.0.1:1", "ws://127.0.0.1:1"):
        assert discord.http.Route.BASE == "http://127.0.0.1:1"
    assert before == (discord.http.Route.BASE, discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY)


# -- as a process --------------------------------------------------------------------------------


@pytest.fixture
async def process(tmp_path: pathlib.Path) -> AsyncIterator[dict[str, Any]]:
    seed = [
        ["add_user", {"name": "alice", "id_": 111}],
        ["add_guild", {"name": "home", "id_": 222, "owner": 111}],
        ["add_channel", {"guild": 222, "name": "general", "id_": 333}],
    ]
    file = tmp_path / "seed.json"
    file.write_text(json.dumps(seed))
    ready = tmp_path / "ready.json"
    command = [sys.executable, "-m", "tests.fakes.discord_server", "--token", TOKEN]
    command += ["--seed", str(file), "--ready-file", str(ready)]
    root = pathlib.Path(__file__).parents[2]
    child = await asyncio.create_subprocess_exec(*command, cwd=root, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    addresses = json.loads(await asyncio.wait_for(child.stdout.readline(), 20))
    assert json.loads(ready.read_text()) == addresses
    try:
        yield addresses
    finally:
        child.terminate()
        assert await asyncio.wait_for(child.wait(), 10) == 0


async def test_driving_a_process(process: dict[str, Any]) -> None:
    bot = Bot(intents())
    bot.answer = lambda message: message.channel.send(f"re: {message.content}")
    async with DiscordControl(process["base_url"]) as control:
        with discord_py_at(process["api_base"], process["gateway_url"]):
            task = asyncio.create_task(bot.start(TOKEN))
            # A client closed before it is ready would fail when it becomes ready afterwards.
            await until(lambda: "ready" in bot.noted)
            await control.call("wait_connected")
            await control.call("user_says", 333, 111, "hello")
            sent = await control.call("wait_sent", 1, channel=333)
            assert [one["content"] for one in sent] == ["re: hello"]
            assert await control.call("texts", 333) == ["hello", "re: hello"]
            await control.call("fault", "503", method="POST")
            assert len((await control.stats())["faults_left"]) == 1
            await control.call("kill_sockets", 4000)
            await until(lambda: "resumed" in bot.noted)
            await bot.close()
            await task
        with pytest.raises(ControlError, match="no helper"):
            await control.call("stop")
        with pytest.raises(ControlError, match="Unknown Channel"):
            await control.call("texts", 4)
        with pytest.raises(TimeoutError):
            await control.call("wait_sent", 9, timeout=0.05)
        assert (await control.calls())[0]["path"] == "/users/@me"
        assert (await control.sent())[0]["channel_id"] == 333
