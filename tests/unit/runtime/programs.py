"""Runs whole programs in one thread without a cluster: chains, partitioners and messages are the real ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from firesteel.datastream import DataStream, StreamExecutionEnvironment
from firesteel.functions.sink import Sink, SinkWriter, WriterContext
from firesteel.graph.chaining import build_job_graph
from firesteel.graph.job_graph import JobGraph
from firesteel.graph.specs import ChainSpec, OperatorKind
from firesteel.runtime.chain.chain import ChainExecutor, ChainPlan
from firesteel.runtime.chain.partitioners import create_output
from firesteel.runtime.exchange.serialization import MessageReader, MessageWriter
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.records.batch import Batch
from firesteel.state.backend import load_state_backend
from tests.unit.runtime.support import INFO, FakeOutput, ManualClock

Feed = Callable[[str], list[Batch]]
"""The batches of a source, by its name."""


class _Keeper(SinkWriter[Any]):
    def __init__(self, records: list[Any]) -> None:
        self._kept = records

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        self._kept.extend(values)


class _Kept(Sink[Any]):
    def __init__(self) -> None:
        self.records: list[Any] = []

    def create_writer(self, context: WriterContext) -> SinkWriter[Any]:
        return _Keeper(self.records)


def results(stream: DataStream, feed: Feed, seed: int = 0) -> list[Any]:
    """What a program's stream gives, in the order in which it comes to one sink after the other.

    Args:
        stream: of an environment of its own.
        feed: batches in place of what sources read; they are dealt out to the subtasks.
        seed: of the order in which a subtask reads its channels, and of random partitioners.
    """
    sink = _Kept()
    stream.sink_to(sink)
    env: StreamExecutionEnvironment = stream.get_execution_environment()
    chains: dict[bytes, ChainSpec] = {}

    def keep(chain: ChainSpec) -> bytes:
        token = f"{len(chains)}".encode()
        chains[token] = chain
        return token

    graph, blobs = build_job_graph(env._stream_graph("test"), job_id="1" * 32, pickle_chain=keep, config={})
    rng = random.Random(seed)
    arrived: dict[tuple[str, int], list[tuple[int, list[Batch]]]] = {}
    for vertex in _in_order(graph):
        spec = chains[blobs[vertex.chain]]
        for subtask in range(vertex.parallelism):
            if spec.operators[0].kind is OperatorKind.SOURCE:
                channels = [(0, feed(spec.operators[0].name)[subtask :: vertex.parallelism])]
            else:
                channels = arrived.get((vertex.id, subtask), [])
            outputs = _run(spec, graph, vertex.parallelism, subtask, _mixed(channels, rng), rng)
            for edge, target, batches in outputs:
                arrived.setdefault((graph.edges[edge].target, target), []).append(
                    (graph.edges[edge].input_index, batches)
                )
    return sink.records


def _in_order(graph: JobGraph) -> list[Any]:
    done: set[str] = set()
    order: list[Any] = []
    while len(order) < len(graph.vertices):
        for vertex in graph.vertices:
            needs = {edge.source for edge in graph.edges if edge.target == vertex.id}
            if vertex.id not in done and needs <= done:
                done.add(vertex.id)
                order.append(vertex)
    return order


def _mixed(channels: list[tuple[int, list[Batch]]], rng: random.Random) -> list[tuple[int, Batch]]:
    """The batches of channels one after the other, each channel's in order."""
    queues = [(index, list(batches)) for index, batches in channels if batches]
    mixed = []
    while queues:
        number = rng.randrange(len(queues))
        index, batches = queues[number]
        mixed.append((index, batches.pop(0)))
        if not batches:
            del queues[number]
    return mixed


def _run(
    spec: ChainSpec,
    graph: JobGraph,
    parallelism: int,
    subtask: int,
    batches: list[tuple[int, Batch]],
    rng: random.Random,
) -> list[tuple[int, int, list[Batch]]]:
    """The batches that leave one subtask: edge, target subtask, batches."""
    info = replace(INFO, subtask=subtask, parallelism=parallelism)
    clock = ManualClock()
    plan = ChainPlan(spec)
    plan.use_state_backend(load_state_backend("hashmap"), info, clock)
    outputs: list[tuple[int, int, FakeOutput]] = []
    for output in spec.outputs:
        edge = graph.edges[output.edge]
        count = graph.vertex(edge.target).parallelism
        targets = [subtask] if edge.partitioner == "FORWARD" else list(range(count))
        own = [FakeOutput(target) for target in targets]
        outputs += [(output.edge, target, channel) for target, channel in zip(targets, own, strict=True)]
        plan.outlet_of(output).outputs.append(
            create_output(output, "op", own, info.max_parallelism, random.Random(rng.random()))
        )
    for index in reversed(range(len(plan.operators))):
        plan.operators[index].open(OperatorContext(info, clock, plan.stage_of[index].stamp))
    executor = ChainExecutor(plan, InterruptGuard(), CancelToken())
    for index, batch in batches:
        executor.feed(batch, index)
        while executor.pending:
            executor.step()
    for operator in plan.operators:
        operator.close()
    return [(edge, target, _shipped(channel.batches)) for edge, target, channel in outputs]


def _shipped(batches: list[Batch]) -> list[Batch]:
    """As they come out of a connection."""
    writer, reader = MessageWriter(), MessageReader("peer")
    return [reader.loads(bytearray(b"".join(writer.dumps(batch)[0]))) for batch in batches]
