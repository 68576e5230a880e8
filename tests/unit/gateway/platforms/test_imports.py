from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("platform", ["telegram", "discord", "console"])
def test_naming_a_platform_loads_no_sdk(platform: str) -> None:
    code = (
        f"import sys, gateway.platforms.{platform}.adapter\n"
        "heavy = {'telegram', 'httpx', 'discord', 'aiohttp', 'anthropic'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {sorted(heavy)}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
