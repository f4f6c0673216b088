"""Memory of arrays that were freed is kept for the next ones."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from firesteel.core.process import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def work():
    return [np.ones(1 << 20, np.uint8) for _ in range(8)]
for _ in range(3):
    work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(25):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep it by themselves, or can't")
def test_the_pages_of_arrays_are_used_again() -> None:
    faults = {
        how: int(subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, check=True).stdout)
        for how in ("kept", "as it is")
    }
    assert faults["kept"] < 500
    assert faults["as it is"] > 10 * max(1, faults["kept"]), "else this test shows nothing here"
