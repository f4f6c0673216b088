"""Cores of TaskManagers for tests, and what they said."""

from __future__ import annotations

from typing import Any

from firesteel.core.process import ProcessId
from firesteel.protocol.messages import RequestSlot
from firesteel.protocol.slot_channel import PROTOCOL_VERSION
from firesteel_taskmanager import instructions as i
from firesteel_taskmanager.core import TaskManagerCore
from firesteel_taskmanager.executors import FixedExecutor
from firesteel_taskmanager.settings import Cancellation, TaskManagerSettings

SETTINGS = TaskManagerSettings()
CANCELLATION = Cancellation(interval=1.0, timeout=5.0)
REF = i.JobMasterRef("job", "http://jm", "token")


def request(index: int = 0, allocation: str = "a", job: str = "job") -> RequestSlot:
    return RequestSlot(index, allocation, job, "http://jm", "token")


def registration(allocation: str = "a", pid: int = 100, **changes: Any) -> dict[str, Any]:
    return {
        "type": "register", "version": PROTOCOL_VERSION, "allocation_id": allocation, "pid": pid, "spark_attempt": 0,
        "executor_id": "driver", "data_address": {"unix": f"/{pid}"}, **changes,
    }  # fmt: skip


def make(slots: int = 2) -> TaskManagerCore:
    return TaskManagerCore("tm", slots, FixedExecutor("driver"), SETTINGS)


def register(core: TaskManagerCore, channel: int = 1, allocation: str = "a", pid: int = 100) -> list[i.Instruction]:
    out = core.register(channel, registration(allocation, pid), ProcessId(pid, 5), 0.0)
    core.slots.validate()
    return out


def running(*executions: str, slots: int = 2) -> TaskManagerCore:
    """A core with one active slot (allocation a, channel 1) that runs these."""
    core = make(slots)
    core.request_slot(request(), 0.0)
    register(core)
    core.offer_answered(["a"], ["a"], 0.0)
    deploy(core, *executions)
    core.slots.validate()
    return core


def deployment(*executions: str) -> dict[str, Any]:
    return {"tasks": [{"execution_id": e} for e in executions], "blobs": {}}


def deploy(core: TaskManagerCore, *executions: str, job: str = "job", allocation: str = "a") -> list[i.Instruction]:
    core.tasks.begin_deploy(job, allocation, executions, CANCELLATION, 0.0)
    return core.tasks.deploy(job, allocation, deployment(*executions))


def sent(out: list[i.Instruction]) -> list[str]:
    return [x.message["type"] for x in out if isinstance(x, i.Send)]


def states(out: list[i.Instruction]) -> dict[str, str]:
    return {x.update.execution_id: x.update.state for x in out if isinstance(x, i.ReportTaskState)}


def only(out: list[i.Instruction], kind: type[Any]) -> Any:
    (instruction,) = [x for x in out if isinstance(x, kind)]
    return instruction
