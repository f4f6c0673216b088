"""The Dispatcher's decisions: events in, instructions out; no input or output, no clock of its own.

A job's way::

                   +--------------+
    submitted ---> |   WAITING    | ----------------+----> ENDED
                   +--------------+                 |
                     ^   a JobMaster runs it, or    |
       nobody ran it |   was lost and is followed   |
                   +--------------+ found  +------+ |
    restarted ---> |  RECOVERING  | <----> | LED  | +
                   +--------------+ silent +------+

Trouble of the infrastructure ends no job: the job waits. A JobMaster counts as lost in three cases: its host, or the
process that has its address now, says that it is gone; it is silent while its host answers; or another host leads than
its own, and no connection can be made to it. If its host is silent as well, this Dispatcher may be the one that is cut
off, while the JobMaster is well: the job is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from firesteel.graph.job_archive import EVENTS
from firesteel.graph.job_events import EventType
from firesteel.rest import types as t
from firesteel_dispatcher.archives import ended_archive
from firesteel_dispatcher.instructions import (
    AskHost,
    CleanUpCheckpoints,
    DeleteStoredJob,
    ForgetJobMaster,
    Instruction,
    ProbeJobMaster,
    RememberJobMaster,
    SendAdoptJob,
    SendCancelJob,
    SendStartJob,
    StoreEnd,
    TakeOver,
)
from firesteel_dispatcher.job import (
    ENDED,
    LOG_INTERVAL,
    JobConflictError,
    JobEndedError,
    JobPhase,
    JobRecord,
    Limits,
    Moment,
    UnknownJobError,
)

logger = logging.getLogger(__name__)
LOST: Final = "firesteel.core.errors.PeerUnreachableError"
_CLIENT_GONE: Final = (
    "its client gave no sign of life for {seconds:g} s (client.heartbeat.timeout), and asked for this "
    "(execution.shutdown-on-attached-exit)"
)
_NOT_TAKEN_OVER: Final = "The job is not started again, since {why}."
_KEEPS_NOTHING: Final = "the cluster keeps nothing (high-availability.type: NONE)"
_NO_RECORD: Final = "there is no record of it in this cluster (its graph was damaged, or removed)"
_CHECKPOINTS_STAY: Final = (
    "Its completed checkpoints stay: a new submission goes on from one with execution.state-recovery.path"
)


class DispatcherCore:
    """All jobs that run, and those that ended last.

    There is one method for each event. It gets the moment of the event where time matters, and returns what has to be
    done, in order.

    Args:
        limits: how long silent JobMasters and ended jobs are kept.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self.is_held: Callable[[str], bool] = lambda _: False
        """Whether an ended job must not be forgotten yet: an application that runs may ask for it again."""
        self.jobs: dict[str, JobRecord] = {}
        """Jobs in the order of submission; ended ones are moved to the end."""

    # -- submission

    def job(self, job_id: str) -> JobRecord:
        """The record of a job.

        Raises:
            UnknownJobError: no job has this id.
        """
        job = self.jobs.get(job_id)
        if job is None:
            raise UnknownJobError(f"Job {job_id} not found")
        return job

    def is_known(self, job_id: str, fingerprint: str) -> bool:
        """Whether a job with this id and this graph was submitted before.

        Raises:
            JobConflictError: a job with this id and another graph was submitted before.
        """
        job = self.jobs.get(job_id)
        if job is not None and job.fingerprint != fingerprint:
            raise JobConflictError(f"Job {job_id} was submitted before with another graph: a new job needs a new id")
        return job is not None

    def submitted(
        self,
        job_id: str,
        name: str,
        fingerprint: str,
        archive: Mapping[str, Any],
        now: Moment,
        client_timeout: float | None = None,
        takes_over: bool = False,
    ) -> list[Instruction]:
        """A job is stored, and needs a JobMaster; submitting it again changes nothing.

        Args:
            job_id, name: of the job.
            fingerprint: of its graph.
            archive: how the job looks before it is started.
            now: the moment.
            client_timeout: seconds of silence of the client after which the job is cancelled; None = never.
            takes_over: whether another JobMaster follows one that is lost; if not, the job fails then.

        Raises:
            JobConflictError: another job has its id.
        """
        if self.is_known(job_id, fingerprint):
            return []
        self._add(job_id, name, fingerprint, archive, now, client_timeout).takes_over = takes_over
        logger.info("job %s (%s) was submitted", job_id, name)
        return [SendStartJob(job_id)]

    def _add(
        self,
        job_id: str,
        name: str,
        fingerprint: str,
        archive: Mapping[str, Any],
        now: Moment,
        client_timeout: float | None,
    ) -> JobRecord:
        job = JobRecord(job_id, name, fingerprint, archive, timestamps=dict(archive.get("timestamps", {})))
        job.client_timeout, job.events = client_timeout, archive.get(EVENTS, {})
        if client_timeout is not None:
            job.client_deadline = now.monotonic + client_timeout
        self.jobs[job_id] = job
        return job

    # -- after a restart

    def restored(
        self,
        job_id: str,
        name: str,
        fingerprint: str,
        archive: Mapping[str, Any],
        now: Moment,
        client_timeout: float | None = None,
        jobmaster: tuple[str, str] | None = None,
        cancel_wanted: bool = False,
        takes_over: bool = False,
    ) -> None:
        """An earlier Dispatcher had accepted this job; ``host_lists`` or ``adopted`` will say what became of it.

        Args:
            job_id, name, fingerprint, archive, now, client_timeout, takes_over: as in ``submitted``.
            jobmaster: address and token of the job's JobMaster, if they are known.
            cancel_wanted: a user has cancelled the job.
        """
        job = self._add(job_id, name, fingerprint, archive, now, client_timeout)
        job.phase, job.state = JobPhase.RECOVERING, "RECONCILING"
        job.progress = "the Dispatcher was restarted and looks for the JobMaster of the job"
        job.jobmaster, job.cancel_wanted, job.takes_over = jobmaster, cancel_wanted, takes_over
        job.silent_until = job.cancel_by = now.monotonic + self._limits.silence

    def read_again(self, job_id: str, name: str, fingerprint: str, archive: Mapping[str, Any]) -> None:
        """A job whose stored graph was damaged could be read now; see ``restored`` for the arguments."""
        job = self.jobs[job_id]
        job.name, job.fingerprint, job.archive = name, fingerprint, archive

    def restored_end(self, job_id: str, name: str, fingerprint: str, overview: t.JobRow, ended_at: float) -> None:
        """A job that ended under an earlier Dispatcher is shown again; only its overview is kept in memory.

        Args:
            job_id, name, fingerprint: of the job.
            overview: the job's row in ``/jobs/overview``.
            ended_at: monotonic time of the end; may lie before the start of this process.
        """
        job = JobRecord(job_id, name, fingerprint, None, phase=JobPhase.ENDED, overview=overview, ended_at=ended_at)
        job.state, job.stored = str(overview["state"]), True
        self.jobs[job_id] = job

    def host_lists(self, running: Mapping[str, tuple[str, str]], now: Moment) -> list[Instruction]:
        """The JobMaster host lists its living JobMasters: job id -> address and token."""
        instructions: list[Instruction] = []
        for job_id, (address, token) in running.items():
            job = self.jobs.get(job_id)
            if job is None:
                instructions.append(TakeOver(job_id, address, token))
            elif job.phase is JobPhase.ENDED:  # the JobMaster was given up, but lives: it must free its slots
                instructions += [SendAdoptJob(job_id, address, token), SendCancelJob(job_id, address, token)]
            elif job.phase is JobPhase.RECOVERING:
                # The host answers for this very JobMaster, so a silence that lasted too long is the JobMaster's own.
                if job.jobmaster == (address, token) and now.monotonic >= job.silent_until:
                    instructions += self._replace(
                        job, f"the JobMaster of the job gives no sign of life ({job.reason})", now
                    )
                    continue
                job.jobmaster = (address, token)
                instructions.append(SendAdoptJob(job_id, address, token))
        for job in [j for j in self.jobs.values() if j.id not in running]:
            if job.phase is JobPhase.RECOVERING:  # its JobMaster is gone, or has another host than the one that leads
                instructions += self._without_jobmaster(job, now)
            elif job.phase is JobPhase.LED and job.jobmaster is not None and job.takes_over:
                # The JobMaster's host does not lead any more, and may have taken the JobMaster with it.
                instructions.append(ProbeJobMaster(job.id, *job.jobmaster))
        return instructions

    def _without_jobmaster(self, job: JobRecord, now: Moment) -> list[Instruction]:
        if job.jobmaster is not None:  # it may live: the host that answered can be another machine than its own
            if now.monotonic >= job.silent_until:
                cause = (
                    f"the JobMaster of the job gives no sign of life ({job.reason}), and its host knows nothing of it"
                )
                return self._replace(job, cause, now)
            job.is_unlisted = True
            return [SendAdoptJob(job.id, *job.jobmaster)]
        if job.cancel_wanted:
            return self._cancelled(job, now)
        job.move(JobPhase.WAITING)
        job.state, job.progress = "INITIALIZING", ""
        return [SendStartJob(job.id)]

    def host_away(self, reason: str, now: Moment) -> list[Instruction]:
        """The JobMaster host does not answer: JobMasters that live without it are called at their last addresses.

        The silence of a JobMaster proves nothing now; it is measured anew once the host answers again.
        """
        instructions: list[Instruction] = []
        for job in [j for j in self.jobs.values() if j.phase is JobPhase.RECOVERING]:
            job.silent_until, job.is_unlisted = now.monotonic + self._limits.silence, False
            if job.jobmaster is not None:
                instructions.append(SendAdoptJob(job.id, *job.jobmaster))
            instructions += self.unreachable(job.id, f"the JobMaster host can't be reached: {reason}", now)
        return instructions

    def taken_over(
        self,
        job_id: str,
        name: str,
        fingerprint: str,
        archive: Mapping[str, Any],
        jobmaster: tuple[str, str],
        now: Moment,
    ) -> list[Instruction]:
        """A job runs of which the Dispatcher had no record."""
        if job_id in self.jobs:
            return []
        logger.warning("job %s (%s) runs, but there is no record of it: it is taken over", job_id, name)
        self.restored(job_id, name, fingerprint, archive, now, jobmaster=jobmaster)
        self.jobs[job_id].has_record = False
        return [SendAdoptJob(job_id, *jobmaster)]

    def adopted(self, job_id: str, address: str, token: str) -> list[Instruction]:
        """The JobMaster of a job reports to this Dispatcher from now on."""
        job = self.jobs.get(job_id)
        if job is None or job.phase is not JobPhase.RECOVERING:
            return []
        logger.info("job %s (%s) is led by its JobMaster at %s again", job_id, job.name, address)
        return self._led(job, address, token)

    # -- start

    def may_start(self, job_id: str) -> bool:
        """Whether the job still needs a JobMaster; the caller then asks for one at once."""
        job = self.jobs.get(job_id)
        if job is None or job.phase is not JobPhase.WAITING:
            return False
        job.being_started = True
        return True

    def started(self, job_id: str, address: str, token: str) -> list[Instruction]:
        """A JobMaster runs the job."""
        job = self.jobs.get(job_id)
        if job is None or job.phase is JobPhase.ENDED:  # the job ended while its JobMaster was being started
            return [SendCancelJob(job_id, address, token)]
        return [] if job.phase is JobPhase.LED else self._led(job, address, token)

    def _led(self, job: JobRecord, address: str, token: str) -> list[Instruction]:
        job.move(JobPhase.LED)
        job.is_unlisted = False
        job.jobmaster, job.being_started, job.progress, job.reason = (address, token), False, "", ""
        job.logged_at = float("-inf")
        instructions: list[Instruction] = [RememberJobMaster(job.id, address, token)]
        return [*instructions, SendCancelJob(job.id, address, token)] if job.cancel_wanted else instructions

    def unreachable(self, job_id: str, reason: str, now: Moment) -> list[Instruction]:
        """The job could not get a JobMaster, or its JobMaster was not reached: the job waits, without a limit.

        Only cancelling ends such a job. As long as a JobMaster may run it, that JobMaster is given some time to hear
        that the job is cancelled.
        """
        job = self.jobs.get(job_id)
        if job is None or job.phase not in (JobPhase.WAITING, JobPhase.RECOVERING):
            return []
        if job.phase is JobPhase.RECOVERING and job.is_unlisted:
            return self._replace(job, f"its JobMaster ended while no Dispatcher ran ({reason})", now)
        if now.monotonic - job.logged_at >= LOG_INTERVAL:
            job.logged_at = now.monotonic
            logger.warning("job %s (%s) waits: %s", job_id, job.name, reason)
        job.being_started, job.reason, job.progress = False, reason, f"waiting: {reason}"
        if job.cancel_wanted and (job.phase is JobPhase.WAITING or now.monotonic >= job.cancel_by):
            return self._cancelled(job, now)
        if job.phase is JobPhase.RECOVERING and now.monotonic >= job.silent_until:
            return [AskHost()]  # only the host can tell a lost JobMaster from a Dispatcher that is cut off
        return []

    def refused(self, job_id: str, error_class: str, message: str, now: Moment) -> list[Instruction]:
        """The JobMaster host has read the job, and says that no JobMaster can ever run it."""
        job = self.jobs.get(job_id)
        if job is None or job.phase is not JobPhase.WAITING:
            return []
        if job.cancel_wanted:
            return self._cancelled(job, now)
        return self._failed(job, error_class, f"{message}. {_CHECKPOINTS_STAY}." if job.takeovers else message, now)

    # -- what JobMasters and their host report

    def state_changed(
        self, job_id: str, state: str, timestamps: Mapping[str, int], token: str = ""
    ) -> list[Instruction]:
        """The job entered another state; a report of a JobMaster that was given up changes nothing.

        Raises:
            UnknownJobError: there is no such job.
        """
        job = self.job(job_id)
        if job.is_former(token):
            logger.info("state %s of job %s is ignored: it comes from a JobMaster that was given up", state, job_id)
            return []
        if job.phase is not JobPhase.ENDED:
            job.state, job.timestamps = state, dict(timestamps)
            return []
        if state in ENDED:
            return []
        # The JobMaster was given up, but lives: it must free its slots.
        return [AskHost()] if job.jobmaster is None else [SendCancelJob(job_id, *job.jobmaster)]

    def finished(self, job_id: str, archive: Mapping[str, Any], now: Moment) -> list[Instruction]:
        """The job reached a final state; repeats change nothing.

        Raises:
            UnknownJobError: there is no such job.
        """
        job = self.job(job_id)
        if job.phase is JobPhase.ENDED:
            return []
        job.end(archive, now)
        logger.info("job %s (%s) is %s", job_id, job.name, job.state)
        self.jobs[job_id] = self.jobs.pop(job_id)
        return [StoreEnd(job_id), *self._forget(now)]

    def had_ended(self, job_id: str, archive: Mapping[str, Any], now: Moment) -> list[Instruction]:
        """A job without a JobMaster had ended before, as the record says that its JobMaster left."""
        job = self.jobs.get(job_id)
        if job is None or job.phase not in (JobPhase.WAITING, JobPhase.RECOVERING):
            return []
        logger.info("job %s (%s) had ended, and no Dispatcher had heard of it", job_id, job.name)
        jobmaster = job.jobmaster
        store_end, *forget_surplus = self.finished(job_id, archive, now)
        return [
            store_end,
            CleanUpCheckpoints(job_id),
            *forget_surplus,
            *([] if jobmaster is None else [SendAdoptJob(job_id, *jobmaster)]),
        ]

    def _failed(self, job: JobRecord, error_class: str, message: str, now: Moment) -> list[Instruction]:
        """The job fails while it has no JobMaster that could report it."""
        logger.error("job %s (%s) failed: %s", job.id, job.name, message)
        return self._end_alone(job, False, error_class, message, now)

    def _cancelled(self, job: JobRecord, now: Moment) -> list[Instruction]:
        """The job is cancelled while it has no JobMaster that could do it."""
        return self._end_alone(job, True, "", "", now)

    def _end_alone(
        self, job: JobRecord, cancelled: bool, error_class: str, message: str, now: Moment
    ) -> list[Instruction]:
        """The job ends without a JobMaster, so the Dispatcher cleans up its checkpoints.

        A JobMaster may live after all, on a host that does not lead any more or can't be reached. It is told to end.
        """
        assert job.archive is not None
        jobmaster = job.jobmaster
        if cancelled:
            job.note(now, EventType.CANCELLING, "cancelled by its user", job.cancelled_by)
        job.note(now, EventType.CANCELED if cancelled else EventType.FAILED, message or "no JobMaster ran it")
        archive = ended_archive({**job.archive, EVENTS: job.events}, cancelled, error_class, message, now.epoch_ms)
        store_end, *forget_surplus = self.finished(job.id, archive, now)
        # A stray JobMaster is adopted first: it ends once a Dispatcher has taken its report.
        stray: list[Instruction] = []
        if jobmaster is not None:
            stray = [SendAdoptJob(job.id, *jobmaster), SendCancelJob(job.id, *jobmaster)]
        return [store_end, CleanUpCheckpoints(job.id), *forget_surplus, *stray]

    def is_former(self, job_id: str, token: str) -> bool:
        """Whether a token belongs to a JobMaster that was given up or replaced."""
        job = self.jobs.get(job_id)
        return job is not None and job.is_former(token)

    def jobmaster_lost(self, job_id: str, cause: str, now: Moment, token: str = "") -> list[Instruction]:
        """The JobMaster of a job is gone: another one follows, or the job fails if the cluster keeps nothing of it.

        If the job has ended, its JobMaster may not have cleaned up, so the Dispatcher does it.

        Args:
            job_id: of the job.
            cause: what happened.
            now: the moment.
            token: of the JobMaster that is gone; the loss of a former one changes nothing. Empty: the present one.
        """
        job = self.jobs.get(job_id)
        if job is None or job.is_former(token):
            return []
        if job.phase is JobPhase.RECOVERING and token and job.jobmaster is not None and token != job.jobmaster[1]:
            return []  # another JobMaster was lost; the one in the store may live
        if job.phase is JobPhase.ENDED:  # whether the JobMaster had cleaned up is not known
            return [CleanUpCheckpoints(job_id)] if token else []
        if job.phase is JobPhase.WAITING and not token:
            return []  # the job has no JobMaster that could be lost
        if job.phase is JobPhase.WAITING and job.takes_over:  # the JobMaster had begun, and its answer did not come
            job.former.append(token)
            job.takeovers, job.takeover_cause = job.takeovers + 1, cause
            return []
        return self._replace(job, cause, now)

    def jobmaster_silent(self, job_id: str, cause: str, now: Moment) -> list[Instruction]:
        """The JobMaster of a job gave no sign of life in time: the Dispatcher looks for it, as after a restart."""
        job = self.jobs.get(job_id)
        if job is None or job.phase is not JobPhase.LED or job.jobmaster is None:
            return []
        logger.warning("job %s (%s): %s; it is looked for", job_id, job.name, cause)
        job.move(JobPhase.RECOVERING)
        job.state, job.progress, job.reason = "RECONCILING", f"waiting: {cause}", cause
        job.silent_until, job.cancel_by = now.monotonic, now.monotonic + self._limits.silence
        return [SendAdoptJob(job_id, *job.jobmaster)]

    def _replace(self, job: JobRecord, cause: str, now: Moment) -> list[Instruction]:
        """The JobMaster of a job is lost: another one follows it. The host, or the election of leaders, prefers the new
        one, so the lost one does no harm if it lives."""
        if job.cancel_wanted:
            return self._cancelled(job, now)
        if not job.takes_over:
            why = _KEEPS_NOTHING if job.has_record else _NO_RECORD
            text = f"{cause}. {_NOT_TAKEN_OVER.format(why=why)} {_CHECKPOINTS_STAY}."
            return self._failed(job, LOST, text, now)
        logger.warning("job %s (%s) gets another JobMaster: %s", job.id, job.name, cause)
        return [ForgetJobMaster(job.id), SendStartJob(job.id, job.lose_jobmaster(cause, now))]

    def end_stored(self, job_id: str, keep_archive: bool) -> None:
        """The end of a job is safe; unless ``keep_archive``, its archive is read from the store from now on."""
        job = self.jobs.get(job_id)
        if job is not None and job.phase is JobPhase.ENDED:
            job.stored = True
            if not keep_archive:
                job.archive = None

    # -- what users and their clients want

    def cancel(self, job_id: str, now: Moment, by: str = "") -> list[Instruction]:
        """Cancel a job, also while it is being started or waits for slots.

        Args:
            job_id: of the job.
            now: the moment.
            by: who asks for it, and from which address.

        Raises:
            UnknownJobError: there is no such job.
            JobEndedError: it has ended.
        """
        job = self.job(job_id)
        if job.phase is JobPhase.ENDED:
            raise JobEndedError(f"Job {job_id} has already ended as {job.state}")
        if not job.cancel_wanted:
            job.cancel_wanted, job.cancel_by = True, now.monotonic + self._limits.silence
            job.cancelled_by = by
        if job.phase is JobPhase.LED:
            assert job.jobmaster is not None
            return [SendCancelJob(job_id, *job.jobmaster)]
        if job.phase is JobPhase.WAITING and not job.being_started:
            return self._cancelled(job, now)
        return []

    def client_alive(self, job_id: str, seconds: float, now: Moment) -> None:
        """The client of a job gave a sign of life. A job with a client timeout is cancelled unless the next one comes.

        Args:
            job_id: of the job.
            seconds: time until the next sign of life is due.
            now: the moment.

        Raises:
            UnknownJobError: there is no such job.
        """
        job = self.job(job_id)
        if job.client_timeout is not None:
            job.client_deadline = now.monotonic + seconds

    def tick(self, now: Moment) -> list[Instruction]:
        """Time has passed: cancel jobs whose clients are gone, and forget ended jobs that are too old."""
        instructions: list[Instruction] = []
        for job in list(self.jobs.values()):
            deadline = job.client_deadline
            if job.phase is JobPhase.ENDED or job.cancel_wanted or deadline is None or now.monotonic < deadline:
                continue
            cause = _CLIENT_GONE.format(seconds=job.client_timeout or 0)
            logger.warning("job %s is cancelled: %s", job.id, cause)
            instructions += self.cancel(job.id, now, f"the cluster: {cause}")
        return instructions + self._forget(now)

    def _forget(self, now: Moment) -> list[Instruction]:
        ended = [job for job in self.jobs.values() if job.phase is JobPhase.ENDED]
        surplus = len(ended) - self._limits.max_ended
        expired_ids = [
            job.id
            for position, job in enumerate(ended)
            if (position < surplus or now.monotonic - job.ended_at >= self._limits.expiration)
            and not self.is_held(job.id)
        ]
        for job_id in expired_ids:
            del self.jobs[job_id]
        return [DeleteStoredJob(job_id) for job_id in expired_ids]

    def counts(self) -> t.JobCounts:
        """Numbers of jobs by state, as ``/overview`` shows them."""
        states = [job.state for job in self.jobs.values() if job.phase is JobPhase.ENDED]
        return {
            "jobs-running": len(self.jobs) - len(states),
            "jobs-finished": states.count("FINISHED"),
            "jobs-cancelled": states.count("CANCELED"),
            "jobs-failed": states.count("FAILED"),
        }
