"""Runs the whole graph of a program in this process, one vertex after the other, without an event loop."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from typing import Any

from firesteel.functions.source import Split
from firesteel.graph.chaining import build_job_graph
from firesteel.graph.job_graph import JobGraph
from firesteel.graph.physical import downstream_channels
from firesteel.graph.specs import ChainSpec, OperatorKind, PartitionerKind
from firesteel.graph.stream_graph import StreamGraph
from firesteel.runtime.chain.chain import ChainExecutor, ChainPlan
from firesteel.runtime.chain.partitioners import create_output
from firesteel.runtime.exchange.serialization import MessageReader, MessageWriter
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.operator_base.context import OperatorContext, TaskInfo
from firesteel.runtime.records.batch import MAX_WATERMARK, Batch, EndOfInput, InputBatch, Watermark
from firesteel.runtime.sources.source_input import SourceInput
from firesteel.runtime.sources.source_time import SourceTime
from firesteel.state.backend import load_state_backend
from tests.unit.runtime.support import INFO, FakeOutput, ManualClock

JOB_ID = "0123456789abcdef" * 2


class WholeGraph:
    """See the module.

    Attributes:
        job_graph: as it would be submitted.
        crossing: bytes of the messages between vertices.
    """

    def __init__(self, graph: StreamGraph, batch: int = 50) -> None:
        chains: list[ChainSpec] = []

        def pickle_chain(chain: ChainSpec) -> bytes:
            chains.append(chain)
            return str(len(chains)).encode()

        self.job_graph: JobGraph
        self.job_graph, _ = build_job_graph(graph, job_id=JOB_ID, pickle_chain=pickle_chain, config={})
        self._chains = dict(zip([vertex.id for vertex in self.job_graph.vertices], chains, strict=True))
        self._batch = batch
        self.crossing = 0
        self._arrived: dict[tuple[int, int], list[Batch]] = defaultdict(list)  # edge, subtask -> batches

    def run(self) -> None:
        """Run all vertices to the end of their input."""
        for vertex in self.job_graph.vertices:
            for subtask in range(vertex.parallelism):
                info = replace(
                    INFO, subtask=subtask, parallelism=vertex.parallelism, max_parallelism=vertex.max_parallelism
                )
                self._run(vertex.id, info)

    def _run(self, vertex: str, info: TaskInfo) -> None:
        clock = ManualClock()
        plan = ChainPlan(self._chains[vertex])
        plan.use_state_backend(load_state_backend("hashmap"), info, clock)
        for index, operator in enumerate(plan.operators):
            operator.open(OperatorContext(info, clock, plan.stage_of[index].stamp))
        sent: dict[int, list[FakeOutput]] = {}
        for output in plan.spec.outputs:
            edge = self.job_graph.edges[output.edge]
            target = self.job_graph.vertex(edge.target)
            downs = downstream_channels(
                PartitionerKind(edge.partitioner), info.subtask, info.parallelism, target.parallelism
            )
            channels = [FakeOutput(down) for down in downs]
            name = plan.operators[output.operator_index].name
            sender = create_output(output, name, channels, target.max_parallelism, random.Random(7), dictionaries=True)
            plan.outlet_of(output).outputs.append(sender)
            sent[edge.index] = channels
        executor = ChainExecutor(plan, InterruptGuard(), CancelToken())
        try:
            self._feed(plan, executor, vertex, info, clock)
        except BaseException:
            for consumer in plan.consumers:
                consumer.abort()
            raise
        finally:
            for operator in plan.operators:
                operator.close()
        for number, channels in sent.items():
            for channel in channels:
                self._arrived[number, channel.id.down] += self._shipped(channel)

    def _feed(self, plan: ChainPlan, executor: ChainExecutor, vertex: str, info: TaskInfo, clock: ManualClock) -> None:
        for fed in self._inputs(plan, vertex, info, clock):
            executor.feed(*fed)
            _drain(executor)
        executor.emit_watermarks()
        executor.advance(Watermark(MAX_WATERMARK))
        _drain(executor)
        for consumer in plan.consumers:
            consumer.finish()

    def _shipped(self, channel: FakeOutput) -> list[Batch]:
        writer, reader = MessageWriter(), MessageReader("test")
        shipped = []
        for batch in channel.batches:
            data = bytearray(b"".join(writer.dumps(batch)[0]))
            self.crossing += len(data)
            shipped.append(reader.loads(data))
        return shipped

    def _inputs(self, plan: ChainPlan, vertex: str, info: TaskInfo, clock: ManualClock) -> Any:
        head = plan.operators[0]
        if head.spec.kind is not OperatorKind.SOURCE:
            for edge in self.job_graph.edges:
                if edge.target == vertex:
                    for batch in self._arrived[edge.index, info.subtask]:
                        yield batch, edge.input_index
            return
        strategy, time = head.spec.extra.get("watermark_strategy"), None
        if strategy is not None:
            time = SourceTime(head.name, "task", strategy, clock, head.coerce, head.function.produced_type())
        source = SourceInput(
            head.name,
            head.function,
            info,
            clock,
            CancelToken(),
            lambda: None,
            lambda: None,
            self._batch,
            time,
        )
        source.open()
        source.add_splits(_splits(head.function, info), no_more=True)
        while not isinstance(got := source.poll(), EndOfInput):
            if isinstance(got, InputBatch):
                yield got
        source.close()


def _splits(source: Any, info: TaskInfo) -> list[Split]:
    spec = source.enumerator()
    if spec.name == "numbers":
        start, end = spec.config["start"], spec.config["end"]
        cut = [start + (end - start) * part // info.parallelism for part in range(info.parallelism + 1)]
        return [Split(str(info.subtask), {"start": cut[info.subtask], "end": cut[info.subtask + 1]})]
    return [Split("0", dict(spec.config))] if info.subtask == 0 else []


def _drain(executor: ChainExecutor) -> None:
    while executor.pending:
        executor.step()
