"""Batches as bytes and back: pickle protocol 5 for lists, Arrow IPC for columns.

A message is ``<header 24> <schema> <body> <timestamps> <kinds> <sizes of buffers> <buffers>``, with padding so that
body, timestamps and buffers lie at multiples of 8. Timestamps are int64, kinds int8, little endian; the timestamps of
columns are sent and read without a copy. The schema of columns travels with the first message of a channel and whenever
it changes. Large buffers of pickled records (numpy arrays and the like) are sent and read without a copy; arrays that
are read in this way are as writable as they were.

This module authenticates nobody: ``MessageReader`` may only be given messages of authenticated peers.
"""

from __future__ import annotations

import pickle
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.common.types import to_pickle
from firesteel.core.errors import ProtocolError, SerializationError, TaskInterrupt, class_name
from firesteel.core.pickling import dumps_any
from firesteel.runtime.records.batch import Batch, Kinds, Timestamps
from firesteel.runtime.records.copies import COPIES

_HEADER: Final = struct.Struct("<BBxxIIIII")
"""Format, flags, records, bytes of schema, bytes of body (low, high), number of buffers."""
_LIST, _COLUMNS, _STREAM = 1, 2, 3  # formats: pickled records; one Arrow record batch; an Arrow stream of one
_TIMESTAMPS, _KINDS = 1, 2  # flags: the message has timestamps; it has row kinds
_OUT_OF_BAND: Final = 4096
"""Buffers of fewer bytes are pickled in-band, where they cost less."""
_SWAP: Final = sys.byteorder == "big"
_DEEPEST: Final = 5
"""Levels of a record that are searched for the part that can't be pickled."""

Segment = bytes | memoryview
Received = bytearray | memoryview


def mergeable(first: Received | bytes, second: Received | bytes) -> bool:
    """Whether the batches of two messages are lists and agree in having timestamps and kinds."""
    return first[0] == _LIST and first[:2] == second[:2]


def is_columns(message: Received) -> bool:
    """Whether a message holds columns; its first byte, the format, is enough to tell."""
    return message[0] != _LIST


def _padding(size: int) -> bytes:
    return bytes(-size % 8)


def _integers(code: str, numbers: Iterable[int]) -> bytes:
    data = array(code, numbers)
    if _SWAP:
        data.byteswap()
    return data.tobytes()


def _from_integers(code: str, view: memoryview) -> list[int]:
    data = array(code)
    data.frombytes(view)
    if _SWAP:
        data.byteswap()
    return data.tolist()


def _kinds(kinds: Sequence[int] | npt.NDArray[np.int8]) -> bytes:
    return kinds.tobytes() if isinstance(kinds, np.ndarray) else _integers("b", kinds)


def _timestamps(stamps: Sequence[int] | npt.NDArray[np.int64]) -> Segment:
    if not isinstance(stamps, np.ndarray):
        return _integers("q", stamps)
    return np.ascontiguousarray(stamps, "<i8").view(np.uint8).data


def _stamp_array(view: memoryview) -> npt.NDArray[np.int64]:
    return np.frombuffer(view, "<i8").astype(np.int64, copy=False)


def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return _has_dictionary(kind.storage_type)
    return any(_has_dictionary(kind.field(index).type) for index in range(kind.num_fields))


class MessageWriter:
    """Serialises the batches of one channel, in order, since it sends a schema only when that changes."""

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None
        self._dictionaries = False

    def forget(self) -> None:
        """Send the schema again with the next message, because the last message is not going to be sent."""
        self._schema = None

    def dumps(self, batch: Batch) -> tuple[list[Segment], int]:
        """Serialise a batch; returns the pieces of its message and their size in bytes.

        The pieces may refer to memory of the records.

        Raises:
            SerializationError: a record can't be pickled; names its type and, where known, the attribute.
        """
        values = batch.values
        count = len(batch)
        buffers: list[memoryview] = []
        schema: Any = b""
        body: Any
        if isinstance(values, pa.RecordBatch):
            if self._schema is None or not values.schema.equals(self._schema, check_metadata=True):
                self._schema = values.schema
                self._dictionaries = any(_has_dictionary(field.type) for field in values.schema)
                if not self._dictionaries:
                    schema = memoryview(values.schema.serialize())
            if self._dictionaries:
                kind, body = _STREAM, memoryview(_to_stream(values))
            else:
                kind, body = _COLUMNS, memoryview(values.serialize())
            COPIES.bytes += len(body)
        else:
            kind, body = _LIST, dump_values(values, buffers)
        flags = 0
        stamps: Segment = b""
        tail = b""
        if batch.timestamps is not None:
            flags |= _TIMESTAMPS
            stamps = _timestamps(batch.timestamps)
        if batch.kinds is not None:
            flags |= _KINDS
            tail = _kinds(batch.kinds)
        size = len(body)
        head = _HEADER.pack(kind, flags, count, len(schema), size & 0xFFFFFFFF, size >> 32, len(buffers))
        if not buffers and size < 1 << 16:  # copying small pieces into one is cheaper than handling several
            whole = b"".join((head, schema, _padding(len(schema)), body, _padding(size), stamps, tail))
            return [whole], len(whole)
        if buffers:
            sizes = _integers("Q", (len(buffer) for buffer in buffers))
            tail += _padding(len(tail)) + sizes
        segments: list[Segment] = [head + bytes(schema) + _padding(len(schema)), body, _padding(size), stamps, tail]
        for buffer in buffers:
            segments += (buffer, _padding(len(buffer)))
        segments = [segment for segment in segments if len(segment)]
        return segments, sum(map(len, segments))


class MessageReader:
    """Deserialises the messages of one channel, in order, since a schema holds for the messages behind it.

    Args:
        peer: name of sender and channel in errors.
    """

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._schema: pa.Schema | None = None

    def loads(self, data: Received) -> Batch:
        """Deserialise a message. The batch may refer to the memory of ``data``, which must not change any more.

        Raises:
            SerializationError: the records can't be unpickled here.
            ProtocolError: the message is malformed.
        """
        view = memoryview(data)
        if len(view) < _HEADER.size:
            raise ProtocolError(self._peer, f"message of {len(view)} bytes, too short for its header")
        kind, flags, count, schema_size, low, high, buffer_count = _HEADER.unpack_from(view)
        body_at = _HEADER.size + schema_size + -schema_size % 8
        position = body_at + low + (high << 32)
        if position > len(view):
            raise ProtocolError(self._peer, f"message of {len(view)} bytes, but its body ends at {position}")
        body = view[body_at:position]
        position += -position % 8
        timestamps: Timestamps = None
        kinds: Kinds = None
        if flags & _TIMESTAMPS:
            stamps = self._cut(view, position, 8 * count)
            timestamps = _from_integers("q", stamps) if kind == _LIST else _stamp_array(stamps)
            position += 8 * count
        if flags & _KINDS:
            kind_bytes = self._cut(view, position, count)
            kinds = _from_integers("b", kind_bytes) if kind == _LIST else np.frombuffer(kind_bytes, np.int8)
            position += count
        if kind == _LIST:
            values: Any = self._load_list(body, self._buffers(view, position, buffer_count))
        elif kind in (_COLUMNS, _STREAM):
            values = self._load_columns(kind, view[_HEADER.size : _HEADER.size + schema_size], body)
        else:
            raise ProtocolError(self._peer, f"message of unknown format {kind}")
        batch = Batch(values, timestamps, kinds, len(data))
        if len(batch) != count:
            raise ProtocolError(self._peer, f"message with {len(batch)} records announces {count}")
        return batch

    def _cut(self, view: memoryview, position: int, size: int) -> memoryview:
        if position + size > len(view):
            raise ProtocolError(self._peer, f"message of {len(view)} bytes is cut off: {position + size} are announced")
        return view[position : position + size]

    def _buffers(self, view: memoryview, position: int, count: int) -> list[memoryview]:
        if not count:
            return []
        position += -position % 8
        sizes = _from_integers("Q", self._cut(view, position, 8 * count))
        position += 8 * count
        buffers = []
        for size in sizes:
            buffers.append(self._cut(view, position, size))
            position += size + -size % 8
        return buffers

    def _load_list(self, body: memoryview, buffers: list[memoryview]) -> list[Any]:
        try:
            values = pickle.loads(body, buffers=buffers)
        except TaskInterrupt:
            raise
        except BaseException as error:  # of the user's classes: __setstate__ raises what it likes
            raise SerializationError(
                f"records from {self._peer} can't be unpickled: {type(error).__name__}: {error}"
            ) from error
        if type(values) is not list:
            raise ProtocolError(self._peer, f"message holds a {type(values).__name__} in place of a list")
        return values

    def _load_columns(self, kind: int, schema: memoryview, body: memoryview) -> pa.RecordBatch:
        try:
            if kind == _STREAM:
                with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
                    return stream.read_next_batch()
            if len(schema):
                self._schema = pa.ipc.read_schema(pa.py_buffer(bytes(schema)))
            if self._schema is None:
                raise ProtocolError(self._peer, "columns came before their schema")
            return pa.ipc.read_record_batch(pa.py_buffer(body), self._schema)
        except (pa.ArrowException, StopIteration, OSError) as error:
            raise ProtocolError(self._peer, f"columns can't be read: {error}") from error


def _to_stream(values: pa.RecordBatch) -> pa.Buffer:
    """Encode a record batch as an Arrow stream, the form that carries dictionaries along."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, values.schema) as stream:
        stream.write_batch(values)
    return sink.getvalue()


def dump_values(values: list[Any], buffers: list[memoryview]) -> bytes:
    """Pickle records; their large buffers are not copied but appended to ``buffers``.

    Raises:
        SerializationError: a record can't be pickled.
    """

    def pickle_in_band(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # the buffer is not contiguous
            return True
        if raw.nbytes < _OUT_OF_BAND:
            return True
        buffers.append(raw)
        return False

    whole = to_pickle(values)
    try:
        return pickle.dumps(whole, 5, buffer_callback=pickle_in_band)
    except TaskInterrupt:
        raise
    except BaseException:  # by contract PicklingError, but __reduce__ and __getstate__ of users raise anything
        buffers.clear()
    # Records that pickle refuses (functions, classes of ``__main__``) are tried with cloudpickle, which is slower.
    try:
        return dumps_any(whole, pickle_in_band)
    except TaskInterrupt:
        raise
    except BaseException as error:
        raise _unpicklable(values, error) from error


def _unpicklable(values: list[Any], error: BaseException) -> SerializationError:
    """Make the error that names the type of the first record that can't be pickled, and the part at fault."""
    for value in values:
        if _fails(value):
            try:
                path, leaf = _find(value, _DEEPEST)
            except TaskInterrupt:
                raise
            except BaseException:  # attributes, or the repr of a key, may raise anything
                path, leaf = "", value
            where = f"its {path} (a {class_name(type(leaf))})" if path else "it"
            return SerializationError(
                f"a record of type {class_name(type(value))} can't be sent to another slot: {where} can't be pickled: "
                f"{type(error).__name__}: {error}"
            )
    return SerializationError(f"records can't be sent to another slot: {type(error).__name__}: {error}")


def _fails(value: Any) -> bool:
    try:
        dumps_any(value)
    except TaskInterrupt:
        raise
    except BaseException:  # the user's __reduce__ may raise anything
        return True
    return False


def _find(value: Any, depth: int) -> tuple[str, Any]:
    """Path to the innermost part of a value that can't be pickled, and that part."""
    if depth:
        for name, part in _parts(value):
            if _fails(part):
                path, leaf = _find(part, depth - 1)
                return (name + path if path.startswith("[") else f"{name}.{path}" if path else name), leaf
    return "", value


def _parts(value: Any) -> list[tuple[str, Any]]:
    """The parts of a value, each with the text that leads to it: items, elements, or attributes."""
    if isinstance(value, dict):
        return [(f"[{key!r:.40}]", part) for key, part in value.items()]
    if isinstance(value, (list, tuple)):
        names = getattr(value, "_fields", None)
        if isinstance(names, tuple) and len(names) == len(value):
            return list(zip(map(str, names), value, strict=True))
        return [(f"[{position}]", part) for position, part in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        return [("[element]", part) for part in value]
    parts = list(getattr(value, "__dict__", {}).items())
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                parts.append((name, getattr(value, name)))
    return parts
