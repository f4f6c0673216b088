"""Queries: SELECT, VALUES, set operations, and what stands behind FROM."""

from __future__ import annotations

from firesteel_sql.parse import expressions
from firesteel_sql.parse import nodes as n
from firesteel_sql.parse.expressions import expression, order_item, window_specification
from firesteel_sql.parse.token_stream import TokenStream
from firesteel_sql.parse.tokens import TokenKind


def query(tokens: TokenStream) -> n.Query:
    """Read a query.

    Raises:
        SqlError: there is none, or it is wrong.
    """
    with tokens.level():
        return _query(tokens)


def _query(tokens: TokenStream) -> n.Query:
    at = tokens.next.start
    common_tables: tuple[n.CommonTable, ...] = ()
    is_recursive = False
    if tokens.take_word("WITH"):
        is_recursive = tokens.take_word("RECURSIVE")
        common_tables = tokens.list_of(_common_table)
    body = _set_operation(tokens)
    order_by = tokens.list_of(order_item) if tokens.take_word("ORDER", "BY") else ()
    limit, offset = _limit_and_offset(tokens)
    if isinstance(body, n.NestedQuery) and not (common_tables or order_by or limit or offset):
        return body.query
    return n.Query(body, common_tables, is_recursive, order_by, limit, offset, at=at)


def _common_table(tokens: TokenStream) -> n.CommonTable:
    at = tokens.next.start
    name = tokens.name()
    columns = () if tokens.is_sign("(") and tokens.after(1).value == "SELECT" else _column_names(tokens)
    if not tokens.take_word("AS"):
        tokens.fail("AS is missing: WITH name AS (SELECT ...)")
    if not tokens.is_sign("("):
        tokens.fail("the query behind AS stands in parentheses: WITH name AS (SELECT ...)")
    return n.CommonTable(name, tokens.in_parentheses(query), columns, at=at)


def _column_names(tokens: TokenStream) -> tuple[str, ...]:
    return tokens.in_parentheses(names) if tokens.is_sign("(") else ()


def names(tokens: TokenStream) -> tuple[str, ...]:
    """Read one name or more, with commas between them.

    Raises:
        SqlError: something else comes next.
    """
    return tokens.list_of(TokenStream.name)


def _limit_and_offset(tokens: TokenStream) -> tuple[n.ValueExpression | None, n.ValueExpression | None]:
    limit = offset = None
    while True:
        if limit is None and tokens.take_word("LIMIT"):
            limit = None if tokens.take_word("ALL") else expression(tokens)
            if tokens.is_sign(","):
                tokens.fail_at(tokens.next, "the rows to leave out are written with OFFSET: LIMIT 10 OFFSET 5")
        elif offset is None and tokens.take_word("OFFSET"):
            offset = expression(tokens)
            tokens.take_one_of("ROW", "ROWS")
        elif limit is None and tokens.take_word("FETCH"):
            at = tokens.next.start
            tokens.expect_one_of("FIRST", "NEXT")
            limit = n.NumberLiteral("1", at=at) if tokens.is_one_of(("ROW", "ROWS")) else expression(tokens)
            tokens.expect_one_of("ROW", "ROWS")
            tokens.expect_word("ONLY")
        else:
            return limit, offset


# -- set operations


def _set_operation(tokens: TokenStream) -> n.QueryBody:
    left = _intersection(tokens)
    while (word := tokens.take_one_of("UNION", "EXCEPT", "MINUS")) is not None:
        operator = "EXCEPT" if word == "MINUS" else word
        keeps_duplicates = tokens.take_one_of("ALL", "DISTINCT") == "ALL"
        left = n.SetOperation(operator, left, _intersection(tokens), keeps_duplicates, at=left.at)
    return left


def _intersection(tokens: TokenStream) -> n.QueryBody:
    left = _simple_body(tokens)
    while tokens.take_word("INTERSECT"):
        keeps_duplicates = tokens.take_one_of("ALL", "DISTINCT") == "ALL"
        left = n.SetOperation("INTERSECT", left, _simple_body(tokens), keeps_duplicates, at=left.at)
    return left


def _simple_body(tokens: TokenStream) -> n.QueryBody:
    at = tokens.next.start
    if tokens.take_sign("("):
        nested = query(tokens)
        tokens.expect_sign(")")
        return n.NestedQuery(nested, at=at)
    if tokens.take_word("VALUES"):
        return n.ValuesClause(tokens.list_of(_row), at=at)
    if tokens.take_word("TABLE"):
        table = n.NamedTable(tokens.path(), at=at)
        return n.Select((n.SelectItem(n.Star(at=at), at=at),), n.Aliased(table, at=at), at=at)
    if tokens.take_word("SELECT"):
        return _select(tokens, at)
    return tokens.fail()


def _row(tokens: TokenStream) -> tuple[n.ValueExpression, ...]:
    value = expression(tokens)
    return value.items if isinstance(value, n.Constructor) and value.kind == "ROW" else (value,)


def _select(tokens: TokenStream, at: int) -> n.Select:
    select_hints = hints(tokens)
    is_distinct = tokens.take_one_of("DISTINCT", "ALL") == "DISTINCT"
    items = tokens.list_of(_select_item)
    if tokens.is_word("INTO"):
        tokens.fail_at(tokens.next, "rows are written by INSERT INTO table SELECT ...")
    source = _sources(tokens) if tokens.take_word("FROM") else None
    where = expression(tokens) if tokens.take_word("WHERE") else None
    group_by = tokens.list_of(_grouping) if tokens.take_word("GROUP", "BY") else None
    having = expression(tokens) if tokens.take_word("HAVING") else None
    windows = tokens.list_of(_named_window) if tokens.take_word("WINDOW") else ()
    qualify = expression(tokens) if tokens.take_word("QUALIFY") else None
    return n.Select(items, source, where, group_by, having, windows, qualify, is_distinct, select_hints, at=at)


def _select_item(tokens: TokenStream) -> n.SelectItem:
    at = tokens.next.start
    if tokens.take_sign("*"):
        tokens.is_word("FROM")
        if tokens.is_word("EXCEPT") and tokens.after(1).value == "(" and tokens.after(2).value not in ("SELECT", "("):
            tokens.fail_at(tokens.next, "columns can't be left out of *: name those that are to be there")
        if tokens.is_name():
            tokens.fail(otherwise="is FROM or a comma missing before it?")
        return n.SelectItem(n.Star(at=at), at=at)
    if tokens.is_word("FROM"):
        hint = " (a comma too many?)" if tokens.last.value == "," else ": SELECT * takes all"
        tokens.fail_at(tokens.next, f"a column is missing before FROM{hint}")
    if tokens.is_word("TOP") and tokens.after(1).kind is TokenKind.NUMBER:
        tokens.fail_at(tokens.next, f"the first rows are taken at the end: LIMIT {tokens.after(1).text}")
    value = expression(tokens)
    if tokens.is_sign(".") and tokens.after(1).value == "*":
        if not isinstance(value, n.ColumnReference):
            tokens.fail()
        tokens.take()
        tokens.take()
        return n.SelectItem(n.Star(value.path, at=at), at=at)
    return n.SelectItem(value, _alias(tokens), at=at)


def _alias(tokens: TokenStream) -> str | None:
    if tokens.take_word("AS"):
        if tokens.is_kind(TokenKind.STRING):
            text = tokens.next.value
            tokens.fail_at(tokens.next, f"a name stands in backquotes, not in quotes: AS `{text}`")
        return tokens.name()
    return tokens.name() if tokens.is_name() else None


def _grouping(tokens: TokenStream) -> n.ValueExpression:
    at = tokens.next.start
    if tokens.is_sign("(") and tokens.after(1).value == ")":
        tokens.take()
        tokens.take()
        return n.GroupingSets("GROUPING SETS", ((),), at=at)
    if tokens.take_word("GROUPING", "SETS"):
        return n.GroupingSets("GROUPING SETS", tokens.in_parentheses(_key_sets), at=at)
    if tokens.is_one_of(("ROLLUP", "CUBE")):
        kind = tokens.take().value
        return n.GroupingSets(kind, tokens.in_parentheses(_key_sets), at=at)
    return expression(tokens)


def _key_sets(tokens: TokenStream) -> tuple[tuple[n.ValueExpression, ...], ...]:
    return tokens.list_of(_key_set)


def _key_set(tokens: TokenStream) -> tuple[n.ValueExpression, ...]:
    if tokens.is_sign("(") and tokens.after(1).value == ")":
        tokens.take()
        tokens.take()
        return ()
    return _row(tokens)


def _named_window(tokens: TokenStream) -> tuple[str, n.WindowSpecification]:
    name = tokens.name()
    tokens.expect_word("AS")
    return name, tokens.in_parentheses(window_specification)


# -- hints


def hints(tokens: TokenStream) -> tuple[n.Hint, ...]:
    """Read the hints ``/*+ OPTIONS('k'='v') */``, if there are any.

    Raises:
        SqlError: they are not written as hints are.
    """
    if not tokens.take_sign("/*+"):
        return ()
    found = tokens.list_of(_hint)
    tokens.expect_sign("*/")
    return found


def _hint(tokens: TokenStream) -> n.Hint:
    at = tokens.next.start
    name = tokens.name().upper()
    arguments: list[str] = []
    options: list[tuple[str, str]] = []
    if tokens.take_sign("("):
        while True:
            key = tokens.take().value if tokens.is_kind(TokenKind.STRING) else ".".join(tokens.path())
            if tokens.take_sign("="):
                value = tokens.take() if tokens.is_kind(TokenKind.NUMBER) else None
                options.append((key, tokens.expect_string() if value is None else value.text))
            else:
                arguments.append(key)
            if not tokens.take_sign(","):
                break
        tokens.expect_sign(")")
    return n.Hint(name, tuple(arguments), tuple(options), at=at)


# -- what stands behind FROM


def _sources(tokens: TokenStream) -> n.TableReference:
    left = _joined(tokens)
    while tokens.take_sign(","):
        left = n.JoinedTable("CROSS", left, _joined(tokens), at=left.at)
    return left


def _joined(tokens: TokenStream) -> n.TableReference:
    left = _factor(tokens)
    while True:
        if tokens.take_word("CROSS", "JOIN"):
            left = n.JoinedTable("CROSS", left, _factor(tokens), at=left.at)
            if tokens.is_word("ON"):
                tokens.fail_at(tokens.next, "CROSS JOIN has no condition: write JOIN ... ON ...")
            continue
        is_natural = tokens.take_word("NATURAL")
        kind = _join_kind(tokens)
        if kind is None:
            if is_natural:
                tokens.fail()
            return left
        right = _factor(tokens)
        condition = None
        using: tuple[str, ...] = ()
        if is_natural:
            pass
        elif tokens.take_word("USING"):
            if not tokens.is_sign("("):
                tokens.fail("the columns of USING stand in parentheses: USING (a, b)")
            using = tokens.in_parentheses(names)
        elif tokens.take_word("ON"):
            condition = expression(tokens)
        else:
            tokens.fail(
                f"a join needs a condition: {'' if kind == 'INNER' else f'{kind} '}JOIN ... ON ..., or CROSS JOIN"
            )
        left = n.JoinedTable(kind, left, right, condition, using, is_natural, at=left.at)


def _join_kind(tokens: TokenStream) -> str | None:
    if tokens.take_word("JOIN"):
        return "INNER"
    if tokens.is_one_of(("LEFT", "RIGHT", "FULL", "INNER")):
        kind = tokens.take().value
        if kind == "LEFT" and (partner := tokens.take_one_of("SEMI", "ANTI")):
            kind = f"LEFT {partner}"
        elif kind != "INNER":
            tokens.take_word("OUTER")
        tokens.expect_word("JOIN")
        return kind
    return None


def _factor(tokens: TokenStream) -> n.TableReference:
    at = tokens.next.start
    if tokens.is_sign("(") and not tokens.begins_query():
        inner = tokens.in_parentheses(_sources)  # joins in parentheses
        return _aliased(tokens, inner, at) if tokens.is_word("AS") or tokens.is_name() else inner
    return _aliased(tokens, _primary(tokens), at)


def _aliased(tokens: TokenStream, source: n.TableReference, at: int) -> n.Aliased:
    as_of = None
    if tokens.take_word("FOR"):
        if tokens.is_word("UPDATE"):
            tokens.fail_at(tokens.next, "rows can't be locked: leave FOR UPDATE out")
        tokens.expect_word("SYSTEM_TIME", "AS", "OF")
        as_of = expression(tokens)
    if tokens.is_word("MATCH_RECOGNIZE"):
        tokens.fail_at(tokens.next, "MATCH_RECOGNIZE is not supported yet")
    alias = _alias(tokens)
    return n.Aliased(source, alias, _column_names(tokens) if alias is not None else (), as_of, at=at)


def _primary(tokens: TokenStream) -> n.TableReference:
    at = tokens.next.start
    if tokens.is_sign("("):
        return n.DerivedTable(tokens.in_parentheses(query), at=at)
    is_lateral = tokens.take_word("LATERAL")
    if is_lateral and tokens.is_sign("("):
        return n.DerivedTable(tokens.in_parentheses(query), True, at=at)
    if tokens.is_word("UNNEST"):
        tokens.take()
        collections = tokens.in_parentheses(lambda inner: inner.list_of(expression))
        return n.UnnestedTable(collections, tokens.take_word("WITH", "ORDINALITY"), at=at)
    if tokens.is_word("TABLE"):
        tokens.take()
        return n.TableFunction(tokens.in_parentheses(_table_call), is_lateral, at=at)
    begin = tokens.next.start
    if tokens.is_at_end():
        tokens.fail("a table has to stand here, or a query in parentheses")
    path = tokens.path()
    if tokens.is_sign("("):
        return n.TableFunction(expressions.call(tokens, path, begin), is_lateral, at=at)
    if is_lateral:
        tokens.fail_at(tokens.next, "LATERAL stands before a query in parentheses, TABLE(...) or UNNEST(...)")
    return n.NamedTable(path, hints(tokens), at=at)


def _table_call(tokens: TokenStream) -> n.Call:
    at = tokens.next.start
    return expressions.call(tokens, tokens.path(), at)
