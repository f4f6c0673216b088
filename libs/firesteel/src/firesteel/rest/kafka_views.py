"""The REST answer about the Kafka sources of a job, from job archives. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from firesteel.graph.job_archive import TASK_METRICS
from firesteel.rest import kafka_types as k
from firesteel.rest.archive_cache import Archive
from firesteel.rest.views import find_vertex

_PARTITION: Final = re.compile(
    r"(.+)\.KafkaSourceReader\.topic\.(.+)\.partition\.(\d+)\.(currentOffset|committedOffset|records-lag)"
)
_UNKNOWN: Final = -1
Positions = Mapping[str, tuple[str, int | None]]
"""Topic and partition, as names of metrics have them -> name of the topic, and the position in the last checkpoint;
None where nothing was read of it."""


def source_vertices(archive: Archive) -> list[str]:
    """Ids of the vertices without inputs, of which any may read Kafka."""
    return [node["id"] for node in archive["plan"]["nodes"] if not node.get("inputs")]


def kafka_sources(archives: Iterable[tuple[str, Archive]]) -> k.KafkaSources:
    """/jobs/:jobid/kafka: the partitions that sources read, with the figures that their readers have reported.

    Args:
        archives: ids of source vertices, each with the archive that has the vertex's subtasks.
    """
    sources: list[k.KafkaSourceInfo] = []
    now, checkpoint = 0, None
    for vertex_id, archive in archives:
        now = archive["now"]
        positions = (archive.get("checkpoints") or {}).get("positions") or {"checkpoint": None, "splits": []}
        checkpoint = positions["checkpoint"]
        sources += _of_vertex(find_vertex(archive, vertex_id), _positions(vertex_id, positions["splits"]))
    return {"now": now, "checkpoint": checkpoint, "sources": sources}


def _positions(vertex_id: str, splits: Iterable[Sequence[Any]]) -> Positions:
    positions = {}
    for vertex, _, split_id, position in splits:
        topic, dash, partition = split_id.rpartition("-")
        if vertex == vertex_id and dash and partition.isdecimal():
            positions[f"{_in_metrics(topic)}-{partition}"] = topic, position
    return positions


def _in_metrics(topic: str) -> str:
    """A topic in the name of a metric, whose parts are separated by dots. Kafka refuses topics that differ only so."""
    return topic.replace(".", "_")


def _of_vertex(vertex: Mapping[str, Any], positions: Positions) -> list[k.KafkaSourceInfo]:
    operators: dict[str, dict[tuple[str, int], k.KafkaPartition]] = {}
    for subtask in vertex["subtasks"]:
        for name, value in subtask.get(TASK_METRICS, {}).items():
            match = _PARTITION.fullmatch(name)
            if match is None or not isinstance(value, int):
                continue
            operator, topic, number, metric = match.groups()
            row = operators.setdefault(operator, {}).setdefault(
                (topic, int(number)), _row(topic, int(number), subtask["subtask"], positions)
            )
            if value == _UNKNOWN:
                continue
            if metric == "currentOffset":
                row["position"] = value
            elif metric == "committedOffset":
                row["committed"] = value
            else:
                row["lag"] = value
    return [
        {
            "vertex-id": vertex["id"],
            "name": vertex["name"],
            "operator": operator,
            "parallelism": vertex["parallelism"],
            "lag": _sum(row["lag"] for row in rows.values()),
            "partitions": [rows[place] for place in sorted(rows)],
        }
        for operator, rows in operators.items()
    ]


def _row(topic: str, partition: int, subtask: int, positions: Positions) -> k.KafkaPartition:
    name, position = positions.get(f"{topic}-{partition}", (topic, None))
    return {
        "topic": name,
        "partition": partition,
        "subtask": subtask,
        "position": None,
        "lag": None,
        "committed": None,
        "checkpointed": position,
    }


def _sum(lags: Iterable[int | None]) -> int | None:
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None
