"""Runs whole queries over changing tables without a job: the operators of the graph, one call after the other."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from firesteel.common.types import Row
from firesteel.config.option import STRING, Option
from firesteel.datastream import DataStream, StreamExecutionEnvironment
from firesteel.expressions.keys import ColumnKey
from firesteel.graph.key_groups import operator_index
from firesteel.graph.specs import OperatorKind, OperatorSpec
from firesteel.graph.stream_graph import GraphSettings, StreamGraph, StreamNode
from firesteel.runtime.loop.metrics import MetricRegistry
from firesteel.runtime.operator_base.columnar import ColumnTransform
from firesteel.runtime.operator_base.context import OperatorContext, TaskInfo
from firesteel.runtime.operator_base.keyed_base import state_parameters
from firesteel.runtime.operators import KeyedColumns, TimedColumns, create_operator
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import StreamColumns, columns_of, take
from firesteel.runtime.records.rows import to_rows
from firesteel.state.backend import StateBackend
from firesteel.state.heap import HeapStateBackend
from firesteel.testing.snapshots import SnapshotContents, take_snapshot
from firesteel_sql import TableEnvironment
from firesteel_sql.connectors import connector as connectors
from firesteel_sql.connectors.changelog import ALL_CHANGES, INSERT_ONLY, ChangelogMode
from firesteel_sql.connectors.connector import TableConnector, TableContext
from firesteel_sql.execution.streams import StreamBuilder
from tests.unit.windowing.harness import Clock

MAX_PARALLELISM = 16
Change = tuple[int, Sequence[Any]]
"""A row that comes (+1) or goes (-1)."""
Table = Counter[tuple[Any, ...]]
CHANGES: Final[Option[str]] = Option("changes", STRING, "all", "Which changes come: all, or inserts.")
_TABLE = "table "


class ChangesConnector(TableConnector):
    """A table whose changes the test gives; with ``'changes' = 'inserts'`` rows only come."""

    OPTIONS = (CHANGES,)

    def source_mode(self, context: TableContext) -> ChangelogMode:
        return INSERT_ONLY if context.options.get(CHANGES) == "inserts" else ALL_CHANGES

    def read(self, environment: StreamExecutionEnvironment, context: TableContext) -> DataStream:
        return environment.from_collection([], context.read_type).name(f"{_TABLE}{context.identifier[-1]}")

    def sink_mode(self, context: TableContext, requested: ChangelogMode) -> ChangelogMode:
        return ALL_CHANGES

    def write(self, stream: DataStream, context: TableContext) -> None:
        stream.print()


def use_changes_connector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tables have ``'connector' = 'changes'``."""
    monkeypatch.setattr(connectors, "_names", lambda: ["changes"])
    monkeypatch.setattr(connectors, "load", lambda group, name: ChangesConnector)


class _Node:
    """An operator of the graph, in all its subtasks."""

    def __init__(self, node: StreamNode, rig: QueryRig) -> None:
        self.node, self.spec, self._rig = node, node.operator, rig
        self.operators: list[Any] = []

    @property
    def is_column_transform(self) -> bool:
        return bool(self.operators) and isinstance(self.operators[0], ColumnTransform)

    def start(self, written: Sequence[SnapshotContents]) -> None:
        """Create the operators; the ones without state have one subtask."""
        if self.spec.kind in (OperatorKind.SOURCE, OperatorKind.WATERMARKS):
            return
        count = self._rig.parallelism if self.spec.key_selectors else 1
        self.operators = [self._operator(self.spec, subtask, count, written) for subtask in range(count)]

    def _operator(self, spec: OperatorSpec, subtask: int, count: int, written: Sequence[SnapshotContents]) -> Any:
        rig = self._rig
        info = TaskInfo("1" * 32, "job", "v_0_0", spec.name, subtask, count, MAX_PARALLELISM, 0)
        clock = rig.clock
        operator = create_operator(spec)
        if isinstance(operator, KeyedColumns):
            directory = "" if rig.directory is None else tempfile.mkdtemp(dir=rig.directory)
            operator.use_backend(rig.backend, state_parameters(spec, info, clock, directory=directory))
            operator.backend.restore([contents.of(operator.key_groups) for contents in written])
        operator.open(OperatorContext(info, clock, metrics=rig.registry()))
        return operator

    def write(self) -> list[SnapshotContents]:
        """A snapshot of each subtask with state; the operators end."""
        keyed = [operator for operator in self.operators if isinstance(operator, KeyedColumns)]
        written = [take_snapshot(operator.backend.snapshot(), operator.key_groups) for operator in keyed]
        for operator in keyed:
            operator.close()
        return written


class QueryRig:
    """A query over tables with ``'connector' = 'changes'``.

    Args:
        environment: with the tables.
        query: a SELECT.
        parallelism: of operators with state.
        backend: of the state.
        directory: for backends that store state in files.

    Attributes:
        clock: of all operators.
        table: the result, by the changes so far.
        changes: of the result that the last call gave: kind and row.
    """

    def __init__(
        self,
        environment: TableEnvironment,
        query: str,
        parallelism: int = 1,
        backend: StateBackend | None = None,
        directory: Path | None = None,
    ) -> None:
        self._environment = environment
        self.parallelism, self.backend, self.directory = parallelism, backend or HeapStateBackend(), directory
        self._plan(query)
        for node in self._nodes.values():
            node.start(())
        self._begin()

    def _plan(self, query: str) -> None:
        (relation,) = self._environment._optimised([self._environment.sql_query(query)._relation])
        stream = StreamBuilder(self._environment._for_a_job()).build(relation)
        ends = [part.source for part in stream._inputs]
        graph = StreamGraph.from_transformations(ends, GraphSettings(parallelism=self.parallelism))
        self._nodes = {node.id: _Node(node, self) for node in graph.nodes.values()}
        self._ends = {end.id for end in ends}
        self.clock = Clock()
        self.table: Table = Counter()
        self.changes: list[tuple[int, tuple[Any, ...]]] = []
        self._registries: list[MetricRegistry] = []

    def _begin(self) -> None:
        """Let operators do what is due at once."""
        for node in self._nodes.values():
            for operator in node.operators:
                if isinstance(operator, TimedColumns):
                    self._take(node, operator.advance_processing_time(0))

    def registry(self) -> MetricRegistry:
        """Metrics of one more operator."""
        self._registries.append(MetricRegistry(self.clock))
        return self._registries[-1]

    def counted(self, name: str) -> int:
        """Sum of all counters of a name."""
        values = [item for registry in self._registries for item in registry.values().items()]
        return sum(value for key, value in values if key.endswith(name) and isinstance(value, int))

    def change(self, table: str, changes: Sequence[Change]) -> Table:
        """Give changes of a table; returns the result."""
        self.changes = []
        for node in self._nodes.values():
            if node.spec.kind is OperatorKind.SOURCE and node.node.name == f"Source: {_TABLE}{table}":
                columns = StreamColumns(node.spec.function.produced_type())
                rows = columns.from_records([Row(*row) for _, row in changes])
                kinds = np.array([0 if weight > 0 else 3 for weight, _ in changes], np.int8)
                self._leave(node, Batch(rows, None, kinds if kinds.any() else None))
        return self.table

    def watermark(self, watermark: int) -> Table:
        """Event time has come so far in all tables (epoch ms); returns the result."""
        self.changes = []
        for node in self._nodes.values():
            for operator in node.operators:
                if isinstance(operator, TimedColumns):
                    self._take(node, operator.advance_watermark(watermark))
        return self.table

    def restart(self, parallelism: int) -> None:
        """Write, forget, and restore with another parallelism."""
        self.parallelism = parallelism
        for node in self._nodes.values():
            node.start(node.write())
        self._begin()

    def go_on_with(self, query: str, parallelism: int) -> list[str]:
        """Write, forget, and go on with another query; returns the uids whose state it does not have.

        ``table`` is the sum of the changes since then.
        """
        written = {node.node.uid: node.write() for node in self._nodes.values() if node.node.uid is not None}
        self.parallelism = parallelism
        self._plan(query)
        for node in self._nodes.values():
            node.start(written.pop(node.node.uid or "", ()))
        self._begin()
        return sorted(uid for uid, contents in written.items() if contents)

    def _take(self, node: _Node, batches: Iterator[Any]) -> None:
        for batch in batches:
            if len(batch):
                self._leave(node, batch)

    def _leave(self, node: _Node, batch: Batch) -> None:
        """Let results of a node go to those behind it."""
        if node.node.id in self._ends:
            self._add(batch)
        for edge in node.node.out_edges:
            target = self._nodes[edge.target]
            if not target.operators:
                self._leave(target, batch)
                continue
            for subtask, part in self._parts(edge.key_selector, len(target.operators), batch):
                operator = target.operators[subtask]
                assert isinstance(operator, ColumnTransform)
                self._take(target, operator.apply_input(iter([part]), edge.input_index))

    @staticmethod
    def _parts(key: Any, count: int, batch: Batch) -> Iterator[tuple[int, Batch]]:
        if not isinstance(key, ColumnKey) or count == 1:
            yield 0, batch
            return
        from firesteel.graph.key_hash_columns import key_groups_of

        groups = key_groups_of(key.arrays(columns_of(batch)), MAX_PARALLELISM)
        subtasks = np.array([operator_index(int(group), count, MAX_PARALLELISM) for group in groups])
        for subtask in np.unique(subtasks).tolist():
            yield subtask, take(batch, np.flatnonzero(subtasks == subtask))

    def _add(self, batch: Batch) -> None:
        kinds = [0] * len(batch) if batch.kinds is None else list(batch.kinds)
        for kind, record in zip(kinds, to_rows(batch).values, strict=True):
            row = self._row(record)
            self.changes.append((int(kind), row))
            self.table[row] += -1 if kind & 1 else 1
            if not self.table[row]:
                del self.table[row]

    def _row(self, record: Any) -> tuple[Any, ...]:
        """A row of the result."""
        return tuple(record)


def tables_of(environment: TableEnvironment, tables: Mapping[str, str]) -> None:
    """Declare tables whose changes the test gives, by their columns."""
    for name, columns in tables.items():
        environment.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'changes')")
