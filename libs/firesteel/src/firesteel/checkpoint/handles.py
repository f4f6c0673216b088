"""Handles of pieces of state, which are in the message or metadata itself, or in a file. Each carries a checksum."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from firesteel.checkpoint.reading import CheckpointFormatError, Plain, member, whole_number

CHECKSUM_BYTES: Final = 16


def checksum(data: bytes | bytearray | memoryview) -> str:
    """BLAKE2b of 16 bytes, in hex."""
    return hashlib.blake2b(data, digest_size=CHECKSUM_BYTES).hexdigest()


class RunningChecksum:
    """Computes ``checksum`` of data that comes in pieces."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=CHECKSUM_BYTES)

    def update(self, data: bytes | bytearray | memoryview) -> None:
        self._hash.update(data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


@dataclass(frozen=True)
class InlineState:
    """A small piece of state that is contained in its handle."""

    data: bytes = field(repr=False)

    @property
    def size(self) -> int:
        return len(self.data)

    def to_plain(self) -> dict[str, Any]:
        return {"inline": base64.b64encode(self.data).decode("ascii"), "checksum": checksum(self.data)}


@dataclass(frozen=True)
class FileState:
    """A piece of state in a file of the checkpoint storage, which is never changed.

    Attributes:
        path: path of the file, as the storage names it.
        length: number of bytes.
        checksum: ``checksum`` of these bytes.
        offset: position of the first byte in the file.
    """

    path: str
    length: int
    checksum: str
    offset: int = 0

    @property
    def size(self) -> int:
        return self.length

    def to_plain(self) -> dict[str, Any]:
        return {"file": self.path, "offset": self.offset, "length": self.length, "checksum": self.checksum}


StateHandle = InlineState | FileState


def handle_from_plain(plain: Any, where: str) -> StateHandle:
    """The inverse of ``to_plain``.

    Args:
        plain: plain data of a handle.
        where: path of the field, named in errors.

    Raises:
        CheckpointFormatError: it is malformed, or inline data does not have its checksum.
    """
    fields: Mapping[str, Plain] = member(plain, dict, where)
    expected: str = member(fields.get("checksum"), str, f"{where}.checksum")
    if "inline" in fields:
        text: str = member(fields["inline"], str, f"{where}.inline")
        try:
            data = base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise CheckpointFormatError(f"{where}.inline", f"no base64 text ({error})") from error
        if checksum(data) != expected:
            raise CheckpointFormatError(where, "the checksum of the inline state is not the one written beside it")
        return InlineState(data)
    return FileState(
        member(fields.get("file"), str, f"{where}.file"),
        whole_number(fields.get("length"), f"{where}.length"),
        expected,
        whole_number(fields.get("offset"), f"{where}.offset"),
    )
