"""Values and types of built-in functions, as Flink 2.3 computed them for the same texts; and where ours differ."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.unit.sql.test_values import computed

with Path(__file__).with_name("flink_values.tsv").open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.reader(file, "excel-tab", quoting=csv.QUOTE_NONE))[1:]


@pytest.mark.parametrize(("text", "value", "data_type"), ROWS, ids=[row[0] for row in ROWS])
def test_an_expression_has_the_value_and_type_that_flink_gave_it(text: str, value: str, data_type: str) -> None:
    assert computed(text) == (value, data_type)
