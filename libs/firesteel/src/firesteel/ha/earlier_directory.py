"""Reads files of version 1 of high availability in a directory as records of cells.

Layout::

    leaders/<component>.json            of format 1: has the attempts of a job
            job-<job id>.end            how a job has ended
    checkpoints/<job id>/counter        id of the last checkpoint; may also be a number written by hand
                         chk-<id>.json  a completed checkpoint
    jobs/term                           see ``StoreContents.term``
         application.json               the program of a cluster in application mode
         ended/<job id>.json            how a job ended
         jobs/<job id>/job.json         a job that has not ended, with its graph, and its blobs beside it
                      /jobmaster.json   address of its JobMaster
                      /cancel.json      exists if the job was cancelled

``jobs`` is ``<firesteel.cluster.directory>/dispatcher`` where ``high-availability.storageDir`` is not set. Graphs,
blobs and archives stay where they are: they become the payloads that records name.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from firesteel.checkpoint.handles import checksum
from firesteel.ha.documents import UnknownFormatError, encode, read_document
from firesteel.ha.retrieval import DISPATCHER, Attempts, of_job

_VERSION: Final = 1
_FIRST_LINE: Final = re.compile(rb"FIRESTEEL-CHECKPOINTS (\d{1,9}) ([0-9a-f]{32})\n")
_ENTRY: Final = re.compile(r"chk-(\d+)\.json")
_JOB_ID: Final = re.compile(r"[0-9a-f]{32}")


class EarlierDirectory:
    """The files of version 1.

    Args:
        directory: of the cluster.
        jobs: directory of its Dispatcher.
    """

    def __init__(self, directory: Path, jobs: Path) -> None:
        self._leaders, self._checkpoints, self._jobs = directory / "leaders", directory / "checkpoints", jobs

    def paths(self, component: str) -> list[Path]:
        """Files and folders that a job may have."""
        job_id = component.removeprefix(of_job(""))
        return [] if job_id == component else [self._checkpoints / job_id, self._leaders / f"{component}.end"]

    def records(self, component: str) -> dict[str, bytes]:
        """Values of records by name. Damaged files are returned as they are: no reader can decode them.

        Raises:
            OSError: a file can't be read for now.
        """
        if component == DISPATCHER:
            return self._of_dispatcher()
        paths = self.paths(component)
        return self._of_job(component, *paths) if paths else {}

    def _of_job(self, component: str, checkpoints: Path, end: Path) -> dict[str, bytes]:
        values: dict[str, bytes] = {}
        try:
            leader = read_document(self._leaders / f"{component}.json", "leader")
            attempts = Attempts.from_plain(leader.get("attempts", 0))
            if attempts != Attempts():
                values["attempts"] = encode("attempts", attempts.to_plain())
        except (FileNotFoundError, UnknownFormatError):
            pass  # there was no leader, or one of the current version
        if (content := _content(end)) is not None:
            values["end"] = content
        if (content := _content(checkpoints / "counter")) is not None:
            values["counter"] = content.strip() if content.strip().isdigit() else _plain_value(content, "counter")
        for name in _names(checkpoints):
            if (entry := _ENTRY.fullmatch(name)) and (content := _content(checkpoints / name)) is not None:
                values[f"checkpoint.{int(entry[1])}"] = _plain_value(content, "checkpoint")
        return values

    def _of_dispatcher(self) -> dict[str, bytes]:
        values: dict[str, bytes] = {}
        for name, path in (("term", self._jobs / "term"), ("application", self._jobs / "application.json")):
            if (content := _content(path)) is not None:
                values[name] = content
        for name in _names(self._jobs / "ended"):
            job_id = name.removesuffix(".json")
            if _JOB_ID.fullmatch(job_id):
                values[f"ended.{job_id}"] = encode("ended", {"job_id": job_id, "payload": f"ended/{name}"})
        for job_id in _names(self._jobs / "jobs"):
            if not _JOB_ID.fullmatch(job_id):
                continue  # not a file of the cluster
            values[f"job.{job_id}"] = encode("job", {"payload": f"jobs/{job_id}"})
            for note in ("jobmaster", "cancel"):
                if (content := _content(self._jobs / "jobs" / job_id / f"{note}.json")) is not None:
                    values[f"{note}.{job_id}"] = content
        return values


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _plain_value(content: bytes, kind: str) -> bytes:
    """Value of a counter or checkpoint; damaged content stays as it is, and an unknown version remains unknown."""
    first = _FIRST_LINE.match(content)
    if first is None:
        return content
    if int(first[1]) != _VERSION:
        return encode(kind, {"earlier": content.decode("latin-1")}, int(first[1]))
    body = content[first.end() :]
    if checksum(body) != first[2].decode():
        return content
    try:
        plain: Any = json.loads(body)
    except ValueError:
        return content
    if kind == "counter":
        return str(plain).encode()
    return encode(kind, {**plain, "payload": ""}) if isinstance(plain, dict) else content
