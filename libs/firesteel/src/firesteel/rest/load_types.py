"""What requests and answers about the load of vertices and their event time are made of; see ``types``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

Id = Annotated[str, Meta(pattern="^[0-9a-f]{32}$", description="32 hex digits")]
Number = float | int | Literal["NaN", "Infinity", "-Infinity"]
Level = Literal["ok", "low", "high"]


class WorstSubtask(TypedDict):
    value: float
    subtask: int


class WorstSubtasks(TypedDict, total=False):
    busy: WorstSubtask
    backPressured: WorstSubtask
    watermark: WorstSubtask
    inPool: WorstSubtask
    outPool: WorstSubtask
    hotKey: WorstSubtask
    skew: float
    numRecordsInPerSecond: float
    numRecordsOutPerSecond: float
    numBytesInPerSecond: float
    numBytesOutPerSecond: float
    busyTimeMsPerSecond: float
    backPressuredTimeMsPerSecond: float
    pendingRecords: float


OperatorRow = TypedDict(
    "OperatorRow",
    {
        "name": str,
        "records-in": int,
        "records-out": int,
        "records-in-per-second": Number,
        "records-out-per-second": Number,
        "own-time-ms": Number,
        "own-time-ms-per-second": Number,
        "busiest": WorstSubtask,
        "late-records": NotRequired[int],
    },
)

VertexOperators = TypedDict(
    "VertexOperators",
    {"id": Id, "name": str, "now": int, "busy-time-ms-per-second": Number, "operators": list[OperatorRow]},
)


class InputProgress(TypedDict):
    input: int
    members: int
    idle: int
    ended: int
    all_idle: NotRequired[bool]
    watermark: NotRequired[int]
    ahead: NotRequired[int]
    still_ms: NotRequired[int]
    source: NotRequired[Id]
    subtask: NotRequired[int]
    split: NotRequired[str]
    silent_ms: NotRequired[int]
    idleness: NotRequired[bool]


EventTime = TypedDict(
    "EventTime",
    {
        "subtask": NotRequired[int],
        "inputs": NotRequired[list[InputProgress]],
        "idle": NotRequired[list[int]],
        "idle-count": NotRequired[int],
    },
)


class WatermarkHold(TypedDict):
    vertex: Id
    subtask: int
    cause: Id
    causeSubtask: int
    text: str


class HotKeyInfo(TypedDict):
    key: str
    share: float
    records: float
    subtask: int


class VertexHotKeys(TypedDict):
    id: Id
    name: str
    parallelism: int
    records: float
    lost: float
    keys: list[HotKeyInfo]
    problems: list[str]


SubtaskBackPressure = TypedDict(
    "SubtaskBackPressure",
    {
        "subtask": int,
        "attempt-number": int,
        "backpressureLevel": Level,
        "backpressure-level": Level,
        "ratio": Number,
        "idleRatio": Number,
        "busyRatio": Number,
        "other-concurrent-attempts": NotRequired[list[Any] | None],
    },
)
BackPressure = TypedDict(
    "BackPressure",
    {
        "status": Literal["ok", "deprecated"],
        "backpressureLevel": NotRequired[Level],
        "backpressure-level": NotRequired[Level],
        "end-timestamp": NotRequired[int],
        "subtasks": NotRequired[list[SubtaskBackPressure]],
    },
)
