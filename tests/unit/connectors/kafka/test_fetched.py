"""Answers of brokers are taken apart: aborted transactions, control batches, offsets in the middle of a batch."""

from __future__ import annotations

import pytest

from firesteel.core.errors import MalformedDataError
from firesteel_kafka.fetched import Fetched, Piece
from tests.unit.connectors.kafka.batches import ABORT, COMMIT, batch, fetched, marker

A, B = 7, 8


def everything(response: Fetched, most: int = 1000) -> list[Piece]:
    pieces = []
    while not response.over:
        pieces.append(response.take(most))
    return pieces


def values_of(piece: Piece) -> list[bytes | None]:
    return [record.value for record in piece.records]


def values(pieces: list[Piece]) -> list[bytes | None]:
    return [value for piece in pieces for value in values_of(piece)]


def test_records_with_their_offsets_and_timestamps() -> None:
    response = fetched(batch(5, [b"a", b"b"]) + batch(9, [b"c"], timestamp=50), 5)
    assert response.next_offset == 10
    (piece,) = everything(response)
    assert values_of(piece) == [b"a", b"b", b"c"]
    assert [record.offset for record in piece.records] == [5, 6, 9]
    assert piece.timestamps().tolist() == [1000, 1001, 50]
    assert piece.next_offset == 10


def test_records_before_the_offset_asked_for_are_left_out() -> None:
    (piece,) = everything(fetched(batch(0, [b"a", b"b", b"c"]), 2))
    assert values_of(piece) == [b"c"]
    assert piece.next_offset == 3


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_pieces_are_no_larger_than_asked_for_and_say_where_to_go_on(most: int) -> None:
    data = batch(0, [b"0", b"1", b"2"]) + batch(3, [b"3"]) + batch(4, [b"4", b"5"])
    pieces = everything(fetched(data), most)
    assert values(pieces) == [b"%d" % number for number in range(6)]
    assert all(0 < len(piece) <= most for piece in pieces)
    offset = 0
    for piece in pieces:
        offset += len(piece)
        assert piece.next_offset == offset
        assert values(everything(fetched(data, piece.next_offset))) == [b"%d" % n for n in range(offset, 6)]


def test_a_stop_cuts_records_and_control_batches_reach_it() -> None:
    (piece,) = everything(fetched(batch(0, [b"a", b"b", b"c"])))
    assert values_of(piece.until(2)) == [b"a", b"b"]
    assert piece.until(2).next_offset == 2
    (piece,) = everything(fetched(batch(0, [b"a"], producer=A, transactional=True) + marker(1, A, COMMIT)))
    assert (values_of(piece), piece.next_offset) == ([b"a"], 2)


def transactions() -> bytes:
    return (
        batch(0, [b"aborted"], producer=A, transactional=True)
        + batch(1, [b"kept"], producer=B, transactional=True)
        + batch(2, [b"plain"])
        + marker(3, A, ABORT)
        + batch(4, [b"later"], producer=A, transactional=True)
        + marker(5, A, COMMIT)
        + marker(6, B, COMMIT)
    )


def test_aborted_transactions_are_left_out_up_to_their_markers() -> None:
    pieces = everything(fetched(transactions(), aborted=[(A, 0)]))
    assert values(pieces) == [b"kept", b"plain", b"later"]
    assert pieces[-1].next_offset == 7


def test_a_reader_of_uncommitted_records_sees_all_but_markers() -> None:
    pieces = everything(fetched(transactions(), aborted=[(A, 0)], read_committed=False))
    assert values(pieces) == [b"aborted", b"kept", b"plain", b"later"]


def test_a_transaction_that_begins_behind_is_no_reason_to_leave_out() -> None:
    data = batch(0, [b"kept"], producer=A, transactional=True) + marker(1, A, COMMIT)
    data += batch(2, [b"aborted"], producer=A, transactional=True) + marker(3, A, ABORT)
    pieces = everything(fetched(data, aborted=[(A, 2)]))
    assert values(pieces) == [b"kept"]
    assert pieces[-1].next_offset == 4


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_codecs(codec: int) -> None:
    assert values(everything(fetched(batch(0, [b"x" * 500, b"y"], codec=codec)))) == [b"x" * 500, b"y"]


def test_a_damaged_batch_names_its_place() -> None:
    data = bytearray(batch(0, [b"a"]) + batch(1, [b"b"]))
    data[-3] ^= 1
    response = fetched(bytes(data))
    with pytest.raises(
        MalformedDataError, match="topic 't', partition 0, offset 1: the batch can't be read: its checks"
    ):
        everything(response, 1)
