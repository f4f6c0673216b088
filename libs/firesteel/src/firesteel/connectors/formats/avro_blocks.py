"""Avro's container files: a header, then blocks of records with a marker behind each."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Callable
from typing import IO, Any, Final

import pyarrow as pa

from firesteel.connectors.formats.avro_schema import fastavro_module

MARKER_BYTES: Final = 16
_MAGIC: Final = b"Obj\x01"
_HEADER: Final = {
    "type": "record",
    "name": "org.apache.avro.file.Header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": MARKER_BYTES}},
    ],
}
_SEARCHED: Final = 64 * 1024
_LARGEST_BLOCK: Final = 1 << 30


class Header:
    """What a container file begins with.

    Args:
        stream: at the start of the file; afterwards behind the header.

    Attributes:
        schema: that the records were written with, parsed.
        codec: name of the compression.
        marker: what stands behind each block.
        length: bytes of the header; its last 16 are the marker.

    Raises:
        ValueError: it is no container file of Avro.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        fastavro = fastavro_module()
        try:
            found = fastavro.schemaless_reader(stream, fastavro.parse_schema(_HEADER), None)
            if found["magic"] != _MAGIC:
                raise ValueError("it does not begin with Obj and 1")
            meta = found["meta"]
            self.schema = fastavro.parse_schema(json.loads(meta["avro.schema"]))
        except Exception as error:  # fastavro raises what it stumbles over
            raise ValueError(f"no container file of Avro: {error or type(error).__name__}") from error
        self.codec = meta.get("avro.codec", b"null").decode("ascii", "replace")
        self.marker: bytes = found["sync"]
        self.length = stream.tell()


def find_marker(stream: IO[bytes], start: int, marker: bytes) -> int | None:
    """Where the first marker at or behind ``start`` begins; None if there is none."""
    stream.seek(start)
    base, tail = start, b""
    while True:
        more = stream.read(_SEARCHED)
        if not more:
            return None
        data = tail + more
        found = data.find(marker)
        if found >= 0:
            return base + found
        keep = min(len(data), MARKER_BYTES - 1)
        base += len(data) - keep
        tail = data[len(data) - keep :]


def read_block(stream: IO[bytes], header: Header) -> tuple[int, bytes] | None:
    """Number of records and decompressed data of the block at hand; None at the end of the file.

    Raises:
        ValueError: the block is damaged.
    """
    first = stream.read(1)
    if not first:
        return None
    count = _long(stream, first)
    size = _long(stream, stream.read(1))
    if count < 0 or not 0 <= size <= _LARGEST_BLOCK:
        raise ValueError(f"a block of {count} records in {size} bytes can't be")
    data = stream.read(size)
    marker = stream.read(MARKER_BYTES)
    if len(data) < size or len(marker) < MARKER_BYTES:
        raise ValueError("the file ends inside a block")
    if marker != header.marker:
        raise ValueError("the marker behind the block is not that of the file")
    decompress = _CODECS.get(header.codec)
    if decompress is None:
        raise ValueError(f"the compression {header.codec!r} is not one of {', '.join(sorted(_CODECS))}")
    try:
        return count, decompress(data)
    except Exception as error:
        raise ValueError(f"the block can't be decompressed ({header.codec}): {error}") from error


def _long(stream: IO[bytes], byte: bytes) -> int:
    """A number in zigzag coding, its first byte read already."""
    value = shift = 0
    while True:
        if not byte:
            raise ValueError("the file ends inside a block")
        value |= (byte[0] & 0x7F) << shift
        if not byte[0] & 0x80:
            return (value >> 1) ^ -(value & 1)
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")
        byte = stream.read(1)


def _snappy(data: bytes) -> bytes:
    """Four bytes of a checksum follow the data."""
    body, checksum = data[:-4], int.from_bytes(data[-4:], "big")
    size = shift = 0
    for byte in body:  # the length stands in front
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    plain: bytes = pa.decompress(body, size, codec="snappy", asbytes=True)
    if zlib.crc32(plain) != checksum:
        raise ValueError("the checksum is wrong")
    return plain


def _zstandard(data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        plain: bytes = stream.read()
    return plain


_CODECS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "null": lambda data: data,
    "deflate": lambda data: zlib.decompress(data, -15),
    "bzip2": bz2.decompress,
    "xz": lzma.decompress,
    "snappy": _snappy,
    "zstandard": _zstandard,
}


def read_records(count: int, data: bytes, header: Header, reader_schema: Any) -> list[Any]:
    """The records of a block.

    Raises:
        ValueError: they can't be read.
    """
    read = fastavro_module().schemaless_reader
    stream = io.BytesIO(data)
    records: list[Any] = []
    try:
        for _ in range(count):
            records.append(read(stream, header.schema, reader_schema))
    except Exception as error:  # fastavro raises what it stumbles over
        raise ValueError(
            f"record {len(records) + 1} of the block's {count} can't be read: {type(error).__name__}: {error}"
        ) from error
    if stream.read(1):
        raise ValueError(f"the block holds more than its {count} records")
    return records
