"""Type checkers see the API: right programs pass, and wrong ones are errors where they are wrong.

The programs have a name that hides them from the checks of this repository's own code.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("typed_programs.py.txt")
ROOT = PROGRAMS.parents[2]
MARK = re.compile(r"# wrong: ([a-z-]+)$")
ERROR = re.compile(r"typed_programs\.py:(\d+)(?::\d+)?: error: .*\[([a-z-]+)\]$", re.MULTILINE)


def test_the_package_says_that_it_is_typed() -> None:
    assert files("firesteel").joinpath("py.typed").is_file()


@pytest.mark.timeout(600)
def test_mypy_finds_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    lines = PROGRAMS.read_text().splitlines()
    expected = {(number, match[1]) for number, line in enumerate(lines, 1) if (match := MARK.search(line))}
    assert len(expected) > 20
    copy = tmp_path / PROGRAMS.stem
    copy.write_text(PROGRAMS.read_text())
    settings = ["--strict", "--no-error-summary", "--hide-error-context", "--config-file", str(ROOT / "pyproject.toml")]
    process = subprocess.run(
        [sys.executable, "-m", "mypy", *settings, str(copy)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    errors = {(int(line), code) for line, code in ERROR.findall(process.stdout)}
    assert errors == expected, process.stdout + process.stderr
