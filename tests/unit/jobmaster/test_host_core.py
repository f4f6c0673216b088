from __future__ import annotations

from dataclasses import replace

import pytest

from firesteel.core.errors import GraphError
from firesteel.core.process import ProcessId
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol import messages as m
from firesteel.protocol.message import RpcFault
from firesteel.service.leaving import Leaving
from firesteel.testing.clock import ManualClock
from firesteel_jobmaster import host_core as h
from firesteel_jobmaster.registry import RegisteredProcess
from tests.unit.jobmaster.jobs import two_by_two


def graph(number: int = 1) -> JobGraph:
    return JobGraph.from_plain({**two_by_two().to_plain(), "job_id": f"{number:032x}"})


def start(graph: JobGraph, dispatcher: str = "d1") -> m.StartJob:
    return m.StartJob(graph.to_plain(), "http://dispatcher", dispatcher, "http://rm", "http://blobs")


class Host:
    """A core, and a shorthand for a job's way to where a test begins."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.core = h.HostCore(self.clock)

    def run(self, number: int = 1) -> str:
        job = graph(number)
        assert self.core.start_job(job, start(job)) == (None, [h.ForkJobMaster(job.job_id)])
        assert self.core.started(job.job_id, ProcessId(number, 7), f"http://jm{number}", f"t{number}") == []
        return job.job_id

    def state(self, job_id: str) -> str | None:
        job = self.core.get(job_id)
        return job.state.name if job is not None else None


def test_the_same_job_is_started_once() -> None:
    host, job = Host(), graph()
    assert host.core.start_job(job, start(job))[1] == [h.ForkJobMaster(job.job_id)]
    assert host.core.start_job(job, start(job)) == (None, []), "while its process is being made"
    host.core.started(job.job_id, ProcessId(1, 7), "http://jm", "t")
    assert host.core.start_job(job, start(job)) == (m.JobStarted("http://jm", "t"), [])
    other = JobGraph.from_plain({**job.to_plain(), "name": "another"})
    with pytest.raises(GraphError, match="another job with the id"):
        host.core.start_job(other, start(other))


def test_a_start_that_failed_may_be_tried_again() -> None:
    host, job = Host(), graph()
    host.core.start_job(job, start(job))
    assert host.core.start_failed(job.job_id, "no memory") == []
    assert host.core.start_job(job, start(job)) == (None, [h.ForkJobMaster(job.job_id)])


def test_a_start_by_another_dispatcher_is_an_adoption() -> None:
    host = Host()
    job_id = host.run()
    answer, instructions = host.core.start_job(graph(), start(graph(), "d2"))
    assert answer == m.JobStarted("http://jm1", "t1")
    assert instructions == [h.AdoptJobMaster(job_id, m.AdoptJob("http://dispatcher", "d2"))]
    assert host.core.start_job(graph(), start(graph(), "d2"))[1] == [], "once is enough"


def test_the_end_of_a_job_and_an_order_that_comes_twice() -> None:
    host = Host()
    job_id = host.run()
    assert [j.job_id for j in host.core.running_jobs().jobs] == [job_id]
    assert host.core.ended(job_id) == []
    assert host.core.ended(job_id) == []
    assert not host.core.running_jobs().jobs
    assert len(host.core.with_processes()) == 1
    assert host.core.process_ended(job_id, ProcessId(1, 7), "ended with exit code 0", in_order=False) == []
    assert host.core.get(job_id) is None
    assert host.core.start_job(graph(), start(graph())) == (m.JobStarted("http://jm1", "t1"), [])


def test_what_is_remembered_of_ended_jobs_is_bounded() -> None:
    host = Host()
    for number in range(1, h.KEPT_ENDED + 2):
        job_id = host.run(number)
        host.core.process_ended(job_id, ProcessId(number, 7), "", in_order=True)
    assert host.core.start_job(graph(2), start(graph(2)))[0] is not None
    assert host.core.start_job(graph(1), start(graph(1)))[0] is None, "forgotten: it would run again"


def test_few_processes_of_ended_jobs_linger() -> None:
    host = Host()
    ended: list[h.Instruction] = []
    for number in range(1, h.MOST_ENDED + 3):
        job_id = host.run(number)
        host.clock.advance(1)
        ended += host.core.ended(job_id)
    assert ended == [
        h.EndJobProcess(ProcessId(1, 7)),
        h.EndJobProcess(ProcessId(1, 7)),
        h.EndJobProcess(ProcessId(2, 7)),
    ]


def test_a_lost_jobmaster_is_told_and_refuses_a_start_until_then() -> None:
    host = Host()
    job_id = host.run()
    (report,) = host.core.process_ended(job_id, ProcessId(1, 7), "was killed by signal 9 (SIGKILL)", in_order=False)
    assert isinstance(report, h.ReportLoss)
    assert "(process 1) was killed by signal 9 (SIGKILL) before the job had ended" in report.jobmaster.cause
    assert host.state(job_id) == "LOST"
    assert not host.core.running_jobs().jobs
    assert not host.core.with_processes()
    assert host.core.process_ended(job_id, ProcessId(1, 7), "is gone", in_order=False) == [], "heard twice"
    with pytest.raises(RpcFault, match="was killed by signal 9"):
        host.core.start_job(graph(), start(graph()))
    assert host.core.loss_told(job_id, report.jobmaster) == [h.ForgetEntry(job_id, report.jobmaster.token)]
    assert host.core.loss_told(job_id, report.jobmaster) == []
    assert host.core.start_job(graph(), start(graph()))[1] == [h.ForkJobMaster(job_id)]


def test_a_jobmaster_that_an_exception_strikes_says_so_before_it_dies() -> None:
    host = Host()
    job_id = host.run()
    host.core.crashed(job_id, ProcessId(2, 7), "another one")
    host.core.crashed(job_id, ProcessId(1, 7), "failed while handling metrics: KeyError: 'x'")
    (report,) = host.core.process_ended(job_id, ProcessId(1, 7), "ended with exit code 1", in_order=False)
    assert isinstance(report, h.ReportLoss)
    said = (
        "(process 1) failed while handling metrics: KeyError: 'x', and ended with exit code 1 before the job had ended"
    )
    assert said in report.jobmaster.cause


def test_another_jobmaster_may_follow_before_the_loss_was_told() -> None:
    host = Host()
    job_id = host.run()
    (report,) = host.core.process_ended(job_id, ProcessId(1, 7), "was killed", in_order=False)
    assert isinstance(report, h.ReportLoss)
    again = replace(start(graph()), takeover=1, given_up=("t1",))
    assert host.core.start_job(graph(), again) == (None, [h.ForkJobMaster(job_id)])
    host.core.started(job_id, ProcessId(2, 8), "http://jm2", "new")
    assert host.core.loss_told(job_id, report.jobmaster) == [h.ForgetEntry(job_id, report.jobmaster.token)]
    assert host.state(job_id) == "RUNNING", "the loss was that of the former one"
    assert host.core.start_job(graph(), again) == (m.JobStarted("http://jm2", "new"), [])


def test_a_jobmaster_that_was_given_up_is_killed_before_another_follows() -> None:
    host = Host()
    job_id = host.run()
    again = replace(start(graph()), takeover=1, given_up=("t1",))
    assert host.core.start_job(graph(), again) == (None, [h.KillJobProcess(ProcessId(1, 7))])
    assert host.core.start_job(graph(), again) == (None, []), "it is being killed"
    host.core.process_ended(job_id, ProcessId(1, 7), "was killed", in_order=False)
    assert host.core.start_job(graph(), again) == (None, [h.ForkJobMaster(job_id)])


def test_jobmasters_that_were_given_up_are_said_by_tokens_since_no_dispatcher_knows_what_another_one_has_counted() -> (
    None
):
    host = Host()
    job_id = host.run()
    second = replace(start(graph()), takeover=1, given_up=("t1",))
    host.core.process_ended(job_id, ProcessId(1, 7), "was killed", in_order=False)
    host.core.start_job(graph(), second)
    host.core.started(job_id, ProcessId(2, 8), "http://jm2", "t2")
    restarted = replace(start(graph(), "d2"), takeover=1, given_up=("t2",))
    assert host.core.start_job(graph(), restarted) == (None, [h.KillJobProcess(ProcessId(2, 8))])
    host.core.process_ended(job_id, ProcessId(2, 8), "was killed", in_order=False)
    other = replace(restarted, takeover=0, given_up=())
    with pytest.raises(RpcFault, match="was killed"):
        host.core.start_job(graph(), other)


def test_a_jobmaster_that_was_given_up_is_not_answered_when_its_process_lingers_or_has_ended_in_order() -> None:
    host = Host()
    job_id = host.run()
    host.core.ended(job_id)
    again = replace(start(graph()), takeover=1, given_up=("t1",))
    assert host.core.start_job(graph(), again) == (None, [h.KillJobProcess(ProcessId(1, 7))]), "its end was refused"
    assert host.core.start_job(graph(), again) == (None, []), "it is being killed"
    host.core.process_ended(job_id, ProcessId(1, 7), "was killed", in_order=True)
    assert host.core.start_job(graph(), again) == (None, [h.ForkJobMaster(job_id)])


def test_another_dispatcher_that_knows_of_no_end_gets_another_jobmaster() -> None:
    host = Host()
    job_id = host.run()
    host.core.process_ended(job_id, ProcessId(1, 7), "ended", in_order=True)
    next_one = replace(start(graph(), "d2"), dispatcher_term=1)
    assert host.core.start_job(graph(), next_one) == (None, [h.ForkJobMaster(job_id)])


def test_a_former_dispatcher_gives_no_jobmaster_up() -> None:
    host = Host()
    job_id = host.run()
    entry = RegisteredProcess(
        job_id, ProcessId(1, 7), "http://jm1", "t1", replace(start(graph(), "d2"), dispatcher_term=2)
    )
    host.core.adopted(replace(entry, token="of another one"))
    assert host.core.start_job(graph(), start(graph()))[0] is not None, "not told of another Dispatcher yet"
    host.core.adopted(entry)
    late = replace(start(graph()), dispatcher_term=1, takeover=1, given_up=("t1",))
    with pytest.raises(RpcFault, match="a later Dispatcher"):
        host.core.start_job(graph(), late)
    assert host.state(job_id) == "RUNNING"
    host.core.process_ended(job_id, ProcessId(1, 7), "ended", in_order=True)
    with pytest.raises(RpcFault, match="a later Dispatcher"):
        host.core.start_job(graph(), late)


def test_the_death_of_another_process_is_not_its_own() -> None:
    host = Host()
    job_id = host.run()
    assert host.core.process_ended(job_id, ProcessId(1, 8), "is gone", in_order=False) == []
    assert host.state(job_id) == "RUNNING"


def test_what_a_former_host_left_behind() -> None:
    host = Host()
    alive = RegisteredProcess(graph(1).job_id, ProcessId(1, 7), "http://jm1", "t1", start(graph(1)))
    dead = RegisteredProcess(graph(2).job_id, ProcessId(2, 7), "http://jm2", "t2", start(graph(2)))
    assert host.core.recovered(alive, graph(1), alive=True) == []
    (report,) = host.core.recovered(dead, graph(2), alive=False)
    assert isinstance(report, h.ReportLoss)
    assert report.jobmaster.token == "t2"
    (running,) = host.core.running_jobs().jobs
    assert (running.job_id, running.address, running.jobmaster_token) == (alive.job_id, "http://jm1", "t1")
    assert host.core.start_job(graph(1), start(graph(1))) == (m.JobStarted("http://jm1", "t1"), [])


def test_jobmasters_go_on_when_their_host_hands_over() -> None:
    host, second = Host(), graph(2)
    job_id = host.run()
    host.core.start_job(second, start(second))
    assert host.core.leave(Leaving.HAND_OVER) == []
    assert host.core.is_waited_for(), "the next host finds those only that have begun"
    assert host.core.started(second.job_id, ProcessId(2, 7), "http://jm2", "t2") == []
    assert not host.core.is_waited_for()
    assert host.core.overdue() == []
    assert [host.state(id_) for id_ in (job_id, second.job_id)] == ["RUNNING", "RUNNING"]
    with pytest.raises(RpcFault, match="the JobMaster host stops"):
        host.core.start_job(graph(3), start(graph(3)))
    lost = host.core.process_ended(job_id, ProcessId(1, 7), "was killed", in_order=False)
    assert [type(instruction) for instruction in lost] == [h.ReportLoss], "it is lost all the same"


def test_jobmasters_end_with_the_cluster() -> None:
    host, second = Host(), graph(2)
    job_id = host.run()
    host.core.start_job(second, start(second))
    assert host.core.leave(Leaving.HAND_OVER) == []
    assert host.core.leave(Leaving.END_ALL) == [h.EndJobProcess(ProcessId(1, 7))]
    assert host.core.leave(Leaving.END_ALL) == [], "they are told once"
    assert host.core.leave(Leaving.HAND_OVER) == []
    started = host.core.started(second.job_id, ProcessId(2, 7), "http://jm2", "t2")
    assert started == [h.EndJobProcess(ProcessId(2, 7))]
    gone = host.core.process_ended(job_id, ProcessId(1, 7), "ended with exit code 0", in_order=False)
    assert gone == [h.ForgetEntry(job_id, "t1")], "the next host must not take it for a loss"
    assert host.core.is_waited_for()
    assert host.core.overdue() == [h.KillJobProcess(ProcessId(2, 7))]
    host.core.process_ended(second.job_id, ProcessId(2, 7), "was killed", in_order=False)
    assert not host.core.is_waited_for()
