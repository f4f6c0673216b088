"""Contexts: those that user code gets from the subtask that runs it, and the one with which operators are opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from firesteel.config import Settings
from firesteel.core.clock import Clock
from firesteel.core.errors import ProgramError
from firesteel.functions.functions import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeyedStateStore,
    ProcessFunction,
    RuntimeContext,
    SinkFunction,
)
from firesteel.functions.metrics import MetricGroup
from firesteel.functions.sink import WriterContext
from firesteel.functions.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from firesteel.functions.timerservice import TimeDomain, TimerService
from firesteel.runtime.loop.metrics import MetricRegistry
from firesteel.runtime.records.batch import MIN_WATERMARK
from firesteel.state.backend import KeyedStateBackend


@dataclass(frozen=True)
class TaskInfo:
    """Names and numbers of a subtask, of its attempt and of its job.

    Attributes:
        job_parameters: parameters that ``ExecutionConfig.set_global_job_parameters`` has set.
    """

    job_id: str
    job_name: str
    execution_id: str
    task_name: str
    subtask: int
    parallelism: int
    max_parallelism: int
    attempt: int
    job_parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """Flink's form, with the subtask counted from 1: ``FlatMap (2/4)#0``."""
        return f"{self.task_name} ({self.subtask + 1}/{self.parallelism})#{self.attempt}"


class Stamp:
    """Timestamp and row kind of the record in flight in one stage of a chain, and the watermark of the stage.

    Attributes:
        value: timestamp of the record in flight in epoch milliseconds, or None.
        kind: row kind of the record in flight; None where all are inserted.
        watermark: watermark of the stage in epoch milliseconds; it does not change inside a batch.
    """

    __slots__ = ("kind", "value", "watermark")

    def __init__(self) -> None:
        self.value: int | None = None
        self.kind: int | None = None
        self.watermark = MIN_WATERMARK


@dataclass
class OperatorContext:
    """The services of a task with which an operator is opened.

    Attributes:
        info: description of the task.
        clock: clock of the task.
        stamp: stamp of the stage in which the operator is.
        temporary_files: called as ``(path, True)`` for a file that has to be deleted if the process dies, and with
            False when it has not any more.
        kept_files: called as ``(path, checkpoint)`` when a temporary file becomes part of this checkpoint.
        write_stdout: writes text to the slot's standard output.
        stdout_writable: tells whether standard output takes more now.
        metrics: metrics of the task's user functions.
        on_processing_timer: called when a processing-time timer is registered, with its epoch milliseconds.
        watermark_origin: text for the log that says where the operator's watermark comes from; empty if unknown.
        call_later: calls after this many seconds, on the task's loop; what the call raises fails the task.
        checkpointing: whether the job takes checkpoints.
        make_durable: runs work before a checkpoint is acknowledged; what it raises fails the task.
        settings: configuration of the job, as far as slots read it.
    """

    info: TaskInfo
    clock: Clock
    stamp: Stamp = field(default_factory=Stamp)
    temporary_files: Callable[[str, bool], None] = lambda path, add: None
    kept_files: Callable[[str, int], None] = lambda path, checkpoint_id: None
    write_stdout: Callable[[str], None] = lambda text: None
    stdout_writable: Callable[[], bool] = lambda: True
    on_processing_timer: Callable[[int], None] = lambda timestamp: None
    watermark_origin: Callable[[], str] = lambda: ""
    call_later: Callable[[float, Callable[[], None]], None] = lambda seconds, call: None
    checkpointing: bool = False
    make_durable: Callable[[Callable[[], None]], None] = lambda work: work()
    metrics: MetricRegistry = None  # type: ignore[assignment] # made below
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        if self.metrics is None:
            self.metrics = MetricRegistry(self.clock)


class TaskRuntimeContext(RuntimeContext):
    """The context that is handed to ``open`` of the user's functions."""

    def __init__(self, info: TaskInfo, operator: str, keyed: KeyedStateStore | None, metrics: MetricRegistry) -> None:
        self._info, self._operator, self._keyed, self._metrics = info, operator, keyed, metrics

    @override
    def get_metrics_group(self) -> MetricGroup:
        return self._metrics.group(self._operator)

    @override
    def get_task_name(self) -> str:
        return self._info.task_name

    @override
    def get_number_of_parallel_subtasks(self) -> int:
        return self._info.parallelism

    @override
    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._info.max_parallelism

    @override
    def get_index_of_this_subtask(self) -> int:
        return self._info.subtask

    @override
    def get_attempt_number(self) -> int:
        return self._info.attempt

    @override
    def get_task_name_with_subtasks(self) -> str:
        return self._info.full_name

    @override
    def get_job_parameter(self, key: str, default_value: str) -> str:
        return self._info.job_parameters.get(key, default_value)

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Keyed value state.

        Raises:
            ProgramError: the operator is not keyed, or the name is taken by state of another type.
        """
        return self._store().get_state(state_descriptor)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Keyed list state; raises as ``get_state``."""
        return self._store().get_list_state(state_descriptor)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Keyed map state; raises as ``get_state``."""
        return self._store().get_map_state(state_descriptor)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Keyed reducing state; raises as ``get_state``."""
        return self._store().get_reducing_state(state_descriptor)

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """Keyed aggregating state; raises as ``get_state``."""
        return self._store().get_aggregating_state(state_descriptor)

    def _store(self) -> KeyedStateStore:
        return need_keyed(self._operator, self._keyed)


class _Timestamp:
    __slots__ = ("_stamp",)

    def __init__(self, stamp: Stamp) -> None:
        self._stamp = stamp

    def timestamp(self) -> int | None:
        return self._stamp.value


class _Key(_Timestamp):
    __slots__ = ("_keyed",)

    def __init__(self, stamp: Stamp, keyed: KeyedStateBackend) -> None:
        super().__init__(stamp)
        self._keyed = keyed

    def get_current_key(self) -> Any:
        return self._keyed.key


class _Time(_Timestamp):
    __slots__ = ("_timers",)

    def __init__(self, stamp: Stamp, timers: TimerService) -> None:
        super().__init__(stamp)
        self._timers = timers

    def timer_service(self) -> TimerService:
        return self._timers


class _KeyedTime(_Key):
    __slots__ = ("_timers",)

    def __init__(self, stamp: Stamp, keyed: KeyedStateBackend, timers: TimerService) -> None:
        super().__init__(stamp, keyed)
        self._timers = timers

    def timer_service(self) -> TimerService:
        return self._timers


class OnTimer:
    """The timer at hand, for contexts of ``on_timer``.

    Attributes:
        at: its timestamp.
        domain: its time domain.
    """

    at: int
    domain: TimeDomain

    def timestamp(self) -> int:
        """The timer's timestamp, in both time domains."""
        return self.at

    def time_domain(self) -> TimeDomain:
        return self.domain


class ProcessContext(_Time, ProcessFunction.Context):
    """The context of ``ProcessFunction``."""


class CoProcessContext(_Time, CoProcessFunction.Context):
    """The context of ``CoProcessFunction``."""


class KeyedProcessContext(_KeyedTime, KeyedProcessFunction.Context):
    """The context of ``KeyedProcessFunction.process_element``."""


class KeyedOnTimerContext(OnTimer, _KeyedTime, KeyedProcessFunction.OnTimerContext):
    """The context of ``KeyedProcessFunction.on_timer``."""


class KeyedCoProcessContext(_KeyedTime, KeyedCoProcessFunction.Context):
    """The context of ``KeyedCoProcessFunction.process_element1`` and ``process_element2``."""


class KeyedCoOnTimerContext(OnTimer, _KeyedTime, KeyedCoProcessFunction.OnTimerContext):
    """The context of ``KeyedCoProcessFunction.on_timer``."""


class SinkContext(_Timestamp, SinkFunction.Context):
    """The context of ``SinkFunction.invoke``."""


class TaskWriterContext(WriterContext):
    """The context of sink writers."""

    def __init__(self, context: OperatorContext, operator_id: str) -> None:
        self._info = context.info
        self._note_temporary, self._note_kept = context.temporary_files, context.kept_files
        self._checkpoint_id = self._kept_with = 0  # the last checkpoint reached, and the one that files now belong to
        self._temporary: dict[str, None] = {}
        self._clock, self._call_later = context.clock, context.call_later
        self._make_durable = context.make_durable
        self._operator_id, self._checkpointing = operator_id, context.checkpointing
        self._metrics: MetricGroup | None = None
        self._settings = context.settings

    @property
    def settings(self) -> Settings:
        return self._settings

    def opened(self, context: OperatorContext, operator: str = "") -> None:
        """Take over the services of the task that did not exist yet when the writer was created."""
        self._call_later, self._make_durable = context.call_later, context.make_durable
        self._metrics = context.metrics.group(operator) if operator else None

    @override
    def metric_group(self) -> MetricGroup | None:
        return self._metrics

    @override
    def make_durable(self, work: Callable[[], None]) -> None:
        self._make_durable(work)

    @override
    def register_timer(self, epoch_ms: int, callback: Callable[[], None]) -> None:
        self._call_later(max(0, epoch_ms - self._clock.epoch_ms()) / 1000, callback)

    @property
    @override
    def operator_id(self) -> str:
        return self._operator_id

    @property
    @override
    def checkpointing(self) -> bool:
        return self._checkpointing

    @property
    @override
    def subtask_index(self) -> int:
        return self._info.subtask

    @property
    @override
    def parallelism(self) -> int:
        return self._info.parallelism

    @property
    @override
    def attempt(self) -> int:
        return self._info.attempt

    @property
    @override
    def job_id(self) -> str:
        return self._info.job_id

    @property
    @override
    def checkpoint_id(self) -> int:
        return self._checkpoint_id

    def prepares(self, checkpoint_id: int) -> None:
        """Note that a checkpoint is being prepared: files that are kept or begun until it is ``reached`` are in it."""
        self._kept_with = checkpoint_id

    def reached(self, checkpoint_id: int) -> None:
        """Note that a checkpoint is prepared, or was restored."""
        self._checkpoint_id = self._kept_with = checkpoint_id

    @override
    def register_temporary_file(self, path: str) -> None:
        self._temporary[path] = None
        self._note_temporary(path, True)

    @override
    def keep_temporary_file(self, path: str) -> None:
        self._temporary.pop(path, None)
        self._note_kept(path, self._kept_with)

    def keep_temporary_files(self) -> None:
        """Keep all temporary files that are registered."""
        for path in list(self._temporary):
            self.keep_temporary_file(path)

    @override
    def forget_temporary_file(self, path: str) -> None:
        self._temporary.pop(path, None)
        self._note_temporary(path, False)


def need_keyed(operator: str, keyed: KeyedStateStore | None) -> KeyedStateStore:
    """Return the keyed state of an operator, if it has some.

    Raises:
        ProgramError: the operator is not on a keyed stream.
    """
    if keyed is None:
        raise ProgramError(
            f"operator {operator!r} asks for keyed state but is not on a keyed stream: call key_by() before it"
        )
    return keyed
