"""The table of ``firesteel top``: REST answers become rows, rows become text. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from firesteel.client.progress import clock_text
from firesteel.core.human_texts import duration_text, size_text
from firesteel.graph.job_archive import WAITING

RATES: Final = ("numRecordsInPerSecond", "numRecordsOutPerSecond")
TIMES: Final = ("busyTimeMsPerSecond", "backPressuredTimeMsPerSecond")
WATERMARKS: Final = ("currentInputWatermark", "currentOutputWatermark")
WANTED: Final = (*RATES, *TIMES, *WATERMARKS)
"""Metrics of a vertex's subtasks; those that it does not have stay empty."""
_NO_WATERMARK: Final = -(1 << 62)
_LAST_WATERMARK: Final = 1 << 62
HEADER: Final = ("VERTEX", "STATE", "TASKS", "IN/S", "OUT/S", "BUSY", "BACKPRESSURED", "WM LAG")
STAGE_HEADER: Final = ("STAGE", "STATE", "TASKS", "PROGRESS", "LEFT", "READ", "WRITTEN", "SHUFFLED", "SPILLED")
"""Of a batch job, whose tasks report totals."""
_BAR: Final = 20
"""Characters of a bar."""


@dataclass(frozen=True)
class VertexRow:
    """A vertex of a job.

    Attributes:
        id, name: of the vertex.
        status: of its tasks together.
        running, finished, parallelism: tasks that run, that have ended well, and all.
        records_in, records_out: a second, of all subtasks; None = not known.
        busy, back_pressured: share of the time from 0 to 1 of the subtask that has most of it.
        watermark_lag_ms: of the subtask that is furthest behind; None = it has no watermark.
        records_read, records_written: so far.
        stage: how far the stage of a batch job is, as ``firesteel-stage`` of ``GET /jobs/:jobid``; None: it is none.
    """

    id: str
    name: str
    status: str
    running: int
    finished: int
    parallelism: int
    records_in: float | None
    records_out: float | None
    busy: float | None
    back_pressured: float | None
    watermark_lag_ms: int | None
    records_read: int = 0
    records_written: int = 0
    stage: Mapping[str, Any] | None = None

    @staticmethod
    def of(vertex: Mapping[str, Any], metrics: Iterable[Mapping[str, Any]], now_ms: int) -> VertexRow:
        """Read an item of ``vertices`` of ``GET /jobs/:jobid``.

        Args:
            vertex: the item.
            metrics: answers of ``GET /jobs/:jobid/vertices/:vertexid/subtasks/metrics``.
            now_ms: epoch milliseconds, by the cluster's clock.
        """
        metrics_by_name = {str(metric["id"]): metric for metric in metrics}
        lag = None
        for name in WATERMARKS:
            least = _number(metrics_by_name, name, "min")
            if lag is None and least is not None and _NO_WATERMARK < least < _LAST_WATERMARK:
                lag = max(0, int(now_ms - least))
        return VertexRow(
            str(vertex["id"]),
            str(vertex["name"]),
            str(vertex["status"]),
            int(vertex.get("tasks", {}).get("RUNNING", 0)),
            int(vertex.get("tasks", {}).get("FINISHED", 0)),
            int(vertex["parallelism"]),
            _number(metrics_by_name, RATES[0], "sum"),
            _number(metrics_by_name, RATES[1], "sum"),
            _share(_number(metrics_by_name, TIMES[0], "max")),
            _share(_number(metrics_by_name, TIMES[1], "max")),
            lag,
            int(vertex.get("metrics", {}).get("read-records", 0)),
            int(vertex.get("metrics", {}).get("write-records", 0)),
            vertex.get("firesteel-stage"),
        )

    def cells(self, bars: bool = False) -> tuple[str, ...]:
        """Texts of the columns of ``HEADER``, or of ``STAGE_HEADER``; with or without bars."""
        if self.stage is not None:
            left_ms = self.stage.get("left-ms")
            return (
                self.name,
                self.status,
                f"{self.stage['tasks-done']}/{self.stage['tasks']}",
                progress_text(self.stage, bars),
                "-" if left_ms is None else duration_text(left_ms),
                f"{self.records_read:,}",
                f"{self.records_written:,}",
                size_text(self.stage["shuffled-bytes"]),
                size_text(self.stage["spilled-bytes"]),
            )
        return (
            self.name,
            self.status,
            f"{self.running + self.finished}/{self.parallelism}",
            rate_text(self.records_in),
            rate_text(self.records_out),
            _percent(self.busy),
            _percent(self.back_pressured),
            _lag(self.watermark_lag_ms),
        )


@dataclass(frozen=True)
class JobRows:
    """A job.

    Attributes:
        id, name, state: of the job.
        duration_ms: since its start.
        checkpoint: number of its last completed checkpoint; None = none yet, or it takes none.
        checkpoint_age_ms: since that was complete.
        checkpoint_ms: how long it took.
        checkpoint_warning: what is wrong with their pace; empty: nothing.
        failed_checkpoints: their number so far.
        restarts: their number so far.
        waiting_for: slots that it does not get, in words; empty: it has all.
        findings: what is wrong with it, in words, as the dashboard says it.
        vertices: in the order of the job.
    """

    id: str
    name: str
    state: str
    duration_ms: int
    checkpoint: int | None
    checkpoint_age_ms: int | None
    checkpoint_ms: int | None
    checkpoint_warning: str
    failed_checkpoints: int
    restarts: int
    waiting_for: str
    findings: tuple[str, ...]
    vertices: tuple[VertexRow, ...]

    @staticmethod
    def of(
        details: Mapping[str, Any], checkpoints: Mapping[str, Any] | None, restarts: int, rows: Iterable[VertexRow]
    ) -> JobRows:
        """Read answers about a job.

        Args:
            details: of ``GET /jobs/:jobid``.
            checkpoints: of ``GET /jobs/:jobid/checkpoints``; None = it takes none.
            restarts: its metric ``numRestarts``.
            rows: its vertices.
        """
        checkpoints = checkpoints or {}
        last = checkpoints.get("latest", {}).get("completed")
        now = int(details["now"])
        return JobRows(
            str(details["jid"]),
            str(details["name"]),
            str(details["state"]),
            int(details["duration"]),
            int(last["id"]) if last else None,
            max(0, now - int(last["latest_ack_timestamp"])) if last else None,
            int(last["end_to_end_duration"]) if last else None,
            str(checkpoints.get("warning") or ""),
            int(checkpoints.get("counts", {}).get("failed", 0)),
            restarts,
            str(details.get(WAITING) or ""),
            tuple(str(f["text"]) for f in details.get("firesteel-findings", ()) if f["kind"] != "good"),
            tuple(rows),
        )

    def title(self) -> str:
        """The line above the vertices: name, state, checkpoint, failures, and findings below it."""
        parts = [f"{self.name} ({self.id})", self.state, clock_text(self.duration_ms / 1000)]
        if self.checkpoint is not None:
            duration_s, age = (self.checkpoint_ms or 0) / 1000, _lag(self.checkpoint_age_ms)
            parts.append(f"checkpoint {self.checkpoint}: {duration_s:.1f} s, {age} ago")
        if self.failed_checkpoints:
            parts.append(f"{self.failed_checkpoints} failed checkpoints")
        if self.restarts:
            parts.append(f"{self.restarts} restarts")
        return "\n".join(["  ".join(parts), *(f"warning: {text}" for text in self.findings)])

    @property
    def header(self) -> tuple[str, ...]:
        """Titles of the columns of its vertices."""
        return STAGE_HEADER if any(row.stage is not None for row in self.vertices) else HEADER

    def plain(self) -> dict[str, Any]:
        """The job as JSON shows it."""
        return asdict(self)


def lines(jobs: Sequence[JobRows], width: int | None = None) -> list[str]:
    """Text for people.

    Args:
        jobs: to show.
        width: columns of the terminal, where names are cut, and stages have bars; None = it is none.
    """
    if not jobs:
        return ["No running jobs."]
    text_lines: list[str] = []
    for job in jobs:
        cells = [job.header, *(row.cells(bars=width is not None) for row in job.vertices)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(job.header))]
        if width is not None:
            widths[0] = max(12, min(widths[0], width - sum(widths[1:]) - 2 * (len(job.header) - 1)))
        text_lines += [job.title(), *(_line(row, widths) for row in cells), ""]
    return text_lines[:-1]


def progress_text(stage: Mapping[str, Any], bar: bool) -> str:
    """How far a stage is, with a bar for terminals; ``-``: nobody can know."""
    percent = stage.get("percent")
    if percent is None:
        return "-"
    full = int(_BAR * percent / 100)
    shown_bar = f"[{'#' * full}{'.' * (_BAR - full)}] " if bar else ""
    return f"{shown_bar}{int(percent)} %"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    name = cells[0] if len(cells[0]) <= widths[0] else cells[0][: widths[0] - 1] + "…"
    padded_names = [name.ljust(widths[0]), cells[1].ljust(widths[1])]
    return "  ".join(
        [*padded_names, *(cell.rjust(width) for cell, width in zip(cells[2:], widths[2:], strict=True))]
    ).rstrip()


def _number(metrics_by_name: Mapping[str, Mapping[str, Any]], name: str, key: str) -> float | None:
    value = metrics_by_name.get(name, {}).get(key)
    try:
        number = float(value) if value is not None else None
    except (TypeError, ValueError):
        return None
    return number if number is not None and number == number and abs(number) != float("inf") else None


def _share(ms: float | None) -> float | None:
    return None if ms is None else min(1.0, max(0.0, ms / 1000))


def rate_text(value: float | None) -> str:
    """Records in a second."""
    return "-" if value is None else f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _lag(ms: int | None) -> str:
    if ms is None:
        return "-"
    return f"{ms} ms" if ms < 1000 else f"{ms / 1000:.1f} s" if ms < 60_000 else clock_text(ms / 1000)
