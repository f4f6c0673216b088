"""Lines of text from a socket, as Flink's ``socketTextStream`` reads them."""

from __future__ import annotations

import asyncio
import codecs
import socket
from typing import Final

from typing_extensions import override

from firesteel.common.typeinfo import TypeInformation, Types
from firesteel.connectors.single_split import SingleSplit
from firesteel.core.errors import ProgramError
from firesteel.functions.source import (
    END,
    NEED_SPLITS,
    AsyncSourceReader,
    Boundedness,
    EnumeratorSpec,
    Polled,
    ReaderContext,
    Source,
    SourceBatch,
    Split,
    Wait,
)

_READ_BYTES: Final = 64 * 1024
RETRY_SECONDS: Final = 0.5
"""Time between two attempts to connect, as in Flink."""


class SocketTextSource(Source[str]):
    """Reads text from a server, split at a delimiter. It can't be replayed: a restart loses what was sent meanwhile.

    The source ends when the server closes the connection, unless ``max_retries`` says to connect again. Text behind the
    last delimiter is a record, too. Bytes that are not UTF-8 are replaced by U+FFFD.

    Args:
        hostname: host of the server.
        port: port of the server.
        delimiter: text behind each record; if it is a newline, a CR before it is removed as well.
        max_retries: how often to connect again when a connection has ended or can't be made; -1 = without a limit.

    Raises:
        ProgramError: the port, the delimiter or the number of retries is not valid.
    """

    replayable = False

    def __init__(self, hostname: str, port: int, delimiter: str = "\n", max_retries: int = 0) -> None:
        if not isinstance(port, int) or not 0 < port < 65536:
            raise ProgramError(f"socket text: the port is between 1 and 65535, not {port!r}")
        if not isinstance(delimiter, str) or not delimiter:
            raise ProgramError(f"socket text: the delimiter is a text, not {delimiter!r}")
        if max_retries < -1:
            raise ProgramError(f"socket text: the number of retries is at least -1 (for ever), not {max_retries}")
        self._address, self._delimiter, self._max_retries = (hostname, port), delimiter, max_retries

    @property
    @override
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    @override
    def enumerator(self) -> EnumeratorSpec:
        return EnumeratorSpec("static", {"splits": [Split("socket", {}).to_plain()]})

    def create_reader(self, context: ReaderContext) -> AsyncSourceReader[str]:
        """Make the reader, which runs on asyncio."""
        return _SocketReader(self._address, self._delimiter, self._max_retries)

    @override
    def produced_type(self) -> TypeInformation:
        return Types.STRING()


class _SocketReader(SingleSplit, AsyncSourceReader[str]):
    what = "socket text"

    def __init__(self, address: tuple[str, int], delimiter: str, max_retries: int) -> None:
        super().__init__()
        self._address, self._delimiter, self._retries_left = address, delimiter, max_retries
        self._socket: socket.socket | None = None
        self._lines: list[str] = []
        self._rest = ""
        """Text behind the last delimiter so far."""
        self._ended = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    async def poll(self, max_records: int) -> Polled[str]:
        split = self.split
        if split is None:
            return END if self.none_follow else NEED_SPLITS
        if self.is_paused:
            return Wait()
        while not self._lines and not self._ended:
            await self._receive()
        values, self._lines = self._lines[:max_records], self._lines[max_records:]
        finished = self._ended and not self._lines
        if finished:
            self.split = None
        return SourceBatch(values, split.id, None, split_finished=finished)

    async def _receive(self) -> None:
        """Receive some text, or handle the end of the connection."""
        loop = asyncio.get_running_loop()
        try:
            if self._socket is None:
                self._socket = await self._connect()
            data = await loop.sock_recv(self._socket, _READ_BYTES)
        except OSError as error:
            if self._retries_left == 0:
                host, port = self._address
                raise ConnectionError(f"socket text: {host}:{port}: {error}") from error
            data = b""
        if data:
            self._cut(self._decoder.decode(data))
            return
        self.close()
        if self._retries_left == 0:
            self._cut(self._decoder.decode(b"", True))
            if self._rest:
                self._lines.append(self._without_return(self._rest))
                self._rest = ""
            self._ended = True
            return
        if self._retries_left > 0:
            self._retries_left -= 1
        await asyncio.sleep(RETRY_SECONDS)

    async def _connect(self) -> socket.socket:
        loop = asyncio.get_running_loop()
        host, port = self._address
        error: OSError | None = None
        # The lookup blocks the loop, which is the reader's own.
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            connection = socket.socket(family, kind, protocol)
            connection.setblocking(False)
            try:
                await loop.sock_connect(connection, address)
                return connection
            except OSError as problem:
                connection.close()
                error = problem
            except BaseException:
                connection.close()
                raise
        raise error or OSError("the name has no address")

    def _cut(self, text: str) -> None:
        """Split text at delimiters; the last piece waits for its end."""
        *lines, self._rest = (self._rest + text).split(self._delimiter)
        self._lines.extend(map(self._without_return, lines))

    def _without_return(self, line: str) -> str:
        return line.removesuffix("\r") if self._delimiter == "\n" else line

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
