"""What the operator does next: each transition, and each crash between two of its steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from firesteel.ha.cell_services import CellServices
from firesteel.ha.jobs import StoredEnd
from firesteel.ha.memory import MemoryCells
from firesteel.ha.payloads import DirectoryPayloads
from firesteel.ha.services import DISPATCHER
from firesteel_operator import decisions as o
from firesteel_operator.decisions import JobSeen, LastCheckpoint, ObservedObject, OperationSeen, Status, decide
from firesteel_operator.report import lifecycle, status_of
from firesteel_operator.specs import ROLLBACK, Spec, SpecError
from firesteel_operator.worlds import Clusters, last_checkpoint

UID = "uid-1"
HA = {"high-availability.type": "kubernetes", "high-availability.storageDir": "s3://b/ha"}
PLACES = {"execution.checkpointing.dir": "s3://b/c", "execution.checkpointing.savepoint-dir": "s3://b/s"}
GONE = ObservedObject()
JOB = "a" * 32


def spec(mode: str = "savepoint", *, image: str = "one", ha: bool = True, rollback: bool = False, **job: Any) -> Spec:
    configuration = {**PLACES, **(HA if ha else {}), ROLLBACK: rollback}
    plain = {"program": "local:///p.py", "upgradeMode": mode, **job}
    return Spec.from_plain({"image": image, "firesteelConfiguration": configuration, "job": plain})


def running(number: int = 1, state: str = "RUNNING", checkpoint: str = "s3://b/c/chk-1", **more: Any) -> ObservedObject:
    return ObservedObject(True, number, is_ready=True, job=JobSeen(state, "job", LastCheckpoint(checkpoint)), **more)


class World:
    """An object that is looked at again and again. Its cluster does what it is told, one look later.

    ``crashes``: the operator dies behind each status that it writes, before it acts, and behind each action.
    """

    def __init__(self, desired: Spec, *, crashes: bool = False) -> None:
        self.desired, self.crashes = desired, crashes
        self.status, self.seen, self.now = Status(), ObservedObject(), 1000.0
        self.deployments: list[o.Create] = []
        self.actions: list[o.Action] = []
        self.events: list[str] = []
        self.savepoints: dict[str, OperationSeen] = {}
        self.last = LastCheckpoint("s3://b/c/chk-9")
        self.records = False
        self.state = "RUNNING"

    def look(self) -> o.Decision:
        """One look; what was decided is done."""
        if self.crashes:
            before = self.see()
            once = decide(UID, self.desired, before, self.status, self.now)
            again = decide(UID, self.desired, before, once.status, self.now)
            if once.status.step:  # the status was written, and nothing was done: all of it is decided again
                assert set(map(repr, once.actions)) <= set(map(repr, again.actions)), (once, again)
            self.status = once.status
        decision = decide(UID, self.desired, self.see(), self.status, self.now)
        self.status = Status.from_plain(decision.status.to_plain())
        self.events += [event.reason for event in decision.events]
        for action in decision.actions:
            self.do(action)
            if self.crashes:
                self.do(action)
        self.now += 1
        return decision

    def see(self) -> ObservedObject:
        seen, s = self.seen, self.status
        if not seen.exists and not seen.is_going:
            last = self.last if s.step == o.REMOVING and s.find else None
            return replace(seen, leftovers=self.records, last=last)
        operation = None if s.operation is None else self.savepoints.get(s.operation.id)
        job = None if seen.job is None else replace(seen.job, state=self.state)
        return replace(seen, operation=operation, job=job)

    def do(self, action: o.Action) -> None:
        self.actions.append(action)
        match action:
            case o.Create():
                if not self.seen.exists:
                    self.deployments.append(action)
                    self.records = True
                    self.state = "RUNNING"
                    self.seen = running(action.incarnation)
            case o.Remove():
                self.seen = GONE
            case o.Stop(_, id_):
                self.savepoints.setdefault(id_, OperationSeen(f"s3://b/s/{len(self.savepoints)}"))
            case o.TakeSavepoint(_, id_):
                self.savepoints.setdefault(id_, OperationSeen(f"s3://b/s/{len(self.savepoints)}"))
            case o.Forget():
                self.records = False

    def settle(self, looks: int = 12) -> None:
        for _ in range(looks):
            self.look()
        assert self.status.step == "", self.status


@pytest.fixture(params=[False, True], ids=["", "crashes"])
def crashes(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def deployed(desired: Spec, crashes: bool = False) -> World:
    world = World(desired, crashes=crashes)
    world.settle()
    assert [deployment.incarnation for deployment in world.deployments] == [1]
    return world


def test_an_object_becomes_a_cluster_once(crashes: bool) -> None:
    world = deployed(spec(initialSavepointPath="s3://b/s/old"), crashes)
    assert world.deployments[0].restore == "s3://b/s/old"
    assert world.deployments[0].claim is False
    assert lifecycle(world.status) == "STABLE"
    assert world.status.stable == world.desired.plain
    assert world.status.job == "RUNNING"


def test_nothing_is_done_while_nothing_changes() -> None:
    world = deployed(spec())
    world.actions.clear()
    world.settle()
    assert world.actions == []
    assert world.look().again == o.LATER


def test_an_upgrade_by_savepoint_goes_on_from_it(crashes: bool) -> None:
    world = deployed(spec(), crashes)
    world.desired = spec(image="two")
    world.settle(15)
    first, second = world.deployments
    assert second.incarnation == 2
    assert second.job_id != first.job_id
    assert second.spec["image"] == "two"
    assert second.restore == "s3://b/s/0", "the first savepoint, and there is no other"
    assert second.claim is False, "a savepoint is the user's"
    assert world.status.savepoint is not None
    assert world.status.savepoint["location"] == "s3://b/s/0"
    assert lifecycle(world.status) == "STABLE"


def test_nothing_is_removed_before_its_savepoint_is_complete() -> None:
    world = deployed(spec())
    world.desired = spec(image="two")
    world.savepoints = _Pending()
    for _ in range(5):
        world.look()
    assert world.status.step == o.STOPPING
    assert not [action for action in world.actions if isinstance(action, o.Remove)]
    stops = {action.operation_id for action in world.actions if isinstance(action, o.Stop)}
    assert len(stops) == 1, "it is one request, however often it is made"


class _Pending(dict[str, OperationSeen]):
    def get(self, key: str, default: Any = None) -> Any:
        return OperationSeen()


def test_a_savepoint_that_fails_leaves_the_job_alone_and_is_taken_again() -> None:
    world = deployed(spec())
    world.desired = spec(image="two")
    first_attempt = 1000  # of the first incarnation, each of which has a thousand attempts
    world.savepoints[o.operation_id_of(UID, "stop", first_attempt)] = OperationSeen(failure="disk full")
    world.look()
    world.look()
    assert world.status.step == ""
    assert "disk full" in world.status.error
    assert "SavepointError" in world.events
    world.look()
    assert "soon" in world.status.error
    assert len(world.deployments) == 1
    world.now += o.AGAIN_SECONDS
    world.settle()
    assert len(world.deployments) == 2


def test_last_state_finds_the_checkpoint_when_all_is_gone(crashes: bool) -> None:
    world = deployed(spec("last-state"), crashes)
    world.desired = spec("last-state", image="two")
    world.settle()
    assert world.deployments[1].restore == "s3://b/c/chk-9"
    assert world.deployments[1].claim is True, "it was the job's own, and goes when there is another"
    kinds = [type(action).__name__ for action in world.actions]
    assert kinds.index("Remove") < kinds.index("Forget") < len(kinds) - 1 - kinds[::-1].index("Create")


def test_pods_that_are_still_there_are_waited_for() -> None:
    world = deployed(spec("last-state"))
    world.desired = spec("last-state", image="two")
    world.look()
    world.seen = ObservedObject(is_going=True, incarnation=1)
    for _ in range(3):
        decision = decide(UID, world.desired, world.seen, world.status, world.now)
        assert [type(action) for action in decision.actions] == [o.Remove]
        world.status = decision.status
    assert len(world.deployments) == 1


def test_a_checkpoint_that_can_not_be_told_is_waited_for() -> None:
    world = deployed(spec("last-state"))
    world.desired = spec("last-state", image="two")
    world.last = LastCheckpoint(error="no answer")
    for _ in range(5):
        world.look()
    assert "no answer" in world.status.error
    assert len(world.deployments) == 1
    assert world.records, "what tells it stays"
    world.last = LastCheckpoint("s3://b/c/chk-3")
    world.settle()
    assert world.deployments[1].restore == "s3://b/c/chk-3"


def test_a_job_without_any_checkpoint_begins_with_what_it_began_with() -> None:
    world = deployed(spec("last-state", initialSavepointPath="s3://b/s/old"))
    world.desired = spec("last-state", image="two", initialSavepointPath="s3://b/s/old")
    world.last = LastCheckpoint("")
    world.settle()
    assert world.deployments[1].restore == "s3://b/s/old"
    assert world.deployments[1].claim is False


def test_stateless_begins_anew(crashes: bool) -> None:
    world = deployed(spec("stateless", initialSavepointPath="s3://b/s/old"), crashes)
    world.desired = spec("stateless", image="two")
    world.settle()
    assert world.deployments[1].restore == ""


def test_a_job_that_does_not_run_is_upgraded_by_its_last_state() -> None:
    world = deployed(spec("savepoint"))
    world.state = "RESTARTING"
    world.desired = spec("savepoint", image="two")
    world.settle()
    assert world.deployments[1].restore == "s3://b/c/chk-9"
    assert "UpgradeByLastState" in world.events


def test_without_high_availability_a_job_that_does_not_run_is_waited_for() -> None:
    world = deployed(spec("savepoint", ha=False))
    world.state = "RESTARTING"
    world.desired = spec("savepoint", image="two", ha=False)
    world.settle()
    assert len(world.deployments) == 1
    assert "RESTARTING" in world.status.error
    world.state = "RUNNING"
    world.settle()
    assert world.deployments[1].restore == "s3://b/s/0"


def test_a_job_that_has_failed_goes_on_from_its_last_checkpoint() -> None:
    world = deployed(spec("savepoint"))
    world.state = "FAILED"
    world.look()
    assert lifecycle(world.status) == "FAILED"
    world.desired = spec("savepoint", image="two")
    world.settle()
    assert world.deployments[1].restore == "s3://b/c/chk-1", "REST has told it: nothing comes after a job's end"


def test_suspended_and_resumed(crashes: bool) -> None:
    world = deployed(spec(), crashes)
    world.desired = spec(state="suspended")
    world.settle()
    assert lifecycle(world.status) == "SUSPENDED"
    assert not world.seen.exists
    shown = status_of(world.status, world.desired)
    assert shown["jobStatus"]["upgradeSavepointPath"] == "s3://b/s/0"
    world.actions.clear()
    world.settle()
    assert world.actions == []
    world.desired = spec()
    world.settle()
    assert world.deployments[1].restore == "s3://b/s/0"


def test_an_object_that_is_suspended_from_its_beginning_is_not_deployed() -> None:
    world = World(spec(state="suspended", initialSavepointPath="s3://b/s/1"))
    world.settle()
    assert not world.deployments
    world.desired = spec(initialSavepointPath="s3://b/s/1")
    world.settle()
    assert world.deployments[0].restore == "s3://b/s/1"


def test_a_nonce_takes_one_savepoint(crashes: bool) -> None:
    world = deployed(spec(), crashes)
    world.desired = spec(savepointTriggerNonce=7)
    world.settle()
    savepoints = {action.operation_id for action in world.actions if isinstance(action, o.TakeSavepoint)}
    assert len(savepoints) == 1
    assert len(world.deployments) == 1, "the job goes on"
    assert world.status.savepoint is not None
    assert world.status.savepoint["triggerType"] == "MANUAL"
    world.actions.clear()
    world.settle()
    assert world.actions == []
    world.desired = spec(savepointTriggerNonce=8)
    world.settle()
    assert {type(action) for action in world.actions} == {o.TakeSavepoint}


def world_whose_cluster_does_not_answer_a_savepoint() -> World:
    world = deployed(spec())
    world.desired = spec(savepointTriggerNonce=7)
    world.look()  # requests the savepoint
    world.savepoints.clear()
    world.seen = replace(world.seen, is_ready=False, job=None)
    world.settle()
    assert world.status.operation is not None
    return world


def test_a_savepoint_of_a_nonce_outlives_a_cluster_that_does_not_answer() -> None:
    world = world_whose_cluster_does_not_answer_a_savepoint()
    assert "SavepointError" not in world.events
    world.seen = running()
    world.settle()
    assert world.status.savepoint is not None
    assert world.status.nonce == 7


def test_a_savepoint_of_a_nonce_is_given_up_once_its_job_is_known_to_be_gone() -> None:
    world = world_whose_cluster_does_not_answer_a_savepoint()
    world.seen = replace(world.seen, is_ready=True)
    world.settle()
    assert world.events.count("SavepointError") == 1
    assert world.status.operation is None


def test_a_cluster_that_does_not_answer_is_upgraded_without_the_savepoint_of_its_nonce() -> None:
    world = world_whose_cluster_does_not_answer_a_savepoint()
    world.desired = spec(image="two", savepointTriggerNonce=7)
    world.settle()
    assert [deployment.incarnation for deployment in world.deployments] == [1, 2]
    assert world.deployments[1].restore == world.last.location


def test_a_savepoint_of_a_nonce_that_fails_is_told_once() -> None:
    world = deployed(spec())
    world.savepoints[o.operation_id_of(UID, "savepoint", 7)] = OperationSeen(failure="no disk")
    world.desired = spec(savepointTriggerNonce=7)
    world.settle()
    assert world.events.count("SavepointError") == 1
    assert world.status.nonce == 7


def test_another_restart_nonce_is_an_upgrade() -> None:
    world = deployed(spec())
    world.desired = Spec.from_plain({**world.desired.plain, "restartNonce": 1})
    world.settle()
    assert len(world.deployments) == 2


def test_another_redeploy_nonce_begins_from_the_named_savepoint(crashes: bool) -> None:
    world = deployed(spec(), crashes)
    world.desired = spec(savepointRedeployNonce=1, initialSavepointPath="s3://b/s/named")
    world.settle()
    assert world.deployments[1].restore == "s3://b/s/named"
    assert len(world.deployments) == 2


def test_what_is_gone_by_itself_is_made_again_from_its_last_checkpoint(crashes: bool) -> None:
    world = deployed(spec("last-state"), crashes)
    world.seen = GONE
    world.settle()
    assert world.deployments[1].restore == "s3://b/c/chk-9"
    assert world.deployments[1].spec == world.deployments[0].spec
    assert crashes or "Missing" in world.events, "an event may be lost with the operator"


def test_without_high_availability_one_that_is_gone_is_not_guessed_about() -> None:
    world = deployed(spec("savepoint", ha=False))
    world.seen = GONE
    world.settle()
    assert len(world.deployments) == 1
    assert "savepointRedeployNonce" in world.status.error


def test_an_upgrade_that_does_not_run_is_rolled_back(crashes: bool) -> None:
    world = deployed(spec(rollback=True), crashes)
    world.desired = spec(image="broken", rollback=True)
    for _ in range(40):
        world.look()
        if len(world.deployments) == 2:
            world.state = "RESTARTING"
    assert world.status.state == o.UPGRADING
    world.now += 300
    for _ in range(12):
        world.look()
    assert [deployment.spec["image"] for deployment in world.deployments] == ["one", "broken", "one"]
    assert world.deployments[2].restore == "s3://b/c/chk-9", "the last checkpoint of the one that did not become stable"
    assert lifecycle(world.status) == "ROLLED_BACK"
    world.settle()
    assert len(world.deployments) == 3, "the same spec is not tried again"
    world.desired = spec(image="mended", rollback=True)
    world.settle(20)
    assert world.deployments[3].spec["image"] == "mended"
    assert lifecycle(world.status) == "STABLE"


def test_a_deployment_that_never_ran_is_replaced_by_the_mended_one() -> None:
    world = deployed(spec("savepoint", ha=False))
    world.desired = spec("savepoint", image="misspelled", ha=False)
    for _ in range(4):
        world.look()
    world.status = replace(world.status, job="", step="", state=o.UPGRADING)
    world.seen = ObservedObject(True, 2, trouble="ErrImagePull")
    world.look()
    assert world.status.error == "ErrImagePull"
    world.desired = spec("savepoint", image="mended", ha=False)
    world.settle()
    assert world.deployments[-1].spec["image"] == "mended"
    assert world.deployments[-1].restore == "s3://b/s/0", "what the misspelled one was to begin with"


def test_a_job_that_has_ended_is_not_run_again_when_its_session_forgets_it() -> None:
    world = deployed(spec("stateless"))
    world.state = "FINISHED"
    world.look()
    world.seen = GONE
    world.settle()
    assert len(world.deployments) == 1
    assert world.status.job == "FINISHED"


def test_without_the_option_nothing_is_rolled_back() -> None:
    world = deployed(spec())
    world.desired = spec(image="broken")
    for _ in range(20):
        world.look()
        if len(world.deployments) == 2:
            world.state = "RESTARTING"
    world.now += 3000
    world.settle()
    assert len(world.deployments) == 2
    assert lifecycle(world.status) == "DEPLOYED"


def test_a_session_is_replaced_as_it_is() -> None:
    world = World(Spec.from_plain({"image": "one"}))
    world.settle()
    assert world.status.state == o.DEPLOYED
    world.desired = Spec.from_plain({"image": "two"})
    world.settle()
    assert [deployment.restore for deployment in world.deployments] == ["", ""]


def test_something_else_of_the_same_name_is_left_alone() -> None:
    decision = decide(UID, spec(), ObservedObject(is_foreign=True), Status(), 1.0)
    assert not decision.actions
    assert "rename" in decision.status.error


def test_what_blocks_is_told_and_waited_for() -> None:
    decision = decide(UID, spec(), ObservedObject(blocked="no session"), Status(), 1.0)
    assert not decision.actions
    assert decision.status.error == "no session"


def test_a_deleted_object_goes_last() -> None:
    status = Status(incarnation=3)
    assert [type(action) for action in o.remove(running(3), status).actions] == [o.Remove]
    assert [type(action) for action in o.remove(ObservedObject(is_going=True), status).actions] == [o.Remove]
    assert [type(action) for action in o.remove(ObservedObject(leftovers=True), status).actions] == [o.Forget]
    assert [type(action) for action in o.remove(ObservedObject(), status).actions] == [o.Release]


# -- specs


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({"job": {"program": ""}}, "spec.job.program is empty"),
        ({"job": {"program": "p.py", "upgradeMode": "hope"}}, "upgradeMode is 'hope'"),
        ({"job": {"program": "p.py", "state": "gone"}}, "state is 'gone'"),
        ({"job": {"program": "p.py", "upgradeMode": "savepoint"}}, "savepoint needs execution.checkpointing.savepoint"),
        (
            {"job": {"program": "p.py", "upgradeMode": "last-state"}, "firesteelConfiguration": PLACES},
            "last-state needs high-availability.type: kubernetes",
        ),
        ({"firesteelConfiguration": {"kubernetes.cluster-id": "x"}}, "is set by the operator"),
        ({"firesteelConfiguration": {"rest": {"port": "many"}}}, "rest.port"),
        ({"firesteelConfiguration": {ROLLBACK: "maybe"}}, "has to be true or false"),
        (
            {"job": {"program": "p", "upgradeMode": "savepoint"}, "firesteelConfiguration": {**PLACES, ROLLBACK: True}},
            "true needs high-availability.type",
        ),
    ],
)
def test_what_can_not_be_done_is_told(plain: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said.replace("(", r"\(")):
        Spec.from_plain(plain)


def test_a_session_job_needs_its_session() -> None:
    with pytest.raises(SpecError, match="deploymentName"):
        Spec.from_plain({"job": {"program": "p.py"}}, session_job=True)


def test_how_a_job_is_upgraded_is_no_reason_for_an_upgrade() -> None:
    with_savepoint = spec("savepoint")
    assert spec("last-state", savepointTriggerNonce=1, state="suspended").digest == with_savepoint.digest
    assert spec("savepoint", parallelism=3).digest != with_savepoint.digest
    assert spec("savepoint", image="two").digest != with_savepoint.digest


UNKNOWN = LastCheckpoint(error="no JobMaster has read them")


def ended(last: LastCheckpoint, state: str = "FAILED") -> ObservedObject:
    return replace(running(), job=JobSeen(state, "job", last))


@pytest.mark.parametrize("mode", ["savepoint", "last-state"])
def test_what_a_job_that_has_ended_stands_on_is_asked_of_high_availability_where_nobody_else_knows(mode: str) -> None:
    world = deployed(spec(mode, initialSavepointPath="s3://b/s/old"))
    world.desired = spec(mode, image="two", initialSavepointPath="s3://b/s/old")
    world.seen, world.state = ended(UNKNOWN), "FAILED"
    world.settle()
    assert world.deployments[1].restore == "s3://b/c/chk-9", "the old savepoint is no answer to what is not known"


def test_what_nobody_knows_is_waited_for_and_what_runs_is_not_removed() -> None:
    initial: dict[str, Any] = {"initialSavepointPath": "s3://b/s/old"}
    world = deployed(spec(ha=False, **initial))
    world.desired = spec(image="two", ha=False, **initial)
    world.seen, world.state = ended(UNKNOWN), "FAILED"
    world.actions.clear()
    for _ in range(3):
        world.look()
    assert world.actions == []
    assert "no JobMaster has read them" in world.status.error
    assert "initialSavepointPath" in world.status.error
    world.seen = ended(LastCheckpoint("s3://b/c/chk-4"))
    world.settle()
    assert world.deployments[1].restore == "s3://b/c/chk-4"


def test_a_checkpoint_that_is_never_found_gives_way_to_one_that_its_user_names() -> None:
    world = deployed(spec("last-state"))
    world.desired, world.last = spec("last-state", image="two"), UNKNOWN
    for _ in range(5):
        world.look()
    assert "no JobMaster has read them" in world.status.error
    assert len(world.deployments) == 1
    named: dict[str, Any] = {"initialSavepointPath": "s3://b/s/mine", "savepointRedeployNonce": 1}
    world.desired = spec("last-state", image="two", **named)
    world.settle()
    assert world.deployments[1].restore == "s3://b/s/mine"


@pytest.mark.parametrize("state", ["RESTARTING", "FAILED"])
def test_a_rollback_begins_from_nothing_that_is_only_unknown(state: str) -> None:
    world = deployed(spec(rollback=True, initialSavepointPath="s3://b/s/old"))
    world.status = replace(world.status, state=o.UPGRADING, reconciled=spec(image="two", rollback=True).plain)
    world.desired = spec(image="two", rollback=True)
    world.seen, world.state = ended(UNKNOWN), state
    world.now += 10_000
    world.settle()
    assert world.deployments[-1].restore == "s3://b/c/chk-9"


@pytest.mark.parametrize(
    ("latest", "location"),
    [
        ({}, ""),
        ({"completed": None, "savepoint": None, "restored": {"id": 7, "external_path": "r7"}}, "r7"),
        ({"completed": {"id": 8, "external_path": "c8"}, "restored": {"id": 7, "external_path": "r7"}}, "c8"),
        ({"savepoint": {"id": 3, "external_path": "s3"}, "restored": {"id": 7, "external_path": "r7"}}, "r7"),
        ({"completed": {"id": 8, "external_path": "c8"}, "savepoint": {"id": 9, "external_path": "s9"}}, "s9"),
    ],
)
def test_a_job_whose_jobmaster_was_replaced_stands_on_what_it_has_restored(
    latest: dict[str, Any], location: str
) -> None:
    assert last_checkpoint({"latest": latest}) == LastCheckpoint(location)


def test_a_checkpoint_without_a_place_is_not_taken_for_none() -> None:
    assert "checkpoint 8" in last_checkpoint({"latest": {"completed": {"id": 8, "external_path": None}}}).error


class _Cells(CellServices):
    """Of a cluster that is gone."""

    def __init__(self, folder: Path) -> None:
        super().__init__(MemoryCells(), DirectoryPayloads(folder))


def _look(services: _Cells, *, has_run: bool = True) -> LastCheckpoint:
    """As the operator looks at the records of the job."""
    status = Status(job_id=JOB, reconciled={"a": 1}, stable={"a": 1} if has_run else None)
    was_led = services.remembers_job(JOB)
    return Clusters._last_of_end(services, status, was_led)


def test_what_a_job_stands_on_that_has_ended_and_is_cleaned_up_is_in_its_archive(tmp_path: Path) -> None:
    """High availability lists no checkpoint of it any more."""
    services = _Cells(tmp_path)
    assert _look(services, has_run=False) == LastCheckpoint(), "it was never submitted"
    assert "gone" in _look(services).error, "it has run, and nothing is known of it"
    leadership = services.campaign(DISPATCHER)
    assert leadership is not None
    store = services.job_store(leadership)
    store.open(1)
    statistics = {"counts": {}, "history": [], "latest": {}, "restored": {"id": 7, "external_path": "s3://b/c/chk-7"}}
    store.end(StoredEnd(JOB, "job", "f", 1, {"state": "FAILED", "checkpoints": statistics}))
    assert _look(services) == LastCheckpoint("s3://b/c/chk-7")
    store.end(StoredEnd(JOB, "job", "f", 1, {"state": "FAILED", "checkpoints": {**statistics, "unread": True}}))
    assert "not known" in _look(services).error
    store.end(StoredEnd(JOB, "job", "f", 1, {"state": "CANCELED"}))  # no JobMaster was there
    assert "not known" in _look(services).error
    store.end(StoredEnd(JOB, "job", "f", 1, {"state": "FINISHED", "checkpoints": None}))
    assert _look(services) == LastCheckpoint(), "it took none"
