"""Owns what is said in `posthouse demo`, and how much of it is shown."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.config.models import Compression, Config, Model

WINDOW_TOKENS = 8_000
MOST_ANSWER_TOKENS = 600

OPENING = f"""\
posthouse demo: one conversation with the built-in offline model, whose window
is set to only {WINDOW_TOKENS:,} tokens here. Real ones have 200,000 and more; a small one
shows in seconds what otherwise takes weeks. The bars show how much of the
window the last prompt took; instructions and tools alone are a good part of it.
When half of it is full, older messages are summarised.
"""
RESTART = """\

  == posthouse is stopped, and started again with compression.threshold: 0.95.
  == Half a window means nothing now; what is left is the net: hygiene looks
  == before each turn, and compresses from 85 % of the window on.
"""
DIARY = (
    "We walked along the river to the old mill, had soup, and missed the bus back.",
    "Rain all day; museum of clocks, then tea with Mr. Okafor, who repairs violins.",
    "Took the night train. Berth 12, a draughty window, a talkative conductor.",
    "The market: plums, rye bread, two kinds of cheese, and a map from 1911 for 14.50.",
    "Climbed to the tower before breakfast: 312 steps, fog, then all at once the sea.",
    "The ferry was full, so we stayed; letters written, shoes mended, early to bed.",
    "Island day. Seals on the north beach, a lighthouse keeper with three grey cats.",
    "Back on the mainland. The bicycle has a flat tyre; the smith at the corner helps.",
    "Long ride through the fens, herons everywhere, sandwiches under a poplar.",
    "Concert in the church: the second violin was Mr. Okafor's, and it sang.",
    "Packing. The old map goes into the tube, the cheese unfortunately into us.",
    "Last evening: supper with everybody, far too many toasts, one short speech.",
)
TRIP = tuple(
    f"Day {day} of the trip. {text} Later, at the desk: {DIARY[(day * 5) % len(DIARY)]}"
    for day, text in enumerate((*DIARY, *reversed(DIARY[:6])), start=1)
)
CODE = "BLUE-HERON-1183"
LOCKER = f"Please remember: the locker at the station is number 47, and its code is {CODE}."
QUESTION = "recall locker code"
LETTERS = tuple(
    f"Letter {n}, copied out: {' '.join((*DIARY[n:], *DIARY[:n]) * 3)}" for n in range(1, 6)
)


@dataclass(frozen=True, slots=True)
class Part:
    """A run of the daemon: the trigger that is set, and what is said."""

    threshold: float
    due: str
    """Why it compresses, if it does."""
    lines: tuple[str, ...]
    passed_over: dict[str, str] = field(default_factory=dict)
    """Where lines are left out of what is shown: from this one on, and how it is called."""
    shown_again: tuple[str, ...] = ()
    shown_cells: int = 130
    """Of what is said, at the most."""

    @property
    def config(self) -> Config:
        """Of the daemon."""
        return Config(
            model=Model(
                provider="offline", context_length=WINDOW_TOKENS, max_tokens=MOST_ANSWER_TOKENS
            ),
            compression=Compression(
                # Nothing ahead of time: when it is due is to be seen.
                protect_last_n=4,
                threshold=self.threshold,
                background=False,
            ),
        )


PARTS = (
    Part(
        threshold=0.5,
        due="Half of the window is full",
        lines=("hello", "what time is it", *TRIP[:2], LOCKER, *TRIP[2:]),
        passed_over={TRIP[1]: "day 2", TRIP[2]: "days 3 to 16", TRIP[17]: "day 18"},
        shown_again=(LOCKER, TRIP[16]),
    ),
    Part(
        threshold=0.95,
        due="Hygiene, before the turn",
        lines=(*LETTERS, QUESTION),
        passed_over={LETTERS[1]: "letters 2 to 4"},
        shown_again=(LETTERS[4],),
        shown_cells=70,
    ),
)
