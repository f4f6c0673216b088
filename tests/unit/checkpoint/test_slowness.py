"""When people hear that checkpoints are slow."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.checkpoint.slowness import warning_of


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({}, ""),
        ({"under_way": 299.0, "last": 3.0, "before": 3.0, "without": 20.0}, ""),
        ({"under_way": 301.0}, "a checkpoint has been under way for 301 s (execution.checkpointing.timeout: 600 s)"),
        ({"last": 310.0}, "the last checkpoint took 310 s (execution.checkpointing.timeout: 600 s)"),
        ({"last": 47.0, "before": 17.0}, "the last checkpoint took 47 s, the one before 17.0 s"),
        ({"last": 30.0, "before": 17.0}, ""),
        ({"last": 4.0, "before": 0.1}, ""),
        ({"without": 49.0}, ""),
        ({"without": 51.0}, "no checkpoint has been complete for 51 s, at an interval of 10 s"),
    ],
)
def test_slow_checkpoints_are_told_before_one_expires(seen: dict[str, Any], words: str) -> None:
    warning = warning_of(600.0, 10.0, **seen)
    assert warning.startswith(words)
    assert bool(warning) is bool(words)


def test_a_job_that_takes_none_by_itself_misses_none() -> None:
    assert warning_of(600.0, 0.0, without=10_000.0) == ""


def test_short_timeouts_need_some_seconds_too() -> None:
    assert warning_of(3.0, 1.0, under_way=2.0) == ""
