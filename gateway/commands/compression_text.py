"""Owns how a compression is told to people: what it did and cost, or why it was not done. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from agent.compaction.plan.failures import FailureKind, describe
from agent.compaction.plan.report import CompressionReport, SummaryCost
from agent.counting import counted
from agent.prices import PriceTable, money
from gateway.commands.wording import ago, duration, shown

MOST_FOCUS_CHARS = 80
MOST_REASON_CHARS = 300
MOST_NAME_CHARS = 60
"""Reasons hold words of other people's engines, names come from a provider: neither is trusted."""

# --- the answer to /compress --------------------------------------------------------------------


def compressed_text(
    *,
    tokens: tuple[int, int],
    messages: tuple[int, int],
    verbatim: int,
    last: CompressionReport | None,
    prices: PriceTable,
    focus: str = "",
    can_undo: bool = False,
) -> str:
    """It worked.

    Args:
        tokens: The prompt before and after, system prompt and tools included; estimates.
        messages: How many there were and are.
        verbatim: Messages that still stand there as they were said.
        last: What the manifest says.
        prices: What the summary's tokens cost.
        focus: As the user gave it.
        can_undo: Is there a way back?
    """
    before, after = messages
    lines = [
        f"Compressed: {counted(before, 'message')} with about {tokens[0]:,} tokens became "
        f"{after:,} with about {tokens[1]:,}."
    ]
    if last is not None:
        lines += kept_lines(last)
    if focus:
        lines.append(f"Kept in more detail: {shown(focus, MOST_FOCUS_CHARS)}")
    if last is not None and (cost := cost_text(last.cost, prices)):
        lines.append(cost)
    lines.append(_reachable(before, verbatim))
    if can_undo:
        lines.append("/uncompress brings everything back as it was.")
    return "\n".join(lines)


def _reachable(before: int, verbatim: int) -> str:
    stay = f"{counted(verbatim, 'message')} {'stays' if verbatim == 1 else 'stay'} word for word"
    rest = max(0, before - verbatim)
    if not rest:
        return f"{stay}."
    return (
        f"{stay}; the other {rest:,} {'is' if rest == 1 else 'are'} stored in full, and I can look "
        "them up: just ask."
    )


_AN_ADMIN: Mapping[FailureKind, str] = {
    "missing_key": "An admin has to set the key of the model on the server.",
    "auth": "An admin has to check the key of the model on the server.",
    "quota": "An admin has to look at the account at the model's provider.",
    "not_found": "An admin has to correct compression.summary_model in config.yaml.",
    "bad_request": "An admin will find the details in the log.",
}
_ADVICE: Mapping[str, str] = {
    describe(kind, ValueError()): advice for kind, advice in _AN_ADMIN.items()
}
_LATER = "Please try /compress again in a few minutes; /context shows how full it is."


def aborted_text(reason: str) -> str:
    """It was wanted and could not be done: why, and what to do."""
    told = _reason(reason) or "the reason is not known; the log has the details"
    advice = next((text for words, text in _ADVICE.items() if told.startswith(words)), _LATER)
    return f"Not compressed: {told}. Nothing was changed, and nothing is lost. {advice}"


def nothing_to_do_text(reason: str, messages: int, moved_on: bool) -> str:
    """There was nothing to gain.

    Args:
        reason: In words; "" if there is none.
        messages: How many the conversation holds now.
        moved_on: Somebody else was first.
    """
    told = _reason(reason)
    if not messages:
        return "There is nothing to compress yet."
    if told.startswith(_THERE_IS) and not moved_on:
        return (
            f"This conversation ({counted(messages, 'message')}) is still too short to be worth a "
            "summary. Nothing was changed."
        )
    why = f"Nothing to compress: {told or 'it is short'}."
    if moved_on:
        return f"{why} /context shows what it is like now."
    return (
        f"{why} Nothing was changed. The conversation holds {counted(messages, 'message')}, and "
        "the newest ones always stay word for word."
    )


_THERE_IS = "there is nothing to compress"


def _reason(text: str) -> str:
    return shown(text, MOST_REASON_CHARS).rstrip(".")


# --- what a compression did ---------------------------------------------------------------------


def last_compression_lines(
    last: CompressionReport | None, prices: PriceTable, now: float
) -> list[str]:
    """What it did; no line if there was none."""
    if last is None:
        return []
    when = "" if last.at is None else f", {ago(now - last.at)}"
    lines = [f"Last compression{when}: {sizes(last)}"]
    lines += kept_lines(last)
    if cost := cost_text(last.cost, prices):
        lines.append(cost)
    return lines


def sizes(last: CompressionReport) -> str:
    """From how much to how much."""
    if not last.tokens_before:
        return "done by a context engine that does not tell its figures."
    return (
        f"{counted(last.rows_before, 'message')} with {last.tokens_before:,} tokens became "
        f"{last.rows_after:,} with {last.tokens_after:,} (messages alone)."
    )


def kept_lines(last: CompressionReport, *, whose: str = "yours") -> list[str]:
    """What became of the messages; ``whose``: how the user's own are called."""
    lines: list[str] = []
    if last.mode == "deterministic":
        lines.append(
            "No model could write the summary, so it is a plain list of requests, results, files "
            "and errors."
        )
    if last.covered:
        line = f"{counted(last.covered, 'message')} went into the summary"
        if last.user_messages:
            line += f", {last.user_messages:,} of them {whose}: {_quoted(last)}"
        lines.append(line + ".")
    if last.identifiers:
        more = "" if last.identifiers_complete else "; older ones can be looked up"
        what = (
            "exact name, number or path"
            if last.identifiers == 1
            else "exact names, numbers and paths"
        )
        lines.append(f"Kept to the letter: {last.identifiers:,} {what}{more}.")
    if last.pruned:
        shortened = f"{counted(last.pruned, 'bulky message')} {'is' if last.pruned == 1 else 'are'}"
        lines.append(f"{shortened} there in a shorter form.")
    if last.mode == "prune":
        lines.append("No summary was needed.")
    return lines


def _quoted(last: CompressionReport) -> str:
    if last.quoted >= last.user_messages:
        return "all quoted word for word"
    left = last.user_messages - last.quoted
    quoted = f"{last.quoted:,} quoted word for word, " if last.quoted else ""
    return f"{quoted}{left:,} to be looked up"


def cost_text(cost: SummaryCost | None, prices: PriceTable) -> str:
    """What the summary took; "" if nobody noted it."""
    if cost is None:
        return ""
    names = [shown(model, MOST_NAME_CHARS) for model in cost.models if model]
    by = f" by {', '.join(names)}" if names else ""
    calls = f" in {cost.calls:,} calls" if cost.calls > 1 else ""
    failed = f", {cost.failed_calls:,} of them in vain" if cost.failed_calls else ""
    seconds = f", {duration(cost.seconds)}" if cost.seconds >= 0.05 else ""
    head = f"The summary was written{by}{calls}{failed}"
    if not cost.prompt_tokens and not cost.output_tokens:
        return f"{head}{seconds}; nobody told its size."
    least = "at least " if cost.failed_calls or cost.unmeasured_calls else ""
    usd = cost_usd(cost, prices)
    paid = "" if usd is None else f", {money(usd)}"
    return (
        f"{head}: {least}{cost.prompt_tokens:,} tokens read, {cost.output_tokens:,} "
        f"written{seconds}{paid}."
    )


def cost_usd(cost: SummaryCost, prices: PriceTable) -> float | None:
    """What the summary cost, at the dearest of its models; None: not known."""
    price = prices.dearest(cost.models)
    if price is None:
        return None
    return price.usd(
        input_tokens=cost.input_tokens,
        output_tokens=cost.output_tokens,
        cache_read_tokens=cost.cache_read_tokens,
        cache_write_tokens=cost.cache_write_tokens,
    )
