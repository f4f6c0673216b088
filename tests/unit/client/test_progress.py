"""The line that tells how far a job is, and when it is written."""

from __future__ import annotations

from typing import Any

from firesteel.client.cli.jobs import health_lines, job_lists
from firesteel.client.progress import PLAIN_SECONDS, Occasion, Progress
from firesteel.graph.job_graph import JobEdge, JobGraph, JobVertex, OperatorInfo, SourceInfo


def graph() -> JobGraph:
    source = SourceInfo("s", "numbers", {}, True)
    vertices = (
        JobVertex("s", "Source", 2, 128, "default", "", (OperatorInfo("s", "Source", None, "source"),), source),
        JobVertex("m", "Map", 2, 128, "default", "", (OperatorInfo("m", "Map", None, "map"),)),
        JobVertex("e", "End", 1, 128, "other", "", (OperatorInfo("e", "End", None, "sink"),)),
    )
    return JobGraph(
        "0" * 32, "job", vertices, (JobEdge(0, "s", "m", "s", 0, "HASH"), JobEdge(1, "m", "e", "m", 0, "HASH"))
    )


def vertex(name: str, read: int, written: int, **tasks: int) -> dict[str, Any]:
    return {"id": name, "tasks": tasks, "metrics": {"read-records": read, "write-records": written}}


def test_records_slots_and_time_stand_in_the_line() -> None:
    details = {
        "state": "RUNNING",
        "vertices": [
            vertex("s", 12_000, 36_000, FINISHED=1, RUNNING=1),
            vertex("m", 11_000, 900, RUNNING=2),
            vertex("e", 800, 0, SCHEDULED=1),
        ],
    }
    progress = Progress.of(details, graph())
    assert progress == Progress("RUNNING", 12_000, 800, 2, 3), "what it writes (to sinks, too) is not read"
    assert progress.line("job", 3723.9) == "job: RUNNING  records in 12,000 out 800  slots 2/3  1:02:03"


def test_what_a_job_waits_for_stands_in_the_line() -> None:
    details = {"state": "CREATED", "vertices": [], "firesteel-waiting-for": "2 more slots are needed."}
    assert Progress.of(details, graph()).line("job", 5).endswith("slots 0/3  0:00:05  waits: 2 more slots are needed.")


def test_after_a_restart_the_line_says_from_when_on_it_counts_and_why() -> None:
    details = {
        "state": "RUNNING", "vertices": [vertex("s", 11, 11, RUNNING=2)],
        "firesteel-restarts": 2, "firesteel-last-failure": "LookupError: no price",
    }  # fmt: skip
    line = Progress.of(details, graph()).line("job", 60)
    assert "records in 11 out 0 since the restart  slots" in line
    assert line.endswith("0:01:00  restarted 2 times after LookupError: no price")
    once = Progress.of({**details, "firesteel-restarts": 1}, graph()).line("job", 60)
    assert "restarted once after" in once


def test_a_job_of_which_little_is_known_yet() -> None:
    assert Progress.of({"state": "CREATED", "vertices": []}, graph()) == Progress("CREATED", 0, 0, 0, 3)


def test_plain_lines_come_with_changes_and_seldom_else() -> None:
    occasion = Occasion()
    states = [
        ("CREATED", "", 0.0), ("CREATED", "", 1.0), ("CREATED", "slots", 1.5), ("CREATED", "slots", 1.6),
        ("RUNNING", "", 2.0), ("RUNNING", "", 2.0 + PLAIN_SECONDS), ("RUNNING", "", 33.0),
    ]  # fmt: skip
    due = [occasion.is_due(Progress(state, 0, 0, 0, 3, reason), at) for state, reason, at in states]
    assert due == [True, False, True, False, True, True, False]


def job(name: str, state: str, start: int) -> dict[str, Any]:
    return {"jid": name * 32, "name": name, "state": state, "start-time": start}


def test_lists_are_flinks() -> None:
    jobs = [job("b", "RUNNING", 2_000), job("a", "RESTARTING", 1_000), job("c", "CREATED", 0), job("d", "FAILED", 0)]
    everything = job_lists(jobs, running=True, scheduled=True, ended=True)
    assert [line for line in everything if " : " not in line] == [
        "------------------ Running/Restarting Jobs -------------------",
        "--------------------------------------------------------------",
        "----------------------- Scheduled Jobs -----------------------",
        "--------------------------------------------------------------",
        "---------------------- Terminated Jobs -----------------------",
        "--------------------------------------------------------------",
    ]
    shown = [line.partition(" : ")[2] for line in everything if " : " in line]
    states = {"a": "RESTARTING", "b": "RUNNING", "c": "CREATED", "d": "FAILED"}
    assert shown == [f"{name * 32} : {name} ({state})" for name, state in states.items()]
    assert everything[1][2::3][:2] == ".."
    assert job_lists([], running=True, scheduled=True, ended=False) == ["No running jobs.", "No scheduled jobs."]
    assert job_lists(jobs, running=False, scheduled=True, ended=False)[1].endswith("c (CREATED)")


def of_health(kind: str, text: str, **figures: Any) -> dict[str, Any]:
    return {"firesteel-health": {"finding": {"kind": kind, "text": text}, **figures}}


def test_lists_begin_with_the_ill_jobs_and_say_what_is_wrong() -> None:
    figures = {
        "restarts-in-last-hour": 2, "records-in-per-second": 1234.5, "records-out-per-second": 0.25,
        "pending-records": 98765, "last-checkpoint-timestamp": 3_500,
    }  # fmt: skip
    jobs = [
        job("a", "RUNNING", 1_000) | of_health("good", "No vertex is late."),
        job("b", "RUNNING", 2_000) | {"duration": 3_000} | of_health("bad", "Failed just now: LookupError", **figures),
        job("c", "RUNNING", 3_000) | of_health("warn", "Checkpoints are slow"),
    ]
    _, *lines, _ = job_lists(jobs, running=True, scheduled=False, ended=False)
    assert [line.partition(" : ")[2][35:] or line for line in lines] == [
        "b (RUNNING)",
        "    Failed just now: LookupError",
        "    in 1,234/s, out 0.2/s, lag 98,765 records, last checkpoint 1.5 s ago, 2 restarts in the last hour",
        "c (RUNNING)",
        "    Checkpoints are slow",
        "a (RUNNING)",
    ]
    batch = job("d", "RUNNING", 0) | {"jobType": "BATCH"} | of_health("good", "1 of 3 stages are done.")
    assert health_lines(batch) == ["    1 of 3 stages are done."], "how far it is"
