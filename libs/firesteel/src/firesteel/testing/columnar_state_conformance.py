"""Holds state in arrays against its contract (``firesteel.state.columnar.store``)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.core.errors import ProgramError, StateMigrationError
from firesteel.state.backend import KeyedSnapshot, StateChunk, StateInfo
from firesteel.state.columnar.store import ColumnarState, GroupsOf

GROUPS: Final = 8
Create = Callable[[str, Sequence[pa.DataType], GroupsOf, range], ColumnarState]
"""Makes a state of a name, types of the key's columns, what gives key groups of columns, and the own key groups."""
_KEY_TYPES: Final = (
    (pa.int64(),),
    (pa.string(),),
    (pa.string(), pa.int32()),
    (pa.float64(), pa.date32(), pa.bool_()),
)
_Key = tuple[Any, ...]
_Model = dict[_Key, tuple[int, Any]]


def group_of(key: _Key) -> int:
    """A key group of the kit's own."""
    return sum(repr(key).encode()) % GROUPS


def _groups_of(columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
    keys = zip(*[column.to_pylist() for column in columns], strict=True)
    return np.fromiter((group_of(key) for key in keys), np.int32, len(columns[0]))


class _State:
    """A state with a number and a text for each key."""

    def __init__(self, create: Create, types: Sequence[pa.DataType], groups: range = range(GROUPS)) -> None:
        self.state, self.types = create("kit", types, _groups_of, groups), types
        self.number = self.state.column("number", pa.int64())
        self.text = self.state.column("text", pa.string())

    def columns(self, keys: Sequence[_Key]) -> list[pa.Array]:
        """Keys as columns."""
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
        """Forget keys that are in it."""
        self.state.release(self.state.find(self.columns(keys)))

    def read(self) -> _Model:
        """All keys and values."""
        slots = self.state.in_use()
        keys = zip(*[column.to_pylist() for column in self.state.index.keys(slots)], strict=True)
        numbers, texts = self.number.get(slots).tolist(), self.text.get(slots).tolist()
        return dict(zip(keys, zip(numbers, texts, strict=True), strict=True))

    def restore(self, states: Sequence[StateInfo], chunks: Iterable[StateChunk]) -> None:
        """As the runtime does, with the descriptions as plain data between."""
        self.state.restore([StateInfo.from_json(info.to_json()) for info in states], chunks)


def _key(rng: random.Random, types: Sequence[pa.DataType]) -> _Key:
    """One of about two hundred keys."""
    made: list[Any] = []
    for data_type in types:
        number = rng.randrange(200 if len(types) == 1 else 14)
        if rng.random() < 0.05:
            made.append(None)
        elif data_type == pa.string():
            made.append("ä" * (number % 23) + str(number))
        elif data_type == pa.float64():
            made.append(number / 4)
        elif data_type == pa.date32():
            made.append(pa.scalar(number, pa.int32()).cast(pa.date32()).as_py())
        else:
            made.append(bool(number % 2) if data_type == pa.bool_() else number)
    return tuple(made)


def _change(held: _State, model: _Model, rng: random.Random) -> None:
    """Something that operators do."""
    if rng.random() < 0.35 and model:
        gone = rng.sample(list(model), rng.randrange(1, 1 + min(40, len(model))))
        held.remove(gone)
        for key in gone:
            del model[key]
    else:
        values = {
            _key(rng, held.types): (rng.randrange(-(2**40), 2**40), rng.choice([None, "", "text", "ü"]))
            for _ in range(rng.randrange(60))
        }
        if values:
            held.put(values)
            model.update(values)


def _restored(create: Create, types: Sequence[pa.DataType], snapshots: Sequence[Any], parallelism: int) -> _Model:
    """What several subtasks have together after a restore; each key in the subtask of its key group."""
    together: _Model = {}
    for index in range(parallelism):
        first, after = GROUPS * index // parallelism, GROUPS * (index + 1) // parallelism
        held = _State(create, types, range(first, after))
        for states, chunks in snapshots:
            held.restore(states, chunks)
        found = held.read()
        assert all(first <= group_of(key) < after for key in found), "keys of foreign key groups were restored"
        assert not set(found) & set(together)
        together.update(found)
        held.state.close()
    return together


def _drive(snapshot: KeyedSnapshot, between: Callable[[], None]) -> list[StateChunk]:
    chunks: list[StateChunk] = []
    for part in snapshot:
        chunks += part
        between()
    return chunks


def _check_snapshots(create: Create, rng: random.Random) -> None:
    types = rng.choice(_KEY_TYPES)
    held, model = _State(create, types), _Model()
    for _ in range(rng.randrange(1, 12)):
        _change(held, model, rng)
    assert held.read() == model, "what was written is not what is read"
    wanted = dict(model)
    snapshot = held.state.snapshot(rng.choice([0.002, 0.0]))
    _change(held, model, rng)

    def between() -> None:
        if rng.random() < 0.5:
            _change(held, model, rng)

    chunks = _drive(snapshot, between)
    assert held.read() == model, "a snapshot changed the state"
    for chunk in chunks:
        assert chunk.count > 0
        assert snapshot.states[chunk.state].kind == "columns"
    given = [(snapshot.states, chunks)]
    assert _restored(create, types, given, rng.randrange(1, 6)) == wanted, "a snapshot is not the state of its moment"
    halves = [(snapshot.states, chunks[::2]), (snapshot.states, chunks[:0]), (snapshot.states, chunks[1::2])]
    assert _restored(create, types, halves, rng.randrange(1, 6)) == wanted, "several snapshots are not taken together"
    again = held.state.snapshot()
    again.close()
    again.close()
    second = held.state.snapshot()
    assert _restored(create, types, [(second.states, _drive(second, lambda: None))], 1) == model
    held.state.close()
    held.state.close()


def _check_refusals(create: Create) -> None:
    held = _State(create, (pa.int64(),))
    held.put({(n,): (n, None) for n in range(50)})
    snapshot = held.state.snapshot(0.0)
    try:
        held.state.snapshot()
    except RuntimeError:
        pass
    else:
        raise AssertionError("a second snapshot began before the end of the first")
    chunks = _drive(snapshot, lambda: None)
    other = _State(create, (pa.string(),))
    _expect(StateMigrationError, lambda: other.restore(snapshot.states, chunks), "keys of another type were taken")
    changed = create("kit", (pa.int64(),), _groups_of, range(GROUPS))
    changed.column("number", pa.string())
    _expect(StateMigrationError, lambda: changed.restore(snapshot.states, chunks), "values of another type were taken")
    later = create("kit", (pa.int64(),), _groups_of, range(GROUPS))
    later.restore(snapshot.states, chunks)
    _expect(StateMigrationError, lambda: later.column("number", pa.int32()), "values of another type were given")
    assert later.column("number", pa.int64()).get(later.find([pa.array([7])])).tolist() == [7]
    stranger = create("other", (pa.int64(),), _groups_of, range(GROUPS))
    stranger.restore(snapshot.states, chunks)
    assert not stranger.in_use().size, "the state of another name was taken"
    own = _State(create, (pa.int64(),), range(1))
    foreign = next(n for n in range(50) if group_of((n,)) != 0)
    for _ in range(2):
        _expect(ProgramError, lambda: own.put({(foreign,): (1, None)}), "a key of a foreign key group was taken")


def _expect(error: type[Exception], call: Callable[[], object], otherwise: str) -> None:
    try:
        call()
    except error:
        return
    raise AssertionError(otherwise)


def check_columnar_state(create: Create = ColumnarState, seeds: Iterable[int] = range(30)) -> None:
    """Raises ``AssertionError`` where a state does not keep the contract.

    Args:
        create: makes states.
        seeds: of the random programs.
    """
    _check_refusals(create)
    for seed in seeds:
        _check_snapshots(create, random.Random(seed))
