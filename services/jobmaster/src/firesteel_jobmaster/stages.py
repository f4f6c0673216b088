"""The stages of a bounded job: which task of which vertex reads which partitions of which output. Pure.

Each vertex is a stage; Spark's shuffle is between two vertices that an edge connects. The output of a stage has the
partitions of all edges that leave it, one behind the other, and a last one for what its tasks report:

* HASH: a partition for each key group. A subtask reads its range, bucket by bucket (``StageInput.java``).
* BROADCAST: one that all subtasks read; GLOBAL: one that the first one reads.
* all others: one for each subtask.

Of two inputs the broadcast one comes first, as in Flink.

How many tasks a stage has is known when those that it reads have ended, unless the program says it: adjacent partitions
are read together until a task has enough to read (``Sizing``, ``StageTasks.java``).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from firesteel.checkpoint.handles import InlineState
from firesteel.checkpoint.metadata import OperatorState
from firesteel.checkpoint.subtask_state import Committables, OperatorSubtaskState, TaskState
from firesteel.config import Settings
from firesteel.config.options import BATCH_COMBINE, PIPELINE_GLOBAL_JOB_PARAMETERS
from firesteel.connectors.spark_query import SPARK_QUERY
from firesteel.core.errors import GraphError
from firesteel.functions.source import BuiltInEnumerator
from firesteel.graph.bounded import adapts, partitions_of, partitions_read, sizing_of
from firesteel.graph.job_graph import JobEdge, JobGraph, JobVertex
from firesteel.graph.key_groups import key_group_range
from firesteel.graph.specs import OperatorKind, PartitionerKind
from firesteel.protocol.stages import QueryTable, Stage, StageQuery, StageTaskInput
from firesteel_jobmaster.splits import EnumeratorFactory

COMMIT: Final = "commit"
"""Name of the stage that commits."""
CHECKPOINT: Final = 1
"""Number under which sinks prepare (``firesteel.runtime.bounded.commit``): there is one checkpoint, at the end."""
_MOST_PIECES: Final = 1024
"""Pieces of which tasks are put together, at most: of an input with more partitions, adjacent ones are one piece."""
_KEYED: Final = frozenset(
    kind.value
    for kind in (
        OperatorKind.KEYED_PROCESS, OperatorKind.KEYED_MAP, OperatorKind.KEYED_FLAT_MAP, OperatorKind.KEYED_FILTER,
        OperatorKind.COLUMNS_AGGREGATE, OperatorKind.COLUMNS_WINDOW, OperatorKind.COLUMNS_PROCESS, OperatorKind.REDUCE,
        OperatorKind.KEYED_CO_MAP, OperatorKind.KEYED_CO_FLAT_MAP, OperatorKind.KEYED_CO_PROCESS, OperatorKind.WINDOW,
        OperatorKind.ALIGNED_WINDOW, OperatorKind.SESSION_WINDOW, OperatorKind.INTERVAL_JOIN,
        OperatorKind.KEYED_BROADCAST_PROCESS,
    )
)  # fmt: skip

_COLUMNS: Final = frozenset(
    kind.value for kind in (OperatorKind.COLUMNS_AGGREGATE, OperatorKind.COLUMNS_WINDOW, OperatorKind.COLUMNS_PROCESS)
)
BUCKET_BYTES: Final = 1 << 20
"""About 40,000 small records as Python objects, which the processor's cache almost holds."""
COLUMN_BUCKET_BYTES: Final = 8 << 20
"""The same for columns, which are larger so that each pane of time has many of the rows."""
_AGGREGATING: Final = frozenset(
    kind.value
    for kind in (
        OperatorKind.ALIGNED_WINDOW,
        OperatorKind.COLUMNS_AGGREGATE,
        OperatorKind.COLUMNS_WINDOW,
        OperatorKind.REDUCE,
    )
)


def plan_stages(graph: JobGraph, create: EnumeratorFactory) -> tuple[Stage, ...]:
    """The stages of a job, each of them behind those that it reads.

    Args:
        graph: of a job in runtime mode BATCH.
        create: makes an enumerator of a name and a configuration: all splits are handed out now.

    Raises:
        GraphError: a source can't be read in batch mode.
        ProgramError: there is nothing where a source looks.
        OSError: a source can't look.
    """
    return tuple(_stage(graph, vertex, create) for vertex in graph.vertices)


def prepared_states(graph: JobGraph, reports: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], TaskState]:
    """What the tasks of all stages have prepared, as they would acknowledge a last checkpoint with it.

    Args:
        graph: of the job.
        reports: of all tasks.

    Returns:
        The state of each task, by vertex and subtask; tasks that have prepared nothing have an empty one.
    """
    states = {(v.id, subtask): TaskState(finished=True) for v in graph.vertices for subtask in range(v.parallelism)}
    for report in reports:
        operators = {
            operator: OperatorSubtaskState(committables=tuple(_committables(items)))
            for operator, items in report["commit"].items()
            if items
        }
        states[report["vertex"], report["subtask"]] = TaskState(operators, finished=True)
    return states


def _committables(items: Sequence[Sequence[Any]]) -> Iterator[Committables]:
    by_version: dict[int, list[InlineState]] = {}
    for version, data in items:
        by_version.setdefault(version, []).append(InlineState(base64.b64decode(data)))
    for version, items_of_version in by_version.items():
        yield Committables(CHECKPOINT, version, tuple(items_of_version))


def plan_commit(graph: JobGraph, states: Sequence[OperatorState]) -> Stage:
    """The stage that commits what the sinks have prepared.

    Args:
        graph: of the job.
        states: of its operators, from the checkpoint that was stored when all other stages had ended.
    """
    states_by_operator = {state.operator_id: state for state in states}
    work = [
        {
            "chain": vertex.chain,
            "operator": operator.id,
            "subtask": subtask,
            "parallelism": vertex.parallelism,
            "committables": items,
        }
        for vertex in graph.vertices
        for operator in vertex.operators
        if operator.id in states_by_operator and operator.id != vertex.collects
        for subtask, state in sorted(states_by_operator[operator.id].subtasks.items())
        if (items := list(_plain(state.committables)))
    ]
    task = {**_common(graph), "vertex": COMMIT, "name": "Commit", "parallelism": 1, "max_parallelism": 1}
    task_input = StageTaskInput(json.dumps(work))
    return Stage(COMMIT, "Commit", (), (task_input,), 1, {**task, "commits": True, "partition": 0})


def _plain(committables: Iterable[Committables]) -> Iterator[list[Any]]:
    """Version and data of each committable, as the task of the commit reads them."""
    for group in committables:
        for item in group.items:
            assert isinstance(item, InlineState), "committables are never in files of their own"
            yield [group.version, base64.b64encode(item.data).decode()]


def _common(graph: JobGraph) -> dict[str, Any]:
    parameters = Settings(dict(graph.config), "job").get(PIPELINE_GLOBAL_JOB_PARAMETERS)
    return {
        "job_id": graph.job_id,
        "job_name": graph.name,
        "job_parameters": dict(parameters or {}),
        "config": dict(graph.config),
        "main": graph.main_blob,
        "python_path": list(graph.python_path),
        "python_files": list(graph.python_files),
    }


def _stage(graph: JobGraph, vertex: JobVertex, create: EnumeratorFactory) -> Stage:
    outputs, partitions = _outputs(graph, vertex)
    inputs = sorted((edge for edge in graph.edges if edge.target == vertex.id), key=_reading_order)
    keyed = {edge.index for edge in inputs if _is_keyed(edge, vertex)}
    reads = tuple(dict.fromkeys(edge.source for edge in inputs))
    tasks: tuple[StageTaskInput, ...]
    sizing, query = sizing_of(graph, vertex), None
    if vertex.source is not None and vertex.source.enumerator == SPARK_QUERY:
        query, tasks = _query(vertex, create), ()
    elif vertex.source is not None:
        splits = _splits(vertex, create)
        if adapts(graph, vertex):
            splits = [splits_of_task for splits_of_task in splits if splits_of_task] or splits[:1]
        tasks = tuple(StageTaskInput(json.dumps(splits_of_task)) for splits_of_task in splits)
    else:
        count = vertex.parallelism if sizing is None else min(_MOST_PIECES, partitions_read(graph, vertex))
        pieces = [list(_pieces(graph, vertex, inputs, reads, number, count)) for number in range(count)]
        tasks = tuple(
            StageTaskInput(
                plain=tuple(piece for edge, piece in pieces_of_task if edge.index not in keyed),
                keyed=tuple(piece for edge, piece in pieces_of_task if edge.index in keyed),
            )
            for pieces_of_task in pieces
        )
    task = {
        **_common(graph),
        "vertex": vertex.id,
        "name": vertex.name,
        "parallelism": vertex.parallelism if vertex.source is None or query is not None else len(tasks),
        "sized": sizing is not None,
        "max_parallelism": vertex.max_parallelism,
        "chain": vertex.chain,
        "source": vertex.source is not None,
        "query": query is not None,
        "inputs": [{"input": edge.input_index, "keyed": edge.index in keyed} for edge in inputs],
        "outputs": outputs,
        "partition": partitions,
    }
    bucket_bytes = COLUMN_BUCKET_BYTES if vertex.operators[0].kind in _COLUMNS else BUCKET_BYTES
    return Stage(vertex.id, vertex.name, reads, tasks, partitions + 1, task, sizing, bucket_bytes, query)


def _query(vertex: JobVertex, create: EnumeratorFactory) -> StageQuery:
    """The query of a vertex that reads the result of Spark SQL; its tables have the files that there are now."""
    assert vertex.source is not None
    config, tables = vertex.source.config, []
    for table in config["tables"]:
        splits = _all_splits(vertex, create(table["enumerator"], table["config"]), 1)[0]
        sizes: dict[str, int] = {}
        for split in splits:
            path, end = str(split["data"]["path"]), int(split["data"]["end"])
            sizes[path] = max(end, sizes.get(path, 0))
        files = [f"file:{path}" for path in sizes]
        tables.append(
            QueryTable(table["name"], table["format"], table["columns"], table["options"], files, sum(sizes.values()))
        )
    recursions = tuple(map(tuple, config["recursions"]))
    return StageQuery(
        config["text"], config["settings"], tuple(tables), vertex.parallelism, recursions, config["max_iterations"]
    )


def _outputs(graph: JobGraph, vertex: JobVertex) -> tuple[list[dict[str, Any]], int]:
    """First partition and number of partitions of each outgoing edge of a vertex; and how many there are in all."""
    outputs, base = [], 0
    for edge in graph.edges:
        if edge.source == vertex.id:
            target = graph.vertex(edge.target)
            count = partitions_of(edge, target)
            combine = target.chain if _may_combine(graph, edge, target) else None
            outputs.append(
                {
                    "edge": edge.index,
                    "base": base,
                    "count": count,
                    "max_parallelism": target.max_parallelism,
                    "combine": combine,
                }
            )
            base += count
    return outputs, base


def _may_combine(graph: JobGraph, edge: JobEdge, target: JobVertex) -> bool:
    """Whether tasks may combine records before an edge, if its reader lets them (``runtime.bounded.combining``)."""
    return (
        edge.partitioner in (PartitionerKind.HASH.value, PartitionerKind.GLOBAL.value)
        and target.operators[0].kind in _AGGREGATING
        and Settings(dict(graph.config), "job").get(BATCH_COMBINE)
    )


def _reading_order(edge: JobEdge) -> tuple[bool, int]:
    return edge.partitioner != PartitionerKind.BROADCAST.value, edge.index


def _is_keyed(edge: JobEdge, target: JobVertex) -> bool:
    return edge.partitioner == PartitionerKind.HASH.value and target.operators[0].kind in _KEYED


def _pieces(
    graph: JobGraph, vertex: JobVertex, inputs: Sequence[JobEdge], reads: Sequence[str], subtask: int, count: int
) -> Iterator[tuple[JobEdge, tuple[int, int, int, int]]]:
    """The partitions of each input that one of ``count`` subtasks reads."""
    for number, edge in enumerate(inputs):
        outputs, _ = _outputs(graph, graph.vertex(edge.source))
        base = next(output["base"] for output in outputs if output["edge"] == edge.index)
        kind = PartitionerKind(edge.partitioner)
        if kind is PartitionerKind.HASH:
            first, last = key_group_range(subtask, count, vertex.max_parallelism)
        elif kind in (PartitionerKind.BROADCAST, PartitionerKind.GLOBAL):
            if kind is PartitionerKind.GLOBAL and subtask:
                continue
            first = last = 0
        else:
            first = last = subtask
        yield edge, (number, reads.index(edge.source), base + first, base + last + 1)


def _splits(vertex: JobVertex, create: EnumeratorFactory) -> list[list[dict[str, Any]]]:
    """All splits of a source, given to its subtasks in turn."""
    source = vertex.source
    assert source is not None
    if not source.bounded:
        raise GraphError(f"source {vertex.name!r} is unbounded: runtime mode BATCH runs bounded sources only")
    if source.coordinator is not None:
        raise GraphError(
            f"source {vertex.name!r} has an enumerator of its own (create_enumerator), which runtime mode BATCH does "
            "not run in this version: use STREAMING"
        )
    return _all_splits(vertex, create(source.enumerator, source.config), vertex.parallelism)


def _all_splits(vertex: JobVertex, enumerator: BuiltInEnumerator, parallelism: int) -> list[list[dict[str, Any]]]:
    assert vertex.source is not None
    enumerator.start()
    splits_by_subtask: list[list[dict[str, Any]]] = [[] for _ in range(parallelism)]
    while not enumerator.exhausted:
        count = 0
        for subtask, splits_of_subtask in enumerate(splits_by_subtask):
            splits = enumerator.next_splits(subtask, parallelism)
            count += len(splits)
            splits_of_subtask += [dict(split.to_plain()) for split in splits]
        if not count and not enumerator.exhausted:
            raise GraphError(
                f"source {vertex.name!r} does not say all that there is to read at once ({vertex.source.enumerator}), "
                "which runtime mode BATCH needs: use STREAMING"
            )
    return splits_by_subtask
