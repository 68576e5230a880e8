"""Names that people gave, among the numbers that continuations count."""

from __future__ import annotations

import pytest

from agent.titles import given_name


@pytest.mark.parametrize(
    ("titles", "name"),
    [
        ([], None),
        ([None], None),
        (["Trip"], "Trip"),
        (["Trip", "Trip #2", "Trip #3"], "Trip"),
        ([None, None, "Trip", "Trip #2"], "Trip"),
        (["Trip", "Trip", "Trip #2", "Trip #2"], "Trip"),  # a refreeze counts nothing
        (["Ticket #42"], "Ticket #42"),
        (["Ticket #42", "Ticket #43", "Ticket #44"], "Ticket #42"),
        (["Ticket #42", "Ticket #99", "Ticket #100"], "Ticket #99"),
        (["Trip", "Tour", "Tour #2"], "Tour"),
        (["Trip", "Trip #2", "Tour", "Trip", "Trip #3"], "Trip"),
        (["Room #2", "Room #3"], "Room #2"),
        (["Trip", None, "Trip #2"], "Trip #2"),
        (["Trip (2)", "Trip (2) #2"], "Trip (2)"),
        (["Trip #1", "Trip #2"], "Trip #1"),
    ],
)
def test_the_name_that_a_person_gave(titles: list[str | None], name: str | None) -> None:
    assert given_name(titles) == name
