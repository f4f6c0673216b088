"""Evictors, which remove records of a window when it is evaluated. Flink's Java names; PyFlink has none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from typing_extensions import override

from firesteel.common.time import Span
from firesteel.windowing.checks import check_span, check_whole

__all__ = ["CountEvictor", "DeltaEvictor", "Evictor", "TimeEvictor", "TimestampedValue"]

T = TypeVar("T")
W = TypeVar("W")


class TimestampedValue(NamedTuple):
    """A record in a window.

    Attributes:
        value: the record.
        timestamp: timestamp of the record, in ms since 1970-01-01 UTC; None if it has none.

    Examples:
        ```python
        from firesteel.datastream.window import TimestampedValue

        element = TimestampedValue("tea", 1_000)
        print(element.value, element.timestamp)
        ```

        ```text
        tea 1000
        ```
    """

    value: Any
    timestamp: int | None


class Evictor(ABC, Generic[T, W]):
    """Removes records from a window, before or after it is evaluated.

    Both methods change the list in place (``del elements[:3]``); the window keeps the records that remain. A window
    with an evictor stores all its records until it ends, also with ``reduce`` and ``aggregate``.

    Examples:
        ```python
        from firesteel.datastream.window import Evictor


        class WithoutNone(Evictor):
            def evict_before(self, elements, size, window, evictor_context):
                elements[:] = [element for element in elements if element.value is not None]

            def evict_after(self, elements, size, window, evictor_context):
                pass
        ```
    """

    class EvictorContext(ABC):
        """Times and metrics, for evictors."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Returns the processing time, in ms since 1970-01-01 UTC."""

        @abstractmethod
        def get_metric_group(self) -> Any:
            """Returns the metric group of the operator."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Returns the watermark; -2**63 before the first one."""

    @abstractmethod
    def evict_before(
        self, elements: list[TimestampedValue], size: int, window: W, evictor_context: Evictor.EvictorContext
    ) -> None:
        """Called before the window is evaluated.

        Args:
            elements: the window's records in the order of arrival; change the list in place.
            size: number of records.
            window: the window.
            evictor_context: times and metrics.
        """

    @abstractmethod
    def evict_after(
        self, elements: list[TimestampedValue], size: int, window: W, evictor_context: Evictor.EvictorContext
    ) -> None:
        """Called after the window was evaluated; the arguments are those of ``evict_before``."""


class _OneSided(Evictor[T, W]):
    """Evicts either before or after the evaluation."""

    def __init__(self, do_evict_after: bool) -> None:
        self.do_evict_after = bool(do_evict_after)

    @abstractmethod
    def evict(self, elements: list[TimestampedValue]) -> None:
        """Remove records from the list, in place."""

    def evict_before(
        self, elements: list[TimestampedValue], size: int, window: W, evictor_context: Evictor.EvictorContext
    ) -> None:
        """Evict, if the evictor was made to do so before the window function."""
        if not self.do_evict_after:
            self.evict(elements)

    def evict_after(
        self, elements: list[TimestampedValue], size: int, window: W, evictor_context: Evictor.EvictorContext
    ) -> None:
        """Evict, if the evictor was made to do so after the window function."""
        if self.do_evict_after:
            self.evict(elements)


class CountEvictor(_OneSided[T, W]):
    """Keeps the last ``max_count`` records of a window.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.window import CountEvictor, CountTrigger, GlobalWindows

        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        numbers = env.from_collection([1, 2, 3, 4]).key_by(lambda number: "all")
        windows = numbers.window(GlobalWindows.create()).trigger(CountTrigger.of(2)).evictor(CountEvictor.of(3))
        print(list(windows.reduce(lambda one, other: one + other).execute_and_collect()))
        ```

        ```text
        [3, 9]
        ```
    """

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self.max_count = check_whole("the count of CountEvictor", max_count, 0)

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor[Any, Any]:
        """Make an evictor that keeps the last ``max_count`` records."""
        return CountEvictor(max_count, do_evict_after)

    @override
    def evict(self, elements: list[TimestampedValue]) -> None:
        del elements[: max(0, len(elements) - self.max_count)]


class TimeEvictor(_OneSided[T, W]):
    """Keeps the records whose timestamps are less than ``window_size`` ms before the latest one.

    Records without timestamps are never evicted.

    Examples:
        ```python
        from firesteel.common import Time
        from firesteel.datastream.window import TimeEvictor

        evictor = TimeEvictor.of(Time.seconds(30))  # keeps what is at most 30 seconds older than the newest
        ```
    """

    def __init__(self, window_size: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self.window_size = check_whole("the time of TimeEvictor in ms", window_size, 0)

    @staticmethod
    def of(window_size: Span, do_evict_after: bool = False) -> TimeEvictor[Any, Any]:
        """Make an evictor that keeps the records of the last ``window_size``."""
        return TimeEvictor(check_span("the time of TimeEvictor", window_size, 0), do_evict_after)

    @override
    def evict(self, elements: list[TimestampedValue]) -> None:
        times = [time for _, time in elements if time is not None]
        if times and elements[0].timestamp is not None:
            cutoff = max(times) - self.window_size
            elements[:] = [element for element in elements if element.timestamp is None or element.timestamp > cutoff]


class DeltaEvictor(_OneSided[T, W]):
    """Removes the records that differ from the last one by the threshold or more.

    ``delta(old, new)`` returns the difference.

    Examples:
        ```python
        from firesteel.datastream.window import DeltaEvictor

        evictor = DeltaEvictor.of(5.0, lambda old, last: last - old)  # forgets what is 5 or more below the last value
        ```
    """

    def __init__(self, threshold: float, delta: Callable[[T, T], float], do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        if not callable(delta):
            raise TypeError(f"the delta function of DeltaEvictor is a callable, not {type(delta).__name__}")
        self.threshold, self.delta = threshold, delta

    @staticmethod
    def of(
        threshold: float, delta: Callable[[Any, Any], float], do_evict_after: bool = False
    ) -> DeltaEvictor[Any, Any]:
        """Make an evictor that removes records that differ from the last one by ``threshold`` or more."""
        return DeltaEvictor(threshold, delta, do_evict_after)

    @override
    def evict(self, elements: list[TimestampedValue]) -> None:
        if elements:
            last = elements[-1].value
            elements[:] = [element for element in elements if self.delta(element.value, last) < self.threshold]
