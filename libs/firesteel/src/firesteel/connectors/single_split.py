"""What readers keep that read one split each, which has no position."""

from __future__ import annotations

from collections.abc import Sequence

from firesteel.core.errors import CheckpointVersionError, ProgramError
from firesteel.functions.source import Split

__all__ = ["SingleSplit"]


class SingleSplit:
    """Part of a reader.

    Attributes:
        what: the source, as errors name it.
        split: that is being read; None before it came and after its end.
        is_paused: nothing is to be given.
        none_follow: there will be no split, or no further one.
    """

    what = "source"

    def __init__(self) -> None:
        self.split: Split | None = None
        self.is_paused = self.none_follow = False

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Read this one.

        Raises:
            ProgramError: the split is of another version, or a second one.
        """
        for split in splits:
            self.check_version(split)
            if self.split is not None:
                raise ProgramError(f"{self.what}: reads one split, {self.split.id!r}; {split.id!r} is not expected")
            self.split = split

    def check_version(self, split: Split) -> None:
        """Refuse splits of later releases.

        Raises:
            CheckpointVersionError: it is one.
        """
        if split.version != 1:
            raise CheckpointVersionError(
                self.what,
                f"split {split.id!r} of version {split.version} was written by a later release: go on with that one",
            )

    def no_more_splits(self) -> None:
        """After what was added so far nothing will come."""
        self.none_follow = True

    def pause_splits(self, split_ids: Sequence[str]) -> None:
        """Give nothing."""
        self.is_paused = self.is_paused or (self.split is not None and self.split.id in split_ids)

    def resume_splits(self, split_ids: Sequence[str]) -> None:
        """Give records again."""
        if self.split is not None and self.split.id in split_ids:
            self.is_paused = False

    def snapshot(self) -> list[Split]:
        """The split, which has no position."""
        return [] if self.split is None else [self.split]
