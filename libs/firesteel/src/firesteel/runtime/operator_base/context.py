"""What user code may ask of the subtask that runs it, and what operators are opened with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
    """Which subtask this is.

    Attributes:
        job_parameters: set by ``ExecutionConfig.set_global_job_parameters``.
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
    """What goes with the record in flight in one stage of a chain, and the time that the stage has reached.

    Attributes:
        value: timestamp of the record in flight in epoch milliseconds, or None.
        kind: row kind of the record in flight, or None where all are inserted.
        watermark: that the stage has reached, in epoch milliseconds; does not change inside a batch.
    """

    __slots__ = ("kind", "value", "watermark")

    def __init__(self) -> None:
        self.value: int | None = None
        self.kind: int | None = None
        self.watermark = MIN_WATERMARK


@dataclass
class OperatorContext:
    """What an operator is opened with.

    Attributes:
        stamp: of the stage that the operator is in.
        temporary_files: called as ``(path, True)`` when a file is to be deleted if the process dies, with False when it
            is not any more.
        kept_files: called as ``(path, checkpoint)`` when a temporary file belongs to this checkpoint from now on.
        write_stdout: writes text to the slot's standard output.
        stdout_writable: whether standard output takes more now.
        metrics: of the task's user functions.
        on_processing_timer: called when a processing-time timer was registered, with its epoch milliseconds.
        watermark_origin: says who has brought the task's watermark so far, for the log; empty if that is not known.
        call_later: has something called after so many seconds, on the task's loop; what it raises fails the task.
        checkpointing: the job takes checkpoints.
        make_durable: has something done before a checkpoint is acknowledged; what it raises fails the task.
        settings: of the job, those that slots read.
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
    """Handed to ``open`` of the user's functions."""

    def __init__(self, info: TaskInfo, operator: str, keyed: KeyedStateStore | None, metrics: MetricRegistry) -> None:
        self._info, self._operator, self._keyed, self._metrics = info, operator, keyed, metrics

    def get_metrics_group(self) -> MetricGroup:
        return self._metrics.group(self._operator)

    def get_task_name(self) -> str:
        """Name of the task."""
        return self._info.task_name

    def get_number_of_parallel_subtasks(self) -> int:
        """Parallelism of the task."""
        return self._info.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        """Number of key groups."""
        return self._info.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        """From 0."""
        return self._info.subtask

    def get_attempt_number(self) -> int:
        """From 0."""
        return self._info.attempt

    def get_task_name_with_subtasks(self) -> str:
        """Name with number and attempt of the subtask."""
        return self._info.full_name

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """A parameter of the job."""
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
        """Timestamp of the record at hand."""
        return self._stamp.value


class _Key(_Timestamp):
    __slots__ = ("_keyed",)

    def __init__(self, stamp: Stamp, keyed: KeyedStateBackend) -> None:
        super().__init__(stamp)
        self._keyed = keyed

    def get_current_key(self) -> Any:
        """Key of the record at hand."""
        return self._keyed.key


class _Time(_Timestamp):
    __slots__ = ("_timers",)

    def __init__(self, stamp: Stamp, timers: TimerService) -> None:
        super().__init__(stamp)
        self._timers = timers

    def timer_service(self) -> TimerService:
        """Reads the time; sets no timers."""
        return self._timers


class _KeyedTime(_Key):
    __slots__ = ("_timers",)

    def __init__(self, stamp: Stamp, keyed: KeyedStateBackend, timers: TimerService) -> None:
        super().__init__(stamp, keyed)
        self._timers = timers

    def timer_service(self) -> TimerService:
        """Reads the time and sets timers for the current key."""
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
        """Which time it followed."""
        return self.domain


class ProcessContext(_Time, ProcessFunction.Context):
    """Of ``ProcessFunction``."""


class CoProcessContext(_Time, CoProcessFunction.Context):
    """Of ``CoProcessFunction``."""


class KeyedProcessContext(_KeyedTime, KeyedProcessFunction.Context):
    """Of ``KeyedProcessFunction``."""


class KeyedOnTimerContext(OnTimer, _KeyedTime, KeyedProcessFunction.OnTimerContext):
    """Of its ``on_timer``."""


class KeyedCoProcessContext(_KeyedTime, KeyedCoProcessFunction.Context):
    """Of ``KeyedCoProcessFunction``."""


class KeyedCoOnTimerContext(OnTimer, _KeyedTime, KeyedCoProcessFunction.OnTimerContext):
    """Of its ``on_timer``."""


class SinkContext(_Timestamp, SinkFunction.Context):
    """Of ``SinkFunction``."""


class TaskWriterContext(WriterContext):
    """Of sink writers."""

    def __init__(self, context: OperatorContext, operator_id: str) -> None:
        self._info, self._files, self._kept = context.info, context.temporary_files, context.kept_files
        self._checkpoint_id = self._kept_with = 0
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
        """The task has been made: from now on it can call at a time, and have something done by others."""
        self._call_later, self._make_durable = context.call_later, context.make_durable
        self._metrics = context.metrics.group(operator) if operator else None

    def metric_group(self) -> MetricGroup | None:
        """That of the operator."""
        return self._metrics

    def make_durable(self, work: Callable[[], None]) -> None:
        """Before a checkpoint is acknowledged."""
        self._make_durable(work)

    def register_timer(self, epoch_ms: int, callback: Callable[[], None]) -> None:
        """Call this at that time."""
        self._call_later(max(0, epoch_ms - self._clock.epoch_ms()) / 1000, callback)

    @property
    def operator_id(self) -> str:
        """32 hex digits."""
        return self._operator_id

    @property
    def checkpointing(self) -> bool:
        """Whether the job takes checkpoints."""
        return self._checkpointing

    @property
    def subtask_index(self) -> int:
        """From 0."""
        return self._info.subtask

    @property
    def parallelism(self) -> int:
        """Number of subtasks of the sink."""
        return self._info.parallelism

    @property
    def attempt(self) -> int:
        """From 0."""
        return self._info.attempt

    @property
    def job_id(self) -> str:
        """32 hex digits."""
        return self._info.job_id

    @property
    def checkpoint_id(self) -> int:
        """Of the last checkpoint that is prepared, or was restored: what is begun now is in none up to it."""
        return self._checkpoint_id

    def prepares(self, checkpoint_id: int) -> None:
        """The barrier of this checkpoint is here: what is kept, or begun, until it is ``reached`` is in it."""
        self._kept_with = checkpoint_id

    def reached(self, checkpoint_id: int) -> None:
        """This checkpoint is prepared, or the task goes on from it."""
        self._checkpoint_id = self._kept_with = checkpoint_id

    def register_temporary_file(self, path: str) -> None:
        """Delete it if the process dies."""
        self._temporary[path] = None
        self._files(path, True)

    def keep_temporary_file(self, path: str) -> None:
        """Delete it when the job ends and leaves no checkpoint from the last barrier's on."""
        self._temporary.pop(path, None)
        self._kept(path, self._kept_with)

    def keep_temporary_files(self) -> None:
        """The same with all that are left."""
        for path in list(self._temporary):
            self.keep_temporary_file(path)

    def forget_temporary_file(self, path: str) -> None:
        """Do not delete it any more."""
        self._temporary.pop(path, None)
        self._files(path, False)


def need_keyed(operator: str, keyed: KeyedStateStore | None) -> KeyedStateStore:
    """The keyed state of an operator.

    Raises:
        ProgramError: the operator is not on a keyed stream.
    """
    if keyed is None:
        raise ProgramError(
            f"operator {operator!r} asks for keyed state but is not on a keyed stream: call key_by() before it"
        )
    return keyed
