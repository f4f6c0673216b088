"""Runs many seeds side by side."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.simulation.data_plane import DataPlaneStory
from tests.simulation.story import Story, StoryError

_CHUNK, _FEW = 5, 30


def story_of(kind: str, seed: int) -> Story | DataPlaneStory:
    """The story of a seed: ``data`` is about what moves records, all other kinds are about the services."""
    return DataPlaneStory(seed) if kind == "data" else Story(seed, kind)


def _run(seeds: Sequence[int], kind: str) -> dict[int, str]:
    """What went wrong in a chunk of seeds."""
    failures = {}
    for seed in seeds:
        try:
            story_of(kind, seed).run()
        except AssertionError as error:
            failures[seed] = str(error)
    return failures


def told_under_hash_seeds(program: str) -> list[str]:
    """What a program prints, in processes whose sets are in different orders."""
    root = Path(__file__).parents[2]
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=root,
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("1", "2")
    ]
    outputs = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    return outputs


def fresh_seeds(count: int) -> list[int]:
    """Others at each call; a failure names them."""
    system = random.SystemRandom()
    return [system.randrange(10**9) for _ in range(count)]


def first_that_fails(seeds: Sequence[int], kind: str) -> tuple[int, str]:
    """For code that is broken on purpose: which seed finds it, and what it says.

    Raises:
        AssertionError: none does.
    """
    for seed in seeds:
        try:
            story_of(kind, seed).run()
        except StoryError as error:
            return seed, str(error).partition("\n")[0]
    raise AssertionError(f"no {kind} seed finds it")


def check_seeds(seeds: Sequence[int], kind: str = "faults") -> None:
    """Run seeds; a failing one tells its story, and how to have it told again.

    Few of them run in this process: another one imports for two seconds, and tests use all cores already.

    Raises:
        AssertionError: some have failed.
    """
    if len(seeds) <= _FEW:
        failures = _run(seeds, kind)
    else:
        parts = [seeds[at : at + _CHUNK] for at in range(0, len(seeds), _CHUNK)]
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
            chunks = list(pool.map(_run, parts, [kind] * len(parts)))
        failures = {seed: output for chunk in chunks for seed, output in chunk.items()}
    first_told = next(iter(failures.values()), "")
    assert not failures, f"of {len(seeds)} {kind} seeds {sorted(failures)} failed; the first:\n{first_told}"
