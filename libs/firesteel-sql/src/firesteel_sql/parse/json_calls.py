"""Arguments of the JSON functions, which have words between them."""

from __future__ import annotations

from collections.abc import Callable

from firesteel_sql.parse import nodes as n
from firesteel_sql.parse.token_stream import TokenStream
from firesteel_sql.parse.types import type_spec

ReadExpression = Callable[[TokenStream], n.ValueExpression]


def arguments(tokens: TokenStream, function: str, expression: ReadExpression) -> tuple[n.ValueExpression, ...]:
    """Read the arguments of a JSON function, in their parentheses.

    Args:
        tokens: at the opening parenthesis.
        function: name of the function in upper case.
        expression: reads an expression.

    Raises:
        SqlError: they are not written as this function needs them.
    """
    tokens.expect_sign("(")
    found: list[n.ValueExpression] = []
    if function in ("JSON_OBJECT", "JSON_OBJECTAGG", "JSON_ARRAY", "JSON_ARRAYAGG"):
        if not tokens.is_sign(")") and not _is_nulls(tokens):
            is_object = function.startswith("JSON_OBJECT")
            found += (
                tokens.list_of(lambda inner: _entry(inner, expression)) if is_object else tokens.list_of(expression)
            )
        if _is_nulls(tokens):
            at = tokens.next.start
            found.append(n.JsonClause("ON NULL", tokens.take().value, at=at))
            tokens.expect_word("ON", "NULL")
    else:
        found += tokens.list_of(expression)
        while not tokens.is_sign(")"):
            found.append(_clause(tokens, expression))
    tokens.expect_sign(")")
    return tuple(found)


def _is_nulls(tokens: TokenStream) -> bool:
    return tokens.is_word("NULL", "ON", "NULL") or tokens.is_word("ABSENT", "ON", "NULL")


def _entry(tokens: TokenStream, expression: ReadExpression) -> n.JsonEntry:
    """``KEY 'k' VALUE v``, ``'k' VALUE v`` or ``'k' : v``."""
    at = tokens.next.start
    tokens.take_word("KEY")
    key = expression(tokens)
    if not tokens.take_word("VALUE"):
        tokens.expect_sign(":")
    return n.JsonEntry(key, expression(tokens), at=at)


def _clause(tokens: TokenStream, expression: ReadExpression) -> n.JsonClause:
    at = tokens.next.start
    if tokens.take_word("RETURNING"):
        return n.JsonClause("RETURNING", type=type_spec(tokens), at=at)
    if tokens.is_one_of(("WITH", "WITHOUT")):
        behaviour = tokens.take().value
        if behaviour == "WITH" and (how := tokens.take_one_of("CONDITIONAL", "UNCONDITIONAL")):
            behaviour = f"WITH {how}"
        tokens.take_word("ARRAY")
        tokens.expect_word("WRAPPER")
        return n.JsonClause("WRAPPER", behaviour, at=at)
    default = None
    behaviour = tokens.expect_one_of("NULL", "ERROR", "TRUE", "FALSE", "UNKNOWN", "EMPTY", "DEFAULT")
    if behaviour == "EMPTY":
        behaviour = f"EMPTY {tokens.expect_one_of('ARRAY', 'OBJECT')}"
    elif behaviour == "DEFAULT":
        default = expression(tokens)
    tokens.expect_word("ON")
    return n.JsonClause(f"ON {tokens.expect_one_of('EMPTY', 'ERROR')}", behaviour, default, at=at)
