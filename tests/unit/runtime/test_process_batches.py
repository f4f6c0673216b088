"""Functions of batches with keyed state, against plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from firesteel.common import Row, Types
from firesteel.common.time import Time
from firesteel.common.typeinfo import RowTypeInfo
from firesteel.core.errors import ProgramError, TypeMismatchError
from firesteel.expressions.keys import ColumnKey
from firesteel.functions.batch_functions import BatchValueState, KeyedBatchFunction
from firesteel.functions.functions import RuntimeContext
from firesteel.functions.state import ListStateDescriptor, StateTtlConfig, ValueStateDescriptor
from firesteel.graph.key_groups import KeyGroupAssigner
from firesteel.graph.specs import OperatorKind, OperatorSpec
from firesteel.runtime.operator_base.context import OperatorContext, Stamp, TaskInfo
from firesteel.runtime.operator_base.initialization import SnapshotContext
from firesteel.runtime.operator_base.keyed_base import state_parameters
from firesteel.runtime.operators.process_batches import ProcessBatches
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import StreamColumns, columns_of
from firesteel.runtime.records.rows import to_records
from firesteel.state.backend import KeyedStateParameters
from firesteel.state.heap import HeapKeyedState, HeapStateBackend
from firesteel.testing.snapshots import take_snapshot
from tests.unit.runtime.support import INFO, ManualClock, spec
from tests.unit.runtime.test_columns import records, run

BID = Types.ROW_NAMED(["auction", "price"], [Types.LONG(), Types.LONG()])
PAIR = Types.ROW_NAMED(["name", "auction", "price"], [Types.STRING(), Types.INT(), Types.LONG()])
COUNT = ValueStateDescriptor("count", Types.LONG())
Context = KeyedBatchFunction.Context


def described(function: Any, input_type: RowTypeInfo = BID, *keys: str, **extra: Any) -> OperatorSpec:
    names = keys or ("auction",)
    operator_spec: OperatorSpec = spec(
        OperatorKind.COLUMNS_PROCESS,
        function,
        key_selectors=(ColumnKey(names, [input_type.field_names.index(name) for name in names]),),
        extra={"input_type": input_type, "result_type": input_type, **extra},
    )
    return operator_spec


def opened(
    operator_spec: OperatorSpec, subtask: int = 0, parallelism: int = 1, clock: ManualClock | None = None
) -> ProcessBatches:
    operator = ProcessBatches(operator_spec)
    info = TaskInfo("1" * 32, "job", "v", "t", subtask, parallelism, 128, 0, {})
    operator.use_backend(HeapStateBackend(), state_parameters(operator_spec, info, clock or ManualClock()))
    operator.open(OperatorContext(info, clock or ManualClock(), Stamp()))
    return operator


class CountUp(KeyedBatchFunction):
    """The number of rows of a key so far, in place of the price."""

    def __init__(self) -> None:
        self.life: list[str] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count: Any = runtime_context.get_state(COUNT)
        self.life.append("open")

    def process_batch(self, batch: pa.RecordBatch, ctx: Context) -> pa.RecordBatch:
        grouped = pa.Table.from_batches([batch]).group_by("auction").aggregate([([], "count_all")])
        keys = grouped.column("auction").combine_chunks()
        total = self.count.get(keys).fill_null(0).to_numpy() + grouped.column("count_all").to_numpy()
        self.count.put(keys, total)
        return batch.set_column(1, "price", self.count.get(ctx.keys))

    def close(self) -> None:
        self.life.append("close")


@pytest.mark.parametrize("seed", range(10))
def test_against_plain_python(seed: int) -> None:
    r = random.Random(seed)
    parallelism = r.randrange(1, 6)
    operators = [opened(described(CountUp()), n, parallelism) for n in range(parallelism)]
    channel_of, counts = KeyGroupAssigner(parallelism, 128), dict[Any, int]()
    for _ in range(8):
        keys = [r.choice([None, r.randrange(20), r.getrandbits(40)]) for _ in range(r.choice([1, 30, 2000]))]
        whole = StreamColumns(BID).from_records([(key, 0) for key in keys])
        channels = channel_of.assign_array(whole.column(0))
        for key in keys:
            counts[key] = counts.get(key, 0) + 1
        for number, operator in enumerate(operators):
            part = whole.filter(pa.array(channels == number))
            for batch in operator.apply_columns(iter([Batch(part)])):
                assert [tuple(row) for row in to_records(batch.values)] == [
                    (key, counts[key]) for key in part.column(0).to_pylist()
                ]
    function = operators[0].function
    operators[0].close()
    assert function.life == ["open", "close"]
    assert not operators[0].state.in_use().size


class Script:
    """Runs a test's code inside a function of batches."""

    def __init__(self, input_type: RowTypeInfo = BID, *keys: str, subtask: int = 0, parallelism: int = 1) -> None:
        self.code: Callable[[pa.RecordBatch, Context], Any] = lambda batch, ctx: None
        self.given, self.clock = input_type, ManualClock()
        operator_spec = described(lambda batch, ctx: self.code(batch, ctx), input_type, *keys)
        self.operator = opened(operator_spec, subtask, parallelism, self.clock)

    def __call__(self, rows: list[tuple[Any, ...]], code: Callable[[pa.RecordBatch, Context], Any]) -> list[Any]:
        self.code = code
        batch = StreamColumns(self.given).from_records(rows)
        return [(result.values, result.timestamps) for result in self.operator.apply_columns(iter([Batch(batch)]))]


def test_state_is_read_written_and_cleared() -> None:
    script = Script()

    def code(batch: pa.RecordBatch, ctx: Context) -> None:
        count, name = ctx.get_state(COUNT), ctx.get_state(ValueStateDescriptor("name", Types.STRING()))
        assert count.get(ctx.keys).to_pylist() == [None, None, None]
        count.put(ctx.keys, [1, 2, 3])  # the last of equal keys counts
        assert count.get([7, 5, 6, None]).to_pylist() == [3, 2, None, None]
        count.put(np.array([5, 6]), np.array([50, 60], np.int16))
        name.put([5], "five")
        assert count.get(pa.chunked_array([[5], [6]])).to_pylist() == [50, 60]
        assert count.get(pa.array([5, 8], pa.int16())).type == pa.int64()
        count.clear([5, 99])
        assert count.get([5]).to_pylist() == [None]
        assert name.get([5]).to_pylist() == ["five"]
        count.put([6, 7], [None, 70])
        assert count.get([6, 7]).to_pylist() == [None, 70]

    assert script([(7, 0), (5, 0), (7, 0)], code) == []
    assert script.operator.state.index.size == 2  # a key whose values are all gone is forgotten
    again = Script.__call__
    again(script, [(6, 0)], lambda batch, ctx: ctx.get_state(COUNT).put([6], 1))
    assert script.operator.state.index.size == 3


def test_keys_of_several_columns_are_tuples_of_them() -> None:
    script = Script(PAIR, "name", "auction")
    values: list[Any] = []

    def code(batch: pa.RecordBatch, ctx: Context) -> None:
        state = ctx.get_state(COUNT)
        state.put(ctx.keys, batch.column("price"))
        values.append(state.get((["ä", None, "ä"], [2, 1, 1])).to_pylist())
        with pytest.raises(ProgramError, match="must be a tuple of 2 columns, not"):
            state.get(["ä"])

    script([("ä", 1, 10), (None, 1, 20), ("ä", 2, 30)], code)
    assert values == [[30, 20, 10]]


def test_the_context_knows_timestamps_and_watermark() -> None:
    seen: list[Any] = []

    def function(batch: pa.RecordBatch, ctx: Context) -> Iterator[pa.RecordBatch]:
        seen.append((ctx.timestamps, ctx.current_watermark()))
        yield batch.slice(0, 1)
        yield batch.slice(1).append_column("at", pa.array([7] * (batch.num_rows - 1)))

    with pytest.raises(ProgramError, match=r"process_batches\(\): 1 rows came of 2.* process_batches\(\.\.\., timest"):
        run([Batch([Row(auction=1, price=2)] * 2, [3, 4])], described(function))
    assert seen[0][0].tolist() == [3, 4]
    assert seen[0][1] == -(2**63)


def test_rows_become_batches() -> None:
    rows = [Row(auction=n % 3, price=n) for n in range(7)]
    results = records(run([Batch(rows[:3]), Batch(rows[3:])], described(CountUp())))
    assert [tuple(row) for row in results] == [(0, 1), (1, 1), (2, 1), (0, 3), (1, 2), (2, 2), (0, 3)]


def test_foreign_keys_are_refused_and_leave_nothing_behind() -> None:
    channel_of = KeyGroupAssigner(3, 128)
    own = [key for key in range(100) if channel_of(key) == 1]
    foreign = next(key for key in range(100) if channel_of(key) == 2)
    script = Script(subtask=1, parallelism=3)

    def code(batch: pa.RecordBatch, ctx: Context) -> None:
        state = ctx.get_state(COUNT)
        state.put(own, 1)
        for call in (state.get, state.clear, lambda keys: state.put(keys, 1)):
            for _ in range(2):
                with pytest.raises(ProgramError, match=f"the key {foreign} belongs to key group .* another subtask"):
                    call([own[0], foreign])

    script([(own[0], 0)], code)
    assert script.operator.state.index.size == len(own)


def test_what_does_not_fit_is_refused() -> None:
    def code(batch: pa.RecordBatch, ctx: Context) -> None:
        state: BatchValueState = ctx.get_state(COUNT)
        with pytest.raises(ProgramError, match="there are 2 keys but 3 values"):
            state.put([1, 2], [1, 2, 3])
        with pytest.raises(TypeMismatchError, match="state 'count'"):
            state.put([1], ["one"])
        with pytest.raises(TypeMismatchError, match="state 'count'"):
            state.put([1], pa.array([1.5]))
        with pytest.raises(ProgramError, match="are int64, which"):
            state.get(["one"])
        with pytest.raises(ProgramError, match="must be a column, not"):
            state.get(([1], [2]))
        with pytest.raises(ProgramError, match="asked for as Double, but is Long elsewhere"):
            ctx.get_state(ValueStateDescriptor("count", Types.DOUBLE()))
        with pytest.raises(ProgramError, match="can't stand in a column of a batch; use a type such as"):
            ctx.get_state(ValueStateDescriptor("any", Types.PICKLED_BYTE_ARRAY()))

    assert Script()([(1, 2)], code) == []


def test_other_kinds_of_state_are_refused() -> None:
    class Lists(KeyedBatchFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            runtime_context.get_list_state(ListStateDescriptor("all", Types.LONG()))

        def process_batch(self, batch: pa.RecordBatch, ctx: Context) -> None:
            return None

    with pytest.raises(ProgramError, match=r"list state 'all' .* functions of batches keep value state"):
        opened(described(Lists()))


def test_results_are_checked() -> None:
    def code(batch: pa.RecordBatch, ctx: Context) -> Any:
        return batch.to_pylist()

    with pytest.raises(ProgramError, match=r"process_batches\(\): the function returned \["):
        Script()([(1, 2)], code)
    with pytest.raises(TypeMismatchError, match="price"):
        Script()([(1, 2)], lambda batch, ctx: batch.select(["auction"]))


def test_state_comes_back_at_another_parallelism() -> None:
    first = [opened(described(CountUp()), n, 2) for n in range(2)]
    channel_of = KeyGroupAssigner(2, 128)
    keys = list(range(500))
    for key_channel, operator in enumerate(first):
        own = [(key, 0) for key in keys if channel_of(key) == key_channel] * 3
        list(operator.apply_columns(iter([Batch(StreamColumns(BID).from_records(own))])))
    parts = [take_snapshot(operator.backend.snapshot(), operator.key_groups) for operator in first]
    channel_of = KeyGroupAssigner(5, 128)
    for number in range(5):
        operator = ProcessBatches(described(CountUp()))
        info = TaskInfo("1" * 32, "job", "v", "t", number, 5, 128, 0, {})
        operator.use_backend(HeapStateBackend(), state_parameters(operator.spec, info, ManualClock()))
        operator.backend.restore([part.of(operator.key_groups) for part in parts])
        operator.open(OperatorContext(INFO, ManualClock(), Stamp()))
        own = [(key, 0) for key in keys if channel_of(key) == number]
        (result,) = operator.apply_columns(iter([Batch(StreamColumns(BID).from_records(own))]))
        assert columns_of(result).column("price").to_pylist() == [4] * len(own)


# --- time-to-live

SECOND = StateTtlConfig.new_builder(Time.seconds(1))


def expiring(config: StateTtlConfig) -> ValueStateDescriptor:
    descriptor = ValueStateDescriptor("expiring", Types.LONG())
    descriptor.enable_time_to_live(config)
    return descriptor


@pytest.mark.parametrize("on_read", [False, True])
@pytest.mark.parametrize(("show_expired", "cleanup"), [(False, False), (False, True), (True, False)])
def test_values_live_as_long_as_on_the_heap(on_read: bool, show_expired: bool, cleanup: bool) -> None:
    """Expired values are seen until they are removed, so that is left out where they are removed in the background."""
    builder = StateTtlConfig.new_builder(Time.seconds(1))
    builder = builder.update_ttl_on_read_and_write() if on_read else builder.update_ttl_on_create_and_write()
    builder = builder.return_expired_if_not_cleaned_up() if show_expired else builder.never_return_expired()
    builder = builder.cleanup_incrementally(3, True) if cleanup else builder.disable_cleanup_in_background()
    script, descriptor, r = Script(), expiring(builder.build()), random.Random(5)
    heap = HeapKeyedState(KeyedStateParameters(clock=script.clock))
    other: Any = heap.get_state(descriptor)
    seen = 0
    for _ in range(300):
        script.clock.now += r.choice([0, 0, 0.3, 0.3, 0.999, 0.001, 1.0])
        keys = r.sample(range(15), r.randrange(1, 8))
        action, number = r.choice(["get", "get", "put", "put", "clear"]), r.randrange(100)

        def code(batch: pa.RecordBatch, ctx: Context) -> None:
            nonlocal seen
            state = ctx.get_state(descriptor)
            expected = []
            for key in keys:  # noqa: B023 - called in this round
                heap.key = key
                if action == "get":  # noqa: B023
                    expected.append(other.value())
                elif action == "put":  # noqa: B023
                    other.update(number + key)  # noqa: B023
                else:
                    other.clear()
            if action == "get":  # noqa: B023
                assert state.get(keys).to_pylist() == expected  # noqa: B023
                seen += sum(value is not None for value in expected)
            elif action == "put":  # noqa: B023
                state.put(keys, [number + key for key in keys])  # noqa: B023
            else:
                state.clear(keys)  # noqa: B023

        script([(0, 0)], code)
    assert seen > 50


def test_what_has_expired_takes_no_memory_and_is_left_out_of_snapshots() -> None:
    for config, snapshot in (
        (StateTtlConfig.new_builder(Time.seconds(1)).cleanup_incrementally(1000, False).build(), False),
        (StateTtlConfig.new_builder(Time.seconds(1)).cleanup_incrementally(1000, True).build(), False),
        (SECOND.cleanup_full_snapshot().disable_cleanup_in_background().build(), True),
    ):
        script, descriptor = Script(), expiring(config)
        script([(0, 0)], lambda batch, ctx: ctx.get_state(descriptor).put(list(range(500)), 1))  # noqa: B023
        script.clock.now += 0.5
        script([(0, 0)], lambda batch, ctx: ctx.get_state(descriptor).put([7], 1))  # noqa: B023
        script.clock.now += 0.6
        assert script.operator.state.index.size == 500
        if snapshot:
            script.operator.snapshot_state(SnapshotContext(1, 0))
        else:
            script([(0, 0)], lambda batch, ctx: [ctx.get_state(descriptor).get([1])].clear())  # noqa: B023
        assert script.operator.state.index.size == 1
        script([(0, 0)], lambda batch, ctx: ctx.get_state(COUNT).put([7, 8], 5))
        script.clock.now += 1

        def both(batch: pa.RecordBatch, ctx: Context) -> None:
            assert ctx.get_state(descriptor).get([7, 8]).to_pylist() == [None, None]  # noqa: B023
            assert ctx.get_state(COUNT).get([7, 8]).to_pylist() == [5, 5]

        script([(0, 0)], both)


def test_a_time_to_live_survives_a_restore_and_may_come_and_go() -> None:
    with_ttl, without = expiring(SECOND.build()), ValueStateDescriptor("expiring", Types.LONG())

    def restored(script: Script, seconds: float) -> Script:
        written = take_snapshot(script.operator.backend.snapshot(), script.operator.key_groups)
        restored = Script()
        restored.clock.now = script.clock.now + seconds
        restored.operator.backend.restore([written.of(restored.operator.key_groups)])
        return restored

    def values(script: Script, descriptor: ValueStateDescriptor) -> list[Any]:
        values: list[Any] = []
        script([(0, 0)], lambda batch, ctx: values.extend(ctx.get_state(descriptor).get([1, 2]).to_pylist()))
        return values

    first = Script()
    first([(0, 0)], lambda batch, ctx: ctx.get_state(with_ttl).put([1], 10))
    first.clock.now += 0.7
    first([(0, 0)], lambda batch, ctx: ctx.get_state(with_ttl).put([2], 20))
    assert values(restored(first, 0.2), with_ttl) == [10, 20]
    assert values(restored(first, 0.4), with_ttl) == [None, 20]
    freed = restored(first, 5)
    assert values(freed, without) == [10, 20], "as without"
    again = restored(freed, 5)
    assert values(again, with_ttl) == [10, 20], "their life begins"
    again.clock.now += 1
    assert values(again, with_ttl) == [None, None]
