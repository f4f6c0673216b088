"""``python -I -S probe.py URL`` ends with 0 if the address answers 200: for health checks of containers.

Each check is a process of its own, every two seconds in every container. So this file imports nothing but sockets, and
is run as a script without the site packages. That takes 20 ms of a processor; a module that uses `urllib` takes 50.
"""

from __future__ import annotations

import socket
import sys

_SECONDS = 20.0
_SHOWN = 300
"""Bytes of an answer that are shown."""


def main(arguments: list[str]) -> int:
    """Make one request; returns the exit code, and says on stderr what is wrong."""
    scheme, _, location = arguments[0].partition("://") if len(arguments) == 1 else ("", "", "")
    netloc, _, path = location.partition("/")
    host, _, port = netloc.rpartition(":")
    if scheme != "http" or not host or not port.isdecimal():
        print("usage: python -I -S probe.py http://HOST:PORT/ready", file=sys.stderr)
        return 2
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _SECONDS) as connection:
            connection.sendall(f"GET /{path} HTTP/1.0\r\nHost: {netloc}\r\n\r\n".encode())
            with connection.makefile("rb") as answer:
                line = answer.readline(1000).decode("latin-1").strip()
                version, _, status = line.partition(" ")
                if not version.startswith("HTTP/"):
                    raise ValueError(f"this is no HTTP: {line[:_SHOWN]!r}")
                if status.split(" ")[0] == "200":
                    return 0
                while answer.readline(10_000).strip():
                    pass  # headers
                detail = answer.read(_SHOWN).decode(errors="replace")
    except (OSError, OverflowError, ValueError) as error:
        print(f"{arguments[0]}: {error}", file=sys.stderr)
        return 1
    print(f"{arguments[0]}: {status} {detail}".rstrip(), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
