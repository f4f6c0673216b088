"""Rows by slot, and running results, against loops."""

from __future__ import annotations

import numpy as np
import pytest

from firesteel.state.columnar.groups import Groups, running_extremes, running_sums


@pytest.mark.parametrize("highest", [1, 50, 70_000, 1 << 20, 1 << 33])
def test_groups_are_sorted_and_keep_the_order_of_rows(highest: int) -> None:
    rows = np.random.default_rng(highest).integers(0, highest, 3000)
    groups = Groups(rows)
    assert groups.order.tolist() == sorted(range(3000), key=lambda row: (rows[row], row))
    assert groups.slots.tolist() == sorted(set(rows.tolist()))
    assert groups.to_rows(rows[groups.order]).tolist() == rows.tolist()
    assert [int(groups.lengths[n]) for n in range(len(groups.slots))] == [
        int((rows == slot).sum()) for slot in groups.slots
    ]


def test_no_rows_are_no_groups() -> None:
    groups = Groups(np.empty(0, np.int64))
    assert groups.slots.size == 0
    assert running_sums(groups, np.empty(0, np.int64), np.empty(0, np.int64)).size == 0


@pytest.mark.parametrize("spread", [10, 2**62])
@pytest.mark.parametrize("largest", [True, False])
def test_extremes_of_narrow_and_wide_ranges(spread: int, largest: bool) -> None:
    random = np.random.default_rng(5)
    groups = Groups(random.integers(0, 40, 2000))
    values, before = random.integers(-spread, spread, 2000), random.integers(-spread, spread, len(groups.slots))
    expected: list[int] = []
    for group, start in enumerate(groups.starts.tolist()):
        best = int(before[group])
        for value in values[start : start + int(groups.lengths[group])].tolist():
            best = max(best, value) if largest else min(best, value)
            expected.append(best)
    assert running_extremes(groups, values, before, largest=largest).tolist() == expected
