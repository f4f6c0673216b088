"""The slot's end of the control channel: a thread that answers the TaskManager whatever the tasks are doing.

All messages leave in the order in which they were sent, so output of a task arrives before the news of its end. Output
that waits is bounded: a program that prints too fast has to wait, and ``print()`` sinks are back-pressured.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from firesteel.core.clock import Clock
from firesteel.core.errors import FleetError, ProtocolError
from firesteel.core.forks import ForkAware, closed_in_children, tell_of_forks
from firesteel.core.text_output import ESCAPED
from firesteel.protocol.slot_channel import TO_SLOT, FrameDecoder, encode

logger = logging.getLogger(__name__)
OUTPUT_LIMIT: Final = 1 << 20
"""Characters of program output that may wait to be sent."""
_FRAME: Final = 64 * 1024
"""Characters of program output up to which pieces are joined into one message."""
_RECEIVE: Final = 256 * 1024
"""Bytes that are read from the socket at a time."""
Message = dict[str, Any]


class _Text:
    """Output of the program that waits to be sent; further output to the same stream is appended."""

    __slots__ = ("parts", "size", "stream")

    def __init__(self, stream: str, text: str) -> None:
        self.stream, self.parts, self.size = stream, [text], len(text)


class ControlChannel(ForkAware):
    """The control channel: any thread may send; a thread of its own receives.

    Args:
        path: path of the TaskManager's Unix socket.
        clock: clock by which ``tick`` is called.
        on_message: called on the control thread with every message but pings.
        on_closed: called once, on the control thread, with the reason, when the connection is gone.
        tick: called on the control thread after each message and when due; returns when it wants to be called next
            (seconds of the clock), or None.

    Attributes:
        on_output_room: called on the control thread when program output may be sent again without waiting.
    """

    def __init__(
        self,
        path: str,
        clock: Clock,
        on_message: Callable[[Message, bytes], None],
        on_closed: Callable[[str], None],
        tick: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._path, self._clock = path, clock
        self._on_message, self._on_closed, self._tick = on_message, on_closed, tick
        self.on_output_room: Callable[[], None] | None = None
        self._decoder = FrameDecoder(f"TaskManager at {path}")
        self._queue: deque[bytes | _Text] = deque()
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._output = 0
        self._full = False
        self._sending = b""
        self._awake = False
        self._closing = False
        self._closed = False
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        closed_in_children(self._wake_in)
        closed_in_children(self._wake_out)
        tell_of_forks(self)

    def after_fork_in_child(self) -> None:
        """Close the channel in a forked child. The lock is new, because a thread of the parent may hold the old one."""
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._closed = True
        self._queue.clear()

    # -- start

    def register(self, registration: Message, timeout: float) -> Message:
        """Connect, register, and wait for the answer; before ``start``.

        Returns:
            The message ``accepted``, ``rejected`` or ``run_in``.

        Raises:
            FleetError: the TaskManager can't be reached or does not answer in time.
            ProtocolError: it answered with something else.
        """
        sock = closed_in_children(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        self._socket = sock
        try:
            sock.settimeout(timeout)
            sock.connect(self._path)
            sock.sendall(encode(registration))
            while True:
                data = sock.recv(_RECEIVE)
                if not data:
                    raise FleetError(f"the TaskManager at {self._path} hung up while the slot registered")
                for message, _ in self._decoder.feed(data):
                    if message["type"] in ("accepted", "rejected", "run_in"):
                        sock.setblocking(False)
                        return message
                    if message["type"] == "wait":
                        sock.settimeout(float(message["seconds"]) + timeout)
                        continue
                    if message["type"] != "ping":
                        raise ProtocolError(f"TaskManager at {self._path}", f"{message['type']!r} before accepting")
                    sock.sendall(encode({"type": "pong", "nonce": message.get("nonce")}))
        except OSError as error:
            raise FleetError(f"the slot can't register with the TaskManager at {self._path}: {error}") from error

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="firesteel-control", daemon=True)
        self._thread.start()

    # -- sending, from any thread

    def send(self, message: Message, payload: bytes = b"") -> None:
        """Queue a message; never waits. Dropped once the channel is closed."""
        frame = encode(message, payload)
        with self._lock:
            if self._closed:
                return
            self._queue.append(frame)
        self._wake()

    def send_output(self, stream: str, text: str) -> None:
        """Queue output of the program; waits while more than ``OUTPUT_LIMIT`` characters are queued."""
        with self._room:
            while self._output >= OUTPUT_LIMIT and not self._closed:
                self._full = True
                self._room.wait()
            if self._closed:
                return
            self._output += len(text)
            last = self._queue[-1] if self._queue else None
            if isinstance(last, _Text) and last.stream == stream and last.size + len(text) <= _FRAME:
                last.parts.append(text)
                last.size += len(text)
            else:
                self._queue.append(_Text(stream, text))
        self._wake()

    def output_room(self) -> bool:
        """Whether ``send_output`` would not wait now; if not, ``on_output_room`` will be called."""
        if self._output < OUTPUT_LIMIT or self._closed:
            return True
        with self._lock:
            self._full = self._output >= OUTPUT_LIMIT
            return not self._full

    def wake(self) -> None:
        """Let ``tick`` be called soon."""
        self._awake = False
        self._wake()

    def _wake(self) -> None:
        if not self._awake:
            self._awake = True
            try:
                self._wake_out.send(b"\0")
            except OSError:  # the socket is full, so the thread wakes up anyway, or closed, so it has ended
                pass

    def close(self, timeout: float) -> None:
        """Send what is queued, for at most this many seconds, then close. Idempotent."""
        self._closing = True
        thread = self._thread
        if thread is not None:
            self._awake = False
            self._wake()
            thread.join(timeout)
        self._shut("closed")
        if thread is not None:
            self._awake = False
            self._wake()
            thread.join(1.0)
        self._wake_in.close()
        self._wake_out.close()

    # -- the thread

    def _run(self) -> None:
        reason = "the TaskManager closed the control channel"
        sock = self._socket
        assert sock is not None
        selector = selectors.DefaultSelector()
        try:
            selector.register(self._wake_in, selectors.EVENT_READ)
            selector.register(sock, selectors.EVENT_READ)
            writing = False
            self._dispatch(b"")
            while not self._closed and not (self._closing and self._idle()):
                due = self._tick()
                timeout = None if due is None else max(0.0, due - self._clock.monotonic())
                for key, mask in selector.select(timeout):
                    if key.fileobj is self._wake_in:
                        self._drain_wake()
                    elif mask & selectors.EVENT_READ and not self._receive(sock):
                        return
                pending = self._send_some(sock)
                if pending != writing:
                    writing = pending
                    selector.modify(sock, selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0))
            reason = "closed"
        except (OSError, ProtocolError) as error:
            reason = f"the control channel to the TaskManager broke: {error}"
        except Exception as error:  # a bug of ours must not leave a slot without an owner
            reason = f"the control thread failed: {type(error).__name__}: {error}"
            logger.exception("control thread")
        finally:
            selector.close()
            self._shut(reason)

    def _idle(self) -> bool:
        with self._lock:
            return not self._queue and not self._sending

    def _drain_wake(self) -> None:
        try:
            while self._wake_in.recv(4096):
                pass
        except BlockingIOError:
            pass
        self._awake = False  # only now: the byte of a wake-up in between would have been read with the others

    def _receive(self, sock: socket.socket) -> bool:
        try:
            data = sock.recv(_RECEIVE)
        except BlockingIOError:
            return True
        if data:
            self._dispatch(data)
        return bool(data)

    def _dispatch(self, data: bytes) -> None:
        for message, payload in self._decoder.feed(data):
            kind = message["type"]
            if kind == "ping":
                self.send({"type": "pong", "nonce": message.get("nonce")})
            elif kind in TO_SLOT:
                self._on_message(message, payload)
            else:
                raise ProtocolError(f"TaskManager at {self._path}", f"message of unknown type {kind!r}")

    def _send_some(self, sock: socket.socket) -> bool:
        """Send until the socket is full or nothing is left; returns whether something is left."""
        while True:
            if not self._sending:
                self._sending = self._next()
                if not self._sending:
                    return False
            try:
                sent = sock.send(self._sending)
            except BlockingIOError:
                return True
            self._sending = self._sending[sent:]

    def _next(self) -> bytes:
        """Take the next message off the queue, encoded; empty if there is none."""
        made_room = False
        with self._lock:
            if not self._queue:
                return b""
            item = self._queue.popleft()
            if isinstance(item, _Text):
                self._output -= item.size
                if self._full and self._output < OUTPUT_LIMIT // 2:
                    self._full, made_room = False, True
                    self._room.notify_all()
        if isinstance(item, bytes):
            return item
        if made_room and self.on_output_room is not None:
            self.on_output_room()
        return encode({"type": "stdout", "stream": item.stream}, "".join(item.parts).encode("utf-8", ESCAPED))

    def _shut(self, reason: str) -> None:
        """Close the socket and tell the slot, once; threads that wait to send output go on."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._queue.clear()
            self._room.notify_all()
        if self._socket is not None:
            self._socket.close()
        self._on_closed(reason)
