"""The slots of a job: asked for, used, lost, replaced, given back; and what is deployed into them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from firesteel.common.job_status import JobStatus
from firesteel.core.clock import Clock
from firesteel.core.ids import AllocationId
from firesteel.graph.execution_graph import Execution, SharedSlot, Slot
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol import messages as m
from firesteel.protocol.deployment import TaskFailure
from firesteel_jobmaster import failures
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.deployments import deployment_of
from firesteel_jobmaster.life_cycle import IDLE_TIMER, SLOTS_TIMER, JobLifeCycle
from firesteel_jobmaster.settings import JobMasterSettings

logger = logging.getLogger(__name__)
USED_TIMEOUTS = 3
"""So many heartbeat timeouts after the job had its last slot at a TaskManager, none of its tasks runs there: what was
to be freed is, or the TaskManager is lost to everybody."""
TIMER_SLACK = 0.01
"""Seconds by which a timer may be early."""


class JobScheduling(JobLifeCycle):
    """The part of the JobMaster's core that deals with slots.

    Args:
        job_graph: validated.
        settings: of this job.
        clock: stamps states.
        takeover, first_attempt: see ``JobLifeCycle``.
    """

    def __init__(
        self,
        job_graph: JobGraph,
        settings: JobMasterSettings,
        clock: Clock,
        takeover: tuple[int, str] = (0, ""),
        first_attempt: int = 0,
    ) -> None:
        super().__init__(job_graph, settings, clock, takeover, first_attempt)
        self._deployed, self._connected = takeover[0] > 0 or first_attempt > 0, False
        """``_deployed``: at least once, perhaps by a JobMaster before this one."""
        self._has_begun = False
        """This one has deployed something."""
        self._used: dict[str, float] = {}
        """TaskManagers at which tasks of this JobMaster may run -> when the job had a slot there last, as far as was
        looked."""
        self._noted: do.NoteAttempts | None = None
        self._submitted: set[str] = set()
        self._watched: set[str] = set()

    @property
    def waits_for_slots(self) -> bool:
        """Whether slots are missing to tasks that are to be deployed."""
        return (self.is_active or self.state is JobStatus.CREATED) and any(
            e.state is ExecutionState.CREATED for e in self.graph.executions()
        )

    @property
    def accepts_slots(self) -> bool:
        """Whether the job may still use slots that it does not have."""
        return self.is_active or self.state is JobStatus.CREATED

    def holds_slot_of(self, execution: Execution) -> bool:
        """Whether the job still has the slot in which a task ran."""
        return execution.slot is not None and execution.slot.allocation_id in self.pool

    def allocations_at(self, taskmanager_id: str) -> tuple[str, ...]:
        """The slots that the job holds at a TaskManager."""
        return tuple(s.allocation_id for s in self.pool.at(taskmanager_id))

    def resourcemanager_connected(self) -> list[do.Instruction]:
        """The job is registered (again)."""
        self._connected = True
        if not self.is_terminal:
            self._declare_now()
        return self._take()

    def _declare(self) -> None:
        """Say how many slots the job needs, if anybody listens; if not, it is said as soon as somebody does."""
        self.pool.needed = self._slots_needed()
        if self._connected:
            self._declare_now()

    def _slots_needed(self) -> int:
        return sum(self._needs_slot(shared) for shared in self.graph.shared_slots)

    def _declare_more(self) -> None:
        """See ``JobLifeCycle``."""
        if self._slots_needed() != self.pool.needed:
            self._declare()

    def _needs_slot(self, shared: SharedSlot) -> bool:
        if shared.slot is not None:
            return True
        return any(not e.state.is_terminal or self.graph.region_of(e) in self._restarts for e in shared.executions)

    def _declare_now(self) -> None:
        self._out.append(do.DeclareSlots(self.pool.needed, tuple(self.pool.returned)))

    def resourcemanager_lost(self, cause: str) -> list[do.Instruction]:
        """It does not know this job any more, or is silent."""
        self._connected = False
        if not self.is_terminal:
            logger.warning("the ResourceManager is lost (%s): registering again", cause)
            self._out.append(do.ConnectResourceManager())
        return self._take()

    def offer_slots(self, offer: m.OfferSlots) -> tuple[tuple[str, ...], list[do.Instruction]]:
        """Slots of a TaskManager; answers which of them the job takes."""
        accepted: list[str] = []
        for s in offer.slots:
            slot = Slot(
                AllocationId(s.allocation_id),
                offer.taskmanager_id,
                offer.taskmanager_address,
                s.slot_index,
                s.data_address,
                s.pid,
            )
            known = s.allocation_id in self.pool
            if (known or self.accepts_slots) and self.pool.offer(slot):
                accepted.append(s.allocation_id)
            else:
                logger.info("slot %s is not needed (job %s)", failures.where_is(slot), self.state.name)
        if accepted and offer.taskmanager_id not in self._watched:
            self._watched.add(offer.taskmanager_id)
            self._out.append(do.WatchTaskManager(offer.taskmanager_id, offer.taskmanager_address))
        self._schedule()
        return tuple(accepted), self._take()

    def _schedule(self) -> None:
        """Deploy what has its slots: the first time everything at once, later each region for itself."""
        if not self.waits_for_slots or not (self._deployed or self.pool.is_full) or not self.checkpoints.is_settled:
            return
        self.graph.place(self.pool.slots())
        new = [
            execution
            for region in self.graph.regions
            if all(s.current.state is ExecutionState.CREATED and s.current.slot is not None for s in region)
            for execution in (s.current for s in region)
        ]
        if new:
            self._deploy(new)
        if not self.waits_for_slots:
            self._out.append(do.ClearTimer(SLOTS_TIMER))

    def _deploy(self, new: Sequence[Execution]) -> None:
        self._deployed = self._has_begun = True
        by_slot: dict[str, list[Execution]] = {}
        ids = {e.id for e in new}
        for slot in self.graph.placed_slots():
            found = [e for e in self.graph.executions_in(slot.allocation_id) if e.id in ids]
            if found:
                by_slot[slot.allocation_id] = found
                self.pool.use(slot.allocation_id)
        for execution in new:
            execution.machine.move(ExecutionState.SCHEDULED, "all slots are there")
            execution.machine.move(ExecutionState.DEPLOYING, "submitted to its slot")
        self._note(slot.taskmanager_id for slot in self.graph.placed_slots() if slot.allocation_id in by_slot)
        for slot in self.graph.placed_slots():
            if slot.allocation_id in by_slot:
                tasks = by_slot[slot.allocation_id]
                deployment = deployment_of(
                    self.graph, slot.allocation_id, tasks, self._settings.for_slots, self.checkpoints.restore_of
                )
                self._out.append(do.SubmitSlot(slot.taskmanager_id, slot.allocation_id, deployment))

    def _note(self, taskmanagers: Iterable[str]) -> None:
        """Tasks are about to run there; they do when it was noted."""
        now = self._clock.monotonic()
        self._used.update(dict.fromkeys((*taskmanagers, *(slot.taskmanager_id for slot in self.pool.slots())), now))
        oldest = now - USED_TIMEOUTS * self._settings.heartbeat_timeout
        self._used = {taskmanager: seen for taskmanager, seen in self._used.items() if seen >= oldest}
        note = do.NoteAttempts(self.graph.next_attempt(), tuple(sorted(self._used)))
        if note != self._noted:
            self._noted = note
            self._out.append(note)

    def tasks_submitted(self, execution_ids: Iterable[str]) -> list[do.Instruction]:
        """The TaskManager took these tasks."""
        self._submitted.update(execution_ids)
        return self._take()

    def awaits_submit(self, execution_ids: Collection[str]) -> bool:
        """Whether some of these tasks still wait for their TaskManager to take them."""
        found = map(self.graph.execution, execution_ids)
        return any(e is not None and e.state is ExecutionState.DEPLOYING for e in found)

    def submit_failed(self, allocation_id: str, execution_ids: Collection[str], cause: str) -> list[do.Instruction]:
        """The TaskManager did not take these tasks, or did not answer: then they may run, and the slot is given up."""
        executions = [e for e in map(self.graph.execution, execution_ids) if e is not None and not e.state.is_terminal]
        slot = self.pool.get(allocation_id)
        if slot is not None and executions:
            self._drop(slot, f"its tasks could not be submitted: {cause}")
            where = failures.where_is(slot)
            self._end_in_slot(executions, failures.submit_failed(where, cause, executions[0]), slot)
        return self._take()

    def fail_slot(self, taskmanager_id: str, allocation_id: str, cause: str) -> list[do.Instruction]:
        """A slot is gone, or never came."""
        slot = self.pool.get(allocation_id)
        if slot is not None and slot.taskmanager_id == taskmanager_id:
            self._slots_lost([slot], cause)
        elif slot is not None or not self.waits_for_slots or not taskmanager_id:
            logger.info("loss of slot %s is ignored: the job does not hold it (%s)", allocation_id, cause)
        elif allocation_id and self._deployed:
            logger.info("slot %s did not come: %s", allocation_id, cause)
            self._declare()
        else:
            failure = failures.slot_lost(f"of TaskManager {taskmanager_id}", cause, None)
            self._fail(failure, failed=self._waiting())
        return self._take()

    def taskmanager_lost(self, taskmanager_id: str, cause: str) -> list[do.Instruction]:
        """A TaskManager is gone with all its slots."""
        self._watched.discard(taskmanager_id)
        self._slots_lost(self.pool.at(taskmanager_id), cause)
        return self._take()

    def _waiting(self) -> list[Execution]:
        return [e for e in self.graph.executions() if e.state is ExecutionState.CREATED]

    def _slots_lost(self, slots: Sequence[Slot], cause: str) -> None:
        """Slots are gone at the same time: one failure."""
        ended: list[Execution] = []
        for slot in slots:
            executions = self.graph.executions_in(slot.allocation_id)
            # Tell its TaskManager too: if that is not gone itself, nothing of the slot may stay behind.
            self._drop(slot, f"lost: {cause}")
            running = [e for e in executions if e.state not in (ExecutionState.CREATED, ExecutionState.SCHEDULED)]
            if not any(not e.state.is_terminal for e in running):
                self._unused_slot_lost(slot, executions, cause)
            ended += [e for e in running if not e.state.is_terminal]
        if ended and (slot_of := ended[0].slot) is not None:
            failure = failures.slot_lost(failures.where_is(slot_of), cause, _first(ended))
            self._end_in_slot(ended, failure, slot_of)

    def _unused_slot_lost(self, slot: Slot, executions: Sequence[Execution], cause: str) -> None:
        """A slot is lost in which nothing runs, or nothing any more."""
        failure = failures.slot_lost(failures.where_is(slot), cause, None)
        if not self._deployed:
            self._fail(failure, slot)
        elif executions and (
            self.state is JobStatus.FAILING or all(self.graph.region_of(e) in self._restarts for e in executions)
        ):  # what was reported before may only be a consequence
            self._fail(failure, slot, executions[0], failed=executions)
        else:
            logger.info("slot %s is lost; nothing runs in it: %s", failures.where_is(slot), cause)

    def _drop(self, slot: Slot, cause: str) -> None:
        """A slot is not the job's any more; another one is asked for if it is needed."""
        self.pool.remove(slot.allocation_id)
        self.graph.unplace(slot.allocation_id)
        self._out.append(do.ReleaseSlot(slot.taskmanager_id, slot.allocation_id, cause))
        if self.accepts_slots:
            self._declare()

    def _abandon_slot(self, slot: Slot, cause: str) -> None:
        """See ``JobLifeCycle``."""
        if slot.allocation_id in self.pool:
            self._drop(slot, cause)

    def _end_in_slot(self, executions: Sequence[Execution], failure: TaskFailure, slot: Slot) -> None:
        running = [e for e in executions if not e.state.is_terminal]
        if not running:
            logger.info("all tasks of slot %s had ended before: %s", failures.where_is(slot), failure.message)
            return
        for execution in running:
            canceling = execution.state is ExecutionState.CANCELING
            execution.machine.move(ExecutionState.CANCELED if canceling else ExecutionState.FAILED, failure.message)
        self._fail(failure, slot, running[0], failed=running)
        if self.accepts_slots:
            self._declare()

    def notify_no_resources(self, message: m.NotifyNoResources) -> list[do.Instruction]:
        """The cluster can't give what the job needs. One that ran before waits for slots to come back."""
        if self.waits_for_slots and not self._deployed and not self.pool.is_full:
            text = self._missing_slots(f"the cluster has {message.total} in all", message.message)
            self._fail(failures.no_resources(text, recoverable=False))
        else:
            logger.info("the cluster has %d slots in all: %s", message.total, message.message)
        return self._take()

    def _missing_slots(self, present: str, detail: str = "") -> str:
        groups = Counter(shared.group for shared in self.graph.shared_slots)
        parts = ", ".join(f"{count} for group {name!r}" for name, count in groups.items())
        text = (
            f"Job {self.graph.job_graph.name!r} needs {self.pool.needed} slots ({parts}) and {present}. "
            "Lower its parallelism, put operators into fewer slot sharing groups, wait for other jobs to end, "
            "or give the cluster more slots (taskmanager.numberOfTaskSlots, more TaskManagers)."
        )
        return f"{text} {detail}".strip()

    def _check_idle(self, execution: Execution) -> None:
        slot = execution.slot
        if not self.is_active or slot is None or self.graph.all_terminal():
            return
        inside = self.graph.executions_in(slot.allocation_id)
        if not all(
            e.state is ExecutionState.FINISHED and self.graph.region_of(e) not in self._restarts for e in inside
        ):
            return
        if self.pool.longest_idle is None:
            self._out.append(do.SetTimer(IDLE_TIMER, self._settings.slot_idle_timeout))
        self.pool.idle(slot.allocation_id, self._clock.monotonic())

    def _return_idle_slots(self) -> None:
        timeout, now = self._settings.slot_idle_timeout, self._clock.monotonic()
        idle = self.pool.idle_before(now - timeout + TIMER_SLACK)
        for slot in idle:
            self._drop(slot, f"all its tasks have finished, and it was not used for {timeout:g} s (slot.idle.timeout)")
            if not self.pool.at(slot.taskmanager_id):
                self._watched.discard(slot.taskmanager_id)
                self._out.append(do.ForgetTaskManager(slot.taskmanager_id))
        since = self.pool.longest_idle
        if since is not None:
            self._out.append(do.SetTimer(IDLE_TIMER, max(since + timeout - now, TIMER_SLACK)))


def _first(executions: Sequence[Execution]) -> Execution | None:
    return next((e for e in executions if not e.state.is_terminal), None)
