"""What ``firesteel top`` makes of REST answers."""

from __future__ import annotations

import io
from typing import Any

import rich.console

from firesteel.client.cli.show import stages_text
from firesteel.client.cli.top import _table
from firesteel.client.cli.top_table import HEADER, STAGE_HEADER, JobRows, VertexRow, lines

VERTEX = {"id": "v1", "name": "Map -> Sink", "status": "RUNNING", "parallelism": 2, "tasks": {"RUNNING": 1}}
DETAILS: dict[str, Any] = {
    "jid": "a" * 32,
    "name": "words",
    "state": "RUNNING",
    "duration": 61_000,
    "now": 100_000,
    "vertices": [VERTEX],
}


def metrics(**values: tuple[Any, Any, Any]) -> list[dict[str, Any]]:
    return [{"id": name, "min": low, "max": high, "sum": total} for name, (low, high, total) in values.items()]


def test_rates_are_of_all_subtasks_and_shares_of_the_worst() -> None:
    row = VertexRow.of(
        VERTEX,
        metrics(
            numRecordsInPerSecond=(1.0, 4.0, 5.0),
            numRecordsOutPerSecond=(0.0, 2000.0, 2345.6),
            busyTimeMsPerSecond=(0.0, 812.0, 900.0),
            backPressuredTimeMsPerSecond=(0.0, 1500.0, 1600.0),
            currentInputWatermark=(98_500, 99_000, 0),
        ),
        100_000,
    )
    assert row.cells() == ("Map -> Sink", "RUNNING", "1/2", "5.0", "2,346", "81%", "100%", "1.5 s")


def test_tasks_that_have_finished_count_as_well_as_those_that_run() -> None:
    """A stage of a batch job that is done has all its tasks behind it, not none."""
    done = VertexRow.of({**VERTEX, "status": "FINISHED", "tasks": {"RUNNING": 0, "FINISHED": 2}}, [], 100_000)
    assert done.cells()[1:3] == ("FINISHED", "2/2")
    assert (done.running, done.finished) == (0, 2)


def test_what_is_not_known_stays_empty() -> None:
    nothing = VertexRow.of(VERTEX, [], 100_000)
    assert nothing.cells()[3:] == ("-", "-", "-", "-", "-")
    before_the_first = metrics(currentInputWatermark=(-(1 << 63), 5, 0), numRecordsInPerSecond=("NaN", "NaN", "NaN"))
    assert VertexRow.of(VERTEX, before_the_first, 100_000).cells()[3:] == ("-", "-", "-", "-", "-")


def test_a_source_lags_by_its_output_watermark_and_none_at_its_end() -> None:
    row = VertexRow.of(VERTEX, metrics(currentOutputWatermark=(40_000, 1 << 63, 0)), 100_000)
    assert row.watermark_lag_ms == 60_000
    assert row.cells()[-1] == "0:01:00"
    ended = VertexRow.of(VERTEX, metrics(currentOutputWatermark=((1 << 63) - 1, 1 << 63, 0)), 100_000)
    assert ended.watermark_lag_ms is None
    ahead = VertexRow.of(VERTEX, metrics(currentInputWatermark=(100_500, 100_500, 0)), 100_000)
    assert ahead.watermark_lag_ms == 0


def test_a_job_has_its_last_checkpoint_and_what_went_wrong() -> None:
    checkpoints = {
        "latest": {"completed": {"id": 7, "latest_ack_timestamp": 97_500, "end_to_end_duration": 240}},
        "counts": {"failed": 2},
    }
    job = JobRows.of(DETAILS, checkpoints, 1, [VertexRow.of(VERTEX, [], 100_000)])
    assert job.title() == (
        f"words ({'a' * 32})  RUNNING  0:01:01  checkpoint 7: 0.2 s, 2.5 s ago  2 failed checkpoints  1 restarts"
    )
    assert job.plain()["vertices"][0]["parallelism"] == 2
    assert JobRows.of(DETAILS, None, 0, []).title() == f"words ({'a' * 32})  RUNNING  0:01:01"


def test_on_a_narrow_terminal_names_stay() -> None:
    job = JobRows.of(DETAILS, None, 0, [VertexRow.of(VERTEX, [], 100_000)])
    screen = rich.console.Console(file=io.StringIO(), width=60)
    with screen.capture() as shown:
        screen.print(_table([job], "", screen.width))
    assert "Map -> Sink" in shown.get()
    assert "OUT/S" not in shown.get()


def test_slow_checkpoints_are_told() -> None:
    text = "Checkpoints are slow: the last checkpoint took 310 s"
    findings = [{"kind": "good", "text": "No vertex is late."}, {"kind": "warn", "text": text}]
    job = JobRows.of({**DETAILS, "firesteel-findings": findings}, {"warning": "the last checkpoint took 310 s"}, 0, [])
    assert lines([job])[0].splitlines()[1:] == [f"warning: {text}"]


def test_a_job_that_waits_for_slots_says_so() -> None:
    reason = "2 slots are needed, and the cluster has 1"
    finding = {"kind": "warn", "text": f"The job waits for slots: {reason}"}
    job = JobRows.of({**DETAILS, "firesteel-waiting-for": reason, "firesteel-findings": [finding]}, None, 0, [])
    assert lines([job])[0].splitlines()[1] == f"warning: The job waits for slots: {reason}"
    assert job.plain()["waiting_for"] == reason


def test_names_are_cut_to_the_terminal_and_columns_stand_below_each_other() -> None:
    long = {**VERTEX, "name": "n" * 200}
    job = JobRows.of(DETAILS, None, 0, [VertexRow.of(long, [], 0), VertexRow.of(VERTEX, [], 0)])
    title, head, first, second = lines([job], 80)
    assert title.startswith("words")
    assert head.split() == " ".join(HEADER).split()
    assert len(first) <= 80
    assert "…" in first
    assert first.index("RUNNING") == second.index("RUNNING") == head.index("STATE")
    assert "n" * 200 in lines([job])[2]
    assert lines([]) == ["No running jobs."]


def test_the_live_table_cuts_names_and_no_figures() -> None:
    """In a terminal of 80 columns."""
    row = VertexRow.of(
        {**VERTEX, "name": "sum per customer -> odd ones -> Sink: Print to Std. Out"},
        metrics(
            numRecordsInPerSecond=(1.0, 4.0, 408.0),
            numRecordsOutPerSecond=(0.0, 2000.0, 2345.6),
            busyTimeMsPerSecond=(0.0, 1000.0, 1000.0),
            backPressuredTimeMsPerSecond=(0.0, 250.0, 1600.0),
            currentInputWatermark=(2_000, 2_000, 0),
        ),
        100_000,
    )
    job = JobRows.of(DETAILS, None, 0, [row])
    screen = rich.console.Console(width=80, file=io.StringIO())
    screen.print(_table([job], ""))
    shown = screen.file.getvalue()  # type: ignore[attr-defined]
    head, line = (
        next(line_shown for line_shown in shown.splitlines() if part in line_shown) for part in ("VERTEX", "customer")
    )
    assert head.split() == " ".join(HEADER).split()
    assert "…" in line
    assert line.split()[-7:] == ["RUNNING", "1/2", "408", "2,346", "100%", "25%", "0:01:38"]
    assert max(map(len, shown.splitlines())) <= 80


def stage(name: str, status: str, start: int, **figures: Any) -> dict[str, Any]:
    return {
        "id": name, "name": name, "status": status, "start-time": start, "parallelism": 4, "tasks": {},
        "metrics": {"read-records": 40_000, "write-records": 7},
        "firesteel-stage": {"tasks-done": 1, "tasks": 4, "shuffled-bytes": 1536, "spilled-bytes": 0, **figures},
    }  # fmt: skip


BATCH: dict[str, Any] = {
    **DETAILS, "job-type": "BATCH",
    "vertices": [
        stage("read", "FINISHED", 1, percent=100.0), stage("sum", "RUNNING", 5, **{"percent": 45.5, "left-ms": 61_000}),
        stage("write", "CREATED", -1),
    ],
}  # fmt: skip


def test_stages_of_a_batch_job_have_bars_on_a_terminal_and_figures_in_a_pipe() -> None:
    rows = [VertexRow.of(vertex, [], 0) for vertex in BATCH["vertices"]]
    job = JobRows.of(BATCH, None, 0, rows)
    _, head, _, piped, waits = lines([job])
    figures = ["40,000", "7", "1.50", "KiB", "0", "B"]
    assert head.split() == list(STAGE_HEADER)
    assert piped.split() == [
        "sum",
        "RUNNING",
        "1/4",
        "45",
        "%",
        "1",
        "min",
        "1",
        "s",
        "40,000",
        "7",
        "1.50",
        "KiB",
        "0",
        "B",
    ]
    assert waits.split() == ["write", "CREATED", "1/4", "-", "-", *figures]
    assert "[#########...........] 45 %" in lines([job], 120)[3]
    assert "[####################] 100 %" in lines([job], 120)[2]
    screen = rich.console.Console(width=120, file=io.StringIO())
    with screen.capture() as shown:
        screen.print(_table([job], "", screen.width))
    assert "[#########...........] 45 %" in shown.get()
    assert job.plain()["vertices"][1]["stage"]["left-ms"] == 61_000


def test_the_live_line_of_wait_says_how_far_a_batch_job_is() -> None:
    assert stages_text(BATCH) == ": 1 of 3 stages done, sum [#########...........] 45 %, 1 min 1 s left"
    unknown = {"vertices": [stage("read", "RUNNING", 1)]}
    assert stages_text(unknown) == ": 0 of 1 stages done, read 1 of 4 tasks"
    assert stages_text({"vertices": [stage("read", "CREATED", -1)]}) == ": 0 of 1 stages done"
    assert stages_text(DETAILS) == "", "a streaming job has no stages"
