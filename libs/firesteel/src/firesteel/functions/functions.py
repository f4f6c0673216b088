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
    """Gives a function its keyed state, by descriptor.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream.functions import ProcessWindowFunction
        from firesteel.datastream.state import ValueStateDescriptor


        class Numbered(ProcessWindowFunction):
            def process(self, key, context, elements):
                store = context.global_state()  # a KeyedStateStore; that of the window is window_state()
                windows = store.get_state(ValueStateDescriptor("windows", Types.LONG()))
                windows.update((windows.value() or 0) + 1)
                yield key, windows.value(), len(list(elements))
        ```
    """

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
    """Access of a function to the subtask that runs it; passed to ``open``.

    Examples:
        ```python
        from firesteel.datastream import MapFunction, StreamExecutionEnvironment


        class Where(MapFunction):
            def open(self, runtime_context):
                self.index = runtime_context.get_index_of_this_subtask()
                self.count = runtime_context.get_number_of_parallel_subtasks()

            def map(self, value):
                return f"{value} in subtask {self.index} of {self.count}"


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        print(list(env.from_collection(["tea"]).map(Where()).execute_and_collect()))
        ```

        ```text
        ['tea in subtask 0 of 1']
        ```
    """

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

    Examples:
        ```python
        from firesteel.datastream import MapFunction, StreamExecutionEnvironment


        class Numbered(MapFunction):
            def open(self, runtime_context):  # once in each subtask, before the first record
                self.count = 0

            def map(self, value):
                self.count += 1
                return f"{self.count}. {value}"


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        print(list(env.from_collection(["tea", "milk"]).map(Numbered()).execute_and_collect()))
        ```

        ```text
        ['1. tea', '2. milk']
        ```
    """

    blocking: ClassVar[bool] = False

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027 - may be left out
        """Called once before the first record."""

    def close(self) -> None:  # noqa: B027 - may be left out
        """Called once after the last record, or after a failure."""


class MapFunction(Function, Generic[IN, OUT]):
    """One record in, one out.

    Examples:
        ```python
        from firesteel.datastream import MapFunction, StreamExecutionEnvironment


        class Times(MapFunction):
            def __init__(self, factor):
                self.factor = factor

            def map(self, value):
                return self.factor * value


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        print(list(env.from_collection([1, 2]).map(Times(10)).execute_and_collect()))
        ```

        ```text
        [10, 20]
        ```
    """

    @abstractmethod
    def map(self, value: IN) -> OUT:
        """Returns the result for a record."""


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """A map over two connected streams.

    Examples:
        ```python
        from firesteel.datastream import CoMapFunction, StreamExecutionEnvironment


        class Named(CoMapFunction):
            def map1(self, value):
                return "first", value

            def map2(self, value):
                return "second", value


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        both = env.from_collection([1]).connect(env.from_collection(["a"]))
        print(sorted(both.map(Named()).execute_and_collect()))
        ```

        ```text
        [('first', 1), ('second', 'a')]
        ```
    """

    @abstractmethod
    def map1(self, value: IN1) -> OUT | None:
        """Returns the result for a record of the first stream; None gives no result."""

    @abstractmethod
    def map2(self, value: IN2) -> OUT | None:
        """Returns the result for a record of the second stream; None gives no result."""


class FlatMapFunction(Function, Generic[IN, OUT]):
    """One record in, any number out.

    Examples:
        ```python
        from firesteel.datastream import FlatMapFunction, StreamExecutionEnvironment


        class Words(FlatMapFunction):
            def flat_map(self, value):
                yield from value.split()


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        print(list(env.from_collection(["to be", "or not"]).flat_map(Words()).execute_and_collect()))
        ```

        ```text
        ['to', 'be', 'or', 'not']
        ```
    """

    @abstractmethod
    def flat_map(self, value: IN) -> Iterable[OUT] | None:
        """Returns or yields the results for a record; results are pulled one at a time, None means none."""


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """A flat map over two connected streams.

    Examples:
        ```python
        from firesteel.datastream import CoFlatMapFunction, StreamExecutionEnvironment


        class Together(CoFlatMapFunction):
            def flat_map1(self, value):
                yield value

            def flat_map2(self, value):
                yield from value


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        both = env.from_collection([1]).connect(env.from_collection([[2, 3]]))
        print(sorted(both.flat_map(Together()).execute_and_collect()))
        ```

        ```text
        [1, 2, 3]
        ```
    """

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

    Examples:
        ```python
        from firesteel.datastream import ReduceFunction, StreamExecutionEnvironment


        class Longest(ReduceFunction):
            def reduce(self, value1, value2):
                return max(value1, value2, key=len)


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        words = env.from_collection(["to", "be", "not"]).key_by(lambda word: "all")
        print(list(words.reduce(Longest()).execute_and_collect()))
        ```

        ```text
        ['to', 'to', 'not']
        ```
    """

    combinable: ClassVar[bool] = False

    @abstractmethod
    def reduce(self, value1: IN, value2: IN) -> IN:
        """Returns the combination; ``value1`` is the result so far."""


class KeySelector(Function, Generic[IN, KEY]):
    """Extracts the key of a record. It must return the same key for the same record each time.

    Examples:
        ```python
        from firesteel.datastream import KeySelector, StreamExecutionEnvironment


        class FirstLetter(KeySelector):
            def get_key(self, value):
                return value[0]


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        words = env.from_collection(["tea", "milk", "toast"]).key_by(FirstLetter())
        print(list(words.reduce(lambda one, other: one + "+" + other).execute_and_collect()))
        ```

        ```text
        ['tea', 'milk', 'tea+toast']
        ```
    """

    @abstractmethod
    def get_key(self, value: IN) -> KEY:
        """Returns the key of a record."""


class FilterFunction(Function, Generic[IN]):
    """Decides for each record whether it stays in the stream.

    Examples:
        ```python
        from firesteel.datastream import FilterFunction, StreamExecutionEnvironment


        class Even(FilterFunction):
            def filter(self, value):
                return value % 2 == 0


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        print(list(env.from_collection([1, 2, 3, 4]).filter(Even()).execute_and_collect()))
        ```

        ```text
        [2, 4]
        ```
    """

    @abstractmethod
    def filter(self, value: IN) -> bool:
        """Returns whether the record stays."""


class Partitioner(Function, Generic[KEY]):
    """Chooses the channel of a record by its key, for ``partition_custom``.

    Examples:
        ```python
        from firesteel.datastream import Partitioner, StreamExecutionEnvironment


        class ByRemainder(Partitioner):
            def partition(self, key, num_partitions):
                return key % num_partitions


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        spread = env.from_collection([1, 2, 3]).partition_custom(ByRemainder(), lambda number: number)
        print(list(spread.map(lambda number: number).execute_and_collect()))
        ```

        ```text
        [1, 2, 3]
        ```
    """

    @abstractmethod
    def partition(self, key: KEY, num_partitions: int) -> int:
        """Returns the channel, from 0 to ``num_partitions - 1``."""


class SinkFunction(Function, Generic[IN]):
    """Writes records one by one, for ``add_sink``. Sinks that write batches are in ``firesteel.functions.sink``.

    Examples:
        ```python
        from firesteel.datastream import SinkFunction, StreamExecutionEnvironment


        class Show(SinkFunction):
            def invoke(self, value, context):
                print("got", value)


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        env.from_collection([1, 2]).add_sink(Show())
        env.execute()
        ```

        ```text
        got 1
        got 2
        ```

    Attributes:
        takes_changes: ``invoke`` looks at the kinds of rows (``Row.get_row_kind``). If not, a row that is not inserted
            (+I) is refused.
    """

    takes_changes: bool = False

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
    """One record in, any number out, with access to the record's timestamp.

    Examples:
        ```python
        from firesteel.datastream import OutputTag, ProcessFunction, StreamExecutionEnvironment

        LARGE = OutputTag("large")


        class Divide(ProcessFunction):
            def process_element(self, value, ctx):
                yield (LARGE, value) if value > 100 else value


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        print(list(env.from_collection([5, 500, 7]).process(Divide()).execute_and_collect()))
        ```

        ```text
        [5, 7]
        ```
    """

    class Context(_ProcessContext):
        """Information about the current record, for ``process_element``."""

    @abstractmethod
    def process_element(self, value: IN, ctx: ProcessFunction.Context) -> Results[OUT]:
        """Returns or yields the results for a record."""


class KeyedProcessFunction(Function, Generic[KEY, IN, OUT]):
    """A process function on a keyed stream, with keyed state from ``open(runtime_context)`` and timers.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream import KeyedProcessFunction, StreamExecutionEnvironment
        from firesteel.datastream.state import ValueStateDescriptor


        class OnlyFirst(KeyedProcessFunction):
            def open(self, runtime_context):
                self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.BOOLEAN()))

            def process_element(self, value, ctx):
                if not self.seen.value():
                    self.seen.update(True)
                    yield ctx.get_current_key(), value


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        words = env.from_collection(["tea", "milk", "toast"]).key_by(lambda word: word[0])
        print(list(words.process(OnlyFirst()).execute_and_collect()))
        ```

        ```text
        [('t', 'tea'), ('m', 'milk')]
        ```
    """

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
    """A process function over two connected streams.

    Examples:
        ```python
        from firesteel.datastream import CoProcessFunction, StreamExecutionEnvironment


        class Sizes(CoProcessFunction):
            def process_element1(self, value, ctx):
                yield len(value)

            def process_element2(self, value, ctx):
                yield value


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        both = env.from_collection(["tea"]).connect(env.from_collection([7]))
        print(sorted(both.process(Sizes()).execute_and_collect()))
        ```

        ```text
        [3, 7]
        ```
    """

    class Context(_ProcessContext):
        """Information about the current record, for both methods."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: CoProcessFunction.Context) -> Results[OUT]:
        """Returns or yields the results for a record of the first stream."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: CoProcessFunction.Context) -> Results[OUT]:
        """Returns or yields the results for a record of the second stream."""


class KeyedCoProcessFunction(Function, Generic[KEY, IN1, IN2, OUT]):
    """A process function over two connected keyed streams; both sides of a key share its state.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream import KeyedCoProcessFunction, StreamExecutionEnvironment
        from firesteel.datastream.state import ListStateDescriptor


        class Pairs(KeyedCoProcessFunction):
            def open(self, runtime_context):
                self.left = runtime_context.get_list_state(ListStateDescriptor("left", Types.INT()))
                self.right = runtime_context.get_list_state(ListStateDescriptor("right", Types.INT()))

            def process_element1(self, value, ctx):
                self.left.add(value[1])
                yield from ((value[0], value[1], right) for right in self.right.get() or ())

            def process_element2(self, value, ctx):
                self.right.add(value[1])
                yield from ((value[0], left, value[1]) for left in self.left.get() or ())


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        orders, payments = env.from_collection([("a", 1), ("b", 2)]), env.from_collection([("a", 10)])
        both = orders.connect(payments).key_by(lambda order: order[0], lambda payment: payment[0])
        print(list(both.process(Pairs()).execute_and_collect()))
        ```

        ```text
        [('a', 1, 10)]
        ```
    """

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
