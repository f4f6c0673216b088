"""Payloads about watermark alignment between sources."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.protocol.message import Message


@dataclass(frozen=True)
class ReportWatermark(Message):
    """The watermark of a source subtask.

    Attributes:
        group: alignment group of the watermark strategy.
        watermark: epoch milliseconds; the largest 64-bit integer while it is idle.
    """

    execution_id: str
    group: str
    watermark: int


@dataclass(frozen=True)
class GroupWatermark(Message):
    """The smallest watermark of the group's subtasks that run and are not idle."""

    watermark: int
