"""Watermark alignment: how far the slowest source subtask of each group has come."""

from __future__ import annotations

from collections.abc import Callable

MAX_WATERMARK = 2**63 - 1


class AlignmentGroups:
    """Watermarks of the source subtasks of a job, by group.

    Args:
        is_live: whether an execution still runs; one that has ended holds its group back no more.
    """

    def __init__(self, is_live: Callable[[str], bool]) -> None:
        self._is_live = is_live
        self._groups: dict[str, dict[str, int]] = {}

    def report(self, group: str, execution_id: str, watermark: int) -> int:
        """Take the watermark of a subtask (``MAX_WATERMARK``: it is idle); returns the smallest one of its group."""
        members = self._groups.setdefault(group, {})
        members[execution_id] = watermark
        for member in [member for member in members if not self._is_live(member)]:
            del members[member]
        return min(members.values(), default=MAX_WATERMARK)
