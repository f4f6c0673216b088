"""A source of consecutive numbers."""

from __future__ import annotations

from typing_extensions import override

from firesteel.common.typeinfo import TypeInformation, Types
from firesteel.connectors.split_reader import Chunk, SplitCursor, SplitQueueReader
from firesteel.core.errors import ProgramError
from firesteel.functions.source import Boundedness, EnumeratorSpec, ReaderContext, Source, Split


class NumberSequenceSource(Source[int]):
    """The numbers from ``start`` to ``end``, both included, in as many contiguous ranges as there are subtasks.

    The numbers of a range come in order. A subtask that has nothing to do takes the next range, as in Flink: one that
    starts late may get none.

    Raises:
        ProgramError: ``start`` is greater than ``end``.

    Examples:
        ```python
        from firesteel.common import WatermarkStrategy
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.connectors import NumberSequenceSource

        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        numbers = env.from_source(NumberSequenceSource(1, 4), WatermarkStrategy.no_watermarks(), "numbers")
        print(list(numbers.execute_and_collect()))
        ```

        ```text
        [1, 2, 3, 4]
        ```
    """

    def __init__(self, start: int, end: int) -> None:
        if start > end:
            raise ProgramError(f"a number sequence from {start} to {end} is empty: start must not be above end")
        self._start, self._end = start, end

    @property
    @override
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def enumerator(self) -> EnumeratorSpec:
        """Split the numbers into as many ranges as there are subtasks."""
        return EnumeratorSpec("numbers", {"start": self._start, "end": self._end + 1})

    def create_reader(self, context: ReaderContext) -> SplitQueueReader[int]:
        """Make the reader of one subtask."""
        return NumberRangeReader()

    @override
    def produced_type(self) -> TypeInformation:
        return Types.LONG()


class NumberRangeReader(SplitQueueReader[int]):
    """Reads the splits of the ``numbers`` enumerator."""

    def open_split(self, split: Split) -> SplitCursor[int]:
        """Open a cursor over a range."""
        start = split.data["start"] if split.position is None else split.position
        return _NumberCursor(int(start), int(split.data["end"]))  # type: ignore[arg-type]


class _NumberCursor(SplitCursor[int]):
    def __init__(self, position: int, end: int) -> None:
        self._position, self._end = position, end

    def read(self, max_records: int) -> Chunk[int]:
        stop = min(self._end, self._position + max_records)
        values = list(range(self._position, stop))
        self._position = stop
        return Chunk(values, stop, stop >= self._end)
