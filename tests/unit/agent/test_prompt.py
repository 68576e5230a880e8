"""The shipped prompt, and what stays out of a process that never asks a model."""

from __future__ import annotations

import subprocess
import sys

from agent.model_metadata import estimate_tokens_rough
from agent.prompt import SYSTEM_PROMPT, system_prompt


def test_the_operators_prompt_wins_and_a_blank_one_is_none() -> None:
    assert system_prompt("Be brief.") == "Be brief."
    assert system_prompt(None) == system_prompt(" \n") == SYSTEM_PROMPT


def test_the_shipped_prompt_is_short() -> None:
    assert estimate_tokens_rough(SYSTEM_PROMPT) < 600


def test_the_sdk_is_not_loaded_before_it_is_needed() -> None:
    code = (
        "import sys, agent.loop, agent.llm.anthropic, agent.llm.retry, agent.llm.offline,"
        " agent.auxiliary_client, agent.tools.recall;"
        "sys.exit('anthropic' in sys.modules or 'httpx2' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
