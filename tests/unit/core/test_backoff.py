from __future__ import annotations

from itertools import islice

import pytest

from firesteel.core.backoff import pause_after, pauses


def test_a_pause_doubles_up_to_the_longest() -> None:
    assert [pause_after(failures, 0.5, 3.0) for failures in range(6)] == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize("failures", [1024, 1025, 10_000_000])
def test_a_pause_never_overflows(failures: int) -> None:
    assert pause_after(failures, 1.0, 30.0) == 30.0


def test_pauses_are_those_after_each_failure() -> None:
    assert list(islice(pauses(0.5, 3.0), 5)) == [pause_after(failures, 0.5, 3.0) for failures in range(1, 6)]


def test_no_pause_is_longer_than_the_longest() -> None:
    assert list(islice(pauses(5.0, 3.0), 3)) == [3.0, 3.0, 3.0]
    assert pause_after(1, 5.0, 3.0) == 3.0
