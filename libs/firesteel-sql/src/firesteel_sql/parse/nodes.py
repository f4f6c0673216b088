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
class Expression(Node):
    """What has a value for each row."""


# -- literals


@dataclass(frozen=True, slots=True)
class NumberLiteral(Expression):
    """A number as it was written; one with an exponent is a DOUBLE, all others are exact."""

    text: str


@dataclass(frozen=True, slots=True)
class StringLiteral(Expression):
    """A text."""

    value: str


@dataclass(frozen=True, slots=True)
class BinaryLiteral(Expression):
    """Bytes, ``x'0aff'``."""

    value: bytes


@dataclass(frozen=True, slots=True)
class BooleanLiteral(Expression):
    """TRUE, FALSE, or UNKNOWN (None)."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class NullLiteral(Expression):
    """NULL."""


@dataclass(frozen=True, slots=True)
class TimeLiteral(Expression):
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
class IntervalLiteral(Expression):
    """``INTERVAL '5' MINUTE``, ``INTERVAL -'1 02:03' DAY TO MINUTE``."""

    text: str
    unit: IntervalUnit
    is_negative: bool = False


@dataclass(frozen=True, slots=True)
class ComputedInterval(Expression):
    """``INTERVAL n DAY``: as many units as an expression says."""

    count: Expression
    unit: IntervalUnit


# -- names and signs


@dataclass(frozen=True, slots=True)
class Reference(Expression):
    """A column, or a field of one: ``price``, ``b.price``, ``db.bids.price``, ``bid.price``."""

    path: Path


@dataclass(frozen=True, slots=True)
class Symbol(Expression):
    """A word that is an argument of a function: a unit of time, ``BOTH`` of TRIM."""

    word: str


@dataclass(frozen=True, slots=True)
class Unary(Expression):
    """``-x``, ``+x``, ``NOT x``."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary(Expression):
    """``a + b``, ``a AND b``, ``a <= b``, ``a || b``."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class IsTest(Expression):
    """``x IS [NOT] NULL``, TRUE, FALSE, UNKNOWN, JSON, JSON OBJECT and the like."""

    operand: Expression
    test: str
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class IsDistinct(Expression):
    """``a IS [NOT] DISTINCT FROM b``."""

    left: Expression
    right: Expression
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Between(Expression):
    """``x [NOT] BETWEEN [SYMMETRIC] low AND high``."""

    operand: Expression
    low: Expression
    high: Expression
    is_negated: bool = False
    is_symmetric: bool = False


@dataclass(frozen=True, slots=True)
class InList(Expression):
    """``x [NOT] IN (1, 2)``."""

    operand: Expression
    items: tuple[Expression, ...]
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class InQuery(Expression):
    """``x [NOT] IN (SELECT ...)``."""

    operand: Expression
    query: Query
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Like(Expression):
    """``x [NOT] LIKE p [ESCAPE e]``; SIMILAR TO and RLIKE as well."""

    kind: str
    operand: Expression
    pattern: Expression
    escape: Expression | None = None
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Quantified(Expression):
    """``x > ALL (SELECT ...)``, ``x = ANY (1, 2)``; SOME is ANY."""

    operator: str
    operand: Expression
    quantifier: str
    query: Query | tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Exists(Expression):
    """``EXISTS (SELECT ...)``."""

    query: Query


@dataclass(frozen=True, slots=True)
class ScalarQuery(Expression):
    """A query whose only row and column is a value."""

    query: Query


@dataclass(frozen=True, slots=True)
class Constructor(Expression):
    """``ROW(a, b)``, ``(a, b)``, ``ARRAY[a, b]``, ``MULTISET[a, b]``, ``MAP['k', v]``.

    Attributes:
        kind: ROW, ARRAY, MULTISET or MAP.
        items: of a map key and value in turn.
    """

    kind: str
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class ArrayQuery(Expression):
    """``ARRAY(SELECT ...)``."""

    query: Query


@dataclass(frozen=True, slots=True)
class Element(Expression):
    """``a[1]``, ``m['k']``."""

    operand: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class Member(Expression):
    """A field of a row that is no plain name: ``f(x).name``, ``a[1].name``."""

    operand: Expression
    name: str


@dataclass(frozen=True, slots=True)
class AtTimeZone(Expression):
    """``ts AT TIME ZONE 'Europe/Berlin'``."""

    operand: Expression
    zone: Expression


@dataclass(frozen=True, slots=True)
class When(Node):
    """``WHEN condition THEN result``."""

    condition: Expression
    result: Expression


@dataclass(frozen=True, slots=True)
class Case(Expression):
    """``CASE [operand] WHEN ... THEN ... [ELSE ...] END``."""

    operand: Expression | None
    whens: tuple[When, ...]
    otherwise: Expression | None


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
class Cast(Expression):
    """``CAST(x AS type)``, ``TRY_CAST(x AS type)``."""

    operand: Expression
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

    expression: Expression
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
    distance: Expression | None = None


@dataclass(frozen=True, slots=True)
class WindowSpec(Node):
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
    partition_by: tuple[Expression, ...] = ()
    order_by: tuple[OrderItem, ...] = ()
    frame_unit: str | None = None
    frame_start: FrameBound | None = None
    frame_end: FrameBound | None = None


@dataclass(frozen=True, slots=True)
class Call(Expression):
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
    arguments: tuple[Expression, ...] = ()
    is_distinct: bool = False
    order_by: tuple[OrderItem, ...] = ()
    filter: Expression | None = None
    ignores_nulls: bool | None = None
    over: WindowSpec | None = None


@dataclass(frozen=True, slots=True)
class Star(Expression):
    """``*`` or ``t.*``."""

    qualifier: Path = ()


@dataclass(frozen=True, slots=True)
class NamedArgument(Expression):
    """``SIZE => INTERVAL '5' MINUTE``."""

    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class DefaultArgument(Expression):
    """``DEFAULT`` in place of an argument."""


@dataclass(frozen=True, slots=True)
class TableArgument(Expression):
    """``TABLE bids PARTITION BY bidder``, ``(SELECT ...)`` as an argument of a table function."""

    table: Path | Query
    partition_by: tuple[Expression, ...] = ()
    order_by: tuple[OrderItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Descriptor(Expression):
    """``DESCRIPTOR(ts)``: names of columns."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JsonClause(Expression):
    """A part of a JSON function that is no value: ``NULL ON EMPTY``, ``WITH WRAPPER``, ``RETURNING INT``.

    Attributes:
        clause: ON EMPTY, ON ERROR, ON NULL, WRAPPER or RETURNING.
        behaviour: its words: NULL, ERROR, EMPTY ARRAY, WITHOUT, ABSENT and so on.
        default: of ``DEFAULT value ON EMPTY``.
        type: of RETURNING.
    """

    clause: str
    behaviour: str = ""
    default: Expression | None = None
    type: TypeSpec | None = None


@dataclass(frozen=True, slots=True)
class JsonEntry(Expression):
    """``KEY 'k' VALUE v`` of a JSON object."""

    key: Expression
    value: Expression


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

    expression: Expression
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class GroupingSets(Expression):
    """``GROUPING SETS``, ``ROLLUP`` and ``CUBE``.

    Attributes:
        kind: GROUPING SETS, ROLLUP or CUBE.
        sets: each with its keys; one may have none.
    """

    kind: str
    sets: tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True, slots=True)
class Source(Node):
    """What stands behind FROM."""


@dataclass(frozen=True, slots=True)
class NamedTable(Source):
    """A table or a view, by its name."""

    path: Path
    hints: tuple[Hint, ...] = ()


@dataclass(frozen=True, slots=True)
class DerivedTable(Source):
    """A query in parentheses."""

    query: Query
    is_lateral: bool = False


@dataclass(frozen=True, slots=True)
class TableFunction(Source):
    """``TABLE(TUMBLE(...))``, ``LATERAL TABLE(split(x))``."""

    call: Call
    is_lateral: bool = False


@dataclass(frozen=True, slots=True)
class Unnest(Source):
    """``UNNEST(a) [WITH ORDINALITY]``."""

    collections: tuple[Expression, ...]
    with_ordinality: bool = False


@dataclass(frozen=True, slots=True)
class Aliased(Source):
    """``source [FOR SYSTEM_TIME AS OF t] AS name (columns)``."""

    source: Source
    alias: str | None = None
    columns: tuple[str, ...] = ()
    as_of: Expression | None = None


@dataclass(frozen=True, slots=True)
class Join(Source):
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
    left: Source
    right: Source
    condition: Expression | None = None
    using: tuple[str, ...] = ()
    is_natural: bool = False


@dataclass(frozen=True, slots=True)
class QueryBody(Node):
    """A query without WITH, ORDER BY and LIMIT."""


@dataclass(frozen=True, slots=True)
class Select(QueryBody):
    """``SELECT ... FROM ... WHERE ... GROUP BY ... HAVING ... WINDOW ... QUALIFY ...``."""

    items: tuple[SelectItem, ...]
    source: Source | None = None
    where: Expression | None = None
    group_by: tuple[Expression, ...] | None = None
    having: Expression | None = None
    windows: tuple[tuple[str, WindowSpec], ...] = ()
    qualify: Expression | None = None
    is_distinct: bool = False
    hints: tuple[Hint, ...] = ()


@dataclass(frozen=True, slots=True)
class Values(QueryBody):
    """``VALUES (1, 'a'), (2, 'b')``."""

    rows: tuple[tuple[Expression, ...], ...]


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
    limit: Expression | None = None
    offset: Expression | None = None
