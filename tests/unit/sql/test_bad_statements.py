"""Wrong statements of the kinds that people write, and the sentence that answers each, with its place.

They stand in ``bad_statements.txt``: a statement, and below it line, column and what is said.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from firesteel_sql import TableEnvironment
from firesteel_sql.parse.errors import SqlError

TABLES = [
    "CREATE TABLE orders (id BIGINT, customer_id BIGINT, price DECIMAL(10, 2), quantity INT, name STRING, "
    "paid BOOLEAN, `day` DATE, at TIMESTAMP(3), items ARRAY<ROW<title STRING, count INT>>, props MAP<STRING, STRING>, "
    "address ROW<city STRING, zip INT>, WATERMARK FOR at AS at - INTERVAL '5' SECOND) WITH ('connector' = 'datagen')",
    "CREATE TABLE customers (id BIGINT, name STRING, city STRING, PRIMARY KEY (id) NOT ENFORCED) "
    "WITH ('connector' = 'datagen')",
    "CREATE TABLE results (id BIGINT NOT NULL, total DECIMAL(12, 2), label STRING) WITH ('connector' = 'blackhole')",
    "CREATE TABLE daily (v INT, d STRING) PARTITIONED BY (d) WITH ('connector' = 'blackhole')",
    "CREATE VIEW cheap AS SELECT id, price FROM orders WHERE price < 10",
]


def _wrong_statements() -> list[tuple[str, str, str]]:
    text = (Path(__file__).parent / "bad_statements.txt").read_text("utf-8")
    text = re.sub(r"\\u([0-9a-f]{4})", lambda match: chr(int(match[1], 16)), text)  # characters that nobody sees
    found: list[tuple[str, str, str]] = []
    statement: list[str] = []
    for line in text.split("\n")[:-1]:
        answer = re.fullmatch(r"    (\d+:\d+) (.+)", line)
        if answer is None:
            statement.append(line)
        else:
            found.append(("\n".join(statement), answer[1], answer[2]))
            statement = []
    return found


WRONG = _wrong_statements()


@pytest.fixture(scope="module")
def tables() -> TableEnvironment:
    environment = TableEnvironment.create()
    for statement in TABLES:
        environment.execute_sql(statement)
    return environment


@pytest.mark.parametrize(("sql", "place", "sentence"), WRONG)
def test_what_is_wrong_is_said_in_one_sentence_with_its_place(
    tables: TableEnvironment, sql: str, place: str, sentence: str
) -> None:
    with pytest.raises(SqlError) as caught:
        tables.execute_sql(sql)
    error = caught.value
    assert (f"{error.line}:{error.column}", error.problem) == (place, sentence)
    shown, carets = str(error).split("\n")[1:]
    behind = sql.split("\n")[error.line - 1][error.column - 1 :]
    at = carets.index("^")
    assert behind.startswith(shown[at:].rstrip(" .")), "the caret is below the place"


def test_there_are_more_than_two_hundred_of_them() -> None:
    assert len({sql for sql, _, _ in WRONG}) == len(WRONG) > 200


def test_a_statement_that_is_refused_changes_nothing(tables: TableEnvironment) -> None:
    assert tables.list_tables() == ["cheap", "customers", "daily", "orders", "results"]
    assert list(tables.execute_sql("SET").collect()) == []
