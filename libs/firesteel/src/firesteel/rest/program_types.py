"""What the answers about running a job again are made of; see ``types``."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class JobProgram(TypedDict):
    """The uploaded program that has submitted a job; secrets in its arguments are stars."""

    id: str
    name: str
    entry: str | None
    arguments: list[str]


class RestoreChoice(TypedDict):
    """A savepoint or checkpoint that a job has left, from which another run of its program may go on."""

    kind: Literal["savepoint", "checkpoint"]
    id: int
    path: str


class RunAgainRequest(TypedDict):
    """From which savepoint or retained checkpoint a program goes on; without a path it begins anew."""

    savepointPath: NotRequired[str | None]
    allowNonRestoredState: NotRequired[bool | None]
