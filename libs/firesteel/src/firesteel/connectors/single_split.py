"""State of readers that read one split without positions."""

from __future__ import annotations

from collections.abc import Sequence

from firesteel.core.errors import CheckpointVersionError, ProgramError
from firesteel.functions.source import Split

__all__ = ["SingleSplit"]


class SingleSplit:
    """The part of a reader that manages its only split.

    Attributes:
        what: name of the source in errors.
        split: split that is being read; None before it has come, and after its end.
        is_paused: ``poll`` must return no records.
        none_follow: no further split will come.
    """

    what = "source"

    def __init__(self) -> None:
        self.split: Split | None = None
        self.is_paused = self.none_follow = False

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Take the split.

        Raises:
            CheckpointVersionError: a later release wrote the split.
            ProgramError: the reader has a split already.
        """
        for split in splits:
            self.check_version(split)
            if self.split is not None:
                raise ProgramError(f"{self.what}: reads one split, {self.split.id!r}; {split.id!r} is not expected")
            self.split = split

    def check_version(self, split: Split) -> None:
        """Refuse splits of later releases.

        Raises:
            CheckpointVersionError: a later release wrote the split.
        """
        if split.version != 1:
            raise CheckpointVersionError(
                self.what,
                f"split {split.id!r} of version {split.version} was written by a later release: go on with that one",
            )

    def no_more_splits(self) -> None:
        """Note that no further split will come."""
        self.none_follow = True

    def pause_splits(self, split_ids: Sequence[str]) -> None:
        """Return no records until the split is resumed."""
        self.is_paused = self.is_paused or (self.split is not None and self.split.id in split_ids)

    def resume_splits(self, split_ids: Sequence[str]) -> None:
        """Return records of the split again."""
        if self.split is not None and self.split.id in split_ids:
            self.is_paused = False

    def snapshot(self) -> list[Split]:
        """The split, which has no position."""
        return [] if self.split is None else [self.split]
