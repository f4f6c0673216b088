"""A ResourceManager's core for tests, and short ways to tell it what happens."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from firesteel.protocol.messages import RegisterTaskManager, SlotStatus
from firesteel_resourcemanager import instructions as i
from firesteel_resourcemanager.core import ResourceManagerCore
from firesteel_resourcemanager.settings import ResourceManagerSettings, WorkerSettings


def make(
    ready: bool = True,
    *,
    executors: frozenset[str] | None = None,
    active: bool = False,
    outlive: bool = False,
    workers: WorkerSettings | None = None,
    now: float = 0.0,
    **settings: Any,
) -> ResourceManagerCore:
    """A core whose fleet is ready, with allocations a0, a1, ... and workers w0, w1, ..."""
    allocations, names = itertools.count(), itertools.count()
    core_settings = replace(ResourceManagerSettings(), workers=workers or WorkerSettings(), **settings)
    core = ResourceManagerCore(
        core_settings,
        now,
        lambda: f"a{next(allocations)}",
        worker_ids=lambda: f"w{next(names)}",
        active=active,
        slots_outlive_driver=outlive,
    )
    assert core.start(now) == [i.StartFleet()]
    if ready:
        assert core.fleet_started(executors, now) == []
    return core


def add_taskmanager(
    core: ResourceManagerCore, slots: int, name: str = "tm", *report: SlotStatus, executor: str = "", now: float = 0.0
) -> list[i.Instruction]:
    message = RegisterTaskManager(name, f"http://{name}", slots, slot_report=report, executor_id=executor)
    out = core.register_taskmanager(message, now, 0)
    core.validate()
    return out


def add_job(
    core: ResourceManagerCore,
    name: str,
    slots: int,
    now: float = 0.0,
    epoch: int = 0,
    former: Collection[str] | None = None,
) -> list[i.Instruction]:
    """A job registers and says what it wants."""
    token = f"token-{name}{epoch or ''}"
    out = core.register_jobmaster(name, name, f"http://{name}", token, now, epoch=epoch, former_taskmanagers=former)
    out += core.declare_requirements(name, slots, now)
    core.validate()
    return out


def requests(out: list[i.Instruction]) -> list[i.SendRequestSlot]:
    """The slot requests among instructions."""
    return [x for x in out if isinstance(x, i.SendRequestSlot)]


def grant(core: ResourceManagerCore, out: list[i.Instruction], now: float = 0.0) -> list[str]:
    """Answers all requests; returns the allocations that were launched."""
    launched: list[str] = []
    for request in requests(out):
        for more in core.slot_granted(request.allocation_id, now):
            assert isinstance(more, i.LaunchSlot), more
            launched.append(more.allocation_id)
    core.validate()
    return launched


def free(core: ResourceManagerCore, allocation: str, now: float = 0.0) -> list[i.Instruction]:
    """The TaskManager says that a slot is free."""
    slot = core.table.find(allocation)
    assert slot is not None
    out = core.slot_available(slot.taskmanager_id, slot.index, allocation, now)
    core.validate()
    return out


def report(core: ResourceManagerCore, *statuses: SlotStatus, name: str = "tm", now: float = 0.0) -> list[i.Instruction]:
    """A TaskManager reports, as of now."""
    out = core.slot_report(name, statuses, core.table.revision, now, 0)
    core.validate()
    return out


def deeds(out: list[i.Instruction]) -> list[i.Instruction]:
    """All but what jobs hear of why they wait."""
    return [instruction for instruction in out if not isinstance(instruction, i.SendWaiting)]
