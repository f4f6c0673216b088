"""Payloads about splits; part of ``firesteel.protocol.messages``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firesteel.protocol.message import Message


@dataclass(frozen=True)
class RequestSplits(Message):
    """A source subtask asks for work.

    Attributes:
        execution_id: who asks.
        number: 1, 2, 3, ... for each subtask; a repeat carries the same one, and gets the same answer.
        taken: the TaskManager has all splits up to this serial: answers with larger ones may be lost.
    """

    execution_id: str
    number: int
    taken: int = 0


@dataclass(frozen=True)
class Splits(Message):
    """Plain splits.

    Attributes:
        splits: for one subtask.
        no_more: after these none will come.
        serial: 1, 2, 3, ... for each subtask, so that what comes twice is taken once; 0 = there is nothing now, and
            what there is later comes by ``assign_splits``.
    """

    splits: tuple[Mapping[str, Any], ...]
    no_more: bool
    serial: int = 0


@dataclass(frozen=True)
class AssignSplits(Message):
    """Plain splits for a source subtask that was told to wait; ``serial`` as in ``Splits``.

    Jobs that run the same program have tasks of the same ids: ``job_id`` and ``allocation_id`` say which one is meant,
    here and in other calls to a TaskManager.
    """

    execution_id: str
    splits: tuple[Mapping[str, Any], ...]
    no_more: bool
    serial: int
    job_id: str = ""
    allocation_id: str = ""


@dataclass(frozen=True)
class OperatorEvents(Message):
    """What a task that runs a user's enumerator says to its JobMaster, and the other way round.

    Attributes:
        execution_id: of that task.
        number: 1, 2, 3, ... in each direction, so that what comes twice is taken once, and what is lost is noticed.
        events: plain; which there are stands in ``firesteel.protocol.operator_events``.
        job_id, allocation_id: as in ``AssignSplits``.
    """

    execution_id: str
    number: int
    events: tuple[Mapping[str, Any], ...]
    job_id: str = ""
    allocation_id: str = ""
