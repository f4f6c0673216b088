"""``sys.stdout`` and ``sys.stderr`` of a slot: they forward output of user code to the TaskManager, line by line.

The file descriptors 1 and 2 are not touched, because they belong to Spark. ``fileno()`` returns a pipe, which is
created on the first call and before a fork: children write to it, and the TaskManager reads it, so that their output
arrives whatever becomes of this process.
"""

from __future__ import annotations

import codecs
import io
import os
import threading
from collections.abc import Callable
from typing import Any, Final

from typing_extensions import override

from firesteel.core.forks import ForkAware, tell_of_forks
from firesteel.core.text_output import ESCAPED

LARGEST_CHUNK: Final = 64 * 1024


class OutputForwarder(io.TextIOBase, ForkAware):
    """A text stream that hands complete lines to a function, in pieces of at most 64 KiB (characters).

    Args:
        send: takes text; it may wait for room, which slows the program down.
        name: ``stdout`` or ``stderr``.
        open_descriptor: creates the descriptor for ``fileno()``; None = there is none.
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
        """A file descriptor for ``subprocess`` and native code, whose output appears beside that of ``write``."""
        if self._open_descriptor is None:
            raise io.UnsupportedOperation(f"{self.name} has no file descriptor here")
        with self._lock:
            if self._descriptor < 0:
                self._descriptor = self._open_descriptor()
            return self._descriptor

    def before_fork(self) -> None:
        """Create the pipe for the child, and flush, or both processes would write the unfinished line."""
        if self._open_descriptor is not None:
            self.fileno()
        self.flush()

    def after_fork_in_child(self) -> None:
        """Write to the pipe from now on, because the child has no connection to the TaskManager."""
        self._lock = threading.RLock()
        self._partial, self._size = [], 0
        if self._descriptor >= 0:
            self._send = self._write_through

    def _write_through(self, text: str) -> None:
        data = text.encode("utf-8", ESCAPED)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def forget_descriptor(self) -> int:
        """Give up the descriptor; returns it for the caller to close, or -1 if there is none."""
        descriptor, self._descriptor = self._descriptor, -1
        return descriptor

    @property
    def buffer(self) -> Any:
        """A binary stream over the same output, for programs that write bytes."""
        return self._bytes

    @property
    @override
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return ESCAPED

    @property
    def name(self) -> str:
        return f"<{self._name}>"

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        """Forward text up to the last line end; the unfinished line waits for its end."""
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
        """Forward the unfinished line as well."""
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
        """Incremental, because a character may be divided between two writes."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        raw = bytes(data)
        self._text.write(self._decoder.decode(raw))
        return len(raw)

    def flush(self) -> None:
        self._text.flush()
