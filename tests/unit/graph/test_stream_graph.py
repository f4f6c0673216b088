from __future__ import annotations

import pytest

from firesteel.core.errors import GraphError
from firesteel.graph.specs import OperatorKind, PartitionerKind
from firesteel.graph.stream_graph import GraphSettings, StreamGraph, StreamInput, Transformation
from tests.unit.graph.graphs import Program, via


def test_unspecified_partitioner_is_forward_between_equal_parallelisms_and_rebalance_otherwise() -> None:
    program = Program()
    source = program.source(parallelism=1)
    equal = program.map(source, parallelism=1)
    program.map(equal, parallelism=3)
    graph = program.graph()
    assert [(e.source, e.target, e.partitioner) for e in graph.edges] == [
        (1, 2, PartitionerKind.FORWARD),
        (2, 3, PartitionerKind.REBALANCE),
    ]


@pytest.mark.parametrize("kind", [k for k in PartitionerKind if k is not PartitionerKind.FORWARD])
def test_an_explicit_partitioner_stays_whatever_the_parallelisms(kind: PartitionerKind) -> None:
    program = Program()
    source = program.source()
    program.map(via(source, kind))
    program.map(via(source, kind), parallelism=5)
    assert [e.partitioner for e in program.graph().edges] == [kind, kind]


def test_forward_between_different_parallelisms_is_refused_with_both_named() -> None:
    program = Program()
    source = program.source(name="numbers", parallelism=1)
    program.map(via(source, PartitionerKind.FORWARD), name="double", parallelism=4)
    with pytest.raises(GraphError, match=r"'Source: numbers' \(parallelism 1\) to 'double' \(parallelism 4\)"):
        program.graph()


def test_a_union_becomes_edges_to_the_same_input() -> None:
    program = Program()
    a, b, c = program.source(), program.source(), program.source()
    program.add(OperatorKind.CO_MAP, (a, via(b, PartitionerKind.SHUFFLE)), c)
    graph = program.graph()
    assert [(e.source, e.input_index, e.partitioner) for e in graph.nodes[4].in_edges] == [
        (1, 0, PartitionerKind.FORWARD),
        (2, 0, PartitionerKind.SHUFFLE),
        (3, 1, PartitionerKind.FORWARD),
    ]


def test_defaults_of_the_environment_hold_where_an_operator_says_nothing() -> None:
    program = Program()
    source = program.source()
    program.map(source, parallelism=3, max_parallelism=9, buffer_timeout_ms=0)
    graph = program.graph(parallelism=5, max_parallelism=64, buffer_timeout_ms=20)
    first, second = graph.nodes.values()
    assert (first.parallelism, first.max_parallelism, first.buffer_timeout_ms) == (5, 64, 20)
    assert (second.parallelism, second.max_parallelism, second.buffer_timeout_ms) == (3, 9, 0)


@pytest.mark.parametrize(("parallelism", "expected"), [(1, 128), (85, 128), (86, 256), (200, 512), (400, 1024)])
def test_max_parallelism_follows_from_the_parallelism(parallelism: int, expected: int) -> None:
    program = Program()
    program.map(program.source())
    graph = program.graph(parallelism=parallelism)
    assert {n.max_parallelism for n in graph.nodes.values()} == {expected}


def test_an_edge_waits_as_long_as_its_producer_says() -> None:
    program = Program()
    program.map(program.source(buffer_timeout_ms=3), buffer_timeout_ms=8)
    assert [e.buffer_timeout_ms for e in program.graph().edges] == [3]


def test_parallelism_above_the_maximum_is_refused_with_a_way_out() -> None:
    program = Program()
    program.map(program.source(), name="count", parallelism=20, max_parallelism=16)
    with pytest.raises(GraphError, match=r"'count': parallelism 20 is above its max parallelism 16.*set_max_par"):
        program.graph()


def test_parallelism_above_the_environments_maximum_is_refused() -> None:
    program = Program()
    program.map(program.source())
    with pytest.raises(GraphError, match=r"'Source: source': parallelism 8 is above its max parallelism 4"):
        program.graph(parallelism=8, max_parallelism=4)


def test_parallelism_above_the_largest_possible_is_refused() -> None:
    program = Program()
    program.map(program.source(), name="huge", parallelism=40_000)
    with pytest.raises(GraphError, match="'huge': parallelism 40000 is above 32768"):
        program.graph()


def test_a_non_parallel_operator_ignores_the_environments_parallelism() -> None:
    program = Program()
    program.map(program.source(non_parallel=True))
    assert [n.parallelism for n in program.graph(parallelism=6).nodes.values()] == [1, 6]


def test_an_empty_graph_is_refused() -> None:
    with pytest.raises(GraphError, match="the graph is empty"):
        StreamGraph.from_transformations([], GraphSettings(1))


def test_an_operator_without_its_input_is_refused() -> None:
    program = Program()
    source = program.source()
    program.add(OperatorKind.CO_MAP, source, name="join")
    with pytest.raises(GraphError, match=r"'join' \(co_map\) has 1 connected inputs, but needs 2"):
        program.graph()


def test_an_input_without_streams_is_refused() -> None:
    program = Program()
    source = program.source()
    lonely = program.map(source, name="lonely")
    lonely.inputs = ((),)
    with pytest.raises(GraphError, match=r"'lonely' \(map\) has 0 connected inputs"):
        program.graph()


def test_operators_of_two_environments_do_not_mix() -> None:
    first, second = Program(), Program()
    first.source(name="here")
    stranger = second.source(name="there")
    end = Transformation(
        2, "end", OperatorKind.CO_MAP, inputs=((StreamInput(first.made[0]),), (StreamInput(stranger),))
    )
    with pytest.raises(GraphError, match="come from different environments"):
        StreamGraph.from_transformations([end], GraphSettings(1))


def test_only_what_the_ends_read_is_in_the_graph() -> None:
    program = Program()
    used, unused = program.source(), program.source()
    end = program.map(used)
    program.map(unused)
    graph = StreamGraph.from_transformations([end], GraphSettings(1))
    assert list(graph.nodes) == [1, 3]


def test_sources_and_sinks_are_marked_in_names() -> None:
    program = Program()
    program.sink(program.map(program.source(name="in"), name="change"), name="out")
    graph = program.graph()
    assert [n.name for n in graph.nodes.values()] == ["Source: in", "change", "Sink: out"]
    assert [n.description for n in graph.nodes.values()] == ["Source: in", "change", "Sink: out"]


def test_a_slot_sharing_group_is_inherited_where_all_inputs_agree() -> None:
    program = Program()
    a = program.source(slot_sharing_group="x")
    b = program.source(slot_sharing_group="x")
    c = program.source(slot_sharing_group="y")
    program.map(a, b)
    program.map(b, c)
    program.map(a, slot_sharing_group="z")
    graph = program.graph()
    assert [n.slot_sharing_group for n in graph.nodes.values()] == ["x", "x", "y", "x", "default", "z"]


def test_graph_and_program_do_not_share_settings() -> None:
    program = Program()
    end = program.map(program.source(), extra={"a": 1})
    graph = program.graph()
    end.name = "changed"
    end.extra["a"] = 2
    assert (graph.nodes[2].name, graph.nodes[2].operator.extra) == ("map", {"a": 1})


def test_thousands_of_operators_in_a_row_are_no_problem() -> None:
    program = Program()
    stream = program.source()
    for _ in range(3000):
        stream = program.map(stream)
    assert len(program.graph().nodes) == 3001
