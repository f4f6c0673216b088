"""Projections: columns that are computed, chosen, renamed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firesteel_sql.plan.relations import Column, Projection, Relation
from firesteel_sql.plan.row_expressions import AppliedFunction, Constant, InputColumn, RowExpression


def column_at(relation: Relation, place: int) -> InputColumn:
    """A column of a relation as an expression."""
    column = relation.columns[place]
    return InputColumn(column.type, place, column.name)


def all_columns(relation: Relation) -> list[RowExpression]:
    """All columns of a relation as expressions."""
    return [column_at(relation, place) for place in range(len(relation.columns))]


def projected(columns: Sequence[Column], relation: Relation, expressions: Sequence[RowExpression]) -> Relation:
    """Rows of expressions over a relation; the relation itself if these are its columns.

    Columns that are taken as they are have the time attribute that they have in the relation.
    """
    current = tuple(
        replace(column, time_attribute=relation.columns[expression.index].time_attribute)
        if isinstance(expression, InputColumn)
        else column
        for column, expression in zip(columns, expressions, strict=True)
    )
    in_place = all(isinstance(item, InputColumn) and item.index == place for place, item in enumerate(expressions))
    if in_place and current == relation.columns:
        return relation
    return Projection(current, relation, tuple(expressions))


def chosen_columns(relation: Relation, places: Sequence[int]) -> Relation:
    """Some columns of a relation."""
    return projected(
        [relation.columns[place] for place in places], relation, [column_at(relation, place) for place in places]
    )


def extended(
    relation: Relation, expressions: Sequence[RowExpression], names: Sequence[str] | None = None
) -> tuple[Relation, list[int]]:
    """A relation with expressions as further columns behind its own.

    Args:
        relation: the rows.
        expressions: over its columns; those that are columns already get no further one.
        names: of the further columns, by expression; else they are called ``$f`` with their place.

    Returns:
        The relation, and the place of each expression.
    """
    columns: list[Column] = list(relation.columns)
    items = all_columns(relation)
    places: list[int] = []
    for number, expression in enumerate(expressions):
        if isinstance(expression, InputColumn):
            places.append(expression.index)
            continue
        known = next((place for place in range(len(relation.columns), len(items)) if items[place] == expression), None)
        if known is None:
            known = len(items)
            items.append(expression)
            name = names[number] if names is not None else f"$f{known}"
            columns.append(Column(name, expression.type))
        places.append(known)
    if len(items) == len(relation.columns):
        return relation, places
    return Projection(tuple(columns), relation, tuple(items)), places


def is_simple(expression: RowExpression) -> bool:
    """Whether computing an expression twice costs nothing: a column, a constant, a field of a row."""
    match expression:
        case InputColumn() | Constant():
            return True
        case AppliedFunction(name="FIELD", inputs=(row,)):
            return is_simple(row)
    return False
