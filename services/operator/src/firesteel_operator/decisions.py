"""What the operator does next for one object: what is wanted, seen and noted goes in, notes and actions come out. Pure.

What runs for an object (a cluster, or a job in a session) is an *incarnation*, which has a number and an id of its job
of its own: so nothing that is left of one is ever taken for a part of the next. An upgrade goes through steps::

    ""  ->  STOPPING (a savepoint)  ->  REMOVING  ->  CREATING  ->  ""

The step, and all that it needs, is written into the status before anything is done. Every action may be repeated:
whoever reads the status after a crash decides the same again. Until the incarnation before is gone, with all its pods,
nobody looks for its last checkpoint, and no other one is made.
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
"""Seconds until it is looked again: while something is under way, and else."""
AGAIN_SECONDS: Final = 30.0
"""Between two savepoints of an upgrade, the first of which has failed."""


# -- what is seen


@dataclass(frozen=True)
class LastCheckpoint:
    """The checkpoint or savepoint that a job stands on: the last one that is complete, or that it was restored from.

    Attributes:
        location: empty, without an error: it is known that the job has none.
        error: why it is not known.
    """

    location: str = ""
    error: str = ""


@dataclass(frozen=True)
class JobSeen:
    """The job of the incarnation, as its REST API shows it.

    Attributes:
        state: Flink's name.
        name: of the job.
        last: what another job can go on from.
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
        location: of the savepoint; empty: there is none (yet).
        failure: why there will be none.
    """

    location: str = ""
    failure: str = ""


@dataclass(frozen=True)
class ObservedObject:
    """What the operator observed of an object's cluster, job and savepoints.

    Attributes:
        exists: something runs for it.
        incarnation: of that.
        is_complete: nothing of it is missing.
        is_going: some of it is still there, though it was removed.
        is_foreign: something of its name is there that is not ours.
        is_ready: it takes requests.
        trouble: what keeps it from that.
        blocked: why nothing can be done for the object now.
        job: None: it is not known.
        operation: None: nothing is known of it.
        last: of an incarnation that is gone. None: nobody has looked.
        leftovers: nothing runs, and records of what ran are left.
    """

    exists: bool = False
    incarnation: int = 0
    is_complete: bool = True
    is_going: bool = False
    is_foreign: bool = False
    is_ready: bool = False
    trouble: str = ""
    blocked: str = ""
    job: JobSeen | None = None
    operation: OperationSeen | None = None
    last: LastCheckpoint | None = None
    leftovers: bool = False


# -- what is noted


@dataclass(frozen=True)
class Operation:
    """A savepoint that was asked for.

    Attributes:
        id: of the request: asked twice, it is one.
        nonce: that asked for it; None: an upgrade.
        since: epoch seconds.
    """

    id: str
    nonce: int | None = None
    since: float = 0.0


@dataclass(frozen=True)
class Status:
    """What the operator knows of an object; it is in the object's status.

    Attributes:
        incarnation: number of the last one; 0 = there was none.
        step: see the module.
        state: of the reconciliation.
        reconciled: the spec of the incarnation.
        stable: the last spec that ran.
        restore: what the next incarnation begins from, or this one has begun from; empty: nothing.
        claim: that belongs to the job.
        find: the last checkpoint has to be found when the incarnation is gone.
        since: when the incarnation was made; epoch seconds.
        suspended: nothing runs, and nothing is to.
        operation: see there.
        nonce: the last one for which a savepoint was asked for.
        redeploy_nonce: likewise.
        attempts: savepoints of an upgrade that have failed.
        not_before: epoch seconds until which the next one is not asked for.
        savepoint: the last one, for people.
        refused: digest of a spec that was rolled back.
        job_id: of the incarnation.
        job: state of the job, for people.
        job_name: likewise.
        cluster: state of the cluster, for people.
        error: why it is not as the object says.
        generation: of the object that this is about.
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
        """What ``to_plain`` has made; what is missing is as at the beginning."""
        known = {name: value for name, value in plain.items() if name in cls.__dataclass_fields__}
        operation = known.get("operation")
        known["operation"] = Operation(**operation) if operation else None
        return cls(**known)


# -- what is to be done


@dataclass(frozen=True)
class Create:
    """Make what is missing of an incarnation."""

    incarnation: int
    job_id: str
    spec: Mapping[str, Any]
    restore: str = ""
    claim: bool = False


@dataclass(frozen=True)
class Remove:
    """Remove what runs; a job of a session is cancelled."""

    incarnation: int


@dataclass(frozen=True)
class Stop:
    """Have the job stopped with a savepoint."""

    job_id: str
    operation_id: str


@dataclass(frozen=True)
class TakeSavepoint:
    """Have a savepoint taken."""

    job_id: str
    operation_id: str


@dataclass(frozen=True)
class Forget:
    """Remove the records of an incarnation that is gone: who led it, its jobs, its checkpoints as high availability
    knows them. Checkpoints and savepoints themselves stay."""

    incarnation: int


@dataclass(frozen=True)
class Release:
    """Let the object go."""


Action = Create | Remove | Stop | TakeSavepoint | Forget | Release


@dataclass(frozen=True)
class Event:
    """A Kubernetes event, which tells people what the operator did."""

    reason: str
    message: str
    is_warning: bool = False


@dataclass(frozen=True)
class Decision:
    """What comes next: the status is written first, then the actions are done in their order.

    Attributes:
        status: new notes.
        actions: see there.
        events: see there.
        again: seconds until it is looked again, if nothing changes.
    """

    status: Status
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    again: float = LATER


@dataclass
class _Draft:
    """A decision that is being made."""

    status: Status
    actions: list[Action] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    again: float = LATER

    def note(self, **changes: Any) -> None:
        self.status = replace(self.status, **changes)

    def say(self, reason: str, message: str, is_warning: bool = False) -> None:
        self.events.append(Event(reason, message, is_warning))

    def decided(self) -> Decision:
        before = self.status
        return Decision(before, tuple(self.actions), tuple(self.events), SOON if before.step else self.again)


def job_id_of(uid: str, incarnation: int) -> str:
    """Of the job of an incarnation."""
    return str(derived_job_id(f"incarnation of {uid}", incarnation))


def operation_id_of(uid: str, what: str, number: int) -> str:
    """Of a request: the same for the same."""
    return str(derived_job_id(f"{what} of {uid}", number))


def decide(uid: str, spec: Spec, seen: ObservedObject, status: Status, now: float, generation: int = 0) -> Decision:
    """What comes next for an object that is wanted.

    Args:
        uid: of the object.
        spec: of it.
        seen: what there is.
        status: what was noted before.
        now: epoch seconds.
        generation: of the object.
    """
    d = _Draft(replace(status, error="", generation=generation))
    _look(d, seen)
    if seen.is_foreign:
        d.note(error="something of this name is there that the operator has not made: rename the object, or remove it")
    elif seen.blocked:
        d.note(error=seen.blocked)
    else:
        {"": _idle, STOPPING: _stopping, REMOVING: _removing, CREATING: _creating}[d.status.step](
            d, uid, spec, seen, now
        )
    return d.decided()


def remove(seen: ObservedObject, status: Status) -> Decision:
    """What comes next for an object that is deleted: first what runs, then its records, then the object."""
    d = _Draft(status)
    if seen.exists or seen.is_going:
        d.actions.append(Remove(seen.incarnation or status.incarnation))
        d.again = SOON
        return Decision(status, tuple(d.actions), again=SOON)
    d.again = SOON
    d.actions.append(Forget(status.incarnation) if seen.leftovers else Release())
    return d.decided()


def _look(d: _Draft, seen: ObservedObject) -> None:
    cluster = "MISSING"
    if seen.exists:
        cluster = "READY" if seen.is_ready else "ERROR" if seen.trouble else "DEPLOYING"
    if seen.job is not None:
        d.note(job=seen.job.state, job_name=seen.job.name)
    elif d.status.job not in TERMINAL:  # a job that has ended stays so
        d.note(job="RECONCILING" if seen.exists and d.status.job else "")
    d.note(cluster=cluster)
    if seen.trouble:
        d.note(error=seen.trouble)


# -- steps


def _creating(d: _Draft, uid: str, spec: Spec, seen: ObservedObject, now: float) -> None:
    s = d.status
    if (seen.exists or seen.is_going) and seen.incarnation != s.incarnation:
        d.actions.append(Remove(seen.incarnation))
    elif seen.exists and seen.is_complete:
        d.note(step="", since=now)
        d.say("Deployed", f"incarnation {s.incarnation} is made")
        d.again = SOON
    else:
        assert s.reconciled is not None
        d.actions.append(Create(s.incarnation, s.job_id, s.reconciled, s.restore, s.claim))


def _next(d: _Draft, uid: str, plain: Mapping[str, Any], now: float, state: str) -> None:
    """The next incarnation is made."""
    number = d.status.incarnation + 1
    d.note(incarnation=number, step=CREATING, state=state, reconciled=plain, job_id=job_id_of(uid, number))
    d.note(suspended=False, find=False, operation=None, attempts=0, not_before=0.0, since=now, job="")
    s = d.status
    d.actions.append(Create(number, s.job_id, plain, s.restore, s.claim))


def _removing(d: _Draft, uid: str, spec: Spec, seen: ObservedObject, now: float) -> None:
    s = d.status
    if seen.exists or seen.is_going:
        d.actions.append(Remove(s.incarnation))
        return
    if s.find:
        if _redeploy(d, spec):  # its user knows what it goes on from
            return
        if not _goes_on_from(d, seen.last, claim=True):
            return
        d.note(find=False)  # it is written down before the records go that tell it
        d.actions.append(Forget(s.incarnation))
        return
    if seen.leftovers:  # the next incarnation would go on with them
        d.actions.append(Forget(s.incarnation))
        return
    wanted = spec.job
    if s.state == ROLLING_BACK and s.stable is not None:
        _next(d, uid, s.stable, now, ROLLING_BACK)
    elif wanted is not None and wanted.suspended:
        d.note(step="", suspended=True, state=DEPLOYED, job="", operation=None)
        d.say("Suspended", f"the job goes on from {d.status.restore or 'nothing'} when it is resumed")
    else:
        _next(d, uid, spec.plain, now, UPGRADING)


def _goes_on_from(d: _Draft, last: LastCheckpoint | None, *, claim: bool) -> bool:
    """Note what the next incarnation goes on from: the only place that decides it from what was seen.

    An incarnation that is known to have no checkpoint leaves the next one what it began with itself. What is not known
    is never taken for nothing: the job would begin anew, or from an old savepoint.

    Args:
        d: the decision.
        last: what the job stands on; None: nobody has looked yet.
        claim: the next incarnation owns it.

    Returns:
        Whether it is known.
    """
    if last is None:
        return False
    if last.error:
        d.note(error=f"the last checkpoint can't be told: {last.error}. It is looked for again; to go on from another "
               "one, say it in spec.job.initialSavepointPath with another savepointRedeployNonce")  # fmt: skip
        d.again = SOON
        return False
    if last.location:
        d.note(restore=last.location, claim=claim)
    return True


def _stopping(d: _Draft, uid: str, spec: Spec, seen: ObservedObject, now: float) -> None:
    s = d.status
    assert s.operation is not None
    done = seen.operation
    if done is not None and done.location:
        _has_savepoint(d, done.location, "UPGRADE", now)
        d.note(step=REMOVING, restore=done.location, claim=False, find=False, operation=None)
        d.actions.append(Remove(s.incarnation))
    elif done is not None and done.failure:
        d.note(step="", operation=None, attempts=s.attempts + 1, not_before=now + AGAIN_SECONDS)
        d.note(error=f"the savepoint of the upgrade has failed: {done.failure}")
        d.say("SavepointError", done.failure, is_warning=True)
    elif seen.job is not None and seen.job.state in TERMINAL:  # its JobManager does not know of the request any more
        if seen.job.last.location and _goes_on_from(d, seen.job.last, claim=False):
            d.note(step=REMOVING, find=False, operation=None)
            d.actions.append(Remove(s.incarnation))
        elif seen.job.last.error and spec.is_available:
            d.note(step=REMOVING, find=True, operation=None)
            d.actions.append(Remove(s.incarnation))
        else:
            d.note(error=f"the job is {seen.job.state}, and where its savepoint is is not known: say it in "
                   "spec.job.initialSavepointPath with another savepointRedeployNonce")  # fmt: skip
            _redeploy(d, spec)
    elif not seen.exists and spec.is_available:
        d.note(step=REMOVING, find=True, operation=None)
    elif seen.job is not None:
        d.actions.append(Stop(s.job_id, s.operation.id))


def _idle(d: _Draft, uid: str, spec: Spec, seen: ObservedObject, now: float) -> None:
    s, job = d.status, spec.job
    if not s.incarnation:
        if job is not None:
            d.note(nonce=job.savepoint_nonce, redeploy_nonce=job.redeploy_nonce, restore=job.initial_savepoint)
        if job is not None and job.suspended:
            d.note(suspended=True)
        else:
            _next(d, uid, spec.plain, now, UPGRADING)
        return
    if s.suspended:
        if job is not None and job.redeploy_nonce != s.redeploy_nonce:
            d.note(restore=job.initial_savepoint, claim=False, redeploy_nonce=job.redeploy_nonce)
        if job is None or not job.suspended:
            d.say("SpecChanged", "the job is resumed")
            _next(d, uid, spec.plain, now, UPGRADING)
        return
    if s.operation is not None:
        _savepoint_taken(d, seen, now)
    _find_stable(d, spec, seen)
    running = Spec.from_plain(s.reconciled or {}, session_job=bool(spec.session))
    changed = spec.digest not in (running.digest, s.refused)
    if _redeploy(d, spec):
        return
    if changed or (job is not None and job.suspended):
        if s.operation is None or d.status.operation is None:
            d.say("SpecChanged", "the job is suspended" if not changed else f"upgrade by {_mode(spec).value}")
            _upgrade(d, uid, spec, seen, now)
        return
    if not seen.exists and seen.job is None and d.status.job not in TERMINAL:
        _recover(d, spec)
    elif _should_roll_back(d.status, running, seen, now):
        _roll_back(d, spec, seen)
    elif job is not None and job.savepoint_nonce not in (None, d.status.nonce) and d.status.operation is None:
        if seen.job is not None and seen.job.state == "RUNNING":
            operation = Operation(operation_id_of(uid, "savepoint", job.savepoint_nonce or 0), job.savepoint_nonce, now)
            d.note(operation=operation)
            d.actions.append(TakeSavepoint(s.job_id, operation.id))
        d.again = SOON


def _redeploy(d: _Draft, spec: Spec) -> bool:
    """Whether the job is to begin anew from the savepoint that its object names."""
    job = spec.job
    if job is None or job.redeploy_nonce == d.status.redeploy_nonce:
        return False
    d.note(step=REMOVING, state=UPGRADING, restore=job.initial_savepoint, claim=False, find=False, operation=None)
    d.note(redeploy_nonce=job.redeploy_nonce, refused="")
    d.actions.append(Remove(d.status.incarnation))
    return True


def _mode(spec: Spec) -> UpgradeMode:
    return UpgradeMode.STATELESS if spec.job is None else spec.job.mode


def _upgrade(d: _Draft, uid: str, spec: Spec, seen: ObservedObject, now: float) -> None:
    """What runs is to be replaced, or to stop."""
    s, mode = d.status, _mode(spec)
    d.note(state=UPGRADING, refused="")
    if mode is UpgradeMode.STATELESS:
        d.note(step=REMOVING, restore="", claim=False, find=False)
    elif seen.job is not None and seen.job.state in TERMINAL:
        if seen.job.last.error and spec.is_available:
            d.note(step=REMOVING, find=True)
        elif _goes_on_from(d, seen.job.last, claim=False):
            d.note(step=REMOVING, find=False)
        else:
            d.note(state=s.state)
            return
    elif mode is UpgradeMode.SAVEPOINT and seen.job is not None and seen.job.state == "RUNNING":
        if now < s.not_before:
            d.note(state=s.state, error="the savepoint of the upgrade has failed, and is taken again soon")
            return
        number = s.incarnation * 1000 + s.attempts
        operation = Operation(operation_id_of(uid, "stop", number), None, now)
        d.note(step=STOPPING, operation=operation)
        d.actions.append(Stop(s.job_id, operation.id))
        return
    elif spec.is_available or spec.session:
        if mode is UpgradeMode.SAVEPOINT:
            d.say("UpgradeByLastState", "the job does not run: it goes on from its last checkpoint", is_warning=True)
        d.note(step=REMOVING, find=True)
    elif seen.trouble and not s.job and s.state in (UPGRADING, ROLLING_BACK):
        d.note(step=REMOVING, find=False)  # it has never run: nothing was done since what it would have begun with
    else:
        state = "is not known" if seen.job is None else f"is {seen.job.state}"
        d.note(state=s.state, error=f"no savepoint can be taken: the job {state}. It is waited for")
        d.again = SOON
        return
    d.actions.append(Remove(s.incarnation))


def _recover(d: _Draft, spec: Spec) -> None:
    """What ran is gone, and nobody has said so."""
    if _mode(spec) is UpgradeMode.STATELESS or spec.is_available:
        d.note(step=REMOVING, state=UPGRADING, find=_mode(spec) is not UpgradeMode.STATELESS)
        if _mode(spec) is UpgradeMode.STATELESS:
            d.note(restore="", claim=False)
        d.say("Missing", "what ran is gone: it is made again", is_warning=True)
    else:
        d.note(error="what ran is gone, and its last checkpoint is not known: say where the job goes on from in "
               "spec.job.initialSavepointPath, with another savepointRedeployNonce")  # fmt: skip


def _savepoint_taken(d: _Draft, seen: ObservedObject, now: float) -> None:
    """A savepoint that a nonce has asked for."""
    s, done = d.status, seen.operation
    assert s.operation is not None
    if done is not None and done.location:
        _has_savepoint(d, done.location, "MANUAL", now)
        d.note(operation=None, nonce=s.operation.nonce)
    elif done is not None and done.failure:
        d.note(operation=None, nonce=s.operation.nonce, error=f"the savepoint has failed: {done.failure}")
        d.say("SavepointError", done.failure, is_warning=True)
    elif seen.job is None or seen.job.state in TERMINAL:
        d.note(operation=None, nonce=s.operation.nonce)
        d.say("SavepointError", "the job has ended before its savepoint was complete", is_warning=True)
    else:
        d.actions.append(TakeSavepoint(s.job_id, s.operation.id))
        d.again = SOON


def _has_savepoint(d: _Draft, location: str, trigger: str, now: float) -> None:
    d.note(savepoint={"location": location, "timeStamp": int(now * 1000), "triggerType": trigger})
    d.say("SavepointCompleted", location)


# -- stable, or rolled back


def _find_stable(d: _Draft, spec: Spec, seen: ObservedObject) -> None:
    s = d.status
    runs = seen.is_ready and seen.exists if spec.job is None else seen.job is not None and seen.job.state == "RUNNING"
    finished = seen.job is not None and seen.job.state == "FINISHED"
    if (runs or finished) and s.state in (UPGRADING, ROLLING_BACK):
        d.note(stable=s.reconciled, state=ROLLED_BACK if s.state == ROLLING_BACK else DEPLOYED)
        d.say("Stable" if s.state == UPGRADING else "RolledBack", f"incarnation {s.incarnation} runs")
    if s.state in (UPGRADING, ROLLING_BACK):
        d.again = SOON


def _should_roll_back(s: Status, running: Spec, seen: ObservedObject, now: float) -> bool:
    return (
        running.rollback
        and s.state == UPGRADING
        and s.stable is not None
        and s.stable != s.reconciled
        and now >= s.since + running.readiness
    )


def _roll_back(d: _Draft, spec: Spec, seen: ObservedObject) -> None:
    s = d.status
    if _mode(spec) is UpgradeMode.STATELESS:
        d.note(restore="", claim=False, find=False)
    elif seen.job is None or seen.job.state not in TERMINAL or (seen.job.last.error and spec.is_available):
        d.note(find=True)  # a spec without high availability is not rolled back; a session is asked when the job ends
    elif _goes_on_from(d, seen.job.last, claim=False):
        d.note(find=False)
    else:
        return
    d.note(state=ROLLING_BACK, step=REMOVING, refused=spec.digest, operation=None)
    d.say("Rollback", "the upgrade did not become stable in time: the last stable spec is deployed", is_warning=True)
    d.actions.append(Remove(s.incarnation))
