"""``sys.stdout`` and ``sys.stderr`` of a slot: what user code prints travels to the TaskManager, line by line.

The file descriptors 1 and 2 are left alone: they belong to Spark. ``fileno()`` is that of a pipe, which is made when
somebody asks for it or forks: what children write goes there, and its other end is the TaskManager's, so that it is
read whatever becomes of this process.
"""

from __future__ import annotations

import codecs
import io
import os
import threading
from collections.abc import Callable
from typing import Any, Final

from firesteel.core.forks import ForkAware, tell_of_forks
from firesteel.core.text_output import ESCAPED

LARGEST_CHUNK: Final = 64 * 1024


class OutputForwarder(io.TextIOBase, ForkAware):
    """A text stream that hands complete lines to a function, in pieces of at most 64 KiB (characters).

    Args:
        send: takes text; may wait for room, which holds the program back.
        name: ``stdout`` or ``stderr``.
        open_descriptor: makes what ``fileno()`` returns; None: there is none.
    """

    def __init__(
        self, send: Callable[[str], None], name: str, open_descriptor: Callable[[], int] | None = None
    ) -> None:
        super().__init__()
        self._send = send
        self._name = name
        self._partial: list[str] = []
        self._size = 0
        self._lock = threading.RLock()
        self._bytes = _Bytes(self)
        self._open_descriptor, self._descriptor = open_descriptor, -1
        tell_of_forks(self)

    def fileno(self) -> int:
        """A file descriptor whose text comes out beside that of ``write``, for ``subprocess`` and native code."""
        if self._open_descriptor is None:
            raise io.UnsupportedOperation(f"{self.name} has no file descriptor here")
        with self._lock:
            if self._descriptor < 0:
                self._descriptor = self._open_descriptor()
            return self._descriptor

    def before_fork(self) -> None:
        """The child will need the pipe; what is unfinished here is not to come out twice."""
        if self._open_descriptor is not None:
            self.fileno()
        self.flush()

    def after_fork_in_child(self) -> None:
        """Write into the pipe: the child has no connection to the TaskManager."""
        self._lock = threading.RLock()
        self._partial, self._size = [], 0
        if self._descriptor >= 0:
            self._send = self._write_through

    def _write_through(self, text: str) -> None:
        data = text.encode("utf-8", ESCAPED)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def forget_descriptor(self) -> int:
        """Nobody is to write to it any more; returns it for somebody to close, -1: there is none."""
        descriptor, self._descriptor = self._descriptor, -1
        return descriptor

    @property
    def buffer(self) -> Any:
        """A binary stream over the same output, for programs that write bytes."""
        return self._bytes

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """UTF-8."""
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        """What UTF-8 can't hold is escaped."""
        return ESCAPED

    @property
    def name(self) -> str:
        """``<stdout>`` or ``<stderr>``."""
        return f"<{self._name}>"

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        """Forward up to the last line end; the rest waits for its own."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        with self._lock:
            end = text.rfind("\n") + 1
            if end:
                whole = "".join([*self._partial, text[:end]])
                self._partial, self._size = [], 0
                self._forward(whole)
            if end < len(text):
                self._partial.append(text[end:])
                self._size += len(text) - end
                if self._size >= LARGEST_CHUNK:
                    self.flush()
        return len(text)

    def flush(self) -> None:
        """Forward an unfinished line too."""
        with self._lock:
            if self._partial:
                text = "".join(self._partial)
                self._partial, self._size = [], 0
                self._forward(text)

    def _forward(self, text: str) -> None:
        for start in range(0, len(text), LARGEST_CHUNK):
            self._send(text[start : start + LARGEST_CHUNK])


class _Bytes(io.RawIOBase):
    def __init__(self, text: OutputForwarder) -> None:
        super().__init__()
        self._text = text
        self._decoder = codecs.getincrementaldecoder("utf-8")(ESCAPED)
        """A character may be cut between two writes."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        raw = bytes(data)
        self._text.write(self._decoder.decode(raw))
        return len(raw)

    def flush(self) -> None:
        self._text.flush()
