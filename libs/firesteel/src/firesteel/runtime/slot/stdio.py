"""``sys.stdout`` and ``sys.stderr`` of a slot: what user code prints travels to the TaskManager, line by line.

The file descriptors 1 and 2 are left alone: they belong to Spark.
"""

from __future__ import annotations

import codecs
import io
import threading
from collections.abc import Callable
from typing import Any, Final

from firesteel.core.text_output import ESCAPED

LARGEST_CHUNK: Final = 64 * 1024


class OutputForwarder(io.TextIOBase):
    """A text stream that hands complete lines to a function, in pieces of at most 64 KiB (characters).

    Args:
        send: takes text; may wait for room, which holds the program back.
        name: ``stdout`` or ``stderr``.
    """

    def __init__(self, send: Callable[[str], None], name: str) -> None:
        super().__init__()
        self._send = send
        self._name = name
        self._partial: list[str] = []
        self._size = 0
        self._lock = threading.RLock()
        self._bytes = _Bytes(self)

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
        """Yes."""
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
