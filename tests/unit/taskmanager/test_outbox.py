"""Reports that a JobMaster refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from firesteel.protocol import messages as m
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.testing.clock import ManualClock
from firesteel_taskmanager.instructions import JobMasterRef, ReportCheckpoint
from firesteel_taskmanager.outbox import Outbox

REF = JobMasterRef("ab" * 16, "http://jm", "token")


class Refuses:
    """A JobMaster that takes no acknowledgement."""

    def __init__(self, code: RpcCode) -> None:
        self.code = code
        self.declined: list[m.DeclineCheckpoint] = []

    async def acknowledge_checkpoints(self, message: m.AcknowledgeCheckpoints) -> None:
        raise RpcFault(self.code, "The body is too large.")

    async def decline_checkpoint(self, message: m.DeclineCheckpoint) -> None:
        self.declined.append(message)
        raise RpcFault(self.code, "refused, too")


def delivered(code: RpcCode) -> list[m.DeclineCheckpoint]:
    spawned: list[Coroutine[Any, Any, None]] = []
    lost: list[str] = []

    def spawn(coroutine: Coroutine[Any, Any, Any], name: str) -> Any:
        spawned.append(coroutine)
        return name

    client: Any = None
    outbox = Outbox(REF, client, ManualClock(), "tm", 10.0, lost.append, spawn)
    jobmaster: Any = Refuses(code)
    outbox.gateway = jobmaster
    outbox.report(ReportCheckpoint(REF, m.AcknowledgeCheckpoint("v_0_1", 7, {}, "x" * 99)))
    asyncio.run(spawned.pop())
    assert outbox.is_empty
    assert not lost
    return list(jobmaster.declined)


def test_an_acknowledgement_that_is_refused_becomes_a_decline_that_says_why() -> None:
    (declined,) = delivered(RpcCode.BAD_REQUEST)
    assert (declined.execution_id, declined.checkpoint_id, declined.reason) == (
        "v_0_1",
        7,
        "CHECKPOINT_ASYNC_EXCEPTION",
    )
    assert declined.failure is not None
    assert declined.failure["message"] == "its acknowledgement of 99 characters was refused: The body is too large."


def test_an_acknowledgement_of_an_attempt_that_is_over_becomes_no_decline() -> None:
    assert delivered(RpcCode.UNKNOWN_EXECUTION) == []


class TakesSome:
    """A JobMaster that refuses calls in which an execution is that it does not want to hear of."""

    def __init__(self, unwanted: str = "") -> None:
        self.unwanted = unwanted
        self.calls: list[list[str]] = []
        self.declined: list[str] = []

    async def acknowledge_checkpoints(self, message: m.AcknowledgeCheckpoints) -> None:
        names = [acknowledgement.execution_id for acknowledgement in message.acknowledgements]
        if self.unwanted in names:
            raise RpcFault(RpcCode.BAD_REQUEST, "no")
        self.calls.append(names)

    async def decline_checkpoint(self, message: m.DeclineCheckpoint) -> None:
        self.declined.append(message.execution_id)


def acknowledged(jobmaster: Any, *states: str) -> None:
    spawned: list[Coroutine[Any, Any, None]] = []

    def spawn(coroutine: Coroutine[Any, Any, Any], name: str) -> Any:
        spawned.append(coroutine)
        return name

    client: Any = None
    outbox = Outbox(REF, client, ManualClock(), "tm", 10.0, pytest.fail, spawn)
    outbox.gateway = jobmaster
    for number, state in enumerate(states):
        outbox.report(ReportCheckpoint(REF, m.AcknowledgeCheckpoint(f"v_{number}_0", 7, {}, state)))
    asyncio.run(spawned.pop())
    assert outbox.is_empty


def test_acknowledgements_that_wait_go_in_one_call() -> None:
    jobmaster = TakesSome()
    acknowledged(jobmaster, "{}", "{}", "{}")
    assert jobmaster.calls == [["v_0_0", "v_1_0", "v_2_0"]]


def test_acknowledgements_with_much_state_go_in_calls_of_their_own() -> None:
    jobmaster = TakesSome()
    acknowledged(jobmaster, "x" * (3 << 20), "x" * (3 << 20))
    assert jobmaster.calls == [["v_0_0"], ["v_1_0"]]


def test_of_acknowledgements_that_are_refused_together_the_good_ones_arrive() -> None:
    jobmaster = TakesSome("v_1_0")
    acknowledged(jobmaster, "{}", "{}", "{}")
    assert jobmaster.calls == [["v_0_0"], ["v_2_0"]]
    assert jobmaster.declined == ["v_1_0"]
