"""Streams of the changes of tables, for libraries that build on streams (SQL)."""

from __future__ import annotations

from collections.abc import Sequence

from firesteel.common.typeinfo import RowTypeInfo
from firesteel.datastream.data_stream import DataStream, KeyedStream
from firesteel.functions.changelog import ChangelogComputation
from firesteel.graph.specs import OperatorKind

__all__ = ["changes_of_epochs", "computed_changes", "expanded_rows"]


def computed_changes(
    name: str, inputs: Sequence[KeyedStream], computation: ChangelogComputation, result: RowTypeInfo
) -> DataStream:
    """The changes that a computation makes of those of one or two streams.

    Args:
        name: of the operator.
        inputs: streams of columns that are keyed by columns, of equal types.
        computation: names the ``ChangelogFunction``.
        result: type of the rows of the results.
    """
    first, *others = inputs
    return first._environment._add_stream(
        name,
        OperatorKind.COLUMNS_CO_CHANGELOG if others else OperatorKind.COLUMNS_CHANGELOG,
        computation,
        tuple(stream._inputs for stream in inputs),
        result,
        key_selectors=tuple(stream._key_selector for stream in inputs),
        extra={
            "input_type": first._record_type,
            "other_input_types": tuple(stream._record_type for stream in others),
            "result_type": result,
            "wrap": first._wraps(),
        },
    )


def expanded_rows(name: str, stream: DataStream, computation: ChangelogComputation, result: RowTypeInfo) -> DataStream:
    """The rows that a computation makes of each row of a stream of columns.

    Args:
        name: of the operator.
        stream: the rows, with any kinds.
        computation: names the ``RowExpansion``.
        result: type of the rows of the results.
    """
    return stream._columnar(name, OperatorKind.COLUMNS_EXPAND, computation, result)


def changes_of_epochs(stream: DataStream, key: Sequence[int] | None) -> DataStream:
    """The net changes of a stream of columns between the barriers of two checkpoints, which leave with the second.

    Args:
        stream: the changes of a table.
        key: places of columns that tell its rows apart: a deletion and an insertion of one key are an update. Empty =
            the table has one row at most; None = there is no key.
    """
    return stream._columnar("Epoch", OperatorKind.COLUMNS_EPOCH, None, stream._record_type, key=key)
