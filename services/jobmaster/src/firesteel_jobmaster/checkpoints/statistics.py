"""What people see of a job's checkpoints: counts, and the last ones with the figures of each subtask."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from firesteel.checkpoint.slowness import warning_of
from firesteel.checkpoint.state_figures import STATES, Place, StateFigures
from firesteel.graph.execution_graph import Execution
from firesteel.graph.job_archive import ROWS_AT_ONCE, pack
from firesteel_jobmaster.checkpoints.pending import SavepointTarget, SplitPosition

METRICS: Final = (
    "start_delay_ms",
    "alignment_ms",
    "sync_ms",
    "async_ms",
    "state_size",
    "checkpointed_size",
    "processed_in_alignment",
    "persisted",
    "unaligned",
)
"""Figures of an acknowledgement, in the order in which they are kept."""
IN_PROGRESS, COMPLETED, FAILED = "IN_PROGRESS", "COMPLETED", "FAILED"
SAVEPOINT = "SAVEPOINT"
"""Status under which the latest complete savepoint is found."""
MOST_STATES: Final = 1000
"""States of a job whose figures are shown; those of further ones are left out."""


@dataclass
class Acknowledged:
    """Acknowledgements of a vertex.

    Attributes:
        totals: of its subtasks, in the order of ``METRICS``.
        last_ms: when the latest came; 0 = none has.
    """

    totals: list[int] = field(default_factory=lambda: [0] * len(METRICS))
    last_ms: int = 0


@dataclass
class CheckpointRecord:
    """What people see of one checkpoint.

    Attributes:
        id: of the checkpoint.
        trigger_ms: epoch.
        subtasks: vertex id -> number of subtasks that take part.
        acknowledged: vertex id -> subtask -> epoch ms of its acknowledgement and ``METRICS``.
        status: ``IN_PROGRESS``, ``COMPLETED`` or ``FAILED``.
        ended_ms: epoch; 0 = not yet.
        message: why it failed.
        location: of its metadata.
        discarded: the checkpoint was subsumed and removed.
        savepoint: format of a savepoint; None = it is a checkpoint.
        stop: how the job ends with it; empty = it goes on.
        attempts: (vertex id, subtask) -> attempt, of the subtasks that have acknowledged.
        sums: vertex id -> sums of its acknowledgements.
        states: how much there is of each state, over all subtasks.
    """

    id: int
    trigger_ms: int
    subtasks: dict[str, int]
    acknowledged: dict[str, dict[int, tuple[int, ...]]] = field(default_factory=dict)
    status: str = IN_PROGRESS
    ended_ms: int = 0
    message: str = ""
    location: str = ""
    discarded: bool = False
    savepoint: str | None = None
    stop: str = ""
    attempts: dict[tuple[str, int], int] = field(default_factory=dict)
    sums: dict[str, Acknowledged] = field(default_factory=dict)
    states: dict[Place, StateFigures] = field(default_factory=dict)
    _states: dict[tuple[str, int], list[StateFigures]] = field(default_factory=dict)
    """(vertex id, subtask) -> its part of ``states``, until the checkpoint ends."""
    _packed: dict[str, list[str]] = field(default_factory=dict)

    def acknowledge(self, execution: Execution, now_ms: int, metrics: Mapping[str, Any]) -> None:
        """A subtask has written its state; an earlier acknowledgement of the subtask counts no more."""
        values = tuple(_number(metrics.get(name)) for name in METRICS)
        subtasks = self.acknowledged.setdefault(execution.vertex.id, {})
        former_values = subtasks.get(execution.subtask, (0,) * (1 + len(METRICS)))[1:]
        sums = self.sums.setdefault(execution.vertex.id, Acknowledged())
        sums.totals = [
            total + value - former for total, value, former in zip(sums.totals, values, former_values, strict=True)
        ]
        sums.last_ms = max(sums.last_ms, now_ms)
        subtasks[execution.subtask] = now_ms, *values
        self.attempts[execution.vertex.id, execution.subtask] = execution.attempt
        self._add_states(execution, metrics.get(STATES))

    def _add_states(self, execution: Execution, plain: Any) -> None:
        rows = [StateFigures.from_plain(row) for row in (plain if isinstance(plain, list) else [])[:MOST_STATES]]
        own_ids = {operator.id for operator in execution.vertex.operators} if rows else ()
        figures = [row for row in rows if row is not None and row.operator_id in own_ids]
        for row in self._states.get((execution.vertex.id, execution.subtask), ()):
            self.states[row.place] = self.states[row.place].plus(row, -1)
        for row in figures:
            if row.place in self.states:
                self.states[row.place] = self.states[row.place].plus(row)
            elif len(self.states) < MOST_STATES:
                self.states[row.place] = row
        self._states[execution.vertex.id, execution.subtask] = [row for row in figures if row.place in self.states]

    def end(self, status: str, now_ms: int) -> None:
        """It has completed or failed: no acknowledgement comes any more."""
        self.status, self.ended_ms = status, now_ms
        self._states.clear()

    def in_slices(self) -> Generator[None, None, dict[str, Any]]:
        """The record as JSON-able data, in slices; ``job_archive.acknowledgements`` reads the figures of subtasks."""
        tasks = {}
        for vertex, count in self.subtasks.items():
            rows = list(self.acknowledged.get(vertex, {}).items())
            sums = self.sums.get(vertex, Acknowledged())
            figures: dict[str, list[int]] | list[str]
            if len(rows) > ROWS_AT_ONCE:
                figures = yield from self._pack(vertex, rows)
            else:
                figures = {str(subtask): list(values) for subtask, values in rows}
            tasks[vertex] = {
                "subtasks": count,
                "count": len(rows),
                "last": sums.last_ms,
                "totals": list(sums.totals),
                "acknowledged": figures,
            }
        return {
            "id": self.id,
            "trigger": self.trigger_ms,
            "status": self.status,
            "ended": self.ended_ms,
            "message": self.message,
            "location": self.location,
            "discarded": self.discarded,
            "savepoint": self.savepoint,
            "stop": self.stop,
            "tasks": tasks,
            STATES: [figures.to_plain() for figures in self.states.values()],
        }

    def _pack(self, vertex: str, rows: list[tuple[int, tuple[int, ...]]]) -> Generator[None, None, list[str]]:
        """Figures of many subtasks; of a checkpoint that has ended they are packed once."""
        packed = self._packed.get(vertex)
        if packed is None:
            packed, ended = [], self.ended_ms != 0
            for first in range(0, len(rows), ROWS_AT_ONCE):
                packed.append(pack([[subtask, *values] for subtask, values in rows[first : first + ROWS_AT_ONCE]]))
                yield
            if ended:
                self._packed[vertex] = packed
        return packed

    def total(self, metric: str) -> int:
        index = METRICS.index(metric)
        return sum(sums.totals[index] for sums in self.sums.values())

    @property
    def duration_ms(self) -> int:
        """Milliseconds from the trigger to the last acknowledgement."""
        last = max((sums.last_ms for sums in self.sums.values()), default=0)
        return max(0, last - self.trigger_ms)


class CheckpointStatistics:
    """Counts of a job's checkpoints, and records of the latest ones.

    Args:
        history: how many records of ended checkpoints are kept.
    """

    def __init__(self, history: int) -> None:
        self._history: deque[CheckpointRecord] = deque(maxlen=max(history, 0))
        self._under_way: dict[int, CheckpointRecord] = {}
        self._latest: dict[str, CheckpointRecord] = {}
        self._restored: dict[str, Any] | None = None
        self.on_end: Callable[[CheckpointRecord], None] = lambda record: None
        """Called for each checkpoint that has completed or failed; one that failed before its barriers has the id 0."""
        self.warning = ""
        """What is wrong with the pace of the checkpoints (``firesteel.checkpoint.slowness``)."""
        self._durations: deque[float] = deque(maxlen=2)
        self._complete_ms: int | None = None
        self._positions: tuple[int, list[list[Any]]] | None = None
        self._counts = dict.fromkeys(("restored", "total", "in_progress", "completed", "failed"), 0)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever tried."""
        return not any(self._counts.values())

    def begin(
        self,
        checkpoint_id: int,
        trigger_ms: int,
        executions: Iterable[Execution],
        savepoint: SavepointTarget | None = None,
    ) -> None:
        """Barriers are on their way."""
        subtasks: dict[str, int] = {}
        for execution in executions:
            subtasks[execution.vertex.id] = subtasks.get(execution.vertex.id, 0) + 1
        record = self._under_way[checkpoint_id] = CheckpointRecord(checkpoint_id, trigger_ms, subtasks)
        if savepoint is not None:
            record.savepoint, record.stop = savepoint.format, savepoint.stop
        self._counts["total"] += 1
        self._counts["in_progress"] += 1

    def acknowledge(self, checkpoint_id: int, execution: Execution, now_ms: int, metrics: Mapping[str, Any]) -> None:
        """A subtask has written its state."""
        record = self._under_way.get(checkpoint_id)
        if record is not None:
            record.acknowledge(execution, now_ms, metrics)

    def complete(
        self, checkpoint_id: int, now_ms: int, location: str, positions: Sequence[SplitPosition] | None = None
    ) -> None:
        """A checkpoint or savepoint is complete.

        Args:
            checkpoint_id: its id.
            now_ms: epoch.
            location: of its metadata.
            positions: where the job's sources go on if it goes on from there; None = it would not go on from there.
        """
        record = self._end(checkpoint_id, COMPLETED, now_ms)
        if record is not None and positions is not None:
            self._positions = checkpoint_id, [list(row) for row in positions]
        if record is not None:
            record.location = location
            if record.savepoint is None:
                self._durations.append((now_ms - record.trigger_ms) / 1000)
                self._complete_ms = now_ms
            self.on_end(record)

    def look(self, now_ms: int, timeout: float, interval: float) -> bool:
        """Look whether the checkpoints are slow; returns whether there is a new ``warning``.

        Args:
            now_ms: epoch.
            timeout: seconds after which a checkpoint is given up.
            interval: seconds between two checkpoints; 0 = none are taken by themselves.
        """
        if self._complete_ms is None:
            self._complete_ms = now_ms  # the first look
        oldest = min((record.trigger_ms for record in self._under_way.values()), default=None)
        former_warning = self.warning
        self.warning = warning_of(
            timeout,
            interval,
            under_way=None if oldest is None else (now_ms - oldest) / 1000,
            last=self._durations[-1] if self._durations else None,
            before=self._durations[0] if len(self._durations) > 1 else None,
            without=(now_ms - self._complete_ms) / 1000,
        )
        return bool(self.warning) and self.warning != former_warning

    def fail(self, checkpoint_id: int | None, now_ms: int, message: str) -> None:
        """A checkpoint has failed; one without an id failed before its barriers were sent."""
        if checkpoint_id is None:
            self._counts["total"] += 1
            self._counts["failed"] += 1
            self.on_end(CheckpointRecord(0, now_ms, {}, status=FAILED, ended_ms=now_ms, message=message))
            return
        record = self._end(checkpoint_id, FAILED, now_ms)
        if record is not None:
            record.message = message
            self.on_end(record)

    def _end(self, checkpoint_id: int, status: str, now_ms: int) -> CheckpointRecord | None:
        record = self._under_way.pop(checkpoint_id, None)
        if record is not None:
            record.end(status, now_ms)
            self._counts["in_progress"] -= 1
            self._counts["completed" if status == COMPLETED else "failed"] += 1
            self._latest[SAVEPOINT if status == COMPLETED and record.savepoint else status] = record
            self._history.append(record)
        return record

    def discarded(self, checkpoint_id: int) -> None:
        """A complete checkpoint was subsumed."""
        for record in (*self._history, *self._latest.values()):
            if record.id == checkpoint_id and record.status == COMPLETED:
                record.discarded = True

    def restored(self, checkpoint_id: int, now_ms: int, location: str, savepoint: bool = False) -> None:
        """The job, or a part of it, goes on from a checkpoint."""
        self._counts["restored"] += 1
        self._restored = {
            "id": checkpoint_id,
            "restore_timestamp": now_ms,
            "is_savepoint": savepoint,
            "external_path": location,
        }

    @property
    def last_restored(self) -> tuple[int, int] | None:
        """The checkpoint from which the job went on last, and when (epoch ms)."""
        restored = self._restored
        return None if restored is None else (int(restored["id"]), int(restored["restore_timestamp"]))

    def in_slices(self) -> Generator[None, None, dict[str, Any]]:
        """The statistics as JSON-able data, in slices; newest checkpoints first."""
        under_way = sorted(self._under_way.values(), key=lambda record: -record.id)
        shown, restored, counts = [], self._restored, dict(self._counts)
        latest, warning, positions = dict(self._latest), self.warning, self._positions
        for record in (*under_way, *reversed(self._history)):
            shown.append((yield from record.in_slices()))
        plain = {}
        for status, record in latest.items():
            plain[status] = yield from record.in_slices()
        return {
            "counts": counts,
            "history": shown,
            "latest": plain,
            "restored": restored,
            "warning": warning,
            "positions": None if positions is None else {"checkpoint": positions[0], "splits": positions[1]},
        }

    def metrics(self) -> dict[str, int | str]:
        """Job metrics, with Flink's names."""
        last = self._latest.get(COMPLETED)
        return {
            "totalNumberOfCheckpoints": self._counts["total"],
            "numberOfInProgressCheckpoints": self._counts["in_progress"],
            "numberOfCompletedCheckpoints": self._counts["completed"],
            "numberOfFailedCheckpoints": self._counts["failed"],
            "lastCheckpointDuration": last.duration_ms if last else -1,
            "lastCheckpointSize": last.total("checkpointed_size") if last else -1,
            "lastCheckpointFullSize": last.total("state_size") if last else -1,
            "lastCheckpointProcessedData": last.total("processed_in_alignment") if last else -1,
            "lastCheckpointPersistedData": last.total("persisted") if last else -1,
            "lastCompletedCheckpointId": last.id if last else -1,
            "lastCheckpointExternalPath": (last.location or "n/a") if last else "n/a",
            "lastCheckpointRestoreTimestamp": self._restored["restore_timestamp"] if self._restored else -1,
        }


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value == value else 0
