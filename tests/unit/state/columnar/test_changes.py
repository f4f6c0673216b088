"""Checkpoints that build on each other hold what a plain dict held, whatever was given up in between."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from firesteel.state.backend import KeyedStateParameters
from firesteel.state.columnar import store
from firesteel.state.columnar.store import ColumnarState
from firesteel.state.heap import HeapKeyedState
from firesteel.state.snapshots import Purpose
from firesteel.testing.snapshots import RunningSnapshot, SnapshotContents

GROUPS = 8
Model = dict[str, int]


def groups_of(columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
    return np.array([sum(key.encode()) % GROUPS for key in columns[0].to_pylist()], np.int32)


def empty(groups: range = range(GROUPS)) -> tuple[HeapKeyedState, ColumnarState]:
    keyed = HeapKeyedState(KeyedStateParameters(key_groups_of=groups_of, key_groups=groups))
    state = keyed.columns("n", [pa.string()])
    state.column("n", pa.int64())
    return keyed, state


def put(state: ColumnarState, model: Model, entries: Model) -> None:
    slots = state.slots([pa.array(entries)])
    state.touch(slots)
    state.columns["n"].set(slots, np.array(list(entries.values())))
    model.update(entries)


def remove(state: ColumnarState, model: Model, keys: Sequence[str]) -> None:
    state.release(state.slots([pa.array(keys, pa.string())]))
    for key in keys:
        del model[key]


def change(state: ColumnarState, model: Model, rng: random.Random, most: int) -> None:
    keys = [f"{'long ' * 8 if rng.random() < 0.1 else ''}{rng.randrange(400)}" for _ in range(rng.randrange(1, most))]
    put(state, model, {key: rng.randrange(10**6) for key in keys})
    if rng.random() < 0.5:
        remove(state, model, rng.sample(sorted(model), min(len(model), rng.randrange(most))))


def content(state: ColumnarState) -> Model:
    slots = state.in_use()
    keys = state.index.keys(slots)[0].to_pylist()
    return dict(zip(keys, state.columns["n"].get(slots).tolist(), strict=True))


def restored(contents: SnapshotContents, parallelism: int) -> Model:
    model: Model = {}
    for subtask in range(parallelism):
        own = range(subtask * GROUPS // parallelism, (subtask + 1) * GROUPS // parallelism)
        keyed, state = empty(own)
        keyed.restore([contents.of(own)])
        mine = content(state)
        assert not mine.keys() & model.keys()
        model |= mine
    return model


class Checkpoints:
    """Of one state, with what each of them has."""

    def __init__(self, ratio: float) -> None:
        self.keyed, self.state = empty()
        self.model: Model = {}
        self._ratio = ratio
        self.contents: dict[int, SnapshotContents] = {}
        self.pieces: dict[int, int] = {}

    def take(self, number: int, base: int, rng: random.Random | None = None) -> int:
        """Returns how many rows are written."""
        purpose = Purpose(number, True, base if base in self.contents else None, self._ratio)
        taking = RunningSnapshot(self.keyed.snapshot(purpose=purpose), range(GROUPS), self.contents.get(base))

        def between() -> None:
            if rng is not None and rng.random() < 0.3:
                change(self.state, self.model, rng, 20)

        self.contents[number] = taking.rest(between)
        built_on = taking.snapshot.base
        self.pieces[number] = 1 if built_on is None else 1 + self.pieces[built_on]
        before = 0 if built_on is None else len(self.contents[built_on].chunks)
        return sum(chunk.count for chunk in self.contents[number].chunks[before:])


@pytest.mark.parametrize("seed", range(12))
def test_checkpoints_that_build_on_each_other_are_the_state_of_their_moment(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(store, "_REMOVED", rng.choice([3, 1 << 16]))
    monkeypatch.setattr(store, "_REMOVALS", rng.choice([2, 256]))
    job = Checkpoints(rng.choice([0.3, 1.0, 4.0]))
    change(job.state, job.model, rng, 300)
    base = 0
    for number in range(1, 30):
        change(job.state, job.model, rng, rng.choice([2, 10, 60]))
        expected = dict(job.model)
        job.take(number, base, rng)
        assert restored(job.contents[number], rng.choice([1, 2, 3, 8])) == expected
        assert content(job.state) == job.model
        if rng.random() < 0.7:  # else it is given up
            base = number
    assert max(job.pieces.values()) > 1, "no checkpoint built on another one"


def test_changes_are_as_large_as_what_changed_until_there_is_too_much_of_them() -> None:
    job = Checkpoints(0.5)
    put(job.state, job.model, {f"key {n}": n for n in range(1000)})
    rows = []
    for number in range(1, 8):
        put(job.state, job.model, {f"key {n}": -number for n in range(200)})
        rows.append(job.take(number, number - 1))
    assert rows == [1000, 200, 200, 1000, 200, 200, 1000]
    assert list(job.pieces.values()) == [1, 2, 3, 1, 2, 3, 1]


def test_a_checkpoint_that_the_task_has_not_written_is_not_built_on() -> None:
    job = Checkpoints(1.0)
    put(job.state, job.model, {"a": 1, "b": 2})
    job.take(5, 0)
    put(job.state, job.model, {"a": 3})
    running = RunningSnapshot(job.keyed.snapshot(purpose=Purpose(6, True, 4)), range(GROUPS))
    assert running.snapshot.base is None
    assert restored(running.rest(), 2) == {"a": 3, "b": 2}


def test_what_was_given_up_is_in_the_next_one() -> None:
    job = Checkpoints(9.0)
    put(job.state, job.model, {"a": 1, "b": 2, "c": 3})
    job.take(1, 0)
    put(job.state, job.model, {"a": 10})
    remove(job.state, job.model, ["b"])
    job.take(2, 1)  # given up
    put(job.state, job.model, {"d": 4})
    job.take(3, 1)
    assert job.pieces[3] == 2
    assert restored(job.contents[3], 1) == {"a": 10, "c": 3, "d": 4}
