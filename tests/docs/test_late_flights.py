"""The example of event time gives what plain Python finds in the sorted departures."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "late_flights.py"


def expected(example: Any) -> list[str]:
    lines = []
    in_a_row: Counter[str] = Counter()
    for departure in sorted(example.departures(5000), key=lambda departure: departure.time):
        in_a_row[departure.plane] = in_a_row[departure.plane] + 1 if departure.delay > 15 else 0
        if in_a_row[departure.plane] == 3:
            minute = departure.time // example.MINUTE
            lines.append(f"{departure.plane} left late three times in a row until minute {minute}")
        if departure.delay > 180:
            lines.append(f"{departure.plane} left {departure.delay} minutes late")
    return sorted(lines)


@pytest.mark.timeout(180)
def test_the_example_finds_what_is_there(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("late_flights", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    process = subprocess.run(
        [sys.executable, str(EXAMPLE)], cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert process.returncode == 0, process.stderr
    lines = expected(example)
    assert len(lines) > 20
    assert process.stdout.splitlines() == [*lines[:10], f"{len(lines)} lines"]
