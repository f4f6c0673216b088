"""The functions that users implement. PyFlink's classes, names and signatures.

An instance is pickled into the chain of its operator; each subtask gets a copy of its own. ``open`` is called once
before the first record, ``close`` once after the last one and also after a failure; between them the function's
methods are called by one thread at a time. Wherever the API takes a class with a single method, it also takes a plain
callable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from firesteel.functions.metrics import MetricGroup
from firesteel.functions.output_tag import OutputTag
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

__all__ = [
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "KeySelector",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "MapFunction",
    "Partitioner",
    "ProcessFunction",
    "ReduceFunction",
    "RuntimeContext",
    "SinkFunction",
]

IN = TypeVar("IN")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")

Results: TypeAlias = Iterable[OUT | tuple[OutputTag[Any], Any]] | None
"""Results of process functions: values, and pairs of tag and value for side outputs."""


class KeyedStateStore(ABC):
    """Gives a function its keyed state, by descriptor."""

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Returns the value state of this name.

        Raises:
            ProgramError: the operator is not keyed, or the name is taken by state of another type.
        """

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Returns the list state of this name; raises as ``get_state``."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Returns the map state of this name; raises as ``get_state``."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Returns the reducing state of this name; raises as ``get_state``."""

    @abstractmethod
    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """Returns the aggregating state of this name; raises as ``get_state``."""


class RuntimeContext(KeyedStateStore):
    """Access of a function to the subtask that runs it; passed to ``open``."""

    @abstractmethod
    def get_task_name(self) -> str:
        """Returns the name of the task, such as ``Source: lines -> FlatMap``."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """Returns the parallelism of the operator."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """Returns the maximum parallelism, which is the number of key groups."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """Returns the number of this subtask, from 0."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """Returns how often the subtask has been restarted; 0 at its first start."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """Returns the name of the task with the subtask's number from 1, such as ``FlatMap (2/4)#0``."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Returns a parameter set with ``ExecutionConfig.set_global_job_parameters``, or else the default."""

    @abstractmethod
    def get_metrics_group(self) -> MetricGroup:
        """Returns the group in which the function registers its metrics."""


class Function(ABC):  # noqa: B024 - PyFlink's root class; each kind of function adds its own abstract methods
    """Root of all functions.

    Attributes:
        blocking: set it to True in a class whose methods wait for long (network, sleep): the operator's chain gets a
            thread of its own, so that the other tasks of the slot go on.
    """

    blocking: ClassVar[bool] = False

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027 - may be left out
        """Called once before the first record."""

    def close(self) -> None:  # noqa: B027 - may be left out
        """Called once after the last record, or after a failure."""


class MapFunction(Function, Generic[IN, OUT]):
    """One record in, one out."""

    @abstractmethod
    def map(self, value: IN) -> OUT:
        """Returns the result for a record."""


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """A map over two connected streams."""

    @abstractmethod
    def map1(self, value: IN1) -> OUT | None:
        """Returns the result for a record of the first stream; None gives no result."""

    @abstractmethod
    def map2(self, value: IN2) -> OUT | None:
        """Returns the result for a record of the second stream; None gives no result."""


class FlatMapFunction(Function, Generic[IN, OUT]):
    """One record in, any number out."""

    @abstractmethod
    def flat_map(self, value: IN) -> Iterable[OUT] | None:
        """Returns or yields the results for a record; results are pulled one at a time, None means none."""


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """A flat map over two connected streams."""

    @abstractmethod
    def flat_map1(self, value: IN1) -> Iterable[OUT] | None:
        """Returns or yields the results for a record of the first stream."""

    @abstractmethod
    def flat_map2(self, value: IN2) -> Iterable[OUT] | None:
        """Returns or yields the results for a record of the second stream."""


class ReduceFunction(Function, Generic[IN]):
    """Combines two records of a key into one of the same type.

    Attributes:
        combinable: set it to True if the function is associative and commutative. Batch mode then also combines
            records before the exchange. A plain callable may have the attribute as well.
    """

    combinable: ClassVar[bool] = False

    @abstractmethod
    def reduce(self, value1: IN, value2: IN) -> IN:
        """Returns the combination; ``value1`` is the result so far."""


class KeySelector(Function, Generic[IN, KEY]):
    """Extracts the key of a record. It must return the same key for the same record each time."""

    @abstractmethod
    def get_key(self, value: IN) -> KEY:
        """Returns the key of a record."""


class FilterFunction(Function, Generic[IN]):
    """Decides for each record whether it stays in the stream."""

    @abstractmethod
    def filter(self, value: IN) -> bool:
        """Returns whether the record stays."""


class Partitioner(Function, Generic[KEY]):
    """Chooses the channel of a record by its key, for ``partition_custom``."""

    @abstractmethod
    def partition(self, key: KEY, num_partitions: int) -> int:
        """Returns the channel, from 0 to ``num_partitions - 1``."""


class SinkFunction(Function, Generic[IN]):
    """Writes records one by one, for ``add_sink``. Sinks that write batches are in ``firesteel.functions.sink``."""

    class Context(ABC):
        """Information about the current record, for ``invoke``."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Returns the record's timestamp in ms since 1970-01-01 UTC, None if it has none."""

    @abstractmethod
    def invoke(self, value: IN, context: SinkFunction.Context) -> None:
        """Writes a record to the outside world."""


class _ProcessContext(ABC):
    """Information about the current record, for all kinds of process functions."""

    @abstractmethod
    def timestamp(self) -> int | None:
        """Returns the record's timestamp in ms since 1970-01-01 UTC, None if it has none."""

    @abstractmethod
    def timer_service(self) -> TimerService:
        """Returns the timer service, which reads the time and, on keyed streams, sets timers."""


class _KeyedProcessContext(_ProcessContext):
    @abstractmethod
    def get_current_key(self) -> Any:
        """Returns the key of the current record or timer."""


class _OnTimerContext(ABC):
    @abstractmethod
    def time_domain(self) -> TimeDomain:
        """Returns whether the timer was one of event time or processing time."""


class ProcessFunction(Function, Generic[IN, OUT]):
    """One record in, any number out, with access to the record's timestamp."""

    class Context(_ProcessContext):
        """Information about the current record, for ``process_element``."""

    @abstractmethod
    def process_element(self, value: IN, ctx: ProcessFunction.Context) -> Results[OUT]:
        """Returns or yields the results for a record."""


class KeyedProcessFunction(Function, Generic[KEY, IN, OUT]):
    """A process function on a keyed stream, with keyed state from ``open(runtime_context)`` and timers."""

    class Context(_KeyedProcessContext):
        """Information about the current record, for ``process_element``."""

    class OnTimerContext(Context, _OnTimerContext):
        """Information about the timer, for ``on_timer``; ``timestamp()`` is the timer's."""

    @abstractmethod
    def process_element(self, value: IN, ctx: KeyedProcessFunction.Context) -> Results[OUT]:
        """Returns or yields the results for a record."""

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Results[OUT]:
        """Returns or yields the results for a timer that was set for the current key; the default has none."""
        return None


class CoProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """A process function over two connected streams."""

    class Context(_ProcessContext):
        """Information about the current record, for both methods."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: CoProcessFunction.Context) -> Results[OUT]:
        """Returns or yields the results for a record of the first stream."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: CoProcessFunction.Context) -> Results[OUT]:
        """Returns or yields the results for a record of the second stream."""


class KeyedCoProcessFunction(Function, Generic[KEY, IN1, IN2, OUT]):
    """A process function over two connected keyed streams; both sides of a key share its state."""

    class Context(_KeyedProcessContext):
        """Information about the current record, for both methods."""

    class OnTimerContext(Context, _OnTimerContext):
        """Information about the timer, for ``on_timer``; ``timestamp()`` is the timer's."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: KeyedCoProcessFunction.Context) -> Results[OUT]:
        """Returns or yields the results for a record of the first stream."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: KeyedCoProcessFunction.Context) -> Results[OUT]:
        """Returns or yields the results for a record of the second stream."""

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Results[OUT]:
        """Returns or yields the results for a timer that was set for the current key; the default has none."""
        return None
