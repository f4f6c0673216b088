"""What a slot is told to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from firesteel.graph.execution_graph import Execution, ExecutionGraph
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol.deployment import Deployment, EdgeDescriptor, TaskDescriptor


def deployment_of(
    graph: ExecutionGraph,
    allocation_id: str,
    new: Sequence[Execution],
    defaults: Mapping[str, str],
    restore_of: Callable[[Execution], Mapping[str, Any] | None] = lambda _: None,
) -> Deployment:
    """New tasks of a slot with everything they need, except the paths of their blobs.

    Edges, placement and peers are those of all tasks of the slot: what it does not find there it forgets.

    Args:
        graph: every task of it that runs, or is about to, has a slot.
        allocation_id: of the slot.
        new: attempts to run there.
        defaults: settings of the cluster; the job's come on top.
        restore_of: what a task goes on from.
    """
    job = graph.job_graph
    executions = graph.executions_in(allocation_id)
    edges = graph.edges_touching(e.vertex.id for e in executions)
    involved = {e.vertex.id for e in executions} | {v for edge in edges for v in (edge.source, edge.target)}
    placed = {
        vertex_id: [e.slot for e in job_vertex.executions()]
        for vertex_id, job_vertex in graph.vertices.items()
        if vertex_id in involved
    }
    return Deployment(
        job_id=job.job_id,
        job_name=job.name,
        job_attempt=graph.job_attempt,
        salt=graph.salt,
        tasks=tuple(_task(e, restore_of(e), job) for e in new),
        edges=tuple(
            EdgeDescriptor(
                index=edge.index,
                source=edge.source,
                target=edge.target,
                input_index=edge.input_index,
                partitioner=edge.partitioner,
                up_parallelism=job.vertex(edge.source).parallelism,
                down_parallelism=job.vertex(edge.target).parallelism,
                max_parallelism=job.vertex(edge.target).max_parallelism,
                buffer_timeout_ms=edge.buffer_timeout_ms,
            )
            for edge in edges
        ),
        placement={v: [s.allocation_id if s is not None else "" for s in slots] for v, slots in placed.items()},
        peers={s.allocation_id: dict(s.data_address) for slots in placed.values() for s in slots if s is not None},
        blobs=dict.fromkeys(job.python_files, ""),  # beside those of chains and main module, which are fetched anyhow
        main_blob=job.main_blob,
        python_path=tuple(job.python_path),
        python_files=tuple(job.python_files),
        config={**defaults, **job.config},
    )


def _task(execution: Execution, restore: Mapping[str, Any] | None, job: JobGraph) -> TaskDescriptor:
    vertex = execution.vertex
    readers = 0 if vertex.enumerates is None else job.vertex(vertex.enumerates).parallelism
    return TaskDescriptor(
        execution_id=execution.id,
        vertex_id=vertex.id,
        vertex_name=vertex.name,
        subtask=execution.subtask,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        attempt=execution.attempt,
        chain=vertex.chain,
        is_source=vertex.source is not None,
        needs_commit=vertex.needs_commit,
        restore=restore,
        readers=readers,
    )
