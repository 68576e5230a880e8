"""The lossless engine's tools: what they find, how they page, what they say when they can not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.context_engine import ContextEngine
from plugins.context_engine.lossless.nodes import mark_in
from plugins.context_engine.lossless.words import excerpt, indexed, question
from tests.fakes.lossless import Message, ScriptedAsk, call, lossless, node_of, talk

NOISE = [{"role": "user", "content": f"noise {k} of the harbour and the swan"} for k in range(20)]


def engine_that_saw(home: Path, messages: list[Message]) -> ContextEngine:
    engine = lossless(home)
    engine.on_session_start("s1", conversation_id="key")
    engine.on_turn_complete(messages)
    return engine


@pytest.mark.parametrize(
    ("said", "query"),
    [
        ("部署脚本每天凌晨三点运行", "凌晨三点"),
        ("部署脚本每天凌晨三点运行", "脚 本"),
        ("デプロイは毎日3時に実行してください", "毎日の実行"),
        ("로그 파일을 확인해 주세요", "로그 파일"),
        ("the file is /srv/app-7/main.py", "main.py srv app"),
        ("Grüße aus München", "munchen"),
        ("E4012 came back", "error e4012"),
    ],
)
def test_words_of_any_script_are_found(tmp_path: Path, said: str, query: str) -> None:
    engine = engine_that_saw(tmp_path, [*NOISE, {"role": "assistant", "content": said}])
    found = call(engine, "lossless_search", query=query, limit=1)["results"]
    assert [hit["excerpt"] for hit in found] == [said]


def test_arguments_of_calls_are_found_as_they_read(tmp_path: Path) -> None:
    arguments = json.dumps({"text": "港口的猫"})
    used = {"id": "c1", "type": "function", "function": {"name": "note", "arguments": arguments}}
    asks: Message = {"role": "assistant", "content": None, "tool_calls": [used]}
    result: Message = {"role": "tool", "tool_call_id": "c1", "content": "done"}
    engine = engine_that_saw(tmp_path, [*NOISE, asks, result])
    (hit,) = call(engine, "lossless_search", query="港口的猫")["results"]
    shown = call(engine, "lossless_expand", ref=hit["ref"])
    assert shown["text"] == '-> calls note with {"text": "港口的猫"}'
    assert call(engine, "lossless_search", query="港口的猫", role="user")["results"] == []


def test_close_together_beats_scattered(tmp_path: Path) -> None:
    scattered = "harbour " + "other words " * 60 + "master " + "more of them " * 60 + "cat"
    long = "first line\n" * 200 + "the harbour master has a cat\n" + "last line\n" * 200
    messages = [
        {"role": "tool", "tool_call_id": "x", "content": text} for text in (scattered, long)
    ]
    engine = engine_that_saw(tmp_path, [*NOISE, *messages])
    (hit,) = call(engine, "lossless_search", query="harbour master cat", limit=1)["results"]
    assert "the harbour master has a cat" in hit["excerpt"]


def test_its_own_answers_and_what_asks_are_no_hits(tmp_path: Path) -> None:
    engine = engine_that_saw(tmp_path, [{"role": "user", "content": "the cat is Bramble"}])
    arguments = json.dumps({"query": "cat Bramble"})
    function = {"name": "lossless_search", "arguments": arguments}
    old: list[Message] = [
        {"role": "user", "content": "the cat is Bramble"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": function}]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"excerpt": "the cat is Bramble"}'},
        {"role": "assistant", "content": "Bramble."},
        {"role": "user", "content": "and what was the cat called, Bramble?"},
    ]
    found = call(engine, "lossless_search", old, query="cat Bramble")["results"]
    assert [hit["excerpt"] for hit in found] == ["the cat is Bramble", "Bramble."]


def test_a_message_that_is_listed_twice_is_one_hit(tmp_path: Path) -> None:
    said: Message = {"role": "assistant", "content": "the swan is Zanzibar"}
    engine = engine_that_saw(tmp_path, [said, {**said, "reasoning": "hm"}])
    assert len(call(engine, "lossless_search", query="Zanzibar")["results"]) == 1


def test_a_tree_is_read_from_the_top_to_the_originals(tmp_path: Path) -> None:
    engine = lossless(tmp_path, fanout=2)
    engine.on_session_start("s1", conversation_id="key")
    messages: list[Message] = []
    for k in range(6):
        messages = engine.compress([*messages, *talk(14, first=14 * k)])
    described = call(engine, "lossless_describe", messages)
    assert [node["node"] for node in described["in_view"]] == [
        mark_in(m) for m in messages if node_of(engine, m)
    ]
    top = described["in_view"][0]
    assert top["depth"] >= 2
    assert (described["originals_kept"], top["made"]) == (168, "by a model")
    told = call(engine, "lossless_describe", messages, node=top["node"])
    assert sum(child["messages"] for child in told["children"]) == top["messages"]
    assert top["from_utc"] < told["children"][-1]["from_utc"] <= top["to_utc"]

    read: list[str] = []

    def down(ref: str) -> None:
        start = 0
        while True:
            page = call(engine, "lossless_expand", messages, ref=ref, **{"from": start})
            for part in page["parts"]:
                if "node" in part:
                    assert part["summary"]
                    down(part["node"])
                else:
                    read.append(part["text"])
            if "next" not in page:
                return
            start = page["next"]

    down(top["node"])
    assert read == [m["content"] for m in talk(84)][: top["messages"]]


def test_pages_are_small_and_a_long_message_comes_whole(tmp_path: Path) -> None:
    engine = lossless(tmp_path, leaf_tokens=20_000, window=40_000)
    engine.on_session_start("s1", conversation_id="key")
    huge = "".join(f"line {k}\n" for k in range(4000))
    before = [{"role": "user", "content": huge}, *talk(130)]
    after = engine.compress(before)
    node = mark_in(after[0])
    page = call(engine, "lossless_expand", after, ref=node)
    assert len(json.dumps(page)) < 14_000
    assert page["next"] == len(page["parts"]) < page["of"]
    first = page["parts"][0]
    assert huge.startswith(first["text"])
    assert first["cut"].endswith(f"expand {first['ref']}")
    text, start = "", 0
    while True:
        page = call(engine, "lossless_expand", after, ref=first["ref"], **{"from": start})
        text += page["text"]
        if "next" not in page:
            break
        start = page["next"]
    assert text == huge


@pytest.mark.parametrize(
    ("name", "args", "says"),
    [
        ("lossless_search", {}, "query is missing"),
        ("lossless_search", {"query": " ?! "}, "holds no word"),
        ("lossless_search", {"query": 7}, "query is missing"),
        ("lossless_search", {"query": "x", "limit": "many"}, "limit has to be"),
        ("lossless_search", {"query": "x", "limit": True}, "limit has to be"),
        ("lossless_search", {"query": "x", "role": "system"}, "role is"),
        ("lossless_describe", {"node": "n1"}, "no node n1"),
        ("lossless_expand", {}, "ref is missing"),
        ("lossless_expand", {"ref": "o999"}, "no original o999"),
        ("lossless_expand", {"ref": "o" + "9" * 40}, "no node"),
        ("lossless_expand", {"ref": "' OR 1=1 --"}, "no node"),
        ("lossless_expand", {"ref": "o1", "from": 9999}, "begin before its end"),
        ("lossless_drop", {}, "no tool lossless_drop"),
    ],
)
def test_what_can_not_be_answered_is_said(
    tmp_path: Path, name: str, args: dict[str, object], says: str
) -> None:
    engine = engine_that_saw(tmp_path, talk(2))
    assert says in call(engine, name, talk(2), **args)["error"]


def test_numbers_as_models_write_them(tmp_path: Path) -> None:
    engine = engine_that_saw(tmp_path, talk(8))
    for limit in ("3", 3.0, 3):
        assert len(call(engine, "lossless_search", query="question", limit=limit)["results"]) == 3
    assert len(call(engine, "lossless_search", query="question", limit=-5)["results"]) == 1


def test_half_characters_and_zero_bytes_do_no_harm(tmp_path: Path) -> None:
    before = [*talk(30)]
    before[3] = {"role": "assistant", "content": "half \ud83d and \x00 Zanzibar"}
    engine = lossless(tmp_path, ScriptedAsk("also half \udc00"))
    engine.on_session_start("s1", conversation_id="key")
    after = engine.compress(before)
    json.dumps(after, ensure_ascii=False).encode()
    (hit, *_) = call(engine, "lossless_search", after, query="Zanzibar")["results"]
    assert "Zanzibar" in call(engine, "lossless_expand", after, ref=hit["ref"])["text"]


def test_words_and_excerpts() -> None:
    assert question("凌晨三点 main.py") == '"凌晨" OR "晨三" OR "三点" OR "main" OR "py"'
    assert question("!?") == ""
    assert indexed("abc三点def") == "abc 三点 点 def"
    text = "x " * 500 + "the needle is here " + "y " * 500
    assert "the needle is here" in excerpt(text, "needle here")
    assert len(excerpt(text, "nothing of it")) < 400


def test_schemas_are_plain_and_constant(tmp_path: Path) -> None:
    engine = lossless(tmp_path)
    schemas = engine.get_tool_schemas()
    assert [s["name"] for s in schemas] == [
        "lossless_search",
        "lossless_describe",
        "lossless_expand",
    ]
    assert json.loads(json.dumps(schemas)) == schemas == engine.get_tool_schemas()
