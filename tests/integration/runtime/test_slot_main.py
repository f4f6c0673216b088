"""Slots as processes: registration, jobs of several tasks, results, output, ends."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import pytest

from firesteel.graph.specs import OperatorKind, OutputSpec, PartitionerKind
from tests.integration.runtime.chains import line, numbers, spec, split
from tests.integration.runtime.slot_process import SlotProcess, vertex_id

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="slots need Unix sockets")


def test_a_chain_gives_its_results_and_finishes(slot: SlotProcess) -> None:
    (task,) = slot.deploy([line(numbers(0, 9), spec(OperatorKind.MAP, lambda n: n * 10), spec(OperatorKind.COLLECT))])
    slot.wait_for_state("INITIALIZING")
    slot.wait_for_state("RUNNING")
    slot.give_splits([split(0, 10)])
    assert slot.collect_all(task) == list(range(0, 100, 10))
    done = slot.wait_for_state("FINISHED")
    assert done["metrics"]["numRecordsIn"] == 10
    assert done["error"] is None
    assert slot.release() == "OUTCOME RETURNED"


BEYOND_LOOPBACK = {"FIRESTEEL_SLOT_NETWORK": '{"bind_host": "0.0.0.0", "host": "127.0.0.1", "transport": "AUTO"}'}


@pytest.mark.smoke
@pytest.mark.parametrize("nodes", ["one node", "two nodes"])
def test_a_keyed_exchange_between_two_slots(start_slot: Callable[..., SlotProcess], nodes: str) -> None:
    variables = BEYOND_LOOPBACK if nodes == "two nodes" else {}
    slots = sorted((start_slot(variables=variables), start_slot(variables=variables)), key=lambda s: s.allocation_id)
    addresses: dict[str, Any] = {str(s.allocation_id): dict(s.registration["data_address"]) for s in slots}
    for name, address in addresses.items():
        assert set(address) == ({"unix", "node", "tcp"} if nodes == "two nodes" else {"unix", "node"})
        if nodes == "two nodes":
            address["node"] = f"that of {name}"
    ids = [str(s.allocation_id) for s in slots]
    chains = [
        line(
            numbers(0, 0),
            spec(OperatorKind.MAP, lambda n: (n % 100, 1)),
            output=OutputSpec(1, 0, PartitionerKind.HASH, key_selector=operator.itemgetter(0)),
        ),
        line(
            spec(OperatorKind.REDUCE, lambda a, b: (a[0], a[1] + b[1]), key_selectors=(operator.itemgetter(0),)),
            spec(OperatorKind.COLLECT),
        ),
    ]
    executions = []
    for i, slot in enumerate(slots):
        executions.append(
            slot.deploy(
                chains,
                [(0, 1, "HASH")],
                parallelism=[2, 2],
                subtasks={0: [i], 1: [i]},
                placement={vertex_id(0): ids, vertex_id(1): ids},
                peers=addresses,
            )
        )
    for i, slot in enumerate(slots):
        slot.give_splits([split(i * 5000, (i + 1) * 5000)])
    results = [slot.collect_all(executions[i][1]) for i, slot in enumerate(slots)]
    assert sum(map(len, results)) == 10_000
    keys = [{key for key, _ in part} for part in results]
    assert not keys[0] & keys[1]
    assert all(keys)
    counts = {key: count for part in results for key, count in part}
    assert counts == dict.fromkeys(range(100), 100)
    for slot in slots:
        slot.wait_for_state("FINISHED", executions[0][1] if slot is slots[0] else executions[1][1])
        assert slot.release() == "OUTCOME RETURNED"


def test_user_code_finds_nothing_of_the_cluster_in_its_environment(start_slot: Callable[..., SlotProcess]) -> None:
    def look(_: int) -> list[str]:
        import os
        import subprocess

        of_a_child = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
        return [*os.environ, *(line.partition("=")[0] for line in of_a_child.splitlines())]

    wiring = {**BEYOND_LOOPBACK, "FIRESTEEL_RUN_DIRECTORY": "/r", "SPARK_LOCAL_DIRS": "/l", "_SPARK_AUTH_SECRET": "s"}
    slot = start_slot(variables={**wiring, "USERS_OWN": "1", "FIRESTEEL_SECRET": "s"}, executor_id="5", environment="5")
    (task,) = slot.deploy([line(numbers(0, 0), spec(OperatorKind.MAP, look), spec(OperatorKind.COLLECT))])
    slot.give_splits([split(0, 1)])
    (names,) = slot.collect_all(task)
    assert names.count("USERS_OWN") == 2
    assert [name for name in names if name.startswith(("FIRESTEEL", "SPARK", "_SPARK", "PYSPARK", "_PYSPARK"))] == []
    slot.wait_for_state("FINISHED")
    assert slot.release() == "OUTCOME RETURNED"


def test_a_slot_that_can_not_listen_says_why(start_slot: Callable[..., SlotProcess]) -> None:
    network = '{"bind_host": "192.0.2.1", "host": "192.0.2.1", "transport": "TCP"}'
    slot = start_slot(variables={"FIRESTEEL_SLOT_NETWORK": network}, calls=False)
    outcome = slot.outcome()
    assert outcome.startswith("OUTCOME UNREGISTERED can't listen on 'tcp:192.0.2.1"), outcome


def test_a_second_copy_is_told_so_and_returns(start_slot: Callable[..., SlotProcess]) -> None:
    assert start_slot(accept=False).outcome() == "OUTCOME MISPLACED known already"


def test_a_slot_on_the_wrong_executor_returns_at_once(start_slot: Callable[..., SlotProcess]) -> None:
    assert start_slot(executor_id="1", environment="2").outcome() == (
        "OUTCOME MISPLACED runs on executor 2, belongs to 1"
    )


def test_a_slot_ends_when_its_taskmanager_is_gone(slot: SlotProcess) -> None:
    slot.deploy([line(numbers(0, 0), spec(OperatorKind.PRINT))])
    slot.wait_for_state("RUNNING")
    slot.hang_up()
    assert slot.outcome() == "OUTCOME RETURNED"


def test_pings_are_answered_while_user_code_sleeps(slot: SlotProcess) -> None:
    def sleep(value: int) -> int:
        import time

        time.sleep(3600)
        return value

    (task,) = slot.deploy([line(numbers(0, 0), spec(OperatorKind.MAP, sleep), spec(OperatorKind.PRINT))])
    slot.give_splits([split(0, 5)])
    slot.send({"type": "ping", "nonce": 7})
    assert slot.wait_for("pong")[0]["nonce"] == 7
    slot.send({"type": "cancel", "execution_ids": None, "interval_ms": 1000})
    slot.wait_for_state("CANCELED", task)


def test_output_of_the_program_arrives_before_the_end(slot: SlotProcess) -> None:
    def shout(value: int) -> int:
        import sys

        print("mapping", value)
        sys.stderr.write("no line end")
        return value

    slot.deploy(
        [line(numbers(0, 0), spec(OperatorKind.MAP, shout), spec(OperatorKind.PRINT, extra={"identifier": "out"}))]
    )
    slot.give_splits([split(3, 5)])
    slot.wait_for_state("FINISHED")
    assert slot.printed() == "mapping 3\nout> 3\nmapping 4\nout> 4\n" or (
        slot.printed() == "mapping 3\nmapping 4\nout> 3\nout> 4\n"
    )
    assert slot.printed("stderr") == "no line end" * 2
    assert slot.release() == "OUTCOME RETURNED"


def test_one_record_that_yields_millions_keeps_memory_flat_and_can_be_cancelled(slot: SlotProcess) -> None:
    def many(value: int) -> Any:
        for i in range(10_000_000):
            yield (value, i)

    (task,) = slot.deploy([line(numbers(0, 0), spec(OperatorKind.FLAT_MAP, many), spec(OperatorKind.COLLECT))])
    slot.give_splits([split(0, 1)])
    offset = 0
    for _ in range(5):
        results, answer = slot.collect(task, offset)
        assert results[0] == (0, offset)
        offset += len(results)
    assert not answer["end"]
    with open(f"/proc/{slot.process.pid}/status", encoding="utf-8") as status:
        peak = next(int(text.split()[1]) for text in status if text.startswith("VmHWM"))
    assert peak < 250_000, "kB"
    metrics = slot.wait_for("metrics", lambda m: task in m["tasks"])[0]["tasks"][task]
    assert metrics["backPressuredTimeMs"] >= 0
    slot.send({"type": "cancel", "execution_ids": [task], "interval_ms": 1000})
    slot.wait_for_state("CANCELED", task)
    assert slot.release() == "OUTCOME RETURNED"
