"""A worker daemon that is made ready while Spark's JVM still starts, and is handed over when Spark asks for one.

Spark starts its Python daemon at the first slot, when nothing else is left to wait for; loading what slots need takes a
second. So the fleet starts one beforehand. The process that Spark starts then passes its standard streams, arguments
and environment on to the prepared one (`hand_over`) and merely stays for as long as that lives.

Once only: when a daemon has died, the next one that Spark starts finds nobody here, and does the work itself.
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
"""A stranger that says nothing holds up Spark for so long."""


def listen(path: str) -> socket.socket:
    """Open the door before the long loading, so that the other side waits rather than starts anew."""
    door = socket.socket(socket.AF_UNIX)
    door.bind(path)
    door.listen(1)
    return door


def take_over(door: socket.socket, path: str) -> socket.socket | None:
    """Wait for the process that Spark starts, and step into its place.

    Returns:
        The connection to it, to be kept open for as long as this process lives; None if our own standard input ended
        before (the client is gone).
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
            connection.close()  # not the process that Spark started, or it died
        elif os.read(0, 1) == b"":
            return None


def _step_in(connection: socket.socket) -> bool:
    """Take what the other process hands over; whether it was all there."""
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
    """Pass this process's place on to the prepared daemon, if there is one, and wait for its end.

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
            os.dup2(nothing, stream)  # Spark must see these end with the other process
        try:
            connection.recv(1)
        except OSError:
            pass  # it was killed
    return True
