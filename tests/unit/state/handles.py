"""What was written of state, as it comes back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from firesteel.state.snapshots import KeyedSnapshot, StateChunk, StateInfo, WrittenState
from firesteel.testing.snapshots import SnapshotContents, take_snapshot

EVERYBODY = range(1 << 16)
"""Key groups of one who has entries of all: who reads them has to look which ones are the own."""


def handle(states: Iterable[StateInfo], chunks: Iterable[StateChunk]) -> WrittenState:
    """Descriptions and chunks of one subtask."""
    return SnapshotContents(list(states), list(chunks), None, EVERYBODY).of(range(1))


def handles(*written: tuple[Sequence[StateInfo], Sequence[StateChunk]] | Any) -> list[WrittenState]:
    return [handle(*parts) for parts in written]


def written_state(snapshot: KeyedSnapshot) -> WrittenState:
    return take_snapshot(snapshot, EVERYBODY).of(range(1))
