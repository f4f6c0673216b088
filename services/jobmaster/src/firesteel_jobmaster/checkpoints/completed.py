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
    Recover,
    RemoveOrphans,
    Undo,
    Work,
    WorkResult,
)
from firesteel_jobmaster.checkpoints.settings import CheckpointSettings

logger = logging.getLogger(__name__)
_FALL_BACK: Final = options.STATE_RECOVERY_FALL_BACK.key


@dataclass(frozen=True)
class CompletedCheckpoint:
    """A completed checkpoint of a job, or the one that the job was started from.

    Attributes:
        metadata: of the checkpoint.
        location: of the metadata.
        own: the checkpoint belongs to the job, and goes when it is subsumed; else the job was started from it.
    """

    metadata: CheckpointMetadata
    location: str
    own: bool = True

    @property
    def stop(self) -> SavepointInfo | None:
        """The savepoint with which this job was stopped, if the checkpoint is such a one."""
        info = info_of(self.metadata)
        return info if self.own and info is not None and info.stop else None


class CompletedCheckpoints:
    """The completed checkpoints of a job that are retained, in the order of their ids.

    Args:
        job: of the checkpoints.
        settings: of its checkpoints.
        work: asks for work in storage and store.
    """

    def __init__(self, job: JobGraph, settings: CheckpointSettings, work: Callable[[Work], None]) -> None:
        self._job, self._settings, self._ask = job, settings, work
        self._touched = False
        self._retained: list[CompletedCheckpoint] = []
        self._point: RestorePoint | None = None
        self._damage: list[str] = []
        self._since_ms = 0
        self._may_be_left = self._touch_nothing = False
        self._newest_left = 0
        """Id of the newest checkpoint of which files may be left: a ``RemoveOrphans`` below an older id misses them."""
        self._not_removed: list[Dispose] = []
        self._subsumed_ids: set[int] = set()
        """Ids of completed checkpoints that the job goes on from no more, and which the store may still name."""
        self._claims = settings.claim and settings.restore_path is not None
        """Whether what the job was started from is still to be removed."""

    def _work(self, work: Work) -> None:
        self._touched = True
        self._ask(work)

    def touched(self) -> None:
        """Storage or store hold something of the job, or may."""
        self._touched = True

    @property
    def newest_id(self) -> int:
        """Id of the newest retained checkpoint, 0 if there is none; new checkpoints get larger ids."""
        return max(self.ids(), default=0)

    def base(self) -> dict[str, str]:
        """The checkpoint that a new one may build on, as an option of its barriers; empty = none.

        It has to stay until the new one is complete, so no other one may complete meanwhile, which would remove it.
        """
        if (
            self._settings.max_concurrent > 1
            or not self._retained
            or not self._retained[-1].own
            or self._retained[-1].stop
        ):
            return {}
        return {"base": str(self._retained[-1].metadata.checkpoint_id)}

    @property
    def stopped(self) -> tuple[SavepointInfo, int, str] | None:
        """The savepoint with which the job was stopped, its id and location, if it is the last one."""
        last = self._retained[-1] if self._retained else None
        info = last.stop if last is not None else None
        return None if last is None or info is None else (info, last.metadata.checkpoint_id, last.location)

    def has(self, checkpoint_id: int) -> bool:
        """Whether a checkpoint is complete, and kept, or may still be in the store."""
        return checkpoint_id in self._subsumed_ids or checkpoint_id in self.ids()

    def removed(self, work: Dispose) -> None:
        """The store does not name a checkpoint any more."""
        self._subsumed_ids.discard(work.checkpoint_id)

    def ids(self) -> list[int]:
        """Ids of the retained checkpoints."""
        return [c.metadata.checkpoint_id for c in self._retained]

    def recover(self) -> None:
        """Ask storage and store for the checkpoints that the job has."""
        self._work(Recover(self._settings.restore_path))

    def recovered(self, result: WorkResult) -> None:
        """Take the checkpoints that were read.

        Raises:
            StateRestoreError: there were checkpoints, and none of them is whole, or only one that is too old.
        """
        for damage in result.damaged:
            logger.error("a checkpoint can't be used: %s", damage.reason)
        self._damage += [damage.reason for damage in result.damaged]
        self._retained = [
            CompletedCheckpoint(
                checkpoint.metadata,
                checkpoint.entry.location if checkpoint.entry else self._settings.restore_path or "",
                bool(checkpoint.entry),
            )
            for checkpoint in result.recovered
        ]
        self._point = None
        self._may_be_left = True
        self._since_ms = next((c.metadata.since_ms for c in reversed(self._retained) if c.own), 0)
        if self._damage and not self._retained:
            raise self._nothing_whole()
        newer = [d for d in result.damaged if d.checkpoint_id == 0 or d.checkpoint_id > self.newest_id]
        if newer:
            self._fall_back(newer[-1].reason)

    def unreadable(self) -> None:
        """The job fails because its checkpoints can't be read: none of them is removed."""
        self._touch_nothing = True

    def not_removed(self, work: Work, checkpoint_id: int = 0) -> None:
        """Files could not be removed: that is tried again with each checkpoint that completes, up to the first one that
        is newer.

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
        overdue, self._not_removed = self._not_removed, []
        return tuple(replace(work, keep=self._retained_files()) for work in overdue)

    def properties(self, trigger_ms: int) -> dict[str, Any]:
        """Properties in the metadata of a checkpoint that was triggered at ``trigger_ms`` (epoch)."""
        self._since_ms = self._since_ms or trigger_ms
        return {
            "job_name": self._job.name,
            "versions": dict(self._job.versions),
            "key_hash": KEY_HASH_VERSION,
            "since_ms": self._since_ms,
        }

    def sparing(self, work: Work) -> Work:
        """The work, changed so that it leaves the files which retained checkpoints need."""
        return replace(work, keep=self._retained_files()) if isinstance(work, Discard | Undo) else work

    def add(self, metadata: CheckpointMetadata, location: str) -> list[int]:
        """A checkpoint is complete; returns the ids of the checkpoints that it subsumes."""
        self._retained = [c for c in self._retained if c.own]
        self._retained.append(CompletedCheckpoint(metadata, location))
        self._point = None
        subsumed = self._retained[: -self._settings.retained]
        self._retained = self._retained[-self._settings.retained :]
        self._subsumed_ids.update(checkpoint.metadata.checkpoint_id for checkpoint in subsumed)
        for work in (
            *self._removed_now(),
            *(self._disposal(checkpoint, self._retained_files()) for checkpoint in subsumed),
        ):
            self._work(work)
        if self._claims:
            self._claims = False
            self._work(DisposeClaimed(self._settings.restore_path or "", self._retained_files()))
        if self._may_be_left:
            # an older checkpoint may complete after a newer one has failed, whose files are out of its reach
            self._may_be_left = metadata.checkpoint_id < self._newest_left
            self._work(RemoveOrphans(metadata.checkpoint_id, self._since_ms))
        return [checkpoint.metadata.checkpoint_id for checkpoint in subsumed]

    def rescaled(self, job: JobGraph) -> None:
        """The job has other parallelisms now."""
        self._job, self._point = job, None

    @property
    def has_own(self) -> bool:
        """Whether the job goes on from a checkpoint that it has taken itself."""
        return bool(self._retained) and self._retained[-1].own

    def latest(self) -> RestorePoint | None:
        """What the job goes on from; None = from its beginning.

        Raises:
            StateRestoreError: the checkpoint does not fit the job.
        """
        if self._point is None and self._retained:
            last = self._retained[-1]
            ignore = self._settings.ignore_unclaimed
            self._point = RestorePoint(
                last.metadata, last.location, self._job, ignore, same_program=last.own, stopped=last.stop is not None
            )
        return self._point

    def damaged(self, checkpoint_id: int, cause: str) -> None:
        """A task could not read the checkpoint that it was to go on from: the job falls back to the one before.

        Raises:
            StateRestoreError: there is none before it, or it is too old.
        """
        damaged = next((c for c in self._retained if c.metadata.checkpoint_id == checkpoint_id), None)
        if damaged is None:
            return
        logger.error(
            "checkpoint %d at %s is damaged, and not used any more: %s", checkpoint_id, damaged.location, cause
        )
        newest = damaged is self._retained[-1]
        self._retained.remove(damaged)
        self._damage.append(cause)
        self._point = None
        if not self._retained and not damaged.own:
            raise StateRestoreError(
                f"The job can't start from the checkpoint that it was given ({damaged.location}): {cause}. Nothing was "
                "changed. Give it a whole checkpoint, or bring back the file"
            )
        if not self._retained:
            raise self._nothing_whole()
        if newest:
            self._fall_back(cause)
        if damaged.own:
            self._subsumed_ids.add(checkpoint_id)
            self._work(Dispose(checkpoint_id, damaged.location, None))

    def _fall_back(self, cause: str) -> None:
        """Raises:
        StateRestoreError: going on from the checkpoint before would repeat results, and nobody has allowed it.
        """
        fallback, settings = self._retained[-1], self._settings
        committing = [  # a client goes on at its offset, and may miss results of another order: never at least once
            vertex.name
            for vertex in self._job.vertices
            if vertex.collects or (vertex.needs_commit and not settings.at_least_once)
        ]
        repeats = bool(committing)
        if settings.fall_back == "ALWAYS" or (settings.fall_back == "UNLESS_COMMITTED" and not repeats):
            if repeats:
                who, number = ", ".join(committing), fallback.metadata.checkpoint_id
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
            f"The last checkpoint can't be read: {cause}. The one before is whole, and is not used: {why}. Bring back "
            f"what is missing, or start the job again from {fallback.location} (-s on the command line). No file of a "
            "checkpoint was removed."
        )

    def _nothing_whole(self) -> StateRestoreError:
        self._touch_nothing = True
        return StateRestoreError(
            f"The job had checkpoints, and none of them can be read: {'; '.join(self._damage[-3:])}. It is not started "
            "from its beginning, which would repeat its results. Submit it again for that, or bring back the files."
        )

    def left(self, state: str) -> int | None:
        """Id of the last checkpoint that the job leaves when it ends in this state; 0 = none.

        None: the job goes on elsewhere, has finished and so needs none, or failed because of its checkpoints, of which
        people may bring back what is missing.

        Args:
            state: of the job.
        """
        if state in ("SUSPENDED", "FINISHED") or self._touch_nothing:
            return None
        keep = self._settings.keeps(state)
        checkpoint_ids = [c.metadata.checkpoint_id for c in self._retained if keep or not c.own]
        return max(checkpoint_ids, default=0)

    def close(self, state: str) -> None:
        """The job has ended in this state."""
        how = self.clean_up(state)
        if how is None:
            return
        drop = self._removed_now() if how is CleanUp.KEEP else ()
        if how is not CleanUp.TOUCH_NOTHING:
            if how is CleanUp.REMOVE:
                drop = tuple(self._disposal(c, frozenset()) for c in self._retained if c.own)
            self._subsumed_ids.update(self.ids())
            self._retained = []
        self._work(Close(drop, how))

    def clean_up(self, state: str) -> CleanUp | None:
        """How all checkpoints are dealt with when the job ends in this state; None = there is nothing to do."""
        if state == "SUSPENDED" or not self._touched:
            return None
        if self._touch_nothing:
            return CleanUp.TOUCH_NOTHING
        return CleanUp.KEEP if self._settings.keeps(state) else CleanUp.REMOVE

    def _retained_files(self) -> frozenset[str]:
        return frozenset(file for c in self._retained for file in c.metadata.files())

    def _disposal(self, checkpoint: CompletedCheckpoint, keep: frozenset[str]) -> Dispose:
        files = None if checkpoint.stop else frozenset(checkpoint.metadata.files())  # a savepoint is the user's
        return Dispose(checkpoint.metadata.checkpoint_id, checkpoint.location, files, keep)
