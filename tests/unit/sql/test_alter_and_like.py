"""ALTER TABLE, LIKE and CREATE TABLE AS: what they make, and what they refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from firesteel.core.errors import ProgramError
from firesteel_sql import TableEnvironment
from firesteel_sql.execution.declarations import Declarations
from firesteel_sql.parse import statement_nodes as s
from firesteel_sql.parse.statements import parse_query, parse_statement

BASE = """
CREATE TABLE base (
  id INT, name STRING, at TIMESTAMP(3), part STRING METADATA VIRTUAL, twice AS id * 2,
  WATERMARK FOR at AS at - INTERVAL '5' SECOND, CONSTRAINT pk PRIMARY KEY (id) NOT ENFORCED
) COMMENT 'x' PARTITIONED BY (name) WITH ('connector' = 'datagen', 'rows-per-second' = '5')
"""


@pytest.fixture
def tables() -> TableEnvironment:
    environment = TableEnvironment.create()
    environment.execute_sql(BASE)
    return environment


def rows(tables: TableEnvironment, sql: str) -> list[Sequence[Any]]:
    return [tuple(row) for row in tables.execute_sql(sql).collect()]


def columns(tables: TableEnvironment, table: str) -> list[str]:
    return [row[0] for row in rows(tables, f"DESCRIBE {table}")]


def created(tables: TableEnvironment, table: str) -> str:
    return str(rows(tables, f"SHOW CREATE TABLE {table}")[0][0])


@pytest.mark.parametrize(
    ("like", "has", "has_not"),
    [
        ("", ["`twice` AS", "METADATA", "WATERMARK", "PRIMARY KEY", "PARTITIONED", "'rows-per-second' = '5'"],
         ["COMMENT"]),
        ("(EXCLUDING ALL)", ["`id` INT"],
         ["AS", "METADATA", "WATERMARK", "PRIMARY KEY", "PARTITIONED", "WITH"]),
        ("(EXCLUDING ALL INCLUDING GENERATED INCLUDING CONSTRAINTS)", ["`twice` AS", "CONSTRAINT `pk`"],
         ["METADATA", "WATERMARK", "PARTITIONED", "WITH"]),
        ("(EXCLUDING OPTIONS EXCLUDING PARTITIONS)", ["`twice` AS", "WATERMARK", "PRIMARY KEY"],
         ["PARTITIONED", "WITH"]),
        ("(EXCLUDING METADATA EXCLUDING WATERMARKS)", ["`twice` AS", "PRIMARY KEY"], ["METADATA", "WATERMARK"]),
    ],
)  # fmt: skip
def test_like_takes_what_it_names(tables: TableEnvironment, like: str, has: list[str], has_not: list[str]) -> None:
    tables.execute_sql(f"CREATE TABLE t LIKE base {like}")
    text = created(tables, "t").partition(" ")[2]
    assert [part for part in has if part not in text] == []
    assert [part for part in has_not if part in text] == []


def test_like_overwrites_what_it_may(tables: TableEnvironment) -> None:
    tables.execute_sql(
        "CREATE TABLE t (twice AS id * 20, more INT, WATERMARK FOR at AS at) WITH ('rows-per-second' = '7') "
        "LIKE base (OVERWRITING GENERATED OVERWRITING WATERMARKS)"
    )
    text = created(tables, "t")
    assert columns(tables, "t") == ["id", "name", "at", "part", "twice", "more"]
    assert "`twice` AS id * 20" in text
    assert "WATERMARK FOR `at` AS at\n" in text.replace(",", "\n")
    assert "'rows-per-second' = '7'" in text


def test_a_table_as_a_query_has_its_columns(tables: TableEnvironment) -> None:
    for number, (definition, query, expected) in enumerate(
        [
            ("", "SELECT id, name AS n, 1.5 AS d FROM base", [("id", "INT"), ("n", "STRING"), ("d", "DECIMAL(2, 1)")]),
            ("(n, id)", "SELECT id, name AS n FROM base", [("n", "STRING"), ("id", "INT")]),
            (
                "(extra AS id + 1, id BIGINT, ts TIMESTAMP(3))",
                "SELECT id, name FROM base",
                [("extra", "BIGINT"), ("id", "BIGINT"), ("ts", "TIMESTAMP(3)"), ("name", "STRING")],
            ),
        ]
    ):
        statement = f"CREATE TABLE t_{number} {definition} WITH ('connector' = 'none') AS {query}"
        parsed = parse_statement(statement)
        assert isinstance(parsed, s.CreateTable)
        relation = tables._bound(parse_query(query).query, query)
        table = Declarations(tables._catalogs, tables._session, statement).table(parsed, relation)
        tables._catalogs.create((f"made_{number}",), table, is_temporary=False, if_not_exists=False)
        assert [row[:2] for row in rows(tables, f"DESCRIBE made_{number}")] == expected
        with pytest.raises(ProgramError, match="METADATA FROM 'part', which the connector 'datagen' does not have"):
            tables.execute_sql(statement)
        assert f"t_{number}" not in tables.list_tables(), "a table whose job can't start is not there"


def test_a_replaced_table_comes_back_when_the_job_can_not_start(tables: TableEnvironment) -> None:
    before = created(tables, "base")
    with pytest.raises(ProgramError, match="there is no connector 'none'"):
        tables.execute_sql("CREATE OR REPLACE TABLE base WITH ('connector' = 'none') AS SELECT 1 AS a")
    assert created(tables, "base") == before
    tables.execute_sql("CREATE OR REPLACE TABLE base (other INT)")
    assert columns(tables, "base") == ["other"]


def test_a_table_is_altered(tables: TableEnvironment) -> None:
    for action in (
        "ADD (a INT FIRST, b STRING COMMENT 'c' AFTER a, c AS a + 1)",
        "MODIFY (id BIGINT AFTER b, WATERMARK FOR at AS at - INTERVAL '1' SECOND)",
        "DROP (c, twice)",
        "DROP CONSTRAINT pk",
        "ADD CONSTRAINT other PRIMARY KEY (a, id) NOT ENFORCED",
        "RENAME b TO d",
        "SET ('rows-per-second' = '9', 'number-of-rows' = '1')",
        "RESET ('rows-per-second')",
    ):
        tables.execute_sql(f"ALTER TABLE base {action}")
    assert columns(tables, "base") == ["a", "d", "id", "name", "at", "part"]
    text = created(tables, "base")
    assert "CONSTRAINT `other` PRIMARY KEY (`a`, `id`)" in text
    assert "AS at - INTERVAL '1' SECOND" in text
    assert "'number-of-rows' = '1'" in text
    assert "rows-per-second" not in text
    tables.execute_sql("ALTER TABLE base DROP WATERMARK")
    tables.execute_sql("ALTER TABLE base DROP PRIMARY KEY")
    assert "PRIMARY" not in created(tables, "base")
    tables.execute_sql("ALTER TABLE IF EXISTS nothing DROP a")


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("CREATE TABLE t (id INT) LIKE base", "the column id is in base already"),
        ("CREATE TABLE t (twice AS id) LIKE base", "OVERWRITING GENERATED, or EXCLUDING"),
        ("CREATE TABLE t (WATERMARK FOR at AS at) LIKE base", "base has a watermark as well: OVERWRITING WATERMARKS"),
        ("CREATE TABLE t (PRIMARY KEY (id) NOT ENFORCED) LIKE base", "EXCLUDING CONSTRAINTS"),
        ("CREATE TABLE t WITH ('rows-per-second' = '1') LIKE base (INCLUDING OPTIONS)", "OVERWRITING OPTIONS"),
        ("CREATE TABLE t LIKE base (OVERWRITING CONSTRAINTS)", "CONSTRAINTS can't be overwritten"),
        ("CREATE TABLE t LIKE base (INCLUDING OPTIONS EXCLUDING OPTIONS)", "says twice what becomes of OPTIONS"),
        ("CREATE TABLE t LIKE base (EXCLUDING GENERATED INCLUDING WATERMARK)", "did you mean WATERMARKS?"),
        ("CREATE TABLE t AS SELECT id, id FROM base", "two columns of the name id"),
        ("CREATE TABLE t AS SELECT NULL AS n", "the column n is always NULL"),
        ("CREATE TABLE t (a, id) AS SELECT id, name FROM base", "the query has no column a"),
        ("CREATE TABLE t (id) AS SELECT id, name FROM base", "name is missing"),
        ("CREATE TABLE t (id AS 1) AS SELECT id FROM base", "is computed, and the query gives it as well"),
        ("CREATE TABLE t (name INT) AS SELECT name FROM base", "write a CAST in the query"),
        ("CREATE TABLE t WITH ('a' = 'b')", "the table has no columns"),
        ("CREATE TABLE t (a AS 1, PRIMARY KEY (a) NOT ENFORCED)", "has to be a column of rows"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a, a) NOT ENFORCED)", "is named twice"),
        ("CREATE TABLE t (a INT, b AS c, c AS a)", "there is no column c"),
        ("ALTER TABLE base ADD id INT", "the table has a column id already: MODIFY it"),
        ("ALTER TABLE base ADD WATERMARK FOR at AS at", "the table has a watermark already: MODIFY it"),
        ("ALTER TABLE base ADD PRIMARY KEY (id) NOT ENFORCED", "the table has a primary key already: MODIFY it"),
        ("ALTER TABLE base MODIFY nam INT", "did you mean name?"),
        ("ALTER TABLE base MODIFY (name STRING AFTER nothing)", "the table has no column nothing"),
        ("ALTER TABLE base DROP at", "the watermark is made of at: DROP WATERMARK before"),
        ("ALTER TABLE base DROP name", "is one of PARTITIONED BY"),
        ("ALTER TABLE base DROP (twice, twice)", "is named twice"),
        ("ALTER TABLE base DROP CONSTRAINT other", "the primary key has the name pk"),
        ("ALTER TABLE base RENAME id TO key", "the column twice is computed from id"),
        ("ALTER TABLE base RENAME name TO id", "the table has a column id already"),
        ("ALTER TABLE base RENAME TO other_db.base", "a table stays in its database"),
        ("ALTER TABLE base RESET ('row-per-second')", "did you mean rows-per-second?"),
        ("ALTER TABLE base RESET ('connector')", "the connector can't be reset"),
        ("ALTER TABLE base SET ()", "no option is given"),
        ("ALTER TABLE bse ADD a INT", "did you mean base?"),
    ],
)
def test_what_does_not_go_together_is_refused(tables: TableEnvironment, sql: str, problem: str) -> None:
    before = created(tables, "base")
    with pytest.raises(ProgramError) as caught:
        tables.execute_sql(sql)
    assert problem in str(caught.value)
    assert tables.list_tables() == ["base"], "nothing was declared"
    assert created(tables, "base") == before, "nothing has changed"
