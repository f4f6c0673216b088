"""REST answers made from archives: Flink's fields, whatever the state of the job."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from firesteel.core.clock import SystemClock
from firesteel.graph.execution_graph import ExecutionGraph
from firesteel.graph.job_archive import archive_of
from firesteel.graph.job_graph import JobEdge, JobGraph, JobVertex, OperatorInfo
from firesteel_dispatcher import views
from firesteel_dispatcher.routes import _json

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
    return archive_of(ExecutionGraph(graph(), SystemClock()))


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
        "tasks", "pending-operators",
    } == shown.keys()  # fmt: skip
    assert shown["tasks"]["total"] == shown["tasks"]["created"] == 3
    assert len(shown["tasks"]) == 11
    assert shown["last-modification"] >= shown["start-time"] > 0


def test_details_name_the_same_vertices_as_the_plan(archive: dict[str, Any]) -> None:
    shown = views.job_details(archive)
    assert [v["id"] for v in shown["vertices"]] == [n["id"] for n in shown["plan"]["nodes"]]
    assert {"jid", "state", "isStoppable", "job-type", "now", "timestamps", "status-counts"} <= shown.keys()
    assert shown["maxParallelism"] == -1
    assert shown["vertices"][0]["metrics"].keys() == IO
    assert "subtasks" not in shown["vertices"][0]
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


def test_settings_are_shown_without_secrets(archive: dict[str, Any]) -> None:
    shown = views.job_config(archive)["execution-config"]
    assert shown["job-parallelism"] == 2
    assert "hidden" not in json.dumps(shown)


def test_exceptions_are_newest_first_and_can_be_cut(archive: dict[str, Any]) -> None:
    archive |= {"exceptions": [failure("old", 1), failure("new", 2)], "failure": failure("old", 1)}
    shown = views.job_exceptions(archive, 1)
    (entry,) = shown["exceptionHistory"]["entries"]
    assert (entry["stacktrace"], entry["taskName"], shown["exceptionHistory"]["truncated"]) == (
        "Traceback: new", "v2 (2/2)", True,
    )  # fmt: skip
    assert shown["root-exception"] == "Traceback: old"
    assert views.job_exceptions({**archive, "exceptions": [], "failure": None}, 5)["exceptionHistory"]["entries"] == []


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
        assert result["failure-cause"] == {"class": "builtins.ValueError", "stack-trace": "Traceback: boom"}
        assert result["firesteel-failure"]["record"] == "7"


def test_tasks_are_counted_for_each_taskmanager(archive: dict[str, Any]) -> None:
    subtasks = archive["vertices"][1]["subtasks"]
    subtasks[0] |= {"status": "RUNNING", "taskmanager-id": "tm"}
    subtasks[1] |= {"status": "FINISHED", "taskmanager-id": "tm"}
    assert views.tasks_by_taskmanager([archive]) == {"tm": 1}


def test_numbers_that_json_does_not_have_become_text() -> None:
    value = {"a": [math.nan, 1.5], "b": math.inf, "c": -math.inf}
    assert json.loads(_json(value).text or "") == {"a": ["NaN", 1.5], "b": "Infinity", "c": "-Infinity"}
