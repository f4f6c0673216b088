"""Stages of bounded jobs as they travel from the JobMaster to the fleet, and what comes back. Plain data.

A *run* is one Spark job: all stages of a job, or the one that commits what they have prepared. The fleet obeys: which
task reads what was decided by the JobMaster. What a stage does stands in ``Stage.task``, which only the tasks read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from firesteel.graph.bounded import Sizing

Places = Mapping[str, tuple[int, int]]
"""By executor: cores of it that a run may take, as many as its job has slots there, and those of all slots there."""
FAILURE: Final = "FIRESTEEL_FAILURE "
"""In front of a plain ``TaskFailure`` in what a task raises: Spark does not try it again (``SlotsClusterManager``)."""
PRINTED: Final = "printed"
"""Beside the fields of that ``TaskFailure``: what user code had printed, as pairs of a stream's byte and text."""
REPORT, COLLECTED, STDOUT, STDERR = b"R"[0], b"C"[0], b"O"[0], b"E"[0]
"""First byte of what a task tells: JSON about itself, results for the client (their number in 8 bytes, then a pickled
list), what it printed."""


@dataclass(frozen=True)
class StageTaskInput:
    """What one task of a stage reads.

    Attributes:
        own: what it is told itself; None = it reads outputs of other stages.
        plain: pieces without keys, in order: number of the input, number in ``Stage.reads``, first partition, the one
            behind the last.
        keyed: pieces with keys, in the same form; of all of them adjacent partitions come together.
    """

    own: str | None = None
    plain: tuple[tuple[int, int, int, int], ...] = ()
    keyed: tuple[tuple[int, int, int, int], ...] = ()


@dataclass(frozen=True)
class Stage:
    """A stage.

    Attributes:
        id: of the vertex.
        name: for people.
        reads: ids of the stages whose outputs it reads.
        tasks: one for each; with ``sizing`` the smallest ones that there can be: those that are adjacent are put
            together when the fleet learns how much they read.
        partitions: of its output; what it reports goes into the last one.
        task: what its tasks do, for ``firesteel.runtime.bounded``.
        sizing: how its tasks are made of ``tasks``; None: they are its tasks.
        bucket_bytes: of input with keys that a task gets at once, as it is in the shuffle, but for a key group that has
            more.
    """

    id: str
    name: str
    reads: tuple[str, ...]
    tasks: tuple[StageTaskInput, ...]
    partitions: int
    task: Mapping[str, Any] = field(default_factory=dict)
    sizing: Sizing | None = None
    bucket_bytes: int = 0

    def to_plain(self) -> dict[str, Any]:
        tasks = [{"own": t.own, "plain": t.plain, "keyed": t.keyed} for t in self.tasks]
        return {
            "id": self.id, "name": self.name, "reads": self.reads, "tasks": tasks, "partitions": self.partitions,
            "task": dict(self.task), "sizing": self.sizing, "bucket_bytes": self.bucket_bytes,
        }  # fmt: skip

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Stage:
        """Read what ``to_plain`` gave."""
        tasks = tuple(
            StageTaskInput(t["own"], tuple(map(tuple, t["plain"])), tuple(map(tuple, t["keyed"])))
            for t in plain["tasks"]
        )
        sizing = None if plain["sizing"] is None else Sizing(*plain["sizing"])
        reads, partitions = tuple(plain["reads"]), plain["partitions"]
        return cls(plain["id"], plain["name"], reads, tasks, partitions, plain["task"], sizing, plain["bucket_bytes"])


@dataclass(frozen=True)
class StageRun:
    """A run.

    Attributes:
        id: no other run has it.
        owner: the job: what it has run before ends.
        description: for Spark's user interface.
        cores: so many tasks may be under way at once: the job has as many slots.
        stages: each behind those that it reads.
        blobs: what tasks need of the job, by SHA-256. Nobody but the tasks looks into them.
        places: where its tasks may be; None = anywhere.
    """

    id: str
    owner: str
    description: str
    cores: int
    stages: tuple[Stage, ...]
    blobs: Mapping[str, bytes]
    places: Places | None = None


class TaskProgress(NamedTuple):
    """The last attempt of a task that has begun; totals so far, as of the last heartbeat of its executor."""

    subtask: int
    status: str
    """Spark's: ``RUNNING``, ``SUCCESS``, ``FAILED`` or ``KILLED``."""
    records_in: int = 0
    bytes_in: int = 0
    records_out: int = 0
    bytes_out: int = 0
    spilled: int = 0
    """Bytes that it, or Spark's shuffle, has written to disk, since they did not fit into memory."""


class StageProgress(NamedTuple):
    """How far a stage has come."""

    tasks: int
    active: int = 0
    complete: int = 0
    failed: int = 0
    """Attempts."""
    number: int = 0
    """Of the stage in Spark."""
    subtasks: tuple[TaskProgress, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether all its tasks have ended well."""
        return self.complete >= self.tasks

    def to_plain(self) -> list[Any]:
        return [*self[:-1], [list(task) for task in self.subtasks]]

    @classmethod
    def from_plain(cls, plain: Sequence[Any]) -> StageProgress:
        """Read what ``to_plain`` gave."""
        tasks, active, complete, failed, number, subtasks = plain
        return cls(tasks, active, complete, failed, number, tuple(TaskProgress(*task) for task in subtasks))


@dataclass(frozen=True)
class RunLook:
    """What can be seen of a run.

    Attributes:
        state: ``unknown``, ``running``, ``done`` or ``failed``.
        message: why it failed.
        progress: by id of the stage.
        pages: where Spark's own pages are; empty = there are none.
    """

    state: str
    message: str = ""
    progress: Mapping[str, StageProgress] = field(default_factory=dict)
    pages: str = ""


class FailureOfStage(NamedTuple):
    """Attributes: the plain ``TaskFailure``, and what user code had printed, as pairs of a stream's byte and text."""

    failure: dict[str, Any]
    printed: list[tuple[int, str]]


def failure_in(message: str) -> FailureOfStage | None:
    """What Spark says about a failed job, if user code has raised it."""
    at = message.find(FAILURE + "{")
    if at < 0:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(message[at + len(FAILURE) :])
    except ValueError:
        return None
    return FailureOfStage(found, found.pop(PRINTED, [])) if isinstance(found, dict) else None
