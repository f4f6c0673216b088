"""The cores and shells of all services on one seeded queue of events, with faults; see ``story.py``."""

from __future__ import annotations

import concurrent.futures
import os

import pytest

from tests.simulation.story import Story

SEEDS = 200
LONG_SEEDS = 10_000
_CHUNK = 25


def _run(first: int, count: int) -> list[str]:
    """What went wrong in these seeds."""
    failures = []
    for seed in range(first, first + count):
        try:
            Story(seed).run()
        except AssertionError as error:
            failures.append(str(error))
    return failures


@pytest.mark.parametrize("first", range(0, SEEDS, _CHUNK))
@pytest.mark.timeout(300)
def test_seeds(first: int) -> None:
    failures = _run(first, _CHUNK)
    assert not failures, f"{len(failures)} of {_CHUNK} seeds failed; the first:\n{failures[0]}"


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_many_seeds() -> None:
    chunks = range(SEEDS, LONG_SEEDS, _CHUNK)
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        failures = [text for chunk in pool.map(_run, chunks, [_CHUNK] * len(chunks)) for text in chunk]
    assert not failures, f"{len(failures)} seeds failed; the first:\n{failures[0]}"
