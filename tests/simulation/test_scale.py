"""What jobs cost their services grows with the number of their subtasks, that of a session with its jobs; no faster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from tests.simulation.scale import LONGEST, SLOTS, Cost, Scale, Session

FEW, MANY = 64, 256
_MOST = 1.5
"""So much more than in proportion is allowed: what everybody has to be told has to reach every TaskManager."""
_MOST_TIME = 3.0
"""Of processor time: larger tables are further from the caches of the processor."""
_PHASES = ("deploy", "checkpoint", "failure", "cancel")
"""The others take whatever comes in some seconds."""
_REGULAR = {"heartbeat", "heartbeat_jobmaster", "jobmaster_heartbeat", "details"}
"""Come every ten seconds, in one phase or in another."""


@pytest.mark.parametrize("edge", ["HASH", "FORWARD"])
def test_calls_and_bytes_grow_in_proportion(edge: str) -> None:
    few, many = Scale(FEW, edge).run(), Scale(MANY, edge).run()
    _in_proportion(few, many, MANY // FEW)
    for phase, cost in many.items():
        assert cost.blocked[0] <= LONGEST, (phase, cost.longest)
    taskmanagers = MANY // (2 * SLOTS)
    assert many["deploy"].calls["share_placement"] == taskmanagers
    assert many["checkpoint"].calls["trigger_checkpoint"] == taskmanagers
    assert many["checkpoint"].calls["notify_checkpoint_complete"] == taskmanagers
    assert many["checkpoint"].calls["acknowledge_checkpoints"] <= MANY / 2
    assert many["cancel"].calls["cancel_tasks"] == taskmanagers


def test_a_session_costs_what_its_jobs_do_and_another_job_costs_the_same_beside_many() -> None:
    few, many = Session(6).run(), Session(36).run()
    assert set(few) == set(many) == {"start", "heartbeat", "look", "one more", "one less"}
    for phase in ("start", "heartbeat", "look"):
        assert many[phase].calls.total() <= _MOST * 6 * few[phase].calls.total(), (phase, many[phase].calls)
        assert many[phase].sent.total() <= _MOST * 6 * few[phase].sent.total(), (phase, many[phase].sent)
    for phase in ("one more", "one less"):
        assert _own(many[phase].calls) <= _own(few[phase].calls) + 2, (phase, few[phase].calls, many[phase].calls)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("edge", ["HASH", "FORWARD"])
def test_ten_thousand_subtasks_cost_ten_times_as_much_as_a_thousand(edge: str) -> None:
    few, many = Scale(1_000, edge).run(), Scale(10_000, edge).run()
    _in_proportion(few, many, 10)
    for phase in _PHASES:
        before, after = (sum(run[phase].seconds.values()) for run in (few, many))
        assert after <= _MOST_TIME * 10 * before + LONGEST, (phase, before, after)


def _in_proportion(few: Mapping[str, Cost], many: Mapping[str, Cost], times: int) -> None:
    assert set(few) == set(many) == {"deploy", "heartbeat", "checkpoint", "look", "failure", "cancel"}
    for phase in _PHASES:
        most = _MOST * times
        assert _own(many[phase].calls) <= most * _own(few[phase].calls), (phase, few[phase].calls, many[phase].calls)
        placed = [run[phase].sent["share_placement"] for run in (few, many)]  # of all subtasks, to each TaskManager
        assert placed[1] <= most * times * placed[0], (phase, placed)
        before, after = (_own(run[phase].sent) - shared for run, shared in zip((few, many), placed, strict=True))
        assert after <= most * before, (phase, few[phase].sent, many[phase].sent)


def _own(counted: Counter[str]) -> int:
    return sum(number for method, number in counted.items() if method not in _REGULAR)
