"""Waiting for what a fleet reports, and for what it must not leave."""

from __future__ import annotations

import itertools
from pathlib import Path

from firesteel.protocol.fleet import Fleet, SlotOutcome
from tests.files import files_below
from tests.waiting import wait_until

_names = itertools.count()


def new_allocation() -> str:
    """An allocation id that no other test uses."""
    return f"{next(_names):032x}"


until = wait_until


class Ends:
    """Collects what `ended_slots` reports."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.seen: dict[str, tuple[SlotOutcome, str]] = {}

    def of(self, allocation: str) -> tuple[SlotOutcome, str]:
        """Wait until that slot has ended."""
        until(lambda: self.has(allocation), f"the end of slot {allocation}")
        return self.seen[allocation]

    def has(self, allocation: str) -> bool:
        """Whether that slot has ended."""
        for name, outcome, message in self._fleet.ended_slots():
            assert name not in self.seen, f"{name} was reported twice"
            self.seen[name] = outcome, message
        return allocation in self.seen


def socket_files(directory: Path) -> list[Path]:
    """Unix sockets below a directory."""
    return [path for path in files_below(directory) if path.is_socket()]
