"""The state that all parts of a JobMaster's core share: graph, slots, timers, and instructions decided on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from firesteel.common.job_status import JobStatus
from firesteel.core.clock import Clock
from firesteel.graph.execution_graph import Execution, ExecutionGraph, LogicalSlot
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_archive import job_timestamps
from firesteel.graph.job_events import JobEvents
from firesteel.graph.plan import job_plan
from firesteel.protocol.deployment import TaskFailure
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoints.of_job import JobCheckpoints
from firesteel_jobmaster.deployments import Placements
from firesteel_jobmaster.layout import JobLayout
from firesteel_jobmaster.restarts import Restarts
from firesteel_jobmaster.settings import JobMasterSettings
from firesteel_jobmaster.slices import Slices
from firesteel_jobmaster.slot_pool import SlotPool

SLOTS_TIMER, CANCEL_TIMER, SPLITS_TIMER, REASON_TIMER, IDLE_TIMER = "slots", "cancel", "splits", "reason", "idle"
RESTART_TIMER = "restart"


class FailureHandler(Protocol):
    """Decides what follows from a failure, wherever it was noticed."""

    def fail(
        self,
        failure: TaskFailure | Mapping[str, Any],
        slot: LogicalSlot | None = None,
        execution: Execution | None = None,
        reported: bool = False,
        failed: Sequence[Execution] = (),
    ) -> None:
        """Answer a failure: the tasks that it touches are restarted, or the job ends.

        Args:
            failure: kind and cause.
            slot, execution: where it happened, for people.
            reported: a slot has reported it, which may only have seen a consequence of another failure.
            failed: the attempts that it touches, if ``execution`` is not all of them. Without both: all attempts.
        """

    def forget_restarts(self) -> None:
        """Nothing is started again any more."""


class JobState:
    """One job: where it stands, and the instructions that its parts have decided on during an event.

    Args:
        settings: of this job.
        clock: stamps states.
        graph: of this job.
        has_deployed: a JobMaster before this one may have deployed tasks.
    """

    # These look at the state themselves, and are set when they have been made of it.
    layout: JobLayout
    failover: FailureHandler
    checkpoints: JobCheckpoints

    def __init__(self, settings: JobMasterSettings, clock: Clock, graph: ExecutionGraph, has_deployed: bool) -> None:
        self.settings, self.clock, self.graph = settings, clock, graph
        self.plan = job_plan(graph.job_graph)
        self.events = JobEvents(clock.epoch_ms)
        self.pool = SlotPool(graph.slots_needed)
        self.placements = Placements(graph, self.pool)
        self.restarts = Restarts(graph, settings.new_restart_strategy(), settings.failover_by_region)
        self.slices = Slices()
        self.has_deployed = has_deployed
        """Tasks were deployed at least once, perhaps by a JobMaster before this one."""
        self.declares_slots = self.checks_taskmanagers = False
        """To be done at the end of the event: declare the need for slots, ask TaskManagers whether they live."""
        self._out: list[do.Instruction] = []
        self._goes_on = False
        """The shell was told to call ``go_on``."""

    # -- where the job stands

    @property
    def status(self) -> JobStatus:
        return self.graph.state

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended, or was given up by this JobMaster."""
        return self.graph.state.is_terminal_state()

    @property
    def is_active(self) -> bool:
        """Whether tasks of the job run, or will run again."""
        return self.graph.state in (JobStatus.RUNNING, JobStatus.RESTARTING)

    @property
    def accepts_slots(self) -> bool:
        """Whether the job may still use slots that it does not have."""
        return self.is_active or self.graph.state is JobStatus.CREATED

    @property
    def has_new_tasks(self) -> bool:
        """Whether some tasks are to be deployed for which that was not decided yet."""
        return self.accepts_slots and self.graph.tally.states[ExecutionState.CREATED] > 0

    def new_tasks(self) -> list[Execution]:
        """Tasks about whose deployment nothing is decided yet."""
        return [e for e in self.graph.executions() if e.state is ExecutionState.CREATED]

    def task(self, execution_id: str) -> Execution:
        """The task of an id that a message names.

        Raises:
            RpcFault: this job has no such task.
        """
        execution = self.graph.execution(execution_id)
        if execution is None:
            job_id = self.graph.job_graph.job_id
            raise RpcFault(RpcCode.UNKNOWN_EXECUTION, f"job {job_id} has no task {execution_id!r}")
        return execution

    def is_live(self, execution_id: str) -> bool:
        """Whether a task exists that has not ended."""
        execution = self.graph.execution(execution_id)
        return execution is not None and not execution.state.is_terminal

    # -- what is to be done

    def move(self, to: JobStatus, cause: str, by: str = "") -> None:
        """The job enters another state, and the Dispatcher hears of it; ``by``: who asked for that."""
        self.graph.move_job(to, cause)
        self.emit(do.ReportJobState(to.name, job_timestamps(self.graph)))
        self.layout.job_moved(to, cause)
        self.events.job_moved(to, cause, by)

    def emit(self, instruction: do.Instruction) -> None:
        """Have the shell do this."""
        self._out.append(instruction)

    def set_timer(self, name: str, seconds: float) -> None:
        """Have ``timer_fired`` called after so long, in place of a timer of this name."""
        self.emit(do.SetTimer(name, seconds))

    def clear_timers(self, *names: str) -> None:
        for name in names:
            self.emit(do.ClearTimer(name))

    def go_on(self) -> None:
        """Do the next slice of long work."""
        self._goes_on = False
        self.slices.go_on()

    def take(self) -> list[do.Instruction]:
        """Take the instructions that were decided on since the last call."""
        if self.slices and not self._goes_on:
            self._goes_on = True
            self.emit(do.GoOn())
        if self.checks_taskmanagers:
            self.checks_taskmanagers = False
            self.emit(do.CheckTaskManagers())
        out, self._out = self._out, []
        return out

    def validate(self) -> None:
        """Check what must hold after every event (tests call it)."""
        self.pool.validate()
        states = Counter(e.state for e in self.graph.executions())
        assert states == +self.graph.tally.states, f"tasks are {states}, and counted as {self.graph.tally.states}"
        assert self._goes_on or not self.slices, "long work is left, and nobody goes on with it"
        assert self.slices or not self.restarts.is_renewing, "subtasks wait for new attempts, and nobody makes them"
        assert not self.restarts or self.status is JobStatus.RESTARTING, f"{self.status} with regions to restart"
        if self.is_terminal:
            assert self.graph.all_terminal(), f"{self.status} with tasks that have not ended"
            assert not len(self.pool), f"{self.status} with slots"
        else:
            homeless = [s.allocation_id for s in self.graph.placed_slots() if s.allocation_id not in self.pool]
            assert not homeless, f"tasks have their place in slots that the job does not hold: {homeless}"
