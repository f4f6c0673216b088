"""Combines records by key before they pass the shuffle (as a combiner of MapReduce), where that gives the same results.

Each sending task runs the operator that reads an edge over the records that it sends there, and sends the partial
results instead. Results of a reduce function are ordinary records, which the reader reduces again; columns are
accumulators by key, or by key and pane, which the reader adds to its own. So a key with very many records comes to its
reader only once, or a few times, from each task.

Memory is bounded: partial results are sent when they are of too many keys. If keys hardly repeat, nothing is combined.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from typing_extensions import override

from firesteel.graph.specs import ChainSpec, OperatorKind, OperatorSpec, OutputSpec, PartitionerKind
from firesteel.runtime.bounded.gathering import GatheringOutput
from firesteel.runtime.bounded.operators import LastAggregates, PartedWindows, create_bounded_operator
from firesteel.runtime.bounded.window_parts import gathers_in_parts, sender_of
from firesteel.runtime.chain.chain import ChainExecutor, ChainPlan
from firesteel.runtime.chain.partitioners import HashOutput, Output, Routed, columns_to_channels
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.operator_base.timed import TimedTransform
from firesteel.runtime.operators.keyed import REDUCE_STATE
from firesteel.runtime.operators.windows import WindowTransform
from firesteel.runtime.records.batch import MAX_WATERMARK, MIN_WATERMARK, Batch, Watermark
from firesteel.state.heap import HeapKeyedState
from firesteel.windowing.assigners import FixedTimeWindows

MOST_KEYS: Final = 100_000
"""Partial results, or rows of accumulators, at which all are sent."""
MOST_PANES: Final = 1000
"""Panes or windows at which all partial results are sent."""
TRIED: Final = 50_000
"""Records after which it is decided whether combining is worth its time."""
WORTH: Final = 0.7
"""Ratio of partial results to records from which on it is not."""
_IN_ANY_ORDER: Final = frozenset({"count", "sum", "avg", "min", "max"})
"""Aggregates whose result does not depend on the order of records."""
Make = Callable[[ChainSpec], ChainPlan]


class Combiner(ABC):
    """Combines the records of one edge.

    Attributes:
        result_count: approximate number of partial results.
    """

    result_count = 0

    @abstractmethod
    def takes(self, batch: Batch) -> bool:
        """Whether the records of a batch may be combined."""

    @abstractmethod
    def add(self, batch: Batch) -> None:
        """Combine records with those before."""

    @abstractmethod
    def give(self, output: Output) -> Routed:
        """Route all partial results, and begin anew."""

    @abstractmethod
    def close(self) -> None: ...


class _Captured(Output):
    """An output that collects what leaves a chain."""

    def __init__(self, name: str) -> None:
        super().__init__(name, ())
        self.batches: list[Batch] = []

    def route(self, batch: Batch) -> Routed:
        self.batches.append(batch)
        return ()


class _Running(Combiner):
    """A combiner that runs an operator over records, in a chain of its own."""

    def __init__(
        self, spec: OperatorSpec, make: Make, context: OperatorContext, guard: InterruptGuard, token: CancelToken
    ) -> None:
        edge = OutputSpec(0, 0, PartitionerKind.FORWARD)
        self._plan = make(ChainSpec([replace(spec, extra={**spec.extra, "side_outputs": {}})], [[]], [edge]))
        (operator,) = self._plan.operators
        assert isinstance(operator, TimedTransform)
        assert isinstance(operator.keyed, HeapKeyedState)
        self._operator, self._state = operator, operator.keyed
        self._results = _Captured(spec.name)
        self._plan.outlet_of(edge).outputs.append(self._results)
        self._context = replace(context, stamp=self._plan.stage_of[0].stamp)
        self._operator.create(self._context)
        self._operator.open(self._context)
        self._executor = ChainExecutor(self._plan, guard, token)

    @override
    def takes(self, batch: Batch) -> bool:
        return batch.kinds is None

    @override
    def add(self, batch: Batch) -> None:
        self._executor.feed(batch)
        self._work_off()
        self.result_count = self._count()

    @abstractmethod
    def _count(self) -> int:
        """Approximate number of results that ``give`` would route."""

    def give(self, output: Output) -> Routed:
        """Route the results of the operator, as if event time had ended."""
        self._executor.advance(Watermark(MAX_WATERMARK))
        self._work_off()
        self._state.forget()
        self._operator.heap_timers.watermark = self._plan.stages[0].stamp.watermark = MIN_WATERMARK
        batches, self._results.batches = self._results.batches, []
        self.result_count = 0
        for batch in batches:
            yield from output.route(self._of_result(batch))

    def _of_result(self, batch: Batch) -> Batch:
        """The batch to send in place of a batch of results."""
        return batch

    def _work_off(self) -> None:
        while self._executor.pending:
            self._executor.step()

    @override
    def close(self) -> None:
        self._executor.drop()
        self._operator.close()


class _Reducing(_Running):
    """Runs the reader's reduce operator; its results are ordinary records, which are sent without timestamps."""

    def __init__(
        self, spec: OperatorSpec, make: Make, context: OperatorContext, guard: InterruptGuard, token: CancelToken
    ) -> None:
        super().__init__(spec, make, context, guard, token)
        self._takes_first = bool(getattr(spec.function, "takes_first", False))

    @override
    def takes(self, batch: Batch) -> bool:
        # A function that takes the first record by time can't be combined here: that record may come later.
        return batch.kinds is None and not (self._takes_first and batch.timestamps is not None)

    def _count(self) -> int:
        return len(self._state.table(REDUCE_STATE))

    def _of_result(self, batch: Batch) -> Batch:
        return Batch(batch.values)


class _Windowing(_Running):
    """Runs the reader's tumbling windows; their contents are sent with the last timestamp of the window."""

    def _count(self) -> int:
        names = self._state.table_names()
        if len(names) > MOST_PANES:
            return MOST_KEYS + 1
        return sum(len(self._state.table(name)) for name in names)

    @override
    def give(self, output: Output) -> Routed:
        yield from super().give(output)
        for name in self._state.table_names():
            self._state.drop_table(name)
        assert isinstance(self._operator, WindowTransform)
        self._operator.make(self._operator.runtime_context(self._context))


class _Accumulating(Combiner):
    """Runs the reader's operator over columns; its state is sent as rows of accumulators."""

    def __init__(self, operator: LastAggregates | PartedWindows, context: OperatorContext) -> None:
        self._operator = operator
        operator.create(context)
        operator.open(context)
        self._fields = operator.key.fields(operator.input.schema)

    @override
    def takes(self, batch: Batch) -> bool:
        return batch.kinds is None

    @override
    def add(self, batch: Batch) -> None:
        for _ in self._operator.apply_columns(iter((self._operator.input.from_rows(batch),))):
            raise AssertionError("nothing is late, and no time has ended")
        panes, rows = self._operator.size()
        self.result_count = rows if panes <= MOST_PANES else max(rows, MOST_KEYS + 1)

    def give(self, output: Output) -> Routed:
        """Route rows of accumulators by their key; columns need no gathering, as their batches are large."""
        if isinstance(output, GatheringOutput):
            output = output.output
        for rows in self._operator.give_parts():
            batch = Batch(rows)
            if isinstance(output, HashOutput):
                targets = output.targets_of_keys(rows.columns[: len(self._fields)], self._fields, len(batch))
                yield from columns_to_channels(batch, targets, output.channels)
            else:
                yield from output.route(batch)
        self.result_count = 0

    @override
    def close(self) -> None:
        self._operator.close()


class CombiningOutput(Output):
    """An edge whose records are combined before they are routed.

    Args:
        output: routes records and partial results.
        combiner: combiner for the operator that reads the edge.
    """

    def __init__(self, output: Output, combiner: Combiner) -> None:
        super().__init__(output.name, output.channels)
        self._output, self._combiner = output, combiner
        self._records_in = self._results_out = 0
        self._worthwhile = True

    @property
    def takes_columns(self) -> bool:
        return self._output.takes_columns

    def route(self, batch: Batch) -> Routed:
        """Combine a batch; routes nothing, or all partial results if they are too many."""
        combiner = self._combiner
        if not self._worthwhile or not combiner.takes(batch):
            return self._output.route(batch)
        combiner.add(batch)
        self._records_in += len(batch)
        if combiner.result_count > MOST_KEYS or (
            self._results_out == 0 and self._records_in >= TRIED and not self._seems_worthwhile()
        ):
            return self.drain()
        return ()

    def _seems_worthwhile(self) -> bool:
        return self._combiner.result_count < WORTH * self._records_in

    def drain(self) -> Routed:
        """Route all partial results, and decide whether to go on combining."""
        self._results_out += self._combiner.result_count
        self._worthwhile = self._results_out < WORTH * max(self._records_in, 1) or self._records_in < TRIED
        return list(self._combiner.give(self._output))

    def close(self) -> None:
        self._combiner.close()


def combiner_of(
    spec: OperatorSpec, make: Make, context: OperatorContext, guard: InterruptGuard, token: CancelToken
) -> Combiner | None:
    """Create the combiner for an operator; None if combining would change its results.

    Args:
        spec: specification of the operator that reads the edge.
        make: creates a chain with state of its own.
        context: context for operators of this task.
        guard, token: interrupt guard and cancel token of this task.
    """
    if spec.kind is OperatorKind.REDUCE:
        combinable = bool(getattr(spec.function, "combinable", False))
        return _Reducing(spec, make, context, guard, token) if combinable else None
    if gathers_in_parts(spec):
        return _Windowing(sender_of(spec), make, context, guard, token)
    if spec.kind is OperatorKind.COLUMNS_AGGREGATE:
        aggregates = spec.function
    elif spec.kind is OperatorKind.COLUMNS_WINDOW:
        if not isinstance(spec.function.assigner, FixedTimeWindows) or not spec.function.assigner.is_event_time():
            return None
        aggregates = spec.function.aggregates
    else:
        return None
    if any(aggregate.function not in _IN_ANY_ORDER for aggregate in aggregates):
        return None
    operator = create_bounded_operator(spec)
    assert isinstance(operator, LastAggregates | PartedWindows)
    return _Accumulating(operator, context)
