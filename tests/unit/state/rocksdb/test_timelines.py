"""Random programs on records by time, with snapshots that go on meanwhile, against a plain dict."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from firesteel.state.backend import KeyedStateParameters
from firesteel.state.snapshots import Purpose
from firesteel.testing.snapshots import RunningSnapshot, SnapshotContents
from firesteel_rocksdb import timelines
from firesteel_rocksdb.backend import RocksDBKeyedState
from firesteel_rocksdb.settings import RocksDBSettings
from tests.examples import examples

GROUPS = 4
# Few of each, so that programs come back to what a snapshot is writing.
KEYS = st.integers(0, 1)
TIMES = st.integers(-1, 2)
EVER = -(1 << 63), (1 << 63) - 1

Model = dict[int, dict[int, list[int]]]
"""Records by key and time."""


class Timelines(RuleBasedStateMachine):
    """Adds, removals and reads, while snapshots are taken, given up and restored."""

    memory = 1
    reads_all = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.backends: list[RocksDBKeyedState] = []
        self.model: Model = {key: {} for key in range(2)}
        self.at_snapshot: Model = {}
        self.running: RunningSnapshot | None = None
        self.base: SnapshotContents | None = None
        self.snapshots = self.records = 0
        self.open(None)

    @initialize(reads_all=st.booleans())
    def begin(self, reads_all: bool) -> None:
        """Reading everything after each step tells the timeline what the database has, so only some programs do."""
        self.reads_all = reads_all

    def backend(self, contents: SnapshotContents | None) -> RocksDBKeyedState:
        parameters = KeyedStateParameters(
            key_group_of=lambda key: key % GROUPS,
            key_groups=range(GROUPS),
            memory=self.memory,
            directory=str(self.folder / str(len(self.backends))),
        )
        keyed = RocksDBKeyedState(parameters, RocksDBSettings())
        self.backends.append(keyed)
        if contents is not None:
            keyed.restore([contents.of(range(GROUPS))])
        return keyed

    def open(self, contents: SnapshotContents | None) -> None:
        self.keyed = self.backend(contents)
        self.timeline, self.other = self.keyed.timeline("records"), self.keyed.table("other")

    def teardown(self) -> None:
        for keyed in self.backends:
            keyed.close()
        shutil.rmtree(self.folder)

    def expected(self, key: int, first: int, last: int) -> list[tuple[int, int]]:
        by_time = self.model[key]
        return [(time, record) for time in sorted(by_time) if first <= time <= last for record in by_time[time]]

    @rule(key=KEYS, time=TIMES)
    def add(self, key: int, time: int) -> None:
        self.records += 1
        self.timeline.add(key, time, self.records)
        self.model[key].setdefault(time, []).append(self.records)

    @rule(key=KEYS, time=TIMES)
    def remove(self, key: int, time: int) -> None:
        self.timeline.remove(key, time)
        self.model[key].pop(time, None)

    @rule(key=KEYS, first=TIMES, last=TIMES)
    def read(self, key: int, first: int, last: int) -> None:
        assert list(self.timeline.between(key, first, last)) == self.expected(key, first, last)

    @rule(key=KEYS, first=TIMES, last=TIMES, count=st.integers(1, 200))
    def read_while_other_state_is_written(self, key: int, first: int, last: int, count: int) -> None:
        """Functions of interval joins do: that may write the timeline, too, to the database."""
        records = []
        for record in self.timeline.between(key, first, last):
            records.append(record)
            self.write_other_state(count)
        assert records == self.expected(key, first, last)

    @rule(count=st.integers(1, 400))
    def write_other_state(self, count: int) -> None:
        for number in range(count):
            self.other[number] = [number]

    @rule(key=KEYS, count=st.integers(1, 300))
    def write_until_memory_is_full(self, key: int, count: int) -> None:
        for time in range(1000, 1000 + count):
            self.timeline.add(key, time, time)
        for time in range(1000, 1000 + count):
            self.timeline.remove(key, time)

    @precondition(lambda self: self.running is None)
    @rule()
    def begin_snapshot(self) -> None:
        self.snapshots += 1
        self.at_snapshot = copy.deepcopy(self.model)
        base = None if self.base is None else self.snapshots - 1
        snapshot = self.keyed.snapshot(0.0, Purpose(self.snapshots, True, base))
        self.running = RunningSnapshot(snapshot, range(GROUPS), self.base)

    @precondition(lambda self: self.running is not None)
    @rule(restores=st.booleans())
    def take_slice(self, restores: bool) -> None:
        assert self.running is not None
        contents = self.running.step()
        if contents is None:
            return
        self.running, self.base = None, contents
        timeline = self.backend(contents).timeline("records")
        for key, by_time in self.at_snapshot.items():
            restored = list(timeline.between(key, *EVER))
            assert restored == [(time, record) for time in sorted(by_time) for record in by_time[time]]
        if restores:
            self.keyed.close()
            self.open(contents)
            self.model = self.at_snapshot

    @precondition(lambda self: self.running is not None)
    @rule()
    def give_up_snapshot(self) -> None:
        assert self.running is not None
        self.running.snapshot.close()
        self.running = self.base = None

    @invariant()
    def has_what_the_dict_has(self) -> None:
        if self.reads_all:
            for key in self.model:
                assert list(self.timeline.between(key, *EVER)) == self.expected(key, *EVER)


@pytest.mark.parametrize(("memory", "remembered_keys"), [(1, 1024), (1 << 12, 1), (1 << 14, 1024), (0, 1024)])
def test_programs(memory: int, remembered_keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timelines, "_FEWEST", remembered_keys)

    class Machine(Timelines):
        pass

    Machine.memory = memory
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples(15),
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[RocksDBKeyedState]:
    """State with a timeline whose times 0 and 1 are on disk and 5 and 6 in memory, while a snapshot is taken."""
    parameters = KeyedStateParameters(
        key_group_of=lambda key: key % GROUPS,
        key_groups=range(GROUPS),
        memory=1 << 14,
        directory=str(tmp_path),
    )
    keyed = RocksDBKeyedState(parameters, RocksDBSettings())
    timeline = keyed.timeline("records")
    keyed.table("other")
    for time in (0, 1):
        timeline.add(1, time, time)
    RunningSnapshot(keyed.snapshot(0.0, Purpose(1, True, None)), range(GROUPS)).rest()
    for time in (5, 6):
        timeline.add(1, time, time)
    snapshot = keyed.snapshot(0.0, Purpose(2, True, None))
    yield keyed
    snapshot.close()
    keyed.close()


def write_until_memory_is_full(keyed: RocksDBKeyedState) -> None:
    for number in range(100):
        keyed.table("other")[number] = [number]


def test_records_stay_readable_while_their_receiver_makes_a_snapshot_write_them(keyed: RocksDBKeyedState) -> None:
    records = []
    for record in keyed.timeline("records").between(1, 0, 10):
        records.append(record)
        write_until_memory_is_full(keyed)
    assert records == [(0, 0), (1, 1), (5, 5), (6, 6)]


def test_records_behind_those_that_are_read_are_not_lost_when_a_snapshot_writes_them(
    keyed: RocksDBKeyedState,
) -> None:
    timeline = keyed.timeline("records")
    for _ in timeline.between(1, 0, 4):
        write_until_memory_is_full(keyed)
    assert list(timeline.between(1, 5, 6)) == [(5, 5), (6, 6)]
    timeline.remove(1, 5)
    assert list(timeline.between(1, 0, 10)) == [(0, 0), (1, 1), (6, 6)]
