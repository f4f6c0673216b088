"""The example program on state, on a text of the test's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "state.py"
SOURCE = """
def often(self): ...
    def often(self): ...
def often(cls): ...
def rare(self): ...
def __init__(self): ...
def __init__(self): ...
def __init__(self): ...
"""


@pytest.mark.timeout(180)
def test_the_example_tells_of_what_is_defined_often(tmp_path: Path) -> None:
    files = []
    for name in ("one.py", "two.py"):
        files.append(tmp_path / name)
        files[-1].write_text(SOURCE, encoding="utf-8")
    process = subprocess.run(
        [sys.executable, str(EXAMPLE), *map(str, files)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert process.returncode == 0, process.stderr
    lines = [" ".join(line.split()) for line in process.stdout.splitlines() if " x " in line]
    assert lines == ["6 x often 4 times with the first parameter 'self', 21 characters"]
