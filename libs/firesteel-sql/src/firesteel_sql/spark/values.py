"""Types and constants in Spark's SQL."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Final

from firesteel.table.types import DataType
from firesteel_sql.plan.row_expressions import Constant


class NoEqual(Exception):
    """Something that Spark SQL does not have, or has with other results; the text says what."""


_NAMES: Final = {
    "BOOLEAN": "BOOLEAN", "TINYINT": "TINYINT", "SMALLINT": "SMALLINT", "INT": "INT", "BIGINT": "BIGINT",
    "FLOAT": "FLOAT", "DOUBLE": "DOUBLE", "CHAR": "STRING", "VARCHAR": "STRING", "BINARY": "BINARY",
    "VARBINARY": "BINARY", "DATE": "DATE", "TIMESTAMP": "TIMESTAMP_NTZ", "TIMESTAMP_LTZ": "TIMESTAMP",
}  # fmt: skip
INTEGER_DIGITS: Final = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
"""Digits of the decimal number that holds an integer of a type."""
FLOATING: Final = ("FLOAT", "DOUBLE")
TEXTS: Final = ("CHAR", "VARCHAR")
TIMESTAMPS: Final = ("TIMESTAMP", "TIMESTAMP_LTZ")


def spark_type(data_type: DataType) -> str:
    """The type of the same values.

    Raises:
        NoEqual: there is none.
    """
    if data_type.name == "DECIMAL":
        precision, scale = data_type.parameters
        return f"DECIMAL({precision}, {scale})"
    if data_type.name not in _NAMES:
        raise NoEqual(f"the type {data_type.nullable_()}")
    return _NAMES[data_type.name]


def has_equal(data_type: DataType) -> bool:
    """Whether there is a type of the same values."""
    return data_type.name == "DECIMAL" or data_type.name in _NAMES


def text_literal(text: str) -> str:
    """A text in quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def literal(constant: Constant) -> str:
    """A constant.

    Raises:
        NoEqual: its type has none.
    """
    name, value = spark_type(constant.type), constant.value
    if value is not None and type(value) is datetime:
        moment = value.replace(tzinfo=None if constant.type.name == "TIMESTAMP" else UTC)
        return f"{name}'{moment.isoformat(' ')}'"
    match value:
        case None:
            return f"CAST(NULL AS {name})"
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return text_literal(value)
        case bytes():
            return f"X'{value.hex()}'"
        case date():
            return f"DATE'{value.isoformat()}'"
        case Decimal() | int() | float():
            text = format(value, "f") if isinstance(value, Decimal) else repr(value)
            return f"CAST('{text}' AS {name})"
    raise NoEqual(f"the constant {constant}")
