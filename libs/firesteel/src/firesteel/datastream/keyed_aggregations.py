"""Running aggregations of keyed streams."""

from __future__ import annotations

import operator
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from firesteel.datastream import aggregations, checks
from firesteel.expressions import Aggregate
from firesteel.functions.batch_functions import KeyedBatchFunction
from firesteel.graph.specs import OperatorKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from firesteel.common.typeinfo import TypeInformation
    from firesteel.datastream.data_stream import DataStream
    from firesteel.graph.stream_graph import StreamInput

    BatchCallable = Callable[
        [pa.RecordBatch, KeyedBatchFunction.Context], pa.RecordBatch | Iterator[pa.RecordBatch] | None
    ]

__all__ = ["KeyedAggregations"]


class KeyedAggregations:
    """Of keyed streams: each gives the result so far after each record."""

    if TYPE_CHECKING:
        _record_type: TypeInformation

        _key_selector: Callable[[Any], Any]

        @abstractmethod
        def _reduce(self, name: str, function: Any) -> DataStream: ...

        def _wraps(self) -> bool: ...

        def _columnar(
            self,
            name: str,
            kind: OperatorKind,
            function: Any,
            result: TypeInformation,
            key_selectors: tuple[Callable[[Any], Any], ...] = (),
            inputs: tuple[StreamInput, ...] | None = None,
            **extra: Any,
        ) -> DataStream: ...

    def aggregate(self, *aggregates: Aggregate) -> DataStream:
        """For each row the aggregates of its key so far, as rows of the key's columns and the results.

        Computed by kernels over whole batches, with the state in arrays. Rows keep their timestamps.

        Args:
            aggregates: such as ``count()``, ``sum_("price")``, ``max_(col("price") * 2).alias("twice")``. A result is
                called by its alias, or as ``count``, ``sum_price``, ``max_price`` and so on.

        Raises:
            TypeError: one is no aggregate.
            GraphError: the stream has no columns, it is keyed by a function, or a name is missing or stands twice.
            ProgramError: an aggregate does not fit the columns; near names and types are in the message.
        """
        from firesteel.datastream import column_plans

        found, result = column_plans.aggregate(aggregates, self._key_selector, self._record_type, wrap=self._wraps())
        return self._columnar(
            "Aggregate", OperatorKind.COLUMNS_AGGREGATE, found, result, key_selectors=(self._key_selector,)
        )

    def process_batches(
        self,
        func: BatchCallable | KeyedBatchFunction,
        output_type: TypeInformation,
        timestamp_column: str | None = None,
    ) -> DataStream:
        """Hands whole ``pyarrow.RecordBatch`` objects to a function with keyed state of many keys at once.

        Args:
            func: a ``KeyedBatchFunction``, or a callable that takes a batch and a ``KeyedBatchFunction.Context``. It
                gives a batch, several as an iterator, or None. How many rows a batch has is not defined.
            output_type: type of the result's rows; columns are found by name.
            timestamp_column: column of the result with the timestamps in milliseconds; without it rows keep those of
                the input, whose number they must have then. It need not be in ``output_type``.

        Raises:
            GraphError: the stream or the result has no columns, or the stream is keyed by a function.
        """
        from firesteel.datastream import column_plans

        checks.check_function("process_batches", func, KeyedBatchFunction)
        given = column_plans.columns_of("process_batches", self._record_type)
        column_plans.key_of("process_batches", self._key_selector, given)
        declared = checks.declared_type("output_type", output_type)
        column_plans.check_result("process_batches", declared)
        if timestamp_column is not None:
            checks.some_text("timestamp_column", timestamp_column)
        return self._columnar(
            "ProcessBatches",
            OperatorKind.COLUMNS_PROCESS,
            func,
            declared,
            key_selectors=(self._key_selector,),
            timestamp_column=timestamp_column,
        )

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """The running sum of a field; other fields are those of the key's first record."""
        position = aggregations.check_position("sum", position_to_sum, self._record_type)
        return self._reduce("Sum", aggregations.FieldReduce(position, operator.add))

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """The running minimum of a field; other fields are those of the key's first record."""
        position = aggregations.check_position("min", position_to_min, self._record_type)
        return self._reduce("Min", aggregations.FieldReduce(position, aggregations.smaller))

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """The running maximum of a field; other fields are those of the key's first record."""
        position = aggregations.check_position("max", position_to_max, self._record_type)
        return self._reduce("Max", aggregations.FieldReduce(position, aggregations.greater))

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """The record whose field is the smallest so far, the first of equals."""
        position = aggregations.check_position("min_by", position_to_min_by, self._record_type)
        return self._reduce("MinBy", aggregations.PickRecord(position, smallest=True))

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """The record whose field is the greatest so far, the first of equals."""
        position = aggregations.check_position("max_by", position_to_max_by, self._record_type)
        return self._reduce("MaxBy", aggregations.PickRecord(position, smallest=False))
