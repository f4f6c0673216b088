"""Options of a program and of how its job runs."""

from __future__ import annotations

from datetime import timedelta

from firesteel.config.option import BOOL, DURATION, INT, MAP, MEMORY, STRING, Option, enum_of

_ZERO = timedelta(0)
_MILLISECOND = timedelta(milliseconds=1)
_NO_JVM = "no JVM carries the records, whose connectors are in firesteel.datastream.connectors"

PARALLELISM_DEFAULT = Option(
    "parallelism.default",
    INT,
    1,
    "Parallelism of operators that do not say. In embedded mode, if it is not set: the usable cores.",
    at_least=1,
)
PIPELINE_MAX_PARALLELISM = Option(
    "pipeline.max-parallelism",
    INT,
    -1,
    "Number of key groups, which bounds parallelism for the life of the state. -1: from 1.5 times the parallelism, "
    "rounded up to a power of two, between 128 and 32768.",
    at_least=-1,
    at_most=32768,
)
PIPELINE_NAME: Option[str | None] = Option("pipeline.name", STRING, None, "Name of the job.")
PIPELINE_OPERATOR_CHAINING = Option(
    "pipeline.operator-chaining.enabled", BOOL, True, "Fuse operators into chains that run as one task."
)
PIPELINE_CHAIN_DIFFERENT_MAX_PARALLELISM = Option(
    "pipeline.operator-chaining.chain-operators-with-different-max-parallelism",
    BOOL,
    True,
    "Chain operators whose maximum parallelism differs.",
)
PIPELINE_OBJECT_REUSE = Option(
    "pipeline.object-reuse",
    BOOL,
    False,
    "Results are not copied where they wait for others or have several readers, and the results of `reduce` are its "
    "state: no function may change a record that it was given or has given on.",
)
PIPELINE_AUTO_GENERATE_UIDS = Option(
    "pipeline.auto-generate-uids", BOOL, True, "If false, a program with an operator without uid is refused."
)
PIPELINE_GLOBAL_JOB_PARAMETERS: Option[dict[str, str]] = Option(
    "pipeline.global-job-parameters", MAP, {}, "Parameters that every function of the job can read."
)
PIPELINE_AUTO_WATERMARK_INTERVAL = Option(
    "pipeline.auto-watermark-interval",
    DURATION,
    timedelta(milliseconds=200),
    "How often periodic watermarks are made. 0: never; only punctuated ones and the last one are sent then.",
    at_least=_ZERO,
)
EXECUTION_RUNTIME_MODE = Option(
    "execution.runtime-mode",
    enum_of("STREAMING", "BATCH", "AUTOMATIC"),
    "STREAMING",
    "How bounded input is run. BATCH: on Spark's stages (docs/batch.md), all sources have to be bounded. AUTOMATIC: "
    "BATCH if they are, else STREAMING.",
)
BATCH_AUTO_PARALLELISM = Option(
    "execution.batch.adaptive.auto-parallelism.enabled",
    BOOL,
    True,
    "In batch mode, how many subtasks a vertex has is chosen by the size of what it reads, where the program does not "
    "say it with `set_parallelism()` of an operator. The parallelism of the job is the most.",
)
BATCH_MIN_PARALLELISM = Option(
    "execution.batch.adaptive.auto-parallelism.min-parallelism",
    INT,
    1,
    "The least number of subtasks that is chosen so; but there are never more than partitions with records.",
    at_least=1,
)
BATCH_MAX_PARALLELISM: Option[int | None] = Option(
    "execution.batch.adaptive.auto-parallelism.max-parallelism",
    INT,
    None,
    "The largest number of subtasks that is chosen so. Default, and at most: the parallelism of the job.",
    at_least=1,
)
BATCH_TASK_VOLUME = Option(
    "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task",
    MEMORY,
    4 << 20,
    "How much a subtask is meant to read, as it is in the shuffle (compressed). Flink's default is 16 mb; Python works "
    "at a part of the speed, so less is worth a task of its own.",
    at_least=1,
)
EXECUTION_BUFFER_TIMEOUT_ENABLED = Option(
    "execution.buffer-timeout.enabled", BOOL, True, "If false, a batch is sent only when it is full."
)
EXECUTION_BUFFER_TIMEOUT_INTERVAL = Option(
    "execution.buffer-timeout.interval",
    DURATION,
    timedelta(milliseconds=100),
    "How long a batch may wait to fill. 0: each batch is sent at once. An idle task sends at once in any case.",
    at_least=_ZERO,
)

CACHE_DIRECTORY: Option[str | None] = Option(
    "firesteel.cache.directory",
    STRING,
    None,
    "Where cache() keeps results for the next jobs of a program, in a directory of mode 0700 for each environment. "
    "Slots and the program have to see it: with several hosts it is on a shared file system. Not set: the system's "
    "temp directory.",
)

EXECUTION_TARGET = Option(
    "execution.target",
    STRING,
    "local",
    "Where a program's jobs run. local: in a cluster inside the program's own process; remote: in the cluster at "
    "rest.address and rest.port, which is what `firesteel run` takes if nobody says.",
)
EXECUTION_ATTACHED = Option(
    "execution.attached",
    BOOL,
    True,
    "If false, execute() on a cluster returns when the job is accepted. `firesteel run -d` sets it.",
)
EXECUTION_SHUTDOWN_ON_ATTACHED_EXIT = Option(
    "execution.shutdown-on-attached-exit",
    BOOL,
    False,
    "Have the cluster cancel the jobs of an attached client that ends before them, or dies.",
)
CLIENT_TIMEOUT = Option(
    "client.timeout",
    DURATION,
    timedelta(minutes=1),
    "How long a client tries to reach a cluster again that it has reached before.",
    at_least=_ZERO,
)
CLIENT_RETRY_PERIOD = Option(
    "client.retry-period",
    DURATION,
    timedelta(seconds=2),
    "Pause between such attempts.",
    at_least=_MILLISECOND,
)
CLIENT_HEARTBEAT_INTERVAL = Option(
    "client.heartbeat.interval",
    DURATION,
    timedelta(seconds=30),
    "Time between heartbeats of a client with execution.shutdown-on-attached-exit.",
    at_least=_MILLISECOND,
)
CLIENT_HEARTBEAT_TIMEOUT = Option(
    "client.heartbeat.timeout",
    DURATION,
    timedelta(minutes=3),
    "A job whose client was silent for this time is cancelled, if the client asked for that.",
    at_least=_MILLISECOND,
)
PYTHON_FILES: Option[str | None] = Option(
    "python.files",
    STRING,
    None,
    "Python files that travel with a job, separated by commas: modules (.py), archives (.zip, .whl, .egg) and "
    "directories. Slots find them before everything else. Modules beside the program travel by themselves.",
)
PYTHON_FILES_MAX_BYTES = Option(
    "firesteel.python.files-max-bytes",
    MEMORY,
    32 << 20,
    "Most bytes of Python files that travel with a job, packed.",
    unit="bytes",
    at_least=1,
)
PYTHON_REQUIREMENTS: Option[str | None] = Option(
    "python.requirements",
    STRING,
    None,
    "A requirements.txt whose packages the job's slots have, in a virtual environment of their own. With # and a "
    "directory behind the path: packages are taken from there and nowhere else.",
)
PYTHON_ARCHIVES: Option[str | None] = Option(
    "python.archives",
    STRING,
    None,
    "Archives (.zip, .whl, .egg, .tar, .tar.gz, .tgz) that are unpacked in the working directory of the job's slots, "
    "separated by commas. With # and a name behind the path: in a directory of that name.",
)
PYTHON_EXECUTABLE: Option[str | None] = Option(
    "python.executable",
    STRING,
    None,
    "Python interpreter that runs the job's slots, on their hosts; absolute, or inside of an unpacked archive. Not "
    "set: the one of the cluster. Its minor version must be that of the program.",
)
PYTHON_CLIENT_EXECUTABLE: Option[str | None] = Option(
    "python.client.executable",
    STRING,
    None,
    "Python interpreter that runs the program itself where the cluster does, as in application mode; absolute, or "
    "inside of an unpacked archive. Not set: python.executable. `firesteel run` runs the program by its own.",
)
PYTHON_ENVIRONMENT_TIMEOUT = Option(
    "firesteel.python.environment-timeout",
    DURATION,
    timedelta(minutes=4),
    "How long Python packages and archives of a job may take to be prepared on a TaskManager's host. Less than "
    "slot.request.timeout.",
    at_least=_MILLISECOND,
)
PIPELINE_JARS: Option[str | None] = Option(
    "pipeline.jars", STRING, None, "Java archives of the program.", instead=_NO_JVM
)
PIPELINE_CLASSPATHS: Option[str | None] = Option(
    "pipeline.classpaths", STRING, None, "Where classes of Java are found.", instead=_NO_JVM
)
