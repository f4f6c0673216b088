"""The Spark executors of a TaskManager, by doubles: started, watched, replaced, ended; and the memory of its slots."""

from __future__ import annotations

import errno
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.config.memory import TaskManagerMemory
from firesteel.core.errors import FleetError
from firesteel.core.process import ProcessId, identify
from firesteel.protocol import messages as m
from firesteel.protocol.fleet import SlotLaunch
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel_taskmanager import executors as supervisor
from firesteel_taskmanager.memory import measure_trees, offer_to_oom_killer, proportional_set_size
from tests.integration.services.cluster_peers import client_of, eventually, start_slot_process
from tests.integration.services.taskmanager_world import World, run, world

MIB = 1 << 20


class Double:
    """An executor that does as it is told."""

    def __init__(self, spec: m.ExecutorSpec) -> None:
        self.spec, self.pid, self.reason = spec, 0, ""
        self.stopped = threading.Event()

    def die(self, reason: str) -> None:
        self.reason = reason

    def is_running(self) -> bool:
        return not self.reason and not self.stopped.is_set()

    def exit_reason(self) -> str:
        return self.reason

    def log_tail(self) -> str:
        return "ERROR: the last line of its log"

    def stop(self, grace: float) -> None:
        self.stopped.set()


class Machine:
    """Starts doubles, or does not."""

    def __init__(self) -> None:
        self.started: dict[str, Double] = {}
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def __call__(self, spec: m.ExecutorSpec) -> Double:
        self.entered.set()
        assert self.gate.wait(100)
        if self.error is not None:
            raise self.error
        self.started[spec.executor_id] = Double(spec)
        return self.started[spec.executor_id]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(supervisor, "LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(supervisor, "LOOK_SECONDS", 0.02)
    machine_ = Machine()
    yield machine_
    machine_.gate.set()
    assert all(double.stopped.is_set() for double in machine_.started.values()), "an executor was left behind"


def spec(executor_id: str, app: str = "app-1") -> m.ExecutorSpec:
    return m.ExecutorSpec(executor_id, "spark://CoarseGrainedScheduler@127.0.0.1:7", app, "a secret of Spark", 3)


async def start(w: World, *ids: str) -> None:
    for executor_id in ids:
        await w.tm.start_executor(spec(executor_id))


async def request(w: World, allocation: str, index: int = 0) -> dict[str, Any]:
    message = m.RequestSlot(index, allocation, "job", w.jobmaster.address, "jm token")
    return await client_of(w.service).call(
        w.service.address, "request_slot", message.to_plain(), w.service._link.bond.token
    )


async def slot(w: World, allocation: str, index: int, executor: str) -> None:
    """A slot whose process runs on this executor."""
    answer = await request(w, allocation, index)
    launch = SlotLaunch(allocation, "tm", executor, answer["control_socket"])
    w.processes.append(start_slot_process(launch))
    await w.jobmaster.wait(
        lambda: allocation in [s["allocation_id"] for c in w.jobmaster.of("offer_slots") for s in c["slots"]]
    )


def test_slots_start_on_the_newest_executor_and_an_older_one_stays_as_long_as_a_slot_uses_it(machine: Machine) -> None:
    async def scenario() -> None:
        async with world(executors=machine) as w:
            await start(w, "1", "1")
            await slot(w, "a", 0, "1")
            await start(w, "2")
            await eventually(lambda: "2" in machine.started)
            assert (await request(w, "b", 1))["executor_id"] == "2"
            await w.tm.free_slot(m.FreeSlot("b", "not needed"))
            await slot(w, "c", 1, "1")  # Spark began with it before the new executor came
            await w.tm.free_slot(m.FreeSlot("c", "done"))
            await w.free("c")
            assert machine.started["1"].is_running()
            assert w.processes[0].poll() is None
            await w.tm.free_slot(m.FreeSlot("a", "done"))
            await eventually(machine.started["1"].stopped.is_set)
            assert machine.started["2"].is_running()
            assert not w.resourcemanager.of("executor_lost")

    run(scenario())


def test_the_newest_executor_is_missed_when_it_ends_and_the_end_of_its_log_is_logged(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with world(executors=machine) as w:
            await start(w, "1")
            await eventually(lambda: "1" in machine.started)
            machine.started["1"].die("killed by signal 9")
            (lost,) = await w.resourcemanager.wait_for("executor_lost")
            assert (lost["taskmanager_id"], lost["executor_id"]) == ("tm", "1")
            assert "killed by signal 9" in lost["cause"]
            assert "the last line of its log" in caplog.text
            assert "a secret of Spark" not in caplog.text
            with pytest.raises(RpcFault, match="no Spark executor") as refused:
                await request(w, "a")
            assert refused.value.code is RpcCode.NO_RESOURCES
            await start(w, "2")
            assert (await request(w, "a"))["executor_id"] == "2"

    run(scenario())


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "the machine has no memory left"),
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full.*firesteel.run.directory"),
        (FleetError("Spark 9.9 was not tested"), "Spark 9.9 was not tested"),
    ],
)
def test_an_executor_that_can_not_be_started_is_reported_with_the_reason(
    machine: Machine, error: Exception, text: str
) -> None:
    machine.error = error

    async def scenario() -> None:
        async with world(executors=machine) as w:
            await start(w, "1")
            (lost,) = await w.resourcemanager.wait_for("executor_lost")
            assert re.search(text, lost["cause"]), lost["cause"]
            machine.error = None
            await start(w, "2")
            await eventually(lambda: "2" in machine.started)
            assert (await request(w, "a"))["executor_id"] == "2"

    run(scenario())


def test_a_registration_names_the_newest_executor(machine: Machine) -> None:
    async def scenario() -> None:
        async with world({"heartbeat.timeout": "400 ms"}, executors=machine) as w:
            assert w.resourcemanager.of("register_taskmanager")[0]["executor_id"] == ""
            await start(w, "41")
            await w.resourcemanager.wait(
                lambda: w.resourcemanager.of("register_taskmanager")[-1]["executor_id"] == "41"
            )

    run(scenario())


def test_an_executor_that_is_just_being_started_is_ended_with_the_taskmanager(machine: Machine) -> None:
    async def scenario() -> None:
        machine.gate.clear()
        async with world(executors=machine) as w:
            await start(w, "1")
            await eventually(machine.entered.is_set)
            threading.Timer(0.3, machine.gate.set).start()
        assert list(machine.started) == ["1"]

    run(scenario())


def test_a_taskmanager_of_embedded_mode_starts_none() -> None:
    async def scenario() -> None:
        async with world() as w:
            with pytest.raises(RpcFault, match="no executors of its own"):
                await w.tm.start_executor(spec("1"))

    run(scenario())


# -- memory


def memory(slot_mib: int) -> TaskManagerMemory:
    """Of a TaskManager with two slots."""
    return TaskManagerMemory(
        framework_heap=128 * MIB, framework_off_heap=128 * MIB, task_heap=2 * slot_mib * MIB, task_off_heap=0,
        network=0, managed=0, metaspace=256 * MIB, overhead=192 * MIB,
    )  # fmt: skip


def test_a_slot_that_takes_more_than_its_share_fails_by_name_and_its_neighbour_runs_on(machine: Machine) -> None:
    async def scenario() -> None:
        async with world(executors=machine, memory=memory(100)) as w:
            await start(w, "1")
            for allocation, index, behaviour in (("a", 0, "hog"), ("b", 1, "ok")):
                answer = await request(w, allocation, index)
                launch = SlotLaunch(allocation, "tm", "1", answer["control_socket"])
                w.processes.append(start_slot_process(launch, behaviour))
            await w.jobmaster.wait(lambda: sum(len(c["slots"]) for c in w.jobmaster.of("offer_slots")) == 2)
            async with w.heartbeats("a", "b"):
                await w.submit("small", allocation="b")
                await w.submit("big", allocation="a")
                await w.jobmaster.wait(lambda: ("big", "FAILED") in w._states())
                updates = [u for c in w.jobmaster.of("update_task_states") for u in c["updates"]]
                (error,) = [u["error"] for u in updates if u["state"] == "FAILED"]
                assert error["error_class"] == "firesteel.core.errors.TaskMemoryExceededError"
                assert "its share is 100 MiB" in error["message"]
                (failed,) = await w.jobmaster.wait_for("fail_slot")
                assert failed["allocation_id"] == "a"
                await eventually(lambda: w.processes[0].poll() == -signal.SIGKILL)
                await w.free("a")
                assert w.processes[1].poll() is None
                neighbour = w.service.core.slots.find("b")
                assert neighbour is not None
                assert neighbour.process is not None
                assert 0 < neighbour.process.memory < 100 * MIB

    run(scenario())


def test_the_kernel_takes_slots_first_when_memory_runs_out(machine: Machine) -> None:
    async def scenario() -> None:
        async with world(executors=machine) as w:
            await start(w, "1")
            await slot(w, "a", 0, "1")
            score = Path(f"/proc/{w.processes[0].pid}/oom_score_adj")
            assert int(score.read_text(encoding="ascii")) >= 500

    run(scenario())


PARENT = """
import os, sys
ballast = bytearray(os.urandom(16) * (4 << 20))  # 64 MiB, every page touched
if os.fork() == 0:
    print(os.getpid(), flush=True)
sys.stdin.read()
"""


def test_memory_is_measured_with_all_children_and_what_is_shared_counts_once() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdin is not None
    assert parent.stdout is not None
    try:
        child = int(parent.stdout.readline())
        parent_id, child_id = identify(parent.pid), identify(child)
        assert parent_id is not None
        assert child_id is not None
        alone = [proportional_set_size(parent.pid) or 0, proportional_set_size(child) or 0]
        assert all(30 * MIB < size < 60 * MIB for size in alone), "each has its half of what they share"
        measured = measure_trees(
            {"parent": parent_id, "child": child_id, "another": ProcessId(parent.pid, parent_id.start + 1)}
        )
        assert set(measured) == {"parent", "child"}
        assert 64 * MIB < measured["parent"].memory < 110 * MIB
        assert measured["child"].memory < 60 * MIB
        assert 0 <= measured["child"].cpu_seconds < measured["parent"].cpu_seconds < 30, "the child only waits"
        assert offer_to_oom_killer(child_id)
    finally:
        parent.stdin.close()
        parent.wait()
        parent.stdout.close()
    assert proportional_set_size(parent.pid) is None
    assert not offer_to_oom_killer(parent_id)
    assert measure_trees({"gone": parent_id}) == {}
