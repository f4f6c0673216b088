"""Options of reactive mode, in which jobs take all slots that there are."""

from __future__ import annotations

from datetime import timedelta

from firesteel.config.option import DURATION, INT, Option, enum_of

_ZERO = timedelta(0)

SCHEDULER_MODE: Option[str | None] = Option(
    "scheduler-mode",
    enum_of("reactive"),
    None,
    "reactive: the jobs of a standalone application cluster take all slots that there are, and are rescaled from their "
    "last checkpoints when TaskManagers come or go. Not set: the parallelism of a job is what its program says.",
)
RESCALE_WAIT: Option[timedelta | None] = Option(
    "jobmanager.adaptive-scheduler.submission.resource-wait-timeout",
    DURATION,
    None,
    "In reactive mode: how long a job waits for its first slots before it fails. Not set: for ever.",
    fallback_keys=("jobmanager.adaptive-scheduler.resource-wait-timeout",),
    at_least=_ZERO,
)
RESCALE_SUBMISSION_STABILIZATION = Option(
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout",
    DURATION,
    timedelta(seconds=2),
    "In reactive mode: a job that is about to begin, or to begin again, does so when no slot has come for so long. "
    "Flink does not wait in reactive mode; here slots come one by one.",
    fallback_keys=("jobmanager.adaptive-scheduler.resource-stabilization-timeout",),
    at_least=_ZERO,
)
RESCALE_COOLDOWN = Option(
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling",
    DURATION,
    timedelta(seconds=30),
    "In reactive mode: a job that runs is not rescaled again for so long, unless it loses slots.",
    fallback_keys=("jobmanager.adaptive-scheduler.scaling-interval.min",),
    at_least=_ZERO,
)
RESCALE_STABILIZATION = Option(
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout",
    DURATION,
    timedelta(minutes=1),
    "In reactive mode: a job that runs is rescaled so long after the first of new slots has come, or when it has as "
    "many as it can use.",
    fallback_keys=("jobmanager.adaptive-scheduler.scaling-interval.max",),
    at_least=_ZERO,
)
RESCALE_MAX_CHECKPOINT_FAILURES = Option(
    "jobmanager.adaptive-scheduler.rescale-trigger.max-checkpoint-failures",
    INT,
    2,
    "In reactive mode: a job that is to be rescaled waits for its next checkpoint; when so many of them have failed it "
    "is rescaled all the same.",
    at_least=1,
)
RESCALE_MAX_DELAY: Option[timedelta | None] = Option(
    "jobmanager.adaptive-scheduler.rescale-trigger.max-delay",
    DURATION,
    None,
    "In reactive mode: the longest time for which a job that is to be rescaled waits for its next checkpoint. Not set: "
    "the interval of checkpoints, times one more than the failures that are waited for; nothing where it takes none.",
    at_least=_ZERO,
)
RESCALE_HISTORY_SIZE = Option(
    "web.adaptive-scheduler.rescale-history.size",
    INT,
    10,
    "In reactive mode: ended rescales of a job that the REST API shows (/jobs/:jobid/rescales/...). 0: none, which is "
    "Flink's default.",
    at_least=0,
)
