"""Timers of which only the next ones are in memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.config import Settings
from firesteel.state.backend import KeyedStateParameters
from firesteel.state.heap import HeapKeyedState
from firesteel.state.heap_timers import HeapTimerQueue
from firesteel.state.snapshots import Purpose
from firesteel.testing.snapshots import RunningSnapshot, take_snapshot
from firesteel_rocksdb.backend import RocksDBKeyedState, RocksDBStateBackend
from firesteel_rocksdb.settings import RocksDBSettings
from firesteel_rocksdb.timers import RocksTimerQueue

GROUPS = 8
Make = Callable[..., RocksDBKeyedState]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    states: list[RocksDBKeyedState] = []

    def new(groups: range = range(GROUPS), memory: int = 1 << 20, **settings: Any) -> Any:
        parameters = KeyedStateParameters(
            key_group_of=lambda key: key % GROUPS,
            key_groups=groups,
            max_parallelism=GROUPS,
            operator="timers",
            memory=memory,
            directory=str(tmp_path / f"attempt-{len(states)}"),
        )
        states.append(RocksDBKeyedState(parameters, RocksDBSettings(**settings)))
        return states[-1]

    yield new
    for keyed in states:
        keyed.close()


def many(count: int, times: int) -> list[tuple[int, int, None]]:
    chance = random.Random(count)
    return list({(chance.randrange(-times, times), key, None): None for key in range(count)})


@pytest.mark.parametrize("times", [1_000_000, 50, 1], ids=["scattered", "some moments", "one or two moments"])
def test_more_timers_than_memory_fire_once_and_in_order(make: Make, times: int) -> None:
    queue = make().timers("t")
    timers = many(5_000, times)
    for timer in timers:
        assert queue.add(*timer)
        assert len(queue.head) < 2_000
    gone = timers[::7]
    for timer in gone:
        assert not queue.add(*timer)
        assert queue.discard(*timer)
        assert not queue.discard(*timer)
    left = set(timers) - set(gone)
    assert len(queue) == len(left)
    assert set(queue) == left
    fired = []
    for timer in queue.due(1 << 62):
        fired.append(tuple(timer))
        assert len(queue.head) < 2_000
    assert [timer[0] for timer in fired] == sorted(timer[0] for timer in left)
    assert set(fired) == left
    assert len(fired) == len(left)
    assert (len(queue), queue.earliest, list(queue)) == (0, None, [])


def test_what_is_registered_meanwhile_comes_in_its_turn(make: Make) -> None:
    queue, chance = make(memory=1).timers("t"), random.Random(1)
    model: set[tuple[int, int, Any]] = set()
    for step in range(1_500):
        timer = (chance.randrange(30), chance.randrange(40), chance.choice((None, "w")))
        what = chance.random()
        if what < 0.6:
            assert queue.add(*timer) == (timer not in model)
            model.add(timer)
        elif what < 0.8:
            assert queue.discard(*timer) == (timer in model)
            model.discard(timer)
        elif what < 0.82:
            last, until = -1, chance.randrange(30)
            for fired in queue.due(until):
                assert fired in model
                assert fired.timestamp >= last
                last = fired.timestamp
                model.discard(tuple(fired))
                if chance.random() < 0.3:
                    again = (last + chance.randrange(3), chance.randrange(40), None)
                    assert queue.add(*again) == (again not in model)
                    model.add(again)
            assert not [timer for timer in model if timer[0] <= until]
        elif step % 10 == 0:
            assert set(queue) == model
            assert queue.earliest == min((timer[0] for timer in model), default=None)
    assert len(queue) == len(model)


def test_few_timers_meet_no_disk(make: Make, tmp_path: Path) -> None:
    keyed = make()
    for timer in many(500, 50):
        keyed.timers("t").add(*timer)
    assert keyed.database is None
    assert not list(tmp_path.iterdir())


def test_a_snapshot_has_them_in_files_and_writes_what_is_new(make: Make) -> None:
    keyed = make()
    timers = many(6_000, 1_000_000)
    for timer in timers:
        keyed.timers("t").add(*timer)
    running = RunningSnapshot(keyed.snapshot(0.0, Purpose(1, True)), range(GROUPS))
    for timer in list(keyed.timers("t").due(0)):
        keyed.timers("t").add(timer.timestamp + 2_000_000, timer.key, "again")
    first = running.rest()
    assert sum(chunk.count for chunk in first.chunks) < 2_000
    second = take_snapshot(keyed.snapshot(purpose=Purpose(2, True, 1)), range(GROUPS), first)
    later = make()
    later.restore([first.of(range(GROUPS))])
    assert set(later.timers("t")) == set(timers)
    assert [timer.timestamp for timer in later.timers("t").due(0)] == sorted(t[0] for t in timers if t[0] <= 0)
    now = make()
    now.restore([second.of(range(GROUPS))])
    assert set(now.timers("t")) == {
        timer if timer[0] > 0 else (timer[0] + 2_000_000, timer[1], "again") for timer in timers
    }
    before = second
    for number in range(3, 9):  # a compaction may have made all files anew meanwhile
        keyed.timers("t").add(5_000_000 + number, 1, None)
        after = take_snapshot(keyed.snapshot(purpose=Purpose(number, True, number - 1)), range(GROUPS), before)
        if any(name.endswith(".sst") for name in before.files.keys() & after.files.keys()):
            break
        before = after
    else:
        raise AssertionError("each snapshot has all its files anew")


def test_timers_move_between_memory_and_disk_and_to_other_subtasks(make: Make) -> None:
    keyed = make()
    timers = set(many(6_000, 1_000))
    for timer in timers:
        keyed.timers("t").add(*timer)
    whole = take_snapshot(keyed.snapshot(), range(GROUPS))
    parts = []
    for own, on_disk in ((range(3), False), (range(3, 8), True)):
        part = make(own, timers_on_disk=on_disk)
        part.restore([whole.of(own)])
        assert isinstance(part.timers("t"), RocksTimerQueue if on_disk else HeapTimerQueue)
        assert set(part.timers("t")) == {timer for timer in timers if timer[1] % GROUPS in own}
        parts.append(take_snapshot(part.snapshot(), own))
    together = make()
    together.restore([part.of(range(GROUPS)) for part in parts])
    assert set(together.timers("t")) == timers
    savepoint = take_snapshot(together.snapshot(purpose=Purpose(1, canonical=True)), range(GROUPS))
    assert not savepoint.files
    on_heap = HeapKeyedState(KeyedStateParameters(key_group_of=lambda key: key % GROUPS, key_groups=range(2, 5)))
    on_heap.restore([savepoint.of(range(2, 5))])
    assert set(on_heap.timers("t")) == {timer for timer in timers if timer[1] % GROUPS in range(2, 5)}
    again = make()
    again.restore([savepoint.of(range(GROUPS))])
    assert [timer.timestamp for timer in again.timers("t").due(2_000)] == sorted(timer[0] for timer in timers)


def test_the_option_keeps_them_in_memory(make: Make) -> None:
    backend = RocksDBStateBackend()
    backend.configure(Settings({"state.backend.rocksdb.timer-service.factory": "HEAP"}, "job"))
    assert not backend._settings.timers_on_disk
    assert RocksDBSettings().timers_on_disk
    assert isinstance(make(timers_on_disk=False).timers("t"), HeapTimerQueue)
