"""Dispatchers that are killed and come back, hosts that are away, jobs whose JobMaster is gone."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from firesteel.client.rest_client import RestClient
from firesteel.config import Settings
from firesteel.core.clock import SystemClock
from firesteel.core.errors import FencedError, GraphError, PeerUnreachableError
from firesteel.core.run_directory import private_directory
from firesteel.ha.directory import DirectoryServices
from firesteel.ha.jobs import RecordedEnd
from firesteel.ha.services import of_job
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import DispatcherGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc.signing import Signer
from firesteel_dispatcher.job import JobPhase
from tests.integration.services.cluster_peers import SECRET, Peer, client_of, nothing_answers, serving
from tests.integration.services.dispatcher_world import (
    BLOB,
    JOB,
    SHA,
    TOKEN,
    Host,
    archive,
    graph,
    payloads_in,
    resourcemanager,
    run,
    world,
)

SCRIPT = Path(__file__).with_name("dispatcher_process.py")
LISTENS = re.compile(r"the REST API listens on (\S+)")
WAIT_MS = 40_000


@dataclass
class Killable:
    """A Dispatcher process that is killed and started again, with peers that stay.

    Attributes:
        directory: of the cluster.
        host: the JobMaster host; its running jobs are told to each new Dispatcher.
    """

    directory: Path
    host: Host
    arguments: list[str]
    process: subprocess.Popen[bytes] | None = None
    rest: RestClient | None = None
    starts: int = 0
    clients: list[RestClient] = field(default_factory=list)

    async def start(self, moment: str = "never", *options: str) -> RestClient:
        """A new process; it kills itself at the moment that is named in ``dispatcher_process.py``."""
        self.starts += 1
        log = self.directory.parent / f"dispatcher-{self.starts}.log"
        environment = {**os.environ, "FIRESTEEL_SECRET": SECRET, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, str(SCRIPT), moment, *self.arguments, *options]
        with log.open("wb") as out:
            self.process = await asyncio.to_thread(subprocess.Popen, command, env=environment, stdout=out, stderr=out)
        while (listening := LISTENS.search(log.read_text())) is None or "dispatcher listens" not in log.read_text():
            assert self.process.poll() is None, log.read_text()
            await asyncio.sleep(0.02)
        self.rest = RestClient(listening[1], TOKEN)
        self.clients.append(self.rest)
        return self.rest

    async def died(self) -> None:
        """The process has killed itself."""
        assert self.process is not None
        assert await asyncio.to_thread(self.process.wait, 40) == -9

    async def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.died()

    def leader(self, call: str = "adopt") -> DispatcherGateway:
        """The Dispatcher that the JobMaster was told of last."""
        message = self.host.peer.of(call)[-1]
        return DispatcherGateway(client_of(self.host.peer), message["dispatcher_address"], message["dispatcher_token"])

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            assert await asyncio.to_thread(self.process.wait, 40) == 0


@asynccontextmanager
async def killable(directory: Path) -> AsyncIterator[Killable]:
    host, manager = Host(), resourcemanager()
    async with serving(host.peer, manager):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        settings = {
            "firesteel.cluster.directory": str(directory), "rest.port": "0", "jobmanager.rpc.port": str(port),
            "firesteel.run.directory": str(directory.parent / "run"),
            "firesteel.jobmaster.address": host.peer.address[7:],
            "firesteel.resourcemanager.address": manager.address[7:],
        }  # fmt: skip
        arguments = [text for key, value in settings.items() for text in ("-D", f"{key}={value}")]
        dispatcher = Killable(directory, host, arguments)
        try:
            yield dispatcher
        finally:
            await dispatcher.close()


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fs") as folder:  # a short name: sockets lie below
        yield private_directory(Path(folder) / "cluster")


async def blob_at(d: Killable, address: str) -> bytes:
    signer, url = Signer(SECRET, SystemClock()), f"{address}/blobs/{SHA}"
    async with aiohttp.ClientSession() as session:
        async with session.get(url, headers=signer.headers("GET", url)) as answer:
            assert answer.status == 200
            return await answer.read()


def test_killed_around_the_store_a_job_is_there_or_not_and_never_twice(directory: Path) -> None:
    async def scenario() -> None:
        async with killable(directory) as d:
            for moment, stored in (("before-store", False), ("after-store", True)):
                rest = await d.start(moment)
                with pytest.raises(PeerUnreachableError):
                    await rest.submit(graph(), {SHA: BLOB})
                await d.died()
                assert bool(payloads_in(directory / "dispatcher", "job")) == stored
            rest = await d.start()
            (start,) = await d.host.peer.wait_for("start_job")
            assert start["job_graph"]["job_id"] == JOB
            assert await blob_at(d, start["blob_address"]) == BLOB
            await rest.submit(graph(), {SHA: BLOB})  # the client tries again
            with pytest.raises(GraphError, match="another graph"):
                await rest.submit(graph(name="other"), {SHA: BLOB})
            assert [job["id"] for job in (await rest.get("/jobs"))["jobs"]] == [JOB]
            assert len(d.host.peer.of("start_job")) == 1
            assert not any((directory / "dispatcher" / ".incoming").glob("*"))

    run(scenario())


def test_a_running_job_is_led_on_and_its_end_outlives_the_dispatcher(directory: Path) -> None:
    async def scenario() -> None:
        async with killable(directory) as d:
            rest = await d.start()
            await rest.submit(graph(), {SHA: BLOB})
            await d.host.peer.wait_for("details")  # it is led, and that is stored
            deposed = d.leader("start_job")
            await d.kill()
            rest = await d.start()
            await d.host.peer.wait_for("adopt")
            with pytest.raises(FencedError):
                await deposed.job_state_changed(m.JobStateChanged(JOB, "FAILING", {}))
            while (await rest.get(f"/jobs/{JOB}/status"))["status"] != "RUNNING":
                await asyncio.sleep(0.02)
            assert (await rest.collect(JOB, "op", 0, 100, 10)).count == 2
            await d.kill()
            rest = await d.start("after-end")
            await d.host.peer.wait_for("adopt", 2)
            with pytest.raises(PeerUnreachableError):  # stored, but not acknowledged
                await d.leader().job_finished(m.JobFinished(JOB, archive("FINISHED", **{"end-time": _now()})))
            await d.died()
            rest = await d.start()
            await d.host.peer.wait_for("adopt", 3)  # the JobMaster still wants an answer
            await d.leader().job_finished(m.JobFinished(JOB, archive("FINISHED", **{"end-time": _now()})))
            d.host.running.clear()
            await d.kill()
            rest = await d.start()
            result = await rest.execution_result(JOB, 0)
            assert result is not None
            assert result["application-status"] == "SUCCEEDED"
            assert (await rest.get(f"/jobs/{JOB}"))["plan"]["nodes"]
            (line,) = (await rest.get("/jobs/overview"))["jobs"]
            assert (line["jid"], line["state"]) == (JOB, "FINISHED")
            await rest.submit(graph(), {SHA: BLOB})
            assert len(d.host.peer.of("start_job")) == 1, "it ran already"
            assert payloads_in(directory / "dispatcher", "job") == []

    run(scenario())


def test_a_job_whose_jobmaster_is_gone_gets_another_one_or_fails_and_says_why(directory: Path) -> None:
    async def scenario() -> None:
        async with killable(directory) as d:
            rest = await d.start()
            await rest.submit(graph(), {SHA: BLOB})
            await d.host.peer.wait_for("details")
            await d.kill()
            d.host.running.clear()
            d.host.mistaken = 1
            rest = await d.start()  # the job has no restart strategy: that is for failures of jobs
            start, again = (await d.host.peer.wait_for("start_job", 3))[1:]
            assert start["given_up"] == again["given_up"] == ["jm"], "what the host answered first is not believed"
            assert (start["takeover"], "while no Dispatcher ran" in start["takeover_cause"]) == (1, True)
            while (await rest.get(f"/jobs/{JOB}/status"))["status"] != "RUNNING":
                await asyncio.sleep(0.02)
            await d.kill()
            d.host.running.clear()
            rest = await d.start("never", "-D", "high-availability.type=NONE")
            result = await rest.execution_result(JOB, WAIT_MS)
            assert result is not None
            trace = result["failure-cause"]["stack-trace"]
            assert "its JobMaster ended while no Dispatcher ran" in trace
            assert "high-availability.type: NONE" in trace
            assert len(d.host.peer.of("start_job")) == 3

    run(scenario())


def test_a_job_that_ended_while_no_dispatcher_was_up_has_ended(directory: Path) -> None:
    async def scenario() -> None:
        async with killable(directory) as d:
            rest = await d.start()
            await rest.submit(graph(), {SHA: BLOB})
            await d.host.peer.wait_for("details")
            submitted_ms = d.host.peer.of("start_job")[0]["submitted_ms"]
            await d.kill()
            d.host.running.clear()
            services = DirectoryServices(Settings({}), directory)
            leadership = services.campaign(of_job(JOB))
            assert leadership is not None
            services.record_end(leadership, RecordedEnd(submitted_ms, archive("FINISHED")))
            services.close()
            rest = await d.start()
            result = await rest.execution_result(JOB, 0)
            assert result is not None
            assert result["application-status"] == "SUCCEEDED"
            while services.remembers_job(JOB):  # the Dispatcher cleans up
                await asyncio.sleep(0.02)
            assert payloads_in(directory / "dispatcher", "job") == []
            assert len(d.host.peer.of("start_job")) == 1, "it ran already"

    run(scenario())


def test_a_damaged_job_is_listed_with_its_reason_and_goes_on_when_it_is_whole(directory: Path) -> None:
    async def scenario() -> None:
        async with killable(directory) as d:
            d.host.failing = 10**6
            rest = await d.start()
            await rest.submit(graph(), {SHA: BLOB})
            await d.host.peer.wait_for("start_job")
            await d.kill()
            (folder,) = payloads_in(directory / "dispatcher", "job")
            file = folder / "graph.json"
            whole = file.read_bytes()
            file.write_bytes(whole[:-1])
            rest = await d.start()
            line: dict[str, Any] = {}
            while "is damaged" not in line.get("firesteel-progress", ""):
                (line,) = (await rest.get("/jobs/overview"))["jobs"]
                await asyncio.sleep(0.02)
            assert line["jid"] == JOB
            assert "checksum" in line["firesteel-progress"]
            assert "Bring back what is missing, or cancel the job" in line["firesteel-progress"]
            d.host.failing = 0
            file.write_bytes(whole)
            while (await rest.get(f"/jobs/{JOB}"))["state"] != "RUNNING":
                await asyncio.sleep(0.02)
            assert (await rest.get(f"/jobs/{JOB}"))["name"] == graph().name

    run(scenario())


def test_a_job_whose_jobmaster_was_stopped_gets_another_one_at_once(directory: Path) -> None:
    async def scenario() -> None:
        async with killable(directory) as d:
            rest = await d.start()
            await rest.submit(graph(), {SHA: BLOB})
            await d.host.peer.wait_for("details")
            stopped = m.JobStateChanged(JOB, "SUSPENDED", {}, "jm")
            await d.leader("start_job").job_state_changed(stopped)
            (again,) = (await d.host.peer.wait_for("start_job", 2))[1:]
            assert again["given_up"] == ["jm"]
            assert again["takeover_cause"] == "its JobMaster was stopped before the job had ended"
            await d.leader("start_job").job_state_changed(stopped)
            await d.leader("start_job").job_state_changed(m.JobStateChanged(JOB, "RUNNING", {}, "jm again"))
            while (await rest.get(f"/jobs/{JOB}/status"))["status"] != "RUNNING":
                await asyncio.sleep(0.02)
            assert len(d.host.peer.of("start_job")) == 2, "it is said once and heard once"

    run(scenario())


def test_a_cancel_that_was_accepted_is_not_forgotten(directory: Path) -> None:
    async def scenario() -> None:
        async with killable(directory) as d:
            d.host.may_start.clear()
            rest = await d.start("after-cancel")
            await rest.submit(graph(), {SHA: BLOB})
            await d.host.peer.wait_for("start_job")
            with pytest.raises(PeerUnreachableError):
                await rest.cancel(JOB)
            await d.died()
            d.host.running[JOB] = graph().to_plain()  # it was started all the same
            rest = await d.start()
            await d.host.peer.wait_for("adopt")
            await d.host.peer.wait_for("cancel")
            await d.leader().job_finished(m.JobFinished(JOB, archive("CANCELED")))
            result = await rest.execution_result(JOB, 0)
            assert result is not None
            assert result["application-status"] == "CANCELED"
            d.host.may_start.set()

    run(scenario())


def test_a_jobmaster_is_found_while_its_host_is_away(directory: Path) -> None:
    async def scenario() -> None:
        async with killable(directory) as d:
            rest = await d.start()
            await rest.submit(graph(), {SHA: BLOB})
            await d.host.peer.wait_for("details")
            await d.kill()
            await d.start("never", "-D", "firesteel.jobmaster.address=127.0.0.1:1")
            await d.host.peer.wait_for("adopt")
            await d.leader().job_state_changed(m.JobStateChanged(JOB, "RUNNING", {}))
            assert d.host.peer.of("list_jobs") == d.host.peer.of("list_jobs")[:1]

    run(scenario())


def test_a_job_that_runs_without_a_record_is_taken_over(directory: Path) -> None:
    async def scenario() -> None:
        async with killable(directory) as d:
            d.host.running[JOB] = graph().to_plain()
            rest = await d.start()
            await d.host.peer.wait_for("adopt")
            while (await rest.get("/jobs"))["jobs"] != [{"id": JOB, "status": "RUNNING"}]:
                await asyncio.sleep(0.02)
            await rest.submit(graph(), {SHA: BLOB})
            await d.leader().job_finished(m.JobFinished(JOB, archive("FINISHED")))
            assert len(payloads_in(directory / "dispatcher", "ended")) == 1

    run(scenario())


def test_what_is_wrong_with_the_configuration_is_one_sentence(directory: Path) -> None:
    async def scenario() -> None:
        async with killable(directory) as d:
            await d.start()
            for options, text in (
                (["-D", "jobmanager.rpc.port=0"], "Another process leads the dispatcher"),
                (["-D", "rest.bind-address=0.0.0.0"], "would open the REST API to other hosts"),
            ):
                again = await asyncio.to_thread(
                    subprocess.run, [sys.executable, "-m", "firesteel_dispatcher", *d.arguments, *options],
                    env={**os.environ, "FIRESTEEL_SECRET": SECRET, "PYTHONPATH": os.pathsep.join(sys.path)},
                    capture_output=True, text=True, timeout=45,
                )  # fmt: skip
                assert again.returncode == 2, again.stderr
                assert text in again.stderr
                assert "Traceback" not in again.stderr

    run(scenario())


# In one process: hosts that are away


def test_a_job_waits_for_a_host_that_is_away_and_shows_it() -> None:
    async def scenario() -> None:
        async with world() as w:
            port = int(w.jobmaster.address.rpartition(":")[2])
            await w.jobmaster.stop()
            await w.rest.submit(graph(), {SHA: BLOB})
            details: dict[str, Any] = {}
            while not details.get("firesteel-progress"):
                details = (await w.get(f"/jobs/{JOB}"))[1]
            assert details["state"] == "INITIALIZING"
            assert "waiting:" in details["firesteel-progress"]
            assert str(port) in details["firesteel-progress"]
            back = w.host.peer = w.host.new_peer()
            await back.start("127.0.0.1", port)
            try:
                await back.wait_for("start_job")
                while (details := (await w.get(f"/jobs/{JOB}"))[1])["state"] != "RUNNING":
                    pass
                assert details["firesteel-progress"] == ""
            finally:
                await back.stop()

    run(scenario())


def test_a_job_that_waits_for_a_host_can_be_cancelled() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.jobmaster.stop()
            await w.rest.submit(graph(), {SHA: BLOB})
            while not (await w.get("/jobs/overview"))[1]["jobs"][0].get("firesteel-progress", "").startswith("waiting"):
                pass
            await w.rest.cancel(JOB)
            result = await w.rest.execution_result(JOB, WAIT_MS)
            assert result is not None
            assert result["application-status"] == "CANCELED"

    run(scenario())


def test_a_dispatcher_that_was_cut_off_leaves_its_jobmaster_alone_and_leads_it_again() -> None:
    async def scenario() -> None:
        # Nobody listens at the address: that is noticed by heartbeats in a row, long before the time is over for which
        # a silent JobMaster is waited for.
        async with world(options={"heartbeat.interval": "100 ms", "heartbeat.timeout": "60 s"}) as w:
            await w.submit()
            await w.jobmaster.wait_for("details")
            port = int(w.jobmaster.address.rpartition(":")[2])
            await w.jobmaster.stop()  # the host, and with it the JobMaster
            details: dict[str, Any] = {}
            # The host has to be missed as well: where it answers, the silence would be the JobMaster's own.
            while "the JobMaster host can't be reached" not in details.get("firesteel-progress", ""):
                details = (await w.get(f"/jobs/{JOB}"))[1]
            assert details["state"] == "RECONCILING"
            back = w.host.peer = w.host.new_peer()
            await back.start("127.0.0.1", port)
            try:
                await back.wait_for("adopt")
                while (details := (await w.get(f"/jobs/{JOB}"))[1])["state"] != "RUNNING":
                    pass
                assert details["firesteel-progress"] == ""
                assert (back.of("cancel"), back.of("start_job")) == ([], [])
            finally:
                await back.stop()

    run(scenario())


def test_a_silent_jobmaster_whose_host_answers_is_given_up() -> None:
    async def scenario() -> None:
        async with world(options={"heartbeat.interval": "50 ms", "heartbeat.timeout": "250 ms"}) as w:
            w.service.jobs.admission.follows_jobmasters = True
            w.service.jobs.lasting = True
            await w.submit()
            await w.jobmaster.wait_for("details")
            w.host.silent = True
            await w.jobmaster.wait_for("start_job", 2)
            assert w.jobmaster.of("start_job")[-1]["given_up"] == ["jm"]
            w.host.silent = False
            while (await w.get(f"/jobs/{JOB}"))[1]["state"] != "RUNNING":
                pass
            assert w.jobmaster.of("cancel") == []

    run(scenario())


def test_a_jobmaster_whose_port_is_closed_is_given_up_before_its_time_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It and its host are gone, and another host leads: nobody can tell but the system that refuses connections."""

    async def scenario() -> None:
        async with world(options={"heartbeat.interval": "50 ms", "heartbeat.timeout": "1 h"}) as w:
            w.service.jobs.lasting = True
            gone = Peer({})
            await gone.start("127.0.0.1", 0)
            w.host.elsewhere = gone.address
            await gone.stop()
            await w.submit()
            w.host.elsewhere, w.host.running = "", {}
            await w.jobmaster.wait_for("start_job", 2)
            assert w.jobmaster.of("start_job")[-1]["given_up"] == ["jm"]
            while (await w.get(f"/jobs/{JOB}"))[1]["state"] != "RUNNING":
                pass

    run(scenario())
    warnings = [record for record in caplog.records if record.getMessage().startswith(f"no details of job {JOB}")]
    assert len(warnings) == 1, "once for all questions"


def test_a_jobmaster_that_went_with_its_host_is_followed_as_soon_as_another_host_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("firesteel.rpc.client.CONNECT_SECONDS", 0.2)

    async def scenario() -> None:
        async with world(options={"heartbeat.interval": "1 h", "heartbeat.timeout": "2 h"}) as w:
            w.service.jobs.admission.follows_jobmasters = True
            w.service.jobs.lasting = True
            with nothing_answers() as address:
                w.host.elsewhere = address
                await w.submit()
                w.host.elsewhere, w.host.running = "", {}
                w.service.jobs.host_changed()
                await w.jobmaster.wait_for("start_job", 2)
            assert w.jobmaster.of("start_job")[-1]["given_up"] == ["jm"]
            while (await w.get(f"/jobs/{JOB}"))[1]["state"] != "RUNNING":
                pass
            w.host.running = {}
            w.service.jobs.host_changed()
            await w.jobmaster.wait_for("list_jobs", 2)
            while w.service.jobs.calls._running:
                await asyncio.sleep(0.01)
            assert len(w.jobmaster.of("start_job")) == 2, "somebody is reached there"

    run(scenario())


def test_a_late_answer_of_a_jobmaster_that_was_followed_deposes_nobody() -> None:
    async def scenario() -> None:
        async with world(options={"heartbeat.interval": "1 h", "heartbeat.timeout": "2 h"}) as w:
            w.service.jobs.lasting = True
            await w.submit()
            await w.jobmaster.wait_for("details")
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            while w.service.jobs.details._asking:
                await asyncio.sleep(0.01)
            seen = len(w.jobmaster.of("details"))

            async def late() -> Any:
                return await answer

            w.host.details = late
            w.service.jobs.details.outdated(JOB)
            refreshing = asyncio.ensure_future(w.service.jobs.details.refresh_job(JOB))
            await w.jobmaster.wait_for("details", seen + 1)
            w.host.details = archive
            w.service.jobs.jobmaster_lost(m.JobMasterLost(JOB, "killed", "jm"))
            await w.jobmaster.wait_for("start_job", 2)
            while (led := w.service.core.job(JOB)).jobmaster is None:
                await asyncio.sleep(0)
            answer.set_exception(RpcFault(RpcCode.NOT_FOUND, "no JobMaster here runs the job"))
            await refreshing
            while any(job == JOB for job, _ in w.service.jobs.details._asking):
                await asyncio.sleep(0.01)
            assert (led.phase, led.takeovers) == (JobPhase.LED, 1)
            assert len(w.jobmaster.of("start_job")) == 2

    run(scenario())


def test_ended_jobs_are_forgotten_when_there_are_too_many() -> None:
    async def scenario() -> None:
        options = {"completed-application-store.max-capacity": "2", "completed-application-store.cache-size": "0"}
        async with world(options=options) as w:
            jobs = [f"{number:032x}" for number in range(4)]
            for job in jobs:
                await w.rest.submit(graph(job), {SHA: BLOB})
                await w.jobmaster.wait_for("start_job", 1 + jobs.index(job))
                await w.dispatcher().job_finished(m.JobFinished(job, archive("FINISHED", jid=job)))
            assert [line["jid"] for line in (await w.get("/jobs/overview"))[1]["jobs"]] == jobs[2:]
            assert (await w.get(f"/jobs/{jobs[1]}"))[0] == 404
            assert (await w.get(f"/jobs/{jobs[2]}"))[1]["jid"] == jobs[2], "read from its file"
            while w.stored("ended") != jobs[2:]:
                await asyncio.sleep(0.01)
            payloads_in(w.store, "ended")[1].write_bytes(b"?")
            status, answer = await w.get(f"/jobs/{jobs[3]}")
            assert (status, "damaged" in answer["errors"][0]) == (500, True)

    run(scenario())


def test_the_next_dispatcher_removes_uploads_that_were_cut_off(tmp_path: Path) -> None:
    draft = tmp_path / ".upload-0f0e0d0c-0000-4000-8000-000000000000"

    async def scenario() -> None:
        draft.write_bytes(b"x = ")
        async with world(options={"web.upload.dir": str(tmp_path)}) as w:
            while draft.exists():
                await asyncio.sleep(0.01)
            assert (await w.get("/jars"))[1]["files"] == []

    run(scenario())


def _now() -> int:
    return SystemClock().epoch_ms()
