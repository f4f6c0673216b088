"""Python functions declared by CREATE FUNCTION: their types, NULL, and what is said of those that do not fit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from firesteel.common.typeinfo import Types
from firesteel.core.errors import ProgramError
from firesteel.expressions.binding import bind
from firesteel_sql import TableEnvironment
from firesteel_sql.plan.relations import Projection
from firesteel_sql.plan.row_expressions import to_expression
from firesteel_sql.texts import type_text

MODULE = """
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Optional

from firesteel.table.types import DataTypes


def twice(number: int) -> int:
    return -1 if number is None else number * 2


def joined(first: str, second: str = "!", *rest: str) -> str:
    return "+".join(str(text) for text in (first, second, *rest))


def kind(value: Any) -> str:
    return type(value).__name__


def length(value: list[Optional[str]]) -> int | None:
    return None if value is None else len(value)


def counted(text: str) -> dict[str, int]:
    return {letter: text.count(letter) for letter in text}


def total(counts: dict[str, int]) -> int:
    return sum(counts.values())


def next_day(day: date) -> date:
    return date.fromordinal(day.toordinal() + 1)


def short(number):
    return number


short.result_type = DataTypes.SMALLINT()
short.input_types = [DataTypes.SMALLINT()]


class Shout:
    def eval(self, text: str) -> str:
        return text.upper()


def without_result(a: int):
    return a


def strange(a: int) -> complex:
    return a


def keyword(a: int, *, b: int) -> int:
    return a


def nothing() -> int:
    return 1


def fails(a: int) -> int:
    return 1 // a


def lies(a: int) -> int:
    return "text"


constant = 5
"""


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableEnvironment]:
    (tmp_path / "functions_of_a_user.py").write_text(MODULE)
    (tmp_path / "broken_of_a_user.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    environment = TableEnvironment.create()
    for name in ("twice", "joined", "kind", "length", "counted", "total", "next_day", "short", "fails", "lies",
                 "nothing", "keyword", "strange", "without_result", "constant", "missing"):  # fmt: skip
        environment.execute_sql(f"CREATE FUNCTION {name} AS 'functions_of_a_user.{name}' LANGUAGE PYTHON")
    environment.execute_sql("CREATE FUNCTION shout AS 'functions_of_a_user.Shout' LANGUAGE PYTHON")
    yield environment
    sys.modules.pop("functions_of_a_user", None)


def computed(tables: TableEnvironment, text: str) -> tuple[Any, str]:
    relation = tables.sql_query(f"SELECT {text}")._relation
    assert isinstance(relation, Projection)
    (expression,) = relation.expressions
    return bind(to_expression(expression, []), {}).evaluate({}, 1)[0].as_py(), type_text(expression.type)


@pytest.mark.parametrize(
    ("text", "value", "data_type"),
    [
        ("twice(4)", 8, "BIGINT"),
        ("TWICE(CAST(NULL AS INT))", -1, "BIGINT"),
        ("twice(NULL) + 1", 0, "BIGINT"),
        ("default_catalog.default_database.twice(twice(1))", 4, "BIGINT"),
        ("joined('a')", "a+!", "STRING"),
        ("joined('a', 'b', 'c', NULL)", "a+b+c+None", "STRING"),
        ("kind(1.5)", "Decimal", "STRING"),
        ("kind(DATE '2026-01-31')", "date", "STRING"),
        ("kind(MAP['a', 1])", "dict", "STRING"),
        ("kind(ARRAY[1])", "list", "STRING"),
        ("length(ARRAY['a', NULL])", 2, "BIGINT"),
        ("length(CAST(NULL AS ARRAY<STRING>))", None, "BIGINT"),
        ("counted('aab')['a']", 2, "BIGINT"),
        ("total(counted('aab'))", 3, "BIGINT"),
        ("CAST(next_day(DATE '2026-01-31') AS STRING)", "2026-02-01", "STRING"),
        ("short(CAST(5 AS SMALLINT))", 5, "SMALLINT"),
        ("shout('a')", "A", "STRING"),
        ("nothing()", 1, "BIGINT"),
    ],
)
def test_a_function_is_called(tables: TableEnvironment, text: str, value: Any, data_type: str) -> None:
    assert computed(tables, text) == (value, data_type)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("twice('a')", "twice: operand 1: CHAR(1) is given where BIGINT is needed"),
        ("twice(1, 2)", "twice takes 1 operand, not 2"),
        ("twcie(1)", "there is no function twcie; did you mean twice?"),
        ("joined()", "joined takes 1 operand or more, not 0"),
        ("keyword(1)", "needs the keyword b"),
        ("strange(1)", "has the hint complex, which is no type of SQL"),
        ("without_result(1)", "does not say what it returns: write a hint, def without_result(...) -> str"),
        ("constant(1)", "functions_of_a_user.constant is no function, but int"),
        ("missing(1)", "the Python module functions_of_a_user has no missing"),
        ("fails(0)", "functions_of_a_user.fails has failed: ZeroDivisionError: integer division or modulo by zero"),
        ("lies(0)", "functions_of_a_user.lies has returned what is no int64"),
    ],
)
def test_a_function_that_does_not_fit_is_refused(tables: TableEnvironment, text: str, problem: str) -> None:
    with pytest.raises(ProgramError) as caught:
        computed(tables, text)
    assert problem in str(caught.value)


def test_functions_are_called_for_each_row_and_never_while_a_query_is_planned(tables: TableEnvironment) -> None:
    relation = tables.sql_query("SELECT nothing() + a, fails(0) FROM (VALUES (1), (2)) AS t(a)")._relation
    assert isinstance(relation, Projection)
    first = bind(to_expression(relation.expressions[0], ["a"]), {"a": Types.INT()})
    assert first.evaluate({"a": pa.array([5, 6, 7], pa.int32())}, 3).to_pylist() == [6, 7, 8]
    text = tables.explain_sql("SELECT twice(4), a FROM (VALUES (1), (2)) AS t(a)")
    assert "Calc(select=[twice(4) AS EXPR$0, " in text


def test_functions_are_declared_changed_and_dropped(tables: TableEnvironment) -> None:
    def run(sql: str) -> list[Any]:
        return [row[0] for row in tables.execute_sql(sql).collect()]

    run("CREATE TEMPORARY SYSTEM FUNCTION upper AS 'functions_of_a_user.kind' LANGUAGE PYTHON")
    assert computed(tables, "upper(1)")[0] == "int", "it hides the built-in function"
    run("CREATE TEMPORARY FUNCTION twice AS 'functions_of_a_user.kind' LANGUAGE PYTHON")
    assert computed(tables, "twice(1)")[0] == "int", "it hides the permanent function"
    run("DROP TEMPORARY FUNCTION twice")
    run("DROP TEMPORARY SYSTEM FUNCTION upper")
    assert computed(tables, "upper('a')")[0] == "A"
    run("ALTER FUNCTION twice AS 'functions_of_a_user.kind' LANGUAGE PYTHON")
    assert computed(tables, "twice(1)")[0] == "int"
    assert run("SHOW USER FUNCTIONS LIKE 't%'") == ["total", "twice"]
    run("DROP FUNCTION twice")
    run("DROP FUNCTION IF EXISTS twice")
    for sql, problem in [
        ("DROP FUNCTION twice", "there is no function twice"),
        ("ALTER FUNCTION twice AS 'a.b' LANGUAGE PYTHON", "there is no function twice"),
        ("CREATE FUNCTION total AS 'a.b' LANGUAGE PYTHON", "there is a function total already"),
        ("CREATE FUNCTION f AS 'org.example.F'", "functions in Java are not supported"),
        ("CREATE FUNCTION f AS 'f' LANGUAGE PYTHON", "'f' names no Python function: write AS 'module.function'"),
        ("DESCRIBE FUNCTION totl", "did you mean total?"),
    ]:
        with pytest.raises(ProgramError) as caught:
            tables.execute_sql(sql)
        assert problem in str(caught.value)
    run("CREATE FUNCTION broken AS 'broken_of_a_user.f' LANGUAGE PYTHON")
    run("CREATE FUNCTION away AS 'no_such_module_of_a_user.f' LANGUAGE PYTHON")
    with pytest.raises(ProgramError, match="can't be imported: ZeroDivisionError"):
        computed(tables, "broken(1)")
    with pytest.raises(ProgramError, match="there is no Python module no_such_module_of_a_user"):
        computed(tables, "away(1)")
    assert tables.sql_query("SELECT 1") is not None, "a function that is not used is not imported"
