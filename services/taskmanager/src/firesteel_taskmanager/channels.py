"""The control socket: one connection for each slot process."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
import struct
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from firesteel.core.errors import ProtocolError
from firesteel.core.refusals import RefusalLog
from firesteel.protocol.slot_channel import FrameDecoder, encode

logger = logging.getLogger(__name__)
_READ_BYTES = 256 * 1024
_CREDENTIALS = struct.Struct("3i")
_REGISTER_SECONDS = 30.0
"""A connection that has not registered by then is closed."""


class ChannelEvents(Protocol):
    """Who hears of channels; none of these may wait."""

    def channel_message(self, channel: int, message: dict[str, Any], payload: bytes) -> None:
        """A message arrived.

        Raises:
            ProtocolError: it can't be understood; the channel is closed.
        """

    def channel_closed(self, channel: int, reason: str) -> None:
        """The channel broke (then there is a reason), or was closed; told once for each channel."""


@dataclass
class _Channel:
    writer: asyncio.StreamWriter
    peer_pid: int | None
    registered: bool = False


class ChannelServer:
    """Listens on a Unix socket, whose directory nobody else can enter.

    Args:
        path: of the socket.
        events: who hears of channels.
        spawn: runs a connection in the background.
    """

    def __init__(
        self, path: Path, events: ChannelEvents, spawn: Callable[[Coroutine[Any, Any, None], str], object]
    ) -> None:
        self.path = path
        self._events, self._spawn = events, spawn
        self._numbers = itertools.count(1)
        self._channels: dict[int, _Channel] = {}
        self._server: asyncio.Server | None = None
        self._refusals = RefusalLog(logger, "the control socket")

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._connected, self.path)
        self.path.chmod(0o600)

    async def close(self) -> None:
        """Close all channels and remove the socket."""
        if self._server is not None:
            self._server.close()
        for channel in list(self._channels.values()):
            channel.writer.close()
        self.path.unlink(missing_ok=True)
        await asyncio.sleep(0)  # closed transports leave the loop in its next turn

    def send(self, channel: int, message: Mapping[str, Any]) -> None:
        """Send a message; to a channel that is closed nothing is sent."""
        open_channel = self._channels.get(channel)
        if open_channel is not None and not open_channel.writer.is_closing():
            open_channel.writer.write(encode(dict(message)))

    def close_channel(self, channel: int) -> None:
        """Close a channel, after what was sent."""
        open_channel = self._channels.get(channel)
        if open_channel is not None:
            open_channel.writer.close()

    def peer_pid(self, channel: int) -> int | None:
        """The process at the other end, by the kernel's word; None where the system does not tell."""
        open_channel = self._channels.get(channel)
        return open_channel.peer_pid if open_channel is not None else None

    def is_registered(self, channel: int) -> bool:
        """Whether the channel's first message has been seen."""
        open_channel = self._channels.get(channel)
        return open_channel is not None and open_channel.registered

    def mark_registered(self, channel: int) -> None:
        """The channel's first message has been seen."""
        self._channels[channel].registered = True

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = next(self._numbers)
        pid, uid = _peer(writer.get_extra_info("socket"))
        if uid is not None and uid != os.geteuid():
            self._refusals.refused(f"user {uid}", "slots register here, as processes of the TaskManager's user")
            writer.close()
            return
        self._channels[number] = _Channel(writer, pid)
        if self._spawn(self._serve(number, reader, writer), f"control channel {number}") is None:
            self._channels.pop(number)
            writer.close()

    async def _serve(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = FrameDecoder(f"slot process at control channel {number}")
        reason = ""
        loop = asyncio.get_running_loop()
        overdue = loop.call_later(_REGISTER_SECONDS, self._check_registered, number)
        try:
            while data := await reader.read(_READ_BYTES):
                for message, payload in decoder.feed(data):
                    self._events.channel_message(number, message, payload)
        except ProtocolError as error:
            reason = str(error)
            self._refusals.refused(self._name(number), reason, "malformed")
        except OSError as error:
            reason = f"the control channel broke: {error.strerror or error}"
        finally:
            overdue.cancel()
            self._channels.pop(number, None)
            writer.close()
            self._events.channel_closed(number, reason)

    def _check_registered(self, number: int) -> None:
        open_channel = self._channels.get(number)
        if open_channel is not None and not open_channel.registered:
            self._refusals.refused(self._name(number), f"it did not register within {_REGISTER_SECONDS:g} s")
            open_channel.writer.close()

    def _name(self, number: int) -> str:
        pid = self.peer_pid(number)
        return "a process" if pid is None else f"process {pid}"


def _peer(connection: Any) -> tuple[int | None, int | None]:
    """Pid and uid of the other end."""
    if not sys.platform.startswith("linux"):
        return None, None
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid
