"""Pipes into which children of slots print, and native code.

They are read in the TaskManager, not in the slot, so that the last output of a dying process is not lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from firesteel.core.errors import ProtocolError

logger = logging.getLogger(__name__)
_PIECE: Final = 1 << 16
_MOST_PIECES: Final = 64
"""Pieces that are read at a time: a child that prints without end must not hold up the loop."""


class ChildOutput:
    """Reads the pipes of all slots.

    Args:
        directory: in which slots make pipes; no path elsewhere is opened.
        write: called with the control channel of the slot, ``stdout`` or ``stderr``, and bytes.
        ended: called with a control channel when all writers of one of its pipes are gone.
    """

    def __init__(self, directory: Path, write: Callable[[int, str, bytes], None], ended: Callable[[int], None]) -> None:
        self._directory, self._write, self._ended = directory, write, ended
        self._pipes: dict[int, tuple[int, str]] = {}
        """Descriptor -> control channel, stream."""

    def open(self, channel: int, stream: str, path: str) -> None:
        """Read a pipe that a slot has made, until all its writers are gone.

        Raises:
            ProtocolError: the path is no pipe of a slot.
        """
        if os.path.dirname(path) != str(self._directory) or stream not in ("stdout", "stderr"):
            raise ProtocolError(f"control channel {channel}", f"{path!r:.200} is no pipe of a slot")
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            os.unlink(path)
        except OSError as error:
            logger.warning("a pipe for output of a slot's children can't be opened, so that it is lost: %s", error)
            return
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise ProtocolError(f"control channel {channel}", f"{path!r:.200} is no pipe")
        self._pipes[descriptor] = channel, stream
        asyncio.get_running_loop().add_reader(descriptor, self._read, descriptor)

    def drain(self, channel: int) -> None:
        """Read what the children of a slot have written by now."""
        for descriptor, (pipe_channel, _) in list(self._pipes.items()):
            if pipe_channel == channel:
                self._read(descriptor)

    def close(self) -> None:
        for descriptor in list(self._pipes):
            self._read(descriptor)
        for descriptor in list(self._pipes):
            self._close(descriptor)

    def _read(self, descriptor: int) -> None:
        channel, stream = self._pipes[descriptor]
        for _ in range(_MOST_PIECES):
            try:
                data = os.read(descriptor, _PIECE)
            except BlockingIOError:
                return
            except OSError as error:
                logger.warning("output of a slot's children can't be read, and is lost: %s", error)
                data = b""
            if not data:
                self._close(descriptor)
                self._ended(channel)
                return
            self._write(channel, stream, data)

    def _close(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        del self._pipes[descriptor]
