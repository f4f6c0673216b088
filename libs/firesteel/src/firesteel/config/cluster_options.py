"""Options of services: where they are, how long they wait, what they keep."""

from __future__ import annotations

from datetime import timedelta

from firesteel.config.option import BOOL, DURATION, INT, LIST, MEMORY, PORTS, STRING, Option, enum_of

_ZERO = timedelta(0)
_MILLISECOND = timedelta(milliseconds=1)

JOBMANAGER_RPC_ADDRESS = Option(
    "jobmanager.rpc.address",
    STRING,
    "127.0.0.1",
    "Host where others find the Dispatcher, the ResourceManager and the JobMaster host, unless one has an address of "
    "its own.",
)
JOBMANAGER_RPC_PORT = Option(
    "jobmanager.rpc.port", INT, 6123, "Port of the Dispatcher for the other services.", at_least=0, at_most=65535
)
JOBMANAGER_BIND_HOST = Option(
    "jobmanager.bind-host",
    STRING,
    "127.0.0.1",
    "Address to which the Dispatcher's internal port, the ResourceManager and the JobMaster host bind.",
)
DISPATCHER_ADDRESS: Option[str | None] = Option(
    "firesteel.dispatcher.address",
    STRING,
    None,
    "host:port of the Dispatcher's internal port. Not set: jobmanager.rpc.address and jobmanager.rpc.port.",
)
RESOURCEMANAGER_PORT = Option(
    "firesteel.resourcemanager.port", INT, 8082, "Port of the ResourceManager.", at_least=0, at_most=65535
)
RESOURCEMANAGER_ADDRESS: Option[str | None] = Option(
    "firesteel.resourcemanager.address",
    STRING,
    None,
    "host:port of the ResourceManager. Not set: jobmanager.rpc.address and firesteel.resourcemanager.port.",
)
JOBMASTER_PORT = Option("firesteel.jobmaster.port", INT, 6124, "Port of the JobMaster host.", at_least=0, at_most=65535)
JOBMASTER_ADDRESS: Option[str | None] = Option(
    "firesteel.jobmaster.address",
    STRING,
    None,
    "host:port of the JobMaster host. Not set: jobmanager.rpc.address and firesteel.jobmaster.port.",
)
TASKMANAGER_HOST = Option(
    "taskmanager.host", STRING, "127.0.0.1", "Name or address under which others reach a TaskManager and its slots."
)
TASKMANAGER_BIND_HOST = Option(
    "taskmanager.bind-host", STRING, "127.0.0.1", "Address to which a TaskManager and its slots bind."
)
TASKMANAGER_RPC_PORT = Option(
    "taskmanager.rpc.port", INT, 0, "Port of a TaskManager; 0: any free one.", at_least=0, at_most=65535
)
TASKMANAGER_RESOURCE_ID: Option[str | None] = Option(
    "taskmanager.resource-id", STRING, None, "Names a TaskManager in the cluster. Not set: host, port and a random end."
)
TASKMANAGER_REGISTRATION_TIMEOUT = Option(
    "taskmanager.registration.timeout",
    DURATION,
    timedelta(minutes=5),
    "A TaskManager that could not register for this time, and whose slots no job uses, ends.",
    at_least=_MILLISECOND,
)
REGISTRATION_INITIAL_TIMEOUT = Option(
    "cluster.registration.initial-timeout",
    DURATION,
    timedelta(milliseconds=100),
    "Pause before a registration that got no answer is repeated; it doubles each time.",
    at_least=_MILLISECOND,
)
REGISTRATION_MAX_TIMEOUT = Option(
    "cluster.registration.max-timeout", DURATION, timedelta(seconds=30), "Longest such pause.", at_least=_MILLISECOND
)
REGISTRATION_ERROR_DELAY = Option(
    "cluster.registration.error-delay",
    DURATION,
    timedelta(seconds=10),
    "Pause before a registration that ended with an error is repeated.",
    at_least=_MILLISECOND,
)
REGISTRATION_REFUSED_DELAY = Option(
    "cluster.registration.refused-registration-delay",
    DURATION,
    timedelta(seconds=30),
    "Pause before a registration that was refused is repeated.",
    at_least=_MILLISECOND,
)
CLUSTER_DIRECTORY: Option[str | None] = Option(
    "firesteel.cluster.directory",
    STRING,
    None,
    "What the services of this host have to find again after a restart: graphs and blobs of jobs, the way to the Spark "
    "driver. Not set: a directory of mode 0700 below the one for temporary files, named after the ResourceManager's "
    "port and the configuration directory: each of these has its own.",
)
SECRET_FILE: Option[str | None] = Option(
    "firesteel.security.secret-file",
    STRING,
    None,
    "File of mode 0600 with the cluster's secret, the same on all nodes. Not set: the variable FIRESTEEL_SECRET, else "
    "the file cluster-secret beside config.yaml.",
)
REST_TOKEN_FILE: Option[str | None] = Option(
    "firesteel.rest.token-file",
    STRING,
    None,
    "File of mode 0600 with a token that every REST request has to carry (Authorization: Bearer ...). Not set: what "
    "changes the cluster or brings results needs a token that is made from the cluster's secret, and reading is free.",
)
REST_ALLOW_UNAUTHENTICATED = Option(
    "firesteel.rest.allow-unauthenticated",
    BOOL,
    False,
    "Let the REST API bind beyond loopback though no firesteel.rest.token-file is set.",
)
REST_ADDRESS = Option("rest.address", STRING, "127.0.0.1", "Host where clients find the REST API.")
REST_PORT = Option(
    "rest.port", INT, 8081, "Port where clients find the REST API, and where it listens unless rest.bind-port says "
    "otherwise; 0: any. A cluster does not start if it is taken; an embedded one takes the next free one unless this "
    "is set.",
    at_least=0, at_most=65535,
)  # fmt: skip
REST_BIND_PORT: Option[tuple[int, ...] | None] = Option(
    "rest.bind-port", PORTS, None, "Ports of which the REST API binds to the first one that is free: a port, a range "
    "such as 8081-8090, or several of both with commas. By default rest.port.",
)  # fmt: skip
REST_BIND_ADDRESS = Option(
    "rest.bind-address", STRING, "127.0.0.1", "Address that the REST API binds to. Embedded mode: loopback only."
)
REST_HOST_NAMES: Option[tuple[str, ...] | None] = Option(
    "firesteel.rest.host-names",
    LIST,
    None,
    "More names under which the REST API is asked for, such as those of a proxy or an Ingress in front of it; the Host "
    "of a request has to be one of them, or rest.address, an address, or localhost.",
)
REST_MAX_CONTENT_LENGTH = Option(
    "rest.server.max-content-length",
    MEMORY,
    100 << 20,
    "Largest body of a REST request, such as a job with its blobs.",
    unit="bytes",
    at_least=1 << 20,
)
WEB_UPLOAD_DIR: Option[str | None] = Option(
    "web.upload.dir",
    STRING,
    None,
    "Directory of programs that are uploaded to the REST API (POST /jars/upload). Not set: a temporary one, which goes "
    "with the Dispatcher.",
)
WEB_SUBMIT = Option(
    "web.submit.enable",
    BOOL,
    True,
    "Whether programs can be uploaded to the REST API and run there (/jars). Clients submit jobs all the same (POST "
    "/jobs, with the token).",
)
WEB_CANCEL = Option(
    "web.cancel.enable",
    BOOL,
    True,
    "Whether jobs can be cancelled and stopped from the dashboard, or any other page in a browser. Clients can all the "
    "same, with the token.",
)
FLAMEGRAPH_ENABLED = Option(
    "rest.flamegraph.enabled",
    BOOL,
    True,
    "Whether flame graphs of vertices can be asked for; it costs nothing until somebody does. In Flink it is off.",
)
FLAMEGRAPH_NUM_SAMPLES = Option(
    "rest.flamegraph.num-samples", INT, 100, "Looks at the stacks of a task for one flame graph.",
    at_least=1, at_most=2000,
)  # fmt: skip
FLAMEGRAPH_DELAY = Option(
    "rest.flamegraph.delay-between-samples",
    DURATION,
    timedelta(milliseconds=50),
    "Between two looks for a flame graph.",
    at_least=timedelta(milliseconds=1),
    at_most=timedelta(seconds=1),
)
FLAMEGRAPH_REFRESH_INTERVAL = Option(
    "rest.flamegraph.refresh-interval",
    DURATION,
    timedelta(minutes=1),
    "A flame graph is shown for so long before another one is made for whoever asks.",
)
FLAMEGRAPH_CLEANUP_INTERVAL = Option(
    "rest.flamegraph.cleanup-interval",
    DURATION,
    timedelta(minutes=10),
    "A flame graph that nobody has asked for during this time is dropped.",
)
FLAMEGRAPH_STACK_DEPTH = Option(
    "rest.flamegraph.stack-depth", INT, 100, "Frames of a stack that a flame graph shows, the innermost ones.",
    at_least=1, at_most=1000,
)  # fmt: skip
COMPLETED_STORE_TYPE = Option(
    "completed-application-store.type",
    enum_of("File", "Memory"),
    "File",
    "Where the Dispatcher keeps jobs that have ended. Memory: a restarted Dispatcher has forgotten them.",
)
COMPLETED_STORE_CACHE_SIZE = Option(
    "completed-application-store.cache-size",
    MEMORY,
    50 << 20,
    "Ended jobs that are kept in files stay in memory, too, up to this size.",
    unit="bytes",
    at_least=0,
)
COMPLETED_STORE_EXPIRATION_TIME = Option(
    "completed-application-store.expiration-time",
    DURATION,
    timedelta(hours=1),
    "Ended jobs are forgotten after this time.",
    at_least=_ZERO,
)
COMPLETED_STORE_MAX_CAPACITY = Option(
    "completed-application-store.max-capacity",
    INT,
    2**31 - 1,
    "Most ended jobs that are kept; the oldest are forgotten first.",
    at_least=0,
)
CLUSTER_SHUTDOWN_TIMEOUT = Option(
    "cluster.services.shutdown-timeout",
    DURATION,
    timedelta(seconds=30),
    "How long an orderly shutdown of the cluster (DELETE /cluster) waits for the ends of its jobs.",
    at_least=_ZERO,
)
HEARTBEAT_INTERVAL = Option(
    "heartbeat.interval", DURATION, timedelta(seconds=10), "Time between heartbeats of services.",
    at_least=_MILLISECOND,
)  # fmt: skip
HEARTBEAT_TIMEOUT = Option(
    "heartbeat.timeout",
    DURATION,
    timedelta(seconds=50),
    "A service that was silent for this time is taken for dead.",
    at_least=_MILLISECOND,
)
HEARTBEAT_RPC_FAILURE_THRESHOLD = Option(
    "heartbeat.rpc-failure-threshold",
    INT,
    2,
    "So many failed calls in a row make a service unreachable before its heartbeat times out. -1: never.",
    at_least=-1,
)
ARCHIVE_DIRECTORY: Option[str | None] = Option(
    "jobmanager.archive.fs.dir",
    STRING,
    None,
    "Where the Dispatcher puts a file about each job that has ended, for history servers: an absolute path, file: or "
    "s3://bucket/directory. Not set: nowhere; the Dispatcher itself shows ended jobs until they expire.",
)
HISTORY_DIRECTORIES: Option[str | None] = Option(
    "historyserver.archive.fs.dir",
    STRING,
    None,
    "Directories whose archives a history server shows, separated by commas; as jobmanager.archive.fs.dir.",
)
HISTORY_REFRESH = Option(
    "historyserver.archive.fs.refresh-interval",
    DURATION,
    timedelta(seconds=10),
    "How often a history server looks for new and removed archives.",
    at_least=_MILLISECOND,
)
HISTORY_RETAINED_JOBS = Option(
    "historyserver.archive.retained-jobs",
    INT,
    -1,
    "How many jobs of each directory a history server shows, the newest; it removes the archives of others. -1: all.",
    at_least=-1,
)
HISTORY_RETAINED_TTL: Option[timedelta | None] = Option(
    "historyserver.archive.retained-ttl",
    DURATION,
    None,
    "Archives of jobs that ended longer ago are removed. Not set: none.",
    at_least=_MILLISECOND,
)
HISTORY_ADDRESS = Option("historyserver.web.address", STRING, "127.0.0.1", "Address that a history server binds to.")
HISTORY_PORT = Option(
    "historyserver.web.port",
    INT,
    8083,
    "Port of a history server; 0: any free one. Flink's default is 8082, which the ResourceManager has here.",
    at_least=0,
    at_most=65535,
)
HISTORY_WEB_REFRESH = Option(
    "historyserver.web.refresh-interval",
    DURATION,
    timedelta(seconds=10),
    "How often a page that shows a history server asks again.",
    at_least=_MILLISECOND,
)
HISTORY_JOBMANAGER_LOGS: Option[str | None] = Option(
    "historyserver.log.jobmanager.url-pattern",
    STRING,
    None,
    "Where people find the log of a job's JobMaster; <jobid> is replaced. Not set: the file and its host.",
)
HISTORY_TASKMANAGER_LOGS: Option[str | None] = Option(
    "historyserver.log.taskmanager.url-pattern",
    STRING,
    None,
    "Where people find the log of a TaskManager; <jobid> and <tmid> are replaced.",
)
