"""What the tasks of bounded stages are told about themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest
from pyspark import TaskContext

from firesteel.spark.stage_jobs import StageFunction


def attempt_of(
    task: Mapping[str, Any], blobs: Mapping[str, bytes], subtask: int, attempt: int, elements: Iterator[bytes]
) -> Iterator[bytes]:
    """A task that answers with its number and attempt."""
    yield f"{subtask}:{attempt}".encode()


@pytest.mark.parametrize(
    ("earlier_runs", "retries", "attempt"), [(None, 0, 0), (0, 0, 0), (0, 2, 2), (1, 0, 1), (1, 2, 3)]
)
def test_attempts_of_a_task_count_its_own_repetitions_not_the_tasks_of_other_jobs(
    monkeypatch: pytest.MonkeyPatch, earlier_runs: int | None, retries: int, attempt: int
) -> None:
    context = SimpleNamespace(attemptNumber=lambda: retries, taskAttemptId=lambda: 15)
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    task = {} if earlier_runs is None else {"attempt": earlier_runs}
    function = StageFunction(cloudpickle.dumps(attempt_of), json.dumps(task), {})
    assert list(function(4, iter(()))) == [f"4:{attempt}".encode()]
