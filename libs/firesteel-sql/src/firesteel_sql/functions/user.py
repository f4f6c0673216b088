"""Functions that users have declared with CREATE FUNCTION: plain Python callables.

Their types come from the code: from an attribute ``result_type`` (and ``input_types``), else from its hints. So the
process that plans a query imports the module. That is the user's own program; no other process of the cluster does but
the slots, which call the function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from firesteel.table.types import DataType, DataTypes
from firesteel_sql.catalog.catalogs import Catalogs
from firesteel_sql.catalog.tables import CatalogFunction
from firesteel_sql.functions.signature import OperandsRefused, Session, SqlFunction, coerced, operation
from firesteel_sql.kernels.user import UnusableFunctionError, callable_of
from firesteel_sql.plan.row_expressions import RowExpression


class DeclaredFunctions:
    """The functions of a session's catalogs.

    Args:
        catalogs: where they are declared.
    """

    def __init__(self, catalogs: Catalogs) -> None:
        self._catalogs = catalogs

    def within(self, catalogs: Catalogs) -> DeclaredFunctions:
        """The functions as seen from the current database of these catalogs."""
        return DeclaredFunctions(catalogs)

    def system(self, path: tuple[str, ...]) -> SqlFunction | None:
        """The temporary system function of a name.

        Raises:
            OperandsRefused: its code is not there, or does not say its types.
        """
        declared = self._catalogs.system_functions.get(path[0].lower()) if len(path) == 1 else None
        return None if declared is None else sql_function(path, declared)

    def find(self, path: tuple[str, ...]) -> SqlFunction | None:
        """The function of a name.

        Raises:
            OperandsRefused: its code is not there, or does not say its types.
        """
        declared = self._catalogs.find_function(path) if len(path) <= 3 else None
        return None if declared is None else sql_function(path, declared)

    def near(self, path: tuple[str, ...]) -> list[str]:
        """Names of functions that may have been meant."""
        catalog, database = self._catalogs.database_path(path[:-1]) if len(path) <= 3 else ("", "")
        return self._catalogs.function_names(catalog, database)


def sql_function(path: tuple[str, ...], declared: CatalogFunction) -> SqlFunction:
    """A declared function, with the types that its code says.

    Raises:
        OperandsRefused: its code is not there, or does not say its types.
    """
    name = path[-1].lower()
    try:
        function = callable_of(declared.target)
        types, least, most, result = _types(name, declared.target, function)
    except UnusableFunctionError as error:
        raise OperandsRefused(f"the function {name}: {error}") from None

    def build(operands: Sequence[RowExpression], session: Session) -> RowExpression:
        if not operands:
            return operation(name, "user:python_function_for_rows", (), result, nullable=True, target=declared.target)
        inputs = []
        for place, operand in enumerate(operands):
            wanted = types[min(place, len(types) - 1)] if types else None
            if operand.type.name == "NULL":
                operand = coerced(operand, wanted or DataTypes.STRING(), session)
            elif wanted is not None:
                try:
                    operand = coerced(operand, wanted, session)
                except OperandsRefused as refused:
                    raise OperandsRefused(f"operand {place + 1}: {refused}") from None
            inputs.append(operand)
        return operation(name, "user:python_function", inputs, result, nullable=True, target=declared.target)

    return SqlFunction(name, least, most, build)


def _types(
    name: str, target: str, function: Callable[..., Any]
) -> tuple[list[DataType | None], int, int | None, DataType]:
    """Types of the operands (None = any), how many there are, and the type of the result."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built in, without a signature
        signature = None
    try:
        hints = get_type_hints(function if inspect.isroutine(function) else function.__call__)  # type: ignore[operator]
    except Exception as error:
        raise UnusableFunctionError(f"the hints of {target} can't be read: {error}") from None
    declared = getattr(function, "input_types", None)
    types: list[DataType | None] = list(declared) if declared is not None else []
    least, most = len(types), len(types) or None
    if signature is not None:
        parameters = list(signature.parameters.values())
        needed = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
        if needed:
            raise UnusableFunctionError(
                f"{target} needs the keyword {needed[0]}, and SQL gives operands by their place"
            )
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        least = sum(p.default is p.empty for p in positional)
        rest = [p for p in parameters if p.kind is p.VAR_POSITIONAL]
        most = None if rest else len(positional)
        if declared is None:
            types = [_type_of(f"{target}: {p.name}", hints[p.name]) if p.name in hints else None
                     for p in (*positional, *rest)]  # fmt: skip
    result = getattr(function, "result_type", None)
    if result is None:
        if "return" not in hints:
            raise UnusableFunctionError(
                f"{target} does not say what it returns: write a hint, def {name}(...) -> str, or set "
                f"{target.rpartition('.')[2]}.result_type = DataTypes.STRING()"
            )
        result = _type_of(f"the result of {target}", hints["return"])
        if result is None:
            raise UnusableFunctionError(f"the result of {target} is Any: SQL has to know its type")
    if not isinstance(result, DataType):
        raise UnusableFunctionError(f"{target}.result_type has to be one of DataTypes, not {result!r}")
    return types, least, most, result


_BY_HINT: dict[Any, DataType] = {
    bool: DataTypes.BOOLEAN(), int: DataTypes.BIGINT(), float: DataTypes.DOUBLE(), str: DataTypes.STRING(),
    bytes: DataTypes.BYTES(), Decimal: DataTypes.DECIMAL(38, 18), date: DataTypes.DATE(), time: DataTypes.TIME(6),
    datetime: DataTypes.TIMESTAMP(6),
}  # fmt: skip
"""Types of SQL by types of Python: those of PyFlink's hints."""


def _type_of(what: str, hint: Any) -> DataType | None:
    """The type of SQL for a hint; None for Any and object.

    Raises:
        UserFunctionError: there is none.
    """
    if hint is Any or hint is object:
        return None
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        rest = [part for part in parts if part is not NoneType]
        if len(rest) == 1:
            return _type_of(what, rest[0])
    elif origin is list:
        element = _type_of(what, parts[0])
        if element is not None:
            return DataTypes.ARRAY(element)
    elif origin is dict:
        key, value = (_type_of(what, part) for part in parts)
        if key is not None and value is not None:
            return DataTypes.MAP(key.not_null(), value)
    elif hint in _BY_HINT:
        return _BY_HINT[hint]
    shown = getattr(hint, "__name__", None) if origin is None else None
    raise UnusableFunctionError(
        f"{what} has the hint {shown or hint}, which is no type of SQL: bool, int, float, str, bytes, Decimal, date, "
        "time, datetime, list[...] and dict[..., ...] are; others are set with input_types and result_type"
    )
