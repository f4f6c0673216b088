"""The decisions of a JobMaster: events in, instructions out. No I/O, no waiting."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import Any

from firesteel.common.job_status import JobStatus
from firesteel.connectors.enumerators import create_enumerator
from firesteel.core.clock import Clock
from firesteel.core.errors import GraphError, PeerUnreachableError, ProgramError, ProtocolError, RpcError
from firesteel.core.ids import AllocationId, VertexId, execution_id
from firesteel.graph.execution_graph import (
    Execution,
    ExecutionGraph,
    ExecutionVertex,
    FailureEntry,
    FailureRecord,
    LogicalSlot,
    SharedSlot,
)
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_archive import CLEAN_UP, LOGS, archive_in_slices, job_timestamps, restart_times
from firesteel.graph.job_graph import JobGraph
from firesteel.graph.plan import job_plan
from firesteel.protocol import messages as m
from firesteel.protocol.alignment import GroupWatermark, ReportWatermark
from firesteel.protocol.deployment import Placement, TaskFailure
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.protocol.split_messages import OperatorEvents
from firesteel_jobmaster import failures, slices
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.alignment import AlignmentGroups
from firesteel_jobmaster.checkpoint_work import Done
from firesteel_jobmaster.checkpoints.coordinator import TIMER as CHECKPOINT_TIMER
from firesteel_jobmaster.checkpoints.of_job import JobCheckpoints
from firesteel_jobmaster.checkpoints.pending import SavepointTarget
from firesteel_jobmaster.deployments import deployment_of, placement_of
from firesteel_jobmaster.restarts import SLACK, Restarts
from firesteel_jobmaster.settings import JobMasterSettings
from firesteel_jobmaster.slices import LongWork, Slices, batches
from firesteel_jobmaster.slot_pool import SlotPool
from firesteel_jobmaster.splits import EnumeratorFactory, SplitAssigner

logger = logging.getLogger(__name__)
SLOTS_TIMER, CANCEL_TIMER, SPLITS_TIMER, REASON_TIMER, IDLE_TIMER = "slots", "cancel", "splits", "reason", "idle"
RESTART_TIMER = "restart"
CANCEL_GRACE = 30.0
"""Seconds after ``task.cancellation.timeout`` in which a TaskManager should have killed the slot and said so."""
COMMIT_PAUSE = 1.0
"""Seconds until a job commits once more that has lost a slot meanwhile; no strategy limits that."""
REASON_SECONDS = 0.2
"""A job that fails because a task lost its connection to another waits so long for what happened to that one."""
STOPPING_SECONDS = 5.0
"""In which a TaskManager that was told to stop should have ended."""
USED_TIMEOUTS = 3
"""So many heartbeat timeouts after the job had its last slot at a TaskManager, none of its tasks runs there: what was
to be freed is, or the TaskManager is lost to everybody."""
MISSED_INTERVALS = 0.9
"""A task that its TaskManager has not listed for so many heartbeat intervals is lost: two regular heartbeats in a row.
Others may come in between, and what became of the task may still be on its way."""

MISSED_SLOTS = 2
"""So many slots of a job that has not begun may not come (no process in time, its executor has ended); others are asked
for. One more may have its reason in the job's settings."""


class JobMasterCore:
    """One job from its start to its end. Single-threaded; every method returns what to do now.

    Messages may come late, twice or never: what does not fit the current state is logged and ignored.

    Args:
        job_graph: validated.
        settings: of this job.
        clock: stamps states.
        create: makes the enumerators of sources.
        may_recover: there may be checkpoints of an earlier JobMaster of the job.
        takeover: how many JobMasters of the job were lost before, and why the last of them was.
        first_attempt: of the tasks, if it is larger than that number; those of JobMasters before have smaller numbers.
    """

    def __init__(
        self,
        job_graph: JobGraph,
        settings: JobMasterSettings,
        clock: Clock,
        create: EnumeratorFactory = create_enumerator,
        may_recover: bool = False,
        takeover: tuple[int, str] = (0, ""),
        first_attempt: int = 0,
    ) -> None:
        count, cause = takeover
        self._settings, self._clock, self._create = settings, clock, create
        self._out: list[do.Instruction] = []
        self._declares = self._checks = False
        """What comes at the end of this event: the need for slots is declared, TaskManagers are asked if they live."""
        self.graph = ExecutionGraph(job_graph, clock, count, first_attempt=max(count, first_attempt))
        self.graph.restarts = count
        if count:
            lost = failures.external(cause, PeerUnreachableError).to_plain()
            self.graph.record_failure(FailureRecord(lost, clock.epoch_ms()), failures.rank(lost))
        self._plan = job_plan(job_graph)
        self._warned_of = ""
        """The cause of the last failure that was answered by a restart."""
        self._archive: dict[str, Any] | None = None
        self.logs: dict[str, str] = {}
        """Where the log of its JobMaster is (``firesteel.graph.job_archive.LOGS``)."""
        self.is_followed = False
        """Another JobMaster leads the job."""

        self.pool = SlotPool(self.graph.slots_needed)
        self._missed_slots = 0
        """Of a job that has not begun."""
        self._connected = False
        """The ResourceManager knows the job."""
        self._watched: set[str] = set()
        self._ends_within = 0.0
        self._unexplained: dict[str, float] = {}
        """TaskManagers that are gone, and nobody has said yet how they have ended -> seconds for which a job that fails
        waits for it."""
        self._used: dict[str, float] = {}
        """TaskManagers at which tasks of this JobMaster may run -> when the job had a slot there last, as far as was
        looked."""
        self._noted: do.NoteAttempts | None = None

        self._deployed = count > 0 or first_attempt > 0
        """At least once, perhaps by a JobMaster before this one."""
        self._has_begun = False
        """This one has deployed something."""
        self._submitted: set[str] = set()
        self._missed: dict[str, float] = {}
        """Tasks that their TaskManager did not list, and since when."""
        self._splits: SplitAssigner | None = None
        self._alignment = AlignmentGroups(self._is_live)
        self.checkpoints = JobCheckpoints(
            self, settings.checkpoints, clock, lambda: self._splits, may_recover, follows=self._deployed
        )

        self._slices = Slices()
        self._goes_on = False
        """``go_on`` will be called."""
        self._to_cancel = 0
        """Tasks that are still to be looked at by slices that cancel some."""
        self._to_look_at: set[int] = set()
        """Regions that may have all their slots now."""
        self._deployment_pass: object | None = None
        """The pass over regions and slots that is under way; None: none is."""
        self._looks_again = False
        """Slots have come, or regions have changed, since that pass chose what it deploys."""
        self._is_placing = False
        """That pass has not yet scheduled all that has its slots."""
        self._placements: dict[str, Placement] = {}
        """Of those that are being deployed, by TaskManager."""
        self._to_restart: deque[ExecutionVertex] = deque()
        """Subtasks whose attempts have ended, and that get new ones."""
        self._is_restarting = False
        """Not all subtasks that start together have their new attempts yet: none of them is deployed."""
        self._getting_new: set[int] = set()
        """Regions of subtasks that get new attempts."""
        self._new_attempts: list[Execution] = []
        """They are deployed when all that start with them are there, and it is known from which checkpoint."""
        self._restarts = Restarts(self.graph, settings.new_restart_strategy(), settings.failover_by_region)
        self._ending_since: float | None = None
        self._ending: FailureEntry | None = None
        """The failure with which the job ends."""
        self._reason_is_open = False

    # -- what others ask

    @property
    def state(self) -> JobStatus:
        return self.graph.state

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended, or was given up by this JobMaster."""
        return self.graph.state.is_terminal_state()

    @property
    def is_active(self) -> bool:
        """Whether tasks of the job run, or will run again."""
        return self.state in (JobStatus.RUNNING, JobStatus.RESTARTING)

    @property
    def waits_for_slots(self) -> bool:
        """Whether slots are missing to tasks that are to be deployed."""
        return self._has_new and not (self.pool.is_full and self._is_placing)

    @property
    def _has_new(self) -> bool:
        """Whether some tasks are to be deployed for which that was not decided yet."""
        return self.accepts_slots and self.graph.tally.states[ExecutionState.CREATED] > 0

    @property
    def accepts_slots(self) -> bool:
        """Whether the job may still use slots that it does not have."""
        return self.is_active or self.state is JobStatus.CREATED

    def collector(self, operator_id: str) -> Execution:
        """The task that holds the results of a collect operator.

        Raises:
            ProtocolError: the job has no such operator.
        """
        for job_vertex in self.graph.vertices.values():
            if job_vertex.vertex.collects == operator_id:
                return job_vertex.executions()[0]
        raise ProtocolError("collect", f"the job has no collect operator {operator_id!r}")

    def holds_slot_of(self, execution: Execution) -> bool:
        """Whether the job still has the slot in which a task ran."""
        return execution.slot is not None and execution.slot.allocation_id in self.pool

    def allocations_at(self, taskmanager_id: str) -> tuple[str, ...]:
        """The slots that the job holds at a TaskManager."""
        return tuple(s.allocation_id for s in self.pool.at(taskmanager_id))

    def awaits_submit(self, execution_ids: Collection[str]) -> bool:
        """Whether some of these tasks still wait for their TaskManager to take them."""
        found = map(self.graph.execution, execution_ids)
        return any(e is not None and e.state is ExecutionState.DEPLOYING for e in found)

    def is_orphan(self, heard: float) -> bool:
        """Whether this JobMaster waits for slots, and nobody is there who could give it some.

        One whose tasks run goes on without Dispatcher and ResourceManager, and an end is kept for the next Dispatcher.

        Args:
            heard: when one of both was last reached, in monotonic seconds.
        """
        return (
            not self.is_terminal
            and not len(self.pool)
            and self._clock.monotonic() - heard >= self._settings.orphan_timeout
        )

    def look(self, wanted: Collection[str] | None = None) -> Generator[None, None, dict[str, Any]]:
        """The job as plain data, in slices; see ``firesteel.graph.job_archive.archive_in_slices``."""
        if self._archive is not None:
            return self._archive
        seen = yield from archive_in_slices(self.graph, self._plan, wanted)
        archive = {**seen, "checkpoints": (yield from self.checkpoints.in_slices())}
        if self.is_terminal:
            archive[LOGS] = self.logs
            archive[CLEAN_UP] = self.checkpoints.coordinator.completed.clean_up(self.state.name)
            if wanted is None:
                self._archive = archive
        return archive

    def job_values(self) -> dict[str, int | str]:
        """Metrics of the job: restarts and checkpoints."""
        times = restart_times(self.graph, self.graph.clock.epoch_ms())
        return {**times, **self.checkpoints.coordinator.statistics.metrics()}

    # -- from its start to its end

    def start(self) -> list[do.Instruction]:
        """The job begins: it asks for its slots."""
        self.checkpoints.start()
        try:
            self._splits = SplitAssigner(self.graph.job_graph, self._create)
            if self.checkpoints.is_settled:
                self._splits.begin(None)
        except Exception as error:  # enumerators are plug-ins, and look at the world outside
            self._sources_failed(error, ())
            return self._take()
        self._move(JobStatus.CREATED, "submitted")
        self._move(JobStatus.RUNNING, "scheduling started")
        self._out.append(do.ConnectResourceManager())
        self._out.append(do.SetTimer(SLOTS_TIMER, self._settings.slot_request_timeout))
        return self._take()

    def cancel(self, cause: str) -> list[do.Instruction]:
        """Cancel the job; nothing happens if it has ended or is being cancelled."""
        self.cancel_job(cause)
        return self._take()

    def cancel_job(self, cause: str) -> None:
        """See ``checkpoints.of_job.Core``."""
        if not self.is_terminal and self.state is not JobStatus.CANCELLING:
            self._forget_restarts()
            self._move(JobStatus.CANCELLING, cause)
            self._cancel_tasks(cause)

    def suspend(self, cause: str) -> list[do.Instruction]:
        """This JobMaster stops: the slots go back at once, whatever runs in them."""
        if not self.is_terminal:
            self._forget_restarts()
            for execution in self.graph.executions():
                if not execution.state.is_terminal:
                    execution.machine.move(ExecutionState.CANCELED, cause)
            self._move(JobStatus.SUSPENDED, cause)
            self._let_go(cause)
        return self._take()

    def adopted(self) -> list[do.Instruction]:
        """Another Dispatcher leads: it hears where the job stands."""
        if self.is_terminal and self.state is not JobStatus.SUSPENDED:
            self._out.append(do.ReportEnd())
        else:
            self._out.append(do.ReportJobState(self.state.name, job_timestamps(self.graph)))
        return self._take()

    def followed(self, cause: str) -> list[do.Instruction]:
        """Another JobMaster leads the job, as those say who know."""
        if not self.is_followed:
            self.leadership_lost(cause)
        return self._take()

    def leadership_lost(self, message: str) -> None:
        """See ``checkpoints.of_job.Core``."""
        self.is_followed = True
        logger.error("another JobMaster leads the job: this one stops (%s)", message)
        out = self.suspend(f"another JobMaster leads the job: {message}")
        self._out = out + self._out

    def timer_fired(self, name: str) -> list[do.Instruction]:
        """A timer is up."""
        if name.startswith(CHECKPOINT_TIMER):
            self.checkpoints.coordinator.timer_fired(name)
        elif self.is_terminal:
            logger.debug("timer %s is late", name)
        elif name == SLOTS_TIMER and self.waits_for_slots:
            seconds = self._settings.slot_request_timeout
            if self.pool.is_full and not self.checkpoints.is_settled:  # the job waits for its storage, not for slots
                self._out.append(do.SetTimer(SLOTS_TIMER, seconds))
                return self._take()
            present = f"{len(self.pool)} of them came within {seconds:g} s (slot.request.timeout)"
            detail = self.graph.waiting_reason if self._connected else "The ResourceManager does not answer."
            self._fail(failures.no_resources(self._missing_slots(present, detail)), failed=self._waiting())
        elif name == CANCEL_TIMER:
            self._give_up_tasks()
        elif name == REASON_TIMER:
            self._close_reason()
        elif name == IDLE_TIMER:
            self._return_idle_slots()
        elif name == RESTART_TIMER:
            self._check_end()
        elif name == SPLITS_TIMER and self._splits is not None and self.is_active:
            self._offer_splits(self._splits)
        return self._take()

    # -- slots

    def resourcemanager_connected(self, ends_within: float = 0.0) -> list[do.Instruction]:
        """The job is registered (again), with one that says within so many seconds how a TaskManager has ended (0: it
        does not)."""
        self._connected, self._ends_within = True, ends_within
        if not self.is_terminal:
            self._declare_now()
        return self._take()

    def resourcemanager_lost(self, cause: str) -> list[do.Instruction]:
        """It does not know this job any more, or is silent."""
        self._connected = False
        if not self.is_terminal:
            logger.warning("the ResourceManager is lost (%s): registering again", cause)
            self._out.append(do.ConnectResourceManager())
        return self._take()

    def _declare(self) -> None:
        """Say how many slots the job needs, if anybody listens; if not, it is said as soon as somebody does."""
        self.pool.needed = self._slots_needed()
        if self._connected:
            self._declare_now()

    def _slots_needed(self) -> int:
        return sum(self._needs_slot(shared) for shared in self.graph.shared_slots)

    def _declare_more(self) -> None:
        """Tasks will be deployed again whose slots may have been given back."""
        if self._slots_needed() != self.pool.needed:
            self._declare()

    def _needs_slot(self, shared: SharedSlot) -> bool:
        if shared.slot is not None:
            return True
        return any(not e.state.is_terminal or self._runs_again(self.graph.region_of(e)) for e in shared.executions)

    def _runs_again(self, region: int) -> bool:
        """Whether a region is to get new attempts."""
        return region in self._restarts or region in self._getting_new

    def _declare_now(self) -> None:
        self._out.append(do.DeclareSlots(self.pool.needed, tuple(self.pool.returned)))

    def offer_slots(self, offer: m.OfferSlots) -> tuple[tuple[str, ...], list[do.Instruction]]:
        """Slots of a TaskManager; answers which of them the job takes."""
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

    def notify_no_resources(self, message: m.NotifyNoResources) -> list[do.Instruction]:
        """The cluster can't give what the job needs. One that ran before waits for slots to come back."""
        if self.waits_for_slots and not self._deployed and not self.pool.is_full:
            text = self._missing_slots(f"the cluster has {message.total} in all", message.message)
            self._fail(failures.no_resources(text, recoverable=False))
        else:
            logger.info("the cluster has %d slots in all: %s", message.total, message.message)
        return self._take()

    def notify_waiting(self, message: m.NotifyWaiting) -> list[do.Instruction]:
        """Why the job waits for slots."""
        if message.reason and message.reason != self.graph.waiting_reason:
            logger.warning("the job waits for slots: %s", message.reason)
        self.graph.waiting_reason = message.reason
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

    def fail_slot(
        self, taskmanager_id: str, allocation_id: str, cause: str, *, in_vain: bool = False
    ) -> list[do.Instruction]:
        """A slot is gone, or never came; ``in_vain``: because of the job itself, so that no other one would come."""
        slot = self.pool.get(allocation_id)
        if slot is not None and slot.taskmanager_id == taskmanager_id:
            self._slots_lost([slot], cause)
        elif slot is not None or not self.waits_for_slots or not taskmanager_id:
            logger.info("loss of slot %s is ignored: the job does not hold it (%s)", allocation_id, cause)
        elif allocation_id and (self._deployed or (self._missed_slots < MISSED_SLOTS and not in_vain)):
            logger.info("slot %s did not come: %s", allocation_id, cause)
            self._missed_slots += not self._deployed
            self._declare()
        else:
            failure = failures.slot_lost(f"of TaskManager {taskmanager_id}", cause, None)
            self._fail(failure, failed=self._waiting())
        return self._take()

    def taskmanager_lost(self, taskmanager_id: str, cause: str, gone_for: float = 0.0) -> list[do.Instruction]:
        """A TaskManager is gone with all its slots, for at least so many seconds: in them it may have been said why."""
        self._watched.discard(taskmanager_id)
        slots = self.pool.at(taskmanager_id)
        if slots and gone_for < self._ends_within:
            self._unexplained[taskmanager_id] = self._ends_within - gone_for
        self._slots_lost(slots, cause)
        return self._take()

    def taskmanager_ended(self, taskmanager_id: str, cause: str) -> list[do.Instruction]:
        """The ResourceManager knows how a TaskManager has ended, which may have been missed before."""
        if self.is_terminal:
            return self._take()
        self._unexplained.pop(taskmanager_id, None)
        self.graph.explain(taskmanager_id, lambda failure: failures.slot_lost_since(failure, cause))
        self._slots_lost(self.pool.at(taskmanager_id), cause)
        self._check_end()
        return self._take()

    def _waiting(self) -> list[Execution]:
        return [e for e in self.graph.executions() if e.state is ExecutionState.CREATED]

    def _slots_lost(self, slots: Sequence[LogicalSlot], cause: str) -> None:
        """Slots are gone at the same time: one failure."""
        ended: list[Execution] = []
        for slot in slots:
            executions = self.graph.executions_in(slot.allocation_id)
            # Tell its TaskManager too: if that is not gone itself, nothing of the slot may stay behind.
            self._drop(slot, f"lost: {cause}")
            running = [e for e in executions if e.state is not ExecutionState.CREATED]
            if not any(not e.state.is_terminal for e in running):
                self._unused_slot_lost(slot, executions, cause)
            ended += [e for e in running if not e.state.is_terminal]
        if ended and (slot_of := ended[0].slot) is not None:
            failure = failures.slot_lost(failures.where_is(slot_of), cause, _first(ended))
            self._end_in_slot(ended, failure, slot_of)

    def _unused_slot_lost(self, slot: LogicalSlot, executions: Sequence[Execution], cause: str) -> None:
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

    def _end_in_slot(self, executions: Sequence[Execution], failure: TaskFailure, slot: LogicalSlot) -> None:
        running = [e for e in executions if not e.state.is_terminal]
        if not running:
            logger.info("all tasks of slot %s had ended before: %s", failures.where_is(slot), failure.message)
            return
        for execution in running:
            canceling = execution.state is ExecutionState.CANCELING
            execution.machine.move(ExecutionState.CANCELED if canceling else ExecutionState.FAILED, failure.message)
        self._fail(failure, slot, running[0], failed=running)
        self._declares = True

    def _drop(self, slot: LogicalSlot, cause: str) -> None:
        """A slot is not the job's any more; another one is asked for if it is needed."""
        self.pool.remove(slot.allocation_id)
        self.graph.unplace(slot.allocation_id)
        self._placements.clear()
        self._out.append(do.ReleaseSlot(slot.taskmanager_id, slot.allocation_id, cause))
        self._declares = True

    def _check_idle(self, execution: Execution) -> None:
        slot = execution.slot
        if not self.is_active or slot is None or self.graph.all_terminal():
            return
        inside = self.graph.executions_in(slot.allocation_id)
        if not all(
            e.state is ExecutionState.FINISHED and not self._runs_again(self.graph.region_of(e)) for e in inside
        ):
            return
        if self.pool.longest_idle is None:
            self._out.append(do.SetTimer(IDLE_TIMER, self._settings.slot_idle_timeout))
        self.pool.idle(slot.allocation_id, self._clock.monotonic())

    def _return_idle_slots(self) -> None:
        timeout, now = self._settings.slot_idle_timeout, self._clock.monotonic()
        idle = self.pool.idle_before(now - timeout + SLACK)
        for slot in idle:
            self._drop(slot, f"all its tasks have finished, and it was not used for {timeout:g} s (slot.idle.timeout)")
            if not self.pool.at(slot.taskmanager_id):
                self._watched.discard(slot.taskmanager_id)
                self._out.append(do.ForgetTaskManager(slot.taskmanager_id))
        since = self.pool.longest_idle
        if since is not None:
            self._out.append(do.SetTimer(IDLE_TIMER, max(since + timeout - now, SLACK)))

    # -- deploying

    def _schedule(self, regions: Iterable[int] = ()) -> None:
        """Deploy what has its slots: the first time everything at once, later each region for itself.

        Args:
            regions: that may have all their slots, beside those that get some now.
        """
        self._to_look_at.update(regions)
        self._looks_again = True
        if self._deployment_pass is None:
            self._slices.run(self._deploy())

    def _may_deploy(self) -> bool:
        """Whether there is something to deploy, and nothing that has to be known or done before."""
        if not self._has_new or not (self._deployed or self.pool.is_full):
            return False
        return self.checkpoints.is_settled and not self._is_restarting

    def _deploy(self) -> LongWork:
        """One pass: place tasks in slots, schedule the regions that have all of theirs, and submit these.

        It begins anew while slots come or regions change in between, so that there is never a second one beside it.
        """
        current = self._deployment_pass = object()
        while self._looks_again and self._may_deploy():
            # Every slot gets tasks, whether their region is complete or not: others may follow in a moment.
            self._is_placing = True
            while self._place_some():
                yield
                if self._deployment_pass is not current:
                    return
            self._looks_again = False
            regions, self._to_look_at = sorted(self._to_look_at), set()
            ready = [number for number in regions if self.graph.is_ready(number) and number not in self._restarts]
            if ready:
                self._deployed = self._has_begun = True
            # All are SCHEDULED before the first is submitted: by then each of them has to know where its peers are.
            scheduled: dict[tuple[int, str], tuple[LogicalSlot, list[Execution]]] = {}
            for number, batch in enumerate(batches(self.graph.in_regions(ready), slices.SCHEDULED_AT_ONCE)):
                if number:
                    yield
                    if self._deployment_pass is not current:
                        return
                for execution in batch:
                    self._schedule_task(execution, scheduled)
                    if self._deployment_pass is not current:  # it failed, and the job has begun anew
                        return
            self._is_placing = False
            if scheduled:
                self._note(slot.taskmanager_id for slot, _ in scheduled.values())
            for slot, _ in scheduled.values():
                self.pool.use(slot.allocation_id)
            self._placements.clear()
            by_slot = [scheduled[key] for key in sorted(scheduled)]
            for number, slots in enumerate(batches(by_slot, slices.DEPLOYED_AT_ONCE)):
                if number:
                    yield
                    if self._deployment_pass is not current:
                        return
                for slot, tasks in slots:
                    self._submit(slot, tasks)
            if not self._looks_again or not self._has_new:
                self._check_slots_timer()
        self._deployment_pass, self._is_placing = None, False

    def _place_some(self) -> bool:
        """Give slots to some tasks that have none; returns whether others may get one."""
        placed, touched = self.graph.place(self.pool.unused(), slices.PLACED_AT_ONCE)
        for slot in placed:
            self.pool.use(slot.allocation_id)
        self._to_look_at |= touched
        return len(placed) == slices.PLACED_AT_ONCE

    def _schedule_task(
        self, execution: Execution, scheduled: dict[tuple[int, str], tuple[LogicalSlot, list[Execution]]]
    ) -> None:
        """Schedule a task of a region that had all its slots when it was chosen; add it to those of its slot."""
        if execution.state is not ExecutionState.CREATED:
            return  # it was cancelled, or has failed with its slot
        if not self.is_active or self.graph.region_of(execution) in self._restarts:
            return  # it is about to be cancelled
        shared = self.graph.shared_slot(execution)
        if shared.slot is None:  # given up for what else was in it
            lost = failures.slot_lost(f"of {execution.task_name}", "it was given up before", execution)
            execution.machine.move(ExecutionState.FAILED, lost.message)
            self._fail(lost, execution=execution)
            return
        execution.machine.move(ExecutionState.SCHEDULED, "all slots are there")
        key = shared.number, shared.slot.allocation_id
        scheduled.setdefault(key, (shared.slot, []))[1].append(execution)

    def _check_slots_timer(self) -> None:
        if not self.waits_for_slots:
            self._out.append(do.ClearTimer(SLOTS_TIMER))

    def _submit(self, slot: LogicalSlot, tasks: Sequence[Execution]) -> None:
        """Have a slot run its tasks."""
        tasks = [e for e in tasks if e.state is ExecutionState.SCHEDULED]
        if not tasks or not self.is_active or self.graph.region_of(tasks[0]) in self._restarts:
            return  # they have failed with their slot, or are about to be cancelled
        for execution in tasks:
            execution.machine.move(ExecutionState.DEPLOYING, "submitted to its slot")
        deployment = deployment_of(
            self.graph,
            slot.allocation_id,
            tasks,
            self._placement_at(slot.taskmanager_id),
            self._settings.for_slots,
            self.checkpoints.restore_of,
        )
        self._out.append(do.SubmitSlot(slot.taskmanager_id, slot.allocation_id, deployment))

    def _placement_at(self, taskmanager_id: str) -> Placement:
        """Of all regions that have tasks at a TaskManager: the same for all whose regions are the same."""
        placement = self._placements.get(taskmanager_id)
        if placement is None:
            held = self.pool.at(taskmanager_id)
            inside = [e for one in held for e in self.graph.executions_in(one.allocation_id)]
            regions = frozenset(map(self.graph.region_of, inside))
            key = ",".join(map(str, sorted(regions)))
            placement = self._placements.get(key) or placement_of(self.graph, regions)
            self._placements[taskmanager_id] = self._placements[key] = placement
        return placement

    def go_on(self) -> list[do.Instruction]:
        """The next slice of long decisions."""
        self._goes_on = False
        self._slices.go_on()
        return self._take()

    def _note(self, taskmanagers: Iterable[str]) -> None:
        """Tasks are about to run there; they do when it was noted."""
        now = self._clock.monotonic()
        self._used.update(dict.fromkeys((*taskmanagers, *self.pool.taskmanagers()), now))
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

    def submit_failed(self, allocation_id: str, execution_ids: Collection[str], cause: str) -> list[do.Instruction]:
        """The TaskManager did not take these tasks, or did not answer: then they may run, and the slot is given up."""
        executions = [e for e in map(self.graph.execution, execution_ids) if e is not None and not e.state.is_terminal]
        slot = self.pool.get(allocation_id)
        if slot is not None and executions:
            self._drop(slot, f"its tasks could not be submitted: {cause}")
            where = failures.where_is(slot)
            self._end_in_slot(executions, failures.submit_failed(where, cause, executions[0]), slot)
        return self._take()

    # -- tasks

    def update_task_states(self, update: m.UpdateTaskStates) -> list[do.Instruction]:
        """Reports of a TaskManager, in their order."""
        sender = update.taskmanager_id
        for u in update.updates:
            execution = self.graph.execution(u.execution_id)
            if execution is None or execution.slot is None or execution.slot.taskmanager_id != sender:
                logger.warning("state %s of %s is ignored: %s does not run it", u.state, u.execution_id, sender)
            else:
                self._task_state(execution, u.state, u.error, u.metrics)
        return self._take()

    def _task_state(
        self, execution: Execution, state: str, error: Mapping[str, Any] | None, metrics: Mapping[str, Any] | None
    ) -> None:
        try:
            reported = ExecutionState(state)
        except ValueError:
            logger.warning("unknown state %r of %s is ignored", state, execution.task_name)
            return
        if metrics is not None:
            execution.update_metrics(metrics, final=reported.is_terminal)
        before = execution.state
        if not execution.report(reported, "reported by its slot"):
            logger.debug("%s: report %s changes nothing in %s", execution.task_name, state, before.value)
            return
        if reported in (ExecutionState.RUNNING, ExecutionState.FINISHED):
            self.checkpoints.task_reported(execution)
            self._enumerators_hear(execution)
        if reported is ExecutionState.FAILED:
            damaged = error is not None and self.checkpoints.failure_reported(execution, error)
            failed = self.graph.executions() if damaged else ()
            self._fail(failures.from_report(error, execution), execution.slot, execution, reported=True, failed=failed)
        elif reported is ExecutionState.CANCELED and before is not ExecutionState.CANCELING:
            text = "The task ended as CANCELED although nobody cancelled it."
            self._fail(failures.external(text, RuntimeError, execution), execution.slot, execution)
        elif reported.is_terminal:
            self._check_idle(execution)
            self._check_commit()
            self._check_end(execution)

    def end_of_data(self, execution_id: str) -> list[do.Instruction]:
        """A task has all its results durable and waits for the checkpoint whose completion commits them.

        Raises:
            RpcFault: this job has no such task.
            ProtocolError: it has nothing to commit.
        """
        execution = self._known(execution_id)
        if not execution.vertex.needs_commit and not self.checkpoints.commits_at_end:
            raise ProtocolError("end_of_data", f"{execution.task_name} has nothing to commit")
        if self.is_active and not execution.state.is_terminal:
            if execution.report(ExecutionState.RUNNING, "is at the end of its data"):
                self.checkpoints.task_reported(execution)
            execution.end_of_data = True
            self.checkpoints.coordinator.outputs_ended()
            self._check_commit()
        return self._take()

    def _check_commit(self) -> None:
        """All results are durable: what is to be committed is stored, and its being stored commits it."""
        if self.state is not JobStatus.RUNNING:
            return
        if self.graph.waits_for_commit():
            self.checkpoints.coordinator.all_data_ended()

    def report_metrics(self, report: m.ReportMetrics) -> list[do.Instruction]:
        """Running totals of tasks."""
        self._metrics(report.tasks)
        return self._take()

    def _metrics(self, tasks: Mapping[str, Mapping[str, Any]]) -> None:
        for id_, metrics in tasks.items():
            execution = self.graph.execution(id_)
            if execution is not None:
                execution.update_metrics(metrics)

    def taskmanager_heartbeat(self, taskmanager_id: str, report: m.ExecutionReport) -> list[do.Instruction]:
        """What a TaskManager says it runs: makes up for reports that were lost."""
        self._metrics(report.metrics)
        now = self._clock.monotonic()
        at = [(slot, e) for slot in self.pool.at(taskmanager_id) for e in self.graph.executions_in(slot.allocation_id)]
        for slot, execution in at:
            reported = report.executions.get(execution.id)
            if execution.slot is not slot:
                continue
            if execution.state.is_terminal:
                self._cancel_stray(execution, slot, reported)
                continue
            if execution.id not in self._submitted:
                continue
            if reported is not None and reported != ExecutionState.FAILED.value:
                self._missed.pop(execution.id, None)
                self._task_state(execution, reported, None, None)
                continue
            since = self._missed.setdefault(execution.id, now)  # gone, or failed and the reason is on its way
            if now - since >= MISSED_INTERVALS * self._settings.heartbeat_interval:
                cause = f"TaskManager {taskmanager_id} does not run {execution.task_name} any more"
                inside = self.graph.executions_in(slot.allocation_id)
                if slot.allocation_id in self.pool:
                    self._drop(slot, cause)
                self._end_in_slot(inside, failures.slot_lost(failures.where_is(slot), cause, execution), slot)
        return self._take()

    def _cancel_stray(self, execution: Execution, slot: LogicalSlot, reported: str | None) -> None:
        """A task that the job has given up, and that runs all the same (its submit was not answered, say)."""
        if (
            execution.state is not ExecutionState.FINISHED
            and reported in (ExecutionState.INITIALIZING.value, ExecutionState.RUNNING.value)
            and slot.allocation_id in self.pool
        ):
            logger.warning("%s runs although it was given up: it is cancelled", execution.task_name)
            self._out.append(do.CancelSlotTasks(slot.taskmanager_id, slot.allocation_id, (execution.id,)))

    def _known(self, execution_id: str) -> Execution:
        execution = self.graph.execution(execution_id)
        if execution is None:
            job_id = self.graph.job_graph.job_id
            raise RpcFault(RpcCode.UNKNOWN_EXECUTION, f"job {job_id} has no task {execution_id!r}")
        return execution

    def _is_live(self, execution_id: str) -> bool:
        execution = self.graph.execution(execution_id)
        return execution is not None and not execution.state.is_terminal

    # -- splits, and enumerators of users, which run in tasks of their own

    def request_splits(self, request: m.RequestSplits) -> tuple[m.Splits, list[do.Instruction]]:
        """A source subtask asks for work, perhaps again because it did not get the answer.

        Raises:
            RpcFault: this job has no such task.
            ProtocolError: it is not a source.
        """
        execution = self._known(request.execution_id)
        if self._splits is None or not self._splits.has(execution.vertex.id):
            raise ProtocolError("request_splits", f"{execution.task_name} is not a source")
        if not self.is_active or execution.state.is_terminal:
            return m.Splits((), False), self._take()
        try:
            given = self._splits.answer(execution, request.number, request.taken)
        except Exception as error:  # the enumerator is a plug-in
            self._sources_failed(error, [execution])
            return m.Splits((), False), self._take()
        if not given.serial and self._splits.someone_waits:
            self._out.append(do.SetTimer(SPLITS_TIMER, self._settings.splits_interval))
        self._send_operator_events(self._splits)
        return given, self._take()

    def _offer_splits(self, assigner: SplitAssigner) -> None:
        try:
            found = assigner.retry()
        except Exception as error:  # the enumerator is a plug-in
            self._sources_failed(error, ())
            return
        self._push(found)
        if assigner.someone_waits:
            self._out.append(do.SetTimer(SPLITS_TIMER, self._settings.splits_interval))

    def _sources_failed(self, error: Exception, executions: Sequence[Execution]) -> None:
        """Enumerators of sources raised: what the program says is wrong, or they can't look."""
        if isinstance(error, GraphError):
            failure = failures.internal(error, "making the split enumerators")
        elif isinstance(error, ProgramError):
            failure = failures.of_the_user(error)
        elif isinstance(error, OSError):
            failure = failures.external(str(error), OSError)
        else:
            failure = failures.internal(error, "looking for splits", recoverable=True)
        self._fail(failure, execution=executions[0] if len(executions) == 1 else None, failed=executions)

    def _push(self, found: Iterable[tuple[Execution, m.Splits]]) -> None:
        for execution, given in found:
            if execution.slot is not None:
                slot = execution.slot
                self._out.append(do.PushSplits(slot.taskmanager_id, slot.allocation_id, execution.id, given))

    def splits_lost(self, execution_id: str) -> list[do.Instruction]:
        """Splits did not reach a subtask: they would never be read."""
        execution = self._known(execution_id)
        if self.is_active and not execution.state.is_terminal:
            text = f"Splits did not reach {execution.task_name}: its TaskManager did not take them."
            self._fail(failures.external(text, RpcError, execution), execution.slot, execution)
        return self._take()

    def report_watermark(self, report: ReportWatermark) -> GroupWatermark:
        """A source subtask has come so far: how far has its alignment group?"""
        self._known(report.execution_id)
        return GroupWatermark(self._alignment.report(report.group, report.execution_id, report.watermark))

    def _enumerators_hear(self, execution: Execution) -> None:
        """A task runs, or has finished."""
        link = None if self._splits is None else self._splits.link(execution.vertex)
        if self._splits is None or link is None:
            return
        if execution.vertex.enumerates is not None:
            link.enumerator_runs(execution)
        elif execution.state is ExecutionState.FINISHED:
            readers = self.graph.vertices[VertexId(execution.vertex.id)].executions()
            if all(reader.state is ExecutionState.FINISHED for reader in readers):
                link.readers_ended()
        elif not self.checkpoints.has_finished(execution):
            link.reader_runs(execution)
        self._send_operator_events(self._splits)

    def _send_operator_events(self, splits: SplitAssigner) -> None:
        for execution, number, events in splits.take_events():
            slot = execution.slot
            if slot is not None and not execution.state.is_terminal:
                told = do.SendOperatorEvents(slot.taskmanager_id, slot.allocation_id, execution.id, number, events)
                self._out.append(told)

    def operator_events(self, message: OperatorEvents) -> list[do.Instruction]:
        """A user's enumerator has decided something.

        Raises:
            RpcFault: this job has no such task.
            ProtocolError: it runs no enumerator.
        """
        execution = self._known(message.execution_id)
        link = None if self._splits is None else self._splits.link(execution.vertex)
        if link is None or execution.vertex.enumerates is None:
            raise ProtocolError("send_operator_events", f"{execution.task_name} runs no enumerator")
        if not self.is_active or execution.state.is_terminal:
            return self._take()
        try:
            given = link.received(execution, message.number, message.events)
        except ProtocolError as error:
            self._fail(failures.internal(error, "handing out splits", recoverable=True), execution.slot, execution)
            return self._take()
        self._push(given)
        return self._take()

    def operator_events_lost(self, execution_id: str) -> list[do.Instruction]:
        """A user's enumerator did not hear of something: it can't go on."""
        execution = self._known(execution_id)
        if self.is_active and not execution.state.is_terminal:
            text = f"{execution.task_name} did not hear of its readers: its TaskManager did not take it."
            self._fail(failures.external(text, RpcError, execution), execution.slot, execution)
        return self._take()

    # -- checkpoints

    def acknowledge_checkpoint(self, message: m.AcknowledgeCheckpoint) -> list[do.Instruction]:
        """A task has written its state.

        Raises:
            RpcFault: this job has no such task.
        """
        execution = self._known(message.execution_id)
        self.checkpoints.coordinator.acknowledge(execution, message.checkpoint_id, message.metrics, message.state)
        return self._take()

    def decline_checkpoint(self, message: m.DeclineCheckpoint) -> list[do.Instruction]:
        """A task does not take part.

        Raises:
            RpcFault: this job has no such task.
        """
        execution = self._known(message.execution_id)
        self.checkpoints.coordinator.decline(execution, message.checkpoint_id, message.reason, message.failure)
        return self._take()

    def checkpoint_not_triggered(self, execution_ids: tuple[str, ...], checkpoint_id: int) -> list[do.Instruction]:
        """A TaskManager did not take the order to begin a checkpoint."""
        self.checkpoints.coordinator.not_triggered(execution_ids, checkpoint_id)
        return self._take()

    def trigger_checkpoint(self, trigger_id: str, full: bool = False) -> list[do.Instruction]:
        """Somebody wants a checkpoint now; what becomes of it is in the archive, under this id."""
        self.checkpoints.coordinator.request(trigger_id, full)
        return self._take()

    def trigger_savepoint(self, trigger_id: str, savepoint: SavepointTarget) -> list[do.Instruction]:
        """Somebody wants a savepoint, or to stop the job with one; as ``trigger_checkpoint``."""
        self.checkpoints.coordinator.request_savepoint(trigger_id, savepoint)
        return self._take()

    def checkpoint_work_done(self, done: Done) -> list[do.Instruction]:
        """Storage and store have done something, or could not."""
        self.checkpoints.coordinator.done(done)
        return self._take()

    def checkpoints_settled(self) -> None:
        """See ``checkpoints.of_job.Core``: what has waited for that is deployed."""
        if not self.is_active:
            return
        if not self._start_new_attempts() and self._splits is not None and not self._has_begun:
            point = self.checkpoints.restore_point()
            try:
                self._splits.begin(point)
            except Exception as error:  # as in ``start``
                self._sources_failed(error, ())
                return
            if point is not None:
                self.checkpoints.restarting()
        self._schedule(range(len(self.graph.regions)))

    def checkpoint_decided(self) -> None:
        """See ``checkpoints.of_job.Core``."""
        self._check_end()

    # -- failures

    def fail_job(self, failure: TaskFailure) -> None:
        """See ``checkpoints.of_job.Core``."""
        self._fail(failure)

    def _fail(
        self,
        failure: TaskFailure | Mapping[str, Any],
        slot: LogicalSlot | None = None,
        execution: Execution | None = None,
        reported: bool = False,
        failed: Sequence[Execution] = (),
    ) -> None:
        """Something failed: what it touches is restarted, or the job ends.

        Args:
            failure: what it was.
            slot, execution: where it happened, for people.
            reported: by a slot, which may only have seen a consequence.
            failed: the attempts that it touches, if ``execution`` is not all of them; none of both: all.
        """
        plain = failure.to_plain() if isinstance(failure, TaskFailure) else failure
        if reported and failures.may_be_a_consequence(plain):
            plain = failures.name_peers(plain, self.pool.get)
            self._checks = True
        cause = f"{plain['error_class']}: {plain['message']}"
        if self.is_terminal:
            logger.info("ignored, the job has ended: %s", cause)
            return
        record = FailureRecord(
            plain,
            self._clock.epoch_ms(),
            execution.task_name if execution else "",
            slot.endpoint if slot else "",
            slot.taskmanager_id if slot else "",
        )
        if self._ends_within and slot is not None and failures.is_stopped(plain):
            self._unexplained[slot.taskmanager_id] = self._ends_within + STOPPING_SECONDS
        rank = failures.rank(plain, self._killing())
        if self.state in (JobStatus.FAILING, JobStatus.CANCELLING):
            self._fail_further(record, rank, reported)
        elif not self._restart_after(record, rank, failed or ([execution] if execution else ())):
            self._ending = self.graph.record_failure(record, rank, self._settings.kept_failures)
            self._reason_is_open = reported and failures.may_be_a_consequence(plain)
            self._forget_restarts()
            self._move(JobStatus.FAILING, cause)
            self._cancel_tasks(f"the job fails: {cause:.200}")

    def _fail_further(self, record: FailureRecord, rank: int, reported: bool) -> None:
        logger.info("further failure while %s: %s", self.state.name, record.failure["message"])
        if self._ending is None:
            self.graph.record_failure(record, rank, self._settings.kept_failures)
        elif self._ending.add(record, rank):
            self._reason_is_open = reported and failures.may_be_a_consequence(record.failure)
        self._check_end()

    def _killing(self) -> bool:
        """Whether a slot that dies now was probably killed because its tasks would not end."""
        timeout = self._settings.cancellation_timeout
        return bool(timeout and self._ending_since is not None) and (
            self._clock.monotonic() - (self._ending_since or 0.0) >= timeout
        )

    # -- restarts

    def _restart_after(self, record: FailureRecord, rank: int, failed: Sequence[Execution]) -> bool:
        """Whether a failure is answered by a restart; if so, what it touches is cancelled."""
        foreign = failures.is_of_another_release(record.failure)
        refused = foreign and not self.checkpoints.waits_for_releases
        if not self.is_active or refused or not record.failure.get("recoverable", True):
            return False
        now = self._clock.monotonic()
        regions = self._restarts.touched(failed)
        entry = self._restarts.entry(regions)
        if entry is not None:
            if entry.add(record, rank):
                self._warn_of_restart(entry)
        elif foreign or failures.is_state_away(record.failure):  # the host is to blame, or the cluster's release
            pause = self._restarts.storage_failed(now)
            entry = self.graph.record_failure(record, rank, self._settings.kept_failures)
            self._begin_restart(regions, entry, now, pause)
        elif self._restarts.failed(now):
            entry = self.graph.record_failure(record, rank, self._settings.kept_failures)
            self._begin_restart(regions, entry, now)
        elif failures.is_of_infrastructure(record.failure) and self.checkpoints.is_committing:
            logger.warning("some results may be shown: the job goes on committing, though %s", self._restarts.strategy)
            entry = self.graph.record_failure(record, rank, self._settings.kept_failures)
            self.graph.restarts += 1
            self._begin_restart(regions, entry, now, COMMIT_PAUSE)
        else:
            logger.info("the job is not restarted: %s", self._restarts.strategy)
            return False
        while self._to_restart:  # what fails now has new attempts, or is not started again any more
            self._renew_some()
        cause = f"{record.failure['error_class']}: {record.failure['message']:.200}"
        if self.state is JobStatus.RUNNING:
            self._move(JobStatus.RESTARTING, cause)
        self._cancel_tasks(f"restart after {cause}", self.graph.in_regions(regions))
        return True

    def _begin_restart(self, regions: Collection[int], entry: FailureEntry, now: float, pause: float = 0.0) -> None:
        pause = self._restarts.begin(regions, entry, now, pause)
        entry.answer = f"restart {self.graph.restarts} in {pause:.3g} s"
        self._warn_of_restart(entry)
        self._declare_more()

    def _warn_of_restart(self, entry: FailureEntry) -> None:
        """Tell whoever runs the job why it is restarted; the traceback only once of a cause that comes again."""
        cause = failures.cause_text(entry.root.failure)
        stack = "" if cause == self._warned_of else f"\n{entry.root.failure.get('traceback') or ''}".rstrip()
        self._warned_of = cause
        graph = self.graph.job_graph
        logger.warning("job %r (%s) failed: %s; %s%s", graph.name, graph.job_id, cause, entry.answer, stack)

    def _check_restart(self, ended: Execution | None) -> None:
        """Start again what has ended and waited long enough: the region of a task that has ended now, or any."""
        now = self._clock.monotonic()
        if ended is not None:
            ready = self._restarts.take_ready(now, (self.graph.region_of(ended),))
        else:
            ready = self._restarts.take_ready(now)
            due = self._restarts.next_due(now)
            if due is not None:
                self._out.append(do.SetTimer(RESTART_TIMER, max(due, SLACK)))
        if not ready:
            return
        self._getting_new.update(ready)
        self._to_restart.extend(subtask for region in ready for subtask in self.graph.regions[region])
        if not self._is_restarting:
            self._slices.run(self._restart())

    def _forget_restarts(self) -> None:
        """Nothing is started again any more."""
        self._restarts.clear()
        self._to_restart.clear()
        self._getting_new.clear()
        self._new_attempts.clear()

    def _restart(self) -> LongWork:
        """New attempts of all subtasks that are started again; then these are deployed together."""
        self._is_restarting = True
        while self._to_restart:
            self._renew_some()
            if self._to_restart or len(self._new_attempts) > slices.RESTARTED_AT_ONCE:
                yield
        self._is_restarting = False
        self._start_new_attempts()

    def _renew_some(self) -> None:
        """New attempts of the next subtasks that are started again; with the last of them the job runs again."""
        count = min(len(self._to_restart), slices.RESTARTED_AT_ONCE)
        self._new_attempts += self.graph.restart([self._to_restart.popleft() for _ in range(count)])
        if self._to_restart:
            return
        self._getting_new.clear()
        if not self._restarts:
            self._ending_since = None
            self._out.append(do.ClearTimer(CANCEL_TIMER))
            self._move(JobStatus.RUNNING, f"restarted {len(self._new_attempts)} tasks")

    def _start_new_attempts(self) -> bool:
        """Deploy new attempts: sources begin anew, or go on from the checkpoint. Returns whether there were some."""
        if not self.checkpoints.is_settled or self._is_restarting:
            return False
        executions = [e for e in self._new_attempts if not e.state.is_terminal]
        self._new_attempts = []
        if not executions or not self.is_active:
            return bool(executions)
        for execution in executions:
            before = execution_id(VertexId(execution.vertex.id), execution.subtask, execution.attempt - 1)
            self._submitted.discard(before)
            self._missed.pop(before, None)
        try:
            if self._splits is not None:
                self._splits.restart(executions, self.checkpoints.restarting())
        except Exception as error:  # enumerators are plug-ins, and look at the world outside
            self._sources_failed(error, executions)
            return True
        self._declare()
        if self.waits_for_slots:
            self._out.append(do.SetTimer(SLOTS_TIMER, self._settings.slot_request_timeout))
        self._schedule({self.graph.region_of(execution) for execution in executions})
        return True

    # -- the way to the last slot given back

    def _cancel_tasks(self, cause: str, executions: Iterable[Execution] | None = None) -> None:
        if self._ending_since is None:
            self._ending_since = self._clock.monotonic()
        self.checkpoints.coordinator.tasks_failed(cause)
        doomed = list(self.graph.executions() if executions is None else executions)
        if len(doomed) > slices.CANCELLED_AT_ONCE:  # a TaskManager hears of all that it has to cancel at the same time
            doomed.sort(key=lambda e: e.slot.taskmanager_id if e.slot is not None else "")
        self._slices.run(self._cancel_all(doomed, cause), urgent=True)

    def _cancel_all(self, executions: Sequence[Execution], cause: str) -> LongWork:
        """Cancel these tasks, before anything else is deployed."""
        self._to_cancel += len(executions)
        for number, batch in enumerate(batches(executions, slices.CANCELLED_AT_ONCE)):
            if number:
                self._check_end()
                yield
            self._to_cancel -= len(batch)
            self._cancel_some(batch, cause)
        self._check_end()

    def _cancel_some(self, executions: Iterable[Execution], cause: str) -> None:
        by_slot: dict[tuple[str, str], list[str]] = {}
        for execution in executions:
            if execution.state.is_terminal or execution.state is ExecutionState.CANCELING:
                continue
            if execution.slot is None or not execution.machine.can(ExecutionState.CANCELING):
                execution.machine.move(ExecutionState.CANCELED, cause)
                continue
            execution.machine.move(ExecutionState.CANCELING, cause)
            by_slot.setdefault((execution.slot.taskmanager_id, execution.slot.allocation_id), []).append(execution.id)
        for (taskmanager_id, allocation_id), ids in by_slot.items():
            self._out.append(do.CancelSlotTasks(taskmanager_id, allocation_id, tuple(ids)))
        if by_slot and self._settings.cancellation_timeout:
            # The TaskManager kills the slot after the timeout and says so; this is for one that does not.
            self._out.append(do.SetTimer(CANCEL_TIMER, self._settings.cancellation_timeout + CANCEL_GRACE))

    def _give_up_tasks(self) -> None:
        cause = "did not end in time; its slot is released"
        late = [e for e in self.graph.executions() if not e.state.is_terminal]
        if self.state is JobStatus.RESTARTING:
            late = [e for e in late if e.state is ExecutionState.CANCELING]
        for execution in late:
            execution.machine.move(ExecutionState.CANCELED, cause)
        if self.state is JobStatus.RESTARTING:  # they may still run there
            for slot in {e.slot.allocation_id: e.slot for e in late if e.slot is not None}.values():
                if slot.allocation_id in self.pool:
                    self._drop(slot, "tasks did not end in time")
        self._check_end()

    def _reason_is_due_in(self) -> float:
        """For how long a better explanation of the failure that ends the job may come; 0: there is none to come."""
        root = None if self._ending is None else self._ending.root
        if root is not None and root.taskmanager_id in self._unexplained and failures.is_slot_lost(root.failure):
            return self._unexplained[root.taskmanager_id]
        return REASON_SECONDS if self._reason_is_open else 0.0

    def _close_reason(self) -> None:
        self._reason_is_open = False
        self._unexplained.clear()
        self._check_end()

    def _check_end(self, ended: Execution | None = None) -> None:
        """What follows when all tasks have ended, or those of a region that is to be restarted."""
        if self.state is JobStatus.RESTARTING:
            self._check_restart(ended)
            return
        if self.is_terminal or not self.graph.all_terminal():
            return
        if self.state is JobStatus.FAILING and (seconds := self._reason_is_due_in()):
            self._out.append(do.SetTimer(REASON_TIMER, seconds))
            return
        ends = {JobStatus.FAILING: JobStatus.FAILED, JobStatus.CANCELLING: JobStatus.CANCELED}
        end = ends.get(self.state, JobStatus.FINISHED)
        if not self.checkpoints.coordinator.may_end(end.name):
            return
        self._move(end, "all tasks are finished" if end is JobStatus.FINISHED else "all tasks have ended")
        self._out.append(do.ReportEnd())
        self._let_go(f"job {self.state.name}")

    def _let_go(self, cause: str) -> None:
        for name in (SLOTS_TIMER, CANCEL_TIMER, SPLITS_TIMER, REASON_TIMER, IDLE_TIMER, RESTART_TIMER):
            self._out.append(do.ClearTimer(name))
        last = self.checkpoints.coordinator.left(self.state.name)
        for slot in self.pool.close():
            self._out.append(do.ReleaseSlot(slot.taskmanager_id, slot.allocation_id, cause, last))
        self.checkpoints.coordinator.close(self.state.name)
        self._out.append(do.DisconnectResourceManager())

    # -- instructions

    def _move(self, to: JobStatus, cause: str) -> None:
        self.graph.move_job(to, cause)
        self._out.append(do.ReportJobState(to.name, job_timestamps(self.graph)))

    def emit(self, instruction: do.Instruction) -> None:
        """Have the shell do this."""
        self._out.append(instruction)

    def _take(self) -> list[do.Instruction]:
        if self._declares:
            self._declares = False
            if self.accepts_slots:
                self._declare()
        if self._slices and not self._goes_on:
            self._goes_on = True
            self._out.append(do.GoOn())
        out, self._out = self._out, []
        if self._checks:
            self._checks = False
            out.append(do.CheckTaskManagers())
        return out


def _first(executions: Sequence[Execution]) -> Execution | None:
    return next((e for e in executions if not e.state.is_terminal), None)
