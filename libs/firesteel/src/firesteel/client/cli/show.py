"""``firesteel show``, ``firesteel open`` and ``firesteel wait``: what a job does, its page, and its end."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import webbrowser
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from firesteel.client.cli import exit_codes
from firesteel.client.cli.definitions import settings_of
from firesteel.client.cli.named_jobs import ENDED, named_jobs
from firesteel.client.cli.top import Looking
from firesteel.client.cli.top_table import JobRows, lines, progress_text
from firesteel.client.connections import close_connections, connect
from firesteel.client.console import Console
from firesteel.client.progress import clock_text
from firesteel.client.rest_client import RestClient
from firesteel.client.waiting import wait_for
from firesteel.core.errors import JobNotFoundError
from firesteel.core.human_texts import duration_text, size_text
from firesteel.core.ids import JobId

_LEAST_MS: Final = 1000
"""Time between two checkpoints from which on the growth of state says something."""
_ASK_MS: Final = 10_000
"""The cluster is asked again after this time whether a job has ended."""
_ASK_BATCH_MS: Final = 2000
"""The same of a batch job, to say how far it is."""


def show(parsed: argparse.Namespace, console: Console) -> int:
    """Show what jobs do, or what became of them (``firesteel show``)."""
    shown: list[tuple[JobRows, Mapping[str, Any]]] = []
    try:
        connection = connect(settings_of(parsed))
        rest = connection.rest
        for job_id in named_jobs(console, connection, parsed.jobs, ended=True):
            rows, more = wait_for(console, connection, "Asking for the job", _look(rest, job_id))
            more = {**more, "dashboard": rest.dashboard_url(job_id)}
            if parsed.events:
                more["events"] = wait_for(console, connection, "Asking for events", rest.get(f"/jobs/{job_id}/events"))
            shown.append((rows, {**rows.plain(), **more}))
    finally:
        close_connections()
    if parsed.json:
        console.say_json({"jobs": [plain for _, plain in shown]})
        return exit_codes.DONE
    for number, (rows, plain) in enumerate(shown):
        console.say_states("\n".join([*([""] if number else []), *job_lines(rows, plain, console)]))
    return exit_codes.DONE


async def _look(rest: RestClient, job_id: JobId) -> tuple[JobRows, Mapping[str, Any]]:
    """The figures of a job; its last ``failure``, the size of its ``state``, and its ``kafka`` sources."""
    (rows,), exceptions, state, kafka, latencies = await asyncio.gather(
        Looking(rest, job_id).look(),
        rest.get(f"/jobs/{job_id}/exceptions?maxExceptions=1"),
        _if_any(rest, f"/jobs/{job_id}/state"),
        _if_any(rest, f"/jobs/{job_id}/kafka"),
        _if_any(rest, f"/jobs/{job_id}/latencies"),
    )
    failures = exceptions["exceptionHistory"]["entries"]
    return rows, {"failure": failures[0] if failures else None, "state": state, "kafka": kafka, "latencies": latencies}


async def _if_any(rest: RestClient, path: str) -> Mapping[str, Any] | None:
    """The answer of a GET; None if the job takes no checkpoints, or the cluster is of an earlier release."""
    try:
        answer: Mapping[str, Any] = await rest.get(path)
    except JobNotFoundError:
        return None
    return answer


def state_text(state: Mapping[str, Any] | None) -> str:
    """The size of a job's state as a line; empty without a checkpoint."""
    if state is None or state["checkpoint"] is None:
        return ""
    now, base = state["checkpoint"], state["base"]
    kind = "savepoint" if now["is_savepoint"] else "checkpoint"
    text = f"state: {size_text(now['size'])} in {kind} {now['id']}"
    ms = now["trigger_timestamp"] - base["trigger_timestamp"] if base is not None else 0
    if ms >= _LEAST_MS:
        growth = (now["size"] - base["size"]) / ms * 60_000
        text += f", {'-' if growth < 0 else '+'}{size_text(abs(growth))} a minute"
    operators = state["operators"]
    rows = [(row["size"] or 0, row["name"], operator["name"]) for operator in operators for row in operator["states"]]
    size, name, owner = max(rows, default=(0, "", ""))
    return f"{text}; most of it: {name} of {owner}, {size_text(size)}" if size else text


def kafka_lines(kafka: Mapping[str, Any] | None) -> list[str]:
    """The lag of each Kafka source as a line."""
    texts: list[str] = []
    for source in kafka["sources"] if kafka is not None else ():
        partitions, lag = source["partitions"], source["lag"]
        text = f"Kafka: {source['name']}: " + ("the lag is not known yet" if lag is None else f"{lag:,} records wait")
        text += f" in {len(partitions)} partition{'s' if len(partitions) != 1 else ''}"
        worst = max(partitions, key=lambda row: row["lag"] or 0)
        if worst["lag"]:
            text += f"; most in {worst['topic']}-{worst['partition']}, {worst['lag']:,}"
        texts.append(text)
    return texts


def latency_lines(latencies: Mapping[str, Any] | None) -> list[str]:
    """The latency from each source to each end of the job as a line."""
    return [
        f"latency: {path['source']:.40} to {path['vertex']:.40}: "
        + ", ".join(f"{name} {duration_text(path[name])}" for name in ("p50", "p95", "p99", "max"))
        for path in (latencies["paths"] if latencies is not None else ())
        if path["is-end"] and path["source-id"] != path["vertex-id"]
    ]


def job_lines(rows: JobRows, plain: Mapping[str, Any], console: Console) -> list[str]:
    """A job as text for people.

    Args:
        rows: its figures.
        plain: the same as JSON shows it, with ``dashboard``, ``failure``, ``state``, ``kafka``, ``latencies``.
        console: to which terminal names are cut.
    """
    failure = plain["failure"]
    title, *table = lines([rows], shutil.get_terminal_size().columns if console.is_terminal else None)
    text = [title, f"dashboard: {plain['dashboard']}"]
    text += [
        line
        for line in (state_text(plain["state"]), *kafka_lines(plain["kafka"]), *latency_lines(plain["latencies"]))
        if line
    ]
    if failure is not None:
        when = _moment(failure["timestamp"])
        task = f" in {failure['taskName']}" if failure.get("taskName") else ""
        text.append(f"last failure: {when}{task}\n{failure['stacktrace'].strip()}")
    return [*text, *(table if "events" not in plain else event_lines(plain["events"]))]


def event_lines(answer: Mapping[str, Any]) -> list[str]:
    """The events of a job as lines, in the order of time."""
    dropped = answer["dropped"]
    text = [f"{dropped} earlier events are kept no more"] if dropped else []
    for event in answer["events"]:
        when = _moment(event["timestamp"])
        times = f" ({event['count']} times in {duration_text(event['last'] - event['timestamp'])})"
        text.append(f"{when}  {event['type']}: {event['text']}{times if event['count'] > 1 else ''}")
        more = event["detail"], f"asked for by {event['by']}" if event["by"] else ""
        text += [f"    {line}" for line in more if line]
    return text


def _moment(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000).strftime("%d.%m.%Y %H:%M:%S")


def open_page(parsed: argparse.Namespace, console: Console) -> int:
    """Open the dashboard, or the page of a job, in a browser where there is a desktop (``firesteel open``)."""
    try:
        connection = connect(settings_of(parsed))
        words = [] if parsed.job is None else [parsed.job]
        url = connection.rest.dashboard_url(*named_jobs(console, connection, words, ended=True))
    finally:
        close_connections()
    console.say_result(parsed.json, url, {"dashboard": url})
    has_desktop = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if has_desktop and not parsed.json and not webbrowser.open(url):
        console.note("firesteel open: no browser can be started here; the address is above")
    return exit_codes.DONE


def wait(parsed: argparse.Namespace, console: Console) -> int:
    """Wait until jobs have ended; 1 if one of them has not finished well (``firesteel wait``)."""
    ends: list[Mapping[str, Any]] = []
    try:
        connection = connect(settings_of(parsed))
        for job_id in named_jobs(console, connection, parsed.jobs, ended=True):
            waiting = _Waiting(job_id)
            details = wait_for(console, connection, waiting.text, end_of(connection.rest, job_id, waiting.seen))
            ends.append({"job": job_id, "name": details["name"], "state": details["state"]})
            if not parsed.json:
                took = clock_text(details["duration"] / 1000)
                console.say(f"Job {job_id} ({details['name']}) is {details['state']} after {took}.")
    finally:
        close_connections()
    if parsed.json:
        console.say_json({"jobs": ends})
    return exit_codes.DONE if all(end["state"] == "FINISHED" for end in ends) else exit_codes.FAILED


class _Waiting:
    """The live line while a job is waited for: how far it is, if it is a batch job."""

    def __init__(self, job_id: JobId) -> None:
        self._what, self._stages = f"Waiting for job {job_id}", ""

    def text(self) -> str:
        return self._what + self._stages

    def seen(self, details: Mapping[str, Any]) -> None:
        """Take over details of the job."""
        self._stages = stages_text(details)


def stages_text(details: Mapping[str, Any]) -> str:
    """How far a batch job is, as part of a line; empty for other jobs."""
    vertices = [vertex for vertex in details["vertices"] if "firesteel-stage" in vertex]
    done = sum(vertex["status"] == "FINISHED" for vertex in vertices)
    running = next((v for v in vertices if v["status"] != "FINISHED" and v["start-time"] >= 0), None)
    if not vertices:
        return ""
    if running is None:
        return f": {done} of {len(vertices)} stages done"
    stage = running["firesteel-stage"]
    left = f", {duration_text(stage['left-ms'])} left" if "left-ms" in stage else ""
    bar = progress_text(stage, bar=True) if "percent" in stage else f"{stage['tasks-done']} of {stage['tasks']} tasks"
    return f": {done} of {len(vertices)} stages done, {running['name']:.40} {bar}{left}"


async def end_of(
    rest: RestClient, job_id: JobId, seen: Callable[[Mapping[str, Any]], None] = lambda _: None
) -> Mapping[str, Any]:
    """The details of a job as soon as it has ended; until then ``seen`` is called with them now and then."""
    while True:
        details: Mapping[str, Any] = await rest.get(f"/jobs/{job_id}")
        if details["state"] in ENDED:
            return details
        seen(details)
        await rest.execution_result(job_id, _ASK_BATCH_MS if details.get("job-type") == "BATCH" else _ASK_MS)
