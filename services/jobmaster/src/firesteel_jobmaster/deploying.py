"""Brings tasks into slots: placing, scheduling, submitting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from firesteel.graph.execution_graph import Execution, LogicalSlot
from firesteel.graph.execution_states import ExecutionState
from firesteel_jobmaster import failures, slices
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.deployments import deployment_of
from firesteel_jobmaster.job_state import SLOTS_TIMER, JobState
from firesteel_jobmaster.layout import SlotTasks
from firesteel_jobmaster.slices import LongWork, batches

USED_TIMEOUTS = 3
"""Heartbeat timeouts after which none of the job's tasks runs at a TaskManager where it has no slot any more: what was
to be freed is, or the TaskManager is lost to everybody."""


class Deploying:
    """Deploys regions that have all their slots: the first time all at once, later each region for itself."""

    def __init__(self, state: JobState) -> None:
        self._state = state
        self.has_begun = False
        """Whether this JobMaster has deployed tasks."""
        self.is_placing = False
        """Slots that are there may still get tasks, or the tasks in them may still be scheduled."""
        self._regions: set[int] = set()
        """Regions that may have all their slots now."""
        self._pass: object | None = None
        """The pass over slots and regions that is under way; None: none is."""
        self._looks_again = False
        """Slots have come, or regions have changed, since that pass chose what it deploys."""
        self._used: dict[str, float] = {}
        """TaskManagers at which tasks of this JobMaster may run -> when the job had a slot there last, as far as was
        looked."""
        self._noted: do.NoteAttempts | None = None

    def schedule(self, regions: Iterable[int] = ()) -> None:
        """Deploy the regions that have all their slots.

        Args:
            regions: that may have all their slots, beside those that get some now.
        """
        self._regions.update(regions)
        self._looks_again = True
        if self._pass is None:
            self._state.slices.run(self._deploy())

    def schedule_all(self) -> None:
        """Deploy the regions that have all their slots, whichever these are."""
        self.schedule(range(len(self._state.graph.regions)))

    def forget(self) -> None:
        """End the pass under way, and deploy nothing of it: the graph is laid out anew."""
        self._regions.clear()
        self._state.placements.forget()
        self._pass, self.is_placing = None, False

    def validate(self) -> None:
        """Check what must hold after every event (tests call it)."""
        assert self._pass is None or self._state.slices, "a pass is under way, and nobody goes on with it"
        assert self._pass is not None or not self.is_placing, "slots are to get tasks, and no pass is under way"

    def _may_begin(self) -> bool:
        """Whether there is something to deploy, and nothing that has to be known or done before."""
        state = self._state
        if not state.has_new_tasks or not (state.has_deployed or state.pool.is_full):
            return False
        return state.checkpoints.is_settled and not state.restarts.is_renewing

    def _deploy(self) -> LongWork:
        """One pass: place tasks in slots, schedule the regions that have all of theirs, and submit these.

        It begins anew while slots come or regions change in between, so that there is never a second one beside it.
        """
        state = self._state
        current = self._pass = object()
        while self._looks_again and self._may_begin():
            # Every slot gets tasks, whether their region is complete or not: other slots may follow in a moment.
            self.is_placing = True
            while self._place_some():
                yield
                if self._pass is not current:
                    return
            self._looks_again = False
            regions, self._regions = sorted(self._regions), set()
            ready = [number for number in regions if state.graph.is_ready(number) and number not in state.restarts]
            if ready:
                state.has_deployed = self.has_begun = True
            # All are SCHEDULED before the first is submitted: each slot is told where the peers of its tasks are.
            scheduled: dict[tuple[int, str], SlotTasks] = {}
            for number, batch in enumerate(batches(state.graph.in_regions(ready), slices.SCHEDULED_AT_ONCE)):
                if number:
                    yield
                    if self._pass is not current:
                        return
                for execution in batch:
                    self._schedule_task(execution, scheduled)
                    if self._pass is not current:  # the task has failed, and the job has begun anew by that
                        return
            self.is_placing = False
            # Where tasks are about to run is on record before they do: a JobMaster that follows waits for these.
            if scheduled:
                self._note(slot.taskmanager_id for slot, _ in scheduled.values())
            for slot, _ in scheduled.values():
                state.pool.use(slot.allocation_id)
            state.placements.forget()
            for _ in state.layout.submit([scheduled[key] for key in sorted(scheduled)]):
                yield
                if self._pass is not current:
                    return
            if not self._looks_again or not state.has_new_tasks:
                self._check_slots_timer()
        self._pass, self.is_placing = None, False

    def _place_some(self) -> bool:
        """Give slots to some tasks that have none; returns whether others may get one."""
        pool = self._state.pool
        placed, touched = self._state.graph.place(pool.unused(), slices.PLACED_AT_ONCE)
        for slot in placed:
            pool.use(slot.allocation_id)
        self._regions |= touched
        return len(placed) == slices.PLACED_AT_ONCE

    def _schedule_task(self, execution: Execution, scheduled: dict[tuple[int, str], SlotTasks]) -> None:
        """Schedule a task of a region that had all its slots when it was chosen; add it to those of its slot."""
        state = self._state
        if execution.state is not ExecutionState.CREATED:
            return  # it was cancelled, or has failed with its slot
        if not state.is_active or state.graph.region_of(execution) in state.restarts:
            return  # it is about to be cancelled
        shared = state.graph.shared_slot(execution)
        if shared.slot is None:  # given up for what else was in it
            lost = failures.slot_lost(f"of {execution.task_name}", "it was given up before", execution)
            execution.machine.move(ExecutionState.FAILED, lost.message)
            state.failover.fail(lost, execution=execution)
            return
        execution.machine.move(ExecutionState.SCHEDULED, "all slots are there")
        _, tasks = scheduled.setdefault((shared.number, shared.slot.allocation_id), (shared.slot, []))
        tasks.append(execution)

    def _check_slots_timer(self) -> None:
        if not self._state.layout.waits_for_slots:
            self._state.clear_timers(SLOTS_TIMER)

    def submit_to_slots(self, by_slot: Sequence[SlotTasks]) -> LongWork:
        """Submit SCHEDULED tasks to their slots, one deployment for each."""
        for number, batch in enumerate(batches(by_slot, slices.DEPLOYED_AT_ONCE)):
            if number:
                yield
            for slot_tasks in batch:
                self._submit(*slot_tasks)

    def _submit(self, slot: LogicalSlot, executions: Iterable[Execution]) -> None:
        state = self._state
        tasks = [e for e in executions if e.state is ExecutionState.SCHEDULED]
        if not tasks or not state.is_active or state.graph.region_of(tasks[0]) in state.restarts:
            return  # they have failed with their slot, or are about to be cancelled
        for execution in tasks:
            execution.machine.move(ExecutionState.DEPLOYING, "submitted to its slot")
        deployment = deployment_of(
            state.graph,
            slot.allocation_id,
            tasks,
            state.placements.at(slot.taskmanager_id),
            state.settings.for_slots,
            state.checkpoints.restore_of,
        )
        state.emit(do.SubmitSlot(slot.taskmanager_id, slot.allocation_id, deployment))

    def _note(self, taskmanagers: Iterable[str]) -> None:
        """Have it noted that tasks are about to run at these TaskManagers; they are submitted when that is done."""
        state, now = self._state, self._state.clock.monotonic()
        self._used.update(dict.fromkeys((*taskmanagers, *state.pool.taskmanagers()), now))
        oldest = now - USED_TIMEOUTS * state.settings.heartbeat_timeout
        self._used = {taskmanager: last_used for taskmanager, last_used in self._used.items() if last_used >= oldest}
        note = do.NoteAttempts(state.graph.next_attempt(), tuple(sorted(self._used)))
        if note != self._noted:
            self._noted = note
            state.emit(note)
