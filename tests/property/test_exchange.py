"""Whatever a conversation holds, its file says the same, and never takes a line for another."""

from __future__ import annotations

import io

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.exchange.jsonl import read_lines, write_lines
from agent.exchange.markdown import write_markdown
from agent.exchange.records import Portable, PortableMessage
from agent.exchange.references import renamed_text
from agent.sessions import session_key
from tests.fakes.portables import portable_session

_TEXT = st.text(max_size=40)
_WILD = st.text(
    st.characters(exclude_categories=()) | st.sampled_from("\u2028\r\n\x00\ud800`~#"), max_size=40
)
_CONTENT = (
    st.none()
    | _TEXT
    | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": _TEXT}), max_size=3)
)
_BLOCKS = st.fixed_dictionaries({"type": st.just("thinking"), "signature": _WILD})
_CALLS = st.lists(
    st.fixed_dictionaries(
        {
            "id": _TEXT,
            "function": st.fixed_dictionaries({"name": _TEXT, "arguments": _TEXT}),
        }
    ),
    max_size=2,
)


@st.composite
def _messages(draw: st.DrawFn) -> tuple[PortableMessage, ...]:
    count = draw(st.integers(0, 6))
    originals: list[int] = []
    made: list[PortableMessage] = []
    for number in range(1, count + 1):
        origin = draw(st.none() | st.sampled_from(originals)) if originals else None
        if origin is None:
            originals.append(number)
        active = draw(st.booleans())
        made.append(
            PortableMessage(
                number=number,
                seq=number,
                active=active,
                compacted=not active and draw(st.booleans()),
                created_at=draw(st.floats(0, 2e9)),
                role=draw(st.sampled_from(["user", "assistant", "tool"])),
                content=draw(_CONTENT),
                wire_content=draw(_CONTENT),
                tool_calls=tuple(draw(_CALLS)),
                tool_call_id=draw(st.none() | _TEXT),
                tool_name=draw(st.none() | _TEXT),
                blocks=tuple(draw(st.lists(_BLOCKS, max_size=2))),
                kind=draw(st.none() | st.sampled_from(["summary", "note", "stub", "notice"])),
                origin=origin,
            )
        )
    return tuple(made)


@settings(max_examples=50)
@given(_messages(), st.lists(_WILD, min_size=3, max_size=3))
def test_a_file_says_what_it_was_made_from(
    messages: tuple[PortableMessage, ...], names: list[str]
) -> None:
    key = session_key(names[0], names[1], names[2], None, None)
    portable = Portable("c_1", "telegram:1", key, 1.0, (portable_session("s_1", *messages),))
    text = "".join(write_lines([portable]))
    assert read_lines(io.StringIO(text.encode().decode(), newline="\n")) == [portable]


@settings(max_examples=50)
@given(_messages())
def test_markdown_is_made_of_anything_and_leaves_no_fence_open(
    messages: tuple[PortableMessage, ...],
) -> None:
    portable = Portable("c_1", "o", "k", 1.0, (portable_session("s_1", *messages),))
    pieces = list(write_markdown(portable))
    assert all(piece.encode("utf-8", "surrogatepass") for piece in pieces)
    headings = [line for piece in pieces for line in piece.split("\n") if line.startswith("# ")]
    assert len(headings) == 1


def test_a_heading_of_somebody_is_none_of_ours() -> None:
    said = PortableMessage(1, 1, True, False, 1.0, "user", "# a\n   ## b\n#\tc\n    # code\n#d")
    pieces = write_markdown(Portable("c_1", "o", "k", 1.0, (portable_session("s_1", said),)))
    assert "\\# a\n   \\## b\n\\#\tc\n    # code\n#d\n" in "".join(pieces)


@given(_TEXT, st.dictionaries(st.integers(1, 99), st.integers(100, 999), max_size=5))
def test_references_come_back_when_they_are_renamed_back(text: str, names: dict[int, int]) -> None:
    unique = {new: old for old, new in names.items()}
    back = {old: new for new, old in unique.items()}
    text += "".join(f"\nrecall ref m{old}, x (m{old})\n~~~ user m{old}\n" for old in back)
    there = renamed_text(text, lambda row: back.get(row, row))
    assert renamed_text(there, lambda row: unique.get(row, row)) == text
