"""What the answer about the events of a job is made of; see ``types``."""

from __future__ import annotations

from typing import TypedDict


class JobEventInfo(TypedDict):
    """Something that has happened to a job: ``last`` and ``count`` say more where the same came several times in a row;
    ``by`` is who asked for it (empty = nobody), ``detail`` what follows from it, or where its result is."""

    type: str
    level: str
    text: str
    by: str
    detail: str
    timestamp: int
    last: int
    count: int


class JobEventsInfo(TypedDict):
    """What has happened to a job, in the order of time; ``dropped`` earlier events are kept no more."""

    now: int
    events: list[JobEventInfo]
    dropped: int
