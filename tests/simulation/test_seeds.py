"""The services on seeded loops, clocks and networks, with faults; see ``story.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from firesteel.rpc import server as rpc_server
from tests.simulation.seeds import check_seeds
from tests.simulation.story import Story, StoryError

SEEDS = 200
LONG_SEEDS = 10_000
CALM_SEEDS = 25
LOSSY_SEEDS = 25
_REPEATED = (3, 16, 27)
_DIGESTS = f"""
from tests.simulation.story import Story
for seed in {_REPEATED}:
    story = Story(seed)
    story.run()
    print(story.world.steps, story.world.digest.hexdigest())
"""


@pytest.mark.timeout(900)
def test_seeds() -> None:
    check_seeds(0, SEEDS)


@pytest.mark.timeout(600)
def test_without_faults_every_job_finishes() -> None:
    check_seeds(0, CALM_SEEDS, "calm")


@pytest.mark.timeout(600)
def test_lost_messages_alone_lose_no_splits_and_fail_no_task_for_them() -> None:
    check_seeds(0, LOSSY_SEEDS, "lossy")


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
    check_seeds(SEEDS, LONG_SEEDS)
