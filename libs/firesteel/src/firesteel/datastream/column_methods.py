"""What streams of typed rows and tuples can do with their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from firesteel.common.typeinfo import RowTypeInfo, TypeInformation
from firesteel.config.options import EXPRESSIONS_WRAP
from firesteel.datastream import checks
from firesteel.expressions import Expression
from firesteel.expressions.keys import ColumnKey
from firesteel.graph.specs import OperatorKind
from firesteel.graph.stream_graph import StreamInput

if TYPE_CHECKING:
    import pyarrow as pa

    from firesteel.datastream.data_stream import DataStream
    from firesteel.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["ColumnMethods", "is_column_key"]


class ColumnMethods:
    """Of all streams; one whose type has no columns refuses them and says why."""

    _environment: StreamExecutionEnvironment
    _inputs: tuple[StreamInput, ...]
    _record_type: TypeInformation

    def select(self, *columns: str | Expression) -> DataStream:
        """Makes rows of these columns: names of columns, and expressions with an ``alias``.

        Raises:
            GraphError: the stream has no columns.
            ProgramError: an expression does not fit them.
        """
        from firesteel.datastream import column_plans

        return self._project("Select", column_plans.select(columns, self._record_type, wrap=self._wraps()))

    def with_columns(self, *columns: Expression) -> DataStream:
        """Adds columns, or puts others in their place where the name is there already.

        Raises:
            GraphError: the stream has no columns.
            ProgramError: an expression does not fit them.
        """
        from firesteel.datastream import column_plans

        return self._project("WithColumns", column_plans.with_columns(columns, self._record_type, wrap=self._wraps()))

    def drop(self, *names: str) -> DataStream:
        """Leaves columns out.

        Raises:
            GraphError: the stream has no columns, or none would be left.
            ProgramError: there is no such column.
        """
        from firesteel.datastream import column_plans

        return self._project("Drop", column_plans.drop(names, self._record_type, wrap=self._wraps()))

    def map_batches(
        self,
        func: Callable[[pa.RecordBatch], pa.RecordBatch | Iterator[pa.RecordBatch] | None],
        output_type: TypeInformation,
        timestamp_column: str | None = None,
    ) -> DataStream:
        """Hands whole ``pyarrow.RecordBatch`` objects to a function, which gives one, several as an iterator, or None.

        Args:
            func: may change the number of rows. How many rows a batch has is not defined.
            output_type: type of the result's rows; columns are found by name.
            timestamp_column: column of the result with the timestamps in milliseconds; without it rows keep those of
                the input, whose number they must have then. It need not be in ``output_type``.

        Raises:
            GraphError: the stream or the result has no columns.
        """
        from firesteel.datastream import column_plans

        column_plans.columns_of("map_batches", self._record_type)
        checks.check_callable("map_batches", func)
        declared = checks.declared_type("output_type", output_type)
        column_plans.check_result("map_batches", declared)
        if timestamp_column is not None:
            checks.some_text("timestamp_column", timestamp_column)
        return self._columnar("MapBatches", OperatorKind.COLUMNS_MAP, func, declared, timestamp_column=timestamp_column)

    def _filter_columns(self, expression: Expression) -> DataStream:
        from firesteel.datastream import column_plans

        condition = column_plans.condition(expression, self._record_type, wrap=self._wraps())
        return self._columnar("Filter", OperatorKind.COLUMNS_FILTER, condition, self._record_type)

    def _column_key(self, columns: Any, key_type: Any = None) -> tuple[ColumnKey, TypeInformation]:
        from firesteel.datastream import column_plans

        if isinstance(key_type, str | Expression):
            raise TypeError("key_by() takes several columns as a list: key_by([..., ...])")
        chosen = [columns] if isinstance(columns, str | Expression) else columns
        return column_plans.column_key(chosen, self._record_type, wrap=self._wraps())

    def _wraps(self) -> bool:
        return self._environment._settings().get(EXPRESSIONS_WRAP)

    def _columnar(
        self,
        name: str,
        kind: OperatorKind,
        function: Any,
        result: TypeInformation,
        key_selectors: tuple[Callable[[Any], Any], ...] = (),
        inputs: tuple[StreamInput, ...] | None = None,
        **extra: Any,
    ) -> DataStream:
        from firesteel.datastream.data_stream import DataStream

        described = {"input_type": self._record_type, "result_type": result, "wrap": self._wraps(), **extra}
        made = self._environment._add(
            name,
            kind,
            function,
            (self._inputs if inputs is None else inputs,),
            key_selectors=key_selectors,
            extra=described,
        )
        return DataStream(self._environment, (StreamInput(made),), result)

    def _project(self, name: str, projection: tuple[tuple[Expression, ...], RowTypeInfo]) -> DataStream:
        return self._columnar(name, OperatorKind.COLUMNS_PROJECT, *projection)


def is_column_key(selector: Any) -> bool:
    """Whether ``key_by`` was given columns: a name, an expression, or a list of them."""
    if isinstance(selector, list | tuple):
        return all(isinstance(one, str | Expression) for one in selector)
    return isinstance(selector, str | Expression)
