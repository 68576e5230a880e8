"""What a person is asked: all of it to be seen, nothing of it able to speak for us."""

from __future__ import annotations

import re
import unicodedata

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.approvals import Proposal
from agent.mail import Address, Button, OutboxDraft
from gateway import approval_text
from gateway.approval_text import question, visible, whole
from gateway.platforms.discord.out.planning import plan as discord_plan
from gateway.platforms.telegram.out.planning import plan as telegram_plan

HOSTILE = st.one_of(
    st.text(max_size=300),
    st.lists(
        st.sampled_from(
            [
                *("```", "`", "``", "~~~", "> ", "||", "\n", "\r", "\t", " ", "\x1b[31m", "\x00"),
                *("\u202e", "\u2066", "\u200b", "\u200d", "\ud800", "\ufe0f", "\u2028", "\xa0"),
                *("\u3000", "\xad", "\U000e0041", "May I ", "/approve 300001", "\\u{41}", "\\"),
                *("u{60}", "\\u{5C}", "a", "rm -rf /", "а", "шeл", "שלום", "ａ", "你好", "e\u0301"),
                *("😀", "… 5 characters left out …"),
            ]
        ),
        max_size=60,
    ).map("".join),
)
_SPELLED = re.compile(r"\\u\{([0-9A-F]{1,6})\}")
ID = "3f9akx"


def unspelled(shown: str) -> str:
    return _SPELLED.sub(lambda m: chr(int(m[1], 16)), shown)


@given(HOSTILE)
@example("\\u{5C}u{41}")
@example("\\u{41}")
@example("`" * 10)
@example("a \n")
@example("\n" * 9)
@settings(max_examples=300, deadline=None)
def test_what_is_shown_can_be_read_back(text: str) -> None:
    assert unspelled(visible(text)) == text


@given(HOSTILE)
@settings(max_examples=300, deadline=None)
def test_nothing_that_acts_is_shown(text: str) -> None:
    shown = visible(text)
    assert "```" not in shown
    assert not shown.endswith(("\n", " "))
    assert "\n\n\n" not in shown
    assert " " * 17 not in shown
    for ch in shown:
        assert ch == "\n" or unicodedata.category(ch) not in (
            "Cc",
            "Cf",
            "Cs",
            "Co",
            "Cn",
            "Zl",
            "Zp",
        )
    for line in shown.split("\n"):
        turning = any(unicodedata.bidirectional(ch) in ("R", "AL") for ch in line)
        assert not (turning and re.search("[A-Za-z]", line))


@given(HOSTILE, HOSTILE, st.booleans())
@example("x" * 5000, "`" * 3000, True)
@example("\u202e" * 3000, "", False)
@settings(max_examples=300, deadline=None)
def test_a_question_is_one_message_and_its_words_are_ours(a: str, b: str, shared: bool) -> None:
    proposal = Proposal("files", "write this new file", (("Path", a), ("Text", b)))
    text = question(proposal, ID, 5, shared=shared)
    assert len(text.encode("utf-16-le")) // 2 <= 1900
    outside, inside = split_blocks(text)
    assert outside[0] == "May I write this new file?"
    ours = "\n".join(outside)
    for part in (a, b):
        left_out = len(visible(part)) > approval_text.SHOWN_CHARS
        assert not left_out or "characters left out" in ours
    # Taken alone, what stands outside is the same for every text but for its numbers.
    assert re.fullmatch(
        r"May I write this new file\?"
        r"(\n(Path|Text):( nothing at all)?|\n… [\d,]+ characters left out …)*"
        rf"(\n/approve {ID} show: all of it \(SHA-256 [0-9a-f]{{16}}…\)\.)?"
        r"(\n`\\u\{…\}` spells a character that would not show, or could mislead\.)?"
        rf"\n/approve {ID} or /deny {ID} \[why\]\."
        r"(\nThat is for whoever asked me, or an admin\.)?"
        r"\nWithout an answer in 5 minutes I leave it\.",
        ours,
    )
    if "left out" not in ours:
        expected = [unspelled("\n".join(lines)) for lines in inside]
        assert expected == [part for part in (a, b) if part]


@given(HOSTILE.filter(bool))
@settings(max_examples=100, deadline=None)
def test_all_of_it_can_be_seen(text: str) -> None:
    proposal = Proposal("shell", "run this command", (("", text * 5),))
    _, inside = split_blocks(whole(proposal, ID))
    assert [unspelled("\n".join(lines)) for lines in inside] == [text * 5]


@given(HOSTILE, HOSTILE)
@example("**x** <b> [x](javascript:1) @everyone <@1> | a | b |", "# a\n- b\n> c\n\n    d\n\\`")
@settings(max_examples=150, deadline=None)
def test_both_platforms_show_it_as_it_is(a: str, b: str) -> None:
    proposal = Proposal("files", "write this new file", (("Path", a), ("Text", b)))
    text = question(proposal, ID, 5, shared=True)
    draft = OutboxDraft(ANYWHERE, text, "notice", buttons=BUTTONS, asks=True)
    for plan in (telegram_plan, discord_plan):
        [part] = plan(draft)  # so that the buttons stand below all of it
        assert part.payload["buttons"] == [[b.label, b.command] for b in BUTTONS]
        for lines in split_blocks(text)[1]:
            shown = part.payload.get("text") or part.payload["content"]
            assert "\n".join(lines) in shown


ANYWHERE = Address("anywhere", "1", "2")
BUTTONS = (Button("Approve", f"/approve {ID}"), Button("Deny", f"/deny {ID}"))


def split_blocks(text: str) -> tuple[list[str], list[list[str]]]:
    """Lines outside of blocks, and the lines of each block, as every Markdown reads them."""
    outside: list[str] = []
    inside: list[list[str]] = []
    opened = False
    for line in text.split("\n"):
        if line == "```":
            opened = not opened
            if opened:
                inside.append([])
        elif opened:
            assert "```" not in line
            inside[-1].append(line)
        else:
            outside.append(line)
    assert not opened
    return outside, inside


def test_people_can_still_read_what_is_harmless() -> None:
    for text in (
        "git commit -m 'größer'",
        "你好，世界：（一）",
        "привет мир",
        "שלום עולם",
        "हिन्दी में",
        "for i in 1 2; do\n    echo $i\ndone",
        "`date` \\n",
        "café 😀",
        "a\n\nb",
    ):
        assert visible(text) == text


def test_look_alikes_in_words_are_spelled() -> None:
    assert visible("cаt") == "c\\u{430}t"  # a Cyrillic letter in a Latin word
    assert visible("ｒｍ") == "\\u{FF52}\\u{FF4D}"
