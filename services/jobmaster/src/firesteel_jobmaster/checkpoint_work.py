"""Work in the checkpoint storage and the store of completed checkpoints, and its results.

The coordinator asks for work and hears of the result as an event, so it never waits. One piece is done after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.checkpoint.closing import CleanUp
from firesteel.checkpoint.metadata import CheckpointMetadata
from firesteel.checkpoint.store import StoredCheckpoint


@dataclass(frozen=True)
class Recover:
    """Read the checkpoints that the job has.

    Attributes:
        path: of the checkpoint that the job starts from, if the store has none of its own.
    """

    path: str | None


@dataclass(frozen=True)
class Prepare:
    """Get an id for a checkpoint, and make its place.

    Attributes:
        number: names the attempt, which has no id yet.
        above: the id has to be larger.
        savepoint: the directory below which a savepoint is to be; None = the work is for a checkpoint.
    """

    number: int
    above: int
    savepoint: str | None = None


@dataclass(frozen=True)
class Complete:
    """Look whether all files are there, write the metadata, add the checkpoint to the store.

    Attributes:
        metadata: of the checkpoint.
        savepoint: directory of a savepoint; empty = the work is for a checkpoint.
        stored: the checkpoint goes into the store; of savepoints only those with which the job ends do.
    """

    metadata: CheckpointMetadata
    savepoint: str = ""
    stored: bool = True


@dataclass(frozen=True)
class Undo:
    """Take a checkpoint out of the store, if it is there, and remove its files but for those that others need
    (``keep``)."""

    checkpoint_id: int
    location: str
    files: frozenset[str]
    keep: frozenset[str] = frozenset()
    savepoint: str = ""


@dataclass(frozen=True)
class Discard:
    """Remove what was written for a checkpoint that did not complete, and is not in the store.

    Attributes:
        checkpoint_id: of the checkpoint.
        files: that acknowledgements name.
        keep: files that other checkpoints need.
        savepoint: directory of a savepoint, which goes as a whole; empty = the work is for a checkpoint.
    """

    checkpoint_id: int
    files: frozenset[str]
    keep: frozenset[str] = frozenset()
    savepoint: str = ""


@dataclass(frozen=True)
class DisposeClaimed:
    """Remove the checkpoint that the job was started from, and owns; harmless to repeat.

    Attributes:
        path: of the checkpoint.
        keep: files that other checkpoints need.
    """

    path: str
    keep: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RemoveOrphans:
    """Remove what is left of checkpoints that are not in the store, from the job's own place.

    Attributes:
        below: checkpoints with smaller ids go: nobody is left who could complete them.
        since_ms: property of the metadata of the job's own checkpoints; others belong to somebody else, and stay.
    """

    below: int
    since_ms: int


@dataclass(frozen=True)
class Dispose:
    """Remove a completed checkpoint from the store, then its files.

    Attributes:
        keep: files that other checkpoints need.
        files: of the checkpoint; None = they stay: the checkpoint is damaged, and somebody may want to look at it.
    """

    checkpoint_id: int
    location: str
    files: frozenset[str] | None
    keep: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Close:
    """The job has ended for good.

    Attributes:
        drop: completed checkpoints that go first, with their files.
        how: what becomes of those in the store.
    """

    drop: tuple[Dispose, ...]
    how: CleanUp = CleanUp.REMOVE


Work = Recover | Prepare | Complete | Undo | Discard | DisposeClaimed | RemoveOrphans | Dispose | Close


@dataclass(frozen=True)
class RecoveredCheckpoint:
    """A checkpoint that ``Recover`` has read.

    Attributes:
        entry: of the store; None = the checkpoint was read from a path.
        metadata: of the checkpoint.
    """

    entry: StoredCheckpoint | None
    metadata: CheckpointMetadata


@dataclass(frozen=True)
class DamagedCheckpoint:
    """A checkpoint that can't be used.

    Attributes:
        checkpoint_id: 0 = not known.
        reason: why, with the name of the file.
    """

    checkpoint_id: int
    reason: str


@dataclass(frozen=True)
class WorkResult:
    """How a piece of work ended.

    Attributes:
        work: the piece.
        error: None = the work was done.
        stored: of ``Complete``: the store was asked, so that the checkpoint may be in it although there is an error.
        corrupted: no repeat will help.
        foreign: of ``Recover``: another release has written the checkpoint; no repeat will help this one.
        of_user: of ``Recover``: what can't be read is the checkpoint that the user wants the job to start from.
        refused: of ``Recover``: there are no checkpoints, and none can be taken with these settings.
        fenced: another JobMaster leads the job.
        hung: the work was given up, since it took too long; what it may still do harms nothing.
        removed: of ``Undo``: the checkpoint is not in the store, whatever else could not be done.
        checkpoint_id: that ``Prepare`` has got; 0 = none.
        location: of ``Complete``: where the metadata are; of ``Prepare``: the directory of a savepoint.
        recovered: of ``Recover``: checkpoints that can be read and are whole, in the order of ids.
        damaged: of ``Recover``: checkpoints that were left out, and why.
    """

    work: Work
    error: str | None = None
    stored: bool = False
    corrupted: bool = False
    foreign: bool = False
    of_user: bool = False
    refused: bool = False
    fenced: bool = False
    hung: bool = False
    removed: bool = False
    checkpoint_id: int = 0
    location: str = ""
    recovered: tuple[RecoveredCheckpoint, ...] = ()
    damaged: tuple[DamagedCheckpoint, ...] = ()
