"""What is wrong with a job, in words, and the figures of its health: pure functions of job archives.

Dashboard and terminal show these findings, so both say the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from firesteel.core.human_texts import duration_text
from firesteel.graph.job_archive import PENDING, RECENT_RESTARTS, TASKS, WAITING, WORST
from firesteel.rest import types as t
from firesteel.rest.archive_cache import Archive
from firesteel.rest.watermark_views import watermark_holds

LOW: Final = 100
HIGH: Final = 500
"""Flink's levels of load, in milliseconds per second."""
FULL: Final = 900
"""Milliseconds per second from which a subtask has no time left."""
RECORDS_IN: Final = "numRecordsInPerSecond"
RECORDS_OUT: Final = "numRecordsOutPerSecond"
_RECENT_MS: Final = 600_000
"""A failure is a finding for this long after the job was started again."""
_LATE_MS: Final = 60_000
"""Event time that is further behind the clock than this is late."""
_OTHER_TIMES_MS: Final = 320_000_000_000
"""Ten years: event time that is further behind is not meant to follow the clock."""
_NO_WATERMARK: Final = 1 << 62
_SKEWED: Final = 80
_SHORT: Final = 60
_SEVERITY: Final = ("bad", "warn", "good")

Vertex = Mapping[str, Any]


def health(archive: Archive) -> t.JobHealth:
    """The figures of a job that tell at a glance whether it is well."""
    vertices, shown = archive["vertices"], t.JobHealth(finding=worst_finding(archive))
    failure = _last_failure(archive)
    if failure is not None:
        shown["last-failure"], shown["last-failure-timestamp"] = cause_of(failure), failure["timestamp"]
    if archive.get("end-time", -1) >= 0:
        return shown
    shown["restarts-in-last-hour"] = archive.get(RECENT_RESTARTS, 0)
    completed = (archive.get("checkpoints") or {}).get("latest", {}).get("COMPLETED")
    if completed is not None:
        shown["last-checkpoint-timestamp"] = completed["ended"]
    pending = [vertex[WORST][PENDING] for vertex in vertices if PENDING in vertex.get(WORST, {})]
    if pending:
        shown["pending-records"] = round(sum(pending))
    rates = job_rates(archive)
    if RECORDS_IN in rates:
        shown["records-in-per-second"] = rates[RECORDS_IN]
    if RECORDS_OUT in rates:
        shown["records-out-per-second"] = rates[RECORDS_OUT]
    return shown


def job_rates(archive: Archive) -> dict[str, float]:
    """What a job's sources read and its sinks write in a second; nothing of a batch job, whose tasks report totals."""
    if is_batch(archive):
        return {}
    read_by = readers(archive)
    readers_of_others = {reader for ids in read_by.values() for reader in ids}
    rates: dict[str, float] = {}
    for vertex in archive["vertices"]:
        loads = vertex.get(WORST, {})
        if vertex["id"] not in readers_of_others and RECORDS_IN in loads:
            rates[RECORDS_IN] = rates.get(RECORDS_IN, 0) + loads[RECORDS_IN]
        if not read_by.get(vertex["id"]) and RECORDS_OUT in loads:
            rates[RECORDS_OUT] = rates.get(RECORDS_OUT, 0) + loads[RECORDS_OUT]
    return rates


def worst_finding(archive: Archive) -> t.JobFinding | None:
    """The finding to look at first; None = there is nothing to say."""
    return min(findings(archive), key=lambda finding: _SEVERITY.index(finding["kind"]), default=None)


def findings(archive: Archive) -> list[t.JobFinding]:
    """What somebody who asks "why is it slow" should look at, the most telling first."""
    state, last = archive["state"], _last_failure(archive)
    cause = "" if last is None else cause_of(last)
    if state == "FAILED":
        text = f"The job has failed: {cause}" if cause else "The job has failed."
        return [{"kind": "bad", "text": text, "page": "exceptions"}]
    findings: list[t.JobFinding] = []
    if last is not None and archive["end-time"] < 0 and archive["now"] - last["timestamp"] < _RECENT_MS:
        age = archive["now"] - last["timestamp"]
        when = "just now" if age < 2000 else f"{duration_text(age)} ago"
        again = ", and was started again" if state == "RUNNING" else ""
        findings.append({"kind": "bad", "text": f"Failed {when}{again}: {cause}", "page": "exceptions"})
    if archive.get(WAITING):
        findings.append({"kind": "warn", "text": f"The job waits for slots: {archive[WAITING]}"})
    if state != "RUNNING":
        return findings
    warning = (archive.get("checkpoints") or {}).get("warning")
    if warning:
        findings.append({"kind": "warn", "text": f"Checkpoints are slow: {warning}", "page": "checkpoints"})
    if is_batch(archive):
        return [*findings, _stages(archive), *_skewed(archive)]
    findings += [*_starting(archive), *_loaded(archive), *_skewed(archive), *_event_time(archive)]
    return findings or [{"kind": "good", "text": "No vertex is back-pressured, overloaded or late."}]


def is_batch(archive: Archive) -> bool:
    """Whether the stages of a job run one after the other."""
    return archive.get("job-type") == "BATCH"


def tasks_done(vertex: Vertex) -> tuple[int, int]:
    """Tasks of a stage that are done, and all that it has: their number may depend on its input."""
    parallelism, is_done = vertex["parallelism"], vertex["status"] == "FINISHED"
    total = parallelism if is_done else vertex.get(TASKS, parallelism)
    # Subtasks without anything to read end as soon as the number of the others is known.
    return max(0, vertex["tasks"].get("FINISHED", 0) - (parallelism - total)), total


def readers(archive: Archive) -> dict[str, list[str]]:
    """Who feeds whom: vertex id -> ids of those that read from it."""
    read_by: dict[str, list[str]] = {node["id"]: [] for node in archive.get("plan", {}).get("nodes", ())}
    for node in archive.get("plan", {}).get("nodes", ()):
        for source in node.get("inputs", ()):
            read_by.setdefault(source["id"], []).append(node["id"])
    return read_by


def cause_of(failure: Mapping[str, Any]) -> str:
    """The class and the first line of the message of a failure."""
    message = str(failure["message"]).partition("\n")[0]
    name = str(failure["error_class"]).removeprefix("builtins.")
    return f"{name}: {message}" if message else name


def _last_failure(archive: Archive) -> Mapping[str, Any] | None:
    return max(archive.get("exceptions", ()), key=lambda e: e["timestamp"], default=None)


def _starting(archive: Archive) -> Iterator[t.JobFinding]:
    vertices = archive["vertices"]
    waiting = [
        vertex
        for vertex in vertices
        if vertex["tasks"].get("RUNNING", 0) + vertex["tasks"].get("FINISHED", 0) < vertex["parallelism"]
    ]
    if waiting:
        progress = archive.get("firesteel-progress")
        end = f": {progress}" if progress else "."
        text = f"{len(waiting)} of {len(vertices)} vertices do not run with all subtasks yet{end}"
        yield {"kind": "warn", "text": text}


def _loaded(archive: Archive) -> Iterator[t.JobFinding]:
    """Vertices that back-pressure others: those upstream are back-pressured, the vertex itself is not, and is busy."""
    by_id = {vertex["id"]: vertex for vertex in archive["vertices"]}
    read_by = readers(archive)
    bottlenecks: dict[str, float] = {}
    for vertex in archive["vertices"]:
        back_pressured = _worst(vertex, "backPressured")
        if back_pressured > LOW:
            for culprit in _culprits(vertex["id"], by_id, read_by):
                bottlenecks[culprit] = max(back_pressured, bottlenecks.get(culprit, 0))
    for vertex_id, back_pressured in sorted(bottlenecks.items(), key=lambda item: -item[1]):
        vertex = by_id[vertex_id]
        busiest = vertex.get(WORST, {}).get("busy")
        if busiest is None or (back_pressured < 2 * LOW and busiest["value"] < HIGH):
            continue  # a short wait that nobody busy has caused
        share = f"{_short(vertex)} back-pressures what is upstream of it (up to {_percent(back_pressured)} of the time)"
        if busiest["value"] < HIGH:  # it has time, and takes little
            text = (
                f"{share} though it is {_percent(busiest['value'])} busy at most: it waits for barriers of slower "
                "subtasks (see Checkpoints; unaligned ones do not wait), or for the processor, which others in its "
                "slots use."
            )
            yield {"kind": "warn", "text": text, "vertex": vertex_id}
            continue
        yield {
            "kind": "bad" if back_pressured > HIGH else "warn",
            "text": f"{share}: its subtask {_subtask(busiest, vertex)} is {_percent(busiest['value'])} busy.",
            "vertex": vertex_id,
            "subtask": busiest["subtask"],
        }
    for vertex in archive["vertices"]:
        busiest = vertex.get(WORST, {}).get("busy")
        if busiest is not None and busiest["value"] > FULL and vertex["id"] not in bottlenecks:
            yield {
                "kind": "warn",
                "text": f"{_short(vertex)}: subtask {_subtask(busiest, vertex)} is {_percent(busiest['value'])} busy; "
                "more load would cause back pressure here.",
                "vertex": vertex["id"],
                "subtask": busiest["subtask"],
            }


def _culprits(vertex_id: str, by_id: Mapping[str, Vertex], read_by: Mapping[str, list[str]]) -> set[str]:
    """Downstream of a back-pressured vertex: the first ones that are not so themselves, or have no time left."""
    culprits: set[str] = set()
    seen, open_ids = {vertex_id}, [vertex_id]
    while open_ids:
        candidates = [by_id[id_] for id_ in read_by.get(open_ids.pop(), ()) if id_ not in seen and id_ in by_id]
        if not candidates:
            continue
        busiest = max(candidates, key=lambda vertex: _worst(vertex, "busy") + _worst(vertex, "backPressured"))
        seen.add(busiest["id"])
        # These are values of different subtasks: one that works all the time is a cause itself.
        if _worst(busiest, "backPressured") > LOW and _worst(busiest, "busy") <= FULL:
            open_ids.append(busiest["id"])
        else:
            culprits.add(busiest["id"])
    return culprits


def _stages(archive: Archive) -> t.JobFinding:
    """How far a batch job is: its stages run one after the other, so those that wait for their input are no trouble."""
    vertices = archive["vertices"]
    done = sum(vertex["status"] == "FINISHED" for vertex in vertices)
    active = [vertex for vertex in vertices if vertex["status"] != "FINISHED" and vertex["start-time"] >= 0]
    running = [
        f"{_short(vertex)} has {finished} of {total} tasks done"
        for vertex in active
        for finished, total in [tasks_done(vertex)]
    ]
    text = "; ".join([f"{done} of {len(vertices)} stages are done", *running]) + "."
    finding = t.JobFinding(kind="good", text=text)
    if active:
        finding["vertex"] = active[0]["id"]
    return finding


def _skewed(archive: Archive) -> Iterator[t.JobFinding]:
    """Vertices of which one key makes more than its subtask can take, and those whose subtasks read unevenly."""
    for vertex in archive["vertices"]:
        hot_key, busiest = _hot_key(vertex)
        if hot_key is not None and busiest is not None:
            yield {
                "kind": "warn",
                "text": f"{_short(vertex)}: one key makes {_percent(1000 * hot_key['value'])} of its records, more "
                f"than subtask {_subtask(hot_key, vertex)} can take, which is {_percent(busiest['value'])} busy; more "
                "subtasks do not help. Hot keys of the vertex names it.",
                "vertex": vertex["id"],
                "subtask": hot_key["subtask"],
            }
            continue
        skew = vertex.get(WORST, {}).get("skew", 0)
        if skew > _SKEWED and vertex["parallelism"] > 1:
            text = f"{_short(vertex)}: subtasks get very different numbers of records (skew {round(skew)} %)."
            yield {"kind": "warn", "text": text, "vertex": vertex["id"]}


def _hot_key(vertex: Vertex) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """The key that is too much for its subtask, with that subtask's load: it has no time left, and gets far more."""
    loads = vertex.get(WORST, {})
    hot_key, busiest = loads.get("hotKey"), loads.get("busy")
    if hot_key is None or busiest is None or vertex["parallelism"] < 2:
        return None, None
    is_too_much = busiest["subtask"] == hot_key["subtask"] and busiest["value"] > FULL
    return (hot_key, busiest) if is_too_much and hot_key["value"] > 1.5 / vertex["parallelism"] else (None, None)


def _event_time(archive: Archive) -> Iterator[t.JobFinding]:
    """Subtasks that hold event time back, then vertices at which it begins to be late in all that reads from them."""
    holds = watermark_holds(archive)
    for hold in holds:
        yield {"kind": "warn", "text": hold["text"], "vertex": hold["cause"], "subtask": hold["causeSubtask"]}
    causes = {hold["cause"] for hold in holds}
    lags = {vertex["id"]: _lag(vertex, archive["now"]) for vertex in archive["vertices"]}
    read_by = readers(archive)
    follow_others = {reader for id_, lag in lags.items() if lag is not None for reader in read_by.get(id_, ())}
    for vertex in archive["vertices"]:
        lag = lags[vertex["id"]]
        if lag is None or vertex["id"] in follow_others | causes:
            continue
        watermark = vertex[WORST]["watermark"]
        yield {
            "kind": "warn",
            "text": f"{_short(vertex)}: event time is {duration_text(lag)} behind, furthest in subtask "
            f"{_subtask(watermark, vertex)}; so it is in all that reads from it.",
            "vertex": vertex["id"],
            "subtask": watermark["subtask"],
        }


def _lag(vertex: Vertex, now: int) -> float | None:
    """By how many ms event time is late; None = it is not, or is no time of today."""
    watermark = vertex.get(WORST, {}).get("watermark", {}).get("value", _NO_WATERMARK)
    lag: float = now - watermark
    return lag if abs(watermark) < _NO_WATERMARK and _LATE_MS < lag < _OTHER_TIMES_MS else None


def _worst(vertex: Vertex, load: str) -> float:
    value: float = vertex.get(WORST, {}).get(load, {}).get("value", 0)
    return value


def _short(vertex: Vertex) -> str:
    name = str(vertex["name"])
    return f"{name[: _SHORT - 3]}…" if len(name) > _SHORT else name


def _subtask(worst: Mapping[str, Any], vertex: Vertex) -> str:
    """A subtask for people: its number from 1 on, of how many."""
    return f"{worst['subtask'] + 1}/{vertex['parallelism']}"


def _percent(per_thousand: float) -> str:
    return f"{round(min(1000, max(0, per_thousand)) / 10)} %"
