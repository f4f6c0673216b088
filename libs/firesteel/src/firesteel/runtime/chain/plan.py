"""Builds the tree of stages of a chain from its specification.

Operators that follow each other in a straight line run in one stage as far as possible. A stage ends where the chain
branches, where an edge leaves, and behind an operator that may make many results of a record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from firesteel.common.typeinfo import TupleTypeInfo
from firesteel.common.typeinfo_basic import BasicTypeInfo
from firesteel.core.clock import Clock
from firesteel.graph.specs import ChainSpec, OperatorKind, OperatorSpec, OutputSpec
from firesteel.runtime.chain.hot_keys import KeySketch
from firesteel.runtime.chain.partitioners import Output
from firesteel.runtime.chain.stages import (
    AsyncStage,
    ChainStage,
    ColumnStage,
    ForwardStage,
    Outlet,
    RowStage,
    WatermarkStage,
)
from firesteel.runtime.operator_base.base import Operator, Transform, TypedOutput
from firesteel.runtime.operator_base.columnar import ColumnTransform
from firesteel.runtime.operator_base.context import TaskInfo
from firesteel.runtime.operator_base.keyed_base import KeyedTransform, state_parameters
from firesteel.runtime.operators import Consumer, KeyedColumns, LaterResults, WatermarksOperator, create_operator
from firesteel.runtime.operators.sinks import SinkFunctionOperator
from firesteel.runtime.operators.stateless import FilterOperator
from firesteel.state.backend import StateBackend

LONGEST_STAGE: Final = 64
"""Most operators of a stage: their nested generators count against Python's recursion limit."""


class ChainPlan:
    """The operators and stages of a chain.

    Args:
        spec: specification of the chain.
        create: creates an operator from its specification.

    Attributes:
        operators: the operators, by index in the specification.
        root: the stage that batches enter.
        stages: all stages, each before those behind it.
        async_stages: stages whose results come later.
        watermark_stages: stages that generate watermarks.
        stage_of: stage by index of the operator; for a consumer the stage in front of it.
        consumers: all operators without results.
        read_by: outlet that a consumer reads, by index of the consumer.
    """

    def __init__(self, spec: ChainSpec, create: Callable[[OperatorSpec], Operator] = create_operator) -> None:
        self.spec = spec
        self.operators: list[Operator] = [create(operator) for operator in spec.operators]
        self._index_of = {id(operator): index for index, operator in enumerate(self.operators)}
        self.stages: list[ChainStage] = []
        self.stage_of: dict[int, ChainStage] = {}
        self.read_by: dict[int, Outlet] = {}
        self.consumers = [operator for operator in self.operators if isinstance(operator, Consumer)]
        self._with_outputs = {output.operator_index for output in spec.outputs}
        for output in spec.outputs:
            for helper in (output.key_selector, output.partition):
                self.operators[output.operator_index].add_helper(helper)
        self.root = self._stage(0)
        self.async_stages = [stage for stage in self.stages if isinstance(stage, AsyncStage)]
        self.watermark_stages = [stage for stage in self.stages if isinstance(stage, WatermarkStage)]

    def use_state_backend(
        self, backend: StateBackend, info: TaskInfo, clock: Clock, memory: int = 0, directory: str = ""
    ) -> None:
        """Create the state of keyed operators in this backend; called before anything is opened.

        Args:
            backend: creates the keyed state of each operator.
            info: description of the task.
            clock: clock of the task, for state TTL.
            memory: managed memory of the slot in bytes; 0 = unknown.
            directory: working directory of the task; empty = it has none.
        """
        for operator in self.operators:
            if isinstance(operator, KeyedTransform | KeyedColumns):
                operator.use_backend(backend, state_parameters(operator.spec, info, clock, memory, directory))

    def outlet_of(self, output: OutputSpec) -> Outlet:
        """The outlet to which an edge is attached: that of its operator, or that of the side output that it carries."""
        stage = self.stage_of[output.operator_index]
        return stage.outlet if output.tag is None else stage.side(output.tag)

    def watermarks_of(self, index: int, *, itself: bool = False) -> WatermarksOperator | None:
        """The operator of the chain that generates the watermarks for another one; None if they come with the input.

        Args:
            index: index of the operator that gets them.
            itself: whether that operator may be the one itself, for the watermarks that leave it.
        """
        parent_of = {child: parent for parent, children in enumerate(self.spec.children) for child in children}
        candidate = index if itself else parent_of.get(index)
        while candidate is not None:
            operator = self.operators[candidate]
            if isinstance(operator, WatermarksOperator):
                return operator
            candidate = parent_of.get(candidate)
        return None

    def flows(self) -> list[tuple[str, int, int]]:
        """Name, records taken and results made of each operator; may be called from any thread.

        Whole batches are counted where they enter and leave a stage, so that no record costs time. Inside a stage
        operators count the records that they drop, where that number does not follow from those two counts. What a sink
        takes is what it writes, as in Flink (FLINK-33681).
        """
        flows: list[tuple[str, int, int]] = []
        last_results: dict[ChainStage, int] = {}  # results of the operator in the stage that was looked at last
        for index, operator in enumerate(self.operators):
            if index in self.read_by:
                records = self.read_by[index].records
                flows.append((operator.name, records, records))
                continue
            stage = self.stage_of[index]
            records = last_results.get(stage, stage.records_in)
            last = stage.operators and operator is stage.operators[-1]
            if last or not (operator.counts or _is_plain_source(operator)):
                results = stage.records_out  # all operators behind it in the stage make one result for each record
            else:
                results = records - operator.fewer
            last_results[stage] = results
            flows.append((operator.name, records, results))
        return flows

    def sketched_outputs(self) -> list[tuple[Output, KeySketch]]:
        """Outputs that count their most frequent keys; may be called from any thread."""
        return [(output, output.sketch) for output in self.outputs() if output.sketch is not None]

    def outputs(self) -> list[Output]:
        """The edges that leave the chain; may be called from any thread."""
        outlets = [outlet for stage in self.stages for outlet in (stage.outlet, *list(stage.sides.values()))]
        return [output for outlet in outlets for output in outlet.outputs]

    def own_times(self) -> list[float]:
        """Seconds that each operator has worked, in the order of ``flows``; may be called from any thread.

        Reading, partitioning and sending are nobody's; the time of a source is what its reader takes, which its input
        knows.
        """
        times = [0.0] * len(self.operators)
        for stage in self.stages:
            for operator, seconds in zip(stage.operators, stage.own_times.divide(stage.seconds), strict=False):
                times[self._index_of[id(operator)]] = seconds
        for index in self.read_by:
            consumer = self.operators[index]
            assert isinstance(consumer, Consumer)
            times[index] = consumer.seconds
        return times

    def _stage(self, first: int, typed: TypedOutput | None = None) -> ChainStage:
        """Build the stage that begins with an operator, and all stages behind it.

        Args:
            first: index of the operator.
            typed: the output with a declared type whose records enter the stage, if there is one.
        """
        indexes = self._run_from(first)
        last = self.operators[indexes[-1]]
        stage = self._make_stage([self.operators[index] for index in indexes])
        stage.outlet.reuses = last.spec.object_reuse
        stage.outlet.typed = self._typed(indexes, typed)
        for position, index in enumerate(indexes):
            operator = self.operators[index]
            if isinstance(operator, SinkFunctionOperator):
                operator.typed_input = self._typed(indexes[:position], typed)
        self.stages.append(stage)
        self.stage_of.update(dict.fromkeys(indexes, stage))
        if isinstance(last, Consumer):  # at the head of the chain
            stage.outlet.consumers.append(last)
            self.read_by[indexes[-1]] = stage.outlet
            return stage
        for index in self.spec.children[indexes[-1]]:
            child, tag = self.operators[index], self.spec.tags.get(index)
            outlet = stage.outlet if tag is None else stage.side(tag)
            if isinstance(child, Consumer):
                self.stage_of[index] = stage
                outlet.consumers.append(child)
                self.read_by[index] = outlet
            else:
                outlet.children.append(self._stage(index, outlet.typed))
        return stage

    def _typed(self, indexes: list[int], input_output: TypedOutput | None) -> TypedOutput | None:
        """The output that declares the type of the records behind these operators; filters do not change the type."""
        for index in reversed(indexes):
            operator = self.operators[index]
            if not isinstance(operator, FilterOperator | WatermarksOperator):
                return TypedOutput(operator) if operator.coerce is not None else None
        return input_output

    def _run_from(self, index: int) -> list[int]:
        """The indexes of the operators that form one stage, beginning with this one."""
        indexes = [index]
        while self._continues(indexes):
            indexes += self.spec.children[indexes[-1]]
        return indexes

    def _continues(self, indexes: list[int]) -> bool:
        """Whether the operator behind the last of these belongs to the same stage."""
        last, children = indexes[-1], self.spec.children[indexes[-1]]
        if len(children) != 1 or last in self._with_outputs or children[0] in self.spec.tags:
            return False
        operator, child = self.operators[last], self.operators[children[0]]
        if _is_plain_source(operator):
            return isinstance(child, Transform | ColumnTransform | WatermarksOperator | LaterResults)
        if operator.expands or len(indexes) >= LONGEST_STAGE:
            return False
        return any(isinstance(operator, form) and isinstance(child, form) for form in (Transform, ColumnTransform))

    @staticmethod
    def _make_stage(run: list[Operator]) -> ChainStage:
        """Create the stage of the class that fits a run of operators."""
        operators = [operator for operator in run if not _is_plain_source(operator)]
        rows = [operator for operator in operators if isinstance(operator, Transform)]
        columns = [operator for operator in operators if isinstance(operator, ColumnTransform)]
        if rows:
            for number, row in enumerate(rows):
                # If all operators behind it are one to one, its results are those of the stage, so it need not count.
                row.counts = not all(behind.one_to_one for behind in rows[number + 1 :])
            last = rows[-1]
            return RowStage(rows, copies=not (last.gives_away or last.spec.object_reuse or _gives_constants(last)))
        if columns:
            return ColumnStage(columns)
        for operator in operators:
            if isinstance(operator, WatermarksOperator):
                return WatermarkStage(operator)
            if isinstance(operator, LaterResults):
                return AsyncStage(operator)
        return ForwardStage()


def _gives_constants(operator: Transform) -> bool:
    """Whether the results of an operator have a declared type of immutable values, which need no copies."""
    spec = operator.spec
    constant = isinstance(spec.output_type, BasicTypeInfo | TupleTypeInfo)
    return constant and operator.coerce is not None and not spec.extra.get("side_outputs")


def _is_plain_source(operator: Operator) -> bool:
    """Whether an operator is a source whose records need no operator behind the reader.

    The records of a source with a watermark strategy are fitted to their type earlier, before their time is read.
    """
    return operator.spec.kind is OperatorKind.SOURCE and (
        operator.coerce is None or operator.spec.extra.get("watermark_strategy") is not None
    )
