"""What the shell tool runs does not look into the process that holds the secrets."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import ctypes, os, subprocess, sys
from gateway.concealing import conceal_this_process
assert conceal_this_process()
get = "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
sys.stdout.flush()
subprocess.run([sys.executable, "-I", "-S", "-c", get])
peep = "cat /proc/$PPID/environ >/dev/null 2>&1 && echo seen || echo hidden"
subprocess.run(["/bin/sh", "-c", peep])
os.listdir("/proc/self/fd"), open("/proc/self/statm").read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux offers it")
def test_this_process_is_concealed_and_what_it_starts_is_not() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    concealed, child, peeped = done.stdout.split()
    assert (concealed, child) == ("0", "1")
    if os.getuid() != 0:  # the administrator sees everything
        assert peeped == "hidden"
