"""Statements: a text has one or several, each ends with a semicolon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from firesteel_sql.parse import foreign_words
from firesteel_sql.parse import statement_nodes as s
from firesteel_sql.parse.expressions import expression
from firesteel_sql.parse.nodes import Path, TypeSpec, ValueExpression
from firesteel_sql.parse.queries import hints, names, query
from firesteel_sql.parse.tables import alter_table, create_table, options
from firesteel_sql.parse.token_stream import TokenStream
from firesteel_sql.parse.tokens import TokenKind
from firesteel_sql.parse.types import type_spec


def parse_statement(sql: str) -> s.Statement:
    """The only statement of a text; a semicolon may stand at its end.

    Raises:
        SqlError: there is none, several, or one that is wrong.
    """
    tokens = TokenStream(sql, query)
    if tokens.is_at_end():
        tokens.fail_at(tokens.next, "there is no statement")
    found = _statement(tokens)
    _end_of_statement(tokens)
    if not tokens.is_at_end():
        if not (tokens.begins_query() or tokens.is_one_of(_STATEMENTS)):
            tokens.fail_at(tokens.last, "the semicolon ends the statement, and something follows")
        tokens.fail_at(tokens.next, "a second statement begins here: run them one by one, or as a statement set")
    return found


def parse_script(sql: str) -> list[s.Statement]:
    """All statements of a text.

    Raises:
        SqlError: one of them is wrong.
    """
    tokens = TokenStream(sql, query)
    found: list[s.Statement] = []
    while True:
        while tokens.take_sign(";"):
            pass
        if tokens.is_at_end():
            return found
        found.append(_statement(tokens))
        _end_of_statement(tokens)


def parse_query(sql: str) -> s.QueryStatement:
    """The query of a text.

    Raises:
        SqlError: it is no query, or a wrong one.
    """
    found = parse_statement(sql)
    if not isinstance(found, s.QueryStatement):
        tokens = TokenStream(sql, query)
        tokens.fail_at(tokens.next, "a query has to stand here: SELECT, VALUES or WITH")
    return found


def parse_type(text: str) -> TypeSpec:
    """The type that a text names.

    Raises:
        SqlError: there is none.
    """
    tokens = TokenStream(text, query)
    spec = type_spec(tokens)
    if not tokens.is_at_end():
        tokens.fail(otherwise="the type ends here")
    return spec


def parse_explained(sql: str) -> s.Explain:
    """The statement of a text as one to be explained.

    Raises:
        SqlError: it is none that can be explained, or a wrong one.
    """
    tokens = TokenStream(sql, query)
    statement = _explained(tokens)
    _end_of_statement(tokens)
    if not tokens.is_at_end():
        tokens.fail_at(tokens.next, "a second statement begins here: explain them one by one, or as a statement set")
    return s.Explain(statement)


def parse_path(text: str) -> Path:
    """The parts of a name: ``catalog.database.table``.

    Raises:
        SqlError: it is no name.
    """
    tokens = TokenStream(text, query)
    path = tokens.path()
    if not tokens.is_at_end():
        tokens.fail()
    return path


def _end_of_statement(tokens: TokenStream) -> None:
    if not tokens.is_at_end() and not tokens.is_sign(";"):
        tokens.is_kind(TokenKind.END)
        tokens.fail()
    while tokens.take_sign(";"):
        pass


def _statement(tokens: TokenStream) -> s.Statement:
    token = tokens.next
    if tokens.begins_query():
        found: s.Statement = s.QueryStatement(query(tokens), at=token.start)
    else:
        tokens.is_one_of(("SELECT", "VALUES", "WITH"))
        word = tokens.take_one_of(*_STATEMENTS)
        if word is None:
            tokens.fail(foreign_words.STATEMENTS.get(token.value, "") if token.kind is TokenKind.WORD else "",
                        otherwise="no statement of SQL begins so")  # fmt: skip
        found = _STATEMENTS[word](tokens, token.start)
    return replace(found, end=tokens.last_end)


# -- rows in


def _insert(tokens: TokenStream, at: int) -> s.Insert:
    word = tokens.take_one_of("INTO", "OVERWRITE")
    if word is None:
        tokens.fail(otherwise="INTO is missing: INSERT INTO table SELECT ...")
    is_overwrite = word == "OVERWRITE"
    tokens.take_word("TABLE")
    table = tokens.path()
    table_hints = hints(tokens)
    partition: tuple[tuple[str, ValueExpression], ...] = ()
    if tokens.take_word("PARTITION"):
        partition = tokens.in_parentheses(lambda inner: inner.list_of(_partition_value))
    columns = tokens.in_parentheses(names) if tokens.is_sign("(") and not tokens.begins_query() else ()
    if not tokens.begins_query():
        tokens.is_one_of(("SELECT", "VALUES", "WITH"))
        tokens.fail(otherwise="rows have to stand here: SELECT, VALUES or WITH")
    rows = query(tokens)
    on_conflict = None
    if tokens.take_word("ON", "CONFLICT", "DO"):
        on_conflict = tokens.expect_one_of("DEDUPLICATE", "ERROR", "NOTHING")
    return s.Insert(table, rows, columns, partition, is_overwrite, on_conflict, table_hints, at=at)


def _partition_value(tokens: TokenStream) -> tuple[str, ValueExpression]:
    name = tokens.name()
    tokens.expect_sign("=")
    return name, expression(tokens)


def _inserts(tokens: TokenStream, at: int) -> s.StatementSet:
    """The INSERTs between BEGIN and END."""
    inserts: list[s.Insert] = []
    while tokens.is_word("INSERT"):
        begin = tokens.take().start
        inserts.append(replace(_insert(tokens, begin), end=tokens.last_end))
        if not tokens.take_sign(";"):
            tokens.fail("each INSERT of a statement set ends with a semicolon")
    if not inserts or not tokens.take_word("END"):
        tokens.fail(otherwise="a statement set has INSERTs, and END behind the last one")
    return s.StatementSet(tuple(inserts), at=at)


def _execute(tokens: TokenStream, at: int) -> s.Statement:
    word = tokens.expect_one_of("STATEMENT", "PLAN", "INSERT")
    if word == "PLAN":
        return s.ExecutePlan(tokens.expect_string(), at=at)
    if word == "INSERT":
        return _insert(tokens, at)
    tokens.expect_word("SET", "BEGIN")
    return _inserts(tokens, at)


def _begin(tokens: TokenStream, at: int) -> s.Statement:
    tokens.expect_word("STATEMENT", "SET")
    if tokens.is_sign(";") and tokens.after(1).value in ("INSERT", "END"):
        tokens.take()
        return _inserts(tokens, at)
    return s.BeginStatementSet(at=at)


def _end(tokens: TokenStream, at: int) -> s.Statement:
    return s.EndStatementSet(at=at)


_DETAILS: Final = ("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE", "STATE", "ROUTE")


def _explain(tokens: TokenStream, at: int) -> s.Statement:
    details: list[str] = []
    savepoint = None
    if tokens.take_word("PLAN", "FOR"):
        pass
    elif tokens.take_word("UPGRADE", "FROM"):
        savepoint = tokens.expect_string()
    else:
        while (detail := tokens.take_one_of(*_DETAILS)) is not None:
            details.append(detail)
            if not tokens.take_sign(","):
                break
    return s.Explain(_explained(tokens), tuple(details), savepoint, at=at)


def _explained(tokens: TokenStream) -> s.QueryStatement | s.Insert | s.StatementSet:
    token = tokens.next
    found: s.QueryStatement | s.Insert | s.StatementSet
    if tokens.take_word("INSERT"):
        found = _insert(tokens, token.start)
    elif tokens.is_word("ANALYZE"):
        tokens.fail_at(tokens.next, "there is no EXPLAIN ANALYZE: the dashboard shows what a job does")
    elif tokens.take_word("STATEMENT", "SET", "BEGIN") or tokens.take_word("EXECUTE", "STATEMENT", "SET", "BEGIN"):
        found = _inserts(tokens, token.start)
    elif tokens.begins_query():
        found = s.QueryStatement(query(tokens), at=token.start)
    else:
        tokens.is_one_of(("SELECT", "VALUES", "WITH", *_DETAILS))
        tokens.fail(otherwise="a query, INSERT or STATEMENT SET has to stand here")
    return replace(found, end=tokens.last_end)


def _compile(tokens: TokenStream, at: int) -> s.Statement:
    is_executed = tokens.take_word("AND", "EXECUTE")
    tokens.expect_word("PLAN")
    file = tokens.expect_string()
    if_not_exists = tokens.take_word("IF", "NOT", "EXISTS")
    tokens.expect_word("FOR")
    token = tokens.next
    found = _explained(tokens)
    if isinstance(found, s.QueryStatement):
        tokens.fail_at(token, "a plan is compiled for INSERT or STATEMENT SET")
    return s.CompilePlan(file, found, if_not_exists, is_executed, at=at)


# -- what is declared


def _create(tokens: TokenStream, at: int) -> s.Statement:
    is_replacing = tokens.take_word("OR", "REPLACE")
    is_temporary = tokens.take_word("TEMPORARY") or tokens.take_word("TEMP")
    is_system = tokens.take_word("SYSTEM")
    if tokens.next.value in _NOT_CREATED:
        tokens.fail_at(tokens.next, f"there are no {_NOT_CREATED[tokens.next.value]}")
    kind = tokens.expect_one_of("TABLE", "VIEW", "FUNCTION", "CATALOG", "DATABASE", "MODEL", "MATERIALIZED")
    if kind in ("MODEL", "MATERIALIZED"):
        what = "models are" if kind == "MODEL" else "materialized tables are"
        tokens.fail_at(tokens.last, f"{what} not supported: a table is written by INSERT INTO, which runs all the time")
    if kind == "TABLE":
        return create_table(tokens, at, is_temporary=is_temporary, is_replacing=is_replacing)
    if_not_exists = tokens.take_if_not_exists()
    if kind == "VIEW":
        view = tokens.path()
        columns = tokens.in_parentheses(names) if tokens.is_sign("(") else ()
        comment = tokens.expect_string() if tokens.take_word("COMMENT") else None
        tokens.expect_word("AS")
        begin = tokens.next.start
        body = query(tokens)
        return s.CreateView(
            view, body, tokens.sql[begin : tokens.last_end], columns, comment, is_temporary, if_not_exists,
            is_replacing, at=at,
        )  # fmt: skip
    if kind == "FUNCTION":
        function = tokens.path()
        target, language = _code(tokens)
        return s.CreateFunction(function, target, language, is_temporary, is_system, if_not_exists, is_replacing, at=at)
    if kind == "CATALOG":
        name = tokens.name()
        comment = _comment(tokens)
        return s.CreateCatalog(name, options(tokens) if tokens.take_word("WITH") else (), if_not_exists, comment, at=at)
    database = tokens.path()
    comment = _comment(tokens)
    return s.CreateDatabase(
        database, options(tokens) if tokens.take_word("WITH") else (), comment, if_not_exists, at=at
    )


_NOT_CREATED: Final = {
    "INDEX": "indexes: the system that has the table has them", "SCHEMA": "schemas: write DATABASE",
    "PROCEDURE": "procedures: write a FUNCTION", "TRIGGER": "triggers: write an INSERT INTO, which runs all the time",
    "SEQUENCE": "sequences: a datagen table has 'fields.id.kind' = 'sequence'", "USER": "users of SQL",
    "ROLE": "roles of SQL", "TYPE": "types with a name: write ROW<...>",
}  # fmt: skip
"""What other databases create, and what there is in its place."""


def _comment(tokens: TokenStream) -> str | None:
    return tokens.expect_string() if tokens.take_word("COMMENT") else None


def _code(tokens: TokenStream) -> tuple[str, str]:
    """``AS 'module.name' LANGUAGE PYTHON``: where the code is, and its language."""
    tokens.expect_word("AS")
    target = tokens.expect_string()
    language = tokens.expect_one_of("PYTHON", "JAVA", "SCALA") if tokens.take_word("LANGUAGE") else "JAVA"
    if tokens.is_word("USING"):
        tokens.fail_at(tokens.next, "USING is not supported: give Python files with python.files or --pyFiles")
    return target, language


def _alter(tokens: TokenStream, at: int) -> s.Statement:
    is_temporary = tokens.take_word("TEMPORARY")
    is_system = tokens.take_word("SYSTEM")
    kinds = ("FUNCTION",) if is_temporary or is_system else ("TABLE", "VIEW", "DATABASE", "FUNCTION", "CATALOG")
    kind = tokens.expect_one_of(*kinds)
    if kind == "TABLE":
        return alter_table(tokens, at)
    if kind == "CATALOG":
        return _alter_catalog(tokens, at)
    if_exists = kind != "DATABASE" and tokens.take_if_exists()
    path = tokens.path()
    if kind == "DATABASE":
        tokens.expect_word("SET")
        return s.AlterDatabase(path, options(tokens), at=at)
    if kind == "FUNCTION":
        target, language = _code(tokens)
        return s.AlterFunction(path, target, language, is_temporary, is_system, if_exists, at=at)
    if tokens.take_word("RENAME", "TO"):
        return s.AlterView(path, tokens.path(), if_exists=if_exists, at=at)
    tokens.expect_word("AS")
    begin = tokens.next.start
    body = query(tokens)
    return s.AlterView(path, None, body, tokens.sql[begin : tokens.last_end], if_exists, at=at)


def _alter_catalog(tokens: TokenStream, at: int) -> s.Statement:
    name = tokens.name()
    match tokens.expect_one_of("SET", "RESET", "COMMENT"):
        case "SET":
            return s.AlterCatalog(name, options(tokens), at=at)
        case "RESET":
            keys = tokens.in_parentheses(lambda inner: inner.list_of(TokenStream.expect_string))
            return s.AlterCatalog(name, reset=keys, at=at)
        case _:
            return s.AlterCatalog(name, comment=tokens.expect_string(), at=at)


def _truncate(tokens: TokenStream, at: int) -> s.Statement:
    if not tokens.take_word("TABLE"):
        tokens.fail("TABLE is missing: TRUNCATE TABLE t")
    return s.Truncate(tokens.path(), at=at)


def _drop(tokens: TokenStream, at: int) -> s.Statement:
    is_temporary = tokens.take_word("TEMPORARY")
    is_system = tokens.take_word("SYSTEM")
    kind = tokens.expect_one_of("TABLE", "VIEW", "FUNCTION", "CATALOG", "DATABASE")
    if_exists = tokens.take_if_exists()
    path = tokens.path()
    cascades = tokens.take_one_of("RESTRICT", "CASCADE") == "CASCADE"
    return s.Drop(kind, path, if_exists, is_temporary, is_system, cascades, at=at)


# -- the session


def _use(tokens: TokenStream, at: int) -> s.Statement:
    if tokens.is_word("MODULES") and tokens.after(1).kind is not TokenKind.END and tokens.after(1).value != ";":
        tokens.take()
        return s.UseModules(names(tokens), at=at)
    if tokens.is_word("DATABASE") and _goes_on(tokens):
        tokens.fail_at(tokens.next, "USE names the database at once: USE db, or USE CATALOG c")
    is_catalog = tokens.is_word("CATALOG") and tokens.after(1).kind is not TokenKind.END and tokens.take_word("CATALOG")
    return s.Use((tokens.name(),) if is_catalog else tokens.path(), is_catalog, at=at)


def _load(tokens: TokenStream, at: int) -> s.Statement:
    tokens.expect_word("MODULE")
    name = tokens.name()
    if tokens.take_word("WITH"):
        options(tokens)
    return s.LoadModule(name, at=at)


def _unload(tokens: TokenStream, at: int) -> s.Statement:
    tokens.expect_word("MODULE")
    return s.UnloadModule(tokens.name(), at=at)


_LISTED: Final = (
    "CATALOGS",
    "DATABASES",
    "TABLES",
    "VIEWS",
    "FUNCTIONS",
    "JOBS",
    "MODULES",
    "JARS",
    "MODELS",
    "PROCEDURES",
)


def _show(tokens: TokenStream, at: int) -> s.Statement:
    if tokens.take_word("CREATE"):
        kind = tokens.expect_one_of("TABLE", "VIEW", "CATALOG")
        return s.Show(f"CREATE {kind}", tokens.path(), at=at)
    if tokens.take_word("CURRENT"):
        return s.Show(f"CURRENT {tokens.expect_one_of('CATALOG', 'DATABASE')}", at=at)
    path: Path = ()
    if tokens.take_word("COLUMNS"):
        tokens.expect_one_of("FROM", "IN")
        what, path = "COLUMNS", tokens.path()
    elif tokens.take_word("PARTITIONS"):
        path = tokens.path()
        partition: tuple[tuple[str, ValueExpression], ...] = ()
        if tokens.take_word("PARTITION"):
            partition = tokens.in_parentheses(lambda inner: inner.list_of(_partition_value))
        return s.Show("PARTITIONS", path, partition=partition, at=at)
    else:
        prefix = tokens.take_one_of("USER", "FULL")
        word = tokens.expect_one_of(*(("FUNCTIONS",) if prefix == "USER" else ("MODULES",) if prefix else _LISTED))
        what = f"{prefix} {word}" if prefix else word
        if tokens.take_one_of("FROM", "IN"):
            path = tokens.path()
    is_negated = tokens.take_word("NOT")
    pattern, how = None, tokens.take_one_of("LIKE", "ILIKE")
    if how is not None:
        pattern = tokens.expect_string()
    elif is_negated:
        tokens.fail()
    return s.Show(what, path, pattern, is_negated, how == "ILIKE", at=at)


_DESCRIBED: Final = ("JOB", "FUNCTION", "CATALOG", "DATABASE")


def _describe(tokens: TokenStream, at: int) -> s.Statement:
    if tokens.is_word("TABLE") and _goes_on(tokens):
        tokens.take()  # DESCRIBE TABLE t, as other databases have it
    is_extended = tokens.is_word("EXTENDED") and _goes_on(tokens) and tokens.take_word("EXTENDED")
    kind = tokens.take().value if tokens.is_one_of(_DESCRIBED) and _goes_on(tokens) else "TABLE"
    if kind == "JOB":
        return s.Describe(kind, (tokens.expect_string(),), at=at)
    is_extended = (tokens.is_word("EXTENDED") and _goes_on(tokens) and tokens.take_word("EXTENDED")) or is_extended
    return s.Describe(kind, tokens.path(), is_extended, at=at)


def _goes_on(tokens: TokenStream) -> bool:
    """Whether a name follows the next word, so that the word is no name itself."""
    return tokens.after(1).kind is not TokenKind.END and tokens.after(1).value not in (";", ".")


def _set(tokens: TokenStream, at: int) -> s.Statement:
    if tokens.is_at_end() or tokens.is_sign(";"):
        return s.SetOption(at=at)
    key = _option_key(tokens)
    tokens.expect_sign("=")
    if tokens.is_kind(TokenKind.STRING):
        return s.SetOption(key, tokens.take().value, at=at)
    return tokens.fail(f"values of options stand in quotes: SET '{key}' = 'value'")


def _option_key(tokens: TokenStream) -> str:
    if tokens.is_kind(TokenKind.STRING):
        return tokens.take().value
    return tokens.fail("keys of options stand in quotes: SET 'parallelism.default' = '4'")


def _reset(tokens: TokenStream, at: int) -> s.Statement:
    if tokens.is_at_end() or tokens.is_sign(";"):
        return s.ResetOption(at=at)
    return s.ResetOption(_option_key(tokens), at=at)


def _stop(tokens: TokenStream, at: int) -> s.Statement:
    tokens.expect_word("JOB")
    job = tokens.expect_string()
    with_savepoint = tokens.take_word("WITH", "SAVEPOINT")
    with_drain = tokens.take_word("WITH", "DRAIN")
    return s.StopJob(job, with_savepoint, with_drain, at=at)


_REASONS: Final = {
    "DELETE": "rows of a table can't be deleted by a statement: write another table, or change the rows where they are",
    "UPDATE": "rows of a table can't be changed by a statement: write another table, or change the rows where they are",
    "CALL": "there are no procedures",
    "ADD": "there are no jars: Python functions are given by CREATE FUNCTION ... LANGUAGE PYTHON",
    "REMOVE": "there are no jars: Python functions are given by CREATE FUNCTION ... LANGUAGE PYTHON",
    "ANALYZE": "statistics of tables are not used",
}
"""Statements of Flink's that are not supported, and why."""


def _unsupported(word: str) -> Callable[[TokenStream, int], s.Statement]:
    def refuse(tokens: TokenStream, at: int) -> s.Statement:
        tokens.fail_at(tokens.last, f"{word} is not supported: {_REASONS[word]}")

    return refuse


_STATEMENTS: Final[dict[str, Callable[[TokenStream, int], s.Statement]]] = {
    "INSERT": _insert, "EXECUTE": _execute, "BEGIN": _begin, "END": _end, "EXPLAIN": _explain, "COMPILE": _compile,
    "CREATE": _create, "ALTER": _alter, "DROP": _drop, "USE": _use, "SHOW": _show, "DESCRIBE": _describe,
    "DESC": _describe, "SET": _set, "RESET": _reset, "STOP": _stop, "TRUNCATE": _truncate, "LOAD": _load,
    "UNLOAD": _unload,
    **{word: _unsupported(word) for word in _REASONS},
}  # fmt: skip
