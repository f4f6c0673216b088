"""Chunks of keyed state in a stream of bytes: frame after frame, each with its own checksums.

A frame is a header, ``<u16 state> <u16 key group> <u32 entries> <u32 length> <u32 CRC-32 of the data> <u32 CRC-32 of
these 16 bytes>``, little endian, and ``length`` bytes of data. A reader of some key groups skips the data of the
others. The header has a checksum of its own, because a changed header would make it skip wrong data. A key group of
65535 stands for entries of several groups; such a chunk is never skipped.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final, NamedTuple

from firesteel.core.errors import CheckpointCorruptedError

_HEAD: Final = struct.Struct("<HHIII")
_CRC: Final = struct.Struct("<I")
HEADER_BYTES: Final = _HEAD.size + _CRC.size
_SEVERAL: Final = 0xFFFF


class StoredChunk(NamedTuple):
    """Entries of one state, as ``firesteel.state.snapshots.StateChunk``.

    Attributes:
        state: index of the state in the snapshot to which the stream belongs.
        key_group: key group of all entries, or 65535.
        entries: number of entries.
        data: the entries, serialised.
    """

    state: int
    key_group: int
    entries: int
    data: bytes


def frame(state: int, key_group: int, count: int, data: bytes) -> tuple[bytes, bytes]:
    """Frame a chunk; returns the header and the unchanged data, which are written one after the other."""
    head = _HEAD.pack(state, key_group, count, len(data), zlib.crc32(data))
    return head + _CRC.pack(zlib.crc32(head)), data


def write_chunks(chunks: Iterable[tuple[int, int, int, bytes]]) -> bytes:
    return b"".join(part for chunk in chunks for part in frame(*chunk))


def read_chunks(stream: BinaryIO, where: str, key_groups: range | None = None) -> Iterator[StoredChunk]:
    """Yield the chunks of a stream.

    Args:
        stream: stream at its beginning; has to be seekable if ``key_groups`` are given.
        where: path of the file, named in errors.
        key_groups: key groups to read; None = all.

    Raises:
        CheckpointCorruptedError: the stream ends within a frame, or a checksum is wrong.
    """
    position = 0
    while header := stream.read(HEADER_BYTES):
        if len(header) < HEADER_BYTES:
            raise CheckpointCorruptedError(where, f"it ends at byte {position + len(header)}, in a header")
        state, key_group, count, length, expected = _HEAD.unpack_from(header)
        if zlib.crc32(header[: _HEAD.size]) != _CRC.unpack_from(header, _HEAD.size)[0]:
            raise CheckpointCorruptedError(where, f"the checksum of the header at byte {position} is wrong")
        if key_groups is not None and key_group not in key_groups and key_group != _SEVERAL:
            stream.seek(length, 1)
        else:
            data = stream.read(length)
            if len(data) < length:
                end = position + HEADER_BYTES + len(data)
                raise CheckpointCorruptedError(where, f"it ends at byte {end}, in a chunk of {length} bytes")
            if zlib.crc32(data) != expected:
                raise CheckpointCorruptedError(where, f"the checksum of the chunk at byte {position} is wrong")
            yield StoredChunk(state, key_group, count, data)
        position += HEADER_BYTES + length
    if key_groups is not None and position > (end := stream.seek(0, io.SEEK_END)):
        raise CheckpointCorruptedError(where, f"it ends at byte {end}, in a chunk that ends at byte {position}")
