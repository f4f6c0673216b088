"""Relations as a query of Spark SQL. Columns are named by their places, as two may have one name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from firesteel.connectors.spark_query import QueriedRecursion, QueriedTable
from firesteel_sql.connectors.connector import connector_of
from firesteel_sql.plan.recursion import Recursion, WorkingTable
from firesteel_sql.plan.relations import (
    Column,
    ConstantRows,
    Filter,
    Projection,
    Relation,
    Scan,
    Union,
    WatermarkAssigner,
)
from firesteel_sql.plan.stateful_relations import (
    GroupBy,
    Join,
    JoinKind,
    Over,
    OverCall,
    OverFrame,
    Rank,
    RankFunction,
    SortedRows,
    SortKey,
)
from firesteel_sql.spark.aggregates import aggregate, check_key
from firesteel_sql.spark.expressions import compared, written
from firesteel_sql.spark.values import NoEqual, has_equal, spark_type

_SETTINGS: Final = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.crossJoin.enabled": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.icu.caseMappings.enabled": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}
"""Settings of Spark's session on which results depend, and the size of batches."""


@dataclass(frozen=True)
class SparkQuery:
    """A query of Spark SQL with the rows of a relation.

    Attributes:
        text: the query.
        settings: of Spark's session.
        tables: what it reads.
        recursions: tables that are computed first, one after the other.
        is_ordered: its rows have an order, and stand in one partition.
    """

    text: str
    settings: dict[str, str]
    tables: tuple[QueriedTable, ...]
    recursions: tuple[QueriedRecursion, ...]
    is_ordered: bool


def query_of(relation: Relation, zone: str) -> SparkQuery:
    """The query of a relation.

    Args:
        relation: what is computed, in batch mode.
        zone: time zone of the session.

    Raises:
        NoEqual: a part of it has no equal in Spark SQL.
        TableOptionError: a table names no connector, or an option is wrong.
    """
    for column in relation.columns:
        spark_type(column.type)
    writer = _Writer()
    order: Sequence[SortKey] = ()
    last = relation
    while isinstance(last, (Projection, SortedRows)) and not order:
        order = last.order if isinstance(last, SortedRows) else ()
        last = last.input
    text = writer.write(relation)
    settings = {**_SETTINGS, "spark.sql.session.timeZone": zone}
    return SparkQuery(
        text,
        settings,
        tuple(table for _, table in writer.tables),
        tuple(written_recursion for _, written_recursion in writer.recursions),
        bool(order),
    )


def _name(place: int) -> str:
    return f"c{place}"


def _texts(alias: str, relation: Relation) -> list[str]:
    return [f"{alias}.{_name(place)}" for place in range(len(relation.columns))]


def _select(items: Sequence[str], source: str) -> str:
    """A SELECT; ``source`` is what stands behind FROM, and rows without columns get one that nobody reads."""
    named = [f"{item} AS {_name(place)}" for place, item in enumerate(items)] or ["0 AS nothing"]
    return f"SELECT {', '.join(named)} FROM {source}"


@dataclass
class _Writer:
    """Writes the relations of one query."""

    tables: list[tuple[Scan, QueriedTable]] = field(default_factory=list)
    recursions: list[tuple[Recursion, QueriedRecursion]] = field(default_factory=list)

    def write(self, relation: Relation) -> str:
        write = _RELATIONS.get(type(relation))
        if write is None:
            raise NoEqual(relation.text().partition("(")[0])
        return write(self, relation)

    def inside(self, relation: Relation, alias: str = "t") -> str:
        """A relation as what stands behind FROM."""
        return f"({self.write(relation)}) AS {alias}"

    def scan(self, relation: Scan) -> str:
        connector, context = connector_of(relation.identifier, relation.table)
        files = connector.spark_files(context)
        if files is None:
            raise NoEqual(f"the table {'.'.join(relation.identifier)}, which is not Parquet on a local disk")
        known = [column for column in relation.columns if has_equal(column.type)]
        table = next((table for scan, table in self.tables if scan == relation), None)
        if table is None:
            columns = ", ".join(f"{_quoted(column.name)} {spark_type(column.type)}" for column in known)
            table = QueriedTable(f"t{len(self.tables)}", files.format, columns, files.options, files.enumerator)
            self.tables.append((relation, table))
        # Nothing reads the other columns, as an expression over one of them has no equal.
        items = [f"t.{_quoted(column.name)}" if column in known else "NULL" for column in relation.columns]
        return _select(items, f"{table.name} AS t")

    def recursion(self, relation: Recursion) -> str:
        table = next((table for known, table in self.recursions if known == relation), None)
        if table is None:
            name, working = (f"{kind}{relation.working.number}" for kind in ("all", "new"))
            first, step = (self._of_types(part, relation.columns) for part in relation.inputs)
            table = QueriedRecursion(name, working, first, step, relation.keeps_duplicates)
            self.recursions.append((relation, table))
        return _select(_texts("t", relation), f"{table.name} AS t")

    def working_table(self, relation: WorkingTable) -> str:
        return _select(_texts("t", relation), f"new{relation.number} AS t")

    def _of_types(self, relation: Relation, columns: Sequence[Column]) -> str:
        pairs = zip(_texts("t", relation), columns, strict=True)
        return _select([f"CAST({text} AS {spark_type(column.type)})" for text, column in pairs], self.inside(relation))

    def same_rows(self, relation: WatermarkAssigner) -> str:
        return self.write(relation.input)

    def filter(self, relation: Filter) -> str:
        columns = _texts("t", relation.input)
        return f"{_select(columns, self.inside(relation.input))} WHERE {written(relation.condition, columns)}"

    def project(self, relation: Projection) -> str:
        columns = _texts("t", relation.input)
        if isinstance(relation.input, SortedRows) and relation.input.order:
            return self._sorted(relation.input, [written(part, columns) for part in relation.expressions])
        return _select([written(part, columns) for part in relation.expressions], self.inside(relation.input))

    def union(self, relation: Union) -> str:
        return " UNION ALL ".join(f"({self._of_types(part, relation.columns)})" for part in relation.parts)

    def constants(self, relation: ConstantRows) -> str:
        rows = [", ".join(f"{written(item, [])} AS {_name(place)}" for place, item in enumerate(row)) or "0 AS nothing"
                for row in relation.rows]  # fmt: skip
        if not rows:
            nulls = [f"CAST(NULL AS {spark_type(column.type)})" for column in relation.columns]
            return f"{_select(nulls, '(SELECT 0)')} WHERE FALSE"
        return " UNION ALL ".join(f"(SELECT {row})" for row in rows)

    def group(self, relation: GroupBy) -> str:
        inside, columns = relation.input.columns, _texts("t", relation.input)
        for place in relation.groups:
            check_key(inside[place])
        groups = [columns[place] for place in relation.groups]
        results = [
            aggregate(call, inside, columns, "" if call.filter is None else f" FILTER (WHERE {columns[call.filter]})")
            for call in relation.calls
        ]
        text = _select([*groups, *results], self.inside(relation.input))
        return f"{text} GROUP BY {', '.join(groups)}" if groups else text

    def join(self, relation: Join) -> str:
        if relation.bounds is not None:
            raise NoEqual("an interval join")
        left, right = _texts("l", relation.left), _texts("r", relation.right)
        conditions = []
        for number, key in enumerate(relation.keys):
            a, b = relation.left.columns[key.left], relation.right.columns[key.right]
            check_key(a)
            check_key(b)
            sign = "<=>" if key.nulls_equal else "="
            equal = compared(sign, left[key.left], right[key.right], (a.type, b.type))
            is_looked_for = relation.null_aware and number == len(relation.keys) - 1
            # NOT IN: a row stays if its value is unequal to all others for certain.
            conditions.append(f"({equal} OR ({equal}) IS NULL)" if is_looked_for else equal)
        if relation.condition is not None:
            conditions.append(written(relation.condition, [*left, *right]))
        items = left if relation.kind in (JoinKind.SEMI, JoinKind.ANTI) else [*left, *right]
        source = f"{self.inside(relation.left, 'l')} {_JOINS[relation.kind]} JOIN {self.inside(relation.right, 'r')}"
        return _select(items, f"{source} ON {' AND '.join(conditions) or 'TRUE'}")

    def rank(self, relation: Rank) -> str:
        inside, columns = relation.input.columns, _texts("t", relation.input)
        for key in relation.order:
            spark_type(inside[key.place].type)
        source = self.inside(relation.input)
        if not relation.partition and relation.function is RankFunction.ROW_NUMBER and not relation.with_rank:
            order = f" ORDER BY {_order(relation.order, columns)}" if relation.order else ""
            limit = "" if relation.last is None else f" LIMIT {max(0, relation.last - relation.first + 1)}"
            offset = f" OFFSET {relation.first - 1}" if relation.first > 1 else ""
            return _select(columns, source) + order + limit + offset
        if not relation.order:
            raise NoEqual("ranks without an order")
        number = f"CAST({relation.function.value}() OVER ({_window(relation, inside, columns)}) AS BIGINT)"
        ranked = _select([*columns, number], source)
        last = _name(len(columns))
        limits = [f"t.{last} >= {relation.first}"] if relation.first > 1 else []
        limits += [] if relation.last is None else [f"t.{last} <= {relation.last}"]
        items = [f"t.{_name(place)}" for place in range(len(relation.columns))]
        return f"{_select(items, f'({ranked}) AS t')} WHERE {' AND '.join(limits) or 'TRUE'}"

    def over(self, relation: Over) -> str:
        inside, columns = relation.input.columns, _texts("t", relation.input)
        window = _window(relation, inside, columns)
        results = [_over_result(call, bool(relation.order), inside, columns, window) for call in relation.calls]
        return _select([*columns, *results], self.inside(relation.input))

    def sort(self, relation: SortedRows) -> str:
        if not relation.order:
            return self.write(relation.input)
        if not relation.at_end:
            raise NoEqual("rows in the order of their time")
        return self._sorted(relation, _texts("t", relation.input))

    def _sorted(self, relation: SortedRows, items: Sequence[str]) -> str:
        """Some expressions over sorted rows; all rows stand in one partition, in their order."""
        columns = _texts("t", relation.input)
        for key in relation.order:
            spark_type(relation.input.columns[key.place].type)
        single = f"(SELECT /*+ REPARTITION(1) */ * FROM {self.inside(relation.input)}) AS t"
        rows = f"(SELECT * FROM {single} SORT BY {_order(relation.order, columns)}) AS t"
        return _select(items, rows)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _order(order: Sequence[SortKey], columns: Sequence[str]) -> str:
    return ", ".join(
        f"{columns[key.place]} {'ASC' if key.ascending else 'DESC'} NULLS {'FIRST' if key.nulls_first else 'LAST'}"
        for key in order
    )


def _window(relation: Rank | Over, inside: Sequence[Column], columns: Sequence[str]) -> str:
    for place in relation.partition:
        check_key(inside[place])
    for key in relation.order:
        check_key(inside[key.place])
    parts = []
    if relation.partition:
        parts.append(f"PARTITION BY {', '.join(columns[place] for place in relation.partition)}")
    if relation.order:
        parts.append(f"ORDER BY {_order(relation.order, columns)}")
    return " ".join(parts)


def _over_result(over: OverCall, has_order: bool, inside: Sequence[Column], columns: Sequence[str], window: str) -> str:
    call = over.call
    if call.distinct or call.filter is not None:
        raise NoEqual(f"{call.text(inside)} OVER")
    if call.function in ("ROW_NUMBER", "RANK", "DENSE_RANK") and has_order:
        return f"CAST({call.function}() OVER ({window}) AS {spark_type(call.type)})"
    frame = f" {_frame(over.frame)}" if has_order else ""
    return aggregate(call, inside, columns, f" OVER ({window}{frame})")


def _frame(frame: OverFrame) -> str:
    if not frame.by_rows and (frame.preceding or frame.following):
        raise NoEqual("a frame by the distance of values")
    first = "UNBOUNDED PRECEDING" if frame.preceding is None else f"{frame.preceding} PRECEDING"
    last = "UNBOUNDED FOLLOWING" if frame.following is None else f"{frame.following} FOLLOWING"
    first, last = ("CURRENT ROW" if bound.startswith("0 ") else bound for bound in (first, last))
    return f"{'ROWS' if frame.by_rows else 'RANGE'} BETWEEN {first} AND {last}"


_JOINS: Final = {
    JoinKind.INNER: "INNER", JoinKind.LEFT: "LEFT", JoinKind.RIGHT: "RIGHT", JoinKind.FULL: "FULL",
    JoinKind.SEMI: "LEFT SEMI", JoinKind.ANTI: "LEFT ANTI",
}  # fmt: skip
_RELATIONS: Final[dict[type[Relation], Callable[[_Writer, Any], str]]] = {
    Scan: _Writer.scan,
    WatermarkAssigner: _Writer.same_rows,
    Filter: _Writer.filter,
    Projection: _Writer.project,
    Union: _Writer.union,
    Recursion: _Writer.recursion,
    WorkingTable: _Writer.working_table,
    ConstantRows: _Writer.constants,
    GroupBy: _Writer.group,
    Join: _Writer.join,
    Rank: _Writer.rank,
    Over: _Writer.over,
    SortedRows: _Writer.sort,
}
"""What writes a relation."""
