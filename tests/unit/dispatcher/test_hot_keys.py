"""The most frequent keys that a vertex gets: of all senders together, and the finding that one is too much."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.graph.job_archive import WORST
from firesteel.graph.key_shares import KeyShare, key_shares_in, largest_key
from firesteel.protocol import messages as m
from firesteel.rest.findings import findings
from firesteel_dispatcher.rest_hot_keys import merged

VERTEX = {"id": "sums", "name": "sums", "parallelism": 4}


def output(target: str, records: float, *keys: list[Any], refusal: str = "") -> dict[str, Any]:
    return {"target": target, "records": records, "lost": 1.0, "refusal": refusal, "keys": list(keys)}


def test_keys_of_all_senders_are_added_up() -> None:
    first = m.HotKeys((output("sums", 60, ["'a'", 40, 3], ["'b'", 10, 0]), output("other", 99, ["'z'", 99, 0])))
    second = m.HotKeys((output("sums", 40, ["'b'", 15, 0], ["'a'", 20, 3], refusal="broken"),), ("slot 1 is gone",))
    answer = merged(VERTEX, [first, second, OSError("no route")], 10)
    assert answer["keys"] == [
        {"key": "'a'", "share": 0.6, "records": 60, "subtask": 3},
        {"key": "'b'", "share": 0.25, "records": 25, "subtask": 0},
    ]
    assert (answer["records"], answer["lost"]) == (100, 2)
    assert answer["problems"] == ["slot 1 is gone", "no route", "broken"]
    assert len(merged(VERTEX, [first, second], 1)["keys"]) == 1
    assert merged(VERTEX, [], 10)["keys"] == []


def test_the_largest_key_of_all_senders() -> None:
    shares = [KeyShare("v", 0.5, 3, 100.0), KeyShare("v", 0.9, 3, 100.0), KeyShare("v", 0.8, 1, 50.0)]
    assert largest_key(shares) == {"subtask": 3, "value": 0.56}
    assert largest_key([]) is None
    assert largest_key([KeyShare("v", 0.5, 3, 0.0)]) is None


@pytest.mark.parametrize("report", [
    None, {}, ["x"], [{"target": 5}], [{"target": "v", "share": "1", "subtask": 1, "records": 1}], [{"target": "v"}],
])  # fmt: skip
def test_a_report_that_does_not_fit_is_dropped(report: Any) -> None:
    assert key_shares_in(report) == ()


def test_a_report_is_bounded() -> None:
    row = {"target": "v", "share": 7, "subtask": 1, "records": -5}
    assert key_shares_in([row]) == (KeyShare("v", 1.0, 1, 0.0),)
    assert len(key_shares_in([row] * 1000)) == 100


@pytest.mark.parametrize(("busy", "share", "is_told"), [
    ((990, 3), 0.6, True),
    ((990, 2), 0.6, False),  # another subtask is the one without time
    ((500, 3), 0.6, False),  # it has time
    ((990, 3), 0.3, False),  # little more than its part
])  # fmt: skip
def test_a_key_that_is_too_much_for_its_subtask_is_a_finding(
    busy: tuple[int, int], share: float, is_told: bool
) -> None:
    loads = {"busy": {"value": busy[0], "subtask": busy[1]}, "hotKey": {"value": share, "subtask": 3}, "skew": 120}
    vertex = {**VERTEX, "status": "RUNNING", "start-time": 0, "tasks": {"RUNNING": 4}, WORST: loads}
    archive = {"state": "RUNNING", "end-time": -1, "now": 5, "vertices": [vertex], "plan": {"nodes": []}}
    texts = [finding["text"] for finding in findings(archive)]
    warnings = [text for text in texts if "one key makes" in text]
    assert warnings == (
        [
            "sums: one key makes 60 % of its records, more than subtask 4/4 can take, which is 99 % busy; more "
            "subtasks do not help. Hot keys of the vertex names it."
        ]
        if is_told
        else []
    )
    assert any("very different numbers" in text for text in texts) is not is_told, "it is not said twice"
