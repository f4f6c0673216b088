"""Barriers that overtake: a checkpoint that does not wait for records in flight, and what becomes of these."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

import pytest

from firesteel.common import Types, WatermarkStrategy
from firesteel.functions.functions import FlatMapFunction, KeyedProcessFunction, KeySelector, MapFunction
from firesteel.functions.state import ValueStateDescriptor
from firesteel.graph.specs import OperatorKind as K
from firesteel.graph.specs import PartitionerKind as P
from firesteel.runtime.chain import stages
from firesteel.runtime.checkpoints.in_flight import InFlightLog, InFlightSource
from firesteel.runtime.records.batch import Barrier, Batch
from firesteel.runtime.task import task as task_module
from firesteel.runtime.task.channel_inputs import ChannelInputs
from tests.unit.runtime.mini_job import SHELVES, Checkpoint, ListSource, MiniJob, Shelf, Vertex, Wires, bridged
from tests.unit.runtime.test_exactly_once import operator, sink

RECORDS = 300
NOW = {"unaligned": True}


class Slow(MapFunction[Any, Any]):
    """Says how many records have passed."""

    passed = 0

    def map(self, value: Any) -> Any:
        Slow.passed += 1
        return value


class ByLastDigit(KeySelector[tuple[int, int], int]):
    def get_key(self, value: tuple[int, int]) -> int:
        return value[0] % 10


class Numbered(KeyedProcessFunction[int, tuple[int, int], tuple[int, int]]):
    """Each record with its number among those of its key."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: tuple[int, int], ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value[0] % 10, count


@pytest.fixture(autouse=True)
def shelf() -> Shelf:
    Slow.passed = 0
    shelf = SHELVES["shelf"] = Shelf()
    return shelf


def job(
    options: dict[str, Any] | None,
    counters: int = 2,
    restore: Checkpoint | None = None,
    partitioner: P = P.HASH,
    blocking: Sequence[str] = (),
) -> MiniJob:
    """Source, something slow, a count by key, and a sink that commits."""
    strategy = WatermarkStrategy.no_watermarks()
    head = operator("source", K.SOURCE, ListSource(), extra={"watermark_strategy": strategy})
    slow = operator("slow", K.MAP, Slow())
    selector = ByLastDigit()
    number = operator("number", K.KEYED_PROCESS, Numbered(), key_selectors=(selector,))
    vertices = [
        Vertex("source", lambda: [head], 2),
        Vertex("slow", lambda: [slow], 2, [("source", P.REBALANCE, None)]),
        Vertex("count", lambda: [number], counters, [("slow", partitioner, selector)]),
        Vertex("sink", lambda: [sink()], 1, [("count", P.REBALANCE, None)]),
    ]
    splits = {"source": [[[n, n] for n in range(first, RECORDS, 2)] for first in (0, 1)]}
    wires = bridged(Wires, blocking)
    job = MiniJob(vertices, splits, 7, restore, options, wires=lambda loop, clock: wires(loop))
    job.random = random.Random(1)
    return job


def slow_down(running: MiniJob) -> None:
    """Its slow tasks take one step of thirty, with one batch."""
    for (name, _), task in running.tasks.items():
        if name == "slow":
            task.step = partial(_one_of_thirty, count(1), task.step)  # type: ignore[method-assign]


def _one_of_thirty(turns: Iterator[int], step: Callable[[], None]) -> None:
    if next(turns) % 30 == 0:
        step()


def until_complete(running: MiniJob, number: int) -> int:
    """How many records pass while a checkpoint is taken."""
    before = Slow.passed
    for _ in range(20_000):
        running.steps(1)
        if running.completed is not None and running.completed.number == number:
            return Slow.passed - before
    raise AssertionError("it does not complete")


def in_flight(checkpoint: Checkpoint) -> int:
    """Streams of records that were overtaken."""
    return sum(len(o.in_flight) for state in checkpoint.states.values() for o in state.operators.values())


def test_a_barrier_that_overtakes_does_not_wait_for_what_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "STEP_SECONDS", -1.0)  # one batch for each step
    waits = []
    for options in (None, NOW):
        Slow.passed = 0
        running = job(options)
        slow_down(running)
        running.steps(200)
        waits.append(until_complete(running, running.trigger()))
        assert running.completed is not None
        assert (in_flight(running.completed) > 0) is (options is NOW)
        running.crash()
    aligned, unaligned = waits
    assert 3 * unaligned < aligned


@pytest.mark.parametrize("counters", [1, 2, 3, 5])
def test_what_was_in_flight_counts_once_whatever_the_parallelism(
    counters: int, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_module, "STEP_SECONDS", -1.0)
    running = job(NOW)
    running.steps(40)
    until_complete(running, running.trigger())
    done = running.completed
    assert done is not None
    assert in_flight(done)
    running.crash()
    again = job(NOW, counters, done)
    until_complete(again, again.trigger())  # and at once another one, with what is replayed in it
    done = again.completed
    again.crash()
    last = job(NOW, 2, done)
    last.to_end()
    last.crash()
    per_key = RECORDS // 10
    assert Counter(shelf.visible) == Counter((key, n) for key in range(10) for n in range(1, per_key + 1))


def test_records_of_a_broadcast_stay_with_their_subtasks(shelf: Shelf) -> None:
    running = job(NOW, partitioner=P.BROADCAST)
    running.steps(40)
    until_complete(running, running.trigger())
    done = running.completed
    running.crash()
    with pytest.raises(Exception, match=r"operator 'number' .* in flight of BROADCAST edges.*keep the parallelism 2"):
        job(NOW, 3, done, P.BROADCAST)
    again = job(NOW, 2, done, P.BROADCAST)
    again.to_end()
    again.crash()
    assert len(shelf.visible) == 2 * RECORDS


def test_by_default_a_barrier_waits_where_records_in_flight_would_hinder_another_parallelism(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_module, "STEP_SECONDS", -1.0)  # else a fast machine has worked off what is to be overtaken
    running = job({**NOW, "rescalable": True}, partitioner=P.BROADCAST)
    running.steps(40)
    until_complete(running, running.trigger())
    done = running.completed
    assert done is not None
    running.crash()
    by_vertex = Counter(
        name for (name, _), state in done.states.items() for o in state.operators.values() if o.in_flight
    )
    assert by_vertex["slow"], "others overtake"
    assert not by_vertex["count"]
    again = job({**NOW, "rescalable": True}, 3, done, P.BROADCAST)
    again.to_end()
    again.crash()
    assert len(shelf.visible) > 2 * RECORDS


def test_with_a_timeout_a_barrier_waits_that_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "STEP_SECONDS", -1.0)  # one batch for each step, however busy the machine is
    running = job({"unaligned": True, "aligned_ms": 500})
    running.steps(40)
    number = running.trigger()
    running.steps(1)
    running.clock.now += 0.6
    until_complete(running, number)
    assert running.completed is not None
    assert in_flight(running.completed)
    running.crash()

    patient = job({"unaligned": True, "aligned_ms": 500})
    patient.steps(40)
    until_complete(patient, patient.trigger())
    assert patient.completed is not None
    assert not in_flight(patient.completed)
    patient.crash()


@pytest.mark.parametrize("blocking", [[], ["slow"], ["slow", "count", "sink"]])
def test_a_checkpoint_that_is_given_up_before_its_barrier_overtakes_stops_nobody(
    blocking: list[str], shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_module, "STEP_SECONDS", -1.0)
    running = job({"unaligned": True, "aligned_ms": 500}, blocking=blocking)
    slow = [task for (name, _), task in running.tasks.items() if name == "slow"]
    steps = [task.step for task in slow]
    for task in slow:
        task.step = lambda: None  # type: ignore[method-assign]
    running.steps(40)
    given_up = running.trigger()
    running.steps(10)
    assert any(isinstance(item, Barrier) for pipe in running.wires.pipes.values() for item in pipe.input.inbox.queue)
    running.abort(given_up)
    running.clock.now += 0.6
    running.steps(10)
    for task, step in zip(slow, steps, strict=True):
        task.step = step  # type: ignore[method-assign]
    running.to_end()
    running.crash()
    assert len(shelf.visible) == RECORDS


@pytest.mark.parametrize("blocking", [[], ["slow"]])
def test_a_barrier_overtakes_although_one_that_is_given_up_stands_in_front_of_it(
    blocking: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_module, "STEP_SECONDS", -1.0)
    running = job(NOW, blocking=blocking)
    slow_down(running)
    running.steps(200)
    monkeypatch.setattr(ChannelInputs, "abort_checkpoint", lambda inputs, number: inputs._aligner.abort(number))
    given_up = running.trigger()
    running.abort(given_up)
    monkeypatch.undo()
    monkeypatch.setattr(task_module, "STEP_SECONDS", -1.0)
    unaligned = until_complete(running, running.trigger())
    assert running.completed is not None
    assert in_flight(running.completed)
    assert unaligned < RECORDS // 4
    running.crash()


def half_taken(running: MiniJob) -> bool:
    """Whether a barrier has overtaken at a counter, and what comes before it over one of two channels is logged."""
    for (name, _), task in running.tasks.items():
        inputs = task._inputs
        log = inputs._log if name == "count" and isinstance(inputs, ChannelInputs) else None
        if log is None or not log.size:
            continue
        assert isinstance(inputs, ChannelInputs)
        if sum(inputs._aligner.has_arrived(number, log.checkpoint_id) for number in (0, 1)) == 1:
            return True
    return False


def until_half_taken(running: MiniJob) -> int:
    """A checkpoint whose barrier comes over one channel of each counter, and stays away from the other."""
    counters = [task for (name, _), task in running.tasks.items() if name == "count"]
    behind = running.tasks["slow", 1]
    steps = [task.step for task in counters]
    for task in counters:  # so that records are queued in front of them
        task.step = lambda: None  # type: ignore[method-assign]
    running.steps(200)
    behind.step = lambda: None  # type: ignore[method-assign]
    number = running.trigger()
    running.steps(200)
    for task, step in zip(counters, steps, strict=True):
        task.step = step  # type: ignore[method-assign]
    for _ in range(200):
        running.steps(1)
        if half_taken(running):
            return number
    raise AssertionError("it was never half taken")


@pytest.mark.parametrize("blocking", [[], ["count"], ["slow", "count", "sink"]])
@pytest.mark.parametrize("dies", ["slow", "count", ""])
def test_a_checkpoint_that_is_half_taken_when_a_slot_dies_or_it_is_given_up_costs_no_record(
    dies: str, blocking: list[str], shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job goes on from the checkpoint before; if no slot has died, from the next one of the same attempt."""
    monkeypatch.setattr(task_module, "STEP_SECONDS", -1.0)
    running = job(NOW, blocking=blocking)
    running.steps(40)
    complete = running.trigger()
    until_complete(running, complete)
    step = running.tasks["slow", 1].step
    half = until_half_taken(running)
    if dies:
        running.tasks[dies, 1].cancel()
        running.tasks["slow", 1].step = step  # type: ignore[method-assign]
        running.steps(500)
        running.abort(half)
        running.trigger()
        running.steps(500)  # what is left of the job can complete nothing
    else:
        running.abort(half)
        running.steps(100)
        complete = running.trigger()
        running.steps(100)
        running.tasks["slow", 1].step = step  # type: ignore[method-assign]
        until_complete(running, complete)
    assert running.completed is not None
    assert running.completed.number == complete
    assert in_flight(running.completed)
    running.crash()
    again = job(NOW, 3, running.completed, blocking=blocking)
    until_complete(again, again.trigger())
    done = again.completed
    again.crash()
    last = job(NOW, 2, done, blocking=blocking)
    last.to_end()
    last.crash()
    per_key = RECORDS // 10
    assert Counter(shelf.visible) == Counter((key, n) for key in range(10) for n in range(1, per_key + 1))


class Exploding(FlatMapFunction[Any, Any]):
    """Many results for one record."""

    results = 0

    def flat_map(self, value: Any) -> Iterator[Any]:
        for number in range(300):
            Exploding.results += 1
            yield value[0], number


@pytest.mark.parametrize("blocking", [[], ["explode"]])
def test_a_generator_is_not_worked_off_for_a_barrier_without_any_bound(
    blocking: list[str], shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_module, "STEP_SECONDS", -1.0)
    monkeypatch.setattr(stages, "_now", iter(range(10**9)).__next__)  # a record is slow: slices are short
    Exploding.results = 0
    strategy = WatermarkStrategy.no_watermarks()
    head = operator("source", K.SOURCE, ListSource(1), extra={"watermark_strategy": strategy})
    vertices = [
        Vertex("source", lambda: [head], 1),
        Vertex("explode", lambda: [operator("explode", K.FLAT_MAP, Exploding())], 1, [("source", P.REBALANCE, None)]),
        Vertex("slow", lambda: [operator("slow", K.MAP, Slow())], 1, [("explode", P.REBALANCE, None)]),
        Vertex("sink", lambda: [sink()], 1, [("slow", P.REBALANCE, None)]),
    ]
    wires = bridged(Wires, blocking)
    running = MiniJob(
        vertices, {"source": [[[n, n] for n in range(40)]]}, 7, None, NOW, wires=lambda loop, clock: wires(loop)
    )
    slow_task = running.tasks["slow", 0]
    step, slow_task.step = slow_task.step, lambda: None  # type: ignore[method-assign]
    running.steps(3000)
    before = Exploding.results
    number = running.trigger()
    running.steps(3000)
    assert Exploding.results < 3 * before + 50, "twice the window, and no more, waits in front of what stands still"
    monkeypatch.undo()
    slow_task.step = step  # type: ignore[method-assign]
    until_complete(running, number)
    running.to_end()
    running.crash()
    assert len(shelf.visible) == 40 * 300


class Parts:
    def __init__(self) -> None:
        self.data_of: dict[int, bytes] = {}

    def data(self, part: int, data: bytes) -> None:
        self.data_of[part] = self.data_of.get(part, b"") + data


class Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError("no")


def test_a_record_that_can_not_be_serialised_ends_the_log_with_its_error() -> None:
    ended = []
    log = InFlightLog(1, Parts(), lambda: ended.append(True))
    source = InFlightSource(0, P.HASH)
    log.write(source, Batch([1]))
    log.write(source, Batch([Unpicklable()]))
    log.write(source, Batch([2]))
    log.end()
    assert ended == [True]
    assert "Unpicklable" in str(log.error)
