"""Statements of Flink's dialect as syntax trees, and what is said of those that are wrong."""

from __future__ import annotations

import pytest

from firesteel_sql.parse import nodes as n
from firesteel_sql.parse import statement_nodes as s
from firesteel_sql.parse.errors import SqlError
from firesteel_sql.parse.statements import parse_query, parse_script, parse_statement

QUERIES = [
    "SELECT 1",
    "SELECT a, b AS c, t.*, * FROM t",
    "SELECT p.name, a.id FROM auction a JOIN person AS p ON a.seller = p.id WHERE p.state IN ('OR', 'ID')",
    "WITH q (x) AS (SELECT 1), r AS (SELECT 2) SELECT * FROM q UNION ALL SELECT * FROM r",
    "((SELECT 1) UNION ALL SELECT 2) EXCEPT (VALUES (3), (4)) ORDER BY 1 DESC NULLS LAST LIMIT 5 OFFSET 2 ROWS",
    "SELECT * FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND))",
    "SELECT * FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '10' SECOND))",
    "SELECT * FROM TABLE(TUMBLE(DATA => TABLE bid, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '10' SECOND))",
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY a ORDER BY b DESC, c) AS place FROM t) WHERE place <= 3",
    "SELECT SUM(x) OVER w, LAG(x, 1) IGNORE NULLS OVER w FROM t WINDOW w AS (PARTITION BY a ORDER BY ts "
    "RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW)",
    "SELECT COUNT(DISTINCT a) FILTER (WHERE b), LISTAGG(c, ',') WITHIN GROUP (ORDER BY d) FROM t "
    "GROUP BY GROUPING SETS ((a, b), (a), ()) HAVING COUNT(*) > 1",
    "SELECT a FROM t WHERE (a, b) IN (SELECT 1, 2) AND NOT EXISTS (SELECT 1) AND a NOT BETWEEN SYMMETRIC 1 AND 2",
    "SELECT a FROM t WHERE x IS NOT DISTINCT FROM y OR z IS NOT TRUE AND c NOT LIKE 'a!%' ESCAPE '!' OR d = ANY (1, 2)",
    "SELECT TRIM(LEADING 'x' FROM y), SUBSTRING(a FROM 2 FOR 3), EXTRACT(DAY FROM ts), CEIL(ts TO HOUR), FLOOR(1.5)",
    "SELECT TIMESTAMPDIFF(SECOND, a, b), POSITION('a' IN b), OVERLAY(a PLACING b FROM 1 FOR 2) FROM t",
    "SELECT JSON_VALUE(a, '$.b' RETURNING INT DEFAULT 1 ON EMPTY NULL ON ERROR), JSON_OBJECT(KEY 'a' VALUE b)",
    "SELECT JSON_ARRAY(1, b ABSENT ON NULL), JSON_QUERY(x, '$.a' WITH CONDITIONAL ARRAY WRAPPER EMPTY ARRAY ON EMPTY)",
    "SELECT ARRAY[1, 2][1], MAP['a', 1]['a'], ROW(1, 'x'), (1, 2), a.b.c, f(x).y, ARRAY[ROW(1, 2)][1].f0 FROM t",
    "SELECT CAST(a AS DECIMAL(10, 2)), TRY_CAST(b AS ARRAY<ROW<x INT, y MAP<STRING, TIMESTAMP_LTZ(3)>>>) FROM t",
    "SELECT CASE a WHEN 1 THEN 'x' ELSE 'y' END, CASE WHEN b THEN 1 WHEN c THEN 2 END FROM t",
    "SELECT date, time, day, `order`, value, type FROM t WHERE d = DATE '2026-01-31' AND x = X'0aff'",
    "SELECT U&'\\00e9', x'' FROM t",
    "SELECT /*+ STATE_TTL('a'='1d') */ * FROM t /*+ OPTIONS('scan.startup.mode'='earliest-offset') */ AS a "
    "LEFT JOIN dim FOR SYSTEM_TIME AS OF a.pt AS d ON a.id = d.id",
    "SELECT * FROM a, b CROSS JOIN UNNEST(b.c) WITH ORDINALITY AS u (x, y)",
    "SELECT * FROM a LEFT JOIN LATERAL TABLE(f(x)) AS t(z) ON TRUE, LATERAL (SELECT 1)",
    "SELECT * FROM a NATURAL LEFT JOIN b RIGHT OUTER JOIN c USING (x, y) FULL JOIN d ON TRUE",
    "SELECT * FROM a LEFT SEMI JOIN b ON a.i = b.i LEFT ANTI JOIN c ON a.i = c.i",
    "SELECT -1, - -2, +3, 1.5e3, .5, 5., 'it''s', -- a comment\n /* another */ INTERVAL -'1 02:03' DAY TO MINUTE",
    "SELECT ts AT TIME ZONE 'UTC', INTERVAL '1-6' YEAR TO MONTH, INTERVAL n DAY, 1 + 2 * 3 - 4 / 5 % 6 || 'x' FROM t",
    "SELECT GROUPING(a), LEFT(b, 1), RIGHT(b, 1) FROM t GROUP BY ROLLUP (a, b)",
]


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_is_read(query: str) -> None:
    assert isinstance(parse_statement(query), s.QueryStatement)
    (again,) = parse_script(f";{query} ;;")
    assert again == parse_statement(query)


STATEMENTS: list[tuple[str, type[s.Statement]]] = [
    ("INSERT INTO t PARTITION (d = 'x') (a, b) SELECT 1, 2 ON CONFLICT DO DEDUPLICATE", s.Insert),
    ("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT * FROM b; INSERT INTO c VALUES (1); END", s.StatementSet),
    ("EXPLAIN CHANGELOG_MODE, PLAN_ADVICE SELECT 1", s.Explain),
    ("EXPLAIN PLAN FOR INSERT INTO t SELECT 1", s.Explain),
    ("CREATE TABLE t (id INT NOT NULL, off BIGINT METADATA FROM 'offset' VIRTUAL, p AS PROCTIME(), ts TIMESTAMP(3), "
     "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, PRIMARY KEY (id) NOT ENFORCED) COMMENT 'y' PARTITIONED BY (id) "
     "WITH ('connector' = 'kafka', 'topic' = 'a')", s.CreateTable),
    ("CREATE TABLE b LIKE a (INCLUDING ALL EXCLUDING OPTIONS)", s.CreateTable),
    ("CREATE TEMPORARY TABLE IF NOT EXISTS c.d.t WITH ('a' = 'b') AS SELECT 1 AS x", s.CreateTable),
    ("CREATE OR REPLACE TEMPORARY VIEW v (a, b) AS SELECT 1, 2", s.CreateView),
    ("CREATE FUNCTION f AS 'module.function' LANGUAGE PYTHON", s.CreateFunction),
    ("CREATE CATALOG c WITH ('type' = 'generic_in_memory')", s.CreateCatalog),
    ("CREATE DATABASE IF NOT EXISTS c.d COMMENT 'x'", s.CreateDatabase),
    ("ALTER TABLE t ADD (x INT FIRST, y INT AFTER x)", s.AlterTable),
    ("ALTER TABLE t MODIFY x BIGINT", s.AlterTable),
    ("ALTER TABLE t DROP (x, y)", s.AlterTable),
    ("ALTER TABLE t SET ('a' = 'b')", s.AlterTable),
    ("ALTER TABLE a RENAME TO b", s.AlterTable),
    ("DROP TEMPORARY VIEW IF EXISTS v", s.Drop),
    ("USE CATALOG c", s.Use),
    ("SHOW TABLES FROM d NOT LIKE 'a%'", s.Show),
    ("SHOW CREATE TABLE t", s.Show),
    ("DESC t", s.Describe),
    ("SET", s.SetOption),
    ("SET 'a' = 'b'", s.SetOption),
    ("RESET 'a'", s.ResetOption),
    ("STOP JOB 'abc' WITH SAVEPOINT WITH DRAIN", s.StopJob),
    ("COMPILE AND EXECUTE PLAN '/p' FOR INSERT INTO t SELECT 1", s.CompilePlan),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "kind"), STATEMENTS)
def test_a_statement_is_read(sql: str, kind: type[s.Statement]) -> None:
    assert type(parse_statement(sql)) is kind
    assert parse_statement(sql.lower().replace("'module.function'", "'m'")) is not None, "keywords in lower case"


def test_operators_bind_as_in_sql() -> None:
    def expression(text: str) -> n.ValueExpression:
        body = parse_query(f"SELECT {text}").query.body
        assert isinstance(body, n.Select)
        return body.items[0].expression

    assert expression("1 + 2 * 3") == expression("1 + (2 * 3)")
    assert expression("a OR b AND NOT c = d") == expression("a OR (b AND (NOT (c = d)))")
    assert parse_query("SELECT " + " OR ".join(["a = 1 AND b = 2"] * 3000)), "as long as programs write them"
    assert expression("a - b - c") == expression("(a - b) - c")
    assert expression("a BETWEEN 1 AND 2 AND b") == expression("(a BETWEEN 1 AND 2) AND b")
    assert expression("-a.b[1]") == expression("-(a.b[1])")
    assert expression("a || b LIKE c") == expression("(a || b) LIKE c")


WRONG = [
    ("", "1:1", "there is no statement"),
    ("SELECT 1; SELECT 2", "1:11", "a second statement begins here"),
    ("SELECT a\nFORM t", "2:1", "did you mean FROM instead of FORM?"),
    ("SELECT * FROM t WERE a = 1", "1:17", "did you mean WHERE instead of WERE?"),
    ("CREATE TABLEX t (a INT)", "1:8", "did you mean TABLE?"),
    ("SELECT a, FROM t", "1:11", "a comma too many?"),
    ("SELECT a FROM t GROUP a", "1:17", "did you mean GROUP BY?"),
    ("SELECT * FROM t WHERE a == 1", "1:26", "a single ="),
    ("SELECT 'abc FROM t", "1:8", "no closing quote"),
    ('SELECT "a" FROM t', "1:8", "names are quoted with `backquotes`"),
    ("SELECT 1 /* x", "1:10", "the comment that begins here does not end"),
    ("SELECT 1abc", "1:8", "begins with a digit"),
    ("SELECT COUNT(* FROM t", "1:16", "expected ')'"),
    ("SELECT CAST(a AS TEXT) FROM t", "1:18", "it is called STRING"),
    ("SELECT CASE WHEN a THEN b FROM t", "1:27", "expected WHEN, ELSE or END"),
    ("SELECT a FROM t JOIN u WHERE x", "1:24", "a join needs a condition"),
    ("SELECT a FROM (SELECT b FROM c", "1:31", "the statement ends too early"),
    ("SELECT * FROM t ORDER BY a LIMIT 5, 10", "1:35", "OFFSET"),
    ("SELECT a FROM t WHERE a IN 1", "1:28", "IN needs a list"),
    ("SELECT INTERVAL '5' MINUTEN", "1:21", "did you mean MINUTE?"),
    ("SELECT a AS 'x' FROM t", "1:13", "a name stands in backquotes"),
    ("SELECT a FROM t AS left", "1:20", "`left`"),
    ("CREATE TABLE t (a INT,)", "1:23", "behind the last comma"),
    ("CREATE TABLE t (a INT PRIMARY KEY)", "1:34", "NOT ENFORCED"),
    ("CREATE TABLE t (a INT) WITH ('a' = 1)", "1:36", "stand in quotes"),
    ("CREATE TABLE t (a INT) WITH ('a' = '1', 'a' = '2')", "1:41", "stands here twice"),
    ("CREATE TABLE t (a TIMESTAMP WITH TIME ZONE)", "1:29", "TIMESTAMP_LTZ"),
    ("INSERT t SELECT 1", "1:8", "INTO is missing: INSERT INTO table SELECT ..."),
    ("DELETE FROM t", "1:1", "DELETE is not supported"),
    ("SET a = b", "1:5", "keys of options stand in quotes"),
    ("SELECT " + "(" * 200 + "1", "1:57", "50 levels deep"),
]


@pytest.mark.parametrize(("sql", "place", "text"), WRONG)
def test_what_is_wrong_is_said_with_its_place(sql: str, place: str, text: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_statement(sql)
    assert f"{caught.value.line}:{caught.value.column}" == place
    assert text in caught.value.problem


def test_the_line_is_shown_with_carets_below_the_word() -> None:
    with pytest.raises(SqlError) as caught:
        parse_statement("SELECT a\nFORM t\nWHERE b")
    assert str(caught.value) == (
        "line 2, column 1: did you mean FROM instead of FORM?\n"
        "2 | FORM t\n"
        "  | ^^^^"
    )  # fmt: skip
    long = "SELECT " + "a, " * 100 + "FROM t"
    with pytest.raises(SqlError) as caught:
        parse_statement(long)
    shown, carets = str(caught.value).split("\n")[1:]
    assert len(shown) < 120
    assert shown[carets.index("^") :].startswith("FROM"), "carets stand below the word in a long line, too"
