"""The order of inner joins: as written, but never all rows with all others where a later table connects the two.

``FROM part, supplier, partsupp`` with conditions of partsupp on both others joins part and partsupp first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firesteel_sql.plan.projections import column_at, projected
from firesteel_sql.plan.pushdown import conditions_of, joined
from firesteel_sql.plan.relations import Relation
from firesteel_sql.plan.row_expressions import AppliedFunction, RowExpression, moved, places_of
from firesteel_sql.plan.stateful_relations import Join, JoinKind
from firesteel_sql.plan.traversal import with_inputs


@dataclass(frozen=True)
class _Table:
    """An input of several inner joins.

    Attributes:
        relation: the input.
        first: place of its first column among those of all.
    """

    relation: Relation
    first: int

    @property
    def places(self) -> frozenset[int]:
        """Places of its columns among those of all."""
        return frozenset(range(self.first, self.first + len(self.relation.columns)))


def without_products(relation: Relation) -> Relation:
    """The relation, whose inner joins have keys wherever another order of the tables gives them some."""
    known: dict[int, Relation] = {}

    def ordered(part: Relation) -> Relation:
        done = known.get(id(part))
        if done is None:
            done = with_inputs(part, tuple(ordered(inner) for inner in part.inputs))
            done = known[id(part)] = _ordered(done) if isinstance(done, Join) else done
        return done

    return ordered(relation)


def _ordered(join: Join) -> Relation:
    tables: list[_Table] = []
    conditions: list[RowExpression] = []
    if not _gather(join, 0, tables, conditions) or len(tables) < 3:
        return join
    pairs = [places_of(part) for part in conditions if isinstance(part, AppliedFunction) and part.name == "="]
    order = [tables[0]]
    rest = tables[1:]
    while rest:
        reached = frozenset().union(*[table.places for table in order])
        connected = [table for table in rest if any(pair & reached and pair & table.places for pair in pairs)]
        order.append(connected[0] if connected else rest[0])
        rest.remove(order[-1])
    if order == tables:
        return join
    return _joined_in(order, conditions, join)


def _gather(relation: Relation, first: int, tables: list[_Table], conditions: list[RowExpression]) -> bool:
    """Collect the inputs and conditions of inner joins; returns whether one of these joins has no key."""
    is_plain = isinstance(relation, Join) and relation.kind is JoinKind.INNER and relation.state_ttl == (None, None)
    if not isinstance(relation, Join) or not is_plain or relation.bounds is not None or relation.window is not None:
        tables.append(_Table(relation, first))
        return False
    middle = first + len(relation.left.columns)
    left = _gather(relation.left, first, tables, conditions)
    right = _gather(relation.right, middle, tables, conditions)
    conditions += [moved(part, lambda place: place + first) for part in conditions_of(relation)]
    return left or right or not relation.keys


def _joined_in(order: Sequence[_Table], conditions: Sequence[RowExpression], original: Join) -> Relation:
    """The tables joined in an order; the columns are those of the original join."""
    remaining = list(conditions)
    places: dict[int, int] = {}
    relation: Relation | None = None
    for table in order:
        width = 0 if relation is None else len(relation.columns)
        places |= {place: width + place - table.first for place in table.places}
        if relation is None:
            relation = table.relation
            continue
        usable = [part for part in remaining if places_of(part) <= places.keys()]
        remaining = [part for part in remaining if not places_of(part) <= places.keys()]
        relation = joined(relation, table.relation, JoinKind.INNER, [moved(part, places) for part in usable])
    assert relation is not None
    return projected(
        original.columns, relation, [column_at(relation, places[place]) for place in range(len(original.columns))]
    )
