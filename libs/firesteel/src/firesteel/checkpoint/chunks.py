"""Chunks of keyed state in a stream of bytes: frame after frame, each with checksums of its own.

A frame is a header, ``<u16 state> <u16 key group> <u32 entries> <u32 length> <u32 CRC-32 of the data> <u32 CRC-32 of
these 16 bytes>``, little endian, and ``length`` bytes of data. Who wants some key groups only skips the data of the
others; the header has a checksum of its own, since one that was changed would have the wrong data skipped. A key group
of 65535 says that entries of several groups are in the chunk, which nobody skips.
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
    """Some entries of one state and one key group; as ``firesteel.state.snapshots.StateChunk``.

    Attributes:
        state: index of the state in the snapshot that the stream belongs to.
        key_group: of all entries; or 65535.
        entries: number of them.
        data: serialised.
    """

    state: int
    key_group: int
    entries: int
    data: bytes


def frame(state: int, key_group: int, count: int, data: bytes) -> tuple[bytes, bytes]:
    """A chunk as it is written: its header, and its data as they are."""
    head = _HEAD.pack(state, key_group, count, len(data), zlib.crc32(data))
    return head + _CRC.pack(zlib.crc32(head)), data


def write_chunks(chunks: Iterable[tuple[int, int, int, bytes]]) -> bytes:
    return b"".join(part for chunk in chunks for part in frame(*chunk))


def read_chunks(stream: BinaryIO, where: str, key_groups: range | None = None) -> Iterator[StoredChunk]:
    """The chunks of a stream, one by one.

    Args:
        stream: at its begin; has to be seekable if ``key_groups`` are given.
        where: path of the file, named in errors.
        key_groups: those that are wanted; None = all.

    Raises:
        CheckpointCorruptedError: the stream ends in a frame, or a checksum is wrong.
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
