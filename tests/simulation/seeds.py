"""Runs many seeds side by side."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os

from tests.simulation.story import Story

_CHUNK = 5


def _run(first: int, last: int, kind: str) -> dict[int, str]:
    """What went wrong in a chunk of seeds."""
    failures = {}
    for seed in range(first, last):
        try:
            Story(seed, kind).run()
        except AssertionError as error:
            failures[seed] = str(error)
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
        chunks = list(pool.map(_run, firsts, lasts, [kind] * len(firsts)))
    failures = {seed: told for chunk in chunks for seed, told in chunk.items()}
    first_told = next(iter(failures.values()), "")
    assert not failures, f"of {last - first} seeds {sorted(failures)} failed; the first:\n{first_told}"
