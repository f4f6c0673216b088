"""Peers of the cluster's services for tests: a recording service, a fleet of real processes, a slot process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from firesteel.core.clock import SystemClock
from firesteel.core.errors import FleetError
from firesteel.protocol.fleet import SlotLaunch, SlotOutcome, WithoutStages
from firesteel.protocol.messages import ExecutorSpec
from firesteel.rpc import RpcRequest, rpc_routes
from firesteel.rpc.client import RpcClient
from firesteel.service.base import Service
from tests.ports import free_ports
from tests.waiting import eventually as eventually

SECRET = "the secret of the tests"
SLOT = os.path.join(os.path.dirname(__file__), "slot_process.py")
PATIENCE = 100.0
"""Seconds after which a test gives up waiting."""


class Peer(Service):
    """Answers any call of the methods it is given, and remembers them in their order."""

    def __init__(self, answers: Mapping[str, Callable[[Mapping[str, Any]], Any]], prefix: str = "") -> None:
        super().__init__("peer")
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self._changed = asyncio.Event()

        def handler(name: str) -> Any:
            async def handle(call: RpcRequest) -> Mapping[str, Any]:
                self.calls.append((name, call.payload))
                self._changed.set()
                answer = answers[name](call.payload)
                return await answer if asyncio.iscoroutine(answer) else answer or {}

            return handle

        handlers = {name: handler(name) for name in answers}
        self.app.add_routes(rpc_routes(handlers, SECRET, prefix=prefix))

    async def start(self, host: str = "127.0.0.1", port: int = 0, advertised_host: str = "") -> str:
        """See ``Service``; on a port that is still free when another peer is started in place of this one."""
        return await super().start(host, port or free_ports(1)[0], advertised_host)

    def of(self, method: str) -> list[Mapping[str, Any]]:
        """Payloads of the calls of a method so far."""
        return [payload for name, payload in self.calls if name == method]

    async def wait_for(self, method: str, count: int = 1) -> list[Mapping[str, Any]]:
        """At least so many calls of a method."""
        await self.wait(lambda: len(self.of(method)) >= count)
        return self.of(method)

    async def wait(self, condition: Callable[[], bool]) -> None:
        """Until a call makes it true."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"never came true; calls so far: {[name for name, _ in self.calls]}") from None


@asynccontextmanager
async def serving(*services: Service) -> AsyncIterator[None]:
    """Services that run; they are stopped in the opposite order."""
    started: list[Service] = []
    try:
        for service in services:
            await service.start()
            started.append(service)
        yield
    finally:
        for service in reversed(started):
            await service.stop()


def client_of(service: Service) -> RpcClient:
    """Calls on behalf of a service."""
    return RpcClient(service.session, SECRET, SystemClock())


def start_slot_process(launch: SlotLaunch, *behaviour: str) -> subprocess.Popen[bytes]:
    """A process that speaks the slot's end of the control channel."""
    arguments = [launch.control_socket, launch.allocation_id, launch.executor_id, *behaviour]
    return subprocess.Popen([sys.executable, "-S", SLOT, *arguments], env={**os.environ, "PYTHONPATH": _path()})


def _path() -> str:
    import firesteel

    return os.path.dirname(os.path.dirname(firesteel.__file__))


class ProcessFleet(WithoutStages):
    """A fleet whose slots are plain child processes; started again when they die, as Spark does."""

    def __init__(self, *behaviour: str, fail_start: str = "") -> None:
        self.behaviour, self.fail_start = behaviour, fail_start
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.launches: list[SlotLaunch] = []
        self.starts = 0
        self.started = threading.Event()
        self._alive = False
        self._ended: list[tuple[str, SlotOutcome, str]] = []
        self._lock = threading.Lock()

    @property
    def slots_outlive_driver(self) -> bool:
        return False

    def executor_for(self, taskmanager_id: str, cores: int) -> ExecutorSpec | None:
        return None

    def attached_executors(self) -> frozenset[str] | None:
        return None

    def start(self) -> None:
        self.starts += 1
        if self.fail_start:
            raise FleetError(self.fail_start)
        self._alive = True
        self.started.set()

    def start_slot(self, launch: SlotLaunch) -> None:
        with self._lock:
            if not self._alive:
                raise FleetError("not running")
            self.launches.append(launch)
            self.running[launch.allocation_id] = start_slot_process(launch, *self.behaviour)

    def ended_slots(self) -> list[tuple[str, SlotOutcome, str]]:
        with self._lock:
            for allocation, process in list(self.running.items()):
                if process.poll() is not None:
                    del self.running[allocation]
                    outcome = SlotOutcome.RETURNED if process.returncode == 0 else SlotOutcome.LOST
                    text = "" if self._alive else "the Spark driver JVM ended (killed)"
                    self._ended.append((allocation, outcome, text))
            ended, self._ended = self._ended, []
            return ended

    def cancel_slot(self, allocation_id: str) -> None:
        """See ``Fleet``: here nothing is started again anyway."""

    def is_alive(self) -> bool:
        return self._alive

    def die(self) -> None:
        """As if the JVM was killed: its processes go with it."""
        with self._lock:
            self._alive = False
            for process in self.running.values():
                process.kill()
                process.wait()

    def detach(self) -> None:
        self.stop()

    def stop(self) -> None:
        with self._lock:
            self._alive = False
            for process in self.running.values():
                process.kill()
                process.wait()
            self.running.clear()


@contextlib.contextmanager
def nothing_answers() -> Iterator[str]:
    """A base URL to which no connection is made, nor refused, as that of a pod that was deleted."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):  # who waits to be accepted; to others the system does not answer
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
