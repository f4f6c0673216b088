"""The own time of operators in a chain: exact with a clock that only the operators move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from firesteel.common import Types
from firesteel.graph.specs import ChainSpec, OperatorKind, OutputSpec, PartitionerKind
from firesteel.runtime.chain import chain as chain_module
from firesteel.runtime.chain import own_times as own_times_module
from firesteel.runtime.chain import stages as stages_module
from firesteel.runtime.chain.chain import ChainPlan
from firesteel.runtime.chain.own_times import LONGEST_REST, REST, OwnTimes
from firesteel.runtime.chain.partitioners import SingleOutput
from firesteel.runtime.loop.metrics import OperatorRates
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import StreamColumns
from tests.unit.runtime.support import FakeOutput, ManualClock, executor_of, line, opened, run, spec

MAP, FLAT_MAP, FILTER = OperatorKind.MAP, OperatorKind.FLAT_MAP, OperatorKind.FILTER
ROW = Types.ROW_NAMED(["n"], [Types.LONG()])


class Clock:
    """Stands still but for what operators take."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def taking(self, seconds: float, result: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A function that takes some time."""

        def function(value: Any) -> Any:
            self.now += seconds
            return result(value)

        return function


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (chain_module, stages_module, own_times_module):
        monkeypatch.setattr(module, "_now", clock)
    return clock


def plan_of(chain: ChainSpec) -> tuple[ChainPlan, FakeOutput]:
    chain.outputs.append(OutputSpec(len(chain.operators) - 1, 0, PartitionerKind.FORWARD))
    plan, out = opened(chain), FakeOutput()
    plan.outlet_of(chain.outputs[0]).outputs.append(SingleOutput("out", [out]))
    return plan, out


def test_each_operator_of_a_stage_has_the_time_that_its_function_takes(clock: Clock) -> None:
    """Every slice is sampled, as records are slow."""
    plan, out = plan_of(
        line(
            spec(MAP, clock.taking(0.25, lambda n: n)),
            spec(FILTER, clock.taking(0.5, lambda n: n % 2 == 0)),
            spec(MAP, clock.taking(2.0, lambda n: -n)),
        )
    )
    run(plan, [0, 1, 2, 3])
    assert out.values == [0, -2]
    assert plan.own_times() == pytest.approx([1.0, 2.0, 4.0])


def test_a_sample_of_slices_gives_the_shares_of_all(clock: Clock) -> None:
    plan, _ = plan_of(
        line(
            spec(MAP, clock.taking(0.00001, lambda n: n)),
            spec(MAP, clock.taking(0.00003, lambda n: n)),
            spec(MAP, clock.taking(0.00006, lambda n: n)),
        )
    )
    run(plan, list(range(10_000)))
    assert plan.own_times() == pytest.approx([0.1, 0.3, 0.6])
    assert plan.stages[0].own_times._total < 0.1, "most slices ran without clocks"


def test_an_operator_that_expands_and_a_stage_behind_it(clock: Clock) -> None:
    def thrice(value: int) -> Iterator[int]:
        for _ in range(3):
            clock.now += 0.5
            yield value

    plan, out = plan_of(
        line(
            spec(MAP, clock.taking(1.0, lambda n: n)),
            spec(FLAT_MAP, thrice),
            spec(MAP, clock.taking(0.25, lambda n: n)),
        )
    )
    run(plan, [1, 2])
    assert out.values == [1, 1, 1, 2, 2, 2]
    assert plan.own_times() == pytest.approx([2.0, 3.0, 1.5])


def test_what_a_sink_takes_is_its_own(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = line(spec(MAP, clock.taking(1.0, lambda n: n)), spec(OperatorKind.PRINT, name="Sink"))
    plan = opened(chain)
    monkeypatch.setattr(plan.consumers[0], "take", clock.taking(3.0, lambda batch: None))
    run(plan, [1])
    assert plan.own_times() == pytest.approx([1.0, 3.0])


def test_operators_over_columns(clock: Clock) -> None:
    def slow(seconds: float) -> Callable[[Any], Any]:
        return clock.taking(seconds, lambda batch: batch)

    specs = [
        spec(OperatorKind.COLUMNS_MAP, slow(seconds), name=name, extra={"input_type": ROW, "result_type": ROW})
        for name, seconds in (("first", 1.0), ("second", 2.0))
    ]
    plan, _ = plan_of(line(*specs))
    assert len(plan.stages) == 1
    executor = executor_of(plan)
    batch = pa.RecordBatch.from_pydict({"n": list(range(10))})
    executor.feed(Batch(StreamColumns(ROW).fitted(batch, "the test")))
    while executor.pending:
        executor.step()
    assert plan.own_times() == pytest.approx([1.0, 2.0])


def test_nothing_is_measured_of_a_single_operator() -> None:
    times = OwnTimes(1)
    assert not times.is_due(1.0)
    assert times.divide(5.0) == [5.0]


def test_slices_with_clocks_are_rare(clock: Clock) -> None:
    times = OwnTimes(2)
    assert times.is_due(0.0)
    assert times.divide(3.0) == [0.0, 3.0], "nothing is known yet"
    times.add(0.001, 1000)
    assert [times.is_due(now) for now in (0.0, 0.001 * (REST - 1), 0.001 * REST)] == [False, False, True]
    times.add(60.0, 1_000_000)
    assert [times.is_due(now) for now in (LONGEST_REST / 2, LONGEST_REST)] == [False, True]
    slow = OwnTimes(2)
    slow.add(1.0, 10)
    assert slow.is_due(0.0), "clocks cost nothing beside records that take so long"


def test_a_look_ahead_is_the_first_operators() -> None:
    times = OwnTimes(3)
    times.add_first(2.0)
    times.add(4.0, 1)
    assert times.divide(8.0) == [4.0, 0.0, 4.0]


def test_the_metrics_of_operators() -> None:
    clock = ManualClock()
    rates = OperatorRates(clock)
    rates.update([("a b", 0, 0), ("c", 0, 0)], [0.0, 0.0])
    clock.now += 10
    metrics = rates.update([("a b", 100, 50), ("c", 50, 50)], [2.0, 0.5])
    assert metrics == {"a_b": [100, 50, 10.0, 5.0, 2000.0, 200.0], "c": [50, 50, 5.0, 5.0, 500.0, 50.0]}
