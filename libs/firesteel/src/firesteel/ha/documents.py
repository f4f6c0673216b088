"""Files with a header that says what they are, in which version, and how to tell that they are whole."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from firesteel.core.errors import FiresteelError
from firesteel.ha.disk import Disk

FORMAT: Final = 1
_MAGIC: Final = "firesteel-dispatcher"


class DamagedEntryError(FiresteelError):
    """A file is not what was written; says why."""


class UnknownFormatError(FiresteelError):
    """Something was written by a version of Firesteel whose format this one does not know; nothing is wrong with it."""


def encode(kind: str, value: Mapping[str, Any]) -> bytes:
    """A document: one line with kind, format and SHA-256, then JSON."""
    body = json.dumps(value, separators=(",", ":")).encode()
    return f"{_MAGIC} {kind} {FORMAT} {hashlib.sha256(body).hexdigest()}\n".encode() + body


def decode(kind: str, content: bytes) -> dict[str, Any]:
    """What ``encode`` was given.

    Raises:
        DamagedEntryError: it is something else, or not whole.
        UnknownFormatError: another version has written it.
    """
    header, newline, body = content.partition(b"\n")
    fields = header.decode("utf-8", "replace").split(" ")
    if not newline or len(fields) != 4 or fields[0] != _MAGIC:
        raise DamagedEntryError(f"it does not begin with the header of a file of the cluster ({len(content)} bytes)")
    if fields[1] != kind:
        raise DamagedEntryError(f"it is a file of the kind {fields[1]!r:.40}, not {kind!r}")
    if fields[2] != str(FORMAT):
        if not fields[2].isdigit():
            raise DamagedEntryError(f"it has the format {fields[2]!r:.20}")
        raise UnknownFormatError(f"it has the format {fields[2][:20]}; this version reads format {FORMAT}")
    if hashlib.sha256(body).hexdigest() != fields[3]:
        raise DamagedEntryError(f"its content ({len(body)} bytes) does not have the checksum of the header")
    value = json.loads(body)
    if not isinstance(value, dict):
        raise DamagedEntryError("it holds no JSON object")
    return value


def write_document(disk: Disk, path: Path, kind: str, value: Mapping[str, Any], drafts: Path | None = None) -> None:
    """Atomically; safe when this returns.

    Args:
        disk: writes it.
        path: of the file.
        kind: of document.
        value: what is in it.
        drafts: where it is written before it is renamed; None = beside it.

    Raises:
        OSError: it could not be written; what was there before still is.
    """
    part = path.with_name(f".{path.name}.part") if drafts is None else drafts / f"{path.name}.{uuid.uuid4().hex}"
    try:
        disk.write(part, encode(kind, value))
        disk.sync(part)
        disk.rename(part, path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    disk.sync(path.parent)


def read_document(path: Path, kind: str) -> dict[str, Any]:
    """Read one.

    Raises:
        FileNotFoundError: it is not there.
        OSError: it can't be read for now; what is in it is not known.
        DamagedEntryError: it is not what was written.
    """
    return decode(kind, path.read_bytes())
