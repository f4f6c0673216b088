"""Statistics, back pressure, counters, applications, rescaling and flame graphs, from archives."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.core.errors import ConfigurationError
from firesteel.core.stacks import Samples
from firesteel.rest.application_views import application_details, application_exceptions
from firesteel.rest.rescale_views import NotAdaptiveError, require, requirements
from firesteel.rest.subtask_views import accumulators_of, aggregated, back_pressure, level_of
from firesteel_dispatcher.flame_graphs import flame_graph, page_of
from tests.archives import job_row

V = "0" * 32


def subtask(index: int, busy: float = 0, pressed: float = 0, **fields: Any) -> dict[str, Any]:
    metrics = {"busyTimeMsPerSecond": busy, "backPressuredTimeMsPerSecond": pressed, "idleTimeMsPerSecond": 0.0}
    return {"subtask": index, "status": "RUNNING", "attempt": 2, "task-metrics": metrics, **fields}


def test_statistics_leave_flags_out() -> None:
    rows = [
        {"metrics": {"read-records": n, "read-records-complete": True}, "status-duration": {"RUNNING": 10 * n}}
        for n in (4, 1, 2, 3)
    ]
    view = aggregated(rows)
    assert view["metrics"] == {
        "read-records": {"min": 1, "max": 4, "avg": 2, "sum": 10, "median": 2.0, "p25": 1.0, "p75": 3.0, "p95": 4.0}
    }
    assert view["status-duration"]["RUNNING"]["sum"] == 100
    assert aggregated([]) == {"metrics": {}, "status-duration": {}}


def test_back_pressure_is_that_of_the_worst_subtask() -> None:
    view = back_pressure({"subtasks": [subtask(0, 900, 50), subtask(1, 100, 700), subtask(2, 2000, -1)]}, 77)
    assert (view["status"], view["backpressureLevel"], view["end-timestamp"]) == ("ok", "high", 77)
    rows = [(row["ratio"], row["busyRatio"], row["backpressure-level"]) for row in view["subtasks"]]
    assert rows == [(0.05, 0.9, "ok"), (0.7, 0.1, "high"), (0.0, 1.0, "ok")]
    assert [level_of(ratio) for ratio in (0.1, 0.11, 0.5, 0.51)] == ["ok", "low", "low", "high"]


def test_nothing_is_said_of_what_does_not_run_yet() -> None:
    assert back_pressure({"subtasks": [{**subtask(0, 10), "status": "DEPLOYING"}]}, 1) == {"status": "deprecated"}
    assert back_pressure({"subtasks": [{**subtask(0), "task-metrics": {}}]}, 1) == {"status": "deprecated"}


def test_counters_add_up() -> None:
    rows = [subtask(0, counters={"map.seen": 3}), subtask(1, counters={"map.seen": 4, "map.bad": 1}), subtask(2)]
    assert accumulators_of(rows) == [
        {"name": "map.seen", "type": "LongCounter", "value": "7"},
        {"name": "map.bad", "type": "LongCounter", "value": "1"},
    ]


def archive(state: str, **fields: Any) -> dict[str, Any]:
    stamps = {"INITIALIZING": 1, "CREATED": 2, "RUNNING": 9, "RESTARTING": 5, "FAILED": 11 if state == "FAILED" else 0}
    job = {
        "jid": "ab" * 16, "name": "n", "start-time": 1, "end-time": 11, "duration": 10, "state": state,
        "timestamps": stamps, "vertices": [], "exceptions": [],
    }  # fmt: skip
    return {**job, **fields}


def test_a_job_is_an_application() -> None:
    job = archive("FAILED")
    row = job_row(job["jid"], "FAILED", 1, 11)
    view = application_details("ab" * 16, None, [row], [job], 12)
    assert (view["id"], view["status"], view["jobs"][0]["jid"]) == ("ab" * 16, "FAILED", "ab" * 16)
    assert view["timestamps"]["RUNNING"] == 5  # the first of the states that mean it
    assert view["timestamps"]["FINISHED"] == 0


def test_only_what_ended_a_job_is_a_failure_of_the_application() -> None:
    failure = {
        "kind": "user", "error_class": "ValueError", "message": "m", "traceback": "t", "timestamp": 7, "taskName": "x",
        "endpoint": "e", "taskManagerId": "tm",
    }  # fmt: skip
    assert application_exceptions(None, [archive("RUNNING", exceptions=[failure])])["exceptionHistory"]["entries"] == []
    (entry,) = application_exceptions(None, [archive("FAILED", exceptions=[failure])])["exceptionHistory"]["entries"]
    assert entry == {"exceptionName": "ValueError", "stacktrace": "t", "timestamp": 7, "jobId": "ab" * 16}


def test_bounds_that_hold_already_may_be_set() -> None:
    job = {"vertices": [{"id": V, "name": "v", "parallelism": 2, "maxParallelism": 8}]}

    def bounds(least: int, most: int) -> dict[str, Any]:
        return {V: {"parallelism": {"lowerBound": least, "upperBound": most}}}

    assert requirements(job) == bounds(2, 2)
    assert require(job, bounds(1, 8)) == {}
    with pytest.raises(NotAdaptiveError, match="stop it with a savepoint"):
        require(job, bounds(3, 4))
    for wrong in (bounds(1, 9), bounds(3, 2), {}, {**bounds(1, 2), "1" * 32: bounds(1, 2)[V]}):
        with pytest.raises(ConfigurationError):
            require(job, wrong)


def test_a_flame_graph_joins_stacks_that_begin_alike() -> None:
    first, second = Samples(), Samples()
    first.on_cpu[("main", "work", "deep")] = 3
    first.off_cpu[("main", "wait")] = 4
    second.on_cpu[("main", "work")] = 2
    assert flame_graph([first, second], "full", 5)["endTimestamp"] == 5

    def tree(samples: list[Samples], kind: str) -> dict[str, Any]:
        data = flame_graph(samples, kind, 5)["data"]
        assert data is not None
        return data

    full = tree([first, second], "full")
    (main,) = full["children"]
    assert (main["value"], [(c["name"], c["value"]) for c in main["children"]]) == (9, [("work", 5), ("wait", 4)])
    assert tree([first, second], "on_cpu")["value"] == 5
    assert tree([first, second], "off_cpu")["value"] == 4
    assert tree([], "full") == {"name": "root", "value": 0, "children": []}
    page = page_of(full, "<title>")
    assert "&lt;title&gt;" in page
    assert "<title><title>" not in page
    assert "55.6% work" in page
