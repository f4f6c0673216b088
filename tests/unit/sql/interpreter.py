"""Relations computed row by row in plain Python: the meaning of plans, without streams, state or changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from firesteel.expressions.binding import bind
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
from firesteel_sql.plan.row_expressions import RowExpression, to_expression
from firesteel_sql.plan.stateful_relations import (
    AggregateCall,
    GroupBy,
    Join,
    JoinKind,
    Over,
    OverFrame,
    Rank,
    RankFunction,
    Replicate,
    SortKey,
    Unnest,
)
from firesteel_sql.types.columns import arrow_of, type_info_of

Row = tuple[Any, ...]
Tables = Mapping[str, Sequence[Row]]


def rows_of(relation: Relation, tables: Tables) -> list[Row]:
    """The rows of a relation, where tables have these rows."""
    match relation:
        case Scan():
            return list(tables[relation.identifier[-1]])
        case WatermarkAssigner():
            return rows_of(relation.input, tables)
        case Union():
            return [row for part in relation.parts for row in rows_of(part, tables)]
        case ConstantRows():
            return [tuple(values([item], (), [()])[0] for item in row) for row in relation.rows]
        case Filter():
            rows = rows_of(relation.input, tables)
            kept = values([relation.condition], relation.input.columns, rows)
            return [row for row, (is_kept,) in zip(rows, kept, strict=True) if is_kept]
        case Projection():
            return values(relation.expressions, relation.input.columns, rows_of(relation.input, tables))
        case GroupBy():
            return _aggregate(relation, rows_of(relation.input, tables))
        case Join():
            return _join(relation, rows_of(relation.left, tables), rows_of(relation.right, tables))
        case Rank():
            return _rank(relation, rows_of(relation.input, tables))
        case Over():
            return _over(relation, rows_of(relation.input, tables))
        case Unnest():
            return _unnest(relation, rows_of(relation.input, tables))
        case Replicate():
            place = relation.count
            return [
                row[:place] + row[place + 1 :] for row in rows_of(relation.input, tables) for _ in range(row[place])
            ]
    raise AssertionError(relation)


def values(expressions: Sequence[RowExpression], columns: Sequence[Column], rows: Sequence[Row]) -> list[Row]:
    """Expressions over rows, by the kernels that streams use."""
    if not rows:
        return []
    names = [f"c{place}" for place in range(len(columns))]
    arrays = {
        name: pa.array([row[place] for row in rows], arrow_of(column.type))
        for place, (name, column) in enumerate(zip(names, columns, strict=True))
    }
    types = {name: type_info_of(column.type) for name, column in zip(names, columns, strict=True)}
    computed = []
    for expression in expressions:
        result = bind(to_expression(expression, names), types).evaluate(arrays, len(rows))
        found = result.to_pylist()
        computed.append(found * len(rows) if len(found) != len(rows) else found)
    return list(zip(*computed, strict=True)) if computed else [()] * len(rows)


def _groups(rows: Sequence[Row], places: Sequence[int]) -> dict[Row, list[Row]]:
    groups: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[place] for place in places)].append(row)
    return groups


def _aggregate(relation: GroupBy, rows: Sequence[Row]) -> list[Row]:
    groups = _groups(rows, relation.groups) if relation.groups else {(): list(rows)}
    return [(*key, *[_call(call, group) for call in relation.calls]) for key, group in groups.items()]


def _call(call: AggregateCall, rows: Sequence[Row]) -> Any:
    if call.filter is not None:
        rows = [row for row in rows if row[call.filter]]
    arguments = [tuple(row[place] for place in call.arguments) for row in rows]
    arguments = [row for row in arguments if None not in row]
    if call.distinct:
        arguments = list(dict.fromkeys(arguments))
    single = [row[0] for row in arguments if row]
    match call.function:
        case "COUNT":
            return len(arguments)
        case "SUM":
            return sum(single) if single else None
        case "$SUM0":
            return sum(single)
        case "MIN":
            return min(single, default=None)
        case "MAX":
            return max(single, default=None)
        case "SINGLE_VALUE":
            assert len(rows) <= 1
            return rows[0][call.arguments[0]] if rows else None
    raise AssertionError(call.function)


def _join(join: Join, left: Sequence[Row], right: Sequence[Row]) -> list[Row]:
    columns = [*join.left.columns, *join.right.columns]
    pairs = [(i, j) for i, one in enumerate(left) for j, other in enumerate(right) if _matches(join, one, other)]
    if join.condition is not None and pairs:
        found = values([join.condition], columns, [left[i] + right[j] for i, j in pairs])
        pairs = [pair for pair, (is_true,) in zip(pairs, found, strict=True) if is_true]
    with_partner, partners = {i for i, _ in pairs}, {j for _, j in pairs}
    if join.kind is JoinKind.SEMI:
        return [row for i, row in enumerate(left) if i in with_partner]
    if join.kind is JoinKind.ANTI:
        return [
            row
            for i, row in enumerate(left)
            if i not in with_partner and not (join.null_aware and _is_unknown(join, row, right))
        ]
    rows = [left[i] + right[j] for i, j in pairs]
    if join.kind in (JoinKind.LEFT, JoinKind.FULL):
        rows += [row + (None,) * len(join.right.columns) for i, row in enumerate(left) if i not in with_partner]
    if join.kind in (JoinKind.RIGHT, JoinKind.FULL):
        rows += [(None,) * len(join.left.columns) + row for j, row in enumerate(right) if j not in partners]
    return rows


def _matches(join: Join, left: Row, right: Row) -> bool:
    return all(
        left[key.left] == right[key.right] and (key.nulls_equal or left[key.left] is not None) for key in join.keys
    )


def _is_unknown(join: Join, row: Row, right: Sequence[Row]) -> bool:
    """Whether NOT IN is NULL: a NULL is looked for, or is among the rows of the correlation."""
    *correlation, last = join.keys
    candidates = [
        other
        for other in right
        if all(row[k.left] == other[k.right] and (k.nulls_equal or row[k.left] is not None) for k in correlation)
    ]
    return bool(candidates) and (row[last.left] is None or any(other[last.right] is None for other in candidates))


class _SortValue:
    """A value of a sort key, which NULL can be a part of."""

    def __init__(self, row: Row, order: Sequence[SortKey]) -> None:
        self.parts = [(row[key.place], key) for key in order]

    def __lt__(self, other: _SortValue) -> bool:
        for (one, key), (two, _) in zip(self.parts, other.parts, strict=True):
            if one == two:
                continue
            if one is None or two is None:
                return (one is None) == key.nulls_first
            return bool(one < two) == key.ascending
        return False

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, _SortValue)
        return [value for value, _ in self.parts] == [value for value, _ in other.parts]

    __hash__ = None  # type: ignore[assignment]


def _sorted(rows: Sequence[Row], order: Sequence[SortKey]) -> list[Row]:
    return sorted(rows, key=lambda row: _SortValue(row, order))


def _numbers(rows: Sequence[Row], order: Sequence[SortKey], function: str) -> list[tuple[Row, int]]:
    numbered: list[tuple[Row, int]] = []
    for dense, (_, peers) in enumerate(groupby(_sorted(rows, order), key=lambda row: _sort_values(row, order)), 1):
        first = len(numbered) + 1
        for row in peers:
            number = {"ROW_NUMBER": len(numbered) + 1, "RANK": first, "DENSE_RANK": dense}[function]
            numbered.append((row, number))
    return numbered


def _sort_values(row: Row, order: Sequence[SortKey]) -> Row:
    return tuple(row[key.place] for key in order)


def _rank(rank: Rank, rows: Sequence[Row]) -> list[Row]:
    found: list[Row] = []
    for group in _groups(rows, rank.partition).values():
        for row, number in _numbers(group, rank.order, rank.function.value):
            if rank.first <= number and (rank.last is None or number <= rank.last):
                found.append((*row, number) if rank.with_rank else row)
    return found


def _over(over: Over, rows: Sequence[Row]) -> list[Row]:
    found: list[Row] = []
    for group in _groups(rows, over.partition).values():
        ordered = _sorted(group, over.order)
        results = [_over_call(call.call, call.frame, ordered, over.order) for call in over.calls]
        found += [(*row, *parts) for row, parts in zip(ordered, zip(*results, strict=True), strict=True)]
    return found


def _over_call(call: AggregateCall, frame: OverFrame, rows: Sequence[Row], order: Sequence[SortKey]) -> list[Any]:
    if call.function in RankFunction.__members__:
        return [number for _, number in _numbers(rows, order, call.function)]
    if call.function in ("LAG", "LEAD"):
        offset, default = call.constants
        assert isinstance(offset, int)
        shift = -offset if call.function == "LAG" else offset
        return [
            rows[at + shift][call.arguments[0]] if 0 <= at + shift < len(rows) else default for at in range(len(rows))
        ]
    results = []
    for at, row in enumerate(rows):
        if frame.by_rows:
            first = 0 if frame.preceding is None else max(0, at - frame.preceding)
            end = len(rows) if frame.following is None else at + frame.following + 1
            inside = rows[first:end]
        else:
            assert frame.preceding is None
            inside = (
                rows
                if frame.following is None
                else [other for other in rows if not _SortValue(row, order) < _SortValue(other, order)]
            )
        results.append(_call(call, inside))
    return results


def _unnest(unnest: Unnest, rows: Sequence[Row]) -> list[Row]:
    found: list[Row] = []
    width = len(unnest.columns) - len(unnest.input.columns) - unnest.with_ordinality
    for row in rows:
        elements = [element if width > 1 else (element,) for element in row[unnest.collection] or ()]
        for number, element in enumerate(elements, 1):
            parts = tuple(element.values()) if isinstance(element, dict) else tuple(element)
            found.append((*row, *parts, number) if unnest.with_ordinality else (*row, *parts))
        if not elements and unnest.is_outer:
            found.append((*row, *[None] * (len(unnest.columns) - len(row))))
    return found
