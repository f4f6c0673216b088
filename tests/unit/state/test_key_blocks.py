"""Keys that were serialised by an earlier snapshot are written again as they are, as long as they are the same."""

from __future__ import annotations

import pickle
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from firesteel.common.typeinfo import Types
from firesteel.functions.state import ValueStateDescriptor
from firesteel.state import heap_snapshot
from firesteel.state.backend import KeyedStateParameters
from firesteel.state.heap import HeapKeyedState
from firesteel.state.heap_snapshot import decode
from firesteel.state.tables import HeapTable
from tests.examples import examples

KEYS = st.integers(0, 30)
STEPS = st.one_of(
    st.tuples(st.just("set"), KEYS, st.integers(-5, 5)),
    st.tuples(st.just("clear"), KEYS, st.just(0)),
    st.tuples(st.just("many"), KEYS, st.integers(1, 30)),
    st.tuples(st.just("snapshot"), st.just(0), st.just(0)),
    st.tuples(st.just("slice"), st.just(0), st.just(0)),
    st.tuples(st.just("abort"), st.just(0), st.just(0)),
    st.tuples(st.just("end"), st.just(0), st.just(0)),
)


def at_once() -> Any:
    return patch.multiple(heap_snapshot, KEYS_AT_ONCE=4, _MOST_BEHIND=6, _LARGEST_KEPT=60)


def make_state(type_info: Any = None) -> tuple[HeapKeyedState, Any]:
    part = HeapKeyedState(KeyedStateParameters(lambda key: 0, range(1)))
    return part, part.get_state(ValueStateDescriptor("n", type_info or Types.LONG()))


def named(number: int) -> str:
    """Blocks with some of the keys are too large to be kept."""
    return str(number) if number not in range(8, 12) else "a long key" * 7 + str(number)


def blocks_of(part: HeapKeyedState) -> list[bytes]:
    table = part._parts["n", "plain"].table
    assert isinstance(table, HeapTable)
    return table.key_blocks


def read(chunks: list[Any]) -> dict[Any, Any]:
    entries = [entry for chunk in chunks for entry in decode(chunk.data)]
    assert len(entries) == sum(chunk.count for chunk in chunks)
    values = dict(entries)
    assert len(values) == len(entries), "a key came twice"
    return values


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_each_snapshot_is_the_state_of_its_moment(steps: list[tuple[str, int, int]]) -> None:
    part, state = make_state()
    model: dict[str, int] = {}
    running, expected = None, dict[str, int]()
    chunks: list[Any] = []
    with at_once():
        for what, number, value in [*steps, ("abort", 0, 0), ("snapshot", 0, 0)]:
            key = part.key = named(number)
            if what == "set":
                state.update(value)
                model[key] = value
            elif what == "clear":
                state.clear()
                model.pop(key, None)
            elif what == "many":
                for other in range(value):
                    part.key = named(other)
                    state.update(other)
                    model[named(other)] = other
            elif what == "abort" and running is not None:
                running.close()
                running = None
            elif what == "snapshot" and running is None:
                running, expected, chunks = part.snapshot(0.0), dict(model), []
            elif what in ("slice", "end") and running is not None:
                while (slice_chunks := next(running, None)) is not None:
                    chunks += slice_chunks
                    if what == "slice":
                        break
                if slice_chunks is None:
                    assert read(chunks) == expected
                    running = None
        assert running is not None
        assert read([chunk for slice_chunks in running for chunk in slice_chunks]) == model


def test_keys_that_were_removed_and_came_again_are_at_their_new_place() -> None:
    """Both at once, and while a snapshot runs: then changes are put back behind it."""
    for during in (False, True):
        part, state = make_state()
        with at_once():
            for key in range(8):
                part.key = key
                state.update(key)
            running = part.snapshot()
            chunks = [] if during else [chunk for slice_chunks in running for chunk in slice_chunks]
            part.key = 1
            state.clear()
            chunks += [chunk for slice_chunks in running for chunk in slice_chunks]
            part.key = 1
            state.update(100)
            assert read(chunks) == {key: key for key in range(8)}
            now = read([chunk for slice_chunks in part.snapshot() for chunk in slice_chunks])
        assert now == {**{key: key for key in range(8)}, 1: 100}


def test_keys_are_not_looked_at_again() -> None:
    part, state = make_state()
    with at_once():
        for key in range(10):
            part.key = key
            state.update(key)
        first = read([chunk for slice_chunks in part.snapshot() for chunk in slice_chunks])
        with patch.object(heap_snapshot, "dumps", side_effect=AssertionError("of keys that are known")) as dumps:
            dumps.side_effect = lambda what, value: pickle.dumps(value) if len(value) < 4 else None
            for key in range(10):
                part.key = key
                state.update(key + 1)
            second = read([chunk for slice_chunks in part.snapshot() for chunk in slice_chunks])
    assert first == {key: key for key in range(10)}
    assert second == {key: key + 1 for key in range(10)}


def test_large_keys_are_not_kept() -> None:
    part, state = make_state()
    with at_once():
        for key in range(10):
            part.key = f"a key of some length, number {key}"
            state.update(key)
        for _ in range(2):
            assert len(read([chunk for slice_chunks in part.snapshot() for chunk in slice_chunks])) == 10
    assert blocks_of(part) == []


def test_values_of_other_types_are_written_as_before() -> None:
    part, state = make_state(Types.PICKLED_BYTE_ARRAY())
    for key in range(3000):
        part.key = key
        state.update([key])
    for _ in range(2):
        assert len(read([chunk for slice_chunks in part.snapshot() for chunk in slice_chunks])) == 3000
    assert blocks_of(part) == []
