"""The archive of a job: its ExecutionGraph as plain data, from which REST answers are made, also after its end."""

from __future__ import annotations

import base64
import functools
import json
import math
import zlib
from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from firesteel.common.job_status import JobStatus
from firesteel.core.state_machine import StateMachine
from firesteel.functions.metrics import OPERATOR_METRICS
from firesteel.graph.bounded import is_batch
from firesteel.graph.event_time import VertexEventTime
from firesteel.graph.execution_graph import Execution, ExecutionGraph, ExecutionJobVertex, FailureRecord
from firesteel.graph.execution_states import TERMINAL_STATES, ExecutionState, aggregate_state
from firesteel.graph.key_shares import KeyShare, largest_key
from firesteel.graph.latencies import VertexLatencies
from firesteel.graph.plan import job_plan
from firesteel.graph.stage_work import StageWork

T = TypeVar("T")
_COUNTERS = {
    "read-bytes": "numBytesIn",
    "write-bytes": "numBytesOut",
    "read-records": "numRecordsIn",
    "write-records": "numRecordsOut",
}
_TIMES = {
    "accumulated-backpressured-time": "backPressuredTimeMs",
    "accumulated-idle-time": "idleTimeMs",
    "accumulated-busy-time": "busyTimeMs",
}
TASK_METRICS = "task-metrics"
"""All metrics of a subtask by their ids, for the paths below ``/metrics``."""
COUNTERS = "counters"
"""Counters of a subtask's user functions, by their ids."""
CLEAN_UP = "checkpoint-clean-up"
"""What becomes of the checkpoints of a job that has ended (``firesteel.checkpoint.closing``); None = nothing."""
IF_CANCELLED = "checkpoint-clean-up-if-cancelled"
"""The same of a job without a leading JobMaster, for the case that it is cancelled before it has one."""
LOGS = "firesteel-logs"
"""Where the JobMaster's log of a job that has ended is: ``host``, and ``jobmaster``, its path there."""
HISTORY = "firesteel-history"
"""``environment`` and ``config`` of the cluster of a job that a history server shows."""
TASKMANAGERS = "firesteel-taskmanagers"
"""TaskManager id -> number of the job's live tasks there."""
TASKS = "firesteel-tasks"
"""Number of a batch vertex's subtasks that have something to do, chosen by the size of the input."""
SPARK = "firesteel-spark"
"""Spark's own page about the stage of a vertex in batch mode, if there is one (``firesteel.spark.ui.enabled``)."""
WORST = "firesteel-worst"
"""Of a vertex: its busiest and its most back-pressured subtask, the one whose event time is furthest behind, the ones
with the fullest input and output buffers (0 to 1), how unevenly records are spread over subtasks, total rates, and
``PENDING``."""
EVENT_TIME = "firesteel-event-time"
"""Of a vertex: ``subtask``, whose event time is furthest behind, with the progress of its ``inputs``
(``firesteel.graph.event_time``), each with the id of the vertex in front of it (``source``); ``idle``, numbers of
subtasks that are idle (the first ones), and ``idle-count``."""
STAGE_WORK = "firesteel-stage-work"
"""Of a vertex in batch mode: what its tasks have read, and how fast (``firesteel.graph.stage_work``)."""
SLOT = "firesteel-slot"
"""Of a subtask: number of its slot at the TaskManager, which names the slot's output there; -1 = it has no slot."""
REACTIVE = "firesteel-reactive"
"""Of a job in reactive mode: ``limits`` (vertex id -> largest parallelism), ``rescales`` (their counts, and the latest
rescales), ``config`` (as REST shows it)."""
PENDING = "pendingRecords"
"""Of a vertex's loads: records that its sources have yet to read, where their connector tells (Flink's metric)."""
RECENT_RESTARTS = "firesteel-restarts-in-last-hour"
"""Of a job: its restarts within the hour before ``now``."""
LATENCIES = "firesteel-latencies"
"""Of a vertex: how long latency markers took to it, by source (``firesteel.graph.latencies``)."""
EVENTS = "firesteel-events"
"""Of a job: what has happened to it, when, and at whose request (``firesteel.graph.job_events``)."""
_HOUR_MS = 3_600_000
_PENDING_END = f".{PENDING}"
ROWS_AT_ONCE = 200
"""Subtasks whose rows are made in one slice and packed into one text."""
_LOADS = {"busy": "busyTimeMsPerSecond", "backPressured": "backPressuredTimeMsPerSecond"}
_POOLS = {"inPool": "buffers.inPoolUsage", "outPool": "buffers.outPoolUsage"}
_RATES = ("numRecordsInPerSecond", "numRecordsOutPerSecond", "numBytesInPerSecond", "numBytesOutPerSecond")
_LIVE = frozenset(
    {ExecutionState.DEPLOYING, ExecutionState.INITIALIZING, ExecutionState.RUNNING, ExecutionState.CANCELING}
)
_VALUES = {state: state.value for state in ExecutionState}
_DOWN = (JobStatus.FAILING, JobStatus.RESTARTING, JobStatus.CANCELLING)
_FAILED = (JobStatus.FAILING, JobStatus.FAILED)
_TIMED_STATES = (
    ExecutionState.CREATED,
    ExecutionState.SCHEDULED,
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
)
WAITING = "firesteel-waiting-for"
"""Why the slots that a job waits for do not come."""


def archive_of(graph: ExecutionGraph, plan: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the archive of a job, made without pauses; see ``archive_in_slices``."""
    return at_once(archive_in_slices(graph, plan))


def at_once(slices: Generator[None, None, T]) -> T:
    """Run a generator that works in slices to its end, without pauses, and return its result."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: T = end.value
            return result


def archive_in_slices(
    graph: ExecutionGraph, plan: Mapping[str, Any] | None = None, wanted: Collection[str] | None = None
) -> Generator[None, None, dict[str, Any]]:
    """Make the archive of a job, with Flink's names of fields.

    Times are epoch milliseconds; -1 = not yet, 0 in ``timestamps`` = never. A large job is archived in slices, so that
    the event loop can serve other calls in between. The rows of subtasks are packed, so that they are cheap to send and
    to keep; ``with_rows`` unpacks them.

    Args:
        graph: the job's ExecutionGraph.
        plan: plan of its JobGraph, if it was made before.
        wanted: ids of the vertices whose rows of subtasks are to be included; None = all. Figures of a vertex as a
            whole are always included.

    Returns:
        The archive.
    """
    now = graph.clock.epoch_ms()
    vertices, at = [], Counter[str]()
    keys: dict[str, list[KeyShare]] = {}
    for vertex in graph.vertices.values():
        vertices.append(
            (yield from _vertex(graph, vertex, now, at, keys, wanted is None or vertex.vertex.id in wanted))
        )
    _add_largest_keys(vertices, keys)
    job = graph.job_graph
    stamps = job_timestamps(graph)
    end = stamps[graph.state.name] if graph.is_terminal else -1
    start = stamps[JobStatus.INITIALIZING.name]
    root = graph.root_failure
    return {
        "jid": job.job_id,
        "name": job.name,
        "state": graph.state.name,
        "isStoppable": False,
        "job-type": "BATCH" if is_batch(job) else "STREAMING",
        "start-time": start,
        "end-time": end,
        "duration": (end if end >= 0 else now) - start,
        "net-runtime": _net_runtime(stamps, end if end >= 0 else now),
        "now": now,
        "maxParallelism": _max_parallelism(job.config),
        "timestamps": stamps,
        "plan": dict(plan if plan is not None else job_plan(job)),
        "vertices": vertices,
        "status-counts": {**dict.fromkeys(_VALUES.values(), 0), **Counter(v["status"] for v in vertices)},
        TASKMANAGERS: dict(at),
        "exceptions": [
            {
                **_failure(f.root),
                "answer": f.answer,
                "concurrent": [_failure(record) for record in f.concurrent],
                **({} if f.repeats is None else {"repeats": asdict(f.repeats)}),
            }
            for f in graph.failures
        ],
        "exceptions-dropped": graph.failures_dropped,
        "failure": dict(root.failure) if root is not None and graph.state in _FAILED else None,
        "restarts": restart_times(graph, end if end >= 0 else now),
        RECENT_RESTARTS: sum(now - at_ms < _HOUR_MS for at_ms in graph.restarted_ms),
        "config": dict(job.config),
        **({WAITING: graph.waiting_reason} if graph.waiting_reason and not graph.is_terminal else {}),
    }


def unpacked(text: str) -> list[Any]:
    """Return the rows in one packed text, as ``pack`` made it.

    Raises:
        ValueError: the text is not of that form.
    """
    try:
        rows: list[Any] = json.loads(zlib.decompress(base64.b64decode(text)))
    except zlib.error as error:
        raise ValueError(f"malformed rows: {error}") from error
    return rows


def with_rows(archive: Mapping[str, Any], vertex_id: str) -> Generator[None, None, dict[str, Any]]:
    """Return an archive in which the rows of one vertex are unpacked, and those of all others left out; in slices."""
    vertices = []
    for vertex in archive.get("vertices", ()):
        rows: list[Mapping[str, Any]] = []
        for packed in vertex["subtasks"] if vertex["id"] == vertex_id else ():
            if isinstance(packed, str):
                rows += unpacked(packed)
                yield
            else:
                rows.append(packed)
        vertices.append({**vertex, "subtasks": rows})
    return {**archive, "vertices": vertices}


def acknowledgements(figures: Mapping[str, Sequence[int]] | Sequence[str]) -> dict[int, Sequence[int]]:
    """Return the figures of each subtask's acknowledgement of a checkpoint, by subtask.

    Args:
        figures: either by subtask, or packed rows (large jobs) whose first element is the subtask.

    Raises:
        ValueError: ``figures`` have neither form.
    """
    if isinstance(figures, Mapping):
        return {int(subtask): values for subtask, values in figures.items()}
    rows: list[list[int]] = [row for text in figures for row in unpacked(text)]
    return {row[0]: row[1:] for row in rows}


def pack(rows: Sequence[Any]) -> str:
    """Return rows as one compressed text, which is cheap to send and to keep; ``unpacked`` reverses it."""
    return base64.b64encode(zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 1)).decode()


def job_timestamps(graph: ExecutionGraph) -> dict[str, int]:
    """Return for every job state when it was last entered, in epoch ms; 0 = never."""
    return {state.name: graph.job.entered_ms.get(state, 0) for state in JobStatus}


def restart_times(graph: ExecutionGraph, now: int) -> dict[str, int]:
    """Return a job's metrics about restarts, by Flink's names; times in ms."""
    stamps, state = job_timestamps(graph), graph.state
    up = now - stamps[JobStatus.RUNNING.name] if state is JobStatus.RUNNING else 0 if not graph.is_terminal else -1
    since = max((stamps[s.name] for s in _DOWN), default=0)
    down = now - since if state in _DOWN and since else 0 if not graph.is_terminal else -1
    return {
        "numRestarts": graph.restarts,
        "fullRestarts": graph.restarts,
        "uptime": up,
        "downtime": down,
        "restartingTime": graph.restarting_ms(now),
    }


def _net_runtime(stamps: Mapping[str, int], end: int) -> int:
    """Time since the submission, restarts included, as in Flink; 0 = the job has never been ``RUNNING``."""
    return max(0, end - stamps[JobStatus.INITIALIZING.name]) if stamps[JobStatus.RUNNING.name] else 0


def _max_parallelism(config: Mapping[str, str]) -> int:
    try:
        return int(config.get("pipeline.max-parallelism", -1))
    except ValueError:
        return -1


def _failure(record: FailureRecord) -> dict[str, Any]:
    return {
        **record.failure,
        "timestamp": record.timestamp_ms,
        "taskName": record.task_name,
        "endpoint": record.endpoint,
        "taskManagerId": record.taskmanager_id,
    }


class _Loads:
    """Load of a vertex's live subtasks: the worst of them, and sums and averages over all."""

    def __init__(self) -> None:
        self._worst: dict[str, dict[str, float]] = {}
        self._rates = dict.fromkeys(_RATES, 0.0)
        self._averages = dict.fromkeys(_LOADS.values(), 0.0)
        self._live, self._count, self._read, self._read_squares = 0, 0, 0.0, 0.0
        self._pending: float | None = None

    def add(self, subtask: int, metrics: Mapping[str, Any], user_metrics: Mapping[str, Any]) -> None:
        for key, name in _LOADS.items():
            value = metrics.get(name, 0)
            self._averages[name] += value
            if key not in self._worst or value > self._worst[key]["value"]:
                self._worst[key] = {"value": value, "subtask": subtask}
        for key, name in _POOLS.items():
            if name in metrics and (key not in self._worst or metrics[name] > self._worst[key]["value"]):
                self._worst[key] = {"value": metrics[name], "subtask": subtask}
        watermark = metrics.get("currentInputWatermark", metrics.get("currentOutputWatermark"))
        if watermark is not None and watermark < self._worst.get("watermark", {"value": math.inf})["value"]:
            self._worst["watermark"] = {"value": watermark, "subtask": subtask}
        for name in _RATES:
            self._rates[name] += metrics.get(name, 0)
        for name, value in user_metrics.items():
            if name.endswith(_PENDING_END) and isinstance(value, int | float) and value >= 0:
                self._pending = (self._pending or 0) + value
        self._live += 1
        self.add_read(metrics)

    def add_read(self, metrics: Mapping[str, Any]) -> None:
        """Count a subtask for the skew only, which includes subtasks that have ended."""
        read = metrics.get("numRecordsIn", 0)
        self._count, self._read, self._read_squares = self._count + 1, self._read + read, self._read_squares + read**2

    def shown(self) -> dict[str, Any]:
        """Return the figures as REST shows them; empty if no subtask was counted."""
        if not self._count:
            return {}
        mean = self._read / self._count
        deviation = math.sqrt(max(0.0, self._read_squares / self._count - mean**2))
        skew = {"skew": deviation / mean * 100 if mean else 0.0}
        if not self._live:
            return skew
        averages = {name: total / self._live for name, total in self._averages.items()}
        pending = {} if self._pending is None else {PENDING: self._pending}
        return {**self._worst, **self._rates, **averages, **skew, **pending}


@dataclass
class _Sums:
    """Sums over the current attempts of a vertex.

    Attributes:
        keeps_read: whether attempts that have ended still count for the skew (batch mode).
        began_by: state with which an attempt begins.
        states: number of attempts in each state.
        first, last: when the first attempt began and the last one ended, in epoch ms; -1 = none has.
        totals: sums of metrics.
        complete: whether the metrics of all attempts are final.
        loads: load of the live attempts.
        event_time: of the live attempts.
    """

    keeps_read: bool = False
    began_by: ExecutionState = ExecutionState.DEPLOYING
    states: Counter[ExecutionState] = field(default_factory=Counter)
    first: int = -1
    last: int = -1
    totals: dict[str, float] = field(default_factory=lambda: dict.fromkeys((*_COUNTERS, *_TIMES), 0))
    complete: bool = True
    loads: _Loads = field(default_factory=lambda: _Loads())
    event_time: VertexEventTime = field(default_factory=VertexEventTime)
    latencies: VertexLatencies = field(default_factory=VertexLatencies)

    def add(self, execution: Execution, at: Counter[str], keys: dict[str, list[KeyShare]]) -> None:
        """Add an attempt; ``at`` counts live attempts by TaskManager, ``keys`` gets their largest keys by reader."""
        state, slot = execution.state, execution.slot
        self.states[state] += 1
        if state in _LIVE and slot is not None:
            at[slot.taskmanager_id] += 1
        entered = execution.machine.entered_ms
        start = entered.get(self.began_by, -1)
        if start >= 0 and (self.first < 0 or start < self.first):
            self.first = start
        if state in TERMINAL_STATES:
            self.last = max(self.last, entered[state])
        self.complete = self.complete and execution.metrics_complete
        if execution.latencies:
            self.latencies.add(execution.latencies)
        if execution.metrics:
            for name, value in _totals(execution).items():
                self.totals[name] += value
            if state in _LIVE:
                self.loads.add(execution.subtask, execution.metrics, execution.user_metrics)
                self.event_time.add(execution.subtask, execution.event_time)
                for share in execution.key_shares:
                    keys.setdefault(share.target, []).append(share)
            elif self.keeps_read:
                self.loads.add_read(execution.metrics)


def _link(graph: ExecutionGraph, job_vertex: ExecutionJobVertex) -> dict[str, str]:
    """Link to Spark's own page about a vertex; empty once Spark has ended or if it has none."""
    if not graph.spark_pages or job_vertex.spark_stage is None or graph.is_terminal:
        return {}
    return {SPARK: f"{graph.spark_pages}/stages/stage/?id={job_vertex.spark_stage}&attempt=0"}


def _began_by(graph: ExecutionGraph) -> ExecutionState:
    """The state with which a task begins: stages of a batch job are deployed together, but run one after the other."""
    return ExecutionState.RUNNING if is_batch(graph.job_graph) else ExecutionState.DEPLOYING


def _vertex(
    graph: ExecutionGraph,
    job_vertex: ExecutionJobVertex,
    now: int,
    at: Counter[str],
    keys: dict[str, list[KeyShare]],
    include_rows: bool,
) -> Generator[None, None, dict[str, Any]]:
    vertex, sums, packed = job_vertex.vertex, _Sums(job_vertex.tasks is not None, _began_by(graph)), list[str]()
    for first in range(0, vertex.parallelism, ROWS_AT_ONCE):
        subtasks = job_vertex.subtasks[first : first + ROWS_AT_ONCE]
        for subtask in subtasks:
            sums.add(subtask.current, at, keys)
        if include_rows:
            rows = [
                {
                    **_row(subtask.current, now, sums.began_by),
                    "attempts": [_row(former, now, sums.began_by) for former in subtask.attempts[:-1]],
                }
                for subtask in subtasks
            ]
            packed.append(pack(rows))
        if vertex.parallelism > ROWS_AT_ONCE:
            yield
    work = None
    if is_batch(graph.job_graph):
        work = StageWork()
        for execution in job_vertex.executions():
            work.add(execution, now)
    ended = sum(sums.states[state] for state in TERMINAL_STATES) == vertex.parallelism
    return {
        "id": vertex.id,
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "maxParallelism": vertex.max_parallelism,
        "slotSharingGroupId": vertex.slot_sharing_group,
        "status": aggregate_state(sums.states, vertex.parallelism).value,
        "start-time": sums.first,
        "end-time": sums.last if ended else -1,
        "duration": _duration(sums.first, sums.last if ended else -1, now),
        "tasks": {value: sums.states[state] for state, value in _VALUES.items()},
        "metrics": _shown(sums.totals, sums.complete),
        WORST: sums.loads.shown(),
        **_event_time(graph, sums.event_time),
        **({LATENCIES: shown} if (shown := sums.latencies.shown()) else {}),
        **({} if job_vertex.tasks is None else {TASKS: job_vertex.tasks}),
        **({} if work is None else {STAGE_WORK: work.figures()}),
        **_link(graph, job_vertex),
        "subtasks": packed,
    }


def _add_largest_keys(vertices: list[dict[str, Any]], keys: Mapping[str, Sequence[KeyShare]]) -> None:
    """Add to ``WORST`` of vertices the largest key that they get, which the vertices in front of them know."""
    for vertex in vertices:
        largest = largest_key(keys.get(vertex["id"], ()))
        if largest is not None and vertex[WORST]:
            vertex[WORST]["hotKey"] = largest


def _event_time(graph: ExecutionGraph, event_time: VertexEventTime) -> dict[str, Any]:
    """The field ``EVENT_TIME`` of a vertex; empty if nothing was reported."""
    shown, edges = event_time.shown(), graph.job_graph.edges
    for row in shown.get("inputs", ()):
        edge = row.pop("edge", -1)
        if 0 <= edge < len(edges):
            row["source"] = edges[edge].source
    return {EVENT_TIME: shown} if shown else {}


def _row(execution: Execution, now: int, began_by: ExecutionState) -> dict[str, Any]:
    machine, state, slot = execution.machine, execution.state, execution.slot
    entered = machine.entered_ms
    start = entered.get(began_by, -1)
    end = entered[state] if state in TERMINAL_STATES else -1
    return {
        "subtask": execution.subtask,
        "status": _VALUES[state],
        "attempt": execution.attempt,
        "endpoint": slot.endpoint if slot else "(unassigned)",
        "taskmanager-id": slot.taskmanager_id if slot else "(unassigned)",
        SLOT: slot.slot_index if slot else -1,
        "start-time": start,
        "start_time": start,
        "end-time": end,
        "duration": _duration(start, end, now),
        "metrics": _shown(_totals(execution), execution.metrics_complete),
        TASK_METRICS: {**execution.metrics, **_of_operators(execution), **execution.user_metrics},
        COUNTERS: {n: execution.user_metrics[n] for n in execution.user_counters if n in execution.user_metrics},
        "status-duration": _status_durations(machine, now),
        "timestamps": {value: entered.get(state, 0) for state, value in _VALUES.items()},
    }


def _duration(start: int, end: int, now: int) -> int:
    return -1 if start < 0 else (end if end >= 0 else now) - start


def _status_durations(machine: StateMachine[ExecutionState], now: int) -> dict[str, int]:
    left_ms = {move.before: move.at_ms for move in machine.history}
    entered = machine.entered_ms
    return {_VALUES[s]: left_ms.get(s, now) - entered[s] if s in entered else -1 for s in _TIMED_STATES}


def _of_operators(execution: Execution) -> dict[str, float]:
    """Metrics of an attempt's operators by their ids, as ``<operator>.numRecordsIn``."""
    return {
        key: value
        for name, values in execution.operator_metrics.items()
        for key, value in zip(_ids_of(name), values, strict=False)
    }


@functools.lru_cache(maxsize=10_000)
def _ids_of(operator: str) -> tuple[str, ...]:
    return tuple(f"{operator}.{name}" for name in OPERATOR_METRICS)


def _totals(execution: Execution) -> dict[str, float]:
    metrics = execution.metrics
    return {name: metrics.get(ours, 0) for name, ours in (*_COUNTERS.items(), *_TIMES.items())}


def _shown(totals: Mapping[str, float], complete: bool) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in _COUNTERS:
        values[name] = int(totals[name])
        values[f"{name}-complete"] = complete
    for name in _TIMES:
        values[name] = float(totals[name]) if name == "accumulated-busy-time" else int(totals[name])
    return values
