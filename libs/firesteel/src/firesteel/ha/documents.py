"""Files with a header that says what they are, in which format, and with which checksum."""

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
    """A file is not what was written; the text says why."""


class UnknownFormatError(FiresteelError):
    """A version of Firesteel whose format this one does not know has written something; it is not damaged."""


def encode(kind: str, value: Mapping[str, Any], version: int = FORMAT) -> bytes:
    """A document: one line with kind, format and SHA-256, then JSON."""
    body = json.dumps(value, separators=(",", ":")).encode()
    return f"{_MAGIC} {kind} {version} {hashlib.sha256(body).hexdigest()}\n".encode() + body


def decode(kind: str, content: bytes, newest: int = FORMAT) -> dict[str, Any]:
    """Value of a document that this version or an earlier one has encoded.

    Args:
        kind: of document.
        content: of the document.
        newest: format that this version writes.

    Raises:
        DamagedEntryError: it is something else, or incomplete.
        UnknownFormatError: another version has written it.
    """
    header, newline, body = content.partition(b"\n")
    fields = header.decode("utf-8", "replace").split(" ")
    if not newline or len(fields) != 4 or fields[0] != _MAGIC:
        raise DamagedEntryError("it was changed, or is no document of the cluster: it does not begin with the header")
    if fields[1] != kind:
        raise DamagedEntryError(f"it is a file of the kind {fields[1]!r:.40}, not {kind!r}")
    if not fields[2].isdigit():
        raise DamagedEntryError(f"it has the format {fields[2]!r:.20}")
    if not FORMAT <= int(fields[2]) <= newest:
        raise UnknownFormatError(f"it has the format {fields[2][:20]}; this version reads format {newest}")
    if hashlib.sha256(body).hexdigest() != fields[3]:
        raise DamagedEntryError(f"its content ({len(body)} bytes) does not have the checksum of the header")
    value = json.loads(body)
    if not isinstance(value, dict):
        raise DamagedEntryError("it has no JSON object")
    return value


def write_document(disk: Disk, path: Path, content: bytes, drafts: Path) -> None:
    """Replace a file atomically; safe when this returns.

    Args:
        disk: writes it.
        path: of the file.
        content: from ``encode``.
        drafts: folder in which it is written before it is renamed.

    Raises:
        OSError: it could not be written; the former content is still there.
    """
    part = drafts / f"{path.name}.{uuid.uuid4().hex}"
    try:
        disk.write(part, content)
        disk.sync(part)
        disk.rename(part, path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    disk.sync(path.parent)


def read_document(path: Path, kind: str, newest: int = FORMAT) -> dict[str, Any]:
    """Read a document from a file.

    Args:
        path: of the file.
        kind: of document.
        newest: format that this version writes.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it can't be read for now; its content is unknown.
        DamagedEntryError: it is not what was written.
        UnknownFormatError: another version has written it.
    """
    return decode(kind, path.read_bytes(), newest)
