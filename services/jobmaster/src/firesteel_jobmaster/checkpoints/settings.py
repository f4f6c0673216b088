"""Settings of a job's checkpoints, read from the configuration once."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from firesteel.checkpoint.closing import CheckpointRetention
from firesteel.checkpoint.storage import storage_name
from firesteel.config import Settings, options
from firesteel.config.derived import aligned_timeout

_NOT_SHOWN = ("unaligned_everywhere", "restore_path", "savepoint_directory", "claim", "ignore_unclaimed", "fall_back")
_WITHOUT_LOOK = ("jobmanager", "filesystem")
"""Storages that have nothing to look at; s3 has, and those of others may."""


@dataclass(frozen=True)
class CheckpointSettings:
    """Settings of a job's checkpoints; times are in seconds.

    Attributes:
        interval: between the starts of two periodic checkpoints; 0 = none are taken by themselves.
        at_least_once: barriers do not wait for one another.
        unaligned: barriers overtake records, ``aligned_timeout`` after they were triggered; never with
            ``at_least_once``, where they block nobody.
        unaligned_everywhere: also those that must stay with their subtask when the parallelism changes.
        timeout, min_pause, max_concurrent, tolerable_failures, retained, retention, after_tasks_finish:
            ``execution.checkpointing.*``.
        history: ``web.checkpoints.history``: ended checkpoints that people see.
        storage, backend: names of those in use, for people.
        restore_path: ``execution.state-recovery.path``.
        savepoint_directory: ``execution.checkpointing.savepoint-dir``.
        claim: the job owns what it is started from (``execution.state-recovery.claim-mode``).
        ignore_unclaimed: ``execution.state-recovery.ignore-unclaimed-state``.
        fall_back: ``firesteel.state-recovery.fall-back``.
    """

    interval: float = 0.0
    at_least_once: bool = False
    unaligned: bool = False
    unaligned_everywhere: bool = False
    aligned_timeout: float = 0.0
    timeout: float = 600.0
    min_pause: float = 0.0
    max_concurrent: int = 1
    tolerable_failures: int = 0
    retained: int = 1
    retention: CheckpointRetention = CheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
    after_tasks_finish: bool = True
    history: int = 10
    storage: str = "jobmanager"
    backend: str = "hashmap"
    restore_path: str | None = None
    savepoint_directory: str | None = None
    claim: bool = False
    ignore_unclaimed: bool = False
    fall_back: str = "UNLESS_COMMITTED"

    @classmethod
    def read(cls, settings: Settings) -> CheckpointSettings:
        """Read the settings of a job, with the cluster's below.

        Raises:
            ConfigurationError: a value is not valid.
        """
        interval = settings.get(options.CHECKPOINTING_INTERVAL)
        at_least_once = settings.get(options.CHECKPOINTING_MODE) == "AT_LEAST_ONCE"
        everywhere = settings.is_set(options.CHECKPOINTING_UNALIGNED)
        return cls(
            interval=interval.total_seconds() if interval is not None else 0.0,
            at_least_once=at_least_once,
            unaligned=settings.get(options.CHECKPOINTING_UNALIGNED) and not at_least_once,
            unaligned_everywhere=everywhere,
            aligned_timeout=aligned_timeout(settings).total_seconds(),
            timeout=settings.get(options.CHECKPOINTING_TIMEOUT).total_seconds(),
            min_pause=settings.get(options.CHECKPOINTING_MIN_PAUSE).total_seconds(),
            max_concurrent=settings.get(options.CHECKPOINTING_MAX_CONCURRENT),
            tolerable_failures=settings.get(options.CHECKPOINTING_TOLERABLE_FAILURES),
            retained=settings.get(options.CHECKPOINTING_NUM_RETAINED),
            retention=CheckpointRetention(settings.get(options.CHECKPOINTING_RETENTION)),
            after_tasks_finish=settings.get(options.CHECKPOINTING_AFTER_TASKS_FINISH),
            history=settings.get(options.CHECKPOINTS_HISTORY),
            storage=storage_name(settings),
            backend=settings.get(options.STATE_BACKEND),
            restore_path=settings.get(options.STATE_RECOVERY_PATH),
            savepoint_directory=settings.get(options.SAVEPOINT_DIRECTORY),
            claim=settings.get(options.STATE_RECOVERY_CLAIM_MODE) == "CLAIM",
            ignore_unclaimed=settings.get(options.STATE_RECOVERY_IGNORE_UNCLAIMED),
            fall_back=settings.get(options.STATE_RECOVERY_FALL_BACK),
        )

    @property
    def needs_look(self) -> bool:
        """Whether a look at the storage tells more than its settings (``CheckpointStorage.check``)."""
        return self.interval > 0 and self.storage not in _WITHOUT_LOOK

    def to_plain(self) -> dict[str, Any]:
        """JSON-able data, for people."""
        return {name: value for name, value in asdict(self).items() if name not in _NOT_SHOWN}

    def barrier_options(self) -> dict[str, Any]:
        """Options that travel with the barriers of a checkpoint (``firesteel.runtime.records.batch.Barrier``)."""
        if self.unaligned:
            rescalable = {} if self.unaligned_everywhere else {"rescalable": True}
            aligned_ms = int(self.aligned_timeout * 1000)
            return {"mode": "EXACTLY_ONCE", "unaligned": True, "aligned_ms": aligned_ms, **rescalable}
        return {"mode": "AT_LEAST_ONCE" if self.at_least_once else "EXACTLY_ONCE"}

    def keeps(self, state: str) -> bool:
        """Whether completed checkpoints stay when the job ends in this state."""
        return self.retention.keeps(state)
