"""Which transactional ids are used, left alone, and aborted."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.core.errors import CheckpointVersionError, ProgramError
from firesteel.functions.two_phase import COMMITTED, CommitOutcome
from firesteel_kafka.transactional_ids import (
    DEFAULT_TIMEOUT_MS,
    IdPool,
    PoolState,
    ids_to_abort,
    transaction_timeout,
)
from firesteel_kafka.transactions import Transaction, evidence, verdict


def test_an_id_comes_back_when_no_checkpoint_holds_it() -> None:
    pool = IdPool("p", 3)
    first = pool.take()
    assert first == "p-3-0"
    pool.reached_barrier(first)
    assert pool.snapshot().prepared == ("p-3-0",)
    second = pool.take()
    pool.is_committed(first)  # checkpoint 1 is complete, and holds it
    assert pool.snapshot().prepared == ()
    assert pool.take() == "p-3-2", "the job may go on from checkpoint 1"
    pool.reached_barrier(second)
    pool.is_committed(second)  # checkpoint 2 is complete, and does not hold the first
    assert pool.take() == "p-3-0"


def test_an_id_that_is_not_committed_never_comes_back() -> None:
    pool = IdPool("p", 0)
    names = []
    for _ in range(5):  # their checkpoints are declined
        names.append(pool.take())
        pool.reached_barrier(names[-1])
    assert pool.snapshot().prepared == tuple(names)
    for name in names:
        pool.is_committed(name)
    pool.reached_barrier(pool.take())
    assert pool.take() not in names


def test_ids_of_the_restored_checkpoint_are_left_alone() -> None:
    pool = IdPool("p", 1)
    pool.restored([PoolState("p", 0, ("p-0-0", "p-1-0")), PoolState("p", 1, ("p-1-1",))])
    pool.uncommitted.add("p-1-1")  # committing it has to wait
    assert pool.take() == "p-1-2"
    assert pool.snapshot().prepared == ("p-1-1",)
    pool.is_committed("p-1-1")
    pool.reached_barrier("p-1-2")
    assert pool.snapshot().prepared == ("p-1-2",)
    pool.is_committed("p-1-2")
    assert pool.take() == "p-1-3", "another subtask may still be committing the others"


@given(st.lists(st.sampled_from(["barrier", "complete", "declined", "empty"]), max_size=40))
def test_whatever_happens_no_id_is_started_that_the_last_checkpoint_holds(steps: list[str]) -> None:
    pool = IdPool("p", 0)
    pending: list[str] = []
    names_in_snapshot: tuple[str, ...] = ()
    name = pool.take()
    for step in steps:
        if step == "empty":
            pool.reached_barrier(None)
        else:
            pool.reached_barrier(name)
            pending.append(name)
            name = ""
        snapshot = pool.snapshot().prepared
        assert sorted(snapshot) == sorted(pending), "the checkpoint names what it holds"
        if step in ("complete", "empty"):
            names_in_snapshot = snapshot
            for transactional_id in pending:
                pool.is_committed(transactional_id)
            pending = []
        if not name:
            name = pool.take()
            assert name not in names_in_snapshot
            assert name not in pending


def test_what_others_left_open_is_aborted_by_one_subtask_each() -> None:
    opened = ["p-0-0", "p-1-0", "p-2-7", "p-3-0", "q-1-0", "p-1-x", "pp-1-0", "p-1-0-0", "other"]
    reserved = {"p-1-0"}
    assert ids_to_abort(opened, {"p"}, 0, 2, reserved) == ["p-0-0", "p-2-7"]
    assert ids_to_abort(opened, {"p"}, 1, 2, reserved) == ["p-3-0"]
    assert ids_to_abort(opened, {"p", "q"}, 1, 2, reserved) == ["p-3-0", "q-1-0"], "the prefix was another one before"
    assert ids_to_abort(["a.b-0-0", "axb-0-0"], {"a.b"}, 0, 1, ()) == ["a.b-0-0"]


def test_states_come_back() -> None:
    state = PoolState("p", 4, ("p-4-0", "p-4-2"))
    assert PoolState.of(state.data(), 1) == state
    with pytest.raises(CheckpointVersionError, match="later release"):
        PoolState.of(state.data(), 2)


def test_time_outs_are_told_with_figures() -> None:
    assert transaction_timeout(None, None) == transaction_timeout(None, 900_000) == 900_000
    assert transaction_timeout(None, 7_200_000) == DEFAULT_TIMEOUT_MS
    assert transaction_timeout(60_000, 900_000) == transaction_timeout(60_000, None) == 60_000
    with pytest.raises(ProgramError, match=r"is 3,600,000, and the brokers allow 900,000"):
        transaction_timeout(3_600_000, 900_000)
    with pytest.raises(ProgramError, match="at least 1"):
        transaction_timeout(0, None)


def test_what_the_coordinator_answers_means() -> None:
    transaction = Transaction("p-0-1", 7, 2, began=1_000_000, timeout_ms=60_000)
    assert Transaction.of(transaction.data()) == transaction
    assert verdict(transaction, 0, 1_000_000) == COMMITTED
    for code in (14, 15, 16, 51):
        assert verdict(transaction, code, 1_000_000).outcome is CommitOutcome.RETRY
    assert verdict(transaction, -1, 1_000_000).outcome is CommitOutcome.UNKNOWN
    ran_out = verdict(transaction, 47, 1_100_000)
    assert ran_out.outcome is CommitOutcome.FAILED
    assert "it ran out: it was begun 100 s ago, and transaction.timeout.ms is 60 s" in ran_out.reason
    assert "another job of this prefix" in verdict(transaction, 90, 1_010_000).reason
    assert "forgotten" in verdict(transaction, 49, 1_010_000).reason
    assert "TransactionalId" in verdict(transaction, 53, 1_010_000).reason


def test_the_log_tells_what_became_of_a_transaction() -> None:
    transaction = Transaction("p-0-1", 7, 2, 1_000_000, 60_000, "t", 0, offset=40)

    def batch(offset: int, producer: int, epoch: int) -> bytes:
        header = struct.pack(">qiibIhiqqqhii", offset, 100, 0, 2, 0, 16, 0, 0, 0, producer, epoch, 0, 1)
        return header + bytes(50)

    own = batch(40, 7, 2)
    assert evidence(transaction, 0, 50, [], own) is True
    assert evidence(transaction, 0, 50, [(7, 40), (8, 2)], own) is False, "it was aborted"
    assert evidence(transaction, 0, 50, [(8, 40), (7, 45)], own) is True, "others were"
    assert evidence(transaction, 0, 40, [], own) is None, "something is open there"
    assert evidence(transaction, 1, -1, [], b"") is None, "the log does not go back as far"
    assert evidence(transaction, 0, 50, [], batch(40, 9, 2)) is None, "the topic was made anew"
    assert evidence(transaction, 0, 50, [], batch(43, 7, 2)) is None, "it was compacted"
    assert evidence(transaction, 0, 50, [], b"") is None
