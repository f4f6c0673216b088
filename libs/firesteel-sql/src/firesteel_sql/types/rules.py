"""Flink's rules: the type of a sum or a product, the type that two types have in common, and what can be cast.

Source: Flink 2.3's ``LogicalTypeMerging``, and what its planner answered to the queries of the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

from firesteel.common.type_table import LONGEST
from firesteel.table.types import DataType, DataTypes, ElementsType, MapType, RowField, RowType
from firesteel_sql.types.intervals import DAY_TIME, YEAR_MONTH

BOOLEAN: Final = DataTypes.BOOLEAN()
INT: Final = DataTypes.INT()
BIGINT: Final = DataTypes.BIGINT()
DOUBLE: Final = DataTypes.DOUBLE()
STRING: Final = DataTypes.STRING()
NULL: Final = DataTypes.NULL()

INTEGERS: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT")
"""From the narrowest to the widest."""
_DIGITS: Final = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
"""Digits of the decimal numbers that hold all integers of a type."""
_FLOATS: Final = ("FLOAT", "DOUBLE")
TEXTS: Final = ("CHAR", "VARCHAR")
BYTES: Final = ("BINARY", "VARBINARY")
TIMESTAMPS: Final = ("TIMESTAMP", "TIMESTAMP_LTZ")


# -- kinds of types


def is_integer(data_type: DataType) -> bool:
    """Whether values are integers with a range."""
    return data_type.name in INTEGERS


def is_exact(data_type: DataType) -> bool:
    """Whether values are integers or decimal numbers."""
    return is_integer(data_type) or data_type.name == "DECIMAL"


def is_number(data_type: DataType) -> bool:
    """Whether values are numbers."""
    return is_exact(data_type) or data_type.name in _FLOATS


def is_text(data_type: DataType) -> bool:
    """Whether values are texts."""
    return data_type.name in TEXTS


def is_interval(data_type: DataType) -> bool:
    """Whether values are intervals."""
    return data_type.name in (YEAR_MONTH.name, DAY_TIME.name)


def is_moment(data_type: DataType) -> bool:
    """Whether values are dates, times or timestamps."""
    return data_type.name in ("DATE", "TIME", *TIMESTAMPS)


def is_nested(data_type: DataType) -> bool:
    """Whether values are collections or rows."""
    return isinstance(data_type, (ElementsType, MapType, RowType))


def is_nullable(types: Sequence[DataType]) -> bool:
    """Whether one of these types takes NULL."""
    return any(data_type.nullable for data_type in types)


def with_null(data_type: DataType, nullable: bool) -> DataType:
    """The same type, with or without NULL."""
    return data_type if data_type.nullable == nullable else replace(data_type, nullable=nullable)


# -- arithmetic


def as_decimal(data_type: DataType) -> DataType:
    """The decimal numbers that hold all values of an exact type."""
    if data_type.name == "DECIMAL":
        return data_type
    return DataTypes.DECIMAL(_DIGITS[data_type.name], 0, data_type.nullable)


def arithmetic_type(operator: str, left: DataType, right: DataType) -> DataType:
    """The type of ``left operator right`` of two numbers; ``operator`` is one of ``+ - * / %``."""
    nullable = is_nullable((left, right))
    if operator == "%" and is_integer(left) and is_integer(right):
        return with_null(right, nullable)
    if left.name in _FLOATS or right.name in _FLOATS or (is_integer(left) and is_integer(right)):
        common = common_type((left, right))
        assert common is not None
        return common
    (p1, s1), (p2, s2) = as_decimal(left).parameters, as_decimal(right).parameters
    match operator:
        case "*":
            digits = (p1 + p2, s1 + s2)
        case "/":
            scale = max(6, s1 + p2 + 1)
            digits = (p1 - s1 + s2 + scale, scale)
        case "%":
            scale = max(s1, s2)
            digits = (min(p1 - s1, p2 - s2) + scale, scale)
        case _:
            scale = max(s1, s2)
            digits = (max(p1 - s1, p2 - s2) + scale + 1, scale)
    return DataTypes.DECIMAL(*_within_38(*digits), nullable)


def _within_38(precision: int, scale: int) -> tuple[int, int]:
    """Digits cut to 38, of which those in front of the point are kept, and six behind it at least."""
    if precision <= 38:
        return precision, scale
    return 38, max(38 - (precision - scale), min(scale, 6))


def rounded_type(data_type: DataType, digits: int) -> DataType:
    """The type of ``ROUND(x, digits)`` of a decimal number."""
    precision, scale = data_type.parameters
    if digits >= scale:
        return data_type
    if digits < 0:
        return DataTypes.DECIMAL(min(38, 1 + precision - scale), 0, data_type.nullable)
    return DataTypes.DECIMAL(1 + precision - scale + digits, digits, data_type.nullable)


def concatenated_type(left: DataType, right: DataType) -> DataType:
    """The type of ``left || right`` of two texts."""
    nullable = is_nullable((left, right))
    length = min(left.parameters[0] + right.parameters[0], LONGEST)
    both_fixed = left.name == right.name == "CHAR"
    return DataType("CHAR" if both_fixed else "VARCHAR", (length,), nullable)


# -- the type that several have in common


def common_type(types: Sequence[DataType]) -> DataType | None:
    """The narrowest type that holds the values of all these types; None if there is none."""
    known = [data_type for data_type in types if data_type.name != "NULL"]
    nullable = is_nullable(types) or len(known) < len(types)
    if not known:
        return NULL
    first: DataType | None = known[0]
    found = reduce(_common_or_none, known[1:], first)
    return None if found is None else with_null(found, nullable)


def _common_or_none(left: DataType | None, right: DataType) -> DataType | None:
    return None if left is None else _common(left, right)


def _common(left: DataType, right: DataType) -> DataType | None:
    if with_null(left, True) == with_null(right, True):
        return left
    if is_number(left) and is_number(right):
        return _common_number(left, right)
    for names in (TEXTS, BYTES):
        if left.name in names and right.name in names:
            fixed = left.name == right.name == names[0] and left.parameters == right.parameters
            return DataType(names[0] if fixed else names[1], (max(left.parameters[0], right.parameters[0]),))
    if {left.name, right.name} == {"DATE", "TIMESTAMP"}:
        return left if left.name == "TIMESTAMP" else right
    if left.name == right.name and left.name in ("TIME", *TIMESTAMPS):
        return DataType(left.name, (max(left.parameters[0], right.parameters[0]),))
    return _common_nested(left, right)


def _common_number(left: DataType, right: DataType) -> DataType:
    if "DOUBLE" in (left.name, right.name):
        return DOUBLE
    if "FLOAT" in (left.name, right.name):
        return DOUBLE if "DECIMAL" in (left.name, right.name) else DataTypes.FLOAT()
    if is_integer(left) and is_integer(right):
        return max(left, right, key=lambda data_type: INTEGERS.index(data_type.name))
    (p1, s1), (p2, s2) = as_decimal(left).parameters, as_decimal(right).parameters
    scale = max(s1, s2)
    return DataTypes.DECIMAL(*_within_38(max(p1 - s1, p2 - s2) + scale, scale))


def _common_nested(left: DataType, right: DataType) -> DataType | None:
    if isinstance(left, RowType) and isinstance(right, RowType):
        if len(left.fields) != len(right.fields):
            return None
        parts = [common_type(pair) for pair in zip(left.field_types(), right.field_types(), strict=True)]
        if None in parts:
            return None
        return RowType(
            "ROW",
            fields=tuple(
                RowField(name, part) for name, part in zip(left.field_names(), parts, strict=True) if part is not None
            ),
        )
    if isinstance(left, MapType) and isinstance(right, MapType):
        key, value = common_type((left.key_type, right.key_type)), common_type((left.value_type, right.value_type))
        return None if key is None or value is None else MapType("MAP", key_type=key, value_type=value)
    if isinstance(left, ElementsType) and isinstance(right, ElementsType) and left.name == right.name:
        element = common_type((left.element_type, right.element_type))
        return None if element is None else ElementsType(left.name, element_type=element)
    return None


# -- casts


def is_implicit(source: DataType, target: DataType) -> bool:
    """Whether a value becomes one of another type without a CAST, as in INSERT INTO.

    Numbers become wider ones or, as in Flink, narrower ones of the same family; dates become timestamps.
    """
    if source.name == "NULL":
        return True
    if is_number(source) and is_number(target):
        return True
    for names in (TEXTS, BYTES):
        if source.name in names:
            return target.name in names
    if is_moment(source) and is_moment(target):
        return source.name == target.name or {source.name, target.name} <= {"DATE", *TIMESTAMPS}
    if isinstance(source, RowType) and isinstance(target, RowType):
        return len(source.fields) == len(target.fields) and all(
            map(is_implicit, source.field_types(), target.field_types())
        )
    if isinstance(source, MapType) and isinstance(target, MapType):
        return is_implicit(source.key_type, target.key_type) and is_implicit(source.value_type, target.value_type)
    if isinstance(source, ElementsType) and isinstance(target, ElementsType):
        return source.name == target.name and is_implicit(source.element_type, target.element_type)
    return source.name == target.name


def is_castable(source: DataType, target: DataType) -> bool:
    """Whether ``CAST(x AS target)`` exists."""
    if is_implicit(source, target):
        return True
    if isinstance(source, RowType) and isinstance(target, RowType):
        return len(source.fields) == len(target.fields) and all(
            map(is_castable, source.field_types(), target.field_types())
        )
    if isinstance(source, MapType) and isinstance(target, MapType):
        return is_castable(source.key_type, target.key_type) and is_castable(source.value_type, target.value_type)
    if isinstance(source, ElementsType) and isinstance(target, ElementsType):
        return source.name == target.name and is_castable(source.element_type, target.element_type)
    if is_text(target):
        return True
    if is_text(source):
        return not isinstance(target, (RowType, MapType, ElementsType)) and not is_interval(target)
    if "BOOLEAN" in (source.name, target.name):
        return is_number(source) or is_number(target)
    if is_interval(source) and is_integer(target):
        return True
    if is_integer(source) and is_interval(target):
        return True
    if source.name in BYTES and target.name in BYTES:
        return True
    if source.name in TIMESTAMPS and target.name in ("TIME", "DATE"):
        return True
    return source.name == "TIME" and target.name in TIMESTAMPS
