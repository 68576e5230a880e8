"""The compactors of the busy conversations, bounded."""

from __future__ import annotations

from gateway.turns.compactors import CompactorCache
from tests.unit.gateway.rig import FakeCompactor


def test_the_longest_unused_goes_first() -> None:
    made: list[str] = []

    def make(conversation_id: str) -> FakeCompactor:
        made.append(conversation_id)
        return FakeCompactor()

    cache = CompactorCache(make, max_compactors=2)
    first = cache.get("a")
    cache.get("b")
    assert cache.get("a") is first
    cache.get("c")
    assert cache.get("a") is first
    cache.get("b")
    assert made == ["a", "b", "c", "b"]
    cache.forget("a")
    cache.forget("unknown")
    assert len(cache) == 1
