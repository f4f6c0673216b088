"""What a slot is told to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from firesteel.graph.execution_graph import Execution, ExecutionGraph
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol.deployment import Deployment, EdgeDescriptor, Placement, TaskDescriptor
from firesteel_jobmaster.slot_pool import SlotPool


class Placements:
    """Where the peers of a TaskManager's tasks are, so far as the job is being deployed there.

    Args:
        graph: of the job.
        pool: its slots.
    """

    def __init__(self, graph: ExecutionGraph, pool: SlotPool) -> None:
        self._graph, self._pool = graph, pool
        self._by_key: dict[str, Placement] = {}
        """Placements by TaskManager, and by the numbers of regions: one object for all whose regions are the same."""

    def at(self, taskmanager_id: str) -> Placement:
        """Placement of all regions that have tasks at a TaskManager."""
        placement = self._by_key.get(taskmanager_id)
        if placement is None:
            slots = self._pool.at(taskmanager_id)
            tasks = [e for slot in slots for e in self._graph.executions_in(slot.allocation_id)]
            regions = frozenset(map(self._graph.region_of, tasks))
            key = ",".join(map(str, sorted(regions)))
            placement = self._by_key.get(key) or placement_of(self._graph, regions)
            self._by_key[taskmanager_id] = self._by_key[key] = placement
        return placement

    def forget(self) -> None:
        """Slots were lost, or tasks have got others."""
        self._by_key.clear()


def deployment_of(
    graph: ExecutionGraph,
    allocation_id: str,
    new: Sequence[Execution],
    placement: Placement,
    defaults: Mapping[str, str],
    restore_of: Callable[[Execution], Mapping[str, Any] | None] = lambda _: None,
) -> Deployment:
    """New tasks of a slot with everything they need, except the paths of their blobs.

    Edges and placement are those of all tasks of the slot: what it does not find there it forgets.

    Args:
        graph: every task of it that runs, or is about to, has a slot.
        allocation_id: of the slot.
        new: attempts to run there.
        placement: of all regions that have tasks in the slot.
        defaults: settings of the cluster; the job's come on top.
        restore_of: what a task goes on from.
    """
    job = graph.job_graph
    executions = graph.executions_in(allocation_id)
    edges = graph.edges_touching(e.vertex.id for e in executions)
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
                source_name=job.vertex(edge.source).name,
            )
            for edge in edges
        ),
        placement=placement,
        blobs=dict.fromkeys(job.python_files, ""),  # beside those of chains and main module, which are fetched anyhow
        main_blob=job.main_blob,
        python_path=tuple(job.python_path),
        python_files=tuple(job.python_files),
        config={**defaults, **job.config},
    )


def placement_of(graph: ExecutionGraph, regions: Iterable[int]) -> Placement:
    """Where the tasks of some regions run, as far as they have slots; nobody exchanges records with another region."""
    slots: dict[str, dict[int, str]] = {}
    peers: dict[str, Mapping[str, Any]] = {}
    for execution in graph.in_regions(regions):
        slot = execution.slot
        if slot is not None:
            slots.setdefault(execution.vertex.id, {})[execution.subtask] = slot.allocation_id
            peers[slot.allocation_id] = slot.data_address
    return Placement(slots, peers)


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
