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
    """Gathers records in an accumulator, so that a window need not keep the records.

    Attributes:
        combinable: records may be gathered in any order and in parts, which ``merge`` makes one: in batch mode tumbling
            windows gather before records travel, too.
    """

    combinable: ClassVar[bool] = False

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Returns a new accumulator that has seen no record."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC) -> ACC:
        """Returns the accumulator with a record added; it may be the same object, changed."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT:
        """Returns the result of what was added so far."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC) -> ACC:
        """Returns both accumulators in one; asked for where windows merge (sessions)."""


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Makes the results of a window of one key."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """Returns or yields the results.

        Args:
            key: of the window's records.
            window: which window is evaluated.
            inputs: its records in the order of arrival; behind ``reduce`` or ``aggregate`` their one result.
        """


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Makes the results of a window over all records of a stream."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """Returns or yields the results; arguments as of ``WindowFunction``."""


class _WindowContext(ABC, Generic[W2]):
    """What functions with a context may ask about the window that is evaluated."""

    @abstractmethod
    def window(self) -> W2:
        """Returns the window."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """Returns the time of the clock, in ms since 1970-01-01 UTC."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Returns the watermark of the operator; -2**63 before the first one."""

    @abstractmethod
    def window_state(self) -> KeyedStateStore:
        """Returns the store of state for this key and this window; release it in ``clear``.

        Raises:
            ProgramError: a state is asked for and the windows are sessions, which merge.
        """

    @abstractmethod
    def global_state(self) -> KeyedStateStore:
        """Returns the store of state for this key, shared by all its windows."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Makes the results of a window of one key, with times and state at hand."""

    class Context(_WindowContext[W2]):
        """What ``process`` and ``clear`` may ask."""

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT] | None:
        """Returns or yields the results.

        Args:
            key: of the window's records.
            context: window, times and state.
            elements: the records in the order of arrival; behind ``reduce`` or ``aggregate`` their one result.
        """

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """Called when the window is thrown away: clear what ``context.window_state()`` holds."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Makes the results of a window over all records of a stream, with times and state at hand."""

    class Context(_WindowContext[W2]):
        """What ``process`` and ``clear`` may ask."""

    @abstractmethod
    def process(self, context: ProcessAllWindowFunction.Context[W], elements: Iterable[IN]) -> Iterable[OUT] | None:
        """Returns or yields the results; arguments as of ``ProcessWindowFunction``."""

    def clear(self, context: ProcessAllWindowFunction.Context[W]) -> None:
        """Called when the window is thrown away: clear what ``context.window_state()`` holds."""


def uses_window_state(function: Any) -> bool:
    """Whether the function may hold something for a window that its own ``clear`` has to release."""
    if isinstance(function, ProcessWindowFunction):
        return type(function).clear is not ProcessWindowFunction.clear
    if isinstance(function, ProcessAllWindowFunction):
        return type(function).clear is not ProcessAllWindowFunction.clear
    return False
