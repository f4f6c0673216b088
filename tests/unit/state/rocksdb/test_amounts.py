"""How many entries tables of a database have: small ones counted, large ones by some of their key groups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firesteel.common.typeinfo import Types
from firesteel.functions.state import MapStateDescriptor, ValueStateDescriptor
from firesteel.state.backend import KeyedStateParameters
from firesteel_rocksdb.amounts import COUNTED, SAMPLED, SECONDS, Amounts
from firesteel_rocksdb.backend import RocksDBKeyedState
from firesteel_rocksdb.settings import RocksDBSettings

GROUPS = range(10, 74)


class Tables:
    """Tables with so many entries of 10 bytes in each key group."""

    def __init__(self, **per_group: Callable[[int], int]) -> None:
        self.per_group = {int(number[1:]): entries for number, entries in per_group.items()}
        self.read = 0
        self.now = 100.0
        self.amounts = Amounts(self.count, lambda: 1_000_000, lambda: self.now)

    def count(self, number: int, groups: range, most: int) -> tuple[int, int, bool]:
        entries = sum(self.per_group[number](group) for group in groups)
        self.read += min(entries, most)
        return min(entries, most), 10 * min(entries, most), entries <= most


def test_small_tables_are_counted() -> None:
    tables = Tables(t1=lambda group: 1, t2=lambda group: 0)
    assert [tuple(amount) for amount in tables.amounts.of([1, 2], GROUPS)] == [(64, 640, True), (0, 0, True)]


def test_of_a_large_table_some_key_groups_stand_for_all() -> None:
    tables = Tables(t1=lambda group: 990 + group % 3 * 10)
    (amount,) = tables.amounts.of([1], GROUPS)
    assert not amount.counted
    assert abs(amount.entries - 64_000) < 700
    assert amount.size == 10 * amount.entries
    assert tables.read <= COUNTED + SAMPLED
    tables.read = 0
    assert tables.amounts.of([1], GROUPS) == [amount], "the sample is still good"
    assert tables.read == COUNTED
    tables.now += SECONDS
    tables.per_group[1] = lambda group: 2000
    assert tables.amounts.of([1], GROUPS)[0].entries == 128_000
    assert tables.amounts.of([1], range(10, 42))[0].entries == 64_000, "after a rescale others are looked at"


def test_what_is_too_large_for_a_sample_has_what_is_left_of_the_databases_own_estimate() -> None:
    tables = Tables(t1=lambda group: 1, t2=lambda group: SAMPLED + 1, t3=lambda group: SAMPLED + 1)
    small, *large = tables.amounts.of([1, 2, 3], GROUPS)
    assert small.counted
    assert [amount.entries for amount in large] == [(1_000_000 - 64) // 2] * 2
    assert not large[0].counted
    assert large[0].size == 10 * large[0].entries


@pytest.fixture
def keyed(tmp_path: Path) -> Any:
    parameters = KeyedStateParameters(
        key_group_of=lambda key: key % 16, key_groups=range(16), max_parallelism=16, operator="o",
        directory=str(tmp_path / "attempt"),
    )  # fmt: skip
    state = RocksDBKeyedState(parameters, RocksDBSettings())
    yield state
    state.close()


class Files:
    known: dict[str, int] = {}

    def put(self, name: str, path: str) -> None:
        pass


def test_a_snapshot_in_files_says_how_much_of_each_state_is_in_them(keyed: Any) -> None:
    total = keyed.get_state(ValueStateDescriptor("total", Types.LONG()))
    names = keyed.get_map_state(MapStateDescriptor("names", Types.STRING(), Types.LONG()))
    keyed.get_state(ValueStateDescriptor("never", Types.LONG()))
    for key in range(30_000):
        keyed.key = key
        total.update(key)
        if key % 1000 == 0:
            names.put("a" * 1000, 1)
    snapshot = keyed.snapshot()
    for _ in snapshot:
        pass
    snapshot.write_files(Files())
    amounts = {
        info.name: snapshot.amounts[index] for index, info in enumerate(snapshot.states) if index in snapshot.amounts
    }
    assert amounts["names"].entries == 30
    assert amounts["names"].counted
    assert amounts["names"].size > 30_000
    assert not amounts["total"].counted
    assert 29_000 < amounts["total"].entries < 31_000
    assert amounts.get("never") is None or amounts["never"].entries == 0


def test_nothing_is_counted_in_a_database_that_is_closed(keyed: Any) -> None:
    total = keyed.get_state(ValueStateDescriptor("total", Types.LONG()))
    keyed.key = 1
    total.update(1)
    snapshot = keyed.snapshot()
    for _ in snapshot:
        pass
    database = keyed.database
    keyed.close()
    assert database.count(b"\0", b"\xff", 10) == (0, 0, True)
