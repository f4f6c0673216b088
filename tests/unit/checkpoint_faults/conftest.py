"""What jobs with faults need."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from firesteel.runtime.task import task as task_module
from tests.unit.checkpoint_faults.whole_job import OPEN


@pytest.fixture(autouse=True)
def _one_batch_for_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a subtask reads all its input in one step, and nothing can happen in between."""
    monkeypatch.setattr(task_module, "STEP_SECONDS", -1.0)


@pytest.fixture(autouse=True)
def _the_power_stays_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(autouse=True)
def _loops_end() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()
