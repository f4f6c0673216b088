"""The jobs that words of the command line name: by id, by the beginning of an id, or by name."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from firesteel.client.cli import exit_codes
from firesteel.client.connections import ClusterConnection
from firesteel.client.console import Console
from firesteel.client.waiting import wait_for
from firesteel.core.errors import ConfigurationError, FiresteelError, JobNotFoundError
from firesteel.core.ids import JobId

ENDED: Final = frozenset({"FINISHED", "CANCELED", "FAILED"})
SHORT: Final = 8
"""Digits of an id that people are shown where the whole id is not needed."""
_ID: Final = re.compile(r"[0-9a-f]{32}")
_LISTED: Final = 5
"""Jobs that are listed where a word means several."""
Result = tuple[str, Mapping[str, Any]]
"""What was done with a job: as text for people, and as JSON shows it."""


def chosen_job(jobs: Iterable[Mapping[str, Any]], word: str, *, ended: bool = False) -> JobId:
    """The job that a word names; a name goes before the beginning of an id, and a job that runs before one that ended.

    Args:
        jobs: of the answer of ``GET /jobs/overview``.
        word: id, beginning of an id, or name.
        ended: whether the job may have ended; of those with one name the last one is meant.

    Raises:
        ConfigurationError: the word may mean several jobs.
        JobNotFoundError: it means none, or one that has ended.
    """
    known_jobs = list(jobs)
    live_jobs = [job for job in known_jobs if job["state"] not in ENDED]
    ended_jobs = sorted((job for job in known_jobs if job["state"] in ENDED), key=lambda job: -job["start-time"])
    for candidates in (live_jobs, ended_jobs):
        matching = [job for job in candidates if job["name"] == word]
        if matching and candidates is ended_jobs:
            matching = matching[:1]
        if not matching:
            matching = [job for job in candidates if word and job["jid"].startswith(word.lower())]
        if len(matching) > 1:
            named = ", ".join(f"{job['jid'][:SHORT]} ({job['name']})" for job in matching[:_LISTED])
            more = ", ..." if len(matching) > _LISTED else ""
            raise ConfigurationError(
                f"{word!r} may be any of {len(matching)} jobs: {named}{more}; write more of the id"
            )
        if matching and (ended or candidates is live_jobs):
            return JobId(matching[0]["jid"])
        if matching:
            job = matching[0]
            raise JobNotFoundError(f"job {job['jid']} ({job['name']}) has already ended: it is {job['state']}")
    listing = "firesteel list -a" if ended else "firesteel list"
    raise JobNotFoundError(f"no job has the name {word!r}, or an id that begins with it; `{listing}` shows them")


def named_jobs(
    console: Console, connection: ClusterConnection, words: Sequence[str], *, ended: bool = False
) -> list[JobId]:
    """The ids of the jobs that words name, each once; whole ids are taken as they are, and nobody is asked about them.

    Raises:
        ConfigurationError, JobNotFoundError: see ``chosen_job``.
        RpcError: the cluster does not answer.
    """
    jobs: list[Mapping[str, Any]] | None = None
    job_ids: list[JobId] = []
    for word in words:
        if _ID.fullmatch(word.lower()):
            job_ids.append(JobId(word.lower()))
            continue
        if jobs is None:
            jobs = wait_for(console, connection, "Asking for jobs", connection.rest.get("/jobs/overview"))["jobs"]
        job_ids.append(chosen_job(jobs, word, ended=ended))
    return list(dict.fromkeys(job_ids))


def for_each_job(
    parsed: argparse.Namespace, console: Console, job_ids: Sequence[JobId], act: Callable[[JobId], Result]
) -> int:
    """Do something with each job and say what became of it; one that fails does not keep the others from it.

    Ctrl-C leaves out the jobs that are left; JSON still has the results so far, such as where savepoints are.

    Returns:
        The exit code.

    Raises:
        FiresteelError: there is one job alone, and it failed.
    """
    if len(job_ids) == 1:
        console.say_result(parsed.json, *act(job_ids[0]))
        return exit_codes.DONE
    results: list[Mapping[str, Any]] = []
    code = exit_codes.DONE
    for job_id in job_ids:
        try:
            text, plain = act(job_id)
        except KeyboardInterrupt:
            if not parsed.json:
                raise
            results.append({"job": job_id, "error": "interrupted"})
            code = exit_codes.INTERRUPTED
            break
        except FiresteelError as error:
            code = exit_codes.FAILED
            console.note(f"firesteel {parsed.verb}: {error}")
            results.append({"job": job_id, "error": str(error)})
        else:
            results.append(plain)
            if not parsed.json:
                console.say(text)
    if parsed.json:
        console.say_json({"jobs": results})
    return code
