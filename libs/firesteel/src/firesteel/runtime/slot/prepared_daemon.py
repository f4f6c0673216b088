"""A worker daemon that is prepared while Spark's JVM still starts, and takes the place of the one that Spark starts.

Spark starts its Python daemon with the first slot, and loading what slots need takes a second, for which the job would
have to wait. So the fleet starts a daemon beforehand. The process that Spark starts later passes its standard streams,
arguments and environment on to the prepared one (`hand_over`), and stays only for as long as that lives.

This works once: when a daemon has died, the next one that Spark starts finds no prepared one, and loads everything.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys

SOCKET_VARIABLE = "FIRESTEEL_PREPARED_DAEMON"
"""Environment variable with the path of the Unix socket at which the prepared daemon listens."""
_LENGTH = struct.Struct(">I")
_TAKEN = b"t"
_LONGEST = 4 << 20
_PATIENCE_SECONDS = 5.0
"""Time after which a connection that says nothing is dropped; meanwhile Spark's own has to wait."""


def listen(path: str) -> socket.socket:
    """Open the socket before the long loading, so that Spark's process waits instead of loading everything itself."""
    door = socket.socket(socket.AF_UNIX)
    door.bind(path)
    door.listen(1)
    return door


def take_over(door: socket.socket, path: str) -> socket.socket | None:
    """Wait for the process that Spark starts, and take its place.

    Returns:
        The connection to it, to be kept open for as long as this process lives; None if our own standard input has
        ended before, because the client is gone.
    """
    poller = select.poll()
    poller.register(0, select.POLLIN)
    poller.register(door, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poller.poll()]
        if door.fileno() in ready:
            connection, _ = door.accept()
            if _step_in(connection):
                door.close()
                os.unlink(path)
                return connection
            connection.close()  # it was not the process that Spark has started, or that has died
        elif os.read(0, 1) == b"":
            return None


def _step_in(connection: socket.socket) -> bool:
    """Take over streams, arguments and environment of the other process; returns whether all of them came."""
    streams: list[int] = []
    try:
        connection.settimeout(_PATIENCE_SECONDS)
        header, streams, _, _ = socket.recv_fds(connection, _LENGTH.size, 3)
        (length,) = _LENGTH.unpack(header)
        if length > _LONGEST or len(streams) != 3:
            return False
        with connection.makefile("rb") as reader:
            about = json.loads(reader.read(length))
        environment, arguments = dict(about["environment"]), list(about["arguments"])
        connection.sendall(_TAKEN)
        connection.settimeout(None)
    except (OSError, ValueError, LookupError, TypeError, struct.error):
        return False
    else:
        for target, stream in enumerate(streams):
            os.dup2(stream, target)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv[1:] = arguments
        return True
    finally:
        for stream in streams:
            os.close(stream)


def hand_over() -> bool:
    """Let the prepared daemon, if there is one, take the place of this process, and wait for its end.

    Returns:
        Whether there was one.
    """
    path = os.environ.pop(SOCKET_VARIABLE, None)
    if path is None:
        return False
    about = json.dumps({"environment": dict(os.environ), "arguments": sys.argv[1:]}).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
            socket.send_fds(connection, [_LENGTH.pack(len(about))], [0, 1, 2])
            connection.sendall(about)
            if connection.recv(1) != _TAKEN:
                return False
        except OSError:
            return False
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):
            os.dup2(nothing, stream)  # so that Spark sees the streams end with the other process, which has them now
        try:
            connection.recv(1)
        except OSError:
            pass  # the prepared daemon was killed
    return True
