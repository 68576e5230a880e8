"""Owns `posthouse simulate`: a trace under many settings, as table and picture; recording one."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from agent.compaction.micro.progress import MicroSettings
from agent.errors import ConfigError, PosthouseError
from agent.model_metadata import MAX_STATED_TOKENS, MIN_STATED_TOKENS, estimate_prefix_tokens
from agent.prices import PriceTable, price_table
from agent.simulation.comparing import Question, compare, question_of
from agent.simulation.outcome import Outcome
from agent.simulation.plot import as_svg
from agent.simulation.recording import events_of
from agent.simulation.report import as_json, as_table, headline
from agent.simulation.settings import Choice
from agent.simulation.trace import BUNDLED, Trace, bundled, read_trace, write_trace
from gateway.cli import exits
from gateway.cli.exchange import write_file
from gateway.cli.output import NOTHING_YET, out, plain, terminal_width
from gateway.cli.sessions import find_session
from gateway.cli.settings import Settings
from gateway.config.environment import environment, find_home
from gateway.config.loading import load_config, parse_config
from gateway.config.models import Config
from gateway.windows.rules import rules_of, triggers_of_model

MAX_TRACE_BYTES = 64_000_000
SIMULATED = (
    "compression.enabled",
    "compression.threshold",
    "compression.max_threshold_tokens",
    "compression.small_window_floor",
    "compression.target_ratio",
    "compression.protect_first_n",
    "compression.protect_last_n",
    "compression.background",
    "compression.proactive_prune_tokens",
    "compression.micro_compact",
    "compression.micro_compact_every_n_turns",
    "compression.micro_compact_defrag_threshold_tokens",
    "model.cache_ttl",
)
"""What a replay can show the effect of."""


def run(arguments: argparse.Namespace) -> int:
    """Replay, or record."""
    if arguments.session is not None:
        if arguments.trace is not None:
            raise PosthouseError("either a trace, or --from to write one")
        _record(arguments.session, arguments.output)
        return exits.OK
    if arguments.trace is None:
        raise PosthouseError(
            f"a trace is needed: a file, or one of {', '.join(BUNDLED)}; "
            "--from SESSION_ID makes one of a stored conversation"
        )
    if arguments.output is not None:
        raise PosthouseError("--output goes with --from; the picture's file is --plot FILE.svg")
    window = arguments.window
    if window is not None and not MIN_STATED_TOKENS <= window <= MAX_STATED_TOKENS:
        raise PosthouseError(
            f"--window wants {MIN_STATED_TOKENS} to {MAX_STATED_TOKENS:,} tokens, not {window:,}"
        )
    own = _own_choices(arguments.sets, arguments.config)
    question = question_of(
        find_trace(arguments.trace), model=arguments.model, window_tokens=window, own=own
    )
    prices = price_table()
    outcomes = compare(question, prices)
    name = plain(Path(arguments.trace).stem, 60)
    if arguments.plot is not None:
        title = f"{name}: {question.trace.model}, window {question.window_tokens:,} tokens"
        write_file(Path(arguments.plot), [as_svg(outcomes, title)])
    if arguments.json:
        out(json.dumps(_as_json(question, outcomes, prices), ensure_ascii=False))
        return exits.OK
    for line in as_text(question, outcomes, prices, name, width=terminal_width()):
        out(line)
    if arguments.plot is not None:
        out(f"written: {plain(arguments.plot)}")
    return exits.OK


def as_text(
    question: Question,
    outcomes: Sequence[Outcome],
    prices: PriceTable,
    name: str,
    *,
    width: int | None = None,
) -> list[str]:
    """What people read: the trace, the table, and where the prices come from."""
    lines = [plain(line) for line in headline(question.trace, question.window_tokens, name)]
    lines += ["", *as_table(outcomes, width=width), ""]
    if any(outcome.usd is None for outcome in outcomes):
        model = plain(question.trace.model, 60)
        lines.append(f"nobody's price is known here for {model}, so there are only tokens")
    else:
        lines.append(f"prices of {prices.as_of}, in USD")
    return lines


def _as_json(question: Question, outcomes: Sequence[Outcome], prices: PriceTable) -> dict[str, Any]:
    trace = question.trace
    return {
        "model": trace.model,
        "window_tokens": question.window_tokens,
        "events": len(trace.events),
        "seconds": round(trace.seconds, 1),
        "prices_as_of": prices.as_of,
        "settings": [as_json(outcome) for outcome in outcomes],
    }


# --- the trace ----------------------------------------------------------------------------------


def find_trace(name: str) -> Trace:
    """A bundled trace by its name, else a file.

    Raises:
        PosthouseError: There is none, it can not be read, or it is no trace (with the line).
    """
    if name in BUNDLED:
        return bundled(name)
    path = Path(name)
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise PosthouseError(f"{plain(name, 200)} can not be read: it is no file")
        with path.open("rb") as file:
            data = file.read(MAX_TRACE_BYTES + 1)
    except (OSError, ValueError) as exc:
        why = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
        known = ", ".join(BUNDLED)
        raise PosthouseError(
            f"{plain(name, 200)} can not be read: {why} (the traces that come along are {known})"
        ) from exc
    if len(data) > MAX_TRACE_BYTES:
        raise PosthouseError(f"{plain(name, 200)} has more than {MAX_TRACE_BYTES:,} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = data[: exc.start].count(b"\n") + 1
        raise PosthouseError(f"{plain(name, 200)}:{line}: is not UTF-8 text") from exc
    return read_trace(text.split("\n"), plain(name, 200))


def _record(session_id: str, output: str | None) -> None:
    """Write the trace of a stored conversation."""
    pieces = list(write_trace(asyncio.run(_recorded(session_id))))
    if output is not None:
        write_file(Path(output), pieces)
        out(f"written: {plain(output)}")
        return
    for piece in pieces:
        out(piece.rstrip("\n"))


async def _recorded(session_id: str) -> Trace:
    # Inside, so that the parser stays instant; the store brings the database driver.
    from gateway.wiring.beside import archive  # noqa: PLC0415

    home = find_home(environment())
    if not home.database.exists():
        raise PosthouseError(NOTHING_YET.format(home=home.path))
    async with archive(home) as store:
        found = await find_session(store, session_id)
        sizes = await store.row_sizes(found)
        prefix = (await store.lineage(found))[-1].prefix
    settings = Settings(None, home, environment())
    settings.tell(", so the window is by the defaults")
    config = settings.or_defaults()
    events = events_of(sizes)
    if not events:
        raise PosthouseError("nothing was said in that conversation yet")
    return Trace(
        model=prefix.model,
        events=events,
        window_tokens=triggers_of_model(config, home, prefix.model).window_tokens,
        prefix_tokens=estimate_prefix_tokens(prefix),
        max_tokens=config.model.max_tokens,
    )


# --- the settings -------------------------------------------------------------------------------


def _own_choices(sets: Sequence[str], config_file: str | None) -> Mapping[str, Choice]:
    """The rows that somebody asked for: what a file says, and what single keys would change."""
    base, choices = Config(), {}
    if config_file is not None:
        base, _ = load_config(Path(config_file))
        choices["config"] = choice_of(base)
    if sets:
        choices["own"] = choice_of(_changed(base, sets))
    return choices


def choice_of(config: Config) -> Choice:
    """What of a configuration a replay depends on."""
    rules = config.compression
    return Choice(
        rules=rules_of(config),
        cache_ttl=config.model.cache_ttl,
        enabled=rules.enabled,
        protect_first_n=rules.protect_first_n,
        protect_last_n=rules.protect_last_n,
        background=rules.background,
        prune_from_tokens=rules.proactive_prune_tokens,
        micro=MicroSettings(
            enabled=rules.micro_compact,
            every_n_turns=rules.micro_compact_every_n_turns,
            defrag_threshold_tokens=rules.micro_compact_defrag_threshold_tokens,
        ),
    )


def _changed(base: Config, sets: Iterable[str]) -> Config:
    """The configuration with some keys set, checked like a file."""
    data = base.model_dump()
    for text in sets:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise PosthouseError(f"--set wants KEY=VALUE, not {plain(text, 60)!r}")
        if key not in SIMULATED:
            known = ", ".join(SIMULATED)
            raise PosthouseError(
                f"{plain(key, 60)} is nothing that a replay can show; there are: {known}"
            )
        section, _, name = key.partition(".")
        try:
            data[section][name] = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError, RecursionError) as exc:
            raise PosthouseError(f"--set {key}: {plain(value, 60)!r} is no value") from exc
    changed = {
        section: {name: data[section][name] for name in data[section]}
        for section in ("model", "compression")
    }
    try:
        return parse_config(yaml.safe_dump(changed), "--set")[0]
    except ConfigError as exc:
        problems = [problem.partition(": ")[2] for problem in exc.problems]
        raise PosthouseError(f"--set {'; '.join(problems)}") from exc
