"""What the tests of loop and exchange share: a clock moved by hand, and exchanges of several slots on one loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from firesteel.runtime.exchange import Exchange, InputChannel
from firesteel.runtime.exchange.input import RemoteInputChannel
from firesteel.runtime.exchange.output import RemoteOutputChannel
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import Batch

JOB = "0" * 32
SECRET = "5e" * 32


class ManualClock:
    """Time stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def epoch_ms(self) -> int:
        return int(self.now * 1000)


def run_idle(loop: TaskLoop, limit: int = 200_000) -> None:
    """Run the loop until nothing is left to do at this time of the clock."""
    for _ in range(limit):
        if not loop.run_once(block=False):
            return
    raise AssertionError("the loop does not come to rest")


class Slots:
    """Exchanges of several slots that share a loop and a clock; failures are collected in ``failures``."""

    def __init__(self, directory: Path, names: str) -> None:
        self.clock = ManualClock()
        self.loop = TaskLoop(self.clock)
        self.exchanges: dict[str, Exchange] = {}
        self.failures: dict[str, list[Exception]] = {name: [] for name in names}
        for name in names:
            self.exchanges[name] = exchange = Exchange(self.loop, [f"unix:{directory}/{name}"], self.clock)
            exchange.on_failure = self._noting(name)

    def _noting(self, name: str) -> Callable[[Exception, str | None], None]:
        return lambda error, _: self.failures[name].append(error)

    def __getitem__(self, name: str) -> Exchange:
        return self.exchanges[name]

    @property
    def peers(self) -> dict[str, dict[str, Any]]:
        return {name: exchange.address for name, exchange in self.exchanges.items()}

    def configure(self, *names: str, **changes: Any) -> Slots:
        for name in names or self.exchanges:
            settings: dict[str, Any] = {
                "job_id": JOB, "job_attempt": 0, "secret": SECRET, "my_allocation": name, "peers": self.peers,
            }  # fmt: skip
            self.exchanges[name].configure(**{**settings, **changes})
        return self

    def run(self) -> None:
        run_idle(self.loop)

    def advance(self, seconds: float) -> None:
        self.clock.now += seconds
        self.run()

    def close(self) -> None:
        for exchange in self.exchanges.values():
            exchange.close()
        self.loop.close()


@contextmanager
def slots(directory: Path, names: str = "ab") -> Iterator[Slots]:
    slots_of_names = Slots(directory, names)
    try:
        yield slots_of_names
    finally:
        slots_of_names.close()


def drain(channel: InputChannel, into: list[Any] | None = None) -> list[Any]:
    """All values that can be polled now; an end of input is left out."""
    values: list[Any] = [] if into is None else into
    while True:
        batch = channel.poll()
        if batch is None:
            return values
        if isinstance(batch, Batch):
            values.extend(batch.values if isinstance(batch.values, list) else batch.values.to_pylist())


def batch_of(*values: Any) -> Batch:
    """A batch of these values."""
    return Batch(list(values))


class FakeLink:
    """Notes what the ends of channels ask of their connection."""

    def __init__(self) -> None:
        self.activated = 0
        self.released: list[Any] = []
        self.errors: list[Exception] = []
        self.granted: list[int] = []

    def activate(self, channel: RemoteOutputChannel) -> None:
        self.activated += 1

    def release_output(self, channel: RemoteOutputChannel) -> None:
        self.released.append(channel)

    def release_input(self, channel: RemoteInputChannel) -> None:
        self.released.append(channel)

    def failed(self, error: Exception) -> None:
        self.errors.append(error)

    def grant(self, channel: RemoteInputChannel, amount: int) -> None:
        self.granted.append(amount)
