"""REST answers about checkpoints have Flink's fields."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from firesteel.core.clock import SystemClock
from firesteel.core.errors import ConfigurationError
from firesteel.graph.execution_graph import ExecutionGraph
from firesteel.graph.job_archive import archive_of
from firesteel.graph.job_graph import JobGraph
from firesteel.rest import checkpoint_views as views
from firesteel.rest.endpoints import json_answer
from firesteel.rest.metric_views import plain
from firesteel.rest.views import UnknownVertexError, job_details, job_values

A, B = "a" * 32, "b" * 32
CONFIG: dict[str, Any] = {
    "interval": 10.0, "at_least_once": False, "unaligned": True, "aligned_timeout": 2.0,
    "timeout": 600.0, "min_pause": 0.5, "max_concurrent": 1,
    "tolerable_failures": 2, "retained": 1, "retention": "RETAIN_ON_CANCELLATION", "after_tasks_finish": True,
    "history": 10, "storage": "filesystem", "backend": "hashmap",
}  # fmt: skip


def record(number: int, status: str, acknowledged: dict[str, list[int]], **more: Any) -> dict[str, Any]:
    return {
        "id": number, "trigger": 1000, "status": status, "ended": 1500, "message": "", "location": "",
        "discarded": False,
        "tasks": {A: {"subtasks": 2, "acknowledged": acknowledged}, B: {"subtasks": 1, "acknowledged": {}}}, **more,
    }  # fmt: skip


DONE = record(
    1,
    "COMPLETED",
    {"0": [1100, 1, 2, 3, 4, 50, 40, 7, 8, 1], "1": [1300, 1, 2, 3, 4, 10, 10, 0, 0, 0]},
    location="/c/chk-1",
)
FAILED = record(2, "FAILED", {"0": [1200, 0, 0, 0, 0, 5, 5, 0, 0, 0]}, message="Checkpoint expired before completing.")
RUNNING = record(3, "IN_PROGRESS", {}, ended=0)


def archive(**more: Any) -> dict[str, Any]:
    checkpoints = {
        "counts": {"restored": 1, "total": 3, "in_progress": 1, "completed": 1, "failed": 1},
        "history": [RUNNING, FAILED, DONE],
        "latest": {"COMPLETED": DONE, "FAILED": FAILED},
        "restored": {"id": 1, "restore_timestamp": 5, "is_savepoint": False, "external_path": "/c/chk-1"},
        "metrics": {"numberOfCompletedCheckpoints": 1, "lastCheckpointDuration": 300},
        "triggers": {
            "1" * 32: {"status": "IN_PROGRESS"},
            "2" * 32: {"status": "COMPLETED", "checkpointId": 1},
            "3" * 32: {"status": "COMPLETED", "reason": "EXPIRED", "failure": "Checkpoint expired before completing."},
        },
        "config": CONFIG,
        **more,
    }
    vertices = [{"id": A, "parallelism": 2}, {"id": B, "parallelism": 1}]
    return {"jid": "f" * 32, "checkpoints": checkpoints, "vertices": vertices, "restarts": {"numRestarts": 4}}


def test_the_overview() -> None:
    answer = views.checkpoints(archive())
    assert answer["counts"]["completed"] == 1
    assert answer["summary"]["state_size"] == {
        "min": 60, "max": 60, "avg": 60, "p50": 60.0, "p90": 60.0, "p95": 60.0, "p99": 60.0, "p999": 60.0,
    }  # fmt: skip
    assert answer["summary"]["end_to_end_duration"]["max"] == 300
    assert [c["className"] for c in answer["history"]] == ["in_progress", "failed", "completed"]
    completed = answer["latest"]["completed"]
    assert completed == {
        "className": "completed", "id": 1, "status": "COMPLETED", "is_savepoint": False, "savepointFormat": None,
        "trigger_timestamp": 1000, "latest_ack_timestamp": 1300, "checkpointed_size": 50, "state_size": 60,
        "end_to_end_duration": 300, "alignment_buffered": 0, "processed_data": 7, "persisted_data": 8,
        "num_subtasks": 3,
        "num_acknowledged_subtasks": 2, "checkpoint_type": "CHECKPOINT", "tasks": {}, "external_path": "/c/chk-1",
        "discarded": False,
    }  # fmt: skip
    failed, restored = answer["latest"]["failed"], answer["latest"]["restored"]
    assert failed is not None
    assert restored is not None
    assert failed["failure_message"] == "Checkpoint expired before completing."
    assert failed["failure_timestamp"] == 1500
    assert failed["end_to_end_duration"] == 500, "until it failed, not until its last acknowledgement"
    assert answer["latest"]["savepoint"] is None
    assert restored["restore_timestamp"] == 5
    empty = views.checkpoints(archive(history=[], latest={}, restored=None))
    assert empty["summary"]["state_size"]["p99"] == "NaN"
    assert empty["latest"] == {"completed": None, "savepoint": None, "failed": None, "restored": None}
    json.loads(json_answer(answer).text or "")


def test_the_settings() -> None:
    assert views.checkpoint_config(archive()) == {
        "mode": "exactly_once", "interval": 10_000, "timeout": 600_000, "min_pause": 500, "max_concurrent": 1,
        "externalization": {"enabled": True, "delete_on_cancellation": False}, "state_backend": "hashmap",
        "checkpoint_storage": "filesystem", "unaligned_checkpoints": True, "tolerable_failed_checkpoints": 2,
        "aligned_checkpoint_timeout": 2000, "checkpoints_after_tasks_finish": True, "state_changelog_enabled": False,
        "changelog_periodic_materialization_interval": 0, "changelog_storage": "",
    }  # fmt: skip


def test_the_settings_are_those_that_the_jobmaster_says() -> None:
    from firesteel_jobmaster.checkpoints.settings import CheckpointSettings

    assert CheckpointSettings().to_plain().keys() == CONFIG.keys() <= asdict(CheckpointSettings()).keys()


def test_one_checkpoint_and_one_vertex() -> None:
    details = views.checkpoint_details(archive(), {"checkpoint_id": "1"})
    assert details["tasks"][A]["status"] == "COMPLETED"
    assert details["tasks"][A]["num_acknowledged_subtasks"] == 2
    assert details["tasks"][B]["latest_ack_timestamp"] == -1
    answer = views.checkpoint_subtasks(archive(), {"checkpoint_id": "2", "vertex_id": A})
    assert answer["status"] == "FAILED"
    assert answer["summary"]["checkpoint_duration"]["sync"]["max"] == 0
    assert answer["subtasks"][1] == {"className": "pending_or_failed", "index": 1, "status": "pending_or_failed"}
    assert views.checkpoint_subtasks(archive(), {"checkpoint_id": "1", "vertex_id": A})["subtasks"][0] == {
        "className": "completed", "index": 0, "status": "completed", "ack_timestamp": 1100, "end_to_end_duration": 100,
        "checkpointed_size": 40, "state_size": 50, "checkpoint": {"sync": 3, "async": 4},
        "alignment": {"buffered": 0, "processed": 7, "persisted": 8, "duration": 2}, "start_delay": 1,
        "unaligned_checkpoint": True, "aborted": False,
    }  # fmt: skip


def test_what_became_of_a_checkpoint_by_hand() -> None:
    def status(digit: str) -> Any:
        return views.trigger_status(archive(), {"trigger_id": digit * 32})

    assert status("1") == {"status": {"id": "IN_PROGRESS"}, "operation": None}
    assert status("2") == {"status": {"id": "COMPLETED"}, "operation": {"checkpointId": 1, "failureCause": None}}
    cause = status("3")["operation"]["failure-cause"]
    assert cause["stack-trace"].endswith("Checkpoint expired before completing.")


def test_what_there_is_not() -> None:
    with pytest.raises(views.NoCheckpointsError, match="Checkpointing has not been enabled"):
        views.checkpoints({"checkpoints": None})
    for unread in ({}, {"checkpoints": {**archive()["checkpoints"], "unread": True}}):  # no JobMaster has looked
        with pytest.raises(views.NoCheckpointsError, match="are not known"):
            views.checkpoints(unread)
    with pytest.raises(views.NoCheckpointsError, match="checkpoint 9"):
        views.checkpoint_details(archive(), {"checkpoint_id": "9"})
    with pytest.raises(ConfigurationError, match=r"\(checkpointid\) from value 'x'"):
        views.checkpoint_details(archive(), {"checkpoint_id": "x"})
    with pytest.raises(UnknownVertexError):
        views.checkpoint_subtasks(archive(), {"checkpoint_id": "1", "vertex_id": "c" * 32})
    with pytest.raises(views.NoCheckpointsError, match="trigger id"):
        views.trigger_status(archive(), {"trigger_id": "9" * 32})


def test_metrics_of_a_job() -> None:
    assert plain(job_values(archive()), {"get": "numRestarts,lastCheckpointDuration,unknown"}) == [
        {"id": "numRestarts", "value": "4"},
        {"id": "lastCheckpointDuration", "value": "300"},
    ]


def test_slow_checkpoints_are_told_with_the_job() -> None:
    job = archive_of(ExecutionGraph(JobGraph("1" * 32, "words", (), ()), SystemClock()))
    warned = {**job, "checkpoints": {"warning": "the last checkpoint took 310 s"}}
    assert job_details(warned)["firesteel-checkpoint-warning"] == "the last checkpoint took 310 s"
    assert "firesteel-checkpoint-warning" not in job_details({**job, "checkpoints": None})


def test_what_is_wrong_with_the_pace_is_told_with_the_checkpoints() -> None:
    assert views.checkpoints(archive(warning="the last checkpoint took 310 s"))["warning"] == (
        "the last checkpoint took 310 s"
    )
    assert views.checkpoints(archive(warning=""))["warning"] is None
