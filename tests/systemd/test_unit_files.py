"""What systemd itself says of the unit files, offline."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.service.unit import UNITS

UNIT_FOLDER = Path(__file__).parents[2] / "systemd"
pytestmark = pytest.mark.skipif(
    not Path("/usr/bin/systemd-analyze").exists(), reason="systemd-analyze is not installed"
)


@pytest.mark.parametrize(
    ("unit", "most"), [("posthouse.service", 1.5), ("posthouse-tools@.service", 3.2)]
)
def test_how_exposed_it_is(
    unit: str, most: float, record_property: Callable[[str, object], None]
) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", str(UNIT_FOLDER / unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    record_property("exposure", found[1])
    assert float(found[1]) <= most, done.stdout


def test_systemd_accepts_all_of_them(tmp_path: Path) -> None:
    for name in UNITS:
        text = (UNIT_FOLDER / name).read_text(encoding="utf-8")
        # The programs do not exist here; everything else is judged as it stands.
        text = re.sub(r"(?m)^(Exec\w+)=.*$", r"\1=/bin/true", text)
        (tmp_path / name).write_text(re.sub(r"(?m)^Documentation=.*\n", "", text))
    done = subprocess.run(
        ["systemd-analyze", "verify", *(str(tmp_path / name) for name in UNITS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
