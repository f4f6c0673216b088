"""The JobMaster host over loopback, with stand-ins for the other services."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from firesteel.config import Settings
from firesteel.core.clock import SystemClock
from firesteel.core.errors import FencedError, PeerUnreachableError
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol import messages as m
from firesteel.protocol.deployment import Placement, TaskFailure
from firesteel.protocol.gateways import JobMasterGateway, JobMasterHostGateway, TaskManagerGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc import RpcClient
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.app import JobMasterService, create_service
from tests.integration.services.jobmaster_peers import QUICK, SECRET, Others
from tests.unit.jobmaster.jobs import JOB, job, two_by_two, vertex


@asynccontextmanager
async def cluster(settings: Mapping[str, str] = QUICK) -> AsyncIterator[tuple[Others, JobMasterService]]:
    others = Others()
    service = create_service(settings=Settings(settings), secret=SECRET, clock=SystemClock())
    await others.start()
    await service.start()
    try:
        yield others, service
    finally:
        await service.stop()
        await others.stop()
        assert service.failure is None
        assert others.failure is None


async def submit(others: Others, service: JobMasterService, graph: JobGraph | None = None) -> m.JobStarted:
    host = JobMasterHostGateway(RpcClient(others.session, SECRET, others.clock), service.address)
    plain = (graph or two_by_two()).to_plain()
    return await host.start_job(m.StartJob(plain, others.address, "d1", others.address, others.address))


def run(test: Callable[[Others, JobMasterService], Awaitable[None]], settings: Mapping[str, str] = QUICK) -> None:
    async def main() -> None:
        async with cluster(settings) as (others, service):
            await test(others, service)

    asyncio.run(main())


@pytest.mark.smoke
def test_a_job_from_submission_to_its_end() -> None:
    async def test(others: Others, service: JobMasterService) -> None:
        started = await submit(others, service)
        assert started.address == f"{service.address}/jobs/{JOB}"
        assert await submit(others, service) == started, "the same job again is no second one"
        ids = await others.all_run()
        assert others.jobmaster is not None
        splits = await others.jobmaster.request_splits(m.RequestSplits(ids[0], 1))
        assert [s["id"] for s in splits.splits] == ["a"]
        await others.jobmaster.report_metrics(m.ReportMetrics({ids[0]: {"numRecordsOut": 5}}))
        details = (await others.jobmaster.details(m.LookAtJob())).archive
        assert details["state"] == "RUNNING"
        assert sum(v["metrics"]["write-records"] for v in details["vertices"]) == 5
        await others.report("FINISHED", *ids)
        archive = (await others.wait_for("job_finished"))["archive"]
        assert archive["state"] == "FINISHED"
        await others.wait_for("disconnect_jobmaster")
        await others.wait_for("free_slot", 2)
        assert {c["allocation_id"] for c in others.calls("free_slot")} == {f"{i:032x}" for i in (0, 1)}
        assert {c["state"] for c in others.calls("job_state_changed")} == {"RUNNING"}
        assert len(others.calls("register_jobmaster")) == 1
        assert (await others.jobmaster.details(m.LookAtJob())).archive["state"] == "FINISHED", (
            "late questions are answered"
        )

    run(test)


def test_submission_to_deployment_is_fast() -> None:
    async def test(others: Others, service: JobMasterService) -> None:
        took = []
        for number in range(5):
            graph = JobGraph.from_plain({**two_by_two().to_plain(), "job_id": f"{number + 1:032x}"})
            others.executions.clear()
            before = time.perf_counter()
            await submit(others, service, graph)
            await others.wait_for("submit_tasks", 2 * (number + 1))
            took.append(time.perf_counter() - before)
            await others.report("FINISHED", *others.executions)
            await others.wait_for("job_finished", number + 1)
        assert min(took) < 0.1, took  # measured: about 0.01 s; a poll or a sleep on the way would show

    run(test)


def test_commit_phase() -> None:
    async def test(others: Others, service: JobMasterService) -> None:
        await submit(others, service, two_by_two(commits=True))
        await others.all_run()
        assert others.jobmaster is not None
        sinks = [i for i in others.executions if i.startswith(f"{2:032x}")]
        sources = [i for i in others.executions if i not in sinks]
        others.refuse["notify_checkpoint_complete"] = 2
        for sink in sinks:
            await others.jobmaster.end_of_data(m.ExecutionRef(sink))
        assert not others.calls("trigger_checkpoint")
        await others.report("FINISHED", *sources)
        archive = (await others.wait_for("job_finished"))["archive"]
        assert archive["state"] == "FINISHED"
        notified = [set(call["tasks"]) for call in others.calls("notify_checkpoint_complete")]
        assert all(len(slots) == 2 for slots in notified[:1]), "both slots hear it in one call"
        assert sum(map(len, notified)) >= 4, "two that failed were repeated"

    run(test)


def test_a_failing_task() -> None:
    async def test(others: Others, service: JobMasterService) -> None:
        await submit(others, service)
        ids = await others.all_run()
        error = TaskFailure("user", "builtins.ZeroDivisionError", "division by zero", "tb").to_plain()
        await others.report("FAILED", ids[0], error=error)
        archive = (await others.wait_for("job_finished"))["archive"]
        assert archive["state"] == "FAILED"
        assert archive["failure"]["message"] == "division by zero"
        cancelled = {i for c in others.calls("cancel_tasks") for i in c["execution_ids"]}
        assert cancelled == set(ids[1:])
        await others.wait_for("free_slot", 2)

    run(test)


def test_a_refused_submit_fails_the_job_with_the_reason() -> None:
    async def test(others: Others, service: JobMasterService) -> None:
        others.refuse["submit_tasks"] = 1
        await submit(others, service)
        archive = (await others.wait_for("job_finished"))["archive"]
        assert archive["state"] == "FAILED"
        assert "submit_tasks does not work now" in archive["failure"]["message"]

    run(test)


def test_a_submit_whose_answer_is_lost_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    call, lost = TaskManagerGateway.submit_tasks, list[m.SubmitTasks]()

    async def submit_tasks(gateway: TaskManagerGateway, message: m.SubmitTasks) -> None:
        await gateway.call(call, message)
        if len(lost) < 2:
            lost.append(message)
            raise PeerUnreachableError("the answer is lost")

    monkeypatch.setattr(TaskManagerGateway, "submit_tasks", submit_tasks)

    async def test(others: Others, service: JobMasterService) -> None:
        await submit(others, service)
        await others.wait_for("submit_tasks", 4)
        await others.all_run()
        tasks = [[t["execution_id"] for t in call["deployment"]["tasks"]] for call in others.calls("submit_tasks")]
        assert sorted(tasks[:2]) == sorted(tasks[2:]), "the same attempts"
        await others.report("FINISHED", *others.executions)
        assert (await others.wait_for("job_finished"))["archive"]["state"] == "FINISHED"
        assert not others.calls("cancel_tasks")

    run(test)


def test_where_tasks_run_is_told_to_a_taskmanager_once_and_again_when_it_has_forgotten() -> None:
    async def test(others: Others, service: JobMasterService) -> None:
        forgets, original = [True], others.on_submit_tasks

        async def forgetful(payload: Mapping[str, Any]) -> None:
            if forgets:
                forgets.clear()
                raise RpcFault(RpcCode.UNKNOWN_PLACEMENT, "it was not shared")
            await original(payload)

        others.on_submit_tasks = forgetful  # type: ignore[method-assign]
        await submit(others, service)
        await others.wait_for("submit_tasks", 3)
        await others.all_run()
        assert len(others.calls("submit_tasks")) == 3
        first, second = others.calls("share_placement")
        assert first == second
        placement = Placement.unpack(first["placement"])
        assert len(placement.peers) == 2
        assert {call["deployment"]["placement"] for call in others.calls("submit_tasks")} == {placement.id}

    run(test)


def test_cancel_never_overtakes_the_submit() -> None:
    async def test(others: Others, service: JobMasterService) -> None:
        gate = asyncio.Event()
        original = others.on_submit_tasks

        async def slow_submit(payload: Mapping[str, Any]) -> None:
            await gate.wait()
            await original(payload)

        others.on_submit_tasks = slow_submit  # type: ignore[method-assign]
        await submit(others, service)
        await others.wait_for("submit_tasks", 2)
        assert others.jobmaster is not None
        await others.jobmaster.cancel(m.CancelJob())
        assert (await others.jobmaster.details(m.LookAtJob())).archive["state"] == "CANCELLING"
        assert not others.calls("cancel_tasks")
        gate.set()
        assert (await others.wait_for("job_finished"))["archive"]["state"] == "CANCELED"
        cancelled = [id_ for call in others.calls("cancel_tasks") for id_ in call["execution_ids"]]
        assert sorted(cancelled) == sorted(others.executions), "each once"

    run(test)


def test_the_end_is_told_until_the_dispatcher_knows() -> None:
    async def test(others: Others, service: JobMasterService) -> None:
        others.refuse["job_finished"] = 2
        await submit(others, service)
        ids = await others.all_run()
        await others.report("FINISHED", *ids)
        await others.wait_for("job_finished", 3)
        await service.job(JOB).dispatcher.acknowledged.wait()

    run(test)


def test_registration_is_repeated_and_a_new_resourcemanager_is_told_all() -> None:
    async def test(others: Others, service: JobMasterService) -> None:
        others.refuse["register_jobmaster"] = 2
        others.slots = 0
        await submit(others, service)
        await others.wait_for("register_jobmaster", 3)
        await others.wait_for("declare_requirements")
        others.rm_token = "rm2"  # another leader
        await others.wait_for("register_jobmaster", 4)
        declared = await others.wait_for("declare_requirements", 2)
        assert declared["requirements"] == [{"profile": "default", "count": 2}]

    run(test)


def test_slots_that_do_not_come() -> None:
    async def test(others: Others, service: JobMasterService) -> None:
        others.slots = 1
        await submit(others, service)
        failure = (await others.wait_for("job_finished"))["archive"]["failure"]
        assert failure["error_class"].endswith("NoResourceAvailableError")
        assert "needs 2 slots" in failure["message"]
        freed = await others.wait_for("free_slot")
        assert freed["allocation_id"] == f"{0:032x}"

    run(test, {**QUICK, "slot.request.timeout": "150 ms"})


def test_a_taskmanager_that_cannot_be_reached_is_lost() -> None:
    async def test(others: Others, service: JobMasterService) -> None:
        await submit(others, service)
        await others.all_run()
        others.refuse["heartbeat_jobmaster"] = 10**6
        archive = (await others.wait_for("job_finished"))["archive"]
        assert archive["state"] == "FAILED"
        assert "no sign of life for 10 s, or could not be reached 2 times in a row" in archive["failure"]["message"]

    run(test)


def test_old_tokens_and_unknown_jobs() -> None:
    async def test(others: Others, service: JobMasterService) -> None:
        started = await submit(others, service)
        client = RpcClient(others.session, SECRET, others.clock)
        with pytest.raises(FencedError):
            await JobMasterGateway(client, started.address, "0" * 32).cancel(m.CancelJob())
        with pytest.raises(RpcFault, match="no JobMaster here runs job") as caught:
            await JobMasterGateway(client, f"{service.address}/jobs/{'f' * 32}", started.jobmaster_token).cancel(
                m.CancelJob()
            )
        assert caught.value.code is RpcCode.NOT_FOUND
        other = two_by_two().to_plain() | {"name": "another"}
        with pytest.raises(RpcFault, match="another job with the id"):
            await submit(others, service, JobGraph.from_plain(other))
        bad = two_by_two().to_plain() | {"config": {"slot.request.timeout": "soon"}}
        with pytest.raises(RpcFault, match=r"slot\.request\.timeout") as caught:
            await submit(others, service, JobGraph.from_plain({**bad, "job_id": "d" * 32}))
        assert caught.value.code is RpcCode.REFUSED

    run(test)


def test_an_odd_message_is_refused_and_hurts_nobody() -> None:
    async def test(others: Others, service: JobMasterService) -> None:
        await submit(others, service)
        await others.all_run()
        assert others.jobmaster is not None
        with pytest.raises(RpcFault, match="no task 'nobody'"):
            await others.jobmaster.end_of_data(m.ExecutionRef("nobody"))
        await others.report("RUNNING", "nobody")
        assert (await others.jobmaster.details(m.LookAtJob())).archive["state"] == "RUNNING"

    run(test)


def test_results_of_a_collect_operator() -> None:
    async def test(others: Others, service: JobMasterService) -> None:
        graph = job(vertex(1, 2, splits=["a"]), vertex(2, 1, collects="f" * 32))
        await submit(others, service, graph)
        await others.wait_for("submit_tasks", 2)
        assert others.jobmaster is not None

        async def collect(offset: int, wait_ms: int) -> m.CollectedFromJob:
            assert others.jobmaster is not None
            return await others.jobmaster.collect(m.CollectFromJob("f" * 32, offset, 1000, wait_ms))

        before = await collect(0, 30)
        assert (before.count, before.end, before.state) == (0, False, "RUNNING")
        asking = asyncio.get_running_loop().create_task(collect(0, 5000))
        ids = await others.all_run()
        first = await asking
        assert (first.count, first.end) == (2, False)
        assert base64.b64decode(first.data) == b"onetwo"
        empty = await collect(2, 60)
        assert (empty.offset, empty.count, empty.end) == (2, 0, False)
        asking = asyncio.get_running_loop().create_task(collect(2, 5000))
        await others.report("FINISHED", *ids)
        last = await asking
        assert (last.count, last.end, last.state) == (0, True, "FINISHED")
        with pytest.raises(RpcFault, match="no collect operator"):
            await others.jobmaster.collect(m.CollectFromJob("0" * 32, 0, 1000, 0))

    run(test)


def test_splits_that_do_not_arrive_fail_the_job() -> None:
    async def test(others: Others, service: JobMasterService) -> None:
        await submit(others, service)
        ids = await others.all_run()
        core = service.job(JOB).core
        slot = core.graph.executions()[0].slot
        assert slot is not None

        async def refuse(_: Mapping[str, Any]) -> None:
            raise RpcFault(RpcCode.NOT_FOUND, "unknown execution")

        vars(others)["on_assign_splits"] = refuse
        push = do.PushSplits("tm", slot.allocation_id, ids[0], m.Splits(({"id": "x", "data": {}},), False, 1))
        vars(core)["timer_fired"] = lambda _: [push]
        service.job(JOB).door.handle(service.job(JOB).core.timer_fired, "splits")
        archive = (await others.wait_for("job_finished"))["archive"]
        assert archive["state"] == "FAILED"
        assert "Splits did not reach V1 (1/2)#0" in archive["failure"]["message"]
        (assigned,) = others.calls("assign_splits")
        assert (assigned["job_id"], assigned["allocation_id"]) == (JOB, slot.allocation_id)

    run(test)


def test_a_host_that_stops_gives_the_slots_back() -> None:
    async def test(others: Others, service: JobMasterService) -> None:
        await submit(others, service)
        await others.all_run()
        before = time.perf_counter()
        await service.stop()
        assert time.perf_counter() - before < 1.5
        assert len(others.calls("free_slot")) == 2
        assert len(others.calls("disconnect_jobmaster")) == 1
        assert others.calls("job_state_changed")[-1]["state"] == "SUSPENDED"

    run(test)


def test_a_host_stops_in_time_when_nobody_answers() -> None:
    async def test(others: Others, service: JobMasterService) -> None:
        await submit(others, service)
        await others.all_run()
        for method in ("free_slot", "job_state_changed", "disconnect_jobmaster"):
            others.refuse[method] = 10**6
        before = time.perf_counter()
        await service.stop()
        assert time.perf_counter() - before < 1.5

    run(test)


def test_a_slot_that_the_job_is_done_with_goes_back_while_the_job_goes_on() -> None:
    async def test(others: Others, service: JobMasterService) -> None:
        graph = job(vertex(1, 1, splits=["a"], group="first"), vertex(2, 1, group="second"))
        await submit(others, service, graph)
        first, second = await others.all_run()
        await others.report("FINISHED", first)
        freed = await others.wait_for("free_slot")
        assert "slot.idle.timeout" in freed["cause"]
        declared = await others.wait_for("declare_requirements", 2)
        assert declared["requirements"] == [{"profile": "default", "count": 1}]
        assert declared["returned"] == [freed["allocation_id"]]
        await others.wait_for("heartbeat_jobmaster", len(others.calls("heartbeat_jobmaster")) + 2)
        assert others.calls("heartbeat_jobmaster")[-1]["allocations"] == [f"{1:032x}"]
        await others.report("FINISHED", second)
        assert (await others.wait_for("job_finished"))["archive"]["state"] == "FINISHED"
        await others.wait_for("free_slot", 2)

    run(test, {**QUICK, "slot.idle.timeout": "100 ms"})


@pytest.mark.parametrize("where", ["a handler", "an instruction"])
def test_a_jobmaster_that_an_exception_strikes_is_followed_by_another(
    where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(others: Others, service: JobMasterService) -> None:
        started = await submit(others, service)
        ids = await others.all_run()
        first = service.job(JOB)

        def fails(*_: Any) -> Any:
            raise KeyError("oops")

        if where == "a handler":
            monkeypatch.setattr(first.core, "update_task_states", fails)
        else:
            monkeypatch.setattr(first.dispatcher, "state", fails)
        failure = TaskFailure("user", "builtins.ValueError", "boom", "Traceback ...").to_plain()
        await others.report("FAILED", ids[0], error=failure)
        lost = await others.wait_for("jobmaster_lost")
        assert lost["jobmaster_token"] == started.jobmaster_token
        assert "KeyError: 'oops'" in lost["cause"]
        assert "Traceback" in caplog.text
        await others.wait_for("disconnect_jobmaster")
        await others.report("FINISHED", *ids[1:])
        assert not others.calls("job_finished"), "it says nothing about the job any more"
        with pytest.raises(RpcFault, match="oops"):
            await submit(others, service)
        others.executions.clear()
        host = JobMasterHostGateway(RpcClient(others.session, SECRET, others.clock), service.address)
        again = m.StartJob(
            two_by_two().to_plain(), others.address, "d1", others.address, others.address,
            takeover=1, takeover_cause=lost["cause"], given_up=(started.jobmaster_token,),
        )  # fmt: skip
        assert (await host.start_job(again)).jobmaster_token != started.jobmaster_token
        await others.wait_for("submit_tasks", 4)
        new = list(others.executions)
        assert not set(new) & set(ids), "attempts are counted on"
        await others.report("INITIALIZING", *new)
        await others.report("RUNNING", *new)
        await others.report("FINISHED", *new)
        archive = (await others.wait_for("job_finished"))["archive"]
        assert archive["state"] == "FINISHED"
        assert "KeyError" in str(archive)

    run(test)
