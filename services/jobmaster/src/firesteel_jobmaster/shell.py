"""One JobMaster: does what its core decides, and brings it what happened."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ParamSpec, TypeVar

from firesteel.checkpoint.store import CompletedCheckpointStore, MemoryCheckpointStore
from firesteel.config import Settings, options
from firesteel.config.options import PYTHON_ENVIRONMENT_TIMEOUT
from firesteel.core.backoff import pauses
from firesteel.core.clock import Clock
from firesteel.core.errors import FencedError, PeerUnreachableError, ProtocolError, RpcError
from firesteel.graph.bounded import is_batch
from firesteel.graph.job_archive import job_timestamps
from firesteel.graph.job_graph import JobGraph
from firesteel.ha.retrieval import Attempts, FixedLeaders, LeaderRetrieval
from firesteel.protocol import messages as m
from firesteel.protocol.alignment import GroupWatermark, ReportWatermark
from firesteel.protocol.deployment import Deployment
from firesteel.protocol.gateways import DispatcherGateway, JobMasterGateway, TaskManagerGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.protocol.method import Method, Request
from firesteel.protocol.split_messages import OperatorEvents
from firesteel.rpc import RpcClient, answers
from firesteel.service.background import first_of, in_slices
from firesteel.service.lanes import Calls, Spawn
from firesteel.service.logs import log_fields
from firesteel.service.output_queue import OutputQueue
from firesteel.service.retries import FIRST_PAUSE, Failure, repeated
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
from firesteel_jobmaster.handover import JobAttempts
from firesteel_jobmaster.resourcemanager import ResourceManagerLink
from firesteel_jobmaster.settings import JobMasterSettings
from firesteel_jobmaster.stage_run_link import StageRunLink
from firesteel_jobmaster.taskmanagers import TaskManagerLinks, Together
from firesteel_jobmaster.traces import JobTraces

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
PERFORMED_AT_ONCE = 200
"""Instructions that are carried out in one slice."""
PACKED_AT_ONCE = 200
"""Slots up to which a placement is packed on the event loop."""
LONGEST_SUBMIT_DELAY = 5.0
"""Seconds between two tries to submit tasks."""
_STDOUT, _STDERR = OutputQueue("stdout"), OutputQueue("stderr")


def _row(
    row: Method[Request, None], event: Callable[[JobMasterCore, Request], list[do.Instruction]]
) -> Callable[[JobMaster, Request], None]:
    """A row of the contract is an event of the core: it is answered when the core has dealt with the message."""

    @answers(row)
    def answer(jobmaster: JobMaster, message: Request) -> None:
        if not jobmaster.crashed.is_set():
            with jobmaster._door(event.__name__) as decided:
                decided += event(jobmaster.core, message)

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
        settings = batch_settings(settings) if is_batch(job_graph) else settings
        worker = CheckpointWorker(
            self.job_id,
            lambda: settings.new_checkpoint_storage(self.job_id),
            checkpoint_store or MemoryCheckpointStore(),
            settings.savepoints,
        )
        self._checkpoint_work = WorkQueue(
            worker,
            lambda done: self.handle(self.core.checkpoint_work_done, done),
            spawn_call,
            run_blocking or in_a_thread,
            self._end_is_stored,
            call_seconds(settings.checkpoints.timeout),
        )
        takeover = start.takeover, start.takeover_cause
        self.core = JobMasterCore(
            job_graph, settings, clock, may_recover=checkpoint_store is not None and may_recover, takeover=takeover,
            first_attempt=attempts.first if attempts is not None else 0,
        )  # fmt: skip
        if start.submitted_ms:
            self.core.graph.submitted(start.submitted_ms)
        self._meters = list(meters)
        self._traces: JobTraces | None = None
        self._trace_reporters: list[dict[str, Any]] = []
        if tracing is not None:
            statistics = self.core.checkpoints.coordinator.statistics
            self._traces = JobTraces(
                tracing.export, self.core.graph, TraceContext.parse(start.trace), lambda: statistics.last_restored
            )
            statistics.on_end = self._traces.checkpoint_ended
            self._trace_reporters = [reporter.to_plain() for reporter in tracing.reporters]
        self._attempts, self._notes = attempts, Calls("records of the job", spawn_call)
        self._after_record: list[do.Instruction] | None = None
        """What frees slots waits here while the end of the job is being recorded; None: nothing has to wait."""
        self._record_begun = False
        self._hurried = asyncio.Event()
        self.start_message = start
        """As a host would have to be told now: with the Dispatcher that leads."""
        self.on_adopted: Callable[[], None] = lambda: None
        """Called when ``start_message`` has changed."""
        self.followed_by_another = asyncio.Event()
        """Another JobMaster leads the job: this one has nothing to do any more."""
        self.crashed = asyncio.Event()
        """An exception that nobody expected has stopped it: another one has to take over (``crash_cause``)."""
        self.crash_cause = ""
        self._rpc, self._spawn, self._spawn_call, self._interval = rpc, spawn, spawn_call, settings.heartbeat_interval
        self._changed = asyncio.Event()
        self._waiting: deque[tuple[do.Instruction, str]] = deque()
        """Instructions, and what they came from."""
        self._is_performing = False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        dispatcher = DispatcherGateway(rpc, start.dispatcher_address, start.dispatcher_token)
        self._dispatcher = DispatcherReporter(dispatcher, self.job_id, token, clock, spawn_call)
        registration = m.RegisterJobMaster(
            self.job_id, job_graph.name, address, token, _python(job_graph, start.blob_address),
            epoch=attempts.epoch if attempts is not None else 0,
            former_taskmanagers=attempts.former_taskmanagers if attempts is not None else None,
        )  # fmt: skip
        self._resourcemanager = ResourceManagerLink(
            leaders or FixedLeaders({}),
            start.resourcemanager_address,
            rpc,
            registration,
            settings,
            clock,
            spawn,
            spawn_call,
            lambda: self.handle(self.core.resourcemanager_connected, self._resourcemanager.ends_within),
            lambda cause: self.handle(self.core.resourcemanager_lost, cause),
            self.followed,
        )
        self._stages = StageRunLink(self, self._resourcemanager, lambda: self.start_message.blob_address, spawn)
        self._taskmanagers = TaskManagerLinks(
            self.job_id,
            settings,
            clock,
            rpc,
            token,
            spawn,
            spawn_call,
            self._allocations_at,
            lambda tm, report: self.handle(self.core.taskmanager_heartbeat, tm, report),
            lambda tm, cause, gone_for: self.handle(self.core.taskmanager_lost, tm, cause, gone_for),
        )

    @property
    def acknowledged(self) -> asyncio.Event:
        """Set when the Dispatcher knows that the job has ended."""
        return self._dispatcher.acknowledged

    async def _end_is_stored(self) -> bool:
        await self.acknowledged.wait()
        return self._dispatcher.is_end_stored

    @property
    def is_orphan(self) -> bool:
        """Whether it waits for slots, and has reached nobody for ``firesteel.jobmaster.orphan-timeout``."""
        return self.core.is_orphan(max(self._dispatcher.heard, self._resourcemanager.last_heard))

    @property
    def is_over(self) -> bool:
        """Whether the end of the job is stored, so that nobody needs its checkpoints any more, or who led it.

        An end that the Dispatcher did not take, since another JobMaster goes on, is none.
        """
        return self._dispatcher.is_end_stored and self.core.state.is_globally_terminal_state()

    async def end_recorded(self) -> None:
        """Wait until the end of the job is in its record, or is not written there any more."""
        await self._notes.done()

    async def checkpoints_closed(self) -> bool:
        """Wait until what has to go of the job's checkpoints is gone; that begins when the end is acknowledged.

        Returns whether it is; else it could not be removed.
        """
        while not self.core.checkpoints.is_settled:  # what may be in the store is dealt with first
            await asyncio.sleep(FIRST_PAUSE)
        await self._checkpoint_work.done()
        return not self._checkpoint_work.files_are_left

    # Events

    def start(self) -> None:
        self.handle(self.core.start)
        self._spawn(self._remind_dispatcher(), "state of the job")

    async def _remind_dispatcher(self) -> None:
        """Say the state again from time to time: a Dispatcher that had given the job up has it cancelled then."""
        while not (self.core.is_terminal or self.crashed.is_set()):
            await asyncio.sleep(self._interval)
            if not (self.core.is_terminal or self.crashed.is_set()):
                self._dispatcher.state(self.core.state.name, job_timestamps(self.core.graph))

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
        """See ``JobMasterGateway``."""
        none: tuple[str, ...] = ()
        accepted = self.ask(self.core.offer_slots, none, message)
        self._taskmanagers.alive(message.taskmanager_id)
        return m.AcceptedSlots(accepted)

    @answers(JobMasterGateway.update_task_states)
    def update_task_states(self, message: m.UpdateTaskStates) -> None:
        """See ``JobMasterGateway``."""
        self._taskmanagers.alive(message.taskmanager_id)
        self.handle(self.core.update_task_states, message)

    @answers(JobMasterGateway.request_splits)
    def request_splits(self, message: m.RequestSplits) -> m.Splits:
        """See ``JobMasterGateway``."""
        return self.ask(self.core.request_splits, m.Splits((), False), message)

    @answers(JobMasterGateway.report_watermark)
    def report_watermark(self, message: ReportWatermark) -> GroupWatermark:
        """See ``JobMasterGateway``."""
        return self.core.report_watermark(message)

    @answers(JobMasterGateway.acknowledge_checkpoints)
    def acknowledge_checkpoints(self, message: m.AcknowledgeCheckpoints) -> None:
        """See ``JobMasterGateway``."""
        for acknowledgement in message.acknowledgements:
            try:
                self.handle(self.core.acknowledge_checkpoint, acknowledgement)
            except RpcFault as error:  # of an attempt that is forgotten; the others count
                logger.info("an acknowledgement is ignored: %s", error)

    @answers(JobMasterGateway.trigger_savepoint)
    def trigger_savepoint(self, message: m.TriggerJobSavepoint) -> None:
        """See ``JobMasterGateway``.

        Raises:
            RpcFault: there is no directory for it.
        """
        target = message.target_directory or self.core.checkpoints.settings.savepoint_directory
        if not target:
            raise RpcFault(
                RpcCode.BAD_REQUEST,
                f"Config key [{options.SAVEPOINT_DIRECTORY.key}] is not set. Property [target-directory] must be "
                "provided: the directory of the savepoint, which all hosts see",
            )
        savepoint = SavepointTarget(target, message.format, message.stop)
        self.handle(self.core.trigger_savepoint, message.trigger_id, savepoint)

    @answers(JobMasterGateway.cancel)
    def cancel(self, _: m.Empty) -> None:
        """See ``JobMasterGateway``."""
        self.handle(self.core.cancel, "cancelled by its user")

    @answers(JobMasterGateway.adopt)
    def adopt(self, message: m.AdoptJob) -> None:
        """See ``JobMasterGateway``.

        Raises:
            FencedError: a later Dispatcher has adopted the job.
        """
        before = self.start_message
        if message.dispatcher_term < before.dispatcher_term:
            raise FencedError(f"a later Dispatcher than {message.dispatcher_address} leads job {self.job_id}")
        blobs = before.blob_address  # where they came with the Dispatcher, they come from the next one
        self.start_message = replace(
            before,
            dispatcher_address=message.dispatcher_address,
            dispatcher_token=message.dispatcher_token,
            dispatcher_term=message.dispatcher_term,
            blob_address=message.dispatcher_address if blobs == before.dispatcher_address else blobs,
        )
        logger.info("the Dispatcher at %s adopts job %s", message.dispatcher_address, self.job_id)
        self._dispatcher.adopt(DispatcherGateway(self._rpc, message.dispatcher_address, message.dispatcher_token))
        self.handle(self.core.adopted)
        self.on_adopted()

    def suspend(self, cause: str) -> None:
        """The host stops: give the slots back, and wait for nobody who does not answer."""
        self._hurried.set()
        self._dispatcher.hurry()
        self._resourcemanager.hurry()
        self._taskmanagers.hurry()
        self.handle(self.core.suspend, cause)

    def followed(self, cause: str) -> None:
        """Another JobMaster leads the job, as the high-availability services say."""
        self.handle(self.core.followed, cause)

    def timer(self, name: str) -> None:
        """A timer is up."""
        self._timers.pop(name, None)
        self.handle(self.core.timer_fired, name)

    @answers(JobMasterGateway.details)
    async def details(self, message: m.LookAtJob) -> m.JobDetails:
        """See ``JobMasterGateway``."""
        return m.JobDetails(await in_slices(self.core.look(message.vertices)))

    @answers(JobMasterGateway.collect)
    async def collect(self, message: m.CollectFromJob) -> m.CollectedFromJob:
        """See ``JobMasterGateway``."""
        if self.core.is_batch:
            return await self._give(message)
        return await collect(self.core, message, self._taskmanagers.gateway, lambda: self._changed)

    async def _give(self, message: m.CollectFromJob) -> m.CollectedFromJob:
        """Results of a bounded job: they are there when it has succeeded."""
        deadline = asyncio.get_running_loop().time() + min(max(message.wait_ms, 0), LONGEST_WAIT_MS) / 1000
        while True:
            changed = self._changed
            results = self.ask(self.core.give, None, message.operator_id, message.offset)
            left = deadline - asyncio.get_running_loop().time()
            if results is not None or left <= 0 or self.crashed.is_set():
                return results or m.CollectedFromJob(message.offset, 0, False, "", self.core.state.name)
            try:
                await asyncio.wait_for(changed.wait(), left)
            except TimeoutError:
                pass

    # The door

    def handle(self, decide: Callable[P, list[do.Instruction]], *args: P.args, **kwargs: P.kwargs) -> None:
        """Have the core deal with an event, and do what it decides.

        Raises:
            ProtocolError, RpcFault: the message makes no sense; its sender has to hear of it.
        """
        if not self.crashed.is_set():  # the next JobMaster begins where everybody is known to be
            with self._door(decide.__name__) as decided:
                decided += decide(*args, **kwargs)

    def ask(
        self, decide: Callable[P, tuple[T, list[do.Instruction]]], otherwise: T, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As ``handle``, with the core's answer; ``otherwise``: what this JobMaster answers when it has crashed."""
        answer = otherwise
        if not self.crashed.is_set():
            with self._door(decide.__name__) as decided:
                answer, instructions = decide(*args, **kwargs)
                decided += instructions
        return otherwise if self.crashed.is_set() else answer

    @contextmanager
    def _door(self, event: str) -> Iterator[list[do.Instruction]]:
        """The core decides within; behind it, what it has decided is done.

        Args:
            event: its name, for people.
        """
        decided: list[do.Instruction] = []
        with log_fields(job=self.job_id):
            try:
                yield decided
            except (ProtocolError, RpcFault):  # a malformed message, or nobody's: its sender hears of it
                raise
            except Exception as error:
                self._crash(f"handling {event}", error)
                return
            self._waiting.extend((instruction, event) for instruction in decided)
            if not self._is_performing:
                self._perform_some()
                if self._waiting:
                    self._is_performing = self._spawn_call(self._perform_others(), "instructions") is not None
                while self._waiting and not self._is_performing:  # the host stops
                    self._perform_some()
        if self.crashed.is_set():
            return
        if self._traces is not None:
            self._traces.look()
        if self.core.is_followed:
            self.followed_by_another.set()
        self._changed.set()
        self._changed = asyncio.Event()

    def _perform_some(self) -> None:
        """Carry out what stands first, in the order in which it was decided."""
        for _ in range(PERFORMED_AT_ONCE):
            if not self._waiting:
                return
            instruction, doing = self._waiting.popleft()
            try:
                self._perform(instruction)
            except Exception as error:
                self._crash(f"carrying out {type(instruction).__name__} after {doing}", error)

    async def _perform_others(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(0)
                with log_fields(job=self.job_id):
                    self._perform_some()
        finally:
            self._is_performing = False

    def _crash(self, doing: str, error: Exception) -> None:
        """A fault of ours: what this one believes is not known to be true any more, so that another has to take over.

        It does nothing further, and above all it does not end the job.
        """
        logger.critical("the JobMaster fails while %s", doing, exc_info=error)
        logger.error("its last events were:\n%s", "\n".join(self.core.stimuli.lines()))
        self.crash_cause = f"failed while {doing}: {type(error).__qualname__}: {error}"
        self._waiting.clear()
        for name in list(self._timers):
            self._clear_timer(name)
        self._taskmanagers.close()
        self._taskmanagers.hurry()
        self._dispatcher.silence()
        self.crashed.set()
        self._changed.set()

    def give_up(self) -> None:
        """It has crashed, and its process goes on: the slots go back, for the one that follows."""
        self._resourcemanager.disconnect()

    # Instructions

    def _perform(self, instruction: do.Instruction) -> None:
        if self._after_record is not None and isinstance(instruction, do.ReleaseSlot | do.DisconnectResourceManager):
            self._after_record.append(instruction)
            return
        match instruction:
            case do.ConnectResourceManager():
                self._resourcemanager.connect()
            case do.DeclareSlots(count, returned, most):
                self._resourcemanager.declare(count, returned, most)
            case do.DisconnectResourceManager():
                self._taskmanagers.close()
                self._resourcemanager.disconnect()
            case do.WatchTaskManager(taskmanager_id, address):
                self._taskmanagers.watch(taskmanager_id, address)
            case do.ForgetTaskManager(taskmanager_id):
                self._taskmanagers.forget(taskmanager_id)
            case do.CheckTaskManagers():
                self._taskmanagers.check_all()
            case do.ReportJobState(state, timestamps):
                self._dispatcher.state(state, timestamps)
            case do.ReportEnd():
                self._report_end()
            case do.GoOn():
                asyncio.get_running_loop().call_soon(self.handle, self.core.go_on)
            case do.CheckpointWork(work):
                self._checkpoint_work.add(work)
            case do.StartStageRun():
                self._stages.run(instruction)
            case do.DropStages(run_id):
                self._stages.drop(run_id)
            case do.WriteOutput(text, is_error):
                (_STDERR if is_error else _STDOUT).write(text)
            case do.NoteAttempts(first_unused, taskmanagers):
                if self._attempts is not None:
                    note, attempts = self._attempts.note, Attempts(first_unused, taskmanagers)
                    self._notes.add(lambda: self._note(lambda: note(attempts)))
            case do.SetTimer(name, seconds):
                self._set_timer(name, seconds)
            case do.ClearTimer(name):
                self._clear_timer(name)
            case _:
                self._call_slot(instruction)

    def _call_slot(self, instruction: do.Instruction) -> None:
        call = self._taskmanagers.call
        match instruction:
            case do.SubmitSlot(tm, allocation, deployment):
                submit = self._submit
                call(tm, allocation, "submit", lambda gateway: submit(tm, gateway, allocation, deployment), once=True)
            case do.CancelSlotTasks(tm, allocation, ids):
                self._call_together(
                    tm,
                    allocation,
                    ids,
                    "cancel",
                    lambda gateway, tasks: gateway.cancel_tasks(
                        m.CancelTasks(self.job_id, tuple(id_ for some in tasks.values() for id_ in some))
                    ),
                )
            case do.PushSplits(tm, allocation, execution_id, given):
                assign = m.AssignSplits(
                    execution_id, given.splits, given.no_more, given.serial, self.job_id, allocation
                )
                call(
                    tm,
                    allocation,
                    "assign splits",
                    lambda gateway: gateway.assign_splits(assign),
                    failed=lambda: self.handle(self.core.splits_lost, execution_id),
                )
            case do.SendOperatorEvents(tm, allocation, execution_id, number, events):
                say = OperatorEvents(execution_id, number, events, self.job_id, allocation)
                call(
                    tm,
                    allocation,
                    "operator events",
                    lambda gateway: gateway.send_operator_events(say),
                    failed=lambda: self.handle(self.core.operator_events_lost, execution_id),
                )
            case do.SendTriggerCheckpoint(tm, allocation, ids, checkpoint, timestamp_ms, options):
                self._call_together(
                    tm,
                    allocation,
                    ids,
                    f"trigger checkpoint {checkpoint} {dict(options)}",
                    lambda gateway, tasks: gateway.trigger_checkpoint(
                        m.TriggerCheckpoint(self.job_id, tasks, checkpoint, timestamp_ms, options)
                    ),
                    failed=lambda: self.handle(self.core.checkpoint_not_triggered, ids, checkpoint),
                )
            case do.NotifyCheckpointComplete(tm, allocation, ids, checkpoint):
                self._call_together(
                    tm,
                    allocation,
                    ids,
                    f"checkpoint {checkpoint} is complete",
                    lambda gateway, tasks: gateway.notify_checkpoint_complete(
                        m.NotifyCheckpoint(self.job_id, tasks, checkpoint)
                    ),
                )
            case do.NotifyCheckpointAborted(tm, allocation, ids, checkpoint):
                self._call_together(
                    tm,
                    allocation,
                    ids,
                    f"checkpoint {checkpoint} is aborted",
                    lambda gateway, tasks: gateway.notify_checkpoint_aborted(
                        m.NotifyCheckpoint(self.job_id, tasks, checkpoint)
                    ),
                )
            case do.ReleaseSlot(tm, allocation, cause, last_checkpoint):
                free = m.FreeSlot(allocation, cause, last_checkpoint)
                call(tm, allocation, "free", lambda gateway: gateway.free_slot(free))
            case _:
                raise AssertionError(instruction)

    def _call_together(
        self,
        taskmanager_id: str,
        allocation_id: str,
        execution_ids: tuple[str, ...],
        order: str,
        send: Together,
        *,
        failed: Callable[[], None] | None = None,
    ) -> None:
        """Say to tasks of a slot what others of that TaskManager are told, too; ``order`` tells what it is."""
        links = self._taskmanagers
        links.call(
            taskmanager_id,
            allocation_id,
            order,
            lambda gateway: links.together(gateway, taskmanager_id, allocation_id, execution_ids, order, send),
            failed=failed,
        )

    async def _note(self, note: Callable[[], None]) -> None:
        """Remember attempts for the next JobMaster; until that is done none of them runs."""
        for delay in pauses(FIRST_PAUSE, LONGEST_SUBMIT_DELAY):
            if self.core.is_terminal:
                return
            try:
                await in_a_thread(note)
                return
            except FencedError as error:
                self.followed(str(error))
                return
            except Exception as error:  # high-availability services are plug-ins
                logger.error("numbers of attempts can't be stored, next try in %g s: %s", delay, error)
            await asyncio.sleep(delay)

    async def _submit(
        self, taskmanager_id: str, gateway: TaskManagerGateway, allocation: str, deployment: Deployment
    ) -> None:
        """Have tasks run; said again while the answer may be lost: who has taken them takes them once."""
        trace = {} if self._traces is None else self._traces.for_slots(self._trace_reporters)
        if self._meters:
            trace["metrics"] = self._meters
        await self._notes.done()  # a JobMaster that follows must not use the same numbers
        placement = deployment.placement
        if len(placement.peers) > PACKED_AT_ONCE:
            await in_a_thread(lambda: placement.id)
        if self.core.is_terminal:
            return
        ids = [task.execution_id for task in deployment.tasks]
        plain = {**deployment.to_plain(), "placement": placement.id, "trace": trace}
        message = m.SubmitTasks(self.job_id, allocation, self.token, plain, self.start_message.blob_address)

        async def submit() -> None:
            await self._taskmanagers.share_placement(taskmanager_id, gateway, placement)
            await gateway.submit_tasks(message)

        def goes_on(error: Failure) -> bool:
            if isinstance(error, RpcFault) and error.code is RpcCode.UNKNOWN_PLACEMENT:
                self._taskmanagers.placement_forgotten(taskmanager_id)
            elif isinstance(error, PeerUnreachableError):
                self._taskmanagers.check(taskmanager_id)
            else:
                return False
            logger.warning("submit: %s", error)
            return self._taskmanagers.is_watched(taskmanager_id) and self.core.awaits_submit(ids)

        waits = pauses(FIRST_PAUSE, LONGEST_SUBMIT_DELAY)
        try:
            await repeated(submit, goes_on, waits)
        except RpcError as error:
            self.handle(self.core.submit_failed, allocation, ids, str(error))
        else:
            self.handle(self.core.tasks_submitted, ids)

    def _report_end(self) -> None:
        if not self._record_begun and self._attempts is not None and self._attempts.record_end is not None:
            self._after_record = []
        look = self.core.look()
        try:
            next(look)
        except StopIteration as end:
            self._ended(end.value)
        else:
            self._spawn_call(self._report_large_end(look), "end of the job")

    async def _report_large_end(self, look: Generator[None, None, dict[str, Any]]) -> None:
        try:
            archive = await in_slices(look)
        except Exception as error:
            self._crash("looking at the end of the job", error)
        else:
            if not self.crashed.is_set():
                self._ended(archive)

    def _ended(self, archive: Mapping[str, Any]) -> None:
        """The job has ended: its record and the Dispatcher say so side by side, and then its slots go.

        The record is for the case that no Dispatcher is up: a job without checkpoints would run again from its first
        record otherwise, as soon as this process has gone.
        """
        self._dispatcher.end(archive)
        if self._after_record is not None and not self._record_begun:
            self._record_begun = True
            if self._spawn_call(self._let_go_after_record(archive), "record of the end") is None:  # the host stops
                self._let_go()

    async def _let_go_after_record(self, archive: Mapping[str, Any]) -> None:
        self._notes.add(lambda: self._record_end(archive))
        await first_of(self._notes.done(), self.acknowledged.wait(), self._hurried.wait(), self.crashed.wait())
        self._let_go()

    def _let_go(self) -> None:
        held_back, self._after_record = self._after_record or [], None
        if not self.crashed.is_set():
            self._waiting.extendleft((instruction, "the end of the job") for instruction in reversed(held_back))
            with self._door("the record of the end"):
                pass  # what was held back is done

    async def _record_end(self, archive: Mapping[str, Any]) -> None:
        """Write the end into the job's record, until that works, or the Dispatcher has stored it."""
        assert self._attempts is not None
        record_end = self._attempts.record_end
        assert record_end is not None
        for delay in pauses(FIRST_PAUSE, LONGEST_SUBMIT_DELAY):
            if self.acknowledged.is_set() or self._hurried.is_set() or self.crashed.is_set():
                return
            try:
                await in_a_thread(partial(record_end, archive))
                return
            except FencedError as error:
                if not self.acknowledged.is_set():
                    self.followed(str(error))
                return
            except Exception as error:  # high-availability services are plug-ins
                logger.error("the end of the job can't be recorded, next try in %g s: %s", delay, error)
            await first_of(asyncio.sleep(delay), self.acknowledged.wait(), self._hurried.wait(), self.crashed.wait())

    def _allocations_at(self, taskmanager_id: str) -> tuple[str, ...]:
        """Slots of a TaskManager that the job has; it frees the others."""
        held_back = (one for one in self._after_record or () if isinstance(one, do.ReleaseSlot))
        released = tuple(one.allocation_id for one in held_back if one.taskmanager_id == taskmanager_id)
        return (*self.core.allocations_at(taskmanager_id), *released)

    def _set_timer(self, name: str, seconds: float) -> None:
        self._clear_timer(name)
        self._timers[name] = asyncio.get_running_loop().call_later(seconds, self.timer, name)

    def _clear_timer(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


def _python(job_graph: JobGraph, blob_address: str) -> dict[str, Any]:
    """What TaskManagers have to know to prepare Python for the job's slots."""
    if not job_graph.python_environment:
        return {}
    timeout = Settings(dict(job_graph.config), "job").get(PYTHON_ENVIRONMENT_TIMEOUT).total_seconds()
    return {**job_graph.python_environment, "blob_address": blob_address, "timeout_seconds": timeout}
