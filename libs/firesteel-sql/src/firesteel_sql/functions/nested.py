"""Functions of arrays, maps and rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from firesteel.table.types import DataType, DataTypes, ElementsType, MapType, RowField, RowType
from firesteel_sql.functions.signature import (
    OperandsRefused,
    Session,
    boolean,
    coerced,
    constant_of,
    declare,
    declare_simple,
    operation,
    text,
    unified,
    whole,
)
from firesteel_sql.plan.row_expressions import Constant, RowExpression
from firesteel_sql.texts import type_text
from firesteel_sql.types import rules
from firesteel_sql.types.intervals import DAY_TIME, YEAR_MONTH

_INT = rules.INT


@declare("CARDINALITY", operands=1)
def _cardinality(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    if not isinstance(operands[0].type, (ElementsType, MapType)):
        raise OperandsRefused(f"an array or a map is needed, not {operands[0].type}")
    return operation("CARDINALITY", "nested:size", operands, _INT)


def _array(operand: RowExpression, session: Session) -> RowExpression:
    """An operand that has to be an array."""
    if not (isinstance(operand.type, ElementsType) and operand.type.name == "ARRAY"):
        raise OperandsRefused(f"an array is needed, not {operand.type}")
    return operand


def _map(operand: RowExpression, session: Session) -> RowExpression:
    """An operand that has to be a map."""
    if not isinstance(operand.type, MapType):
        raise OperandsRefused(f"a map is needed, not {operand.type}")
    return operand


def _element_type(array: RowExpression) -> DataType:
    assert isinstance(array.type, ElementsType)
    return array.type.element_type


def _array_of(element_type: DataType) -> DataType:
    return ElementsType("ARRAY", element_type=element_type)


def _first_type(operands: Sequence[RowExpression]) -> DataType:
    return operands[0].type


# -- arrays and elements


def _value_for(array: RowExpression, value: RowExpression, session: Session) -> RowExpression:
    """A value that is put into an array or looked for in it, under the type of the elements.

    Raises:
        OperandsRefused: not all its values are among those of the elements.
    """
    element_type = _element_type(array)
    if value.type.name == "NULL":
        return Constant(rules.with_null(element_type, True), None)
    common = rules.common_type([element_type, value.type])
    fits = common is not None and rules.with_null(common, True) == rules.with_null(element_type, True)
    if not fits and not (rules.is_text(element_type) and rules.is_text(value.type)):
        raise OperandsRefused(f"{value.type} does not go into {array.type}: write CAST(... AS {element_type})")
    return value if rules.is_text(value.type) else coerced(value, element_type, session)


def _with_element(name: str) -> None:
    @declare(name, operands=2)
    def build(operands: Sequence[RowExpression], session: Session) -> RowExpression:
        array = _array(operands[0], session)
        value = _value_for(array, operands[1], session)
        element_type = rules.common_type([_element_type(array), value.type])
        assert element_type is not None
        return operation(name, f"nested:{name.lower()}", (array, value), _array_of(element_type))


_with_element("ARRAY_APPEND")
_with_element("ARRAY_PREPEND")


def _looking_for(name: str, result: Callable[[Sequence[RowExpression]], DataType], by_array: bool) -> None:
    """Declare a function of an array and a value; ``by_array``: only a NULL array makes the result NULL."""

    @declare(name, operands=2)
    def build(operands: Sequence[RowExpression], session: Session) -> RowExpression:
        array = _array(operands[0], session)
        parts = (array, _value_for(array, operands[1], session))
        nullable = array.type.nullable if by_array else None
        return operation(name, f"nested:{name.lower()}", parts, result(parts), nullable=nullable)


_looking_for("ARRAY_CONTAINS", lambda operands: rules.BOOLEAN, by_array=True)
_looking_for("ARRAY_POSITION", lambda operands: _INT, by_array=False)
_looking_for("ARRAY_REMOVE", _first_type, by_array=True)


# -- arrays and arrays


def _of_arrays(name: str, operands: int | tuple[int, int | None]) -> None:
    @declare(name, operands=operands)
    def build(parts: Sequence[RowExpression], session: Session) -> RowExpression:
        arrays = unified([_array(part, session) for part in parts], session)
        common = rules.common_type([array.type for array in arrays])
        assert common is not None
        return operation(name, f"nested:{name.lower()}", arrays, common)


_of_arrays("ARRAY_CONCAT", (1, None))
for _name in ("ARRAY_EXCEPT", "ARRAY_INTERSECT", "ARRAY_UNION"):
    _of_arrays(_name, 2)
declare_simple("ARRAY_DISTINCT", "nested:array_distinct", [_array], _first_type)
declare_simple("ARRAY_REVERSE", "nested:array_reverse", [_array], _first_type)
declare_simple("ARRAY_SLICE", "nested:array_slice", [_array, whole, whole], _first_type, optional=1)


def _sortable(operand: RowExpression, session: Session) -> RowExpression:
    """An array whose elements have an order."""
    array = _array(operand, session)
    if _element_type(array).name in ("ROW", "ARRAY", "MAP", "MULTISET"):
        raise OperandsRefused(f"{_element_type(array)} has no order")
    return array


declare_simple("ARRAY_SORT", "nested:array_sort", [_sortable, boolean, boolean], _first_type, optional=2)
for _name in ("ARRAY_MAX", "ARRAY_MIN"):
    declare_simple(
        _name, f"nested:{_name.lower()}", [_sortable], lambda operands: _element_type(operands[0]), nullable=True
    )


@declare("ARRAY_JOIN", operands=(2, 3))
def _array_join(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    array, *texts = operands
    if not rules.is_text(_element_type(_array(array, session))):
        raise OperandsRefused(f"an array of texts is needed, not {array.type}: write CAST(... AS ARRAY<STRING>)")
    parts = (array, *(text(operand, session) for operand in texts))
    return operation("ARRAY_JOIN", "nested:array_join", parts, rules.STRING)


# Flink says that the element is not NULL where no element can be, though an empty array has none.
declare_simple("ELEMENT", "nested:element", [_array], lambda operands: _element_type(operands[0]), nullable=True)


# -- maps


def _part_of_map(name: str, element: Callable[[MapType], DataType]) -> None:
    def result(operands: Sequence[RowExpression]) -> DataType:
        (operand,) = operands
        assert isinstance(operand.type, MapType)
        return _array_of(element(operand.type))

    declare_simple(name, f"nested:{name.lower()}", [_map], result)


_part_of_map("MAP_KEYS", lambda data_type: data_type.key_type)
_part_of_map("MAP_VALUES", lambda data_type: data_type.value_type)
_part_of_map(
    "MAP_ENTRIES",
    lambda data_type: RowType(
        "ROW", (), True, (RowField("key", data_type.key_type), RowField("value", data_type.value_type))
    ),
)


@declare("MAP_FROM_ARRAYS", operands=2)
def _map_from_arrays(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    keys, values = (_array(operand, session) for operand in operands)
    data_type = MapType("MAP", key_type=_element_type(keys), value_type=_element_type(values))
    return operation("MAP_FROM_ARRAYS", "nested:map_from_arrays", (keys, values), data_type)


@declare("MAP_UNION", operands=(1, None))
def _map_union(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    maps = unified([_map(operand, session) for operand in operands], session)
    common = rules.common_type([part.type for part in maps])
    assert common is not None
    return operation("MAP_UNION", "nested:map_union", maps, common)


def element_of(value: RowExpression, index: RowExpression, session: Session) -> RowExpression:
    """``array[1]``, ``map['k']``.

    Raises:
        OperandsRefused: the value has no elements.
    """
    if isinstance(value.type, MapType):
        key: Any = coerced(index, value.type.key_type, session)
        return operation("ITEM", "nested:map_value", (value, key), value.type.value_type, nullable=True)
    if isinstance(value.type, ElementsType) and value.type.name == "ARRAY":
        if isinstance(index, Constant) and isinstance(index.value, int) and index.value < 1:
            raise OperandsRefused(f"elements of an array are counted from 1, not {index.value}")
        return operation(
            "ITEM", "nested:array_element", (value, whole(index, session)), value.type.element_type, nullable=True
        )
    raise OperandsRefused(f"{value.type} has no elements: an array or a map is needed")


# -- types


@declare("TYPEOF", operands=(1, 2))
def _typeof(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    """The name of a type; in full, if the second operand is TRUE."""
    data_type = operands[0].type
    is_full = len(operands) == 2 and constant_of(boolean(operands[1], session), "whether the name is full")
    name = str(data_type) if is_full else type_text(data_type)
    for interval, flink_name in ((DAY_TIME, "INTERVAL SECOND(3)"), (YEAR_MONTH, "INTERVAL MONTH")):
        name = name.replace(interval.name, flink_name)
    return Constant(DataTypes.STRING(), name)
