"""One question over HTTP: a token goes to nobody else, and no answer is waited for for ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from aiohttp import web

from gateway.probing import discord, model, telegram
from gateway.probing.patience import within
from gateway.probing.web import Refused, Unreachable, get

TOKEN = "123:AA-a-token-that-nobody-sees"


async def _served(*routes: web.RouteDef) -> tuple[web.AppRunner, str]:
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


async def test_a_redirect_takes_no_token_elsewhere() -> None:
    seen: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        seen.append(str(request.headers.get("Authorization")))
        return web.json_response({})

    async def here(request: web.Request) -> web.Response:
        raise web.HTTPFound("/elsewhere")

    runner, root = await _served(web.get("/here", here), web.get("/elsewhere", elsewhere))
    answer = await asyncio.to_thread(get, f"{root}/here", {"Authorization": TOKEN})
    await runner.cleanup()
    assert (answer.status, answer.body, seen) == (302, None, [])


async def test_one_that_drips_is_left() -> None:
    """Each byte in time, and the answer never: a deadline for one read would not end it."""

    async def drips(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.05)

    runner, root = await _served(web.get("/", drips))
    with pytest.raises(Unreachable, match="no answer within"):
        await asyncio.to_thread(get, root, seconds=0.3)
    await runner.cleanup()


@pytest.mark.parametrize(
    "base", ["http://127.0.0.1:1/bot", "http://[::bad/", "nonsense:", "http:// x/"]
)
def test_what_went_wrong_is_said_without_the_address(base: str) -> None:
    with pytest.raises(Unreachable) as caught:
        get(f"{base}{TOKEN}/getMe")
    assert TOKEN not in str(caught.value)


def test_what_a_call_raises_comes_back() -> None:
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0)


@pytest.mark.parametrize(
    "body",
    [
        "[" * 200_000,
        "\xff",
        "null",
        "[1]",
        '{"result": 1}',
        '{"result": [1, {"message": "x"}, {"message": {"from": 7}}]}',
        '{"id": [1], "flags": "no number", "owner": {"id": {}}}',
        '{"data": [1, {"id": null}]}',
    ],
)
async def test_answers_of_somebody_else(body: str) -> None:
    """A proxy's page, another service at that port: said, and no crash."""

    async def answers(request: web.Request) -> web.Response:
        return web.Response(text=body, headers={"Date": "Mon, 01 Jan 0001 00:00:00 -0000"})

    runner, root = await _served(web.get("/{any:.*}", answers))
    questions: list[Callable[[], object]] = [
        lambda: telegram.ask_bot(f"{root}/bot", TOKEN),
        lambda: telegram.webhook_of(f"{root}/bot", TOKEN),
        lambda: telegram.waiting_senders(f"{root}/bot", TOKEN, wait_seconds=0),
        lambda: discord.ask_bot(root, TOKEN),
        lambda: discord.reach_gateway(root, TOKEN, None),
        lambda: model.ask_model(root, TOKEN, "m"),
    ]
    for question in questions:
        with contextlib.suppress(Unreachable, Refused):
            await asyncio.to_thread(question)
    await runner.cleanup()
