"""The services on seeded loops, clocks and networks, with faults; see ``story.py``."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from firesteel.rpc import server as rpc_server
from tests.simulation.story import Story, StoryError

SEEDS = 200
LONG_SEEDS = 10_000
CALM_SEEDS = 25
LOSSY_SEEDS = 25
_CHUNK = 10
_REPEATED = (3, 16, 27)
_DIGESTS = f"""
from tests.simulation.story import Story
for seed in {_REPEATED}:
    story = Story(seed)
    story.run()
    print(story.world.steps, story.world.digest.hexdigest())
"""


def _run(first: int, kind: str) -> list[str]:
    """What went wrong in a chunk of seeds."""
    failures = []
    for seed in range(first, first + _CHUNK):
        try:
            Story(seed, kind).run()
        except AssertionError as error:
            failures.append(str(error))
    return failures


def _check(first: int, last: int, kind: str = "faults") -> None:
    """Run seeds side by side; a failing one tells its story."""
    chunks = range(first, last, _CHUNK)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        failures = [text for found in pool.map(_run, chunks, [kind] * len(chunks)) for text in found]
    assert not failures, f"{len(failures)} of {last - first} seeds failed; the first:\n{failures[0]}"


@pytest.mark.timeout(900)
def test_seeds() -> None:
    _check(0, SEEDS)


@pytest.mark.timeout(600)
def test_without_faults_every_job_finishes() -> None:
    _check(0, CALM_SEEDS, "calm")


@pytest.mark.timeout(600)
def test_lost_messages_alone_lose_no_splits_and_fail_no_task_for_them() -> None:
    _check(0, LOSSY_SEEDS, "lossy")


@pytest.mark.timeout(600)
def test_a_seed_tells_the_same_story_under_every_hash_seed() -> None:
    told = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", _DIGESTS]
        root = Path(__file__).parents[2]
        told.append(subprocess.run(command, env=environment, cwd=root, check=True, capture_output=True).stdout)
    assert len(told[0].split()) == 2 * len(_REPEATED)
    assert told[0] == told[1]


@pytest.mark.timeout(600)
def test_services_that_do_not_fence_are_found_out() -> None:
    real = rpc_server._perform

    async def unfenced(call: Any, handlers: Any, token_of: rpc_server.TokenOf) -> tuple[int, bytes]:
        status, text = await real(call, handlers, token_of)
        if status != 409:
            return status, text
        return await real(call, handlers, lambda _: None)

    found = []
    with mock.patch.object(rpc_server, "_perform", unfenced):
        for seed in range(SEEDS):
            try:
                Story(seed).run()
            except StoryError as error:
                found.append(str(error).partition("\n")[0])
                break
    assert found, "no seed shows that nobody fences"
    assert any(words in found[0] for words in ("deposed leader", "another JobMaster leads", "another leader")), found


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_many_seeds() -> None:
    _check(SEEDS, LONG_SEEDS)
