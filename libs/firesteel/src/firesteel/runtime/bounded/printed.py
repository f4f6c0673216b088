"""The output of a bounded task: rows of ``print`` sinks, and what user code writes to its standard streams."""

from __future__ import annotations

import codecs
import os
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import IO, Final, NamedTuple

from firesteel.core.text_output import ESCAPED
from firesteel.protocol.stages import STDERR, STDOUT
from firesteel.runtime.slot.stdio import OutputForwarder

MOST_OF_CODE: Final = 1 << 20
"""Characters that user code of one task may print; the rest is left out, with a note."""
LAST: Final = 16 << 10
"""Characters, about, of the end of this output that a failed task adds to its error."""


class _Part(NamedTuple):
    stream: int
    text: str


class _Spool:
    """A file without a name to which native code, and child processes of user code, print.

    Args:
        forward: takes the text.
    """

    def __init__(self, forward: Callable[[str], None]) -> None:
        self._forward = forward
        self._decoder = codecs.getincrementaldecoder("utf-8")(ESCAPED)
        self._file: IO[bytes] | None = None
        self._offset = 0

    def open(self) -> int:
        """Create the file; returns the descriptor to write to."""
        self._file = tempfile.TemporaryFile("ab+", buffering=0)  # noqa: SIM115 - it lives as long as the task
        return self._file.fileno()

    def read(self) -> None:
        """Forward the text that was written since the last call."""
        if self._file is None:
            return
        while data := os.pread(self._file.fileno(), 1 << 16, self._offset):
            self._offset += len(data)
            self._forward(self._decoder.decode(data))

    def close(self) -> None:
        """Remove the file, because user code has ended."""
        if self._file is not None:
            self._file.close()
            self._file, self._offset = None, 0


class Printed:
    """Collects printed text until the task sends it to the driver."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._last: deque[_Part] = deque()
        """The end of the output of user code, whether it was taken or not."""
        self._last_characters, self._allowance = 0, MOST_OF_CODE
        self._spools = _Spool(self._code(STDOUT)), _Spool(self._code(STDERR))
        self._streams = (
            OutputForwarder(self._code(STDOUT), "stdout", self._spools[0].open),
            OutputForwarder(self._code(STDERR), "stderr", self._spools[1].open),
        )

    def row(self, text: str) -> None:
        """Add a row of a sink, which is a result of the job and not limited."""
        self._parts.append(_Part(STDOUT, text))

    def take(self) -> list[bytes]:
        """Take all text in order, each piece behind a byte that names its stream."""
        for spool in self._spools:
            spool.read()
        parts, self._parts = self._parts, []
        return [
            bytes((stream,)) + "".join(part.text for part in some).encode(errors=ESCAPED)
            for stream, some in groupby(parts, key=itemgetter(0))
        ]

    def last_of_code(self) -> list[tuple[int, str]]:
        """The end of the output of user code, by stream, for the error of a task that failed."""
        return [
            (stream, "".join(part.text for part in some)) for stream, some in groupby(self._last, key=itemgetter(0))
        ]

    @contextmanager
    def in_place_of_streams(self) -> Iterator[None]:
        """Replace ``sys.stdout`` and ``sys.stderr`` for the duration of a block."""
        streams = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = self._streams
        try:
            yield
        finally:
            self.flush()
            sys.stdout, sys.stderr = streams
            for stream, spool in zip(self._streams, self._spools, strict=True):
                stream.forget_descriptor()
                spool.close()

    def flush(self) -> None:
        """Add unfinished lines, and the text of child processes."""
        for stream, spool in zip(self._streams, self._spools, strict=True):
            stream.flush()
            spool.read()

    def _code(self, stream: int) -> Callable[[str], None]:
        def send(text: str) -> None:
            if self._allowance <= 0:
                return
            self._allowance -= len(text)
            if self._allowance <= 0:
                text += (
                    f"... and more: a task of a bounded job shows {MOST_OF_CODE} characters of what its code prints\n"
                )
            part = _Part(stream, text)
            self._parts.append(part)
            self._last.append(part)
            self._last_characters += len(text)
            while self._last_characters - len(self._last[0].text) > LAST:
                self._last_characters -= len(self._last.popleft().text)

        return send
