"""CREATE TABLE and ALTER TABLE: columns, watermarks, keys and options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from firesteel_sql.parse import statement_nodes as s
from firesteel_sql.parse.expressions import expression
from firesteel_sql.parse.queries import names
from firesteel_sql.parse.token_stream import TokenStream
from firesteel_sql.parse.tokens import TokenKind
from firesteel_sql.parse.types import type_spec


def options(tokens: TokenStream) -> s.Options:
    """Read ``('key' = 'value', ...)``.

    Raises:
        SqlError: they are not written as options are, or a key stands there twice.
    """
    if not tokens.take_sign("("):
        tokens.fail("options stand in parentheses: ('key' = 'value')")
    found: dict[str, str] = {}
    while not tokens.is_sign(")"):
        begin = tokens.next
        if not tokens.is_kind(TokenKind.STRING):
            tokens.fail("keys of options stand in quotes: 'connector' = 'print'")
        key = tokens.expect_string()
        tokens.expect_sign("=")
        if not tokens.is_kind(TokenKind.STRING):
            tokens.fail("values of options stand in quotes: 'parallelism' = '4'")
        if key in found:
            tokens.fail_at(begin, f"the option '{key}' stands here twice")
        found[key] = tokens.expect_string()
        if not tokens.take_sign(","):
            break
    tokens.expect_sign(")")
    return tuple(found.items())


@dataclass
class _Elements:
    """What stands in the parentheses of CREATE TABLE, ADD or MODIFY."""

    columns: list[s.PlacedColumn] = field(default_factory=list)
    watermark: s.WatermarkSpec | None = None
    primary_key: s.PrimaryKey | None = None


def create_table(tokens: TokenStream, at: int, *, is_temporary: bool, is_replacing: bool) -> s.CreateTable:
    """Read what stands behind ``CREATE TABLE``.

    Raises:
        SqlError: it is not written as a table is.
    """
    if_not_exists = tokens.take_if_not_exists()
    table = tokens.path()
    elements = _Elements()
    if tokens.take_sign("("):
        _read_elements(tokens, elements, is_placed=False)
        tokens.expect_sign(")")
    elif tokens.is_name() and not tokens.is_one_of(("COMMENT", "DISTRIBUTED", "PARTITIONED")):
        tokens.fail(otherwise="the columns stand in parentheses: CREATE TABLE t (a INT)")
    if tokens.is_word("ENGINE"):
        tokens.fail_at(tokens.next, "where a table's rows are is said by options: WITH ('connector' = '...')")
    comment = tokens.expect_string() if tokens.take_word("COMMENT") else None
    if tokens.is_word("DISTRIBUTED"):
        tokens.fail_at(tokens.next, "DISTRIBUTED BY is not supported: no connector has buckets")
    partitioned_by: tuple[str, ...] = ()
    if tokens.take_word("PARTITIONED", "BY"):
        if not tokens.is_sign("("):
            tokens.fail("the columns stand in parentheses: PARTITIONED BY (a, b)")
        partitioned_by = tokens.in_parentheses(names)
    table_options = options(tokens) if tokens.take_word("WITH") else ()
    like = _like(tokens) if tokens.is_word("LIKE") else None
    query = tokens.query() if tokens.take_word("AS") else None
    primary_key = elements.primary_key
    for placed in elements.columns:
        if placed.column.is_primary_key:
            if primary_key is not None:
                tokens.fail_at(tokens.next, "a table has one primary key: PRIMARY KEY (a, b) NOT ENFORCED")
            primary_key = s.PrimaryKey((placed.column.name,), at=placed.column.at)
    return s.CreateTable(
        table, tuple(placed.column for placed in elements.columns), elements.watermark, primary_key, table_options,
        partitioned_by, comment, like, query, is_temporary, if_not_exists, is_replacing, at=at,
    )  # fmt: skip


def _read_elements(tokens: TokenStream, elements: _Elements, *, is_placed: bool) -> None:
    while True:
        _read_element(tokens, elements, is_placed=is_placed)
        if not tokens.take_sign(","):
            return
        if tokens.is_sign(")"):
            tokens.fail("a column is missing behind the last comma")


def _read_element(tokens: TokenStream, elements: _Elements, *, is_placed: bool) -> None:
    token = tokens.next
    if tokens.take_word("WATERMARK"):
        if elements.watermark is not None:
            tokens.fail_at(token, "a table has one watermark")
        tokens.expect_word("FOR")
        column = tokens.path()
        tokens.expect_word("AS")
        begin = tokens.next.start
        watermark = expression(tokens)
        elements.watermark = s.WatermarkSpec(column, watermark, tokens.sql[begin : tokens.last_end], at=token.start)
    elif tokens.is_one_of(("CONSTRAINT", "PRIMARY")) or tokens.is_word("UNIQUE"):
        if elements.primary_key is not None:
            tokens.fail_at(token, "a table has one primary key")
        elements.primary_key = _primary_key(tokens)
    elif token.value in _NO_CONSTRAINTS and (tokens.after(1).value in ("(", "KEY")):
        tokens.fail_at(token, _NO_CONSTRAINTS[token.value])
    else:
        column_read = _column(tokens)
        place = None
        if is_placed:
            place = "" if tokens.take_word("FIRST") else tokens.name() if tokens.take_word("AFTER") else None
        elements.columns.append(s.PlacedColumn(column_read, place, at=token.start))


_NO_CONSTRAINTS = {
    "FOREIGN": "there are no foreign keys: nobody would check them",
    "CHECK": "there are no checks: a query that writes the table can have a WHERE",
    "INDEX": "there are no indexes: the system that has the table has them",
    "KEY": "the key of a table is written PRIMARY KEY (a) NOT ENFORCED",
}
"""What stands among columns in other databases."""


def _primary_key(tokens: TokenStream) -> s.PrimaryKey:
    at = tokens.next.start
    constraint = tokens.name() if tokens.take_word("CONSTRAINT") else None
    if tokens.is_word("UNIQUE"):
        tokens.fail_at(tokens.next, "UNIQUE is not supported: the key of a table is its PRIMARY KEY ... NOT ENFORCED")
    tokens.expect_word("PRIMARY", "KEY")
    if not tokens.is_sign("("):
        tokens.fail("the columns stand in parentheses: PRIMARY KEY (a, b) NOT ENFORCED")
    columns = tokens.in_parentheses(names)
    _not_enforced(tokens)
    return s.PrimaryKey(columns, constraint, at=at)


def _not_enforced(tokens: TokenStream) -> None:
    if not tokens.take_word("NOT", "ENFORCED"):
        tokens.fail(
            "a primary key is a promise that nobody checks, since the rows belong to another system: write PRIMARY KEY "
            "... NOT ENFORCED"
        )


def _column(tokens: TokenStream) -> s.ColumnDefinition:
    at = tokens.next.start
    name = tokens.name()
    if tokens.take_word("AS"):
        begin = tokens.next.start
        computed = expression(tokens)
        written = tokens.sql[begin : tokens.last_end]
        return s.ColumnDefinition(name, None, computed, comment=_comment(tokens), written=written, at=at)
    if tokens.is_sign(",") or tokens.is_sign(")"):
        return s.ColumnDefinition(name, None, at=at)
    spec = type_spec(tokens)
    if tokens.take_word("METADATA"):
        key = tokens.expect_string() if tokens.take_word("FROM") else name
        is_virtual = tokens.take_word("VIRTUAL")
        return s.ColumnDefinition(name, spec, metadata_key=key, is_virtual=is_virtual, comment=_comment(tokens), at=at)
    is_primary_key = False
    if tokens.is_word("CONSTRAINT") or tokens.is_word("PRIMARY", "KEY"):
        if tokens.take_word("CONSTRAINT"):
            tokens.name()
        tokens.expect_word("PRIMARY", "KEY")
        _not_enforced(tokens)
        is_primary_key = True
    if tokens.next.value in ("AUTO_INCREMENT", "IDENTITY", "GENERATED"):
        tokens.fail_at(tokens.next, "columns can't number rows by themselves: give the value in the query that writes")
    if tokens.is_word("UNIQUE"):
        tokens.fail_at(tokens.next, "UNIQUE is not supported: the key of a table is its PRIMARY KEY ... NOT ENFORCED")
    if tokens.is_word("DEFAULT"):
        tokens.fail_at(tokens.next, "columns have no DEFAULT: give the value in the query that writes the table")
    return s.ColumnDefinition(name, spec, is_primary_key=is_primary_key, comment=_comment(tokens), at=at)


def _comment(tokens: TokenStream) -> str | None:
    return tokens.expect_string() if tokens.take_word("COMMENT") else None


_FEATURES = ("ALL", "CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS")


def _like(tokens: TokenStream) -> s.LikeClause:
    at = tokens.take().start
    table = tokens.path()
    choices: list[tuple[str, str]] = []
    if tokens.take_sign("("):
        while not tokens.is_sign(")"):
            verb = tokens.expect_one_of("INCLUDING", "EXCLUDING", "OVERWRITING")
            choices.append((verb, tokens.expect_one_of(*_FEATURES)))
        tokens.expect_sign(")")
    return s.LikeClause(table, tuple(choices), at=at)


# -- ALTER TABLE


def alter_table(tokens: TokenStream, at: int) -> s.AlterTable:
    """Read what stands behind ``ALTER TABLE``.

    Raises:
        SqlError: it is nothing that can be done to a table.
    """
    if_exists = tokens.take_if_exists()
    table = tokens.path()
    begin = tokens.next.start
    if tokens.is_word("ALTER") or tokens.is_word("CHANGE"):
        tokens.fail_at(tokens.next, "a column is changed with MODIFY: ALTER TABLE t MODIFY c BIGINT")
    word = tokens.expect_one_of(*_ACTIONS)
    if tokens.is_word("COLUMN") and tokens.after(1).kind in (TokenKind.WORD, TokenKind.QUOTED_NAME):
        tokens.fail_at(tokens.next, f"the word COLUMN is left out: {word} {tokens.after(1).text} ...")
    return s.AlterTable(table, _ACTIONS[word](tokens, begin), if_exists, at=at)


def _rename(tokens: TokenStream, at: int) -> s.AlterAction:
    if tokens.take_word("TO"):
        return s.RenameTable(tokens.path(), at=at)
    old = tokens.name()
    tokens.expect_word("TO")
    return s.RenameColumn(old, tokens.name(), at=at)


def _set(tokens: TokenStream, at: int) -> s.AlterAction:
    return s.SetTableOptions(options(tokens), at=at)


def _reset(tokens: TokenStream, at: int) -> s.AlterAction:
    return s.ResetTableOptions(tokens.in_parentheses(lambda inner: inner.list_of(TokenStream.expect_string)), at=at)


def _add(tokens: TokenStream, at: int) -> s.AlterAction:
    return _altered(tokens, at, is_modify=False)


def _modify(tokens: TokenStream, at: int) -> s.AlterAction:
    return _altered(tokens, at, is_modify=True)


def _altered(tokens: TokenStream, at: int, *, is_modify: bool) -> s.AlterAction:
    if tokens.is_word("PARTITION"):
        tokens.fail_at(tokens.next, "partitions are made by the rows that are written; they can't be added")
    elements = _Elements()
    if tokens.take_sign("("):
        _read_elements(tokens, elements, is_placed=True)
        tokens.expect_sign(")")
    else:
        _read_element(tokens, elements, is_placed=True)
    return s.AddOrModify(is_modify, tuple(elements.columns), elements.watermark, elements.primary_key, at=at)


def _drop(tokens: TokenStream, at: int) -> s.AlterAction:
    if tokens.take_word("WATERMARK"):
        return s.DropParts(drops_watermark=True, at=at)
    if tokens.take_word("PRIMARY", "KEY"):
        return s.DropParts(drops_primary_key=True, at=at)
    if tokens.take_word("CONSTRAINT"):
        return s.DropParts(constraint=tokens.name(), at=at)
    if tokens.is_word("PARTITION"):
        tokens.fail_at(tokens.next, "partitions can't be dropped: remove their files")
    columns = tokens.in_parentheses(names) if tokens.is_sign("(") else (tokens.name(),)
    return s.DropParts(columns, at=at)


_ACTIONS: dict[str, Callable[[TokenStream, int], s.AlterAction]] = {
    "RENAME": _rename, "SET": _set, "RESET": _reset, "ADD": _add, "MODIFY": _modify, "DROP": _drop,
}  # fmt: skip
