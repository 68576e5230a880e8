"""How the window, a compression and the cache are told: words and numbers, whatever is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cache_watch import CacheMiss
from agent.compaction.plan.failures import describe
from agent.compaction.plan.report import CompressionReport, SummaryCost, read_manifest
from agent.composition import PARTS, Composition, Filling, LargeMessage, MeasuredPrompt
from agent.lineages import UsageTotals
from agent.model_metadata import Measurement, TriggerRules, triggers_for
from agent.ports import CompactionDecision
from agent.prices import price_table
from agent.spending import Bill
from gateway.commands.compression_text import (
    aborted_text,
    compressed_text,
    cost_text,
    nothing_to_do_text,
)
from gateway.commands.context_text import (
    LABELS,
    MARK,
    MISSES,
    ContextReport,
    bar,
    chat_text,
)
from gateway.commands.wording import ago, duration, percent, shown

NOW = 1_800_000_000.0
TRIGGERS = triggers_for(200_000, TriggerRules(), max_tokens=8_192)
COST = SummaryCost(("claude-haiku-5-5",), 1, 41_000, 1_900, seconds=12.2)
LAST = CompressionReport(
    mode="summary",
    at=NOW - 7_300,
    tokens_before=93_000,
    tokens_after=12_000,
    rows_before=142,
    rows_after=24,
    covered=118,
    user_messages=31,
    quoted=24,
    listed=7,
    identifiers=40,
    cost=COST,
)


def filling(tokens: int = 41_000, **parts: int) -> Filling:
    shown = {name: parts.get(name, 0) for name in PARTS}
    return Filling(
        composition=Composition(
            shown, 12, (LargeMessage(512, "tool", "tool_results", 8_100, "recall"),)
        ),
        measurement=Measurement(tokens, "usage", 200),
        measured=MeasuredPrompt(tokens - 200, 0, NOW - 185, 2),
        triggers=TRIGGERS,
    )


def report(**changes: Any) -> ContextReport:
    base = ContextReport(
        filling=filling(system=412, tools=1_310, user=9_000, assistant=22_000, tool_results=8_200),
        due=CompactionDecision(False, 41_000, 100_000),
        last=LAST,
        usage=UsageTotals(31, 10_000, 5_000, 71_000, 19_000, {"expired": 2, "odd thing": 1}),
        bill=Bill(33, 50_000, 6_000, 71_000, 19_000, usd=0.1342, unpriced={"odd-model": 1}),
        model="claude-sonnet-5-5",
        cache_ttl="5m",
        prices=price_table(),
        now=NOW,
    )
    return replace(base, **changes)


def test_the_whole_report() -> None:
    assert (
        chat_text(report())
        == f"""\
Context: about 41,000 of 200,000 tokens (20 %)
▰▰▰▰▱▱▱▱▱▱{MARK}▱▱▱▱▱▱▱▱▱▱
A token is about four letters. The bar is all that the model can read at once; {MARK} is where I \
start to summarise.

What fills it (estimated; share of the window):
• my instructions: 412 (0.2 %)
• tools I can use: 1,310 (0.7 %)
• your messages: 9,000 (4.5 %)
• my answers: 22,000 (11 %)
• what tools answered: 8,200 (4.1 %)
Largest: a tool's answer (recall) m512, 8,100 tokens

The size is what the model's provider counted 3 minutes ago, with an estimate of what came since.
159,000 tokens are free; my next answer may take 8,192 of them.

Last compression, 2 hours ago: 142 messages with 93,000 tokens became 24 with 12,000 \
(messages alone).
118 messages went into the summary, 31 of them yours: 24 quoted word for word, 7 to be looked up.
Kept to the letter: 40 exact names, numbers and paths.
The summary was written by claude-haiku-5-5: 41,000 tokens read, 1,900 written, 12 s, about $0.0050.

Prompt cache: 71 % of 100,000 tokens read in 31 requests came from it, which costs far less.
Not found there 3 times: 2 × too long after the message before, 1 × odd thing.
All requests together, summaries included: about $0.13, without 1 request whose price is not known.

Next: at 100,000 tokens (59,000 more) older messages are summarised; nothing is lost. /compress \
does it now."""
    )


def test_a_young_conversation_has_no_past_to_tell() -> None:
    young = replace(
        filling(900, system=412, user=488),
        measurement=Measurement(900, "estimate", 900),
        measured=None,
    )
    said = chat_text(report(filling=young, last=None, usage=UsageTotals(), model="offline"))
    for absent in ("Last compression", "Prompt cache", "$", "tools I can use"):
        assert absent not in said
    assert "no answer has brought the real one yet" in said


def test_a_window_that_is_over_full_says_so() -> None:
    assert "There is no room left for an answer." in chat_text(report(filling=filling(210_000)))


def test_after_a_compression_the_size_is_said_to_be_a_guess() -> None:
    fresh = replace(filling(), measurement=Measurement(12_000, "unknown", 0), measured=None)
    assert "just compressed" in chat_text(report(filling=fresh))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"due": CompactionDecision(False, 120_000, 100_000, "compression is off")},
            "Not compressed by itself now: compression is off. /compress does it anyway.",
        ),
        (
            {"filling": filling(120_000), "due": CompactionDecision(True, 120_000, 100_000)},
            "Next: older messages are summarised before my next answer; nothing is lost.",
        ),
        (
            {"hold_tokens": 160_000},
            "Next: at 160,000 tokens (119,000 more) older messages are summarised, because a "
            "compression was just undone; nothing is lost. /compress does it now.",
        ),
    ],
)
def test_what_comes_next(changes: dict[str, Any], words: str) -> None:
    assert chat_text(report(**changes)).endswith(words)


def test_compress_is_not_offered_where_it_would_refuse() -> None:
    young = report(filling=filling(900, system=412, user=488))
    assert chat_text(young).endswith("older messages are summarised; nothing is lost.")


def test_a_provider_without_a_cache_is_said_to_have_none() -> None:
    offline = report(
        cache_ttl=None, cache="off (no Claude model)", usage=UsageTotals(3, 900, 50), bill=None
    )
    assert "\n\nPrompt cache: off (no Claude model)\n\n" in chat_text(offline)


def test_whether_it_pays_to_compress_now() -> None:
    large = filling(92_000, system=2_000, user=90_000)
    said = chat_text(report(filling=large))
    assert said.splitlines()[-1] == (
        "Compressing now would cost about $0.33 and leave about 39,000 tokens; it pays for itself "
        "after about 32 answers."
    )
    cheaper = chat_text(report(filling=large, summary_model="claude-haiku-5-5"))
    assert "about $0.10" in cheaper.splitlines()[-1]
    for unknown in ({"model": "a-model"}, {"summary_model": "a-model"}):
        assert "Compressing now" not in chat_text(report(filling=large, **unknown))


def test_an_unknown_price_means_tokens_only() -> None:
    cost = replace(COST, models=("a-model",))
    bill = Bill(31, 10_000, 5_000, 71_000, 19_000, unpriced={"a-model": 31})
    said = chat_text(report(model="a-model", last=replace(LAST, cost=cost), bill=bill))
    assert "$" not in said
    assert "41,000 tokens read, 1,900 written, 12 s." in said


def test_a_cache_that_never_helped_is_called_unused() -> None:
    said = chat_text(report(usage=UsageTotals(1, 5_000, 10)))
    assert "Prompt cache: not used in 1 request so far (5,000 tokens read)." in said


def test_every_part_and_every_miss_has_its_words() -> None:
    assert set(LABELS) == set(PARTS)
    assert set(MISSES) == {cause for cause in get_args(CacheMiss) if cause}


# --- the bar ------------------------------------------------------------------------------------


@given(st.integers(0, 3_000_000), st.integers(1, 2_000_000), st.integers(1, 300))
def test_the_bar_has_its_length_and_one_mark(tokens: int, window: int, cells: int) -> None:
    drawn = bar(tokens, triggers_for(window, TriggerRules()), cells=cells)
    assert len(drawn) == cells + 1
    assert drawn.count(MARK) == 1
    bare = drawn.replace(MARK, "")
    assert bare == "▰" * bare.count("▰") + "▱" * bare.count("▱")
    assert bool(tokens) == ("▰" in bare)
    if tokens >= window:
        assert "▱" not in bare


def test_percent() -> None:
    shares = [percent(n, 200_000) for n in (-5, 0, 1, 200, 19_800, 19_999, 20_000, 400_000)]
    assert shares == ["0 %", "0 %", "under 0.1 %", "0.1 %", "9.9 %", "10 %", "10 %", "200 %"]
    assert percent(5, 0) == "0 %"


# --- /compress ----------------------------------------------------------------------------------


def test_a_compression_tells_all_of_it() -> None:
    assert (
        compressed_text(
            tokens=(95_000, 14_000),
            messages=(142, 24),
            verbatim=22,
            last=LAST,
            prices=price_table(),
            focus="the deploy",
            can_undo=True,
        )
        == """\
Compressed: 142 messages with about 95,000 tokens became 24 with about 14,000.
118 messages went into the summary, 31 of them yours: 24 quoted word for word, 7 to be looked up.
Kept to the letter: 40 exact names, numbers and paths.
Kept in more detail: the deploy
The summary was written by claude-haiku-5-5: 41,000 tokens read, 1,900 written, 12 s, about $0.0050.
22 messages stay word for word; the other 120 are stored in full, and I can look them up: just ask.
/uncompress brings everything back as it was."""
    )


def test_one_of_each_is_said_in_the_singular() -> None:
    one = CompressionReport("summary", None, covered=1, user_messages=1, quoted=1, identifiers=1)
    said = compressed_text(
        tokens=(10, 5), messages=(2, 2), verbatim=1, last=one, prices=price_table()
    )
    assert "1 message went into the summary, 1 of them yours: all quoted word for word." in said
    assert "Kept to the letter: 1 exact name, number or path." in said
    assert "1 message stays word for word; the other 1 is stored in full" in said
    assert "/uncompress" not in said


def test_without_a_summary_nothing_is_said_of_one() -> None:
    pruned = CompressionReport("prune", None, 9_000, 2_000, 30, 30, pruned=12)
    said = compressed_text(
        tokens=(9_000, 2_000), messages=(30, 30), verbatim=18, last=pruned, prices=price_table()
    )
    assert "12 bulky messages are there in a shorter form.\nNo summary was needed." in said
    assert "went into" not in said


@pytest.mark.parametrize(
    "secret",
    ["sk-ant-api03-" + "a1B2" * 12, "password: hunter2hunter2", "ghp_" + "x9Y8" * 9],
)
@pytest.mark.parametrize("filler", [0, 60, 75, 5_000])
def test_a_secret_in_the_focus_is_never_repeated(secret: str, filler: int) -> None:
    """Not a part of it either, where the line is cut."""
    focus = f"{'word ' * (filler // 5)}\n{secret} and more"
    said = compressed_text(
        tokens=(9, 2), messages=(3, 2), verbatim=1, last=None, prices=price_table(), focus=focus
    )
    bare = secret.removeprefix("password: ")
    assert not any(bare[i : i + 8] in said for i in range(len(bare) - 7))
    assert len(said) < 400


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("missing_key", "An admin has to set the key"),
        ("auth", "An admin has to check the key"),
        ("quota", "look at the account"),
        ("not_found", "compression.summary_model"),
        ("bad_request", "in the log"),
        ("timeout", "in a few minutes"),
        ("overload", "in a few minutes"),
        ("other", "in a few minutes"),
    ],
)
def test_an_abort_says_why_and_what_to_do(kind: Any, advice: str) -> None:
    reason = describe(kind, ValueError())
    said = aborted_text(f"{reason} (next try in 60 s)")
    assert said.startswith(f"Not compressed: {reason} (next try in 60 s). Nothing was changed")
    assert advice in said


def test_words_of_strangers_are_cut_and_redacted() -> None:
    """An engine's error and a provider's name for its model stand in the answer."""
    key = "sk-ant-api03-" + "a1B2" * 12
    for said in (
        aborted_text(f"it broke\x1b[2J: {key} " + "x" * 9_000),
        nothing_to_do_text(f"it broke: {key} " + "x" * 9_000, 1, False),
        cost_text(replace(COST, models=(f"evil\n\x1b[2J {key} " + "x" * 9_000,)), price_table()),
    ):
        assert len(said) < 800
        assert key[:24] not in said
        assert "\x1b" not in said
        assert "\n" not in said


def test_a_secret_with_something_invisible_in_it_is_one() -> None:
    key = "sk-ant-api03-" + "a1B2" * 12
    for hidden in ("\u200b", "\x07", "\u2060"):
        assert shown(f"key {key[:9]}{hidden}{key[9:]} here") == "key [REDACTED] here"
    assert shown("👩‍👩‍👧 family") == "👩‍👩‍👧 family"


def test_an_abort_without_a_reason_sends_to_the_log() -> None:
    assert "the log has the details" in aborted_text("")


def test_nothing_to_do_says_why() -> None:
    reason = "there is nothing to compress: all of it is protected"
    assert nothing_to_do_text(reason, 8, False) == (
        "This conversation (8 messages) is still too short to be worth a summary. Nothing was "
        "changed."
    )
    assert nothing_to_do_text(reason, 0, False) == "There is nothing to compress yet."
    assert nothing_to_do_text("an engine's own reason", 3, False) == (
        "Nothing to compress: an engine's own reason. Nothing was changed. The conversation holds "
        "3 messages, and the newest ones always stay word for word."
    )
    assert "it is short" in nothing_to_do_text("", 3, False)
    assert "/context" in nothing_to_do_text("done by another", 9, True)


# --- manifests of every age ---------------------------------------------------------------------


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
KEYS = ("mode", "at", "covered", "user_messages", "identifiers", "pruned", "cost", "rows_before")


@given(st.dictionaries(st.sampled_from(KEYS), JSON))
def test_any_manifest_can_be_told(manifest: dict[str, Any]) -> None:
    last = read_manifest(manifest)
    said = compressed_text(
        tokens=(9, 2), messages=(3, 2), verbatim=1, last=last, prices=price_table()
    )
    assert said.startswith("Compressed: ")
    assert chat_text(report(last=last))


def test_a_cost_without_figures_names_who_wrote_it() -> None:
    cost = SummaryCost(("claude-haiku-5-5", "claude-opus-5-5"), 3, 0, 0)
    said = cost_text(cost, price_table())
    assert said == (
        "The summary was written by claude-haiku-5-5, claude-opus-5-5 in 3 calls; nobody told its "
        "size."
    )
    assert cost_text(None, price_table()) == ""


def test_a_cost_that_is_not_the_whole_cost_says_so() -> None:
    cost = replace(COST, calls=3, failed_calls=1, models=("claude-haiku-5-5", "claude-opus-5-5"))
    assert cost_text(cost, price_table()) == (
        "The summary was written by claude-haiku-5-5, claude-opus-5-5 in 3 calls, 1 of them in "
        "vain: at least 41,000 tokens read, 1,900 written, 12 s, about $0.20."
    )


def test_words_for_times() -> None:
    assert [ago(s) for s in (-9, 0, 59, 60, 7_300, 86_400 * 3)] == [
        "just now",
        "just now",
        "just now",
        "1 minute ago",
        "2 hours ago",
        "3 days ago",
    ]
    assert [duration(s) for s in (0.04, 9.94, 9.96, 119, 150)] == [
        "0.0 s",
        "9.9 s",
        "10 s",
        "119 s",
        "2 min",
    ]


def test_whether_the_next_summary_is_there_already() -> None:
    assert "Prepared" not in chat_text(report())
    said = chat_text(report(prepared_at=NOW - 130))
    assert "Prepared: yes, 2 minutes ago." in said
