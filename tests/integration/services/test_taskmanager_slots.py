"""A TaskManager between a ResourceManager, a JobMaster and slot processes."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from firesteel.config import Settings
from firesteel.config.memory import taskmanager_memory
from firesteel.core.errors import FencedError
from firesteel.core.secret import job_secret
from firesteel.protocol import messages as m
from firesteel.protocol.fleet import SlotLaunch
from firesteel.protocol.message import RpcFault
from firesteel.protocol.slot_channel import encode
from tests.integration.services.cluster_peers import SECRET, eventually
from tests.integration.services.cluster_peers import start_slot_process as start_process
from tests.integration.services.taskmanager_world import World, run, world


@pytest.mark.smoke
def test_a_job_runs_from_its_slots_to_its_end(tmp_path: Path) -> None:
    disks = [tmp_path / "a", tmp_path / "b"]

    async def scenario() -> None:
        memory = taskmanager_memory(Settings({"taskmanager.memory.process.size": "1728m"}))
        options = {"execution.checkpointing.local-backup.dirs": ",".join(map(str, disks))}
        async with world(options, memory=memory) as w:
            await asyncio.gather(w.slot("a", 0, "source", "tells"), w.slot("b", 1, "quick"))
            await w.jobmaster.wait(
                lambda: {s["allocation_id"] for c in w.jobmaster.of("offer_slots") for s in c["slots"]} == {"a", "b"}
            )
            await asyncio.gather(w.submit("src"), w.submit("x", "y", allocation="b"))
            await w.jobmaster.wait_for("end_of_data")
            await w.tm.notify_checkpoint_complete(m.NotifyCheckpoint("job", {"a": ("src",)}, 1))
            states = await w.states(9)
            for execution in ("src", "x", "y"):
                mine = [state for name, state in states if name == execution]
                assert mine == ["INITIALIZING", "RUNNING", "FINISHED"]
            assert len(w.jobmaster.of("blob")) == 1, "both slots need the same blob"
            assert "blobs chain\n" in "".join(w.printed)
            assert f"the secret is {job_secret(SECRET, 's')}\n" in "".join(w.printed)
            assert f"managed: {memory.managed // 2}\n" in "".join(w.printed), "a slot's share"
            texts = [line.partition("local: ")[2] for line in "".join(w.printed).splitlines() if "local: " in line]
            local = [Path(path) for path in texts]
            assert [path.parents[1] for path in local] == disks
            assert all(path.name == "job" and path.is_dir() for path in local)
            assert "".join(w.printed).count("façade done\n") == 2
            report = await w.tm.heartbeat_jobmaster(m.HeartbeatFromJobMaster("job", ("a", "b"), "tm"))
            assert report.executions == {"src": "FINISHED", "x": "FINISHED", "y": "FINISHED"}
            collected = await w.tm.collect(m.Collect("x", 5, 100, 0))
            assert (collected.offset, collected.count, collected.end) == (5, 2, True)
            assert base64.b64decode(collected.data) == b"results"
            for allocation in ("a", "b"):
                await w.tm.free_slot(m.FreeSlot(allocation, "job ended"))
                await w.free(allocation)
            assert [s.state for s in (await w.tm.heartbeat()).slot_report] == ["FREE", "FREE"]
            assert not w.jobmaster.of("fail_slot")
            assert not any(path.exists() for path in local), "they go with the job"
            assert all(path.parent.is_dir() for path in local)

    run(scenario())
    assert [list(disk.iterdir()) for disk in disks] == [[], []], "and with the TaskManager"


def test_what_a_slot_logs_is_logged_here(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scenario() -> None:
        async with world() as w:
            await w.active("quick")
            await w.submit("x")
            await w.states(3)

    run(scenario())
    assert ("slot.test", 20, "1 blobs") in caplog.record_tuples


@pytest.mark.parametrize(("cause", "expected"), [("", "was killed or ended"), ("the Spark driver JVM ended", "JVM")])
def test_a_killed_process_fails_its_tasks_and_its_files_go(cause: str, expected: str) -> None:
    async def scenario() -> None:
        async with world(resourcemanager={"cancel_slot": lambda _: {"cause": cause}}) as w:
            await w.active("files")
            await w.submit("x")
            await w.states(2)
            (pid,) = [s.pid for s in (await w.tm.heartbeat()).slot_report if s.pid]
            left = f"{w.service.channels.path}.left"
            await eventually(lambda: os.path.exists(left) and w.service.core.slots.find("a").process.temporary_files)  # type: ignore[union-attr]
            os.kill(pid, signal.SIGKILL)
            (failed,) = await w.jobmaster.wait_for("fail_slot")
            assert str(pid) in failed["cause"]
            assert expected in failed["cause"]
            assert (await w.states(3))[-1] == ("x", "FAILED")
            error = w.jobmaster.of("update_task_states")[-1]["updates"][-1]["error"]
            assert error["kind"] == "external"
            assert expected in error["message"]
            await w.free()
            await eventually(lambda: not os.path.exists(left))
            assert w.resourcemanager.of("cancel_slot")

    run(scenario())


def test_tasks_that_do_not_end_when_cancelled_are_killed() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.active("deaf")
            await w.submit("x")
            await w.states(2)
            await w.tm.cancel_tasks(m.CancelTasks("job"))
            assert (await w.states(3))[-1] == ("x", "CANCELED")
            await eventually(lambda: w.processes[0].poll() == -signal.SIGKILL)
            await w.free()

    run(scenario())


def test_a_slot_that_does_not_return_when_released_is_killed() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.active("deaf")
            await w.tm.free_slot(m.FreeSlot("a", "done"))
            await w.free()
            assert w.processes[0].wait() == -signal.SIGKILL
            assert w.resourcemanager.of("cancel_slot")

    run(scenario())


def test_a_slot_that_the_job_refuses_is_released() -> None:
    async def scenario() -> None:
        async with world(jobmaster={"offer_slots": lambda _: {"accepted": []}}) as w:
            await w.slot()
            await w.free()
            assert w.processes[0].wait() == 0

    run(scenario())


def test_a_second_copy_of_a_slot_returns() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.active()
            copy = start_process(SlotLaunch("a", "tm", "driver", str(w.service.channels.path)))
            w.processes.append(copy)
            await eventually(lambda: copy.poll() is not None)
            assert copy.returncode == 0
            assert w.processes[0].poll() is None

    run(scenario())


def test_stopping_ends_processes_also_those_that_do_not_listen() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.slot("a", 0, "deaf")
            await w.slot("b", 1)
            await w.jobmaster.wait(lambda: sum(len(c["slots"]) for c in w.jobmaster.of("offer_slots")) == 2)

    run(scenario())


async def stopped_with_a_task(update_task_states: Any) -> World:
    """A TaskManager that stops while its JobMaster answers so."""
    async with world(jobmaster={"update_task_states": update_task_states}) as w:
        await w.active()
        await w.submit("x")
        await w.states(1)
        async with asyncio.timeout(60):
            await w.service.stop()
    return w


def test_a_taskmanager_that_stops_says_so_before_it_is_gone() -> None:
    """Else the JobMaster would send tasks to an address where nothing answers any more."""

    async def slow(_: Any) -> dict[str, Any]:
        await asyncio.sleep(0.5)
        return {}

    async def scenario() -> None:
        w = await stopped_with_a_task(slow)
        assert ("x", "FAILED") in w._states()
        assert [call["allocation_id"] for call in w.jobmaster.of("fail_slot")] == ["a"]

    run(scenario())


def test_a_taskmanager_that_stops_does_not_wait_for_jobmasters_without_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel_taskmanager.jobmasters.LAST_REPORTS_SECONDS", 0.1)

    async def never(_: Any) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def scenario() -> None:
        w = await stopped_with_a_task(never)
        assert w.jobmaster.of("fail_slot") == []

    run(scenario())


def test_a_jobmaster_that_is_silent_loses_its_slots() -> None:
    async def scenario() -> None:
        async with world({"heartbeat.timeout": "400 ms"}) as w:
            await w.active()
            await w.submit("x")
            await w.free()

    run(scenario())


def test_a_blob_that_is_not_what_it_should_be_is_refused() -> None:
    async def scenario() -> None:
        async with world(wrong_blob=True) as w:
            await w.active()
            with pytest.raises(RpcFault, match="SHA-256"):
                await w.submit("x")
            assert w.jobmaster.of("update_task_states") == []

    run(scenario())


def test_tasks_of_a_deposed_jobmaster_are_refused() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.active()
            with pytest.raises(FencedError):
                await w.tm.submit_tasks(m.SubmitTasks("job", "a", "old token", {}, ""))

    run(scenario())


def test_a_slot_can_be_freed_while_nobody_answers_its_offer() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.jobmaster.stop()
            await w.slot()
            await eventually(lambda: "a" in [x.allocation_id for x in w.service.core.slots if x.process])
            await w.tm.free_slot(m.FreeSlot("a", "done"))
            await w.free()

    run(scenario())


def test_a_jobmaster_that_fails_at_an_offer_does_not_get_the_slot() -> None:
    def answer(_: Any) -> Any:
        raise RuntimeError("a bug in the JobMaster")

    async def scenario() -> None:
        async with world(jobmaster={"offer_slots": answer}) as w:
            await w.slot()
            await w.free()
            assert w.processes[0].wait() == 0

    run(scenario())


def test_a_lost_resourcemanager_is_found_again() -> None:
    async def scenario() -> None:
        async with world({"heartbeat.timeout": "300 ms"}) as w:
            await w.resourcemanager.wait_for("register_taskmanager", 3)  # it sends no heartbeats

    run(scenario())


def test_a_process_that_talks_nonsense_is_cut_off() -> None:
    async def scenario() -> None:
        async with world() as w:
            reader, writer = await asyncio.open_unix_connection(w.service.channels.path)
            writer.write(b"\xff" * 64)
            assert await reader.read() == b""
            writer.close()
            reader, writer = await asyncio.open_unix_connection(w.service.channels.path)
            writer.write(encode({"type": "pong", "nonce": 1}))
            assert await reader.read() == b""
            writer.close()
            await w.active("malformed")
            (failed,) = await w.jobmaster.wait_for("fail_slot")
            assert "malformed 'collect_result'" in failed["cause"]
            await w.free()
            assert w.service.failure is None

    run(scenario())
