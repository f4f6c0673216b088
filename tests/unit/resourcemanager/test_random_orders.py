"""Jobs that compete for slots, with messages in any order: everyone is served, nobody shares, all comes back."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from firesteel.protocol.fleet import SlotOutcome
from firesteel.protocol.messages import SlotStatus
from firesteel_resourcemanager import instructions as i
from firesteel_resourcemanager.core import ResourceManagerCore
from firesteel_resourcemanager.settings import ResourceManagerSettings
from firesteel_resourcemanager.slot_table import SlotState


@dataclass
class World:
    """Fake TaskManagers, JobMasters and fleet; what is on its way lies in ``mail`` and arrives in the order drawn."""

    core: ResourceManagerCore
    draw: Any
    now: float = 0.0
    mail: list[Any] = field(default_factory=list)
    slots: dict[tuple[str, int], str] = field(default_factory=dict)
    """What the TaskManagers hold: (TaskManager, index) -> allocation."""
    jobs: dict[str, int] = field(default_factory=dict)
    """Jobs that have not ended: how many slots they need."""
    held: dict[str, set[str]] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    turned_away: list[str] = field(default_factory=list)
    bad_luck: int = 8
    """How many more things may go wrong: with a bound, since nothing resolves where nothing ever works."""

    def perform(self, out: list[i.Instruction]) -> None:
        self.core.table.validate()
        self.mail += out

    def goes_wrong(self) -> bool:
        if self.bad_luck and self.draw(st.integers(0, 5)) == 5:
            self.bad_luck -= 1
            return True
        return False

    def step(self) -> None:
        item = self.mail.pop(self.draw(st.integers(0, len(self.mail) - 1)))
        self.now += self.draw(st.sampled_from([0.0, 0.01, 0.5]))
        match item:
            case i.RequestSlot():
                where = (item.taskmanager_id, item.slot_index)
                if self.slots.get(where):
                    self.perform(self.core.slot_refused(item.allocation_id, "taken", self.now))
                elif self.goes_wrong():  # it arrives, but its answer does not
                    self.slots[where] = item.allocation_id
                    self.perform(self.core.slot_refused(item.allocation_id, "timeout", self.now))
                else:
                    self.slots[where] = item.allocation_id
                    self.perform(self.core.slot_granted(item.allocation_id, self.now))
            case i.LaunchSlot():
                if self.goes_wrong():
                    self.perform(self.core.launch_failed(item.allocation_id, "no", self.now))
                elif self.goes_wrong():
                    self.perform(self.core.slot_ended(item.allocation_id, SlotOutcome.LOST, "died", self.now))
                    self.mail.append(("later",))
                else:
                    slot = self.core.table.find(item.allocation_id)
                    if slot is not None and slot.state is SlotState.ALLOCATED and slot.job_id in self.jobs:
                        held = self.held.setdefault(slot.job_id, set())
                        held.add(item.allocation_id)
                        if len(held) == self.jobs[slot.job_id]:
                            self.mail.append(("end", slot.job_id))
            case i.FreeSlot():
                self.mail.append(("freed", item.allocation_id))
            case ("freed", allocation):
                for where, holds in list(self.slots.items()):
                    if holds == allocation:
                        self.slots[where] = ""
                        if not self.goes_wrong():
                            self.perform(self.core.slot_available(*where, allocation, self.now))
                        else:  # that message is lost
                            self.mail.append(("later",))
                self.mail.append(("later",))
            case i.FailSlot():
                for job, held in self.held.items():
                    if item.allocation_id in held:
                        held.discard(item.allocation_id)
                        self.mail = [x for x in self.mail if x != ("end", job)]
            case i.NotifyNoResources():
                self.turned_away.append(item.jobmaster_address)
            case ("end", job):
                self.done.append(job)
                self.jobs.pop(job)
                self.held.pop(job)
                self.perform(self.core.jobmaster_gone(job, "it ended", self.now, self.draw(st.booleans())))
            case ("later",):
                self.now += 2.0
                self.report()
                self.perform(self.core.tick(self.now))
            case i.CancelLaunch():
                pass
            case _:
                raise AssertionError(item)

    def report(self) -> None:
        """Reports of all TaskManagers, as of now."""
        for name in {tm for tm, _ in self.slots}:
            report = [
                SlotStatus(index, "ACTIVE" if holds else "FREE", holds or None, self.owner(holds), None)
                for (tm, index), holds in self.slots.items()
                if tm == name
            ]
            self.perform(self.core.slot_report(name, report, self.core.table.revision, self.now, 0))

    def owner(self, allocation: str) -> str | None:
        return self.owners.get(allocation)

    owners: dict[str, str] = field(default_factory=dict)


@given(data=st.data())
def test_jobs_that_compete_always_resolve(data: st.DataObject) -> None:
    numbers = itertools.count()
    core = ResourceManagerCore(ResourceManagerSettings(slot_request_timeout=20.0), 0.0, lambda: f"a{next(numbers)}")
    core.fleet_started(0.0)
    world = World(core, data.draw)
    original = world.perform

    def perform(out: list[i.Instruction]) -> None:
        for x in out:
            if isinstance(x, i.RequestSlot):
                world.owners[x.allocation_id] = x.job_id
        original(out)

    world.perform = perform  # type: ignore[method-assign]
    for tm in range(data.draw(st.integers(1, 3))):
        count = data.draw(st.integers(1, 3))
        world.slots |= {(f"tm{tm}", index): "" for index in range(count)}
        world.perform(core.register_taskmanager(f"tm{tm}", f"http://tm{tm}", count, {}, {}, 0.0, 0))
    total = core.table.total()
    sizes = data.draw(st.lists(st.integers(1, total), min_size=2, max_size=5))
    for number, size in enumerate(sizes):
        world.jobs[f"j{number}"] = size
        core.register_jobmaster(f"j{number}", "j", f"http://j{number}", "t", world.now)
        world.perform(core.declare_requirements(f"j{number}", size, world.now))
        for _ in range(data.draw(st.integers(0, 4))):
            if world.mail:
                world.step()
    for _ in range(5000):
        if not world.mail:
            if not world.jobs and not any(world.slots.values()) and len(core.table.free(world.now)) == total:
                break
            world.mail.append(("later",))
        world.step()
    assert sorted(world.done) == [f"j{n}" for n in range(len(sizes))]
    assert not any(world.slots.values())
    assert len(core.table.free(world.now)) == total
    assert not core.jobs
