"""Options of applications: programs whose ``main`` runs beside the Dispatcher."""

from __future__ import annotations

from firesteel.config.option import BOOL, STRING, Option

APPLICATION_PROGRAM: Option[str | None] = Option(
    "firesteel.application.program",
    STRING,
    None,
    "The program of a cluster in application mode: a .py file, a directory or archive (.zip, .pyz) with a __main__.py, "
    "or a wheel. The Dispatcher runs it, in a process of its own. `standalone-job.sh` and `firesteel run-application` "
    "set it.",
)
APPLICATION_ENTRY: Option[str | None] = Option(
    "firesteel.application.entry",
    STRING,
    None,
    "What is run of it: a module, or module:function. Not set: its __main__, or a wheel's first console script.",
)
APPLICATION_ARGUMENTS: Option[str | None] = Option(
    "firesteel.application.arguments", STRING, None, "Arguments of the program, as a JSON array of texts."
)
APPLICATION_JOB_ID: Option[str | None] = Option(
    "firesteel.application.job-id",
    STRING,
    None,
    "Id of the application and of its first job, 32 lower-case hex digits; the ids of further jobs follow from it. Not "
    "set: from high-availability.cluster-id. So a JobManager that was restarted knows which jobs have ended.",
)
APPLICATION_START_ID: Option[str | None] = Option(
    "firesteel.application.start-id",
    STRING,
    None,
    "Names one start of a cluster in application mode. Services that are restarted under the same name never run a "
    "program again that has ended. Whoever supervises the Dispatcher sets it.",
)
APPLICATION_STATUS_FILE: Option[str | None] = Option(
    "firesteel.application.status-file",
    STRING,
    None,
    "Where the Dispatcher writes, as JSON, where its REST API is, the state of the application of its cluster, the "
    "exit code when that has ended, and that the cluster ends.",
)
APPLICATION_ID: Option[str | None] = Option(
    "firesteel.application.id",
    STRING,
    None,
    "The application that a job belongs to. The cluster sets it for jobs of the programs that it runs.",
)
APPLICATION_UPLOAD: Option[str | None] = Option(
    "firesteel.application.upload",
    STRING,
    None,
    "The uploaded program that has submitted a job, by its id in /jars. The cluster sets it, with entry and arguments, "
    "so that the program can be run again.",
)
SHUTDOWN_ON_APPLICATION_FINISH = Option(
    "execution.shutdown-on-application-finish",
    BOOL,
    True,
    "In application mode the cluster ends with its program. If false, it stays until somebody stops it.",
)
TERMINATE_APPLICATION_ON_ANY_JOB = Option(
    "execution.terminate-application-on-any-job-terminated-exceptionally",
    BOOL,
    True,
    "An application ends as soon as one of its jobs fails or is cancelled; its other jobs are cancelled. If false, it "
    "ends when its program and all of its jobs have ended, and is FINISHED if the program ended well.",
)
APPLICATION_RESULT_DELETE_ON_COMMIT = Option(
    "application-result-store.delete-on-commit",
    BOOL,
    True,
    "Whether the next start of a cluster in application mode runs its program anew after it has ended. If false, "
    "such a start ends at once with the result of the first run.",
)
