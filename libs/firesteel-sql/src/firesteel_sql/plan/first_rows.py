"""Aggregates of all rows that have their row before any row comes."""

from __future__ import annotations

from dataclasses import replace

from firesteel_sql.plan.relations import Relation
from firesteel_sql.plan.stateful_relations import GroupBy, Join
from firesteel_sql.plan.traversal import with_inputs


def with_first_rows(relation: Relation, *, is_joined: bool = False) -> Relation:
    """A relation in which ``SELECT MAX(x) FROM t`` has a row at once, with NULL, where a join waits for it.

    Elsewhere it comes with the first row of the input, or at its end, as users of Flink see it.

    Args:
        relation: what is computed.
        is_joined: its rows go to a join.
    """
    joined = is_joined or isinstance(relation, Join)
    inputs = tuple(with_first_rows(part, is_joined=joined) for part in relation.inputs)
    relation = with_inputs(relation, inputs)
    if is_joined and isinstance(relation, GroupBy) and not relation.groups:
        return replace(relation, starts_with_row=True)
    return relation
