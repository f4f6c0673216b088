"""What stands between clients and a server: slow, or cut."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy:
    """Carries bytes to a server and back: as many in a second as it is told to, and none while it is cut.

    Args:
        port: of the server.

    Attributes:
        port: to which clients connect.
        rate: bytes in a second, of all connections in each direction; None = as many as there are.
    """

    def __init__(self, port: int) -> None:
        self._server = port
        self.rate: int | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._closed, self._whole = threading.Event(), threading.Event()
        self._whole.set()
        self._start(self._accept)

    def _start(self, run: object, *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, name="proxy", daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._whole.wait()
            try:
                far = socket.create_connection(("127.0.0.1", self._server))
            except OSError:
                near.close()
                continue
            self._sockets += [near, far]
            self._start(self._carry, near, far)
            self._start(self._carry, far, near)

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(16 << 10):
                self._whole.wait()
                target.sendall(data)
                if self.rate is not None:
                    self._closed.wait(len(data) / self.rate)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Nothing arrives meanwhile, and nobody is told; then it does, as with packets that are sent again."""
        self._whole.clear()
        try:
            yield
        finally:
            self._whole.set()

    def close(self) -> None:
        self._closed.set()
        self._whole.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for socket_ in self._sockets:
            with suppress(OSError):
                socket_.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for socket_ in self._sockets:
            socket_.close()
