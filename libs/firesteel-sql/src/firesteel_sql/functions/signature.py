"""How a function is declared, and how its operands are brought to the types that it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from firesteel.common.type_table import LONGEST
from firesteel.table.types import DataType, DataTypes
from firesteel_sql.plan.row_expressions import AppliedFunction, Constant, RowExpression
from firesteel_sql.texts import type_text
from firesteel_sql.types import rules


class OperandsRefused(Exception):
    """The operands do not fit the function; the text says why."""


class UserFunctions(Protocol):
    """The functions that users have declared."""

    def system(self, path: tuple[str, ...]) -> SqlFunction | None:
        """The temporary system function of a name, which hides a built-in one."""

    def find(self, path: tuple[str, ...]) -> SqlFunction | None:
        """The function of a name in the catalogs."""

    def near(self, path: tuple[str, ...]) -> list[str]:
        """Names of functions that may have been meant."""

    def within(self, catalogs: Any) -> UserFunctions:
        """The functions as seen from the current database of these catalogs."""


@dataclass(frozen=True)
class Session:
    """What functions need to know of the session.

    Attributes:
        zone: name of its time zone.
        user_functions: those that users have declared; None = none.
        database: name of its current database.
        is_batch: tables have all their rows before a result is given.
    """

    zone: str = "UTC"
    user_functions: UserFunctions | None = field(default=None, compare=False)
    database: str = "default_database"
    is_batch: bool = False

    def function(self, path: tuple[str, ...]) -> SqlFunction | None:
        """The function of a name; None if there is none."""
        users = self.user_functions
        if users is None:
            return FUNCTIONS.get(".".join(path).upper())
        return users.system(path) or FUNCTIONS.get(".".join(path).upper()) or users.find(path)

    def within(self, catalogs: Any) -> Session:
        """The same session, where names of functions are looked up in the current database of these catalogs."""
        if self.user_functions is None:
            return self
        return replace(self, user_functions=self.user_functions.within(catalogs))


Build = Callable[[Sequence[RowExpression], Session], RowExpression]


@dataclass(frozen=True)
class SqlFunction:
    """A function.

    Attributes:
        name: in upper case.
        least: number of operands at least.
        most: number of operands at most; None = any.
        build: makes the operation; raises ``OperandsRefused``.
    """

    name: str
    least: int
    most: int | None
    build: Build


FUNCTIONS: dict[str, SqlFunction] = {}
"""By name, in upper case."""


def declare(*names: str, operands: int | tuple[int, int | None]) -> Callable[[Build], Build]:
    """Declare a function under some names, with a number of operands, or the least and the largest one."""
    least, most = (operands, operands) if isinstance(operands, int) else operands

    def register(build: Build) -> Build:
        for name in names:
            FUNCTIONS[name] = SqlFunction(name, least, most, build)
        return build

    return register


Take = Callable[[RowExpression, Session], RowExpression]
"""Brings an operand to the type that a function takes; raises ``OperandsRefused``."""
ResultType = DataType | Callable[[Sequence[RowExpression]], DataType]


def declare_simple(
    names: str,
    kernel: str,
    takes: Sequence[Take],
    result: ResultType,
    *,
    optional: int = 0,
    nullable: bool | None = None,
) -> None:
    """Declare a function whose operands have fixed types.

    Args:
        names: its names, with blanks between them.
        kernel: what computes it.
        takes: for each operand, what brings it to its type.
        result: type of the result, or a function of the operands that gives it.
        optional: how many operands may be missing, from the last one.
        nullable: whether the result takes NULL; None if it does where an operand does.
    """
    first = names.split()[0]

    @declare(*names.split(), operands=(len(takes) - optional, len(takes)))
    def build(operands: Sequence[RowExpression], session: Session) -> RowExpression:
        parts = [take(operand, session) for take, operand in zip(takes, operands, strict=False)]
        result_type = result if isinstance(result, DataType) else result(parts)
        return operation(first, kernel, parts, result_type, nullable=nullable)


# -- casts


def cast(operand: RowExpression, target: DataType, session: Session, *, is_try: bool = False) -> RowExpression:
    """``CAST(operand AS target)``; without NULL if the operand has none.

    Raises:
        OperandsRefused: there is no such cast.
    """
    if not rules.is_castable(operand.type, target):
        hint = ""
        if rules.is_moment(operand.type) and rules.is_number(target):
            hint = ": UNIX_TIMESTAMP(CAST(ts AS STRING)) gives seconds"
        raise OperandsRefused(f"{shown(operand.type)} can't be cast to {shown(target)}{hint}")
    nullable = is_try or operand.type.nullable or _may_overflow(operand.type, target)
    result = rules.with_null(target, nullable)
    if isinstance(operand, Constant) and operand.value is None:
        return Constant(rules.with_null(target, True), None)
    options: list[tuple[str, Any]] = [("zone", session.zone)]
    if rules.is_text(target):
        if rules.is_interval(operand.type):
            options.append(("interval", operand.type.name))
        options += [("length", target.parameters[0]), ("pads", target.name == "CHAR")]
        if rules.is_text(operand.type) and operand.type.parameters[0] <= target.parameters[0] and target.name != "CHAR":
            return retyped(operand, result)
        if target.parameters[0] == rules.STRING.parameters[0]:
            options = [option for option in options if option[0] not in ("length", "pads")]
    elif target.name in rules.BYTES and target.parameters[0] < LONGEST:
        options += [("length", target.parameters[0]), ("pads", target.name == "BINARY")]
    kernel = "try_cast" if is_try else "cast"
    name = "TRY_CAST" if is_try else "CAST"
    return AppliedFunction(result, name, f"firesteel_sql.kernels.casts:{kernel}", (operand,), tuple(options))


def _may_overflow(source: DataType, target: DataType) -> bool:
    """Whether a number can have too many digits for a DECIMAL, which makes it NULL."""
    if target.name != "DECIMAL" or source.name == "BOOLEAN":
        return False
    if not rules.is_exact(source):
        return True
    (p1, s1), (p2, s2) = rules.as_decimal(source).parameters, target.parameters
    return p1 - s1 > p2 - s2 or (p1 - s1 == p2 - s2 and s1 > s2)


def retyped(operand: RowExpression, data_type: DataType) -> RowExpression:
    """The same values under another type that has the same columns."""
    return replace(operand, type=data_type)


def shown(data_type: DataType) -> str:
    """A type in an error: whether it takes NULL is not what is wrong."""
    return type_text(data_type.nullable_())


def coerced(operand: RowExpression, target: DataType, session: Session) -> RowExpression:
    """The operand as a value of this type, which holds all its values.

    Raises:
        OperandsRefused: it does not become one without a CAST.
    """
    wanted = rules.with_null(target, operand.type.nullable)
    if operand.type == wanted:
        return operand
    if operand.type.name == "NULL":
        return Constant(rules.with_null(target, True), None)
    if not rules.is_implicit(operand.type, target):
        raise OperandsRefused(
            f"{shown(operand.type)} is given where {shown(target)} is needed: write CAST(... AS {shown(target)})"
        )
    if rules.is_text(target) and rules.is_text(operand.type):
        return retyped(operand, wanted)
    return cast(operand, target, session)


def unified(operands: Sequence[RowExpression], session: Session) -> list[RowExpression]:
    """The operands, all of the type that they have in common.

    Raises:
        OperandsRefused: they have none.
    """
    common = rules.common_type([operand.type for operand in operands])
    if common is None:
        first = operands[0].type
        other = next(
            (operand.type for operand in operands if rules.common_type([first, operand.type]) is None),
            operands[-1].type,
        )
        moment_type = next((data_type for data_type in (first, other) if rules.is_moment(data_type)), None)
        hint = "a CAST"
        if moment_type is not None and (rules.is_text(first) or rules.is_text(other)):
            hint = f"{moment_type.name} '...' for a constant, or a CAST"
        raise OperandsRefused(f"{shown(first)} and {shown(other)} do not go together: write {hint}")
    return [coerced(operand, common, session) for operand in operands]


# -- operations


def operation(
    name: str, kernel: str, operands: Sequence[RowExpression], result: DataType, *, nullable: bool | None = None,
    **options: Any,
) -> AppliedFunction:  # fmt: skip
    """A function whose result is NULL where an operand is NULL.

    Args:
        name: in SQL.
        kernel: ``module:function`` below ``firesteel_sql.kernels``, or a function of ``firesteel.expressions``.
        operands: its operands.
        result: type of the result; whether it takes NULL comes from the operands, or from ``nullable``.
        nullable: whether the result takes NULL.
        options: constants that the kernel takes.
    """
    takes_null = rules.is_nullable([operand.type for operand in operands]) if nullable is None else nullable
    full = f"firesteel_sql.kernels.{kernel}" if ":" in kernel else kernel
    return AppliedFunction(rules.with_null(result, takes_null), name, full, tuple(operands), tuple(options.items()))


def constant_of(operand: RowExpression, what: str) -> Any:
    """The value of an operand that has to be a constant.

    Raises:
        OperandsRefused: it is none.
    """
    if not isinstance(operand, Constant):
        raise OperandsRefused(f"{what} has to be a constant")
    return operand.value


def text(operand: RowExpression, session: Session) -> RowExpression:
    """An operand that has to be a text.

    Raises:
        OperandsRefused: it is none.
    """
    if operand.type.name == "NULL":
        return Constant(rules.STRING, None)
    if not rules.is_text(operand.type):
        raise OperandsRefused(f"a text is needed, not {shown(operand.type)}")
    return operand


def whole(operand: RowExpression, session: Session) -> RowExpression:
    """An operand that has to be a whole number, as INT.

    Raises:
        OperandsRefused: it is none.
    """
    if operand.type.name != "NULL" and not rules.is_integer(operand.type):
        raise OperandsRefused(f"a whole number is needed, not {shown(operand.type)}")
    return coerced(operand, rules.INT, session)


def number(operand: RowExpression, session: Session) -> RowExpression:
    """An operand that has to be a number.

    Raises:
        OperandsRefused: it is none.
    """
    if operand.type.name == "NULL":
        return Constant(rules.INT, None)
    if not rules.is_number(operand.type):
        hint = ": times are moved by an interval, INTERVAL '1' DAY" if rules.is_moment(operand.type) else ""
        raise OperandsRefused(f"a number is needed, not {shown(operand.type)}{hint}")
    return operand


def boolean(operand: RowExpression, session: Session) -> RowExpression:
    """An operand that has to be a condition.

    Raises:
        OperandsRefused: it is none.
    """
    if operand.type.name == "NULL":
        return Constant(rules.BOOLEAN, None)
    if operand.type.name != "BOOLEAN":
        raise OperandsRefused(f"a condition is needed, not {shown(operand.type)}")
    return operand


def binary(operand: RowExpression, session: Session) -> RowExpression:
    """An operand that has to be bytes.

    Raises:
        OperandsRefused: it is something else.
    """
    if operand.type.name == "NULL":
        return Constant(DataTypes.BYTES(), None)
    if operand.type.name not in rules.BYTES:
        raise OperandsRefused(f"bytes are needed, not {operand.type}")
    return operand


def text_or_binary(operand: RowExpression, session: Session) -> RowExpression:
    """An operand that has to be a text or bytes.

    Raises:
        OperandsRefused: it is something else.
    """
    return operand if operand.type.name in rules.BYTES else text(operand, session)


def big(operand: RowExpression, session: Session) -> RowExpression:
    """An operand that has to be a whole number, as BIGINT.

    Raises:
        OperandsRefused: it is none.
    """
    if operand.type.name != "NULL" and not rules.is_integer(operand.type):
        raise OperandsRefused(f"a whole number is needed, not {operand.type}")
    return coerced(operand, rules.BIGINT, session)


def moment(operand: RowExpression, session: Session) -> RowExpression:
    """An operand that has to be a date, a time or a timestamp.

    Raises:
        OperandsRefused: it is none.
    """
    if not rules.is_moment(operand.type):
        raise OperandsRefused(f"a date, time or timestamp is needed, not {shown(operand.type)}")
    return operand
