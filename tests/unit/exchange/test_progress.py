"""Random graphs of tasks over several slots with tiny windows always come to their end, with every record in order."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firesteel.runtime.exchange import InputChannel, OutputChannel, sockets
from firesteel.runtime.records.batch import Batch, EndOfInput
from tests.examples import examples
from tests.unit.exchange.support import Slots


class Vertex:
    """A source, or a task that sends every batch on to one of its outputs."""

    def __init__(self, random: Random, records: list[list[Any]]) -> None:
        self.runnable = True
        self.random = random
        self.records = records  # batches that it makes by itself
        self.inputs: list[InputChannel] = []
        self.outputs: list[OutputChannel] = []
        self.sent: dict[OutputChannel, list[Any]] = {}
        self.received: dict[InputChannel, list[Any]] = {}
        self.most_queued = 0
        self.ended = False

    def wire(self) -> None:
        self.sent = {output: [] for output in self.outputs}
        self.received = {channel: [] for channel in self.inputs}
        for channel in self.inputs:
            channel.on_readable = self.wake
        for output in self.outputs:
            output.on_writable = self.wake

    def wake(self) -> None:
        self.runnable = True

    def step(self) -> None:
        if not all(output.writable for output in self.outputs):
            self.runnable = False
            return
        batch: Any = None
        if self.records:
            batch = self.batch(self.records.pop())
        else:
            readable = [channel for channel in self.inputs if channel.readable]
            if readable:
                channel = self.random.choice(readable)
                batch = channel.poll()
                if isinstance(batch, EndOfInput):
                    self.received[channel].append("END")
                    batch = None
                elif batch is not None:
                    self.received[channel] += values(batch)
            elif all(log[-1:] == ["END"] for log in self.received.values()):
                if not self.ended:
                    self.ended = True
                    for output in self.outputs:
                        output.end()
                        self.sent[output].append("END")
                self.runnable = False
            else:
                for output in self.outputs:
                    output.flush()
                self.runnable = False
        if batch is not None and self.outputs:
            output = self.random.choice(self.outputs)
            self.sent[output] += values(batch)
            output.write(batch)
        self.most_queued = max([self.most_queued, *(channel.queued_bytes for channel in self.inputs)])

    def batch(self, records: list[Any]) -> Batch:
        if self.random.random() < 0.3:
            return Batch(pa.RecordBatch.from_pydict({"r": [str(record) for record in records]}))
        return Batch(records, list(range(len(records))) if self.random.random() < 0.3 else None)

    def on_error(self, error: BaseException) -> None:
        raise error


def values(batch: Batch) -> list[Any]:
    if isinstance(batch.values, pa.RecordBatch):
        return list(batch.values.to_pylist())
    return list(zip(batch.values, batch.timestamps, strict=True)) if batch.timestamps else list(batch.values)


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32),
    vertices=st.integers(2, 7),
    slot_count=st.integers(1, 4),
    window=st.sampled_from([1, 2, 64, 64, 64, 300, 5000]),
    max_chunk=st.sampled_from([1, 7, 64, 65536]),
    socket_buffer=st.sampled_from([2048, sockets.SOCKET_BUFFER]),
)
def test_random_graphs_always_make_progress(
    seed: int, vertices: int, slot_count: int, window: int, max_chunk: int, socket_buffer: int
) -> None:
    random = Random(seed)
    with tempfile.TemporaryDirectory() as directory, mock.patch.object(sockets, "SOCKET_BUFFER", socket_buffer):
        slots = Slots(Path(directory), "abcd"[:slot_count])
        try:
            order = list(slots.exchanges)
            random.shuffle(order)
            slots.configure(*order, window=window, max_chunk=max_chunk)
            run_random_graph(slots, random, vertices, window)
        finally:
            slots.close()


def run_random_graph(slots: Slots, random: Random, count: int, window: int) -> None:
    places = [random.choice(list(slots.exchanges)) for _ in range(count)]
    sizes = [0, 1, 5, window, 3 * window, 2000]
    largest = 0
    tasks = []
    for number in range(count):
        batches = []
        for part in range(random.randint(0, 6)):
            batches.append([
                (number, part, i, "x" * random.choice(sizes)) for i in range(random.randint(1, 12))
            ])  # fmt: skip
            largest = max(largest, *(len(record[3]) for record in batches[-1]))
        tasks.append(Vertex(random, batches))
    outputs: list[tuple[int, OutputChannel]] = []
    inputs: list[tuple[int, InputChannel]] = []

    def make_output(edge: int, up: int, down: int, timeout: int) -> None:
        outputs.append((up, slots[places[up]].output(edge, up, down, places[down], timeout)))

    def make_input(edge: int, up: int, down: int) -> None:
        inputs.append((down, slots[places[down]].input(edge, up, down, places[up])))

    makers: list[Callable[[], None]] = []
    edges = [(up, down) for down in range(count) for up in range(down) if random.random() < 0.6]
    for edge, (up, down) in enumerate(edges):
        makers.append(partial(make_output, edge, up, down, random.choice([-1, 0, 100])))
        makers.append(partial(make_input, edge, up, down))
    random.shuffle(makers)  # slots are deployed in any order
    for make in makers:
        make()
        if random.random() < 0.3:
            slots.loop.run_once(block=False)
    for up, output in outputs:
        tasks[up].outputs.append(output)
    for down, channel in inputs:
        tasks[down].inputs.append(channel)
    pairs = [(output, channel) for _, output in outputs for _, channel in inputs if output.id == channel.id]
    for task in tasks:
        task.wire()
        slots.loop.add_task(task)
    for _ in range(100):
        slots.run()
        if all(task.ended for task in tasks):
            break
        slots.advance(0.15)  # buffer timeouts
    slots.run()
    assert [task.ended for task in tasks] == [True] * count, "the graph stands still"
    assert slots.failures == {name: [] for name in slots.exchanges}
    sent = {output: log for task in tasks for output, log in task.sent.items()}
    received = {channel: log for task in tasks for channel, log in task.received.items()}
    assert len(pairs) == len(outputs)
    for output, channel in pairs:
        assert received[channel] == sent[output], f"{output.id}"
        assert output.queued_bytes == channel.queued_bytes == 0
    if largest * 12 < window:
        assert max(task.most_queued for task in tasks) <= 2 * window


@pytest.mark.parametrize("names", ["a", "ab"])
def test_what_waits_stays_within_the_window_whatever_is_written(tmp_path: Path, names: str) -> None:
    slots = Slots(tmp_path, names)
    try:
        slots.configure(window=10_000)
        output = slots["a"].output(0, 0, 0, names[-1], 100)
        channel = slots[names[-1]].input(0, 0, 0, "a")
        written = 0
        for _ in range(1000):
            if output.writable:
                output.write(Batch([bytes([i]) * 90 for i in range(20)]))
                written += 20
            slots.run()
        queued = slots["a"].statistics().queued_out + slots[names[-1]].statistics().queued_in
        assert queued <= 2 * 10_000 + 2500
        assert written <= 250
        read = 0
        while read < written:
            batch = channel.poll()
            if isinstance(batch, Batch):
                read += len(batch)
            else:
                slots.advance(0.2)
        assert output.writable
    finally:
        slots.close()


@pytest.mark.parametrize("names", ["a", "ab"])
def test_rare_large_records_count_for_the_window(tmp_path: Path, names: str) -> None:
    """First, middle and last record of each batch are small, and one in between is larger than the window."""
    window, large = 100_000, 300_000
    slots = Slots(tmp_path, names)
    try:
        slots.configure(window=window)
        output = slots["a"].output(0, 0, 0, names[-1], 100)
        channel = slots[names[-1]].input(0, 0, 0, "a")
        written = 0
        while output.writable and written < 100:
            values = [("small", number) for number in range(100)]
            values[25] = ("x" * large, written)
            output.write(Batch(values))
            written += 1
            slots.run()
        assert written <= 3, "the window is full, and nobody reads"
        channel.close()
    finally:
        slots.close()
