"""Messages about watermark alignment."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.protocol.message import Message


@dataclass(frozen=True)
class ReportWatermark(Message):
    """How far a source subtask has come.

    Attributes:
        group: of the watermark strategy.
        watermark: epoch milliseconds; the largest 64-bit integer while it is idle.
    """

    execution_id: str
    group: str
    watermark: int


@dataclass(frozen=True)
class GroupWatermark(Message):
    """The smallest watermark of the group's subtasks that run and are not idle."""

    watermark: int
