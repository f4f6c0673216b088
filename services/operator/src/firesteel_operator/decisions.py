"""Decides what the operator does next for one object, from its spec, what is observed and what was noted. Pure.

What runs for an object (a cluster, or a job in a session) is an *incarnation*, with a number and a job id of its own:
so nothing left of one incarnation is ever taken for a part of the next. An upgrade goes through steps::

    ""  ->  STOPPING (a savepoint)  ->  REMOVING  ->  CREATING  ->  ""

The step, and all that it needs, is written into the status before anything is done. Every action may be repeated: an
operator that reads the status after a crash decides the same again. Until the former incarnation is gone, with all its
pods, its last checkpoint is not looked up, and no other incarnation is created.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from firesteel.core.ids import derived_job_id
from firesteel_operator.specs import Spec, UpgradeMode

STOPPING, REMOVING, CREATING = "STOPPING", "REMOVING", "CREATING"
DEPLOYED, UPGRADING, ROLLING_BACK, ROLLED_BACK = "DEPLOYED", "UPGRADING", "ROLLING_BACK", "ROLLED_BACK"
TERMINAL: Final = frozenset({"FINISHED", "FAILED", "CANCELED"})
SOON, LATER = 1.0, 10.0
"""Seconds until the next look: while something is under way, and otherwise."""
AGAIN_SECONDS: Final = 30.0
"""Seconds between two savepoints of an upgrade, after the first has failed."""


# -- what is observed


@dataclass(frozen=True)
class LastCheckpoint:
    """The checkpoint or savepoint that a job continues from: the last complete one, or the one it was restored from.

    Attributes:
        location: empty without an error = the job is known to have none.
        error: why it is unknown.
    """

    location: str = ""
    error: str = ""


@dataclass(frozen=True)
class JobSeen:
    """The job of the incarnation, as its REST API shows it.

    Attributes:
        state: Flink's name.
        name: of the job.
        last: checkpoint from which another job can continue.
        started: epoch seconds.
    """

    state: str
    name: str = ""
    last: LastCheckpoint = LastCheckpoint()
    started: float = 0.0


@dataclass(frozen=True)
class OperationSeen:
    """The savepoint or stop that the status names.

    Attributes:
        location: of the savepoint; empty = there is none (yet).
        failure: why there will be none.
    """

    location: str = ""
    failure: str = ""


@dataclass(frozen=True)
class ObservedObject:
    """What the operator observed of an object's cluster, job and savepoints.

    Attributes:
        exists: something runs for the object.
        incarnation: of what runs.
        is_complete: no object of it is missing.
        is_going: it was removed, but some of it still exists.
        is_foreign: an object of its name exists that the operator has not created.
        is_ready: it takes requests.
        trouble: why it is not ready.
        blocked: why nothing can be done for the object now.
        is_hidden: what runs for it can't be observed now; all other fields are unknown.
        job: None = unknown.
        operation: None = unknown.
        last: checkpoint of an incarnation that is gone; None = it was not looked up.
        leftovers: nothing runs, but records of the former incarnation are left.
    """

    exists: bool = False
    incarnation: int = 0
    is_complete: bool = True
    is_going: bool = False
    is_foreign: bool = False
    is_ready: bool = False
    trouble: str = ""
    blocked: str = ""
    is_hidden: bool = False
    job: JobSeen | None = None
    operation: OperationSeen | None = None
    last: LastCheckpoint | None = None
    leftovers: bool = False


# -- notes of the operator


@dataclass(frozen=True)
class Operation:
    """A savepoint that was requested.

    Attributes:
        id: of the request; a repeated request with the same id is one.
        nonce: the user's that requested it; None = an upgrade.
        since: epoch seconds.
    """

    id: str
    nonce: int | None = None
    since: float = 0.0


@dataclass(frozen=True)
class Status:
    """The operator's notes about an object, stored in the object's status.

    Attributes:
        incarnation: number of the last one; 0 = there was none.
        step: of an upgrade, as described at the head of this module.
        state: of the reconciliation.
        reconciled: the spec of the incarnation.
        stable: the last spec that ran.
        restore: savepoint or checkpoint with which the incarnation begins, or the next one; empty = none.
        claim: the job owns it.
        find: the last checkpoint has to be looked up once the incarnation is gone.
        since: when the incarnation was created; epoch seconds.
        suspended: nothing runs, as the object demands.
        operation: the savepoint under way.
        nonce: the last one for which a savepoint was requested.
        redeploy_nonce: the last one for which the job was redeployed.
        attempts: failed savepoints of an upgrade.
        not_before: epoch seconds of the next attempt.
        savepoint: the last one, for people.
        refused: digest of a spec that was rolled back.
        job_id: of the incarnation.
        job: state of the job, for people.
        job_name: for people.
        cluster: state of the cluster, for people.
        error: why the object is not as its spec says.
        generation: of the object to which these notes refer.
    """

    incarnation: int = 0
    step: str = ""
    state: str = DEPLOYED
    reconciled: Mapping[str, Any] | None = None
    stable: Mapping[str, Any] | None = None
    restore: str = ""
    claim: bool = False
    find: bool = False
    since: float = 0.0
    suspended: bool = False
    operation: Operation | None = None
    nonce: int | None = None
    redeploy_nonce: int | None = None
    attempts: int = 0
    not_before: float = 0.0
    savepoint: Mapping[str, Any] | None = None
    refused: str = ""
    job_id: str = ""
    job: str = ""
    job_name: str = ""
    cluster: str = ""
    error: str = ""
    generation: int = 0

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Status:
        """Notes from the form of ``to_plain``; missing ones have their defaults."""
        fields = {name: value for name, value in plain.items() if name in cls.__dataclass_fields__}
        operation = fields.get("operation")
        fields["operation"] = Operation(**operation) if operation else None
        return cls(**fields)


# -- actions


@dataclass(frozen=True)
class Create:
    """Create the missing objects of an incarnation."""

    incarnation: int
    job_id: str
    spec: Mapping[str, Any]
    restore: str = ""
    claim: bool = False


@dataclass(frozen=True)
class Remove:
    """Remove what runs; the job of a session is cancelled."""

    incarnation: int


@dataclass(frozen=True)
class Stop:
    """Stop the job, with a savepoint from which another incarnation can continue."""

    job_id: str
    operation_id: str


@dataclass(frozen=True)
class TakeSavepoint:
    """Take a savepoint of the job, which runs on."""

    job_id: str
    operation_id: str


@dataclass(frozen=True)
class Forget:
    """Remove what high availability has recorded of an incarnation that is gone: leaders, jobs, checkpoints.

    The checkpoints and savepoints themselves stay.
    """

    incarnation: int


@dataclass(frozen=True)
class Release:
    """Remove the operator's finalizer, so that the object can be deleted."""


Action = Create | Remove | Stop | TakeSavepoint | Forget | Release


@dataclass(frozen=True)
class Event:
    """A Kubernetes event, which tells people what the operator did."""

    reason: str
    message: str
    is_warning: bool = False


@dataclass(frozen=True)
class Decision:
    """The next step: the status is written first, then the actions are carried out in their order.

    Attributes:
        status: the new notes.
        actions: to carry out.
        events: to report.
        again: seconds until the next look, if nothing changes.
    """

    status: Status
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    again: float = LATER


@dataclass
class _Draft:
    """A decision that is being built."""

    status: Status
    actions: list[Action] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    again: float = LATER

    def note(self, **changes: Any) -> None:
        self.status = replace(self.status, **changes)

    def say(self, reason: str, message: str, is_warning: bool = False) -> None:
        self.events.append(Event(reason, message, is_warning))

    def decided(self) -> Decision:
        status = self.status
        return Decision(status, tuple(self.actions), tuple(self.events), SOON if status.step else self.again)


def job_id_of(uid: str, incarnation: int) -> str:
    """Id of the job of an incarnation."""
    return str(derived_job_id(f"incarnation of {uid}", incarnation))


def operation_id_of(uid: str, kind: str, number: int) -> str:
    """Id of a request; a repeated request has the same one."""
    return str(derived_job_id(f"{kind} of {uid}", number))


def decide(uid: str, spec: Spec, observed: ObservedObject, status: Status, now: float, generation: int = 0) -> Decision:
    """Decide on the next step for an object that shall exist.

    Args:
        uid: of the object.
        spec: of the object.
        observed: what runs for it.
        status: notes of earlier decisions.
        now: epoch seconds.
        generation: of the object.
    """
    draft = _Draft(replace(status, error="", generation=generation))
    _look(draft, observed)
    if observed.is_foreign:
        draft.note(
            error="something of this name is there that the operator has not made: rename the object, or remove it"
        )
    elif observed.blocked:
        draft.note(error=observed.blocked)
    else:
        {"": _idle, STOPPING: _stopping, REMOVING: _removing, CREATING: _creating}[draft.status.step](
            draft, uid, spec, observed, now
        )
    return draft.decided()


def remove(observed: ObservedObject, status: Status) -> Decision:
    """Decide on the next step for an object that is being deleted: remove what runs, then records, then the object."""
    draft = _Draft(status)
    if observed.is_hidden:  # if the object went now, its job would run on for ever
        draft.note(error=observed.blocked)
        return Decision(draft.status)
    if observed.exists or observed.is_going:
        draft.actions.append(Remove(observed.incarnation or status.incarnation))
        draft.again = SOON
        return Decision(status, tuple(draft.actions), again=SOON)
    draft.again = SOON
    draft.actions.append(Forget(status.incarnation) if observed.leftovers else Release())
    return draft.decided()


def _look(draft: _Draft, observed: ObservedObject) -> None:
    cluster = "MISSING"
    if observed.exists:
        cluster = "READY" if observed.is_ready else "ERROR" if observed.trouble else "DEPLOYING"
    if observed.job is not None:
        draft.note(job=observed.job.state, job_name=observed.job.name)
    elif draft.status.job not in TERMINAL:  # the state of a job that has ended is final
        draft.note(job="RECONCILING" if observed.exists and draft.status.job else "")
    draft.note(cluster=cluster)
    if observed.trouble:
        draft.note(error=observed.trouble)


# -- steps


def _creating(draft: _Draft, uid: str, spec: Spec, observed: ObservedObject, now: float) -> None:
    status = draft.status
    if (observed.exists or observed.is_going) and observed.incarnation != status.incarnation:
        draft.actions.append(Remove(observed.incarnation))
    elif observed.exists and observed.is_complete:
        draft.note(step="", since=now)
        draft.say("Deployed", f"incarnation {status.incarnation} is made")
        draft.again = SOON
    else:
        assert status.reconciled is not None
        draft.actions.append(Create(status.incarnation, status.job_id, status.reconciled, status.restore, status.claim))


def _next(draft: _Draft, uid: str, plain: Mapping[str, Any], now: float, state: str) -> None:
    """Begin the next incarnation."""
    number = draft.status.incarnation + 1
    draft.note(incarnation=number, step=CREATING, state=state, reconciled=plain, job_id=job_id_of(uid, number))
    draft.note(suspended=False, find=False, operation=None, attempts=0, not_before=0.0, since=now, job="")
    status = draft.status
    draft.actions.append(Create(number, status.job_id, plain, status.restore, status.claim))


def _removing(draft: _Draft, uid: str, spec: Spec, observed: ObservedObject, now: float) -> None:
    status = draft.status
    if observed.exists or observed.is_going:
        draft.actions.append(Remove(status.incarnation))
        return
    if status.find:
        if _redeploy(draft, spec):  # the user has named what the job continues from
            return
        if not _goes_on_from(draft, observed.last, claim=True):
            return
        draft.note(find=False)  # the place is noted before the records that have it are removed
        draft.actions.append(Forget(status.incarnation))
        return
    if observed.leftovers:  # the next incarnation would continue from them
        draft.actions.append(Forget(status.incarnation))
        return
    job = spec.job
    if status.state == ROLLING_BACK and status.stable is not None:
        _next(draft, uid, status.stable, now, ROLLING_BACK)
    elif job is not None and job.suspended:
        draft.note(step="", suspended=True, state=DEPLOYED, job="", operation=None)
        draft.say("Suspended", f"the job goes on from {draft.status.restore or 'nothing'} when it is resumed")
    else:
        _next(draft, uid, spec.plain, now, UPGRADING)


def _goes_on_from(draft: _Draft, last: LastCheckpoint | None, *, claim: bool) -> bool:
    """Note what the next incarnation continues from: the only place that decides it from what is observed.

    If an incarnation is known to have no checkpoint, the next one begins as that one did. An unknown checkpoint never
    counts as none: the job would begin anew, or from an old savepoint.

    Args:
        draft: the decision.
        last: checkpoint of the job; None = it was not looked up yet.
        claim: the next incarnation owns it.

    Returns:
        Whether it is known.
    """
    if last is None:
        return False
    if last.error:
        draft.note(
            error=f"the last checkpoint can't be told: {last.error}. It is looked for again; to go on from another "
            "one, say it in spec.job.initialSavepointPath with another savepointRedeployNonce"
        )
        draft.again = SOON
        return False
    if last.location:
        draft.note(restore=last.location, claim=claim)
    return True


def _stopping(draft: _Draft, uid: str, spec: Spec, observed: ObservedObject, now: float) -> None:
    status = draft.status
    assert status.operation is not None
    operation = observed.operation
    if operation is not None and operation.location:
        _has_savepoint(draft, operation.location, "UPGRADE", now)
        draft.note(step=REMOVING, restore=operation.location, claim=False, find=False, operation=None)
        draft.actions.append(Remove(status.incarnation))
    elif operation is not None and operation.failure:
        draft.note(step="", operation=None, attempts=status.attempts + 1, not_before=now + AGAIN_SECONDS)
        draft.note(error=f"the savepoint of the upgrade has failed: {operation.failure}")
        draft.say("SavepointError", operation.failure, is_warning=True)
    elif observed.job is not None and observed.job.state in TERMINAL:  # its JobManager has forgotten the request
        if observed.job.last.location and _goes_on_from(draft, observed.job.last, claim=False):
            draft.note(step=REMOVING, find=False, operation=None)
            draft.actions.append(Remove(status.incarnation))
        elif observed.job.last.error and spec.is_available:
            draft.note(step=REMOVING, find=True, operation=None)
            draft.actions.append(Remove(status.incarnation))
        else:
            draft.note(error=f"the job is {observed.job.state}, and where its savepoint is is not known: say it in "
                   "spec.job.initialSavepointPath with another savepointRedeployNonce")  # fmt: skip
            _redeploy(draft, spec)
    elif not observed.exists and spec.is_available:
        draft.note(step=REMOVING, find=True, operation=None)
    elif observed.job is not None:
        draft.actions.append(Stop(status.job_id, status.operation.id))


def _idle(draft: _Draft, uid: str, spec: Spec, observed: ObservedObject, now: float) -> None:
    status, job = draft.status, spec.job
    # Nothing has ever run: the first incarnation begins with the savepoint that the spec names, if any.
    if not status.incarnation:
        if job is not None:
            draft.note(nonce=job.savepoint_nonce, redeploy_nonce=job.redeploy_nonce, restore=job.initial_savepoint)
        if job is not None and job.suspended:
            draft.note(suspended=True)
        else:
            _next(draft, uid, spec.plain, now, UPGRADING)
        return
    if status.suspended:
        if job is not None and job.redeploy_nonce != status.redeploy_nonce:
            draft.note(restore=job.initial_savepoint, claim=False, redeploy_nonce=job.redeploy_nonce)
        if job is None or not job.suspended:
            draft.say("SpecChanged", "the job is resumed")
            _next(draft, uid, spec.plain, now, UPGRADING)
        return
    running = Spec.from_plain(status.reconciled or {}, session_job=bool(spec.session))
    changed = spec.digest not in (running.digest, status.refused)
    # Savepoints requested by a nonce go on while the job runs as it shall.
    if status.operation is not None:
        _savepoint_taken(draft, observed, now, is_replaced=changed or (job is not None and job.suspended))
    _find_stable(draft, spec, observed)
    if _redeploy(draft, spec):
        return
    # A spec that was rolled back is not tried again before it changes.
    if changed or (job is not None and job.suspended):
        if status.operation is None or draft.status.operation is None:
            draft.say("SpecChanged", "the job is suspended" if not changed else f"upgrade by {_mode(spec).value}")
            _upgrade(draft, uid, spec, observed, now)
        return
    if not observed.exists and observed.job is None and draft.status.job not in TERMINAL:
        _recover(draft, spec)
    elif _should_roll_back(draft.status, running, observed, now):
        _roll_back(draft, spec, observed)
    elif job is not None and job.savepoint_nonce not in (None, draft.status.nonce) and draft.status.operation is None:
        if observed.job is not None and observed.job.state == "RUNNING":
            operation = Operation(operation_id_of(uid, "savepoint", job.savepoint_nonce or 0), job.savepoint_nonce, now)
            draft.note(operation=operation)
            draft.actions.append(TakeSavepoint(status.job_id, operation.id))
        draft.again = SOON


def _redeploy(draft: _Draft, spec: Spec) -> bool:
    """Redeploy the job from the savepoint that its object names, if its nonce has changed; returns whether it has."""
    job = spec.job
    if job is None or job.redeploy_nonce == draft.status.redeploy_nonce:
        return False
    draft.note(step=REMOVING, state=UPGRADING, restore=job.initial_savepoint, claim=False, find=False, operation=None)
    draft.note(redeploy_nonce=job.redeploy_nonce, refused="")
    draft.actions.append(Remove(draft.status.incarnation))
    return True


def _mode(spec: Spec) -> UpgradeMode:
    return UpgradeMode.STATELESS if spec.job is None else spec.job.mode


def _upgrade(draft: _Draft, uid: str, spec: Spec, observed: ObservedObject, now: float) -> None:
    """Begin to replace or suspend what runs."""
    status, mode = draft.status, _mode(spec)
    draft.note(state=UPGRADING, refused="")
    # From where the next incarnation continues: nowhere, the end of this one, a savepoint, or its last checkpoint.
    if mode is UpgradeMode.STATELESS:
        draft.note(step=REMOVING, restore="", claim=False, find=False)
    elif observed.job is not None and observed.job.state in TERMINAL:
        if observed.job.last.error and spec.is_available:
            draft.note(step=REMOVING, find=True)
        elif _goes_on_from(draft, observed.job.last, claim=False):
            draft.note(step=REMOVING, find=False)
        else:
            draft.note(state=status.state)
            return
    elif mode is UpgradeMode.SAVEPOINT and observed.job is not None and observed.job.state == "RUNNING":
        if now < status.not_before:
            draft.note(state=status.state, error="the savepoint of the upgrade has failed, and is taken again soon")
            return
        number = status.incarnation * 1000 + status.attempts
        operation = Operation(operation_id_of(uid, "stop", number), None, now)
        draft.note(step=STOPPING, operation=operation)
        draft.actions.append(Stop(status.job_id, operation.id))
        return
    # The job does not run, so that no savepoint can be taken; high availability, or the session, knows its checkpoints.
    elif spec.is_available or spec.session:
        if mode is UpgradeMode.SAVEPOINT:
            draft.say(
                "UpgradeByLastState", "the job does not run: it goes on from its last checkpoint", is_warning=True
            )
        draft.note(step=REMOVING, find=True)
    elif observed.trouble and not status.job and status.state in (UPGRADING, ROLLING_BACK):
        draft.note(step=REMOVING, find=False)  # it has never run, so nothing has changed since its initial savepoint
    else:
        state = "is not known" if observed.job is None else f"is {observed.job.state}"
        draft.note(state=status.state, error=f"no savepoint can be taken: the job {state}. It is waited for")
        draft.again = SOON
        return
    draft.actions.append(Remove(status.incarnation))


def _recover(draft: _Draft, spec: Spec) -> None:
    """Replace an incarnation that has disappeared without a request."""
    if _mode(spec) is UpgradeMode.STATELESS or spec.is_available:
        draft.note(step=REMOVING, state=UPGRADING, find=_mode(spec) is not UpgradeMode.STATELESS)
        if _mode(spec) is UpgradeMode.STATELESS:
            draft.note(restore="", claim=False)
        draft.say("Missing", "what ran is gone: it is made again", is_warning=True)
    else:
        draft.note(error="what ran is gone, and its last checkpoint is not known: say where the job goes on from in "
               "spec.job.initialSavepointPath, with another savepointRedeployNonce")  # fmt: skip


def _savepoint_taken(draft: _Draft, observed: ObservedObject, now: float, *, is_replaced: bool) -> None:
    """Look at a savepoint that a nonce has requested.

    A cluster that does not answer may still take it, or takes it once it answers again; so it is waited for, unless the
    incarnation is to be replaced, which may be what helps the cluster.
    """
    status, operation = draft.status, observed.operation
    assert status.operation is not None
    if operation is not None and operation.location:
        _has_savepoint(draft, operation.location, "MANUAL", now)
        draft.note(operation=None, nonce=status.operation.nonce)
    elif operation is not None and operation.failure:
        draft.note(operation=None, nonce=status.operation.nonce, error=f"the savepoint has failed: {operation.failure}")
        draft.say("SavepointError", operation.failure, is_warning=True)
    elif observed.job is None and observed.exists and not observed.is_ready and not is_replaced:
        draft.again = SOON
    elif observed.job is None or observed.job.state in TERMINAL:
        draft.note(operation=None, nonce=status.operation.nonce)
        draft.say("SavepointError", "the job has ended before its savepoint was complete", is_warning=True)
    else:
        draft.actions.append(TakeSavepoint(status.job_id, status.operation.id))
        draft.again = SOON


def _has_savepoint(draft: _Draft, location: str, trigger: str, now: float) -> None:
    draft.note(savepoint={"location": location, "timeStamp": int(now * 1000), "triggerType": trigger})
    draft.say("SavepointCompleted", location)


# -- stable, or rolled back


def _find_stable(draft: _Draft, spec: Spec, observed: ObservedObject) -> None:
    status = draft.status
    runs = (
        observed.is_ready and observed.exists
        if spec.job is None
        else observed.job is not None and observed.job.state == "RUNNING"
    )
    finished = observed.job is not None and observed.job.state == "FINISHED"
    if (runs or finished) and status.state in (UPGRADING, ROLLING_BACK):
        draft.note(stable=status.reconciled, state=ROLLED_BACK if status.state == ROLLING_BACK else DEPLOYED)
        draft.say("Stable" if status.state == UPGRADING else "RolledBack", f"incarnation {status.incarnation} runs")
    if status.state in (UPGRADING, ROLLING_BACK):
        draft.again = SOON


def _should_roll_back(status: Status, running: Spec, observed: ObservedObject, now: float) -> bool:
    return (
        running.rollback
        and status.state == UPGRADING
        and status.stable is not None
        and status.stable != status.reconciled
        and now >= status.since + running.readiness
    )


def _roll_back(draft: _Draft, spec: Spec, observed: ObservedObject) -> None:
    status = draft.status
    # As an upgrade, but without a savepoint: the job of the failed incarnation may not run at all.
    if _mode(spec) is UpgradeMode.STATELESS:
        draft.note(restore="", claim=False, find=False)
    elif observed.job is None or observed.job.state not in TERMINAL or (observed.job.last.error and spec.is_available):
        draft.note(
            find=True
        )  # a spec without high availability is not rolled back; a session is asked once the job ends
    elif _goes_on_from(draft, observed.job.last, claim=False):
        draft.note(find=False)
    else:
        return
    draft.note(state=ROLLING_BACK, step=REMOVING, refused=spec.digest, operation=None)
    draft.say(
        "Rollback", "the upgrade did not become stable in time: the last stable spec is deployed", is_warning=True
    )
    draft.actions.append(Remove(status.incarnation))
