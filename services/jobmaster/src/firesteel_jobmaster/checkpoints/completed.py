"""The completed checkpoints of a job: those that are kept, and the one that the job goes on from."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from firesteel.checkpoint.closing import CleanUp
from firesteel.checkpoint.metadata import CheckpointMetadata
from firesteel.checkpoint.restore_point import RestorePoint
from firesteel.checkpoint.savepoints import SavepointInfo, info_of
from firesteel.config import options
from firesteel.core.errors import StateRestoreError
from firesteel.graph.job_graph import JobGraph
from firesteel.graph.key_hash import KEY_HASH_VERSION
from firesteel_jobmaster.checkpoint_work import (
    Close,
    Discard,
    Dispose,
    DisposeClaimed,
    Done,
    Recover,
    RemoveOrphans,
    Undo,
    Work,
)
from firesteel_jobmaster.checkpoints.settings import CheckpointSettings

logger = logging.getLogger(__name__)
_FALL_BACK: Final = options.STATE_RECOVERY_FALL_BACK.key


@dataclass(frozen=True)
class Completed:
    """One of them.

    Attributes:
        metadata: of it.
        location: of its metadata.
        own: it belongs to the job, and goes when it is subsumed; else the job was started from it.
    """

    metadata: CheckpointMetadata
    location: str
    own: bool = True

    @property
    def stop(self) -> SavepointInfo | None:
        """What it is, if it is a savepoint with which this job was stopped."""
        info = info_of(self.metadata)
        return info if self.own and info is not None and info.stop else None


class CompletedCheckpoints:
    """In the order of their ids.

    Args:
        job: of the checkpoints.
        settings: of its checkpoints.
        work: asks for work in storage and store.
    """

    def __init__(self, job: JobGraph, settings: CheckpointSettings, work: Callable[[Work], None]) -> None:
        self._job, self._settings, self._ask = job, settings, work
        self._touched = False
        self._kept: list[Completed] = []
        self._point: RestorePoint | None = None
        self._lost: list[str] = []
        self._since_ms = 0
        self._may_be_left = self._touch_nothing = False
        self._newest_left = 0
        """Id of the newest checkpoint of which files may be left: a ``RemoveOrphans`` below an older id misses them."""
        self._not_removed: list[Dispose] = []
        self._others: set[int] = set()
        """Completed ones that nobody goes on from any more, and which the store may still name."""
        self._claims = settings.claim and settings.restore_path is not None
        """What the job was started from is still to be removed."""

    def _work(self, work: Work) -> None:
        self._touched = True
        self._ask(work)

    def touched(self) -> None:
        """Storage or store hold something of the job, or may."""
        self._touched = True

    @property
    def newest_id(self) -> int:
        """Ids of new checkpoints are larger."""
        return max(self.ids(), default=0)

    def base(self) -> dict[str, str]:
        """The checkpoint that a new one may build on, as an option of its barriers; empty = none.

        It has to stay until the new one is complete, so no other one may complete meanwhile, which would remove it.
        """
        if self._settings.max_concurrent > 1 or not self._kept or not self._kept[-1].own or self._kept[-1].stop:
            return {}
        return {"base": str(self._kept[-1].metadata.checkpoint_id)}

    @property
    def stopped(self) -> tuple[SavepointInfo, int, str] | None:
        """The savepoint with which the job was stopped, its id and location, if it is the last one."""
        last = self._kept[-1] if self._kept else None
        info = last.stop if last is not None else None
        return None if last is None or info is None else (info, last.metadata.checkpoint_id, last.location)

    def has(self, checkpoint_id: int) -> bool:
        """Whether a checkpoint is complete, and kept, or may still be in the store."""
        return checkpoint_id in self._others or checkpoint_id in self.ids()

    def removed(self, work: Dispose) -> None:
        """It is not in the store any more."""
        self._others.discard(work.checkpoint_id)

    def ids(self) -> list[int]:
        """Of those that are kept."""
        return [c.metadata.checkpoint_id for c in self._kept]

    def recover(self) -> None:
        """Ask for what there is already."""
        self._work(Recover(self._settings.restore_path))

    def recovered(self, done: Done) -> None:
        """What there is.

        Raises:
            StateRestoreError: there were checkpoints, and none of them is whole, or only one that is too old.
        """
        for damage in done.damaged:
            logger.error("a checkpoint can't be used: %s", damage.reason)
        self._lost += [damage.reason for damage in done.damaged]
        self._kept = [
            Completed(
                found.metadata,
                found.entry.location if found.entry else self._settings.restore_path or "",
                bool(found.entry),
            )
            for found in done.recovered
        ]
        self._point = None
        self._may_be_left = True
        self._since_ms = next((c.metadata.since_ms for c in reversed(self._kept) if c.own), 0)
        if self._lost and not self._kept:
            raise self._nothing_whole()
        newer = [d for d in done.damaged if d.checkpoint_id == 0 or d.checkpoint_id > self.newest_id]
        if newer:
            self._fall_back(newer[-1].reason)

    def unreadable(self) -> None:
        """It can't be told what there is, and the job fails for that: what is there stays."""
        self._touch_nothing = True

    def not_removed(self, work: Work, checkpoint_id: int = 0) -> None:
        """Something could not be removed: that is tried again with each checkpoint that completes, up to the first one
        that is newer.

        Args:
            work: that has failed.
            checkpoint_id: whose files may be left, where the work does not say it.
        """
        self._may_be_left = True
        if isinstance(work, Discard | Dispose | Undo):
            checkpoint_id = work.checkpoint_id
        self._newest_left = max(self._newest_left, checkpoint_id)
        if isinstance(work, Dispose):  # it may still be in the store, and nothing of that is looked for
            self._not_removed.append(work)

    def _removed_now(self) -> tuple[Dispose, ...]:
        again, self._not_removed = self._not_removed, []
        return tuple(replace(work, keep=self._kept_files()) for work in again)

    def properties(self, trigger_ms: int) -> dict[str, Any]:
        """Of the metadata of a checkpoint that was triggered then."""
        self._since_ms = self._since_ms or trigger_ms
        return {
            "job_name": self._job.name,
            "versions": dict(self._job.versions),
            "key_hash": KEY_HASH_VERSION,
            "since_ms": self._since_ms,
        }

    def sparing(self, work: Work) -> Work:
        """The work, but that files which kept checkpoints need stay."""
        return replace(work, keep=self._kept_files()) if isinstance(work, Discard | Undo) else work

    def add(self, metadata: CheckpointMetadata, location: str) -> list[int]:
        """A checkpoint is complete; returns the ids of those that go."""
        self._kept = [c for c in self._kept if c.own]
        self._kept.append(Completed(metadata, location))
        self._point = None
        gone = self._kept[: -self._settings.retained]
        self._kept = self._kept[-self._settings.retained :]
        self._others.update(one.metadata.checkpoint_id for one in gone)
        for work in (*self._removed_now(), *(self._disposal(one, self._kept_files()) for one in gone)):
            self._work(work)
        if self._claims:
            self._claims = False
            self._work(DisposeClaimed(self._settings.restore_path or "", self._kept_files()))
        if self._may_be_left:
            # an older checkpoint may complete after a newer one has failed, whose files are out of its reach
            self._may_be_left = metadata.checkpoint_id < self._newest_left
            self._work(RemoveOrphans(metadata.checkpoint_id, self._since_ms))
        return [one.metadata.checkpoint_id for one in gone]

    def rescaled(self, job: JobGraph) -> None:
        """The job has other parallelisms now."""
        self._job, self._point = job, None

    @property
    def has_own(self) -> bool:
        """Whether the job goes on from a checkpoint that it has taken itself."""
        return bool(self._kept) and self._kept[-1].own

    def latest(self) -> RestorePoint | None:
        """What the job goes on from; None = from its beginning.

        Raises:
            StateRestoreError: the checkpoint does not fit the job.
        """
        if self._point is None and self._kept:
            last = self._kept[-1]
            ignore = self._settings.ignore_unclaimed
            self._point = RestorePoint(
                last.metadata, last.location, self._job, ignore, same_program=last.own, stopped=last.stop is not None
            )
        return self._point

    def damaged(self, checkpoint_id: int, what: str) -> None:
        """A task could not read the checkpoint that it was to go on from: the one before has to do.

        Raises:
            StateRestoreError: there is none before it, or it is too old.
        """
        bad = next((c for c in self._kept if c.metadata.checkpoint_id == checkpoint_id), None)
        if bad is None:
            return
        logger.error("checkpoint %d at %s is damaged, and not used any more: %s", checkpoint_id, bad.location, what)
        newest = bad is self._kept[-1]
        self._kept.remove(bad)
        self._lost.append(what)
        self._point = None
        if not self._kept and not bad.own:
            raise StateRestoreError(
                f"The job can't start from the checkpoint that it was given ({bad.location}): {what}. Nothing was "
                "changed. Give it a whole checkpoint, or bring back the file"
            )
        if not self._kept:
            raise self._nothing_whole()
        if newest:
            self._fall_back(what)
        if bad.own:
            self._others.add(checkpoint_id)
            self._work(Dispose(checkpoint_id, bad.location, None))

    def _fall_back(self, what: str) -> None:
        """Raises:
        StateRestoreError: going on from the checkpoint before would repeat results, and nobody has allowed it.
        """
        before, settings = self._kept[-1], self._settings
        committing = [  # a client goes on at its offset, and may miss results of another order: never at least once
            vertex.name
            for vertex in self._job.vertices
            if vertex.collects or (vertex.needs_commit and not settings.at_least_once)
        ]
        repeats = bool(committing)
        if settings.fall_back == "ALWAYS" or (settings.fall_back == "UNLESS_COMMITTED" and not repeats):
            if repeats:
                who, number = ", ".join(committing), before.metadata.checkpoint_id
                logger.error(
                    "%s repeat what they have committed since checkpoint %d: %s is ALWAYS", who, number, _FALL_BACK
                )
            return
        self._touch_nothing = True
        why = f"{_FALL_BACK} is NEVER"
        if settings.fall_back != "NEVER":
            why = (
                f"what its sinks ({', '.join(committing)}) have committed, or given to the program, since would be "
                f"repeated. To let that happen by itself set {_FALL_BACK} to ALWAYS"
            )
        raise StateRestoreError(
            f"The last checkpoint can't be read: {what}. The one before is whole, and is not used: {why}. Bring back "
            f"what is missing, or start the job again from {before.location} (-s on the command line). No file of a "
            "checkpoint was removed."
        )

    def _nothing_whole(self) -> StateRestoreError:
        self._touch_nothing = True
        return StateRestoreError(
            f"The job had checkpoints, and none of them can be read: {'; '.join(self._lost[-3:])}. It is not started "
            "from its beginning, which would repeat its results. Submit it again for that, or bring back the files."
        )

    def left(self, state: str) -> int | None:
        """Id of the last checkpoint that a job leaves which ends in this state; 0 = none.

        None: the job goes on elsewhere, has finished and so needs none, or failed because of its checkpoints, of which
        people may bring back what is missing.

        Args:
            state: of the job.
        """
        if state in ("SUSPENDED", "FINISHED") or self._touch_nothing:
            return None
        keep = self._settings.keeps(state)
        kept = [c.metadata.checkpoint_id for c in self._kept if keep or not c.own]
        return max(kept, default=0)

    def close(self, state: str) -> None:
        """The job has ended in this state."""
        how = self.clean_up(state)
        if how is None:
            return
        drop = self._removed_now() if how is CleanUp.KEEP else ()
        if how is not CleanUp.TOUCH_NOTHING:
            if how is CleanUp.REMOVE:
                drop = tuple(self._disposal(c, frozenset()) for c in self._kept if c.own)
            self._others.update(self.ids())
            self._kept = []
        self._work(Close(drop, how))

    def clean_up(self, state: str) -> CleanUp | None:
        """What becomes of all checkpoints when the job ends in this state; None = there is nothing to do."""
        if state == "SUSPENDED" or not self._touched:
            return None
        if self._touch_nothing:
            return CleanUp.TOUCH_NOTHING
        return CleanUp.KEEP if self._settings.keeps(state) else CleanUp.REMOVE

    def _kept_files(self) -> frozenset[str]:
        return frozenset(file for c in self._kept for file in c.metadata.files())

    def _disposal(self, one: Completed, keep: frozenset[str]) -> Dispose:
        files = None if one.stop else frozenset(one.metadata.files())  # a savepoint is the user's
        return Dispose(one.metadata.checkpoint_id, one.location, files, keep)
