"""Slots whose process has to run in a Python environment of the job's own."""

from __future__ import annotations

from typing import Any

from firesteel.protocol.messages import RequestSlot
from firesteel.protocol.python_environment import PythonArchive, PythonEnvironment
from firesteel_taskmanager.core import TaskManagerCore
from firesteel_taskmanager.instructions import ForgetJob, ReportSlotFailed, RequestLaunchCancel, SlotFreed
from firesteel_taskmanager.slots import TaskSlotState
from tests.unit.taskmanager.cores import make

ENVIRONMENT = PythonEnvironment("a" * 64, None, (PythonArchive("b" * 64, "data", "zip"),), None)


def request_slot(core: TaskManagerCore, python: dict[str, Any]) -> None:
    core.request_slot(RequestSlot(0, "alloc", "job", "http://jm", "token", python), 0.0)


def test_the_id_is_that_of_the_dependencies() -> None:
    again = PythonEnvironment.from_plain(ENVIRONMENT.to_plain())
    assert again == ENVIRONMENT
    assert again.id == ENVIRONMENT.id
    assert PythonEnvironment("c" * 64).id != ENVIRONMENT.id
    assert not PythonEnvironment()
    assert PythonEnvironment.from_plain(PythonEnvironment().to_plain()) == PythonEnvironment()
    assert ENVIRONMENT.blobs() == ["a" * 64, "b" * 64]


def test_a_process_in_another_environment_is_sent_elsewhere() -> None:
    core = make()
    request_slot(core, ENVIRONMENT.to_plain())
    slot = core.needs_environment("alloc", "")
    assert slot is not None
    assert slot.job_id == "job"
    assert core.needs_environment("alloc", ENVIRONMENT.id) is None
    assert core.needs_environment("other", "") is None


def test_most_jobs_need_none() -> None:
    core = make()
    request_slot(core, {})
    assert core.needs_environment("alloc", "") is None


def test_a_slot_waits_for_its_environment_and_no_longer() -> None:
    core = make()
    request_slot(core, ENVIRONMENT.to_plain())
    core.environment_takes("alloc", 1000.0, 0.0)
    assert core.tick(999.0, 0) == []
    core.environment_takes("alloc", 0.0, 999.0)
    failed = core.tick(999.0 + 10_000, 0)
    assert any(isinstance(instruction, ReportSlotFailed) for instruction in failed)


def test_an_environment_that_can_not_be_made_fails_the_slot() -> None:
    core = make()
    request_slot(core, ENVIRONMENT.to_plain())
    out = core.environment_failed("alloc", "pip: no such package\nlast line", 1.0)
    assert [type(instruction) for instruction in out] == [ReportSlotFailed, RequestLaunchCancel, SlotFreed, ForgetJob]
    assert isinstance(out[0], ReportSlotFailed)
    assert out[0].cause == "pip: no such package\nlast line"
    assert out[0].in_vain
    (slot,) = list(core.slots)[:1]
    assert slot.state is TaskSlotState.FREE
    assert core.environment_failed("alloc", "again", 1.0) == []
    core.slots.validate()
