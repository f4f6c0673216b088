"""Typed identifiers and fencing tokens. All are text, so that they travel as JSON."""

from __future__ import annotations

import hashlib
import itertools
import re
import secrets
from collections.abc import Iterator
from typing import NewType

from firesteel.core.errors import ConfigurationError

JobId = NewType("JobId", str)
"""32 lower-case hex digits."""
VertexId = NewType("VertexId", str)
"""32 lower-case hex digits; equal to the id of the vertex's first operator."""
OperatorId = NewType("OperatorId", str)
"""32 lower-case hex digits; stable over submissions of the same program."""
AllocationId = NewType("AllocationId", str)
"""Names one allocation of one slot to one job; 32 hex digits."""
ExecutionId = NewType("ExecutionId", str)
"""Names one attempt of one subtask: ``<vertex id>_<subtask>_<attempt>``."""
TaskManagerId = NewType("TaskManagerId", str)
"""Free text such as ``host:port-suffix``."""
FencingToken = NewType("FencingToken", str)
"""Names one term of one leader; 32 hex digits."""

_HEX32 = re.compile(r"[0-9a-f]{32}")


def new_job_id() -> JobId:
    """A random job id."""
    return JobId(secrets.token_hex(16))


def derived_job_id(text: str, number: int) -> JobId:
    """A job id that follows from a text and a number; number 0 of a job id is that id."""
    if number == 0 and _HEX32.fullmatch(text):
        return JobId(text)
    return JobId(hashlib.sha256(f"{text}/{number}".encode()).hexdigest()[:32])


def derived_job_ids(application_id: str) -> Iterator[JobId]:
    """Ids of the jobs of an application, in the order in which it submits them: the first one has its own."""
    return (derived_job_id(application_id, number) for number in itertools.count())


def new_allocation_id() -> AllocationId:
    """A random allocation id."""
    return AllocationId(secrets.token_hex(16))


class AllocationIds:
    """Makes allocation ids that differ in their last digits only, so that lists of many of them pack well.

    Those of two makers have different first digits.
    """

    def __init__(self) -> None:
        self._prefix, self._numbers = secrets.token_hex(10), itertools.count()

    def __call__(self) -> AllocationId:
        return AllocationId(f"{self._prefix}{next(self._numbers):012x}")


def new_fencing_token() -> FencingToken:
    """A random token for a new term of a leader."""
    return FencingToken(secrets.token_hex(16))


def execution_id(vertex: VertexId, subtask: int, attempt: int) -> ExecutionId:
    """The id of one attempt of one subtask."""
    return ExecutionId(f"{vertex}_{subtask}_{attempt}")


def parse_job_id(text: str) -> JobId:
    """Check a job id that came from outside.

    Raises:
        ConfigurationError: it is not 32 lower-case hex digits.
    """
    if not _HEX32.fullmatch(text):
        raise ConfigurationError(f"{text[:80]!r} is not a job id: 32 lower-case hex digits are expected")
    return JobId(text)
