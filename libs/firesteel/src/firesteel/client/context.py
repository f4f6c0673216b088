"""What ``firesteel`` wants of the program that it runs in its own process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from firesteel.client.console import Console
from firesteel.common.job_client import JobClient


@dataclass
class ProgramContext:
    """One run of a program by the command.

    Attributes:
        console: where the command talks to people.
        plan_only: the program is run up to its first job, which is not submitted.
        jobs: that a cluster accepted, whose end nobody has seen yet; by id.
        job_ids: those that its next jobs get; when there are no more, they get new ones.
        is_restarted: it may have been run before under the same ids: a job that is known is not submitted again.
        shows_progress: while it waits for a job.
        submitted: ids of all that a cluster accepted, in their order.
        told_of_print: whether the person knows where ``print()`` writes.
    """

    console: Console
    plan_only: bool = False
    jobs: dict[str, JobClient] = field(default_factory=dict)
    job_ids: Iterator[str] = field(default_factory=lambda: iter(()))
    is_restarted: bool = False
    shows_progress: bool = True
    submitted: list[str] = field(default_factory=list)
    told_of_print: bool = False


_current: list[ProgramContext] = []


def current() -> ProgramContext | None:
    """The context of the program that runs in this process; None if no command started it."""
    return _current[-1] if _current else None


@contextmanager
def running(context: ProgramContext) -> Iterator[ProgramContext]:
    """Within this block the process runs a program for the command."""
    _current.append(context)
    try:
        yield context
    finally:
        _current.remove(context)
