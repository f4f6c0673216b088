"""Messages of Protobuf, and rows of them. They need the package protobuf: the extra ``protobuf`` of firesteel."""

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
    """A message type: its descriptors, so that slots need no generated module.

    Args:
        descriptors: a serialised ``FileDescriptorSet`` that holds the file of the message and all that it imports, as
            ``protoc --include_imports --descriptor_set_out=FILE`` writes it.
        name: full name of the message: ``shop.Order``.

    Raises:
        ProgramError: the descriptors are none, or have no such message, or it can't be a row.
    """

    def __init__(self, descriptors: bytes, name: str) -> None:
        self._descriptors, self.name = descriptors, name
        self._class: Any = None
        self._row_type = _row_type(self._descriptor(), ())

    @staticmethod
    def of(message_class: Any) -> ProtobufMessage:
        """The type of a class that ``protoc`` has generated.

        Raises:
            TypeError: it is none.
        """
        descriptor = getattr(message_class, "DESCRIPTOR", None)
        if descriptor is None or not hasattr(descriptor, "fields_by_name"):
            raise TypeError(f"a message class as protoc generates it is needed, not {message_class!r}")
        descriptor_pb2, _, _ = _protobuf()
        found = descriptor_pb2.FileDescriptorSet()
        _add_file(found, descriptor.file, set())
        return ProtobufMessage(found.SerializeToString(deterministic=True), descriptor.full_name)

    @property
    def message_class(self) -> Any:
        """The class of the messages, made of the descriptors."""
        if self._class is None:
            descriptor_pb2, descriptor_pool, message_factory = _protobuf()
            try:
                found = descriptor_pb2.FileDescriptorSet.FromString(self._descriptors)
                pool = descriptor_pool.DescriptorPool()
                for file in found.file:
                    pool.Add(file)
                self._class = message_factory.GetMessageClass(pool.FindMessageTypeByName(self.name))
            except KeyError as error:
                raise ProgramError(f"the descriptors have no message {self.name!r}") from error
            except Exception as error:  # what it raises for others is not told
                raise ProgramError(f"Protobuf descriptors can't be read: {type(error).__name__}: {error}") from error
        return self._class

    @property
    def row_type(self) -> RowTypeInfo:
        """The type of rows."""
        return self._row_type

    @property
    def indexes(self) -> tuple[int, ...]:
        """Where the message stands in its file: number of the outermost one, of the one inside it, ..."""
        found, descriptor = [], self._descriptor()
        while descriptor.containing_type is not None:
            found.append(list(descriptor.containing_type.nested_types).index(descriptor))
            descriptor = descriptor.containing_type
        found.append(list(descriptor.file.message_types_by_name.values()).index(descriptor))
        return tuple(reversed(found))

    def files(self) -> tuple[Any, list[Any]]:
        """The file of the message, and those that it imports, each behind those that it imports itself; as messages."""
        descriptor_pb2, _, _ = _protobuf()
        known = {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(self._descriptors).file}
        ordered: list[Any] = []

        def visit(file: Any) -> None:
            for name in file.dependency:
                visit(known[name])
            if file not in ordered:
                ordered.append(file)

        main = known[self._descriptor().file.name]
        visit(main)
        return main, ordered[:-1]

    def _descriptor(self) -> Any:
        return self.message_class.DESCRIPTOR

    def to_row(self) -> Convert:
        """What makes a row of a message."""
        return _row_maker(self._descriptor())

    def from_row(self) -> Convert:
        """What makes a message of a row; raises ``ValueError`` or ``TypeError``."""
        fill = _filler(self._descriptor())
        make = self.message_class

        def message(row: Any) -> Any:
            made = make()
            fill(made, row)
            return made

        return message

    def columns(self) -> Callable[[Sequence[Any]], pa.RecordBatch | None]:
        """What makes columns of messages; it gives None if one does not fit."""
        fields = [(field.name, _reader(field)) for field in self._descriptor().fields]
        types = self.row_type.field_types
        schema = arrow_schema(self.row_type, {RECORDS: ROW})

        def made(messages: Sequence[Any]) -> pa.RecordBatch | None:
            try:
                arrays = [
                    column_of([read(message) for message in messages], name, declared)
                    for (name, read), declared in zip(fields, types, strict=True)
                ]
            except Exception:  # whatever it is: rows say it
                return None
            return pa.RecordBatch.from_arrays(arrays, schema=schema)

        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_class": None}


def message_of(given: Any) -> ProtobufMessage:
    """What a schema was given: a ``ProtobufMessage``, or a class that ``protoc`` has generated."""
    return given if isinstance(given, ProtobufMessage) else ProtobufMessage.of(given)


def _add_file(found: Any, file: Any, known: set[str]) -> None:
    if file.name in known:
        return
    known.add(file.name)
    for other in file.dependencies:
        _add_file(found, other, known)
    file.CopyToProto(found.file.add())


# --- types


def _row_type(descriptor: Any, inside: tuple[str, ...]) -> RowTypeInfo:
    if descriptor.full_name in inside:
        raise ProgramError(f"the message {inside[0]} holds itself ({descriptor.full_name}), which no row type can")
    inside = (*inside, descriptor.full_name)
    made = Types.ROW_NAMED(
        [field.name for field in descriptor.fields], [_type(field, inside) for field in descriptor.fields]
    )
    assert isinstance(made, RowTypeInfo)
    return made


def _type(field: Any, inside: tuple[str, ...]) -> TypeInformation:
    if _is_map(field):
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        return Types.MAP(_type(key, inside), _type(value, inside))
    one = _single(field, inside)
    return Types.LIST(one) if field.is_repeated else one


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
    """What takes the value of a field from a message."""
    name = field.name
    if _is_map(field):
        item = _value(field.message_type.fields_by_name["value"])
        return lambda message: {key: item(value) for key, value in getattr(message, name).items()}
    one = _value(field)
    if field.is_repeated:
        return lambda message: [one(value) for value in getattr(message, name)]
    if field.has_presence:
        return lambda message: one(getattr(message, name)) if message.HasField(name) else None
    if one is _same:
        return lambda message: getattr(message, name)
    return lambda message: one(getattr(message, name))


def _value(field: Any) -> Convert:
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return _moment
        if name in _WRAPPERS:
            return lambda wrapper: wrapper.value
        return _row_maker(field.message_type)
    if field.cpp_type == field.CPPTYPE_ENUM:
        known = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: known.get(number, str(number))  # of a later version of the enumeration
    return _same


def _same(value: Any) -> Any:
    return value


def _moment(stamp: Any) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)


# --- rows to messages


def _filler(descriptor: Any) -> Callable[[Any, Any], None]:
    """What puts a row's values into a message; a None leaves its field as it is."""
    names = tuple(field.name for field in descriptor.fields)
    writers = [_writer(field) for field in descriptor.fields]

    def fill(message: Any, row: Any) -> None:
        for value, write in zip(row_values(row, names), writers, strict=True):
            if value is not None:
                write(message, value)

    return fill


def _writer(field: Any) -> Callable[[Any, Any], None]:
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
    """What puts a value into a message that is the field's; None = it is no message."""
    if field.cpp_type != field.CPPTYPE_MESSAGE:
        return None
    name = field.message_type.full_name
    if name == _TIMESTAMP:
        return _put_moment
    if name in _WRAPPERS:
        return lambda wrapper, value: setattr(wrapper, "value", value)
    return _filler(field.message_type)


def _plain(field: Any) -> Convert:
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
