"""Timers against a plain list, and what they refuse."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.core.errors import ProgramError
from firesteel.runtime.operator_base.timers import KeyedTimerService
from firesteel.runtime.records.batch import MAX_WATERMARK
from firesteel.state.backend import Timer
from firesteel.state.heap import HeapKeyedState
from firesteel.state.heap_timers import HeapTimerQueue
from tests.unit.runtime.support import ManualClock

TIMES = st.integers(0, 12)
KEYS = st.sampled_from(["a", "b", None, (1, 2)])
SPACES = st.sampled_from([None, "w"])
OPERATIONS = st.one_of(
    st.tuples(st.just("add"), TIMES, KEYS, SPACES),
    st.tuples(st.just("discard"), TIMES, KEYS, SPACES),
    st.tuples(st.just("due"), TIMES, st.integers(0, 4), st.none()),
)


@given(st.lists(OPERATIONS, max_size=120))
def test_a_queue_is_a_set_in_order(operations: list[Any]) -> None:
    queue, model = HeapTimerQueue(), []
    for what, timestamp, key, space in operations:
        timer = Timer(timestamp, key, space)
        if what == "add":
            assert queue.add(*timer) is (timer not in model)
            if timer not in model:
                model.append(timer)
        elif what == "discard":
            assert queue.discard(*timer) is (timer in model)
            if timer in model:
                model.remove(timer)
        else:
            expected = sorted((t for t in model if t.timestamp <= timestamp), key=lambda t: t.timestamp)
            due = [timer for _, timer in zip(range(key), queue.due(timestamp), strict=False)]
            assert due == expected[:key], "by timestamp, then in the order of registration"
            for timer in due:
                model.remove(timer)
        assert len(queue) == len(model)
        assert sorted(queue, key=repr) == sorted(model, key=repr)
        assert queue.earliest == min((t.timestamp for t in model), default=None)


def test_what_is_added_and_deleted_while_timers_fire_counts() -> None:
    queue = HeapTimerQueue()
    for key in "abc":
        queue.add(5, key, None)
    fired = []
    for timer in queue.due(10):
        fired.append((timer.timestamp, timer.key))
        if timer.key == "a":
            queue.discard(5, "c", None)
            queue.add(3, "early", None)
            queue.add(5, "same", None)
            queue.add(11, "later", None)
    assert fired == [(5, "a"), (3, "early"), (5, "b"), (5, "same")]
    assert list(queue) == [Timer(11, "later", None)]


def test_deleted_timers_leave_no_garbage_behind() -> None:
    queue = HeapTimerQueue()
    for timestamp in range(100_000):
        queue.add(timestamp, "session", None)
        queue.discard(timestamp - 1, "session", None)
    assert len(queue) == 1
    assert len(queue._heap) < 200


def test_many_timers_of_one_timestamp_fire_in_linear_time() -> None:
    queue = HeapTimerQueue()
    for key in range(200_000):
        queue.add(1, key, None)
    assert [timer.key for timer in queue.due(1)] == list(range(200_000))


def test_a_timer_is_small() -> None:
    queue = HeapTimerQueue()
    count = 20_000
    for key in range(count):
        queue.add(key * 1000, key, None)
    entry = sys.getsizeof(queue._buckets[0])
    size = sys.getsizeof(queue._heap) + sys.getsizeof(queue._buckets) + count * (entry + sys.getsizeof(1000))
    assert size / count < 250, "bytes; without the key, which the state holds, too"


@given(st.lists(OPERATIONS, max_size=60), st.lists(OPERATIONS, max_size=60))
def test_frozen_timers_are_those_of_then_whatever_happens_afterwards(before: list[Any], after: list[Any]) -> None:
    queue = HeapTimerQueue()
    for operation in before:
        _apply(queue, *operation)
    plain = HeapTimerQueue()
    for operation in before:
        _apply(plain, *operation)
    expected = sorted(map(tuple, queue), key=repr)
    frozen = queue.freeze()
    timers = []
    for number, operation in enumerate(after):
        _apply(queue, *operation)
        _apply(plain, *operation)
        if number == len(after) // 2:
            timers = list(frozen)
            queue.thaw()
        assert (len(queue), queue.earliest) == (len(plain), plain.earliest)
        assert sorted(queue, key=repr) == sorted(plain, key=repr)
    timers += frozen
    assert sorted(timers, key=repr) == expected
    queue.thaw()
    steps = 0
    while not queue.settle(1):
        steps += 1
    assert type(queue) is HeapTimerQueue
    assert steps <= len(before) + len(after)
    assert list(queue.due(10**6)) == list(plain.due(10**6))


def _apply(queue: HeapTimerQueue, what: str, timestamp: int, key: Any, space: Any) -> None:
    if what == "add":
        queue.add(timestamp, key, space)
    elif what == "discard":
        queue.discard(timestamp, key, space)
    else:
        for _ in zip(range(key), queue.due(timestamp), strict=False):
            pass


def test_a_service_needs_a_key_and_whole_numbers() -> None:
    keyed = HeapKeyedState()
    new_timers: list[int] = []
    service = KeyedTimerService(keyed, ManualClock(), new_timers.append)
    with pytest.raises(ProgramError, match="while no record was being processed"):
        service.register_event_time_timer(None, 5)
    keyed.key = "k"
    for wrong in (1.5, "5", None, True):
        with pytest.raises(ProgramError, match="timestamp of a timer is an int"):
            service.register_event_time_timer(None, wrong)  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="fit into 64 bits"):
        service.register_processing_time_timer(None, MAX_WATERMARK + 1)
    service.register_processing_time_timer(None, 7)
    service.register_processing_time_timer(None, 7)
    assert new_timers == [7], "the loop hears of new timers only"
    assert service.current_processing_time() == 100_000
