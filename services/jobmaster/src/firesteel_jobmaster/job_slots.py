"""The slots that a job asks for, takes and gives back."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace

from firesteel.core.errors import NoResourceAvailableError
from firesteel.core.ids import AllocationId
from firesteel.graph.execution_graph import Execution, LogicalSlot
from firesteel.graph.execution_states import ExecutionState
from firesteel.protocol import messages as m
from firesteel.protocol import slot_shortage
from firesteel.protocol.deployment import TaskFailure
from firesteel_jobmaster import failures
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.job_state import IDLE_TIMER, SLOTS_TIMER, JobState
from firesteel_jobmaster.restarts import SLACK

logger = logging.getLogger(__name__)


class JobSlots:
    """Declares, takes and gives back the slots of a job; the layout says how many are needed."""

    def __init__(self, state: JobState) -> None:
        self._state, self._pool = state, state.pool
        self._is_connected = False
        """The ResourceManager knows the job."""
        self._watched: set[str] = set()
        """TaskManagers with which heartbeats are exchanged."""

    # -- the ResourceManager

    def connected(self) -> None:
        """The ResourceManager knows the job (again), and not yet how many slots it needs."""
        self._is_connected = True
        if not self._state.is_terminal:
            self._declare_now()

    def disconnected(self, cause: str) -> None:
        """The ResourceManager does not know this job any more, or is silent."""
        self._is_connected = False
        if not self._state.is_terminal:
            logger.warning("the ResourceManager is lost (%s): registering again", cause)
            self._state.emit(do.ConnectResourceManager())

    def declare(self) -> None:
        """Declare how many slots the job needs, now or as soon as the ResourceManager knows the job."""
        self._pool.needed = self._state.layout.slots_needed()
        if self._is_connected:
            self._declare_now()

    def declare_if_changed(self) -> None:
        """Declare how many slots the job needs, if that has changed, as tasks are deployed again."""
        if self._state.layout.slots_needed() != self._pool.needed:
            self.declare()

    def _declare_now(self) -> None:
        least, most = self._state.layout.slots_declared()
        self._state.emit(do.DeclareSlots(least, tuple(self._pool.returned), most))

    def waiting_reason(self, reason: str) -> None:
        """Note why the slots do not come; empty: no reason is known."""
        if reason and reason != self._state.graph.waiting_reason:
            logger.warning("the job waits for slots: %s", reason)
        self._state.graph.waiting_reason = reason

    def waited_too_long(self) -> None:
        """Slots are still missing after ``slot.request.timeout``."""
        state, seconds = self._state, self._state.settings.slot_request_timeout
        if self._pool.is_full and not state.checkpoints.is_settled:  # the job waits for its storage, not for slots
            state.set_timer(SLOTS_TIMER, seconds)
            return
        reason = state.graph.waiting_reason if self._is_connected else slot_shortage.NO_RESOURCEMANAGER
        present = slot_shortage.came_in_time(len(self._pool), seconds, "slot.request.timeout")
        state.failover.fail(self.shortage(present, reason), failed=state.new_tasks())

    def too_few(self, message: m.NotifyNoResources) -> None:
        """The cluster has fewer slots than the job needs. A job that ran before waits for slots to come back."""
        if self._state.layout.waits_for_slots and not self._state.has_deployed and not self._pool.is_full:
            present = slot_shortage.there_are(message.total)
            self._state.failover.fail(self.shortage(present, message.message, recoverable=False))
        else:
            logger.info("the cluster has %d slots in all: %s", message.total, message.message)

    def shortage(self, present: str, reason: str, recoverable: bool = True) -> TaskFailure:
        """The failure of a job that does not get its slots; ``present`` and ``reason``: see ``slot_shortage``."""
        graph = self._state.graph
        groups = Counter(shared.group for shared in graph.shared_slots)
        message = slot_shortage.job_lacks_slots(graph.job_graph.name, self._pool.needed, groups, present, reason)
        return replace(failures.external(message, NoResourceAvailableError), recoverable=recoverable)

    # -- TaskManagers

    def offered(self, offer: m.OfferSlots) -> tuple[str, ...]:
        """A TaskManager offers slots; returns the allocations of those that the job takes."""
        accepted: list[str] = []
        for s in offer.slots:
            slot = LogicalSlot(
                AllocationId(s.allocation_id),
                offer.taskmanager_id,
                offer.taskmanager_address,
                s.slot_index,
                s.data_address,
                s.pid,
            )
            is_known = s.allocation_id in self._pool
            if (is_known or self._state.accepts_slots) and self._pool.offer(slot):
                accepted.append(s.allocation_id)
            else:
                logger.info("slot %s is not needed (job %s)", failures.where_is(slot), self._state.status.name)
        if accepted and offer.taskmanager_id not in self._watched:
            self._watched.add(offer.taskmanager_id)
            self._state.emit(do.WatchTaskManager(offer.taskmanager_id, offer.taskmanager_address))
        return tuple(accepted)

    def taskmanager_lost(self, taskmanager_id: str) -> None:
        """A TaskManager is lost, and not watched any more; if it offers slots again, it is watched again."""
        self._watched.discard(taskmanager_id)

    def drop(self, slot: LogicalSlot, cause: str) -> None:
        """Free a slot that is lost or of no use; another slot is declared if one is needed."""
        self._pool.remove(slot.allocation_id)
        self._state.graph.unplace(slot.allocation_id)
        self._state.placements.forget()
        self._state.emit(do.ReleaseSlot(slot.taskmanager_id, slot.allocation_id, cause))
        self._state.declares_slots = True

    # -- slots all of whose tasks have finished

    def check_idle(self, execution: Execution) -> None:
        """A task has ended: note since when its slot is idle, if all tasks in it have finished."""
        state, slot = self._state, execution.slot
        if not state.layout.returns_idle_slots or not state.is_active or slot is None or state.graph.all_terminal():
            return
        tasks = state.graph.executions_in(slot.allocation_id)
        runs_again, region_of = state.restarts.runs_again, state.graph.region_of
        if not all(e.state is ExecutionState.FINISHED and not runs_again(region_of(e)) for e in tasks):
            return
        if self._pool.longest_idle is None:
            state.set_timer(IDLE_TIMER, state.settings.slot_idle_timeout)
        self._pool.idle(slot.allocation_id, state.clock.monotonic())

    def return_idle(self) -> None:
        """Give back the slots that were idle for ``slot.idle.timeout``."""
        state, timeout, now = self._state, self._state.settings.slot_idle_timeout, self._state.clock.monotonic()
        for slot in self._pool.idle_before(now - timeout + SLACK):
            self.drop(slot, f"all its tasks have finished, and it was not used for {timeout:g} s (slot.idle.timeout)")
            if not self._pool.at(slot.taskmanager_id):
                self._watched.discard(slot.taskmanager_id)
                state.emit(do.ForgetTaskManager(slot.taskmanager_id))
        since = self._pool.longest_idle
        if since is not None:
            state.set_timer(IDLE_TIMER, max(since + timeout - now, SLACK))
