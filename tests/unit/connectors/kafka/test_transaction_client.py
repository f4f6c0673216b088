"""What a client of transaction coordinators asks for, with brokers that answer as told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.transaction import EndTxnRequest, InitProducerIdRequest

from firesteel.functions.two_phase import ALREADY_COMMITTED, CommitOutcome, CommitResult
from firesteel_kafka.transactions import Transaction, TransactionClient, _Undecided

TRANSACTION = Transaction("p-0-1", 7, 2, 1_000_000, 60_000, "t", 0, 40)
FENCED = 90


class Brokers(TransactionClient):
    """Answers requests with these codes in turn, and knows what the log tells."""

    def __init__(self, codes: Sequence[int | Exception], committed: bool | Exception) -> None:
        super().__init__(dict, lambda: 1_000_000)
        self.codes, self.committed = list(codes), committed
        self.requests: list[Any] = []

    async def _ask_coordinator(self, name: str, request: Any, *group: Any) -> Any:
        self.requests.append(type(request))
        answer = self.codes.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(error_code=answer)

    async def _was_committed(self, transaction: Transaction) -> bool:
        if isinstance(self.committed, Exception):
            raise self.committed
        return self.committed

    def result(self, *, again: bool) -> CommitResult:
        return asyncio.run(self.commit(TRANSACTION, 0.0, again=again))


@pytest.mark.parametrize("code", [47, 48, 49, FENCED])
def test_what_is_open_with_the_id_of_a_committed_transaction_is_aborted(code: int) -> None:
    brokers = Brokers([code, 0], True)
    assert brokers.result(again=True) == ALREADY_COMMITTED
    assert brokers.requests == [EndTxnRequest, InitProducerIdRequest]


@pytest.mark.parametrize("answer", [51, KafkaConnectionError("away")])
def test_a_commit_is_tried_again_until_nothing_is_open(answer: int | Exception) -> None:
    result = Brokers([FENCED, answer], True).result(again=True)
    assert result.outcome is CommitOutcome.RETRY
    assert "what is open with its id since can't be aborted" in result.reason


def test_a_log_that_can_not_tell_yet_is_asked_again() -> None:
    brokers = Brokers([FENCED], _Undecided())
    result = brokers.result(again=True)
    assert result.outcome is CommitOutcome.RETRY
    assert "an older transaction is open in its partition" in result.reason
    assert brokers.requests == [EndTxnRequest], "nothing is aborted before it is known"


@pytest.mark.parametrize(("committed", "again"), [(False, True), (True, False)])
def test_a_lost_transaction_is_an_error_and_nothing_is_aborted(committed: bool, again: bool) -> None:
    brokers = Brokers([FENCED], committed)
    assert brokers.result(again=again).outcome is CommitOutcome.FAILED
    assert brokers.requests == [EndTxnRequest]
