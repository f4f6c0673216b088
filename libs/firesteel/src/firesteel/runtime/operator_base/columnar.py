"""Operators over whole record batches: conditions, projections and functions of batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from firesteel.core.errors import ProgramError
from firesteel.core.short_repr import short_repr
from firesteel.expressions.schema import schema_of
from firesteel.functions.batch_functions import ChangelogMapFunction
from firesteel.functions.functions import Function, MapFunction
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.base import Operator, method_of
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import Stamps, StreamColumns, as_array, columns_of


class ColumnTransform(Operator):
    """An operator that takes and emits record batches.

    Attributes:
        input: columns of the batches that it takes.
    """

    takes_changes = True
    takes_dictionaries: ClassVar[bool] = False
    """Whether columns of its key may come as Arrow dictionaries; its results never have any."""

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self.input = StreamColumns(spec.extra["input_type"])
        self.wrap = bool(spec.extra.get("wrap"))
        declared = schema_of(spec.extra["input_type"])
        assert declared is not None
        self.declared = declared

    @abstractmethod
    def apply_columns(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield the results for batches, which are pulled as they are needed."""

    def columns_of_input(self, input_index: int) -> StreamColumns:
        """Columns of the batches of one of the inputs."""
        return self.input

    def apply_input(self, batches: Iterator[Batch], input_index: int) -> Iterator[Batch]:
        """Like ``apply_columns``, for batches of one of the inputs."""
        return self.apply_columns(batches)

    def columns_of(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """The columns of a batch, by name."""
        return dict(zip(self.input.names, batch.columns, strict=True))


class FilterColumns(ColumnTransform):
    """Passes the rows for which a condition is true, neither false nor null."""

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        from firesteel.expressions.binding import bind_condition  # loads Arrow's kernels, which few slots need

        self._condition = bind_condition(spec.function, self.declared, wrap=self.wrap)

    @override
    def apply_columns(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            rows, stamps, kinds = columns_of(batch), batch.timestamps, batch.kinds
            mask = self._condition.evaluate(self.columns_of(rows), rows.num_rows)
            passing = rows.filter(mask)
            self.fewer += rows.num_rows - passing.num_rows
            if passing.num_rows < rows.num_rows and (stamps is not None or kinds is not None):
                chosen = mask.fill_null(False).to_numpy(zero_copy_only=False)
                stamps = None if stamps is None else np.asarray(stamps)[chosen]
                kinds = None if kinds is None else np.asarray(kinds)[chosen]
            yield Batch(passing, stamps, kinds)


class ProjectColumns(ColumnTransform):
    """Computes each column of the result by an expression."""

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        from firesteel.expressions.binding import bind  # loads Arrow's kernels, which few slots need

        self._columns = [bind(expression, self.declared, wrap=self.wrap) for expression in spec.function]
        self._output = StreamColumns(spec.extra["result_type"])

    @override
    def apply_columns(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        schema = self._output.schema
        for batch in batches:
            inputs, count = self.columns_of(columns_of(batch)), len(batch)
            arrays = [column.evaluate(inputs, count) for column in self._columns]
            yield batch.with_values(pa.RecordBatch.from_arrays(arrays, schema=schema))


class MapBatches(ColumnTransform):
    """Calls a user's function that makes one batch, or several, of each batch.

    Attributes:
        METHOD: name of the method of the DataStream API, for errors.
        FUNCTION: class of functions that it takes beside callables, and the method that takes a batch.
    """

    METHOD = "map_batches"
    FUNCTION: ClassVar[tuple[type[Function], str]] = (MapFunction, "map")

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self._function = method_of(spec.function, *self.FUNCTION)
        self._output = StreamColumns(spec.extra["result_type"])
        self._timestamp_column: str | None = spec.extra.get("timestamp_column")

    @override
    def apply_columns(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            value = columns_of(batch)
            self.fewer += value.num_rows
            if isinstance(self.spec.function, ChangelogMapFunction):
                yield self._changed(self.spec.function, value, batch)
                continue
            result = self.call(value, as_array(batch.timestamps))
            if result is None:
                continue
            if isinstance(result, pa.RecordBatch):
                yield self._checked(result, batch)
                continue
            if not isinstance(result, Iterator):
                raise self._no_batch("returned", result)
            for part in result:
                if not isinstance(part, pa.RecordBatch):
                    raise self._no_batch("yielded", part)
                yield self._checked(part, batch)

    def call(self, value: pa.RecordBatch, stamps: Stamps) -> Any:
        """Call the function with a batch; returns what it returned."""
        return self._function(value)

    def _changed(self, function: ChangelogMapFunction, value: pa.RecordBatch, batch: Batch) -> Batch:
        kinds = None if batch.kinds is None else np.asarray(batch.kinds, np.int8)
        result, new_kinds, stamps = function.map_changes(value, kinds, as_array(batch.timestamps))
        rows = self._output.fitted(result, f"a batch of {result.num_rows} rows that {self.name!r} gave")
        self.fewer -= rows.num_rows
        return Batch(rows, stamps, new_kinds)

    def _checked(self, result: pa.RecordBatch, batch: Batch) -> Batch:
        rows = self._output.fitted(result, f"a batch of {result.num_rows} rows that {self.name!r} gave")
        self.fewer -= rows.num_rows
        same_rows = rows.num_rows == len(batch)
        if batch.kinds is not None and not same_rows:
            raise ProgramError(
                f"{self.METHOD}(): {rows.num_rows} rows came of {len(batch)}, which are changes (+I, -U, +U, -D), so "
                "whose kind is whose? Return as many rows as were given"
            )
        if self._timestamp_column is not None:
            return Batch(rows, self._stamps_of(result, self._timestamp_column), batch.kinds)
        if batch.timestamps is not None and not same_rows:
            raise ProgramError(
                f"{self.METHOD}(): {rows.num_rows} rows came of {len(batch)}, so whose timestamp is whose? Name "
                f"the column that holds them: {self.METHOD}(..., timestamp_column='…')"
            )
        return batch.with_values(rows)

    def _stamps_of(self, batch: pa.RecordBatch, name: str) -> npt.NDArray[np.int64]:
        index = batch.schema.get_field_index(name)
        column = None if index < 0 else batch.column(index)
        if column is None or not pa.types.is_integer(column.type) or column.null_count:
            actual = f"one of {column.type} with {column.null_count} nulls" if column is not None else "none"
            raise ProgramError(
                f"{self.METHOD}(): the column {name!r} has to hold timestamps, whole numbers of milliseconds, and "
                f"there is {actual}"
            )
        return np.ascontiguousarray(column.to_numpy(), np.int64)

    def _no_batch(self, verb: str, result: Any) -> ProgramError:
        return ProgramError(
            f"{self.METHOD}(): the function {verb} {short_repr(result, 80)} ({type(result).__name__}); it has to "
            "return a pyarrow.RecordBatch, an iterator of them, or None"
        )
