"""Builds the tasks of a deployment: loads their chains, connects their channels, and decides on which loop they run."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import BinaryIO

from firesteel.checkpoint.assign import TaskRestore
from firesteel.checkpoint.handles import InlineState, StateHandle
from firesteel.checkpoint.local_copies import LocalCopies
from firesteel.checkpoint.savepoint_places import savepoint_directory
from firesteel.checkpoint.savepoints import SavepointDirectory
from firesteel.checkpoint.storage import (
    CheckpointStorage,
    StateWriter,
    StorageParameters,
    load_checkpoint_storage,
    storage_name,
)
from firesteel.config import Settings
from firesteel.config.options import (
    BATCH_MAX_COLUMNAR_RECORDS,
    BATCH_MAX_RECORDS,
    CHECKPOINTING_AFTER_TASKS_FINISH,
    CHECKPOINTING_DIRECTORY,
    CHECKPOINTING_INCREMENTAL,
    CHECKPOINTING_INLINE_THRESHOLD,
    CHECKPOINTING_INTERVAL,
    CHECKPOINTING_LOCAL_BACKUP,
    CHECKPOINTING_MAX_DELTA_RATIO,
    CHECKPOINTING_UNALIGNED,
    HOT_KEYS,
    METRICS_LATENCY_HISTORY_SIZE,
    METRICS_LATENCY_INTERVAL,
    METRICS_MAX_PER_TASK,
    PIPELINE_AUTO_WATERMARK_INTERVAL,
    PIPELINE_GLOBAL_JOB_PARAMETERS,
    STATE_BACKEND,
    STATE_RECOVERY_FROM_LOCAL,
)
from firesteel.core.errors import ConfigurationError
from firesteel.graph.physical import downstream_channels, upstream_channels
from firesteel.graph.specs import OperatorKind, PartitionerKind
from firesteel.protocol.deployment import Deployment, EdgeDescriptor, TaskDescriptor
from firesteel.protocol.operator_events import Event
from firesteel.runtime.chain.chain import ChainPlan
from firesteel.runtime.chain.hot_keys import masked
from firesteel.runtime.chain.partitioners import Output, create_output
from firesteel.runtime.checkpoints.background import Apart, at_once
from firesteel.runtime.checkpoints.in_flight import must_align, partitioners
from firesteel.runtime.checkpoints.restore import open_inline
from firesteel.runtime.checkpoints.task_checkpoints import CheckpointServices
from firesteel.runtime.checkpoints.uploads import OpenStream, Submit
from firesteel.runtime.exchange import Exchange, InputChannel, OutputChannel
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.loop.metrics import MetricRegistry
from firesteel.runtime.loop.thread import TaskThread
from firesteel.runtime.operator_base.context import OperatorContext, TaskInfo, TaskRuntimeContext
from firesteel.runtime.operators import EnumeratorOperator
from firesteel.runtime.slot.user_code import load_chain, read_blob
from firesteel.runtime.sources.enumerator_input import EnumeratorInput
from firesteel.runtime.sources.source_input import SourceInput
from firesteel.runtime.sources.source_time import SourceTime
from firesteel.runtime.task.bridge import BridgedInput, BridgedOutput
from firesteel.runtime.task.channel_inputs import ChannelInputs
from firesteel.runtime.task.latencies import LatencyTracker
from firesteel.runtime.task.parts import TaskInput, TaskReporter
from firesteel.runtime.task.task import StreamTask
from firesteel.state.attempt_directories import attempt_name, remove_abandoned
from firesteel.state.backend import load_state_backend


@dataclass
class SlotServices:
    """The services of a slot that its tasks use.

    Attributes:
        exchange: hands out channels to other slots.
        loop: main loop of the slot.
        guard: interrupt guard of the main thread.
        reporter: gets states and acknowledgements of tasks.
        temporary_files: notes that a sink has created or removed a temporary file; called with (path, add).
        kept_files: notes that a temporary file belongs to a checkpoint; called with (path, checkpoint id).
        write_stdout: writes to the standard output of the program.
        stdout_writable: tells whether that takes more without waiting.
        request_splits: requests splits for a source; called with the execution id.
        report_watermark: reports for watermark alignment; called with the execution id, group and watermark.
        submit_upload: runs work on the thread that writes state.
        apart: runs the restore of a task in a thread that may wait.
        operator_events: sends decisions of a user's enumerator; called with the execution id, a number, and events.
    """

    exchange: Exchange
    loop: TaskLoop
    guard: InterruptGuard
    reporter: TaskReporter
    temporary_files: Callable[[str, bool], None]
    kept_files: Callable[[str, int], None]
    write_stdout: Callable[[str], None]
    stdout_writable: Callable[[], bool]
    request_splits: Callable[[str], None]
    report_watermark: Callable[[str, str, int], None] = lambda execution_id, group, watermark: None
    submit_upload: Submit = lambda work: work()
    apart: Apart = at_once
    operator_events: Callable[[str, int, Sequence[Event]], None] = lambda execution_id, number, events: None


@dataclass
class RunningTask:
    """A task, and the parts of it that the slot reaches.

    Attributes:
        task: the task.
        token: its cancel token.
        guard: interrupt guard of the thread on which it runs.
        thread: its own thread; None = it runs on the main loop.
        peers: allocation ids of the slots with which it exchanges records.
        source: its input, if it reads a source.
        enumerator: its input, if it runs a user's enumerator.
    """

    task: StreamTask
    token: CancelToken
    guard: InterruptGuard
    thread: TaskThread | None
    peers: frozenset[str] = frozenset()
    source: SourceInput | None = None
    enumerator: EnumeratorInput | None = None

    def start(self) -> None:
        """Start the task, on its own thread if it has one."""
        if self.thread is None:
            self.task.start()
        else:
            self.thread.start(self.task.start)

    def post(self, call: Callable[[], None]) -> None:
        """Run a callback on the task's loop; may be called from any thread."""
        self.task.loop.call_soon_threadsafe(call)

    def on_error(self, error: BaseException) -> None:
        """Fail the task with an error of work that was done for it; may be called from any thread."""
        self.post(lambda: self.task.on_error(error))


class Deployer:
    """Builds the tasks of one deployment; on the main loop's thread."""

    def __init__(self, deployment: Deployment, services: SlotServices) -> None:
        self._deployment, self._services = deployment, services
        self._peers: set[str] = set()
        self._settings = Settings(dict(deployment.config), "job")
        self._storage: CheckpointStorage | None = None
        self._savepoint: tuple[str, SavepointDirectory | None] = ("", None)
        self._in_files = False

    def info(self, descriptor: TaskDescriptor) -> TaskInfo:
        """The description of a task: names, numbers and parameters of its job and subtask."""
        parameters = self._settings.get(PIPELINE_GLOBAL_JOB_PARAMETERS)
        return TaskInfo(
            job_id=self._deployment.job_id,
            job_name=self._deployment.job_name,
            execution_id=descriptor.execution_id,
            task_name=descriptor.vertex_name,
            subtask=descriptor.subtask,
            parallelism=descriptor.parallelism,
            max_parallelism=descriptor.max_parallelism,
            attempt=descriptor.attempt,
            job_parameters=parameters,
        )

    def build(self, descriptor: TaskDescriptor, token: CancelToken) -> RunningTask:
        """Load a task's chain and connect it; runs user code.

        Raises:
            Exception: whatever the user's code raises, or reading the blob.
        """
        services = self._services
        self._peers.clear()
        info = self.info(descriptor)
        services.guard.active = token
        plan = ChainPlan(load_chain(read_blob(self._deployment.blobs[descriptor.chain], descriptor.chain)))
        backend = load_state_backend(self._settings.get(STATE_BACKEND))
        backend.configure(self._settings)
        plan.use_state_backend(
            backend, info, services.loop.clock, self._deployment.managed_memory, self._state_directory(descriptor)
        )
        self._in_files = backend.snapshots_in_files
        restore = None if descriptor.restore is None else TaskRestore.from_plain(descriptor.restore)
        checkpointing = bool(self._settings.get(CHECKPOINTING_INTERVAL))
        last = checkpointing and self._settings.get(CHECKPOINTING_AFTER_TASKS_FINISH)
        if checkpointing or (restore is not None and not restore.finished):
            self._checkpoint_storage()  # so that wrong settings fail the task now, not its first checkpoint
        copies = self._local_copies(descriptor, restore)
        context = OperatorContext(
            info,
            services.loop.clock,
            temporary_files=services.temporary_files,
            kept_files=services.kept_files,
            write_stdout=services.write_stdout,
            stdout_writable=services.stdout_writable,
            checkpointing=checkpointing,
            metrics=MetricRegistry(services.loop.clock, self._settings.get(METRICS_MAX_PER_TASK)),
            settings=self._settings,
        )
        for index, operator in enumerate(plan.operators):
            operator.create(replace(context, stamp=plan.stage_of[index].stamp))
        # Inputs wake the task, which is created after them: by the time they do, it is in this list.
        task: list[StreamTask] = []
        finished = restore is not None and restore.finished
        source = self._source(plan, context, token, lambda: task[0].wake(), finished=finished)
        enumerator = self._enumerator(plan, context, token, descriptor.readers, lambda: task[0].wake(), finished)
        # A task whose code may wait for long gets a thread of its own, so that it holds up no other task of the slot.
        blocking = any(operator.blocking for operator in plan.operators) or (source is not None and source.blocking)
        thread = TaskThread(f"firesteel-task {info.full_name}", services.loop.clock) if blocking else None
        loop = thread.loop if thread else services.loop
        guard = thread.guard if thread else services.guard
        inputs: TaskInput
        if source is not None:
            source.run_on(loop, guard)
            inputs = source
        elif enumerator is not None:
            enumerator.run_on(loop, guard)
            inputs = enumerator
        else:
            edges = [edge for edge in self._deployment.edges if edge.target == descriptor.vertex_id]
            inputs = ChannelInputs(
                self._inputs(descriptor, thread),
                lambda: task[0].wake(),
                info.full_name,
                services.loop.clock,
                partitioners(
                    plan.operators[0].spec, [(e.index, e.input_index, PartitionerKind(e.partitioner)) for e in edges]
                ),
                {edge.index: edge.source_name for edge in edges},
                must_align=must_align(plan.operators[0].spec),
            )
        services.guard.active = None
        outputs = self._outputs(descriptor, plan, thread)
        task.append(
            StreamTask(
                info,
                plan,
                inputs,
                outputs,
                context,
                loop,
                guard,
                token,
                services.reporter,
                needs_commit=descriptor.needs_commit,
                watermark_interval=self._watermark_interval,
                latencies=self._latencies(plan, descriptor, loop),
                checkpoints=CheckpointServices(
                    self._beside(copies, self._open_stream),
                    services.submit_upload,
                    partial(self._open_state, copies),
                    final=last and enumerator is None,  # an enumerator's task ends when the JobMaster says so
                    open_shared=self._beside(copies, self._open_shared) if self._shares() else None,
                    delta_ratio=self._settings.get(CHECKPOINTING_MAX_DELTA_RATIO),
                    apart=services.apart,
                    unaligned=context.checkpointing and self._settings.get(CHECKPOINTING_UNALIGNED),
                    open_savepoint=self._open_savepoint,
                    copies=copies,
                ),
                restore=restore,
            )
        )
        return RunningTask(task[0], token, guard, thread, frozenset(self._peers), source, enumerator)

    def _enumerator(
        self,
        plan: ChainPlan,
        context: OperatorContext,
        token: CancelToken,
        readers: int,
        on_readable: Callable[[], None],
        finished: bool,
    ) -> EnumeratorInput | None:
        operator, info = plan.operators[0], context.info
        if not isinstance(operator, EnumeratorOperator):
            return None
        return EnumeratorInput(
            operator,
            readers,
            token,
            lambda number, events: self._services.operator_events(info.execution_id, number, events),
            on_readable,
            TaskRuntimeContext(info, operator.name, None, context.metrics),
            finished=finished,
            settings=context.settings,
        )

    def _state_directory(self, descriptor: TaskDescriptor) -> str:
        """The working directory for files of state backends; removes those of slots that were killed.

        It lies beside the job's blobs, with which it is removed at the latest.
        """
        parent = os.path.join(os.path.dirname(self._deployment.blobs[descriptor.chain]), "state")
        remove_abandoned(parent)
        return os.path.join(parent, attempt_name(descriptor.execution_id))

    def _checkpoint_storage(self) -> CheckpointStorage:
        if self._storage is None:
            settings = self._settings
            if self._in_files:
                if storage_name(settings) == "jobmanager":
                    raise ConfigurationError(
                        f"{STATE_BACKEND.key}: filesystem writes snapshots into files: set "
                        f"{CHECKPOINTING_DIRECTORY.key}, or {STATE_BACKEND.key} to hashmap"
                    )
                settings = Settings({**self._deployment.config, CHECKPOINTING_INLINE_THRESHOLD.key: "0"}, "job")
            self._storage = load_checkpoint_storage(StorageParameters(self._deployment.job_id, settings))
        return self._storage

    def _open_state(self, copies: LocalCopies | None, handle: StateHandle) -> BinaryIO:
        """Open state from its handle, a local copy, or the checkpoint storage."""
        # Committables of sinks are inline, and a job that only commits them may have no storage configured.
        if isinstance(handle, InlineState):
            return open_inline(handle)
        copy = None if copies is None else copies.open(handle)
        return self._checkpoint_storage().open_state(handle) if copy is None else copy

    def _local_copies(self, descriptor: TaskDescriptor, restore: TaskRestore | None) -> LocalCopies | None:
        """The local copies of the task's state, in the cluster's directories or beside the job's blobs."""
        writes = self._settings.get(CHECKPOINTING_LOCAL_BACKUP) and bool(self._settings.get(CHECKPOINTING_INTERVAL))
        reads = self._settings.get(STATE_RECOVERY_FROM_LOCAL)
        if not writes and not reads:
            return None
        beside_blobs = os.path.join(os.path.dirname(self._deployment.blobs[descriptor.chain]), "local-state")
        restored_handles = () if restore is None else restore.handles()
        task = f"{descriptor.vertex_id}-{descriptor.subtask}"
        directories = self._deployment.local_directories or (beside_blobs,)
        return LocalCopies(directories, task, restored_handles, reads=reads, writes=writes)

    @staticmethod
    def _beside(copies: LocalCopies | None, open_stream: OpenStream) -> OpenStream:
        """Wrap the opening of streams so that they also write local copies."""
        if copies is None:
            return open_stream
        return lambda checkpoint_id, hint: copies.beside(open_stream(checkpoint_id, hint))

    def _open_stream(self, checkpoint_id: int, hint: str) -> StateWriter:
        return self._checkpoint_storage().open_state_stream(checkpoint_id, hint)

    def _shares(self) -> bool:
        """Whether checkpoints may build on earlier ones."""
        if not self._settings.get(CHECKPOINTING_INCREMENTAL) or not self._settings.get(CHECKPOINTING_INTERVAL):
            return False
        return type(self._checkpoint_storage()).open_shared_stream is not CheckpointStorage.open_shared_stream

    def _open_shared(self, checkpoint_id: int, hint: str) -> StateWriter:
        storage = self._checkpoint_storage()
        return storage.open_shared_stream(checkpoint_id, hint) or storage.open_state_stream(checkpoint_id, hint)

    def _open_savepoint(self, directory: str, checkpoint_id: int, hint: str) -> StateWriter:
        """Open a stream of a savepoint, whose small pieces stand in the metadata whatever the backend is."""
        known, place = self._savepoint
        if place is None or known != directory:
            place = savepoint_directory(directory, self._settings)
            self._savepoint = directory, place
        return place.open_state_stream(checkpoint_id, hint)

    def _source(
        self,
        plan: ChainPlan,
        context: OperatorContext,
        token: CancelToken,
        on_readable: Callable[[], None],
        *,
        finished: bool,
    ) -> SourceInput | None:
        head = plan.operators[0]
        if head.spec.kind is not OperatorKind.SOURCE:
            return None
        info = context.info
        strategy, time = head.spec.extra.get("watermark_strategy"), None
        if strategy is not None:
            declared = head.spec.output_type or head.function.produced_type()
            time = SourceTime(head.name, info.full_name, strategy, self._services.loop.clock, head.coerce, declared)
        return SourceInput(
            head.name,
            head.function,
            info,
            self._services.loop.clock,
            token,
            request_splits=lambda: self._services.request_splits(info.execution_id),
            on_readable=on_readable,
            max_records=self._settings.get(BATCH_MAX_RECORDS),
            max_columnar_records=self._settings.get(BATCH_MAX_COLUMNAR_RECORDS),
            time=time,
            watermark_interval=self._watermark_interval,
            report_watermark=lambda group, watermark: self._services.report_watermark(
                info.execution_id, group, watermark
            ),
            runtime_context=TaskRuntimeContext(info, head.name, None, context.metrics),
            settings=context.settings,
            operator=head,
            finished=finished,
        )

    def _latencies(self, plan: ChainPlan, descriptor: TaskDescriptor, loop: TaskLoop) -> LatencyTracker | None:
        interval = self._settings.get(METRICS_LATENCY_INTERVAL).total_seconds()
        if not interval:
            return None
        history = self._settings.get(METRICS_LATENCY_HISTORY_SIZE)
        return LatencyTracker(plan.outputs(), loop.clock, interval, history, descriptor.vertex_id, descriptor.subtask)

    @property
    def _watermark_interval(self) -> float:
        """Seconds between periodic watermarks; 0 = none."""
        return self._settings.get(PIPELINE_AUTO_WATERMARK_INTERVAL).total_seconds()

    def _inputs(self, descriptor: TaskDescriptor, thread: TaskThread | None) -> list[tuple[InputChannel, int]]:
        """Open the channels of the edges that lead to the task; returns each with the input that it feeds."""
        inputs: list[tuple[InputChannel, int]] = []
        for edge in self._deployment.edges:
            if edge.target != descriptor.vertex_id:
                continue
            sources = upstream_channels(
                PartitionerKind(edge.partitioner), descriptor.subtask, edge.up_parallelism, edge.down_parallelism
            )
            for up in sources:
                peer = self._deployment.placement.slots[edge.source][up]
                self._peers.add(peer)
                channel = self._services.exchange.input(edge.index, up, descriptor.subtask, peer, descriptor.attempt)
                if thread is not None:
                    channel = BridgedInput(channel, self._services.loop, thread.loop)
                inputs.append((channel, edge.input_index))
        return inputs

    def _outputs(
        self, descriptor: TaskDescriptor, plan: ChainPlan, thread: TaskThread | None
    ) -> list[tuple[OutputChannel, int]]:
        """Open the channels of the edges that leave the task, and attach partitioners to the plan's stages.

        Returns:
            The channels, each with its buffer timeout in ms.
        """
        edges: Mapping[int, EdgeDescriptor] = {edge.index: edge for edge in self._deployment.edges}
        outputs: list[tuple[OutputChannel, int]] = []
        for spec in plan.spec.outputs:
            edge = edges[spec.edge]
            channels: list[OutputChannel] = []
            targets = downstream_channels(
                PartitionerKind(edge.partitioner), descriptor.subtask, edge.up_parallelism, edge.down_parallelism
            )
            for down in targets:
                peer = self._deployment.placement.slots[edge.target][down]
                self._peers.add(peer)
                channel = self._services.exchange.output(
                    edge.index, descriptor.subtask, down, peer, edge.buffer_timeout_ms, descriptor.attempt
                )
                if thread is not None:
                    channel = BridgedOutput(channel, self._services.loop, thread.loop)
                channels.append(channel)
                outputs.append((channel, edge.buffer_timeout_ms))
            output = create_output(
                spec,
                plan.operators[spec.operator_index].name,
                channels,
                edge.max_parallelism,
                random.Random(),
                dictionaries=True,
            )
            output.target = edge.target
            self._show_keys(output)
            plan.outlet_of(spec).outputs.append(output)
        return outputs

    def _show_keys(self, output: Output) -> None:
        """Let an output count its most frequent keys as the job wants it."""
        shows = self._settings.get(HOT_KEYS)
        if shows == "off":
            output.drop_sketch()
        elif output.sketch is not None and shows == "masked":
            output.sketch.shown = masked(self._deployment.secret)
