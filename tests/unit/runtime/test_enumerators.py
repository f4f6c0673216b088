"""Enumerators that users write: in their task, over checkpoints and crashes, and what they may not do."""

from __future__ import annotations

import json
import random
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firesteel.functions.source import (
    SimpleVersionedSerializer,
    Source,
    Split,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from firesteel.graph.execution_states import ExecutionState
from firesteel.runtime.records.batch import Barrier
from tests.examples import examples
from tests.unit.runtime.enumerator_world import ENUMERATOR, LENGTH, EnumeratorTask, Named, NamedEnumerator, World

READER = {"type": "add_reader", "subtask": 0, "host": "h"}
REQUEST = {"type": "request_split", "subtask": 0}


@given(seed=st.integers(0, 2**32), splits=st.integers(0, 12), parallelism=st.integers(1, 3), eager=st.booleans())
@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_each_record_counts_once_whenever_it_crashes(seed: int, splits: int, parallelism: int, eager: bool) -> None:
    names = [f"s{i}" for i in range(splits)]
    chance = random.Random(seed)
    world = World(Named(names, eager=eager and parallelism < 3), parallelism)
    _ = world.of_reader
    try:
        for _ in range(chance.randrange(150)):
            reader = chance.randrange(len(world.readers))
            match chance.randrange(20):
                case 0 | 1 | 2:
                    world.ask(world.readers[reader], again=chance.random() < 0.2)
                case 3 | 4 | 5:
                    world.deliver_down(twice=chance.random() < 0.2)
                case 6 | 7 | 8:
                    world.task.run(chance.randrange(1, 8), writes=chance.random() < 0.4)
                case 9 | 10 | 11:
                    world.deliver_up(twice=chance.random() < 0.2)
                case 12 | 13:
                    world.readers[reader].take()
                case 14 | 15:
                    world.read(reader)
                case 16 | 17 | 18:
                    world.barrier(reader)
                case _ if chance.random() < 0.3:
                    world.crash(chance.randrange(1, 4) if chance.random() < 0.3 else len(world.readers))
                case _ if chance.random() < 0.3:
                    world.give_up()
            assert world.total.total() == len(world.total), f"doubled: {world.total}"
        world.finish()
        missing = {(name, i) for name in names for i in range(LENGTH)} - set(world.total)
        assert not missing, f"lost: {missing}"
        assert world.total.total() == len(names) * LENGTH, f"doubled: {world.total}"
    finally:
        world.task.close()


@pytest.fixture
def tasks() -> Iterator[Callable[..., EnumeratorTask]]:
    tasks: list[EnumeratorTask] = []

    def make(source: Source[Any], readers: int = 1) -> EnumeratorTask:
        tasks.append(EnumeratorTask(source, readers))
        return tasks[-1]

    yield make
    for task in tasks:
        task.close()


def test_its_life(tasks: Callable[..., EnumeratorTask]) -> None:
    task = tasks(Named(["a", "b", "c"]))
    enumerator = task.enumerator
    task.input.take(1, [READER, REQUEST])
    task.run()
    task.input.take(2, [REQUEST])
    task.task.trigger_checkpoint(Barrier(7, 0, {}))
    task.run()
    task.task.checkpoint_complete(7)
    task.task.checkpoint_aborted(8)
    task.run()
    assert enumerator.calls == ["start", "add_reader 0", "request 0 h", "request 0 h", "complete 7", "aborted 8"]
    kinds = [(kind, number) for kind, number, _ in task.said]
    assert kinds == [("events", 1), ("events", 2), ("ack", 7)]
    assert [[event["type"] for event in said] for kind, _, said in task.said if kind == "events"] == [
        ["assign_splits", "assign_splits"],
        ["assign_splits", "no_more_splits"],
    ]
    state = task.said[-1][2]
    assert state.splits_serial == 2, "of what was said before the snapshot"
    assert not state.finished
    task.input.take(3, [{"type": "finish"}])
    task.run()
    assert task.states[-1] is ExecutionState.FINISHED
    assert enumerator.calls[-1] == "close"


def test_a_barrier_waits_for_what_came_before_it(tasks: Callable[..., EnumeratorTask]) -> None:
    """A split that came back before the checkpoint began is in its state."""
    task = tasks(Named([]))
    task.input.take(1, [{"type": "add_splits_back", "subtask": 0, "splits": [Split("lost", {}).to_plain()]}])
    task.task.trigger_checkpoint(Barrier(1, 0, {}))
    task.run()
    (_, _, state) = task.said.pop()
    (chunk,) = state.operators[ENUMERATOR].operator.handles
    assert b"lost" in chunk.data


def test_what_is_assigned_at_the_news_of_a_checkpoint_is_said_before_the_next_barrier(
    tasks: Callable[..., EnumeratorTask],
) -> None:
    class Late(NamedEnumerator):
        def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
            self.context.assign_split(Split(self.left.pop(), {}), 0)

    class Source(Named):
        def create_enumerator(self, context: SplitEnumeratorContext) -> SplitEnumerator:
            return Late(context, ["a"], False)

    task = tasks(Source([]))
    task.input.take(1, [READER])
    task.run()
    task.task.checkpoint_complete(1)
    task.task.trigger_checkpoint(Barrier(2, 0, {}))
    task.run()
    assert [(kind, number) for kind, number, _ in task.said] == [("events", 1), ("ack", 2)]
    assert task.said.pop()[2].splits_serial == 1, "the split is not in the state any more"


def test_lost_events_are_noticed(tasks: Callable[..., EnumeratorTask]) -> None:
    task = tasks(Named(["a"]))
    task.input.take(1, [READER])
    with pytest.raises(Exception, match="number 3 came behind 1: what is between is lost"):
        task.input.take(3, [REQUEST])
    with pytest.raises(Exception, match="events for SplitEnumerator: Source: s"):
        task.input.take(2, [{"type": "dance"}])


class Does(Named):
    """Its enumerator does something when a reader asks."""

    def __init__(self, what: Callable[[SplitEnumeratorContext], None], state: Any = None) -> None:
        super().__init__(["a"])
        self.what, self.state = what, state

    def create_enumerator(self, context: SplitEnumeratorContext) -> SplitEnumerator:
        return DoesEnumerator(context, self.what, self.state)


class DoesEnumerator(NamedEnumerator):
    def __init__(self, context: SplitEnumeratorContext, what: Any, state: Any) -> None:
        super().__init__(context, [], False)
        self.what, self.state = what, state

    def handle_split_request(self, subtask_id: int, requester_hostname: str | None) -> None:
        self.what(self.context)

    def snapshot_state(self, checkpoint_id: int) -> Any:
        return self.state(self.context) if callable(self.state) else self.state


def _told_no_more(context: SplitEnumeratorContext) -> None:
    context.signal_no_more_splits(0)
    context.signal_no_more_splits(0)
    context.assign_split(Split("late", {}), 0)


def _in_the_handler(context: SplitEnumeratorContext) -> None:
    def handler(result: Any, error: BaseException | None) -> None:
        raise ValueError(f"nothing there ({error})")

    context.call_async(lambda: 1 // 0, handler)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda c: c.assign_split(Split("x", {}), 5), r"assign_split\('x', 5\): no reader .* \(registered: 0\)"),
        (lambda c: c.signal_no_more_splits(1), r"signal_no_more_splits\(1\): no reader"),
        (_told_no_more, r"assign_split\('late', 0\): this reader was told that no more splits come"),
        (lambda c: c.assign_split(Split("x", {"a": {1, 2}}), 0), "split 'x' is not plain data .* get_split_serializer"),
        (lambda c: c.assign_split(Split("x", ["a"]), 0), "split 'x' is not plain data"),
        (lambda c: c.assign_split("x", 0), "'x' is no Split"),
        (lambda c: c.call_async(print, print, -1), "delay -1 ms"),
        (_in_the_handler, r"nothing there \(integer division or modulo by zero\)"),
    ],
)
def test_what_it_must_not_do(
    what: Callable[[SplitEnumeratorContext], None], message: str, tasks: Callable[..., EnumeratorTask]
) -> None:
    task = tasks(Does(what))
    task.input.take(1, [READER, REQUEST])
    _until(task, lambda: task.failure is not None)
    assert task.failure is not None
    assert re.search(message, task.failure.message), task.failure.message
    assert task.failure.kind == "user"
    assert task.failure.operator == "SplitEnumerator: Source: s"
    assert "test_enumerators.py" in task.failure.traceback


def _until(task: EnumeratorTask, reached: Callable[[], bool]) -> None:
    """The thread for asynchronous calls wakes the loop."""
    for _ in range(1000):
        task.run(1)
        if reached():
            return
        if not task.task.runnable:
            task.loop.run_once(block=True)
    raise AssertionError("not reached")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({1, 2}, "snapshot_state() gave {1, 2}, which is not plain data"),
        ((1, 2), "snapshot_state() gave (1, 2), which is not plain data"),
        (lambda c: c.assign_split(Split("x", {}), 0), "snapshot_state() must not assign splits"),
        (lambda c: c.nothing, "has no attribute 'nothing'"),
    ],
)
def test_state_that_can_not_be_kept(state: Any, message: str, tasks: Callable[..., EnumeratorTask]) -> None:
    """The checkpoint fails, and the task goes on."""
    task = tasks(Does(lambda c: None, state))
    task.input.take(1, [READER])
    task.task.trigger_checkpoint(Barrier(1, 0, {}))
    task.run()
    (kind, number, failure) = task.said.pop()
    assert (kind, number) == ("decline", 1)
    assert message in failure.message
    assert failure.operator == "SplitEnumerator: Source: s"
    assert not task.task.ended


def test_calls_elsewhere(tasks: Callable[..., EnumeratorTask]) -> None:
    """Once, again and again, later; results come on the task's own thread, in turn with everything else."""
    calls: list[tuple[str, Any]] = []
    main = threading.get_ident()

    def handler(result: Any, error: BaseException | None) -> None:
        assert threading.get_ident() == main
        calls.append((result, error))

    def what(context: SplitEnumeratorContext) -> None:
        context.call_async(lambda: ("once", threading.get_ident() != main), handler)
        context.call_async(lambda: "each", handler, 500, 2000)
        context.run_in_coordinator_thread(lambda: calls.append(("inside", None)))

    task = tasks(Does(what))
    task.input.take(1, [READER, REQUEST])
    _until(task, lambda: len(calls) == 2)
    assert sorted(map(str, calls)) == ["('inside', None)", "(('once', True), None)"]
    task.clock.now += 0.4
    task.run()
    assert len(calls) == 2
    for number, seconds in enumerate((0.2, 2.0, 2.0)):
        task.clock.now += seconds
        _until(task, lambda: len(calls) == 3 + number)  # noqa: B023 - called at once
    assert calls[2:] == [("each", None)] * 3
    assert not task.task.ended


class Numbers(SimpleVersionedSerializer[Any]):
    def get_version(self) -> int:
        return 3

    def serialize(self, obj: Any) -> bytes:
        return json.dumps(sorted(obj)).encode()

    def deserialize(self, version: int, serialized: bytes) -> Any:
        if version != 3:
            raise ValueError(f"version {version} is not known")
        return set(json.loads(serialized))


class Sets(Named):
    """Splits and state are sets."""

    def create_enumerator(self, context: SplitEnumeratorContext) -> SplitEnumerator:
        return SetsEnumerator(context, {1, 2})

    def restore_enumerator(self, context: SplitEnumeratorContext, checkpoint: Any) -> SplitEnumerator:
        return SetsEnumerator(context, checkpoint)

    def get_split_serializer(self) -> SimpleVersionedSerializer[Any]:
        return Numbers()

    def get_enumerator_checkpoint_serializer(self) -> SimpleVersionedSerializer[Any]:
        return Numbers()


class SetsEnumerator(NamedEnumerator):
    def __init__(self, context: SplitEnumeratorContext, state: set[int]) -> None:
        super().__init__(context, [], False)
        self.state, self.returned = state, []  # type: ignore[var-annotated]

    def handle_split_request(self, subtask_id: int, requester_hostname: str | None) -> None:
        self.context.assign_split(Split("set", self.state), subtask_id)

    def add_splits_back(self, splits: Sequence[Split], subtask_id: int) -> None:
        self.returned += splits

    def snapshot_state(self, checkpoint_id: int) -> Any:
        return self.state


def test_serializers_of_its_own() -> None:
    world = World(Sets([]), 1)
    _ = world.of_reader
    try:
        world.ask(world.readers[0])
        world.deliver_down()
        world.deliver_down()
        world.task.run()
        world.barrier(0)  # before the split has come
        world.deliver_down()
        world.task.run()
        while world.task.said:
            world.deliver_up()
        assert world.point is not None
        assert world.readers[0].on_the_way[0].splits[0]["version"] == 3
        world.crash(1)
        world.deliver_down()
        world.task.run()
        assert world.task.enumerator.state == {1, 2}
        assert [(split.id, split.data, split.version) for split in world.task.enumerator.returned] == [
            ("set", {1, 2}, 3)
        ]
    finally:
        world.task.close()
