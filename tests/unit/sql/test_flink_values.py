"""Built-in functions: values and types as Flink 2.3 computed them for the same texts, and what the docs say of them."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from firesteel_sql.functions.absent import ABSENT
from firesteel_sql.functions.aggregates import AGGREGATES
from firesteel_sql.functions.builtin import FUNCTIONS
from firesteel_sql.parse.errors import SqlError
from tests.unit.sql.test_values import computed

with Path(__file__).with_name("flink_values.tsv").open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.reader(file, "excel-tab", quoting=csv.QUOTE_NONE))[1:]


@pytest.mark.parametrize(("text", "value", "data_type"), ROWS, ids=[row[0] for row in ROWS])
def test_an_expression_has_the_value_and_type_that_flink_gave_it(text: str, value: str, data_type: str) -> None:
    assert computed(text) == (value, data_type)


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
