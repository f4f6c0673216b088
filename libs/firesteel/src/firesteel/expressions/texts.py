"""Expressions as text, for errors and plans: as a program writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from firesteel.common.time import Instant
from firesteel.common.type_table import Shape, field_names, parts_of, row_of
from firesteel.common.typeinfo import ExternalTypeInfo, TypeInformation


class ExpressionNode(Protocol):
    """What an expression shows of itself to whoever writes it as text."""

    @property
    def function(self) -> str: ...

    @property
    def inputs(self) -> Sequence[ExpressionNode]: ...

    @property
    def options(self) -> Mapping[str, Any]:
        """Constants of the function."""


_INFIX = frozenset(("+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "&", "|", "^"))
_PREFIX = {"negate": "-", "not": "~"}
_OF_TEXT = frozenset(
    ("length", "lower", "upper", "strip", "contains", "starts_with", "ends_with", "matches", "replace", "slice")
)
_OF_TIMES = frozenset(("date_part", "date", "truncate", "epoch_millis"))
Write = Callable[[Any], str]


def text_of(e: ExpressionNode) -> str:
    """What a program writes for it: with ``from firesteel.expressions import *`` it gives the same expression."""
    return _text(e, lambda name: f"col({name!r})", lambda value: f"lit({_constant(value)})")


def name_of(e: ExpressionNode) -> str:
    """What the result of an expression without an alias is called: ``price % 10``."""
    text = _text(e, str, _constant)
    return text[1:-1] if e.function in _INFIX else text


def _text(e: ExpressionNode, column: Write, constant: Write) -> str:
    if e.function == "column":
        return column(e.options["name"])
    if e.function == "literal":
        return constant(e.options["value"])
    if "text" in e.options:  # functions of SQL say how they were written
        return str(e.options["text"])

    def operand(part: ExpressionNode) -> str:
        """What may be a constant as it is."""
        return _constant(part.options["value"]) if part.function == "literal" else _text(part, column, constant)

    def owner(part: ExpressionNode) -> str:
        """What a method or a power can follow."""
        text = _text(part, column, constant)
        return f"({text})" if part.function in _PREFIX else text

    if e.function in _INFIX:
        base = owner(e.inputs[0]) if e.function == "**" else _text(e.inputs[0], column, constant)
        return f"({base} {e.function} {operand(e.inputs[1])})"
    if e.function in _PREFIX:
        return f"{_PREFIX[e.function]}{_text(e.inputs[0], column, constant)}"
    if e.function == "when":
        *branches, last = map(operand, e.inputs)
        chosen = "".join(
            f".when({condition}).then({value})" for condition, value in zip(branches[::2], branches[1::2], strict=True)
        )
        return f"{chosen[1:]}.otherwise({last})"
    if e.function in ("coalesce", "concat"):
        return f"{e.function}({', '.join(map(operand, e.inputs))})"
    if e.function == "is_in":
        return f"{owner(e.inputs[0])}.is_in([{', '.join(map(operand, e.inputs[1:]))}])"
    return f"{owner(e.inputs[0])}.{_method(e)}"


def _method(e: ExpressionNode) -> str:
    """The call of a method of an expression, or of one of its accessors."""
    if e.function == "date_part":
        return f"dt.{e.options['part']}()"
    accessor = "str." if e.function in _OF_TEXT else "dt." if e.function in _OF_TIMES else ""
    arguments = [
        _type(value) if isinstance(value, TypeInformation) else _constant(value) for value in e.options.values()
    ]
    return f"{accessor}{e.function}({', '.join(arguments)})"


def _constant(value: Any) -> str:
    if isinstance(value, float) and value - value != 0:
        return f"float({str(float(value))!r})"
    if isinstance(value, Instant):
        return f"Instant({value.seconds}, {value.nanos})"
    for plain in (bool, int, float, str):
        if isinstance(value, plain):
            return plain.__repr__(value)
    return repr(value)


def _type(type_info: TypeInformation) -> str:
    if isinstance(type_info, ExternalTypeInfo):
        return f"ExternalTypeInfo({_type(type_info.type_info)})"
    row = row_of(type_info)
    parts = list(map(_type, parts_of(type_info)))
    match row.shape:
        case Shape.ROW:
            return f"{row.source}({list(field_names(type_info) or ())!r}, [{', '.join(parts)}])"
        case Shape.TUPLE:
            return f"{row.source}([{', '.join(parts)}])"
        case Shape.MAP | Shape.LIST:
            return f"{row.source}({', '.join(parts)})"
    return row.source or repr(type_info)
