"""What is written into tables with a primary key: one row for each key, with its changes in order."""

from __future__ import annotations

from collections.abc import Sequence

from firesteel_sql.plan.changes import SourceMode, changelog_mode, same_values, upsert_keys
from firesteel_sql.plan.relations import Projection, Relation
from firesteel_sql.plan.row_expressions import Constant
from firesteel_sql.plan.stateful_relations import ConflictRule, SinkMaterializer


def places_of(primary_key: Sequence[str], relation: Relation) -> list[int]:
    """Places of the columns of a sink's key in what is written."""
    names = [column.name for column in relation.columns]
    return [names.index(name) for name in primary_key]


def has_rows_by_key(relation: Relation, primary_key: Sequence[int], source_mode: SourceMode) -> bool:
    """Whether a relation has one row at most for each primary key of its sink, whose changes come in order.

    Args:
        relation: what is written.
        primary_key: places of the key's columns.
        source_mode: the changes of the tables that are read.
    """
    key = frozenset(primary_key)
    if isinstance(relation, Projection):  # a constant is the same in all rows
        key -= {place for place in key if isinstance(same_values(relation.expressions[place]), Constant)}
    return key in upsert_keys(relation, source_mode)


def materialized(
    relation: Relation,
    primary_key: Sequence[int],
    rule: ConflictRule | None,
    source_mode: SourceMode,
    strategy: str = "AUTO",
) -> Relation:
    """What is written into a table: the relation itself, or one row of it for each primary key.

    Args:
        relation: the result of the query.
        primary_key: places of the columns of the table's key; none if it has no key.
        rule: of ``ON CONFLICT``, if the statement has it.
        source_mode: the changes of the tables that are read.
        strategy: AUTO = where the query needs it; NONE = only for ``ON CONFLICT``; FORCE = for each key.
    """
    if not primary_key:
        return relation
    if strategy != "FORCE":
        if has_rows_by_key(relation, primary_key, source_mode):
            return relation
        if rule is None and (strategy == "NONE" or changelog_mode(relation, source_mode).is_append):
            return relation
    return SinkMaterializer(relation.columns, relation, tuple(primary_key), rule or ConflictRule.DEDUPLICATE)
