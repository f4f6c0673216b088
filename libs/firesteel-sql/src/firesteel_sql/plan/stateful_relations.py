"""Relations whose operators remember rows: aggregates, joins, ranks, windows.

Places are positions of columns in the input. A binder projects what these relations need before them, so that keys,
arguments and sort keys are plain columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from typing_extensions import override

from firesteel.table.types import DataType
from firesteel_sql.plan.relations import Column, Relation, Scan
from firesteel_sql.plan.row_expressions import RowExpression

Places = tuple[int, ...]


def _shown_ttl(**by_input: int | None) -> str:
    """Attribute of an operator whose rows expire, with a comma in front: ``, stateTtl=[left=1 d, right=0]``."""
    if not any(ttl is not None for ttl in by_input.values()):
        return ""
    single = len(by_input) == 1
    parts = [f"{'' if single else f'{name}='}{duration_text(ttl or 0)}" for name, ttl in by_input.items()]
    return f", stateTtl=[{', '.join(parts)}]"


def duration_text(millis: int) -> str:
    """A duration in the greatest unit that gives a whole number."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if millis and millis % size == 0:
            return f"{millis // size} {unit}"
    return f"{millis} ms" if millis else "0"


def _names(columns: Sequence[Column], places: Sequence[int]) -> str:
    return ", ".join(columns[place].name for place in places)


@dataclass(frozen=True)
class SortKey:
    """A column that rows are sorted by.

    Attributes:
        place: of the column in the input.
        ascending: from the least to the greatest.
        nulls_first: rows without a value come first.
    """

    place: int
    ascending: bool = True
    nulls_first: bool = True

    def text(self, columns: Sequence[Column]) -> str:
        return f"{columns[self.place].name} {'ASC' if self.ascending else 'DESC'}"


@dataclass(frozen=True)
class AggregateCall:
    """A call of an aggregate function.

    Attributes:
        function: its name in capitals, such as SUM. COUNT without arguments counts rows.
        arguments: places of its arguments in the input.
        type: of the result.
        distinct: each different argument counts once.
        filter: place of a Boolean column; rows for which it is not true do not count.
        order: rows are taken in this order, for LISTAGG, ARRAY_AGG, FIRST_VALUE and LAST_VALUE.
        constants: further arguments that are the same for all rows, such as the separator of LISTAGG.
    """

    function: str
    arguments: Places
    type: DataType
    distinct: bool = False
    filter: int | None = None
    order: tuple[SortKey, ...] = ()
    constants: tuple[object, ...] = ()

    def text(self, columns: Sequence[Column]) -> str:
        inside = _names(columns, self.arguments) or "*"
        suffix = "" if self.filter is None else f" FILTER {columns[self.filter].name}"
        return f"{self.function}({'DISTINCT ' if self.distinct else ''}{inside}){suffix}"


@dataclass(frozen=True)
class WindowColumns:
    """The columns of a window table function in its results.

    Attributes:
        start: place of ``window_start``.
        end: place of ``window_end``.
        time: place of ``window_time``; None = the query did not keep it.
        zone: time zone of start and end; UTC = as the time itself.
    """

    start: int
    end: int
    time: int | None = None
    zone: str = "UTC"


@dataclass(frozen=True)
class GroupBy(Relation):
    """A row for each group: the group's columns, then the results of the calls.

    Without groups there is one row, also while there is no input: COUNT(*) is 0 then.

    Attributes:
        input: the rows.
        groups: places of the group's columns in the input.
        calls: the aggregates; none for DISTINCT.
        window: columns of a window among the groups (places in the input); results leave when the watermark has passed
            the end of their window, once, and the group is forgotten. None = each change of a group leaves at once.
        starts_with_row: without groups: the row is there before any row of the input comes.
        state_ttl: ms without a row after which a group is forgotten, 0 = never; None = as the session says.
    """

    input: Relation
    groups: Places
    calls: tuple[AggregateCall, ...]
    window: WindowColumns | None = None
    starts_with_row: bool = False
    state_ttl: int | None = None

    @property
    @override
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    @override
    def text(self) -> str:
        name = "GroupAggregate" if self.window is None else "WindowAggregate"
        inside = self.input.columns
        shown = [column.name for column in self.columns[: len(self.groups)]]
        results = self.columns[len(self.groups) :]
        shown += [f"{call.text(inside)} AS {column.name}" for call, column in zip(self.calls, results, strict=True)]
        groups = f"groupBy=[{_names(inside, self.groups)}], " if self.groups else ""
        return f"{name}({groups}select=[{', '.join(shown)}]{_shown_ttl(input=self.state_ttl)})"


class WindowKind(Enum):
    """The window table functions."""

    TUMBLE = "TUMBLE"
    HOP = "HOP"
    CUMULATE = "CUMULATE"
    SESSION = "SESSION"


@dataclass(frozen=True)
class WindowTable(Relation):
    """Rows with their windows: the input's columns, then ``window_start``, ``window_end`` and ``window_time``.

    Attributes:
        input: the rows.
        kind: of the windows.
        time: place of the time attribute.
        size: length of a window, ms; of CUMULATE the longest; of SESSION the gap.
        step: HOP and CUMULATE: time between two windows, ms; else equal to ``size``.
        offset: by which windows are moved, ms.
        partition: SESSION: places of the columns within which sessions are found.
        zone: time zone by whose clocks windows begin and end, of a TIMESTAMP_LTZ; else UTC.
    """

    input: Relation
    kind: WindowKind
    time: int
    size: int
    step: int
    offset: int = 0
    partition: Places = ()
    zone: str = "UTC"

    @property
    @override
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    @override
    def text(self) -> str:
        time = self.input.columns[self.time].name
        sizes = f"size=[{self.size} ms]" + (f", slide=[{self.step} ms]" if self.step != self.size else "")
        return f"WindowTableFunction(window=[{self.kind.value}(time_col=[{time}], {sizes})])"


class JoinKind(Enum):
    """What a join does with rows without a partner."""

    INNER = "InnerJoin"
    LEFT = "LeftOuterJoin"
    RIGHT = "RightOuterJoin"
    FULL = "FullOuterJoin"
    SEMI = "LeftSemiJoin"
    ANTI = "LeftAntiJoin"


@dataclass(frozen=True)
class JoinKey:
    """A pair of columns that are equal.

    Attributes:
        left: place in the left input.
        right: place in the right input.
        nulls_equal: two NULLs are equal (IS NOT DISTINCT FROM).
    """

    left: int
    right: int
    nulls_equal: bool = False


@dataclass(frozen=True)
class TimeBounds:
    """How far the times of partners are from each other: ``left + lower <= right <= left + upper``.

    Attributes:
        left_time: place of the time attribute in the left input.
        right_time: place in the right input.
        lower: ms, may be negative.
        upper: ms.
    """

    left_time: int
    right_time: int
    lower: int
    upper: int


@dataclass(frozen=True)
class Join(Relation):
    """Pairs of rows of two inputs: the left one's columns, then the right one's. SEMI and ANTI have the left ones only.

    Attributes:
        left: rows of the left input.
        right: rows of the right input.
        kind: of the join.
        keys: columns that are equal.
        condition: over the columns of both inputs, left ones first; None = equal keys suffice.
        null_aware: ANTI only: NOT IN, whose result is empty for keys of the left side once the right one has a NULL.
            The last key is the value that is looked for; all others are correlations.
        bounds: of the times of partners; state is cleaned as the watermark advances, and rows without a partner leave
            when none can come any more. None = rows are kept for ever.
        window: windows on both sides that are among the keys (places in left, places in right): state is cleaned as the
            watermark passes their end.
        state_ttl: for each input, ms after its last write at which a row is forgotten, 0 = never; None = as the session
            says.
    """

    left: Relation
    right: Relation
    kind: JoinKind
    keys: tuple[JoinKey, ...]
    condition: RowExpression | None = None
    null_aware: bool = False
    bounds: TimeBounds | None = None
    window: tuple[WindowColumns, WindowColumns] | None = None
    state_ttl: tuple[int | None, int | None] = (None, None)

    @property
    @override
    def inputs(self) -> tuple[Relation, ...]:
        return (self.left, self.right)

    @override
    def text(self) -> str:
        left, right = self.left.columns, self.right.columns
        name = "IntervalJoin" if self.bounds else "WindowJoin" if self.window else "Join"
        parts = [
            f"{'IS NOT DISTINCT FROM' if key.nulls_equal else '='}({left[key.left].name}, {right[key.right].name})"
            for key in self.keys
        ]
        if self.condition is not None:
            parts.append(str(self.condition))
        where = f"where=[{' AND '.join(parts)}], " if parts else ""
        where += "isNullAware=[true], " if self.null_aware else ""
        if self.bounds is not None:  # as Flink: of the left time, seen from the right one
            where += f"windowBounds=[leftLowerBound={-self.bounds.upper}, leftUpperBound={-self.bounds.lower}], "
        ttl = _shown_ttl(left=self.state_ttl[0], right=self.state_ttl[1])
        shown = _names(self.columns, range(len(self.columns)))
        return f"{name}(joinType=[{self.kind.value}], {where}select=[{shown}]{ttl})"


@dataclass(frozen=True)
class TemporalJoin(Relation):
    """Each left row with the version of the right row that was valid at its time.

    Attributes:
        left: rows with a time attribute.
        right: versions of rows with a key and a time attribute.
        is_outer: left rows without a version stay.
        keys: columns that are equal; the right ones contain the key of the versions.
        condition: over the columns of both inputs; None = equal keys suffice.
        left_time: place of the time attribute in the left input.
        right_time: place in the right input.
    """

    left: Relation
    right: Relation
    is_outer: bool
    keys: tuple[JoinKey, ...]
    condition: RowExpression | None
    left_time: int
    right_time: int

    @property
    @override
    def inputs(self) -> tuple[Relation, ...]:
        return (self.left, self.right)

    @override
    def text(self) -> str:
        kind = JoinKind.LEFT if self.is_outer else JoinKind.INNER
        left, right = self.left.columns, self.right.columns
        where = " AND ".join(f"=({left[key.left].name}, {right[key.right].name})" for key in self.keys)
        return f"TemporalJoin(joinType=[{kind.value}], where=[{where}])"


@dataclass(frozen=True)
class LookupJoin(Relation):
    """Each left row with the rows of an external table that has its keys now: the left columns, then the table's.

    Attributes:
        left: rows with a processing time.
        table: what is looked up; not read as a stream.
        is_outer: left rows without a partner stay.
        keys: columns that are equal; right places are those of the table's columns.
        condition: over the columns of both; None = equal keys suffice.
        options: of the hint LOOKUP, such as ``async`` and ``retry-predicate``.
    """

    left: Relation
    table: Scan
    is_outer: bool
    keys: tuple[JoinKey, ...]
    condition: RowExpression | None = None
    options: tuple[tuple[str, str], ...] = ()

    @property
    @override
    def inputs(self) -> tuple[Relation, ...]:
        return (self.left,)

    @override
    def text(self) -> str:
        kind = JoinKind.LEFT if self.is_outer else JoinKind.INNER
        left, right = self.left.columns, self.table.columns
        keys = ", ".join(f"{right[key.right].name}={left[key.left].name}" for key in self.keys)
        where = "" if self.condition is None else f"where=[{self.condition}], "
        return (
            f"LookupJoin(table=[{'.'.join(self.table.identifier)}], joinType=[{kind.value}], lookup=[{keys}], {where}"
            f"select=[{_names(self.columns, range(len(self.columns)))}])"
        )


class RankFunction(Enum):
    """The functions that number rows."""

    ROW_NUMBER = "ROW_NUMBER"
    RANK = "RANK"
    DENSE_RANK = "DENSE_RANK"


class ConflictRule(Enum):
    """Which of several rows of a primary key is written: the ``DO`` of ``ON CONFLICT``."""

    DEDUPLICATE = "DEDUPLICATE"
    """The row that came last."""
    NOTHING = "NOTHING"
    """The row that came first."""
    ERROR = "ERROR"
    """None: the job fails if there still are several when the watermark advances, or at the end of the input."""


@dataclass(frozen=True)
class Rank(Relation):
    """The first rows of each partition: the input's columns, and the rank if the query reads it.

    ``LIMIT`` is one without a partition, and without an order if there is no ``ORDER BY``.

    Attributes:
        input: the rows.
        function: by which rows are numbered.
        partition: places of the partition's columns.
        order: of the rows; empty = as they arrive.
        first: rank of the first row that counts, from 1.
        last: rank of the last row; None = all further ones (OFFSET without LIMIT).
        with_rank: the last column of the results is the rank.
        window: columns of a window among the partition's (places in the input): the rows of a window leave when the
            watermark has passed its end, once, and are forgotten. None = each change leaves at once.
        state_ttl: ms after which a row is forgotten; None = never.
    """

    input: Relation
    function: RankFunction
    partition: Places
    order: tuple[SortKey, ...]
    first: int
    last: int | None
    with_rank: bool
    window: WindowColumns | None = None
    state_ttl: int | None = None

    @property
    @override
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    @override
    def text(self) -> str:
        inside = self.input.columns
        order = ", ".join(key.text(inside) for key in self.order)
        name = "Rank" if self.window is None else "WindowRank"
        return (
            f"{name}(rankType=[{self.function.value}], rankRange=[rankStart={self.first}, rankEnd={self.last}], "
            f"partitionBy=[{_names(inside, self.partition)}], orderBy=[{order}], "
            f"select=[{_names(self.columns, range(len(self.columns)))}]{_shown_ttl(input=self.state_ttl)})"
        )


@dataclass(frozen=True)
class OverFrame:
    """The rows around a row over which an OVER aggregate is computed.

    Attributes:
        by_rows: the bounds are numbers of rows; else distances of the sort key (ms for times).
        preceding: how far it reaches back; None = to the first row of the partition.
        following: how far it reaches ahead: 0 = to the current row (and, by range, those equal to it); None = to the
            last row of the partition.
    """

    by_rows: bool
    preceding: int | None
    following: int | None = 0


@dataclass(frozen=True)
class OverCall:
    """An aggregate or a numbering over a frame.

    Attributes:
        call: the function and its arguments; its type is that of the result. LAG and LEAD have their offset and default
            among the constants.
        frame: over which rows.
    """

    call: AggregateCall
    frame: OverFrame


@dataclass(frozen=True)
class Over(Relation):
    """Each row of the input with results over the rows around it: the input's columns, then a column for each call.

    Attributes:
        input: the rows.
        partition: places of the partition's columns.
        order: of the rows within a partition.
        calls: what is computed.
        state_ttl: ms after which a row, or what is remembered of a partition, is forgotten; None = never.
    """

    input: Relation
    partition: Places
    order: tuple[SortKey, ...]
    calls: tuple[OverCall, ...]
    state_ttl: int | None = None

    @property
    @override
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    @override
    def text(self) -> str:
        inside = self.input.columns
        results = self.columns[len(inside) :]
        shown = [f"{over.call.text(inside)} AS {column.name}" for over, column in zip(self.calls, results, strict=True)]
        order = ", ".join(key.text(inside) for key in self.order)
        partition = _names(inside, self.partition)
        ttl = _shown_ttl(input=self.state_ttl)
        return f"OverAggregate(partitionBy=[{partition}], orderBy=[{order}], select=[{', '.join(shown)}]{ttl})"


@dataclass(frozen=True)
class SortedRows(Relation):
    """Rows in an order.

    Attributes:
        input: the rows.
        order: of the rows. Of a stream it begins with a time attribute, and rows leave as the watermark passes them.
        at_end: rows leave at the end of a bounded input, those that are there then, as inserted ones.
    """

    input: Relation
    order: tuple[SortKey, ...]
    at_end: bool = False

    @property
    @override
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    @override
    def text(self) -> str:
        name = "Sort" if self.at_end else "TemporalSort"
        return f"{name}(orderBy=[{', '.join(key.text(self.input.columns) for key in self.order)}])"


@dataclass(frozen=True)
class SinkMaterializer(Relation):
    """One row for each primary key of a sink, of the rows that a query has for it at a time.

    A sink that writes by key gets the changes of a key in order only if one subtask makes them, and knows nothing of a
    second row of a key; here all rows are remembered, in the order in which they came.

    Attributes:
        input: what is written.
        key: places of the primary key's columns.
        conflict: which of several rows of a key is written.
        state_ttl: ms after which a row is forgotten; None = never.
    """

    input: Relation
    key: Places
    conflict: ConflictRule
    state_ttl: int | None = None

    @property
    @override
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    @override
    def text(self) -> str:
        key = _names(self.columns, self.key)
        ttl = _shown_ttl(input=self.state_ttl)
        return f"SinkMaterializer(primaryKey=[{key}], conflictStrategy=[{self.conflict.value}]{ttl})"


@dataclass(frozen=True)
class Normalize(Relation):
    """The changes of a table that comes as upserts by key: updates get the row before them, repeated rows are dropped.

    Attributes:
        input: rows whose deletes may have the key only.
        key: places of the key's columns.
        state_ttl: ms after its last change at which a row is forgotten; None = never.
    """

    input: Relation
    key: Places
    state_ttl: int | None = None

    @property
    @override
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    @override
    def text(self) -> str:
        return f"ChangelogNormalize(key=[{_names(self.columns, self.key)}]{_shown_ttl(input=self.state_ttl)})"


@dataclass(frozen=True)
class Unnest(Relation):
    """Each row with each element of a collection in one of its columns: the input's columns, then those of an element.

    Attributes:
        input: the rows.
        collection: place of an ARRAY, MAP or MULTISET; an ARRAY of ROWs gives a column for each field.
        is_outer: rows with an empty collection, or none, stay with NULLs.
        with_ordinality: the last column is the number of the element, from 1.
    """

    input: Relation
    collection: int
    is_outer: bool
    with_ordinality: bool

    @property
    @override
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    @override
    def text(self) -> str:
        kind = JoinKind.LEFT if self.is_outer else JoinKind.INNER
        collection = self.input.columns[self.collection].name
        return f"Correlate(invocation=[UNNEST({collection})], joinType=[{kind.value}])"


@dataclass(frozen=True)
class Replicate(Relation):
    """Each row as often as a column of it says, without that column: INTERSECT ALL and EXCEPT ALL.

    Attributes:
        input: the rows.
        count: place of the number.
    """

    input: Relation
    count: int

    @property
    @override
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    @override
    def text(self) -> str:
        return f"Correlate(invocation=[REPLICATE_ROWS({self.input.columns[self.count].name})], joinType=[InnerJoin])"
