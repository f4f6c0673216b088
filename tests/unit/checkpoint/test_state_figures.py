"""How much there is of each state, and two checkpoints compared."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.checkpoint.handles import InlineState
from firesteel.checkpoint.state_figures import OperatorFigures, StateFigures, compared, other_figures
from firesteel.checkpoint.subtask_state import Committables, InFlight, OperatorSubtaskState
from firesteel.runtime.checkpoints.figures import figures_of_part
from firesteel.state.snapshots import StateAmount, StateInfo

A, B = "a" * 32, "b" * 32


def rows(figures: list[StateFigures]) -> list[list[Any]]:
    return [row.to_plain()[1:] for row in figures]


def test_chunks_of_a_whole_snapshot_are_what_there_is() -> None:
    infos = [StateInfo("seen", "value", {}), StateInfo("none", "map", {}), StateInfo("unused", "timers", {})]
    assert rows(figures_of_part(A, infos, [(3, 300), (0, 0), (0, 0)], {}, 300)) == [
        ["seen", "value", 3, 300, True, True], ["none", "map", 0, 0, True, True],
    ]  # fmt: skip


def test_a_snapshot_of_changes_has_the_bytes_of_all_its_files_and_the_entries_of_the_store() -> None:
    infos = [StateInfo("sums", "columns", {}), StateInfo("sums", "columns-removed", {})]
    figures = figures_of_part(A, infos, [(2, 40), (1, 10)], {0: StateAmount(1000, 1, counted=True)}, 8050)
    assert rows(figures) == [["sums", "columns", 1000, 8050, True, True]]


def test_files_of_a_backend_are_divided_as_it_estimates_and_chunks_beside_them_are_counted() -> None:
    infos = [StateInfo("small", "value", {}), StateInfo("large", "map", {}), StateInfo("t", "timers", {})]
    amounts = {0: StateAmount(10, 100, counted=True), 1: StateAmount(5000, 900, counted=False)}
    assert rows(figures_of_part(A, infos, [(0, 0), (0, 0), (4, 60)], amounts, 1060)) == [
        ["small", "value", 10, 100, True, False], ["large", "map", 5000, 900, False, False],
        ["t", "timers", 4, 60, True, True],
    ]  # fmt: skip
    empty = dict.fromkeys((0, 1), StateAmount(0, 0, counted=True))
    assert [row[3] for row in rows(figures_of_part(A, infos, [(0, 0)] * 3, empty, 50))] == [25, 25]


def test_splits_committables_and_records_in_flight_are_state_as_well() -> None:
    written = OperatorSubtaskState(
        splits=({"id": "t-0", "position": 7},),
        committables=(Committables(1, 1, (InlineState(b"12"), InlineState(b"345"))),),
        in_flight=(InFlight(0, "HASH", InlineState(b"1234")),),
    )
    assert rows(other_figures(A, written)) == [
        ["splits", "splits", 1, 28, True, True],
        ["committables", "committables", 2, 5, True, True],
        ["in flight", "in flight", 1, 4, True, True],
    ]
    assert other_figures(A, OperatorSubtaskState()) == []


@pytest.mark.parametrize(
    "plain",
    [
        None,
        {},
        [],
        [A, "seen", "value", 1, 2],
        [A, "seen", "value", "1", 2, True, True],
        [1, "s", "v", 1, 2, True, True],
    ],
)
def test_what_a_slot_says_is_checked(plain: Any) -> None:
    assert StateFigures.from_plain(plain) is None


def test_figures_survive_their_plain_form() -> None:
    figures = StateFigures(A, "ключ \N{SNOWMAN}", "value", 1, 2, counted=False)
    assert StateFigures.from_plain(figures.to_plain()) == figures


def operator(id_: str, *states: tuple[str, int | None, int | None]) -> OperatorFigures:
    figures = tuple(StateFigures(id_, name, "value", entries, size) for name, entries, size in states)
    return OperatorFigures(id_, None, f"operator {id_[0]}", sum(size or 0 for _, _, size in states), figures)


def test_what_became_of_each_state() -> None:
    before = [
        operator(A, ("same", 1, 10), ("grown", 1, 10), ("shrunk", 2, 10), ("gone", 1, 5)),
        operator(B, ("x", 1, 1)),
    ]
    after = [
        operator(A, ("same", 1, 10), ("grown", 3, 30), ("shrunk", 1, 10), ("new", 0, 0)),
        operator("c" * 32, ("y", 1, 7)),
    ]  # fmt: skip
    rows = compared(before, after)
    assert [(row["name"], row["change"], row["base-size"], row["size"]) for row in rows] == [
        ("operator a", "grown", 35, 50), ("operator c", "new", None, 7), ("operator b", "gone", 1, None),
    ]  # fmt: skip
    assert {state["name"]: state["change"] for state in rows[0]["states"]} == {
        "same": "same", "grown": "grown", "shrunk": "shrunk", "new": "new", "gone": "gone",
    }  # fmt: skip
    assert rows[0]["states"][1]["base-entries"] == 1
    assert rows[0]["states"][1]["entries"] == 3


def test_nothing_is_new_where_there_is_nothing_to_compare_with_and_unknown_sizes_say_nothing() -> None:
    (row,) = compared(None, [operator(A, ("x", 1, 1))])
    assert row["change"] is None
    assert row["states"][0]["change"] is None
    (row,) = compared([operator(A, ("x", None, None))], [operator(A, ("x", None, None))])
    assert row["states"][0]["change"] is None
    (row,) = compared([operator(A, ("x", 1, None))], [operator(A, ("x", 2, None))])
    assert row["states"][0]["change"] == "grown", "their entries are known"
