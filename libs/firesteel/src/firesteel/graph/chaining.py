"""StreamGraph -> JobGraph: operators that can run as one task become one vertex."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from firesteel.core.ids import JobId, OperatorId
from firesteel.functions.sink import Sink
from firesteel.graph.enumerators import enumerator_spec, enumerator_vertex, source_info
from firesteel.graph.job_graph import JobEdge, JobGraph, JobVertex, OperatorInfo, add_blob
from firesteel.graph.node_ids import operator_ids
from firesteel.graph.specs import ChainSpec, OperatorKind, OutputSpec
from firesteel.graph.stream_graph import StreamEdge, StreamGraph, StreamNode


@dataclass
class _Chain:
    """The nodes of the stream graph that become one vertex: a tree, with its root as the first node."""

    nodes: list[StreamNode]

    @property
    def head(self) -> StreamNode:
        return self.nodes[0]


def build_job_graph(
    stream_graph: StreamGraph,
    *,
    job_id: str,
    pickle_chain: Callable[[ChainSpec], bytes],
    config: Mapping[str, str],
) -> tuple[JobGraph, dict[str, bytes]]:
    """Make the JobGraph: chain the operators, and pickle each chain.

    Args:
        stream_graph: the program's graph.
        job_id: 32 hex digits.
        pickle_chain: turns a chain into bytes; called once for each vertex.
        config: effective settings as text (``Settings.to_plain``), stored in the graph as they are.

    Returns:
        The validated graph (without a main blob and Python path: the client adds them with its ``blobs``), and the
        blobs by SHA-256.

    Raises:
        GraphError: an id occurs twice.
        ProgramError: a source or a sink refuses (a missing file, for instance).
        SerializationError, ProgramError: from ``pickle_chain``.
    """
    ids = operator_ids(stream_graph)
    chains = _chains(stream_graph)
    # Edges inside of a chain are method calls; only those between chains become edges of the JobGraph.
    crossing = [
        (chain, edge)
        for chain in chains
        for node in chain.nodes
        for edge in node.out_edges
        if not stream_graph.is_chainable(edge)
    ]
    numbers = {edge: number for number, (_, edge) in enumerate(crossing)}
    edges = tuple(
        JobEdge(
            index=numbers[edge],
            source=ids[chain.head.id],
            target=ids[edge.target],
            source_operator=ids[edge.source],
            input_index=edge.input_index,
            partitioner=edge.partitioner.value,
            buffer_timeout_ms=edge.buffer_timeout_ms,
            columns=stream_graph.edge_columns[edge].names if edge in stream_graph.edge_columns else None,
        )
        for chain, edge in crossing
    )
    blobs: dict[str, bytes] = {}
    vertices = []
    for chain in chains:
        name = _name(stream_graph, chain)
        sha = add_blob(blobs, pickle_chain(_spec(stream_graph, chain, ids, numbers)))
        vertex = _vertex(chain, ids, name, sha)
        # A user's enumerator is user code, which only slots run: it gets a vertex in front of its source's.
        if vertex.source is not None and vertex.source.coordinator is not None:
            spec = enumerator_spec(chain.head, vertex.source.coordinator)
            sha = add_blob(blobs, pickle_chain(ChainSpec([spec], [[]], [])))
            vertices.append(enumerator_vertex(spec, vertex, sha))
        vertices.append(vertex)
    graph = JobGraph(
        job_id=JobId(job_id),
        name=stream_graph.name,
        vertices=tuple(vertices),
        edges=edges,
        config=dict(config),
        blobs={sha: len(blob) for sha, blob in blobs.items()},
        versions=client_versions(),
    )
    graph.validate()
    return graph, blobs


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    versions = [("python", platform.python_version())]
    for package in ("firesteel", "pyarrow", "cloudpickle"):
        try:
            versions.append((package, version(package)))
        except PackageNotFoundError:
            versions.append((package, "unknown"))
    return tuple(versions)


def client_versions() -> dict[str, str]:
    """Return the versions of Python, firesteel, pyarrow and cloudpickle in this process."""
    return dict(_versions())


def _chains(graph: StreamGraph) -> list[_Chain]:
    """Make the chains of the graph: one for each node that is not chained behind another.

    They are ordered by their heads: a topological order, since records enter a chain only at its head.
    """
    heads: dict[int, _Chain] = {}
    for node in graph.nodes.values():
        chained_to = [edge for edge in node.in_edges if graph.is_chainable(edge)]
        if chained_to:
            chain = heads[chained_to[0].source]
            chain.nodes.append(node)
            heads[node.id] = chain
        else:
            heads[node.id] = _Chain([node])
    return [chain for node_id, chain in heads.items() if chain.head.id == node_id]


def _spec(
    graph: StreamGraph, chain: _Chain, ids: Mapping[int, OperatorId], numbers: Mapping[StreamEdge, int]
) -> ChainSpec:
    position = {node.id: i for i, node in enumerate(chain.nodes)}
    children: list[list[int]] = [[] for _ in chain.nodes]
    outputs = []
    tags: dict[int, str] = {}
    for i, node in enumerate(chain.nodes):
        for edge in node.out_edges:
            if graph.is_chainable(edge):
                children[i].append(position[edge.target])
                if edge.output_tag is not None:
                    tags[position[edge.target]] = edge.output_tag
            else:
                edge_columns = graph.edge_columns.get(edge)
                outputs.append(
                    OutputSpec(
                        operator_index=i,
                        edge=numbers[edge],
                        partitioner=edge.partitioner,
                        key_selector=edge.key_selector if edge_columns is None else edge_columns.key_selector,
                        partition=edge.partition,
                        tag=edge.output_tag,
                        columns=None
                        if edge_columns is None or edge_columns.names is None
                        else (edge_columns.names, edge_columns.indexes),
                        reader_has_keys=bool(graph.nodes[edge.target].operator.key_selectors),
                    )
                )
    operators = [replace(node.operator, id=ids[node.id]) for node in chain.nodes]
    return ChainSpec(operators, children, outputs, tags)


def _vertex(chain: _Chain, ids: Mapping[int, OperatorId], name: str, sha: str) -> JobVertex:
    head = chain.head
    kinds = {node.operator.kind for node in chain.nodes}
    collects = [ids[node.id] for node in chain.nodes if node.operator.kind is OperatorKind.COLLECT]
    for node in chain.nodes:
        if isinstance(node.operator.function, Sink):
            node.operator.function.check()
    return JobVertex(
        id=ids[head.id],
        name=name,
        parallelism=head.parallelism,
        max_parallelism=head.max_parallelism,
        slot_sharing_group=head.slot_sharing_group,
        chain=sha,
        operators=tuple(
            OperatorInfo(ids[node.id], node.name, node.uid, node.operator.kind.value, node.description)
            for node in chain.nodes
        ),
        source=source_info(head, ids[head.id]) if head.is_source else None,
        needs_commit=OperatorKind.SINK in kinds,
        collects=collects[0] if collects else None,
        fixed_parallelism=any(node.non_parallel for node in chain.nodes),
        adapts=all(node.adapts for node in chain.nodes),
    )


def _name(graph: StreamGraph, chain: _Chain) -> str:
    """Name of a chain's vertex in Flink's form: ``A -> B -> C``, and ``A -> (B, C -> D)`` where the chain forks."""
    names: dict[int, str] = {}
    for node in reversed(chain.nodes):
        children = [names[edge.target] for edge in node.out_edges if graph.is_chainable(edge)]
        behind = children[0] if len(children) == 1 else f"({', '.join(children)})"
        names[node.id] = f"{node.name} -> {behind}" if children else node.name
    return names[chain.head.id]
