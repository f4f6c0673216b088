from __future__ import annotations

import hashlib
import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

from firesteel.core.errors import GraphError, ProgramError
from firesteel.functions.sink import Sink, SinkWriter, WriterContext
from firesteel.functions.source import Boundedness
from firesteel.graph.chaining import build_job_graph
from firesteel.graph.job_graph import JobGraph
from firesteel.graph.node_ids import operator_ids
from firesteel.graph.specs import ChainSpec, OperatorKind, PartitionerKind
from firesteel.graph.stream_graph import ChainingStrategy, StreamEdge, StreamGraph, Transformation
from tests.examples import examples
from tests.unit.graph.graphs import JOB_ID, Numbers, Program, build, channel_of, key_of, programs, via


def names(graph: StreamGraph) -> list[str]:
    return [vertex.name for vertex in build(graph)[0].vertices]


def test_a_pipeline_is_one_vertex() -> None:
    program = Program()
    program.sink(program.map(program.source(name="in"), name="m"), name="out")
    assert names(program.graph()) == ["Source: in -> m -> Sink: out"]


def test_a_tree_is_one_vertex_with_children() -> None:
    program = Program()
    source = program.source(name="in")
    a, b = program.map(source, name="a"), program.map(source, name="b")
    program.sink(a, name="x")
    program.sink(b, name="y")
    program.sink(b, name="z")
    job_graph, chains = build(program.graph())
    (vertex,) = job_graph.vertices
    assert vertex.name == "Source: in -> (a -> Sink: x, b -> (Sink: y, Sink: z))"
    (chain,) = chains.values()
    by_name = {operator.name: i for i, operator in enumerate(chain.operators)}
    children = {chain.operators[i].name: {chain.operators[c].name for c in cs} for i, cs in enumerate(chain.children)}
    assert children["Source: in"] == {"a", "b"}
    assert children["b"] == {"Sink: y", "Sink: z"}
    assert children["a"] == {"Sink: x"}
    assert by_name["Source: in"] == 0
    assert chain.outputs == []


def two(change: Callable[[Transformation, Transformation, Program], Any] | None = None, **settings: Any) -> StreamGraph:
    """Source -> a -> b, with a change to the last two."""
    program = Program()
    source = program.source(name="s")
    a = program.map(source, name="a")
    b = program.map(a, name="b")
    if change is not None:
        change(a, b, program)
    return program.graph(**settings)


def _set(which: str, **values: Any) -> Callable[[Transformation, Transformation, Program], None]:
    def change(a: Transformation, b: Transformation, program: Program) -> None:
        target = {"a": a, "b": b, "s": program.made[0]}[which]
        for key, value in values.items():
            setattr(target, key, value)

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (None, ["Source: s -> a -> b"]),
        (_set("a", chaining_strategy=ChainingStrategy.NEVER), ["Source: s", "a", "b"]),
        (_set("a", chaining_strategy=ChainingStrategy.HEAD), ["Source: s", "a -> b"]),
        (_set("b", chaining_strategy=ChainingStrategy.HEAD), ["Source: s -> a", "b"]),
        (_set("a", chaining_strategy=ChainingStrategy.HEAD_WITH_SOURCES), ["Source: s -> a -> b"]),
        (_set("b", chaining_strategy=ChainingStrategy.HEAD_WITH_SOURCES), ["Source: s -> a", "b"]),
        (_set("s", chaining_strategy=ChainingStrategy.HEAD), ["Source: s -> a -> b"]),
        (_set("s", chaining_strategy=ChainingStrategy.NEVER), ["Source: s", "a -> b"]),
        (_set("b", parallelism=3), ["Source: s -> a", "b"]),
        (_set("a", parallelism=3), ["Source: s", "a", "b"]),
        (_set("b", slot_sharing_group="g"), ["Source: s -> a", "b"]),
        (_set("a", slot_sharing_group="g"), ["Source: s", "a -> b"]),
        (_set("b", max_parallelism=7), ["Source: s -> a -> b"]),
    ],
)
def test_rules(change: Any, expected: list[str]) -> None:
    assert names(two(change)) == expected


def test_chaining_can_be_turned_off() -> None:
    assert names(two(chaining=False)) == ["Source: s", "a", "b"]


def test_different_max_parallelisms_can_be_kept_apart() -> None:
    change = _set("b", max_parallelism=7)
    assert names(two(change, chain_different_max_parallelism=False)) == ["Source: s -> a", "b"]


@pytest.mark.parametrize("kind", list(PartitionerKind))
def test_only_forward_is_chained(kind: PartitionerKind) -> None:
    program = Program()
    program.map(via(program.source(name="s"), kind), name="m")
    expected = ["Source: s -> m"] if kind is PartitionerKind.FORWARD else ["Source: s", "m"]
    assert names(program.graph()) == expected


def test_a_union_or_a_second_input_is_never_chained() -> None:
    program = Program()
    a, b = program.source(name="a"), program.source(name="b")
    program.map(a, b, name="union")
    program.add(OperatorKind.CO_MAP, a, b, name="join")
    program.map(a, a, name="twice")
    assert names(program.graph()) == ["Source: a", "Source: b", "union", "join", "twice"]


def test_edges_and_outputs_agree() -> None:
    program = Program()
    source = program.source(name="s", buffer_timeout_ms=5)
    mapped = program.map(source, name="m")
    hashed = via(mapped, PartitionerKind.HASH, key_of)
    program.add(OperatorKind.REDUCE, hashed, name="r", function=max, key_selectors=(key_of,))
    custom = via(source, PartitionerKind.CUSTOM, key_of)
    program.map(type(custom)(source, PartitionerKind.CUSTOM, key_of, channel_of), name="c")
    job_graph, chains = build(program.graph())
    ids = operator_ids(program.graph())
    assert [(e.index, e.source, e.source_operator, e.target, e.partitioner) for e in job_graph.edges] == [
        (0, ids[1], ids[1], ids[4], "CUSTOM"),
        (1, ids[1], ids[2], ids[3], "HASH"),
    ]
    assert [e.buffer_timeout_ms for e in job_graph.edges] == [5, 100]
    outputs = {output.edge: output for output in chains[ids[1]].outputs}
    assert (outputs[0].operator_index, outputs[0].partition) == (0, channel_of)
    assert outputs[1].operator_index == 1
    assert outputs[1].key_selector is chains[ids[3]].operators[0].key_selectors[0]


def test_a_vertex_takes_everything_from_its_head() -> None:
    program = Program()
    source = program.source(name="s", parallelism=3, max_parallelism=12, slot_sharing_group="g", uid="in")
    program.map(source, name="m", parallelism=3, max_parallelism=30, description="doubles")
    (vertex,) = build(program.graph())[0].vertices
    assert (vertex.parallelism, vertex.max_parallelism, vertex.slot_sharing_group) == (3, 12, "g")
    assert vertex.id == vertex.operators[0].id
    assert [(o.name, o.uid, o.kind, o.description) for o in vertex.operators] == [
        ("Source: s", "in", "source", "Source: s"),
        ("m", None, "map", "doubles"),
    ]


@pytest.mark.parametrize("boundedness", list(Boundedness))
def test_a_sources_enumerator_travels_in_plain_data(boundedness: Boundedness) -> None:
    program = Program()
    program.map(program.source())
    program.made[0].function = Numbers(boundedness)
    (vertex,) = build(program.graph())[0].vertices
    assert vertex.source is not None
    assert (vertex.source.operator_id, vertex.source.enumerator) == (vertex.id, "numbers")
    assert vertex.source.config == {"start": 0, "end": 3}
    assert vertex.source.bounded is (boundedness is Boundedness.BOUNDED)


class Picky(Sink[Any]):
    """Refuses to be used."""

    def create_writer(self, context: WriterContext) -> SinkWriter[Any]:
        raise AssertionError("no writer is made at the client")

    def check(self) -> None:
        raise ProgramError("the directory is a file")


class Easy(Picky):
    def check(self) -> None: ...


def test_a_sink_may_refuse() -> None:
    program = Program()
    program.add(OperatorKind.SINK, program.source(), function=Picky())
    with pytest.raises(ProgramError, match="the directory is a file"):
        build(program.graph())


def test_a_sink_needs_a_commit_and_print_does_not() -> None:
    program = Program()
    program.add(OperatorKind.SINK, program.source(), function=Easy())
    program.sink(program.source())
    assert [vertex.needs_commit for vertex in build(program.graph())[0].vertices] == [True, False]


def test_a_source_may_refuse() -> None:
    class Missing(Numbers):
        def enumerator(self) -> Any:
            raise ProgramError("no such file: data.txt")

    program = Program()
    program.map(program.source())
    program.made[0].function = Missing()
    with pytest.raises(ProgramError, match=r"no such file: data\.txt"):
        build(program.graph())


def test_what_is_no_source_is_refused() -> None:
    program = Program()
    program.map(program.source(name="bad"))
    program.made[0].function = "text"
    with pytest.raises(GraphError, match="'Source: bad': 'text' is not a Source"):
        build(program.graph())


def test_the_collect_operator_is_found() -> None:
    program = Program()
    program.add(OperatorKind.COLLECT, program.source(parallelism=1), non_parallel=True)
    graph = program.graph()
    (vertex,) = build(graph)[0].vertices
    assert vertex.collects == operator_ids(graph)[2]


def test_strict_integers_reach_every_operator() -> None:
    for strict in (True, False):
        _, chains = build(two(strict_integers=strict))
        assert {o.strict_integers for chain in chains.values() for o in chain.operators} == {strict}


def test_blobs_are_named_by_their_hash_and_the_graph_survives_json() -> None:
    job_graph, blobs = build_job_graph(
        two(chaining=False), job_id=JOB_ID, pickle_chain=pickle.dumps, config={"pipeline.name": "x"}
    )
    assert {vertex.chain for vertex in job_graph.vertices} == set(blobs)
    assert all(hashlib.sha256(blob).hexdigest() == sha for sha, blob in blobs.items())
    assert job_graph.blobs == {sha: len(blob) for sha, blob in blobs.items()}
    assert (job_graph.job_id, job_graph.config) == (JOB_ID, {"pipeline.name": "x"})
    assert set(job_graph.versions) == {"firesteel", "python", "pyarrow", "cloudpickle"}
    assert JobGraph.from_plain(job_graph.to_plain()) == job_graph
    chain: ChainSpec = pickle.loads(blobs[job_graph.vertices[0].chain])
    assert chain.operators[0].id == job_graph.vertices[0].id


def test_parallelism_is_in_no_chain() -> None:
    def blobs(parallelism: int) -> set[str]:
        graph = two(chaining=False, parallelism=parallelism, max_parallelism=128)
        return set(build_job_graph(graph, job_id=JOB_ID, pickle_chain=pickle.dumps, config={})[1])

    assert blobs(2) == blobs(7)


def test_very_long_chains_are_no_problem() -> None:
    program = Program()
    stream = program.source(name="s")
    for _ in range(2000):
        stream = program.map(stream, name="m")
    (vertex,) = build(program.graph())[0].vertices
    assert vertex.name.count("m") == 2000


def may_chain(graph: StreamGraph, edge: StreamEdge) -> bool:
    """The rules once more, one after the other."""
    up, down = graph.nodes[edge.source], graph.nodes[edge.target]
    if not graph.chaining or [e.target for e in graph.edges].count(down.id) != 1:
        return False
    if edge.partitioner is not PartitionerKind.FORWARD or up.parallelism != down.parallelism:
        return False
    if up.slot_sharing_group != down.slot_sharing_group or up.chaining_strategy is ChainingStrategy.NEVER:
        return False
    if down.chaining_strategy in (ChainingStrategy.NEVER, ChainingStrategy.HEAD):
        return False
    return down.chaining_strategy is ChainingStrategy.ALWAYS or up.operator.kind is OperatorKind.SOURCE


@settings(max_examples=examples(50))
@given(programs())
def test_every_operator_and_every_edge_is_in_the_job_graph_exactly_once(program: Program) -> None:
    graph = program.graph(max_parallelism=128)
    ids = operator_ids(graph)
    job_graph, chains = build(graph)  # build() validates: topological order, FORWARD between equal parallelisms
    assert Counter(o.id for chain in chains.values() for o in chain.operators) == Counter(ids.values())
    assert [[o.id for o in v.operators] for v in job_graph.vertices] == [
        [o.id for o in chains[v.id].operators] for v in job_graph.vertices
    ]

    chained = Counter(
        (chain.operators[parent].id, chain.operators[child].id)
        for chain in chains.values()
        for parent, children in enumerate(chain.children)
        for child in children
    )
    assert chained == Counter((ids[e.source], ids[e.target]) for e in graph.edges if may_chain(graph, e))
    for chain in chains.values():  # a tree in topological order: everyone but the head has one parent, before itself
        parents = {child: parent for parent, children in enumerate(chain.children) for child in children}
        assert sorted(parents) == list(range(1, len(chain.operators)))
        assert all(parent < child for child, parent in parents.items())

    crossing = Counter(
        (ids[e.source], ids[e.target], e.input_index, e.partitioner.value, e.buffer_timeout_ms)
        for e in graph.edges
        if not may_chain(graph, e)
    )
    assert crossing == Counter(
        (e.source_operator, e.target, e.input_index, e.partitioner, e.buffer_timeout_ms) for e in job_graph.edges
    )
    for vertex in job_graph.vertices:
        outputs = chains[vertex.id].outputs
        assert [o.edge for o in outputs] == [e.index for e in job_graph.edges if e.source == vertex.id]
        for output in outputs:
            edge = job_graph.edges[output.edge]
            assert edge.source_operator == vertex.operators[output.operator_index].id
            assert edge.partitioner == output.partitioner.value
            needs_key = output.partitioner in (PartitionerKind.HASH, PartitionerKind.CUSTOM)
            assert (output.key_selector is key_of) is needs_key
            assert (output.partition is channel_of) is (output.partitioner is PartitionerKind.CUSTOM)


@settings(max_examples=examples(50))
@given(programs())
def test_all_operators_of_a_vertex_share_parallelism_and_group(program: Program) -> None:
    graph = program.graph(max_parallelism=128)
    by_id = {str(operator_id): graph.nodes[node] for node, operator_id in operator_ids(graph).items()}
    for vertex in build(graph)[0].vertices:
        members = [by_id[operator.id] for operator in vertex.operators]
        assert {m.parallelism for m in members} == {vertex.parallelism}
        assert {m.slot_sharing_group for m in members} == {vertex.slot_sharing_group}
