from __future__ import annotations

from firesteel.graph.job_graph import JobEdge, JobGraph, JobVertex, OperatorInfo
from firesteel.graph.pipelined_regions import pipelined_regions


def graph(sizes: dict[str, int], edges: list[tuple[str, str, str]]) -> JobGraph:
    ids = {name: name * 32 for name in sizes}
    vertices = tuple(
        JobVertex(ids[n], n, p, 128, "default", "c" * 64, (OperatorInfo(ids[n], n, None, "map"),), None, False, None)
        for n, p in sizes.items()
    )
    job_edges = tuple(JobEdge(i, ids[a], ids[b], ids[a], 0, kind) for i, (a, b, kind) in enumerate(edges))
    return JobGraph("ab" * 16, "job", vertices, job_edges, {}, {"c" * 64: 1})


def regions(sizes: dict[str, int], *edges: tuple[str, str, str]) -> list[str]:
    regions = pipelined_regions(graph(sizes, list(edges)))
    return [" ".join(f"{vertex[0]}{index}" for vertex, index in region) for region in regions]


def test_forward_keeps_subtasks_apart() -> None:
    assert regions({"a": 2, "b": 2}, ("a", "b", "FORWARD")) == ["a0 b0", "a1 b1"]


def test_rescale_groups_them() -> None:
    assert regions({"a": 4, "b": 2}, ("a", "b", "RESCALE")) == ["a0 a1 b0", "a2 a3 b1"]
    assert regions({"a": 2, "b": 4}, ("a", "b", "RESCALE")) == ["a0 b0 b1", "a1 b2 b3"]


def test_any_shuffle_makes_one_region() -> None:
    for kind in ("HASH", "REBALANCE", "BROADCAST", "GLOBAL"):
        assert regions({"a": 2, "b": 3, "c": 3}, ("a", "b", kind), ("b", "c", "FORWARD")) == ["a0 a1 b0 b1 b2 c0 c1 c2"]


def test_pipelines_without_an_edge_between_them_are_apart() -> None:
    sizes = {"a": 1, "b": 2, "c": 2, "d": 1}
    assert regions(sizes, ("a", "b", "HASH"), ("c", "d", "HASH")) == ["a0 b0 b1", "c0 c1 d0"]
    assert regions(sizes) == ["a0", "b0", "b1", "c0", "c1", "d0"]


def test_a_diamond_is_one() -> None:
    sizes = {"a": 1, "b": 1, "c": 1, "d": 1}
    edges = [("a", "b", "FORWARD"), ("a", "c", "FORWARD"), ("b", "d", "FORWARD"), ("c", "d", "FORWARD")]
    assert regions(sizes, *edges) == ["a0 b0 c0 d0"]
