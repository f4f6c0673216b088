"""Connectors of tables: what they declare before a job starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from firesteel.common.types import RowKind
from firesteel.core.plugins import known_names
from firesteel_sql.connectors import reference
from firesteel_sql.connectors.changelog import ALL_CHANGES, INSERT_ONLY, UPSERT, ChangelogMode
from firesteel_sql.connectors.connector import GROUP

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


def test_the_page_of_connectors_is_up_to_date() -> None:
    page = ROOT / "docs" / "sql-connectors.md"
    assert page.read_text("utf-8") == reference.render(), (
        "write it anew: python -m firesteel_sql.connectors.reference > docs/sql-connectors.md"
    )
    assert set(reference.CONNECTORS) == known_names(GROUP)
