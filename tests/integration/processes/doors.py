"""Listening sockets of processes, and what a stranger may throw at them."""

from __future__ import annotations

import os
import pickle
import re
import socket
import struct
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

SLOT_SOCKET = re.compile(r"/[0-9a-f]{16}-[0-9a-f]+\.sock$")
"""Where a slot process listens for its peers."""
_LISTENING = "0A"
_ACCEPTS = 0x10000  # __SO_ACCEPTCON


@dataclass(frozen=True)
class Door:
    """A listening socket.

    Attributes:
        pid: of a process that has it.
        tcp: host and port, or None.
        unix: path, or None; abstract names begin with a zero.
    """

    pid: int
    tcp: tuple[str, int] | None = None
    unix: str | None = None

    def connect(self) -> socket.socket:
        """A connection.

        Raises:
            OSError: nobody accepts it.
        """
        if self.tcp is not None:
            return socket.create_connection(self.tcp, timeout=10)
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(10)
        try:
            client.connect(self.unix or "")
        except BaseException:
            client.close()
            raise
        return client


def doors_of(pids: Iterable[int], network_of: int | str = "self") -> list[Door]:
    """All listening sockets of processes, each once; the processes share the network of the process ``network_of``."""
    owners: dict[str, int] = {}
    for pid in pids:
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
            except OSError:
                continue
            if target.startswith("socket:["):
                owners.setdefault(target[8:-1], pid)
    doors = []
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for fields in _table(network_of, name):
            if fields[3] == _LISTENING and fields[9] in owners:
                host, _, port = fields[1].partition(":")
                doors.append(Door(owners[fields[9]], tcp=(_host(host, family), int(port, 16))))
    for fields in _table(network_of, "unix"):
        if int(fields[3], 16) & _ACCEPTS and fields[6] in owners and len(fields) > 7:
            path = fields[7]
            doors.append(Door(owners[fields[6]], unix="\0" + path[1:] if path.startswith("@") else path))
    return doors


def _table(process: int | str, name: str) -> list[list[str]]:
    lines = Path(f"/proc/{process}/net/{name}").read_text().splitlines()[1:]
    return [line.split() for line in lines]


def _host(text: str, family: socket.AddressFamily) -> str:
    words = bytes.fromhex(text)
    packed = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
    return socket.inet_ntop(family, packed)


class Creates:
    """Unpickling it creates a file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self._path,)


def missiles(canary: Path) -> dict[str, bytes]:
    """What is thrown, by name; ``canary`` must not exist afterwards."""
    evil = pickle.dumps(Creates(str(canary)))
    request = b"POST %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n"

    def post(path: bytes, body: bytes, *headers: bytes) -> bytes:
        lines = b"".join(header + b"\r\n" for header in (b"Content-Length: %d" % len(body), *headers))
        return request % (path, lines) + body

    multipart = (
        b'--x\r\nContent-Disposition: form-data; name="request"; filename="request"\r\n\r\n{"jobGraphFileName":"g"}\r\n'
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="g"\r\n\r\n' + evil + b"\r\n--x--\r\n"
    )
    return {
        "garbage": bytes(range(256)) * 256,
        "zeros": bytes(70_000),
        "half a frame": b"\x00\x00\x01\x00half",
        "half a request": b"POST /rpc/heartbeat HTTP/1.1\r\nHost: localhost\r\nConte",
        "half a body": request % (b"/jobs", b"Content-Length: 1000000\r\n") + b"{",
        "huge length of 4 bytes": b"\x7f\xff\xff\xff" + b"x" * 100,
        "huge length of 8 bytes": struct.pack(">Q", 2**63 - 1) + b"x" * 100,
        "negative length": struct.pack(">i", -1) + b"x" * 100,
        "little-endian length": struct.pack("<I", 2**31 - 1) + b"x" * 100,
        "pickle": evil,
        "pickle in a frame": struct.pack(">I", len(evil)) + evil,
        "pickle in a long frame": struct.pack(">Q", len(evil)) + evil,
        "pickle as an update": struct.pack(">ii", 1, len(evil)) + evil,
        "pickle as a call": post(b"/rpc/submit_tasks", evil),
        "pickle as a job": post(b"/jobs", evil),
        "pickle as a plan": post(b"/jobs", multipart, b"Content-Type: multipart/form-data; boundary=x"),
        "bearer nonsense": post(b"/rpc/free_slot", b"{}", b"Authorization: Bearer " + b"A" * 4000),
        "signed nonsense": post(b"/rpc/free_slot", b"{}", b"Authorization: Firesteel 1 " + b"0" * 32 + b" 2 3"),
        "py4j": b"A\nwrong\nc\nj\ne\nr\nu\njava.lang.System\nrj\ne\n",
        "absurd header": b"GET /overview HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        "absurd headers": b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(20_000)) + b"\r\n",
        "absurd length": request % (b"/rpc/heartbeat", b"Content-Length: 9" + b"9" * 30 + b"\r\n"),
        "negative content length": request % (b"/rpc/heartbeat", b"Content-Length: -5\r\n"),
        "absurd chunk": request % (b"/jobs", b"Transfer-Encoding: chunked\r\n") + b"FFFFFFFFFFFFFFFF\r\nx",
        "two lengths": request % (b"/jobs", b"Content-Length: 5\r\nContent-Length: 6\r\n") + b"hello",
        "absurd host": b"GET /overview HTTP/1.1\r\nHost: evil.example:\x01\r\n\r\n",
        "other site": b"GET /overview HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n",
    }


def throw_all(doors: Iterable[Door], thrown: dict[str, bytes]) -> dict[tuple[Door, str], str]:
    """Throw everything at every door; how each answered: the first bytes, or how the connection ended."""

    def attack(door: Door) -> list[tuple[tuple[Door, str], str]]:
        return [((door, name), _throw(door, data)) for name, data in thrown.items()]

    with ThreadPoolExecutor(16) as pool:
        return dict(pair for pairs in pool.map(attack, doors) for pair in pairs)


def _throw(door: Door, data: bytes) -> str:
    try:
        with door.connect() as connection:
            connection.settimeout(2)
            try:
                connection.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused in the middle; an answer may be there all the same
            connection.settimeout(0.3)
            return connection.recv(100).decode("latin-1").split("\r\n")[0] or "closed"
    except TimeoutError:
        return "silent"
    except ConnectionResetError:
        return "reset"
    except OSError as error:
        return f"no connection: {error}"
