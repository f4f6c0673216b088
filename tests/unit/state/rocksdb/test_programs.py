"""Random programs on state of all kinds, with little memory and with much, against plain dicts."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from firesteel.common.time import Time
from firesteel.functions.state import StateTtlConfig
from firesteel.state.backend import KeyedStateParameters
from firesteel.state.snapshots import Purpose
from firesteel.testing.snapshots import RunningSnapshot, SnapshotContents
from firesteel_rocksdb import table
from firesteel_rocksdb.backend import RocksDBKeyedState
from firesteel_rocksdb.settings import RocksDBSettings
from tests.unit.state.test_models import GROUPS, KEYS, TTL, Programs, run


class OnDisk(Programs):
    """Snapshots build on each other, and the program goes on from what was restored."""

    memory = 1

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.made: list[RocksDBKeyedState] = []
        self.complete: SnapshotContents | None = None
        self.number = 0

    def backend(self, groups: range) -> Any:
        parameters = KeyedStateParameters(
            key_group_of=lambda key: key % GROUPS,
            key_groups=groups,
            clock=self.clock,
            memory=self.memory,
            directory=str(self.folder / str(len(self.made))),
        )
        self.made.append(RocksDBKeyedState(parameters, RocksDBSettings()))
        return self.made[-1]

    def teardown(self) -> None:
        for keyed in self.made:
            keyed.close()
        left = [path.name for path in self.folder.iterdir()]
        shutil.rmtree(self.folder)
        assert left == []

    @precondition(lambda self: self.running is None)
    @rule(seconds=st.sampled_from([0.0, 0.002]))
    def snapshot(self, seconds: float) -> None:
        self.expected = self.alive()
        self.taken_at = self.now
        self.number += 1
        base = None if self.complete is None else self.number - 1
        running = self.keyed.snapshot(seconds, Purpose(self.number, True, base))
        self.running = RunningSnapshot(running, range(GROUPS), self.complete)

    @precondition(lambda self: self.running is not None)
    @rule(parallelism=st.integers(1, GROUPS), goes_on=st.booleans())
    def slice(self, parallelism: int, goes_on: bool) -> None:
        contents = self.running.step()
        if contents is None:
            return
        self.running = None
        self.complete = contents
        self.check_taken(contents, parallelism)
        if goes_on and self.expected == self.alive() and self.taken_at == self.now:
            self.keyed.close()
            self.keyed = self.backend(range(GROUPS))
            self.keyed.restore([contents.of(range(GROUPS))])
            self.states = self.open(self.keyed)
            self.keyed.key = self.key

    @rule(keys=st.lists(KEYS))
    def fetch(self, keys: list[int]) -> None:
        self.keyed.fetch_ahead(lambda: keys)

    @precondition(lambda self: self.running is not None)
    @rule()
    def give_up(self) -> None:
        self.running.snapshot.close()
        self.running = self.complete = None

    def check_taken(self, contents: SnapshotContents, parallelism: int) -> None:
        parts = []
        for subtask in range(parallelism):
            own = range(subtask * GROUPS // parallelism, (subtask + 1) * GROUPS // parallelism)
            keyed = self.backend(own)
            keyed.restore([contents.of(own)])
            self.check_restored(keyed, own)
            parts.append(RunningSnapshot(keyed.snapshot(), own).rest())
        whole = self.backend(range(GROUPS))
        whole.restore([part.of(range(GROUPS)) for part in parts])
        self.check_restored(whole, range(GROUPS))


def test_programs_with_hardly_any_memory() -> None:
    run(OnDisk)


@pytest.mark.parametrize("memory", [1, 1 << 14])
def test_programs_that_say_which_keys_come_next(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "FETCHED_TOGETHER", 1)
    monkeypatch.setattr(table, "_SKIPPED", 0)

    class Machine(OnDisk):
        pass

    Machine.memory = memory
    run(Machine)


def test_programs_in_memory() -> None:
    class Machine(OnDisk):
        memory = 0

    run(Machine)


@pytest.mark.parametrize("memory", [1, 0])
@pytest.mark.parametrize("reads", [False, True])
def test_programs_with_time_to_live(memory: int, reads: bool) -> None:
    config = StateTtlConfig.new_builder(Time.milliseconds(TTL)).cleanup_incrementally(2, True)
    if reads:
        config = config.update_ttl_on_read_and_write()

    class Machine(OnDisk):
        ttl = config.build()
        reads_extend = reads

    Machine.memory = memory
    run(Machine)
