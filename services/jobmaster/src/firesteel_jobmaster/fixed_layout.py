"""The usual layout: as many subtasks as the program says, each region deployed when it has all its slots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from typing_extensions import override

from firesteel.graph.execution_graph import Execution, SharedSlot
from firesteel.protocol import messages as m
from firesteel_jobmaster.layout import JobLayout, SlotTasks
from firesteel_jobmaster.parts import JobParts


class FixedLayout(JobLayout):
    """A job waits until it has all its slots; a failure restarts the regions that it touches."""

    def __init__(self, parts: JobParts) -> None:
        self.job, self.state = parts, parts.state

    # -- slots

    @property
    @override
    def waits_for_slots(self) -> bool:
        state = self.state
        return state.has_new_tasks and not (state.pool.is_full and self.job.deploying.is_placing)

    @property
    @override
    def slots_timeout(self) -> float | None:
        return self.state.settings.slot_request_timeout

    @override
    def slots_needed(self) -> int:
        return sum(map(self._needs_slot, self.state.graph.shared_slots))

    def _needs_slot(self, shared: SharedSlot) -> bool:
        if shared.slot is not None:
            return True
        runs_again, region_of = self.state.restarts.runs_again, self.state.graph.region_of
        return any(not e.state.is_terminal or runs_again(region_of(e)) for e in shared.executions)

    @override
    def slots_declared(self) -> tuple[int, int]:
        return self.state.pool.needed, 0

    @override
    def no_resources(self, message: m.NotifyNoResources) -> None:
        self.job.slots.too_few(message)

    # -- from its start to its end

    @override
    def prepare(self) -> bool:
        return self.job.sources.prepare()

    @override
    def settled(self) -> None:
        if not self.state.is_active:
            return
        # A job that was restarted before this was known has new attempts; one that has not begun has its sources begin.
        had_new_attempts = self.job.failover.start_new_attempts()
        if had_new_attempts or self.job.deploying.has_begun or self.job.sources.begin():
            self.job.deploying.schedule_all()

    @override
    def schedule(self, regions: Iterable[int] = ()) -> None:
        self.job.deploying.schedule(regions)

    @override
    def submit(self, by_slot: Sequence[SlotTasks]) -> Iterable[None]:
        return self.job.deploying.submit_to_slots(by_slot)

    @override
    def cancel(self, executions: Iterable[Execution], cause: str) -> None:
        self.job.ending.cancel_in_slots(executions, cause)

    @override
    def restart(self, ended: Execution | None) -> None:
        self.job.failover.restart_ended(ended)
