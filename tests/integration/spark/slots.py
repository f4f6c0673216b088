"""A slot function for tests, and the door at which the test meets it: the slot calls in, then does what it is told."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from types import TracebackType

from firesteel.protocol.fleet import SlotLaunch, SlotOutcome


def obedient(launches: Iterator[SlotLaunch]) -> Iterator[object]:
    """Call in at the control socket with who I am, then obey one word."""
    from pyspark import TaskContext

    launch = next(launches)
    context = TaskContext.get()
    assert context is not None
    me = {
        "allocation": launch.allocation_id,
        "pid": os.getpid(),
        "parent": os.getppid(),
        "attempt": context.attemptNumber(),
        "python": sys.executable,
        "path": sys.path,
        "directory": os.getcwd(),
        "environment": dict(os.environ),
    }
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(launch.control_socket)
        channel.sendall(json.dumps(me).encode() + b"\n")
        word = channel.recv(100).decode()
    if word == "misplaced":
        yield SlotOutcome.MISPLACED, "not here"
    if word == "raise":
        raise RuntimeError("the slot went wrong")
    if word == "exit":
        sys.exit(3)
    if word == "stubborn":
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        print("stubborn", flush=True)
        with socket.socket(socket.AF_UNIX) as channel:
            channel.connect(launch.control_socket)
            channel.sendall(b"{}\n")
            while True:
                signal.pause()


class Caller:
    """One slot process that has called in."""

    def __init__(self, channel: socket.socket, about: dict[str, object]) -> None:
        self._channel, self.about = channel, about
        self.pid, self.attempt = about.get("pid"), about.get("attempt")

    def tell(self, word: str) -> None:
        """Say what to do."""
        self._channel.sendall(word.encode())

    def close(self) -> None:
        """Hang up: the slot reads an empty word, and returns."""
        self._channel.close()


class Door:
    """Listens where slots call in."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(path)
        self._socket.listen(16)
        self._callers: list[Caller] = []

    def launch(self, allocation: str) -> SlotLaunch:
        """What a slot needs to find this door."""
        return SlotLaunch(allocation, "tm", "driver", self.path)

    def wait(self, timeout: float = 100.0) -> Caller:
        """The next one that calls in.

        Raises:
            TimeoutError: nobody did.
        """
        self._socket.settimeout(timeout)
        channel, _ = self._socket.accept()
        with channel.makefile("r", encoding="utf-8") as lines:
            caller = Caller(channel, json.loads(lines.readline()))
        self._callers.append(caller)
        return caller

    def __enter__(self) -> Door:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Hang up on everybody: waiting slots return."""
        for caller in self._callers:
            caller.close()
        self._socket.close()
        os.unlink(self.path)
