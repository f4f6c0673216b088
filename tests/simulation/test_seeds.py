"""The services on seeded loops, clocks and networks, with faults; see ``story.py``."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os

import pytest

from tests.simulation.story import Story

SEEDS = 200
LONG_SEEDS = 10_000
CALM_SEEDS = 25
_CHUNK = 10


def _run(first: int, calm: bool) -> list[str]:
    """What went wrong in a chunk of seeds."""
    failures = []
    for seed in range(first, first + _CHUNK):
        try:
            Story(seed, calm).run()
        except AssertionError as error:
            failures.append(str(error))
    return failures


def _check(first: int, last: int, calm: bool = False) -> None:
    """Run seeds side by side; a failing one tells its story."""
    chunks = range(first, last, _CHUNK)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        failures = [text for found in pool.map(_run, chunks, [calm] * len(chunks)) for text in found]
    assert not failures, f"{len(failures)} of {last - first} seeds failed; the first:\n{failures[0]}"


@pytest.mark.timeout(600)
def test_seeds() -> None:
    _check(0, SEEDS)


@pytest.mark.timeout(300)
def test_without_faults_every_job_finishes() -> None:
    _check(0, CALM_SEEDS, calm=True)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_many_seeds() -> None:
    _check(SEEDS, LONG_SEEDS)
