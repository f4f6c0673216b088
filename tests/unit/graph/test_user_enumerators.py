"""The vertex of an enumerator that a user wrote."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from firesteel.core.errors import GraphError, ProgramError
from firesteel.functions.source import EnumeratorSpec, SplitEnumerator, SplitEnumeratorContext
from firesteel.graph.job_graph import JobGraph
from firesteel.graph.pipelined_regions import pipelined_regions
from firesteel.graph.plan import job_plan
from firesteel.graph.specs import OperatorKind
from tests.unit.graph.graphs import Numbers, Program, build


class Own(Numbers):
    def enumerator(self) -> EnumeratorSpec | None:
        return None

    def create_enumerator(self, context: SplitEnumeratorContext) -> SplitEnumerator:
        raise AssertionError("none is made at the client")


class Neither(Numbers):
    def enumerator(self) -> EnumeratorSpec | None:
        return None


def program(source: Numbers, **settings: Any) -> tuple[JobGraph, dict[str, Any]]:
    p = Program()
    p.sink(p.map(p.add(OperatorKind.SOURCE, function=source, name="numbers", **settings)))
    return build(p.graph(parallelism=3))


def test_an_enumerator_is_a_vertex_of_parallelism_one_in_the_group_of_its_source() -> None:
    graph, chains = program(Own(), slot_sharing_group="readers")
    enumerator, source = graph.vertices[:2]
    assert (enumerator.name, enumerator.parallelism, enumerator.slot_sharing_group) == (
        "SplitEnumerator: Source: numbers", 1, "readers",
    )  # fmt: skip
    assert enumerator.enumerates == source.id
    assert source.source is not None
    assert source.source.coordinator == enumerator.id
    assert (source.source.enumerator, source.source.config) == ("user", {})
    assert isinstance(chains[enumerator.id].operators[0].function, Own)
    assert graph.slots_needed() == 3
    assert JobGraph.from_plain(graph.to_plain()) == graph
    assert len(pipelined_regions(graph)) == 1
    (node,) = (n for n in job_plan(graph)["nodes"] if n["id"] == enumerator.id)
    assert node["description"] == "hands out the splits of Source: numbers<br/>"
    assert "inputs" not in node


def test_its_id_follows_from_that_of_the_source() -> None:
    def ids(uid: str) -> tuple[str, ...]:
        return tuple(vertex.id for vertex in program(Own(), uid=uid)[0].vertices)

    assert ids("one") == ids("one")
    assert not set(ids("one")) & set(ids("other"))


def test_a_source_needs_an_enumerator() -> None:
    with pytest.raises(ProgramError, match=r"'Source: numbers': Neither hands out no splits: it needs create_enumer"):
        program(Neither())


def test_graphs_that_do_not_fit_are_refused() -> None:
    graph, _ = program(Own())
    enumerator, source, *rest = graph.vertices
    assert source.source is not None
    wrong = [
        (source, *rest),
        (enumerator, replace(source, source=replace(source.source, coordinator=None)), *rest),
        (enumerator, replace(source, source=replace(source.source, coordinator="f" * 32)), *rest),
        (enumerator, replace(source, source=replace(source.source, enumerator="numbers")), *rest),
        (replace(enumerator, parallelism=2, max_parallelism=2), source, *rest),
        (replace(enumerator, enumerates=rest[0].id if rest else "e" * 32), source, *rest),
    ]
    for vertices in wrong:
        with pytest.raises(GraphError, match=r"splits|coordinator|runs an enumerator"):
            replace(graph, vertices=vertices).validate()
