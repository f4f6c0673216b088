"""In-band elements: in order with the records, between slots and within one, without credit, and bounded."""

from __future__ import annotations

from collections import deque
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firesteel.core.errors import ProtocolError
from firesteel.runtime.exchange.channels import ChannelId
from firesteel.runtime.exchange.elements import append_element, dump_element, load_element
from firesteel.runtime.exchange.input import RemoteInputChannel
from firesteel.runtime.exchange.output import RemoteOutputChannel
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import (
    END_OF_INPUT,
    MAX_WATERMARK,
    MIN_WATERMARK,
    Barrier,
    Batch,
    CancelBarrier,
    EndOfInput,
    LatencyMarker,
    Watermark,
)
from tests.examples import examples
from tests.unit.exchange.support import FakeLink, ManualClock, Slots, batch_of

ID = ChannelId(1, 2, 3)


@pytest.mark.parametrize("timestamp", [MIN_WATERMARK, -1, 0, 1_700_000_000_000, MAX_WATERMARK])
@pytest.mark.parametrize("idle", [False, True])
def test_a_watermark_survives_the_wire(timestamp: int, idle: bool) -> None:
    mark = Watermark(timestamp, idle)
    assert load_element(memoryview(dump_element(mark)), "peer") == mark


@pytest.mark.parametrize(
    ("origin", "received"),
    [
        ("source 'clicks', split 'Straße-0' (subtask 1)", "source 'clicks', split 'Straße-0' (subtask 1)"),
        ("é" * 200, "é" * 150),  # 300 bytes
        ("a" + "é" * 200, "a" + "é" * 149),  # no half of a character
        ("torn \ud800", "torn \\ud800"),
    ],
)
def test_where_a_watermark_comes_from_goes_with_it(origin: str, received: str) -> None:
    element = load_element(memoryview(dump_element(Watermark(5, origin=origin))), "peer")
    assert isinstance(element, Watermark)
    assert (element, element.origin) == (Watermark(5), received)


def test_latency_markers_survive_the_wire() -> None:
    marker = LatencyMarker("0123abcd", 7, 1_700_000_000_000)
    assert load_element(memoryview(dump_element(marker)), "peer") == marker


def test_the_queue_of_a_reader_that_stands_still_holds_one_marker_of_each_source_behind_the_last_records() -> None:
    queue: deque[Any] = deque()
    for second in range(100):
        for subtask in (0, 1):
            append_element(queue, LatencyMarker("s", subtask, second))
        append_element(queue, Watermark(second))
    assert list(queue) == [LatencyMarker("s", 0, 0), LatencyMarker("s", 1, 0), Watermark(99)]
    queue.append(batch_of(1))
    assert append_element(queue, LatencyMarker("s", 0, 100)), "behind records it tells something new"


@pytest.mark.parametrize("element", [Barrier(2**40, 5, {"mode": "AT_LEAST_ONCE"}), Barrier(1, -1), CancelBarrier(7)])
def test_barriers_survive_the_wire(element: Barrier | CancelBarrier) -> None:
    assert load_element(memoryview(dump_element(element)), "peer") == element


@pytest.mark.parametrize("options", [b"[]", b"{", b"\xff"])
def test_options_of_a_barrier_that_are_none_are_refused(options: bytes) -> None:
    with pytest.raises(ProtocolError, match="options of a barrier"):
        load_element(memoryview(b"\x02" + bytes(16) + options), "peer")


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x02" + bytes(9), b"\x01\x02" + bytes(8), b"\x03" + bytes(20)])
def test_what_is_no_element_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="in-band element of unknown kind"):
        load_element(memoryview(data), "peer")


def test_of_watermarks_in_a_row_the_last_one_stays() -> None:
    queue: deque[Any] = deque()
    assert append_element(queue, Watermark(1))
    assert not append_element(queue, Watermark(2, idle=True))
    queue.append(batch_of(1))
    assert append_element(queue, Watermark(3))
    assert append_element(queue, END_OF_INPUT)
    assert append_element(queue, Watermark(4))
    assert [item for item in queue if isinstance(item, Watermark)] == [Watermark(2, True), Watermark(3), Watermark(4)]


class Wire:
    """An output and an input whose connection is a function call."""

    def __init__(self, credit_by_hand: bool = False, window: int = 1 << 16, timeout_ms: int = 100) -> None:
        self.clock = ManualClock()
        self.loop = TaskLoop(self.clock)
        self.out = RemoteOutputChannel(
            ID, FakeLink(), self.loop, attempt=0, window=window, max_chunk=4096, buffer_timeout_ms=timeout_ms
        )
        self.granted = 0
        self.inp = RemoteInputChannel(ID, self, "peer", attempt=0, window=window)
        self.inp.start()
        if not credit_by_hand:
            self.give_credit()

    def grant(self, channel: Any, amount: int) -> None:
        self.granted += amount

    def release_input(self, channel: Any) -> None: ...

    def give_credit(self) -> None:
        amount, self.granted = self.granted, 0
        if amount:
            self.out.grant(amount)

    def carry(self) -> None:
        from firesteel.runtime.exchange.frames import FrameKind, decode

        while self.out.sendable:
            pieces: list[Any] = []
            size = self.out.take_chunk(pieces)
            data = b"".join(pieces)
            assert len(data) == size
            for frame, _ in decode(memoryview(data), "test"):
                if frame.kind is FrameKind.DATA:
                    self.inp.receive(frame.payload, frame.value)
                elif frame.kind is FrameKind.ELEMENT:
                    self.inp.receive_element(frame.payload)
                else:
                    self.inp.receive_end()
            self.give_credit()

    def polled(self) -> list[Any]:
        items: list[Any] = []
        while (item := self.inp.poll()) is not None:
            items += item.values if isinstance(item, Batch) else [item]
        self.give_credit()
        return items


@pytest.fixture
def wire() -> Any:
    wires: list[Wire] = []

    def make(*arguments: Any, **settings: Any) -> Wire:
        wires.append(Wire(*arguments, **settings))
        return wires[-1]

    yield make
    for wire_ in wires:
        wire_.loop.close()


def test_an_element_without_records_before_it_goes_at_once_and_uses_no_credit(wire: Any) -> None:
    both = wire(credit_by_hand=True)
    both.out.grant(1)
    both.carry()
    both.out.send(Watermark(5))
    both.carry()
    assert both.polled() == [Watermark(5)]


def test_an_element_waits_for_the_records_before_it(wire: Any) -> None:
    both = wire(timeout_ms=100)
    both.out.write(batch_of(1, 2))
    both.out.send(Watermark(5))
    both.out.write(batch_of(3))
    both.carry()
    assert both.polled() == []
    both.out.flush()
    both.carry()
    assert both.polled() == [1, 2, Watermark(5), 3]


def test_an_element_is_appended_if_a_reader_in_another_thread_takes_the_one_that_it_would_replace() -> None:
    class Emptied(deque[Any]):
        def __setitem__(self, position: Any, item: Any) -> None:
            self.popleft()
            super().__setitem__(position, item)

    queue = Emptied([Watermark(1)])
    assert append_element(queue, Watermark(2)), "it has grown: the reader is to be woken"
    assert list(queue) == [Watermark(2)]


def test_elements_do_not_pile_up_while_nobody_reads(wire: Any) -> None:
    both = wire()
    for timestamp in range(1000):
        both.out.send(Watermark(timestamp))
        if timestamp == 500:
            both.carry()
    both.carry()
    assert len(both.inp.inbox.queue) == 1
    assert both.polled() == [Watermark(999)]


def test_a_sender_that_breaks_the_rules_is_refused(wire: Any) -> None:
    both = wire()
    both.out.end()
    both.carry()
    with pytest.raises(ProtocolError, match="after the end of input"):
        both.inp.receive_element(memoryview(dump_element(Watermark(1))))
    with pytest.raises(RuntimeError, match=r"send after end\(\)"):
        both.out.send(Watermark(1))
    large = wire(window=4096)
    large.inp.receive(memoryview(b"x" * 10), 20)
    with pytest.raises(ProtocolError, match="within a message"):
        large.inp.receive_element(memoryview(dump_element(Watermark(1))))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 40)),
        st.tuples(st.just("large"), st.just(1)),
        st.tuples(st.just("send"), st.booleans()),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("carry"), st.just(0)),
        st.tuples(st.just("poll"), st.just(0)),
    ),
    max_size=60,
)


def in_order(items: list[Any]) -> list[Any]:
    """Of watermarks in a row the last one."""
    runs = [list(run) for _, run in groupby(items, key=lambda item: isinstance(item, Watermark))]
    return [item for run in runs for item in (run[-1:] if isinstance(run[0], Watermark) else run)]


@settings(max_examples=examples(60))
@given(STEPS, st.sampled_from([600, 5000, 1 << 16]), st.sampled_from([-1, 0, 100]))
def test_records_and_watermarks_arrive_in_the_order_in_which_they_were_sent(
    steps: list[Any], window: int, timeout_ms: int
) -> None:
    both = Wire(window=window, timeout_ms=timeout_ms)
    try:
        sent: list[Any] = []
        items: list[Any] = []
        for number, (what, argument) in enumerate(steps):
            if what == "write":
                values = [(number, n) for n in range(argument)]
                both.out.write(Batch(list(values)))
                sent += values
            elif what == "large":
                both.out.write(Batch(["x" * 3000]))
                sent.append("x" * 3000)
            elif what == "send":
                both.out.send(Watermark(number, argument))
                sent.append(Watermark(number, argument))
            elif what == "flush":
                both.out.flush()
            elif what == "carry":
                both.carry()
            else:
                items += both.polled()
        both.out.end()
        for _ in range(10_000):
            both.carry()
            items += both.polled()
            if items and isinstance(items[-1], EndOfInput):
                break
        assert in_order(items) == [*in_order(sent), END_OF_INPUT]
    finally:
        both.loop.close()


def test_within_a_slot_and_between_two_it_looks_the_same(tmp_path: Path) -> None:
    slots = Slots(tmp_path, "ab").configure()
    try:
        for down, (up, there) in enumerate((("a", "a"), ("a", "b"))):
            output = slots[up].output(0, 0, down, there, 100)
            channel = slots[there].input(0, 0, down, up)
            output.write(batch_of(1))
            output.send(Watermark(7))
            output.write(batch_of(2))
            output.send(Watermark(8))
            output.send(Watermark(9, idle=True))
            output.end()
            slots.run()
            items: list[Any] = []
            while (item := channel.poll()) is not None:
                items += item.values if isinstance(item, Batch) else [item]
                slots.run()
            assert items == [1, Watermark(7), 2, Watermark(9, idle=True), END_OF_INPUT]
    finally:
        slots.close()
