"""An engine of others, unmodified, in whole conversations with compressions and a restart."""

from __future__ import annotations

import json
import sys

import pytest

from tests.real_plugins.conftest import OtherPeoples

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]


def test_llmslim_keeps_two_conversations_short_over_a_restart(other_peoples: OtherPeoples) -> None:
    done = other_peoples.run(
        [
            *(sys.executable, "-m", "tests.real_plugins.conversation"),
            *(str(other_peoples.home), "llmslim"),
        ]
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout)
    assert said["troubles"] == []
    assert said["refused"] == []
    assert set(said["answers"]) == {"Noted."}
    first, both = said["compressions"]
    assert all(count >= 1 for count in first), said
    assert all(more > count for count, more in zip(first, both, strict=True)), said
    assert "could not" not in said["compressed"]
    assert "llmslim (plugin llmslim)" in said["details"]["context engine"]
    for chat in ("11", "12"):
        assert not said[f"of the other in {chat}"]
        assert said[f"newest in {chat}"]
