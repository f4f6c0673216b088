"""What a record costs from one slot process to another: pickling, frames, socket, task loop.

Run it with

    ./dev run python benchmarks/exchange_bench.py                       # throughput, several kinds of records
    ./dev run python benchmarks/exchange_bench.py --rate 20000          # latency at 20,000 events/s
    ./dev run python benchmarks/exchange_bench.py --tcp --batch 1000 --window 262144

Throughput: a producer process writes batches as fast as the channel takes them, a consumer process polls and drops
them. Printed for each kind of record: nanoseconds of wall time for each record, CPU of either process, and beside it
the CPU of pickling and unpickling the same batches alone, so that the difference is what exchange and loop cost.
Latency: records carry the time at which they were due; the consumer takes the difference.
"""

from __future__ import annotations

import argparse
import multiprocessing
import pickle
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa

from firesteel.core.clock import SystemClock
from firesteel.runtime.exchange import Exchange, InputChannel, OutputChannel
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import Batch, EndOfInput

KINDS: dict[str, Callable[[int], Any]] = {
    "(str, int)": lambda n: [(f"word{i % 1000}", i) for i in range(n)],
    "int": lambda n: list(range(n)),
    "dict": lambda n: [{"user": f"user{i % 1000}", "amount": i, "price": i * 0.5} for i in range(n)],
    "columns": lambda n: pa.RecordBatch.from_pydict(
        {"word": [f"word{i % 1000}" for i in range(n)], "n": list(range(n))}
    ),
}


class Producer:
    """Writes the same batch again and again."""

    def __init__(self, loop: TaskLoop, output: OutputChannel, batch: Batch, batches: int) -> None:
        self.runnable = True
        self._loop, self._output, self._batch, self._left = loop, output, batch, batches
        output.on_writable = self._go_on

    def _go_on(self) -> None:
        self.runnable = self._left > 0

    def step(self) -> None:
        self._output.write(Batch(self._batch.values, self._batch.timestamps))
        self._left -= 1
        if not self._left:
            self._output.end()
        self.runnable = self._output.writable and self._left > 0

    def on_error(self, error: BaseException) -> None:
        raise error


class Pacer:
    """Writes records at a rate, each with the time at which it was due."""

    def __init__(self, loop: TaskLoop, output: OutputChannel, rate: float, seconds: float) -> None:
        self.runnable = True
        self._loop, self._output = loop, output
        self._start = time.monotonic()
        self._interval, self._count, self._sent = 1 / rate, int(rate * seconds), 0

    def _wake(self) -> None:
        self.runnable = True

    def step(self) -> None:
        due = min(self._count, int((time.monotonic() - self._start) / self._interval))
        if due > self._sent:
            self._output.write(Batch([(i, self._start + i * self._interval) for i in range(self._sent, due)]))
            self._output.flush()
            self._sent = due
        self.runnable = False
        if self._sent == self._count:
            self._output.end()
        else:
            self._loop.call_later(0.0005, self._wake)

    def on_error(self, error: BaseException) -> None:
        raise error


class Consumer:
    """Polls until the end."""

    def __init__(self, loop: TaskLoop, channel: InputChannel, latencies: list[float] | None) -> None:
        self.runnable = False
        self._loop, self._channel, self._latencies = loop, channel, latencies
        self.records = self.batches = 0
        self.wall = self.cpu = 0.0
        channel.on_readable = self._readable

    def _readable(self) -> None:
        self.runnable = True
        if not self.wall:
            self.wall, self.cpu = time.perf_counter(), time.process_time()

    def step(self) -> None:
        batch = self._channel.poll()
        if isinstance(batch, EndOfInput):
            self.wall, self.cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
            self._loop.stop()
        elif isinstance(batch, Batch):
            self.records += len(batch)
            self.batches += 1
            if self._latencies is not None:
                now = time.monotonic()
                self._latencies.extend(now - due for _, due in batch.values)
        self.runnable = self._channel.readable

    def on_error(self, error: BaseException) -> None:
        raise error


def produce(listen: str, pipe: Connection, options: argparse.Namespace, kind: str) -> None:
    """The producer's process."""
    clock = SystemClock()
    loop = TaskLoop(clock)
    exchange = Exchange(loop, [listen], clock)
    pipe.send(exchange.address)
    exchange.configure("0" * 32, 0, "ab" * 32, "a", pipe.recv(), options.window, options.chunk)
    output = exchange.output(0, 0, 0, "b", 100)
    if options.rate:
        loop.add_task(Pacer(loop, output, options.rate, options.seconds))
    else:
        values = KINDS[kind](options.batch)
        stamps = list(range(options.batch)) if options.timestamps else None
        loop.add_task(Producer(loop, output, Batch(values, stamps), max(1, options.records // options.batch)))
    cpu = time.process_time()
    loop.register(pipe, loop.stop, None)
    loop.run()
    pipe.recv()
    pipe.send((time.process_time() - cpu, exchange.statistics()))
    exchange.close()


def consume(listen: str, pipe: Connection, options: argparse.Namespace, kind: str) -> None:
    """The consumer's process."""
    clock = SystemClock()
    loop = TaskLoop(clock)
    exchange = Exchange(loop, [listen], clock)
    pipe.send(exchange.address)
    exchange.configure("0" * 32, 0, "ab" * 32, "b", pipe.recv(), options.window, options.chunk)
    latencies: list[float] | None = [] if options.rate else None
    consumer = Consumer(loop, exchange.input(0, 0, 0, "a"), latencies)
    loop.add_task(consumer)
    loop.run()
    pipe.send((consumer.records, consumer.batches, consumer.wall, consumer.cpu, exchange.statistics(), latencies))
    pipe.recv()
    exchange.close()


def pickling(kind: str, options: argparse.Namespace) -> tuple[float, float]:
    """Nanoseconds of CPU for each record: dumps and loads alone, in batches of what one message holds."""
    values = KINDS[kind](options.batch)
    if not isinstance(values, list):
        return 0.0, 0.0
    rounds = max(1, options.records // options.batch // 4)
    size = len(pickle.dumps(values, 5))
    part = values[: max(1, min(4096, len(values), len(values) * 65536 // size))]
    start = time.process_time()
    for _ in range(rounds):
        data = pickle.dumps(part, 5)
    middle = time.process_time()
    for _ in range(rounds):
        pickle.loads(data)
    end = time.process_time()
    return (middle - start) / rounds / len(part) * 1e9, (end - middle) / rounds / len(part) * 1e9


def run(kind: str, options: argparse.Namespace) -> None:
    """One measurement."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as directory:
        ends = []
        for name, target in (("a", produce), ("b", consume)):
            ours, theirs = context.Pipe()
            listen = "tcp:127.0.0.1" if options.tcp else f"unix:{directory}/{name}"
            process = context.Process(target=target, args=(listen, theirs, options, kind))
            process.start()
            ends.append((ours, process))
        peers = {"a": ends[0][0].recv(), "b": ends[1][0].recv()}
        for pipe, _ in ends:
            pipe.send(peers)
        records, batches, wall, cpu_in, statistics, latencies = ends[1][0].recv()
        for pipe, _ in ends:
            pipe.send(None)
        cpu_out, _ = ends[0][0].recv()
        for _, process in ends:
            process.join()
    if latencies:
        latencies = sorted(latencies[len(latencies) // 5 :])
        p = [latencies[int(len(latencies) * q)] * 1000 for q in (0.5, 0.99, 0.999)]
        print(
            f"{options.rate:>9,.0f}/s  p50 {p[0]:.2f} ms  p99 {p[1]:.2f} ms  p99.9 {p[2]:.2f} ms  "
            f"{records / batches:.0f} records a batch  CPU out {cpu_out / options.seconds:.0%} in {cpu_in / wall:.0%}"
        )
        return
    dumps, loads = pickling(kind, options)
    per = 1e9 / records
    print(
        f"{kind:<11} {wall * per:7.0f} ns/record wall   CPU out {cpu_out * per:6.0f} (pickle {dumps:4.0f})   "
        f"in {cpu_in * per:6.0f} (unpickle {loads:4.0f})   {records / batches:6.0f} records and "
        f"{statistics.bytes_received / batches / 1024:5.1f} KiB a message"
    )


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=4096, help="records that the producer writes at once")
    parser.add_argument("--window", type=int, default=512 * 1024)
    parser.add_argument("--chunk", type=int, default=64 * 1024)
    parser.add_argument("--timestamps", action="store_true")
    parser.add_argument("--tcp", action="store_true")
    parser.add_argument("--rate", type=float, default=0.0, help="measure latency at this many records/s")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--kind", choices=sorted(KINDS), default=None)
    options = parser.parse_args()
    if options.rate:
        run("int", options)
        return
    for kind in [options.kind] if options.kind else KINDS:
        run(kind, options)


if __name__ == "__main__":
    main()
