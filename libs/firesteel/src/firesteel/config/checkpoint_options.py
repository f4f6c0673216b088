"""Options of checkpoints and state backends."""

from __future__ import annotations

from datetime import timedelta

from firesteel.config.option import BOOL, DURATION, FLOAT, INT, MEMORY, STRING, Option, enum_of

_ZERO = timedelta(0)
_MILLISECOND = timedelta(milliseconds=1)

CHECKPOINTING_INTERVAL: Option[timedelta | None] = Option(
    "execution.checkpointing.interval",
    DURATION,
    None,
    "Time between the starts of two checkpoints; not set or 0: none are taken.",
    at_least=_ZERO,
)
CHECKPOINTING_MODE = Option(
    "execution.checkpointing.mode",
    enum_of("EXACTLY_ONCE", "AT_LEAST_ONCE"),
    "EXACTLY_ONCE",
    "Whether a record may count twice in state after a failure.",
)
CHECKPOINTING_TIMEOUT = Option(
    "execution.checkpointing.timeout",
    DURATION,
    timedelta(minutes=10),
    "A checkpoint that takes longer is given up.",
    at_least=_MILLISECOND,
)
CHECKPOINTING_MIN_PAUSE = Option(
    "execution.checkpointing.min-pause",
    DURATION,
    _ZERO,
    "Least time between the end of a checkpoint and the start of the next.",
    at_least=_ZERO,
)
CHECKPOINTING_MAX_CONCURRENT = Option(
    "execution.checkpointing.max-concurrent-checkpoints",
    INT,
    1,
    "Most checkpoints under way at once.",
    at_least=1,
)
CHECKPOINTING_TOLERABLE_FAILURES = Option(
    "execution.checkpointing.tolerable-failed-checkpoints",
    INT,
    0,
    "Checkpoints in a row that may fail before the job does.",
    at_least=0,
)
CHECKPOINTING_RETENTION = Option(
    "execution.checkpointing.externalized-checkpoint-retention",
    enum_of("DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION", "NO_EXTERNALIZED_CHECKPOINTS"),
    "NO_EXTERNALIZED_CHECKPOINTS",
    "What becomes of the last checkpoints when the job is cancelled or fails.",
)
CHECKPOINTING_NUM_RETAINED = Option(
    "execution.checkpointing.num-retained",
    INT,
    1,
    "Completed checkpoints that are kept. With 2 or more a job can go on from the one before if the last is damaged.",
    at_least=1,
)
CHECKPOINTING_AFTER_TASKS_FINISH = Option(
    "execution.checkpointing.checkpoints-after-tasks-finish",
    BOOL,
    True,
    "Go on with checkpoints when some tasks have finished, and end a bounded job with one.",
)
CHECKPOINTING_CREATE_SUBDIRECTORY = Option(
    "execution.checkpointing.create-subdir",
    BOOL,
    True,
    "Give each job a directory of its own, named by its id, below execution.checkpointing.dir.",
)
CHECKPOINTING_MAX_MEMORY_STATE = Option(
    "firesteel.checkpointing.jobmanager.max-state-size",
    MEMORY,
    5 << 20,
    "Most that the checkpoint storage jobmanager takes for one piece of state.",
    unit="bytes",
    at_least=1,
)
CHECKPOINTS_HISTORY = Option(
    "web.checkpoints.history", INT, 10, "Ended checkpoints of a job that the REST API shows.", at_least=0
)
STATE_RECOVERY_PATH: Option[str | None] = Option(
    "execution.state-recovery.path",
    STRING,
    None,
    "Directory of a savepoint or of a retained checkpoint (<dir>/<job>/chk-<n>), or its _metadata, that the job starts "
    "from.",
)
STATE_RECOVERY_CLAIM_MODE = Option(
    "execution.state-recovery.claim-mode",
    enum_of("NO_CLAIM", "CLAIM"),
    "NO_CLAIM",
    "To whom what the job starts from belongs. NO_CLAIM: to the user; no file of it is ever removed. CLAIM: to the "
    "job, which removes it when its own first checkpoint is complete.",
)
STATE_RECOVERY_IGNORE_UNCLAIMED = Option(
    "execution.state-recovery.ignore-unclaimed-state",
    BOOL,
    False,
    "Start although the checkpoint has state of operators that the job does not have; that state is lost.",
)
CHECKPOINTING_LOCAL_BACKUP = Option(
    "execution.checkpointing.local-backup.enabled",
    BOOL,
    False,
    "Keep a copy of the state of the last checkpoints on the disk of the TaskManager whose tasks wrote it.",
)
CHECKPOINTING_LOCAL_BACKUP_DIRECTORIES: Option[str | None] = Option(
    "execution.checkpointing.local-backup.dirs",
    STRING,
    None,
    "Directories on disks of a TaskManager for these copies, separated by commas: pieces are spread over them. Read by "
    "the TaskManager, so it is set for the cluster. Not set: its working directory.",
)
STATE_RECOVERY_FROM_LOCAL = Option(
    "execution.state-recovery.from-local",
    BOOL,
    False,
    "Read such copies when tasks start again on the same TaskManager, instead of the checkpoint storage. One that is "
    "missing or damaged is read from there.",
)
STATE_RECOVERY_FALL_BACK = Option(
    "firesteel.state-recovery.fall-back",
    enum_of("UNLESS_COMMITTED", "ALWAYS", "NEVER"),
    "UNLESS_COMMITTED",
    "Whether a job whose last checkpoint is damaged goes on from the retained one before. UNLESS_COMMITTED: not if it "
    "has sinks that commit exactly once, or gives results to a program: those of in between would be repeated.",
)
CHECKPOINTING_UNALIGNED = Option(
    "execution.checkpointing.unaligned.enabled",
    BOOL,
    True,
    "Barriers overtake records in flight, which become part of the checkpoint: it takes no longer in a job under "
    "back-pressure. Not with AT_LEAST_ONCE. Not set: where they have waited for "
    "execution.checkpointing.aligned-checkpoint-timeout, and not at tasks that read broadcast or custom partitions; "
    "true: at all tasks.",
)
CHECKPOINTING_ALIGNED_TIMEOUT = Option(
    "execution.checkpointing.aligned-checkpoint-timeout",
    DURATION,
    timedelta(seconds=30),
    "With unaligned checkpoints: how long one is tried aligned first. 0: unaligned at once, as it is when they are "
    "enabled and this is not set.",
    at_least=_ZERO,
)
CHECKPOINTING_FORCE_UNALIGNED = Option(
    "execution.checkpointing.unaligned.forced",
    BOOL,
    False,
    "Unaligned checkpoints even where partitioners do not allow them.",
    instead="all partitioners take part",
)
CHECKPOINTING_STORAGE: Option[str | None] = Option(
    "execution.checkpointing.storage",
    STRING,
    None,
    "Where checkpoints go: jobmanager, filesystem (files, or what the directory begins with: s3://, hdfs://), or a "
    "plug-in by its name. Not set: filesystem if there is a directory, else jobmanager.",
)
CHECKPOINTING_DIRECTORY: Option[str | None] = Option(
    "execution.checkpointing.dir",
    STRING,
    None,
    "Directory of checkpoints, which all hosts see; or hdfs://namenode:8020/path; or s3://bucket/path (options s3.*). "
    "These need firesteel[hdfs] and firesteel[s3].",
)
SAVEPOINT_DIRECTORY: Option[str | None] = Option(
    "execution.checkpointing.savepoint-dir",
    STRING,
    None,
    "Directory of savepoints that name none, which all hosts see.",
)
CHECKPOINTING_INCREMENTAL = Option(
    "execution.checkpointing.incremental",
    BOOL,
    False,
    "Checkpoints write only what has changed since an earlier one, where the state can (state in columns) and the "
    "storage can (files and object stores); not with several checkpoints under way at once.",
)
CHECKPOINTING_MAX_DELTA_RATIO = Option(
    "firesteel.checkpointing.incremental.max-delta-ratio",
    FLOAT,
    1.0,
    "Incremental checkpoints: a state is written whole again when the changes since it was would be more than so many "
    "times its entries.",
    at_least=0.0,
)
CHECKPOINTING_COMPRESSION = Option(
    "execution.checkpointing.snapshot-compression",
    BOOL,
    False,
    "Compress what is written.",
    instead="state is written as it is",
)
CHECKPOINTING_INLINE_THRESHOLD = Option(
    "execution.checkpointing.data-inline-threshold",
    MEMORY,
    20 << 10,
    "State files that are smaller are written into the checkpoint's metadata.",
    unit="bytes",
    at_least=0,
    at_most=1 << 20,
)
CHECKPOINTING_WRITE_BUFFER = Option(
    "execution.checkpointing.write-buffer-size",
    INT,
    4096,
    "Bytes of the buffer of files that are written.",
    at_least=0,
)
STATE_BACKEND = Option(
    "state.backend.type",
    STRING,
    "hashmap",
    "Where keyed state lives: hashmap (memory of the slot), filesystem (the same, and all snapshots are written into "
    "files), rocksdb (local disks, for state larger than memory; needs firesteel[rocksdb]), or a plug-in by its name.",
)
STATE_CHANGELOG = Option(
    "state.changelog.enabled",
    BOOL,
    False,
    "Write changes of state continuously.",
    instead="state is written at checkpoints only",
)
ROCKSDB_LOCAL_DIRECTORIES: Option[str | None] = Option(
    "state.backend.rocksdb.localdir",
    STRING,
    None,
    "Directories on local disks for the files of the state backend rocksdb, separated by commas: tasks are spread over "
    "them. Not set: the working directory of the TaskManager.",
)
ROCKSDB_MEMORY_MANAGED = Option(
    "state.backend.rocksdb.memory.managed",
    BOOL,
    True,
    "Databases of a slot share its managed memory: half of it for objects in front of them, the rest for blocks and "
    "write buffers. If not, block.cache-size and writebuffer.* say what they get.",
)
ROCKSDB_MEMORY_FIXED: Option[int | None] = Option(
    "state.backend.rocksdb.memory.fixed-per-slot",
    MEMORY,
    None,
    "Memory of all databases of a slot, in place of its managed memory.",
    unit="bytes",
    at_least=1 << 20,
)
ROCKSDB_WRITE_BUFFER_RATIO = Option(
    "state.backend.rocksdb.memory.write-buffer-ratio",
    FLOAT,
    0.5,
    "Of the memory that blocks and write buffers share: for write buffers.",
    at_least=0.0,
    at_most=1.0,
)
ROCKSDB_HIGH_PRIORITY_RATIO = Option(
    "state.backend.rocksdb.memory.high-prio-pool-ratio",
    FLOAT,
    0.1,
    "Of the cache of blocks: for index and filters.",
    at_least=0.0,
    at_most=1.0,
    instead="index and filters are in memory beside the cache, about 1.3 MB for a million keys",
)
ROCKSDB_BLOCK_CACHE = Option(
    "state.backend.rocksdb.block.cache-size",
    MEMORY,
    8 << 20,
    "Cache of blocks, where the memory is not managed.",
    unit="bytes",
    at_least=1,
)
ROCKSDB_BLOCK_SIZE = Option(
    "state.backend.rocksdb.block.blocksize", MEMORY, 4 << 10, "Size of a block of a file.", unit="bytes", at_least=1
)
ROCKSDB_WRITE_BUFFER = Option(
    "state.backend.rocksdb.writebuffer.size",
    MEMORY,
    16 << 20,
    "Most that one write buffer of a database holds; less where the managed memory is small.",
    unit="bytes",
    at_least=64 << 10,
)
ROCKSDB_WRITE_BUFFERS = Option(
    "state.backend.rocksdb.writebuffer.count", INT, 4, "Most write buffers of a database.", at_least=2
)
ROCKSDB_BLOOM = Option(
    "state.backend.rocksdb.use-bloom-filter", BOOL, True, "Files have filters that tell which keys they can't have."
)
ROCKSDB_BLOOM_BITS = Option(
    "state.backend.rocksdb.bloom-filter.bits-per-key", FLOAT, 10.0, "Size of these filters.", at_least=1.0
)
ROCKSDB_COMPRESSION = Option(
    "state.backend.rocksdb.compression.per.level",
    enum_of(
        "NO_COMPRESSION",
        "SNAPPY_COMPRESSION",
        "ZLIB_COMPRESSION",
        "BZLIB2_COMPRESSION",
        "LZ4_COMPRESSION",
        "LZ4HC_COMPRESSION",
        "ZSTD_COMPRESSION",
    ),
    "LZ4_COMPRESSION",
    "How the blocks of files are compressed; one for all levels.",
)
ROCKSDB_LEVEL_BASE = Option(
    "state.backend.rocksdb.compaction.level.max-size-level-base",
    MEMORY,
    256 << 20,
    "Bytes of all files of the first level; those of each further one are ten times as many.",
    unit="bytes",
    at_least=1 << 20,
)
ROCKSDB_FILE_SIZE = Option(
    "state.backend.rocksdb.compaction.level.target-file-size-base",
    MEMORY,
    64 << 20,
    "Size of a file of the first level.",
    unit="bytes",
    at_least=1 << 16,
)
ROCKSDB_DYNAMIC_LEVELS = Option(
    "state.backend.rocksdb.compaction.level.use-dynamic-size",
    BOOL,
    False,
    "Sizes of levels follow that of the last one.",
)
ROCKSDB_THREADS = Option(
    "state.backend.rocksdb.thread.num",
    INT,
    2,
    "Threads of a slot that write and compact files, for all databases together.",
    at_least=1,
)
ROCKSDB_OPEN_FILES = Option(
    "state.backend.rocksdb.files.open", INT, -1, "Most files that a database has open; -1: no limit.", at_least=-1
)
ROCKSDB_PREDEFINED_OPTIONS = Option(
    "state.backend.rocksdb.predefined-options",
    enum_of("DEFAULT", "SPINNING_DISK_OPTIMIZED", "SPINNING_DISK_OPTIMIZED_HIGH_MEM", "FLASH_SSD_OPTIMIZED"),
    "DEFAULT",
    "A set of settings of the state backend rocksdb.",
    instead="what state.backend.rocksdb.* says counts",
)
ROCKSDB_TRANSFER_THREADS = Option(
    "state.backend.rocksdb.checkpoint.transfer.thread.num",
    INT,
    4,
    "Threads that move files of the state backend rocksdb.",
    at_least=1,
    instead="a slot has one thread that writes state",
)
ROCKSDB_TIMERS = Option(
    "state.backend.rocksdb.timer-service.factory",
    enum_of("HEAP", "ROCKSDB"),
    "ROCKSDB",
    "Where timers of operators live that keep their state in rocksdb. ROCKSDB: the next ones in memory, later ones on "
    "disk. HEAP: all in memory, and whole in each checkpoint.",
)
