"""Built-in functions: values and types as Flink 2.3 computed them for the same texts, and what the docs say of them."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pyarrow as pa
import pytest

from firesteel.expressions.binding import bind
from firesteel.table.types import DataTypes
from firesteel_sql.bind.expressions import ExpressionBinder
from firesteel_sql.bind.scope import Scope, ScopedColumn
from firesteel_sql.functions.absent import ABSENT
from firesteel_sql.functions.aggregates import AGGREGATES
from firesteel_sql.functions.builtin import FUNCTIONS
from firesteel_sql.functions.signature import Session
from firesteel_sql.parse import nodes as n
from firesteel_sql.parse.errors import SqlError
from firesteel_sql.parse.statements import parse_query
from firesteel_sql.plan.relations import Column
from firesteel_sql.plan.row_expressions import to_expression
from firesteel_sql.texts import type_text, value_text
from firesteel_sql.types.columns import type_info_of
from tests.unit.sql.test_values import computed


def table(name: str) -> list[list[str]]:
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, "excel-tab", quoting=csv.QUOTE_NONE))[1:]


ROWS = table("flink_values.tsv")
OF_COLUMNS = table("flink_columns.tsv")
"""Values for the rows (NULL, NULL), ('straße', 1) and ('', -1) of the columns s STRING and i INT."""


@pytest.mark.parametrize(("text", "value", "data_type"), ROWS, ids=[row[0] for row in ROWS])
def test_an_expression_has_the_value_and_type_that_flink_gave_it(text: str, value: str, data_type: str) -> None:
    assert computed(text) == (value, data_type)


@pytest.mark.parametrize(("text", "values", "data_type"), OF_COLUMNS, ids=[row[0] for row in OF_COLUMNS])
def test_an_expression_over_columns_has_the_values_and_type_that_flink_gave_it(
    text: str, values: str, data_type: str
) -> None:
    assert computed_of_columns(text) == (values, data_type)


def computed_of_columns(text: str) -> tuple[str, str]:
    columns = [Column("s", DataTypes.STRING()), Column("i", DataTypes.INT())]
    scope = Scope([ScopedColumn(column, place, ()) for place, column in enumerate(columns)])
    sql = f"SELECT {text}"
    body = parse_query(sql).query.body
    assert isinstance(body, n.Select)
    bound = ExpressionBinder(scope, Session(), sql).bind(body.items[0].expression)
    arrays = {"s": pa.array([None, "straße", ""]), "i": pa.array([None, 1, -1], pa.int32())}
    types = {column.name: type_info_of(column.type) for column in columns}
    values = bind(to_expression(bound, list(arrays)), types).evaluate(arrays, 3).to_pylist()
    return " ;; ".join(value_text(value, bound.type) for value in values), type_text(bound.type)


def test_the_page_of_functions_names_those_that_are_declared() -> None:
    page = (
        (Path(__file__).parents[3] / "docs/sql-functions.md").read_text(encoding="utf-8").partition("## Not there")[0]
    )
    forms = [form for line in page.splitlines() if line.startswith("| `") for form in re.findall("`([^`]+)`", line)]
    called = {match.group(1) for form in forms if (match := re.match(r"([A-Z][A-Z0-9_]*)\(", form))}
    named = called | {form for form in forms if re.fullmatch("[A-Z][A-Z_]+", form)} | {"OVERLAPS"}
    declared = {name for name in FUNCTIONS if re.fullmatch("[A-Z][A-Z0-9_]*", name)}
    operators = {"AND", "OR", "NOT", "IN", "LIKE"}
    assert declared - operators - named == set()
    assert called - declared == {"CAST", "TRY_CAST", "ROW"}


def test_a_function_that_is_not_there_is_refused_with_what_to_do() -> None:
    assert not set(ABSENT) & set(FUNCTIONS)
    for name, advice in ABSENT.items():
        with pytest.raises(SqlError) as caught:
            computed(f"{name}(1, 2)")
        assert caught.value.problem == f"there is no function {name}: {advice}"


def test_functions_that_advice_names_are_there() -> None:
    named = {word for advice in ABSENT.values() for word in re.findall(r"([A-Z][A-Z0-9_]+)\(", advice)}
    assert named - {*FUNCTIONS, *AGGREGATES} == {"CAST", "TRY_CAST", "ROW", "DECIMAL"}


def test_random_numbers_of_a_seed_are_those_of_flink_and_differ_from_row_to_row() -> None:
    assert computed("RAND(5)") == ("0.730519863614471", "DOUBLE NOT NULL")
    assert computed("RAND_INTEGER(5, 10)") == ("7", "INT NOT NULL")
