"""REST answers made from archives: Flink's fields, whatever the state of the job."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from firesteel.config import Settings
from firesteel.config.options import OPTIONS
from firesteel.core.clock import SystemClock
from firesteel.graph.execution_graph import ExecutionGraph
from firesteel.graph.job_archive import REACTIVE, TASKMANAGERS, archive_of
from firesteel.graph.job_graph import JobEdge, JobGraph, JobVertex, OperatorInfo
from firesteel.rest import checkpoint_types as c
from firesteel.rest import views
from firesteel.rest.endpoints import json_answer
from firesteel.rest.job_settings import client_timeout
from firesteel.rest.metric_views import plain
from firesteel.rest.picking import fields_of, picked
from firesteel_dispatcher.archives import submitted_archive
from firesteel_dispatcher.taskmanager_views import taskmanager_details, taskmanager_row, tasks_by_taskmanager
from tests.archives import with_rows

SHA = "a" * 64
IO = {
    "read-bytes", "read-bytes-complete", "write-bytes", "write-bytes-complete", "read-records", "read-records-complete",
    "write-records", "write-records-complete", "accumulated-backpressured-time", "accumulated-idle-time",
    "accumulated-busy-time",
}  # fmt: skip


def graph() -> JobGraph:
    def vertex(number: int, parallelism: int) -> JobVertex:
        name = str(number) * 32
        return JobVertex(name, f"v{number}", parallelism, 128, "default", SHA, (OperatorInfo(name, "op", None, "map"),))

    return JobGraph(
        "0" * 32, "words", (vertex(1, 1), vertex(2, 2)), (JobEdge(0, "1" * 32, "2" * 32, "1" * 32, 0, "HASH"),),
        config={"parallelism.default": "2", "s3.secret-key": "hidden"}, blobs={SHA: 5},
    )  # fmt: skip


@pytest.fixture
def archive() -> dict[str, Any]:
    return with_rows(archive_of(ExecutionGraph(graph(), SystemClock())))


def failure(message: str = "boom", at: int = 50) -> dict[str, Any]:
    return {
        "kind": "user", "error_class": "builtins.ValueError", "message": message, "traceback": f"Traceback: {message}",
        "operator": "op", "vertex_name": "v2", "subtask": 1, "attempt": 0, "record": "7", "pickled": None,
        "timestamp": at, "taskName": "v2 (2/2)", "endpoint": "h:1", "taskManagerId": "tm",
    }  # fmt: skip


def test_the_overview_has_every_field_that_clients_insist_on(archive: dict[str, Any]) -> None:
    shown = views.job_overview(archive)
    assert {
        "jid", "name", "jobType", "schedulerType", "start-time", "end-time", "duration", "state", "last-modification",
        "tasks", "pending-operators", "firesteel-health",
    } == shown.keys()  # fmt: skip
    assert shown["tasks"]["total"] == shown["tasks"]["created"] == 3
    assert len(shown["tasks"]) == 11
    assert shown["last-modification"] >= shown["start-time"] > 0


def test_a_job_in_reactive_mode_has_the_adaptive_scheduler(archive: dict[str, Any]) -> None:
    reactive = {**archive, REACTIVE: {"limits": {}, "rescales": {}, "config": {}}}
    for view in (views.job_overview, views.job_details):
        assert (view(archive)["schedulerType"], view(reactive)["schedulerType"]) == ("Default", "Adaptive")
    assert REACTIVE not in views.job_details(reactive), "its rescales have paths of their own"


def test_details_name_the_same_vertices_as_the_plan(archive: dict[str, Any]) -> None:
    shown = views.job_details(archive)
    assert [v["id"] for v in shown["vertices"]] == [n["id"] for n in shown["plan"]["nodes"]]
    assert {"jid", "state", "isStoppable", "job-type", "now", "timestamps", "status-counts"} <= shown.keys()
    assert shown["maxParallelism"] == -1
    assert shown["vertices"][0]["metrics"].keys() == IO
    assert "subtasks" not in shown["vertices"][0]
    more = {"checkpoints": {}, "checkpoint-clean-up": "x"}
    assert views.job_details({**archive, **more}).keys() == shown.keys(), (
        "they have paths of their own, or are nobody's"
    )
    assert {"restarts", "exceptions-dropped"} <= archive.keys()
    assert (
        not {
            "restarts",
            "exceptions-dropped",
        }
        & shown.keys()
    )
    assert len(shown["timestamps"]) == 11
    assert len(shown["status-counts"]) == 10


def test_a_vertex_shows_its_subtasks(archive: dict[str, Any]) -> None:
    shown = views.vertex_details(archive, "2" * 32)
    assert (shown["name"], shown["parallelism"], [s["subtask"] for s in shown["subtasks"]]) == ("v2", 2, [0, 1])
    assert shown["subtasks"][0]["metrics"].keys() == IO
    times = views.subtask_times(archive, "2" * 32)
    assert times["subtasks"][1].keys() == {"subtask", "endpoint", "duration", "timestamps"}
    (group,) = views.vertex_taskmanagers(archive, "2" * 32)["taskmanagers"]
    assert group["status-counts"]["CREATED"] == 2
    with pytest.raises(views.UnknownVertexError, match="no vertex"):
        views.vertex_details(archive, "3" * 32)


def test_the_configuration_shows_what_holds_and_where_it_comes_from() -> None:
    cluster = Settings(
        {"heartbeat.interval": "7 s", "parallelism.default": "9", "s3.secret-key": "deep"}, "config.yaml"
    )
    job = replace(
        graph(),
        config={
            **graph().config,
            "heartbeat.interval": "1 s",
            "high-availability.type": "NONE",
            "firesteel.driver.orphan-timeout": "1 s",
            "pipeline.object-reuse": "true",
            "execution.checkpointing.interval": "1 s",
        },
        config_layers={"parallelism.default": "command line"},
    )
    shown = views.job_config(submitted_archive(job, cluster, 5))
    execution = shown["execution-config"]
    assert (execution["job-parallelism"], execution["object-reuse-mode"]) == (2, True)
    assert execution["user-config"]["parallelism.default"] == "2"
    assert execution["restart-strategy"] == "exponential-delay", "as a job with checkpoints has it"
    of_cluster = replace(job, config={"high-availability.type": "NONE", "firesteel.driver.orphan-timeout": "1 s"})
    plain = views.job_config(submitted_archive(of_cluster, cluster, 5))["execution-config"]
    assert (plain["restart-strategy"], set(plain["user-config"])) == ("none", set(cluster.to_shown()))
    rows = {row["key"]: (row["value"], row["origin"]) for row in shown["firesteel-config"]}
    assert rows["parallelism.default"] == ("2", "command line")
    assert rows["pipeline.object-reuse"] == ("true", "program")
    assert rows["heartbeat.interval"] == ("7 s", "cluster: config.yaml"), "a job does not change the cluster's"
    assert rows["heartbeat.timeout"] == ("50 s", "default")
    assert rows.keys() >= {key for key, option in OPTIONS.items() if option.default is not None}
    text = json.dumps(shown)
    assert "hidden" not in text
    assert "deep" not in text
    assert [v["parallelism"] for v in shown["firesteel-vertices"]] == [1, 2]


@pytest.mark.parametrize(
    ("config", "seconds"),
    [
        ({}, None),
        ({"client.heartbeat.timeout": "5 s"}, None),
        ({"execution.shutdown-on-attached-exit": "true"}, 180.0),
        ({"execution.shutdown-on-attached-exit": "true", "client.heartbeat.timeout": "5 s"}, 5.0),
        ({"execution.shutdown-on-attached-exit": "true", "execution.attached": "false"}, None),
    ],
)
def test_only_jobs_whose_client_asked_for_it_end_with_it(config: dict[str, str], seconds: float | None) -> None:
    assert client_timeout(replace(graph(), config=config)) == seconds


def test_exceptions_are_newest_first_and_can_be_cut(archive: dict[str, Any]) -> None:
    archive |= {"exceptions": [failure("old", 1), failure("new", 2)], "failure": failure("old", 1)}
    shown = views.job_exceptions(archive, 1)
    (entry,) = shown["exceptionHistory"]["entries"]
    assert (entry["stacktrace"], entry["taskName"], shown["exceptionHistory"]["truncated"]) == (
        "Traceback: new\nThe record at hand: 7\n", "v2 (2/2)", True,
    )  # fmt: skip
    assert shown["root-exception"].startswith("Traceback: old")
    assert views.job_exceptions({**archive, "exceptions": [], "failure": None}, 5)["exceptionHistory"]["entries"] == []


def test_exceptions_come_with_those_of_the_same_moment(archive: dict[str, Any]) -> None:
    together = failure("reason", 1) | {"concurrent": [failure("consequence", 2) | {"kind": "external"}]}
    archive |= {"exceptions": [together], "exceptions-dropped": True, "failure": None}
    (entry,) = views.job_exceptions(archive, 5)["exceptionHistory"]["entries"]
    (other,) = entry["concurrentExceptions"]
    assert entry["stacktrace"].startswith("Traceback: reason")
    assert (other["stacktrace"][:22], other["failureLabels"]) == ("Traceback: consequence", {"kind": "external"})
    assert views.job_exceptions(archive, 5)["exceptionHistory"]["truncated"], "older ones were dropped"
    assert views.job_exceptions(archive, 5, {"kind": "no such"})["exceptionHistory"]["entries"] == []


def test_attempts_of_a_subtask(archive: dict[str, Any]) -> None:
    vertex = archive["vertices"][1]
    old = vertex["subtasks"][0]
    vertex["subtasks"][0] = {**old, "attempt": 1, "status": "RUNNING", "attempts": [{**old, "status": "FAILED"}]}
    now, before = (views.subtask_attempt(archive, vertex["id"], 0, attempt) for attempt in (None, 0))
    assert (now["attempt"], now["status"]) == (1, "RUNNING")
    assert (before["attempt"], before["status"]) == (0, "FAILED")
    assert "attempts" not in now
    assert "attempts" not in views.vertex_details(archive, vertex["id"])["subtasks"][0]
    for wrong in ((9, None), (0, 7)):
        with pytest.raises(views.UnknownVertexError):
            views.subtask_attempt(archive, vertex["id"], *wrong)


def test_metrics_of_restarts(archive: dict[str, Any]) -> None:
    archive["restarts"] = {"numRestarts": 2, "fullRestarts": 2}
    assert plain(views.job_values(archive), {"get": "numRestarts,unknown"}) == [{"id": "numRestarts", "value": "2"}]
    assert [row["id"] for row in plain(views.job_values(archive), {})] == ["numRestarts", "fullRestarts"]


@pytest.mark.parametrize(
    ("state", "status"), [("FINISHED", "SUCCEEDED"), ("CANCELED", "CANCELED"), ("FAILED", "FAILED")]
)
def test_the_result_says_how_the_job_ended(archive: dict[str, Any], state: str, status: str) -> None:
    archive |= {"state": state, "failure": failure()}
    answer = views.execution_result(archive)
    result = answer["job-execution-result"]
    assert answer["status"] == {"id": "COMPLETED"}
    assert result["application-status"] == status
    assert ("failure-cause" in result) == (state == "FAILED")
    if state == "FAILED":
        assert result["failure-cause"] == {
            "class": "builtins.ValueError",
            "stack-trace": "Traceback: boom\nThe record at hand: 7\n",
        }
        assert result["firesteel-failure"]["record"] == "7"


def test_a_taskmanager_shows_what_it_runs(archive: dict[str, Any]) -> None:
    archive[TASKMANAGERS] = {"tm": 1}
    tasks = tasks_by_taskmanager([archive, {**archive, "jid": "other"}])
    assert tasks == {("tm", "0" * 32): 1, ("tm", "other"): 1}
    taskmanager = {
        "id": "tm", "hardware": {"cpuCores": 4}, "memoryConfiguration": {"taskHeap": 7},
        "allocatedSlots": [{"jobId": "other"}, {"jobId": "0" * 32, "resource": {"cpuCores": 1.0}}],
    }  # fmt: skip
    row = taskmanager_row(taskmanager, tasks)
    assert (row["assignedTasks"], row["hardware"]["cpuCores"], row["memoryConfiguration"]["taskHeap"]) == (2, 4, 7)
    assert {"totalResource", "freeResource", "dataPort", "path", "timeSinceLastHeartbeat"} <= row.keys()
    assert "allocatedSlots" not in row
    details = taskmanager_details(taskmanager, tasks)
    assert [slot["assignedTasks"] for slot in details["allocatedSlots"]] == [1, 1]
    assert details["allocatedSlots"][1]["resource"]["cpuCores"] == 1.0
    assert details["metrics"]["heapUsed"] == -1
    assert details["metrics"]["garbageCollectors"] == []


def test_tasks_of_a_job_are_spread_over_its_slots(archive: dict[str, Any]) -> None:
    taskmanager = {"id": "tm", "allocatedSlots": [{"jobId": "j"}, {"jobId": "j"}]}
    details = taskmanager_details(taskmanager, {("tm", "j"): 5})
    assert [slot["assignedTasks"] for slot in details["allocatedSlots"]] == [3, 2]


def test_a_slot_shows_what_its_process_uses() -> None:
    slots = [{"jobId": "j", "allocationId": "a"}, {"jobId": "j", "allocationId": "b"}]
    uses = {"b": {"firesteel-slot": 3, "firesteel-memory": 7 << 20, "firesteel-cpu": 0.5}}
    shown = taskmanager_details({"id": "tm", "allocatedSlots": slots}, {}, {}, uses)["allocatedSlots"]
    assert [(slot.get("firesteel-memory"), slot.get("firesteel-cpu")) for slot in shown] == [
        (None, None),
        (7 << 20, 0.5),
    ]


def test_numbers_that_json_does_not_have_become_text() -> None:
    value = {"a": [math.nan, 1.5], "b": math.inf, "c": -math.inf}
    assert json.loads(json_answer(value).text or "") == {"a": ["NaN", 1.5], "b": "Infinity", "c": "-Infinity"}


def test_what_is_picked_has_the_fields_of_its_type() -> None:
    checkpoint = dict.fromkeys(name for name, required in fields_of(c.Checkpoint) if required)
    assert {"num_subtasks", "className"} <= checkpoint.keys(), "also those of the type that it extends"
    assert not {"external_path", "failure_message"} & checkpoint.keys()
    assert picked(c.Checkpoint, {**checkpoint, "trigger": 5}) == checkpoint
    failed = {**checkpoint, "failure_message": "expired"}
    assert picked(c.Checkpoint, failed) == failed
    with pytest.raises(KeyError, match="className"):
        picked(c.Checkpoint, {name: value for name, value in checkpoint.items() if name != "className"})


def test_a_job_that_was_restarted_says_how_often_and_why_last(archive: dict[str, Any]) -> None:
    assert "firesteel-restarts" not in views.job_details({**archive, "restarts": {"numRestarts": 0}})
    failures = [
        {"error_class": "builtins.LookupError", "message": "no price\nfor c4", "timestamp": 5},
        {"error_class": "OSError", "message": "", "timestamp": 4},
    ]
    shown = views.job_details({**archive, "restarts": {"numRestarts": 2}, "exceptions": failures})
    assert (shown["firesteel-restarts"], shown["firesteel-last-failure"]) == (2, "LookupError: no price")
