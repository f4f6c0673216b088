"""The wrapper around a slot's function: nothing may be raised into Spark, nothing is unpickled on the way back."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from firesteel.protocol.fleet import SlotLaunch, SlotOutcome
from firesteel.spark.slot_task import SlotTask, decode_end, encode_end, encode_launch, probe

LAUNCH = SlotLaunch("a" * 32, "tm-1", "7", "/run/x.sock")


def returns(launches: Iterator[SlotLaunch]) -> Iterator[object]:
    assert list(launches) == [LAUNCH]
    yield "anything"


def misplaced(launches: Iterator[SlotLaunch]) -> Iterator[object]:
    yield SlotOutcome.MISPLACED, f"wanted {next(launches).executor_id}"


def plain_misplaced(launches: Iterator[SlotLaunch]) -> Iterator[object]:
    yield SlotOutcome.MISPLACED


def raises(launches: Iterator[SlotLaunch]) -> Iterator[object]:
    yield SlotOutcome.RETURNED
    raise RuntimeError("boom")


def exits(launches: Iterator[SlotLaunch]) -> Iterator[object]:
    raise SystemExit(3)
    yield


def interrupted(launches: Iterator[SlotLaunch]) -> Iterator[object]:
    raise KeyboardInterrupt
    yield


def verbose(launches: Iterator[SlotLaunch]) -> Iterator[object]:
    raise RuntimeError("x" * 1_000_000)
    yield


def run(main: object) -> tuple[SlotOutcome, str]:
    (data,) = SlotTask(pickle.dumps(main))(iter([encode_launch(LAUNCH)]))
    return decode_end(data)


@pytest.mark.parametrize(
    ("main", "outcome", "text"),
    [
        (returns, SlotOutcome.RETURNED, ""),
        (probe, SlotOutcome.RETURNED, ""),
        (misplaced, SlotOutcome.MISPLACED, "wanted 7"),
        (plain_misplaced, SlotOutcome.MISPLACED, ""),
        (raises, SlotOutcome.LOST, "RuntimeError: boom"),
        (exits, SlotOutcome.LOST, "SystemExit: 3"),
        (interrupted, SlotOutcome.LOST, "KeyboardInterrupt"),
    ],
)
def test_how_a_function_ends_is_what_comes_back(main: object, outcome: SlotOutcome, text: str) -> None:
    shown_outcome, message = run(main)
    assert shown_outcome is outcome
    assert text in message


def test_a_function_that_cannot_be_loaded_is_lost_not_raised() -> None:
    pickled = pickle.dumps(returns).replace(b"returns", b"mislaid")
    (data,) = SlotTask(pickled)(iter([encode_launch(LAUNCH)]))
    outcome, message = decode_end(data)
    assert outcome is SlotOutcome.LOST
    assert "mislaid" in message


def test_a_malformed_launch_is_lost_not_raised() -> None:
    (data,) = SlotTask(pickle.dumps(returns))(iter([b"{}"]))
    assert decode_end(data)[0] is SlotOutcome.LOST


def test_long_messages_are_cut() -> None:
    assert len(run(verbose)[1]) <= 8_000


def test_an_end_survives_its_way() -> None:
    assert decode_end(encode_end(SlotOutcome.MISPLACED, 'a "ä" \n b')) == (SlotOutcome.MISPLACED, 'a "ä" \n b')


def test_on_another_executor_it_gives_up_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_EXECUTOR_ID", "8")
    (data,) = SlotTask(b"can't be unpickled")(iter([encode_launch(LAUNCH)]))
    assert decode_end(data) == (SlotOutcome.MISPLACED, "it runs on executor 8 and belongs to 7")
    monkeypatch.setenv("SPARK_EXECUTOR_ID", "7")
    assert run(misplaced) == (SlotOutcome.MISPLACED, "wanted 7")
