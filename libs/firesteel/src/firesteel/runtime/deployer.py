"""Builds the tasks of a deployment: loads their chains, connects their channels, decides where they run."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from firesteel.config import Settings
from firesteel.config.options import (
    BATCH_MAX_RECORDS,
    METRICS_MAX_PER_TASK,
    PIPELINE_AUTO_WATERMARK_INTERVAL,
    PIPELINE_GLOBAL_JOB_PARAMETERS,
    STATE_BACKEND,
)
from firesteel.graph.physical import downstream_channels, upstream_channels
from firesteel.graph.specs import OperatorKind, PartitionerKind
from firesteel.protocol.deployment import Deployment, EdgeDescriptor, TaskDescriptor
from firesteel.runtime.bridge import BridgedInput, BridgedOutput
from firesteel.runtime.chain import ChainPlan
from firesteel.runtime.channel_inputs import ChannelInputs
from firesteel.runtime.context import OperatorContext, TaskInfo, TaskRuntimeContext
from firesteel.runtime.exchange import Exchange, InputChannel, OutputChannel
from firesteel.runtime.interrupts import CancelToken, Guard
from firesteel.runtime.loop import TaskLoop
from firesteel.runtime.operators import SinkOperator
from firesteel.runtime.partitioners import create_output
from firesteel.runtime.source_input import SourceInput
from firesteel.runtime.source_time import SourceTime
from firesteel.runtime.task import StreamTask, TaskInput, TaskReporter
from firesteel.runtime.task_metrics import MetricRegistry
from firesteel.runtime.task_thread import TaskThread
from firesteel.runtime.user_code import load_chain, read_blob
from firesteel.state.backend import load_state_backend


@dataclass
class SlotServices:
    """What tasks get from their slot.

    Attributes:
        temporary_files: called with (path, add).
        request_splits: called with the execution id.
        report_watermark: called with the execution id, alignment group and watermark.
    """

    exchange: Exchange
    loop: TaskLoop
    guard: Guard
    reporter: TaskReporter
    temporary_files: Callable[[str, bool], None]
    write_stdout: Callable[[str], None]
    stdout_writable: Callable[[], bool]
    request_splits: Callable[[str], None]
    report_watermark: Callable[[str, str, int], None] = lambda execution_id, group, watermark: None


@dataclass
class RunningTask:
    """A task and the thread it has for itself, if it does."""

    task: StreamTask
    token: CancelToken
    guard: Guard
    thread: TaskThread | None

    def start(self) -> None:
        """Open and run it."""
        if self.thread is None:
            self.task.start()
        else:
            self.thread.start(self.task.start)

    def post(self, call: Callable[[], None]) -> None:
        """Call something on the task's loop, from any thread."""
        self.task.loop.call_soon_threadsafe(call)


class Deployer:
    """Builds the tasks of one deployment; on the main loop's thread."""

    def __init__(self, deployment: Deployment, services: SlotServices) -> None:
        self._deployment, self._services = deployment, services
        self._settings = Settings(dict(deployment.config), "job")

    def info(self, descriptor: TaskDescriptor) -> TaskInfo:
        """Who a task is."""
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
        """Load a task's chain and connect it; user code runs in here.

        Raises:
            Exception: whatever is wrong with the user's code, or the blob.
        """
        services = self._services
        info = self.info(descriptor)
        services.guard.active = token
        plan = ChainPlan(load_chain(read_blob(self._deployment.blobs[descriptor.chain], descriptor.chain)))
        plan.use_state_backend(load_state_backend(self._settings.get(STATE_BACKEND)), info, services.loop.clock)
        context = OperatorContext(
            info,
            services.loop.clock,
            temporary_files=services.temporary_files,
            write_stdout=services.write_stdout,
            stdout_writable=services.stdout_writable,
            metrics=MetricRegistry(services.loop.clock, self._settings.get(METRICS_MAX_PER_TASK)),
        )
        for index, operator in enumerate(plan.operators):
            if isinstance(operator, SinkOperator):
                operator.create(replace(context, stamp=plan.segment_of[index].stamp))
        task: list[StreamTask] = []
        source = self._source(plan, context, token, lambda: task[0].wake())
        blocking = any(operator.blocking for operator in plan.operators) or (source is not None and source.blocking)
        thread = TaskThread(f"firesteel-task {info.full_name}", services.loop.clock) if blocking else None
        loop = thread.loop if thread else services.loop
        guard = thread.guard if thread else services.guard
        inputs: TaskInput
        if source is not None:
            source.run_on(loop, guard)
            inputs = source
        else:
            inputs = ChannelInputs(
                self._inputs(descriptor, thread), lambda: task[0].wake(), info.full_name, services.loop.clock
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
            )
        )
        return RunningTask(task[0], token, guard, thread)

    def _source(
        self, plan: ChainPlan, context: OperatorContext, token: CancelToken, on_readable: Callable[[], None]
    ) -> SourceInput | None:
        head = plan.operators[0]
        if head.spec.kind is not OperatorKind.SOURCE:
            return None
        info = context.info
        strategy, time = head.spec.extra.get("watermark_strategy"), None
        if strategy is not None:
            time = SourceTime(head.name, info.full_name, strategy, self._services.loop.clock, head.coerce)
        return SourceInput(
            head.name,
            head.function,
            info,
            self._services.loop.clock,
            token,
            request_splits=lambda: self._services.request_splits(info.execution_id),
            on_readable=on_readable,
            max_records=self._settings.get(BATCH_MAX_RECORDS),
            time=time,
            watermark_interval=self._watermark_interval,
            report_watermark=lambda group, watermark: self._services.report_watermark(
                info.execution_id, group, watermark
            ),
            runtime_context=TaskRuntimeContext(info, head.name, None, context.metrics),
        )

    @property
    def _watermark_interval(self) -> float:
        """Seconds; 0 = no periodic watermarks."""
        return self._settings.get(PIPELINE_AUTO_WATERMARK_INTERVAL).total_seconds()

    def _inputs(self, descriptor: TaskDescriptor, thread: TaskThread | None) -> list[tuple[InputChannel, int]]:
        """Channels of the edges that lead to the task, each with the input it feeds."""
        found: list[tuple[InputChannel, int]] = []
        for edge in self._deployment.edges:
            if edge.target != descriptor.vertex_id:
                continue
            sources = upstream_channels(
                PartitionerKind(edge.partitioner), descriptor.subtask, edge.up_parallelism, edge.down_parallelism
            )
            for up in sources:
                channel = self._services.exchange.input(
                    edge.index, up, descriptor.subtask, self._deployment.placement[edge.source][up]
                )
                if thread is not None:
                    channel = BridgedInput(channel, self._services.loop, thread.loop)
                found.append((channel, edge.input_index))
        return found

    def _outputs(
        self, descriptor: TaskDescriptor, plan: ChainPlan, thread: TaskThread | None
    ) -> list[tuple[OutputChannel, int]]:
        """Channels of the edges that leave the task; the partitioners are attached to the plan's segments."""
        edges: Mapping[int, EdgeDescriptor] = {edge.index: edge for edge in self._deployment.edges}
        found: list[tuple[OutputChannel, int]] = []
        for spec in plan.spec.outputs:
            edge = edges[spec.edge]
            channels: list[OutputChannel] = []
            targets = downstream_channels(
                PartitionerKind(edge.partitioner), descriptor.subtask, edge.up_parallelism, edge.down_parallelism
            )
            for down in targets:
                channel = self._services.exchange.output(
                    edge.index,
                    descriptor.subtask,
                    down,
                    self._deployment.placement[edge.target][down],
                    edge.buffer_timeout_ms,
                )
                if thread is not None:
                    channel = BridgedOutput(channel, self._services.loop, thread.loop)
                channels.append(channel)
                found.append((channel, edge.buffer_timeout_ms))
            plan.output_segment(spec).outputs.append(
                create_output(
                    spec,
                    plan.operators[spec.operator_index].name,
                    channels,
                    edge.max_parallelism,
                    random.Random(),
                )
            )
        return found
