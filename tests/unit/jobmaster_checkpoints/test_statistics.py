"""Figures of many subtasks are added up as they come, and packed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from firesteel.graph.job_archive import ROWS_AT_ONCE, at_once
from firesteel.rest import checkpoint_views as views
from firesteel_jobmaster.checkpoints.pending import SplitPosition
from firesteel_jobmaster.checkpoints.statistics import METRICS, MOST_STATES, CheckpointStatistics

MANY = 2 * ROWS_AT_ONCE + 50
VERTEX, OTHER = "a" * 32, "b" * 32


def execution(vertex: str, subtask: int, attempt: int = 0) -> Any:
    return SimpleNamespace(vertex=SimpleNamespace(id=vertex), subtask=subtask, attempt=attempt)


def figures(subtask: int) -> dict[str, int]:
    return {name: (subtask * 7 + position) % 1000 for position, name in enumerate(METRICS)}


@pytest.fixture
def statistics() -> CheckpointStatistics:
    """One checkpoint of a large vertex and a small one is complete, another one under way."""
    counted = CheckpointStatistics(10)
    subtasks = [execution(VERTEX, number) for number in range(MANY)] + [execution(OTHER, 0)]
    for checkpoint_id in (1, 2):
        counted.begin(checkpoint_id, 1000, subtasks)
    counted.acknowledge(1, subtasks[3], 1001, {"state_size": 10**9})  # what it says again counts instead
    for subtask in subtasks:
        counted.acknowledge(1, subtask, 1100 + subtask.subtask, figures(subtask.subtask))
    counted.complete(1, 3000, "/c/chk-1")
    for subtask in subtasks[: ROWS_AT_ONCE + 1]:
        counted.acknowledge(2, subtask, 1200, figures(subtask.subtask))
    return counted


def archives(statistics: CheckpointStatistics) -> Iterator[dict[str, Any]]:
    """As it is told now, and as a former version, which added nothing up, told the same."""
    plain = at_once(statistics.in_slices())
    vertices = [{"id": VERTEX, "parallelism": MANY}, {"id": OTHER, "parallelism": 1}]
    yield {"checkpoints": json.loads(json.dumps(plain)), "vertices": vertices}
    for shown_checkpoint in (*plain["history"], *plain["latest"].values()):
        [record] = [
            r for r in (*statistics._history, *statistics._under_way.values()) if r.id == shown_checkpoint["id"]
        ]
        for vertex, task in shown_checkpoint["tasks"].items():
            rows = record.acknowledged.get(vertex, {})
            shown_checkpoint["tasks"][vertex] = {
                "subtasks": task["subtasks"],
                "acknowledged": {str(subtask): list(values) for subtask, values in rows.items()},
            }
    yield {"checkpoints": plain, "vertices": vertices}


def test_what_is_shown_is_what_each_subtask_said(statistics: CheckpointStatistics) -> None:
    now, before = archives(statistics)
    assert views.checkpoints(now) == views.checkpoints(before)
    for number in ("1", "2"):
        query = {"checkpoint_id": number}
        assert views.checkpoint_details(now, query) == views.checkpoint_details(before, query)
        for vertex in (VERTEX, OTHER):
            of_vertex = {**query, "vertex_id": vertex}
            assert views.checkpoint_subtasks(now, of_vertex) == views.checkpoint_subtasks(before, of_vertex)
    shown = views.checkpoint_subtasks(now, {"checkpoint_id": "1", "vertex_id": VERTEX})
    assert [row["ack_timestamp"] for row in shown["subtasks"]] == [1100 + number for number in range(MANY)]
    expected = sum(figures(number)["state_size"] for number in range(MANY)) + figures(0)["state_size"]
    assert statistics.metrics()["lastCheckpointFullSize"] == expected
    assert statistics.metrics()["lastCheckpointDuration"] == 100 + MANY - 1


def test_a_look_at_a_large_checkpoint_is_made_in_slices_and_its_packed_figures_once(
    statistics: CheckpointStatistics,
) -> None:
    slices = sum(1 for _ in statistics.in_slices())
    assert slices == 3 + 2, "of the one that is complete, and of the one under way"
    assert sum(1 for _ in statistics.in_slices()) == 2, "those of the first are kept"
    [_, complete] = at_once(statistics.in_slices())["history"]
    task = complete["tasks"][VERTEX]
    assert len(task["acknowledged"]) == 3
    assert all(isinstance(text, str) for text in task["acknowledged"])
    assert task["count"] == MANY


def state(name: str, entries: int, size: int, operator: str = OTHER, *, counted: bool = True) -> list[Any]:
    return [operator, name, "value", entries, size, counted, True]


def test_states_are_added_up_over_subtasks_and_what_a_subtask_says_again_counts_instead() -> None:
    statistics = CheckpointStatistics(10)
    subtasks = [execution(VERTEX, number) for number in range(2)]
    for subtask in subtasks:
        subtask.vertex.operators = [SimpleNamespace(id=OTHER)]
    statistics.begin(1, 1000, subtasks)
    statistics.acknowledge(1, subtasks[0], 1001, {"states": [state("seen", 100, 1000), state("old", 1, 1)]})
    statistics.acknowledge(1, subtasks[0], 1002, {"states": [state("seen", 3, 30)]})
    foreign, malformed = state("foreign", 1, 1, VERTEX), ["seen"]
    said = [state("seen", 4, 41, counted=False), state("new", 0, 0), foreign, malformed]
    statistics.acknowledge(1, subtasks[1], 1003, {"states": said})
    statistics.complete(1, 2000, "/c/chk-1", [])
    (record,) = at_once(statistics.in_slices())["history"]
    assert record["states"] == [state("seen", 7, 71, counted=False), state("old", 0, 0), state("new", 0, 0)]


def test_states_beyond_a_number_are_left_out() -> None:
    statistics = CheckpointStatistics(10)
    task = execution(VERTEX, 0)
    task.vertex.operators = [SimpleNamespace(id=OTHER)]
    statistics.begin(1, 1000, [task])
    statistics.acknowledge(1, task, 1001, {"states": [state(f"s{number}", 1, 1) for number in range(MOST_STATES + 5)]})
    assert len(at_once(statistics.in_slices())["history"][0]["states"]) == MOST_STATES
    statistics.acknowledge(1, task, 1001, {"states": "no list"})


def test_positions_are_those_of_the_last_checkpoint_that_the_job_goes_on_from() -> None:
    statistics = CheckpointStatistics(10)
    for number in (1, 2, 3):
        statistics.begin(number, 1000, [])
    statistics.complete(1, 1500, "/c/chk-1", [SplitPosition(VERTEX, 0, "t.x-0", 7)])
    statistics.complete(2, 1600, "/s/savepoint-2")
    statistics.fail(3, 1700, "expired")
    assert at_once(statistics.in_slices())["positions"] == {"checkpoint": 1, "splits": [[VERTEX, 0, "t.x-0", 7]]}
