"""``python -I -S probe.py URL [SECONDS]`` ends with 0 if the address answers 200: for health checks of containers.

With SECONDS it looks for so long, every two seconds, and ends at the first other answer. An engine makes a process for
each check, which takes 75 ms of a processor: with one every two seconds an idle container took 4 % of a core. In the
first two minutes of a container it looks once, so that whoever waits for its start hears at once.

This file imports nothing but sockets and the clock, and is run as a script without the site packages.
"""

from __future__ import annotations

import os
import socket
import sys
import time

_ANSWER_SECONDS = 20.0
"""Longest wait for an answer."""
_INTERVAL = 2.0
_YOUNG = 120.0
"""Age in seconds up to which a container is only looked at once: ``start_period`` of docker-compose.yml."""
_SHOWN = 300
"""Bytes of an answer that are shown."""


def main(arguments: list[str]) -> int:
    """Look once, or for some time; returns the exit code, and says on stderr what is wrong."""
    address, *rest = arguments or [""]
    scheme, _, location = address.partition("://")
    netloc, _, path = location.partition("/")
    host, _, port = netloc.rpartition(":")
    if scheme != "http" or not host or not port.isdecimal() or len(rest) > 1 or not all(map(str.isdecimal, rest)):
        print("usage: python -I -S probe.py http://HOST:PORT/ready [SECONDS]", file=sys.stderr)
        return 2
    last_look = time.monotonic() + (int(rest[0]) if rest and age_of_container() > _YOUNG else 0)
    while (code := look(address, netloc, path)) == 0 and time.monotonic() + _INTERVAL <= last_look:
        time.sleep(_INTERVAL)
    return code


def age_of_container() -> float:
    """Seconds since its first process was started; where ``/proc`` is missing, as if it were new."""
    try:
        with open("/proc/1/stat") as stat, open("/proc/uptime") as uptime:
            started = int(stat.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
            return float(uptime.read().split()[0]) - started
    except OSError:
        return 0.0


def look(address: str, netloc: str, path: str) -> int:
    """Make one request; returns the exit code, and says on stderr what is wrong."""
    host, _, port = netloc.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS) as connection:
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
        print(f"{address}: {error}", file=sys.stderr)
        return 1
    print(f"{address}: {status} {detail}".rstrip(), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
