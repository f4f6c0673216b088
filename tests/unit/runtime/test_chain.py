"""The chain executor: order, laziness, bounds, back-pressure, timestamps, forks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.functions.functions import ProcessFunction
from firesteel.graph.specs import ChainSpec, OperatorKind, OutputSpec, PartitionerKind
from firesteel.runtime.chain import stages as stages_module
from firesteel.runtime.chain.chain import ChainPlan
from firesteel.runtime.chain.partitioners import SingleOutput
from firesteel.runtime.records.batch import Batch
from tests.unit.runtime.support import FakeOutput, executor_of, line, opened, run, spec

MAP, FLAT_MAP, FILTER = OperatorKind.MAP, OperatorKind.FLAT_MAP, OperatorKind.FILTER


def with_output(chain: ChainSpec, index: int | None = None) -> tuple[ChainPlan, FakeOutput]:
    """The plan with a fake output behind the last (or n-th) operator."""
    at = len(chain.operators) - 1 if index is None else index
    chain.outputs.append(OutputSpec(at, len(chain.outputs), PartitionerKind.FORWARD))
    plan = opened(chain)
    out = FakeOutput()
    plan.stage_of[at].outlet.outputs.append(SingleOutput("op", [out]))
    return plan, out


def test_operators_of_a_line_form_one_stage_up_to_one_that_expands() -> None:
    plan = ChainPlan(
        line(spec(MAP, str), spec(FILTER, bool), spec(FLAT_MAP, list), spec(MAP, str), spec(OperatorKind.PRINT))
    )
    assert [[o.spec.kind for o in s.operators] for s in plan.stages] == [[MAP, FILTER, FLAT_MAP], [MAP]]
    assert len(plan.stages[1].outlet.consumers) == 1


def test_a_very_long_chain_stays_below_the_recursion_limit() -> None:
    plan, out = with_output(line(*[spec(MAP, lambda n: n + 1)] * 3000))
    run(plan, [0, 1])
    assert out.values == [3000, 3001]


def test_one_record_at_a_time_goes_through_a_line() -> None:
    story: list[Any] = []

    def note(name: str) -> Any:
        def function(value: int) -> int:
            story.append((name, value))
            return value

        return function

    plan, _ = with_output(line(spec(MAP, note("first")), spec(MAP, note("second"))))
    run(plan, [1, 2])
    assert story == [("first", 1), ("second", 1), ("first", 2), ("second", 2)]


def test_a_generator_is_suspended_while_the_output_is_full() -> None:
    pulled = 0

    def many(value: int) -> Iterator[int]:
        nonlocal pulled
        for i in range(10_000_000):
            pulled += 1
            yield i

    plan, out = with_output(line(spec(FLAT_MAP, many), spec(FILTER, lambda n: n % 2 == 0)))
    executor = executor_of(plan)
    executor.feed(Batch([0]))
    while len(out.values) < 1000:
        executor.step()
    out.writable = False
    while not executor.blocked:
        executor.step()
    before = pulled
    assert before < 10_000
    assert executor.blocked
    assert executor.pending
    out.open_up()
    assert not executor.blocked
    while pulled == before:  # what was pulled before may take some steps to its output
        executor.step()
    assert pulled < before + 3000
    assert out.values == list(range(0, 2 * len(out.values), 2))
    executor.drop()
    assert not executor.pending


def test_a_step_is_bounded_even_if_nothing_comes_out() -> None:
    calls = 0

    def nothing(value: int) -> bool:
        nonlocal calls
        calls += 1
        return False

    plan, out = with_output(line(spec(FILTER, nothing)))
    executor = executor_of(plan)
    executor.feed(Batch(list(range(100_000))))
    executor.step()
    assert calls == 1
    steps = 0
    while executor.pending:
        before = calls
        executor.step()
        steps += 1
        assert calls - before <= stages_module.LARGEST_SLICE
    assert calls == 100_000
    assert out.values == []


def test_slices_shrink_when_records_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    cost = 0.000001

    def work(value: int) -> int:
        nonlocal now
        now += cost
        return value

    monkeypatch.setattr(stages_module, "_now", lambda: now)
    plan, out = with_output(line(spec(MAP, work)))
    executor = executor_of(plan)
    executor.feed(Batch(list(range(5000))))
    while len(out.values) < 3000:
        executor.step()
    assert isinstance(plan.root, stages_module.RowStage)
    assert plan.root.slices.records == stages_module.LARGEST_SLICE
    cost = 0.010
    executor.step()
    executor.step()
    executor.step()
    assert plan.root.slices.records == 1


def test_slices_of_large_records_are_small_and_grow_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages_module, "_now", lambda: 0.0)  # on a busy machine slices shrink by time, too
    large = True
    plan, out = with_output(line(spec(FLAT_MAP, lambda n: ["x" * (100_000 if large else 1)] * 5000)))
    executor = executor_of(plan)
    executor.feed(Batch([0, 0, 0]))
    while len(out.values) < 5000:
        executor.step()
    assert max(len(batch) for batch in out.batches) <= 64, "it grows by doubling, and is measured from 16 on"
    assert len(out.batches[-1]) <= 3
    large = False
    while executor.pending:
        executor.step()
    assert len(out.batches[-2]) == stages_module.LARGEST_SLICE


def test_timestamps_go_with_their_records_through_expanding_operators_and_forks() -> None:
    class Look(ProcessFunction[Any, Any]):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value, ctx.timestamp()
            yield value, ctx.timestamp()

    chain = line(spec(FLAT_MAP, lambda n: [n] * n), spec(OperatorKind.PROCESS, Look()))
    plan, out = with_output(chain)
    run(plan, [1, 2, 0, 1], [10, 20, 30, 40])
    assert out.values == [(1, 10), (1, 10), *[(2, 20)] * 4, (1, 40), (1, 40)]
    assert out.timestamps == [10, 10, *[20] * 4, 40, 40]


def test_a_resumed_generator_still_sees_its_own_timestamp() -> None:
    class Slow(ProcessFunction[Any, Any]):
        def process_element(self, value: Any, ctx: Any) -> Any:
            for _ in range(5000):
                yield ctx.timestamp()

    class Again(ProcessFunction[Any, Any]):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value, ctx.timestamp()

    plan, out = with_output(line(spec(OperatorKind.PROCESS, Slow()), spec(OperatorKind.PROCESS, Again())))
    run(plan, [1, 2], [10, 20])
    assert out.values == [(10, 10)] * 5000 + [(20, 20)] * 5000


def test_a_fork_gives_every_branch_everything_in_order() -> None:
    chain = ChainSpec(
        [spec(MAP, lambda n: n), spec(MAP, lambda n: n + 1), spec(FLAT_MAP, lambda n: [n, n]), spec(MAP, str)],
        [[1, 2], [], [3], []],
        [
            OutputSpec(1, 0, PartitionerKind.FORWARD),
            OutputSpec(3, 1, PartitionerKind.FORWARD),
            OutputSpec(0, 2, PartitionerKind.FORWARD),
        ],
    )
    plan = opened(chain)
    outs = {}
    for output in chain.outputs:
        outs[output.operator_index] = out = FakeOutput()
        plan.stage_of[output.operator_index].outlet.outputs.append(SingleOutput("op", [out]))
    executor = run(plan, list(range(3000)))
    assert outs[0].values == list(range(3000))
    assert outs[1].values == list(range(1, 3001))
    assert outs[3].values == [str(n) for n in range(3000) for _ in range(2)]
    assert (executor.records_in, executor.records_out) == (3000, 12_000)


def test_a_source_without_type_hands_its_list_on_as_it_is() -> None:
    plan, out = with_output(line(spec(OperatorKind.SOURCE)))
    values = [1, 2, 3]
    run(plan, values)
    assert out.batches[0].values is values


_STEPS: list[tuple[OperatorKind, Any]] = [
    (MAP, lambda n: n + 1),
    (FILTER, lambda n: n % 3 != 0),
    (FLAT_MAP, lambda n: range(n % 4)),
    (FLAT_MAP, lambda n: None if n % 2 else [n, n]),
]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.lists(st.integers(-50, 50), max_size=300), st.booleans())
def test_a_chain_equals_plain_python(steps: list[int], values: list[int], stamped: bool) -> None:
    plan, out = with_output(line(*[spec(*_STEPS[i]) for i in steps]))
    expected = [(value, position) for position, value in enumerate(values)]
    for i in steps:
        kind, function = _STEPS[i]
        if kind is MAP:
            expected = [(function(v), t) for v, t in expected]
        elif kind is FILTER:
            expected = [(v, t) for v, t in expected if function(v)]
        else:
            expected = [(r, t) for v, t in expected for r in function(v) or ()]
    run(plan, values, list(range(len(values))) if stamped else None)
    assert out.values == [v for v, _ in expected]
    if stamped:
        assert out.timestamps == [t for _, t in expected]


def test_what_each_operator_took_and_gave_is_counted() -> None:
    """By whole batches, but for what operators within a stage drop."""
    chain = line(
        spec(MAP, lambda n: n, name="first"),
        spec(FILTER, lambda n: n % 2 == 0, name="even"),
        spec(FILTER, lambda n: n % 3 == 0, name="third"),
        spec(FLAT_MAP, lambda n: [n] * 3, name="thrice"),
        spec(FILTER, lambda n: n, name="not zero"),
        spec(MAP, lambda n: -n, name="last"),
    )
    plan, out = with_output(chain)
    assert len(plan.stages) == 2
    executor = run(plan, list(range(12)))
    run_again = list(range(12, 24))
    executor.feed(Batch(run_again))
    while executor.pending:
        executor.step()
    assert plan.flows() == [
        ("first", 24, 24), ("even", 24, 12), ("third", 12, 4), ("thrice", 4, 12), ("not zero", 12, 9), ("last", 9, 9),
    ]  # fmt: skip
    assert len(out.values) == 9
    assert (executor.records_in, executor.records_out) == (24, 9)


def test_what_is_dropped_before_a_function_raises_is_counted() -> None:
    def broken(value: int) -> int:
        raise LookupError(value)

    plan, _ = with_output(line(spec(FILTER, lambda n: n > 2, name="large"), spec(FILTER, broken, name="broken")))
    with pytest.raises(LookupError):
        run(plan, [1, 2, 3, 4])
    assert plan.operators[0].fewer == 2


def test_consumers_and_branches_are_counted_where_they_read() -> None:
    chain = ChainSpec(
        [
            spec(MAP, lambda n: n, name="head"),
            spec(FILTER, lambda n: n > 1, name="large"),
            spec(OperatorKind.PRINT, name="Sink: all"),
        ],
        [[1, 2], [], []],
        [],
    )
    plan, out = with_output(chain, 1)
    executor = run(plan, [1, 2, 3])
    assert executor.records_out == 5, "what a sink takes is written, as what leaves by an edge"
    assert plan.flows() == [("head", 3, 3), ("large", 3, 2), ("Sink: all", 3, 3)]
    assert out.values == [2, 3]


def test_a_filter_in_front_of_functions_of_one_result_need_not_count() -> None:
    chain = line(
        spec(MAP, lambda n: n, name="first"),
        spec(FILTER, lambda n: n % 2 == 0, name="even"),
        spec(MAP, lambda n: -n, name="last"),
    )
    plan, _ = with_output(chain)
    run(plan, list(range(10)))
    assert plan.flows() == [("first", 10, 10), ("even", 10, 5), ("last", 5, 5)]
    assert [operator.counts for operator in plan.operators] == [True, False, False]
    assert plan.operators[1].fewer == 0, "counting would cost something for each record"
