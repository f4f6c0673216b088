"""Connectors of tables: what they declare before a job starts."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from firesteel.common.types import RowKind
from firesteel.core.plugins import known_names
from firesteel.table.types import DataTypes
from firesteel_sql.catalog.tables import CatalogTable, TableColumn
from firesteel_sql.connectors import reference
from firesteel_sql.connectors.changelog import ALL_CHANGES, INSERT_ONLY, UPSERT, ChangelogMode
from firesteel_sql.connectors.connector import GROUP, connector_of
from firesteel_sql.connectors.datagen import _column

ROOT = Path(__file__).parents[3]
UPDATES = ChangelogMode.of([RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER])


@pytest.mark.parametrize(
    ("sink", "changes", "missing"),
    [
        (INSERT_ONLY, INSERT_ONLY, set()),
        (INSERT_ONLY, UPDATES, {RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER}),
        (UPSERT, ALL_CHANGES, set()),
        (ALL_CHANGES, UPSERT, set()),
        (UPDATES, ALL_CHANGES, {RowKind.DELETE}),
    ],
)
def test_a_sink_says_which_changes_it_does_not_take(
    sink: ChangelogMode, changes: ChangelogMode, missing: set[RowKind]
) -> None:
    assert sink.missing(changes) == missing


def test_a_changelog_mode_is_shown_as_in_plans() -> None:
    assert [str(mode) for mode in (INSERT_ONLY, UPSERT, ALL_CHANGES)] == ["[I]", "[I,UA,D]", "[I,UB,UA,D]"]
    assert (INSERT_ONLY.is_append, UPSERT.is_upsert, ALL_CHANGES.is_upsert) == (True, True, False)


def test_generated_columns_of_one_type_differ_and_rows_are_made_again() -> None:
    columns = (
        TableColumn("a", DataTypes.BIGINT()),
        TableColumn("b", DataTypes.BIGINT()),
        TableColumn("s", DataTypes.STRING()),
    )
    options = {
        "connector": "datagen", "fields.a.min": "-5", "fields.a.max": "5", "fields.s.length": "4",
        "fields.s.var-len": "true", "fields.b.null-rate": "1",
    }  # fmt: skip
    table = CatalogTable(columns, options)
    _, context = connector_of(("c", "d", "t"), table)
    made = {
        column.name: _column(column.name, column.type or DataTypes.NULL(), context.options)[0] for column in columns
    }
    numbers = made["a"](0, 1000).to_pylist()
    assert set(numbers) == set(range(-5, 6))
    assert made["a"](0, 1000).to_pylist() == numbers
    assert made["a"](1000, 1000).to_pylist() != numbers
    assert made["b"](0, 10).null_count == 10
    assert {len(text) for text in made["s"](0, 100)} == {1, 2, 3, 4}
    other = _column("c", DataTypes.BIGINT(), context.options)[0]
    assert other(0, 10) != _column("d", DataTypes.BIGINT(), context.options)[0](0, 10)


def test_random_decimal_numbers_keep_to_their_bounds_in_all_digits() -> None:
    data_type, bound = DataTypes.DECIMAL(38, 2), "1" * 36 + ".11"
    options = {"connector": "datagen", "fields.d.min": bound, "fields.d.max": bound}
    _, context = connector_of(("c", "d", "t"), CatalogTable((TableColumn("d", data_type),), options))
    assert list(_column("d", data_type, context.options)[0](0, 2)) == [Decimal(bound)] * 2


def test_the_page_of_connectors_is_up_to_date() -> None:
    page = ROOT / "docs" / "sql-connectors.md"
    assert page.read_text("utf-8") == reference.render(), (
        "write it anew: python -m firesteel_sql.connectors.reference > docs/sql-connectors.md"
    )
    assert set(reference.CONNECTORS) == known_names(GROUP)
