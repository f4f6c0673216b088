"""The bookkeeping of slots, with a driver that is played."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from firesteel.core.errors import FleetError
from firesteel.protocol.fleet import SlotLaunch, SlotOutcome
from firesteel.spark.context import OwnContext
from firesteel.spark.own_thread import OwnThread
from firesteel.spark.slot_jobs import SlotJobs
from firesteel.spark.slot_task import encode_end


def slot_main(launches: Iterator[SlotLaunch]) -> Iterator[object]:
    yield from launches


def launch(name: str, executor: str = "1") -> SlotLaunch:
    return SlotLaunch(name, "tm", executor, "/door")


class Driver:
    """Plays the driver JVM, its context, the thread before it and ``Slots.java``."""

    log = Path("/nowhere")

    def __init__(self, *known: str) -> None:
        self.running = True
        self.jobs: dict[str, str | None] = dict.fromkeys(known)
        self.cancelled: list[str] = []
        self.while_submitting: Callable[[], None] = lambda: None
        self.is_stuck = False
        self.executors = {"", "1"}
        spark = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: None))
        self.context = cast(OwnContext, SimpleNamespace(slots=self, spark=spark))

    def is_running(self) -> bool:
        return self.running

    def exit_reason(self) -> str:
        return "killed by signal 9"

    def call(self, function: Callable[[], Any], timeout: float | None = None) -> Any:
        if self.is_stuck:
            raise TimeoutError
        if not self.running:
            raise ConnectionRefusedError("gone")
        return function()

    def started(self) -> str:
        return "\n".join(self.jobs)

    def takeEnded(self) -> str:
        ended = {name: end for name, end in self.jobs.items() if end is not None}
        for name in ended:
            del self.jobs[name]
        return "".join(f"{name}\t{end}\n" for name, end in ended.items())

    def cancel(self, context: object, name: str, milliseconds: int) -> bool:
        self.cancelled.append(name)
        self.jobs[name] = "!Job 3 cancelled"
        return True

    def submit(self, context: OwnContext, slot: SlotLaunch, task: object, executor_id: str = "") -> bool:
        self.while_submitting()
        if executor_id not in self.executors:
            return False
        self.jobs[slot.allocation_id] = None
        return True


def connect(driver: Driver, *, outlive: bool = True) -> SlotJobs:
    jobs = SlotJobs(slot_main, outlive=outlive)
    vars(jobs)["submit"] = driver.submit
    jobs.connect(cast(OwnThread, driver), driver.context, driver)
    return jobs


def test_a_slot_is_reported_once_with_what_its_task_yielded() -> None:
    driver = Driver()
    jobs = connect(driver)
    jobs.start(launch("a"), "1")
    assert jobs.take_ended() == []
    driver.jobs["a"] = "=" + encode_end(SlotOutcome.RETURNED, "well\tdone").decode()
    assert jobs.take_ended() == [("a", SlotOutcome.RETURNED, "well\tdone")]
    assert jobs.take_ended() == []
    jobs.start(launch("a"), "1")


def test_slots_of_a_driver_that_was_taken_over_are_known() -> None:
    driver = Driver("old")
    jobs = connect(driver)
    assert jobs.known() == {"old"}
    with pytest.raises(FleetError, match="Slot old was started before"):
        jobs.start(launch("old"), "1")
    driver.jobs["old"] = "!Job aborted"
    assert jobs.take_ended() == [("old", SlotOutcome.LOST, "Job aborted")]


def test_without_its_executor_a_slot_is_misplaced() -> None:
    jobs = connect(Driver())
    jobs.start(launch("a", "7"), "7")
    assert jobs.take_ended() == [("a", SlotOutcome.MISPLACED, "executor 7 is not attached to the driver")]
    assert jobs.known() == frozenset()


def test_a_cancelled_slot_says_so() -> None:
    driver = Driver()
    jobs = connect(driver)
    jobs.start(launch("a"), "1")
    jobs.cancel("a")
    jobs.cancel("unknown")
    assert driver.cancelled == ["a"]
    assert jobs.take_ended() == [("a", SlotOutcome.LOST, "cancelled")]


def test_a_slot_that_is_cancelled_while_it_is_submitted_is_cancelled_after_that() -> None:
    driver = Driver()
    jobs = connect(driver)
    driver.while_submitting = lambda: jobs.cancel("a")
    jobs.start(launch("a"), "1")
    assert driver.cancelled == ["a"]
    assert jobs.take_ended() == [("a", SlotOutcome.LOST, "cancelled")], "it was cancelled before there was a job"


def test_when_the_driver_dies_slots_that_outlive_it_are_forgotten() -> None:
    driver = Driver()
    jobs = connect(driver)
    jobs.start(launch("a"), "1")
    driver.running = False
    assert jobs.take_ended() == []
    assert jobs.known() == frozenset()


def test_when_the_driver_dies_slots_that_die_with_it_are_lost() -> None:
    driver = Driver()
    jobs = connect(driver, outlive=False)
    jobs.start(launch("a"), "")
    driver.running = False
    assert jobs.take_ended() == [("a", SlotOutcome.LOST, "the Spark driver JVM ended (killed by signal 9)")]


def test_a_driver_that_does_not_answer_is_told_apart_from_one_without_news() -> None:
    driver = Driver()
    jobs = connect(driver)
    assert jobs.take_ended() == []
    jobs.start(launch("a"), "1")
    jobs.start(launch("b", "7"), "7")
    driver.is_stuck = True
    with pytest.raises(TimeoutError):
        jobs.take_ended()
    driver.is_stuck = False
    assert [name for name, _, _ in jobs.take_ended()] == ["b"], "an end got lost with the error"


def test_a_start_that_fails_leaves_nothing() -> None:
    driver = Driver()
    jobs = connect(driver)
    driver.running = False
    with pytest.raises(FleetError, match="Slot a could not be started: gone"):
        jobs.start(launch("a"), "1")
    assert jobs.known() == frozenset()


def test_after_the_end_running_slots_are_lost_or_left_to_others() -> None:
    for message, expected in ((None, []), ("stopped", [("a", SlotOutcome.LOST, "stopped")])):
        jobs = connect(Driver("a"))
        jobs.disconnect(message)
        assert jobs.take_ended() == expected
        with pytest.raises(FleetError, match="not running"):
            jobs.start(launch("b"), "1")
