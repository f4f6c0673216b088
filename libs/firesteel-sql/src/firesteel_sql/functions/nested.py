"""Functions of arrays, maps and rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firesteel.table.types import ElementsType, MapType
from firesteel_sql.functions.signature import OperandsRefused, Session, coerced, declare, operation, whole
from firesteel_sql.plan.row_expressions import RowExpression
from firesteel_sql.types import rules

_INT = rules.INT


@declare("CARDINALITY", operands=1)
def _cardinality(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    if not isinstance(operands[0].type, (ElementsType, MapType)):
        raise OperandsRefused(f"an array or a map is needed, not {operands[0].type}")
    return operation("CARDINALITY", "nested:size", operands, _INT)


def element_of(value: RowExpression, index: RowExpression, session: Session) -> RowExpression:
    """``array[1]``, ``map['k']``.

    Raises:
        OperandsRefused: the value has no elements.
    """
    if isinstance(value.type, MapType):
        key: Any = coerced(index, value.type.key_type, session)
        return operation("ITEM", "nested:map_value", (value, key), value.type.value_type, nullable=True)
    if isinstance(value.type, ElementsType) and value.type.name == "ARRAY":
        return operation(
            "ITEM", "nested:array_element", (value, whole(index, session)), value.type.element_type, nullable=True
        )
    raise OperandsRefused(f"{value.type} has no elements: an array or a map is needed")
