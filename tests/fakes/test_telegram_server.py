"""The loopback Telegram server keeps the platform's rules, raw and for the real client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
import telegramify_markdown
from aiohttp import web
from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, MessageEntity, Update
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    EndPointNotFound,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
    TimedOut,
)
from telegram.ext import ExtBot, Updater
from telegram.request import HTTPXRequest

from tests.fakes.telegram_server import (
    CHANNEL,
    GROUP,
    PNG,
    USER,
    Fault,
    RemoteError,
    RemoteTelegram,
    TelegramServer,
    utf16_len,
)
from tests.fakes.telegram_server.markup import parse

Ask = Callable[..., Awaitable[tuple[int, dict[str, Any]]]]
SMILE = "\U0001f600"


class Clock:
    """A settable wall clock."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture(autouse=True)
def _waits_as_timedelta(monkeypatch: pytest.MonkeyPatch) -> None:
    # without it merely raising RetryAfter warns, and warnings are errors here
    monkeypatch.setenv("PTB_TIMEDELTA", "true")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def server(clock: Clock) -> AsyncIterator[TelegramServer]:
    async with TelegramServer(clock=clock) as running:
        running.add_private(USER)
        yield running


@pytest.fixture
async def web_client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def ask(server: TelegramServer, web_client: aiohttp.ClientSession) -> Ask:
    async def call(method: str, **params: Any) -> tuple[int, dict[str, Any]]:
        url = f"{server.base_url}{server.token}/{method}"
        async with web_client.post(url, json=params) as answer:
            body = await answer.json()
            assert body["ok"] is (answer.status == 200)
            return answer.status, body

    return call


@asynccontextmanager
async def client(
    server: TelegramServer | RemoteTelegram, read_timeout: float = 5.0, kind: type[Bot] = ExtBot
) -> AsyncIterator[Bot]:
    bot = kind(
        server.token,
        base_url=server.base_url,
        base_file_url=server.base_file_url,
        request=HTTPXRequest(read_timeout=read_timeout),
        get_updates_request=HTTPXRequest(read_timeout=read_timeout),
    )
    async with bot:
        yield bot


@pytest.fixture
async def bot(server: TelegramServer) -> AsyncIterator[Bot]:
    async with client(server) as ready:
        yield ready


def expect(answer: tuple[int, dict[str, Any]], code: int, text: str) -> None:
    """The envelope repeats the HTTP status and carries exactly this text."""
    status, body = answer
    assert (status, body.get("error_code"), body.get("description")) == (code, code, text)


# --- envelope and parameters ---------------------------------------------------------------


async def test_tokens_and_methods(
    server: TelegramServer, ask: Ask, web_client: aiohttp.ClientSession
) -> None:
    async def status(token: str, method: str = "getMe") -> tuple[int, dict[str, Any]]:
        async with web_client.get(f"{server.base_url}{token}/{method}") as answer:
            return answer.status, await answer.json()

    expect(await status("123456789:wrong_token_of_right_form"), 401, "Unauthorized")
    expect(await status("nonsense"), 404, "Not Found")
    expect(await status(server.token, "noSuchMethod"), 404, "Not Found")
    code, body = await status(server.token, "GETME")
    assert code == 200
    assert body["result"]["id"] == int(server.token.partition(":")[0])
    assert {"is_bot", "first_name", "username"} <= set(body["result"])
    server.token_valid = False
    expect(await ask("getMe"), 401, "Unauthorized")


@pytest.mark.parametrize("encoding", ["query", "form", "json", "multipart"])
async def test_parameters_in_every_encoding(
    server: TelegramServer, web_client: aiohttp.ClientSession, encoding: str
) -> None:
    values = {"chat_id": str(USER), "text": "grüße 你好 & = %"}
    url = f"{server.base_url}{server.token}/sendMessage"
    if encoding == "query":
        request = web_client.get(url, params=values)
    elif encoding == "form":
        request = web_client.post(url, data=values)
    elif encoding == "json":
        request = web_client.post(url, json=values)
    else:
        form = aiohttp.FormData(values, default_to_multipart=True)
        request = web_client.post(url, data=form)
    async with request as answer:
        assert answer.status == 200
    assert server.visible_texts(USER) == [values["text"]]


async def test_broken_parameters(
    server: TelegramServer, ask: Ask, web_client: aiohttp.ClientSession
) -> None:
    url = f"{server.base_url}{server.token}/sendMessage"
    async with web_client.post(
        url, data=b"{broken", headers={"Content-Type": "application/json"}
    ) as answer:
        assert answer.status == 400
    async with web_client.post(
        url,
        data=b"chat_id=111&text=%ff%fe",
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    ) as answer:
        body = await answer.json()
        assert body["description"] == "Bad Request: strings must be encoded in UTF-8"
    expect(
        await ask("sendMessage", chat_id=USER, text="\ud83d"),
        400,
        "Bad Request: strings must be encoded in UTF-8",
    )
    expect(
        await ask("sendMessage", chat_id=USER, text="x", reply_markup="{no"),
        400,
        "Bad Request: can't parse reply keyboard markup JSON object",
    )
    assert server.sent == []


# --- sendMessage ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"text": ""}, "message text is empty"),
        ({}, "message text is empty"),
        ({"text": " \n "}, "text must be non-empty"),
        ({"text": "a" * 4097}, "message is too long"),
        ({"text": SMILE * 2049}, "message is too long"),
        ({"text": "x", "chat_id": 222}, "chat not found"),
        ({"text": "x", "chat_id": ""}, "chat_id is empty"),
        ({"text": "x", "chat_id": "@nobody"}, "chat not found"),
        ({"text": "x", "message_thread_id": 7}, "message thread not found"),
        (
            {"text": "x", "reply_parameters": {"message_id": 9}},
            "message to be replied not found",
        ),
        ({"text": "x", "reply_to_message_id": 9}, "message to be replied not found"),
        ({"text": "x", "parse_mode": "XML"}, "unsupported parse_mode"),
        (
            {"text": "v1.0", "parse_mode": "MarkdownV2"},
            "can't parse entities: Character '.' is reserved "
            "and must be escaped with the preceding '\\'",
        ),
        (
            {"text": "a *b", "parse_mode": "MarkdownV2"},
            "can't parse entities: Can't find end of Bold entity at byte offset 2",
        ),
        (
            {"text": "é _b", "parse_mode": "Markdown"},
            "can't parse entities: Can't find end of the entity starting at byte offset 3",
        ),
        (
            {"text": "<b>x", "parse_mode": "HTML"},
            "can't parse entities: Can't find end tag corresponding to start tag \"b\"",
        ),
        (
            {"text": "x", "reply_markup": {"inline_keyboard": [[{"text": ""}]]}},
            "can't parse inline keyboard button: Text buttons must be non-empty",
        ),
        (
            {
                "text": "x",
                "reply_markup": {"inline_keyboard": [[{"text": "b", "callback_data": "é" * 33}]]},
            },
            "BUTTON_DATA_INVALID",
        ),
    ],
)
async def test_send_message_refusals(
    server: TelegramServer, ask: Ask, params: dict[str, Any], text: str
) -> None:
    expect(await ask("sendMessage", **{"chat_id": USER, **params}), 400, f"Bad Request: {text}")
    assert server.sent == []
    assert server.calls[-1].status == 400


async def test_markup_is_refused_before_the_chat_is_looked_up(ask: Ask) -> None:
    code, body = await ask("sendMessage", chat_id=222, text="a.", parse_mode="MarkdownV2")
    assert code == 400
    assert "reserved" in body["description"]


async def test_length_is_counted_after_parsing_in_utf16(server: TelegramServer, ask: Ask) -> None:
    assert (await ask("sendMessage", chat_id=USER, text=SMILE * 2048))[0] == 200
    assert (await ask("sendMessage", chat_id=USER, text="a" * 4094 + SMILE))[0] == 200
    marked = "<b>" + "a" * 4096 + "</b>"
    assert (await ask("sendMessage", chat_id=USER, text=marked, parse_mode="HTML"))[0] == 200
    assert [utf16_len(sent.text) for sent in server.sent] == [4096, 4096, 4096]


async def test_blanks_at_the_ends_are_trimmed(server: TelegramServer, ask: Ask) -> None:
    span = [{"type": "bold", "offset": 2, "length": 4}]
    await ask("sendMessage", chat_id=USER, text="\n  hi \n", entities=span)
    await ask("sendMessage", chat_id=USER, text="  plain \n\n")
    # leading blanks only go as far as the first entity
    assert [sent.text for sent in server.sent] == [" hi", "plain"]
    assert server.sent[0].entities == [{"type": "bold", "offset": 0, "length": 3}]


@pytest.mark.parametrize(
    ("entity", "text"),
    [
        ({"type": "shiny", "offset": 0, "length": 1}, "can't parse MessageEntity: Unsupported"),
        (
            {"type": "bold", "offset": "0", "length": 1},
            'can\'t parse MessageEntity: Field "offset"',
        ),
        ({"type": "text_link", "offset": 0, "length": 1}, "can't parse MessageEntity: Can't find"),
        ({"type": "bold", "offset": -1, "length": 1}, "receive an entity with incorrect offset -1"),
        ({"type": "bold", "offset": 0, "length": -1}, "receive an entity with incorrect length -1"),
        (
            {"type": "bold", "offset": 0, "length": 9},
            "entity beginning at UTF-16 offset 0 ends after the end of the text at UTF-16 offset 9",
        ),
        (
            {"type": "bold", "offset": 9, "length": 1},
            "entity begins after the end of the text at UTF-16 offset 9",
        ),
        (
            {"type": "bold", "offset": 0, "length": 1},
            "entity beginning at UTF-16 offset 0 ends in a middle of a UTF-16 symbol "
            "at byte offset 4",
        ),
        (
            {"type": "bold", "offset": 1, "length": 1},
            "entity begins in a middle of a UTF-16 symbol at byte offset 4",
        ),
    ],
)
async def test_entity_refusals(
    server: TelegramServer, ask: Ask, entity: dict[str, Any], text: str
) -> None:
    code, body = await ask("sendMessage", chat_id=USER, text=SMILE + "ab", entities=[entity])
    assert code == 400
    assert body["description"].startswith(f"Bad Request: {text}")
    assert server.sent == []


async def test_at_most_100_entities_are_kept(server: TelegramServer, ask: Ask) -> None:
    spans = [{"type": "bold", "offset": n * 2, "length": 1} for n in range(120)]
    automatic = [{"type": "url", "offset": 0, "length": 1}]
    await ask("sendMessage", chat_id=USER, text="a " * 120, entities=spans + automatic)
    assert len(server.sent[0].entities) == 100
    assert server.sent[0].entities == spans[:100]


@pytest.mark.parametrize(
    ("source", "mode", "text", "entities"),
    [
        (
            "*b* _i_ __u__ ~s~",
            "MarkdownV2",
            "b i u s",
            ["bold", "italic", "underline", "strikethrough"],
        ),
        ("||h|| `c.` \\*", "MarkdownV2", "h c. *", ["spoiler", "code"]),
        ("```python\nx = 1.0\n```", "MarkdownV2", "x = 1.0\n", ["pre"]),
        ("[t](http://a.b/c_d\\)e)", "MarkdownV2", "t", ["text_link"]),
        (">q1\n>q2\nrest", "MarkdownV2", "q1\nq2\nrest", ["blockquote"]),
        ("**>q1\n>q2||", "MarkdownV2", "q1\nq2", ["expandable_blockquote"]),
        ("*a _b_ c*", "MarkdownV2", "a b c", ["bold", "italic"]),
        ("*b* [t](http://a.b) `c`", "Markdown", "b t c", ["bold", "text_link", "code"]),
        ("a\\_b *c*", "Markdown", "a_b c", ["bold"]),
        ("<b>b</b> &lt;&#65; <a href='http://a.b'>t</a>", "HTML", "b <A t", ["bold", "text_link"]),
        ('<pre><code class="language-py">x</code></pre>', "HTML", "x", ["pre"]),
        ("<blockquote expandable>q</blockquote>", "HTML", "q", ["expandable_blockquote"]),
        ('<span class="tg-spoiler">s</span>', "HTML", "s", ["spoiler"]),
    ],
)
def test_parse_modes(source: str, mode: str, text: str, entities: list[str]) -> None:
    found, spans = parse(source, mode)
    assert found == text
    assert [span["type"] for span in spans] == entities


@pytest.mark.parametrize(
    ("source", "mode", "reason"),
    [
        ("a (b)", "MarkdownV2", "Character '(' is reserved"),
        ("a - b", "MarkdownV2", "Character '-' is reserved"),
        ("a | b", "MarkdownV2", "Character '|' is reserved"),
        ("``` x", "MarkdownV2", "Can't find end of Pre entity at byte offset 0"),
        ("```py x", "MarkdownV2", "Can't find end of PreCode entity at byte offset 0"),
        ("你 __u_", "MarkdownV2", "Can't find end of Italic entity at byte offset 7"),
        ("[t](http://a.b", "MarkdownV2", "Can't find end of a URL at byte offset 4"),
        ("a < b", "HTML", 'Unsupported start tag "" at byte offset 2'),
        ("<div>x</div>", "HTML", 'Unsupported start tag "div" at byte offset 0'),
        ("<b>x</i>", "HTML", 'Unmatched end tag at byte offset 4, expected "</b>", found "</i>"'),
        ("x</b>", "HTML", "Unexpected end tag at byte offset 1"),
        ("<b", "HTML", "Unclosed start tag at byte offset 0"),
        ("<span>x</span>", "HTML", 'Tag "span" must have class "tg-spoiler"'),
        ("a_b", "Markdown", "Can't find end of the entity starting at byte offset 1"),
    ],
)
def test_parse_errors(source: str, mode: str, reason: str) -> None:
    with pytest.raises(Exception, match="can't parse entities") as caught:
        parse(source, mode)
    assert reason in str(caught.value)


async def test_replies(server: TelegramServer, ask: Ask) -> None:
    asked = server.private_text("question")["message"]["message_id"]
    _, body = await ask(
        "sendMessage", chat_id=USER, text="a", reply_parameters={"message_id": asked}
    )
    assert body["result"]["reply_to_message"]["text"] == "question"
    assert server.sent[0].reply_to == asked
    lenient = {"message_id": 999, "allow_sending_without_reply": True}
    _, body = await ask("sendMessage", chat_id=USER, text="b", reply_parameters=lenient)
    assert "reply_to_message" not in body["result"]
    wrong = {"message_id": asked, "quote": "not in it"}
    expect(
        await ask("sendMessage", chat_id=USER, text="c", reply_parameters=wrong),
        400,
        "Bad Request: QUOTE_TEXT_INVALID",
    )


async def test_people_who_do_not_want_the_bot(server: TelegramServer, ask: Ask) -> None:
    server.block(USER)
    blocked = "Forbidden: bot was blocked by the user"
    expect(await ask("sendMessage", chat_id=USER, text="x"), 403, blocked)
    server.unblock(USER)
    assert (await ask("sendMessage", chat_id=USER, text="x"))[0] == 200
    server.add_private(333, started=False)
    shy = "Forbidden: bot can't initiate conversation with a user"
    expect(await ask("sendMessage", chat_id=333, text="x"), 403, shy)
    server.private_text("hello", user_id=333)
    assert (await ask("sendMessage", chat_id=333, text="x"))[0] == 200
    server.add_group(GROUP)
    server.kick(GROUP)
    kicked = "Forbidden: bot was kicked from the supergroup chat"
    expect(await ask("sendMessage", chat_id=GROUP, text="x"), 403, kicked)


async def test_topics(server: TelegramServer, ask: Ask) -> None:
    server.add_group(GROUP, topics={7: "seven"})
    _, body = await ask("sendMessage", chat_id=GROUP, text="x", message_thread_id=7)
    assert body["result"]["is_topic_message"] is True
    expect(
        await ask("sendMessage", chat_id=GROUP, text="x", message_thread_id=1),
        400,
        "Bad Request: message thread not found",
    )
    assert (await ask("sendChatAction", chat_id=GROUP, action="typing", message_thread_id=1))[
        0
    ] == 200
    update = server.group_text("in the topic", thread_id=7)["message"]
    assert update["message_thread_id"] == 7
    assert "forum_topic_created" in update["reply_to_message"]
    assert server.visible_texts(GROUP, 7) == ["x"]
    # an answer in a plain supergroup names a thread, but it is no topic
    first = server.group_text("one", chat_id=-1009)["message"]["message_id"]
    answer = server.group_text("two", chat_id=-1001000000009, reply_to=1)
    assert first
    assert answer["message"]["message_thread_id"] == 1
    assert "is_topic_message" not in answer["message"]


async def test_message_ids(server: TelegramServer) -> None:
    """Private chats and small groups share a counter; each supergroup has its own."""
    ids = [
        server.private_text("a", user_id=1)["message"]["message_id"],
        server.private_text("b", user_id=2)["message"]["message_id"],
        server.group_text("c", chat_id=-5)["message"]["message_id"],
        server.group_text("d", chat_id=GROUP)["message"]["message_id"],
    ]
    assert ids == [1, 2, 3, 1]


# --- edit, delete, react, draft, actions ---------------------------------------------------


async def test_edit_message_text(server: TelegramServer, ask: Ask, clock: Clock) -> None:
    _, body = await ask("sendMessage", chat_id=USER, text="one")
    message_id = body["result"]["message_id"]
    clock.seconds += 5
    code, body = await ask("editMessageText", chat_id=USER, message_id=message_id, text="two")
    assert code == 200
    assert body["result"]["edit_date"] == int(clock.seconds)
    same = (
        "Bad Request: message is not modified: specified new message content and reply markup "
        "are exactly the same as a current content and reply markup of the message"
    )
    edit = {"chat_id": USER, "message_id": message_id}
    expect(await ask("editMessageText", **edit, text="two"), 400, same)
    expect(await ask("editMessageText", **edit, text=" two\n"), 400, same)
    bold = [{"type": "bold", "offset": 0, "length": 3}]
    assert (await ask("editMessageText", **edit, text="two", entities=bold))[0] == 200
    expect(
        await ask("editMessageText", **edit, text="a" * 4097), 400, "Bad Request: MESSAGE_TOO_LONG"
    )
    expect(await ask("editMessageText", **edit, text=""), 400, "Bad Request: message text is empty")
    sent = server.sent[0]
    assert (sent.first_text, sent.text) == ("one", "two")
    assert [change.text for change in sent.edits] == ["two", "two"]
    assert sent.edits[0].seq < sent.edits[1].seq


async def test_edit_refusals(server: TelegramServer, ask: Ask) -> None:
    theirs = server.private_text("mine")["message"]["message_id"]
    edit = {"chat_id": USER, "text": "x"}
    expect(
        await ask("editMessageText", **edit),
        400,
        "Bad Request: message identifier is not specified",
    )
    expect(
        await ask("editMessageText", **edit, message_id=99),
        400,
        "Bad Request: message to edit not found",
    )
    expect(
        await ask("editMessageText", **edit, message_id=theirs),
        400,
        "Bad Request: message can't be edited",
    )


async def test_delete(server: TelegramServer, ask: Ask, clock: Clock) -> None:
    await ask("sendMessage", chat_id=USER, text="one")
    await ask("sendMessage", chat_id=USER, text="two")
    first = server.sent[0].message_id
    assert (await ask("deleteMessage", chat_id=USER, message_id=first))[0] == 200
    assert server.visible_texts(USER) == ["two"]
    gone = "Bad Request: message to delete not found"
    expect(await ask("deleteMessage", chat_id=USER, message_id=first), 400, gone)
    expect(
        await ask("editMessageText", chat_id=USER, message_id=first, text="x"),
        400,
        "Bad Request: message to edit not found",
    )
    theirs = server.group_text("hi")["message"]["message_id"]
    forbidden = "Bad Request: message can't be deleted"
    expect(await ask("deleteMessage", chat_id=GROUP, message_id=theirs), 400, forbidden)
    clock.seconds += 49 * 3600
    second = server.sent[1].message_id
    expect(await ask("deleteMessage", chat_id=USER, message_id=second), 400, forbidden)


async def test_reactions_actions_and_drafts(server: TelegramServer, ask: Ask) -> None:
    asked = server.private_text("hi")["message"]["message_id"]
    good = [{"type": "emoji", "emoji": "👀"}]
    react = {"chat_id": USER, "message_id": asked}
    assert (await ask("setMessageReaction", **react, reaction=good))[0] == 200
    assert server.state.reactions[(USER, asked)] == good
    expect(
        await ask("setMessageReaction", **react, reaction=[{"type": "emoji", "emoji": "🧮"}]),
        400,
        "Bad Request: REACTION_INVALID",
    )
    expect(
        await ask("setMessageReaction", chat_id=USER, message_id=99, reaction=good),
        400,
        "Bad Request: message to react not found",
    )
    expect(
        await ask("sendChatAction", chat_id=USER, action="dancing"),
        400,
        "Bad Request: wrong parameter action in request",
    )
    assert (await ask("sendMessageDraft", chat_id=USER, draft_id=5, text="half"))[0] == 200
    assert server.state.drafts[USER]["text"] == "half"
    assert (await ask("sendMessageDraft", chat_id=USER, draft_id=0, text="x"))[0] == 400
    server.add_group(GROUP)
    expect(
        await ask("sendMessageDraft", chat_id=GROUP, draft_id=5, text="x"),
        400,
        "Bad Request: TEXTDRAFT_PEER_INVALID",
    )
    await ask("sendMessage", chat_id=USER, text="whole")
    assert server.state.drafts == {}
    assert server.visible_texts(USER) == ["whole"]


async def test_commands(server: TelegramServer, ask: Ask) -> None:
    good = [{"command": "new", "description": "Start anew"}]
    assert (await ask("setMyCommands", commands=good))[0] == 200
    assert (await ask("getMyCommands"))[1]["result"] == good
    scope = {"type": "all_group_chats"}
    assert (await ask("getMyCommands", scope=scope))[1]["result"] == []
    for command, text in (
        ({"command": "New", "description": "x"}, "BOT_COMMAND_INVALID"),
        ({"command": "n" * 33, "description": "x"}, "BOT_COMMAND_INVALID"),
        ({"command": "new", "description": ""}, "BOT_COMMAND_DESCRIPTION_INVALID"),
    ):
        expect(await ask("setMyCommands", commands=[command]), 400, f"Bad Request: {text}")
    expect(
        await ask("setMyCommands", commands=good * 101), 400, "Bad Request: BOT_COMMANDS_TOO_MUCH"
    )
    assert (await ask("deleteMyCommands"))[0] == 200
    assert (await ask("getMyCommands"))[1]["result"] == []


async def test_callback_queries(server: TelegramServer, ask: Ask) -> None:
    keyboard = {"inline_keyboard": [[{"text": "Yes", "callback_data": "y"}]]}
    await ask("sendMessage", chat_id=USER, text="sure?", reply_markup=keyboard)
    query = server.callback("y", server.sent[0].message_id)["callback_query"]
    assert query["message"]["reply_markup"] == keyboard
    assert (await ask("answerCallbackQuery", callback_query_id=query["id"], text="ok"))[0] == 200
    old = "Bad Request: query is too old and response timeout expired or query ID is invalid"
    expect(await ask("answerCallbackQuery", callback_query_id=query["id"]), 400, old)
    edit = {"chat_id": USER, "message_id": server.sent[0].message_id}
    assert (await ask("editMessageReplyMarkup", **edit))[0] == 200
    assert server.visible(USER)[0].reply_markup is None


# --- files ---------------------------------------------------------------------------------


async def test_file_refusals(server: TelegramServer, ask: Ask) -> None:
    expect(await ask("getFile", file_id="none"), 400, "Bad Request: invalid file_id")
    update = server.document(b"x", size=21 * 1024 * 1024)
    big = update["message"]["document"]["file_id"]
    expect(await ask("getFile", file_id=big), 400, "Bad Request: file is too big")
    expect(
        await ask("sendDocument", chat_id=USER),
        400,
        "Bad Request: there is no document in the request",
    )
    code, body = await ask("sendDocument", chat_id=USER, document="no-such-id")
    assert code == 400
    assert "wrong remote file identifier" in body["description"]


async def test_uploads_through_the_client(server: TelegramServer, bot: Bot) -> None:
    message = await bot.send_document(USER, b"contents", filename="a.txt", caption="see *this*")
    assert message.document is not None
    assert message.document.file_name == "a.txt"
    assert server.state.files[message.document.file_id].data == b"contents"
    again = await bot.send_document(USER, message.document.file_id)
    assert again.document is not None
    photo = await bot.send_photo(USER, PNG, caption="p")
    assert photo.photo
    with pytest.raises(BadRequest, match=r"(?i)image_process_failed"):
        await bot.send_photo(USER, b"not a picture")
    with pytest.raises(BadRequest, match=r"(?i)file must be non-empty"):
        await bot.send_document(USER, b"", filename="a.txt")
    with pytest.raises(BadRequest, match=r"(?i)caption is too long"):
        await bot.send_document(USER, b"x", filename="a.txt", caption="c" * 1025)
    assert [sent.kind for sent in server.sent] == ["document", "document", "photo"]
    assert server.sent[0].file_name == "a.txt"


async def test_downloads_through_the_client(server: TelegramServer, bot: Bot) -> None:
    update = Update.de_json(server.photo(PNG, caption="look"), bot)
    assert update.message is not None
    file = await update.message.photo[-1].get_file()
    assert bytes(await file.download_as_bytearray()) == PNG
    server.fault(Fault.html(502, "downloadFile"))
    with pytest.raises(NetworkError):
        await file.download_as_bytearray()
    server.state.files.clear()
    with pytest.raises(InvalidToken):  # the library reads any 404 that way
        await file.download_as_bytearray()


async def test_a_path_is_open_for_an_hour_from_when_it_was_asked_for(ask: Ask) -> None:
    now = [1_000.0]
    async with TelegramServer(clock=lambda: now[0]) as server, client(server) as bot:
        file_id = server.document(b"words")["message"]["document"]["file_id"]
        path = server.state.files[file_id].path
        url = f"{server.base_file_url}{server.token}/{path}"
        async with aiohttp.ClientSession() as session:

            async def load() -> int:
                async with session.get(url) as answer:
                    return answer.status

            assert await load() == 404
            await bot.get_file(file_id)
            assert await load() == 200
            now[0] += 3_600
            assert await load() == 404


async def test_all_kinds_of_files_are_read_by_the_client(server: TelegramServer, bot: Bot) -> None:
    kinds = {
        "audio": {}, "video": {}, "animation": {}, "voice": {}, "video_note": {"length": 240},
        "sticker": {"type": "regular", "is_animated": False, "is_video": False, "emoji": "😀"},
    }  # fmt: skip
    for kind, fields in kinds.items():
        update = Update.de_json(server.media(kind, fields=fields, caption="c"), bot)
        assert update.message is not None
        found = getattr(update.message, kind)
        assert (await (await found.get_file()).download_as_bytearray()) == b"bytes"
    number = server.photo(PNG, caption="look")["message"]["message_id"]
    edited = Update.de_json(server.edit_message(number, "@posthouse_test_bot see"), bot)
    assert edited.edited_message is not None
    assert edited.edited_message.caption == "@posthouse_test_bot see"
    assert [e.type for e in edited.edited_message.caption_entities] == ["mention"]
    origin = {"type": "hidden_user", "sender_user_name": "Eve"}
    passed_on = Update.de_json(server.forwarded("/new x", origin), bot)
    assert passed_on.message is not None
    assert passed_on.message.forward_origin.sender_user_name == "Eve"


@pytest.mark.parametrize("kind", ["short", "endless", "packed", "moved", "drip"])
async def test_bytes_that_come_badly(server: TelegramServer, bot: Bot, kind: str) -> None:
    file = await bot.get_file(server.document(b"words" * 9)["message"]["document"]["file_id"])
    server.fault(Fault.download(kind, seconds=0.001))
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.get(file.file_path, allow_redirects=False) as answer,
    ):
        if kind == "moved":
            assert (answer.status, answer.headers["Location"][-5:]) == (302, "/else")
        elif kind == "packed":
            assert answer.headers["Content-Encoding"] == "gzip"
            assert len(await answer.read()) < 100_000
        elif kind == "endless":
            assert len(await answer.content.readexactly(1_000_000)) == 1_000_000
        elif kind == "short":
            with pytest.raises(aiohttp.ClientError):
                await answer.read()
        else:
            assert await answer.read() == b"words" * 9


# --- getUpdates ----------------------------------------------------------------------------


async def updates(ask: Ask, **params: Any) -> list[int]:
    _, body = await ask("getUpdates", **params)
    return [update["update_id"] for update in body["result"]]


async def test_an_update_is_forgotten_only_when_a_later_offset_confirms_it(
    server: TelegramServer, ask: Ask
) -> None:
    for number in range(5):
        server.private_text(f"m{number}")
    assert await updates(ask) == [1, 2, 3, 4, 5]
    assert await updates(ask, offset=2) == [2, 3, 4, 5]
    assert await updates(ask, limit=2) == [2, 3]
    assert await updates(ask, offset=2, limit=1) == [2]
    assert await updates(ask, offset=-2) == [4, 5]
    assert await updates(ask, offset=0) == [4, 5]
    assert await updates(ask, offset=6) == []
    assert server.stats()["confirmed"] == 5 - 2 + 2
    assert server.stats()["pending"] == 0


async def test_long_poll_wakes_up(server: TelegramServer, ask: Ask) -> None:
    waiting = asyncio.ensure_future(updates(ask, timeout=30))
    await server.wait_polling()
    server.private_text("now")
    assert await waiting == [1]
    assert await updates(ask, offset=2, timeout=0) == []


async def test_the_older_poller_gets_the_conflict(server: TelegramServer, ask: Ask) -> None:
    older = asyncio.ensure_future(ask("getUpdates", timeout=30))
    await server.wait_polling()
    newer = asyncio.ensure_future(updates(ask, timeout=30))
    expect(
        await older,
        409,
        "Conflict: terminated by other getUpdates request; "
        "make sure that only one bot instance is running",
    )
    server.private_text("for the newer")
    assert await newer == [1]


async def test_a_poller_that_left_is_gone(server: TelegramServer, ask: Ask) -> None:
    waiting = asyncio.ensure_future(ask("getUpdates", timeout=30))
    await server.wait_polling()
    waiting.cancel()
    await server.until(lambda: not server.updates.polling)


async def test_allowed_updates_filters_when_the_update_is_made(
    server: TelegramServer, ask: Ask
) -> None:
    message_id = server.private_text("early")["message"]["message_id"]
    server.reaction(message_id)  # not among the default kinds
    assert await updates(ask) == [1]
    await ask("getUpdates", offset=2, allowed_updates=["message_reaction"])
    server.private_text("not wanted now")
    server.reaction(message_id)
    assert await updates(ask, offset=2) == [2]
    await ask("getUpdates", offset=3, allowed_updates=[])
    server.private_text("wanted again")
    assert await updates(ask) == [3]


async def test_duplicates_jumps_and_expiry(server: TelegramServer, ask: Ask, clock: Clock) -> None:
    first = server.private_text("one")
    await ask("getUpdates", offset=2)
    server.redeliver(first)
    assert await updates(ask, offset=2) == [1]
    assert await updates(ask, offset=2) == []
    server.updates.renumber(900)
    server.private_text("jumped up")
    assert await updates(ask, offset=2) == [900]
    await ask("getUpdates", offset=901)
    server.updates.renumber(50)
    server.private_text("jumped down")
    # the stale offset of before means nothing any more
    assert await updates(ask, offset=901) == [50]
    assert await updates(ask, offset=51) == []
    server.private_text("too late")
    clock.seconds += 24 * 3600 + 1
    assert await updates(ask) == []


# --- webhook -------------------------------------------------------------------------------


@asynccontextmanager
async def receiver(statuses: list[int]) -> AsyncIterator[tuple[str, list[tuple[str, int]]]]:
    got: list[tuple[str, int]] = []

    async def take(request: web.Request) -> web.Response:
        body = await request.json()
        secret = request.headers.get("X-Telegram-Bot-Api-Secret-Token", "")
        got.append((secret, body["update_id"]))
        return web.Response(status=statuses.pop(0) if statuses else 200)

    app = web.Application()
    app.router.add_post("/hook", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/hook", got
    finally:
        await runner.cleanup()


async def test_webhook(server: TelegramServer, ask: Ask) -> None:
    server.private_text("queued before")
    waiting = asyncio.ensure_future(ask("getUpdates", offset=2, timeout=30))
    await server.wait_polling()
    async with receiver([500, 200]) as (url, got):
        assert (await ask("setWebhook", url=url, secret_token="s-1"))[0] == 200
        expect(await waiting, 409, "Conflict: terminated by setWebhook request")
        second = server.private_text("second")
        third = server.private_text("third")
        await server.wait_confirmed(third["update_id"])
        # the failed one is repeated before the next one goes out
        assert got == [("s-1", 2), ("s-1", 2), ("s-1", 3)]
        expect(
            await ask("getUpdates"),
            409,
            "Conflict: can't use getUpdates method while webhook is active; "
            "use deleteWebhook to delete the webhook first",
        )
        _, info = await ask("getWebhookInfo")
        assert info["result"]["url"] == url
        assert "500" in info["result"]["last_error_message"]
        server.redeliver(second)
        await server.until(lambda: got[-1] == ("s-1", 2))
        assert (await ask("deleteWebhook"))[0] == 200
        server.private_text("polled")
        server.private_text("dropped")
    assert await updates(ask) == [4, 5]
    await ask("deleteWebhook", drop_pending_updates=True)
    assert await updates(ask) == []


async def test_webhook_refusals(ask: Ask) -> None:
    expect(
        await ask("setWebhook", url="http://127.0.0.1:1/x", secret_token="no blanks"),
        400,
        "Bad Request: secret token contains unallowed characters",
    )
    code, _ = await ask("setWebhook", url="ftp://x")
    assert code == 400


# --- inbound helpers -----------------------------------------------------------------------


async def test_helpers_make_updates_the_library_can_read(server: TelegramServer, bot: Bot) -> None:
    me = server.state.bot["username"]
    server.private_text("مرحبا 你好 👨‍👩‍👧", user_id=5)
    server.group_text("hello", mention=True)
    server.command("/stop now", addressed=True, chat_id=GROUP)
    edited = server.private_text("before")["message"]["message_id"]
    server.edit_message(edited, "after")
    server.album([PNG, PNG, PNG], caption="c", caption_at=1)
    server.paste("x" * 4096 + "y" * 300)
    server.bot_text("beep")
    server.channel_post("news")
    server.service("new_chat_members", chat_id=GROUP)
    server.voice()
    server.document(b"d", caption="/new")
    server.member_update("kicked")
    server.callback("data", edited)
    server.migrate(-77, -1000000000077)
    found = await bot.get_updates(timeout=0)
    assert [update.update_id for update in found] == list(range(1, len(found) + 1))
    texts = [u.effective_message.text for u in found if u.effective_message is not None]
    assert texts[0] == "مرحبا 你好 👨‍👩‍👧"
    assert texts[1] == f"@{me} hello"
    mention = found[1].message.parse_entities([MessageEntity.MENTION])
    assert list(mention.values()) == [f"@{me}"]
    command = found[2].message.parse_entities([MessageEntity.BOT_COMMAND])
    assert list(command.values()) == [f"/stop@{me}"]
    assert found[4].edited_message.text == "after"
    assert found[4].edited_message.edit_date is not None
    album = [u.message for u in found if u.message and u.message.media_group_id]
    assert [m.caption for m in album] == [None, "c", None]
    long = [t for t in texts if t and t.startswith(("xxx", "yyy"))]
    assert [len(text) for text in long] == [4096, 300]
    assert any(u.message and u.message.from_user and u.message.from_user.is_bot for u in found)
    assert any(u.channel_post and u.channel_post.chat.id == CHANNEL for u in found)
    assert any(u.callback_query and u.callback_query.data == "data" for u in found)
    assert any(u.my_chat_member for u in found)
    assert any(u.message and u.message.migrate_to_chat_id == -1000000000077 for u in found)


@pytest.mark.parametrize("variant", ["no_chat", "text_chat", "list_message"])
async def test_garbage_breaks_the_librarys_parser(
    server: TelegramServer, bot: Bot, variant: str
) -> None:
    update = server.garbage(variant)
    with pytest.raises(Exception):  # noqa: B017, PT011 - any: the point is that it breaks
        await bot.get_updates(timeout=0)
    assert update["update_id"] == 1
    assert server.stats()["pending"] == 1


@pytest.mark.parametrize("variant", ["unknown_kind", "unknown_fields"])
async def test_strange_updates_the_library_can_read(
    server: TelegramServer, bot: Bot, variant: str
) -> None:
    server.garbage(variant)
    assert len(await bot.get_updates(timeout=0)) == 1


async def test_raw_updates(server: TelegramServer, ask: Ask) -> None:
    server.raw({"update_id": 77, "message_reaction": {"odd": True}})
    assert await updates(ask) == [77]
    assert server.private_text("next")["update_id"] == 78
    with pytest.raises(ValueError, match="number"):
        server.raw({"update_id": "x"})


async def test_dates_come_from_the_injected_clock(
    server: TelegramServer, ask: Ask, clock: Clock
) -> None:
    clock.seconds = 1_234_567_890.9
    assert server.private_text("x")["message"]["date"] == 1_234_567_890
    _, body = await ask("sendMessage", chat_id=USER, text="x")
    assert body["result"]["date"] == 1_234_567_890
    assert server.sent[0].date == 1_234_567_890


# --- faults, through the real client -------------------------------------------------------


async def test_poll_send_and_edit(server: TelegramServer) -> None:
    async with client(server, kind=Bot) as bot:
        server.private_text("hi")
        (update,) = await bot.get_updates(timeout=0)
        assert update.message is not None
        sent = await update.message.reply_text("*hello*", parse_mode="MarkdownV2", do_quote=True)
        assert sent.text == "hello"
        assert sent.reply_to_message is not None
        await sent.edit_text("better")
        assert server.visible_texts(USER) == ["better"]
        keyboard = InlineKeyboardMarkup([[InlineKeyboardButton("b", callback_data="d")]])
        await bot.send_message(USER, "buttons", reply_markup=keyboard)
        await bot.send_chat_action(USER, "typing")
        await bot.send_message_draft(USER, 1, "dra")
        await bot.set_my_commands([("new", "Start anew")])
        assert [c.command for c in await bot.get_my_commands()] == ["new"]
        await bot.set_message_reaction(USER, update.message.message_id, "👍")
        assert (await bot.get_chat(USER)).id == USER
        await bot.delete_message(USER, sent.message_id)
        assert [u.update_id for u in await bot.get_updates(offset=2, timeout=0)] == []
    assert server.visible_texts(USER) == ["buttons"]
    assert server.transcript(USER) == [("user", "hi"), ("bot", "buttons")]


async def test_the_librarys_own_polling_loop(server: TelegramServer, bot: ExtBot[None]) -> None:
    """A conflict and a dropped answer on the way: every update once, in order."""
    queue: asyncio.Queue[object] = asyncio.Queue()
    updater = Updater(bot, update_queue=queue)
    for fault in (
        Fault.error(409, "Conflict: terminated by other getUpdates request", "getUpdates"),
        Fault.drop("getUpdates", after=True),
    ):
        server.fault(fault)
    server.private_text("one")
    async with updater:
        await updater.start_polling(timeout=5, error_callback=lambda error: None)
        await server.wait_confirmed(1, timeout=20)
        last = server.private_text("two")
        await server.wait_confirmed(last["update_id"])
        await updater.stop()
    got = [queue.get_nowait() for _ in range(queue.qsize())]
    assert [update.update_id for update in got if isinstance(update, Update)] == [1, 2]


async def test_what_the_markdown_converter_makes_is_accepted(
    server: TelegramServer, ask: Ask
) -> None:
    source = (
        f"# Head {SMILE}\n\n**bold _both_** and `c` [l](http://h/a_b)\n\n```py\nx = 1\n```\n- a"
    )
    text, spans = telegramify_markdown.convert(source)
    entities = [span.to_dict() for span in spans]
    code, body = await ask("sendMessage", chat_id=USER, text=text, entities=entities)
    assert code == 200, body
    kinds = {span["type"] for span in server.sent[0].entities}
    assert {"bold", "italic", "code", "text_link", "pre"} <= kinds


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.flood(37), RetryAfter),
        (Fault.flood(1000, chat_id=USER), RetryAfter),
        (Fault.error(400, "Bad Request: message is too long"), BadRequest),
        (Fault.error(403, "Forbidden: bot was blocked by the user"), Forbidden),
        (Fault.error(409, "Conflict: somebody else"), Conflict),
        (Fault.error(401, "Unauthorized"), InvalidToken),
        (Fault.error(500, "Internal Server Error"), NetworkError),
        (Fault.html(502), NetworkError),
        (Fault.migrate(-1000000000123), ChatMigrated),
        (Fault.drop(), NetworkError),
        (Fault.garbage(), TelegramError),
    ],
    ids=lambda value: value.kind if isinstance(value, Fault) else value.__name__,
)
async def test_faults_before_the_call_is_handled(
    server: TelegramServer, bot: Bot, fault: Fault, error: type[TelegramError]
) -> None:
    server.fault(fault)
    with pytest.raises(error) as caught:
        await bot.send_message(USER, "once")
    assert server.sent == []
    if isinstance(caught.value, ChatMigrated):
        assert caught.value.new_chat_id == -1000000000123
    await bot.send_message(USER, "again")
    assert server.visible_texts(USER) == ["again"]
    assert [call.fault for call in server.calls_of("sendMessage")] == [fault.kind, None]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.drop(after=True), NetworkError),
        (Fault.garbage(after=True), TelegramError),
        (Fault.html(502, "sendMessage", after=True), NetworkError),
        (Fault.hang(after=True), TimedOut),
        (Fault.hang(seconds=30, after=True), TimedOut),
    ],
    ids=["drop", "garbage", "html", "hang", "slow"],
)
async def test_faults_after_the_message_was_accepted(
    server: TelegramServer, fault: Fault, error: type[TelegramError]
) -> None:
    server.fault(fault)
    async with client(server, read_timeout=0.3) as bot:
        with pytest.raises(error):
            await bot.send_message(USER, "delivered all the same")
    assert server.visible_texts(USER) == ["delivered all the same"]


async def test_hang_before_is_not_delivered(server: TelegramServer) -> None:
    server.fault(Fault.hang())
    async with client(server, read_timeout=0.2) as bot:
        with pytest.raises(TimedOut):
            await bot.send_message(USER, "lost")
    assert server.sent == []


async def test_a_slow_call_goes_on_though_its_client_left(server: TelegramServer) -> None:
    server.fault(Fault.hang(seconds=0.4))
    async with client(server, read_timeout=0.1) as bot:
        with pytest.raises(TimedOut):
            await bot.send_message(USER, "late")
    assert server.sent == []
    await server.wait_sent(1)


async def test_release_lets_a_hanging_call_go_on(server: TelegramServer, bot: Bot) -> None:
    server.fault(Fault.hang())
    waiting = asyncio.ensure_future(bot.send_message(USER, "patient"))
    await server.until(lambda: server.calls_of("sendMessage"))
    server.release()
    assert (await waiting).text == "patient"


async def test_faults_are_chosen_by_method_chat_and_count(server: TelegramServer, bot: Bot) -> None:
    server.add_private(222)
    server.fault("flood", "send*", chat_id=222, times=2, skip=1, retry_after=9)
    await bot.send_message(USER, "other chat")
    await bot.send_message(222, "skipped")
    for _ in range(2):
        with pytest.raises(RetryAfter) as caught:
            await bot.send_message(222, "no")
        assert caught.value.retry_after == timedelta(seconds=9)
    await bot.send_message(222, "yes")
    assert server.visible_texts(222) == ["skipped", "yes"]
    server.fault(Fault.error(400, "Bad Request: x", times=None))
    for _ in range(3):
        with pytest.raises(BadRequest):
            await bot.send_message(USER, "never")
    server.faults.clear()
    await bot.send_message(USER, "fine")
    with pytest.raises(ValueError, match="unknown fault"):
        server.fault("earthquake")


async def test_faults_on_polling_lose_nothing(server: TelegramServer, bot: Bot) -> None:
    server.private_text("kept")
    for fault in (Fault.drop("getUpdates", after=True), Fault.html(502, "getUpdates")):
        server.fault(fault)
        with pytest.raises(NetworkError):
            await bot.get_updates(timeout=0)
    server.fault(Fault.error(409, "Conflict: terminated by other getUpdates request", "getUpdates"))
    with pytest.raises(Conflict):
        await bot.get_updates(timeout=0)
    assert [u.update_id for u in await bot.get_updates(timeout=0)] == [1]


async def test_two_pollers_through_the_client(server: TelegramServer, bot: Bot) -> None:
    older = asyncio.ensure_future(bot.get_updates(timeout=20))
    await server.wait_polling()
    async with client(server) as other:
        assert await other.get_updates(timeout=0) == ()
        with pytest.raises(Conflict):
            await older


async def test_tokens_through_the_client(server: TelegramServer, bot: Bot) -> None:
    server.token_valid = False
    with pytest.raises(InvalidToken):
        await bot.get_me()
    server.token_valid = True
    with pytest.raises(EndPointNotFound):
        await bot.do_api_request("sendRichMessage", api_kwargs={"chat_id": USER})
    stranger = Bot("5:wrong", base_url=server.base_url)
    with pytest.raises(InvalidToken):
        await stranger.initialize()
    await stranger.shutdown()


async def test_a_migrated_group_names_its_successor(server: TelegramServer, bot: Bot) -> None:
    server.group_text("small", chat_id=-77)
    server.migrate(-77, -1000000000077)
    with pytest.raises(ChatMigrated) as caught:
        await bot.send_message(-77, "x")
    await bot.send_message(caught.value.new_chat_id, "moved")
    assert server.visible_texts(-1000000000077) == ["moved"]


async def test_pause_refuses_connections_and_keeps_state(server: TelegramServer) -> None:
    port = server.port
    async with client(server) as bot:
        server.private_text("kept")
        waiting = asyncio.ensure_future(bot.get_updates(offset=2, timeout=20))
        await server.wait_polling()
        await server.pause()
        with pytest.raises(NetworkError):
            await waiting
        with pytest.raises(NetworkError, match="ConnectError"):
            await bot.send_message(USER, "x")
        await server.resume()
        assert server.port == port
        await bot.send_message(USER, "back")


async def test_records_are_ordered(server: TelegramServer, ask: Ask) -> None:
    await ask("sendMessage", chat_id=USER, text="one", disable_notification=True)
    await ask("sendChatAction", chat_id=USER, action="typing")
    await ask("sendMessage", chat_id=USER, text="two")
    numbers = [server.sent[0].seq, server.state.actions[0]["seq"], server.sent[1].seq]
    assert numbers == sorted(set(numbers))
    assert [call.method for call in server.calls] == [
        "sendMessage",
        "sendChatAction",
        "sendMessage",
    ]
    assert server.sent[0].silent
    assert server.stats()["calls"]["sendMessage"] == 2
    with pytest.raises(AssertionError, match="not seen"):
        await server.wait_sent(3, timeout=0.05)


async def test_two_servers_at_once() -> None:
    async with TelegramServer("1:aaa") as one, TelegramServer("2:bbb") as two:
        assert one.port != two.port
        assert one.state.bot_id == 1
        async with client(two) as bot:
            assert bot.id == 2


# --- as a process --------------------------------------------------------------------------


async def test_the_process_and_its_control_api() -> None:
    async with RemoteTelegram("42:remote_token", "--first-update-id", "5000") as remote:
        first = await remote.inject("private_text", text="hello", user_id=7)
        assert first["update_id"] == 5000
        await remote.inject("add_group", chat_id=GROUP, topics={"3": "three"})
        await remote.inject("album", pictures=[PNG, PNG], chat_id=7, user_id=7)
        await remote.raw({"hologram": {}})
        await remote.fault(Fault.drop(after=True))
        async with client(remote) as bot:
            assert len(await bot.get_updates(timeout=0)) == 4
            with pytest.raises(NetworkError):
                await bot.send_message(7, "ambiguous")
            await bot.send_message(GROUP, "in three", message_thread_id=3)
            await bot.get_updates(offset=5001, timeout=0)
        await remote.wait_confirmed(5000)
        assert [m["text"] for m in await remote.wait_sent(1, 7)] == ["ambiguous"]
        assert await remote.visible_texts(GROUP) == ["in three"]
        assert (await remote.stats())["pending"] == 3
        assert len((await remote.state())["pending"]) == 3
        assert [c["fault"] for c in await remote.calls("sendMessage")] == ["drop", None]
        await remote.inject("redeliver", update=5000)
        await remote.set(token_valid=False)
        with pytest.raises(InvalidToken):
            async with client(remote):
                pass
        await remote.clear_faults()
        with pytest.raises(RemoteError, match="unknown helper"):
            await remote.inject("no_such_helper")
        with pytest.raises(RemoteError, match="not seen"):
            await remote.wait_sent(9, timeout=0.05)
        await remote.pause(0.3)


async def test_control_refuses_what_it_does_not_know(
    server: TelegramServer, web_client: aiohttp.ClientSession
) -> None:
    control = f"{server.root}/_control"
    for path, body in (
        ("inject", {"helper": "private_text", "args": {"texxt": "x"}}),
        ("fault", {"kind": "flood", "metod": "x"}),
        ("set", {"anything": 1}),
    ):
        async with web_client.post(f"{control}/{path}", json=body) as answer:
            assert answer.status == 400, path
            assert "error" in json.loads(await answer.text())
