"""docs/threat-model.md: the tests that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")


def test_every_named_test_exists() -> None:
    named, file = 0, ""
    for path, test in re.findall(r"`(tests/[\w/.]+)?(?:::(\w+))?`", PAGE):
        if not path and not test:
            continue
        file = path or file
        assert (ROOT / file).exists(), file
        if test:
            text = (ROOT / file).read_text(encoding="utf-8")
            assert re.search(rf"def {test}\(", text), f"{file}::{test}"
            named += 1
    assert named >= 25
