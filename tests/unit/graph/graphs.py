"""Small graphs for the tests of this folder, and programs drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from firesteel.functions.source import Boundedness, EnumeratorSpec, ReaderContext, Source, SourceReader
from firesteel.graph.chaining import build_job_graph
from firesteel.graph.job_graph import JobGraph
from firesteel.graph.specs import ChainSpec, OperatorKind, PartitionerKind
from firesteel.graph.stream_graph import ChainingStrategy, GraphSettings, StreamGraph, StreamInput, Transformation

JOB_ID = "0123456789abcdef" * 2


class Numbers(Source[int]):
    """A source that is never read."""

    def __init__(self, boundedness: Boundedness = Boundedness.BOUNDED) -> None:
        self._boundedness = boundedness

    @property
    def boundedness(self) -> Boundedness:
        return self._boundedness

    def enumerator(self) -> EnumeratorSpec | None:
        return EnumeratorSpec("numbers", {"start": 0, "end": 3})

    def create_reader(self, context: ReaderContext) -> SourceReader[int]:
        raise AssertionError("no reader is made at the client")


@dataclass
class Program:
    """Builds transformations with rising ids."""

    made: list[Transformation] = field(default_factory=list)

    def add(self, kind: OperatorKind, *inputs: Any, **settings: Any) -> Transformation:
        """``inputs``: for each input a transformation, a ``StreamInput``, or a tuple of them."""
        name = settings.pop("name", kind.value)
        wrapped = tuple(_wrap(input_) for input_ in inputs)
        transformation = Transformation(id=len(self.made) + 1, name=name, kind=kind, inputs=wrapped, **settings)
        self.made.append(transformation)
        return transformation

    def source(self, **settings: Any) -> Transformation:
        return self.add(OperatorKind.SOURCE, function=Numbers(), **settings)

    def map(self, *inputs: Any, **settings: Any) -> Transformation:
        return self.add(OperatorKind.MAP, tuple(_wrap(i)[0] for i in inputs), **settings)

    def sink(self, *inputs: Any, **settings: Any) -> Transformation:
        return self.add(OperatorKind.PRINT, tuple(_wrap(i)[0] for i in inputs), **settings)

    def graph(self, parallelism: int = 2, **settings: Any) -> StreamGraph:
        ends = [t for t in self.made if t.inputs]
        return StreamGraph.from_transformations(ends, GraphSettings(parallelism, **settings))


def _wrap(input_: Any) -> tuple[StreamInput, ...]:
    if isinstance(input_, tuple):
        return tuple(_wrap(element)[0] for element in input_)
    return (input_ if isinstance(input_, StreamInput) else StreamInput(input_),)


def via(source: Transformation, kind: PartitionerKind, key: Callable[[Any], Any] | None = None) -> StreamInput:
    return StreamInput(source, kind, key)


def build(graph: StreamGraph, **config: str) -> tuple[JobGraph, dict[str, ChainSpec]]:
    """The JobGraph, and each vertex's chain by vertex id."""
    chains: list[ChainSpec] = []

    def pickle_chain(chain: ChainSpec) -> bytes:
        chains.append(chain)
        return repr([operator.id for operator in chain.operators]).encode()

    job_graph, _ = build_job_graph(graph, job_id=JOB_ID, pickle_chain=pickle_chain, config=config)
    return job_graph, {chain.operators[0].id: chain for chain in chains}


# --- random programs ------------------------------------------------------------------------------------------------

_SPREAD = [None, *(kind for kind in PartitionerKind if kind is not PartitionerKind.FORWARD)]


def key_of(value: Any) -> Any:
    return value


def channel_of(key: Any, channels: int) -> int:
    return 0


@st.composite
def inputs_of(draw: st.DrawFn, program: Program) -> tuple[StreamInput, ...]:
    """One input: a stream, or a union of several, each with its partitioner."""
    givers = [t for t in program.made if t.kind is not OperatorKind.PRINT]
    chosen = draw(st.lists(st.sampled_from(givers), min_size=1, max_size=3))
    inputs = []
    for giver in chosen:
        kind = draw(st.sampled_from(_SPREAD))
        key = key_of if kind in (PartitionerKind.HASH, PartitionerKind.CUSTOM) else None
        partition = channel_of if kind is PartitionerKind.CUSTOM else None
        inputs.append(StreamInput(giver, kind, key, partition))
    return tuple(inputs)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A connected program of up to 20 operators with random settings."""
    program = Program()
    for _ in range(draw(st.integers(1, 3))):
        program.source(**draw(_settings()))
    for _ in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from([OperatorKind.MAP, OperatorKind.MAP, OperatorKind.CO_MAP, OperatorKind.PRINT]))
        count = 2 if kind is OperatorKind.CO_MAP else 1
        inputs = [draw(inputs_of(program)) for _ in range(count)]
        program.add(kind, *inputs, function=draw(st.sampled_from([str, int, key_of])), **draw(_settings()))
    return program


def _settings() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "name": st.sampled_from(["A", "B", "Map", "x -> y"]),
            "parallelism": st.sampled_from([-1, 1, 2, 2, 3]),
            "max_parallelism": st.sampled_from([-1, -1, -1, 16]),
            "slot_sharing_group": st.sampled_from([None, None, None, "default", "other"]),
            "chaining_strategy": st.sampled_from([ChainingStrategy.ALWAYS] * 3 + list(ChainingStrategy)),
            "buffer_timeout_ms": st.sampled_from([None, 0, -1, 30]),
        }
    )
