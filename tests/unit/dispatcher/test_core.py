"""The Dispatcher's core: jobs from submission to archive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.checkpoint import closing
from firesteel.config import Settings
from firesteel.graph.job_archive import CLEAN_UP
from firesteel.rest.event_views import job_events
from firesteel_dispatcher.archives import ended_archive, submitted_archive
from firesteel_dispatcher.clean_up import Remains
from firesteel_dispatcher.core import DispatcherCore
from firesteel_dispatcher.instructions import (
    AskHost,
    CleanUpCheckpoints,
    DeleteStoredJob,
    ForgetJobMaster,
    ProbeJobMaster,
    RememberJobMaster,
    SendAdoptJob,
    SendCancelJob,
    SendStartJob,
    StoreEnd,
    TakeOver,
)
from firesteel_dispatcher.job import JobConflictError, JobEndedError, JobPhase, Limits, Moment, UnknownJobError
from tests.archives import job_row
from tests.unit.jobmaster.jobs import two_by_two

WITHOUT_END = {"duration": 0, "end-time": -1, "exceptions": []}
EMPTY: dict[str, Any] = {
    "jid": "j", "name": "job", "start-time": 5, "timestamps": {"INITIALIZING": 5}, "vertices": [], **WITHOUT_END,
}  # fmt: skip
JM = ("http://jm", "t")


def at(seconds: float) -> Moment:
    return Moment(seconds, int(seconds * 1000))


NOW = at(0)


def archive(job: str = "j", state: str = "FINISHED", at_ms: int = 9) -> dict[str, Any]:
    return {**EMPTY, "jid": job, "state": state, "timestamps": {state: at_ms}, "end-time": at_ms}


def submit(core: DispatcherCore, job: str = "j", fingerprint: str = "f", **options: Any) -> list[Any]:
    return core.submitted(job, f"job {job}", fingerprint, {**EMPTY, "jid": job}, options.pop("now", NOW), **options)


def restore(core: DispatcherCore, job: str = "j", **options: Any) -> None:
    core.restored(job, f"job {job}", "f", {**EMPTY, "jid": job}, NOW, **options)


def submit_and_start(core: DispatcherCore, job: str = "j", **options: Any) -> None:
    submit(core, job, **options)
    assert core.may_start(job)
    core.started(job, *JM)


def failure_message(core: DispatcherCore, job: str = "j") -> str:
    archive = core.job(job).archive
    assert archive is not None
    return str(archive["failure"]["message"])


def test_a_job_is_started_once_however_often_it_is_submitted() -> None:
    core = DispatcherCore()
    assert submit(core) == [SendStartJob("j")]
    assert submit(core) == []
    with pytest.raises(JobConflictError, match="another graph"):
        submit(core, fingerprint="other")
    assert core.is_known("j", "f")
    assert not core.is_known("k", "f")


def test_a_job_that_had_ended_while_no_dispatcher_was_up_ends_without_another_jobmaster() -> None:
    core = DispatcherCore()
    restore(core, jobmaster=JM, takes_over=True)
    assert core.had_ended("j", archive(), NOW) == [StoreEnd("j"), CleanUpCheckpoints("j"), SendAdoptJob("j", *JM)]
    assert core.job("j").state == "FINISHED"
    assert core.had_ended("j", archive(state="FAILED"), NOW) == []
    assert core.host_lists({}, NOW) == [], "the job runs again"
    assert core.jobmaster_lost("j", "gone", NOW, JM[1]) == [CleanUpCheckpoints("j")]
    submit_and_start(core, "k", takes_over=True)
    assert core.had_ended("k", archive("k"), NOW) == [], "its JobMaster says so itself"
    assert core.jobmaster_lost("k", "killed", NOW, JM[1]) == [ForgetJobMaster("k"), SendStartJob("k", 0.0)]
    assert core.had_ended("k", archive("k", "FAILED"), NOW) == [StoreEnd("k"), CleanUpCheckpoints("k")]
    assert not core.may_start("k")


def test_where_the_jobmaster_is_has_to_be_stored() -> None:
    core = DispatcherCore()
    submit(core)
    assert core.may_start("j")
    assert core.started("j", *JM) == [RememberJobMaster("j", *JM)]
    assert core.started("j", *JM) == []
    assert not core.may_start("j")
    assert "sesame" not in repr(RememberJobMaster("j", "http://jm", "sesame"))


def test_cancelling_waits_for_the_answer_of_a_host_that_was_asked() -> None:
    core = DispatcherCore()
    submit(core)
    assert core.may_start("j")
    assert core.cancel("j", NOW) == []
    assert core.started("j", *JM) == [RememberJobMaster("j", *JM), SendCancelJob("j", *JM)]
    assert core.cancel("j", NOW) == [SendCancelJob("j", *JM)]


def test_events_of_a_job_without_a_jobmaster_say_who_submitted_and_who_cancelled_it() -> None:
    core = DispatcherCore()
    graph = replace(two_by_two(), config={"firesteel.application.upload": "0f0e_job.py"})
    archive = submitted_archive(graph, Settings({}), 5, "ann from 10.0.0.1")
    core.submitted("j", "job", "f", archive, NOW, takes_over=True)
    core.cancel("j", NOW, "eve from 10.0.0.3")
    core.unreachable("j", "refused", NOW)
    events = job_events(core.job("j").archive or {})["events"]
    assert events[0]["text"] == "submitted by the uploaded program job.py"
    assert [(event["type"], event["by"]) for event in events] == [
        ("SUBMITTED", "ann from 10.0.0.1"),
        ("CANCELLING", "eve from 10.0.0.3"),
        ("CANCELED", ""),
    ]


def test_cancelling_a_job_that_nobody_was_asked_to_run_ends_it() -> None:
    core = DispatcherCore()
    submit(core)
    assert core.may_start("j")
    core.unreachable("j", "refused", NOW)
    assert core.cancel("j", NOW) == [StoreEnd("j"), CleanUpCheckpoints("j")]
    assert core.job("j").state == "CANCELED"
    assert not core.may_start("j")
    # It was started after all: the answer was late.
    assert core.started("j", *JM) == [SendCancelJob("j", *JM)]


def test_an_ended_job_can_not_be_cancelled_and_its_end_is_told_once() -> None:
    core = DispatcherCore()
    submit_and_start(core)
    core.state_changed("j", "RUNNING", {"RUNNING": 6})
    assert core.job("j").state == "RUNNING"
    assert core.finished("j", archive(), NOW) == [StoreEnd("j")]
    assert core.finished("j", archive(), NOW) == []
    assert core.state_changed("j", "FINISHED", {}) == []
    assert core.job("j").state == "FINISHED"
    with pytest.raises(JobEndedError, match="ended as FINISHED"):
        core.cancel("j", NOW)
    assert not core.job("j").stored
    core.end_stored("j", keep_archive=False)
    job = core.job("j")
    assert (job.stored, job.archive) == (True, None)
    assert job.overview is not None
    assert job.overview["state"] == "FINISHED"


@pytest.mark.parametrize("lost", [False, True])
def test_a_job_waits_for_a_host_for_ever_and_can_be_cancelled_meanwhile(
    lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    core = DispatcherCore()
    submit(core, takes_over=True)
    if lost:
        core.may_start("j")
        core.started("j", *JM)
        core.jobmaster_lost("j", "killed", at(5), JM[1])
    assert core.may_start("j")
    for second, reason in ((0, "no template"), (59, "no template"), (60, "host-a:6124: connection refused")):
        assert core.unreachable("j", reason, at(1e6 + second)) == []
    assert (core.job("j").state, core.job("j").progress) == (
        "INITIALIZING", "waiting: host-a:6124: connection refused",
    )  # fmt: skip
    assert [r.message for r in caplog.records if "waits" in r.message] == [
        "job j (job j) waits: no template", "job j (job j) waits: host-a:6124: connection refused",
    ]  # fmt: skip
    assert core.may_start("j")
    assert core.cancel("j", at(1e6)) == [], "the host was asked just now, and may start it"
    assert core.unreachable("j", "refused", at(1e6)) == [StoreEnd("j"), CleanUpCheckpoints("j")]
    assert core.job("j").state == "CANCELED"


@pytest.mark.parametrize("retention", ["NO_EXTERNALIZED_CHECKPOINTS", "RETAIN_ON_CANCELLATION"])
def test_a_job_that_a_host_refuses_fails_with_its_reason_and_keeps_its_checkpoints(retention: str) -> None:
    core = DispatcherCore()
    settings = Settings({"execution.checkpointing.externalized-checkpoint-retention": retention})
    core.submitted("j", "job", "f", submitted_archive(two_by_two(), settings, 5), NOW, takes_over=True)
    core.may_start("j")
    core.started("j", *JM)
    core.jobmaster_lost("j", "killed", at(5), JM[1])
    assert core.may_start("j")
    assert core.refused("j", "GraphError", "slot.request.timeout: soon is no duration", at(6)) == [
        StoreEnd("j"),
        CleanUpCheckpoints("j"),
    ]
    assert core.job("j").state == "FAILED"
    assert failure_message(core).startswith("slot.request.timeout: soon is no duration. Its completed checkpoints stay")
    assert (core.job("j").archive or {})[CLEAN_UP] == closing.CleanUp.KEEP


# Silence


def test_a_jobmaster_that_is_cut_off_is_neither_given_up_nor_cancelled_and_goes_on() -> None:
    core = DispatcherCore(Limits(silence=50))
    submit_and_start(core, takes_over=True)
    assert core.jobmaster_silent("j", "no sign of life", at(50)) == [SendAdoptJob("j", *JM)]
    assert core.unreachable("j", "no answer", at(60)) == [AskHost()]
    for time in range(60, 1000, 10):  # the host is cut off as well
        assert core.host_away("no route", at(time)) == [SendAdoptJob("j", *JM)]
        assert core.unreachable("j", "no answer", at(time + 5)) == []
    job = core.job("j")
    assert (job.phase, job.state, job.progress) == (JobPhase.RECOVERING, "RECONCILING", "waiting: no answer")
    assert core.host_lists({"j": JM}, at(1000)) == [SendAdoptJob("j", *JM)], "the cut heals: it gets its time to answer"
    assert core.adopted("j", *JM) == [RememberJobMaster("j", *JM)]
    assert (job.phase, job.progress, job.takeovers, list(job.former)) == (JobPhase.LED, "", 0, [])


@pytest.mark.parametrize("follows", [True, False])
def test_a_jobmaster_that_is_silent_while_its_host_answers_is_lost(follows: bool) -> None:
    core = DispatcherCore(Limits(silence=50))
    submit_and_start(core, takes_over=follows)
    core.jobmaster_silent("j", "no sign of life", at(50))
    assert core.unreachable("j", "no answer", at(60)) == [AskHost()]
    did = core.host_lists({"j": JM}, at(60))
    if follows:
        assert did == [ForgetJobMaster("j"), SendStartJob("j")]
        assert list(core.job("j").former) == [JM[1]]
        assert core.job("j").takeover_cause == "the JobMaster of the job gives no sign of life (no answer)"
    else:
        assert did == [StoreEnd("j"), CleanUpCheckpoints("j"), SendAdoptJob("j", *JM), SendCancelJob("j", *JM)]
        assert "the cluster keeps nothing" in failure_message(core)
        assert (core.job("j").archive or {})[CLEAN_UP] == closing.CleanUp.KEEP


def test_a_silent_jobmaster_is_followed_when_the_host_that_leads_by_now_knows_nothing_of_it() -> None:
    """Its machine is gone: to ask it a second time would take as long as the first."""
    core = DispatcherCore(Limits(silence=50))
    submit_and_start(core, takes_over=True)
    assert core.jobmaster_silent("j", "no sign of life", at(50)) == [SendAdoptJob("j", *JM)]
    assert core.unreachable("j", "no answer", at(60)) == [AskHost()]
    assert core.host_lists({}, at(60)) == [ForgetJobMaster("j"), SendStartJob("j")]
    assert core.job("j").takeover_cause.endswith("no sign of life (no answer), and its host knows nothing of it")


@pytest.mark.parametrize("follows", [True, False])
def test_a_jobmaster_whose_host_leads_no_more_is_looked_for_and_followed_if_nobody_is_reached(follows: bool) -> None:
    core = DispatcherCore(Limits(silence=50))
    submit_and_start(core, takes_over=follows)
    assert core.host_lists({"j": JM}, at(1)) == []
    did = core.host_lists({}, at(1))
    if follows:
        assert did == [ProbeJobMaster("j", *JM)]
        assert core.job("j").phase is JobPhase.LED, "it may live: only its host was followed"
        assert core.jobmaster_lost("j", "no connection", at(4), JM[1]) == [ForgetJobMaster("j"), SendStartJob("j")]
        assert core.jobmaster_lost("j", "no connection", at(4), JM[1]) == [], "of another one by now"
    else:
        assert did == [], "it would fail for a connection that may be back in a moment"


def test_a_frozen_jobmaster_of_before_the_restart_is_followed_after_the_heartbeat_timeout() -> None:
    core = DispatcherCore(Limits(silence=50))
    restore(core, jobmaster=JM, takes_over=True)
    assert core.host_lists({"j": JM}, at(1)) == [SendAdoptJob("j", *JM)]
    assert core.unreachable("j", "no answer", at(49)) == []
    assert core.unreachable("j", "no answer", at(50)) == [AskHost()]
    assert core.host_lists({"j": JM}, at(50)) == [ForgetJobMaster("j"), SendStartJob("j")]


def test_a_job_whose_jobmaster_is_cut_off_can_be_cancelled() -> None:
    core = DispatcherCore(Limits(silence=50))
    submit_and_start(core, takes_over=True)
    core.jobmaster_silent("j", "no sign of life", at(50))
    core.host_away("no route", at(60))
    assert core.cancel("j", at(100)) == []
    assert core.unreachable("j", "no answer", at(149)) == [AskHost()], "it may run, and hear of it"
    assert core.unreachable("j", "no answer", at(150)) == [
        StoreEnd("j"), CleanUpCheckpoints("j"), SendAdoptJob("j", *JM), SendCancelJob("j", *JM),
    ]  # fmt: skip
    assert core.job("j").state == "CANCELED"
    assert core.host_lists({"j": JM}, at(999)) == [SendAdoptJob("j", *JM), SendCancelJob("j", *JM)]


def test_what_is_heard_of_a_jobmaster_that_was_followed_deposes_nobody() -> None:
    core = DispatcherCore()
    submit_and_start(core, takes_over=True)
    core.jobmaster_lost("j", "killed", at(1), JM[1])
    core.may_start("j")
    core.started("j", "http://jm2", "t2")
    assert core.jobmaster_lost("j", "a probe of long ago says that it is gone", at(2), JM[1]) == []
    assert core.jobmaster_silent("unknown", "silent", at(2)) == []
    assert (core.job("j").phase, core.job("j").jobmaster) == (JobPhase.LED, ("http://jm2", "t2"))


def test_a_lost_jobmaster_fails_its_job_and_must_end_if_it_lives() -> None:
    core = DispatcherCore()
    submit_and_start(core)
    assert core.jobmaster_lost("j", "no sign of life", at(100)) == [
        StoreEnd("j"),
        CleanUpCheckpoints("j"),
        SendAdoptJob("j", *JM),
        SendCancelJob("j", *JM),
    ]
    assert core.jobmaster_lost("j", "again", at(200)) == []
    job = core.job("j")
    assert job.state == "FAILED"
    assert failure_message(core).startswith("no sign of life. The job is not started again")
    assert job.archive is not None
    assert (job.archive["end-time"], job.archive["duration"]) == (100_000, 99_995)
    assert core.state_changed("j", "RUNNING", {}) == [SendCancelJob("j", *JM)]  # it lives


def test_a_job_that_was_given_up_and_runs_somewhere_is_looked_for() -> None:
    core = DispatcherCore()
    submit(core)
    assert core.may_start("j")
    core.cancel("j", NOW)
    core.unreachable("j", "no answer", at(2))
    assert core.state_changed("j", "RUNNING", {}) == [AskHost()]
    assert core.host_lists({"j": JM}, at(3)) == [SendAdoptJob("j", *JM), SendCancelJob("j", *JM)]
    assert core.adopted("j", *JM) == []
    assert core.job("j").state == "CANCELED"


def test_what_a_jobmaster_had_still_to_do_behind_the_end_of_its_job_is_done_by_others() -> None:
    core = DispatcherCore()
    submit_and_start(core)
    core.finished("j", archive(), NOW)
    assert core.jobmaster_lost("j", "killed", at(7), JM[1]) == [CleanUpCheckpoints("j")]
    assert core.job("j").state == "FINISHED"
    assert core.jobmaster_lost("j", "silent", at(8)) == [], "nobody waits for signs of its life"
    assert core.jobmaster_lost("unknown", "killed", at(8), "t") == []


# After a restart


def test_a_running_job_is_found_again() -> None:
    core = DispatcherCore()
    restore(core, jobmaster=("http://old", "o"), cancel_wanted=True)
    assert core.job("j").state == "RECONCILING"
    assert core.host_lists({"j": JM}, NOW) == [SendAdoptJob("j", *JM)]
    assert core.adopted("j", *JM) == [RememberJobMaster("j", *JM), SendCancelJob("j", *JM)]
    assert core.adopted("j", *JM) == []
    core.state_changed("j", "RUNNING", {})
    assert (core.job("j").phase, core.job("j").state) == (JobPhase.LED, "RUNNING")


def test_another_jobmaster_follows_one_that_is_lost() -> None:
    core = DispatcherCore()
    submit_and_start(core, takes_over=True)
    assert core.jobmaster_lost("j", "killed", at(5)) == [ForgetJobMaster("j"), SendStartJob("j")]
    job = core.job("j")
    assert (job.phase, job.state, job.takeovers, job.takeover_cause) == (JobPhase.WAITING, "INITIALIZING", 1, "killed")
    assert core.may_start("j")
    assert core.started("j", "http://jm2", "t2") == [RememberJobMaster("j", "http://jm2", "t2")]
    core.state_changed("j", "RUNNING", {}, "t2")
    assert job.state == "RUNNING"


def test_a_jobmaster_that_dies_again_and_again_is_followed_for_ever() -> None:
    core = DispatcherCore()
    submit_and_start(core, takes_over=True)
    delays: list[float] = []
    for number in range(1, 1101):
        started = core.jobmaster_lost("j", "killed", at(number))[-1]
        assert isinstance(started, SendStartJob)
        delays.append(started.delay)
        assert core.may_start("j")
        core.started("j", f"http://jm{number}", f"t{number}")
    assert delays[:8] == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0]
    assert set(delays[8:]) == {60.0}


def test_a_jobmaster_that_is_lost_before_its_answer_has_come_is_followed_as_well() -> None:
    core = DispatcherCore()
    core.submitted("j", "job", "f", {}, NOW, takes_over=True)
    assert core.may_start("j")
    for _ in range(2):  # said again
        assert core.jobmaster_lost("j", "killed", at(1), "t") == []
    job = core.job("j")
    assert (job.phase, job.takeovers, job.takeover_cause) == (JobPhase.WAITING, 1, "killed")
    assert core.may_start("j"), "the host is asked until it has started the next one"
    assert core.started("j", *JM)[0] == RememberJobMaster("j", *JM)


def test_a_jobmaster_that_was_given_up_has_no_say() -> None:
    core = DispatcherCore()
    submit_and_start(core, takes_over=True)
    core.jobmaster_lost("j", "silent", at(5))
    assert core.is_former("j", "t")
    assert core.state_changed("j", "CANCELED", {}, "t") == []
    core.may_start("j")
    core.started("j", "http://jm2", "t2")
    assert core.jobmaster_lost("j", "killed, says its host", at(6), "t") == [], "that is old news"
    assert core.job("j").phase is JobPhase.LED
    assert core.jobmaster_lost("j", "killed", at(7), "t2")[-1] == SendStartJob("j", 1.0), "so soon after the other one"
    assert core.job("j").takeovers == 2


def test_a_jobmaster_that_lives_beside_the_one_that_leads_has_no_say() -> None:
    core = DispatcherCore()
    core.submitted("j", "job", "f", {}, NOW, takes_over=True)
    core.may_start("j")  # a host starts "stray", and its answer is lost; another one leads, and is asked
    core.started("j", *JM)
    assert core.is_former("j", "stray")
    assert not core.is_former("j", "t")
    core.state_changed("j", "RUNNING", {}, "t")
    assert core.state_changed("j", "FAILED", {}, "stray") == []
    assert core.job("j").state == "RUNNING"
    assert core.jobmaster_lost("j", "killed", at(5), "stray") == [], "it is not the one that leads"
    assert (core.job("j").phase, core.job("j").takeovers) == (JobPhase.LED, 0)


def test_pauses_grow_while_jobmasters_die_one_after_another() -> None:
    core = DispatcherCore()
    submit_and_start(core, takes_over=True)
    delays = []
    for time in (0, 10, 20, 30, 40, 50, 60, 70, 80, 1000):
        last = core.jobmaster_lost("j", "killed", at(time))[-1]
        assert isinstance(last, SendStartJob)
        delays.append(last.delay)
        core.may_start("j")
        core.started("j", "http://jm", str(time))
    assert delays == [0, 1, 2, 4, 8, 16, 32, 60, 60, 0]


def test_a_cancelled_job_gets_no_other_jobmaster() -> None:
    core = DispatcherCore()
    submit_and_start(core, takes_over=True)
    core.cancel("j", NOW)
    lost = core.jobmaster_lost("j", "killed", at(5))
    assert lost == [StoreEnd("j"), CleanUpCheckpoints("j"), SendAdoptJob("j", *JM), SendCancelJob("j", *JM)]
    assert core.job("j").state == "CANCELED"


def test_the_loss_of_another_jobmaster_than_the_stored_one_is_old_news() -> None:
    core = DispatcherCore()
    restore(core, jobmaster=JM, takes_over=True)
    assert core.jobmaster_lost("j", "another one leads the job", NOW, "former") == []
    assert core.jobmaster_lost("j", "killed", NOW, JM[1]) == [ForgetJobMaster("j"), SendStartJob("j")]


@pytest.mark.parametrize(
    ("retention", "cancelled"),
    [
        ("NO_EXTERNALIZED_CHECKPOINTS", "remove"),
        ("DELETE_ON_CANCELLATION", "remove"),
        ("RETAIN_ON_CANCELLATION", "keep"),
    ],
)
def test_what_becomes_of_checkpoints_is_known_without_a_jobmaster(retention: str, cancelled: str) -> None:
    cluster = Settings({"execution.checkpointing.externalized-checkpoint-retention": retention})
    archive = submitted_archive(two_by_two(), cluster, 5)
    archives = [ended_archive(archive, how, "E", "why", 9) for how in (False, True)]
    assert [(archive["state"], archive[CLEAN_UP]) for archive in archives] == [
        ("FAILED", "keep"),
        ("CANCELED", cancelled),
    ]
    assert [Remains.of({}, archive).how for archive in archives] == [closing.CleanUp.KEEP, closing.CleanUp(cancelled)]


def test_a_restored_job_whose_jobmaster_is_gone_goes_on() -> None:
    core = DispatcherCore()
    restore(core, jobmaster=JM, takes_over=True)
    assert core.host_lists({}, NOW) == [SendAdoptJob("j", *JM)]  # the host may be another machine's by now
    assert core.unreachable("j", "refused", NOW) == [ForgetJobMaster("j"), SendStartJob("j")]
    assert core.job("j").takeovers == 1


def test_a_jobmaster_that_the_host_does_not_know_is_adopted_where_it_is() -> None:
    core = DispatcherCore()
    restore(core, jobmaster=JM, takes_over=True)
    assert core.host_lists({}, NOW) == [SendAdoptJob("j", *JM)]
    assert core.adopted("j", *JM) == [RememberJobMaster("j", *JM)]
    core.jobmaster_silent("j", "silent", at(50))
    assert core.unreachable("j", "refused", at(51)) == [AskHost()]  # and not replaced at once


def test_the_silence_of_a_jobmaster_says_nothing_while_no_host_answers() -> None:
    core = DispatcherCore()
    restore(core, jobmaster=JM, takes_over=True)
    core.host_lists({}, NOW)
    assert core.host_away("refused", at(1)) == [SendAdoptJob("j", *JM)]
    assert core.unreachable("j", "refused", at(2)) == []
    assert core.job("j").takeovers == 0


def test_a_job_without_jobmaster_is_started_if_nobody_ran_it_and_else_fails() -> None:
    core = DispatcherCore()
    restore(core, "new")
    restore(core, "lost", jobmaster=JM)
    restore(core, "unwanted", cancel_wanted=True)
    assert core.host_lists({}, NOW) == [
        SendStartJob("new"),
        SendAdoptJob("lost", *JM),  # another host may have led when it was started
        *(StoreEnd("unwanted"), CleanUpCheckpoints("unwanted")),
    ]
    ended = core.unreachable("lost", "refused", NOW)
    assert ended == [
        StoreEnd("lost"),
        CleanUpCheckpoints("lost"),
        SendAdoptJob("lost", *JM),
        SendCancelJob("lost", *JM),
    ]
    assert core.job("new").state == "INITIALIZING"
    assert "ended while no Dispatcher ran" in failure_message(core, "lost")
    assert core.job("unwanted").state == "CANCELED"


def test_without_a_host_jobmasters_are_looked_for_where_they_were() -> None:
    core = DispatcherCore()
    restore(core, "new")
    restore(core, "old", jobmaster=JM)
    assert core.host_away("refused", at(1)) == [SendAdoptJob("old", *JM)]
    assert core.job("new").progress == "waiting: the JobMaster host can't be reached: refused"
    assert core.adopted("old", *JM) == [RememberJobMaster("old", *JM)]
    assert core.host_away("refused", at(1e6)) == []
    core.cancel("new", at(1e6))
    assert core.host_away("refused", at(2e6)) == [StoreEnd("new"), CleanUpCheckpoints("new")]


def test_an_end_may_be_reported_before_the_adoption_is_answered() -> None:
    core = DispatcherCore()
    restore(core)
    core.host_lists({"j": JM}, NOW)
    assert core.finished("j", archive(), NOW) == [StoreEnd("j")]
    assert core.adopted("j", *JM) == []
    assert core.unreachable("j", "gone", at(1000)) == []


def test_a_job_that_runs_without_a_record_is_taken_over() -> None:
    core = DispatcherCore()
    assert core.host_lists({"j": JM}, NOW) == [TakeOver("j", *JM)]
    assert core.taken_over("j", "job", "f", EMPTY, JM, NOW) == [SendAdoptJob("j", *JM)]
    assert core.taken_over("j", "job", "f", EMPTY, JM, NOW) == []
    core.adopted("j", *JM)
    assert core.job("j").phase is JobPhase.LED
    core.jobmaster_lost("j", "killed", at(5))
    assert failure_message(core).startswith("killed. The job is not started again, since there is no record of it")


def test_jobs_that_ended_before_the_restart_are_known_for_the_rest_of_their_time() -> None:
    core = DispatcherCore(Limits(expiration=100))
    core.restored_end("j", "job", "f", job_row("j", "FINISHED"), ended_at=-30.0)
    assert submit(core) == []
    assert core.counts()["jobs-finished"] == 1
    assert core.tick(at(69)) == []
    assert core.tick(at(70)) == [DeleteStoredJob("j")]
    with pytest.raises(UnknownJobError):
        core.job("j")


# Clients


def test_a_job_ends_with_its_silent_client_if_that_was_asked_for() -> None:
    core = DispatcherCore()
    submit_and_start(core, client_timeout=30.0)
    submit_and_start(core, "free")
    core.client_alive("j", 45.0, at(20))
    core.client_alive("free", 1.0, at(20))
    assert core.tick(at(64)) == []
    assert core.tick(at(65)) == [SendCancelJob("j", *JM)]
    assert core.tick(at(99)) == []
    with pytest.raises(UnknownJobError):
        core.client_alive("unknown", 1.0, NOW)


def test_unknown_jobs_are_refused() -> None:
    core = DispatcherCore()
    with pytest.raises(UnknownJobError, match="Job x not found"):
        core.cancel("x", NOW)
    with pytest.raises(UnknownJobError):
        core.finished("x", EMPTY, NOW)
    with pytest.raises(UnknownJobError):
        core.state_changed("x", "RUNNING", {})


# Any order of events

JOBS = ("a", "b", "c")
EVENTS = st.sampled_from(
    ["submit", "restore", "may_start", "started", "unreachable", "lists", "lists_nothing", "away", "adopted", "state",
     "finished", "lost", "silent", "cancel", "stored", "tick"]
)  # fmt: skip


@given(
    st.lists(st.tuples(EVENTS, st.sampled_from(JOBS), st.floats(0, 50)), max_size=80),
    st.integers(0, 3),
)
def test_whatever_comes_no_job_is_lost_ends_twice_or_keeps_a_jobmaster(
    events: list[tuple[str, str, float]], max_ended: int
) -> None:
    core = DispatcherCore(Limits(max_ended=max_ended, expiration=200, silence=60))
    now, ends = 0.0, 0
    accepted: set[str] = set()
    done: set[str] = set()
    for event, job, pause in events:
        now += pause
        moment = at(now)
        known = core.jobs.get(job)
        before = {j.id: (j.phase, j.state) for j in core.jobs.values()}
        did: list[Any] = []
        match event:
            case "submit" if job not in accepted:
                did = submit(core, job, now=moment, client_timeout=100.0 if job == "a" else None)
                accepted.add(job)
            case "restore" if job not in accepted:
                core.restored(job, job, "f", {**EMPTY, "jid": job}, moment, None, JM if pause > 25 else None)
                accepted.add(job)
            case "may_start":
                assert core.may_start(job) == (known is not None and known.phase is JobPhase.WAITING)
            case "started" if known is not None and (known.being_started or known.ended):
                did = core.started(job, *JM)
                if known.ended:
                    assert did == [SendCancelJob(job, *JM)]
            case "unreachable":
                unlisted = known is not None and (known.cancel_wanted or known.is_unlisted)  # nothing is kept
                did = core.unreachable(job, "r", moment)
                assert unlisted or not any(isinstance(i, StoreEnd) for i in did), "trouble has ended a job"
            case "lists" if known is not None and (known.jobmaster or known.ended):
                did = core.host_lists({job: JM}, moment)
                if known.ended:
                    assert SendCancelJob(job, *JM) in did
            case "lists_nothing":
                did = core.host_lists({}, moment)
                assert all(j.is_unlisted for j in core.jobs.values() if j.phase is JobPhase.RECOVERING)
            case "away":
                did = core.host_away("r", moment)
            case "adopted" if known is not None and known.phase is JobPhase.RECOVERING and known.jobmaster:
                did = core.adopted(job, *JM)
            case "state" if known is not None:
                did = core.state_changed(job, "RUNNING", {"RUNNING": 1})
            case "finished" if known is not None and known.jobmaster:
                did = core.finished(job, archive(job), moment)
            case "lost":
                did = core.jobmaster_lost(job, "l", moment)
            case "silent":
                did = core.jobmaster_silent(job, "s", moment)
                assert not any(isinstance(i, StoreEnd | SendCancelJob) for i in did)
            case "cancel" if known is not None and not known.ended:
                did = core.cancel(job, moment)
            case "stored":
                core.end_stored(job, keep_archive=False)
            case "tick":
                did = core.tick(moment)
        ends += sum(isinstance(i, StoreEnd) for i in did)
        done |= {i.job_id for i in did if isinstance(i, StoreEnd)}
        assert ends == len(done), "an end was told twice"
        assert set(core.jobs) >= accepted - done, "a job that has not ended was forgotten"
        for known_job in core.jobs.values():
            phase, state = before.get(known_job.id, (None, None))
            assert phase is not JobPhase.ENDED or (known_job.phase, known_job.state) == (phase, state), "an end changed"
            assert known_job.phase is not JobPhase.LED or known_job.jobmaster is not None
            assert known_job.ended == (known_job.id in done)
            assert known_job.ended or known_job.archive is not None
        assert sum(j.ended for j in core.jobs.values()) <= max_ended
        assert sum(cast(dict[str, int], core.counts()).values()) == len(core.jobs)
    # Once faults stop, every job ends or runs.
    core.host_lists({job.id: JM for job in core.jobs.values() if job.jobmaster}, at(now + 1))
    for record in list(core.jobs.values()):
        core.adopted(record.id, *JM)
        if core.may_start(record.id):
            core.started(record.id, *JM)
    assert all(j.phase in (JobPhase.LED, JobPhase.ENDED) for j in core.jobs.values())
