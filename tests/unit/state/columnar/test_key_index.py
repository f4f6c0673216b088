"""Keys of columns as slots, against a dict; arrays that grow."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from firesteel.state.columnar.growing import GrowingArray
from firesteel.state.columnar.key_index import KeyIndex

Make = Callable[[random.Random], Any]
NAN = float("nan")
VALUES: dict[pa.DataType, list[Make]] = {
    pa.int64(): [
        lambda r: r.randrange(100),
        lambda r: r.randrange(-(10**6), 10**6),
        lambda r: r.choice([-(2**63), 2**63 - 1, 0, 5]),
        lambda r: r.getrandbits(62) << 1,
        lambda r: r.randrange(50) << 40,
    ],
    pa.int32(): [lambda r: r.randrange(-(2**31), 2**31), lambda r: r.randrange(5)],
    pa.int16(): [lambda r: r.randrange(-(2**15), 2**15)],
    pa.int8(): [lambda r: r.randrange(-128, 128)],
    pa.bool_(): [lambda r: r.random() < 0.5],
    pa.float64(): [lambda r: r.choice([0.0, -0.0, NAN, -NAN, 1.5, float("inf"), -1.5])],
    pa.float32(): [lambda r: r.choice([0.0, -0.0, NAN, 1.5, float("inf"), -1.5])],
    pa.string(): [
        lambda r: r.choice(["", "ä", "𝄞x", str(r.randrange(1000))]),
        lambda r: r.choice("aö\0") * r.choice([0, 1, 6, 7, 8, 14, 15, 16, 30, 31, 32, 33, 300]),
        lambda r: f"key {r.randrange(10 ** r.randrange(1, 40))}",
    ],
    pa.binary(): [
        lambda r: r.choice([b"", b"\0", b"\0\0", bytes([r.randrange(255)])]),
        lambda r: b"\0" * r.randrange(40) + bytes([r.randrange(256)]) * r.randrange(2),
    ],
    pa.decimal128(9, 2): [lambda r: Decimal(r.randrange(1000)) / 100],
    pa.date32(): [lambda r: datetime.date.fromordinal(r.randrange(1, 3000))],
    pa.timestamp("us"): [lambda r: datetime.datetime(1950, 1, 1) + datetime.timedelta(microseconds=r.randrange(999))],
    pa.time64("us"): [lambda r: datetime.time(r.randrange(24), 1)],
}


def same(value: Any) -> Any:
    """Equal for values that are one key."""
    return "nan" if isinstance(value, float) and value != value else value


class Model:
    """An index beside a dict that says what it has to be."""

    def __init__(self, seed: int) -> None:
        self.random = r = random.Random(seed)
        self.types = [r.choice(list(VALUES)) for _ in range(r.choice([1, 1, 1, 2, 3]))]
        self.makers = [r.choice(VALUES[data_type]) for data_type in self.types]
        self.nulls = r.choice([0, 0, 0.1, 0.5])
        self.index = KeyIndex(self.types)
        self.slots: dict[Any, int] = {}

    def batch(self, count: int) -> tuple[list[pa.Array], list[Any]]:
        r = self.random
        rows = [tuple(None if r.random() < self.nulls else make(r) for make in self.makers) for _ in range(count)]
        columns = []
        for position, data_type in enumerate(self.types):
            column = pa.array([row[position] for row in rows], data_type)
            if r.random() < 0.3:
                column = column.dictionary_encode()
            if r.random() < 0.3:  # a slice
                head = column.slice(0, min(3, count))
                column = pa.concat_arrays([head, column]).slice(len(head))
            columns.append(column)
        return columns, [tuple(map(same, row)) for row in rows]

    def add(self, count: int) -> None:
        columns, keys = self.batch(count)
        assert self.index.find(columns).tolist() == [self.slots.get(key, -1) for key in keys]
        before, used_slots = self.index.capacity, set(self.slots.values())
        slots = self.index.slots(columns).tolist()
        for key, slot in zip(keys, slots, strict=True):
            assert self.slots.get(key, slot) == slot
            assert key in self.slots or slot not in used_slots
            self.slots[key] = slot
            used_slots.add(slot)
        fresh = [slot for slot in dict.fromkeys(slots) if slot >= before]
        assert fresh == list(range(before, self.index.capacity))
        assert self.index.size == len(self.slots) <= self.index.capacity

    def check_keys(self) -> None:
        by_slot = {slot: key for key, slot in self.slots.items()}
        chosen = self.random.sample(sorted(by_slot), min(len(by_slot), 50))
        key_columns = self.index.keys(np.array(chosen, np.int64))
        assert [column.type for column in key_columns] == self.types
        rows = zip(*[column.to_pylist() for column in key_columns], strict=True)
        assert [tuple(map(same, row)) for row in rows] == [by_slot[slot] for slot in chosen]

    def release(self) -> None:
        keys = self.random.sample(list(self.slots), self.random.randrange(len(self.slots) + 1))
        self.index.release(np.array([self.slots.pop(key) for key in keys], np.int64))
        assert self.index.size == len(self.slots)


@pytest.mark.parametrize("seed", range(60))
def test_slots_are_those_of_a_dict(seed: int) -> None:
    model = Model(seed)
    sizes = [0, 1, 5, 100, 1000] if seed % 10 else [1000, 20_000]
    for _ in range(model.random.randrange(1, 10)):
        model.add(model.random.choice(sizes))
        model.check_keys()
        if model.random.random() < 0.4:
            model.release()
            model.check_keys()


@pytest.mark.parametrize("stride", [1, 1_000_003, 1 << 40])
def test_many_keys_come_and_go(stride: int) -> None:
    index = KeyIndex([pa.int64()])
    alive: dict[int, int] = {}
    for step in range(30):
        keys = np.arange(step * 5000, step * 5000 + 10_000) * stride
        slots = index.slots([pa.array(keys)])
        for key, slot in zip(keys.tolist(), slots.tolist(), strict=True):
            assert alive.setdefault(key, slot) == slot
        gone = [key for key in alive if key < (step - 2) * 5000 * stride]
        index.release(np.array([alive.pop(key) for key in gone], np.int64))
        assert index.size == len(alive)
        assert index.capacity <= 30_000  # slots are used again
    left = list(alive)
    assert index.find([pa.array(left)]).tolist() == list(alive.values())
    assert index.find([pa.array([-5, 1 << 60])]).tolist() == [-1, -1]


def test_growth_moves_a_piece_with_each_batch() -> None:
    index = KeyIndex([pa.int64()])
    keys = np.random.default_rng(3).permutation(400_000) * 1_000_003
    sizes = set()
    for start in range(0, len(keys), 1000):
        index.slots([pa.array(keys[start : start + 1000])])
        table = index._table
        sizes.add((len(table._cells.cells), None if table._old is None else len(table._old.cells)))
        assert index.find([pa.array(keys[: start + 1000 : 97])]).tolist() == list(range(0, start + 1000, 97))
    assert (1 << 20, 1 << 19) in sizes  # both tables stood beside each other for a while,
    assert (1 << 20, None) in sizes  # and the old one was given up


def test_keys_are_forgotten_while_the_table_grows() -> None:
    index = KeyIndex([pa.int64()])
    keys = np.random.default_rng(3).permutation(100_000) * 1_000_003
    while_growing = 0
    for start in range(0, len(keys), 1000):
        index.slots([pa.array(keys[start : start + 1000])])
        if start < 10_000:
            continue
        while_growing += index._table._old is not None
        early = start - 10_000
        index.release(index.find([pa.array(keys[early : early + 1000 : 2])]))
        assert index.find([pa.array(keys[: early + 1000 : 2])]).max() == -1
        assert index.find([pa.array(keys[1 : start + 1000 : 2])]).min() >= 0
    assert while_growing > 5
    assert index.size == 55_000


def test_a_window_of_numbers_grows_downwards() -> None:
    index = KeyIndex([pa.int64()])
    for start in range(0, -200_000, -1000):
        keys = pa.array(range(start, start + 1000))
        assert index.slots([keys]).min() >= 0
    assert index.size == index.capacity == 200_000
    assert index._table.count == 0
    keys = pa.array(range(-199_000, 1000))
    assert sorted(index.find([keys]).tolist()) == list(range(200_000))


def test_a_dictionary_is_equal_to_plain_values() -> None:
    index = KeyIndex([pa.string()])
    plain = index.slots([pa.array(["a", None, "b"])]).tolist()
    dictionary = pa.DictionaryArray.from_arrays(pa.array([1, 0, 2, None]), pa.array(["b", "a", None]))
    assert index.slots([dictionary]).tolist() == [plain[0], plain[2], plain[1], plain[1]]
    assert index.size == 3


def test_forgotten_texts_take_no_memory() -> None:
    index = KeyIndex([pa.string(), pa.int32()])
    for step in range(20):
        slots = index.slots([pa.array([f"{step}-{n}".rjust(40) for n in range(100)]), pa.array(range(100), pa.int32())])
        index.release(slots)
    assert index.size == 0
    assert index.capacity == 100
    interner: Any = index._columns[0]
    assert len(interner._interner._values) == 100
    assert not interner._interner._codes


class TestGrowingArray:
    @pytest.mark.parametrize("dtype", ["i8", "u1", "f8"])
    def test_keeps_what_is_in_it(self, dtype: str) -> None:
        array = GrowingArray(dtype)
        array.ensure(10)
        array.values[:10] = range(10)
        for size in (1000, 100_000, 300_000, 3_000_000):
            array.ensure(size)
            assert len(array) >= size
            assert array.get(np.arange(10)).tolist() == list(range(10))
            assert not array.values[10:].any()
        array.set(np.array([5, 2_999_999]), [7, 8])
        assert array.get(np.array([2_999_999, 5])).tolist() == [8, 7]

    def test_a_view_that_is_held_stays_as_it_was(self) -> None:
        array = GrowingArray(np.int64, 1_000_000)
        array.values[3] = 33
        view = array.values[:10]
        array.ensure(10_000_000)
        array.values[3] = 34
        assert view[3] == 33
        assert array.values[3] == 34


@pytest.mark.parametrize("codes", [[2, 2, 0, 2, 0, 0, 2, 2], [0, 2, 2, 0, 0, 0, 2], [0, 1, 1, 2, 0, 0, 1, 2]])
@pytest.mark.parametrize("values", [["a", "b", "c"], ["a", "b", "a"]])
def test_of_a_large_dictionary_only_what_rows_have_is_a_key_in_their_order(values: list[str], codes: list[int]) -> None:
    index = KeyIndex([pa.string()])
    slots = index.slots([pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(values))])
    plain = KeyIndex([pa.string()])
    assert slots.tolist() == plain.slots([pa.array([values[code] for code in codes])]).tolist()
    assert index.size == index.capacity == plain.size
    assert index.keys(np.arange(index.size))[0].equals(plain.keys(np.arange(plain.size))[0])
