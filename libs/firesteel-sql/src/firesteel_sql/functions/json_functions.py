"""JSON functions, and the clauses between their operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from firesteel.table.types import DataType, ElementsType, MapType, RowType
from firesteel_sql.functions.signature import (
    OperandsRefused,
    Session,
    cast,
    coerced,
    declare,
    declare_simple,
    operation,
    text,
)
from firesteel_sql.kernels.json_paths import PathRefused, json_path
from firesteel_sql.plan.row_expressions import AppliedFunction, Constant, RowExpression
from firesteel_sql.types import rules


@dataclass(frozen=True)
class JsonOption(RowExpression):
    """A clause of a JSON function, which stands among its operands: ``NULL ON EMPTY``, ``RETURNING INT``.

    Attributes:
        clause: ON EMPTY, ON ERROR, ON NULL, WRAPPER or RETURNING.
        behaviour: its words.
        default: of ``DEFAULT x ON EMPTY``.
        returning: the type of RETURNING.
    """

    type: DataType = field(default=rules.NULL, init=False)
    clause: str = ""
    behaviour: str = ""
    default: RowExpression | None = None
    returning: DataType | None = None


def _options_of(
    operands: Sequence[RowExpression], allowed: dict[str, tuple[str, ...]]
) -> tuple[list[RowExpression], dict[str, JsonOption]]:
    """The operands without their clauses, and those by their words.

    Raises:
        OperandsRefused: a clause does not belong to the function, or stands twice.
    """
    values = [operand for operand in operands if not isinstance(operand, JsonOption)]
    options: dict[str, JsonOption] = {}
    for option in operands:
        if not isinstance(option, JsonOption):
            continue
        words = f"{option.behaviour} {option.clause}".strip()
        if option.clause in options:
            raise OperandsRefused(f"{option.clause} stands twice")
        if option.clause not in allowed or (allowed[option.clause] and option.behaviour not in allowed[option.clause]):
            raise OperandsRefused(f"{words} does not belong to this function")
        options[option.clause] = option
    return values, options


def _path(operand: RowExpression, session: Session) -> RowExpression:
    """A path; a constant one that is none is refused."""
    path = text(operand, session)
    if isinstance(path, Constant) and path.value is not None:
        try:
            json_path(path.value)
        except PathRefused as refused:
            raise OperandsRefused(str(refused)) from None
    return path


def _text_and_path(values: Sequence[RowExpression], session: Session) -> list[RowExpression]:
    if len(values) != 2:
        raise OperandsRefused("a text and a path are needed")
    return [text(values[0], session), _path(values[1], session)]


def _behaviour(options: dict[str, JsonOption], clause: str, usual: str) -> str:
    return options[clause].behaviour if clause in options else usual


@declare("JSON_EXISTS", operands=(2, None))
def _json_exists(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    values, options = _options_of(operands, {"ON ERROR": ("TRUE", "FALSE", "UNKNOWN", "ERROR")})
    parts = _text_and_path(values, session)
    on_error = _behaviour(options, "ON ERROR", "FALSE")
    return operation("JSON_EXISTS", "json_values:json_exists", parts, rules.BOOLEAN, nullable=True, on_error=on_error)


_RETURNED = ("VARCHAR", "BOOLEAN", "INT", "BIGINT", "DOUBLE", "DECIMAL")


@declare("JSON_VALUE", operands=(2, None))
def _json_value(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    behaviours = ("NULL", "ERROR", "DEFAULT")
    values, options = _options_of(operands, {"RETURNING": (), "ON EMPTY": behaviours, "ON ERROR": behaviours})
    result = rules.STRING
    if "RETURNING" in options:
        returning = options["RETURNING"].returning
        assert returning is not None
        result = returning
    if result.name not in _RETURNED:
        raise OperandsRefused(f"JSON_VALUE returns {', '.join(_RETURNED)}, not {result}")
    parts = _text_and_path(values, session)
    for clause in ("ON EMPTY", "ON ERROR"):
        if clause in options and options[clause].behaviour == "DEFAULT":
            default = options[clause].default
            assert default is not None
            parts.append(_as_default(default, result, session))
    extra = {"length": result.parameters[0]} if rules.is_text(result) and result != rules.STRING else {}
    return operation(
        "JSON_VALUE", "json_values:json_value", parts, result, nullable=True,
        on_empty=_behaviour(options, "ON EMPTY", "NULL"), on_error=_behaviour(options, "ON ERROR", "NULL"),
        zone=session.zone, **extra,
    )  # fmt: skip


def _as_default(default: RowExpression, result: DataType, session: Session) -> RowExpression:
    if rules.is_text(result) and not rules.is_text(default.type):
        shown = cast(default, result, session)
        return operation("LOWER", "texts:lower", (shown,), shown.type) if default.type.name == "BOOLEAN" else shown
    return coerced(default, result, session)


@declare("JSON_QUERY", operands=(2, None))
def _json_query(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    behaviours = ("NULL", "ERROR", "EMPTY ARRAY", "EMPTY OBJECT")
    values, options = _options_of(
        operands, {"RETURNING": (), "WRAPPER": (), "ON EMPTY": behaviours, "ON ERROR": behaviours}
    )
    result = rules.STRING
    if "RETURNING" in options:
        returning = options["RETURNING"].returning
        assert returning is not None
        result = returning
    is_array = isinstance(result, ElementsType) and result.name == "ARRAY" and rules.is_text(result.element_type)
    if not is_array and not rules.is_text(result):
        raise OperandsRefused(f"JSON_QUERY returns STRING or ARRAY<STRING>, not {result}")
    on_empty, on_error = (_behaviour(options, clause, "NULL") for clause in ("ON EMPTY", "ON ERROR"))
    if is_array and "EMPTY OBJECT" in (on_empty, on_error):
        raise OperandsRefused("EMPTY OBJECT does not go with RETURNING ARRAY")
    wrapper = _behaviour(options, "WRAPPER", "WITHOUT")
    return operation(
        "JSON_QUERY", "json_values:json_query", _text_and_path(values, session), result, nullable=True,
        wrapper="WITH UNCONDITIONAL" if wrapper == "WITH" else wrapper, on_empty=on_empty, on_error=on_error,
    )  # fmt: skip


# -- making JSON


def _json_value_type(data_type: DataType) -> None:
    """Check that values of a type can be written as JSON.

    Raises:
        OperandsRefused: they can't.
    """
    if rules.is_interval(data_type) or data_type.name == "MULTISET":
        raise OperandsRefused(f"{data_type} can't be written as JSON")
    if isinstance(data_type, MapType):
        if not rules.is_text(data_type.key_type):
            raise OperandsRefused(f"the keys of {data_type} are no texts")
        _json_value_type(data_type.value_type)
    elif isinstance(data_type, ElementsType):
        _json_value_type(data_type.element_type)
    elif isinstance(data_type, RowType):
        for field_type in data_type.field_types():
            _json_value_type(field_type)


def _is_json(operand: RowExpression) -> bool:
    """Whether an operand is JSON that was made by a function."""
    return isinstance(operand, AppliedFunction) and operand.name in ("JSON_OBJECT", "JSON_ARRAY", "JSON")


def _values(operands: Sequence[RowExpression]) -> tuple[list[RowExpression], tuple[int, ...]]:
    """Values to be written as JSON, and the places of those that are JSON already."""
    values = []
    for operand in operands:
        _json_value_type(operand.type)
        values.append(Constant(rules.STRING, None) if operand.type.name == "NULL" else operand)
    return values, tuple(place for place, value in enumerate(values) if _is_json(value))


@declare("JSON_OBJECT", operands=(0, None))
def _json_object(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    pairs, options = _options_of(operands, {"ON NULL": ("NULL", "ABSENT")})
    keys = []
    for key in pairs[::2]:
        if not isinstance(key, Constant) or not isinstance(key.value, str):
            raise OperandsRefused("the keys are literals: KEY 'name' VALUE x")
        keys.append(key.value)
    values, raw = _values(pairs[1::2])
    if not values:
        return Constant(rules.with_null(rules.STRING, False), "{}")
    return operation(
        "JSON_OBJECT", "json_values:json_object", values, rules.STRING, nullable=False, keys=tuple(keys), raw=raw,
        keeps_null=_behaviour(options, "ON NULL", "NULL") == "NULL",
    )  # fmt: skip


@declare("JSON_ARRAY", operands=(0, None))
def _json_array(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    items, options = _options_of(operands, {"ON NULL": ("NULL", "ABSENT")})
    values, raw = _values(items)
    if not values:
        return Constant(rules.with_null(rules.STRING, False), "[]")
    return operation(
        "JSON_ARRAY", "json_values:json_array", values, rules.STRING, nullable=False, raw=raw,
        keeps_null=_behaviour(options, "ON NULL", "ABSENT") == "NULL",
    )  # fmt: skip


@declare("JSON_STRING", operands=1)
def _json_string(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    values, _ = _values(operands)
    return operation("JSON_STRING", "json_values:json_string", values, rules.STRING)


declare_simple("JSON", "json_values:json_", [text], rules.STRING)
declare_simple("JSON_QUOTE", "json_values:json_quote", [text], rules.STRING)
declare_simple("JSON_UNQUOTE", "json_values:json_unquote", [text], rules.STRING)


def _tests_json(kind: str) -> None:
    name = "IS JSON" if kind == "VALUE" else f"IS JSON {kind}"

    @declare(name, operands=1)
    def build(operands: Sequence[RowExpression], session: Session) -> RowExpression:
        operand = text(operands[0], session)
        return operation(name, "json_values:is_json", (operand,), rules.BOOLEAN, nullable=False, kind=kind)


for _kind in ("VALUE", "SCALAR", "ARRAY", "OBJECT"):
    _tests_json(_kind)
