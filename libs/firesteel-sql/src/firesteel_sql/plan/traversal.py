"""Relations made again of other inputs or other expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from firesteel_sql.plan.recursion import Recursion
from firesteel_sql.plan.relations import ConstantRows, Filter, Projection, Relation, Union, WatermarkAssigner
from firesteel_sql.plan.row_expressions import RowExpression
from firesteel_sql.plan.stateful_relations import Join, LookupJoin, TemporalJoin


def with_inputs(relation: Relation, inputs: tuple[Relation, ...]) -> Relation:
    """The same relation of other inputs, whose columns are the same."""
    if all(new is old for new, old in zip(inputs, relation.inputs, strict=True)):
        return relation
    match relation:
        case Union():
            return replace(relation, parts=inputs)
        case Join() | TemporalJoin():
            return replace(relation, left=inputs[0], right=inputs[1])
        case LookupJoin():
            return replace(relation, left=inputs[0])
        case Recursion():
            return replace(relation, first=inputs[0], step=inputs[1])
    return replace(relation, input=inputs[0])  # type: ignore[call-arg] # all others have one


def expressions_of(relation: Relation) -> Iterator[RowExpression]:
    """The expressions of a relation, without those of its inputs."""
    match relation:
        case Filter():
            yield relation.condition
        case Projection():
            yield from relation.expressions
        case ConstantRows():
            for row in relation.rows:
                yield from row
        case WatermarkAssigner():
            yield relation.watermark
        case Join() | TemporalJoin() | LookupJoin():
            if relation.condition is not None:
                yield relation.condition


def with_expressions(relation: Relation, rewrite: Callable[[RowExpression], RowExpression]) -> Relation:
    """A relation and its inputs with all their expressions rewritten; what is the same object stays one."""
    known: dict[int, Relation] = {}

    def rewritten(part: Relation) -> Relation:
        done = known.get(id(part))
        if done is None:
            inner = with_inputs(part, tuple(rewritten(one) for one in part.inputs))
            done = known[id(part)] = _with_own_expressions(inner, rewrite)
        return done

    return rewritten(relation)


def _with_own_expressions(relation: Relation, rewrite: Callable[[RowExpression], RowExpression]) -> Relation:
    match relation:
        case Filter():
            condition = rewrite(relation.condition)
            return relation if condition is relation.condition else replace(relation, condition=condition)
        case Projection():
            expressions = tuple(map(rewrite, relation.expressions))
            return relation if _same(expressions, relation.expressions) else replace(relation, expressions=expressions)
        case ConstantRows():
            rows = tuple(tuple(map(rewrite, row)) for row in relation.rows)
            return relation if all(map(_same, rows, relation.rows)) else replace(relation, rows=rows)
        case Join() | TemporalJoin() | LookupJoin() if relation.condition is not None:
            condition = rewrite(relation.condition)
            return relation if condition is relation.condition else replace(relation, condition=condition)
    return relation


def _same(new: tuple[RowExpression, ...], old: tuple[RowExpression, ...]) -> bool:
    return all(one is other for one, other in zip(new, old, strict=True))
