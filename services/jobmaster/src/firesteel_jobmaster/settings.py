"""The settings of a JobMaster, read from the configuration of the cluster and of its job."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from firesteel.checkpoint.storage import CheckpointStorage, StorageParameters, load_checkpoint_storage
from firesteel.config import Settings, options
from firesteel.config.option import Option
from firesteel.service.registration import RegistrationSettings
from firesteel_jobmaster.checkpoints.settings import CheckpointSettings
from firesteel_jobmaster.reactive import ReactiveSettings
from firesteel_jobmaster.restart_strategies import NoRestart, RestartStrategy, restart_strategy

READ_IN_SLOTS: Final[tuple[Option[Any], ...]] = (
    options.BATCH_MAX_COLUMNAR_RECORDS,
    options.BATCH_MAX_RECORDS,
    options.BUFFER_DEBLOAT_ENABLED,
    options.BUFFER_DEBLOAT_TARGET,
    options.CHECKPOINTING_AFTER_TASKS_FINISH,
    options.CHECKPOINTING_CREATE_SUBDIRECTORY,
    options.CHECKPOINTING_DIRECTORY,
    options.CHECKPOINTING_INCREMENTAL,
    options.CHECKPOINTING_INLINE_THRESHOLD,
    options.CHECKPOINTING_INTERVAL,
    options.CHECKPOINTING_LOCAL_BACKUP,
    options.CHECKPOINTING_MAX_DELTA_RATIO,
    options.CHECKPOINTING_UNALIGNED,
    options.CHECKPOINTING_MAX_MEMORY_STATE,
    options.CHECKPOINTING_STORAGE,
    options.CHECKPOINTING_WRITE_BUFFER,
    options.EXCHANGE_CHANNEL_WINDOW,
    options.EXCHANGE_MAX_CHUNK,
    options.HOT_KEYS,
    options.METRICS_LATENCY_HISTORY_SIZE,
    options.METRICS_LATENCY_INTERVAL,
    options.METRICS_MAX_PER_TASK,
    options.PIPELINE_AUTO_WATERMARK_INTERVAL,
    options.PIPELINE_GLOBAL_JOB_PARAMETERS,
    options.ROCKSDB_BLOCK_CACHE,
    options.ROCKSDB_BLOCK_SIZE,
    options.ROCKSDB_BLOOM,
    options.ROCKSDB_BLOOM_BITS,
    options.ROCKSDB_COMPRESSION,
    options.ROCKSDB_DYNAMIC_LEVELS,
    options.ROCKSDB_FILE_SIZE,
    options.ROCKSDB_LEVEL_BASE,
    options.ROCKSDB_LOCAL_DIRECTORIES,
    options.ROCKSDB_MEMORY_FIXED,
    options.ROCKSDB_MEMORY_MANAGED,
    options.ROCKSDB_OPEN_FILES,
    options.ROCKSDB_THREADS,
    options.ROCKSDB_TIMERS,
    options.ROCKSDB_WRITE_BUFFER,
    options.ROCKSDB_WRITE_BUFFERS,
    options.ROCKSDB_WRITE_BUFFER_RATIO,
    options.STATE_BACKEND,
    options.STATE_RECOVERY_FROM_LOCAL,
    options.ROCKSDB_METRICS_BY_VARIABLE,
    *options.ROCKSDB_METRICS.values(),
    *options.ROCKSDB_STATISTICS.values(),
    *options.HDFS_OPTIONS,
    *options.S3_OPTIONS,
)
"""Options that slots look at."""


@dataclass(frozen=True)
class JobMasterSettings:
    """Seconds throughout.

    Attributes:
        heartbeat_interval, heartbeat_timeout, heartbeat_failures: ``heartbeat.interval``, ``heartbeat.timeout``,
            ``heartbeat.rpc-failure-threshold`` (0 = failed calls do not count).
        slot_request_timeout: ``slot.request.timeout``: a job that has not got all its slots by then fails.
        slot_idle_timeout: ``slot.idle.timeout``: a slot all of whose tasks have finished goes back after so long.
        cancellation_timeout: ``task.cancellation.timeout``; 0 = wait for ever.
        splits_interval: how often a subtask that found no split, but may later, is offered some.
        registration: pauses and timeouts of the registration at the ResourceManager.
        orphan_timeout: ``firesteel.jobmaster.orphan-timeout``, ``heartbeat.timeout`` at least.
        new_restart_strategy: makes the job's restart strategy, from ``restart-strategy.*``.
        failover_by_region: ``jobmanager.execution.failover-strategy`` is region.
        kept_failures: ``web.exception-history-size``.
        checkpoints: ``execution.checkpointing.*``.
        new_checkpoint_storage: makes the checkpoint storage of a job id; raises ``ConfigurationError``.
        savepoints: options that directories of savepoints look at.
        for_slots: the cluster's values of options that slots read; a job's own settings come on top.
        reactive: settings of reactive mode; None: a job has the parallelism that its program says.
    """

    heartbeat_interval: float = 10.0
    heartbeat_timeout: float = 50.0
    heartbeat_failures: int = 2
    slot_request_timeout: float = 300.0
    slot_idle_timeout: float = 50.0
    cancellation_timeout: float = 180.0
    splits_interval: float = 1.0
    registration: RegistrationSettings = field(
        default_factory=lambda: RegistrationSettings(timeout=math.inf, failures=2)
    )
    orphan_timeout: float = 300.0
    new_restart_strategy: Callable[[], RestartStrategy] = NoRestart
    failover_by_region: bool = True
    kept_failures: int = 16
    checkpoints: CheckpointSettings = field(default_factory=CheckpointSettings)
    new_checkpoint_storage: Callable[[str], CheckpointStorage] = lambda job_id: load_checkpoint_storage(
        StorageParameters(job_id)
    )
    savepoints: Settings = field(default_factory=Settings)
    for_slots: Mapping[str, str] = field(default_factory=dict)
    reactive: ReactiveSettings | None = None

    @classmethod
    def read(cls, settings: Settings, job: Mapping[str, str] | None = None) -> JobMasterSettings:
        """Read the cluster's settings, with those of a job on top.

        Raises:
            ConfigurationError: a value is not valid.
        """
        job_settings = settings.with_layer("program", job) if job else settings
        restart_strategy(job_settings)  # a wrong value is refused now, not when the job fails
        checkpoints = CheckpointSettings.read(job_settings)

        def new_storage(job_id: str) -> CheckpointStorage:
            return load_checkpoint_storage(StorageParameters(job_id, job_settings))

        if job is not None and (checkpoints.interval or checkpoints.restore_path):
            new_storage("0" * 32)  # the same for a storage that can't be used
        failures = max(0, settings.get(options.HEARTBEAT_RPC_FAILURE_THRESHOLD))
        return cls(
            heartbeat_interval=settings.get(options.HEARTBEAT_INTERVAL).total_seconds(),
            heartbeat_timeout=settings.get(options.HEARTBEAT_TIMEOUT).total_seconds(),
            heartbeat_failures=failures,
            slot_request_timeout=job_settings.get(options.SLOT_REQUEST_TIMEOUT).total_seconds(),
            slot_idle_timeout=job_settings.get(options.SLOT_IDLE_TIMEOUT).total_seconds(),
            registration=RegistrationSettings.from_settings(settings, failures=failures),
            orphan_timeout=max(
                settings.get(options.JOBMASTER_ORPHAN_TIMEOUT), settings.get(options.HEARTBEAT_TIMEOUT)
            ).total_seconds(),
            cancellation_timeout=job_settings.get(options.TASK_CANCELLATION_TIMEOUT).total_seconds(),
            new_restart_strategy=lambda: restart_strategy(job_settings),
            failover_by_region=settings.get(options.FAILOVER_STRATEGY) == "region",
            kept_failures=settings.get(options.EXCEPTION_HISTORY_SIZE),
            checkpoints=checkpoints,
            new_checkpoint_storage=new_storage,
            savepoints=job_settings,
            for_slots=settings.slice(READ_IN_SLOTS).to_plain(),
            reactive=ReactiveSettings.read(settings),
        )
