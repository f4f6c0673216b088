"""What stores of jobs have in common when they read: what is damaged, what is only unknown, and how that is said."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from firesteel.core.errors import GraphError
from firesteel.graph.job_graph import FORMAT_VERSION, JobGraph
from firesteel.ha.documents import DamagedEntryError, UnknownFormatError

DAMAGED: Final = (
    DamagedEntryError, GraphError, KeyError, TypeError, ValueError, FileNotFoundError, NotADirectoryError,
)  # fmt: skip
"""What reading an entry raises that no waiting mends; ``UnknownFormatError`` comes before it."""
_JOB_ID: Final = re.compile(r"[0-9a-f]{32}")


def is_job_id(name: str) -> bool:
    """Whether an entry of this name is one of a job; anything else was put there by somebody else."""
    return _JOB_ID.fullmatch(name) is not None


def reason_of(error: Exception) -> str:
    """Why an entry is damaged, for people."""
    return str(error) if isinstance(error, DamagedEntryError | GraphError) else repr(error)


def stored_graph(plain: Any) -> JobGraph:
    """The graph of a job, as it was stored.

    Raises:
        GraphError: it is malformed.
        UnknownFormatError: another version has written it.
    """
    version = plain.get("format_version") if isinstance(plain, Mapping) else None
    if isinstance(version, int) and version != FORMAT_VERSION:
        raise UnknownFormatError(f"a job graph has the format {version}; this version reads format {FORMAT_VERSION}")
    return JobGraph.from_plain(plain)


def notes_of(read: Callable[[str], Mapping[str, Any] | None]) -> tuple[tuple[str, str] | None, bool]:
    """Where the JobMaster of a job is, and whether it was cancelled, as far as that can be read.

    Args:
        read: gives a note of the job by its kind.
    """

    def note(kind: str) -> Mapping[str, Any] | None:
        try:
            return read(kind)
        except DAMAGED:
            return None

    jobmaster = note("jobmaster")
    where = (str(jobmaster.get("address", "")), str(jobmaster.get("token", ""))) if jobmaster else None
    return where, note("cancel") is not None


def other_version(where: str, error: Exception) -> str:
    """The sentence with which a Dispatcher refuses to lead."""
    return (
        f"The jobs in {where} were stored by another version of Firesteel ({error}): this Dispatcher does not lead; "
        "start the version that has stored them, and upgrade by savepoints"
    )


def damaged_application(where: str, error: Exception) -> str:
    """What is said where nobody knows whether the application of the cluster has run."""
    return (
        f"How far the application of this cluster has come can't be read: {where} is damaged: {error}. It is not run "
        "again, which would repeat it; remove what is damaged to have it run anew"
    )
