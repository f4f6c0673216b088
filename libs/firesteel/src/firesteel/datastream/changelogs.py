"""Streams of the changes of tables, for libraries that build on streams (SQL)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from firesteel.common.typeinfo import RowTypeInfo
from firesteel.datastream.data_stream import DataStream, KeyedStream
from firesteel.functions.changelog import ChangelogComputation
from firesteel.graph.specs import OperatorKind
from firesteel.graph.stream_graph import Transformation, reachable

__all__ = [
    "changes_of_epochs",
    "computed_changes",
    "expanded_rows",
    "identify_changes",
    "identify_sinks",
    "identify_source",
]


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


def identify_changes(stream: DataStream, uid: str, input_names: Sequence[Sequence[str]]) -> None:
    """Give the operator of ``computed_changes`` that by which its state is found again.

    Args:
        stream: its results, or columns selected of them.
        uid: of the operator.
        input_names: for each input what its first columns hold, whatever their names are in this program.
    """
    operator = stream._inputs[0].source
    while operator.kind not in (OperatorKind.COLUMNS_CHANGELOG, OperatorKind.COLUMNS_CO_CHANGELOG):
        operator = operator.inputs[0][0].source
    operator.uid = uid
    operator.function = replace(operator.function, input_names=tuple(map(tuple, input_names)))


def identify_source(stream: DataStream, uid: str) -> None:
    """Give the sources that a stream is read from a uid, unless they have one."""
    operators = reachable(stream_input.source for stream_input in stream._inputs).values()
    _identify([operator for operator in operators if operator.kind is OperatorKind.SOURCE], uid)


def identify_sinks(stream: DataStream, uid: str) -> None:
    """Give the sinks that were added behind a stream a uid, unless they have one."""
    sinks = [operator for operator in stream._environment._pending if operator.kind in _SINKS]
    own_sources = {stream_input.source.id for stream_input in stream._inputs}
    _identify([sink for sink in sinks if own_sources & reachable([sink]).keys()], uid)


def _identify(operators: Iterable[Transformation], uid: str) -> None:
    unnamed = [operator for operator in operators if operator.uid is None and operator.uid_hash is None]
    for number, operator in enumerate(unnamed):
        operator.uid = uid if number == 0 else f"{uid}/{number}"


_SINKS: Final = (OperatorKind.SINK, OperatorKind.SINK_FUNCTION, OperatorKind.PRINT)


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
