"""Application mode: a cluster that exists for one program. Pure.

A record of the application is kept with the jobs. It says which run this is and how the run ended, so the next leader
knows whether the program has to run again. The ids of the jobs follow from the cluster's id and the number of the run.
A program that runs again, since its JobManager was restarted, finds the jobs that it has submitted before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from firesteel.config import Settings, options
from firesteel.core.errors import ConfigurationError
from firesteel.core.ids import derived_job_id, parse_job_id
from firesteel_dispatcher.application import Application

_RUN: Final = "run"
_START: Final = "start"


@dataclass(frozen=True)
class ApplicationSettings:
    """The program of a cluster in application mode, and when it runs.

    Attributes:
        program: path of the program.
        entry: see ``firesteel.application.entry``.
        arguments: command line of the program.
        cluster_id: of high availability.
        job_id: id of the application and of its first job; None: derived from the cluster's id.
        start_id: id of this start of the cluster; empty = none.
        ends_cluster: whether the cluster ends with the application.
        runs_again: whether the next start of the cluster runs an application anew that has ended.
    """

    program: str
    entry: str | None = None
    arguments: tuple[str, ...] = ()
    cluster_id: str = "default"
    job_id: str | None = None
    start_id: str = ""
    ends_cluster: bool = True
    runs_again: bool = True

    @classmethod
    def from_settings(cls, settings: Settings) -> ApplicationSettings | None:
        """Read the options; None: the cluster is a session.

        Raises:
            ConfigurationError: an option has a bad value.
        """
        program = settings.get(options.APPLICATION_PROGRAM)
        if program is None:
            return None
        job_id = settings.get(options.APPLICATION_JOB_ID)
        if job_id is not None:
            parse_job_id(job_id)
        return cls(
            program=program,
            entry=settings.get(options.APPLICATION_ENTRY),
            arguments=read_arguments(settings.get(options.APPLICATION_ARGUMENTS)),
            cluster_id=settings.get(options.HA_CLUSTER_ID),
            job_id=job_id,
            start_id=settings.get(options.APPLICATION_START_ID) or "",
            ends_cluster=settings.get(options.SHUTDOWN_ON_APPLICATION_FINISH),
            runs_again=settings.get(options.APPLICATION_RESULT_DELETE_ON_COMMIT),
        )


def read_arguments(text: str | None) -> tuple[str, ...]:
    """Read ``firesteel.application.arguments``.

    Raises:
        ConfigurationError: the value is no JSON array of texts.
    """
    try:
        arguments = json.loads(text) if text else []
    except ValueError:
        arguments = None
    if not isinstance(arguments, list) or not all(isinstance(argument, str) for argument in arguments):
        key = options.APPLICATION_ARGUMENTS.key
        raise ConfigurationError(f"{key} has to be a JSON array of texts, not {text!r:.60}")
    return tuple(arguments)


@dataclass(frozen=True)
class Resumption:
    """How a Dispatcher that has come to lead goes on with the application of its cluster.

    Attributes:
        id: of the application in this run.
        run: number of the run, from 0.
        ended: the application if it has ended and is not run again; None: the program is run.
        is_new: whether this run has just begun, so no Dispatcher has stored anything of it.
    """

    id: str
    run: int
    ended: Application | None = None
    is_new: bool = True


def resume(settings: ApplicationSettings, record: Mapping[str, Any] | None, stood_by: bool) -> Resumption:
    """Decide whether the program runs, and under which id.

    Args:
        settings: of the application.
        record: the record that the Dispatcher before has stored; None = there is none.
        stood_by: this Dispatcher has waited while another one led, so an application that has ended stays ended.
    """
    if record is None or _RECORD_KEYS - record.keys():
        return Resumption(_id(settings, 0), 0)
    run, last = int(record[_RUN]), Application.from_plain(record)
    if not last.ended:
        return Resumption(last.id, run, is_new=False)
    same_start = bool(settings.start_id) and record[_START] == settings.start_id
    if same_start or stood_by or not settings.runs_again:
        return Resumption(last.id, run, last, is_new=False)
    return Resumption(_id(settings, run + 1), run + 1)


def record_of(settings: ApplicationSettings, run: int, application: Application) -> dict[str, Any]:
    """The record that ``resume`` reads."""
    return {**application.to_plain(), _RUN: run, _START: settings.start_id}


_RECORD_KEYS: Final = frozenset({"id", "name", "state", "timestamps", "exceptions", "exit-code", _RUN, _START})


def _id(settings: ApplicationSettings, run: int) -> str:
    return settings.job_id or str(derived_job_id(f"application of {settings.cluster_id}", run))
