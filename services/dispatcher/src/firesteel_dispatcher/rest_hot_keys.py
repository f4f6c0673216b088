"""The most frequent keys that a vertex gets: asked of the slots that send them, where keys become texts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from firesteel.graph.job_archive import TASKMANAGERS
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import InspectionGateway
from firesteel.rest import load_types as t
from firesteel.rest import views
from firesteel.rest.endpoints import RestCall
from firesteel_dispatcher.job import ENDED
from firesteel_dispatcher.shell import DispatcherService

_PATIENCE: Final = 10.0
"""Seconds that a TaskManager has to answer."""
_SHORTEST_ERROR: Final = 200


async def hot_keys(service: DispatcherService, call: RestCall) -> t.VertexHotKeys:
    """The most frequent keys that a vertex gets, and the subtasks to which they go; none once the job has ended."""
    archive = await service.archive_of(call.job_id)
    vertex = views.find_vertex(archive, call.vertex_id)
    nodes = archive["plan"]["nodes"]
    senders = tuple({row["id"] for node in nodes if node["id"] == call.vertex_id for row in node.get("inputs", ())})
    most = call.query["most"]
    if archive["state"] in ENDED or not senders:
        return merged(vertex, (), most)
    cluster = await service.coordinators.overview()
    homes = archive.get(TASKMANAGERS, {})
    gateways = [
        InspectionGateway(service.client, str(row["path"]), timeout=_PATIENCE)
        for row in cluster.taskmanagers
        if row["id"] in homes
    ]
    message = m.FindHotKeys(call.job_id, senders, most)
    answers = await asyncio.gather(*(gateway.find_hot_keys(message) for gateway in gateways), return_exceptions=True)
    return merged(vertex, answers, most)


def merged(vertex: Mapping[str, Any], answers: Iterable[m.HotKeys | BaseException], most: int) -> t.VertexHotKeys:
    """The keys of all senders together.

    Args:
        vertex: the vertex that reads.
        answers: of TaskManagers; errors are told as problems.
        most: number of keys.
    """
    problems: list[str] = []
    outputs: list[Mapping[str, Any]] = []
    for answer in answers:
        if isinstance(answer, m.HotKeys):
            outputs += [row for row in answer.outputs if row.get("target") == vertex["id"]]
            problems += answer.failures
        else:
            problems.append(str(answer)[:_SHORTEST_ERROR])
    records = sum(float(row["records"]) for row in outputs)
    by_key: dict[tuple[str, int], float] = {}
    for row in outputs:
        for text, count, subtask in row["keys"]:
            by_key[str(text), int(subtask)] = by_key.get((str(text), int(subtask)), 0.0) + float(count)
    problems += [str(row["refusal"]) for row in outputs if row.get("refusal")]
    return {
        "id": vertex["id"],
        "name": vertex["name"],
        "parallelism": vertex["parallelism"],
        "records": round(records, 1),
        "lost": round(sum(float(row["lost"]) for row in outputs), 1),
        "keys": _largest(by_key, records, most),
        "problems": list(dict.fromkeys(problems)),
    }


def _largest(by_key: Mapping[tuple[str, int], float], records: float, most: int) -> list[t.HotKeyInfo]:
    largest = sorted(by_key.items(), key=lambda item: (-item[1], item[0]))[:most]
    return [
        {"key": text, "share": round(min(1.0, count / records), 4), "records": round(count, 1), "subtask": subtask}
        for (text, subtask), count in largest
        if records
    ]
