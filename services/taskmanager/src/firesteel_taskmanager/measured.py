"""What a TaskManager measures of the tasks in its slots, and of their user functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from firesteel.functions.metrics import OPERATOR_METRICS, OPERATORS, USER_METRICS
from firesteel.protocol.deployment import METRIC_TOTALS, POOL_USAGES, QUEUE_SIZES
from firesteel.service.measured import TASKMANAGER, Measured, numbers, summaries_of
from firesteel_taskmanager.slots import Task, TaskSlot

_TASK: Final = (*TASKMANAGER, "job", "task")
_OPERATOR: Final = (*_TASK, "operator")
_TIMES: Final = {name: f"accumulate{name[0].upper()}{name[1:]}" for name in METRIC_TOTALS if name.endswith("TimeMs")}
"""Totals of time -> Flink's names of them."""
_BUFFERS: Final = {
    name: tuple(group.split("."))
    for name, group in zip(
        (*POOL_USAGES, *QUEUE_SIZES), ("Shuffle.Netty.Input.Buffers", "Shuffle.Netty.Output.Buffers") * 2, strict=True
    )
}
"""Flink's groups; the names alone have an older group, ``buffers``, that boards still ask for."""
_GROWING: Final = frozenset(METRIC_TOTALS) - set(_TIMES)


def of_slots(slots: Iterable[TaskSlot], labels: Mapping[str, str]) -> list[Measured]:
    """Figures of all tasks that run."""
    measurements: list[Measured] = []
    for slot in slots:
        job = {**labels, "job_id": slot.job_id}
        for task in slot.tasks.values():
            if not task.is_final and task.metrics:
                measurements += _of_task(task, job)
    return measurements


def _of_task(task: Task, of_job: Mapping[str, str]) -> list[Measured]:
    descriptor = task.descriptor
    labels = {
        **of_job,
        "job_name": str(descriptor.get("job_name", "")),
        "task_id": str(descriptor.get("vertex_id", "")),
        "task_name": str(descriptor.get("vertex_name", "")),
        "task_attempt_id": task.execution_id,
        "task_attempt_num": str(descriptor.get("attempt", 0)),
        "subtask_index": str(descriptor.get("subtask", 0)),
    }
    task_values = {_TIMES.get(name, name): value for name, value in task.metrics.items() if "." not in name}
    measurements = numbers(_TASK, task_values, labels, _GROWING)
    for name, group in _BUFFERS.items():
        older, _, short = name.partition(".")
        value = {short: task.metrics.get(name)}
        measurements += [*numbers((*_TASK, older), value, labels), *numbers((*_TASK, *group), value, labels)]
    measurements += _of_operators(task.metrics.get(OPERATORS), task_values, labels)
    user = task.metrics.get(USER_METRICS)
    return measurements + _of_functions(user, labels) if isinstance(user, Mapping) else measurements


def _of_operators(values_by_operator: Any, task_values: Mapping[str, Any], labels: Mapping[str, str]) -> list[Measured]:
    """Figures of each operator of a chain; the first and the last operator also have the task's watermarks."""
    if not isinstance(values_by_operator, Mapping) or not values_by_operator:
        return []
    measured: list[Measured] = []
    names = list(values_by_operator)
    for name, values in values_by_operator.items():
        operator_values = dict(zip(OPERATOR_METRICS, values, strict=False))
        if name == names[0]:
            operator_values["currentInputWatermark"] = task_values.get("currentInputWatermark")
        if name == names[-1]:
            operator_values["currentOutputWatermark"] = task_values.get("currentOutputWatermark")
        measured += numbers(_OPERATOR, operator_values, {**labels, "operator_name": name}, _GROWING)
    return measured


def _of_functions(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[Measured]:
    """Metrics of user functions. Ids are ``<operator>.<group>.<name>``: the operator is a label, as in Flink."""
    summaries, used = summaries_of(values)
    measurements = [
        Measured(_scope(path), path[-1], count, _of_operator(path, labels), total, quantiles)
        for name, (count, total, quantiles) in summaries.items()
        if len(path := name.split(".")) > 1
    ]
    for name, value in values.items():
        path = name.split(".")
        if name not in used and len(path) > 1:
            measurements += numbers(_scope(path), {path[-1]: value}, _of_operator(path, labels))
    return measurements


def _scope(path: list[str]) -> tuple[str, ...]:
    return (*_OPERATOR, *path[1:-1])


def _of_operator(path: list[str], labels: Mapping[str, str]) -> dict[str, str]:
    return {**labels, "operator_name": path[0]}
