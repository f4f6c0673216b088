"""Expressions, by descent from the operators that bind least to those that bind most."""

from __future__ import annotations

from typing import Final

from firesteel_sql.parse import json_calls
from firesteel_sql.parse import nodes as n
from firesteel_sql.parse.reserved_words import RESERVED
from firesteel_sql.parse.token_stream import NEVER_NAMES, TokenStream
from firesteel_sql.parse.tokens import SqlToken, TokenKind
from firesteel_sql.parse.types import interval_unit, type_spec, unit

_COMPARISONS: Final = ("=", "<>", "<=", ">=", "<", ">")
_CALLABLE: Final = frozenset({"LEFT", "RIGHT", "GROUPING", "TRUNCATE"})
"""Reserved words that are functions, too."""


def expression(tokens: TokenStream) -> n.ValueExpression:
    """Read an expression.

    Raises:
        SqlError: there is none, or it ends too early.
    """
    with tokens.level():
        return _disjunction(tokens)


def _disjunction(tokens: TokenStream) -> n.ValueExpression:
    parts = [_conjunction(tokens)]
    while tokens.take_word("OR"):
        parts.append(_conjunction(tokens))
    return _connected("OR", parts)


def _conjunction(tokens: TokenStream) -> n.ValueExpression:
    parts = [_negation(tokens)]
    while tokens.take_word("AND"):
        parts.append(_negation(tokens))
    return _connected("AND", parts)


def _connected(word: str, parts: list[n.ValueExpression]) -> n.ValueExpression:
    """The parts, halved again and again: programs write conditions of a thousand parts, which makes ten levels."""
    if len(parts) == 1:
        return parts[0]
    middle = (len(parts) + 1) // 2
    return n.Binary(word, _connected(word, parts[:middle]), _connected(word, parts[middle:]), at=parts[0].at)


def _negation(tokens: TokenStream) -> n.ValueExpression:
    begins = []
    while tokens.is_word("NOT"):
        begins.append(tokens.take().start)
    operand = _predicate(tokens)
    for at in reversed(begins):
        operand = n.Unary("NOT", operand, at=at)
    return operand


# -- predicates


def _predicate(tokens: TokenStream) -> n.ValueExpression:
    left = _sum(tokens)
    while True:
        sign = next((sign for sign in _COMPARISONS if tokens.is_sign(sign)), None)
        if sign is not None:
            tokens.take()
            left = _compared(tokens, sign, left)
        elif tokens.take_word("IS"):
            left = _is_test(tokens, left)
        elif tokens.is_word("NOT") or tokens.is_one_of(("BETWEEN", "IN", "LIKE", "SIMILAR", "RLIKE")):
            left = _negatable(tokens, left)
        elif _is_period(left) and tokens.take_word("OVERLAPS"):
            right = _sum(tokens)
            if not _is_period(right):
                tokens.fail_at(tokens.next, "a period has to stand here: (start, end)")
            assert isinstance(left, n.Constructor)
            assert isinstance(right, n.Constructor)
            left = n.Call(("OVERLAPS",), (*left.items, *right.items), at=left.at)
        elif tokens.next.value == "=>" and tokens.next.kind is TokenKind.SIGN:
            tokens.fail_at(tokens.next, "greater or equal is written >=")
        else:
            return left


def _is_period(node: n.ValueExpression) -> bool:
    return isinstance(node, n.Constructor) and node.kind == "ROW" and len(node.items) == 2


def _compared(tokens: TokenStream, sign: str, left: n.ValueExpression) -> n.ValueExpression:
    if sign == "=" and tokens.is_sign("="):
        tokens.fail_at(tokens.next, "equality is written with a single =")
    if sign == "=" and tokens.is_sign("<"):
        tokens.fail_at(tokens.next, "less or equal is written <=")
    if sign == "<=" and tokens.is_sign(">"):
        tokens.fail_at(tokens.next, "<=> has no meaning in Flink's SQL: write IS NOT DISTINCT FROM")
    if tokens.is_one_of(("ANY", "SOME", "ALL")) and tokens.after(1).value == "(":
        quantifier = tokens.take().value
        found = tokens.in_parentheses(_query_or_list)
        return n.Quantified(sign, left, "ALL" if quantifier == "ALL" else "ANY", found, at=left.at)
    return n.Binary(sign, left, _sum(tokens), at=left.at)


def _query_or_list(tokens: TokenStream) -> n.Query | tuple[n.ValueExpression, ...]:
    return tokens.query() if tokens.begins_query() else tokens.list_of(expression)


def _is_test(tokens: TokenStream, left: n.ValueExpression) -> n.ValueExpression:
    is_negated = tokens.take_word("NOT")
    if tokens.take_word("DISTINCT", "FROM"):
        return n.IsDistinct(left, _sum(tokens), is_negated, at=left.at)
    test = tokens.expect_one_of("NULL", "TRUE", "FALSE", "UNKNOWN", "JSON")
    if test == "JSON" and (kind := tokens.take_one_of("VALUE", "OBJECT", "ARRAY", "SCALAR")):
        test = f"JSON {kind}"
    return n.IsTest(left, test, is_negated, at=left.at)


def _negatable(tokens: TokenStream, left: n.ValueExpression) -> n.ValueExpression:
    is_negated = tokens.take_word("NOT")
    if is_negated and tokens.is_word("NULL"):
        tokens.fail_at(tokens.next, "IS is missing: x IS NOT NULL")
    kind = tokens.expect_one_of("BETWEEN", "IN", "LIKE", "SIMILAR", "RLIKE")
    if kind == "BETWEEN":
        symmetric = tokens.take_one_of("SYMMETRIC", "ASYMMETRIC") == "SYMMETRIC"
        low = _sum(tokens)
        if not tokens.take_word("AND"):
            tokens.fail("the bounds of BETWEEN have AND between them: x BETWEEN 1 AND 5")
        return n.Between(left, low, _sum(tokens), is_negated, symmetric, at=left.at)
    if kind == "IN":
        if tokens.is_sign("(") and tokens.after(1).value == ")":
            tokens.fail_at(tokens.after(1), "the list of IN is empty: it needs a value")
        if not tokens.is_sign("("):
            tokens.fail("IN needs a list or a query in parentheses")
        found = tokens.in_parentheses(_query_or_list)
        if isinstance(found, n.Query):
            return n.InQuery(left, found, is_negated, at=left.at)
        return n.InList(left, found, is_negated, at=left.at)
    if kind == "SIMILAR":
        tokens.expect_word("TO")
    pattern = _sum(tokens)
    escape = _sum(tokens) if kind != "RLIKE" and tokens.take_word("ESCAPE") else None
    return n.Like(kind, left, pattern, escape, is_negated, at=left.at)


# -- arithmetic


def _sum(tokens: TokenStream) -> n.ValueExpression:
    left = _product(tokens)
    while (sign := _sign_of(tokens, ("+", "-", "||"))) is not None:
        left = n.Binary(sign, left, _product(tokens), at=left.at)
    return left


def _product(tokens: TokenStream) -> n.ValueExpression:
    left = _signed(tokens)
    while (sign := _sign_of(tokens, ("*", "/", "%"))) is not None:
        if sign == "/" and tokens.is_sign("/") and tokens.last_end == tokens.next.start:
            tokens.fail_at(tokens.next, "a comment begins with --, or stands between /* and */")
        left = n.Binary(sign, left, _signed(tokens), at=left.at)
    return left


def _sign_of(tokens: TokenStream, signs: tuple[str, ...]) -> str | None:
    sign = next((sign for sign in signs if tokens.is_sign(sign)), None)
    if sign is not None:
        tokens.take()
    return sign


def _signed(tokens: TokenStream) -> n.ValueExpression:
    signs: list[SqlToken] = []
    while tokens.is_sign("-") or tokens.is_sign("+"):
        signs.append(tokens.take())
    operand = _postfix(tokens)
    for token in reversed(signs):
        operand = n.Unary(token.value, operand, at=token.start)
    return operand


def _postfix(tokens: TokenStream) -> n.ValueExpression:
    operand = _primary(tokens)
    while True:
        if tokens.take_sign("["):
            index = expression(tokens)
            tokens.expect_sign("]")
            operand = n.Element(operand, index, at=operand.at)
        elif tokens.is_sign(".") and tokens.after(1).value != "*":
            tokens.take()
            operand = n.Member(operand, tokens.name(), at=operand.at)
        elif tokens.take_word("AT", "TIME", "ZONE"):
            operand = n.AtTimeZone(operand, _primary(tokens), at=operand.at)
        else:
            return operand


# -- what stands alone


def _primary(tokens: TokenStream) -> n.ValueExpression:
    token = tokens.next
    at = token.start
    if token.kind is TokenKind.NUMBER:
        return n.NumberLiteral(tokens.take().text, at=at)
    if token.kind is TokenKind.STRING:
        text = tokens.take().value
        while tokens.next.kind is TokenKind.STRING:  # 'a' 'b' is one text, as in the SQL standard
            text += tokens.take().value
        return n.StringLiteral(text, at=at)
    if token.kind is TokenKind.BINARY:
        return n.BinaryLiteral(bytes.fromhex(tokens.take().value), at=at)
    if tokens.is_sign("("):
        return _in_parentheses(tokens)
    if token.kind is TokenKind.QUOTED_NAME:
        return _named(tokens)
    if token.kind is TokenKind.WORD:
        read = _BY_WORD.get(token.value)
        found = None if read is None else read(tokens)
        if found is not None:
            return found
        if token.value not in RESERVED or (token.value in _CALLABLE and tokens.after(1).value == "("):
            return _named(tokens)
    return tokens.fail(_missing_expression(tokens), otherwise="an expression has to stand here")


def _missing_expression(tokens: TokenStream) -> str:
    token = tokens.next
    if token.kind is TokenKind.WORD and token.value == "SELECT":
        return "a query within an expression stands in parentheses, and `select` as a name in backquotes"
    if token.kind is TokenKind.WORD and token.value in NEVER_NAMES:
        return "an expression is missing before it"
    if token.value in RESERVED and token.kind is TokenKind.WORD:
        return (
            f"an expression is missing before it ({token.text} is a reserved word: as a name it has to stand in "
            f"backquotes, `{token.text}`)"
        )
    if token.value == ",":
        return "an expression is missing before it (a comma too many?)"
    if token.value == "[":
        return "an array is written ARRAY[1, 2], a name in `backquotes`"
    return ""


def _in_parentheses(tokens: TokenStream) -> n.ValueExpression:
    at = tokens.take().start
    if tokens.begins_query():
        query = tokens.query()
        tokens.expect_sign(")")
        return n.ScalarQuery(query, at=at)
    items = tokens.list_of(expression)
    tokens.expect_sign(")")
    return items[0] if len(items) == 1 else n.Constructor("ROW", items, at=at)


def _named(tokens: TokenStream) -> n.ValueExpression:
    """A column or a call of a function."""
    at = tokens.next.start
    first = tokens.take()
    path = [first.value if first.kind is TokenKind.QUOTED_NAME else first.text]
    while tokens.is_sign(".") and tokens.after(1).value != "*":
        tokens.take()
        path.append(tokens.name())
    if tokens.is_sign("("):
        return call(tokens, tuple(path), at)
    return n.ColumnReference(tuple(path), at=at)


def call(tokens: TokenStream, function: n.Path, at: int) -> n.Call:
    """Read the arguments of a function, and what may stand behind them.

    Raises:
        SqlError: they are not written as arguments are.
    """
    tokens.expect_sign("(")
    is_distinct = False
    arguments: tuple[n.ValueExpression, ...] = ()
    order_by: tuple[n.OrderItem, ...] = ()
    if tokens.is_sign("*"):
        arguments = (n.Star(at=tokens.take().start),)
    elif not tokens.is_sign(")"):
        is_distinct = tokens.take_one_of("DISTINCT", "ALL") == "DISTINCT"
        arguments = tokens.list_of(argument)
        if tokens.take_word("ORDER", "BY"):
            order_by = tokens.list_of(order_item)
    tokens.expect_sign(")")
    return _suffixed(tokens, n.Call(function, arguments, is_distinct, order_by, at=at))


def _suffixed(tokens: TokenStream, bare: n.Call) -> n.Call:
    order_by, condition, ignores_nulls, over = bare.order_by, None, None, None
    while True:
        if tokens.is_word("FILTER") and tokens.after(1).value == "(":
            tokens.take()
            tokens.expect_sign("(")
            tokens.expect_word("WHERE")
            condition = expression(tokens)
            tokens.expect_sign(")")
        elif tokens.take_word("WITHIN", "GROUP"):
            tokens.expect_sign("(")
            tokens.expect_word("ORDER", "BY")
            order_by = tokens.list_of(order_item)
            tokens.expect_sign(")")
        elif tokens.is_word("IGNORE", "NULLS") or tokens.is_word("RESPECT", "NULLS"):
            ignores_nulls = tokens.take().value == "IGNORE"
            tokens.take()
        elif tokens.take_word("OVER"):
            over = over_window(tokens)
        else:
            return n.Call(
                bare.function, bare.arguments, bare.is_distinct, order_by, condition, ignores_nulls, over, at=bare.at
            )


def argument(tokens: TokenStream) -> n.ValueExpression:
    """Read an argument: an expression, ``NAME => value``, a table or a descriptor.

    Raises:
        SqlError: there is none.
    """
    at = tokens.next.start
    if tokens.is_name() and tokens.after(1).value == "=>":
        name = tokens.name()
        tokens.take()
        return n.NamedArgument(name, argument(tokens), at=at)
    if tokens.is_word("TABLE"):
        tokens.take()
        table = tokens.in_parentheses(TokenStream.query) if tokens.is_sign("(") else tokens.path()
        return _partitioned(tokens, table, at)
    if tokens.is_word("DESCRIPTOR") and tokens.after(1).value == "(":
        tokens.take()
        return n.Descriptor(tokens.in_parentheses(lambda inner: inner.list_of(TokenStream.name)), at=at)
    if tokens.is_word("DEFAULT"):
        tokens.take()
        return n.DefaultArgument(at=at)
    value = expression(tokens)
    if isinstance(value, n.ScalarQuery) and tokens.is_one_of(("PARTITION", "ORDER")):
        return _partitioned(tokens, value.query, at)
    return value


def _partitioned(tokens: TokenStream, table: n.Path | n.Query, at: int) -> n.TableArgument:
    partition_by: tuple[n.ValueExpression, ...] = ()
    if tokens.take_word("PARTITION", "BY"):
        key = expression(tokens)
        partition_by = key.items if isinstance(key, n.Constructor) and key.kind == "ROW" else (key,)
    order_by = (order_item(tokens),) if tokens.take_word("ORDER", "BY") else ()
    return n.TableArgument(table, partition_by, order_by, at=at)


def order_item(tokens: TokenStream) -> n.OrderItem:
    """Read a part of ORDER BY.

    Raises:
        SqlError: there is none.
    """
    at = tokens.next.start
    by = expression(tokens)
    is_descending = tokens.take_one_of("ASC", "DESC") == "DESC"
    nulls_first = None
    if tokens.take_word("NULLS"):
        nulls_first = tokens.expect_one_of("FIRST", "LAST") == "FIRST"
    return n.OrderItem(by, is_descending, nulls_first, at=at)


# -- windows of OVER


def over_window(tokens: TokenStream) -> n.WindowSpecification:
    """Read what stands behind OVER: a name, or a specification in parentheses.

    Raises:
        SqlError: there is neither.
    """
    at = tokens.next.start
    if not tokens.is_sign("("):
        return n.WindowSpecification(tokens.name(), at=at)
    return tokens.in_parentheses(window_specification)


def window_specification(tokens: TokenStream) -> n.WindowSpecification:
    """Read ``base PARTITION BY ... ORDER BY ... ROWS BETWEEN ... AND ...``.

    Raises:
        SqlError: a part of it is wrong.
    """
    at = tokens.next.start
    is_base = tokens.is_name() and not tokens.is_word("RANGE")
    base = tokens.name() if is_base else None
    partition_by = tokens.list_of(expression) if tokens.take_word("PARTITION", "BY") else ()
    order_by = tokens.list_of(order_item) if tokens.take_word("ORDER", "BY") else ()
    frame_unit = tokens.take_one_of("ROWS", "RANGE")
    start = end = None
    if frame_unit is not None:
        if tokens.take_word("BETWEEN"):
            start = _frame_bound(tokens)
            tokens.expect_word("AND")
            end = _frame_bound(tokens)
        else:
            start = _frame_bound(tokens)
    return n.WindowSpecification(base, partition_by, order_by, frame_unit, start, end, at=at)


def _frame_bound(tokens: TokenStream) -> n.FrameBound:
    at = tokens.next.start
    if tokens.take_word("CURRENT", "ROW"):
        return n.FrameBound("CURRENT ROW", at=at)
    distance = None if tokens.take_word("UNBOUNDED") else _sum(tokens)
    return n.FrameBound(tokens.expect_one_of("PRECEDING", "FOLLOWING"), distance, at=at)


# -- what begins with a word of its own


def _constant(tokens: TokenStream) -> n.ValueExpression:
    token = tokens.take()
    match token.value:
        case "TRUE":
            return n.BooleanLiteral(True, at=token.start)
        case "FALSE":
            return n.BooleanLiteral(False, at=token.start)
        case "UNKNOWN":
            return n.BooleanLiteral(None, at=token.start)
        case _:
            return n.NullLiteral(at=token.start)


def _time_literal(tokens: TokenStream) -> n.ValueExpression | None:
    if tokens.after(1).kind is not TokenKind.STRING:
        return None
    token = tokens.take()
    return n.TimeLiteral(token.value, tokens.take().value, at=token.start)


def _interval(tokens: TokenStream) -> n.ValueExpression:
    at = tokens.take().start
    is_negative = False
    if tokens.is_sign("-") or tokens.is_sign("+"):
        is_negative = tokens.take().value == "-"
    if tokens.next.kind is TokenKind.STRING:
        text = tokens.take().value
        return n.IntervalLiteral(text, interval_unit(tokens), is_negative, at=at)
    if tokens.next.kind is TokenKind.NUMBER:
        count: n.ValueExpression = n.NumberLiteral(tokens.next.text, at=tokens.take().start)
    elif tokens.is_sign("("):
        count = tokens.in_parentheses(expression)
    else:
        count = n.ColumnReference(tokens.path(), at=at)
    if is_negative:
        count = n.Unary("-", count, at=at)
    return n.ComputedInterval(count, interval_unit(tokens), at=at)


def _case(tokens: TokenStream) -> n.ValueExpression:
    at = tokens.take().start
    operand = None if tokens.is_word("WHEN") else expression(tokens)
    whens: list[n.WhenClause] = []
    while tokens.is_word("WHEN"):
        begin = tokens.take().start
        condition = expression(tokens)
        tokens.expect_word("THEN")
        whens.append(n.WhenClause(condition, expression(tokens), at=begin))
    if not whens:
        tokens.fail()
    otherwise = expression(tokens) if tokens.take_word("ELSE") else None
    tokens.expect_word("END")
    return n.Case(operand, tuple(whens), otherwise, at=at)


def _cast(tokens: TokenStream) -> n.ValueExpression:
    token = tokens.take()
    tokens.expect_sign("(")
    operand = expression(tokens)
    if not tokens.take_word("AS"):
        tokens.fail(f"AS is missing: {token.value}(x AS type)")
    spec = type_spec(tokens)
    tokens.expect_sign(")")
    return n.Cast(operand, spec, token.value == "TRY_CAST", at=token.start)


def _exists(tokens: TokenStream) -> n.ValueExpression:
    at = tokens.take().start
    if not tokens.is_sign("("):
        tokens.fail("the query of EXISTS stands in parentheses: EXISTS (SELECT ...)")
    return n.Exists(tokens.in_parentheses(TokenStream.query), at=at)


def _constructor(tokens: TokenStream) -> n.ValueExpression | None:
    kind = tokens.next.value
    opening = tokens.after(1).value
    at = tokens.next.start
    if kind == "ROW" and opening == "(":
        tokens.take()
        return n.Constructor(kind, _bracketed(tokens, "(", ")"), at=at)
    if kind in ("ARRAY", "MULTISET") and opening == "(":
        tokens.take()
        return n.CollectionQuery(kind, tokens.in_parentheses(TokenStream.query), at=at)
    if kind != "ROW" and opening == "[":
        tokens.take()
        return n.Constructor(kind, _bracketed(tokens, "[", "]"), at=at)
    return None


def _bracketed(tokens: TokenStream, opening: str, closing: str) -> tuple[n.ValueExpression, ...]:
    tokens.expect_sign(opening)
    items = () if tokens.is_sign(closing) else tokens.list_of(expression)
    tokens.expect_sign(closing)
    return items


def _extract(tokens: TokenStream) -> n.ValueExpression | None:
    if tokens.after(1).value != "(":
        return None
    token = tokens.take()
    tokens.expect_sign("(")
    symbol = _symbol(tokens)
    if not tokens.take_word("FROM"):
        tokens.fail("EXTRACT is written with FROM: EXTRACT(DAY FROM ts)")
    operand = expression(tokens)
    tokens.expect_sign(")")
    return n.Call((token.text,), (symbol, operand), at=token.start)


def _symbol(tokens: TokenStream) -> n.Symbol:
    at = tokens.next.start
    return n.Symbol(unit(tokens), at=at)


def _rounded(tokens: TokenStream) -> n.ValueExpression | None:
    """``CEIL(x)``, ``FLOOR(ts TO DAY)``."""
    if tokens.after(1).value != "(":
        return None
    token = tokens.take()
    tokens.expect_sign("(")
    arguments: list[n.ValueExpression] = [*tokens.list_of(expression)]
    if tokens.take_word("TO"):
        arguments.append(_symbol(tokens))
    tokens.expect_sign(")")
    return n.Call((token.text,), tuple(arguments), at=token.start)


def _timestamp_call(tokens: TokenStream) -> n.ValueExpression | None:
    """``TIMESTAMPADD(DAY, 1, ts)``, ``TIMESTAMPDIFF(SECOND, a, b)``."""
    if tokens.after(1).value != "(":
        return None
    token = tokens.take()
    tokens.expect_sign("(")
    arguments: list[n.ValueExpression] = [_symbol(tokens)]
    for _ in range(2):
        tokens.expect_sign(",")
        arguments.append(expression(tokens))
    tokens.expect_sign(")")
    return n.Call((token.text,), tuple(arguments), at=token.start)


def _trim(tokens: TokenStream) -> n.ValueExpression | None:
    """``TRIM(x)``, ``TRIM(BOTH 'a' FROM x)``; always three arguments: which side, what, and from where."""
    if tokens.after(1).value != "(":
        return None
    token = tokens.take()
    tokens.expect_sign("(")
    side = n.Symbol(tokens.take_one_of("BOTH", "LEADING", "TRAILING") or "BOTH", at=token.start)
    what: n.ValueExpression = n.StringLiteral(" ", at=token.start)
    if tokens.take_word("FROM"):
        operand = expression(tokens)
    else:
        operand = expression(tokens)
        if tokens.take_word("FROM"):
            what, operand = operand, expression(tokens)
    tokens.expect_sign(")")
    return n.Call((token.text,), (side, what, operand), at=token.start)


def _position(tokens: TokenStream) -> n.ValueExpression | None:
    """``POSITION(part IN text [FROM 2])``."""
    if tokens.after(1).value != "(":
        return None
    token = tokens.take()
    tokens.expect_sign("(")
    arguments = [_sum(tokens)]
    if not tokens.take_word("IN"):
        tokens.fail(f"{token.value} is written with IN: POSITION('a' IN text)")
    arguments.append(_sum(tokens))
    if tokens.take_word("FROM"):
        arguments.append(_sum(tokens))
    tokens.expect_sign(")")
    return n.Call((token.text,), tuple(arguments), at=token.start)


def _substring(tokens: TokenStream) -> n.ValueExpression | None:
    """``SUBSTRING(x FROM 2 FOR 3)``, ``SUBSTRING(x, 2, 3)``; ``OVERLAY(x PLACING y FROM 2 FOR 3)`` likewise."""
    if tokens.after(1).value != "(":
        return None
    token = tokens.take()
    tokens.expect_sign("(")
    arguments: list[n.ValueExpression] = [*tokens.list_of(expression)]
    for word in ("PLACING", "FROM", "FOR"):
        if len(arguments) < 4 and tokens.take_word(word):
            arguments.append(expression(tokens))
    tokens.expect_sign(")")
    return n.Call((token.text,), tuple(arguments), at=token.start)


def _json_call(tokens: TokenStream) -> n.ValueExpression | None:
    if tokens.after(1).value != "(":
        return None
    token = tokens.take()
    arguments = json_calls.arguments(tokens, token.value, expression)
    return _suffixed(tokens, n.Call((token.text,), arguments, at=token.start))


_BY_WORD: Final = {
    **dict.fromkeys(("TRUE", "FALSE", "UNKNOWN", "NULL"), _constant),
    **dict.fromkeys(("DATE", "TIME", "TIMESTAMP"), _time_literal),
    "INTERVAL": _interval,
    "CASE": _case,
    **dict.fromkeys(("CAST", "TRY_CAST"), _cast),
    "EXISTS": _exists,
    **dict.fromkeys(("ROW", "ARRAY", "MULTISET", "MAP"), _constructor),
    "EXTRACT": _extract,
    **dict.fromkeys(("CEIL", "CEILING", "FLOOR"), _rounded),
    **dict.fromkeys(("TIMESTAMPADD", "TIMESTAMPDIFF"), _timestamp_call),
    "TRIM": _trim,
    "POSITION": _position,
    **dict.fromkeys(("SUBSTRING", "OVERLAY"), _substring),
    **dict.fromkeys(
        ("JSON_VALUE", "JSON_QUERY", "JSON_EXISTS", "JSON_OBJECT", "JSON_OBJECTAGG", "JSON_ARRAY", "JSON_ARRAYAGG"),
        _json_call,
    ),
}
"""What a word begins; one that finds something else (a column called ``date``) returns None."""
