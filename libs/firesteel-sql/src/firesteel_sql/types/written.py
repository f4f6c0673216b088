"""From types as statements write them to the types themselves, with SQL's lengths where none was written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from firesteel.common.type_table import LONGEST
from firesteel.table.types import DataType, DataTypes, ElementsType, MapType, RowField, RowType
from firesteel_sql.parse.nodes import IntervalUnit, TypeSpec
from firesteel_sql.types.intervals import DAY_TIME, YEAR_MONTH, is_year_month

Refuse = Callable[[int, str], Exception]
"""Makes the error for a place in the statement."""


def data_type_of(spec: TypeSpec, refuse: Refuse) -> DataType:
    """The type that was written; it takes NULL unless NOT NULL was written.

    Args:
        spec: as it was written.
        refuse: makes the error that is raised if there is no such type.
    """
    return replace(_bare(spec, refuse), nullable=spec.is_nullable is not False)


def _bare(spec: TypeSpec, refuse: Refuse) -> DataType:
    name, parameters = spec.name, spec.parameters
    if name in _LENGTHS:
        length = parameters[0] if parameters else 1
        if not 1 <= length <= LONGEST:
            raise refuse(spec.at, f"{name}({length}): the length is from 1 to {LONGEST}")
        return DataType(name, (length,))
    if name == "STRING":
        return DataTypes.STRING()
    if name == "BYTES":
        return DataTypes.BYTES()
    if name == "DECIMAL":
        return _decimal(spec, refuse)
    if name in _PRECISIONS:
        default, largest = _PRECISIONS[name]
        precision = parameters[0] if parameters else default
        if not 0 <= precision <= largest:
            raise refuse(spec.at, f"{name}({precision}): the precision is from 0 to {largest}")
        return DataType(name, (precision,))
    if name == "INTERVAL":
        return interval_type(spec.unit, refuse)
    if name in ("ARRAY", "MULTISET"):
        return ElementsType(name, element_type=data_type_of(spec.elements[0], refuse))
    if name == "MAP":
        key, value = (data_type_of(part, refuse) for part in spec.elements)
        return MapType("MAP", key_type=key, value_type=value)
    if name == "ROW":
        names = [field.name for field in spec.fields]
        for field in spec.fields:
            if names.count(field.name) > 1:
                raise refuse(field.at, f"the row has two fields of the name {field.name}")
        return RowType(
            "ROW",
            fields=tuple(
                RowField(field.name, data_type_of(field.type, refuse), field.comment) for field in spec.fields
            ),
        )
    if name in ("RAW", "VARIANT", "NULL"):
        raise refuse(spec.at, f"the type {name} is not supported")
    return DataType(name)


def _decimal(spec: TypeSpec, refuse: Refuse) -> DataType:
    precision = spec.parameters[0] if spec.parameters else 10
    scale = spec.parameters[1] if len(spec.parameters) == 2 else 0
    if not 1 <= precision <= 38:
        raise refuse(spec.at, f"DECIMAL({precision}, {scale}): the precision is from 1 to 38")
    if scale > precision:
        raise refuse(spec.at, f"DECIMAL({precision}, {scale}): the scale can't be larger than the precision")
    return DataTypes.DECIMAL(precision, scale)


def interval_type(unit: IntervalUnit | None, refuse: Refuse) -> DataType:
    """The type of intervals with this unit: of months, or of milliseconds."""
    assert unit is not None
    months = is_year_month(unit.first)
    if unit.last is not None and is_year_month(unit.last) != months:
        raise refuse(unit.at, f"an interval can't go from {unit.first} to {unit.last}")
    return YEAR_MONTH if months else DAY_TIME


_LENGTHS: Final = frozenset({"CHAR", "VARCHAR", "BINARY", "VARBINARY"})
_PRECISIONS: Final = {"TIME": (0, 9), "TIMESTAMP": (6, 9), "TIMESTAMP_LTZ": (6, 9)}
"""The precision that stands for none, and the largest one."""
