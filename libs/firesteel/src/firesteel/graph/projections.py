"""Projection push-down: columns that nobody reads do not cross the exchange, nor leave a source that can spare them.

Two passes over the graph. From the ends to the sources: which columns of its results are read by somebody; whoever runs
Python code over rows or whole batches reads all. From the sources to the ends: which columns there are, and what is
left out where an edge crosses the exchange. Operators behind it are told that their input has fewer columns.
Expressions that compute something are computed always, so that their errors stay.
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
    }
)
Needed = frozenset[str] | None
"""Names of columns; None = all."""


def push_down(graph: StreamGraph) -> None:
    """Leave out what nobody reads; changes the operators of the graph and fills ``graph.edge_columns``."""
    _PushDown(graph).run()


class _PushDown:
    def __init__(self, graph: StreamGraph) -> None:
        self._graph = graph
        self._read: dict[int, Needed] = {}  # of the results of a node
        self._columns: dict[int, tuple[str, ...]] = {}  # that a node gives, where these are not all of its type

    def run(self) -> None:
        nodes = list(self._graph.nodes.values())
        for node in reversed(nodes):
            self._read[node.id] = _union(self._taken(edge) for edge in node.out_edges if edge.output_tag is None)
        for node in nodes:
            self._narrow(node)

    # -- from the ends to the sources

    def _taken(self, edge: StreamEdge) -> Needed:
        """Columns that the reader of an edge has to get."""
        taken = self._input(self._graph.nodes[edge.target])
        if taken is None or (edge.key_selector is not None and not isinstance(edge.key_selector, ColumnKey)):
            return None
        if edge.partitioner is PartitionerKind.CUSTOM:
            return None
        return taken if edge.key_selector is None else taken | set(edge.key_selector.reads)

    def _input(self, node: StreamNode) -> Needed:
        """Columns that an operator has to get, over all edges that lead to it; at least one, so that there are rows."""
        own = self._own(node)
        keys = [edge.key_selector for edge in node.in_edges if edge.key_selector is not None]
        if own is None or not all(isinstance(key, ColumnKey) for key in keys):
            return None
        needed = own.union(*[key.reads for key in keys if isinstance(key, ColumnKey)])
        return needed or frozenset(tuple(_schema(node.operator.extra["input_type"]) or ())[:1])

    def _own(self, node: StreamNode) -> Needed:
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
            kept = _kept(node, read)
            return frozenset[str]().union(*[expression.columns() for _, expression in kept])
        if read is None:
            return None
        if operator.kind is OperatorKind.COLUMNS_FILTER:
            condition: frozenset[str] = operator.function.columns()
            return read | condition
        taken = _of_strategy(operator.function)
        return None if taken is None else read | taken

    # -- from the sources to the ends

    def _narrow(self, node: StreamNode) -> None:
        operator, read = node.operator, self._read[node.id]
        if operator.kind is OperatorKind.SOURCE:
            if read is not None:
                self._narrow_source(node, read)
            return
        given = self._given(node)
        if given is None:
            return
        declared = operator.extra["input_type"]
        if operator.kind is OperatorKind.COLUMNS_PROJECT:
            kept = _kept(node, read)
            result = operator.extra["result_type"]
            operator.extra["input_type"] = _narrowed(declared, given)
            if len(kept) < len(operator.function):
                names = tuple(name for name, _ in kept)
                operator.function = tuple(expression for _, expression in kept)
                operator.extra["result_type"] = _narrowed(result, names)
                self._columns[node.id] = names
            return
        operator.extra["input_type"] = narrowed = _narrowed(declared, given)
        operator.key_selectors = tuple(_reindexed(key, given) for key in operator.key_selectors)
        if operator.kind in (OperatorKind.COLUMNS_FILTER, OperatorKind.WATERMARKS):
            if "result_type" in operator.extra:
                operator.extra["result_type"] = narrowed
            if narrowed is not declared:
                self._columns[node.id] = given

    def _given(self, node: StreamNode) -> tuple[str, ...] | None:
        """The columns that an operator gets; None if it does not matter. Notes what its edges leave out."""
        taken, declared = self._input(node), node.operator.extra.get("input_type")
        if taken is None or declared is None:
            return None
        every = tuple(_schema(declared) or ())
        edges = node.in_edges
        before = {edge: self._columns.get(edge.source, every) for edge in edges}
        if len(edges) == 1 and edges[0].partitioner is PartitionerKind.FORWARD:
            return before[edges[0]]
        wanted = every
        if any(self._gives_columns(self._graph.nodes[edge.source]) for edge in edges):
            wanted = tuple(name for name in every if name in taken)
        for edge in edges:
            if before[edge] != every or wanted != every:
                self._graph.edge_columns[edge] = EdgeColumns(
                    wanted if before[edge] != wanted else None,
                    tuple(before[edge].index(name) for name in wanted),
                    _reindexed(edge.key_selector, wanted),
                )
        return wanted

    def _gives_columns(self, node: StreamNode) -> bool:
        """Whether its results are columns for sure; rows would have to be taken apart to leave something out."""
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
        taken = frozenset[str]() if strategy is None else _of_strategy(strategy)
        every = _schema(operator.function.produced_type())
        if taken is None or every is None or operator.output_type is not None:
            return
        wanted = tuple(name for name in every if name in read | taken) or tuple(every)[:1]
        if len(wanted) == len(every):
            return
        projected = operator.function.with_columns(wanted)
        if projected is not None and tuple(_schema(projected.produced_type()) or ()) == wanted:
            operator.function = projected
            node.description = f"{node.description}, columns {', '.join(wanted)}"
            self._columns[node.id] = wanted


def _union(parts: Iterable[Needed]) -> Needed:
    found: frozenset[str] = frozenset()
    count = 0
    for part in parts:
        if part is None:
            return None
        found, count = found | part, count + 1
    return found if count else None


def _of_aggregates(aggregates: Sequence[Any]) -> frozenset[str]:
    return frozenset[str]().union(*[one.input.columns() for one in aggregates if one.input is not None])


def _of_keys(selectors: Sequence[Any]) -> frozenset[str]:
    return frozenset[str]().union(*[key.reads for key in selectors if isinstance(key, ColumnKey)])


def _of_strategy(strategy: Any) -> Needed:
    """Columns that event time is read from."""
    if strategy.generator_supplier is not None:
        return None
    assigner = strategy.timestamp_assigner
    if assigner is None:
        return frozenset()
    return assigner.expression.columns() if isinstance(assigner, ColumnTimestamps) else None


def _kept(node: StreamNode, read: Needed) -> list[tuple[str, Any]]:
    """What is left of a projection: all that is computed, and of plain columns those that are read."""
    operator = node.operator
    named = list(zip(operator.extra["result_type"].field_names, operator.function, strict=True))
    if read is None:
        return named
    return [(name, one) for name, one in named if one.function != "column" or name in read] or named[:1]


def _schema(type_info: TypeInformation | None) -> dict[str, TypeInformation] | None:
    if type_info is None:
        return None
    from firesteel.expressions.schema import schema_of, uncolumnar

    return None if uncolumnar(type_info) is not None else schema_of(type_info)


def _narrowed(declared: TypeInformation, names: tuple[str, ...]) -> TypeInformation:
    """The type of rows of these columns only."""
    every = _schema(declared)
    assert every is not None
    if names == tuple(every):
        return declared
    return RowTypeInfo([every[name] for name in names], list(names))


def _reindexed(key: Any, names: tuple[str, ...]) -> Any:
    """A key of columns, read from records with these columns only."""
    return key.over(names) if isinstance(key, ColumnKey) else key
