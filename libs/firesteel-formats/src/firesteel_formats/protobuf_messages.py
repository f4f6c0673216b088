"""Converts messages of Protobuf to rows and back. Needs the package protobuf: the extra ``protobuf`` of firesteel."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from firesteel.common.typeinfo import RowTypeInfo, TypeInformation, Types
from firesteel.common.types import make_row
from firesteel.core.errors import ProgramError
from firesteel.expressions.values import RECORDS, ROW, arrow_schema, column_of, row_values

__all__ = ["ProtobufMessage", "message_of"]

Convert = Callable[[Any], Any]
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


def _protobuf() -> Any:
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise ProgramError(
            "Protobuf needs the package protobuf, which is not installed here: pip install 'firesteel[protobuf]'"
        ) from None
    return descriptor_pb2, descriptor_pool, message_factory


class ProtobufMessage:
    """A message type with its descriptors, so that slots need no generated module.

    Args:
        descriptors: a serialised ``FileDescriptorSet`` that holds the file of the message and all files that it
            imports, as ``protoc --include_imports --descriptor_set_out=FILE`` writes it.
        name: full name of the message, for example ``shop.Order``.

    Raises:
        ProgramError: the descriptors can't be read or have no such message, or the message holds itself.

    Examples:
        ```python
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from google.protobuf.duration_pb2 import DESCRIPTOR

        from firesteel.datastream.formats.protobuf import ProtobufMessage

        files = FileDescriptorSet()
        DESCRIPTOR.CopyToProto(files.file.add())
        descriptors = files.SerializeToString()  # or read from the file that protoc --descriptor_set_out has written
        print(ProtobufMessage(descriptors, "google.protobuf.Duration").row_type)
        ```

        ```text
        RowTypeInfo(seconds: Long, nanos: Integer)
        ```
    """

    def __init__(self, descriptors: bytes, name: str) -> None:
        self._descriptors, self.name = descriptors, name
        self._class: Any = None
        self._row_type = _row_type(self._descriptor(), ())

    @staticmethod
    def of(message_class: Any) -> ProtobufMessage:
        """The message type of a class that ``protoc`` has generated.

        Raises:
            TypeError: the argument is no such class.
        """
        descriptor = getattr(message_class, "DESCRIPTOR", None)
        if descriptor is None or not hasattr(descriptor, "fields_by_name"):
            raise TypeError(f"a message class as protoc generates it is needed, not {message_class!r}")
        descriptor_pb2, _, _ = _protobuf()
        files = descriptor_pb2.FileDescriptorSet()
        _add_file(files, descriptor.file, set())
        return ProtobufMessage(files.SerializeToString(deterministic=True), descriptor.full_name)

    @property
    def message_class(self) -> Any:
        """Class of the messages, made from the descriptors."""
        if self._class is None:
            descriptor_pb2, descriptor_pool, message_factory = _protobuf()
            try:
                files = descriptor_pb2.FileDescriptorSet.FromString(self._descriptors)
                pool = descriptor_pool.DescriptorPool()
                for file in files.file:
                    pool.Add(file)
                self._class = message_factory.GetMessageClass(pool.FindMessageTypeByName(self.name))
            except KeyError as error:
                raise ProgramError(f"the descriptors have no message {self.name!r}") from error
            except Exception as error:  # protobuf raises errors of undocumented kinds
                raise ProgramError(f"Protobuf descriptors can't be read: {type(error).__name__}: {error}") from error
        return self._class

    @property
    def row_type(self) -> RowTypeInfo:
        """Type of the rows that stand for messages."""
        return self._row_type

    @property
    def indexes(self) -> tuple[int, ...]:
        """Path of the message in its file: index of the outermost message, of the message inside it, and so on."""
        path, descriptor = [], self._descriptor()
        while descriptor.containing_type is not None:
            path.append(list(descriptor.containing_type.nested_types).index(descriptor))
            descriptor = descriptor.containing_type
        path.append(list(descriptor.file.message_types_by_name.values()).index(descriptor))
        return tuple(reversed(path))

    def files(self) -> tuple[Any, list[Any]]:
        """Descriptors of the message's file, and of the files that it imports, in an order that resolves imports."""
        descriptor_pb2, _, _ = _protobuf()
        by_name = {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(self._descriptors).file}
        ordered: list[Any] = []

        def visit(file: Any) -> None:
            for name in file.dependency:
                visit(by_name[name])
            if file not in ordered:
                ordered.append(file)

        main = by_name[self._descriptor().file.name]
        visit(main)
        return main, ordered[:-1]

    def _descriptor(self) -> Any:
        return self.message_class.DESCRIPTOR

    def to_row(self) -> Convert:
        """A function that converts a message to a row."""
        return _row_maker(self._descriptor())

    def from_row(self) -> Convert:
        """A function that converts a row to a message; it raises ``ValueError`` or ``TypeError``."""
        fill = _filler(self._descriptor())
        make = self.message_class

        def message(row: Any) -> Any:
            result = make()
            fill(result, row)
            return result

        return message

    def columns(self) -> Callable[[Sequence[Any]], pa.RecordBatch | None]:
        """A function that converts messages to a batch; it gives None if a value does not fit its column."""
        fields = [(field.name, _reader(field)) for field in self._descriptor().fields]
        types = self.row_type.field_types
        schema = arrow_schema(self.row_type, {RECORDS: ROW})

        def batch(messages: Sequence[Any]) -> pa.RecordBatch | None:
            try:
                arrays = [
                    column_of([read(message) for message in messages], name, declared)
                    for (name, read), declared in zip(fields, types, strict=True)
                ]
            except Exception:  # the caller reads row by row, which says what is wrong
                return None
            return pa.RecordBatch.from_arrays(arrays, schema=schema)

        return batch

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_class": None}


def message_of(message: Any) -> ProtobufMessage:
    """The message type for a ``ProtobufMessage`` or a class that ``protoc`` has generated."""
    return message if isinstance(message, ProtobufMessage) else ProtobufMessage.of(message)


def _add_file(files: Any, file: Any, added: set[str]) -> None:
    """Add a file and all that it imports to a ``FileDescriptorSet``."""
    if file.name in added:
        return
    added.add(file.name)
    for imported in file.dependencies:
        _add_file(files, imported, added)
    file.CopyToProto(files.file.add())


# --- types


def _row_type(descriptor: Any, inside: tuple[str, ...]) -> RowTypeInfo:
    """Row type of a message; ``inside`` are the names of the messages that it stands in."""
    if descriptor.full_name in inside:
        raise ProgramError(f"the message {inside[0]} holds itself ({descriptor.full_name}), which no row type can")
    inside = (*inside, descriptor.full_name)
    row_type = Types.ROW_NAMED(
        [field.name for field in descriptor.fields], [_type(field, inside) for field in descriptor.fields]
    )
    assert isinstance(row_type, RowTypeInfo)
    return row_type


def _type(field: Any, inside: tuple[str, ...]) -> TypeInformation:
    if _is_map(field):
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        return Types.MAP(_type(key, inside), _type(value, inside))
    element = _single(field, inside)
    return Types.LIST(element) if field.is_repeated else element


def _single(field: Any, inside: tuple[str, ...]) -> TypeInformation:
    kind = field.cpp_type
    if kind == field.CPPTYPE_MESSAGE:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return Types.SQL_TIMESTAMP()
        if name in _WRAPPERS:
            return _single(field.message_type.fields_by_name["value"], inside)
        return _row_type(field.message_type, inside)
    if kind == field.CPPTYPE_STRING:
        return Types.PRIMITIVE_ARRAY(Types.BYTE()) if field.type == field.TYPE_BYTES else Types.STRING()
    makers = {
        field.CPPTYPE_INT32: Types.INT, field.CPPTYPE_UINT32: Types.LONG, field.CPPTYPE_INT64: Types.LONG,
        field.CPPTYPE_UINT64: Types.LONG, field.CPPTYPE_DOUBLE: Types.DOUBLE, field.CPPTYPE_FLOAT: Types.FLOAT,
        field.CPPTYPE_BOOL: Types.BOOLEAN, field.CPPTYPE_ENUM: Types.STRING,
    }  # fmt: skip
    return makers[kind]()


def _is_map(field: Any) -> bool:
    return bool(field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry)


# --- messages to rows


def _row_maker(descriptor: Any) -> Convert:
    names = tuple(field.name for field in descriptor.fields)
    readers = [_reader(field) for field in descriptor.fields]
    return lambda message: make_row(names, [read(message) for read in readers])


def _reader(field: Any) -> Convert:
    """A function that takes the value of a field from a message, for a row."""
    name = field.name
    if _is_map(field):
        convert_item = _value(field.message_type.fields_by_name["value"])
        return lambda message: {key: convert_item(value) for key, value in getattr(message, name).items()}
    convert = _value(field)
    if field.is_repeated:
        return lambda message: [convert(value) for value in getattr(message, name)]
    if field.has_presence:
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    if convert is _same:
        return lambda message: getattr(message, name)
    return lambda message: convert(getattr(message, name))


def _value(field: Any) -> Convert:
    """A function that converts one value of a field, for a row."""
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return _moment
        if name in _WRAPPERS:
            return lambda wrapper: wrapper.value
        return _row_maker(field.message_type)
    if field.cpp_type == field.CPPTYPE_ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))  # a later version of the enumeration has more names
    return _same


def _same(value: Any) -> Any:
    return value


def _moment(stamp: Any) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)


# --- rows to messages


def _filler(descriptor: Any) -> Callable[[Any, Any], None]:
    """A function that puts a row's values into a message; a None leaves its field unset."""
    names = tuple(field.name for field in descriptor.fields)
    writers = [_writer(field) for field in descriptor.fields]

    def fill(message: Any, row: Any) -> None:
        for value, write in zip(row_values(row, names), writers, strict=True):
            if value is not None:
                write(message, value)

    return fill


def _writer(field: Any) -> Callable[[Any, Any], None]:
    """A function that puts a value of a row into a field of a message."""
    name = field.name
    if _is_map(field):
        inner = field.message_type.fields_by_name["value"]
        put, plain = _put(inner), _plain(inner)

        def write_map(message: Any, values: Any) -> None:
            entries = getattr(message, name)
            for key, value in values.items():
                if put is not None:
                    put(entries[key], value)
                else:
                    entries[key] = plain(value)

        return write_map
    put, plain = _put(field), _plain(field)
    if field.is_repeated:

        def write_all(message: Any, values: Any) -> None:
            entries = getattr(message, name)
            for value in values:
                if put is not None:
                    put(entries.add(), value)
                else:
                    entries.append(plain(value))

        return write_all
    if put is not None:

        def write_inside(message: Any, value: Any) -> None:
            entry = getattr(message, name)
            entry.SetInParent()
            put(entry, value)

        return write_inside
    return lambda message, value: setattr(message, name, plain(value))


def _put(field: Any) -> Callable[[Any, Any], None] | None:
    """A function that puts a value into the message that a field holds; None = the field holds no message."""
    if field.cpp_type != field.CPPTYPE_MESSAGE:
        return None
    name = field.message_type.full_name
    if name == _TIMESTAMP:
        return _put_moment
    if name in _WRAPPERS:
        return lambda wrapper, value: setattr(wrapper, "value", value)
    return _filler(field.message_type)


def _plain(field: Any) -> Convert:
    """A function that converts a value of a row for a field that holds no message."""
    if field.cpp_type != field.CPPTYPE_ENUM:
        return bytes if field.type == field.TYPE_BYTES else _same
    numbers = {value.name: value.number for value in field.enum_type.values}

    def number(value: Any) -> int:
        if value in numbers:
            return int(numbers[value])
        try:
            return int(value)
        except (TypeError, ValueError):
            raise ValueError(f"the enumeration {field.enum_type.full_name} has no {value!r}") from None

    return number


def _put_moment(stamp: Any, value: Any) -> None:
    if not isinstance(value, datetime.datetime):
        raise TypeError(f"a timestamp is a datetime, not {type(value).__name__}")
    if value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    stamp.seconds, micros = divmod((value - _EPOCH) // _MICROSECOND, 1_000_000)
    stamp.nanos = micros * 1000
