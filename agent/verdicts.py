"""Owns what a model's answer means for the turn, and the words for the answers that are none."""

from __future__ import annotations

from enum import StrEnum

from agent.llm.answers import thinking_text
from agent.messages import Draft, Message, text_of
from agent.ports import ModelResponse

CUT_NOTE = "[The answer is cut off here: it is as long as one may be. Ask me to go on.]"
REFUSED = (
    "The model declined to answer this message. Put it differently, or go on with something else."
)
NOTHING = "The model gave no answer. Please ask again in other words."
CALL_TOO_LONG = (
    "The model tried to do something that is larger than one answer may be, so nothing of it was "
    "done. Please ask for it in smaller pieces."
)
OUT_OF_STEPS = (
    "This took more steps than one message may take, so I stopped. What was done so far is kept; "
    "write “go on” to continue."
)
PAUSED_TOO_OFTEN = (
    "The model's provider kept interrupting this answer. Please ask again in a few minutes."
)

FINISH_NOW = (
    "[Note of the host, not of the user: the limit of steps for this message is reached. Tools can "
    "not be called any more. Answer now with what is known, and say what is left to do.]"
)
GO_ON = "[Note of the host, not of the user: the answer was interrupted here. Go on with it.]"
CALL_SMALLER = (
    "[Note of the host, not of the user: the last answer reached the output limit in the middle of "
    "a tool call, so nothing of it was run. Do it in smaller steps.]"
)
CUT_CALL = "(a tool call was cut off here)"

KNOWN_STOPS = frozenset({"end_turn", "stop_sequence", "tool_use"})


class Verdict(StrEnum):
    """What the loop does next."""

    ANSWER = "answer"
    TOOLS = "tools"
    PAUSED = "paused"
    CUT_TEXT = "cut text"
    """The text is good as far as it goes."""
    CUT_SHORT = "cut short"
    """The output limit left nothing that may be used: half a call, or only thinking."""
    WINDOW_FULL = "window full"
    REFUSED = "refused"
    EMPTY = "empty"


def judge(response: ModelResponse) -> Verdict:
    """What an answer means, by its stop reason and by what is in it."""
    message = response.message
    says = bool(text_of(message["content"]).strip())
    calls = bool(message.get("tool_calls"))
    match response.stop_reason:
        case "tool_use" if calls:
            return Verdict.TOOLS
        case "pause_turn":
            return Verdict.PAUSED
        case "refusal":
            return Verdict.REFUSED
        case "max_tokens":
            return Verdict.CUT_TEXT if says and not calls else Verdict.CUT_SHORT
        case "model_context_window_exceeded":
            return Verdict.WINDOW_FULL
        case _:
            return Verdict.ANSWER if says else Verdict.EMPTY


def final_answer(message: Message) -> Draft:
    """The message that ends a turn: without calls, which nobody will run."""
    text = text_of(message["content"])
    if message.get("tool_calls"):
        return Draft({"role": "assistant", "content": text})
    return Draft(message)


def thought_answer(message: Message) -> Draft | None:
    """What a model put into its thinking in place of an answer (some do); None: nothing at all."""
    text = thinking_text(message)
    return Draft({"role": "assistant", "content": text}) if text else None


def cut_answer(message: Message) -> Draft:
    """What there is of an answer, and that it is not all.

    The model gets its words back without the note: what stands in its own answers, it imitates.
    """
    text = text_of(message["content"]).rstrip()
    return Draft(
        {"role": "assistant", "content": f"{text}\n\n{CUT_NOTE}"}, wire_content=text or None
    )


def notice(text: str) -> Draft:
    """An answer that the host gives in the model's place: the list keeps alternating."""
    return Draft({"role": "assistant", "content": text}, kind="notice")


def note_to_model(text: str) -> Draft:
    """Something that only the model reads, in the user's place."""
    return Draft({"role": "user", "content": text}, kind="notice")
