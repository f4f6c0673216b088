"""The tree of an expression: what ``col("price") * 2 > lit(10)`` makes. Plain data; nothing is computed here."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias

from firesteel.common.time import Instant
from firesteel.common.typeinfo import TypeDescriptor, as_type_info
from firesteel.common.watermark_strategy import TimestampAssigner
from firesteel.core.errors import ProgramError
from firesteel.expressions.texts import text_of

__all__ = [
    "ColumnTimestamps",
    "DateTimeFunctions",
    "Expression",
    "StringFunctions",
    "When",
    "coalesce",
    "col",
    "concat",
    "lit",
    "when",
]

Text: TypeAlias = str  # within Expression the name str is its accessor
_LITERALS = (
    bool, int, float, str, bytes, datetime.date, datetime.time, datetime.timedelta, Decimal, Instant, type(None)
)  # fmt: skip


class Expression:
    """A value for each row, made of the row's columns.

    Python's operators make larger expressions: ``+ - * / // % **``, ``== != < <= > >=``, and ``& | ^ ~`` for and, or,
    exclusive or, not (Python's own words can't be used). A null makes the result null, except where a method says
    otherwise and in ``&`` and ``|``: false and null is false, true or null is true. Division by zero is infinite or NaN
    with ``/`` and among DOUBLEs, and an error among whole numbers; a whole number that overflows is an error, too.

    What stands behind a condition, behind the first value of ``coalesce``, and on the right of ``&`` and ``|`` may fail
    in rows where it does not count: ``when(col("n") != 0).then(col("total") // col("n"))`` never divides by zero.

    Attributes:
        function: what is computed; ``column``, ``literal``, or a name of ``firesteel.expressions.functions``.
        inputs: what of.
        options: constants of the function.
    """

    __slots__ = ("function", "inputs", "options")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, function: str, inputs: tuple[Expression, ...] = (), **options: Any) -> None:
        self.function, self.inputs, self.options = function, inputs, options

    def to_timestamp_assigner(self) -> TimestampAssigner:
        """This expression as event time: what ``WatermarkStrategy.with_timestamp_assigner`` makes of it."""
        return ColumnTimestamps(unaliased(self))

    # -- arithmetic

    def __add__(self, other: Any) -> Expression:
        return Expression("+", (self, operand(other)))

    def __radd__(self, other: Any) -> Expression:
        return Expression("+", (operand(other), self))

    def __sub__(self, other: Any) -> Expression:
        return Expression("-", (self, operand(other)))

    def __rsub__(self, other: Any) -> Expression:
        return Expression("-", (operand(other), self))

    def __mul__(self, other: Any) -> Expression:
        return Expression("*", (self, operand(other)))

    def __rmul__(self, other: Any) -> Expression:
        return Expression("*", (operand(other), self))

    def __truediv__(self, other: Any) -> Expression:
        return Expression("/", (self, operand(other)))

    def __rtruediv__(self, other: Any) -> Expression:
        return Expression("/", (operand(other), self))

    def __floordiv__(self, other: Any) -> Expression:
        return Expression("//", (self, operand(other)))

    def __rfloordiv__(self, other: Any) -> Expression:
        return Expression("//", (operand(other), self))

    def __mod__(self, other: Any) -> Expression:
        return Expression("%", (self, operand(other)))

    def __rmod__(self, other: Any) -> Expression:
        return Expression("%", (operand(other), self))

    def __pow__(self, other: Any) -> Expression:
        return Expression("**", (self, operand(other)))

    def __rpow__(self, other: Any) -> Expression:
        return Expression("**", (operand(other), self))

    def __neg__(self) -> Expression:
        return Expression("negate", (self,))

    def __abs__(self) -> Expression:
        return Expression("abs", (self,))

    def abs(self) -> Expression:
        return Expression("abs", (self,))

    def round(self, digits: int = 0) -> Expression:
        """Rounded to so many decimal places, halves to even, as Python rounds."""
        return Expression("round", (self,), digits=_whole("digits", digits))

    def floor(self) -> Expression:
        """The largest whole number that is not above it; the type stays."""
        return Expression("floor", (self,))

    def ceil(self) -> Expression:
        """The smallest whole number that is not below it; the type stays."""
        return Expression("ceil", (self,))

    def sqrt(self) -> Expression:
        """Square root; NaN below zero."""
        return Expression("sqrt", (self,))

    def exp(self) -> Expression:
        """e to this power."""
        return Expression("exp", (self,))

    def ln(self) -> Expression:
        """Natural logarithm; minus infinity at zero, NaN below."""
        return Expression("ln", (self,))

    # -- comparison and logic

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return Expression("==", (self, operand(other)))

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return Expression("!=", (self, operand(other)))

    def __lt__(self, other: Any) -> Expression:
        return Expression("<", (self, operand(other)))

    def __le__(self, other: Any) -> Expression:
        return Expression("<=", (self, operand(other)))

    def __gt__(self, other: Any) -> Expression:
        return Expression(">", (self, operand(other)))

    def __ge__(self, other: Any) -> Expression:
        return Expression(">=", (self, operand(other)))

    def __and__(self, other: Any) -> Expression:
        return Expression("&", (self, operand(other)))

    def __rand__(self, other: Any) -> Expression:
        return Expression("&", (operand(other), self))

    def __or__(self, other: Any) -> Expression:
        return Expression("|", (self, operand(other)))

    def __ror__(self, other: Any) -> Expression:
        return Expression("|", (operand(other), self))

    def __xor__(self, other: Any) -> Expression:
        return Expression("^", (self, operand(other)))

    def __rxor__(self, other: Any) -> Expression:
        return Expression("^", (operand(other), self))

    def __invert__(self) -> Expression:
        return Expression("not", (self,))

    def between(self, lowest: Any, highest: Any) -> Expression:
        """Whether ``lowest <= self <= highest``."""
        return Expression("&", (self >= lowest, self <= highest))

    def is_in(self, values: Iterable[Any]) -> Expression:
        """Whether it equals one of these constants; null for a null."""
        constants = [operand(value) for value in values]
        return Expression("is_in", (self, *constants))

    def is_null(self) -> Expression:
        """Whether it is null; never null itself."""
        return Expression("is_null", (self,))

    def is_not_null(self) -> Expression:
        """Whether it is not null; never null itself."""
        return Expression("not", (self.is_null(),))

    def is_nan(self) -> Expression:
        """Whether it is NaN."""
        return Expression("is_nan", (self,))

    def fill_null(self, value: Any) -> Expression:
        """The value in place of nulls."""
        return coalesce(self, value)

    # -- parts

    def field(self, name: Text) -> Expression:
        """A field of a row or tuple, whose fields are ``f0``, ``f1``, …; null where the row is null."""
        if not isinstance(name, Text) or not name:
            raise TypeError(f"field() takes a name, not {name!r}")
        return Expression("field", (self,), name=name)

    def get(self, key: Any) -> Expression:
        """An element of a list by its position, from 0 or, if negative, from the end; or a map's value for a key.

        Null where there is none.
        """
        if isinstance(key, Expression):
            raise TypeError("get() takes a constant, not an expression")
        return Expression("get", (self,), key=key)

    def size(self) -> Expression:
        """Number of elements of a list or map, as INT."""
        return Expression("size", (self,))

    # -- types and names

    def cast(self, type_info: TypeDescriptor) -> Expression:
        """The value as another type: numbers lose what is behind the point, text is read.

        What does not fit is an error when it occurs, unless overflow wraps.
        """
        return Expression("cast", (self,), type_info=as_type_info(type_info, lambda: "the type of cast()"))

    def alias(self, name: Text) -> Expression:
        """The same value under a name of its own."""
        if not isinstance(name, Text) or not name:
            raise TypeError(f"alias() takes a name, not {name!r}")
        return Expression("alias", (self,), name=name)

    @property
    def str(self) -> StringFunctions:
        return StringFunctions(self)

    @property
    def dt(self) -> DateTimeFunctions:
        """Functions of dates and timestamps."""
        return DateTimeFunctions(self)

    # -- about it

    def output_name(self) -> Text | None:
        """The alias, or the name of a plain column; None if it has neither."""
        return self.options["name"] if self.function in ("alias", "column") else None

    def columns(self) -> frozenset[Text]:
        """Names of the columns that it reads."""
        return frozenset(node.options["name"] for node in self.walk() if node.function == "column")

    def walk(self) -> Iterator[Expression]:
        """This expression and all inside it."""
        yield self
        for part in self.inputs:
            yield from part.walk()

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self} has no truth value of its own, it has one for each row: combine expressions with & | ~ instead of "
            "and, or, not, and write col('a').between(1, 2) instead of 1 < col('a') < 2"
        )

    def __repr__(self) -> Text:
        return text_of(self)


class StringFunctions:
    """Functions of text, as ``col("name").str.upper()``. Positions and lengths count characters (code points)."""

    def __init__(self, subject: Expression) -> None:
        self._subject = subject

    def __repr__(self) -> str:
        return f"{self._subject}.str"

    def length(self) -> Expression:
        """Number of characters, as INT."""
        return Expression("length", (self._subject,))

    def lower(self) -> Expression:
        """In lower case, character by character."""
        return Expression("lower", (self._subject,))

    def upper(self) -> Expression:
        """In upper case, character by character."""
        return Expression("upper", (self._subject,))

    def strip(self) -> Expression:
        """Without white space at both ends."""
        return Expression("strip", (self._subject,))

    def contains(self, part: str) -> Expression:
        """Whether the text holds this part."""
        return Expression("contains", (self._subject,), pattern=_text_option("contains", part))

    def starts_with(self, part: str) -> Expression:
        """Whether the text begins like this."""
        return Expression("starts_with", (self._subject,), pattern=_text_option("starts_with", part))

    def ends_with(self, part: str) -> Expression:
        """Whether the text ends like this."""
        return Expression("ends_with", (self._subject,), pattern=_text_option("ends_with", part))

    def matches(self, pattern: str) -> Expression:
        """Whether a regular expression (RE2's syntax) is found in the text."""
        return Expression("matches", (self._subject,), pattern=_text_option("matches", pattern))

    def replace(self, part: str, by: str) -> Expression:
        """With every occurrence of a part replaced."""
        if not part:
            raise ValueError("replace() needs a part that is not empty")
        return Expression(
            "replace", (self._subject,), pattern=_text_option("replace", part), replacement=_text_option("replace", by)
        )

    def slice(self, start: int, stop: int | None = None) -> Expression:
        """``text[start:stop]``, with negative positions counted from the end."""
        stop = stop if stop is None else _whole("stop", stop)
        return Expression("slice", (self._subject,), start=_whole("start", start), stop=stop)


class DateTimeFunctions:
    """Parts of dates and timestamps, as ``col("at").dt.hour()``; each an INT."""

    def __init__(self, subject: Expression) -> None:
        self._subject = subject

    def __repr__(self) -> str:
        return f"{self._subject}.dt"

    def _part(self, name: str) -> Expression:
        return Expression("date_part", (self._subject,), part=name)

    def year(self) -> Expression:
        return self._part("year")

    def month(self) -> Expression:
        """The month, 1 to 12."""
        return self._part("month")

    def day(self) -> Expression:
        """The day of the month, 1 to 31."""
        return self._part("day")

    def hour(self) -> Expression:
        """The hour, 0 to 23."""
        return self._part("hour")

    def minute(self) -> Expression:
        """The minute, 0 to 59."""
        return self._part("minute")

    def second(self) -> Expression:
        """The second, 0 to 59."""
        return self._part("second")

    def microsecond(self) -> Expression:
        """0 to 999,999."""
        return self._part("microsecond")

    def day_of_week(self) -> Expression:
        """1 (Monday) to 7, as ISO 8601 counts."""
        return self._part("day_of_week")

    def day_of_year(self) -> Expression:
        """1 to 366."""
        return self._part("day_of_year")

    def date(self) -> Expression:
        """The date of a timestamp."""
        return Expression("date", (self._subject,))

    def truncate(self, unit: str) -> Expression:
        """The begin of the second, minute, hour, day, week (Monday), month, quarter or year."""
        units = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
        if unit not in units:
            raise ValueError(f"truncate() takes one of {', '.join(units)}, not {unit!r}")
        return Expression("truncate", (self._subject,), unit=unit)

    def epoch_millis(self) -> Expression:
        """Milliseconds since 1970-01-01 UTC, rounded down, as LONG."""
        return Expression("epoch_millis", (self._subject,))


class When:
    """``when(condition).then(value)…``, until ``otherwise``."""

    def __init__(self, branches: tuple[tuple[Expression, Expression], ...], condition: Expression) -> None:
        self._branches, self._condition = branches, condition

    def __repr__(self) -> str:
        chosen = "".join(f".when({condition}).then({value})" for condition, value in self._branches)
        return f"{chosen}.when({self._condition})"[1:]

    def then(self, value: Any) -> Then:
        """What the value is where the condition is true."""
        return Then((*self._branches, (self._condition, operand(value))))


class Then(Expression):
    """Branches of which the first true one counts; null where none is. Take ``otherwise`` for another value."""

    __slots__ = ("_branches",)

    def __init__(self, branches: tuple[tuple[Expression, Expression], ...], otherwise: Any = None) -> None:
        flat = tuple(part for branch in branches for part in branch)
        super().__init__("when", (*flat, operand(otherwise)))
        self._branches = branches

    def when(self, condition: Expression) -> When:
        return When(self._branches, operand(condition))

    def otherwise(self, value: Any) -> Expression:
        """The value where no condition is true."""
        return Expression("when", (*self.inputs[:-1], operand(value)))


def col(name: str) -> Expression:
    """A column of the stream, by its name; tuples and rows without names have ``f0``, ``f1``, …"""
    if not isinstance(name, str) or not name:
        raise TypeError(f"col() takes the name of a column, not {name!r}")
    return Expression("column", name=name)


def lit(value: Any) -> Expression:
    """A constant: None, bool, int, float, str, bytes, date, time, datetime, timedelta, Decimal or Instant.

    A datetime with a time zone is an instant.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(value, _LITERALS):
        raise TypeError(
            f"{value!r} ({type(value).__name__}) can't be a constant of an expression: use None, bool, int, float, "
            "str, bytes, date, time, datetime, timedelta, Decimal or Instant, or map() for other values"
        )
    return Expression("literal", value=value)


def when(condition: Expression) -> When:
    """Begins a choice: ``when(col("n") > 9).then("many").otherwise("few")``."""
    return When((), operand(condition))


def coalesce(*values: Any) -> Expression:
    """The first of these that is not null."""
    if not values:
        raise ValueError("coalesce() takes at least one value")
    return Expression("coalesce", tuple(operand(value) for value in values))


def concat(*values: Any) -> Expression:
    """Texts one after the other; null if one is null."""
    if not values:
        raise ValueError("concat() takes at least one value")
    return Expression("concat", tuple(operand(value) for value in values))


def operand(value: Any) -> Expression:
    """An expression as it is, anything else as a constant."""
    return value if isinstance(value, Expression) else lit(value)


def unaliased(expression: Expression) -> Expression:
    """What an alias stands for."""
    while expression.function == "alias":
        (expression,) = expression.inputs
    return expression


def refuse_alias_inside(expression: Expression) -> None:
    """An alias names a result; within an expression it would be lost.

    Raises:
        ProgramError: there is one inside.
    """
    for part in unaliased(expression).walk():
        if part.function == "alias":
            raise ProgramError(f"{expression}: alias() names a whole expression, not a part of one")


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is an int, not {type(value).__name__}")
    return value


def _text_option(method: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"{method}() takes a str, not {type(value).__name__}")


class ColumnTimestamps(TimestampAssigner):
    """An expression as a timestamp assigner: whole numbers of milliseconds, or times.

    Attributes:
        expression: over the columns of the stream.
        wrap: integers that overflow wrap around instead of failing.
    """

    def __init__(self, expression: Expression, *, wrap: bool = False) -> None:
        self.expression, self.wrap = expression, wrap

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Timestamps are computed for whole batches; see ``timestamps.computing_timestamps``."""
        raise TypeError(f"{self.expression} is computed for whole batches, not for one record")

    def __repr__(self) -> str:
        return f"ColumnTimestamps({self.expression})"
