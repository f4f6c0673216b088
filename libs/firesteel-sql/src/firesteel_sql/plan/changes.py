"""Which changes the rows of a relation undergo, which columns tell its rows apart, and what keeps state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from firesteel.common.types import RowKind
from firesteel_sql.catalog.tables import Identifier
from firesteel_sql.connectors.changelog import ALL_CHANGES, INSERT_ONLY, ChangelogMode
from firesteel_sql.plan.relations import ConstantRows, Filter, Projection, Relation, Scan, Union, WatermarkAssigner
from firesteel_sql.plan.row_expressions import InputColumn
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
    SortedRows,
    TemporalJoin,
    Unnest,
    WindowKind,
    WindowTable,
)
from firesteel_sql.plan.traversal import with_inputs

Key = frozenset[int]
"""Places of columns whose values together are different in all rows."""
SourceMode = Callable[[Scan], ChangelogMode]
"""The changes that a table's connector gives."""

_UPDATES: Final = ChangelogMode.of([RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER])


# -- keys


def unique_keys(relation: Relation) -> list[Key]:
    """The keys of a relation; the empty one if it has one row at most."""
    match relation:
        case Scan():
            places = {column.name: place for place, column in enumerate(relation.columns)}
            key = [places[name] for name in relation.table.primary_key if name in places]
            return [frozenset(key)] if key and len(key) == len(relation.table.primary_key) else []
        case Projection():
            return _projected_keys(relation)
        case GroupBy():
            return [frozenset(range(len(relation.groups)))]
        case Rank():
            return _rank_keys(relation)
        case Normalize():
            return [frozenset(relation.key)]
        case Join():
            return _join_keys(relation)
        case TemporalJoin():
            return unique_keys(relation.left)
        case LookupJoin():
            equal = {key.right for key in relation.keys}
            is_single = any(key <= equal for key in unique_keys(relation.table))
            return unique_keys(relation.left) if is_single else []
        case WindowTable():
            keys = unique_keys(relation.input)
            if relation.kind in (WindowKind.TUMBLE, WindowKind.SESSION):
                return keys
            return [key | {len(relation.input.columns)} for key in keys]
        case Unnest():
            if not relation.with_ordinality:
                return []
            return [key | {len(relation.columns) - 1} for key in unique_keys(relation.input)]
        case Filter() | WatermarkAssigner() | Over() | SortedRows():
            return unique_keys(relation.input)
    return []


def _projected_keys(relation: Projection) -> list[Key]:
    places: dict[int, int] = {}
    for place, item in enumerate(relation.expressions):
        if isinstance(item, InputColumn):
            places.setdefault(item.index, place)
    return [frozenset(places[place] for place in key) for key in unique_keys(relation.input) if key <= places.keys()]


def _rank_keys(relation: Rank) -> list[Key]:
    keys = list(unique_keys(relation.input))
    if relation.function is RankFunction.ROW_NUMBER:
        if relation.last is not None and relation.last <= relation.first:
            keys.insert(0, frozenset(relation.partition))
        elif relation.with_rank:
            keys.insert(0, frozenset((*relation.partition, len(relation.columns) - 1)))
    return keys


def _join_keys(relation: Join) -> list[Key]:
    ours = unique_keys(relation.left)
    if relation.kind in (JoinKind.SEMI, JoinKind.ANTI):
        return ours
    width = len(relation.left.columns)
    theirs = unique_keys(relation.right)
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
        case ConstantRows():
            return INSERT_ONLY
        case Normalize():
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
    return isinstance(relation, (GroupBy, Join, TemporalJoin, Rank, Over, SortedRows, Normalize))
