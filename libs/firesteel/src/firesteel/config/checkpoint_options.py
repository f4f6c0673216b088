"""Options of checkpoints, state backends and restarts. They are checked and kept with the job."""

from __future__ import annotations

from datetime import timedelta

from firesteel.config.option import BOOL, DURATION, FLOAT, INT, MEMORY, STRING, ConfigOption, enum_of

_ZERO = timedelta(0)
_MILLISECOND = timedelta(milliseconds=1)
_LATER = " Kept with the job; this version takes no checkpoints."
_NO_RESTARTS = " Kept with the job; this version restarts no jobs."

CHECKPOINTING_INTERVAL: ConfigOption[timedelta | None] = ConfigOption(
    "execution.checkpointing.interval",
    DURATION,
    None,
    "Time between the starts of two checkpoints; not set or 0: none are taken." + _LATER,
    at_least=_ZERO,
)
CHECKPOINTING_MODE = ConfigOption(
    "execution.checkpointing.mode",
    enum_of("EXACTLY_ONCE", "AT_LEAST_ONCE"),
    "EXACTLY_ONCE",
    "Whether a record may count twice in state after a failure." + _LATER,
)
CHECKPOINTING_TIMEOUT = ConfigOption(
    "execution.checkpointing.timeout",
    DURATION,
    timedelta(minutes=10),
    "A checkpoint that takes longer is given up." + _LATER,
    at_least=_MILLISECOND,
)
CHECKPOINTING_MIN_PAUSE = ConfigOption(
    "execution.checkpointing.min-pause",
    DURATION,
    _ZERO,
    "Least time between the end of a checkpoint and the start of the next." + _LATER,
    at_least=_ZERO,
)
CHECKPOINTING_MAX_CONCURRENT = ConfigOption(
    "execution.checkpointing.max-concurrent-checkpoints",
    INT,
    1,
    "Most checkpoints under way at once." + _LATER,
    at_least=1,
)
CHECKPOINTING_TOLERABLE_FAILURES = ConfigOption(
    "execution.checkpointing.tolerable-failed-checkpoints",
    INT,
    0,
    "Checkpoints in a row that may fail before the job does." + _LATER,
    at_least=0,
)
CHECKPOINTING_RETENTION = ConfigOption(
    "execution.checkpointing.externalized-checkpoint-retention",
    enum_of("DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION", "NO_EXTERNALIZED_CHECKPOINTS"),
    "NO_EXTERNALIZED_CHECKPOINTS",
    "What becomes of the last checkpoint when the job is cancelled." + _LATER,
)
CHECKPOINTING_UNALIGNED = ConfigOption(
    "execution.checkpointing.unaligned.enabled",
    BOOL,
    False,
    "Checkpoints that overtake records in flight, for jobs under back-pressure." + _LATER,
)
CHECKPOINTING_ALIGNED_TIMEOUT = ConfigOption(
    "execution.checkpointing.aligned-checkpoint-timeout",
    DURATION,
    _ZERO,
    "With unaligned checkpoints: how long one is tried aligned first. 0: unaligned at once." + _LATER,
    at_least=_ZERO,
)
CHECKPOINTING_FORCE_UNALIGNED = ConfigOption(
    "execution.checkpointing.unaligned.forced",
    BOOL,
    False,
    "Unaligned checkpoints even where partitioners do not allow them." + _LATER,
)
CHECKPOINTING_STORAGE: ConfigOption[str | None] = ConfigOption(
    "execution.checkpointing.storage",
    STRING,
    None,
    "Where checkpoints go: jobmanager, filesystem, or a plug-in by its name." + _LATER,
)
CHECKPOINTING_DIRECTORY: ConfigOption[str | None] = ConfigOption(
    "execution.checkpointing.dir", STRING, None, "Directory of checkpoints, for the storage filesystem." + _LATER
)
SAVEPOINT_DIRECTORY: ConfigOption[str | None] = ConfigOption(
    "execution.checkpointing.savepoint-dir",
    STRING,
    None,
    "Directory of savepoints that name none. Kept with the job; this version takes no savepoints.",
)
CHECKPOINTING_INCREMENTAL = ConfigOption(
    "execution.checkpointing.incremental",
    BOOL,
    False,
    "Checkpoints hold what has changed, where the state backend can." + _LATER,
)
CHECKPOINTING_COMPRESSION = ConfigOption(
    "execution.checkpointing.snapshot-compression", BOOL, False, "Compress what is written." + _LATER
)
CHECKPOINTING_INLINE_THRESHOLD = ConfigOption(
    "execution.checkpointing.data-inline-threshold",
    MEMORY,
    20 << 10,
    "State files that are smaller are written into the checkpoint's metadata." + _LATER,
    unit="bytes",
    at_least=0,
    at_most=1 << 20,
)
CHECKPOINTING_WRITE_BUFFER = ConfigOption(
    "execution.checkpointing.write-buffer-size",
    INT,
    4096,
    "Bytes of the buffer of files that are written." + _LATER,
    at_least=0,
)
STATE_BACKEND = ConfigOption(
    "state.backend.type",
    STRING,
    "hashmap",
    "Where keyed state lives: hashmap (memory of the slot), or a plug-in by its name. With rocksdb, which this version "
    "does not have, slots use hashmap.",
)
STATE_CHANGELOG = ConfigOption(
    "state.changelog.enabled",
    BOOL,
    False,
    "Write changes of state continuously. Kept with the job; there is no such backend.",
)
ROCKSDB_LOCAL_DIRECTORIES: ConfigOption[str | None] = ConfigOption(
    "state.backend.rocksdb.localdir",
    STRING,
    None,
    "Directories for the files of the state backend rocksdb, separated by commas. Kept with the job.",
)
ROCKSDB_PREDEFINED_OPTIONS = ConfigOption(
    "state.backend.rocksdb.predefined-options",
    enum_of("DEFAULT", "SPINNING_DISK_OPTIMIZED", "SPINNING_DISK_OPTIMIZED_HIGH_MEM", "FLASH_SSD_OPTIMIZED"),
    "DEFAULT",
    "A set of settings of the state backend rocksdb. Kept with the job.",
)
ROCKSDB_TRANSFER_THREADS = ConfigOption(
    "state.backend.rocksdb.checkpoint.transfer.thread.num",
    INT,
    4,
    "Threads that move files of the state backend rocksdb. Kept with the job.",
    at_least=1,
)
RESTART_STRATEGY: ConfigOption[str | None] = ConfigOption(
    "restart-strategy.type",
    enum_of("none", "off", "disable", "fixed-delay", "failure-rate", "exponential-delay"),
    None,
    "What happens to a job that fails." + _NO_RESTARTS,
)
RESTART_FIXED_ATTEMPTS = ConfigOption(
    "restart-strategy.fixed-delay.attempts", INT, 1, "Restarts before the job fails." + _NO_RESTARTS, at_least=0
)
RESTART_FIXED_DELAY = ConfigOption(
    "restart-strategy.fixed-delay.delay",
    DURATION,
    timedelta(seconds=1),
    "Pause before a restart." + _NO_RESTARTS,
    at_least=_ZERO,
)
RESTART_RATE_FAILURES = ConfigOption(
    "restart-strategy.failure-rate.max-failures-per-interval",
    INT,
    1,
    "Failures in an interval before the job fails." + _NO_RESTARTS,
    at_least=1,
)
RESTART_RATE_INTERVAL = ConfigOption(
    "restart-strategy.failure-rate.failure-rate-interval",
    DURATION,
    timedelta(minutes=1),
    "The interval in which failures are counted." + _NO_RESTARTS,
    at_least=_MILLISECOND,
)
RESTART_RATE_DELAY = ConfigOption(
    "restart-strategy.failure-rate.delay",
    DURATION,
    timedelta(seconds=1),
    "Pause before a restart." + _NO_RESTARTS,
    at_least=_ZERO,
)
RESTART_BACKOFF_INITIAL = ConfigOption(
    "restart-strategy.exponential-delay.initial-backoff",
    DURATION,
    timedelta(seconds=1),
    "Pause before the first restart." + _NO_RESTARTS,
    at_least=_MILLISECOND,
)
RESTART_BACKOFF_MAX = ConfigOption(
    "restart-strategy.exponential-delay.max-backoff",
    DURATION,
    timedelta(minutes=1),
    "Longest pause." + _NO_RESTARTS,
    at_least=_MILLISECOND,
)
RESTART_BACKOFF_MULTIPLIER = ConfigOption(
    "restart-strategy.exponential-delay.backoff-multiplier",
    FLOAT,
    1.5,
    "By how much the pause grows." + _NO_RESTARTS,
    at_least=1.0,
)
