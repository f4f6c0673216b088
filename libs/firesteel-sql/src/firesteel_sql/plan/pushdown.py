"""Filters and joins, put together so that conditions stand as near to the tables as they can.

``filtered`` and ``joined`` build relations: a condition goes below projections, unions and joins, equalities become
keys of joins, distances of times become their bounds, and a limit of ROW_NUMBER becomes a Rank. They keep the columns
as they are, so a binder may use places of columns before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from firesteel_sql.plan.projections import chosen_columns, column_at, extended, is_simple, projected
from firesteel_sql.plan.relations import Column, Filter, Projection, Relation, Scan, Union
from firesteel_sql.plan.row_expressions import (
    AppliedFunction,
    Constant,
    InputColumn,
    RowExpression,
    composed,
    conjunction_of,
    conjuncts_of,
    is_correlated,
    is_deterministic,
    moved,
    places_of,
)
from firesteel_sql.plan.stateful_relations import (
    GroupBy,
    Join,
    JoinKey,
    JoinKind,
    LookupJoin,
    Normalize,
    Over,
    Rank,
    RankFunction,
    SortedRows,
    TemporalJoin,
    TimeBounds,
    Unnest,
    WindowColumns,
    WindowKind,
    WindowTable,
)
from firesteel_sql.plan.windows import window_bounds
from firesteel_sql.types import rules
from firesteel_sql.types.intervals import DAY_TIME

Conditions = Sequence[RowExpression]


def filtered(relation: Relation, conditions: Conditions) -> Relation:
    """The rows of a relation for which all conditions are true; its columns are the same."""
    parts = [part for condition in conditions for part in conjuncts_of(condition)]
    if not parts:
        return relation
    movable = [part for part in parts if _is_movable(part)]
    fixed = [part for part in parts if not _is_movable(part)]
    match relation:
        case Filter():
            relation, rest = filtered(relation.input, [*conjuncts_of(relation.condition), *movable]), []
            if isinstance(relation, Filter):  # one filter, in the order of the query
                rest, relation = conjuncts_of(relation.condition), relation.input
        case Projection():
            relation, rest = _below_projection(relation, movable)
        case Union():
            pieces = tuple(filtered(part, movable) for part in relation.parts)
            relation, rest = replace(relation, parts=pieces), []
        case Join():
            relation, rest = _below_join(relation, movable)
        case Over() if any(_numbering(relation, part) for part in movable):
            relation, rest = _ranked(relation, movable)
        case GroupBy() | Over() | Rank() | WindowTable() | Normalize() | SortedRows() | Unnest():
            relation, rest = _below_input(relation, movable)
        case TemporalJoin() | LookupJoin():
            relation, rest = _below_left(relation, movable)
        case _:
            rest = movable
    condition = conjunction_of([*rest, *fixed])
    return relation if condition is None else Filter(relation.columns, relation, condition)


def _is_movable(condition: RowExpression) -> bool:
    return is_deterministic(condition) and not is_correlated(condition)


def _split(
    parts: Conditions, belongs: Callable[[RowExpression], bool]
) -> tuple[list[RowExpression], list[RowExpression]]:
    return [part for part in parts if belongs(part)], [part for part in parts if not belongs(part)]


def _below_projection(relation: Projection, parts: Conditions) -> tuple[Relation, list[RowExpression]]:
    """Conditions go below if that computes nothing twice, or keeps rows out of an operator's state."""
    is_stateful = isinstance(relation.input, (Join, GroupBy, Over, Rank, Union))

    def goes_below(part: RowExpression) -> bool:
        items = [relation.expressions[place] for place in places_of(part)]
        if not is_stateful and not all(is_simple(item) for item in items):
            return False
        return all(_is_movable(item) for item in items)

    below, above = _split(parts, goes_below)
    if not below:
        return relation, above
    inner = filtered(relation.input, [composed(part, relation.expressions) for part in below])
    return projected(relation.columns, inner, relation.expressions), above


def _below_input(relation: Relation, parts: Conditions) -> tuple[Relation, list[RowExpression]]:
    """Conditions on columns by which an operator keeps rows apart go below it."""
    assert isinstance(relation, (GroupBy, Over, Rank, WindowTable, Normalize, SortedRows, Unnest))
    places: dict[int, int]
    width = len(relation.input.columns)
    match relation:
        case GroupBy():
            places = dict(enumerate(relation.groups))
        case Over() | Rank():
            places = {place: place for place in relation.partition}
        case Normalize():
            places = {place: place for place in relation.key}
        case WindowTable(kind=WindowKind.SESSION):
            places = {place: place for place in relation.partition}
        case _:
            places = {place: place for place in range(width)}
    below, above = _split(parts, lambda part: bool(places_of(part)) and places_of(part) <= places.keys())
    if not below:
        return relation, above
    inner = filtered(relation.input, [moved(part, places) for part in below])
    return replace(relation, input=inner), above


def _below_left(relation: TemporalJoin | LookupJoin, parts: Conditions) -> tuple[Relation, list[RowExpression]]:
    width = len(relation.left.columns)
    below, above = _split(parts, lambda part: max(places_of(part), default=0) < width)
    return replace(relation, left=filtered(relation.left, below)), above


# -- joins


def _below_join(join: Join, parts: Conditions) -> tuple[Relation, list[RowExpression]]:
    width = len(join.left.columns)
    if join.kind in (JoinKind.SEMI, JoinKind.ANTI):
        return replace(join, left=filtered(join.left, parts)), []
    left_places = frozenset(range(width))
    right_places = frozenset(range(width, len(join.columns)))
    kind = join.kind
    if kind in (JoinKind.LEFT, JoinKind.FULL) and any(rejects_nulls(part, right_places) for part in parts):
        kind = JoinKind.INNER if kind is JoinKind.LEFT else JoinKind.RIGHT
    if kind in (JoinKind.RIGHT, JoinKind.FULL) and any(rejects_nulls(part, left_places) for part in parts):
        kind = JoinKind.INNER if kind is JoinKind.RIGHT else JoinKind.LEFT
    left, right = join.left, join.right
    rest: list[RowExpression] = []
    conditions = conditions_of(join)
    for part in parts:
        places = places_of(part)
        if kind is JoinKind.INNER:
            conditions.append(part)
        elif kind is JoinKind.LEFT and places and places <= left_places:
            left = filtered(left, [part])
        elif kind is JoinKind.RIGHT and places and places <= right_places:
            right = filtered(right, [moved(part, lambda place: place - width)])
        else:
            rest.append(part)
    again = joined(left, right, kind, conditions, state_ttl=join.state_ttl)
    # A join that is inner by now has columns without NULL; those who use it know the types of before.
    columns = [replace(new, type=old.type) for new, old in zip(again.columns, join.columns, strict=True)]
    return replace(again, columns=tuple(columns)), rest


def conditions_of(join: Join) -> list[RowExpression]:
    """All conditions of a join over the columns of both inputs, keys and bounds of times included."""
    width = len(join.left.columns)
    conditions: list[RowExpression] = []

    def right_column(place: int) -> InputColumn:
        return replace(column_at(join.right, place), index=place + width)

    for key in join.keys:
        left, right = column_at(join.left, key.left), right_column(key.right)
        nullable = left.type.nullable or right.type.nullable
        if key.nulls_equal:
            differs = _function("IS DISTINCT FROM", "numbers:is_distinct", (left, right), nullable=False)
            conditions.append(AppliedFunction(differs.type, "NOT", "not", (differs,)))
        else:
            conditions.append(_function("=", "numbers:equal", (left, right), nullable=nullable))
    if join.bounds is not None:
        bounds = join.bounds
        left, right = column_at(join.left, bounds.left_time), right_column(bounds.right_time)
        nullable = left.type.nullable or right.type.nullable
        for sign, kernel, distance in ((">=", "greater_equal", bounds.lower), ("<=", "less_equal", bounds.upper)):
            interval = Constant(rules.with_null(DAY_TIME, False), distance)
            limit = AppliedFunction(left.type, "+", "firesteel_sql.kernels.times:add_millis", (left, interval))
            conditions.append(_function(sign, f"numbers:{kernel}", (right, limit), nullable=nullable))
    return [*conditions, *conjuncts_of(join.condition)]


def _function(name: str, kernel: str, inputs: tuple[RowExpression, ...], *, nullable: bool) -> AppliedFunction:
    return AppliedFunction(rules.with_null(rules.BOOLEAN, nullable), name, f"firesteel_sql.kernels.{kernel}", inputs)


def joined(
    left: Relation,
    right: Relation,
    kind: JoinKind,
    conditions: Conditions,
    *,
    null_aware: bool = False,
    state_ttl: tuple[int | None, int | None] = (None, None),
) -> Relation:
    """A join by conditions: the left columns, then the right ones; SEMI and ANTI have the left ones only.

    Args:
        left: rows of the left input.
        right: rows of the right input.
        kind: of the join.
        conditions: over the columns of both inputs, the left ones first.
        null_aware: ANTI: the last condition is the equality of NOT IN, and all others are equalities, too.
        state_ttl: for each input, of its rows; None = as the session says.
    """
    width, right_width = len(left.columns), len(right.columns)
    rest: list[RowExpression] = []
    below_left: list[RowExpression] = []
    below_right: list[RowExpression] = []
    for part in [part for condition in conditions for part in conjuncts_of(condition)]:
        places = places_of(part)
        if not places or not _is_movable(part):
            rest.append(part)
        elif max(places) < width and kind in (JoinKind.INNER, JoinKind.SEMI, JoinKind.RIGHT):
            below_left.append(part)
        elif min(places) >= width and kind not in (JoinKind.RIGHT, JoinKind.FULL):
            below_right.append(moved(part, lambda place: place - width))
        else:
            rest.append(part)
    left, right = filtered(left, below_left), filtered(right, below_right)
    pairs, rest = _equalities(rest, width)
    left, left_places = extended(left, [pair[0] for pair in pairs])
    right, right_places = extended(right, [moved(pair[1], lambda place: place - width) for pair in pairs])
    keys: list[JoinKey] = []
    for left_place, right_place, (_, _, nulls_equal) in zip(left_places, right_places, pairs, strict=True):
        key = JoinKey(left_place, right_place, nulls_equal)
        if key not in keys:
            keys.append(key)
    shift = len(left.columns) - width
    rest = [moved(part, lambda place: place + shift if place >= width else place) for part in rest]
    bounds, rest = _time_bounds(rest, keys, left, right)
    join = Join(
        _joined_columns(left, right, kind, keeps_times=False), left, right, kind, tuple(keys), conjunction_of(rest),
        null_aware, bounds, _common_window(left, right, keys), state_ttl,
    )  # fmt: skip
    if join.bounds is not None or join.window is not None:
        join = replace(join, columns=_joined_columns(left, right, kind, keeps_times=True))
    kept = [*range(width)]
    if kind not in (JoinKind.SEMI, JoinKind.ANTI):
        kept += range(len(left.columns), len(left.columns) + right_width)
    return projected([join.columns[place] for place in kept], join, [column_at(join, place) for place in kept])


def _joined_columns(left: Relation, right: Relation, kind: JoinKind, *, keeps_times: bool) -> tuple[Column, ...]:
    def side(relation: Relation, *, is_optional: bool) -> list[Column]:
        return [
            Column(
                column.name,
                rules.with_null(column.type, column.type.nullable or is_optional),
                column.time_attribute if keeps_times else None,
            )
            for column in relation.columns
        ]

    columns = side(left, is_optional=kind in (JoinKind.RIGHT, JoinKind.FULL))
    if kind not in (JoinKind.SEMI, JoinKind.ANTI):
        columns += side(right, is_optional=kind in (JoinKind.LEFT, JoinKind.FULL))
    return tuple(columns)


def _equalities(
    parts: Conditions, width: int
) -> tuple[list[tuple[RowExpression, RowExpression, bool]], list[RowExpression]]:
    """Pairs of a left and a right expression that are equal, and the conditions that are no such equality."""
    pairs: list[tuple[RowExpression, RowExpression, bool]] = []
    rest: list[RowExpression] = []
    for part in parts:
        match part:
            case AppliedFunction(name="=", inputs=(one, other)):
                nulls_equal = False
            case AppliedFunction(name="NOT", inputs=(AppliedFunction(name="IS DISTINCT FROM", inputs=(one, other)),)):
                nulls_equal = True
            case _:
                rest.append(part)
                continue
        places, others = places_of(one), places_of(other)
        if _is_movable(part) and places and others and max(places) < width <= min(others):
            pairs.append((one, other, nulls_equal))
        elif _is_movable(part) and places and others and max(others) < width <= min(places):
            pairs.append((other, one, nulls_equal))
        else:
            rest.append(part)
    return pairs, rest


def _common_window(
    left: Relation, right: Relation, keys: Sequence[JoinKey]
) -> tuple[WindowColumns, WindowColumns] | None:
    """The windows of both sides, if keys make them equal."""
    ours, theirs = window_bounds(left), window_bounds(right)
    if ours is None or theirs is None or ours.shape != theirs.shape:
        return None
    start = next((key for key in keys if key.left in ours.starts and key.right in theirs.starts), None)
    end = next((key for key in keys if key.left in ours.ends and key.right in theirs.ends), None)
    if start is None or end is None:
        return None
    return (
        WindowColumns(start.left, end.left, min(ours.times, default=None), ours.shape.zone),
        WindowColumns(start.right, end.right, min(theirs.times, default=None), theirs.shape.zone),
    )


# -- versions and lookups


def with_versions(
    left: Relation, right: Relation, kind: JoinKind, conditions: Conditions, left_time: int, right_time: int
) -> tuple[Relation, TemporalJoin]:
    """A join with the versions of rows: the left columns, then the right ones.

    Args:
        left: rows with a time attribute.
        right: versions.
        kind: INNER or LEFT.
        conditions: over the columns of both inputs.
        left_time: place of the left time attribute.
        right_time: place of the right one.

    Returns:
        The rows, and the join in them.
    """
    width = len(left.columns)
    left, keys, rest = _keys_of_columns(left, conditions)
    is_outer = kind is JoinKind.LEFT
    columns = (*left.columns, *_right_columns(right, is_outer=is_outer))
    join = TemporalJoin(columns, left, right, is_outer, keys, conjunction_of(rest), left_time, right_time)
    return chosen_columns(join, [*range(width), *range(len(left.columns), len(columns))]), join


def looked_up(
    left: Relation, table: Scan, kind: JoinKind, conditions: Conditions, options: tuple[tuple[str, str], ...]
) -> Relation | None:
    """A join with rows of an external table: the left columns, then the table's. None if no column of it is a key.

    Args:
        left: the rows.
        table: what is looked up.
        kind: INNER or LEFT.
        conditions: over the columns of both.
        options: of the hint LOOKUP.
    """
    width = len(left.columns)
    left, keys, rest = _keys_of_columns(left, conditions)
    if not keys:
        return None
    is_outer = kind is JoinKind.LEFT
    columns = (*left.columns, *_right_columns(table, is_outer=is_outer))
    join = LookupJoin(columns, left, table, is_outer, keys, conjunction_of(rest), options)
    return chosen_columns(join, [*range(width), *range(len(left.columns), len(columns))])


def _keys_of_columns(
    left: Relation, conditions: Conditions
) -> tuple[Relation, tuple[JoinKey, ...], list[RowExpression]]:
    """Equalities of left expressions with right columns, and the other conditions over the widened left side."""
    width = len(left.columns)
    sides: list[tuple[RowExpression, int]] = []
    rest: list[RowExpression] = []
    for part in conditions:
        pairs, _ = _equalities([part], width)
        if pairs and isinstance(pairs[0][1], InputColumn) and not pairs[0][2]:
            sides.append((pairs[0][0], pairs[0][1].index - width))
        else:
            rest.append(part)
    left, places = extended(left, [side for side, _ in sides])
    shift = len(left.columns) - width
    keys = tuple(JoinKey(place, right) for place, (_, right) in zip(places, sides, strict=True))
    return left, keys, [moved(part, lambda place: place + shift if place >= width else place) for part in rest]


def _right_columns(right: Relation, *, is_outer: bool) -> list[Column]:
    return [
        Column(column.name, rules.with_null(column.type, column.type.nullable or is_outer)) for column in right.columns
    ]


# -- bounds of times


def _time_bounds(
    parts: Conditions, keys: Sequence[JoinKey], left: Relation, right: Relation
) -> tuple[TimeBounds | None, list[RowExpression]]:
    """The distance of two time attributes, if conditions bound it on both sides, and the conditions that remain."""
    width = len(left.columns)
    columns = [*left.columns, *right.columns]

    def is_time(place: int) -> bool:
        return columns[place].time_attribute is not None

    lower: dict[tuple[int, int], int] = {}
    upper: dict[tuple[int, int], int] = {}
    sources: dict[tuple[int, int], list[RowExpression]] = {}
    for part in parts:
        limit = _distance(part, is_time, width)
        if limit is None:
            continue
        pair, sign, distance = limit
        if columns[pair[0]].time_attribute != columns[pair[1]].time_attribute:
            continue
        sources.setdefault(pair, []).append(part)
        if sign in (">", ">="):
            lowest = distance + (sign == ">")
            lower[pair] = max(lower.get(pair, lowest), lowest)
        else:
            highest = distance - (sign == "<")
            upper[pair] = min(upper.get(pair, highest), highest)
    for key in keys:
        if is_time(key.left) and is_time(key.right + width) and not key.nulls_equal:
            pair = (key.left, key.right + width)
            lower[pair], upper[pair] = max(lower.get(pair, 0), 0), min(upper.get(pair, 0), 0)
    bounded = next((pair for pair in lower if pair in upper), None)
    if bounded is None:
        return None, [*parts]
    used = sources.get(bounded, [])
    bounds = TimeBounds(bounded[0], bounded[1] - width, lower[bounded], upper[bounded])
    return bounds, [part for part in parts if not any(part is other for other in used)]


_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _distance(
    part: RowExpression, is_time: Callable[[int], bool], width: int
) -> tuple[tuple[int, int], str, int] | None:
    """``right sign left + distance`` of a comparison of times of both sides: their places, the sign, the distance."""
    match part:
        case AppliedFunction(name="<" | "<=" | ">" | ">=" as sign, inputs=(one, other)):
            first, second = _shifted_time(one, is_time), _shifted_time(other, is_time)
            if first is None or second is None:
                return None
            (place, shift), (other_place, other_shift) = first, second
            if place < width <= other_place:
                return (place, other_place), _FLIPPED[sign], shift - other_shift
            if other_place < width <= place:
                return (other_place, place), sign, other_shift - shift
    return None


def _shifted_time(expression: RowExpression, is_time: Callable[[int], bool]) -> tuple[int, int] | None:
    """The place of a time attribute, and the milliseconds that are added to it."""
    match expression:
        case InputColumn() if is_time(expression.index):
            return expression.index, 0
        case AppliedFunction(name="+" | "-" as sign, inputs=(time, Constant(value=int() as millis))):
            inner = _shifted_time(time, is_time) if expression.inputs[1].type.name == DAY_TIME.name else None
            return None if inner is None else (inner[0], inner[1] + (millis if sign == "+" else -millis))
        case AppliedFunction(name="CAST", inputs=(time,)) if time.type.name == expression.type.name:
            if expression.type.parameters >= time.type.parameters:
                return _shifted_time(time, is_time)
    return None


# -- ranks


def _numbering(over: Over, part: RowExpression) -> tuple[int, int, int | None] | None:
    """What a condition says of a numbering: its place, the first and the last number."""
    match part:
        case AppliedFunction(name="=" | "<" | "<=" | ">" | ">=", inputs=(one, other)):
            sign = part.name
            if _whole_constant(one) is not None:
                one, other, sign = other, one, _FLIPPED.get(sign, sign)
            place, number = _numbered_place(over, one), _whole_constant(other)
            if place is None or number is None:
                return None
            match sign:
                case "=":
                    return place, number, number
                case "<":
                    return place, 1, number - 1
                case "<=":
                    return place, 1, number
                case ">":
                    return place, number + 1, None
            return place, number, None
    return None


def _numbered_place(over: Over, expression: RowExpression) -> int | None:
    while isinstance(expression, AppliedFunction) and expression.name == "CAST" and rules.is_exact(expression.type):
        (expression,) = expression.inputs
    width = len(over.input.columns)
    if isinstance(expression, InputColumn) and expression.index >= width:
        call = over.calls[expression.index - width].call
        if call.function in RankFunction.__members__:
            return expression.index
    return None


def _whole_constant(expression: RowExpression) -> int | None:
    while isinstance(expression, AppliedFunction) and expression.name == "CAST" and rules.is_exact(expression.type):
        (expression,) = expression.inputs
    if isinstance(expression, Constant) and isinstance(expression.value, int) and rules.is_integer(expression.type):
        return expression.value
    return None


def _ranked(over: Over, parts: Conditions) -> tuple[Relation, list[RowExpression]]:
    """The Rank that a limit of a numbering means; further results of OVER are computed before it."""
    width = len(over.input.columns)
    limits = [(part, limit) for part in parts if (limit := _numbering(over, part)) is not None]
    # A partition's own conditions go below first: the rows behind them are no part of it.
    below, parts = _split(
        [part for part in parts if all(part is not limit for limit, _ in limits)],
        lambda part: bool(places_of(part)) and places_of(part) <= set(over.partition),
    )
    place = limits[0][1][0]
    first, last = 1, None
    rest = [*parts]
    for part, (numbered, low, high) in limits:
        if numbered != place:
            rest.append(part)
            continue
        first = max(first, low)
        last = high if last is None else last if high is None else min(last, high)
    call = over.calls[place - width].call
    source: Relation = filtered(over.input, below)
    others = [other for other in range(len(over.calls)) if other != place - width]
    if others:
        kept = tuple(over.columns[width + other] for other in others)
        source = Over(
            (*source.columns, *kept), source, over.partition, over.order, tuple(over.calls[i] for i in others)
        )
    window = window_bounds(source)
    rank = Rank(
        (*source.columns, over.columns[place]), source, RankFunction(call.function), over.partition, over.order,
        first, max(last, 0) if last is not None else None, True,
        None if window is None else window.columns_among(over.partition),
    )  # fmt: skip
    sources = {width + other: width + number for number, other in enumerate(others)}
    sources[place] = len(rank.columns) - 1
    layout = [sources.get(column, column) for column in range(len(over.columns))]
    ranked = projected(
        [rank.columns[column] for column in layout], rank, [column_at(rank, column) for column in layout]
    )
    return ranked, rest


# -- NULL


def rejects_nulls(condition: RowExpression, places: frozenset[int]) -> bool:
    """Whether a condition is never true for rows that have NULL in all of some columns."""
    return _with_nulls(condition, places) in ("NULL", "FALSE")


_STRICT: Final = frozenset(
    (
        "=",
        "<>",
        "<",
        "<=",
        ">",
        ">=",
        "+",
        "-",
        "*",
        "/",
        "%",
        "||",
        "LIKE",
        "CAST",
        "TRY_CAST",
        "FIELD",
        "UPPER",
        "LOWER",
    )
)


def _with_nulls(expression: RowExpression, places: frozenset[int]) -> str:
    """The value if these columns are NULL: NULL, TRUE, FALSE, or ``?`` where it depends on others."""
    match expression:
        case InputColumn():
            return "NULL" if expression.index in places else "?"
        case Constant(value=None):
            return "NULL"
        case Constant(value=bool() as value):
            return str(value).upper()
        case AppliedFunction():
            operands = [_with_nulls(operand, places) for operand in expression.inputs]
            if expression.name in _STRICT:
                return "NULL" if "NULL" in operands else "?"
            match expression.name:
                case "IN":
                    return "NULL" if operands[0] == "NULL" else "?"
                case "IS NULL":
                    return {"NULL": "TRUE"}.get(operands[0], "?")
                case "IS TRUE" | "IS FALSE":
                    return {"NULL": "FALSE"}.get(operands[0], "?")
                case "NOT":
                    return {"NULL": "NULL", "TRUE": "FALSE", "FALSE": "TRUE"}.get(operands[0], "?")
                case "AND":
                    return next((value for value in ("FALSE", "NULL") if value in operands), "?")
                case "OR" if all(value in ("NULL", "FALSE") for value in operands):
                    return "NULL" if "NULL" in operands else "FALSE"
    return "?"
