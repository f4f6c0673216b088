"""``firesteel logs``: what services, JobMasters and tasks have logged, over REST."""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from firesteel.client.cli import exit_codes
from firesteel.client.cli.definitions import settings_of
from firesteel.client.cli.named_jobs import chosen_job
from firesteel.client.connections import ClusterConnection, close_connections, connect
from firesteel.client.console import Console
from firesteel.client.waiting import wait_for
from firesteel.core.errors import ConfigurationError, JobNotFoundError, PeerUnreachableError, RpcError
from firesteel.core.text_output import ESCAPED

JOBMANAGER: Final = "jobmanager"
_JOB: Final = re.compile(r"[0-9a-fA-F]{32}")
_STEP_SECONDS: Final = 1.0
_LINE_BYTES: Final = 400
"""Bytes of a file that are read for each requested line; generous, most lines are shorter."""
_LEAST_BYTES, _MOST_BYTES = 1 << 16, 1 << 26
_MOST_RECORDS: Final = 10_000
"""Most records of a job in an answer."""
_FOLLOWED: Final = 1000
_OVERLAP_MS: Final = 5000
"""How far back each question of ``--follow`` looks: clocks of hosts may differ by that much."""


@dataclass(frozen=True)
class ReadableLog:
    """A file that can be read.

    Attributes:
        owner: TaskManager, or ``jobmanager``.
        name: of the file.
        size: bytes.
        only: show only lines that contain this text; empty = all.
    """

    owner: str
    name: str
    size: int
    only: str = ""

    @property
    def path(self) -> str:
        """Path of its content in the REST API."""
        return f"{folder_of(self.owner)}/{quote(self.name, safe='')}"


def logs(parsed: argparse.Namespace, console: Console) -> int:
    """Show logs of a job, a TaskManager or the JobManager, or who has some (``firesteel logs``)."""
    try:
        connection = connect(settings_of(parsed))
        if parsed.owner is None:
            return _owners(parsed, console, connection)
        owner = wait_for(console, connection, "Looking for logs", owner_of(connection.rest.get, parsed.owner))
        if _JOB.fullmatch(owner) and not parsed.list and parsed.file is None:
            return _of_job_on_all_hosts(parsed, console, connection, owner.lower())
        if parsed.level or parsed.grep:
            raise ConfigurationError("--level and --grep choose records of a job: name one, and no --file or --list")
        files = wait_for(console, connection, "Looking for logs", files_of(connection.rest.get, owner, parsed.file))
        if parsed.list:
            _say_list(parsed, console, files)
        elif parsed.json:
            console.say_json(
                {"logs": [{**_plain(file), "lines": list(_tail(connection, file, parsed.lines)[0])} for file in files]}
            )
        else:
            _show(console, connection, files, parsed.lines, parsed.follow)
    finally:
        close_connections()
    return exit_codes.DONE


def _of_job_on_all_hosts(
    parsed: argparse.Namespace, console: Console, connection: ClusterConnection, job_id: str
) -> int:
    """Show what all processes have logged about a job, in order of time."""
    # Who follows needs the records of the overlap, to know which of the next answer are new.
    limit = min(_MOST_RECORDS, max(parsed.lines, _FOLLOWED if parsed.follow else 1))
    query = {"level": parsed.level or "", "text": parsed.grep or "", "limit": limit}
    path = f"/jobs/{job_id}/logs?"
    answer = wait_for(console, connection, "Looking for logs", connection.rest.get(path + urlencode(query)))
    records = answer["records"][-parsed.lines :] if parsed.lines else []
    if parsed.json:
        console.say_json({"records": records, "sources": answer["sources"]})
        return exit_codes.DONE
    _note_silent(console, answer["sources"], set())
    for record in records:
        console.say(line_of(record))
    shown = Unshown(answer["records"])
    silent = {source["source"] for source in answer["sources"] if "error" in source}
    since = max(int(answer["now"]) - _OVERLAP_MS, int(answer["complete-to"]))
    while parsed.follow:
        time.sleep(_STEP_SECONDS)
        try:
            more = urlencode({**query, "limit": _MOST_RECORDS, "since": since})
            answer = connection.loop.run(connection.rest.get(path + more))
        except PeerUnreachableError:  # the Dispatcher restarts
            continue
        for record in shown.of(answer["records"]):
            console.say(line_of(record))
        silent = _note_silent(console, answer["sources"], silent)
        since = int(answer["complete-to"] if answer["complete-to"] >= 0 else answer["now"] - _OVERLAP_MS)
    return exit_codes.DONE


def _note_silent(console: Console, sources: Iterable[Mapping[str, Any]], known: set[str]) -> set[str]:
    """Say who does not answer, if that was not said before; returns all who don't."""
    silent = {str(source["source"]): str(source["error"]) for source in sources if "error" in source}
    for name, error in silent.items():
        if name not in known:
            console.note(f"no records of {name}: {error}")
    return set(silent)


def line_of(record: Mapping[str, Any]) -> str:
    """A record of a job as a line for people: time here, level, where, task, text."""
    at = datetime.fromtimestamp(record["time"] / 1000).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
    about = f"{record['source']}, {record['task']}" if record.get("task") else record["source"]
    return f"{at} {record['level']:5} {record['logger']} [{about}]: {record['message']}"


class Unshown:
    """Tells which records of an answer are new, where answers overlap: a host may be late with a record.

    Args:
        records: of the first answer.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]]) -> None:
        self._shown = Counter(map(self._key, records))

    @staticmethod
    def _key(record: Mapping[str, Any]) -> tuple[Any, ...]:
        return record["time"], record["source"], record.get("task"), record["message"]

    def of(self, records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The new ones; those of this answer are remembered until the next one."""
        counts = Counter(map(self._key, records))
        seen = counts & self._shown
        fresh: list[Mapping[str, Any]] = []
        for record in records:
            key = self._key(record)
            if seen[key]:
                seen[key] -= 1
            else:
                fresh.append(record)
        self._shown = counts
        return fresh


async def owner_of(get: Callable[[str], Any], word: str) -> str:
    """Whose logs a word of the command line means: the id of a job that it names, else the word itself."""
    if word == JOBMANAGER or _JOB.fullmatch(word):
        return word
    try:
        return chosen_job((await get("/jobs/overview"))["jobs"], word, ended=True)
    except JobNotFoundError:
        return word


def folder_of(owner: str) -> str:
    """Path in the REST API of the logs of an owner: a TaskManager's id, or ``jobmanager``."""
    return "/jobmanager/logs" if owner == JOBMANAGER else f"/taskmanagers/{quote(owner, safe='')}/logs"


async def files_of(get: Callable[[str], Any], owner: str, name: str | None) -> list[ReadableLog]:
    """The files that a word of the command line means.

    Args:
        get: asks the REST API.
        owner: a job's id, a TaskManager's, or ``jobmanager``.
        name: of the only file to show; None = the main log of the owner.

    Raises:
        JobNotFoundError: there is no such owner, or file.
    """
    if _JOB.fullmatch(owner):
        return await _of_job(get, owner.lower(), name)
    try:
        listed = (await get(folder_of(owner)))["logs"]
    except JobNotFoundError as error:
        raise JobNotFoundError(
            f"there are no logs of {owner!r}: name a job's id, a TaskManager's id (`firesteel logs` lists them) or "
            f"{JOBMANAGER}"
        ) from error
    files = [ReadableLog(owner, str(entry["name"]), int(entry["size"])) for entry in listed]
    if name is None:
        return files
    named_files = [file for file in files if file.name == name]
    if not named_files:
        raise JobNotFoundError(f"{owner} has no log {name!r}, only {', '.join(file.name for file in files) or 'none'}")
    return named_files


async def _of_job(get: Callable[[str], Any], job_id: str, name: str | None) -> list[ReadableLog]:
    """Logs of a job: that of its JobMaster, and its own lines in the logs of its TaskManagers."""
    details = await get(f"/jobs/{job_id}")  # an unknown job is an error of its own
    listed = (await get(folder_of(JOBMANAGER)))["logs"]
    files = [
        ReadableLog(JOBMANAGER, str(entry["name"]), int(entry["size"]))
        for entry in listed
        if job_id in str(entry["name"])
    ]
    owners: set[str] = set()
    for vertex in details["vertices"]:
        shown = await get(f"/jobs/{job_id}/vertices/{vertex['id']}/taskmanagers")
        owners |= {str(entry["taskmanager-id"]) for entry in shown["taskmanagers"]}
    for owner in sorted(owners - {"(unassigned)"}):
        try:
            owner_logs = (await get(folder_of(owner)))["logs"]
        except (JobNotFoundError, RpcError):  # it has gone, and its logs with it
            continue
        files += [
            ReadableLog(owner, str(entry["name"]), int(entry["size"]), job_id) for entry in main_files(owner_logs)
        ]
    matching_files = [file for file in files if name in (None, file.name)]
    if not matching_files:
        raise JobNotFoundError(f"there is no log of job {job_id} any more", job_id)
    return matching_files


def main_files(listed: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The log of a TaskManager: no rotated ones, nothing that was printed, and what slots log is in it."""
    return [
        entry
        for entry in listed
        if str(entry["name"]).endswith(".log") and not str(entry["name"]).startswith(("slot-", "executor-"))
    ]


def last_lines(text: str, count: int, only: str = "") -> list[str]:
    """The last lines of a text.

    Args:
        text: whose first line may be cut.
        count: most lines.
        only: what each has to hold; lines that continue one (a traceback) go with it.
    """
    lines = text.splitlines()
    if only:
        lines = list(with_continuations(lines, only))
    return lines[-count:] if count else []


def with_continuations(lines: Iterable[str], only: str) -> Iterator[str]:
    """Lines that contain a text, each with the lines behind it that begin no record of their own (tracebacks)."""
    in_matching_record = False
    for line in lines:
        if line[:1].isdigit() or line.startswith("{"):  # a time, or JSON: another record
            in_matching_record = only in line
        if in_matching_record:
            yield line


def _tail(connection: ClusterConnection, file: ReadableLog, count: int) -> tuple[list[str], int]:
    """The last lines of a file, and the position behind them."""
    byte_count = min(_MOST_BYTES, max(_LEAST_BYTES, count * _LINE_BYTES * (8 if file.only else 1)))
    start = max(0, file.size - byte_count)
    data, end = connection.loop.run(connection.rest.part(file.path, start))
    if start:
        data = data.partition(b"\n")[2]
    return last_lines(data.decode(errors=ESCAPED), count, file.only), end


def _show(console: Console, connection: ClusterConnection, files: list[ReadableLog], count: int, follow: bool) -> None:
    shown = [file for file in files if file.name.endswith(".log")] or files
    ends: dict[ReadableLog, int] = {}
    for file in shown:
        lines, ends[file] = _tail(connection, file, count)
        if len(shown) > 1 and lines:
            console.note(f"==> {file.owner}: {file.name} <==")
        for line in lines:
            console.say(line)
    last = shown[-1]
    while follow:
        time.sleep(_STEP_SECONDS)
        for file in shown:
            data, ends[file] = _more(connection, file, ends[file])
            lines = data.decode(errors=ESCAPED).splitlines()
            if file.only:
                lines = list(with_continuations(lines, file.only))
            if lines and file is not last:
                last = file
                console.note(f"==> {file.owner}: {file.name} <==")
            for line in lines:
                console.say(line)


def _more(connection: ClusterConnection, file: ReadableLog, start: int) -> tuple[bytes, int]:
    """Read whole lines from a position on; returns them and the position behind them.

    A file that became shorter was rotated, and is read from its start.
    """
    try:
        data, end = connection.loop.run(connection.rest.part(file.path, start))
    except (JobNotFoundError, PeerUnreachableError):  # it is being rotated, or its owner restarts
        return b"", start
    if end < start:
        return b"", 0
    whole = data[: data.rfind(b"\n") + 1]
    return whole, start + len(whole)


def _owners(parsed: argparse.Namespace, console: Console, connection: ClusterConnection) -> int:
    if parsed.follow or parsed.file or parsed.list:
        raise ConfigurationError(f"say whose logs: a job's id, a TaskManager's, or {JOBMANAGER}")
    run, rest = connection.loop.run, connection.rest
    taskmanagers = [str(entry["id"]) for entry in run(rest.get("/taskmanagers"))["taskmanagers"]]
    jobs = [(str(entry["jid"]), str(entry["name"])) for entry in run(rest.get("/jobs/overview"))["jobs"]]
    if parsed.json:
        console.say_json({"owners": [JOBMANAGER, *taskmanagers, *(job_id for job_id, _ in jobs)]})
        return exit_codes.DONE
    console.say(JOBMANAGER)
    for entry in taskmanagers:
        console.say(entry)
    for job_id, name in jobs:
        console.say(f"{job_id}  {name}")
    return exit_codes.DONE


def _say_list(parsed: argparse.Namespace, console: Console, files: list[ReadableLog]) -> None:
    if parsed.json:
        console.say_json({"logs": [_plain(file) for file in files]})
        return
    for file in files:
        console.say(f"{file.size:>14,}  {file.owner}  {file.name}")


def _plain(file: ReadableLog) -> dict[str, Any]:
    return {"owner": file.owner, "name": file.name, "size": file.size}
