"""How long operators remember rows that are not written: by hints, else by the session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firesteel_sql.plan.relations import Relation
from firesteel_sql.plan.stateful_relations import GroupBy, Join, Normalize, Over, Rank, SinkMaterializer
from firesteel_sql.plan.traversal import with_inputs


def with_state_ttl(relations: Sequence[Relation], ttl: int) -> list[Relation]:
    """The relations with a time-to-live for all state that no watermark cleans; what is the same object stays one.

    Args:
        relations: of which some have one by a hint.
        ttl: of all others, ms; 0 = rows are remembered for ever.
    """
    known: dict[int, Relation] = {}

    def limited(relation: Relation) -> Relation:
        done = known.get(id(relation))
        if done is None:
            again = with_inputs(relation, tuple(limited(part) for part in relation.inputs))
            done = known[id(relation)] = _limited(again, ttl)
        return done

    return [limited(relation) for relation in relations] if ttl else list(relations)


def _limited(relation: Relation, ttl: int) -> Relation:
    match relation:
        case Join(bounds=None, window=None):
            left, right = (ttl if side is None else side for side in relation.state_ttl)
            return replace(relation, state_ttl=(left, right))
        case GroupBy(window=None, state_ttl=None) | Rank(window=None) | Over() | Normalize() | SinkMaterializer():
            return replace(relation, state_ttl=ttl)
    return relation
