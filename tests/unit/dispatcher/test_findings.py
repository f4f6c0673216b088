"""What is wrong with a job, in words, and its health at a glance."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.core.human_texts import duration_text
from firesteel.graph.execution_graph import ExecutionGraph
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_archive import EVENT_TIME, PENDING, RECENT_RESTARTS, TASKS, WAITING, WORST, archive_of
from firesteel.graph.job_graph import JobGraph, JobVertex, OperatorInfo
from firesteel.rest.findings import findings, health, tasks_done

NOW = 1_000_000


def vertex(name: str, parallelism: int = 2, **worst: Any) -> dict[str, Any]:
    loads = {
        key: value if isinstance(value, tuple) else (value, 1) for key, value in worst.items() if key not in _PLAIN
    }
    return {
        "id": name, "name": name, "parallelism": parallelism, "status": "RUNNING", "start-time": 0,
        "tasks": {"RUNNING": parallelism},
        WORST: {
            **{key: {"value": value, "subtask": subtask} for key, (value, subtask) in loads.items()},
            **{key: value for key, value in worst.items() if key in _PLAIN},
        },
    }  # fmt: skip


_PLAIN = {"skew", "numRecordsInPerSecond", "numRecordsOutPerSecond", PENDING}


def archive(*vertices: dict[str, Any], inputs: dict[str, list[str]] | None = None, **more: Any) -> dict[str, Any]:
    edges = inputs or {}
    nodes = [{"id": v["id"], "inputs": [{"id": source} for source in edges.get(v["id"], [])]} for v in vertices]
    return {
        "jid": "j", "name": "j", "state": "RUNNING", "end-time": -1, "now": NOW, "vertices": list(vertices),
        "plan": {"nodes": nodes}, **more,
    }  # fmt: skip


def failure(at: int, message: str = "no price\nmore") -> dict[str, Any]:
    return {"error_class": "builtins.LookupError", "message": message, "timestamp": at}


def named(**values: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(finding["kind"], finding.get("vertex")) for finding in findings(values["job"])]


def test_durations_read_as_the_dashboard_writes_them() -> None:
    texts = [duration_text(ms) for ms in (5, 1500, 30_000, 61_000, 120_000, 3_700_000, 90_000_000)]
    assert texts == ["5 ms", "1.5 s", "30.0 s", "1 min 1 s", "2 min", "1 h 1 min", "1 d 1 h"]


def test_the_vertex_that_back_pressures_the_others_is_found_behind_those_that_wait() -> None:
    job = archive(
        vertex("source", busy=100, backPressured=800), vertex("middle", busy=300, backPressured=600),
        vertex("slow", busy=990, backPressured=0), vertex("idle", busy=10, backPressured=0),
        inputs={"middle": ["source"], "slow": ["middle"], "idle": ["source"]},
    )  # fmt: skip
    (finding,) = findings(job)
    assert (finding["kind"], finding["vertex"]) == ("bad", "slow")
    assert "upstream of it (up to 80 % of the time): its subtask 2/2 is 99 % busy" in finding["text"]


def test_a_subtask_without_time_left_is_a_cause_though_another_one_of_its_vertex_is_back_pressured() -> None:
    job = archive(
        vertex("source", busy=100, backPressured=460),
        vertex("slow", busy=(1000, 3), backPressured=(190, 0)),
        vertex("sink", busy=400, backPressured=0),
        inputs={"slow": ["source"], "sink": ["slow"]},
    )
    assert (findings(job)[0]["vertex"], findings(job)[0]["subtask"]) == ("slow", 3)


def test_a_vertex_that_back_pressures_others_and_is_not_busy_waits_for_something() -> None:
    job = archive(
        vertex("source", busy=50, backPressured=960),
        vertex("slow", busy=(1000, 1), backPressured=(400, 0)),
        vertex("sums", busy=30, backPressured=0),
        inputs={"slow": ["source"], "sums": ["slow"]},
    )
    assert named(job=job) == [("bad", "slow"), ("warn", "sums")]
    text = findings(job)[1]["text"]
    assert "3 % busy at most: it waits for barriers" in text
    assert "or for the processor" in text


def test_a_busy_vertex_is_a_warning_and_a_quiet_job_is_well() -> None:
    assert named(job=archive(vertex("v", busy=950))) == [("warn", "v")]
    assert named(job=archive(vertex("v", busy=100, backPressured=0))) == [("good", None)]
    assert named(job=archive(vertex("v", skew=81))) == [("warn", "v")]
    assert named(job=archive(vertex("v", 1, skew=81))) == [("good", None)], "one subtask gets all records"


def test_the_last_failure_comes_first_and_for_ten_minutes() -> None:
    first, *_ = findings(archive(vertex("a"), exceptions=[failure(1), failure(NOW - 30_000)]))
    text = "Failed 30.0 s ago, and was started again: LookupError: no price"
    assert first == {"kind": "bad", "text": text, "page": "exceptions"}
    restarting = archive(state="RESTARTING", exceptions=[failure(NOW - 1000, "")])
    assert findings(restarting)[0]["text"] == "Failed just now: LookupError"
    assert findings(archive(exceptions=[failure(NOW - 600_001)]))[0]["kind"] == "good"
    ended: dict[str, Any] = {"state": "FAILED", "end-time": NOW}
    assert findings(archive(exceptions=[failure(5)], **ended))[0]["text"] == (
        "The job has failed: LookupError: no price"
    )
    assert findings(archive(**ended)) == [{"kind": "bad", "text": "The job has failed.", "page": "exceptions"}]


def test_a_job_that_waits_for_slots_names_them() -> None:
    waits = archive(state="CREATED") | {WAITING: "2 more slots are needed."}
    assert findings(waits) == [{"kind": "warn", "text": "The job waits for slots: 2 more slots are needed."}]
    assert findings(archive(state="CREATED")) == []
    starting = vertex("v") | {"tasks": {"RUNNING": 1}}
    text = findings(archive(starting, vertex("w")))[0]["text"]
    assert text == "1 of 2 vertices do not run with all subtasks yet."


def test_slow_checkpoints_are_a_finding_while_the_job_runs() -> None:
    slow = archive(vertex("v"), checkpoints={"warning": "the last checkpoint took 310 s"})
    text = "Checkpoints are slow: the last checkpoint took 310 s"
    assert findings(slow)[0] == {"kind": "warn", "text": text, "page": "checkpoints"}


@pytest.mark.parametrize(
    ("watermark", "kind"),
    [(NOW - 120_000, "warn"), (NOW - 1000, "good"), (-(1 << 63), "good"), ((1 << 63) - 1, "good"), (7, "warn")],
)
def test_late_event_time_is_a_finding_unless_there_is_none(watermark: int, kind: str) -> None:
    assert findings(archive(vertex("v", watermark=watermark)))[0]["kind"] == kind


def test_a_vertex_that_holds_event_time_back_is_a_finding_and_is_not_called_late_as_well() -> None:
    late = NOW - 120_000
    row = {"input": 1, "members": 2, "idle": 0, "ended": 0, "watermark": late, "ahead": NOW, "still_ms": 100_000}
    held_back = {EVENT_TIME: {"subtask": 0, "inputs": [{**row, "source": "source", "subtask": 1}]}}
    inputs = {"sums": ["source"]}
    job = archive(vertex("source", watermark=late), {**vertex("sums", watermark=late), **held_back}, inputs=inputs)
    assert named(job=job) == [("warn", "source")]
    assert findings(job)[0]["text"].startswith("sums waits for source, subtask 2/2: its watermark is")
    assert findings(job)[0]["subtask"] == 1


def test_event_time_is_late_where_that_begins_not_in_all_that_reads_from_there() -> None:
    late = NOW - 120_000
    job = archive(
        vertex("source", watermark=late), vertex("other", watermark=NOW - 1000), vertex("sums", watermark=late),
        inputs={"sums": ["source", "other"]},
    )  # fmt: skip
    assert named(job=job) == [("warn", "source")]
    assert "2 min behind, furthest in subtask 2/2" in findings(job)[0]["text"]


def test_stages_of_a_batch_job_that_wait_for_their_input_are_no_trouble() -> None:
    read = vertex("read", 4) | {"status": "FINISHED", "tasks": {"FINISHED": 4}, TASKS: 4}
    sums = vertex("sum", 4) | {"tasks": {"RUNNING": 1, "FINISHED": 2 + 1}, TASKS: 3}  # one of four had nothing to read
    write = vertex("write", 4) | {"status": "CREATED", "start-time": -1, "tasks": {"DEPLOYING": 4}}
    job = archive(read, sums, write) | {"job-type": "BATCH"}
    text = "1 of 3 stages are done; sum has 2 of 3 tasks done."
    assert findings(job) == [{"kind": "good", "text": text, "vertex": "sum"}]
    assert [tasks_done(read), tasks_done(sums)] == [(4, 4), (2, 3)]
    assert "do not run with all subtasks yet" in findings({**job, "job-type": "STREAMING"})[0]["text"]


def test_health_has_rates_of_sources_and_sinks_lag_and_the_worst_finding() -> None:
    job = archive(
        vertex("a", numRecordsInPerSecond=10.0, numRecordsOutPerSecond=9.0, pendingRecords=7.0, busy=950),
        vertex("b", numRecordsInPerSecond=5.0, numRecordsOutPerSecond=5.0, pendingRecords=1.0),
        vertex("c", numRecordsInPerSecond=14.0, numRecordsOutPerSecond=3.0),
        inputs={"c": ["a", "b"]},
        exceptions=[failure(40)],
        checkpoints={"latest": {"COMPLETED": {"ended": 99}}},
        **{RECENT_RESTARTS: 2},
    )
    assert health(job) == {
        "finding": findings(job)[0],
        "restarts-in-last-hour": 2, "last-failure": "LookupError: no price", "last-failure-timestamp": 40,
        "last-checkpoint-timestamp": 99, "pending-records": 8, "records-in-per-second": 15.0,
        "records-out-per-second": 3.0,
    }  # fmt: skip
    ended = health({**job, "state": "FINISHED", "end-time": NOW})
    assert ended.keys() == {"finding", "last-failure", "last-failure-timestamp"}, "the rest is over"


class _Clock:
    now_ms = 10_000_000

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def epoch_ms(self) -> int:
        return self.now_ms


def test_an_archive_counts_restarts_of_the_last_hour_and_records_that_sources_have_yet_to_read() -> None:
    operator = OperatorInfo("1" * 32, "op", None, "map")
    job = JobGraph("0" * 32, "j", (JobVertex("1" * 32, "v", 2, 128, "default", "a" * 64, (operator,)),), ())
    clock = _Clock()
    graph = ExecutionGraph(job, clock)
    graph.count_restart()
    clock.now_ms += 3_600_000
    graph.count_restart()
    for execution, pending in zip(graph.executions(), (5, 6), strict=True):
        for state in (ExecutionState.SCHEDULED, ExecutionState.DEPLOYING, ExecutionState.INITIALIZING):
            execution.machine.move(state, "test")
        execution.metrics = {"numRecordsIn": 1}
        execution.user_metrics = {f"Source: a.{PENDING}": pending, f"no{PENDING}": 100}
    shown = archive_of(graph)
    assert (shown[RECENT_RESTARTS], shown["restarts"]["numRestarts"]) == (1, 2)
    assert shown["vertices"][0][WORST][PENDING] == 11
