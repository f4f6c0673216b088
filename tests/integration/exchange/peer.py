"""A slot process of the exchange tests: sends back on edge 1 what it gets on edge 0.

Its first argument is where to listen. It prints its address, reads its settings as one line of JSON, and ends when both
edges have ended. With ``"stalled": true`` it reads nothing until it gets a line more.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from firesteel.core.clock import SystemClock
from firesteel.runtime.exchange import Exchange, InputChannel, OutputChannel
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import Batch, EndOfInput


class Echo:
    """The only task."""

    def __init__(self, loop: TaskLoop, source: InputChannel, target: OutputChannel) -> None:
        self.runnable = False
        self.ended = False
        self._loop, self._source, self._target = loop, source, target
        source.on_readable = target.on_writable = self._wake

    def _wake(self) -> None:
        self.runnable = self._target.writable

    def step(self) -> None:
        batch = self._source.poll()
        if isinstance(batch, EndOfInput):
            self._target.end()
            self.ended = True
        elif isinstance(batch, Batch):
            self._target.write(batch)
        elif batch is not None:
            self._target.send(batch)
        if not self._source.readable:
            self._target.flush()
        self.runnable = self._target.writable and self._source.readable

    def on_error(self, error: BaseException) -> None:
        raise error


def main() -> None:
    clock = SystemClock()
    loop = TaskLoop(clock)
    exchange = Exchange(loop, sys.argv[1:], clock)
    print(json.dumps(exchange.address), flush=True)
    settings = json.loads(sys.stdin.readline())
    stalled, other, attempt = settings.pop("stalled"), settings.pop("other"), settings.pop("attempt", 0)
    exchange.configure(**settings)
    source, target = exchange.input(0, 0, 0, other, attempt), exchange.output(1, 0, 0, other, 100, attempt)
    task = Echo(loop, source, target)
    if stalled:

        def wait() -> None:
            sys.stdin.readline()
            loop.call_soon_threadsafe(lambda: loop.add_task(task))

        threading.Thread(target=wait, daemon=True).start()
    else:
        loop.add_task(task)
    cpu = time.process_time()
    while not (task.ended and target.finished):  # type: ignore[attr-defined]
        loop.run_once()
    print(json.dumps({"cpu": time.process_time() - cpu}), flush=True)
    sys.stdin.readline()
    exchange.close()


if __name__ == "__main__":
    main()
