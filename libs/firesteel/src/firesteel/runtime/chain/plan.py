"""A chain's operators as a tree of stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from firesteel.common.typeinfo import TupleTypeInfo
from firesteel.common.typeinfo_basic import BasicTypeInfo
from firesteel.core.clock import Clock
from firesteel.graph.specs import ChainSpec, OperatorKind, OperatorSpec, OutputSpec
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
"""Operators; nested generators count against Python's recursion limit."""


class ChainPlan:
    """A chain's operators and stages.

    Args:
        create: makes an operator of its specification.

    Attributes:
        operators: position = index in the specification.
        root: where batches go in.
        stages: all of them, each before those behind it.
        async_stages: those whose results come later.
        watermark_stages: those that make watermarks.
        stage_of: by index of the operator; of a consumer the one in front of it.
        consumers: all of them.
        read_by: by index of a consumer where it reads.
    """

    def __init__(self, spec: ChainSpec, create: Callable[[OperatorSpec], Operator] = create_operator) -> None:
        self.spec = spec
        self.operators: list[Operator] = [create(operator) for operator in spec.operators]
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
        """Keep the state of operators with keys in this backend; before anything is opened.

        Args:
            backend: makes it.
            info: of the task.
            clock: of the task.
            memory: managed memory of the slot, bytes; 0 = not said.
            directory: of the task; empty = there is none.
        """
        for operator in self.operators:
            if isinstance(operator, KeyedTransform | KeyedColumns):
                operator.use_backend(backend, state_parameters(operator.spec, info, clock, memory, directory))

    def outlet_of(self, output: OutputSpec) -> Outlet:
        """Where an edge is attached: behind the operator whose results it carries, or at the side output it reads."""
        stage = self.stage_of[output.operator_index]
        return stage.outlet if output.tag is None else stage.side(output.tag)

    def watermarks_of(self, index: int, *, itself: bool = False) -> WatermarksOperator | None:
        """The operator of the chain that makes the watermarks for another one; None: they come with the input.

        Args:
            index: of the operator that gets them.
            itself: whether that may be the one: for the watermarks that leave it.
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
        """Name of each operator, the records that it has taken, and the results that it has given; from any thread.

        They are counted where batches go into a stage and leave it, by whole batches; within a stage operators count
        what they drop, where that does not follow from it. A consumer gives nothing.
        """
        found: list[tuple[str, int, int]] = []
        passed: dict[ChainStage, int] = {}
        for index, operator in enumerate(self.operators):
            if index in self.read_by:
                found.append((operator.name, self.read_by[index].records, 0))
                continue
            stage = self.stage_of[index]
            taken = passed.get(stage, stage.records_in)
            last = stage.operators and operator is stage.operators[-1]
            if last or not (operator.counts or _is_plain_source(operator)):
                given = stage.records_out  # all behind it in the stage give a result for each record
            else:
                given = taken - operator.fewer
            passed[stage] = given
            found.append((operator.name, taken, given))
        return found

    def _stage(self, first: int, typed: TypedOutput | None = None) -> ChainStage:
        """The stage that begins with this operator, and all behind it.

        Args:
            first: index of the operator.
            typed: see ``Outlet``; of what goes into the stage.
        """
        indexes = self._run_from(first)
        last = self.operators[indexes[-1]]
        stage = self._made([self.operators[index] for index in indexes])
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

    def _typed(self, indexes: list[int], before: TypedOutput | None) -> TypedOutput | None:
        """The output that declares the type of what leaves these operators: filters and watermarks change none."""
        for index in reversed(indexes):
            operator = self.operators[index]
            if not isinstance(operator, FilterOperator | WatermarksOperator):
                return TypedOutput(operator) if operator.coerce is not None else None
        return before

    def _run_from(self, index: int) -> list[int]:
        """Operators that form one stage."""
        indexes = [index]
        while self._goes_on(indexes):
            indexes += self.spec.children[indexes[-1]]
        return indexes

    def _goes_on(self, indexes: list[int]) -> bool:
        """Whether the next operator belongs to the same stage."""
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
    def _made(run: list[Operator]) -> ChainStage:
        operators = [operator for operator in run if not _is_plain_source(operator)]
        rows = [operator for operator in operators if isinstance(operator, Transform)]
        columns = [operator for operator in operators if isinstance(operator, ColumnTransform)]
        if rows:
            for number, row in enumerate(rows):
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
    """Whether its results are fitted to a type of values that nobody copies (``own_copies.as_given``)."""
    spec = operator.spec
    constant = isinstance(spec.output_type, BasicTypeInfo | TupleTypeInfo)
    return constant and operator.coerce is not None and not spec.extra.get("side_outputs")


def _is_plain_source(operator: Operator) -> bool:
    """A source whose records need nothing more. One with a watermark strategy fits its records before it reads time."""
    return operator.spec.kind is OperatorKind.SOURCE and (
        operator.coerce is None or operator.spec.extra.get("watermark_strategy") is not None
    )
