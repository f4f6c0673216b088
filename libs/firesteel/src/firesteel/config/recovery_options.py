"""Options of restart strategies and failover: when a failed job restarts, and how much of it."""

from __future__ import annotations

from datetime import timedelta

from firesteel.config.option import DURATION, FLOAT, INT, STRING, Option, enum_of

_ZERO = timedelta(0)
_MILLISECOND = timedelta(milliseconds=1)

RESTART_STRATEGY: Option[str | None] = Option(
    "restart-strategy.type",
    enum_of(
        "none", "fixed-delay", "failure-rate", "exponential-delay",
        off="none", disable="none",
        fixeddelay="fixed-delay", failurerate="failure-rate", exponentialdelay="exponential-delay",
    ),
    None,
    "Whether and when a job that fails is restarted (off and disable mean none; fixeddelay, failurerate and "
    "exponentialdelay are known, too). Not set: exponential-delay if it takes checkpoints, else none.",
)  # fmt: skip
RESTART_FIXED_ATTEMPTS = Option(
    "restart-strategy.fixed-delay.attempts", INT, 1, "Restarts before the job fails.", at_least=0
)
RESTART_FIXED_DELAY = Option(
    "restart-strategy.fixed-delay.delay",
    DURATION,
    timedelta(seconds=1),
    "Pause before a restart.",
    at_least=_ZERO,
)
RESTART_RATE_FAILURES = Option(
    "restart-strategy.failure-rate.max-failures-per-interval",
    INT,
    1,
    "Restarts in an interval before the job fails.",
    at_least=1,
)
RESTART_RATE_INTERVAL = Option(
    "restart-strategy.failure-rate.failure-rate-interval",
    DURATION,
    timedelta(minutes=1),
    "The interval in which failures are counted.",
    at_least=_MILLISECOND,
)
RESTART_RATE_DELAY = Option(
    "restart-strategy.failure-rate.delay",
    DURATION,
    timedelta(seconds=1),
    "Pause before a restart.",
    at_least=_ZERO,
)
RESTART_BACKOFF_INITIAL = Option(
    "restart-strategy.exponential-delay.initial-backoff",
    DURATION,
    timedelta(seconds=1),
    "Pause before the first restart.",
    at_least=_MILLISECOND,
)
RESTART_BACKOFF_MAX = Option(
    "restart-strategy.exponential-delay.max-backoff",
    DURATION,
    timedelta(minutes=1),
    "Longest pause.",
    at_least=_MILLISECOND,
)
RESTART_BACKOFF_MULTIPLIER = Option(
    "restart-strategy.exponential-delay.backoff-multiplier",
    FLOAT,
    1.5,
    "By how much the pause grows with each restart.",
    at_least=1.0,
)
RESTART_BACKOFF_RESET = Option(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    DURATION,
    timedelta(hours=1),
    "After so long without a failure the pause is the first one again.",
    at_least=_MILLISECOND,
)
RESTART_BACKOFF_JITTER = Option(
    "restart-strategy.exponential-delay.jitter-factor",
    FLOAT,
    0.1,
    "The pause is longer or shorter by up to this part of it, so that jobs that failed together do not come back "
    "together.",
    at_least=0.0,
    at_most=1.0,
)
RESTART_BACKOFF_ATTEMPTS = Option(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    INT,
    2147483647,
    "Restarts without a reset of the pause before the job fails; the default is no limit.",
    at_least=1,
)
FAILOVER_STRATEGY = Option(
    "jobmanager.execution.failover-strategy",
    enum_of("region", "full"),
    "region",
    "What is restarted when a task fails: those that exchange records with it, directly or through others (region), or "
    "all of the job (full).",
)
HA_TYPE: Option[str | None] = Option(
    "high-availability.type",
    STRING,
    None,
    "Where a cluster keeps what has to outlive its processes: who leads, jobs with their graphs, completed "
    "checkpoints, results, blobs. directory: in high-availability.storageDir; zookeeper: in ZooKeeper "
    "(high-availability.zookeeper.quorum), kubernetes: in Leases and ConfigMaps of the Kubernetes that the "
    "cluster runs on, and with both what is large in high-availability.storageDir; NONE: in memory, and "
    "jobs fail when their JobMaster dies; or a plug-in by its name. Not set: directory where the cluster runs as "
    "processes, else in memory.",
)
HA_STORAGE_DIRECTORY: Option[str | None] = Option(
    "high-availability.storageDir",
    STRING,
    None,
    "A directory that all hosts have to see; with high-availability.type: zookeeper or kubernetes also "
    "s3://bucket/path or hdfs://namenode:8020/path, and only the hosts of the JobManager have to see it. Not set, with "
    "the type directory: ha in firesteel.cluster.directory, which is enough for a cluster on one host.",
)
HA_CLUSTER_ID = Option(
    "high-availability.cluster-id",
    STRING,
    "default",
    "Tells clusters apart that share a directory, ZooKeeper, or a namespace of Kubernetes.",
)
EXCEPTION_HISTORY_SIZE = Option(
    "web.exception-history-size",
    INT,
    16,
    "Failures that are kept of a job, each with those that came along with it.",
    at_least=1,
)
