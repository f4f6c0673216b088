"""Reactive mode: how a job is laid out for its slots, when it is rescaled, and how its JobMaster does that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError, TaskManagerStoppedError, class_name
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol import messages as m
from firesteel.protocol.deployment import TaskFailure
from firesteel.rest import rescale_views
from firesteel.rest import types as t
from firesteel.rest.rescale_views import UnknownRescaleError
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoints.settings import CheckpointSettings
from firesteel_jobmaster.core import JobMasterCore
from firesteel_jobmaster.reactive import NOW, ReactiveSettings, RescaleTiming, Scale
from firesteel_jobmaster.restart_strategies import FixedDelay
from firesteel_jobmaster.settings import JobMasterSettings
from tests.archives import job_archive
from tests.unit.jobmaster.jobs import Driver, failure, job, tasks_of, two_by_two, vertex, vertex_id

V1, V2 = vertex_id(1), vertex_id(2)


# -- in so many slots


def limited(number: int, most: int, group: str = "default", fixed: bool = False, splits: bool = False) -> Any:
    spec = vertex(number, 1, group=group, splits=["a", "b", "c"] if splits else None)
    return replace(spec, max_parallelism=most, fixed_parallelism=fixed)


def test_each_vertex_takes_all_slots_of_its_group_up_to_its_maximum() -> None:
    scale = Scale(job(limited(1, 128), limited(2, 3), limited(3, 128, fixed=True)))
    assert (scale.least, scale.most) == (1, 128)
    assert scale.parallelism(1) == {V1: 1, V2: 1, vertex_id(3): 1}
    assert scale.parallelism(5) == {V1: 5, V2: 3, vertex_id(3): 1}
    assert scale.parallelism(500)[V1] == 128


def test_what_the_program_says_about_parallelism_counts_for_nothing() -> None:
    scale = Scale(job(vertex(1, 7), vertex(2, 2)))
    laid_out = scale.job(3)
    assert [v.parallelism for v in laid_out.vertices] == [3, 3]
    laid_out.validate()


def test_vertices_joined_by_forward_edges_have_one_parallelism() -> None:
    graph = job(limited(1, 4), limited(2, 128), limited(3, 128, fixed=True), partitioner="FORWARD")
    assert set(Scale(graph).parallelism(9).values()) == {1}
    graph = job(limited(1, 4), limited(2, 128), partitioner="FORWARD")
    scale = Scale(graph)
    assert scale.limits == {V1: 4, V2: 4}
    assert scale.most == 4
    scale.job(3).validate()


def test_joined_vertices_of_two_groups_have_the_parallelism_of_the_smaller_one() -> None:
    scale = Scale(job(limited(1, 128), limited(2, 128, group="b"), partitioner="FORWARD"))
    assert set(scale.parallelism(5).values()) == {2}
    scale.job(5).validate()


def test_groups_share_the_slots_evenly_as_far_as_they_can_use_them() -> None:
    scale = Scale(job(limited(1, 128), limited(2, 2, group="b"), limited(3, 128, group="c")))
    assert scale.least == 3
    assert list(scale.parallelism(3).values()) == [1, 1, 1]
    assert list(scale.parallelism(5).values()) == [2, 2, 1]
    assert list(scale.parallelism(10).values()) == [4, 2, 4]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 40))
def test_no_slot_is_left_that_could_be_used(limits: list[int], more: int) -> None:
    graph = job(*(limited(number, most, group=str(number)) for number, most in enumerate(limits, 1)))
    scale = Scale(graph)
    slots = scale.least + more
    given_ = scale.parallelism(slots)
    assert all(1 <= given_[id_] <= most for id_, most in scale.limits.items())
    assert sum(given_.values()) == min(slots, scale.most) == scale.job(slots).slots_needed()


# -- when


def timing(**settings: Any) -> RescaleTiming:
    timing = RescaleTiming(ReactiveSettings(cooldown=30, stabilization=60, max_failures=2, **settings), interval=10)
    timing.scaled(100.0)
    return timing


def test_slots_have_time_to_come_and_then_the_next_checkpoint_is_waited_for() -> None:
    t = timing()
    assert t.look(150.0, False, 5, 0) == 60.0
    assert t.look(200.0, False, 6, 0) == 10.0
    assert t.look(210.0, False, 7, 0) == 30.0, "three intervals for a checkpoint that completes from now on"
    assert t.look(211.0, False, 8, 0) == NOW


def test_all_slots_that_can_be_used_wait_for_the_cooldown_only() -> None:
    t = timing()
    assert t.look(110.0, True, 5, 0) == 20.0
    t.look(130.0, True, 5, 0)
    assert t.look(131.0, True, 6, 0) == NOW


def test_a_checkpoint_is_not_waited_for_for_ever() -> None:
    t = timing()
    t.look(200.0, True, 5, 3)
    assert t.look(201.0, True, 5, 4) == 29.0
    assert t.look(202.0, True, 5, 5) == NOW, "two have failed"
    t.scaled(300.0)
    t.look(400.0, True, 5, 5)
    assert t.look(430.0, True, 5, 5) == NOW


def test_a_job_without_checkpoints_waits_for_none() -> None:
    t = RescaleTiming(ReactiveSettings(cooldown=0, stabilization=0), interval=0)
    t.scaled(1.0)
    assert t.look(2.0, False, 0, 0) == NOW


# -- settings


def test_reactive_mode_is_for_standalone_clusters_in_application_mode() -> None:
    mode = {"scheduler-mode": "reactive"}
    program = {"firesteel.application.program": "/p.py"}

    def read(**more: str) -> ReactiveSettings | None:
        return ReactiveSettings.read(Settings({**mode, **program, **more}, "test"))

    assert ReactiveSettings.read(Settings({}, "test")) is None
    assert read() == ReactiveSettings()
    assert read(**{"jobmanager.adaptive-scheduler.scaling-interval.min": "5 s"}) == ReactiveSettings(cooldown=5)
    with pytest.raises(ConfigurationError, match="this cluster has no program"):
        ReactiveSettings.read(Settings(mode, "test"))
    with pytest.raises(ConfigurationError, match=r"resourcemanager\.driver is local-process"):
        read(**{"firesteel.resourcemanager.driver": "local-process"})


# -- the JobMaster


class Reactive(Driver):
    """A core in reactive mode."""

    def __init__(self, graph: JobGraph | None = None, pause: float = 1.0, **others: Any) -> None:
        reactive_settings = ReactiveSettings(cooldown=30, stabilization=60, **others)
        settings = JobMasterSettings(
            new_restart_strategy=lambda: FixedDelay(3, pause),
            reactive=reactive_settings,
            checkpoints=CheckpointSettings(),
        )
        super().__init__(graph or two_by_two())
        self.core = JobMasterCore(graph or two_by_two(), settings, self.clock)
        self.core.validates = True

    def fire(self, name: str, seconds: float) -> None:
        self.clock.advance(seconds)
        self.did(self.core.timer_fired(name))

    def submitted(self) -> dict[str, list[str]]:
        """What was submitted since the last look, by slot."""
        tasks_by_slot = {s.allocation_id: tasks_of(s) for s in self.seen(do.SubmitSlot)}
        self.all.clear()
        for ids in tasks_by_slot.values():
            self.did(self.core.tasks_submitted(ids))
        return tasks_by_slot

    def run(self) -> None:
        for id_ in self.ids():
            execution = self.core.graph.execution(id_)
            assert execution is not None
            assert execution.slot is not None, id_
            self.report(id_, "RUNNING", tm=execution.slot.taskmanager_id)

    def at(self, tm: str) -> list[str]:
        """The tasks of a TaskManager."""
        executions = [(id_, self.core.graph.execution(id_)) for id_ in self.ids()]
        return [
            id_
            for id_, execution in executions
            if execution is not None and execution.slot is not None and execution.slot.taskmanager_id == tm
        ]

    def parallelism(self) -> list[int]:
        return [v["parallelism"] for v in job_archive(self.core)["vertices"]]

    def cancelled(self) -> None:
        for tm in ("tm", "b"):
            for id_ in self.ids():
                execution = self.core.graph.execution(id_)
                assert execution is not None
                if execution.state.value == "CANCELING" and execution.slot and execution.slot.taskmanager_id == tm:
                    self.report(id_, "CANCELED", tm=tm)


def begun(slots: int = 2, **others: Any) -> Reactive:
    d = Reactive(**others)
    d.start()
    d.offer(*range(slots))
    d.fire("settle", 2.0)
    assert d.submitted()
    d.run()
    return d


def test_a_reactive_job_takes_the_slots_that_there_are_and_begins_when_no_more_come() -> None:
    d = Reactive()
    d.start()
    assert d.seen(do.DeclareSlots) == [do.DeclareSlots(1, (), 128)]
    assert d.offer(0) == ("tm-0",)
    assert d.seen(do.SetTimer)[-1] == do.SetTimer("settle", 2.0)
    d.clock.advance(1.5)
    assert d.offer(1, 2) == ("tm-1", "tm-2")
    d.fire("settle", 0.5)
    assert not d.seen(do.SubmitSlot), "another slot came half a second ago"
    d.fire("settle", 1.5)
    assert d.parallelism() == [3, 3]
    assert {slot: len(tasks) for slot, tasks in d.submitted().items()} == {"tm-0": 2, "tm-1": 2, "tm-2": 2}
    d.run()
    for id_ in d.ids():
        d.report(id_, "FINISHED")
    assert d.core.state.name == "FINISHED"


def test_a_reactive_job_that_has_all_slots_that_it_can_use_begins_at_once() -> None:
    d = Reactive(job(limited(1, 2, splits=True), limited(2, 2)))
    d.start()
    d.offer(0)
    d.offer(1)
    assert len(d.submitted()) == 2
    assert d.offer(2) == (), "it has no use for more"


def test_too_few_slots_are_waited_for_and_said() -> None:
    d = Reactive()
    d.start()
    d.did(d.core.notify_no_resources(m.NotifyNoResources(1, 0, "start one")))
    assert d.core.state.name == "RUNNING"
    assert d.core.graph.waiting_reason == "start one"
    assert not any(timer.name == "slots" for timer in d.seen(do.SetTimer)), "it waits for ever"
    d.offer(0)
    d.fire("settle", 2.0)
    assert d.core.graph.waiting_reason == ""


def test_the_first_slots_are_waited_for_as_long_as_is_configured() -> None:
    d = Reactive(wait=20.0)
    d.start()
    assert do.SetTimer("slots", 20.0) in d.all
    d.fire("slots", 20.0)
    assert d.core.state.name == "FAILED"


def test_with_a_lost_taskmanager_all_tasks_are_restarted_in_the_slots_that_are_left() -> None:
    d = Reactive()
    d.start()
    d.offer(0, 1)
    d.offer(0, tm="b")
    d.fire("settle", 2.0)
    assert d.parallelism() == [3, 3]
    before = set(d.ids())
    d.submitted()
    d.run()
    d.did(d.core.taskmanager_lost("b", "gone"))
    assert d.core.state.name == "RESTARTING"
    d.cancelled()
    assert not d.seen(do.SubmitSlot), "the pause is not over"
    d.fire("restart", 1.0)
    assert d.core.state.name == "RUNNING"
    assert d.parallelism() == [2, 2]
    submitted = d.submitted()
    assert set(submitted) == {"tm-0", "tm-1"}
    assert not before & {task for tasks in submitted.values() for task in tasks}, "attempts have new numbers"
    assert job_archive(d.core)["restarts"]["numRestarts"] == 1
    d.run()
    assert d.core.graph.all_run()


def test_slots_of_taskmanagers_that_were_told_to_stop_are_not_used_again() -> None:
    """Their silence would be noticed long after; several are stopped at once where they are scaled down."""
    d = Reactive()
    d.start()
    d.offer(0, 1)
    d.offer(0, tm="b")
    d.offer(0, tm="c")
    d.fire("settle", 2.0)
    d.submitted()
    d.run()
    stopped = TaskFailure("external", class_name(TaskManagerStoppedError), "it was stopped", "").to_plain()
    for tm in ("b", "c"):
        for id_ in d.at(tm):
            d.report(id_, "FAILED", stopped, tm=tm)
    d.cancelled()
    d.fire("restart", 1.0)
    assert {release.taskmanager_id for release in d.seen(do.ReleaseSlot)} == {"b", "c"}
    assert set(d.submitted()) == {"tm-0", "tm-1"}
    assert d.parallelism() == [2, 2]
    assert d.offer(0, tm="b") == (), "the ResourceManager does not know yet that it stops"


def test_new_slots_are_used_when_cooldown_and_stabilization_are_over() -> None:
    d = begun()
    d.clock.advance(5.0)
    assert d.offer(0, 1, tm="b") == ("b-0", "b-1")
    assert d.core.state.name == "RUNNING"
    assert d.seen(do.SetTimer)[-1] == do.SetTimer("rescale", 60.0)
    d.fire("rescale", 60.0)
    assert d.core.state.name == "RESTARTING"
    d.cancelled()
    assert d.core.state.name == "RUNNING"
    assert d.parallelism() == [4, 4]
    assert len(d.submitted()) == 4
    assert d.core.job_values()["numRescales"] == 1
    assert d.core.job_values()["numRestarts"] == 0, "nothing has failed"
    assert not d.seen(do.ReleaseSlot)


def test_a_failure_of_one_region_restarts_all() -> None:
    d = Reactive(job(limited(1, 2, splits=True), limited(2, 2), partitioner="FORWARD"))
    d.start()
    d.offer(0, 1)
    d.submitted()
    d.run()
    assert len(d.core.graph.regions) == 2
    d.report(d.ids()[0], "FAILED", failure())
    assert {d.state(id_) for id_ in d.ids()[1:]} == {"CANCELING"}


def test_slots_that_come_while_it_is_being_restarted_are_used_at_once() -> None:
    d = begun()
    d.report(d.ids()[0], "FAILED", failure())
    d.cancelled()
    d.offer(0, tm="b")
    d.fire("restart", 1.0)
    assert not d.seen(do.SubmitSlot), "more may come"
    d.fire("settle", 1.0)
    assert d.parallelism() == [3, 3]


def test_a_slot_of_no_use_is_kept_and_changes_nothing() -> None:
    d = Reactive(job(limited(1, 2, splits=True, group="a"), limited(2, 9, group="b")))
    d.start()
    d.offer(0, 1)
    d.fire("settle", 2.0)
    d.submitted()
    d.run()
    d.did(d.core.taskmanager_lost("tm", "gone"))
    assert d.core.waits_for_slots or d.core.state.name == "RESTARTING"
    d.fire("restart", 1.0)
    assert d.core.waits_for_slots, "two groups need two slots"
    d.offer(0, tm="b")
    assert d.core.waits_for_slots
    d.offer(1, 2, tm="b")
    d.fire("settle", 2.0)
    assert d.parallelism() == [2, 1]


def test_finished_tasks_leave_the_slots_with_the_job() -> None:
    d = begun()
    for id_ in d.ids()[:2]:
        d.report(id_, "FINISHED")
    assert not any(timer.name == "idle" for timer in d.seen(do.SetTimer))


def test_a_job_that_is_cancelled_while_it_waits_ends() -> None:
    d = Reactive()
    d.start()
    d.did(d.core.cancel("enough"))
    assert d.core.state.name == "CANCELED"


def test_a_second_failure_while_it_waits_begins_the_pause_anew() -> None:
    d = begun()
    d.report(d.ids()[0], "FAILED", failure())
    d.cancelled()
    d.core._job.failover.fail(TaskFailure("external", "x.Y", "checkpoints fail", "checkpoints fail"))
    d.did(d.core.settle())
    d.fire("restart", 1.0)
    assert d.core.state.name == "RUNNING"
    assert d.parallelism() == [2, 2]


def test_rest_says_what_may_become_of_the_parallelism() -> None:
    d = begun()
    reactive = job_archive(d.core)["firesteel-reactive"]
    assert reactive["limits"] == {V1: 128, V2: 128}
    assert reactive["config"]["executingCooldownTimeoutInMillis"] == 30_000


# -- the history of rescales


def rescales_of(d: Reactive) -> list[t.Rescale]:
    """What REST says, the newest first."""
    return rescale_views.rescales_history(job_archive(d.core))


def causes(d: Reactive) -> list[tuple[str, str | None]]:
    return [(rescale["triggerCause"], rescale["terminatedReason"]) for rescale in rescales_of(d)]


def test_the_first_schedule_is_a_rescale_from_nothing() -> None:
    d = Reactive()
    d.start()
    d.offer(0, 1)
    assert causes(d) == [("INITIAL_SCHEDULE", None)]
    d.fire("settle", 2.0)
    d.submitted()
    assert causes(d) == [("INITIAL_SCHEDULE", None)], "its tasks do not run yet"
    d.clock.advance(1.0)
    d.run()
    (rescale,) = rescales_of(d)
    assert (rescale["terminalState"], rescale["terminatedReason"]) == ("COMPLETED", "SUCCEEDED")
    assert rescale["endTimestampInMillis"] == rescale["startTimestampInMillis"] + 3000
    vertex = rescale["vertices"][V1]
    assert (vertex["desiredParallelism"], vertex["sufficientParallelism"]) == (128, 1)
    assert (vertex["preRescaleParallelism"], vertex["postRescaleParallelism"]) == (None, 2)
    assert rescale["schedulerStates"] == [], "only details say them"
    details = rescale_views.rescale_details(job_archive(d.core), {"rescale_id": rescale["rescaleUuid"]})
    assert [(state["state"], state["durationInMillis"]) for state in details["schedulerStates"]] == [
        ("WaitingForResources", 2000), ("CreatingExecutionGraph", 1000),
    ]  # fmt: skip


def test_more_slots_are_a_rescale_from_their_coming_on() -> None:
    d = begun()
    d.offer(0, 1, tm="b")
    assert causes(d)[0] == ("NEW_RESOURCE_AVAILABLE", None)
    d.fire("rescale", 60.0)
    d.cancelled()
    d.submitted()
    d.run()
    newest, first = rescales_of(d)
    assert causes(d)[0] == ("NEW_RESOURCE_AVAILABLE", "SUCCEEDED")
    assert (newest["rescaleAttemptId"], first["rescaleAttemptId"]) == (2, 1)
    assert newest["vertices"][V2]["preRescaleParallelism"] == 2
    assert newest["vertices"][V2]["postRescaleParallelism"] == 4
    (slots,) = newest["slots"].values()
    assert (slots["preRescaleSlots"], slots["postRescaleSlots"], slots["desiredSlots"]) == (2, 4, 128)
    details = rescale_views.rescale_details(job_archive(d.core), {"rescale_id": newest["rescaleUuid"]})
    states = [state["state"] for state in details["schedulerStates"]]
    assert states == ["Executing", "Restarting", "WaitingForResources", "CreatingExecutionGraph"]
    overview = rescale_views.rescales_overview(job_archive(d.core))
    assert overview["rescalesCounts"] == {"ignored": 0, "inProgress": 0, "completed": 2, "failed": 0}
    completed = overview["latest"]["completed"]
    assert completed is not None
    assert completed["rescaleUuid"] == newest["rescaleUuid"]
    took = rescale_views.rescales_summary(job_archive(d.core))["completedRescalesDurationStatsInMillis"]
    assert (took["min"], took["max"]) == (2000, 60_000)


def test_slots_that_go_again_change_nothing() -> None:
    d = begun()
    d.offer(0, tm="b")
    d.did(d.core.taskmanager_lost("b", "gone"))
    assert causes(d)[0] == ("NEW_RESOURCE_AVAILABLE", "NO_RESOURCES_OR_PARALLELISMS_CHANGE")
    ignored = rescale_views.rescales_overview(job_archive(d.core))["latest"]["ignored"]
    assert ignored is not None
    assert ignored["terminalState"] == "IGNORED"


def test_a_failure_is_a_rescale_that_says_why_and_ends_the_one_under_way() -> None:
    d = begun()
    d.offer(0, tm="b")
    d.report(d.ids()[0], "FAILED", failure())
    assert causes(d)[:2] == [
        ("RECOVERABLE_FAILOVER", None), ("NEW_RESOURCE_AVAILABLE", "JOB_FAILOVER_RESTARTING"),
    ]  # fmt: skip
    d.cancelled()
    d.fire("restart", 1.0)
    d.fire("settle", 2.0)
    d.submitted()
    d.run()
    newest = rescales_of(d)[0]
    assert newest["terminatedReason"] == "SUCCEEDED"
    assert newest["vertices"][V1]["postRescaleParallelism"] == 3
    details = rescale_views.rescale_details(job_archive(d.core), {"rescale_id": newest["rescaleUuid"]})
    assert failure()["message"] in str(details["schedulerStates"][0]["stringifiedException"])


def test_a_job_that_ends_rescales_no_more() -> None:
    d = Reactive()
    d.start()
    d.did(d.core.cancel("enough"))
    assert causes(d) == [("INITIAL_SCHEDULE", "JOB_CANCELED")]


def test_the_last_rescales_are_kept_and_all_are_counted() -> None:
    d = begun(history=2)
    first = rescales_of(d)[0]["rescaleUuid"]
    for _ in range(3):
        d.offer(0, tm="b")
        d.did(d.core.taskmanager_lost("b", "gone"))
    assert [rescale["rescaleAttemptId"] for rescale in rescales_of(d)] == [4, 3]
    assert rescale_views.rescales_overview(job_archive(d.core))["rescalesCounts"]["ignored"] == 3
    latest = rescale_views.rescale_details(job_archive(d.core), {"rescale_id": first})
    assert latest["terminalState"] == "COMPLETED", "the latest of a kind is kept"
    none = begun(history=0)
    assert rescales_of(none) == []
    assert rescale_views.rescales_overview(job_archive(none.core))["rescalesCounts"]["completed"] == 1
    assert rescale_views.rescales_overview(job_archive(none.core))["latest"]["completed"] is None
    with pytest.raises(UnknownRescaleError, match="No rescale 'ff' of job"):
        rescale_views.rescale_details(job_archive(none.core), {"rescale_id": "ff"})


def test_other_jobs_have_no_rescales() -> None:
    d = Driver(two_by_two())
    d.start()
    archive = job_archive(d.core)
    assert rescale_views.rescales_history(archive) == []
    assert rescale_views.rescales_overview(archive)["rescalesCounts"]["completed"] == 0
    with pytest.raises(UnknownRescaleError, match="only jobs in reactive mode"):
        rescale_views.rescale_details(archive, {"rescale_id": "ff"})


def test_what_is_said_of_rescales_is_what_the_reference_says() -> None:
    d = begun()
    d.offer(0, tm="b")
    history = rescales_of(d)
    msgspec.convert(history, list[t.Rescale])
    msgspec.convert(rescale_views.rescales_overview(job_archive(d.core)), t.RescalesOverview)
    details = rescale_views.rescale_details(job_archive(d.core), {"rescale_id": history[0]["rescaleUuid"]})
    assert msgspec.convert(details, t.Rescale)["schedulerStates"]
