"""Projection push-down: unread columns do not cross the exchange, nor leave a source that can omit them.

There are two passes over the graph. The first one goes from the ends to the sources and finds which columns of each
operator's results are read; an operator that runs Python code over rows or whole batches reads all. The second one goes
from the sources to the ends and finds which columns there are and which are left out where an edge crosses the
exchange; the operators behind such an edge get an input type with fewer columns. Expressions that compute something are
always computed, so that a program fails with the same errors as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from firesteel.common.typeinfo import RowTypeInfo, TypeInformation
from firesteel.expressions.expression import ColumnTimestamps
from firesteel.expressions.keys import ColumnKey
from firesteel.functions.source import Source
from firesteel.graph.specs import OperatorKind, PartitionerKind
from firesteel.graph.stream_graph import EdgeColumns, StreamEdge, StreamGraph, StreamNode

__all__ = ["push_down"]

_READS_SOME: Final = frozenset(
    {
        OperatorKind.COLUMNS_FILTER,
        OperatorKind.COLUMNS_PROJECT,
        OperatorKind.COLUMNS_AGGREGATE,
        OperatorKind.COLUMNS_WINDOW,
        OperatorKind.WATERMARKS,
    }
)
_GIVES_COLUMNS: Final = frozenset(
    {
        OperatorKind.COLUMNS_FILTER,
        OperatorKind.COLUMNS_PROJECT,
        OperatorKind.COLUMNS_MAP,
        OperatorKind.COLUMNS_AGGREGATE,
        OperatorKind.COLUMNS_PROCESS,
        OperatorKind.COLUMNS_EXPAND,
        OperatorKind.COLUMNS_CHANGELOG,
        OperatorKind.COLUMNS_CO_CHANGELOG,
        OperatorKind.COLUMNS_EPOCH,
    }
)
Needed = frozenset[str] | None
"""Names of columns; None = all."""


def push_down(graph: StreamGraph) -> None:
    """Leave out columns that no operator reads; changes the operators of the graph and fills ``graph.edge_columns``."""
    _PushDown(graph).run()


class _PushDown:
    def __init__(self, graph: StreamGraph) -> None:
        self._graph = graph
        self._read: dict[int, Needed] = {}  # by node: the columns of its results that are read
        self._columns: dict[int, tuple[str, ...]] = {}  # by node: the columns of its results, if not all of its type

    def run(self) -> None:
        nodes = list(self._graph.nodes.values())
        for node in reversed(nodes):
            self._read[node.id] = _union(self._columns_over(edge) for edge in node.out_edges if edge.output_tag is None)
        for node in nodes:
            self._narrow(node)

    # -- from the ends to the sources

    def _columns_over(self, edge: StreamEdge) -> Needed:
        """Columns that an edge has to carry: those that its target reads, and those of its key."""
        needed = self._input(self._graph.nodes[edge.target])
        if needed is None or (edge.key_selector is not None and not isinstance(edge.key_selector, ColumnKey)):
            return None
        if edge.partitioner is PartitionerKind.CUSTOM:
            return None
        return needed if edge.key_selector is None else needed | set(edge.key_selector.reads)

    def _input(self, node: StreamNode) -> Needed:
        """Columns that an operator needs from its inputs; at least one, since a batch without columns has no rows."""
        read_columns = self._columns_read(node)
        keys = [edge.key_selector for edge in node.in_edges if edge.key_selector is not None]
        if read_columns is None or not all(isinstance(key, ColumnKey) for key in keys):
            return None
        needed = read_columns.union(*[key.reads for key in keys if isinstance(key, ColumnKey)])
        return needed or frozenset(tuple(_schema(node.operator.extra["input_type"]) or ())[:1])

    def _columns_read(self, node: StreamNode) -> Needed:
        operator, read = node.operator, self._read[node.id]
        if operator.kind not in _READS_SOME or len({edge.input_index for edge in node.in_edges}) != 1:
            return None
        if _schema(operator.extra.get("input_type")) is None:
            return None
        if operator.kind is OperatorKind.COLUMNS_AGGREGATE:
            return _of_aggregates(operator.function) | _of_keys(operator.key_selectors)
        if operator.kind is OperatorKind.COLUMNS_WINDOW:
            if operator.function.late_tag is not None:  # late rows go out whole
                return None
            return _of_aggregates(operator.function.aggregates) | _of_keys(operator.key_selectors)
        if operator.kind is OperatorKind.COLUMNS_PROJECT:
            remaining = _remaining_expressions(node, read)
            return frozenset[str]().union(*[expression.columns() for _, expression in remaining])
        if read is None:
            return None
        if operator.kind is OperatorKind.COLUMNS_FILTER:
            condition: frozenset[str] = operator.function.columns()
            return read | condition
        time_columns = _of_strategy(operator.function)
        return None if time_columns is None else read | time_columns

    # -- from the sources to the ends

    def _narrow(self, node: StreamNode) -> None:
        operator, read = node.operator, self._read[node.id]
        if operator.kind is OperatorKind.SOURCE:
            if read is not None:
                self._narrow_source(node, read)
            return
        columns = self._input_columns(node)
        if columns is None:
            return
        declared = operator.extra["input_type"]
        if operator.kind is OperatorKind.COLUMNS_PROJECT:
            remaining = _remaining_expressions(node, read)
            result = operator.extra["result_type"]
            operator.extra["input_type"] = _narrowed(declared, columns)
            if len(remaining) < len(operator.function):
                names = tuple(name for name, _ in remaining)
                operator.function = tuple(expression for _, expression in remaining)
                operator.extra["result_type"] = _narrowed(result, names)
                self._columns[node.id] = names
            return
        operator.extra["input_type"] = narrowed = _narrowed(declared, columns)
        operator.key_selectors = tuple(_reindexed(key, columns) for key in operator.key_selectors)
        if operator.kind in (OperatorKind.COLUMNS_FILTER, OperatorKind.WATERMARKS):
            if "result_type" in operator.extra:
                operator.extra["result_type"] = narrowed
            if narrowed is not declared:
                self._columns[node.id] = columns

    def _input_columns(self, node: StreamNode) -> tuple[str, ...] | None:
        """Columns that an operator gets; None if it needs all. Also enters in the graph what its edges leave out."""
        needed, declared = self._input(node), node.operator.extra.get("input_type")
        if needed is None or declared is None:
            return None
        all_columns = tuple(_schema(declared) or ())
        edges = node.in_edges
        source_columns = {edge: self._columns.get(edge.source, all_columns) for edge in edges}
        # FORWARD edges are usually chained: batches pass as they are.
        if len(edges) == 1 and edges[0].partitioner is PartitionerKind.FORWARD:
            return source_columns[edges[0]]
        columns = all_columns
        if any(self._gives_columns(self._graph.nodes[edge.source]) for edge in edges):
            columns = tuple(name for name in all_columns if name in needed)
        for edge in edges:
            if source_columns[edge] != all_columns or columns != all_columns:
                self._graph.edge_columns[edge] = EdgeColumns(
                    columns if source_columns[edge] != columns else None,
                    tuple(source_columns[edge].index(name) for name in columns),
                    _reindexed(edge.key_selector, columns),
                )
        return columns

    def _gives_columns(self, node: StreamNode) -> bool:
        """Whether the results of a node are sure to be columns; rows would have to be taken apart to omit columns."""
        operator = node.operator
        if operator.kind is OperatorKind.SOURCE:
            return node.id in self._columns or (
                isinstance(operator.function, Source) and operator.function.makes_columns
            )
        if operator.kind is OperatorKind.WATERMARKS:
            return any(self._gives_columns(self._graph.nodes[edge.source]) for edge in node.in_edges)
        return operator.kind in _GIVES_COLUMNS

    def _narrow_source(self, node: StreamNode, read: frozenset[str]) -> None:
        operator = node.operator
        strategy = operator.extra.get("watermark_strategy")
        time_columns = frozenset[str]() if strategy is None else _of_strategy(strategy)
        all_columns = _schema(operator.function.produced_type())
        if time_columns is None or all_columns is None or operator.output_type is not None:
            return
        columns = tuple(name for name in all_columns if name in read | time_columns) or tuple(all_columns)[:1]
        if len(columns) == len(all_columns):
            return
        projected = operator.function.with_columns(columns)
        if projected is not None and tuple(_schema(projected.produced_type()) or ()) == columns:
            operator.function = projected
            node.description = f"{node.description}, columns {', '.join(columns)}"
            self._columns[node.id] = columns


def _union(parts: Iterable[Needed]) -> Needed:
    union: frozenset[str] = frozenset()
    count = 0
    for part in parts:
        if part is None:
            return None
        union, count = union | part, count + 1
    return union if count else None


def _of_aggregates(aggregates: Sequence[Any]) -> frozenset[str]:
    return frozenset[str]().union(
        *[aggregate.input.columns() for aggregate in aggregates if aggregate.input is not None]
    )


def _of_keys(selectors: Sequence[Any]) -> frozenset[str]:
    return frozenset[str]().union(*[key.reads for key in selectors if isinstance(key, ColumnKey)])


def _of_strategy(strategy: Any) -> Needed:
    """Columns from which a watermark strategy reads event time and watermarks; None = it may read all."""
    if strategy.generator_supplier is not None:
        return None
    read = frozenset[str]()
    for assigner in (strategy.timestamp_assigner, strategy.watermark_assigner):
        if isinstance(assigner, ColumnTimestamps):
            read |= assigner.expression.columns()
        elif assigner is not None:
            return None
    return read


def _remaining_expressions(node: StreamNode, read: Needed) -> list[tuple[str, Any]]:
    """Expressions of a projection that stay: those that compute something, and the plain columns that are read."""
    operator = node.operator
    named = list(zip(operator.extra["result_type"].field_names, operator.function, strict=True))
    if read is None:
        return named
    return [
        (name, expression) for name, expression in named if expression.function != "column" or name in read
    ] or named[:1]


def _schema(type_info: TypeInformation | None) -> dict[str, TypeInformation] | None:
    if type_info is None:
        return None
    from firesteel.expressions.schema import schema_of, uncolumnar

    return None if uncolumnar(type_info) is not None else schema_of(type_info)


def _narrowed(declared: TypeInformation, names: tuple[str, ...]) -> TypeInformation:
    """Type of rows with these columns only."""
    every = _schema(declared)
    assert every is not None
    if names == tuple(every):
        return declared
    return RowTypeInfo([every[name] for name in names], list(names))


def _reindexed(key: Any, names: tuple[str, ...]) -> Any:
    """Key selector for records with these columns only; other keys than those of columns stay as they are."""
    return key.over(names) if isinstance(key, ColumnKey) else key
