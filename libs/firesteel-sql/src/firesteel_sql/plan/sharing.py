"""Equal parts of queries as one: what is built by identity is computed once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import fields
from typing import Any

from firesteel_sql.catalog.tables import CatalogTable
from firesteel_sql.plan.relations import Relation
from firesteel_sql.plan.row_expressions import is_deterministic
from firesteel_sql.plan.traversal import expressions_of, with_inputs


def with_shared_parts(relations: Sequence[Relation]) -> list[Relation]:
    """The relations, in which equal parts are the same object."""
    known: dict[Hashable, Relation] = {}
    visited: dict[int, Relation] = {}

    def shared(relation: Relation) -> Relation:
        done = visited.get(id(relation))
        if done is None:
            again = with_inputs(relation, tuple(shared(part) for part in relation.inputs))
            done = visited[id(relation)] = known.setdefault(_meaning(again), again)
        return done

    return [shared(relation) for relation in relations]


def _meaning(relation: Relation) -> Hashable:
    """What makes a relation equal to another one, given that equal inputs are the same object."""
    if not all(map(is_deterministic, expressions_of(relation))):  # RAND() twice is two different columns
        return id(relation)
    return (type(relation), *[_part(getattr(relation, one.name)) for one in fields(relation)])


def _part(value: Any) -> Hashable:
    match value:
        case Relation():
            return id(value)
        case CatalogTable():  # equal options make equal tables of one name
            return (value.columns, tuple(sorted(value.options.items())), value.watermark, value.primary_key)
        case tuple() if value and isinstance(value[0], Relation):
            return tuple(map(id, value))
    return value  # type: ignore[no-any-return] # places, columns and expressions are hashable
