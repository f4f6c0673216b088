"""Which changes the rows of a relation undergo, which columns tell its rows apart, and what keeps state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from firesteel.common.types import RowKind
from firesteel.table.types import DataType
from firesteel_sql.catalog.tables import Identifier
from firesteel_sql.connectors.changelog import ALL_CHANGES, INSERT_ONLY, ChangelogMode
from firesteel_sql.plan.recursion import WorkingTable
from firesteel_sql.plan.relations import ConstantRows, Filter, Projection, Relation, Scan, Union, WatermarkAssigner
from firesteel_sql.plan.row_expressions import AppliedFunction, InputColumn, RowExpression
from firesteel_sql.plan.stateful_relations import (
    GroupBy,
    Join,
    JoinKind,
    LookupJoin,
    Normalize,
    Over,
    OverCall,
    Rank,
    RankFunction,
    SinkMaterializer,
    SortedRows,
    TemporalJoin,
    Unnest,
    WindowKind,
    WindowTable,
)
from firesteel_sql.plan.traversal import with_inputs
from firesteel_sql.types import rules

Key = frozenset[int]
"""Places of columns whose values together are different in all rows."""
SourceMode = Callable[[Scan], ChangelogMode]
"""The changes that a table's connector gives."""

_UPDATES: Final = ChangelogMode.of([RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER])


# -- keys


def unique_keys(relation: Relation) -> list[Key]:
    """The keys of a relation; the empty one if it has one row at most."""
    return _keys(relation, lambda part, keys: keys)


def upsert_keys(relation: Relation, source_mode: SourceMode) -> list[Key]:
    """The unique keys whose changes stay in order on their way through the exchanges between subtasks.

    The row of a join may move from one subtask to another when the column by which it is joined changes; the deletion
    of the old row may then come after the insertion of the new one. The same is true of partitions of a rank.
    """
    return _keys(relation, lambda part, keys: [key for key in keys if _stays_in_order(part, key, source_mode)])


def _stays_in_order(relation: Relation, key: Key, source_mode: SourceMode) -> bool:
    """Whether all changes of a key are computed by one subtask."""

    def is_fixed(side: Relation, shift: int) -> bool:
        """Whether rows of an input never change, and the key tells them apart: it says where they are computed."""
        if not changelog_mode(side, source_mode).is_append:
            return False
        return any(frozenset(place + shift for place in inside) <= key for inside in unique_keys(side))

    match relation:
        case Join():
            width = len(relation.left.columns)
            return (
                is_fixed(relation.left, 0)
                or (relation.kind not in (JoinKind.SEMI, JoinKind.ANTI) and is_fixed(relation.right, width))
                or all(equal.left in key or equal.right + width in key for equal in relation.keys)
            )
        case TemporalJoin():
            return is_fixed(relation.left, 0) or all(equal.left in key for equal in relation.keys)
        case Rank() | Over():
            return is_fixed(relation.input, 0) or key >= set(relation.partition)
    return True


def _keys(relation: Relation, kept: Callable[[Relation, list[Key]], list[Key]]) -> list[Key]:
    """The keys of a relation that are kept, of those that follow from the keys kept of its inputs."""
    return kept(relation, _keys_over(relation, [_keys(part, kept) for part in relation.inputs]))


def _keys_over(relation: Relation, inputs: list[list[Key]]) -> list[Key]:
    match relation:
        case Scan():
            places = {column.name: place for place, column in enumerate(relation.columns)}
            key = [places[name] for name in relation.table.primary_key if name in places]
            return [frozenset(key)] if key and len(key) == len(relation.table.primary_key) else []
        case Projection():
            return _projected_keys(relation, inputs[0])
        case GroupBy():
            return [frozenset(range(len(relation.groups)))]
        case Rank():
            return _rank_keys(relation, inputs[0])
        case Normalize():
            return [frozenset(relation.key)]
        case SinkMaterializer():
            return [frozenset(relation.key)]
        case Join():
            return _join_keys(relation, *inputs)
        case LookupJoin():
            equal = {key.right for key in relation.keys}
            is_single = any(key <= equal for key in unique_keys(relation.table))
            return inputs[0] if is_single else []
        case WindowTable():
            if relation.kind in (WindowKind.TUMBLE, WindowKind.SESSION):
                return inputs[0]
            return [key | {len(relation.input.columns)} for key in inputs[0]]
        case Unnest():
            if not relation.with_ordinality:
                return []
            return [key | {len(relation.columns) - 1} for key in inputs[0]]
        case Filter() | WatermarkAssigner() | Over() | SortedRows() | TemporalJoin():
            return inputs[0]
    return []


def _projected_keys(relation: Projection, inside: list[Key]) -> list[Key]:
    places: dict[int, int] = {}
    for place, item in enumerate(relation.expressions):
        column = same_values(item)
        if isinstance(column, InputColumn):
            places.setdefault(column.index, place)
    return [frozenset(places[place] for place in key) for key in inside if key <= places.keys()]


def same_values(expression: RowExpression) -> RowExpression:
    """An expression without the casts around it that give different results for different values."""
    while isinstance(expression, AppliedFunction) and (
        expression.name == "NOT_NULL"
        or (expression.name == "CAST" and _keeps_differences(expression.inputs[0].type, expression.type))
    ):
        expression = expression.inputs[0]
    return expression


def _keeps_differences(source: DataType, target: DataType) -> bool:
    if rules.is_exact(source) and rules.is_exact(target):
        (digits, scale), (digits_after, scale_after) = (
            rules.as_decimal(source).parameters, rules.as_decimal(target).parameters,
        )  # fmt: skip
        return scale <= scale_after and digits - scale <= digits_after - scale_after
    is_string = target.nullable_() == rules.STRING.nullable_()
    return is_string and (rules.is_exact(source) or source.name in ("DATE", "TIME", "BOOLEAN"))


def _rank_keys(relation: Rank, inside: list[Key]) -> list[Key]:
    keys = list(inside)
    if relation.function is RankFunction.ROW_NUMBER:
        if relation.last is not None and relation.last <= relation.first:
            keys.insert(0, frozenset(relation.partition))
        elif relation.with_rank:
            keys.insert(0, frozenset((*relation.partition, len(relation.columns) - 1)))
    return keys


def _join_keys(relation: Join, ours: list[Key], theirs: list[Key]) -> list[Key]:
    if relation.kind in (JoinKind.SEMI, JoinKind.ANTI):
        return ours
    width = len(relation.left.columns)
    shifted = [frozenset(place + width for place in key) for key in theirs]
    left_equal = {key.left for key in relation.keys}
    right_equal = {key.right for key in relation.keys}
    keys: list[Key] = []
    if relation.kind in (JoinKind.INNER, JoinKind.LEFT) and any(key <= right_equal for key in theirs):
        keys += ours
    if relation.kind in (JoinKind.INNER, JoinKind.RIGHT) and any(key <= left_equal for key in ours):
        keys += shifted
    if not keys and relation.kind is not JoinKind.FULL:
        keys += [one | other for one in ours for other in shifted]
    return keys


# -- changes


def insert_only(scan: Scan) -> ChangelogMode:
    """The mode of tables whose connectors are not asked."""
    return INSERT_ONLY


def changelog_mode(relation: Relation, source_mode: SourceMode = insert_only) -> ChangelogMode:
    """The changes that a relation gives."""
    modes = [changelog_mode(part, source_mode) for part in relation.inputs]
    return _mode_over(relation, modes, source_mode)


def _mode_over(relation: Relation, modes: Sequence[ChangelogMode], source_mode: SourceMode) -> ChangelogMode:
    is_append = all(mode.is_append for mode in modes)
    match relation:
        case Scan():
            return source_mode(relation)
        case ConstantRows() | WorkingTable():
            return INSERT_ONLY
        case Normalize() | SinkMaterializer():
            return ALL_CHANGES
        case GroupBy(window=None):
            if is_append:
                return _UPDATES if relation.calls else INSERT_ONLY
            return ALL_CHANGES if relation.groups else _UPDATES
        case GroupBy():
            return INSERT_ONLY
        case Rank():
            is_first_rows = not relation.order and relation.function is RankFunction.ROW_NUMBER
            return INSERT_ONLY if is_append and (is_first_rows or relation.window is not None) else ALL_CHANGES
        case Over():
            return INSERT_ONLY if is_append and results_are_final(relation) else ALL_CHANGES
        case SortedRows():
            return INSERT_ONLY if is_append or relation.at_end else ALL_CHANGES
        case Join():
            at_end = relation.window is not None or relation.bounds is not None
            grows = relation.kind in (JoinKind.INNER, JoinKind.SEMI)
            return INSERT_ONLY if is_append and (at_end or grows) else ALL_CHANGES
        case TemporalJoin() | LookupJoin():
            return modes[0]
    return ChangelogMode.of(kind for mode in modes for kind in mode.kinds)


def results_are_final(relation: Over) -> bool:
    """Whether the result of a row is known once all rows up to its time are there: no frame looks ahead."""
    if not relation.order:
        return False
    first = relation.order[0]
    is_by_time = relation.input.columns[first.place].time_attribute is not None and first.ascending
    return is_by_time and not any(_looks_ahead(over) for over in relation.calls)


def _looks_ahead(over: OverCall) -> bool:
    match over.call.function:
        case "ROW_NUMBER" | "RANK" | "DENSE_RANK" | "LAG":
            return False
        case "PERCENT_RANK" | "CUME_DIST" | "NTILE" | "LEAD":
            return True
    return over.frame.following != 0


def with_normalized_tables(relation: Relation, source_mode: SourceMode) -> Relation:
    """The relation, in which tables that come as upserts by their primary key give whole updates."""
    known: dict[int, Relation] = {}

    def normalized(part: Relation) -> Relation:
        done = known.get(id(part))
        if done is None:
            done = with_inputs(part, tuple(normalized(inner) for inner in part.inputs))
            if isinstance(done, Scan) and source_mode(done).is_upsert and (keys := unique_keys(done)):
                done = Normalize(done.columns, done, tuple(sorted(keys[0])))
            known[id(part)] = done
        return done

    return normalized(relation)


def refusal_of_changes(
    sink: Identifier, takes: ChangelogMode, relation: Relation, source_mode: SourceMode = insert_only
) -> str | None:
    """What is wrong with a sink that does not take the changes of a relation, in Flink's words; None if nothing is.

    Args:
        sink: name of the table that is written.
        takes: the changes that it takes.
        relation: what is written.
        source_mode: the changes of the tables that are read.
    """
    missing = takes.missing(changelog_mode(relation, source_mode))
    if not missing:
        return None
    words = [
        word
        for word, kinds in (("update", {RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER}), ("delete", {RowKind.DELETE}))
        if kinds & missing
    ]
    node = relation
    while True:  # to the relation that makes the changes
        origin = next((part for part in node.inputs if takes.missing(changelog_mode(part, source_mode))), None)
        if origin is None or not isinstance(node, (Filter, Projection, Union, WatermarkAssigner, WindowTable, Unnest)):
            break
        node = origin
    return (
        f"Table sink '{'.'.join(sink)}' doesn't support consuming {' and '.join(words)} changes which is produced by "
        f"node {node.text()}"
    )


# -- state


def keeps_state(relation: Relation) -> bool:
    """Whether the operator of a relation remembers rows."""
    return isinstance(relation, (GroupBy, Join, TemporalJoin, Rank, Over, SortedRows, Normalize, SinkMaterializer))
