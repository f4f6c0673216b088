"""Payloads about splits; part of ``firesteel.protocol.messages``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firesteel.protocol.message import Message


@dataclass(frozen=True)
class RequestSplits(Message):
    """A source subtask asks for splits.

    Attributes:
        execution_id: of the subtask.
        number: 1, 2, 3, ... for each subtask; a repeat carries the same number, and gets the same answer.
        taken: the TaskManager has all splits up to this serial; answers with larger serials may be lost.
    """

    execution_id: str
    number: int
    taken: int = 0


@dataclass(frozen=True)
class Splits(Message):
    """Plain splits.

    Attributes:
        splits: for one subtask.
        no_more: no splits will come after these.
        serial: 1, 2, 3, ... for each subtask, so that splits that come twice are taken once; 0 = there are none now,
            and later ones come by ``assign_splits``.
    """

    splits: tuple[Mapping[str, Any], ...]
    no_more: bool
    serial: int = 0


@dataclass(frozen=True)
class AssignSplits(Message):
    """Plain splits for a source subtask that was told to wait; ``serial`` as in ``Splits``.

    Jobs that run the same program have tasks with the same ids. So ``job_id`` and ``allocation_id`` name the task as
    well, here and in other calls to a TaskManager.
    """

    execution_id: str
    splits: tuple[Mapping[str, Any], ...]
    no_more: bool
    serial: int
    job_id: str = ""
    allocation_id: str = ""


@dataclass(frozen=True)
class OperatorEvents(Message):
    """Events between a task that runs a user's enumerator and its JobMaster, in either direction.

    Attributes:
        execution_id: of that task.
        number: 1, 2, 3, ... in each direction, so that repeats are ignored and losses are noticed.
        events: plain events of ``firesteel.protocol.operator_events``.
        job_id, allocation_id: as in ``AssignSplits``.
    """

    execution_id: str
    number: int
    events: tuple[Mapping[str, Any], ...]
    job_id: str = ""
    allocation_id: str = ""
