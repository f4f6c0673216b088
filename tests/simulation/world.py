"""The simulated world: seeded time, processes, and the network between them."""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import itertools
import json
import math
import random
import re
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from firesteel.core.errors import PeerUnreachableError
from firesteel.protocol.message import RPC_VERSION
from firesteel.rpc import client as rpc_client
from firesteel.rpc import server as rpc_server
from tests.simulation.loop import ProcessLoop
from tests.simulation.obedience import Obedience

_URL = re.compile(r"http://([^/]+)(.*)")
_STORY = 400
Endpoint = tuple[re.Pattern[str], Mapping[str, Any], Any]


class PlantedError(Exception):
    """A bug of ours, as far as a service knows."""


class Process:
    """One simulated process: a loop, a clock that drifts, and the calls that it answers."""

    def __init__(self, world: World, name: str, host: str, address: str, drift: float) -> None:
        self.world, self.name, self.host, self.address = world, name, host, address
        self.alive, self.frozen = True, False
        self.doomed = False
        """It will be killed at this moment: nothing that it says is heard any more."""
        self._born, self._rate = world.now, 1.0 + drift
        self.loop = ProcessLoop(self, self.monotonic)
        self.endpoints: list[Endpoint] = []
        self.service: Any = None
        self.incarnation = next(world.incarnations)
        self.connections: list[Callable[[], None]] = []
        """Told when the kernel closes the connections of a dead process."""
        self.skew = 0.0
        """Seconds by which its clock is ahead of the others."""
        self.away_for = 0.0
        """Seconds until it is started again; 0 = soon."""
        self.was_frozen = False
        self.listens = False
        """Whether its port is open."""
        self.gone: Callable[[str], None] = lambda what: None
        """Told how it has ended."""

    def __repr__(self) -> str:
        return f"{self.name}#{self.incarnation}"

    # -- the clock (firesteel.core.clock.Clock)

    def monotonic(self) -> float:
        return 1000.0 + (self.world.now - self._born) * self._rate

    def epoch_ms(self) -> int:
        return int(1_700_000_000_000 + (self.world.now + self.skew) * 1000)

    def due_at(self) -> float:
        """When its loop has something to do: in the past, or when its next timer is due."""
        loop: Any = self.loop
        if loop._ready:
            return 0.0
        scheduled = loop._scheduled
        while scheduled and scheduled[0]._cancelled:
            loop.drop_cancelled()
        return self._born + (scheduled[0]._when - 1000.0) / self._rate + 1e-9 if scheduled else math.inf

    # -- life

    def run(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run a coroutine in this process."""
        self.loop.call_soon(lambda: self.loop.create_task(make()))

    def kill(self) -> None:
        self.exit("was killed by signal 9 (SIGKILL)")

    def exit(self, what: str) -> None:
        """It is gone; who forked or started it hears how."""
        if not self.alive:
            return
        self.alive = False
        self.loop.kill()
        for call in self.connections:
            call()
        self.gone(what)

    def signal(self, number: signal.Signals) -> None:
        """As of ``kill``; one that is frozen sees it when it goes on."""
        if self.alive and not self.loop.signalled(number):
            self.world.after(0.0, lambda: self.exit(f"was killed by signal {number.value} ({number.name})"))


class World:
    """A seeded queue of events over all processes.

    Args:
        seed: of all chance in it.
    """

    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        self.now = 0.0
        self.incarnations = itertools.count(1)
        self.processes: dict[str, Process] = {}
        """By address, as the network finds them."""
        self.everyone: list[Process] = []
        """The dead ones too."""
        self.story: list[str] = []
        self.digest = hashlib.sha256()
        """Of the whole story."""
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self.blocked: set[tuple[str, str]] = set()
        """(from host, to host): what is sent is lost."""
        self.loss = self.duplication = 0.0
        self.latency = (0.0005, 0.01)
        self.building: Process | None = None
        self.steps = 0
        self.obedience = Obedience()
        self.threads: set[Any] = set()
        """Those of processes that block."""
        self.watch: Callable[[str, str, str, Process, Process | None], None] = lambda *_: None
        """Told of calls: ``sent`` or ``taken``, method, the job that it names, and both ends as far as there are."""
        self.broken: list[str] = []
        """Exceptions that a service logged: no fault of the world may cause one."""

    # -- time

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        heapq.heappush(self._queue, (self.now + seconds, next(self._order), action))

    def tell(self, text: str) -> None:
        line = f"{self.now:9.3f}  {text}"
        self.digest.update(line.encode())
        self.story.append(line)
        if len(self.story) > 2 * _STORY:
            del self.story[: len(self.story) - _STORY]

    def step(self) -> bool:
        """One event; False when nothing will ever happen again."""
        self.steps += 1
        now, soonest = self.now, self._queue[0][0] if self._queue else math.inf
        ready = []
        for process in self.processes.values():  # most of the time is spent here
            if process.alive and not process.frozen:
                due = process.due_at()
                if due <= now:
                    ready.append(process)
                elif due < soonest:
                    soonest = due
        if ready:
            (ready[0] if len(ready) == 1 else self.rng.choice(ready)).loop.step()
            return True
        if soonest == math.inf:
            return False
        self.now = max(now, soonest)
        if self._queue and self._queue[0][0] <= self.now:
            heapq.heappop(self._queue)[2]()
        return True

    # -- processes

    @contextmanager
    def building_process(self, name: str, host: str, address: str) -> Iterator[Process]:
        """What is constructed inside belongs to a new process, which replaces the one at its address."""
        drift = self.rng.uniform(-0.01, 0.01)
        self.building = process = Process(self, name, host, address, drift)
        events_before = asyncio._get_running_loop()
        asyncio._set_running_loop(process.loop)
        try:
            yield process
        finally:
            asyncio._set_running_loop(events_before)
            self.building = None
        self.processes[address] = process
        self.everyone.append(process)

    def register_handlers(self, handlers: Mapping[str, Any], prefix: str) -> None:
        """In place of HTTP routes."""
        process = asyncio.get_running_loop().process  # type: ignore[attr-defined]
        pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", prefix) + r"/rpc/(?P<method>\w+)")
        answers = rpc_server._AnswerCache(process)
        process.endpoints.append((pattern, handlers, answers))

    # -- network

    def is_cut(self, source: str, target: str) -> bool:
        return source != target and (source, target) in self.blocked

    def _flies(self, source: str, target: str, deliver: Callable[[], None]) -> None:
        """One packet: late, lost or doubled as chance will have it."""
        copies = 2 if self.rng.random() < self.duplication else 1
        for _ in range(copies):
            if self.is_cut(source, target) or (source != target and self.rng.random() < self.loss):
                continue
            delay = self.rng.uniform(*self.latency)
            if self.rng.random() < 0.02:
                delay *= 50
            self.after(delay, deliver)

    async def call(
        self, caller: Process, base_url: str, method: str, payload: Mapping[str, Any], token: str, timeout: float
    ) -> dict[str, Any]:
        """A call over the network, as ``RpcClient.call`` makes it; the codes of both ends are the real ones."""
        url = f"{base_url}/rpc/{method}"
        if not base_url:
            raise PeerUnreachableError(f"{url}: nobody is known to lead there")
        match = _URL.fullmatch(url)
        assert match is not None, url
        address, path = f"http://{match[1]}", match[2]
        call_id = f"{self.rng.getrandbits(64):x}"
        envelope = {"v": RPC_VERSION, "id": call_id, "token": token, "payload": payload}
        body = json.dumps(envelope, default=rpc_client._mapping).encode()
        future: asyncio.Future[tuple[int, bytes] | None] = caller.loop.create_future()
        self.watch("sent", method, _job_of(path, payload), caller, self.processes.get(address))

        def answered(answer: tuple[int, bytes] | None) -> None:
            if caller.alive and not future.done():
                future.set_result(answer)

        def arrived() -> None:
            callee = self.processes.get(address)
            if callee is None or not callee.listens or not callee.alive:
                self._flies(_host(address), caller.host, lambda: answered(None))
                return
            callee.run(lambda: self._serve(callee, path, body, caller, answered))

        if not caller.doomed:
            self._flies(caller.host, _host(address), arrived)
        try:
            async with asyncio.timeout(timeout):
                answer = await future
        except TimeoutError as error:
            raise PeerUnreachableError(f"{url}: no answer within {timeout:g} s") from error
        if answer is None:
            raise PeerUnreachableError(f"{url}: connection refused")
        return rpc_client._answer(url, *answer)

    async def connect(self, caller: Process, host: str, port: int) -> tuple[IdleConnection, IdleConnection]:
        """A connection on which nothing is sent, in place of ``asyncio.open_connection``."""
        callee = self.processes.get(f"http://{host}:{port}")
        if self.is_cut(caller.host, host) or self.is_cut(host, caller.host):
            await asyncio.sleep(120.0)
            raise TimeoutError
        await asyncio.sleep(self.rng.uniform(*self.latency))
        if callee is None or not callee.alive:
            raise ConnectionRefusedError(f"{host}:{port}")
        connection = IdleConnection(caller.loop)

        def closed() -> None:
            if not self.is_cut(host, caller.host):
                self._flies(host, caller.host, connection.end)

        callee.connections.append(closed)
        return connection, connection

    async def _serve(
        self, callee: Process, path: str, body: bytes, caller: Process, answered: Callable[[Any], None]
    ) -> None:
        answer = await self._perform(callee, path, body, caller)
        if callee.alive and not callee.doomed:
            self._flies(callee.host, caller.host, lambda: answered(answer))

    async def _perform(self, callee: Process, path: str, body: bytes, caller: Process) -> tuple[int, bytes]:
        for pattern, handlers, answers in callee.endpoints:
            match = pattern.fullmatch(path)
            if match is None:
                continue
            call = rpc_server._read(body, match.groupdict())
            key = f"{path}#{call.id}"
            running = answers.find(key)
            if running is not None:
                first: tuple[int, bytes] = await asyncio.shield(running)
                return first
            future = answers.begin(key)
            before_call = self.obedience.before(callee)
            status, text = await rpc_server._perform(call, handlers)
            try:
                self.obedience.after(caller, callee, call, status, before_call)
            except AssertionError as error:
                self.broken.append(str(error))
            answers.answered(key, len(text))
            future.set_result((status, text))
            self.watch("taken", call.method, _job_of(path, call.payload), caller, callee)
            return status, text
        return 404, b'{"errors": ["no such path"], "code": "NOT_FOUND"}'


class IdleConnection:
    """Both ends of one stream; ``read`` returns when the peer is gone."""

    def __init__(self, loop: ProcessLoop) -> None:
        self._ended = asyncio.Event()
        self._loop = loop

    async def read(self, count: int) -> bytes:
        await self._ended.wait()
        return b""

    def end(self) -> None:
        self._loop.call_soon(self._ended.set)

    def close(self) -> None:
        pass


class SimulatedRpcClient:
    """In place of ``firesteel.rpc.RpcClient``."""

    def __init__(self, session: Any, secret: str, clock: Any) -> None:
        self._process: Process = clock

    async def call(
        self, base_url: str, method: str, payload: Mapping[str, Any], token: str = "", timeout: float = 10.0
    ) -> dict[str, Any]:
        return await self._process.world.call(self._process, base_url, method, payload, token, timeout)


def _host(address: str) -> str:
    return address.removeprefix("http://").partition(":")[0]


def _job_of(path: str, payload: Mapping[str, Any]) -> str:
    match = re.match(r"/jobs/(\w+)/", path)
    return match[1] if match else str(payload.get("job_id") or "")
