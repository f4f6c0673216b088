"""Who listens on a port of this machine, as far as Linux tells this user; see ``proc(5)`` and ``proc_net_tcp``."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
_LISTENING = "0A"
_SHOWN = 60


def port_holder(port: int) -> str:
    """The process that listens on a TCP port, such as ``process 1234 (java)``; "" if that can't be known.

    Other users' processes show their sockets to root only.
    """
    sockets = {f"socket:[{inode}]" for table in ("tcp", "tcp6") for inode in _listening(_PROC / "net" / table, port)}
    if not sockets:
        return ""
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and _has_open(entry / "fd", sockets):
            return f"process {entry.name} ({_name(entry)})"
    return ""


def _listening(table: Path, port: int) -> list[str]:
    """Inodes of the sockets that listen on a port.

    Columns of the table: number, local address, remote address, state, five more, inode.
    """
    try:
        rows = [line.split() for line in table.read_text(encoding="ascii").splitlines()[1:]]
    except OSError:
        return []
    end = f":{port:04X}"
    return [row[9] for row in rows if len(row) > 9 and row[1].endswith(end) and row[3] == _LISTENING]


def _has_open(descriptors: Path, targets: set[str]) -> bool:
    try:
        names = list(descriptors.iterdir())
    except OSError:  # it has ended, or is somebody else's
        return False
    for name in names:
        try:
            if os.readlink(name) in targets:
                return True
        except OSError:
            continue
    return False


def _name(process: Path) -> str:
    """Its program and arguments, shortened: those of a Python program say more than ``python``."""
    try:
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "?"
    text = " ".join([os.path.basename(words[0]), *words[1:]]).strip()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
