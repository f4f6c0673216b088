"""Schemas that convert records to bytes and back, for connectors. PyFlink's names; here users can write their own."""

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
    """Turns a record into bytes.

    Examples:
        ```python
        import json

        from firesteel.common import SerializationSchema


        class AsJson(SerializationSchema):
            def serialize(self, element):
                return json.dumps(element).encode()


        print(AsJson().serialize({"a": 1}))
        ```

        ```text
        b'{"a": 1}'
        ```
    """

    takes_columns: bool = False
    """Whether the schema implements ``serialize_columns``."""

    @abstractmethod
    def serialize(self, element: Any) -> bytes:
        """Returns the bytes of a record."""

    def serialize_columns(self, batch: pa.RecordBatch) -> list[bytes]:
        """Returns the bytes of each row of a batch; called only if ``takes_columns`` is True."""
        raise TypeError(f"{type(self).__name__} has no serialize_columns()")


class DeserializationSchema(ABC):
    """Turns bytes into a record.

    Examples:
        ```python
        import json

        from firesteel.common import DeserializationSchema, Types


        class FromJson(DeserializationSchema):
            def deserialize(self, message):
                return json.loads(message)

            def get_produced_type(self):
                return Types.PICKLED_BYTE_ARRAY()


        print(FromJson().deserialize(b'{"a": 1}'))
        ```

        ```text
        {'a': 1}
        ```
    """

    gives_columns: bool = False
    """Whether the schema implements ``deserialize_columns``."""

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """Returns the records of many messages as one batch, one row for each message.

        Called only if ``gives_columns`` is True. None = the messages have to be read one by one by ``deserialize``,
        because one of them is malformed or contains no record.
        """
        raise TypeError(f"{type(self).__name__} has no deserialize_columns()")

    @abstractmethod
    def deserialize(self, message: bytes) -> Any:
        """Returns the record in these bytes; None means that they contain none."""

    def is_end_of_stream(self, next_element: Any) -> bool:
        """Returns whether this record ends the stream; if so, it is not emitted."""
        return False

    def get_produced_type(self) -> TypeInformation:
        """Returns the type of the records."""
        return Types.PICKLED_BYTE_ARRAY()


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Converts text to bytes and back, with the given charset (default: UTF-8).

    Raises:
        LookupError: Python does not know the charset.

    Examples:
        ```python
        from firesteel.common import SimpleStringSchema

        schema = SimpleStringSchema()
        print(schema.serialize("tea"), schema.deserialize(b"milk"))
        ```

        ```text
        b'tea' milk
        ```
    """

    def __init__(self, charset: str = "UTF-8") -> None:
        codecs.lookup(charset)
        self._charset = charset

    def serialize(self, element: Any) -> bytes:
        """Returns the encoded text.

        Raises:
            TypeError: the record is not a str.
        """
        if not isinstance(element, str):
            raise TypeError(f"SimpleStringSchema serialises str, not {type(element).__name__}.")
        return element.encode(self._charset)

    def deserialize(self, message: bytes) -> str:
        """Returns the decoded text; bytes that are not of the charset become U+FFFD, as in Flink."""
        return message.decode(self._charset, "replace")

    def get_produced_type(self) -> TypeInformation:
        """Returns the type of text, ``Types.STRING()``."""
        return Types.STRING()


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Passes bytes through as they are.

    Examples:
        ```python
        from firesteel.common import ByteArraySchema

        print(ByteArraySchema().deserialize(b"raw"))
        ```

        ```text
        b'raw'
        ```
    """

    def serialize(self, element: Any) -> bytes:
        """Returns the bytes as they are.

        Raises:
            TypeError: the record is not bytes.
        """
        if not isinstance(element, (bytes, bytearray, memoryview)):
            raise TypeError(f"ByteArraySchema serialises bytes, not {type(element).__name__}.")
        return bytes(element)

    def deserialize(self, message: bytes) -> bytes:
        """Returns the bytes as they are."""
        return message

    def get_produced_type(self) -> TypeInformation:
        """Returns the type of bytes, ``Types.PRIMITIVE_ARRAY(Types.BYTE())``."""
        return Types.PRIMITIVE_ARRAY(Types.BYTE())


class RowFieldExtractorSchema(SerializationSchema):
    """Serializes one field of a row; null becomes empty bytes.

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
            TypeError: the record is neither a row nor a tuple, or the field is neither bytes nor text.
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
    r"""Writes records into files, by a function from a record to bytes.

    Examples:
        ```python
        from firesteel.common import Encoder

        print(Encoder.simple_string_encoder().encode("tea"))
        ```

        ```text
        b'tea\n'
        ```
    """

    def __init__(self, encode: Callable[[Any], bytes]) -> None:
        self._encode = encode

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """Makes an encoder that writes the text of a record, as ``print()`` shows it, and a line feed.

        Raises:
            LookupError: Python does not know the charset.
        """
        codecs.lookup(charset_name)
        return Encoder(_LineEncoder(charset_name))

    @staticmethod
    def of_schema(schema: SerializationSchema, delimiter: bytes = b"\n") -> Encoder:
        """Makes an encoder that writes a record by a schema, followed by the delimiter: JSON lines, for instance."""
        if not isinstance(schema, SerializationSchema):
            raise TypeError(f"of_schema() takes a SerializationSchema, not {type(schema).__name__}.")
        return Encoder(_SchemaEncoder(schema, bytes(delimiter)))

    def encode(self, element: Any) -> bytes:
        """Returns the bytes to write for a record."""
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
        """Returns the bytes to write for each row of a batch; only if ``takes_columns`` is True."""
        encode = self._encode
        if not isinstance(encode, _SchemaEncoder):
            raise TypeError("this encoder takes no columns")
        delimiter = encode.delimiter
        return [row + delimiter for row in encode.schema.serialize_columns(batch)]


class BulkWriter(ABC):
    """Writes the records of one file in a format that needs blocks of records, or all of them, at once."""

    def write_columns(self, batch: pa.RecordBatch) -> None:
        """Takes a batch of columns; called only if the factory's ``takes_columns`` is True."""
        raise TypeError(f"{type(self).__name__} has no write_columns(), though takes_columns of its factory is True")

    @abstractmethod
    def write(self, elements: Sequence[Any]) -> None:
        """Takes records; they may be buffered before they are written."""

    @abstractmethod
    def finish(self) -> None:
        """Writes all buffered records and the end of the format; does not close the file. Called at most once."""

    def abort(self) -> None:  # noqa: B027 - may be left out
        """Releases everything; the file is discarded. Called instead of ``finish``, or after it has failed."""

    def buffered_bytes(self) -> int:
        """Returns about how many bytes are buffered and not in the file yet."""
        return 0


class BulkWriterFactory(ABC):
    """Makes a writer for each file; pickled into the job, so it contains configuration only."""

    takes_columns: bool = False
    """Whether its writers implement ``write_columns``."""

    joinable: bool = False
    """Whether the concatenation of two files is a file of the format."""

    @abstractmethod
    def create(self, stream: IO[bytes]) -> BulkWriter:
        """Returns a writer for an open, empty file."""

    def check(self) -> None:  # noqa: B027 - may be left out
        """Checks that files can be written. Called at the client when the graph is built.

        Raises:
            ProgramError: the format can't be written here, for instance because a package is not installed.
        """


class RowDataBulkWriterFactory(BulkWriterFactory):
    """A factory whose writers take rows of a type.

    Args:
        row_type: type of the rows.
    """

    def __init__(self, row_type: TypeInformation) -> None:
        self._row_type = row_type

    def get_row_type(self) -> TypeInformation:
        """Returns the type of the rows."""
        return self._row_type


class _LineEncoder:
    """Encodes a record's text and a line feed, in a charset."""

    def __init__(self, charset: str, type_info: TypeInformation | None = None) -> None:
        self.charset, self.type_info = charset, type_info
        self._text = text_of(type_info)

    def __reduce__(self) -> Any:
        return _LineEncoder, (self.charset, self.type_info)

    def __call__(self, element: Any) -> bytes:
        return f"{self._text(element)}\n".encode(self.charset)


class _SchemaEncoder:
    """Encodes a record by a schema, and a delimiter."""

    def __init__(self, schema: SerializationSchema, delimiter: bytes) -> None:
        self.schema, self.delimiter = schema, delimiter

    def __call__(self, element: Any) -> bytes:
        return self.schema.serialize(element) + self.delimiter


if not TYPE_CHECKING:
    __getattr__ = missing_names(__name__)
