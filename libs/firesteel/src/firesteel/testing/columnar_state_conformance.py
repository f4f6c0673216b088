"""Tests a backend's columnar state against its contract (``firesteel.state.columnar.store``)."""

from __future__ import annotations

import itertools
import os
import random
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.core.errors import ProgramError, StateMigrationError, StateRestoreError
from firesteel.state.backend import KeyedStateBackend, KeyedStateParameters, StateBackend
from firesteel.state.columnar.store import ColumnarState
from firesteel.state.heap import HeapStateBackend
from firesteel.state.snapshots import Purpose
from firesteel.testing.rules import require, require_raises
from firesteel.testing.snapshots import RunningSnapshot, SnapshotContents

GROUPS: Final = 8
_KEY_TYPES: Final = (
    (pa.int64(),),
    (pa.string(),),
    (pa.string(), pa.int32()),
    (pa.float64(), pa.date32(), pa.bool_()),
)
_Key = tuple[Any, ...]
_Model = dict[_Key, tuple[int, Any]]


def group_of(key: _Key) -> int:
    """Return the key group of a key, by a hash of the kit's own."""
    return sum(repr(key).encode()) % GROUPS


def _groups_of(columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
    keys = zip(*[column.to_pylist() for column in columns], strict=True)
    return np.fromiter((group_of(key) for key in keys), np.int32, len(columns[0]))


class _InFolder(StateBackend):
    """Wraps a backend so that each keyed backend has a directory of its own."""

    def __init__(self, backend: StateBackend, folder: str) -> None:
        self._backend, self._folder, self._numbers = backend, folder, itertools.count()

    def create_keyed_state(self, parameters: KeyedStateParameters) -> KeyedStateBackend:
        directory = os.path.join(self._folder, str(next(self._numbers)))
        return self._backend.create_keyed_state(replace(parameters, directory=directory))


def created(
    backend: StateBackend, name: str, types: Sequence[pa.DataType], groups: range = range(GROUPS)
) -> tuple[KeyedStateBackend, ColumnarState]:
    """Make a keyed backend with columns of one name."""
    parameters = KeyedStateParameters(
        key_groups=groups, key_groups_of=_groups_of, max_parallelism=GROUPS, operator="kit"
    )
    keyed = backend.create_keyed_state(parameters)
    return keyed, keyed.columns(name, types)


class _State:
    """Columnar state with a number and a text for each key."""

    def __init__(self, backend: StateBackend, types: Sequence[pa.DataType], groups: range = range(GROUPS)) -> None:
        self.keyed, self.state = created(backend, "kit", types, groups)
        self.types = types
        self.number = self.state.column("number", pa.int64())
        self.text = self.state.column("text", pa.string())

    def columns(self, keys: Sequence[_Key]) -> list[pa.Array]:
        """Return keys as one column for each part."""
        return [pa.array([key[at] for key in keys], data_type) for at, data_type in enumerate(self.types)]

    def put(self, values: _Model) -> None:
        """Write values of keys."""
        slots = self.state.slots(self.columns(list(values)))
        self.state.touch(slots)
        self.number.set(slots, [number for number, _ in values.values()])
        texts = np.empty(len(values), object)
        texts[:] = [text for _, text in values.values()]
        self.text.set(slots, texts)

    def remove(self, keys: Sequence[_Key]) -> None:
        """Remove keys, which must have values."""
        self.state.release(self.state.find(self.columns(keys)))

    def read(self) -> _Model:
        """Return all keys and values."""
        model: _Model = {}
        for slots in self.state.pieces():
            keys = zip(*[column.to_pylist() for column in self.state.index.keys(slots)], strict=True)
            numbers, texts = self.number.get(slots).tolist(), self.text.get(slots).tolist()
            model.update(zip(keys, zip(numbers, texts, strict=True), strict=True))
        return model


def _key(rng: random.Random, types: Sequence[pa.DataType]) -> _Key:
    """Return one of about two hundred random keys."""
    parts: list[Any] = []
    for data_type in types:
        number = rng.randrange(200 if len(types) == 1 else 14)
        if rng.random() < 0.05:
            parts.append(None)
        elif data_type == pa.string():
            parts.append("ä" * (number % 23) + str(number))
        elif data_type == pa.float64():
            parts.append(number / 4)
        elif data_type == pa.date32():
            parts.append(pa.scalar(number, pa.int32()).cast(pa.date32()).as_py())
        else:
            parts.append(bool(number % 2) if data_type == pa.bool_() else number)
    return tuple(parts)


def _change(state: _State, model: _Model, rng: random.Random) -> None:
    """Make a random change to state and model, as operators do."""
    if rng.random() < 0.35 and model:
        removed = rng.sample(list(model), rng.randrange(1, 1 + min(40, len(model))))
        state.remove(removed)
        for key in removed:
            del model[key]
    else:
        values = {
            _key(rng, state.types): (rng.randrange(-(2**40), 2**40), rng.choice([None, "", "text", "ü"]))
            for _ in range(rng.randrange(60))
        }
        if values:
            state.put(values)
            model.update(values)


def _restored(
    backend: StateBackend, types: Sequence[pa.DataType], snapshots: Sequence[SnapshotContents], parallelism: int
) -> _Model:
    """Return the state that several subtasks restore together; each key must be in the subtask of its key group."""
    together: _Model = {}
    for index in range(parallelism):
        key_groups = range(GROUPS * index // parallelism, GROUPS * (index + 1) // parallelism)
        state = _State(backend, types, key_groups)
        state.keyed.restore([snapshot.of(key_groups) for snapshot in snapshots])
        model = state.read()
        require(all(group_of(key) in key_groups for key in model), "restore() brought keys of foreign key groups")
        together.update(model)
        state.keyed.close()
    return together


def _check_snapshots(backend: StateBackend, rng: random.Random) -> None:
    types = rng.choice(_KEY_TYPES)
    state, model = _State(backend, types), _Model()
    for _ in range(rng.randrange(1, 12)):
        _change(state, model, rng)
    require(state.read() == model, "what was written is not what is read")

    def between() -> None:
        if rng.random() < 0.5:
            _change(state, model, rng)

    base_contents: SnapshotContents | None = None
    for number in range(1, 5):
        expected = dict(model)
        base = number - 1 if base_contents is not None else None
        purpose = Purpose(number, True, base, rng.choice([0.5, 4.0]))
        taking = RunningSnapshot(state.keyed.snapshot(rng.choice([0.002, 0.0]), purpose), range(GROUPS), base_contents)
        _change(state, model, rng)
        contents = taking.rest(between)
        require(state.read() == model, "a snapshot changed the state")
        restored = _restored(backend, types, [contents], rng.randrange(1, 6))
        require(restored == expected, "a snapshot is not the state of its moment")
        if rng.random() < 0.5:  # a savepoint between two checkpoints
            expected = dict(model)
            taking = RunningSnapshot(state.keyed.snapshot(0.0, Purpose(100 + number, canonical=True)), range(GROUPS))
            _change(state, model, rng)
            whole = taking.rest(between)
            one_group_each = all(chunk.key_group in range(GROUPS) for chunk in whole.chunks)
            require(one_group_each, "a chunk of a canonical snapshot has several key groups")
            require(not whole.files, "a canonical snapshot has files")
            restored = _restored(HeapStateBackend(), types, [whole], rng.randrange(1, 6))
            require(restored == expected, "a canonical snapshot is not the state of its moment, as hashmap reads it")
        base_contents = contents if rng.random() < 0.7 else None
    restored_state = _restored(backend, types, [contents], 3)
    halves = [_half(backend, types, restored_state, index) for index in range(2)]
    joined = _restored(backend, types, halves, rng.randrange(1, 6))
    require(joined == restored_state, "the snapshots of several subtasks are not restored together")
    given_up = state.keyed.snapshot()
    given_up.close()
    given_up.close()
    restored = _restored(backend, types, [RunningSnapshot(state.keyed.snapshot(), range(GROUPS)).rest()], 1)
    require(restored == model, "a snapshot behind one that was given up is not the state of its moment")
    state.keyed.close()
    state.keyed.close()


def _half(backend: StateBackend, types: Sequence[pa.DataType], model: _Model, index: int) -> SnapshotContents:
    """Return the snapshot of one of two subtasks with the state of ``model``."""
    key_groups = range(GROUPS * index // 2, GROUPS * (index + 1) // 2)
    state = _State(backend, types, key_groups)
    state.put({key: value for key, value in model.items() if group_of(key) in key_groups})
    return RunningSnapshot(state.keyed.snapshot(), key_groups).rest()


def _check_refusals(backend: StateBackend) -> None:
    state = _State(backend, (pa.int64(),))
    state.put({(n,): (n, None) for n in range(50)})
    taking = RunningSnapshot(state.keyed.snapshot(0.0), range(GROUPS))
    require_raises(RuntimeError, state.keyed.snapshot, "a second snapshot began before the end of the first")
    written = [taking.rest().of(range(GROUPS))]
    other_keys = _State(backend, (pa.string(),))
    require_raises(StateMigrationError, lambda: other_keys.keyed.restore(written), "keys of another type were taken")
    keyed, changed = created(backend, "kit", (pa.int64(),))
    changed.column("number", pa.string())
    require_raises(StateMigrationError, lambda: keyed.restore(written), "values of another type were taken")
    keyed, later = created(backend, "kit", (pa.int64(),))
    keyed.restore(written)
    require_raises(StateMigrationError, lambda: later.column("number", pa.int32()), "values of another type were given")
    number = later.column("number", pa.int64()).get(later.find([pa.array([7])])).tolist()
    require(number == [7], f"a column that is asked for behind restore() holds {number}, not what was written")
    stranger, _ = created(backend, "other", (pa.int64(),))
    require_raises(StateRestoreError, lambda: stranger.restore(written), "the state of another name was taken")
    require_raises(
        RuntimeError, lambda: stranger.columns("other", (pa.int64(),)), "there are columns of one name twice"
    )
    first_group = _State(backend, (pa.int64(),), range(1))
    foreign = next(n for n in range(50) if group_of((n,)) != 0)
    for _ in range(2):
        require_raises(
            ProgramError, lambda: first_group.put({(foreign,): (1, None)}), "a key of a foreign key group was taken"
        )


def check_columnar_state(backend: StateBackend | None = None, seeds: Iterable[int] = range(30)) -> None:
    """Check the columns of a backend, with random programs.

    Args:
        backend: the backend; None = ``hashmap``.
        seeds: seeds of the random programs.

    Raises:
        AssertionError: the message says which rule is broken.
    """
    backend = backend or HeapStateBackend()
    with tempfile.TemporaryDirectory() as folder:
        placed = _InFolder(backend, folder)
        _check_refusals(placed)
        for seed in seeds:
            _check_snapshots(placed, random.Random(seed))
