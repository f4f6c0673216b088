"""Stages of bounded jobs on their way from the JobMaster to the fleet, and the results that come back. Plain data.

A *run* is one Spark job: all stages of a job, or the stage that commits what they have prepared. The JobMaster decides
which task reads which data, and the fleet obeys. ``Stage.task`` says what a stage computes; only its tasks read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from firesteel.graph.bounded import Sizing

Places = Mapping[str, tuple[int, int]]
"""Executor -> cores that a run may use there, as many as its job has slots there, and the cores of all slots there."""
FAILURE: Final = "FIRESTEEL_FAILURE "
"""Prefix of a plain ``TaskFailure`` in an exception of a task, which Spark does not retry (``SlotsClusterManager``)."""
PRINTED: Final = "printed"
"""Field beside those of that ``TaskFailure``: output of user code, as pairs of a stream's byte and text."""
REPORT, COLLECTED, STDOUT, STDERR = b"R"[0], b"C"[0], b"O"[0], b"E"[0]
"""First byte of a task's result: a report as JSON, results for the client (their number in 8 bytes, then a pickled
list), output to stdout or stderr."""


@dataclass(frozen=True)
class StageTaskInput:
    """The input of one task of a stage.

    Attributes:
        own: input that the task gets from the JobMaster; None = it reads outputs of other stages.
        plain: pieces without keys, in order: number of the input, number in ``Stage.reads``, first partition, the
            partition behind the last.
        keyed: pieces with keys, in the same form; partitions that are adjacent in all of them are read together.
    """

    own: str | None = None
    plain: tuple[tuple[int, int, int, int], ...] = ()
    keyed: tuple[tuple[int, int, int, int], ...] = ()


class QueryTable(NamedTuple):
    """A table that Spark SQL reads itself.

    Attributes:
        name: in the text of the query.
        format: Spark's name of the files' format.
        columns: names and types, as in Spark's DDL.
        options: of Spark's reader.
        files: URIs of the files.
        bytes: length of all files.
    """

    name: str
    format: str
    columns: str
    options: Mapping[str, str]
    files: Sequence[str]
    bytes: int


@dataclass(frozen=True)
class StageQuery:
    """A query of Spark SQL whose rows a stage reads. The text can only be a query, so it runs no code in the driver.

    Attributes:
        text: in Spark's SQL.
        settings: of Spark's session, each of them ``spark.sql.…``.
        tables: what it reads.
        tasks: number of tasks of the stage, at most.
        recursions: tables that are computed first: name, name of the new rows, first query, query of a step, and
            whether a row that is there already is new as well.
        max_iterations: steps of a recursion after which the run fails.
    """

    text: str
    settings: Mapping[str, str]
    tables: tuple[QueryTable, ...]
    tasks: int
    recursions: tuple[tuple[str, str, str, str, bool], ...] = ()
    max_iterations: int = 0

    def to_plain(self) -> dict[str, Any]:
        tables = [list(table) for table in self.tables]
        return {
            "text": self.text,
            "settings": dict(self.settings),
            "tables": tables,
            "tasks": self.tasks,
            "recursions": [list(recursion) for recursion in self.recursions],
            "max_iterations": self.max_iterations,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> StageQuery:
        """The inverse of ``to_plain``."""
        tables = tuple(QueryTable(*table) for table in plain["tables"])
        recursions = tuple(map(tuple, plain["recursions"]))
        return cls(plain["text"], plain["settings"], tables, plain["tasks"], recursions, plain["max_iterations"])


@dataclass(frozen=True)
class Stage:
    """A stage of a bounded job.

    Attributes:
        id: of the vertex.
        name: for people.
        reads: ids of the stages whose outputs it reads.
        tasks: inputs of its tasks. With ``sizing`` they are the smallest possible tasks, and the fleet joins adjacent
            ones once it knows how much they read.
        partitions: number of partitions of its output; reports go into the last one.
        task: what its tasks compute, for ``firesteel.runtime.bounded``.
        sizing: how tasks are made from ``tasks``; None: ``tasks`` are the tasks.
        bucket_bytes: bytes of keyed input, as they are in the shuffle, that a task gets at a time; a larger key group
            comes as a whole.
        query: a query whose rows it reads instead, as messages with Arrow's record batches; it has no ``tasks`` then.
    """

    id: str
    name: str
    reads: tuple[str, ...]
    tasks: tuple[StageTaskInput, ...]
    partitions: int
    task: Mapping[str, Any] = field(default_factory=dict)
    sizing: Sizing | None = None
    bucket_bytes: int = 0
    query: StageQuery | None = None

    def to_plain(self) -> dict[str, Any]:
        tasks = [{"own": t.own, "plain": t.plain, "keyed": t.keyed} for t in self.tasks]
        return {
            "id": self.id, "name": self.name, "reads": self.reads, "tasks": tasks, "partitions": self.partitions,
            "task": dict(self.task), "sizing": self.sizing, "bucket_bytes": self.bucket_bytes,
            "query": None if self.query is None else self.query.to_plain(),
        }  # fmt: skip

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Stage:
        """The inverse of ``to_plain``."""
        tasks = tuple(
            StageTaskInput(t["own"], tuple(map(tuple, t["plain"])), tuple(map(tuple, t["keyed"])))
            for t in plain["tasks"]
        )
        sizing = None if plain["sizing"] is None else Sizing(*plain["sizing"])
        reads, partitions = tuple(plain["reads"]), plain["partitions"]
        query = None if plain.get("query") is None else StageQuery.from_plain(plain["query"])
        return cls(
            plain["id"], plain["name"], reads, tasks, partitions, plain["task"], sizing, plain["bucket_bytes"], query
        )


@dataclass(frozen=True)
class StageRun:
    """A run of stages.

    Attributes:
        id: unique id.
        owner: the job; its former run ends when this one starts.
        description: for Spark's user interface.
        cores: tasks that may run at the same time, as many as the job has slots.
        stages: stages, each behind those that it reads.
        blobs: blobs of the job by SHA-256, which only tasks read.
        places: where its tasks may run; None = anywhere.
    """

    id: str
    owner: str
    description: str
    cores: int
    stages: tuple[Stage, ...]
    blobs: Mapping[str, bytes]
    places: Places | None = None


class TaskProgress(NamedTuple):
    """The last attempt of a task; its totals are those of the last heartbeat of the executor."""

    subtask: int
    status: str
    """State in Spark: ``RUNNING``, ``SUCCESS``, ``FAILED`` or ``KILLED``."""
    records_in: int = 0
    bytes_in: int = 0
    records_out: int = 0
    bytes_out: int = 0
    spilled: int = 0
    """Bytes that did not fit into memory, and that the task or Spark's shuffle has written to disk."""


class StageProgress(NamedTuple):
    """Progress of a stage: numbers of its tasks by state."""

    tasks: int
    active: int = 0
    complete: int = 0
    failed: int = 0
    """Failed attempts of tasks."""
    number: int = 0
    """Id of the stage in Spark."""
    subtasks: tuple[TaskProgress, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether all tasks have succeeded."""
        return self.complete >= self.tasks

    def to_plain(self) -> list[Any]:
        return [*self[:-1], [list(task) for task in self.subtasks]]

    @classmethod
    def from_plain(cls, plain: Sequence[Any]) -> StageProgress:
        """The inverse of ``to_plain``."""
        tasks, active, complete, failed, number, subtasks = plain
        return cls(tasks, active, complete, failed, number, tuple(TaskProgress(*task) for task in subtasks))


@dataclass(frozen=True)
class RunLook:
    """State and progress of a run.

    Attributes:
        state: ``unknown``, ``running``, ``done`` or ``failed``.
        message: cause of a failure.
        progress: by id of the stage.
        pages: URL of Spark's own user interface; empty = there is none.
    """

    state: str
    message: str = ""
    progress: Mapping[str, StageProgress] = field(default_factory=dict)
    pages: str = ""


class FailureOfStage(NamedTuple):
    """A plain ``TaskFailure``, and the output of user code as pairs of a stream's byte and text."""

    failure: dict[str, Any]
    printed: list[tuple[int, str]]


def failure_in(message: str) -> FailureOfStage | None:
    """The failure of user code in Spark's message about a failed job; None: user code did not fail."""
    position = message.find(FAILURE + "{")
    if position < 0:
        return None
    try:
        failure, _ = json.JSONDecoder().raw_decode(message[position + len(FAILURE) :])
    except ValueError:
        return None
    return FailureOfStage(failure, failure.pop(PRINTED, [])) if isinstance(failure, dict) else None
