"""One JobMaster: answers calls about its job, and links its core with those that it works with."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from firesteel.checkpoint.store import CompletedCheckpointStore, MemoryCheckpointStore
from firesteel.config import Settings, options
from firesteel.config.options import PYTHON_ENVIRONMENT_TIMEOUT
from firesteel.core.clock import Clock
from firesteel.core.errors import FencedError
from firesteel.graph.bounded import is_batch
from firesteel.graph.job_archive import job_timestamps
from firesteel.graph.job_graph import JobGraph
from firesteel.ha.retrieval import FixedLeaders, LeaderRetrieval
from firesteel.protocol import messages as m
from firesteel.protocol.alignment import GroupWatermark, ReportWatermark
from firesteel.protocol.gateways import DispatcherGateway, JobMasterGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.protocol.method import Method, Request
from firesteel.rpc import RpcClient, answers
from firesteel.service.background import in_slices
from firesteel.service.lanes import Spawn
from firesteel.service.retries import FIRST_PAUSE
from firesteel.traces.context import TraceContext
from firesteel.traces.tracing import Tracing
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.batch_layout import batch_settings
from firesteel_jobmaster.checkpoints.pending import SavepointTarget
from firesteel_jobmaster.checkpoints.queue import RunBlocking, WorkQueue, call_seconds, in_a_thread
from firesteel_jobmaster.checkpoints.worker import CheckpointWorker
from firesteel_jobmaster.collecting import LONGEST_WAIT_MS, collect
from firesteel_jobmaster.core import JobMasterCore
from firesteel_jobmaster.dispatcher import DispatcherReporter
from firesteel_jobmaster.event_door import EventDoor
from firesteel_jobmaster.handover import HandoverNotes, JobAttempts
from firesteel_jobmaster.performer import InstructionPerformer
from firesteel_jobmaster.resourcemanager import JobMasterResourceManagerLink
from firesteel_jobmaster.settings import JobMasterSettings
from firesteel_jobmaster.slot_calls import SlotCalls
from firesteel_jobmaster.slot_lanes import SlotLanes
from firesteel_jobmaster.stage_run_link import StageRunLink
from firesteel_jobmaster.taskmanagers import TaskManagerLinks
from firesteel_jobmaster.traces import JobTraces

logger = logging.getLogger(__name__)


def _row(
    row: Method[Request, None], event: Callable[[JobMasterCore, Request], list[do.Instruction]]
) -> Callable[[JobMaster, Request], None]:
    """A row of the contract is an event of the core: it is answered when the core has dealt with the message."""

    @answers(row)
    def answer(jobmaster: JobMaster, message: Request) -> None:
        jobmaster.door.handle(event, jobmaster.core, message)

    return answer


class JobMaster:
    """Runs one job. All methods are called on the event loop of the host.

    Args:
        job_graph: validated.
        start: how to reach the other services.
        address: of this job's calls.
        token: fencing token of this JobMaster.
        settings: of this job.
        clock: injected.
        rpc: carries calls.
        spawn: runs what goes on until the job ends, such as heartbeats.
        spawn_call: runs what comes to an end by itself; a host that stops waits for it.
        checkpoint_store: remembers completed checkpoints; default: for as long as this JobMaster lives.
        may_recover: there may be checkpoints in the store; default: if it is given.
        run_blocking: has a function that may block done elsewhere; default: in a thread.
        leaders: say where the ResourceManager is; default: where ``start`` says.
        attempts: remember which attempts were used; default: those of this JobMaster are the first.
        tracing: exports traces; None = there are none.
        meters: plain reporters to which meters of user functions export.
    """

    def __init__(
        self,
        job_graph: JobGraph,
        start: m.StartJob,
        address: str,
        token: str,
        settings: JobMasterSettings,
        clock: Clock,
        rpc: RpcClient,
        spawn: Spawn,
        spawn_call: Spawn,
        checkpoint_store: CompletedCheckpointStore | None = None,
        may_recover: bool = True,
        run_blocking: RunBlocking | None = None,
        leaders: LeaderRetrieval | None = None,
        attempts: JobAttempts | None = None,
        tracing: Tracing | None = None,
        meters: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.job_id, self.address, self.token = job_graph.job_id, address, token
        self._spawn, self._interval = spawn, settings.heartbeat_interval
        self.start_message = start
        """The order by which a host would start this job now: with the Dispatcher that leads."""
        self.on_adopted: Callable[[], None] = lambda: None
        """Called when ``start_message`` has changed."""

        # The core, and the door to it.
        settings = batch_settings(settings) if is_batch(job_graph) else settings
        takeover = start.takeover, start.takeover_cause
        self.core = core = JobMasterCore(
            job_graph, settings, clock, may_recover=checkpoint_store is not None and may_recover, takeover=takeover,
            first_attempt=attempts.first if attempts is not None else 0, events=start.events,
        )  # fmt: skip
        if start.submitted_ms:
            core.graph.submitted(start.submitted_ms)
        traces: JobTraces | None = None
        if tracing is not None:
            statistics = core.checkpoints.coordinator.statistics
            traces = JobTraces(
                tracing.export, core.graph, TraceContext.parse(start.trace), lambda: statistics.last_restored,
                [reporter.to_plain() for reporter in tracing.reporters],
            )  # fmt: skip
            statistics.on_end = traces.checkpoint_ended
        self.door = door = EventDoor(core, spawn_call, traces)

        # Whom it works with.
        self.dispatcher = DispatcherReporter(
            DispatcherGateway(rpc, start.dispatcher_address, start.dispatcher_token),
            self.job_id,
            token,
            clock,
            spawn_call,
        )
        self.notes = notes = HandoverNotes(attempts, door, self.dispatcher, spawn_call)
        registration = m.RegisterJobMaster(
            self.job_id, job_graph.name, address, token, _python(job_graph, start.blob_address),
            epoch=attempts.epoch if attempts is not None else 0,
            former_taskmanagers=attempts.former_taskmanagers if attempts is not None else None,
        )  # fmt: skip
        self.resourcemanager = JobMasterResourceManagerLink(
            leaders or FixedLeaders({}),
            start.resourcemanager_address,
            rpc,
            registration,
            settings,
            clock,
            spawn,
            spawn_call,
            lambda: door.handle(core.resourcemanager_connected, self.resourcemanager.ends_within),
            lambda cause: door.handle(core.resourcemanager_lost, cause),
            self.followed,
        )
        self.taskmanagers = TaskManagerLinks(
            self.job_id,
            settings,
            clock,
            rpc,
            token,
            spawn,
            lambda tm: (*core.allocations_at(tm), *notes.slots_held_back(tm)),  # a TaskManager frees its others
            lambda tm, report: door.handle(core.taskmanager_heartbeat, tm, report),
            lambda tm, cause, gone_for: door.handle(core.taskmanager_lost, tm, cause, gone_for),
        )
        self.checkpoint_work = WorkQueue(
            CheckpointWorker(
                self.job_id,
                lambda: settings.new_checkpoint_storage(self.job_id),
                checkpoint_store or MemoryCheckpointStore(),
                settings.savepoints,
            ),
            lambda done: door.handle(core.checkpoint_work_done, done),
            spawn_call,
            run_blocking or in_a_thread,
            self.dispatcher.end_is_stored,
            call_seconds(settings.checkpoints.timeout),
        )

        def blob_address() -> str:
            return self.start_message.blob_address

        lanes = SlotLanes(self.job_id, self.taskmanagers, spawn_call)
        door.performer = InstructionPerformer(
            door,
            notes,
            self.dispatcher,
            self.resourcemanager,
            self.taskmanagers,
            lanes,
            SlotCalls(door, self.taskmanagers, lanes, notes, token, blob_address, traces, meters),
            StageRunLink(door, token, self.resourcemanager, blob_address, spawn),
            self.checkpoint_work,
        )

    @property
    def is_orphan(self) -> bool:
        """Whether the job waits for slots, and nobody was reached for ``firesteel.jobmaster.orphan-timeout``."""
        return self.core.is_orphan(max(self.dispatcher.heard, self.resourcemanager.last_heard))

    @property
    def is_over(self) -> bool:
        """Whether the end of the job is stored, so that nobody needs its checkpoints any more, or who led it.

        An end that the Dispatcher did not take, since another JobMaster goes on, is none.
        """
        return self.dispatcher.is_end_stored and self.core.state.is_globally_terminal_state()

    async def checkpoints_closed(self) -> bool:
        """Wait until what has to go of the job's checkpoints is gone; that begins when the end is acknowledged.

        Returns whether it is; else it could not be removed.
        """
        while not self.core.checkpoints.is_settled:  # what may be in the store is dealt with first
            await asyncio.sleep(FIRST_PAUSE)
        await self.checkpoint_work.done()
        return not self.checkpoint_work.files_are_left

    # From its start to its end

    def start(self) -> None:
        self.door.handle(self.core.start)
        self._spawn(self._remind_dispatcher(), "state of the job")

    async def _remind_dispatcher(self) -> None:
        """Say the state again from time to time: a Dispatcher that had given the job up has it cancelled then."""
        while not (self.core.is_terminal or self.door.crashed.is_set()):
            await asyncio.sleep(self._interval)
            if not (self.core.is_terminal or self.door.crashed.is_set()):
                self.dispatcher.state(self.core.state.name, job_timestamps(self.core.graph))

    def suspend(self, cause: str) -> None:
        """The host stops: give the slots back, and wait for nobody who does not answer."""
        self.door.performer.hurry()
        self.door.handle(self.core.suspend, cause)

    def followed(self, cause: str) -> None:
        """Another JobMaster leads the job, as the high-availability services say."""
        self.door.handle(self.core.followed, cause)

    # Rows of the contract; those that only concern the core go straight there

    send_operator_events = _row(JobMasterGateway.send_operator_events, JobMasterCore.operator_events)
    end_of_data = _row(JobMasterGateway.end_of_data, JobMasterCore.end_of_data)
    decline_checkpoint = _row(JobMasterGateway.decline_checkpoint, JobMasterCore.decline_checkpoint)
    trigger_checkpoint = _row(JobMasterGateway.trigger_checkpoint, JobMasterCore.trigger_checkpoint)
    report_metrics = _row(JobMasterGateway.report_metrics, JobMasterCore.report_metrics)
    fail_slot = _row(JobMasterGateway.fail_slot, JobMasterCore.fail_slot)
    taskmanager_ended = _row(JobMasterGateway.taskmanager_ended, JobMasterCore.taskmanager_ended)
    notify_no_resources = _row(JobMasterGateway.notify_no_resources, JobMasterCore.notify_no_resources)
    notify_waiting = _row(JobMasterGateway.notify_waiting, JobMasterCore.notify_waiting)

    @answers(JobMasterGateway.offer_slots)
    def offer_slots(self, message: m.OfferSlots) -> m.AcceptedSlots:
        """A TaskManager offers slots; answers which of them the job takes."""
        none: tuple[str, ...] = ()
        accepted = self.door.ask(self.core.offer_slots, none, message)
        self.taskmanagers.alive(message.taskmanager_id)
        return m.AcceptedSlots(accepted)

    @answers(JobMasterGateway.update_task_states)
    def update_task_states(self, message: m.UpdateTaskStates) -> None:
        """A TaskManager, which is alive, reports states of tasks."""
        self.taskmanagers.alive(message.taskmanager_id)
        self.door.handle(self.core.update_task_states, message)

    @answers(JobMasterGateway.request_splits)
    def request_splits(self, message: m.RequestSplits) -> m.Splits:
        """A source subtask asks for splits; answers with some, or with none for now."""
        return self.door.ask(self.core.request_splits, m.Splits((), False), message)

    @answers(JobMasterGateway.report_watermark)
    def report_watermark(self, message: ReportWatermark) -> GroupWatermark:
        """A source subtask reports its watermark; answers with that of its alignment group."""
        return self.core.report_watermark(message)

    @answers(JobMasterGateway.acknowledge_checkpoints)
    def acknowledge_checkpoints(self, message: m.AcknowledgeCheckpoints) -> None:
        """Tasks have written their state; each of their acknowledgements is an event of its own."""
        for acknowledgement in message.acknowledgements:
            try:
                self.door.handle(self.core.acknowledge_checkpoint, acknowledgement)
            except RpcFault as error:  # of an attempt that is forgotten; the others count
                logger.info("an acknowledgement is ignored: %s", error)

    @answers(JobMasterGateway.trigger_savepoint)
    def trigger_savepoint(self, message: m.TriggerJobSavepoint) -> None:
        """A user wants a savepoint, or to stop the job with one.

        Raises:
            RpcFault: neither the message nor the settings name a directory for it.
        """
        target = message.target_directory or self.core.checkpoints.settings.savepoint_directory
        if not target:
            raise RpcFault(
                RpcCode.BAD_REQUEST,
                f"Config key [{options.SAVEPOINT_DIRECTORY.key}] is not set. Property [target-directory] must be "
                "provided: the directory of the savepoint, which all hosts see",
            )
        savepoint = SavepointTarget(target, message.format, message.stop)
        self.door.handle(self.core.trigger_savepoint, message.trigger_id, savepoint, message.by)

    @answers(JobMasterGateway.cancel)
    def cancel(self, message: m.CancelJob) -> None:
        """The user of the job cancels it."""
        self.door.handle(self.core.cancel, "cancelled by its user", message.by)

    @answers(JobMasterGateway.adopt)
    def adopt(self, message: m.AdoptJob) -> None:
        """Another Dispatcher leads: reports go to it from now on, and it hears where the job stands.

        Raises:
            FencedError: a later Dispatcher has adopted the job.
        """
        former = self.start_message
        if message.dispatcher_term < former.dispatcher_term:
            raise FencedError(f"a later Dispatcher than {message.dispatcher_address} leads job {self.job_id}")
        blobs = former.blob_address  # where the Dispatcher has served them, the next one does
        self.start_message = replace(
            former,
            dispatcher_address=message.dispatcher_address,
            dispatcher_token=message.dispatcher_token,
            dispatcher_term=message.dispatcher_term,
            blob_address=message.dispatcher_address if blobs == former.dispatcher_address else blobs,
        )
        logger.info("the Dispatcher at %s adopts job %s", message.dispatcher_address, self.job_id)
        self.dispatcher.adopt(self.dispatcher.gateway.at(message.dispatcher_address, message.dispatcher_token))
        self.door.handle(self.core.adopted)
        self.on_adopted()

    @answers(JobMasterGateway.details)
    async def details(self, message: m.LookAtJob) -> m.JobDetails:
        """The job as people see it."""
        return m.JobDetails(await in_slices(self.core.look(message.vertices)))

    @answers(JobMasterGateway.collect)
    async def collect(self, message: m.CollectFromJob) -> m.CollectedFromJob:
        """The client asks for results of a collect operator; answers when there are some, or after a while."""
        if self.core.is_batch:
            return await self._give(message)
        return await collect(self.core, message, self.taskmanagers.gateway, lambda: self.door.changed)

    async def _give(self, message: m.CollectFromJob) -> m.CollectedFromJob:
        """Results of a bounded job, which are there when it has succeeded."""
        deadline = asyncio.get_running_loop().time() + min(max(message.wait_ms, 0), LONGEST_WAIT_MS) / 1000
        while True:
            changed = self.door.changed
            results = self.door.ask(self.core.give, None, message.operator_id, message.offset)
            remaining = deadline - asyncio.get_running_loop().time()
            if results is not None or remaining <= 0 or self.door.crashed.is_set():
                return results or m.CollectedFromJob(message.offset, 0, False, "", self.core.state.name)
            try:
                await asyncio.wait_for(changed.wait(), remaining)
            except TimeoutError:
                pass


def _python(job_graph: JobGraph, blob_address: str) -> dict[str, Any]:
    """What TaskManagers need to prepare Python for the job's slots; empty: the job has no Python of its own."""
    if not job_graph.python_environment:
        return {}
    timeout = Settings(dict(job_graph.config), "job").get(PYTHON_ENVIRONMENT_TIMEOUT).total_seconds()
    return {**job_graph.python_environment, "blob_address": blob_address, "timeout_seconds": timeout}
