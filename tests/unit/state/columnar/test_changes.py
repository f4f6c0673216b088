"""Checkpoints that build on each other hold what a plain dict held, whatever was given up in between."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from firesteel.checkpoint.chunks import read_chunks, write_chunks
from firesteel.checkpoint.handles import InlineState, StateHandle
from firesteel.runtime.checkpoints.deltas import BASE, Deltas, Written
from firesteel.state.backend import StateChunk, StateInfo
from firesteel.state.columnar import store
from firesteel.state.columnar.store import ColumnarState

GROUPS = 8
PLACE = ("operator", "columns")
Model = dict[str, int]


def groups_of(columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
    return np.array([sum(key.encode()) % GROUPS for key in columns[0].to_pylist()], np.int32)


def empty(groups: range = range(GROUPS)) -> ColumnarState:
    state = ColumnarState("n", [pa.string()], groups_of, groups)
    state.column("n", pa.int64())
    return state


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


def restored(states: Sequence[StateInfo], handles: Sequence[StateHandle], parallelism: int) -> Model:
    found: Model = {}
    for subtask in range(parallelism):
        state = empty(range(subtask * GROUPS // parallelism, (subtask + 1) * GROUPS // parallelism))
        chunks = [
            StateChunk(*chunk)
            for handle in handles
            if isinstance(handle, InlineState)
            for chunk in read_chunks(io.BytesIO(handle.data), "here")
        ]
        state.restore(states, chunks)
        mine = content(state)
        assert not mine.keys() & found.keys()
        found |= mine
    return found


def taken(
    deltas: Deltas, state: ColumnarState, model: Model, number: int, base: int, rng: random.Random | None
) -> tuple[list[StateInfo], Written]:
    snapshot, written = deltas.begin(PLACE, state, {BASE: str(base)} if base else {})
    chunks = []
    for part in snapshot:
        chunks += part
        if rng is not None and rng.random() < 0.3:
            change(state, model, rng, 20)
    data = write_chunks([(chunk.state, chunk.key_group, chunk.count, chunk.data) for chunk in chunks])
    written = replace(written, handles=(*written.handles, InlineState(data)))
    deltas.written(PLACE, number, written)
    return [StateInfo.from_json(info.to_json()) for info in snapshot.states], written


@pytest.mark.parametrize("seed", range(12))
def test_checkpoints_that_build_on_each_other_are_the_state_of_their_moment(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(store, "_REMOVED", rng.choice([3, 1 << 16]))
    monkeypatch.setattr(store, "_REMOVALS", rng.choice([2, 256]))
    state, deltas = empty(), Deltas(rng.choice([0.3, 1.0, 4.0]))
    model: Model = {}
    change(state, model, rng, 300)
    base, pieces = 0, []
    for number in range(1, 30):
        change(state, model, rng, rng.choice([2, 10, 60]))
        wanted = dict(model)
        states, written = taken(deltas, state, model, number, base, rng)
        pieces.append(len(written.handles))
        assert restored(states, written.handles, rng.choice([1, 2, 3, 8])) == wanted
        assert content(state) == model
        if rng.random() < 0.7:  # else it is given up
            base = number
    assert max(pieces) > 1, "no checkpoint built on another one"


def test_changes_are_as_large_as_what_changed_until_there_is_too_much_of_them() -> None:
    state, deltas = empty(), Deltas(0.5)
    model: Model = {}
    put(state, model, {f"key {n}": n for n in range(1000)})
    rows, pieces = [], []
    for number in range(1, 8):
        put(state, model, {f"key {n}": -number for n in range(200)})
        snapshot, written = deltas.begin(PLACE, state, {BASE: str(number - 1)})
        rows.append(sum(chunk.count for part in snapshot for chunk in part))
        deltas.written(PLACE, number, replace(written, handles=(*written.handles, InlineState(b""))))
        pieces.append(len(written.handles) + 1)
    assert rows == [1000, 200, 200, 1000, 200, 200, 1000]
    assert pieces == [1, 2, 3, 1, 2, 3, 1]


def test_a_checkpoint_that_the_task_has_not_written_is_not_built_on() -> None:
    state, deltas = empty(), Deltas(1.0)
    model: Model = {}
    put(state, model, {"a": 1, "b": 2})
    taken(deltas, state, model, 5, 0, None)
    put(state, model, {"a": 3})
    states, written = taken(deltas, state, model, 6, 4, None)
    assert len(written.handles) == 1
    assert restored(states, written.handles, 2) == {"a": 3, "b": 2}


def test_what_was_given_up_is_in_the_next_one() -> None:
    state, deltas = empty(), Deltas(9.0)
    model: Model = {}
    put(state, model, {"a": 1, "b": 2, "c": 3})
    taken(deltas, state, model, 1, 0, None)
    put(state, model, {"a": 10})
    remove(state, model, ["b"])
    taken(deltas, state, model, 2, 1, None)  # given up
    put(state, model, {"d": 4})
    states, written = taken(deltas, state, model, 3, 1, None)
    assert len(written.handles) == 2
    assert restored(states, written.handles, 1) == {"a": 10, "c": 3, "d": 4}
