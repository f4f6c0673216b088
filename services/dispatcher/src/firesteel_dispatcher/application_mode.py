"""Application mode: the one program for which a cluster is there. Pure.

A record of it is kept with the jobs. It says which run this is and how the run ended; so whoever leads next knows
whether the program has to run again. Its jobs have ids that follow from the cluster's id and the number of the run: a
program that runs again, since its JobManager was restarted, finds those that it has submitted before.
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
    """What a cluster in application mode runs.

    Attributes:
        program: path.
        entry: see ``firesteel.application.entry``.
        arguments: of the program.
        cluster_id: of high availability.
        job_id: of the application and its first job; None = from the cluster's id.
        start_id: of this start of the cluster; empty = none.
        ends_cluster: the cluster ends with it.
        runs_again: when it has ended, the next start runs it anew.
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
            ConfigurationError: one has a bad value.
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
    """``firesteel.application.arguments``.

    Raises:
        ConfigurationError: it is no JSON array of texts.
    """
    try:
        found = json.loads(text) if text else []
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        key = options.APPLICATION_ARGUMENTS.key
        raise ConfigurationError(f"{key} has to be a JSON array of texts, not {text!r:.60}")
    return tuple(found)


@dataclass(frozen=True)
class Resumption:
    """What a Dispatcher that leads now does with the application of its cluster.

    Attributes:
        id: of the application in this run.
        run: number of the run, from 0.
        ended: the application, which has ended: it is not run again; None = it is run.
        is_new: nothing of this run is known yet.
    """

    id: str
    run: int
    ended: Application | None = None
    is_new: bool = True


def resume(settings: ApplicationSettings, record: Mapping[str, Any] | None, stood_by: bool) -> Resumption:
    """Decide whether the program runs, and under which id.

    Args:
        settings: of the application.
        record: what the Dispatcher before has stored; None = nothing.
        stood_by: this Dispatcher has waited while another one led: what that one has ended stays so.
    """
    if record is None or _KEPT - record.keys():
        return Resumption(_id(settings, 0), 0)
    run, last = int(record[_RUN]), Application.from_plain(record)
    if not last.ended:
        return Resumption(last.id, run, is_new=False)
    same_start = bool(settings.start_id) and record[_START] == settings.start_id
    if same_start or stood_by or not settings.runs_again:
        return Resumption(last.id, run, last, is_new=False)
    return Resumption(_id(settings, run + 1), run + 1)


def record_of(settings: ApplicationSettings, run: int, application: Application) -> dict[str, Any]:
    """What is stored for ``resume``."""
    return {**application.to_plain(), _RUN: run, _START: settings.start_id}


_KEPT: Final = frozenset({"id", "name", "state", "timestamps", "exceptions", "exit-code", _RUN, _START})


def _id(settings: ApplicationSettings, run: int) -> str:
    return settings.job_id or str(derived_job_id(f"application of {settings.cluster_id}", run))
