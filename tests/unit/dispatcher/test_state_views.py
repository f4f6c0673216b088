"""The REST answer about the size of a job's state."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.rest.checkpoint_views import NoCheckpointsError
from firesteel.rest.endpoints import json_answer
from firesteel.rest.state_views import state_sizes
from tests.unit.dispatcher.test_checkpoint_views import CONFIG, FAILED, record

A, B, VERTEX = "a" * 32, "b" * 32, "c" * 32


def completed(number: int, states: list[list[Any]], **more: Any) -> dict[str, Any]:
    more = {"location": f"/c/chk-{number}", "savepoint": None, **more}
    return {**record(number, "COMPLETED", {}), "trigger": 60_000 * number, "states": states, **more}


FIRST = completed(1, [[A, "seen", "value", 10, 100, True, True], [A, "old", "map", 1, 10, True, True]])
SAVEPOINT = completed(2, [[A, "seen", "value", 15, 150, True, True]], savepoint="CANONICAL")
LAST = completed(
    4,
    [
        [B, "splits", "splits", 1, 30, True, True],
        [A, "new", "timers", 3, 9, True, True],
        [A, "seen", "value", 20, 200, False, True],
    ],
)
OPERATORS = {B: [VERTEX, "Source: in", None], A: [VERTEX, "count", "count-uid"]}


def archive(*history: dict[str, Any]) -> dict[str, Any]:
    latest = {"COMPLETED": FIRST} if history else {}
    return {"checkpoints": {"history": [*history], "latest": latest, "config": CONFIG, "operators": OPERATORS}}


def test_the_last_checkpoint_beside_the_first_that_is_known() -> None:
    assert state_sizes(archive(LAST, FAILED, SAVEPOINT), {})["base"] == state_sizes(archive(FIRST), {})["checkpoint"]
    answer = state_sizes(archive(LAST, FAILED, SAVEPOINT), {"base": "2"})
    assert answer["checkpoint"] is not None
    assert answer["base"] is not None
    assert (answer["backend"], answer["checkpoint"]["id"], answer["base"]["id"]) == ("hashmap", 4, 2)
    assert [(row["id"], row["is_savepoint"], row["size"]) for row in answer["checkpoints"]] == [
        (1, False, 110), (2, True, 150), (4, False, 239),
    ]  # fmt: skip
    source, count = answer["operators"]
    assert (source["name"], source["vertex-id"], source["change"]) == ("Source: in", VERTEX, "new")
    assert (count["uid"], count["size"], count["base-size"], count["change"]) == ("count-uid", 209, 150, "grown")
    seen, timers = count["states"]
    assert (seen["name"], seen["entries"], seen["entries-about"], seen["sizes"]) == ("seen", 20, True, [100, 150, 200])
    assert (timers["name"], timers["change"], timers["sizes"]) == ("new", "new", [None, None, 9])
    json_answer(answer)


def test_any_two_are_compared() -> None:
    answer = state_sizes(archive(LAST, SAVEPOINT), {"checkpoint": "1", "base": "4"})
    count, source = answer["operators"]
    assert (source["name"], source["change"], source["size"]) == ("Source: in", "gone", None)
    assert {state["name"]: state["change"] for state in count["states"]} == {
        "seen": "shrunk", "old": "new", "new": "gone",
    }  # fmt: skip
    with pytest.raises(NoCheckpointsError, match="checkpoint 9 are not known; those of: 1, 2, 4"):
        state_sizes(archive(LAST, SAVEPOINT), {"checkpoint": "9"})


def test_a_job_without_complete_checkpoints_has_no_sizes_and_the_first_one_nothing_to_compare_with() -> None:
    answer = state_sizes(archive(), {})
    assert (answer["checkpoint"], answer["base"], answer["operators"]) == (None, None, [])
    answer = state_sizes(archive(FIRST), {})
    assert answer["base"] is None
    assert answer["operators"][0]["change"] is None


def test_records_of_former_versions_have_no_sizes() -> None:
    old = {name: value for name, value in SAVEPOINT.items() if name != "states"}
    answer = state_sizes(archive(old), {})
    assert [row["id"] for row in answer["checkpoints"]] == [1]
