"""What a TaskManager measures: scopes and labels of tasks and of user functions."""

from __future__ import annotations

from typing import Any

from firesteel.service.measured import Measured
from firesteel_taskmanager.measured import of_slots
from tests.unit.taskmanager.cores import CANCELLATION, deployment, make, register, request

TASK = {
    "execution_id": "v_0_2", "vertex_id": "v", "vertex_name": "Map -> Sink", "subtask": 0, "attempt": 2,
}  # fmt: skip
LABELS = {
    "tm_id": "tm", "job_id": "job", "job_name": "words", "task_id": "v", "task_name": "Map -> Sink",
    "task_attempt_id": "v_0_2", "task_attempt_num": "2", "subtask_index": "0",
}  # fmt: skip


def measured(metrics: dict[str, Any], state: str = "RUNNING") -> list[Measured]:
    core = make()
    core.request_slot(request(), 0.0)
    register(core)
    core.offer_answered(["a"], ["a"], 0.0)
    core.tasks.begin_deploy("job", "a", ["v_0_2"], CANCELLATION, 0.0)
    core.tasks.deploy("job", "a", {**deployment(), "tasks": [TASK], "job_name": "words"})
    core.tasks.metrics(1, {"tasks": {"v_0_2": metrics}})
    core.tasks.state(1, {"execution_id": "v_0_2", "state": state}, 0)
    return of_slots(core.slots, {"tm_id": "tm"})


def named(metrics: list[Measured]) -> dict[str, float]:
    return {".".join((*metric.scope, metric.name)): metric.value for metric in metrics}


def test_totals_rates_and_watermarks_have_the_labels_of_their_task() -> None:
    metrics = measured({"numRecordsIn": 7, "numRecordsInPerSecond": 0.5, "busyTimeMs": 12, "split.a.watermark": 3})
    of_task = [metric for metric in metrics if metric.scope == ("taskmanager", "job", "task")]
    assert named(of_task) == {
        "taskmanager.job.task.numRecordsIn": 7,
        "taskmanager.job.task.numRecordsInPerSecond": 0.5,
        "taskmanager.job.task.accumulateBusyTimeMs": 12,
    }
    assert all(metric.labels == LABELS for metric in of_task)
    assert [metric.name for metric in of_task if metric.grows] == ["numRecordsIn"]


def test_each_operator_of_a_chain_has_what_came_in_and_went_out() -> None:
    values = {
        "numRecordsIn": 7, "currentInputWatermark": 5, "currentOutputWatermark": 4, "numRecordsOut": 2,
        "operators": {"Map": [7, 6, 0.5, 0.4], "Filter": [6, 2, 0.4, 0.1], "Sink": [2, 0, 0.1, 0]},
    }  # fmt: skip
    metrics = [metric for metric in measured(values) if metric.scope[-1] == "operator"]
    assert {(metric.labels["operator_name"], metric.name): metric.value for metric in metrics} == {
        ("Map", "numRecordsIn"): 7, ("Map", "numRecordsOut"): 6, ("Map", "numRecordsInPerSecond"): 0.5,
        ("Map", "numRecordsOutPerSecond"): 0.4, ("Map", "currentInputWatermark"): 5,
        ("Filter", "numRecordsIn"): 6, ("Filter", "numRecordsOut"): 2, ("Filter", "numRecordsInPerSecond"): 0.4,
        ("Filter", "numRecordsOutPerSecond"): 0.1,
        ("Sink", "numRecordsIn"): 2, ("Sink", "numRecordsOut"): 0, ("Sink", "numRecordsInPerSecond"): 0.1,
        ("Sink", "numRecordsOutPerSecond"): 0, ("Sink", "currentOutputWatermark"): 4,
    }  # fmt: skip
    assert {metric.name for metric in metrics if metric.grows} == {"numRecordsIn", "numRecordsOut"}


def test_usage_of_buffers_has_the_scopes_of_old_and_of_new_boards() -> None:
    metrics = measured({"buffers.inPoolUsage": 0.5, "buffers.outputQueueSize": 300})
    assert named(metrics) == {
        "taskmanager.job.task.buffers.inPoolUsage": 0.5,
        "taskmanager.job.task.Shuffle.Netty.Input.Buffers.inPoolUsage": 0.5,
        "taskmanager.job.task.buffers.outputQueueSize": 300,
        "taskmanager.job.task.Shuffle.Netty.Output.Buffers.outputQueueSize": 300,
    }


def test_metrics_of_functions_have_their_operator_as_a_label() -> None:
    user = {
        "Map.calls": 3, "Map.table.hits": 4, "Map.text": "words", "Map.size_count": 2, "Map.size_sum": 5.0,
        "Map.size_min": 1.0, "Map.size_median": 2.5,
    }  # fmt: skip
    metrics = measured({"user": user})
    assert named(metrics) == {
        "taskmanager.job.task.operator.size": 2,
        "taskmanager.job.task.operator.calls": 3,
        "taskmanager.job.task.operator.table.hits": 4,
        "taskmanager.job.task.operator.size_min": 1.0,
    }
    assert all(metric.labels == {**LABELS, "operator_name": "Map"} for metric in metrics)
    (size,) = [metric for metric in metrics if metric.name == "size"]
    assert (size.total, size.quantiles) == (5.0, {0.5: 2.5})


def test_a_task_that_has_ended_is_not_shown() -> None:
    assert measured({"numRecordsIn": 7}, "FINISHED") == []
