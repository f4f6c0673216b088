"""The host of JobMaster processes in the process of the test: what its template does to it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from firesteel.config import Settings
from firesteel.core.clock import SystemClock
from firesteel.core.process import descendants, identify, is_running
from firesteel.core.run_directory import RunDirectory
from firesteel.ha.services import of_job
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import JobMasterHostGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc import RpcClient
from firesteel.service.leaving import Leaving
from firesteel_jobmaster import host as host_module
from firesteel_jobmaster import job_start
from firesteel_jobmaster.app import create_host
from firesteel_jobmaster.host import HostService
from tests.integration.services.jobmaster_peers import PATIENCE, QUICK, SECRET, Others
from tests.unit.jobmaster.jobs import two_by_two
from tests.waiting import eventually


async def start(host: HostService, others: Others, number: int = 1) -> m.JobStarted:
    graph = {**two_by_two().to_plain(), "job_id": f"{number:032x}"}
    client = RpcClient(others.session, SECRET, others.clock)
    calls = JobMasterHostGateway(client, host.address, timeout=PATIENCE)
    return await calls.start_job(m.StartJob(graph, others.address, "", others.address, others.address))


until = eventually


def run(
    folder: Path, test: Callable[[HostService, Others], Awaitable[None]], more: Mapping[str, str] | None = None
) -> None:
    async def main(host: HostService) -> None:
        others = Others()
        others.slots = 0
        await others.start()
        try:
            await host.start()
            await test(host, others)
        finally:
            await host.stop(Leaving.END_ALL)
            await others.stop()
        assert host.failure is None

    directory = RunDirectory.create(folder / "r")
    try:
        host = create_host(
            settings=Settings({**QUICK, **(more or {})}),
            secret=SECRET,
            clock=SystemClock(),
            run_directory=directory,
            cluster_directory=folder / "cluster",
        )
        asyncio.run(main(host))
    finally:
        directory.remove()


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("h")


def test_a_frozen_template_is_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_start, "START_SECONDS", 4.0)

    async def test(host: HostService, others: Others) -> None:
        await until(lambda: host.template.is_ready)
        assert host.template.pid is not None
        frozen = identify(host.template.pid)
        assert frozen is not None
        os.kill(frozen.pid, signal.SIGSTOP)
        started = await start(host, others)
        assert started.address.startswith("http://127.0.0.1:")
        assert not is_running(frozen)
        assert host.template.pid != frozen.pid

    run(folder, test)


def test_a_host_is_ready_when_a_job_would_start_at_once(folder: Path) -> None:
    async def test(host: HostService, others: Others) -> None:
        async def ready() -> int:
            async with others.session.get(f"{host.address}/ready") as answer:
                return answer.status

        await until(lambda: host.template.is_ready)
        assert await ready() == 200
        assert host.template.pid is not None
        os.kill(host.template.pid, signal.SIGKILL)
        await until(lambda: not host.template.is_ready)
        assert await ready() == 503
        await until(lambda: host.template.is_ready)
        assert await ready() == 200

    run(folder, test)


def test_a_jobmaster_that_can_not_begin_says_why(folder: Path) -> None:
    async def test(host: HostService, others: Others) -> None:
        jobs = folder / "cluster" / "jobmasters"
        jobs.rmdir()
        jobs.write_text("in the way")
        with pytest.raises(RpcFault, match=r"could not be started: its process ended with exit code 70"):
            await start(host, others)
        assert host.running_jobs().jobs == ()
        jobs.unlink()
        jobs.mkdir()
        await start(host, others)

    run(folder, test)


def test_a_job_whose_leader_can_not_be_read_is_not_refused(folder: Path) -> None:
    async def test(host: HostService, others: Others) -> None:
        leaders = folder / "cluster" / "ha" / "default" / "leaders"
        leaders.mkdir(parents=True)
        record = leaders / f"job-{1:032x}.json"
        record.write_text("{half")
        with pytest.raises(RpcFault, match=r"could not begin: .*\.json is damaged") as caught:
            await start(host, others)
        assert caught.value.code is RpcCode.INTERNAL, "it may be asked for again"
        record.unlink()
        await start(host, others)

    run(folder, test)


def test_a_jobmaster_that_begins_too_late_does_not_live_beside_the_next_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(host: HostService, others: Others) -> None:
        await until(lambda: host.template.is_ready)
        monkeypatch.setattr(job_start, "START_SECONDS", 3.0)
        record = folder / "cluster" / "ha" / "default" / "leaders" / f"{of_job(f'{1:032x}')}.json"
        record.parent.mkdir(parents=True)
        os.mkfifo(record)  # the storage hangs: nobody writes into it
        with pytest.raises(RpcFault, match="it said that it listens on"):
            await start(host, others)
        assert host.template.pid is not None
        forked = descendants(host.template.pid)
        await until(lambda: not any(map(is_running, forked)))
        record.unlink()
        monkeypatch.undo()
        await start(host, others)
        await others.wait_for("register_jobmaster")
        assert len(descendants(host.template.pid)) == len(host.running_jobs().jobs) == 1

    run(folder, test)


def test_few_processes_of_ended_jobs_stay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "KEPT_LOGS", 2)

    async def test(host: HostService, others: Others) -> None:
        for number in range(1, 8):
            await start(host, others, number)
        jobs = host.running_jobs().jobs
        assert len(jobs) == 7
        for job in jobs:
            await others.jobmasters[job.job_id].cancel(m.CancelJob())
        await others.wait_for("job_finished", 7)
        await until(lambda: len(list((folder / "r").glob("*/jobmasters/*.log"))) == 2)
        assert not list((folder / "cluster" / "jobmasters").iterdir())
        assert not others.calls("jobmaster_lost")

    run(folder, test)


def test_jobmasters_that_would_not_outlive_their_host_say_that_they_stop(folder: Path) -> None:
    """In a container; the Dispatcher need not wait for a heartbeat that does not come."""

    async def test(host: HostService, others: Others) -> None:
        started = await start(host, others)
        await others.wait_for("register_jobmaster")
        assert host.template.pid is not None
        (forked,) = descendants(host.template.pid)
        await host.stop(Leaving.HAND_OVER)
        assert not is_running(forked)
        said = [call for call in others.calls("job_state_changed") if call["state"] == "SUSPENDED"]
        assert [call["jobmaster_token"] for call in said] == [started.jobmaster_token]
        assert not list((folder / "cluster" / "jobmasters").iterdir()), "the next host must not take it for a loss"
        assert not others.calls("jobmaster_lost")

    run(folder, test, {"firesteel.jobmaster.end-with-host": "true"})
