"""``'format' = 'raw'``: one column, whose value is the message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from typing_extensions import override

from firesteel.common.typeinfo import RowTypeInfo
from firesteel.config.option import STRING, Option, enum_of
from firesteel.expressions.schema import arrow_type
from firesteel.table.types import DataType
from firesteel_sql.connectors.formats.format import INSERT, Change, Kinds, RowDecoder, RowEncoder, TableFormat

CHARSET: Final = Option("raw.charset", STRING, "UTF-8", "Of texts.")
ENDIANNESS: Final = Option(
    "raw.endianness", enum_of("big-endian", "little-endian"), "big-endian", "Order of the bytes of numbers."
)
_NUMBERS: Final = {
    "bool": "?",
    "int8": "i1",
    "int16": "i2",
    "int32": "i4",
    "int64": "i8",
    "float": "f4",
    "double": "f8",
}


class RawTableFormat(TableFormat):
    """The bytes of one value: a text, bytes, a number or a boolean."""

    NAME = "raw"
    OPTIONS = (CHARSET, ENDIANNESS)

    def _codec(self, row_type: RowTypeInfo) -> tuple[str, str]:
        """Name of the Arrow type of the column, and the charset of texts or the layout of numbers."""
        if len(row_type.field_names) != 1:
            raise self.options.refuse(
                "format", f"is 'raw', which holds one column, and there are {len(row_type.field_names)}"
            )
        kind = str(arrow_type(row_type.field_types[0]))
        charset = self.options.get(CHARSET)
        try:
            "".encode(charset)
        except LookupError:
            raise self.options.refuse(CHARSET.key, f"is '{charset}', which is no charset") from None
        if kind in ("string", "binary"):
            return kind, charset
        if kind not in _NUMBERS:
            raise self.options.refuse(
                "format", f"is 'raw', which can't hold the column {row_type.field_names[0]}: {row_type.field_types[0]}"
            )
        return kind, (">" if self.options.get(ENDIANNESS) == "big-endian" else "<") + _NUMBERS[kind]

    @override
    def decoder(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> RowDecoder:
        return RawRowDecoder(row_type, *self._codec(row_type))

    @override
    def encoder(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> RowEncoder:
        return RawRowEncoder(*self._codec(row_type))


class RawRowDecoder(RowDecoder):
    """Reads values from their bytes."""

    def __init__(self, row_type: RowTypeInfo, kind: str, code: str) -> None:
        super().__init__(row_type)
        self._kind, self._code = kind, code

    @override
    def changes(self, message: bytes) -> list[Change]:
        return [Change(INSERT, [self._value(bytes(message))], {})]

    def _value(self, message: bytes) -> Any:
        if self._kind == "binary":
            return message
        if self._kind == "string":
            return message.decode(self._code)
        layout = np.dtype(self._code)
        if len(message) != layout.itemsize:
            raise ValueError(f"{len(message)} bytes {message[:20]!r} are no number of {layout.itemsize}")
        return np.frombuffer(message, layout)[0].item()


class RawRowEncoder(RowEncoder):
    """Writes values as their bytes; NULL is no message."""

    def __init__(self, kind: str, code: str) -> None:
        self._kind, self._code = kind, code

    @override
    def encode(self, rows: pa.RecordBatch, kinds: Kinds | None) -> Sequence[bytes | None]:
        write = self._writer()
        return [None if value is None else write(value) for value in rows.column(0).to_pylist()]

    def _writer(self) -> Callable[[Any], bytes]:
        code = self._code
        if self._kind == "binary":
            return bytes
        if self._kind == "string":
            return lambda value: value.encode(code)
        return lambda value: np.array(value, code).tobytes()
