"""Runs many seeds side by side."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os

from tests.simulation.story import Story

_CHUNK = 5


def _run(first: int, last: int, kind: str) -> list[str]:
    """What went wrong in a chunk of seeds."""
    failures = []
    for seed in range(first, last):
        try:
            Story(seed, kind).run()
        except AssertionError as error:
            failures.append(str(error))
    return failures


def check_seeds(first: int, last: int, kind: str = "faults") -> None:
    """Run seeds; a failing one tells its story, and how to have it told again.

    Raises:
        AssertionError: some have failed.
    """
    firsts = range(first, last, _CHUNK)
    lasts = [min(last, one + _CHUNK) for one in firsts]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        failures = [text for found in pool.map(_run, firsts, lasts, [kind] * len(firsts)) for text in found]
    assert not failures, f"{len(failures)} of {last - first} seeds failed; the first:\n{failures[0]}"
