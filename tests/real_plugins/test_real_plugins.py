"""Owns the proof that plugins of others load and register here, unmodified."""

from __future__ import annotations

import pytest

from tests.real_plugins.conftest import OtherPeoples

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]

MISSING = {
    "byterover": "the program brv is not there",
    "hindsight": "hindsight-client",
    "honcho": "honcho-ai",
    "mem0": "mem0ai",
    "retaindb": "RETAINDB_API_KEY",
    "supermemory": "supermemory",
}
"""What each asks for in its manifest and does not find here."""
PROVIDERS = (*MISSING, "holographic", "openviking")


def test_every_memory_provider_of_the_host_loads(other_peoples: OtherPeoples) -> None:
    found = other_peoples.loaded(*PROVIDERS)
    for name, said in found.items():
        assert said["state"] == "loaded", said
        assert said["gives"] == [f"memory provider {name}"]
        assert not any(line.startswith("not taken") for line in said["remarks"])
        # Whatever it needs is missing, so it says by itself that it can not work …
        assert said["available"] is (name == "holographic"), said
        # … and the operator reads what it is.
        if name in MISSING:
            assert MISSING[name] in "\n".join(said["remarks"]), said
    assert found["holographic"]["tools"]
    assert "Darjeeling" in found["holographic"]["remembered"]
    assert found["honcho"]["settings"]


def test_a_provider_of_the_host_works_over_compressions_and_a_restart(
    other_peoples: OtherPeoples,
) -> None:
    said = other_peoples.talked()
    assert said["kept"] == ["kept"]
    assert len(set(said["sessions"])) == 3, said
    assert said["works"].startswith("holographic (plugin ")
    assert {"fact_store", "remember"} <= set(said["tools"])
    assert "Darjeeling" in said["brought"]
    assert said["said"] == "Which tea does Ada drink?"
    assert said["rejected"] == []


def test_an_engine_from_a_package_loads_and_compresses(other_peoples: OtherPeoples) -> None:
    said = other_peoples.loaded("llmslim")["llmslim"]
    assert said["state"] == "loaded", said
    assert said["source"] == "entry point"
    assert "context engine llmslim" in said["gives"]
    assert said["own_instance"]
    assert said["asked"]
    assert said["after"] < said["before"] / 2


def test_a_person_is_told_what_is_there_and_what_is_missing(other_peoples: OtherPeoples) -> None:
    listed = other_peoples.posthouse("plugins", "list")
    assert listed.returncode == 0, listed.stderr
    for name in (*PROVIDERS, "llmslim"):
        assert name in listed.stdout
    checked = other_peoples.posthouse("plugins", "check", "mem0")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "pip install 'mem0ai>=" in checked.stdout
    assert "memory.provider: mem0" in checked.stdout
    assert other_peoples.posthouse("plugins", "check", "llmslim").returncode == 0
