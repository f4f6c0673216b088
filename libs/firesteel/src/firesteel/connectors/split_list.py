"""An enumerator over a list of splits. Most enumerators derive from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from typing_extensions import override

from firesteel.functions.source import BuiltInEnumerator, Plain, Split


class SplitListEnumerator(BuiltInEnumerator):
    """Hands out splits in order, one at a time; splits that are given back are handed out next.

    Args:
        splits: all splits.
    """

    def __init__(self, splits: Iterable[Split]) -> None:
        self._left = deque(splits)

    @override
    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        return [self._left.popleft()] if self._left else []

    @property
    def exhausted(self) -> bool:
        """Whether all splits were handed out."""
        return not self._left

    def add_splits_back(self, splits: Sequence[Split]) -> None:
        """Hand these splits out next."""
        self._left.extendleft(reversed(splits))

    def snapshot(self) -> Plain:
        """Splits that were not handed out."""
        return [split.to_plain() for split in self._left]

    def restore(self, state: Plain) -> None:
        """Continue from a snapshot."""
        assert isinstance(state, list)
        self._left = deque(Split.from_plain(plain) for plain in state)
