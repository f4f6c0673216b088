"""Text for a standard stream of this process, whose reader may be slow, or have stopped reading (``| less``).

A write to a full pipe waits for the reader, and an event loop that waits there does nothing else: a TaskManager missed
its heartbeats so. Text is therefore written at once as long as the stream takes it. The rest is kept in order, and a
thread writes it. Text beyond ``MOST_WAITING`` is left out, and a notice in the output says so.
"""

from __future__ import annotations

import logging
import os
import select
import stat
import sys
import threading
import time
from collections import deque
from typing import Final, TextIO

from firesteel.core.text_output import write_text

logger = logging.getLogger(__name__)
MOST_WAITING: Final = 64 << 20
"""Characters that wait for a reader."""
_PIECE: Final = 400
"""Characters that are written between two looks at the stream: a pipe that is ready takes 4096 bytes without waiting,
and an escaped character has ten."""
STUCK_SECONDS: Final = 5.0
"""Seconds without progress after which the end of the process does not wait for the reader."""


class OutputQueue:
    """One standard stream. Only ``drain`` waits for a reader. Thread-safe.

    Args:
        name: ``stdout`` or ``stderr``; each write goes to what ``sys`` has under this name at that moment.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[tuple[TextIO, str]] = deque()
        self._size = self._left_out = 0
        self._thread: threading.Thread | None = None
        self._progress_at = 0.0

    def write(self, text: str) -> None:
        """Write a text, now or later."""
        stream: TextIO | None = getattr(sys, self._name)
        if stream is None or not text:
            return
        with self._lock:
            if self._thread is None:
                text = _write_ready(stream, text)
            if not text:
                return
            if self._size + len(text) > MOST_WAITING:
                if not self._left_out:
                    logger.warning("nobody reads %s: what is printed from now on is left out there", self._name)
                self._left_out += len(text)
                return
            self._waiting.append((stream, text))
            self._size += len(text)
            if self._thread is None:
                self._progress_at = time.monotonic()
                self._thread = threading.Thread(target=self._write_on, name=f"waiting {self._name}", daemon=True)
                self._thread.start()

    def drain(self) -> bool:
        """Wait until all text is written, or the reader is stuck; returns whether all is written."""
        thread = self._thread
        while thread is not None and thread.is_alive():
            thread.join(0.1)
            if time.monotonic() - self._progress_at > STUCK_SECONDS:
                logger.warning("nobody reads %s: %d characters are not written", self._name, self._size)
                return False
        return True

    def _write_on(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    left_out, self._left_out = self._left_out, 0
                    if not left_out:
                        self._thread = None
                        return
                    notice = f"\n... {left_out} characters were left out here: nobody read them\n"
                    stream = getattr(sys, self._name)
                    if stream is not None:
                        self._waiting.append((stream, notice))
                        self._size += len(notice)
                    continue
                stream, text = self._waiting.popleft()
            for start in range(0, len(text), _PIECE):
                _write(stream, text[start : start + _PIECE])
                self._progress_at = time.monotonic()
            with self._lock:
                self._size -= len(text)


def _write_ready(stream: TextIO, text: str) -> str:
    """Write as much as the stream takes without waiting; returns the rest of the text."""
    poll = _poll_of(stream)
    if poll is None:
        _write(stream, text)
        return ""
    for start in range(0, len(text), _PIECE):
        if not poll.poll(0):
            return text[start:]
        _write(stream, text[start : start + _PIECE])
    return ""


def _poll_of(stream: TextIO) -> select.poll | None:
    """A poll that tells whether the stream takes bytes now; None: writes to it never wait for a reader."""
    try:
        descriptor = stream.fileno()
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
    except (OSError, ValueError, AttributeError):  # a notebook's cell, the capture of a test, closed
        return None
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return poll


def _write(stream: TextIO, text: str) -> None:
    try:
        write_text(stream, text)
        stream.flush()
    except BrokenPipeError:
        logger.debug("whoever read the output has left")
    except (OSError, ValueError, AttributeError) as error:  # a full disk, closed, or none at all
        logger.warning("output can't be written: %s", error)
