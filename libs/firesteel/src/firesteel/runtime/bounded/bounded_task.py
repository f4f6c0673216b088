"""A task of a bounded stage: it moves records from Spark through the chain of a vertex, and the results back to Spark.

The chain is the same as in a slot: the same stages and operators, moved by the same executor. Two things differ, as in
Flink's batch mode: event time stands still until the input ends, and a keyed operator gets all records of a key
together. So its state is that of one bucket of keys, and is dropped after it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from typing_extensions import override

from firesteel.config import Settings
from firesteel.config.options import BATCH_MAX_COLUMNAR_RECORDS, BATCH_MAX_RECORDS, METRICS_MAX_PER_TASK
from firesteel.core.clock import Clock
from firesteel.functions.source import Split
from firesteel.graph.physical import downstream_channels
from firesteel.graph.specs import ChainSpec, OperatorSpec, PartitionerKind
from firesteel.runtime.bounded.blobs import (
    COLLECTED,
    MARKER,
    Shuffled,
    plain_report,
    read_batch,
    read_marker,
    totals,
)
from firesteel.runtime.bounded.buckets import Bucket
from firesteel.runtime.bounded.combining import CombiningOutput, combiner_of
from firesteel.runtime.bounded.commit import CHECKPOINT, plain_committable
from firesteel.runtime.bounded.gathering import GatheringOutput
from firesteel.runtime.bounded.operators import LastReduce, create_bounded_operator, is_parts
from firesteel.runtime.bounded.printed import Printed
from firesteel.runtime.bounded.window_parts import key_of_parts, takes_parts
from firesteel.runtime.chain.chain import ChainExecutor, ChainPlan
from firesteel.runtime.chain.partitioners import NarrowedOutput, Output, create_output
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.loop.metrics import MetricRegistry, OperatorRates
from firesteel.runtime.operator_base.context import OperatorContext, TaskInfo, TaskRuntimeContext
from firesteel.runtime.operator_base.initialization import SnapshotContext
from firesteel.runtime.operator_base.keyed_base import KeyedTransform
from firesteel.runtime.operators import CollectOperator, KeyedColumns, SinkOperator
from firesteel.runtime.operators.column_windows import ColumnWindowOperator
from firesteel.runtime.operators.session_windows import SessionWindowOperator
from firesteel.runtime.operators.windows import WindowTransform
from firesteel.runtime.records.batch import MAX_WATERMARK, MIN_WATERMARK, Batch, InputBatch, Watermark
from firesteel.runtime.records.columns import StreamColumns
from firesteel.runtime.sources.source_input import SourceInput
from firesteel.runtime.sources.source_time import SourceTime
from firesteel.state.backend import KeyedStateBackend, KeyedStateParameters, StateBackend
from firesteel.state.heap import HeapKeyedState

FETCHED_BYTES = 4 << 20
"""Bytes of collected results that are handed to Spark at a time."""
TELL_SECONDS = 1.0
"""Time between two reports of totals while the task runs."""


class _HeapBackend(StateBackend):
    """The state backend of batch mode: on the heap, as it holds only the state of one bucket of keys."""

    name = "batch"

    @override
    def create_keyed_state(self, parameters: KeyedStateParameters) -> KeyedStateBackend:
        return HeapKeyedState(parameters)


class BoundedTask:
    """One attempt of one task.

    Args:
        task: description of the stage as plain data (``firesteel_jobmaster.stages``).
        info: description of the task.
        chain: chain of the vertex.
        clock: clock of the task.
        chain_of: returns the chain of a vertex that reads an edge, by the name of its blob.
        printed: gets rows of sinks that print, and the output of user code.
    """

    def __init__(
        self,
        task: Mapping[str, Any],
        info: TaskInfo,
        chain: ChainSpec,
        clock: Clock,
        chain_of: Callable[[str], ChainSpec],
        printed: Printed,
    ) -> None:
        self._task, self._info, self._clock = task, info, clock
        self._settings = Settings(dict(task["config"]), "job")
        self._loop, self._guard, self._token = TaskLoop(clock), InterruptGuard(), CancelToken(info.full_name)
        self._errors: list[BaseException] = []
        self._loop.on_error = self._errors.append
        self._shuffled = Shuffled()
        self._bytes_in = self._spilled = 0
        self._read_seconds = 0.0  # in which the reader of a source has read
        self._next_report = clock.monotonic() + TELL_SECONDS
        self._printed = printed
        self._context = OperatorContext(
            info,
            clock,
            write_stdout=printed.row,
            call_later=lambda seconds, call: self._call_later(seconds, call),
            metrics=MetricRegistry(clock, self._settings.get(METRICS_MAX_PER_TASK)),
        )
        self._chain_of = chain_of
        self._buffering_outputs: list[GatheringOutput | CombiningOutput] = []
        self._plan = plan = self._chain(chain)
        self._collects = [operator for operator in plan.operators if isinstance(operator, CollectOperator)]
        self._offsets = dict.fromkeys(range(len(self._collects)), 0)
        self._make_outputs()
        for stage in plan.async_stages:
            stage.operator.on_results = lambda: self._loop.call_soon_threadsafe(_nothing)
        self._executor = ChainExecutor(plan, self._guard, self._token)

    def _call_later(self, seconds: float, call: Any) -> None:
        self._loop.call_later(seconds, call)

    def _chain(self, chain: ChainSpec) -> ChainPlan:
        plan = ChainPlan(chain, create_bounded_operator)
        plan.use_state_backend(_HeapBackend(), self._info, self._clock)
        return plan

    def _make_outputs(self) -> None:
        edges = {edge["edge"]: edge for edge in self._task["outputs"]}
        # The same seed in each attempt, so that a repeated task makes the same output.
        rng = random.Random(f"{self._info.execution_id.rsplit('_', 1)[0]}")
        for spec in self._plan.spec.outputs:
            edge, kind = edges[spec.edge], spec.partitioner
            targets: Sequence[int]
            if kind is PartitionerKind.HASH:
                targets = range(edge["count"])
            elif kind in (PartitionerKind.BROADCAST, PartitionerKind.GLOBAL):
                targets = range(1)
            else:
                targets = downstream_channels(kind, self._info.subtask, self._info.parallelism, edge["count"])
            channels = [
                self._shuffled.channel(spec.edge, self._info.subtask, edge["base"] + target) for target in targets
            ]
            name = self._plan.operators[spec.operator_index].name
            reader = self._chain_of(edge["combine"]).operators[0] if edge.get("combine") else None
            if reader is not None and takes_parts(reader) and spec.key_selector is not None:
                spec = replace(spec, key_selector=key_of_parts(spec.key_selector))
            output = create_output(replace(spec, columns=None), name, channels, edge["max_parallelism"], rng)
            if kind is PartitionerKind.HASH:
                output = GatheringOutput(output)
                self._buffering_outputs.append(output)
            if reader is not None:
                output = self._combined(output, reader)
            if spec.columns is not None:
                output = NarrowedOutput(output, *spec.columns)
            self._plan.outlet_of(spec).outputs.append(output)

    def _combined(self, output: Output, reader: OperatorSpec) -> Output:
        combiner = combiner_of(reader, self._chain, self._context, self._guard, self._token)
        if combiner is None:
            return output
        combining = CombiningOutput(output, combiner)
        self._buffering_outputs.append(combining)
        return combining

    # -- life

    def run(self, elements: Iterator[bytes]) -> Iterator[bytes]:
        """Run the task; yields its output, a partition and a blob in turn."""
        plan, opened = self._plan, []
        succeeded = False
        self._guard.active = self._token
        try:
            for index, operator in enumerate(plan.operators):
                operator.create(replace(self._context, stamp=plan.stage_of[index].stamp))
            for index in reversed(range(len(plan.operators))):
                operator = plan.operators[index]
                opened.append(operator)
                operator.open(replace(self._context, stamp=plan.stage_of[index].stamp))
            read = self._query if self._task.get("query") else self._source if self._task["source"] else self._inputs
            for _ in read(elements):
                yield from self._output()
                if self._clock.monotonic() >= self._next_report:
                    yield from self._totals()
            if isinstance(plan.operators[0], ColumnWindowOperator):
                # It has the windows of all buckets: those by the clock end with the input, as windows of rows do.
                self._executor.fire(MAX_WATERMARK)
            self._executor.advance(Watermark(MAX_WATERMARK))
            for _ in self._work_off(wait=True):
                yield from self._output()
            committables = self._finish()
            # In reverse: a combining output drains into the gathering output behind it, which drains afterwards.
            for output in reversed(self._buffering_outputs):
                self._guard.active = self._token
                for channel, part in output.drain():
                    channel.write(part)
                output.close()
            self._shuffled.flush()
            yield from self._output()
            for operator in opened:
                operator.close()
            opened = []
            self._printed.flush()
            yield from self._output()  # functions may print when they close
            yield from self._totals()
            yield from self._to_driver(plain_report(self._report(committables)))
            succeeded = True
        finally:
            if not succeeded:
                self._executor.drop()
                for consumer in plan.consumers:
                    _ignore_errors(consumer.abort)
                for operator in opened:
                    _ignore_errors(operator.close)
                for output in self._buffering_outputs:
                    _ignore_errors(output.close)
            self._loop.close()

    def _finish(self) -> dict[str, list[Any]]:
        """Let sinks make their results durable; returns the committables by operator, for the commit stage."""
        committables: dict[str, list[Any]] = {}
        for consumer in self._plan.consumers:
            consumer.finish()
            if isinstance(consumer, SinkOperator):
                consumer.snapshot_state(SnapshotContext(CHECKPOINT, self._clock.epoch_ms()))
                committables[consumer.spec.id] = [
                    plain_committable(committable) for _, prepared in consumer.uncommitted() for committable in prepared
                ]
        return committables

    def _report(self, committables: Mapping[str, Any]) -> dict[str, Any]:
        executor, metrics = self._executor, self._context.metrics
        first, *others = self._plan.own_times()
        own_times = [first + self._read_seconds, *others]
        return {
            "vertex": self._task["vertex"],
            "subtask": self._info.subtask,
            "attempt": self._info.attempt,
            "metrics": {
                "numRecordsIn": executor.records_in,
                "numRecordsOut": executor.records_out,
                "numBytesIn": self._bytes_in,
                "numBytesOut": self._shuffled.bytes_out,
                "numBytesSpilled": self._spilled,
            },
            "operators": OperatorRates(self._clock).update(self._plan.flows(), own_times),
            "user-metrics": metrics.values(),
            "user-counters": metrics.counters(),
            "commit": committables,
        }

    # -- what goes in

    def _source(self, elements: Iterator[bytes]) -> Iterator[None]:
        head = self._plan.operators[0]
        strategy, time = head.spec.extra.get("watermark_strategy"), None
        if strategy is not None:
            declared = head.spec.output_type or head.function.produced_type()
            time = SourceTime(head.name, self._info.full_name, strategy, self._clock, head.coerce, declared)
        source = SourceInput(
            head.name,
            head.function,
            self._info,
            self._clock,
            self._token,
            request_splits=_nothing,
            on_readable=_nothing,
            max_records=self._settings.get(BATCH_MAX_RECORDS),
            max_columnar_records=self._settings.get(BATCH_MAX_COLUMNAR_RECORDS),
            time=time,
            runtime_context=TaskRuntimeContext(self._info, head.name, None, self._context.metrics),
            operator=head,
        )
        source.run_on(self._loop, self._guard)
        try:
            source.open()
            splits = [Split.from_plain(plain) for element in elements for plain in json.loads(bytes(element))]
            source.add_splits(splits, True, 1)
            while True:
                item = source.poll()
                self._check()
                if isinstance(item, InputBatch):
                    self._executor.feed(*item)
                    yield from self._work_off()
                elif isinstance(item, Watermark):
                    continue  # event time stands still until the end
                elif item is not None:  # the end of the input
                    return
                else:
                    self._loop.run_once()
        finally:
            self._read_seconds = source.seconds
            _ignore_errors(source.close)

    def _query(self, elements: Iterator[bytes]) -> Iterator[None]:
        """Work on the rows of a query of Spark SQL, which come as messages of Arrow."""
        schema = StreamColumns(self._plan.operators[0].function.produced_type()).schema
        for element in elements:
            self._bytes_in += len(element)
            rows = pa.ipc.read_record_batch(pa.py_buffer(element), schema)
            self._executor.feed(Batch(rows), 0)
            yield from self._work_off()

    def _inputs(self, elements: Iterator[bytes]) -> Iterator[None]:
        edges = self._task["inputs"]
        head, peer = self._plan.operators[0], self._info.full_name
        by_key = isinstance(head, KeyedTransform) and not isinstance(head, LastReduce | WindowTransform)
        keys = head.spec.key_selectors if isinstance(head, KeyedTransform) else None

        def empty() -> Bucket:
            return Bucket(keys if by_key else None, keys, self._spills)

        bucket, edge = empty(), None
        for element in elements:
            if element[0] == MARKER:
                number = read_marker(element)
                if number < 0:
                    yield from self._bucket(bucket)
                    bucket = empty()
                else:
                    edge = edges[number]
                continue
            assert edge is not None
            self._bytes_in += len(element)
            batch = read_batch(element, peer)
            if edge["keyed"]:
                bucket.add(batch, edge["input"], len(element))
            else:
                self._executor.feed(batch, edge["input"])
                yield from self._work_off()
        yield from self._bucket(bucket)

    def _spills(self, size: int) -> None:
        self._spilled += size

    def _bucket(self, bucket: Bucket) -> Iterator[None]:
        """Work on all records of some keys, then end event time for them; in pieces, if they are too many at once."""
        if not len(bucket):
            return
        try:
            for piece in bucket.pieces():
                yield from self._piece(piece)
        finally:
            bucket.close()

    def _piece(self, bucket: Bucket) -> Iterator[None]:
        head = self._plan.operators[0]
        for incoming in bucket.ordered():
            if is_parts(incoming.batch.values):
                head.add_parts(incoming.batch.values)  # type: ignore[attr-defined] # such an operator takes parts
                self._executor.records_in += len(incoming.batch)
                continue
            self._executor.feed(*incoming)
            yield from self._work_off()
        if isinstance(head, KeyedTransform):
            yield from self._end_of_keys(head)
            head.keyed.forget()  # type: ignore[attr-defined] # it is on the heap
        elif isinstance(head, KeyedColumns) and not hasattr(head, "windows"):
            yield from self._end_of_keys(head)

    def _end_of_keys(self, head: Any) -> Iterator[None]:
        """End event time for the keys of a bucket and fire their timers by the clock; then begin anew for the next."""
        executor, timers = self._executor, getattr(head, "heap_timers", None)
        if timers is not None:
            # Not for sessions, where each key has one timer, which it sets again for its next session: that ends.
            timers.quiesced = not isinstance(head, SessionWindowOperator)
        executor.advance(Watermark(MAX_WATERMARK))
        yield from self._work_off()
        if timers is not None:
            executor.fire(MAX_WATERMARK)
            yield from self._work_off()
            timers.watermark, timers.quiesced = MIN_WATERMARK, False
        for stage in self._plan.stages:
            stage.stamp.watermark = MIN_WATERMARK
        if isinstance(head, WindowTransform):
            head.make(head.runtime_context(self._context))

    # -- output

    def _work_off(self, *, wait: bool = False) -> Iterator[None]:
        """Step until nothing is pending, or with ``wait`` no result is awaited; yields when there may be output."""
        executor = self._executor
        while True:
            if executor.pending and not executor.waits:
                self._guard.active = self._token
                executor.step()
                yield
            elif executor.pending or (wait and not executor.empty):
                self._loop.run_once()
                self._check()
            else:
                return

    def _check(self) -> None:
        """Raise the first error of a callback on the loop."""
        if self._errors:
            raise self._errors[0]

    def _output(self) -> Iterator[bytes]:
        """Take the output so far: blobs for the shuffle, collected results, and printed text."""
        yield from self._shuffled.take()
        for number, operator in enumerate(self._collects):
            while (results := operator.fetch(self._offsets[number], FETCHED_BYTES)).count:
                self._offsets[number] = results.offset + results.count
                yield from self._to_driver(bytes((COLLECTED,)) + results.count.to_bytes(8, "big") + results.data)
        for text in self._printed.take():
            yield from self._to_driver(text)

    def _totals(self) -> Iterator[bytes]:
        self._next_report = self._clock.monotonic() + TELL_SECONDS
        executor = self._executor
        read, written = (executor.records_in, self._bytes_in), (executor.records_out, self._shuffled.bytes_out)
        yield from totals(*read, *written, self._spilled)

    def _to_driver(self, blob: bytes) -> Iterator[bytes]:
        """A blob for the driver, in the partition that it reads."""
        yield self._task["partition"].to_bytes(8, "big")
        yield blob


def _nothing() -> None:
    """Wakes nobody: the task looks at everything in its own loop anyway."""


def _ignore_errors(call: Any) -> None:
    """Clean up after the task has failed, which nothing changes any more."""
    try:
        call()
    except BaseException:  # user code while the task ends
        pass
