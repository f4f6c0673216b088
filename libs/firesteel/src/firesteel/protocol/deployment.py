"""Deployments, which a JobMaster sends through TaskManagers to slots, and the failures of tasks that come back."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import accumulate
from typing import Any


@dataclass(frozen=True)
class TaskDescriptor:
    """One subtask to run.

    Attributes:
        execution_id: ``<vertex>_<subtask>_<attempt>``.
        vertex_id, vertex_name, subtask, parallelism, max_parallelism, attempt: of the subtask.
        chain: SHA-256 of the blob with the pickled ``ChainSpec``.
        is_source, needs_commit: as in the vertex.
        restore: plain ``firesteel.checkpoint.assign.TaskRestore``, the state to start from; None = there is none.
        readers: parallelism of the source, for a task that runs a user's enumerator.
    """

    execution_id: str
    vertex_id: str
    vertex_name: str
    subtask: int
    parallelism: int
    max_parallelism: int
    attempt: int
    chain: str
    is_source: bool
    needs_commit: bool
    restore: Mapping[str, Any] | None = None
    readers: int = 0


@dataclass(frozen=True)
class EdgeDescriptor:
    """An edge that touches a task of the deployment; connectivity follows from ``firesteel.graph.physical``.

    ``max_parallelism`` is the consumer's: the number of key groups over which a HASH edge spreads records.
    ``source_name`` is the name of the vertex ``source``, for the log.
    """

    index: int
    source: str
    target: str
    input_index: int
    partitioner: str
    up_parallelism: int
    down_parallelism: int
    max_parallelism: int
    buffer_timeout_ms: int
    source_name: str = ""


@dataclass(frozen=True)
class Placement:
    """Where subtasks run. All tasks of a pipelined region share it, so it is packed, and travels, only once.

    Attributes:
        slots: vertex id -> subtask -> allocation id of its slot.
        peers: allocation id -> data address (``{"unix": path, "node": id, "tcp": [host, port]}``, see the exchange).
    """

    slots: Mapping[str, Mapping[int, str]]
    peers: Mapping[str, Mapping[str, Any]]

    @cached_property
    def packed(self) -> str:
        """The placement as text: compressed JSON. Numbers that mostly follow one another are stored as their
        differences, which compress to almost nothing."""
        index = {allocation: number for number, allocation in enumerate(self.peers)}
        plain = {
            "peers": list(self.peers.items()),
            "slots": {
                v: [_steps(placed), _steps([index[a] for a in placed.values()])] for v, placed in self.slots.items()
            },
        }
        return base64.b64encode(zlib.compress(json.dumps(plain, separators=(",", ":")).encode())).decode()

    @cached_property
    def id(self) -> str:
        """SHA-256 of the packed text."""
        return hashlib.sha256(self.packed.encode()).hexdigest()

    @classmethod
    def unpack(cls, text: str) -> Placement:
        """The inverse of ``packed``.

        Raises:
            ValueError: the text is no packed placement.
        """
        try:
            plain = json.loads(zlib.decompress(base64.b64decode(text)))
            peers = [(str(allocation), address) for allocation, address in plain["peers"]]
            slots = {
                str(vertex): {
                    subtask: peers[number][0] for subtask, number in zip(*map(accumulate, placed), strict=True)
                }
                for vertex, placed in plain["slots"].items()
            }
        except (zlib.error, KeyError, TypeError, IndexError) as error:
            raise ValueError(f"malformed placement: {type(error).__name__}: {error}") from error
        return cls(slots, dict(peers))


def _steps(numbers: Iterable[int]) -> list[int]:
    """The first number, and the difference of each to the next; ``accumulate`` is the inverse."""
    previous, steps = 0, []
    for number in numbers:
        steps.append(number - previous)
        previous = number
    return steps


@dataclass(frozen=True)
class Deployment:
    """All subtasks of one slot, of one attempt of the job.

    Attributes:
        job_id, job_name, job_attempt: of the job; attempts count its restarts, from 0, and channels refuse old ones.
        salt: of the job's attempt; ``secret`` is derived from it and the cluster's secret.
        secret: of the data plane's handshake (hex); filled in by the TaskManager, so that it is never on the network.
        tasks: tasks to run in this slot.
        edges: edges that touch these tasks.
        placement: of all subtasks with which the slot's tasks exchange records.
        blobs: SHA-256 -> local path; filled in by the TaskManager.
        main_blob, python_path, python_files: as in the JobGraph.
        config: effective settings, text to text.
        managed_memory: bytes for the state backends of all tasks of the slot together; filled in by the TaskManager; 0
            = its memory is not configured.
        local_directories: directories for local copies of the job's state; filled in by the TaskManager; empty = beside
            its blobs.
        trace: where traces are on: ``traceparent`` of the span above those of the tasks' attempts, and ``reporters``,
            plain ``OtlpReporter``s; ``metrics``: such reporters for meters of functions. Empty = nothing is exported.
    """

    job_id: str
    job_name: str
    job_attempt: int
    salt: str
    tasks: tuple[TaskDescriptor, ...]
    edges: tuple[EdgeDescriptor, ...]
    placement: Placement
    blobs: Mapping[str, str]
    main_blob: str | None
    python_path: tuple[str, ...]
    config: Mapping[str, str] = field(default_factory=dict)
    python_files: tuple[str, ...] = ()
    secret: str = field(default="", repr=False)
    managed_memory: int = 0
    local_directories: tuple[str, ...] = ()
    trace: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def to_plain(self) -> dict[str, Any]:
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            **plain,
            "tasks": [asdict(task) for task in self.tasks],
            "edges": [asdict(edge) for edge in self.edges],
            "placement": self.placement.packed,
            "blobs": dict(self.blobs),
            "config": dict(self.config),
            "trace": dict(self.trace),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Deployment:
        """The inverse of ``to_plain``."""
        return cls(
            **{
                **plain,
                "tasks": tuple(TaskDescriptor(**t) for t in plain["tasks"]),
                "edges": tuple(EdgeDescriptor(**e) for e in plain["edges"]),
                "placement": Placement.unpack(plain["placement"]),
                "python_path": tuple(plain["python_path"]),
                "python_files": tuple(plain["python_files"]),
                "local_directories": tuple(plain.get("local_directories", ())),
            }
        )


@dataclass(frozen=True)
class TaskFailure:
    """The failure of a task.

    Attributes:
        kind: ``user`` (the user's function, or the program's input), ``type`` (a record against its declared type),
            ``internal`` (our bug), ``external`` (a peer, a slot or the machine), ``cancel`` (the task did not end).
        error_class: qualified class name of the exception.
        message: text of the exception.
        traceback: for ``user`` only the user's frames; else all.
        operator, vertex_name, subtask, attempt: place of the failure.
        record: shortened repr of the record that was processed, or of the window and its key; None: neither.
        pickled: base64 of the pickled exception if it could be pickled, else None; only clients unpickle it.
        recoverable: another attempt may succeed; where not, the job is not restarted.
    """

    kind: str
    error_class: str
    message: str
    traceback: str
    operator: str = ""
    vertex_name: str = ""
    subtask: int = -1
    attempt: int = 0
    record: str | None = None
    pickled: str | None = None
    recoverable: bool = True

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> TaskFailure:
        """The inverse of ``to_plain``."""
        return cls(**plain)


METRIC_TOTALS = (
    "numRecordsIn",
    "numRecordsOut",
    "numBytesIn",
    "numBytesOut",
    "busyTimeMs",
    "idleTimeMs",
    "backPressuredTimeMs",
)
"""Running totals that a slot reports for each task."""
METRIC_RATES = {name: f"{name}PerSecond" for name in METRIC_TOTALS}
"""Totals -> their rates, which a slot reports as well: over the last minute, or since the start of the task."""
POOL_USAGES = ("buffers.inPoolUsage", "buffers.outPoolUsage")
"""Use of the fullest channel in front of a task, and of the fullest behind it: 0 to 1, or a bit more."""
QUEUE_SIZES = ("buffers.inputQueueSize", "buffers.outputQueueSize")
"""Bytes in all of these channels."""
CHECKPOINT_TIMES = ("checkpointAlignmentTime", "checkpointStartDelayNanos")
"""Times of the last checkpoint, in nanoseconds."""
METRIC_NAMES = (
    *METRIC_TOTALS,
    *METRIC_RATES.values(),
    *POOL_USAGES,
    *QUEUE_SIZES,
    *CHECKPOINT_TIMES,
    "isBackPressured",
    "currentInputWatermark",
    "currentOutputWatermark",
)
"""All metrics that a slot reports for each task: totals, rates, gauges and watermarks.

Sources have no ``currentInputWatermark``; tasks with two inputs have ``currentInput1Watermark`` and so on as well.
"""
