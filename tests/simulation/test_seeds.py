"""The services on seeded loops, clocks and networks, with faults; see ``story.py``."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest import mock

import pytest

from firesteel.rpc import answering as rpc_answering
from firesteel.service.base import Service
from firesteel.service.leaving import Leaving
from firesteel_dispatcher import internal as dispatcher_calls
from firesteel_jobmaster import host
from firesteel_jobmaster import routes as jobmaster_calls
from firesteel_resourcemanager import routes as resourcemanager_calls
from firesteel_taskmanager import routes as taskmanager_calls
from tests.simulation.election import ProcessServices
from tests.simulation.seeds import check_seeds, first_that_fails, fresh_seeds, told_under_hash_seeds

SEEDS = 16
LONG_SEEDS = 10_000
CALM_SEEDS = 5
LOSSY_SEEDS = 5
OUTAGE_SEEDS = 6
ROLLING_SEEDS = 4
END_SEEDS = 5
UNFENCED = 34
"""The first seed that finds services which do not fence."""
_REPEATED = (3, 16)
_DIGESTS = f"""
from tests.simulation.story import Story
for seed in {_REPEATED}:
    story = Story(seed)
    story.run()
    print(story.world.steps, story.world.digest.hexdigest())
"""


@pytest.mark.timeout(900)
def test_seeds() -> None:
    check_seeds(range(SEEDS))


@pytest.mark.smoke
@pytest.mark.timeout(600)
def test_without_faults_every_job_finishes() -> None:
    check_seeds(range(CALM_SEEDS), "calm")


@pytest.mark.timeout(600)
def test_lost_messages_alone_lose_no_splits_and_fail_no_task_for_them() -> None:
    check_seeds(range(LOSSY_SEEDS), "lossy")


@pytest.mark.timeout(600)
def test_no_trouble_that_is_not_its_own_ends_a_job() -> None:
    check_seeds(range(OUTAGE_SEEDS), "outages")


@pytest.mark.smoke
@pytest.mark.timeout(600)
def test_no_job_notices_that_coordinators_are_restarted_in_order() -> None:
    check_seeds(range(ROLLING_SEEDS), "rolling")


@pytest.mark.timeout(600)
def test_no_job_runs_again_that_ended_while_no_dispatcher_was_up() -> None:
    check_seeds(range(END_SEEDS), "ends")


@pytest.mark.timeout(600)
def test_ends_that_are_not_recorded_are_found_out() -> None:
    with mock.patch.object(ProcessServices, "recorded_end", return_value=None):
        _, failure = first_that_fails(range(END_SEEDS), "ends")
    assert "runs again" in failure, failure


@pytest.mark.timeout(600)
def test_coordinators_that_take_the_cluster_with_them_are_found_out() -> None:
    with mock.patch.object(Service, "leaving", Leaving.END_ALL):
        _, failure = first_that_fails(range(ROLLING_SEEDS), "rolling")
    assert "restarted in order" in failure, failure


@pytest.mark.long  # few stories have a host that is deposed between two steps of a start
@pytest.mark.timeout(3600)
def test_a_deposed_host_that_still_makes_jobmasters_is_found_out() -> None:
    async def leads(_: Any) -> None:
        pass

    with mock.patch.object(host, "check_leads", leads):
        _, failure = first_that_fails(range(LONG_SEEDS), "faults")
    assert "makes a JobMaster, and" in failure, failure


@pytest.mark.timeout(600)
def test_a_seed_tells_the_same_story_under_every_hash_seed() -> None:
    digests = told_under_hash_seeds(_DIGESTS)
    assert len(digests[0].split()) == 2 * len(_REPEATED)
    assert digests[0] == digests[1]


@pytest.mark.timeout(600)
def test_services_that_do_not_fence_are_found_out() -> None:
    real = rpc_answering.handlers_of

    def unfenced(gateway: Any, calls: Any, target: Any, check: Any, *more: Any) -> Any:
        return real(gateway, calls, target, lambda *_: None, *more)

    with ExitStack() as patches:
        for module in (dispatcher_calls, jobmaster_calls, resourcemanager_calls, taskmanager_calls):
            patches.enter_context(mock.patch.object(module, "handlers_of", unfenced))
        _, failure = first_that_fails(range(UNFENCED, UNFENCED + SEEDS), "faults")
    assert any(words in failure for words in ("deposed leader", "another JobMaster leads", "another leader")), failure


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_many_seeds() -> None:
    check_seeds(fresh_seeds(LONG_SEEDS))


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_many_seeds_of_outages_and_rolling_restarts() -> None:
    check_seeds(fresh_seeds(2_000), "outages")
    check_seeds(fresh_seeds(500), "rolling")
