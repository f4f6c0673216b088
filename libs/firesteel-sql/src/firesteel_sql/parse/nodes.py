"""Syntax trees of expressions and queries, as they were written: names are not looked up, types not known yet.

``at`` of a node is the index of its first character in the statement.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Path = tuple[str, ...]
"""A name of one part or more: ``catalog.database.table``."""


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a statement."""

    at: int = field(default=0, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class ValueExpression(Node):
    """What has a value for each row."""


# -- literals


@dataclass(frozen=True, slots=True)
class NumberLiteral(ValueExpression):
    """A number as it was written; one with an exponent is a DOUBLE, all others are exact."""

    text: str


@dataclass(frozen=True, slots=True)
class StringLiteral(ValueExpression):
    """A text, without its quotes."""

    value: str


@dataclass(frozen=True, slots=True)
class BinaryLiteral(ValueExpression):
    """Bytes, ``x'0aff'``."""

    value: bytes


@dataclass(frozen=True, slots=True)
class BooleanLiteral(ValueExpression):
    """TRUE, FALSE, or UNKNOWN (None)."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class NullLiteral(ValueExpression):
    """The word NULL, which is a value of any type."""


@dataclass(frozen=True, slots=True)
class TimeLiteral(ValueExpression):
    """``DATE '2026-01-31'``, ``TIME '12:00:00'``, ``TIMESTAMP '2026-01-31 12:00:00'``.

    Attributes:
        type_name: DATE, TIME or TIMESTAMP.
        text: between the quotes.
    """

    type_name: str
    text: str


@dataclass(frozen=True, slots=True)
class IntervalUnit(Node):
    """``DAY``, ``DAY(3) TO SECOND(6)``.

    Attributes:
        first: the unit, or the largest one.
        last: the smallest one, if there are two.
        precision: digits of the largest one.
        fraction: digits of a fraction of a second.
    """

    first: str
    last: str | None = None
    precision: int | None = None
    fraction: int | None = None


@dataclass(frozen=True, slots=True)
class IntervalLiteral(ValueExpression):
    """``INTERVAL '5' MINUTE``, ``INTERVAL -'1 02:03' DAY TO MINUTE``."""

    text: str
    unit: IntervalUnit
    is_negative: bool = False


@dataclass(frozen=True, slots=True)
class ComputedInterval(ValueExpression):
    """``INTERVAL n DAY``: as many units as an expression says."""

    count: ValueExpression
    unit: IntervalUnit


# -- names and signs


@dataclass(frozen=True, slots=True)
class ColumnReference(ValueExpression):
    """A column, or a field of one: ``price``, ``b.price``, ``db.bids.price``, ``bid.price``."""

    path: Path


@dataclass(frozen=True, slots=True)
class Symbol(ValueExpression):
    """A word that is an argument of a function: a unit of time, ``BOTH`` of TRIM."""

    word: str


@dataclass(frozen=True, slots=True)
class Unary(ValueExpression):
    """``-x``, ``+x``, ``NOT x``."""

    operator: str
    operand: ValueExpression


@dataclass(frozen=True, slots=True)
class Binary(ValueExpression):
    """``a + b``, ``a AND b``, ``a <= b``, ``a || b``."""

    operator: str
    left: ValueExpression
    right: ValueExpression


@dataclass(frozen=True, slots=True)
class IsTest(ValueExpression):
    """``x IS [NOT] NULL``, TRUE, FALSE, UNKNOWN, JSON, JSON OBJECT and the like."""

    operand: ValueExpression
    test: str
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class IsDistinct(ValueExpression):
    """``a IS [NOT] DISTINCT FROM b``."""

    left: ValueExpression
    right: ValueExpression
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Between(ValueExpression):
    """``x [NOT] BETWEEN [SYMMETRIC] low AND high``."""

    operand: ValueExpression
    low: ValueExpression
    high: ValueExpression
    is_negated: bool = False
    is_symmetric: bool = False


@dataclass(frozen=True, slots=True)
class InList(ValueExpression):
    """``x [NOT] IN (1, 2)``."""

    operand: ValueExpression
    items: tuple[ValueExpression, ...]
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class InQuery(ValueExpression):
    """``x [NOT] IN (SELECT ...)``."""

    operand: ValueExpression
    query: Query
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Like(ValueExpression):
    """``x [NOT] LIKE p [ESCAPE e]``; SIMILAR TO and RLIKE as well."""

    kind: str
    operand: ValueExpression
    pattern: ValueExpression
    escape: ValueExpression | None = None
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Quantified(ValueExpression):
    """``x > ALL (SELECT ...)``, ``x = ANY (1, 2)``; SOME is ANY."""

    operator: str
    operand: ValueExpression
    quantifier: str
    query: Query | tuple[ValueExpression, ...]


@dataclass(frozen=True, slots=True)
class Exists(ValueExpression):
    """``EXISTS (SELECT ...)``."""

    query: Query


@dataclass(frozen=True, slots=True)
class ScalarQuery(ValueExpression):
    """A query whose only row and column is a value."""

    query: Query


@dataclass(frozen=True, slots=True)
class Constructor(ValueExpression):
    """``ROW(a, b)``, ``(a, b)``, ``ARRAY[a, b]``, ``MULTISET[a, b]``, ``MAP['k', v]``.

    Attributes:
        kind: ROW, ARRAY, MULTISET or MAP.
        items: of a map key and value in turn.
    """

    kind: str
    items: tuple[ValueExpression, ...]


@dataclass(frozen=True, slots=True)
class CollectionQuery(ValueExpression):
    """``ARRAY(SELECT ...)``, ``MULTISET(SELECT ...)``."""

    kind: str
    query: Query


@dataclass(frozen=True, slots=True)
class Element(ValueExpression):
    """``a[1]``, ``m['k']``."""

    operand: ValueExpression
    index: ValueExpression


@dataclass(frozen=True, slots=True)
class Member(ValueExpression):
    """A field of a row that is no plain name: ``f(x).name``, ``a[1].name``."""

    operand: ValueExpression
    name: str


@dataclass(frozen=True, slots=True)
class AtTimeZone(ValueExpression):
    """``ts AT TIME ZONE 'Europe/Berlin'``."""

    operand: ValueExpression
    zone: ValueExpression


@dataclass(frozen=True, slots=True)
class WhenClause(Node):
    """``WHEN condition THEN result``."""

    condition: ValueExpression
    result: ValueExpression


@dataclass(frozen=True, slots=True)
class Case(ValueExpression):
    """``CASE [operand] WHEN ... THEN ... [ELSE ...] END``."""

    operand: ValueExpression | None
    whens: tuple[WhenClause, ...]
    otherwise: ValueExpression | None


# -- types


@dataclass(frozen=True, slots=True)
class Field(Node):
    """A field of a ROW type."""

    name: str
    type: TypeSpec
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class TypeSpec(Node):
    """A type as it was written.

    Attributes:
        name: CHAR, VARCHAR, STRING, DECIMAL, TIMESTAMP, TIMESTAMP_LTZ, ROW and so on; other ways to write one of them
            are gone (``INTEGER`` is INT, ``DEC`` is DECIMAL, ``TIMESTAMP WITH LOCAL TIME ZONE`` is TIMESTAMP_LTZ).
        parameters: length, or precision and scale.
        elements: types of an array's or multiset's elements, of a map's key and value.
        fields: of a ROW.
        unit: of an INTERVAL.
        is_nullable: None if nothing was written.
        texts: class and serializer of RAW.
    """

    name: str
    parameters: tuple[int, ...] = ()
    elements: tuple[TypeSpec, ...] = ()
    fields: tuple[Field, ...] = ()
    unit: IntervalUnit | None = None
    is_nullable: bool | None = None
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cast(ValueExpression):
    """``CAST(x AS type)``, ``TRY_CAST(x AS type)``."""

    operand: ValueExpression
    type: TypeSpec
    is_try: bool = False


# -- calls


@dataclass(frozen=True, slots=True)
class OrderItem(Node):
    """A part of ORDER BY.

    Attributes:
        expression: by what.
        is_descending: the largest first.
        nulls_first: None if nothing was written.
    """

    expression: ValueExpression
    is_descending: bool = False
    nulls_first: bool | None = None


@dataclass(frozen=True, slots=True)
class FrameBound(Node):
    """``UNBOUNDED PRECEDING``, ``3 PRECEDING``, ``CURRENT ROW``.

    Attributes:
        kind: PRECEDING, FOLLOWING or CURRENT ROW.
        distance: None is unbounded.
    """

    kind: str
    distance: ValueExpression | None = None


@dataclass(frozen=True, slots=True)
class WindowSpecification(Node):
    """``OVER (base PARTITION BY ... ORDER BY ... ROWS BETWEEN ... AND ...)``.

    Attributes:
        base: name of a window that this one extends, or is.
        partition_by: keys.
        order_by: order within a partition.
        frame_unit: ROWS, RANGE or None.
        frame_start: None without a frame.
        frame_end: None stands for the current row.
    """

    base: str | None = None
    partition_by: tuple[ValueExpression, ...] = ()
    order_by: tuple[OrderItem, ...] = ()
    frame_unit: str | None = None
    frame_start: FrameBound | None = None
    frame_end: FrameBound | None = None


@dataclass(frozen=True, slots=True)
class Call(ValueExpression):
    """A call of a function.

    Those with a syntax of their own are calls like any other: ``EXTRACT(DAY FROM ts)`` is a call of EXTRACT with the
    symbol DAY and ``ts``.

    Attributes:
        function: its name.
        arguments: in their order; ``COUNT(*)`` has a ``Star``.
        is_distinct: ``COUNT(DISTINCT x)``.
        order_by: of ``LISTAGG(x ORDER BY y)`` and ``... WITHIN GROUP (ORDER BY y)``.
        filter: of ``... FILTER (WHERE condition)``.
        ignores_nulls: of ``... IGNORE NULLS``; None if nothing was written.
        over: the window.
    """

    function: Path
    arguments: tuple[ValueExpression, ...] = ()
    is_distinct: bool = False
    order_by: tuple[OrderItem, ...] = ()
    filter: ValueExpression | None = None
    ignores_nulls: bool | None = None
    over: WindowSpecification | None = None


@dataclass(frozen=True, slots=True)
class Star(ValueExpression):
    """``*`` or ``t.*``."""

    qualifier: Path = ()


@dataclass(frozen=True, slots=True)
class NamedArgument(ValueExpression):
    """``SIZE => INTERVAL '5' MINUTE``."""

    name: str
    value: ValueExpression


@dataclass(frozen=True, slots=True)
class DefaultArgument(ValueExpression):
    """``DEFAULT`` in place of an argument."""


@dataclass(frozen=True, slots=True)
class TableArgument(ValueExpression):
    """``TABLE bids PARTITION BY bidder``, ``(SELECT ...)`` as an argument of a table function."""

    table: Path | Query
    partition_by: tuple[ValueExpression, ...] = ()
    order_by: tuple[OrderItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Descriptor(ValueExpression):
    """``DESCRIPTOR(ts)``: names of columns."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JsonClause(ValueExpression):
    """A part of a JSON function that is no value: ``NULL ON EMPTY``, ``WITH WRAPPER``, ``RETURNING INT``.

    Attributes:
        clause: ON EMPTY, ON ERROR, ON NULL, WRAPPER or RETURNING.
        behaviour: its words: NULL, ERROR, EMPTY ARRAY, WITHOUT, ABSENT and so on.
        default: of ``DEFAULT value ON EMPTY``.
        type: of RETURNING.
    """

    clause: str
    behaviour: str = ""
    default: ValueExpression | None = None
    type: TypeSpec | None = None


@dataclass(frozen=True, slots=True)
class JsonEntry(ValueExpression):
    """``KEY 'k' VALUE v`` of a JSON object."""

    key: ValueExpression
    value: ValueExpression


# -- queries


@dataclass(frozen=True, slots=True)
class Hint(Node):
    """``OPTIONS('k'='v')``, ``STATE_TTL('a'='1d')`` in ``/*+ ... */``.

    Attributes:
        name: in upper case.
        arguments: texts and names without a value.
        options: key and value.
    """

    name: str
    arguments: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SelectItem(Node):
    """A column of a SELECT."""

    expression: ValueExpression
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class GroupingSets(ValueExpression):
    """``GROUPING SETS``, ``ROLLUP`` and ``CUBE``.

    Attributes:
        kind: GROUPING SETS, ROLLUP or CUBE.
        sets: each with its keys; one may have none.
    """

    kind: str
    sets: tuple[tuple[ValueExpression, ...], ...]


@dataclass(frozen=True, slots=True)
class TableReference(Node):
    """What stands behind FROM."""


@dataclass(frozen=True, slots=True)
class NamedTable(TableReference):
    """A table or a view, by its name."""

    path: Path
    hints: tuple[Hint, ...] = ()


@dataclass(frozen=True, slots=True)
class DerivedTable(TableReference):
    """A query in parentheses."""

    query: Query
    is_lateral: bool = False


@dataclass(frozen=True, slots=True)
class TableFunction(TableReference):
    """``TABLE(TUMBLE(...))``, ``LATERAL TABLE(split(x))``."""

    call: Call
    is_lateral: bool = False


@dataclass(frozen=True, slots=True)
class UnnestedTable(TableReference):
    """``UNNEST(a) [WITH ORDINALITY]``."""

    collections: tuple[ValueExpression, ...]
    with_ordinality: bool = False


@dataclass(frozen=True, slots=True)
class Aliased(TableReference):
    """``source [FOR SYSTEM_TIME AS OF t] AS name (columns)``."""

    source: TableReference
    alias: str | None = None
    columns: tuple[str, ...] = ()
    as_of: ValueExpression | None = None


@dataclass(frozen=True, slots=True)
class JoinedTable(TableReference):
    """Two sources joined.

    Attributes:
        kind: INNER, LEFT, RIGHT, FULL, CROSS, LEFT SEMI or LEFT ANTI; a comma is CROSS.
        left: the first one.
        right: the second one.
        condition: behind ON.
        using: names behind USING.
        is_natural: NATURAL JOIN.
    """

    kind: str
    left: TableReference
    right: TableReference
    condition: ValueExpression | None = None
    using: tuple[str, ...] = ()
    is_natural: bool = False


@dataclass(frozen=True, slots=True)
class QueryBody(Node):
    """A query without WITH, ORDER BY and LIMIT."""


@dataclass(frozen=True, slots=True)
class Select(QueryBody):
    """``SELECT ... FROM ... WHERE ... GROUP BY ... HAVING ... WINDOW ... QUALIFY ...``."""

    items: tuple[SelectItem, ...]
    source: TableReference | None = None
    where: ValueExpression | None = None
    group_by: tuple[ValueExpression, ...] | None = None
    having: ValueExpression | None = None
    windows: tuple[tuple[str, WindowSpecification], ...] = ()
    qualify: ValueExpression | None = None
    is_distinct: bool = False
    hints: tuple[Hint, ...] = ()


@dataclass(frozen=True, slots=True)
class ValuesClause(QueryBody):
    """``VALUES (1, 'a'), (2, 'b')``."""

    rows: tuple[tuple[ValueExpression, ...], ...]


@dataclass(frozen=True, slots=True)
class SetOperation(QueryBody):
    """``left UNION [ALL] right``.

    Attributes:
        operator: UNION, INTERSECT or EXCEPT.
        left: the first part.
        right: the second part.
        keeps_duplicates: ALL.
    """

    operator: str
    left: QueryBody
    right: QueryBody
    keeps_duplicates: bool = False


@dataclass(frozen=True, slots=True)
class NestedQuery(QueryBody):
    """A query in parentheses, as a part of another one."""

    query: Query


@dataclass(frozen=True, slots=True)
class CommonTable(Node):
    """``name (columns) AS (query)`` behind WITH."""

    name: str
    query: Query
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Query(Node):
    """A query.

    Attributes:
        body: its SELECT, or several of them.
        common_tables: behind WITH.
        is_recursive: WITH RECURSIVE.
        order_by: order of the rows.
        limit: number of rows at most, of LIMIT or FETCH; None is all.
        offset: number of rows to leave out.
    """

    body: QueryBody
    common_tables: tuple[CommonTable, ...] = ()
    is_recursive: bool = False
    order_by: tuple[OrderItem, ...] = ()
    limit: ValueExpression | None = None
    offset: ValueExpression | None = None
