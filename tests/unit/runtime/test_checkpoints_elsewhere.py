"""State that is neither keyed nor a list of the user's: calls in flight, results for the client, source functions."""

from __future__ import annotations

import asyncio
import pickle
import threading
from dataclasses import replace
from typing import Any

from firesteel.checkpoint.assign import OperatorRestore, TaskRestore
from firesteel.connectors.source_function import SourceFunctionSource
from firesteel.functions.async_functions import AsyncFunction
from firesteel.functions.checkpointed import CheckpointedFunction
from firesteel.functions.source import SourceBatch, Split
from firesteel.functions.source_function import SourceFunction
from firesteel.graph.specs import OperatorKind as K
from firesteel.runtime.checkpoints.aligner import Arrived
from firesteel.runtime.checkpoints.restore import open_inline, restore_operators
from firesteel.runtime.checkpoints.snapshot import TaskSnapshot
from firesteel.runtime.checkpoints.uploads import InlineStream, Upload
from firesteel.runtime.operator_base.base import Operator
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.operators import CollectOperator, create_operator
from firesteel.runtime.operators.async_wait import AsyncWaitOperator
from firesteel.runtime.records.batch import Barrier, Batch, Watermark
from firesteel.runtime.records.rows import to_list
from tests.unit.runtime.support import INFO, ManualClock, spec


def moved(old: Operator, new: Operator, number: int = 1) -> None:
    """Through a checkpoint, as bytes."""
    states: list[Any] = []
    upload = Upload(number, "x", lambda checkpoint_id, hint: InlineStream(), lambda work: work(), lambda: None)
    snapshot = TaskSnapshot(Arrived(Barrier(number, 0)), [old], upload, None, finished=False)
    snapshot.begin()
    while not snapshot.sliced:
        snapshot.slice()
    snapshot.close()
    upload.finish(lambda handles, error: states.append(snapshot.state(handles)))
    state = states[0].operators[old.spec.id]
    operator = () if state.operator is None else (state.operator,)
    restore = OperatorRestore({name: (part,) for name, part in state.keyed.items()}, operator)
    info = replace(INFO, subtask=0, parallelism=1)
    restore_operators(TaskRestore(number, False, {new.spec.id: restore}), [new], info, open_inline)


class Never(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        await asyncio.Event().wait()
        return []


class Twice(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [value * 2]


def waiting(function: Any) -> AsyncWaitOperator:
    extra = {"ordered": True, "capacity": 2, "timeout_ms": 0, "retry": None}
    operator = create_operator(spec(K.ASYNC_WAIT, function, extra=extra))
    assert isinstance(operator, AsyncWaitOperator)
    return operator


def test_records_whose_results_are_awaited_are_called_for_again() -> None:
    old, new = waiting(Never()), waiting(Twice())
    context = OperatorContext(INFO, ManualClock())
    arrived = threading.Event()
    new.on_results = arrived.set
    try:
        old.open(context)
        old.put(Batch([1, 2], [10, 20]))
        old.put_watermark(Watermark(20))
        old.put(Batch([3], [30]))
        moved(old, new)
        new.open(context)
        values: list[Any] = []
        stamps: list[Any] = []
        while len(values) < 3:
            assert arrived.wait(10)
            arrived.clear()
            while new.ready:
                batch = new.take()
                assert isinstance(batch, Batch)
                values += batch.values
                stamps += to_list(batch.timestamps) or []
        assert (values, stamps) == ([2, 4, 6], [10, 20, 30])
    finally:
        old.close()
        new.close()


def collecting(*, checkpointing: bool = True) -> CollectOperator:
    operator = create_operator(spec(K.COLLECT))
    assert isinstance(operator, CollectOperator)
    operator.open(OperatorContext(INFO, ManualClock(), checkpointing=checkpointing))
    return operator


def values_of(operator: CollectOperator, offset: int) -> list[Any]:
    data = operator.fetch(offset, 1 << 20).data
    return pickle.loads(data) if data else []


def test_results_are_given_when_they_are_in_a_checkpoint_and_not_twice() -> None:
    old = collecting()
    old.write(["a", "b"], None)
    assert values_of(old, 0) == []
    new = create_operator(spec(K.COLLECT))
    assert isinstance(new, CollectOperator)
    moved(old, new, 1)
    old.write(["lost"], None)
    old.checkpoint_complete(1)
    assert values_of(old, 0) == ["a", "b"]
    assert values_of(old, 1) == ["b"]

    new.open(OperatorContext(INFO, ManualClock(), checkpointing=True))
    assert values_of(new, 1) == ["b"], "what was in the checkpoint may be given at once"
    new.write(["c"], None)
    new.finish()
    assert values_of(new, 2) == []
    assert not new.ended
    new.commit()
    assert (values_of(new, 2), new.ended, new.drained) == (["c"], True, False)
    assert values_of(new, 3) == []
    assert new.drained


def test_results_that_may_not_be_given_yet_do_not_hold_up_the_barrier() -> None:
    operator = create_operator(spec(K.COLLECT, extra={"buffer_bytes": 10}))
    assert isinstance(operator, CollectOperator)
    operator.open(OperatorContext(INFO, ManualClock(), checkpointing=True))
    operator.write(["x" * 100], None)
    assert operator.writable
    moved(operator, create_operator(spec(K.COLLECT)), 1)
    operator.checkpoint_complete(1)
    assert not operator.writable
    assert values_of(operator, 0) == ["x" * 100]
    operator.acknowledge(1)
    assert operator.writable


class Counting(SourceFunction[int], CheckpointedFunction):
    """Gives numbers for ever; its offset and the record are one step."""

    def __init__(self) -> None:
        self.offset = 0
        self.going = True

    def initialize_state(self, context: Any) -> None: ...

    def snapshot_state(self, context: Any) -> None: ...

    def run(self, ctx: Any) -> None:
        while self.going:
            with ctx.get_checkpoint_lock():
                ctx.collect(self.offset)
                self.offset += 1

    def cancel(self) -> None:
        self.going = False


class _Context:
    subtask_index, parallelism = 0, 1

    def __init__(self) -> None:
        self.woken = threading.Event()

    def wake_up(self) -> None:
        self.woken.set()

    def runtime_context(self) -> None:
        return None


def test_a_source_functions_state_stands_for_the_records_that_were_polled() -> None:
    function = Counting()
    context: Any = _Context()
    source = SourceFunctionSource(function)
    reader: Any = source.create_reader(context)
    assert source.replayable
    polled = 0
    try:
        reader.add_splits([Split("0", {})])
        for _ in range(5):
            for _ in range(3):
                context.woken.wait(0.05)
                answer = reader.poll(50)
                polled += len(answer.values) if isinstance(answer, SourceBatch) else 0
            while not reader.ready_for_checkpoint():
                answer = reader.poll(50)
                polled += len(answer.values) if isinstance(answer, SourceBatch) else 0
            assert function.offset == polled
            assert function.offset == polled, "it stands still"
            reader.checkpoint_taken()
    finally:
        reader.close()
    assert polled > 0
