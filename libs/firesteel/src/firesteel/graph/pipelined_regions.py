"""Pipelined regions: subtasks that exchange records while they run, directly or through others. Pure.

If a subtask fails, its neighbours have processed records that it will send again, or have sent records that it has
lost, so its whole region restarts. All edges are pipelined, so regions are the connected components of the subtasks. A
user's enumerator is in one region with all readers of its source, because both know the splits assigned since the last
checkpoint.
"""

from __future__ import annotations

from firesteel.graph.job_graph import JobGraph
from firesteel.graph.physical import POINTWISE, upstream_channels
from firesteel.graph.specs import PartitionerKind

Subtask = tuple[str, int]
"""Vertex id and index."""


def pipelined_regions(job_graph: JobGraph) -> list[list[Subtask]]:
    """Return the regions of a job: subtasks in topological order, and regions in the order of their first subtasks."""
    # Union-find: each subtask points towards the representative of its component.
    parent: dict[Subtask, Subtask] = {(v.id, i): (v.id, i) for v in job_graph.vertices for i in range(v.parallelism)}

    def root(subtask: Subtask) -> Subtask:
        while parent[subtask] != subtask:
            parent[subtask] = parent[parent[subtask]]
            subtask = parent[subtask]
        return subtask

    for edge in job_graph.edges:
        kind = PartitionerKind(edge.partitioner)
        up, down = job_graph.vertex(edge.source).parallelism, job_graph.vertex(edge.target).parallelism
        if kind in POINTWISE:
            pairs = [(u, d) for d in range(down) for u in upstream_channels(kind, d, up, down)]
        else:  # all to all: one producer reaches all consumers, and all producers reach one of these
            pairs = [(0, d) for d in range(down)] + [(u, 0) for u in range(1, up)]
        for u, d in pairs:
            parent[root((edge.target, d))] = root((edge.source, u))
    for vertex in job_graph.vertices:
        if vertex.enumerates is not None:
            for reader in range(job_graph.vertex(vertex.enumerates).parallelism):
                parent[root((vertex.enumerates, reader))] = root((vertex.id, 0))
    regions: dict[Subtask, list[Subtask]] = {}
    for subtask in parent:
        regions.setdefault(root(subtask), []).append(subtask)
    return list(regions.values())
