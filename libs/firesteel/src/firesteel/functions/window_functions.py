"""Functions over the contents of windows. PyFlink's classes, names and signatures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, TypeVar

from firesteel.functions.functions import Function, KeyedStateStore

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "ProcessAllWindowFunction",
    "ProcessWindowFunction",
    "WindowFunction",
]

IN = TypeVar("IN")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
ACC = TypeVar("ACC")
W = TypeVar("W")
W2 = TypeVar("W2")


class AggregateFunction(Function, Generic[IN, ACC, OUT]):
    """Aggregates records in an accumulator, so that a window need not store the records.

    Attributes:
        combinable: set it to True if records may be added in any order, and in parts that ``merge`` combines. Batch
            mode then also aggregates before the exchange (tumbling windows only).

    Examples:
        ```python
        from firesteel.datastream import AggregateFunction, StreamExecutionEnvironment


        class Mean(AggregateFunction):
            def create_accumulator(self):
                return 0, 0

            def add(self, value, accumulator):
                return accumulator[0] + value, accumulator[1] + 1

            def get_result(self, accumulator):
                return accumulator[0] / accumulator[1]

            def merge(self, acc_a, acc_b):
                return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        numbers = env.from_collection([1, 2, 3, 6]).key_by(lambda number: "all")
        print(list(numbers.count_window(2).aggregate(Mean()).execute_and_collect()))
        ```

        ```text
        [1.5, 4.5]
        ```
    """

    combinable: ClassVar[bool] = False

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Returns a new accumulator without any record."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC) -> ACC:
        """Returns the accumulator with a record added; it may be the same object, changed."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT:
        """Returns the result of the records added so far."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC) -> ACC:
        """Returns one accumulator for the records of both; called where windows merge (sessions)."""


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Computes the results of one key's window.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment, WindowFunction


        class Count(WindowFunction):
            def apply(self, key, window, inputs):
                yield key, len(list(inputs))


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        words = env.from_collection(["a", "a", "b"]).key_by(lambda word: word)
        print(list(words.count_window(2).apply(Count()).execute_and_collect()))
        ```

        ```text
        [('a', 2)]
        ```
    """

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """Returns or yields the results.

        Args:
            key: key of the window's records.
            window: the window that is evaluated.
            inputs: its records in the order of arrival; behind ``reduce`` or ``aggregate`` their one result.
        """


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Computes the results of a window over all records of a stream.

    Examples:
        ```python
        from firesteel.datastream import AllWindowFunction, StreamExecutionEnvironment


        class Together(AllWindowFunction):
            def apply(self, window, inputs):
                yield "".join(inputs)


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        print(list(env.from_collection(["a", "b"]).count_window_all(2).apply(Together()).execute_and_collect()))
        ```

        ```text
        ['ab']
        ```
    """

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """Returns or yields the results; the arguments are those of ``WindowFunction.apply``."""


class _WindowContext(ABC, Generic[W2]):
    """Times and state of the window that is evaluated, for window functions."""

    @abstractmethod
    def window(self) -> W2:
        """Returns the window that is evaluated."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """Returns the processing time, in ms since 1970-01-01 UTC."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Returns the watermark of the operator; -2**63 before the first one."""

    @abstractmethod
    def window_state(self) -> KeyedStateStore:
        """Returns the store of state for this key and this window; release it in ``clear``.

        Raises:
            ProgramError: the windows are sessions: these merge, and can't have state.
        """

    @abstractmethod
    def global_state(self) -> KeyedStateStore:
        """Returns the store of state for this key, shared by all its windows."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Computes the results of one key's window, with access to times and state.

    Examples:
        ```python
        from firesteel.datastream import ProcessWindowFunction, StreamExecutionEnvironment


        class Summary(ProcessWindowFunction):
            def process(self, key, context, elements):
                values = [value for _, value in elements]
                yield key, len(values), max(values)


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        readings = env.from_collection([("a", 3), ("a", 5)]).key_by(lambda reading: reading[0])
        print(list(readings.count_window(2).process(Summary()).execute_and_collect()))
        ```

        ```text
        [('a', 2, 5)]
        ```
    """

    class Context(_WindowContext[W2]):
        """Times and state of the window, for ``process`` and ``clear``."""

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT] | None:
        """Returns or yields the results.

        Args:
            key: key of the window's records.
            context: window, times and state.
            elements: the records in the order of arrival; behind ``reduce`` or ``aggregate`` their one result.
        """

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """Clears the state in ``context.window_state()``; called when the window is removed."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Computes the results of a window over all records of a stream, with access to times and state.

    Examples:
        ```python
        from firesteel.datastream import ProcessAllWindowFunction, StreamExecutionEnvironment


        class Median(ProcessAllWindowFunction):
            def process(self, context, elements):
                yield sorted(elements)[1]


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        print(list(env.from_collection([5, 1, 3]).count_window_all(3).process(Median()).execute_and_collect()))
        ```

        ```text
        [3]
        ```
    """

    class Context(_WindowContext[W2]):
        """Times and state of the window, for ``process`` and ``clear``."""

    @abstractmethod
    def process(self, context: ProcessAllWindowFunction.Context[W], elements: Iterable[IN]) -> Iterable[OUT] | None:
        """Returns or yields the results; the arguments are those of ``ProcessWindowFunction.process``."""

    def clear(self, context: ProcessAllWindowFunction.Context[W]) -> None:
        """Clears the state in ``context.window_state()``; called when the window is removed."""


def uses_window_state(function: Any) -> bool:
    """Whether a window function overrides ``clear``, so that it has to be called when a window is removed."""
    if isinstance(function, ProcessWindowFunction):
        return type(function).clear is not ProcessWindowFunction.clear
    if isinstance(function, ProcessAllWindowFunction):
        return type(function).clear is not ProcessAllWindowFunction.clear
    return False
