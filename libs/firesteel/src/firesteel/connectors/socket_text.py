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
    """Connects to a server and gives what comes, cut at a delimiter; it can't be replayed.

    The source ends when the server closes the connection, unless it is to connect again. Text behind the last
    delimiter is a record, too. Bytes that are not UTF-8 are replaced by U+FFFD.

    Args:
        hostname: of the server.
        port: of the server.
        delimiter: behind each record; with a newline a CR before it is removed as well.
        max_retries: how often to connect again when the connection ended or can't be made; -1 = for ever.

    Raises:
        ProgramError: the port, the delimiter or the number is not valid.
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
        """A reader on asyncio."""
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
        # the reader has a thread of its own, so looking the name up may take its time
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            made = socket.socket(family, kind, protocol)
            made.setblocking(False)
            try:
                await loop.sock_connect(made, address)
                return made
            except OSError as problem:
                made.close()
                error = problem
            except BaseException:
                made.close()
                raise
        raise error or OSError("the name has no address")

    def _cut(self, text: str) -> None:
        *lines, self._rest = (self._rest + text).split(self._delimiter)
        self._lines.extend(map(self._without_return, lines))

    def _without_return(self, line: str) -> str:
        return line.removesuffix("\r") if self._delimiter == "\n" else line

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
