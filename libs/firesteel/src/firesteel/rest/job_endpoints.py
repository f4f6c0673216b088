"""Endpoints that need only the archive of a job. The Dispatcher and the history server answer them alike."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from firesteel.rest import (
    checkpoint_views,
    event_views,
    kafka_views,
    latency_views,
    load_types,
    metric_views,
    operator_views,
    rescale_views,
    state_views,
    subtask_views,
    views,
)
from firesteel.rest import kafka_types as k
from firesteel.rest import types as t
from firesteel.rest.archive_cache import Archive
from firesteel.rest.endpoints import Parameter, RestCall, get

Answer = TypeVar("Answer")
JOB: Final = "/jobs/{job_id}"
VERTEX: Final = f"{JOB}/vertices/{{vertex_id}}"
_SUBTASK: Final = f"{VERTEX}/subtasks/{{subtask}}"
_CHECKPOINT: Final = f"{JOB}/checkpoints/details/{{checkpoint_id}}"

METRICS: Final = (
    Parameter("get", "ids of metrics, separated by commas; without it the answer lists the ids there are"),
)
AGGREGATES: Final = (
    *METRICS,
    Parameter("agg", "which of min, max, avg, sum, skew, separated by commas; default: all"),
)


class ArchiveReader(Protocol):
    """A service that has archives of jobs."""

    async def archive_of(self, job_id: str, vertex_id: str = "") -> Archive:
        """The archive of a job as it is, or as it ended, with the subtasks of a vertex if one is named."""


ArchiveHandler = Callable[[ArchiveReader, RestCall], Awaitable[Answer]]


def of_job(view: Callable[[Archive], Answer]) -> ArchiveHandler[Answer]:
    """A handler that shows a job."""

    @functools.wraps(view)
    async def handle(service: ArchiveReader, call: RestCall) -> Answer:
        return view(await service.archive_of(call.job_id))

    return handle


def of_vertex(view: Callable[[Archive, str], Answer]) -> ArchiveHandler[Answer]:
    """A handler that shows a vertex of a job."""

    @functools.wraps(view)
    async def handle(service: ArchiveReader, call: RestCall) -> Answer:
        return view(await service.archive_of(call.job_id, call.vertex_id), call.vertex_id)

    return handle


def of_query(view: Callable[[Archive, Mapping[str, str]], Answer]) -> ArchiveHandler[Answer]:
    """A handler that shows a part of a job, which the path and the query name."""

    @functools.wraps(view)
    async def handle(service: ArchiveReader, call: RestCall) -> Answer:
        return view(await service.archive_of(call.job_id, str(call.path.get("vertex_id", ""))), call.given())

    return handle


async def exceptions(service: ArchiveReader, call: RestCall) -> t.JobExceptions:
    labels = dict(pair.partition(":")[::2] for pair in call.query["failureLabelFilter"].split(",") if pair)
    return views.job_exceptions(await service.archive_of(call.job_id), call.query["maxExceptions"], labels)


async def job_accumulators(service: ArchiveReader, call: RestCall) -> t.JobAccumulators:
    """Counters of all user functions. Subtasks are read vertex by vertex: an archive holds those of one vertex."""
    rows: list[Mapping[str, Any]] = []
    for vertex in (await service.archive_of(call.job_id))["vertices"]:
        archive = await service.archive_of(call.job_id, vertex["id"])
        rows += views.find_vertex(archive, vertex["id"])["subtasks"]
    return subtask_views.job_accumulators(rows)


async def vertex_accumulators(service: ArchiveReader, call: RestCall) -> t.VertexAccumulators:
    archive = await service.archive_of(call.job_id, call.vertex_id)
    return subtask_views.vertex_accumulators(views.find_vertex(archive, call.vertex_id))


async def subtasks_accumulators(service: ArchiveReader, call: RestCall) -> t.SubtasksAccumulators:
    archive = await service.archive_of(call.job_id, call.vertex_id)
    return subtask_views.subtasks_accumulators(views.find_vertex(archive, call.vertex_id))


async def back_pressure(service: ArchiveReader, call: RestCall) -> load_types.BackPressure:
    archive = await service.archive_of(call.job_id, call.vertex_id)
    return subtask_views.back_pressure(views.find_vertex(archive, call.vertex_id), archive["now"])


async def kafka(service: ArchiveReader, call: RestCall) -> k.KafkaSources:
    """The Kafka sources of a job. Subtasks are read vertex by vertex: an archive holds those of one vertex."""
    vertex_ids = kafka_views.source_vertices(await service.archive_of(call.job_id))
    return kafka_views.kafka_sources([(id_, await service.archive_of(call.job_id, id_)) for id_ in vertex_ids])


async def subtask(service: ArchiveReader, call: RestCall) -> t.Subtask:
    """A subtask: its current attempt, or the one in the path."""
    archive = await service.archive_of(call.job_id, call.vertex_id)
    return views.subtask_attempt(archive, call.vertex_id, call.path["subtask"], call.path.get("attempt"))


async def attempt_accumulators(service: ArchiveReader, call: RestCall) -> t.AttemptAccumulators:
    archive = await service.archive_of(call.job_id, call.vertex_id)
    attempt = views.find_attempt(archive, call.vertex_id, call.path["subtask"], call.path["attempt"])
    return subtask_views.attempt_accumulators(call.vertex_id, attempt)


JOB_ENDPOINTS: Final = (
    get(JOB, of_job(views.job_details), "a job: state, plan, vertices"),
    get(f"{JOB}/config", of_job(views.job_config), "settings of a job"),
    get(f"{JOB}/plan", of_job(views.plan), "plan of a job"),
    get(
        f"{JOB}/exceptions", exceptions, "failures, the newest first",
        Parameter("maxExceptions", "most entries", "number", 10, least=1, most=10_000),
        Parameter("failureLabelFilter", "key:value, separated by commas: only failures with these", default=""),
    ),
    get(
        f"{JOB}/accumulators", job_accumulators, "counters of user functions, over all subtasks",
        Parameter("includeSerializedValue", "they have no serialized form", "flag", False),
    ),
    get(f"{JOB}/metrics", of_query(metric_views.job_metrics), "metrics of a job", *METRICS),
    get(
        f"{JOB}/events", of_job(event_views.job_events), "what has happened to a job, when, and who asked for it",
        ours=True,
    ),
)  # fmt: skip
CHECKPOINT_ENDPOINTS: Final = (
    get(f"{JOB}/checkpoints", of_job(checkpoint_views.checkpoints), "checkpoint statistics"),
    get(f"{JOB}/checkpoints/config", of_job(checkpoint_views.checkpoint_config), "checkpoint settings"),
    get(_CHECKPOINT, of_query(checkpoint_views.checkpoint_details), "one checkpoint, by vertex"),
    get(
        f"{_CHECKPOINT}/subtasks/{{vertex_id}}", of_query(checkpoint_views.checkpoint_subtasks),
        "one checkpoint of one vertex, by subtask",
    ),
)  # fmt: skip
STATE_ENDPOINTS: Final = (
    get(
        f"{JOB}/state", of_query(state_views.state_sizes),
        "size and number of keys of each state, and what has changed between two checkpoints",
        Parameter("checkpoint", "id; default: the last one that completed", "number", -1, least=-1, most=1 << 62),
        Parameter("base", "to compare with; default: the first known one", "number", -1, least=-1, most=1 << 62),
        ours=True,
    ),
    get(
        f"{JOB}/latencies", of_job(latency_views.latencies),
        "latency from sources to operators, as latency markers measure it", ours=True,
    ),
    get(f"{JOB}/kafka", kafka, "partitions that Kafka sources read: position, lag, committed offset", ours=True),
)  # fmt: skip
RESCALE_ENDPOINTS: Final = (
    get(f"{JOB}/resource-requirements", of_job(rescale_views.requirements), "bounds of the parallelism"),
    get(
        f"{JOB}/rescales/overview", of_job(rescale_views.rescales_overview),
        "how many there were, and the latest of each kind",
    ),
    get(
        f"{JOB}/rescales/history", of_job(rescale_views.rescales_history), "those that are kept, the newest first"
    ),
    get(
        f"{JOB}/rescales/details/{{rescale_id}}", of_query(rescale_views.rescale_details),
        "one, with the states of the scheduler",
    ),
    get(f"{JOB}/rescales/summary", of_job(rescale_views.rescales_summary), "how long they took"),
    get(f"{JOB}/rescales/config", of_job(rescale_views.rescales_config), "settings of reactive mode"),
)  # fmt: skip
VERTEX_ENDPOINTS: Final = (
    get(VERTEX, of_vertex(views.vertex_details), "subtasks of a vertex"),
    get(f"{VERTEX}/subtasktimes", of_vertex(views.subtask_times), "times of their states"),
    get(f"{VERTEX}/taskmanagers", of_vertex(views.vertex_taskmanagers), "a vertex by TaskManager"),
    get(f"{VERTEX}/accumulators", vertex_accumulators, "counters of its user functions"),
    get(f"{VERTEX}/subtasks/accumulators", subtasks_accumulators, "the same by subtask"),
    get(f"{VERTEX}/backpressure", back_pressure, "back pressure by subtask"),
    get(
        f"{VERTEX}/operators", of_vertex(operator_views.vertex_operators), "operators of its chain: records, own time",
        ours=True,
    ),
    get(f"{VERTEX}/watermarks", of_query(metric_views.vertex_watermarks), "watermarks of its inputs"),
    get(
        f"{VERTEX}/metrics", of_query(metric_views.vertex_metrics), "metrics, ids begin with the subtask", *METRICS
    ),
    get(
        f"{VERTEX}/subtasks/metrics", of_query(metric_views.subtask_metrics), "metrics over subtasks", *AGGREGATES,
        Parameter("subtasks", "indices and ranges such as 0,2-5; default: all"),
    ),
    get(f"{VERTEX}/jm-operator-metrics", of_query(metric_views.coordinator_metrics), "of enumerators: none", *METRICS),
    get(_SUBTASK, subtask, "a subtask: its current attempt"),
    get(f"{_SUBTASK}/attempts/{{attempt}}", subtask, "one of its attempts"),
    get(f"{_SUBTASK}/attempts/{{attempt}}/accumulators", attempt_accumulators, "counters of an attempt"),
    get(f"{_SUBTASK}/metrics", of_query(metric_views.one_subtask_metrics), "metrics of a subtask", *METRICS),
)  # fmt: skip
