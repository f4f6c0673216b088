"""Schemas between records and bytes, for connectors. PyFlink's names; here users can write their own."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any

from firesteel.common.printing import text_of
from firesteel.common.typeinfo import TypeInformation, Types
from firesteel.common.types import Row
from firesteel.core.pyflink_names import missing_names

if TYPE_CHECKING:  # loaded where columns are
    import pyarrow as pa

__all__ = [
    "BulkWriter",
    "BulkWriterFactory",
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "RowDataBulkWriterFactory",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]


class SerializationSchema(ABC):
    """Turns a record into bytes."""

    takes_columns: bool = False
    """Whether ``serialize_columns`` is there."""

    @abstractmethod
    def serialize(self, element: Any) -> bytes:
        """Returns the bytes of a record."""

    def serialize_columns(self, batch: pa.RecordBatch) -> list[bytes]:
        """Returns the bytes of each row of a batch; called only if it ``takes_columns``."""
        raise TypeError(f"{type(self).__name__} has no serialize_columns()")


class DeserializationSchema(ABC):
    """Turns bytes into a record."""

    gives_columns: bool = False
    """Whether ``deserialize_columns`` is there."""

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """Returns the records of many messages at once, one row for each, without an object for each.

        Called only if it ``gives_columns``. None = these have to be read one by one: whatever is odd about one of them
        (malformed, or a message without a record) is up to ``deserialize``.
        """
        raise TypeError(f"{type(self).__name__} has no deserialize_columns()")

    @abstractmethod
    def deserialize(self, message: bytes) -> Any:
        """Returns the record of these bytes; None means that there is none in them."""

    def is_end_of_stream(self, next_element: Any) -> bool:
        """Returns whether this record ends the stream; it is not emitted then."""
        return False

    def get_produced_type(self) -> TypeInformation:
        """Returns the type of the records."""
        return Types.PICKLED_BYTE_ARRAY()


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Text to bytes and back, UTF-8 unless said otherwise.

    Raises:
        LookupError: Python does not know the charset.
    """

    def __init__(self, charset: str = "UTF-8") -> None:
        codecs.lookup(charset)
        self._charset = charset

    def serialize(self, element: Any) -> bytes:
        """Returns the encoded text.

        Raises:
            TypeError: the record is no str.
        """
        if not isinstance(element, str):
            raise TypeError(f"SimpleStringSchema serialises str, not {type(element).__name__}.")
        return element.encode(self._charset)

    def deserialize(self, message: bytes) -> str:
        """Returns the decoded text; bytes that are not of the charset become U+FFFD, as in Flink."""
        return message.decode(self._charset, "replace")

    def get_produced_type(self) -> TypeInformation:
        """Returns ``Types.STRING()``."""
        return Types.STRING()


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Bytes as they are."""

    def serialize(self, element: Any) -> bytes:
        """Returns the bytes.

        Raises:
            TypeError: the record is not bytes.
        """
        if not isinstance(element, (bytes, bytearray, memoryview)):
            raise TypeError(f"ByteArraySchema serialises bytes, not {type(element).__name__}.")
        return bytes(element)

    def deserialize(self, message: bytes) -> bytes:
        """Returns the bytes."""
        return message

    def get_produced_type(self) -> TypeInformation:
        """Returns ``Types.PRIMITIVE_ARRAY(Types.BYTE())``."""
        return Types.PRIMITIVE_ARRAY(Types.BYTE())


class RowFieldExtractorSchema(SerializationSchema):
    """The bytes of one field of a row; an empty field is empty bytes.

    Raises:
        ValueError: the index is negative.
    """

    def __init__(self, field_index: int) -> None:
        if field_index < 0:
            raise ValueError(f"A field index is at least 0, not {field_index}.")
        self._field_index = field_index

    def serialize(self, element: Any) -> bytes:
        """Returns the field's bytes; text is encoded as UTF-8.

        Raises:
            TypeError: the record is no row or tuple, or the field is neither bytes nor text.
        """
        if not isinstance(element, (Row, tuple)):
            raise TypeError(f"RowFieldExtractorSchema serialises rows, not {type(element).__name__}.")
        value = element[self._field_index]
        if value is None:
            return b""
        if isinstance(value, str):
            return value.encode("utf-8")
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        raise TypeError(f"Field {self._field_index} is {type(value).__name__}; bytes or str is expected.")


class Encoder:
    """Writes records into files; made from a function that turns a record into bytes."""

    def __init__(self, encode: Callable[[Any], bytes]) -> None:
        self._encode = encode

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """Writes the text of a record, as ``print()`` shows it, and a line feed.

        Raises:
            LookupError: Python does not know the charset.
        """
        codecs.lookup(charset_name)
        return Encoder(_LineEncoder(charset_name))

    @staticmethod
    def of_schema(schema: SerializationSchema, delimiter: bytes = b"\n") -> Encoder:
        """Writes what a schema makes of the record, and the delimiter: JSON lines, for instance."""
        if not isinstance(schema, SerializationSchema):
            raise TypeError(f"of_schema() takes a SerializationSchema, not {type(schema).__name__}.")
        return Encoder(_SchemaEncoder(schema, bytes(delimiter)))

    def encode(self, element: Any) -> bytes:
        """Returns what is written for a record."""
        return self._encode(element)

    def for_type(self, type_info: TypeInformation | None) -> Encoder:
        """Returns the encoder for records of this type; None = any Python object."""
        encode = self._encode
        return Encoder(_LineEncoder(encode.charset, type_info)) if isinstance(encode, _LineEncoder) else self

    @property
    def takes_columns(self) -> bool:
        """Whether batches of columns can be encoded as they are."""
        return isinstance(self._encode, _SchemaEncoder) and self._encode.schema.takes_columns

    def encode_columns(self, batch: pa.RecordBatch) -> list[bytes]:
        """Returns what is written for each row of a batch; only if it takes columns."""
        encode = self._encode
        if not isinstance(encode, _SchemaEncoder):
            raise TypeError("this encoder takes no columns")
        delimiter = encode.delimiter
        return [row + delimiter for row in encode.schema.serialize_columns(batch)]


class BulkWriter(ABC):
    """Writes the records of one file in a format that needs all of them, or blocks of them, at hand."""

    def write_columns(self, batch: pa.RecordBatch) -> None:
        """Takes a batch of columns; called only if the factory says ``takes_columns``."""
        raise TypeError(f"{type(self).__name__} has no write_columns(), but its factory says that it takes columns")

    @abstractmethod
    def write(self, elements: Sequence[Any]) -> None:
        """Takes records; they need not be in the file yet."""

    @abstractmethod
    def finish(self) -> None:
        """Writes all that is left, and the end of the format; does not close the file. Called at most once."""

    def abort(self) -> None:  # noqa: B027 - may be left out
        """The file is given up: nothing more is written. Called instead of ``finish``, or when that failed."""

    def buffered_bytes(self) -> int:
        """Returns about how many bytes were taken and are not in the file yet."""
        return 0


class BulkWriterFactory(ABC):
    """Makes a writer for each file; pickled into the job, so it holds configuration only."""

    takes_columns: bool = False
    """Whether its writers take batches of columns as they are."""

    joinable: bool = False
    """Whether the bytes of one file after those of another are a file of the format."""

    @abstractmethod
    def create(self, stream: IO[bytes]) -> BulkWriter:
        """Returns a writer to an empty file that is open."""

    def check(self) -> None:  # noqa: B027 - may be left out
        """Called at the client when the graph is built.

        Raises:
            ProgramError: the format can't be written here, for instance because a package is not installed.
        """


class RowDataBulkWriterFactory(BulkWriterFactory):
    """A factory whose writers take rows of a type.

    Args:
        row_type: of the rows.
    """

    def __init__(self, row_type: TypeInformation) -> None:
        self._row_type = row_type

    def get_row_type(self) -> TypeInformation:
        """Returns the type of the rows."""
        return self._row_type


class _LineEncoder:
    """A record's text and a line feed, in a charset."""

    def __init__(self, charset: str, type_info: TypeInformation | None = None) -> None:
        self.charset, self.type_info = charset, type_info
        self._text = text_of(type_info)

    def __reduce__(self) -> Any:
        return _LineEncoder, (self.charset, self.type_info)

    def __call__(self, element: Any) -> bytes:
        return f"{self._text(element)}\n".encode(self.charset)


class _SchemaEncoder:
    """What a schema makes of a record, and a delimiter."""

    def __init__(self, schema: SerializationSchema, delimiter: bytes) -> None:
        self.schema, self.delimiter = schema, delimiter

    def __call__(self, element: Any) -> bytes:
        return self.schema.serialize(element) + self.delimiter


if not TYPE_CHECKING:
    __getattr__ = missing_names(__name__)
