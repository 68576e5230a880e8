"""When all lines to Discord are up, whoever says so, and in whatever order."""

from __future__ import annotations

from gateway.platforms.discord.health import Lines


class Told:
    def __init__(self) -> None:
        self.ready = 0
        self.up: list[bool] = []
        self.lines = Lines(lambda: None, self._ready, self.up.append)

    def _ready(self) -> None:
        self.ready += 1


def begun() -> Told:
    told = Told()
    told.lines.identifying(0)
    told.lines.begun(0)
    return told


def test_a_session_that_is_said_to_be_complete_twice_is_complete_once() -> None:
    told = begun()
    told.lines.ready(0)
    told.lines.ready(0)
    assert told.ready == 1
    assert told.lines.up


def test_a_late_word_of_being_complete_does_not_hide_a_loss() -> None:
    told = begun()
    told.lines.ready(0)
    told.lines.lost(0)
    told.lines.ready(0)  # the SDK's timer, which knows nothing of it
    assert not told.lines.up
    assert told.up[-1] is False
    told.lines.resumed(0)
    assert told.lines.up


def test_a_session_after_a_loss_is_up_once_it_is_complete() -> None:
    told = begun()
    told.lines.ready(0)
    told.lines.lost(0)
    told.lines.identifying(0)
    told.lines.ready(0)  # of the one before
    assert told.ready == 1
    told.lines.begun(0)
    assert not told.lines.up
    told.lines.ready(0)
    assert (told.ready, told.lines.up) == (2, True)


def test_two_lines_are_up_together() -> None:
    told = Told()
    told.lines.expect(2)
    for shard in (0, 1):
        told.lines.identifying(shard)
        told.lines.begun(shard)
    told.lines.ready(1)
    assert (told.ready, told.lines.up) == (0, False)
    told.lines.ready(0)
    assert (told.ready, told.lines.up) == (1, True)
