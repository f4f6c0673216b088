"""A source of records that a function makes from consecutive numbers, with or without a limit of their rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from typing_extensions import override

from firesteel.common.type_table import field_names
from firesteel.common.typeinfo import RowTypeInfo, TypeInformation
from firesteel.connectors.split_reader import Chunk, SplitCursor, SplitQueueReader
from firesteel.core.call_each import call_each
from firesteel.core.errors import ProgramError
from firesteel.functions.source import Boundedness, EnumeratorSpec, ReaderContext, Source, Split, Wait

if TYPE_CHECKING:  # coordinators know sources, and should not pay for Arrow
    import pyarrow as pa

T = TypeVar("T")

SHORTEST_PAUSE = 0.01
"""Seconds between two looks at what is due: one for each of 1,000 records a second took 20 % of a core, now it is 4."""


@dataclass(frozen=True)
class RateLimiterStrategy:
    """Limit of the rate of a generator.

    Attributes:
        records_per_second: rate of all subtasks together; None or infinity = no limit.

    Raises:
        ProgramError: the rate is not above 0.

    Examples:
        ```python
        from firesteel.datastream.connectors import RateLimiterStrategy

        print(RateLimiterStrategy.per_second(100).records_per_second)
        ```

        ```text
        100
        ```
    """

    records_per_second: float | None = None

    def __post_init__(self) -> None:
        if self.records_per_second is not None and not self.records_per_second > 0:  # NaN is not above 0 either
            raise ProgramError(f"a rate must be above 0 records per second, not {self.records_per_second}")

    @staticmethod
    def no_op() -> RateLimiterStrategy:
        """Let each subtask generate as fast as it can."""
        return RateLimiterStrategy()

    @staticmethod
    def per_second(records_per_second: float) -> RateLimiterStrategy:
        """Limit the rate of all subtasks together.

        Records that are due within 10 ms come at once. An infinite rate is no limit.

        Raises:
            ProgramError: the rate is not above 0.
        """
        return RateLimiterStrategy(records_per_second)


class DataGeneratorSource(Source[T], Generic[T]):
    """Record i is ``generator_function(i)``; i counts from 0.

    The numbers are split into as many contiguous ranges as there are subtasks: without a count, the second of two
    subtasks begins at 2**62.

    Args:
        generator_function: makes a record from its number.
        count: number of records; None = the source does not end.
        rate_limiter_strategy: limit of the rate; None = no limit.
        type_info: declared type of the records; None = any Python object.

    Raises:
        ProgramError: ``count`` is negative.
        TypeError: the function can't be called.

    Examples:
        ```python
        from firesteel.common import Types, WatermarkStrategy
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.connectors import DataGeneratorSource, RateLimiterStrategy

        ten_a_second = RateLimiterStrategy.per_second(10)
        source = DataGeneratorSource(lambda index: f"order {index}", 3, ten_a_second, Types.STRING())
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        print(list(env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").execute_and_collect()))
        ```

        ```text
        ['order 0', 'order 1', 'order 2']
        ```
    """

    def __init__(
        self,
        generator_function: Callable[[int], T],
        count: int | None = None,
        rate_limiter_strategy: RateLimiterStrategy | None = None,
        type_info: TypeInformation | None = None,
    ) -> None:
        if not callable(generator_function):
            raise TypeError(f"the generator function must be callable, not {type(generator_function).__name__}")
        if count is not None and count < 0:
            raise ProgramError(f"the number of records must not be negative: {count}")
        self._function, self._count = generator_function, count
        self._rate = (rate_limiter_strategy or RateLimiterStrategy()).records_per_second
        self._type_info = type_info
        self._makes_batches = self._projects = False
        self._columns: tuple[str, ...] | None = None

    @classmethod
    def of_batches(
        cls,
        generator_function: Callable[..., pa.RecordBatch],
        type_info: TypeInformation,
        count: int | None = None,
        rate_limiter_strategy: RateLimiterStrategy | None = None,
        *,
        projects: bool = False,
    ) -> DataGeneratorSource[Any]:
        """Records ``start`` to ``start + count - 1`` are ``generator_function(start, count)``.

        Args:
            generator_function: makes a ``pyarrow.RecordBatch`` of as many rows as it is asked for.
            type_info: declared type of the rows or tuples, whose fields have the names of the batch's columns.
            count: number of records; None = the source does not end.
            rate_limiter_strategy: limit of the rate; None = no limit.
            projects: the function can leave columns out. Its third argument, ``generator_function(start, count,
                columns)``, has the names of the columns to make; columns that nobody reads are not among them.

        Raises:
            ProgramError: ``count`` is negative, or the type has no columns.
            TypeError: the function can't be called.
        """
        from firesteel.expressions.schema import uncolumnar  # loads Arrow

        reason = uncolumnar(type_info)
        if reason is not None:
            raise ProgramError(f"the records of a generator of batches need typed fields: {reason}")
        function: Any = generator_function
        source: DataGeneratorSource[Any] = cls(function, count, rate_limiter_strategy, type_info)
        source._makes_batches, source._projects = True, bool(projects)
        return source

    @property
    def makes_columns(self) -> bool:
        """Whether the function makes batches."""
        return self._makes_batches

    def with_columns(self, names: Sequence[str]) -> DataGeneratorSource[Any] | None:
        """A source whose function makes these columns only; None if the function can't leave columns out."""
        if not self._projects:
            return None
        from firesteel.expressions.schema import schema_of

        declared = schema_of(self._type_info) if self._type_info is not None else None
        assert declared is not None
        narrower: DataGeneratorSource[Any] = copy(self)
        narrower._columns = tuple(names)
        narrower._type_info = RowTypeInfo([declared[name] for name in names], list(names))
        return narrower

    @property
    def boundedness(self) -> Boundedness:
        """Bounded if there is a count."""
        return Boundedness.CONTINUOUS_UNBOUNDED if self._count is None else Boundedness.BOUNDED

    def enumerator(self) -> EnumeratorSpec:
        """Split the numbers into as many ranges as there are subtasks."""
        return EnumeratorSpec("numbers", {"start": 0, "end": 2**63 - 1 if self._count is None else self._count})

    def create_reader(self, context: ReaderContext) -> SplitQueueReader[T]:
        """Make the reader of one subtask."""
        rate = None if self._rate in (None, inf) else self._rate / context.parallelism
        make = _checked_batch(self._batches()) if self._makes_batches else _records(self._function)
        return _GeneratorReader(make, rate, context)

    def _batches(self) -> Any:
        if not self._projects:
            return self._function
        assert self._type_info is not None
        columns = self._columns or field_names(self._type_info)
        function: Any = self._function
        return lambda start, count: function(start, count, columns)

    @override
    def produced_type(self) -> TypeInformation | None:
        return self._type_info


def _records(function: Callable[[int], T]) -> Callable[[int, int], list[T]]:
    return lambda start, count: call_each(function, range(start, start + count))


def _checked_batch(function: Any) -> Callable[[int, int], pa.RecordBatch]:
    import pyarrow as pa

    def make(start: int, count: int) -> pa.RecordBatch:
        batch = function(start, count)
        if not isinstance(batch, pa.RecordBatch):
            raise ProgramError(f"the generator of batches returned {type(batch).__name__}, not a pyarrow.RecordBatch")
        if batch.num_rows != count:
            raise ProgramError(f"the generator of batches was asked for {count} rows and made {batch.num_rows}")
        return batch

    return make


class _GeneratorReader(SplitQueueReader[T]):
    def __init__(self, function: Callable[[int, int], Any], rate: float | None, context: ReaderContext) -> None:
        super().__init__()
        self._function, self._rate, self._context = function, rate, context

    def open_split(self, split: Split) -> SplitCursor[T]:
        start = int(split.data["start"] if split.position is None else split.position)  # type: ignore[arg-type]
        return _GeneratorCursor(self._function, start, int(split.data["end"]), self._rate, self._context)  # type: ignore[arg-type]


class _GeneratorCursor(SplitCursor[T]):
    """Generates the numbers of a split. The limit of the rate counts from when the split was opened."""

    def __init__(
        self, function: Callable[[int, int], Any], start: int, end: int, rate: float | None, context: ReaderContext
    ) -> None:
        self._function, self._position, self._end = function, start, end
        self._rate, self._context = rate, context
        self._first = start
        self._began = context.monotonic()

    def read(self, max_records: int) -> Chunk[T] | Wait:
        count = min(max_records, self._end - self._position)
        if self._rate is not None and count:
            elapsed = self._context.monotonic() - self._began
            # Records that may be out by now, less those that are.
            due = self._first + int(min(elapsed * self._rate, self._end)) + 1 - self._position
            if due <= 0:
                return Wait(max((self._position - self._first) / self._rate - elapsed, SHORTEST_PAUSE))
            count = min(count, due)
        stop = self._position + count
        values = self._function(self._position, count) if count else []
        self._position = stop
        return Chunk(values, stop, stop >= self._end)
