"""Converts values of drivers to values of declared types.

Databases and their drivers differ: SQLite has no BOOLEAN, DATE or DECIMAL and gives numbers and texts for them, MySQL's
drivers give a ``timedelta`` for TIME, Oracle's a ``datetime`` for DATE and a ``Decimal`` for each number. A conversion
that keeps the value is made; one that would lose something is an error with the column's name.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from firesteel.common.coerce_scalars import rounded
from firesteel.common.time import Instant
from firesteel.common.type_table import scalar_of, unwrapped
from firesteel.common.typeinfo import DecimalTypeInfo, RowTypeInfo, TypeInformation
from firesteel.common.value_texts import checked_integer, decimal_number, floating_number, instant, whole_number
from firesteel.connectors.formats.column_types import check_column, fitted
from firesteel.core.errors import ProgramError
from firesteel.expressions.values import column_of

__all__ = ["DeclaredColumns"]

Convert = Callable[[Any], Any]
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_DAY: Final = datetime.timedelta(days=1)


class DeclaredColumns:
    """Converts results of queries to a row type.

    Args:
        row_type: names and types of the columns, in their order.
    """

    def __init__(self, row_type: RowTypeInfo) -> None:
        self._names, self._types = tuple(row_type.field_names), list(map(unwrapped, row_type.field_types))
        self._converts = list(map(_convert, self._types))

    def check_width(self, width: int) -> None:
        """Check that a query gives as many columns as are declared.

        Raises:
            ProgramError: the numbers differ.
        """
        if width != len(self._names):
            raise ProgramError(
                f"JdbcSource: the query gives {width} columns, and set_type_information() declares "
                f"{len(self._names)}: {', '.join(self._names)}"
            )

    def rows(self, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Convert the values of rows.

        Raises:
            ProgramError: the rows have too many or too few values, or a value is not of its type.
        """
        if not rows:
            return []
        self.check_width(len(rows[0]))
        columns = [self._values(number, values) for number, values in enumerate(zip(*rows, strict=True))]
        return list(map(list, zip(*columns, strict=True)))

    def column(self, number: int, column: pa.Array, field: pa.Field) -> pa.Array:
        """Convert a column to the type that it has in the stream.

        Raises:
            ProgramError: a value is not of its type.
        """
        if column.type == field.type:
            return column
        try:
            check_column(field.name, column.type, field.type)
            return fitted(field.name, column, field.type)
        except ValueError:  # the values themselves may be convertible, for example texts of numbers
            values = self._values(number, column.to_pylist())
        return column_of(values, field.name, self._types[number])

    def _values(self, number: int, values: Sequence[Any]) -> Sequence[Any]:
        convert = self._converts[number]
        if convert is None:
            return values
        converted: list[Any] = []
        try:
            for value in values:
                converted.append(None if value is None else convert(value))
        except (ValueError, TypeError, ArithmeticError) as error:
            value = values[len(converted)]
            shown = f"{value!r:.60} ({type(value).__name__})"
            raise ProgramError(
                f"JdbcSource: column {self._names[number]!r}: {shown} is no {self._types[number]}: {error}"
            ) from error
        return converted


def _convert(declared: TypeInformation) -> Convert | None:
    """A function that converts a value that is not None to a type; None = values are taken as they are."""
    scalar = scalar_of(declared)
    if scalar is None:
        return None
    if scalar.bits is not None:
        bits = scalar.bits
        return lambda value: (
            value if type(value) is int and -128 <= value < 128 else checked_integer(_integer(value), bits)
        )
    if isinstance(declared, DecimalTypeInfo):
        digits = (declared.precision, declared.scale)
        return lambda value: rounded(_decimal(value), digits)
    convert, parse = CONVERTS[scalar.name], scalar.parse
    if convert not in (_date, _time, _timestamp):
        return convert
    return lambda value: parse(value) if isinstance(value, str) else convert(value)


def _refused(reason: str) -> ValueError:
    return ValueError(f"{reason}; cast it in the query")


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, Decimal)) and value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.strip().lower() in ("true", "false", "t", "f"):
        return value.strip().lower().startswith("t")
    raise _refused("true, false, 1 and 0 are booleans")


def _integer(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    if isinstance(value, str):
        return whole_number(value)
    raise _refused("it is no whole number")


def _floating(value: Any) -> float:
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        return floating_number(value)
    raise _refused("it is no number")


def _decimal(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Decimal(repr(value))  # the digits that a float shows: SQLite keeps decimal numbers in floats
    if isinstance(value, str):
        return decimal_number(value)
    raise _refused("it is no number")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, uuid.UUID):
        return str(value)
    raise _refused("it is no text")


def _bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise _refused("these are no bytes")


def _date(value: Any) -> datetime.date:
    if isinstance(value, datetime.datetime):
        if value.time() != datetime.time() or value.tzinfo is not None:
            raise _refused("it has a time of day")
        return value.date()
    if isinstance(value, datetime.date):
        return value
    raise _refused("it is no date")


def _time(value: Any) -> datetime.time:
    if isinstance(value, datetime.timedelta):
        if not datetime.timedelta() <= value < _DAY:
            raise _refused("it is not within a day")
        return (datetime.datetime.min + value).time()
    if isinstance(value, datetime.time) and value.tzinfo is None:
        return value
    raise _refused("it is no time without a zone")


def _timestamp(value: Any) -> datetime.datetime:
    """Timestamps with a zone are converted to UTC."""
    if isinstance(value, datetime.datetime):
        return value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)
    raise _refused("it is no timestamp")


def _instant(value: Any) -> Instant:
    """Times without a zone are in UTC."""
    if isinstance(value, Instant):
        return value
    if isinstance(value, str):
        return instant(value)
    if isinstance(value, datetime.datetime):
        since = (value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)) - _EPOCH
        return Instant(since.days * 86_400 + since.seconds, since.microseconds * 1000)
    raise _refused("it is no instant")


CONVERTS: Final[dict[str, Convert]] = {
    "BOOLEAN": _boolean,
    "FLOAT": _floating,
    "DOUBLE": _floating,
    "BIG_INT": _integer,
    "BIG_DEC": _decimal,
    "STRING": _text,
    "CHAR": _text,
    "INSTANT": _instant,
    "SQL_DATE": _date,
    "LOCAL_DATE": _date,
    "SQL_TIME": _time,
    "LOCAL_TIME": _time,
    "SQL_TIMESTAMP": _timestamp,
    "LOCAL_DATE_TIME": _timestamp,
    "BYTES": _bytes,
}
"""Name of a type -> conversion to it. Integers with a range are converted by ``_convert``."""
