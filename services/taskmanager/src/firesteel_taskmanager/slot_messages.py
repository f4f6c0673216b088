"""What slot processes say over their control channels, and questions to them."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from firesteel.core.errors import ProtocolError
from firesteel.protocol import messages as m
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.service.process_logs import ProcessLogs
from firesteel_taskmanager import instructions as i
from firesteel_taskmanager.child_output import ChildOutput
from firesteel_taskmanager.core import TaskManagerCore
from firesteel_taskmanager.output import SlotOutput

_COLLECT_MARGIN = 8.0
"""Seconds that a slot may take to answer beyond the wait that it was asked for."""


class _Channels(Protocol):
    def is_registered(self, channel: int) -> bool:
        """Whether the channel's first message has been seen."""

    def send(self, channel: int, message: Mapping[str, Any]) -> None: ...


class _Owner(Protocol):
    """What the messages need of the TaskManager."""

    core: TaskManagerCore
    logs: ProcessLogs

    @property
    def channels(self) -> _Channels: ...

    @property
    def now_ms(self) -> int:
        """The present time, in milliseconds of the epoch."""

    def perform(self, instructions: Iterable[i.Instruction]) -> None: ...


class SlotMessages:
    """Reads messages of slot processes, and hands them to the core or to those who wait for an answer.

    Args:
        owner: the TaskManager.
        register: takes the registration of a process: number of its channel, message.
        stdout: gets what slots print; None = ``sys.stdout``.
        directory: of the control socket.
    """

    def __init__(
        self, owner: _Owner, register: Callable[[int, Mapping[str, Any]], None],
        stdout: Callable[[str], None] | None, directory: Path,
    ) -> None:  # fmt: skip
        self._owner, self._register, self._output = owner, register, SlotOutput(stdout, self._keep)
        self.child_output = ChildOutput(directory, self._output.write_of_child, self._output.forget)
        self._collects: dict[int, tuple[int, asyncio.Future[m.Collected]]] = {}
        self._inspections: dict[int, tuple[int, asyncio.Future[Any]]] = {}
        self._requests = itertools.count(1)

    def received(self, channel: int, message: dict[str, Any], payload: bytes) -> None:
        """A slot process has sent a message.

        Raises:
            ProtocolError: the message can't be understood.
        """
        try:
            self._received(channel, message, payload)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            kind = message["type"]
            reason = f"malformed {kind!r}: {type(error).__name__}: {error}"
            raise ProtocolError(f"control channel {channel}", reason) from error

    def _received(self, channel: int, message: dict[str, Any], payload: bytes) -> None:
        kind, owner = message["type"], self._owner
        if kind == "register":
            self._register(channel, message)
            return
        if not owner.channels.is_registered(channel):
            raise ProtocolError(f"control channel {channel}", f"{kind!r} came before 'register'")
        tasks = owner.core.tasks
        match kind:
            case "task_state":
                self.child_output.drain(channel)  # all that the task has printed is written before its end is known
                owner.perform(tasks.state(channel, message, owner.now_ms))
            case "request_splits":
                owner.perform(tasks.splits_wanted(channel, message))
            case "operator_events":
                owner.perform(tasks.operator_events(channel, message))
            case "watermark":
                owner.perform(tasks.watermark(channel, message))
            case "end_of_data":
                owner.perform(tasks.end_of_data(channel, message))
            case "acknowledge_checkpoint":
                owner.perform(owner.core.checkpoints.acknowledged(channel, message, payload))
            case "decline_checkpoint":
                owner.perform(owner.core.checkpoints.declined(channel, message))
            case "metrics":
                owner.perform(tasks.metrics(channel, message))
            case "temporary_files":
                owner.perform(tasks.temporary_files(channel, message))
            case "pong":
                owner.perform(owner.core.pong(channel))
            case "stdout":
                self._output.write(channel, str(message.get("stream", "stdout")), payload)
            case "output_pipe":
                self.child_output.open(channel, str(message["stream"]), str(message["path"]))
            case "log":
                self._output.log(channel, message)
            case "collect_result":
                self._collected(message, payload)
            case "inspected":
                self._inspected(message, payload)
            case _:
                raise ProtocolError(f"control channel {channel}", f"unknown message type {kind!r}")

    def close(self) -> None:
        """Read output of slots' children no more."""
        self.child_output.close()

    def drain_output(self) -> None:
        """Block until slow readers have all output of slots; see ``SlotOutput.drain``."""
        self._output.drain()

    def closed(self, channel: int) -> None:
        """A control channel is closed: requests to its slot process fail, as nobody will answer."""
        self.child_output.drain(channel)
        self._output.forget(channel)
        waiting: tuple[dict[int, tuple[int, asyncio.Future[Any]]], ...] = (self._collects, self._inspections)
        for requests in waiting:
            for request, (request_channel, future) in list(requests.items()):
                if request_channel == channel and not future.done():
                    requests.pop(request)
                    future.set_exception(RpcFault(RpcCode.NOT_FOUND, "the slot process ended"))

    def _keep(self, channel: int, kind: str, text: str) -> None:
        slot = self._owner.core.slots.at(channel)
        if slot is not None and text:
            self._owner.logs.ring(f"slot-{slot.index}.{kind}").write(text)

    async def collect(self, message: m.Collect) -> m.Collected:
        """Ask a slot for results; the slot answers when it has one, or after the wait that the message names."""
        slot_key = message.job_id, message.allocation_id
        channel = self._owner.core.slots.channel_of(message.execution_id, *slot_key)
        request = next(self._requests)
        future: asyncio.Future[m.Collected] = asyncio.get_running_loop().create_future()
        self._collects[request] = (channel, future)
        self._owner.channels.send(channel, {"type": "collect", "request_id": request, **message.to_plain()})
        try:
            async with asyncio.timeout(message.wait_ms / 1000 + _COLLECT_MARGIN):
                return await future
        except TimeoutError as error:
            text = f"the slot of execution {message.execution_id} did not answer in time"
            raise RpcFault(RpcCode.INTERNAL, text) from error
        finally:
            self._collects.pop(request, None)

    async def inspect(self, channel: int, seconds: float, fields: Mapping[str, Any]) -> Any:
        """Ask a slot what its threads do; returns its JSON.

        Args:
            channel: of the slot.
            seconds: within which the slot has to answer.
            fields: of the message ``inspect``.

        Raises:
            RpcFault: the slot process has ended, does not answer, or can't.
        """
        request = next(self._requests)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._inspections[request] = (channel, future)
        self._owner.channels.send(channel, {"type": "inspect", "request_id": request, **fields})
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError as error:
            raise RpcFault(RpcCode.INTERNAL, "a slot did not answer in time") from error
        finally:
            self._inspections.pop(request, None)

    def _inspected(self, message: Mapping[str, Any], payload: bytes) -> None:
        _, future = self._inspections.pop(message["request_id"], (0, None))
        if future is None or future.done():
            return
        if message.get("error"):
            future.set_exception(RpcFault(RpcCode.REFUSED, str(message["error"])))
            return
        future.set_result(json.loads(payload))

    def _collected(self, message: Mapping[str, Any], payload: bytes) -> None:
        _, future = self._collects.pop(message["request_id"], (0, None))
        if future is None or future.done():
            return
        if message.get("error"):
            future.set_exception(RpcFault(RpcCode.INTERNAL, str(message["error"])))
            return
        data = base64.b64encode(payload).decode("ascii")
        future.set_result(m.Collected(message["offset"], message["count"], message["end"], data))
