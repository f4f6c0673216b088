"""What threads do, seen from outside of them."""

from __future__ import annotations

import inspect
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from firesteel.core.stacks import Samples, ThreadSample, dump_threads, frames_of, other_threads, sample


@contextmanager
def waiting(name: str) -> Iterator[threading.Thread]:
    """A thread that waits."""
    ready, end = threading.Event(), threading.Event()

    def run() -> None:
        ready.set()
        end.wait()

    thread = threading.Thread(target=run, name=name)
    thread.start()
    ready.wait()
    try:
        yield thread
    finally:
        end.set()
        thread.join()


def test_a_dump_has_all_threads() -> None:
    with waiting("the one that waits"):
        dumps = {dump["threadName"]: dump["stringifiedThreadInfo"] for dump in dump_threads("here: ")}
    assert "in run" in dumps["here: the one that waits"]
    assert "(makes this dump)" in dumps[f"here: {threading.current_thread().name}"]


def test_a_stack_is_cut_at_its_outer_end() -> None:
    frame = inspect.currentframe()
    whole = frames_of(frame)
    assert whole[-1].startswith(f"{__name__}.test_a_stack_is_cut_at_its_outer_end:")
    assert [name.rpartition(":")[0] for name in frames_of(frame, 2)] == [n.rpartition(":")[0] for n in whole[-2:]]
    assert frames_of(None) == ()


def test_a_thread_that_uses_the_processor_is_on_it() -> None:
    with waiting("busy") as busy, waiting("idle") as idle:
        busy_id, idle_id = busy.ident or 0, idle.ident or 0
        clock = {busy_id: 0, idle_id: 0}

        def cpu_times() -> dict[int, int]:
            clock[busy_id] += 10**12  # more than any time that passes here
            return dict(clock)

        samples = sample(
            lambda: {
                busy_id: [ThreadSample("a")],
                idle_id: [ThreadSample("b"), ThreadSample("c", "elsewhere"), ThreadSample(None)],
            },
            5,
            0.0,
            sleep=lambda _: None,
            cpu_times=cpu_times,
        )
    seen = {key: (s.on_cpu.total(), s.off_cpu.total()) for key, s in samples.items()}
    assert seen == {"a": (5, 0), "b": (0, 5), "c": (0, 5)}
    assert list(samples["c"].off_cpu) == [("elsewhere",)]
    ((stack, _),) = samples["b"].off_cpu.items()
    assert any(".run:" in name for name in stack)
    assert Samples.from_plain(samples["b"].to_plain()) == samples["b"]


def test_what_changed_while_it_was_looked_at_does_not_count() -> None:
    with waiting("one") as thread:
        number = iter(range(100))
        samples = sample(lambda: {thread.ident or 0: [ThreadSample(str(next(number)))]}, 5, 0.0, sleep=lambda _: None)
    assert samples == {}


def test_sampling_ends_when_nobody_wants_it() -> None:
    goes_on = iter([True, True, False])
    with waiting("one"):
        samples = sample(other_threads, 1000, 0.0, wanted=lambda: next(goes_on), sleep=lambda _: None)
    assert samples["one"].off_cpu.total() + samples["one"].on_cpu.total() == 2


def test_what_works_is_seen_at_its_work_and_not_where_it_lets_others_in() -> None:
    """A loop that works for some milliseconds, and polls."""
    end, pauses = threading.Event(), threading.Event()

    def pause(seconds: float) -> None:
        pauses.wait(seconds)

    def work() -> None:
        for _ in range(200_000):
            pass

    def loop() -> None:
        while not end.is_set():
            work()
            select.select([], [], [], 0)

    thread = threading.Thread(target=loop, name="works")
    thread.start()
    try:
        samples = sample(other_threads, 40, 0.005, sleep=pause)["works"]
    finally:
        end.set()
        thread.join()
    stacks = samples.on_cpu + samples.off_cpu
    at_work = sum(count for stack, count in stacks.items() if any(".work:" in name for name in stack))
    assert at_work > stacks.total() * 0.6, stacks


def test_the_interpreter_is_left_as_it_was() -> None:
    before = sys.getswitchinterval()
    seen = []

    def look() -> dict[int, list[ThreadSample]]:
        seen.append(sys.getswitchinterval())
        if len(seen) == 1:
            sample(dict, 1, 0.0, sleep=lambda _: None)
            seen.append(sys.getswitchinterval())
        if len(seen) > 4:
            raise LookupError
        return {}

    with pytest.raises(LookupError):
        sample(look, 100, 0.0, sleep=lambda _: None)
    assert max(seen) < before / 10
    assert sys.getswitchinterval() == before
