"""How long a snapshot may work in a step of its task."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from firesteel.runtime.checkpoints import task_checkpoints
from firesteel.runtime.checkpoints.task_checkpoints import CheckpointServices, TaskCheckpoints
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from tests.unit.runtime.support import INFO

SLICE = 0.002


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Large:
    """A snapshot that never ends; each slice takes two milliseconds."""

    checkpoint_id = 1
    sliced = whole = False
    upload = SimpleNamespace(room=True)

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.slices = 0

    def slice(self) -> None:
        self.slices += 1
        self.clock.now += SLICE


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(task_checkpoints, "_now", clock)
    return clock


def writing(snapshot: Large, token: CancelToken) -> TaskCheckpoints:
    nothing: Any = None
    checkpoints = TaskCheckpoints(
        INFO, [], [], CheckpointServices(), nothing, nothing, InterruptGuard(), token, lambda: None, None, nothing
    )  # fmt: skip
    checkpoints._running = snapshot  # type: ignore[assignment]
    return checkpoints


@pytest.mark.parametrize(
    ("records_took", "slices"), [(0.0, 1), (0.0004, 1), (0.0009, 2), (0.0014, 3), (0.002, 4), (60.0, 4)]
)
def test_a_snapshot_takes_a_multiple_of_the_time_of_the_records(clock: Clock, records_took: float, slices: int) -> None:
    snapshot = Large(clock)
    writing(snapshot, CancelToken()).write_out(records_took)
    assert snapshot.slices == slices


def test_a_snapshot_stops_when_the_task_is_cancelled(clock: Clock) -> None:
    snapshot, token = Large(clock), CancelToken()
    token.cancelled = True
    writing(snapshot, token).write_out(60.0)
    assert snapshot.slices == 1


def test_a_snapshot_stops_when_the_writing_thread_is_behind(clock: Clock) -> None:
    snapshot = Large(clock)
    snapshot.upload = SimpleNamespace(room=False)
    writing(snapshot, CancelToken()).write_out(60.0)
    assert snapshot.slices == 1
