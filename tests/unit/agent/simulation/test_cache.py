"""The model of the prompt cache: what is read, what is written, what has run out."""

from __future__ import annotations

import random

from agent.simulation.cache import Billed, PrefixCache

TTL = 300.0


class Prompt:
    """A list of messages of 100 tokens each behind a prefix of 1,000, and its cache."""

    def __init__(self, *, min_tokens: int = 0, ttl: float | None = TTL) -> None:
        self.cache = PrefixCache(1000, ttl, min_tokens)
        self.blocks: list[int] = []

    def ask(self, now: float, *new_blocks: int) -> Billed:
        self.blocks += new_blocks
        return self.cache.ask(
            len(self.blocks),
            1000 + 100 * len(self.blocks),
            now,
            self.blocks.__getitem__,
            lambda at: 100,
        )


def test_a_list_that_grows_is_read_up_to_where_it_ended() -> None:
    prompt = Prompt()
    assert prompt.ask(0, 1) == Billed(0, 0, 1100)
    assert prompt.ask(10, 1, 1) == Billed(0, 1100, 200)
    assert prompt.ask(20, 1, 1) == Billed(0, 1300, 200)


def test_a_use_is_a_new_life() -> None:
    prompt = Prompt()
    prompt.ask(0, 1)
    prompt.ask(TTL, 1)
    assert prompt.ask(2 * TTL, 1) == Billed(0, 1200, 100)
    assert prompt.ask(3 * TTL + 1, 1) == Billed(0, 0, 1400)


def test_nothing_is_cached_below_the_minimum() -> None:
    prompt = Prompt(min_tokens=1250)
    assert prompt.ask(0, 1) == Billed(1100, 0, 0)
    assert prompt.ask(1, 1, 1) == Billed(0, 0, 1300)
    assert prompt.ask(2, 1) == Billed(0, 1300, 100)


def test_without_a_cache_everything_is_plain() -> None:
    prompt = Prompt(ttl=None)
    prompt.ask(0, 1)
    assert prompt.ask(1, 1) == Billed(1200, 0, 0)


def test_a_long_step_is_found_where_it_began() -> None:
    """A mark stands where the last request ended, if the step is longer than marks look back."""
    prompt = Prompt()
    prompt.ask(0, 1)
    assert prompt.ask(1, 40, *[1] * 40) == Billed(0, 1100, 4100)


def test_behind_a_change_only_the_prefix_is_left() -> None:
    prompt = Prompt()
    for now in range(0, 60, 2):
        prompt.ask(float(now), 1, 1)
    prompt.cache.changed_from(3)
    del prompt.blocks[3:30]
    assert prompt.ask(60, 1) == Billed(0, 1000, 100 * len(prompt.blocks))


def test_a_change_near_the_end_leaves_what_a_mark_still_sees() -> None:
    prompt = Prompt()
    for now in range(0, 60, 2):
        prompt.ask(float(now), 1, 1)
    prompt.cache.changed_from(55)
    del prompt.blocks[55:]
    assert prompt.ask(60, 1).read == 1000 + 100 * 55


def test_what_lies_too_far_back_is_not_found() -> None:
    prompt = Prompt()
    prompt.ask(0, *[1] * 10)
    prompt.ask(1, *[1] * 10)
    prompt.cache.changed_from(15)
    del prompt.blocks[15:]
    assert prompt.ask(2, *[1] * 30).read == 1000


def test_every_token_is_billed_once_whatever_happens() -> None:
    for seed in range(30):
        chance = random.Random(seed)
        prompt, now = Prompt(min_tokens=chance.choice((0, 1024, 4096))), 0.0
        for _ in range(80):
            now += chance.choice((1.0, 50.0, 400.0))
            if prompt.blocks and chance.random() < 0.2:
                at = chance.randrange(len(prompt.blocks))
                prompt.cache.changed_from(at)
                del prompt.blocks[at : at + chance.randint(0, 20)]
            billed = prompt.ask(now, *[chance.randint(1, 4)] * chance.randint(1, 6))
            assert billed.plain + billed.read + billed.written == 1000 + 100 * len(prompt.blocks)
            assert min(billed.plain, billed.read, billed.written) >= 0
