"""JobMasters as processes below a host that is a process itself: who survives whom."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from firesteel.config import Settings
from firesteel.core.process import ProcessId, descendants, identify, is_running, wait_gone
from firesteel.graph.job_graph import JobGraph
from firesteel.ha.directory import DirectoryServices
from firesteel.ha.services import JOBMASTER_HOST, of_job
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import JobMasterGateway, JobMasterHostGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc import RpcClient
from tests.integration.services.jobmaster_peers import PATIENCE, QUICK, SECRET, Others
from tests.unit.jobmaster.jobs import two_by_two
from tests.waiting import eventually

A, B = "a" * 32, "b" * 32


class Host:
    """A host in a process of its own, which finds its jobs again when it is started again."""

    def __init__(self, folder: Path, others: Others, **settings: str) -> None:
        self.settings = settings
        self.cluster, self.runs, self.others = folder / "cluster", folder / "r", others
        self.secret = folder / "secret"
        self.secret.touch(mode=0o600)
        self.secret.write_text(SECRET)
        self.process: subprocess.Popen[str] | None = None
        self.address = ""
        self.seen: set[ProcessId] = set()

    async def start(self) -> None:
        line = await self.first_line()
        self.address = line.split()[-1]
        assert self.address.startswith("http://"), line

    async def first_line(self) -> str:
        """Start it; what it says first, or nothing if it ends."""
        settings = {
            **QUICK,
            **self.settings,
            "jobmanager.bind-host": "127.0.0.1",
            "firesteel.jobmaster.port": "0",
            "firesteel.cluster.directory": str(self.cluster),
            "firesteel.run.directory": str(self.runs),
            "firesteel.security.secret-file": str(self.secret),
        }
        definitions = [part for key, value in settings.items() for part in ("-D", f"{key}={value}")]
        self.process = subprocess.Popen(  # noqa: ASYNC220 # takes no time
            [sys.executable, "-m", "firesteel_jobmaster", *definitions], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        return await asyncio.to_thread(self.process.stdout.readline)

    @property
    def calls(self) -> JobMasterHostGateway:
        return JobMasterHostGateway(RpcClient(self.others.session, SECRET, self.others.clock), self.address)

    async def run(self, job_id: str, takeover: int = 0, **changed: Any) -> m.JobStarted:
        graph = JobGraph.from_plain({**two_by_two().to_plain(), "job_id": job_id, **changed})
        others = self.others.address
        token = self.others.dispatcher_token
        start = m.StartJob(graph.to_plain(), others, token, others, others, takeover=takeover)
        started = await self.calls.start_job(start)
        self.seen.add(self.process_of(job_id))
        return started

    def entry(self, job_id: str) -> Path:
        return self.cluster / "jobmasters" / f"{job_id}.json"

    def process_of(self, job_id: str) -> ProcessId:
        plain = json.loads(self.entry(job_id).read_bytes())
        return ProcessId.from_plain(plain["process"])

    def template(self) -> ProcessId:
        """The process from which JobMasters are forked: the host's only child."""
        assert self.process is not None
        (process,) = (p for p in descendants(self.process.pid) if _parent(p.pid) == self.process.pid)
        self.seen.add(process)
        return process

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.wait()

    def terminate(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        assert self.process is not None
        code = self.process.wait(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None
        return code

    def end(self) -> None:
        if self.process is not None:
            self.kill()
        for process in self.seen:
            if is_running(process):
                os.kill(process.pid, signal.SIGKILL)
        wait_gone(self.seen, PATIENCE)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@asynccontextmanager
async def hosting(folder: Path, **settings: str) -> AsyncIterator[tuple[Host, Others]]:
    others = Others()
    others.slots = 0
    await others.start()
    host = Host(folder, others, **settings)
    try:
        await host.start()
        yield host, others
    finally:
        host.end()
        await others.stop()
        assert others.failure is None


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("j")


def run(folder: Path, test: Callable[[Host, Others], Awaitable[None]], **settings: str) -> None:
    async def main() -> None:
        async with hosting(folder, **settings) as (host, others):
            await test(host, others)

    asyncio.run(main())


until = eventually


async def state_of(others: Others, started: m.JobStarted) -> str:
    client = RpcClient(others.session, SECRET, others.clock)
    return str(
        (await JobMasterGateway(client, started.address, started.jobmaster_token).details(m.LookAtJob())).archive[
            "state"
        ]
    )


def test_a_job_in_a_process_of_its_own_from_its_start_to_its_end(folder: Path) -> None:
    async def test(host: Host, others: Others) -> None:
        others.slots = 2
        started = await host.run(A)
        process = host.process_of(A)
        assert _parent(process.pid) == host.template().pid
        assert len(os.listdir(f"/proc/{host.template().pid}/task")) == 1, "a fork would lose other threads"
        assert host.entry(A).stat().st_mode & 0o777 == 0o600
        assert await host.run(A) == started, "the same job again is no second one"
        with pytest.raises(RpcFault, match="another job with the id") as caught:
            await host.run(A, name="another")
        assert caught.value.code is RpcCode.REFUSED
        (listed,) = (await host.calls.list_jobs()).jobs
        assert (listed.job_id, listed.address, listed.jobmaster_token) == (
            A,
            started.address,
            started.jobmaster_token,
        )
        assert JobGraph.from_plain(listed.job_graph).name == "test job"
        ids = await others.all_run()
        await others.report("FINISHED", *ids)
        assert (await others.wait_for("job_finished"))["archive"]["state"] == "FINISHED"
        await others.wait_for("disconnect_jobmaster")
        await until(lambda: not host.entry(A).exists())
        assert await state_of(others, started) == "FINISHED", "late questions are answered"
        assert not (await host.calls.list_jobs()).jobs
        await until(lambda: not is_running(process))
        assert not others.calls("jobmaster_lost")
        assert host.terminate() == 0

    run(folder, test)


def test_secrets_are_neither_in_the_arguments_nor_in_the_environment(folder: Path) -> None:
    async def test(host: Host, others: Others) -> None:
        await host.run(A)
        assert host.process is not None
        for pid in (host.process.pid, host.template().pid, host.process_of(A).pid):
            for name in ("cmdline", "environ"):
                assert SECRET.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
        log = next(host.runs.glob(f"*/jobmasters/{A}.log"))
        assert log.stat().st_mode & 0o077 == 0
        assert SECRET not in log.read_text()
        assert "CREATED -> RUNNING" in log.read_text()

    run(folder, test)


def test_a_killed_jobmaster_takes_no_other_along_and_its_loss_is_told(folder: Path) -> None:
    async def test(host: Host, others: Others) -> None:
        lost, other = await host.run(A), await host.run(B)
        others.refuse["jobmaster_lost"] = 1
        pid = host.process_of(A).pid
        os.kill(pid, signal.SIGKILL)
        report = await others.wait_for("jobmaster_lost", 2)
        assert report["job_id"] == A
        assert f"(process {pid}) was killed by signal 9 (SIGKILL)" in report["cause"]
        goodbye = await others.wait_for("forget_jobmaster")
        assert (goodbye["job_id"], goodbye["jobmaster_token"]) == (A, lost.jobmaster_token)
        await until(lambda: not host.entry(A).exists())
        assert await state_of(others, other) == "RUNNING"
        assert [job.job_id for job in (await host.calls.list_jobs()).jobs] == [B]
        assert not [call for call in others.calls("jobmaster_lost") if call["job_id"] == B]

    run(folder, test)


def test_jobs_go_on_when_the_template_is_killed_and_new_ones_start(folder: Path) -> None:
    async def test(host: Host, others: Others) -> None:
        first = await host.run(A)
        old = host.template()
        os.kill(old.pid, signal.SIGKILL)
        await until(lambda: not is_running(old))
        second = await host.run(B)
        assert host.template() != old
        assert await state_of(others, first) == await state_of(others, second) == "RUNNING"
        os.kill(host.process_of(A).pid, signal.SIGKILL)  # nobody's child any more
        assert (await others.wait_for("jobmaster_lost"))["job_id"] == A

    run(folder, test)


def test_a_killed_host_finds_its_jobs_again(folder: Path) -> None:
    async def test(host: Host, others: Others) -> None:
        others.slots = 2
        first, second = await host.run(A), await host.run(B)
        log = next(host.runs.glob(f"*/jobmasters/{A}.log"))
        host.kill()
        os.kill(host.process_of(B).pid, signal.SIGKILL)
        (host.cluster / "jobmasters" / f"{'c' * 32}.json").write_text("{half")
        assert await state_of(others, first) == "RUNNING"
        await host.start()
        lost = await others.wait_for("jobmaster_lost")
        assert lost["job_id"] == B
        assert "while no host was there" in lost["cause"]
        assert (await others.wait_for("forget_jobmaster"))["jobmaster_token"] == second.jobmaster_token
        assert [job.job_id for job in (await host.calls.list_jobs()).jobs] == [A]
        assert await host.run(A) == first, "it is not started a second time"
        assert log.exists(), "the log of a job that runs stays"
        assert not host.entry("c" * 32).exists()
        assert host.entry("c" * 32).with_suffix(".json.corrupt").exists()
        # One that this host did not fork is watched all the same.
        os.kill(host.process_of(A).pid, signal.SIGKILL)
        assert (await others.wait_for("jobmaster_lost", 2))["job_id"] == A

    run(folder, test)


def test_another_dispatcher_adopts_a_job_and_hears_of_its_end(folder: Path) -> None:
    async def test(host: Host, others: Others) -> None:
        others.slots, others.dispatcher_token = 2, "d1"
        started = await host.run(A)
        ids = await others.all_run()
        next_dispatcher = Others()
        next_dispatcher.dispatcher_token = "d2"
        await next_dispatcher.start()
        try:
            others.dispatcher_token = "nobody leads here any more"
            await others.report("FINISHED", *ids)
            await until(lambda: others.asked["job_finished"] > 0)
            assert not others.calls("job_finished"), "an old token is refused"
            client = RpcClient(others.session, SECRET, others.clock)
            (listed,) = (await host.calls.list_jobs()).jobs
            assert listed.job_id == A
            jobmaster = JobMasterGateway(client, listed.address, listed.jobmaster_token)
            assert (await jobmaster.details(m.LookAtJob())).archive["state"] == "FINISHED"
            await jobmaster.adopt(m.AdoptJob(next_dispatcher.address, "d2"))
            assert (await next_dispatcher.wait_for("job_finished"))["archive"]["state"] == "FINISHED"
            await until(lambda: not host.entry(A).exists())
        finally:
            await next_dispatcher.stop()
        assert started.address == listed.address

    run(folder, test)


def test_a_jobmaster_remembers_who_adopted_it_beyond_its_host(folder: Path) -> None:
    async def test(host: Host, others: Others) -> None:
        started = await host.run(A)
        next_dispatcher = Others()
        await next_dispatcher.start()
        try:
            client = RpcClient(others.session, SECRET, others.clock)
            jobmaster = JobMasterGateway(client, started.address, started.jobmaster_token)
            await jobmaster.adopt(m.AdoptJob(next_dispatcher.address, "d2"))
            assert (await next_dispatcher.wait_for("job_state_changed"))["state"] == "RUNNING"
            host.kill()
            os.kill(host.process_of(A).pid, signal.SIGKILL)
            await host.start()
            assert (await next_dispatcher.wait_for("jobmaster_lost"))["job_id"] == A
            assert not others.calls("jobmaster_lost")
        finally:
            await next_dispatcher.stop()

    run(folder, test)


def test_jobmasters_go_on_when_their_host_is_told_to_stop_and_the_next_one_finds_them(folder: Path) -> None:
    async def test(host: Host, others: Others) -> None:
        others.slots = 2
        started = await host.run(A)
        await others.all_run()
        process, template = host.process_of(A), host.template()
        assert await asyncio.to_thread(host.terminate) == 0
        assert not wait_gone([template], PATIENCE)
        assert is_running(process)
        assert await state_of(others, started) == "RUNNING"
        logs = list(host.runs.glob("*/jobmasters/*.log"))
        assert [log.name for log in logs] == [f"{A}.log"], "it logs on where it did"

        await host.start()
        (listed,) = (await host.calls.list_jobs()).jobs
        assert (listed.address, listed.jobmaster_token) == (started.address, started.jobmaster_token)
        assert await host.run(A) == started
        assert host.process_of(A) == process
        assert not others.calls("free_slot")
        assert not others.calls("jobmaster_lost")
        assert "SUSPENDED" not in {call["state"] for call in others.calls("job_state_changed")}
        os.kill(process.pid, signal.SIGKILL)
        assert (await others.wait_for("jobmaster_lost"))["job_id"] == A, "the next host looks after it"

    run(folder, test)


def test_a_jobmaster_that_waits_for_slots_ends_when_nobody_comes_back(folder: Path) -> None:
    async def test(host: Host, others: Others) -> None:
        await host.run(A)
        process = host.process_of(A)
        assert await asyncio.to_thread(host.terminate) == 0
        assert is_running(process)
        await others.stop()
        assert not await asyncio.to_thread(wait_gone, [process], PATIENCE)
        assert host.entry(A).exists(), "the next host has another one go on with the job"

    run(folder, test, **{"firesteel.jobmaster.orphan-timeout": "1 s", "heartbeat.timeout": "1 s"})


def test_the_end_of_the_cluster_has_a_host_give_slots_back_and_leave_nothing(folder: Path) -> None:
    async def test(host: Host, others: Others) -> None:
        others.slots = 2
        await host.run(A)
        await others.all_run()
        processes = [host.process_of(A), host.template()]
        host.kill()  # also JobMasters that a former host has forked
        await host.start()
        others.slots = 0
        await host.run(B)
        processes += [host.process_of(B), host.template()]
        await host.calls.shut_down()
        assert await asyncio.to_thread(host.wait) == 0
        assert not wait_gone(processes, PATIENCE)
        assert {call["allocation_id"] for call in others.calls("free_slot")} == {f"{i:032x}" for i in (0, 1)}
        assert {call["job_id"] for call in others.calls("disconnect_jobmaster")} == {A, B}
        states = [(call["job_id"], call["state"]) for call in others.calls("job_state_changed")]
        assert {(A, "SUSPENDED"), (B, "SUSPENDED")} <= set(states)
        assert not others.calls("jobmaster_lost")
        assert not list((host.cluster / "jobmasters").iterdir())
        assert identify(processes[0].pid) != processes[0]

    run(folder, test)


def test_a_second_host_of_the_same_cluster_touches_nothing(folder: Path) -> None:
    async def test(host: Host, others: Others) -> None:
        started = await host.run(A)
        second = Host(folder, others)
        try:
            assert await second.first_line() == ""
            assert await asyncio.to_thread(second.wait) == 2
        finally:
            second.end()
        assert is_running(host.process_of(A)), "and its file is there"
        assert await state_of(others, started) == "RUNNING"
        assert [job.job_id for job in (await host.calls.list_jobs()).jobs] == [A]
        assert not others.calls("jobmaster_lost")

    run(folder, test)


def test_jobs_go_on_when_their_host_leads_no_more(folder: Path) -> None:
    async def test(host: Host, others: Others) -> None:
        started = await host.run(A)
        DirectoryServices(Settings({}), host.cluster).depose(JOBMASTER_HOST)
        assert await asyncio.to_thread(host.wait) == 1
        assert is_running(host.process_of(A)), "and its file is there"
        assert await state_of(others, started) == "RUNNING"
        await host.start()
        assert await host.run(A) == started, "the next host has found it"

    run(folder, test)


def test_a_jobmaster_that_leads_no_more_ends_and_is_no_longer_listed(folder: Path) -> None:
    async def test(host: Host, others: Others) -> None:
        others.slots = 2
        started, process = await host.run(A), host.process_of(A)
        await others.all_run()
        DirectoryServices(Settings({}), host.cluster).depose(of_job(A))
        await others.wait_for("free_slot", 2)
        lost = await others.wait_for("jobmaster_lost")  # no news to a Dispatcher that knows of the other one
        assert lost["jobmaster_token"] == started.jobmaster_token
        assert others.calls("job_state_changed")[-1]["state"] == "SUSPENDED"
        assert not is_running(process)
        await until(lambda: not host.entry(A).exists())
        assert not (await host.calls.list_jobs()).jobs

    run(folder, test)


def test_a_jobmaster_that_lives_on_another_host_is_followed_at_once(folder: Path) -> None:
    shared = {"high-availability.type": "directory", "high-availability.storageDir": str(folder / "shared")}

    async def test(first: Host, others: Others) -> None:
        before, process = await first.run(A), first.process_of(A)
        first.kill()  # its JobMaster lives
        second = Host(folder / "second", others, **shared)
        try:
            await second.start()
            began = time.monotonic()
            after = await second.run(A, takeover=1)
            assert time.monotonic() - began < 10
            assert after.jobmaster_token != before.jobmaster_token
            await until(lambda: not is_running(process))
            assert await state_of(others, after) == "RUNNING"
            assert first.entry(A).exists(), "the next host there says that it is lost"
        finally:
            second.end()

    (folder / "second").mkdir()
    run(folder, test, **shared)


def test_a_jobmaster_that_could_not_clean_up_leaves_that_to_others(folder: Path) -> None:
    checkpoints = folder / "checkpoints"
    config = {"execution.checkpointing.dir": str(checkpoints), "execution.checkpointing.interval": "1 h"}

    async def test(host: Host, others: Others) -> None:
        others.slots = 2
        started = await host.run(A, config=config)
        await others.all_run()
        (checkpoints / A).mkdir(parents=True)
        (checkpoints / A / "shared").touch()  # can't be removed as the directory that it should be
        await others.jobmasters[A].cancel(m.CancelJob())
        await others.wait_for("job_finished")
        assert (await others.wait_for("jobmaster_lost"))["jobmaster_token"] == started.jobmaster_token
        assert DirectoryServices(Settings({}), host.cluster).remembers_job(A)

    run(folder, test)


def test_a_job_that_ended_while_no_dispatcher_was_up_gets_no_other_jobmaster(folder: Path) -> None:
    async def test(host: Host, others: Others) -> None:
        others.slots, others.refuse["job_finished"] = 2, 1000
        await host.run(A)
        ids = await others.all_run()
        await others.report("FINISHED", *ids)
        await others.wait_for("disconnect_jobmaster")  # the slots go when the end is safe
        services = DirectoryServices(Settings({}), host.cluster)
        end = services.recorded_end(A)
        assert end is not None
        assert (end.archive["jid"], end.archive["state"]) == (A, "FINISHED")
        os.kill(host.process_of(A).pid, signal.SIGKILL)
        await others.wait_for("jobmaster_lost")
        with pytest.raises(RpcFault, match=f"job {A} has ended as FINISHED") as caught:
            await host.run(A, takeover=1)
        assert caught.value.code is not RpcCode.REFUSED, "the Dispatcher reads how it ended, and asks no more"
        services.forget_job(A)
        await host.run(A)

    run(folder, test)


def test_a_job_is_remembered_until_it_is_clean_also_where_nothing_is_highly_available(folder: Path) -> None:
    async def test(host: Host, others: Others) -> None:
        await host.run(A)
        os.kill(host.process_of(A).pid, signal.SIGKILL)
        await others.wait_for("jobmaster_lost")
        services = DirectoryServices(Settings({}), host.cluster, shared=False)
        assert services.remembers_job(A), "the Dispatcher has to clean up"
        assert services.campaign(of_job(A)) is not None
        services.close()

    run(folder, test, **{"high-availability.type": "NONE"})


def test_a_jobmaster_that_is_stopped_by_hand_is_lost(folder: Path) -> None:
    async def test(host: Host, others: Others) -> None:
        await host.run(A)
        os.kill(host.process_of(A).pid, signal.SIGTERM)
        report = await others.wait_for("jobmaster_lost")
        assert "ended with exit code 0 before the job had ended" in report["cause"]

    run(folder, test)
