"""Where a piece of state is: in the message or metadata itself, or in a file. Every handle carries a checksum."""

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
    """The same, of data that comes in pieces."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=CHECKSUM_BYTES)

    def update(self, data: bytes | bytearray | memoryview) -> None:
        self._hash.update(data)

    def hexdigest(self) -> str:
        """Of all pieces so far."""
        return self._hash.hexdigest()


@dataclass(frozen=True)
class InlineState:
    """A small piece of state that travels with whoever names it."""

    data: bytes = field(repr=False)

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data)

    def to_plain(self) -> dict[str, Any]:
        return {"inline": base64.b64encode(self.data).decode("ascii"), "checksum": checksum(self.data)}


@dataclass(frozen=True)
class FileState:
    """A piece of state in a file of the checkpoint storage, which is never written again.

    Attributes:
        path: as the storage names it.
        length: bytes.
        checksum: of these bytes, see ``checksum``.
        offset: where it begins.
    """

    path: str
    length: int
    checksum: str
    offset: int = 0

    @property
    def size(self) -> int:
        """Bytes."""
        return self.length

    def to_plain(self) -> dict[str, Any]:
        return {"file": self.path, "offset": self.offset, "length": self.length, "checksum": self.checksum}


StateHandle = InlineState | FileState


def handle_from_plain(plain: Any, where: str) -> StateHandle:
    """The inverse of ``to_plain``.

    Args:
        plain: what was read.
        where: named in errors.

    Raises:
        CheckpointFormatError: it is malformed, or inline data does not have its checksum.
    """
    given: Mapping[str, Plain] = member(plain, dict, where)
    expected: str = member(given.get("checksum"), str, f"{where}.checksum")
    if "inline" in given:
        text: str = member(given["inline"], str, f"{where}.inline")
        try:
            data = base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise CheckpointFormatError(f"{where}.inline", f"no base64 text ({error})") from error
        if checksum(data) != expected:
            raise CheckpointFormatError(where, "the checksum of the inline state is not the one written beside it")
        return InlineState(data)
    return FileState(
        member(given.get("file"), str, f"{where}.file"),
        whole_number(given.get("length"), f"{where}.length"),
        expected,
        whole_number(given.get("offset"), f"{where}.offset"),
    )
