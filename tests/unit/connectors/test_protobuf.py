"""Messages of Protobuf as rows and as columns, plain and behind the number of their schema."""

from __future__ import annotations

import base64
import datetime
import pickle
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

from firesteel.common import Row, Types
from firesteel.core.errors import MalformedDataError, ProgramError
from firesteel.expressions.values import records_of
from firesteel_formats.protobuf_messages import ProtobufMessage
from firesteel_formats.protobuf_rows import (
    ConfluentRegistryProtobufDeserializationSchema,
    ConfluentRegistryProtobufSerializationSchema,
    ProtobufRowDeserializationSchema,
    ProtobufRowSerializationSchema,
)
from firesteel_formats.schema_registry import framed
from tests.unit.connectors.registries import Registry

Field = descriptor_pb2.FieldDescriptorProto
ONE, MANY = Field.LABEL_OPTIONAL, Field.LABEL_REPEATED


def field(name: str, number: int, kind: Any, label: Any = ONE, type_name: str = "", optional: bool = False) -> Any:
    field = Field(name=name, number=number, type=kind, label=label, type_name=type_name or None)
    if optional:
        field.proto3_optional, field.oneof_index = True, 0
    return field


def files() -> descriptor_pb2.FileDescriptorSet:
    """shop/money.proto, and shop/order.proto, which imports it."""
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    wrappers_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    money = files.file.add(name="shop/money.proto", package="shop", syntax="proto3")
    money.message_type.add(name="Money", field=[field("cents", 1, Field.TYPE_INT64)])
    order = files.file.add(name="shop/order.proto", package="shop", syntax="proto3")
    order.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto", "shop/money.proto"])
    order.enum_type.add(
        name="State",
        value=[{"name": "OPEN", "number": 0}, {"name": "PAID", "number": 1}],
    )
    order.message_type.add(name="Other", field=[field("id", 1, Field.TYPE_INT32)])
    whole = order.message_type.add(name="Order")
    whole.field.extend(
        [
            field("id", 1, Field.TYPE_UINT32),
            field("user", 2, Field.TYPE_STRING),
            field("note", 3, Field.TYPE_STRING, optional=True),
            field("total", 4, Field.TYPE_MESSAGE, type_name=".shop.Money"),
            field("state", 5, Field.TYPE_ENUM, type_name=".shop.State"),
            field("tags", 6, Field.TYPE_STRING, MANY),
            field("lines", 7, Field.TYPE_MESSAGE, MANY, ".shop.Order.Line"),
            field("at", 8, Field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp"),
            field("weight", 9, Field.TYPE_MESSAGE, type_name=".google.protobuf.DoubleValue"),
            field("raw", 10, Field.TYPE_BYTES),
            field("counts", 11, Field.TYPE_MESSAGE, MANY, ".shop.Order.CountsEntry"),
        ]
    )
    whole.oneof_decl.add(name="_note")
    whole.nested_type.add(name="Line", field=[field("article", 1, Field.TYPE_STRING), field("n", 2, Field.TYPE_INT32)])
    entry = whole.nested_type.add(
        name="CountsEntry", field=[field("key", 1, Field.TYPE_STRING), field("value", 2, Field.TYPE_INT64)]
    )
    entry.options.map_entry = True
    itself = order.message_type.add(name="Tree")
    itself.field.append(field("child", 1, Field.TYPE_MESSAGE, type_name=".shop.Tree"))
    return files


FILES = files()
ORDER = ProtobufMessage(FILES.SerializeToString(), "shop.Order")
FULL = Row(
    id=(1 << 32) - 1, user="ann", note="", total=Row(cents=-250), state="PAID", tags=["a", "b"],
    lines=[Row(article="x", n=2), Row(article="y", n=0)], at=datetime.datetime(1969, 7, 20, 20, 17, 40, 123456),
    weight=0.0, raw=b"\0\xff", counts={"x": 1},
)  # fmt: skip
BARE = Row(
    id=0, user="", note=None, total=None, state="OPEN", tags=[], lines=[], at=None, weight=None, raw=b"", counts={}
)


def test_rows_come_back() -> None:
    write, read = ProtobufRowSerializationSchema(ORDER), ProtobufRowDeserializationSchema(ORDER)
    for row in (FULL, BARE):
        assert read.deserialize(write.serialize(row)) == row
    assert read.deserialize(write.serialize(FULL.as_dict())) == FULL
    again = pickle.loads(pickle.dumps(read))
    assert again.deserialize(pickle.loads(pickle.dumps(write)).serialize(FULL)) == FULL
    assert list(ORDER.row_type.field_types[:5]) == [
        Types.LONG(), Types.STRING(), Types.STRING(), Types.ROW_NAMED(["cents"], [Types.LONG()]), Types.STRING(),
    ]  # fmt: skip


def test_what_another_library_wrote_is_read() -> None:
    """The bytes are those of the encoding's own documentation: field 1, 150; field 2, "testing"."""
    read = ProtobufRowDeserializationSchema(ORDER)
    row = read.deserialize(bytes.fromhex("089601") + b"\x12\x07testing")
    assert (row.id, row.user) == (150, "testing")
    assert read.deserialize(b"\x28\x07").state == "7", "a value of a later version of the enumeration"


def test_rows_and_columns_are_equal() -> None:
    inner = ProtobufMessage(FILES.SerializeToString(), "shop.Order.Line")
    for message, rows in ((ORDER, [FULL, BARE]), (inner, [Row(article="x", n=1), Row(article="", n=-1)])):
        read = ProtobufRowDeserializationSchema(message)
        written = [ProtobufRowSerializationSchema(message).serialize(row) for row in rows]
        if read.gives_columns:
            batch = read.deserialize_columns(written)
            assert batch is not None
            assert records_of(batch, read.get_produced_type()) == rows
            assert read.deserialize_columns([*written, b"\xff"]) is None
    assert ProtobufRowDeserializationSchema(inner).gives_columns


def test_a_generated_class_says_it_all() -> None:
    pool = descriptor_pool.DescriptorPool()
    for file in FILES.file:
        pool.Add(file)
    generated = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    read = ProtobufRowDeserializationSchema(generated)
    assert read.deserialize(generated(id=5, note="n").SerializeToString()).note == "n"
    assert pickle.loads(pickle.dumps(read)).get_produced_type() == ORDER.row_type


@pytest.mark.parametrize(
    ("name", "indexes", "head"), [("Other", (0,), b"\0"), ("Order", (1,), b"\2\2"), ("Order.Line", (1, 0), b"\4\2\0")]
)
def test_a_registry_is_told_all_files(name: str, indexes: tuple[int, ...], head: bytes) -> None:
    registry = Registry()
    message = ProtobufMessage(FILES.SerializeToString(), f"shop.{name}")
    assert message.indexes == indexes
    write = ConfluentRegistryProtobufSerializationSchema("orders-value", message, "http://r", fetch=registry)
    row = {"Other": Row(id=1), "Order": FULL, "Order.Line": Row(article="x", n=2)}[name]
    written = [write.serialize(row) for _ in range(2)]
    assert written[0].startswith(framed(2, head))
    assert registry.asked.count("/subjects/orders-value/versions") == 1
    assert registry.schemas[2]["references"] == [
        {"name": "shop/money.proto", "subject": "shop/money.proto", "version": 1}
    ]
    sent = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(registry.schemas[2]["schema"]))
    assert sent.name == "shop/order.proto"
    read = ConfluentRegistryProtobufDeserializationSchema(message)
    assert [read.deserialize(data) for data in written] == [row, row]


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b"\1", "does not begin with a zero"),
        (framed(1, b"\0\x08\1"), r"it is message \[0\] of its file, and \[1\] is expected"),
        (framed(1, b"\2"), "are cut off"),
        (framed(1, b"\2\2\x08"), "malformed shop.Order"),
        (framed(1, b"\xff" * 9), "are cut off"),
    ],
)
def test_malformed_messages(message: bytes, error: str) -> None:
    read = ConfluentRegistryProtobufDeserializationSchema(ORDER)
    with pytest.raises(MalformedDataError, match=error):
        read.deserialize(message)
    assert read.deserialize_columns([message]) is None


@pytest.mark.parametrize(
    ("row", "error"), [({"unknown": 1}, "unknown"), ({**BARE.as_dict(), "state": "GONE"}, "has no 'GONE'"),
    ({**BARE.as_dict(), "at": 5}, "a timestamp is a datetime"), ({**BARE.as_dict(), "id": "x"}, "x|int")],
)  # fmt: skip
def test_rows_that_do_not_fit(row: Any, error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        ProtobufRowSerializationSchema(ORDER).serialize(row)


def test_messages_that_can_not_be_rows() -> None:
    with pytest.raises(ProgramError, match="holds itself"):
        ProtobufMessage(FILES.SerializeToString(), "shop.Tree")
    with pytest.raises(ProgramError, match=r"have no message 'shop\.None'"):
        ProtobufMessage(FILES.SerializeToString(), "shop.None")
    with pytest.raises(ProgramError, match="can't be read"):
        ProtobufMessage(b"\xff", "shop.Order")
    with pytest.raises(TypeError, match="as protoc generates it"):
        ProtobufRowDeserializationSchema(dict)
