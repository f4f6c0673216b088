"""What an operator with keys would do with records is done before they travel, where it may be done in parts.

Each task runs the operator that reads an edge over what it sends there, and gives away what that would give, or would
write into a snapshot: results of a reduce function are records as any, and are reduced again by the reader; columns are
accumulators by key, or by key and pane of time, which the reader adds to its own. So a key that stands in very many
records comes to its reader once from each task, or a few times.

Memory is bounded: what is held goes out when it is of too many keys. Where keys hardly repeat nothing is combined.
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
"""Of which results are held; of columns as many rows of accumulators."""
MOST_PANES: Final = 1000
TRIED: Final = 50_000
"""Records after which it is known whether combining is worth it."""
WORTH: Final = 0.7
"""Not if so many of them are left, as a part."""
_IN_ANY_ORDER: Final = frozenset({"count", "sum", "avg", "min", "max"})
Make = Callable[[ChainSpec], ChainPlan]


class Combiner(ABC):
    """Holds what was combined.

    Attributes:
        held: about how many results it holds.
    """

    held = 0

    @abstractmethod
    def takes(self, batch: Batch) -> bool:
        """Whether what a batch has may be combined."""

    @abstractmethod
    def add(self, batch: Batch) -> None: ...

    @abstractmethod
    def give(self, output: Output) -> Routed:
        """Give away all that is held."""

    @abstractmethod
    def close(self) -> None: ...


class _Captured(Output):
    """Takes what leaves a chain."""

    def __init__(self, name: str) -> None:
        super().__init__(name, ())
        self.batches: list[Batch] = []

    def route(self, batch: Batch) -> Routed:
        self.batches.append(batch)
        return ()


class _Running(Combiner):
    """An operator over records, as a chain of its own."""

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
        self._context = own = replace(context, stamp=self._plan.stage_of[0].stamp)
        self._operator.create(own)
        self._operator.open(own)
        self._executor = ChainExecutor(self._plan, guard, token)

    def takes(self, batch: Batch) -> bool:
        """Where all records are additions."""
        return batch.kinds is None

    @override
    def add(self, batch: Batch) -> None:
        self._executor.feed(batch)
        self._work_off()
        self.held = self._count()

    @abstractmethod
    def _count(self) -> int:
        """About how many results it would give."""

    def give(self, output: Output) -> Routed:
        """Its results, as if event time had ended."""
        self._executor.advance(Watermark(MAX_WATERMARK))
        self._work_off()
        self._state.forget()
        self._operator.heap_timers.watermark = self._plan.stages[0].stamp.watermark = MIN_WATERMARK
        batches, self._results.batches = self._results.batches, []
        self.held = 0
        for batch in batches:
            yield from output.route(self._of_result(batch))

    def _of_result(self, batch: Batch) -> Batch:
        """What is sent of a batch of results."""
        return batch

    def _work_off(self) -> None:
        while self._executor.pending:
            self._executor.step()

    @override
    def close(self) -> None:
        self._executor.drop()
        self._operator.close()


class _Reducing(_Running):
    """The reduce operator of the reader: its results are records as any, without a time of their own."""

    def __init__(
        self, spec: OperatorSpec, make: Make, context: OperatorContext, guard: InterruptGuard, token: CancelToken
    ) -> None:
        super().__init__(spec, make, context, guard, token)
        self._takes_first = bool(getattr(spec.function, "takes_first", False))

    def takes(self, batch: Batch) -> bool:
        """Not where the first record by time has a say, which may come later."""
        return batch.kinds is None and not (self._takes_first and batch.timestamps is not None)

    def _count(self) -> int:
        return len(self._state.table(REDUCE_STATE))

    def _of_result(self, batch: Batch) -> Batch:
        return Batch(batch.values)


class _Windowing(_Running):
    """Tumbling windows of the reader: what they hold goes away with the last timestamp of its window."""

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
    """The operator over columns of the reader: what it holds goes away as accumulators."""

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
        self.held = rows if panes <= MOST_PANES else max(rows, MOST_KEYS + 1)

    def give(self, output: Output) -> Routed:
        """Rows of accumulators, by key."""
        if isinstance(output, GatheringOutput):
            output = output.output
        for rows in self._operator.give_parts():
            batch = Batch(rows)
            if isinstance(output, HashOutput):
                targets = output.targets_of_keys(rows.columns[: len(self._fields)], self._fields, len(batch))
                yield from columns_to_channels(batch, targets, output.channels)
            else:
                yield from output.route(batch)
        self.held = 0

    @override
    def close(self) -> None:
        self._operator.close()


class CombiningOutput(Output):
    """An edge whose records are combined before they go on.

    Args:
        output: chooses the channels.
        combiner: of the operator that reads the edge.
    """

    def __init__(self, output: Output, combiner: Combiner) -> None:
        super().__init__(output.name, output.channels)
        self._output, self._combiner = output, combiner
        self._taken = self._given = 0
        self._is_of_use = True

    @property
    def takes_columns(self) -> bool:
        return self._output.takes_columns

    def route(self, batch: Batch) -> Routed:
        """Nothing, or what was held so far."""
        combiner = self._combiner
        if not self._is_of_use or not combiner.takes(batch):
            return self._output.route(batch)
        combiner.add(batch)
        self._taken += len(batch)
        if combiner.held > MOST_KEYS or (self._given == 0 and self._taken >= TRIED and not self._seems_of_use()):
            return self.drain()
        return ()

    def _seems_of_use(self) -> bool:
        return self._combiner.held < WORTH * self._taken

    def drain(self) -> Routed:
        """All that is held."""
        self._given += self._combiner.held
        self._is_of_use = self._given < WORTH * max(self._taken, 1) or self._taken < TRIED
        return list(self._combiner.give(self._output))

    def close(self) -> None:
        self._combiner.close()


def combiner_of(
    spec: OperatorSpec, make: Make, context: OperatorContext, guard: InterruptGuard, token: CancelToken
) -> Combiner | None:
    """What combines for an operator; None where its results would not be the same.

    Args:
        spec: of the operator.
        make: a chain with state of its own.
        context: of operators of this task.
        guard, token: of this task.
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
    if any(one.function not in _IN_ANY_ORDER for one in aggregates):
        return None
    operator = create_bounded_operator(spec)
    assert isinstance(operator, LastAggregates | PartedWindows)
    return _Accumulating(operator, context)
