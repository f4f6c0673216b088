"""Keys at the door of keyed operators: NaN is one key, and keys of another kind than those restored are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from firesteel.checkpoint.assign import TaskRestore, assign
from firesteel.checkpoint.metadata import OperatorState
from firesteel.checkpoint.subtask_state import KeyKinds, TaskState
from firesteel.common import Types
from firesteel.common.types import Row
from firesteel.functions.functions import KeyedProcessFunction
from firesteel.functions.state import ValueStateDescriptor
from firesteel.graph.execution_states import ExecutionState as E
from firesteel.graph.key_kinds import agree, kind_of, kind_text, merged
from firesteel.graph.specs import OperatorKind as K
from firesteel.runtime.records.batch import Barrier, Batch
from firesteel.state.columnar.key_index import KeyIndex
from tests.unit.runtime import test_checkpoints as checkpoints
from tests.unit.runtime.support import spec
from tests.unit.runtime.test_checkpoints import Bench, bench_of


@pytest.fixture(autouse=True)
def benches() -> Iterator[None]:
    checkpoints.MADE.clear()
    yield
    for bench in checkpoints.MADE:
        bench.loop.close()


class Counts(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.seen.update((self.seen.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(1000)
        yield self.seen.value()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return ()


def counting(key_of: Callable[[Any], Any] = lambda value: value) -> Any:
    return spec(K.KEYED_PROCESS, Counts(), key_selectors=(key_of,), name="counts")


def table_of(bench: Bench) -> Any:
    return bench.plan.operators[0].keyed._parts["seen", "plain"].table  # type: ignore[union-attr]


def again(state: TaskState, *, same_program: bool = True) -> TaskRestore:
    """What the JobMaster makes of a checkpoint for the same parallelism."""
    operators = {
        id_: assign(OperatorState(id_, "counts", None, 1, 128, {0: operator}), 1, 128, same_program=same_program)[0]
        for id_, operator in state.operators.items()
    }
    return TaskRestore(1, False, operators)


def nan() -> float:
    return float("nan")


@pytest.mark.parametrize("make", [nan, lambda: ("a", nan()), lambda: Row(nan(), 2), lambda: (1, (nan(), 2))])
def test_nan_is_one_key_and_its_state_does_not_grow(make: Callable[[], Any]) -> None:
    bench = bench_of(counting())
    bench.channels[0].give(Batch([make() for _ in range(5)]))
    bench.run()
    assert bench.output.values == [1, 2, 3, 4, 5]
    assert len(table_of(bench)) == 1
    bench.give(Barrier(1, 0))
    second = bench_of(counting(), restore=again(bench.reports.acknowledged[1]))
    second.channels[0].give(Batch([make()]))
    second.run()
    assert second.output.values == [6]
    assert len(table_of(second)) == 1
    assert len(second.plan.operators[0].heap_timers.event) == 1  # type: ignore[attr-defined]


def test_a_reduce_and_a_tuple_whose_shape_changes() -> None:
    bench = bench_of(spec(K.REDUCE, lambda a, b: (a[0], a[1] + b[1]), key_selectors=(lambda value: value[0],)))
    keys: list[Any] = [("a", 1), ("a", nan()), ("a", 1), ("a", nan()), ("a", 1.5), nan(), 1, nan()]
    bench.channels[0].give(Batch([(key, 1) for key in keys]))
    bench.run()
    assert [count for _, count in bench.output.values] == [1, 1, 2, 2, 1, 1, 1, 2]


def test_columns_of_half_precision_know_one_nan_and_one_zero() -> None:
    index = KeyIndex([pa.float16()])
    import numpy as np

    numbers = pa.array(np.array([np.nan, 0.0, -0.0, np.nan], np.float16))
    for _ in range(3):
        slots = index.slots([numbers]).tolist()
        assert slots == [0, 1, 1, 0]
    assert index.size == 2


# -- kinds of keys


def checkpoint_of(*keys: Any) -> TaskState:
    bench = bench_of(counting())
    bench.channels[0].give(Batch(list(keys)))
    bench.run()
    bench.give(Barrier(1, 0))
    return bench.reports.acknowledged[1]


def goes_on(state: TaskState, *keys: Any, key_of: Any = lambda value: value, same_program: bool = False) -> Bench:
    bench = bench_of(counting(key_of), restore=again(state, same_program=same_program))
    bench.channels[0].give(Batch(list(keys)))
    bench.run()
    return bench


def test_keys_of_another_kind_are_refused_with_all_names() -> None:
    bench = goes_on(checkpoint_of("a", "b"), ("a", 1))
    assert bench.states[-1] is E.FAILED
    failure = bench.reports.failure
    assert failure is not None
    assert failure.message.startswith(
        "operator 'counts': the keys of its state ('seen') in the checkpoint are str, and the key selector gives "
        "tuple(str, number) now (('a', 1)): no record would ever find that state again."
    )
    assert failure.operator == "counts"


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (("a", 1), ("b", 2.5)),
        (("a", None), ("b", 2)),
        (1, True),
        (Row(a=1, b="x"), Row(b="y", a=2)),
        (None, "a"),
    ],
)
def test_keys_of_the_same_kind_go_on(before: Any, now: Any) -> None:
    bench = goes_on(checkpoint_of(before), now, now)
    assert bench.states[-1] is E.RUNNING
    assert len(bench.output.values) == 2


def test_a_key_that_is_missing_proves_nothing_and_one_of_the_same_kind_does() -> None:
    state = checkpoint_of("a")
    assert goes_on(state, None, "b", 5).states[-1] is E.RUNNING
    assert goes_on(state, None, 5).states[-1] is E.FAILED


def test_the_same_program_may_meet_keys_of_a_new_kind_after_a_failure() -> None:
    assert goes_on(checkpoint_of("a"), 5, same_program=True).states[-1] is E.RUNNING


def test_what_was_not_proved_is_not_forgotten_by_the_next_checkpoint() -> None:
    bench = goes_on(checkpoint_of("a"))
    bench.give(Barrier(2, 0))
    written = bench.reports.acknowledged[2]
    assert [operator.keys for operator in written.operators.values()] == [KeyKinds(("str",), proved=False)]
    assert goes_on(written, 5, same_program=True).states[-1] is E.FAILED
    bench = goes_on(written, "b", same_program=True)
    bench.give(Barrier(3, 0))
    assert [operator.keys for operator in bench.reports.acknowledged[3].operators.values()] == [KeyKinds(("str",))]


def test_where_no_state_is_left_any_key_may_come() -> None:
    class Forgets(Counts):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            self.seen.update(1)
            self.seen.clear()
            yield 0

    bench = bench_of(replace(counting(), function=Forgets()))
    bench.channels[0].give(Batch(["a"]))
    bench.run()
    bench.give(Barrier(1, 0))
    assert goes_on(bench.reports.acknowledged[1], 5).states[-1] is E.RUNNING


def test_kinds_of_all_subtasks_count_and_old_checkpoints_know_none() -> None:
    texts, numbers = checkpoint_of("a"), checkpoint_of(5)
    ((id_, first),), ((_, second),) = texts.operators.items(), numbers.operators.items()
    state = OperatorState(id_, "counts", None, 2, 128, {0: first, 1: second})
    assert [part.keys for part in assign(state, 3, 128, same_program=False)] == [
        KeyKinds(("number", "str"), proved=False)
    ] * 3
    old = replace(first, keys=None)
    (part,) = assign(OperatorState(id_, "counts", None, 1, 128, {0: old}), 1, 128, same_program=False)
    assert part.keys is None
    bench = bench_of(counting(), restore=TaskRestore(1, False, {id_: part}))
    bench.channels[0].give(Batch([5]))
    bench.run()
    assert bench.states[-1] is E.RUNNING


def test_kinds() -> None:
    assert [kind_of(key) for key in (1, 1.5, True, "a", b"a", None)] == [
        "number",
        "number",
        "number",
        "str",
        "bytes",
        "None",
    ]
    assert kind_text(kind_of(Row(b=1, a=("x",)))) == "Row(a: tuple(str), b: number)"
    assert kind_text(kind_of(Row(1, "x"))) == "Row(number, str)"
    assert not agree(kind_of(Row(a=1)), kind_of(Row(b=1)))
    assert not agree(kind_of(Row(1)), kind_of((1,)))
    assert not agree(kind_of((1,)), kind_of((1, 2)))
    assert merged(map(str, range(20))) == ["anything"]
