"""A chain's operators as a tree of segments, each a run of operators that works as one pipeline of generators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from firesteel.core.clock import Clock
from firesteel.graph.specs import ChainSpec, OperatorKind, OutputSpec
from firesteel.runtime.columns import Part, Stamps
from firesteel.runtime.context import Stamp, TaskInfo
from firesteel.runtime.exchange.sizes import values_bytes
from firesteel.runtime.operators import (
    CoerceOperator,
    ColumnTransform,
    Consumer,
    KeyedColumns,
    KeyedTransform,
    LaterResults,
    Operator,
    TimedColumns,
    TimedTransform,
    Transform,
    WatermarksOperator,
    create_operator,
)
from firesteel.runtime.partitioners import Output
from firesteel.state.backend import StateBackend

LARGEST_SLICE: Final = 1024
LONGEST_SEGMENT: Final = 64
"""Operators; nested generators count against Python's recursion limit."""
FIRST_COLUMNS: Final = 16384
SLICE_BYTES: Final = 256 * 1024
"""About so many bytes of results are pulled in a slice; one record that is larger passes alone."""
_SAMPLED: Final = 16
"""Smaller chunks are not measured, as long as slices are not limited by bytes."""


class Segment:
    """Operators that run as one pipeline, and what is behind the last of them.

    Only the last operator may give more results than it takes records, have timers or side outputs; one that makes
    watermarks has a segment of its own.

    Attributes:
        operators: in order; may be empty (a source, a sink at the head, or a side output).
        consumers, outputs, children: what takes the results.
        columns: operators over record batches; there are no others in a segment that has some.
        sides: by tag, what takes the records of side outputs: segments without operators.
        timed: its operator with timers.
        later: takes the records instead, and gives results when it has some; there are no operators then.
        watermarks: the operator that makes watermarks, if this is its segment; it is not among ``operators``.
        stamp: timestamp of the record in flight.
        size: records and results in a slice, by time.
        limit: the same, by bytes.
        column_size: rows of columns in a slice, by time.
        looks_ahead: its first operator, if that wants to see a slice of records before it gets them.
        copies: results that can be changed are copied as they leave it: they wait for others, and whoever gave them may
            change them and give them again.
        reuses: of several readers all get the same objects.
    """

    def __init__(self) -> None:
        self.operators: list[Transform] = []
        self.columns: list[ColumnTransform] = []
        self.consumers: list[Consumer] = []
        self.outputs: list[Output] = []
        self.children: list[Segment] = []
        self.sides: dict[str, Segment] = {}
        self.timed: TimedTransform | TimedColumns | None = None
        self.later: LaterResults | None = None
        self.watermarks: WatermarksOperator | None = None
        self.stamp = Stamp()
        self.size = 1
        self.limit = LARGEST_SLICE
        self.column_size = FIRST_COLUMNS
        self.expands = False
        self.looks_ahead: KeyedTransform | None = None
        self.copies = self.reuses = False

    @property
    def readers(self) -> int:
        """How many take its results."""
        return len(self.consumers) + len(self.outputs) + len(self.children)

    @property
    def sets_stamps(self) -> bool:
        """Whether results may have timestamps of their own."""
        return self.timed is not None and self.timed.sets_stamps

    def takes(self, batch: pa.RecordBatch) -> bool:
        """Whether it takes columns as they are; else rows are made of them at its door."""
        if self.columns:
            return True
        if self.watermarks is not None:
            return self.watermarks.takes_columns
        if self.later is not None:
            return False
        return all(isinstance(one, CoerceOperator) and one.fits(batch) for one in self.operators)

    @property
    def needs_rows(self) -> bool:
        """Whether somebody right behind it works on rows only."""
        consumers = not all(consumer.takes_columns for consumer in self.consumers)
        return consumers or not all(output.takes_columns for output in self.outputs)

    def column_pipeline(self, batch: pa.RecordBatch, stamps: Stamps) -> Iterator[Part]:
        """The results of the operators over record batches."""
        parts: Iterator[Part] = iter(((batch, stamps),))
        for operator in self.columns:
            parts = operator.apply_columns(parts)
        return parts

    def measure(self, results: list[Any]) -> None:
        """Adapt ``limit`` to the size of the records at hand."""
        if len(results) >= _SAMPLED or self.limit < LARGEST_SLICE:
            size = max(1, values_bytes(results))
            self.limit = min(LARGEST_SLICE, max(1, SLICE_BYTES * len(results) // size))

    def pipeline(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """The results for these records."""
        for operator in self.operators:
            records = operator.apply(records, input_index)
            input_index = 0
        return records


class ChainPlan:
    """A chain's operators and segments.

    Attributes:
        operators: position = index in the specification.
        root: where batches go in.
        segments: all of them.
        later: those whose operator gives results later.
        consumers: all of them.
    """

    def __init__(self, spec: ChainSpec) -> None:
        self.spec = spec
        self.operators: list[Operator] = [create_operator(operator) for operator in spec.operators]
        self.segments: list[Segment] = []
        self.segment_of: dict[int, Segment] = {}
        self.consumers = [operator for operator in self.operators if isinstance(operator, Consumer)]
        self._with_outputs = {output.operator_index for output in spec.outputs}
        for output in spec.outputs:
            for helper in (output.key_selector, output.partition):
                self.operators[output.operator_index].add_helper(helper)
        self.root = self._segment(0)
        self.later = [segment for segment in self.segments if segment.later is not None]
        for output in spec.outputs:
            self.output_segment(output)

    def use_state_backend(self, backend: StateBackend, info: TaskInfo, clock: Clock) -> None:
        """Keep the state of operators with keys in this backend; before anything is opened."""
        for operator in self.operators:
            if isinstance(operator, KeyedTransform):
                operator.use_backend(backend, info, clock)
            elif isinstance(operator, KeyedColumns):
                operator.use_key_groups(info, clock)

    def output_segment(self, output: OutputSpec) -> Segment:
        """The segment whose results go to an edge; that of a side output if the edge reads one."""
        segment = self.segment_of[output.operator_index]
        return segment if output.tag is None else self._side(segment, output.tag)

    def _side(self, segment: Segment, tag: str) -> Segment:
        if tag not in segment.sides:
            segment.sides[tag] = side = Segment()
            side.reuses = segment.reuses
            self.segments.append(side)
        return segment.sides[tag]

    def _segment(self, index: int) -> Segment:
        segment = Segment()
        self.segments.append(segment)
        if isinstance(self.operators[index], Consumer):
            segment.consumers.append(self._consumer(index, segment))
            return segment
        while True:
            operator = self.operators[index]
            self.segment_of[index] = segment
            if isinstance(operator, WatermarksOperator):
                segment.watermarks = operator
            elif isinstance(operator, LaterResults):
                segment.later = operator
            elif isinstance(operator, ColumnTransform):
                segment.columns.append(operator)
                segment.expands = operator.expands
                segment.timed = operator if isinstance(operator, TimedColumns) else None
            elif isinstance(operator, Transform) and not _is_plain_source(operator):
                if not segment.operators and isinstance(operator, KeyedTransform) and operator.looks_ahead:
                    segment.looks_ahead = operator
                segment.operators.append(operator)
                segment.expands = operator.expands
                segment.timed = operator if isinstance(operator, TimedTransform) else None
            children = self.spec.children[index]
            if (
                len(children) != 1
                or index in self._with_outputs
                or children[0] in self.spec.tags
                or segment.expands
                or segment.watermarks is not None
                or segment.later is not None
                or _changes_form(segment, self.operators[children[0]])
                or len(segment.operators) >= LONGEST_SEGMENT
                or isinstance(self.operators[children[0]], Consumer | WatermarksOperator | LaterResults)
            ):
                break
            index = children[0]
        last = self.operators[index]
        segment.reuses = last.spec.object_reuse
        segment.copies = bool(segment.operators) and not (last.gives_away or segment.reuses)
        for child in children:
            tag = self.spec.tags.get(child)
            behind = segment if tag is None else self._side(segment, tag)
            if isinstance(self.operators[child], Consumer):
                behind.consumers.append(self._consumer(child, behind))
            else:
                behind.children.append(self._segment(child))
        return segment

    def _consumer(self, index: int, segment: Segment) -> Consumer:
        operator = self.operators[index]
        assert isinstance(operator, Consumer)
        self.segment_of[index] = segment
        return operator


def _changes_form(segment: Segment, child: Operator) -> bool:
    """Whether a child takes columns and the segment gives rows, or the other way round."""
    return bool(segment.operators if isinstance(child, ColumnTransform) else segment.columns)


def _is_plain_source(operator: Operator) -> bool:
    """A source whose records need nothing more. One with a watermark strategy fits its records before it reads time."""
    return operator.spec.kind is OperatorKind.SOURCE and (
        operator.coerce is None or operator.spec.extra.get("watermark_strategy") is not None
    )
