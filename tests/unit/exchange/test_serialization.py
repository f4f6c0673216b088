from __future__ import annotations

import abc
import array
import enum
import functools
import pickle
import re
import threading
import uuid
import weakref
from collections import deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.common.types import Row, RowKind
from firesteel.core.errors import ProtocolError, SerializationError
from firesteel.runtime.exchange.serialization import MessageReader, MessageWriter, dump_values
from firesteel.runtime.records import sizes
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.rows import to_list
from firesteel.runtime.records.sizes import FEW, TRUSTED, BatchSizes, batch_bytes, record_bytes

int64 = st.integers(-(2**63), 2**63 - 1)
records = st.lists(
    st.one_of(st.none(), st.integers(), st.text(), st.binary(), st.tuples(st.text(), st.floats(allow_nan=False))),
    max_size=20,
)
Point = namedtuple("Point", "x y")


@dataclass
class Order:
    name: str
    lines: list[Any]


def columns_of(batch: Batch) -> pa.RecordBatch:
    assert isinstance(batch.values, pa.RecordBatch)
    return batch.values


def transfer(batch: Batch, writer: MessageWriter, reader: MessageReader) -> Batch:
    segments, size = writer.dumps(batch)
    data = bytearray(b"".join(segments))
    assert len(data) == size
    return reader.loads(data)


def through(batch: Batch) -> Batch:
    return transfer(batch, MessageWriter(), MessageReader("peer"))


@given(records, st.booleans(), st.booleans(), st.data())
def test_lists_come_back_with_timestamps_and_kinds(values: list[Any], stamped: bool, kinded: bool, data: Any) -> None:
    count = len(values)
    stamps = data.draw(st.lists(int64, min_size=count, max_size=count)) if stamped else None
    kinds = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)) if kinded else None
    back = through(Batch(values, stamps, kinds))
    assert (back.values, back.timestamps, back.kinds) == (values, stamps, kinds)
    assert back.bytes_estimate > 0


@pytest.mark.parametrize("count", [0, 3, 100_000])
@pytest.mark.parametrize("kinded", [False, True])
def test_timestamps_of_columns_are_arrays_at_both_ends_and_are_not_copied_on_arrival(count: int, kinded: bool) -> None:
    values = pa.RecordBatch.from_pydict({"n": pa.array(range(count), pa.int64())})
    stamps = np.arange(count, dtype=np.int64) * 7 - 3
    segments, _ = MessageWriter().dumps(Batch(values, stamps[::1], np.ones(count, np.int8) if kinded else None))
    if count > 10_000:
        assert any(np.shares_memory(np.frombuffer(segment, np.uint8), stamps) for segment in segments if len(segment))
    data = bytearray(b"".join(segments))
    back = MessageReader("peer").loads(data)
    assert isinstance(back.timestamps, np.ndarray)
    assert back.timestamps.dtype == np.int64
    assert back.timestamps.tolist() == stamps.tolist()
    assert to_list(back.kinds) == ([1] * count if kinded else None)
    assert columns_of(back).equals(values)
    assert not count or np.shares_memory(back.timestamps, np.frombuffer(data, np.uint8))


@pytest.mark.parametrize("size", [10, 100_000])
def test_arrays_come_back_as_writable_as_they_were(size: int) -> None:
    fixed = np.arange(size)
    fixed.flags.writeable = False
    back = through(Batch([("a", np.arange(size)), ("b", fixed), ("c", np.arange(size * 2)[::2])], [1, 2, 3]))
    assert back.timestamps == [1, 2, 3]
    assert [array.tolist() for _, array in back.values] == [list(range(size))] * 2 + [list(range(0, size * 2, 2))]
    assert [array.flags.writeable for _, array in back.values] == [True, False, True]
    back.values[0][1][0] = 7


def test_large_arrays_are_neither_copied_into_a_message_nor_out_of_it() -> None:
    array = np.arange(100_000)
    segments, _size = MessageWriter().dumps(Batch([array]))
    assert any(np.shares_memory(np.frombuffer(part, np.uint8), array) for part in segments)
    data = bytearray(b"".join(segments))
    back = MessageReader("peer").loads(data).values[0]
    assert np.shares_memory(back, np.frombuffer(data, np.uint8))


class OwnRow(Row):
    """Of the user's."""


rows = st.one_of(
    st.builds(Row, st.integers(), st.text()),
    st.builds(lambda a, b: Row(a=a, b=b), st.integers(), st.builds(Row, st.text())),
    st.builds(lambda a: Row.of_kind(RowKind.DELETE, a=a, b=1), st.integers()),
    st.builds(OwnRow, st.integers()),
)


@given(st.one_of(*(st.lists(values, max_size=8) for values in (rows, st.builds(Row, st.integers(), st.text())))))
def test_rows_come_back_as_they_were(values: list[Any]) -> None:
    back = through(Batch(values)).values
    assert isinstance(back, list)
    assert back == values
    assert [(type(row), row._fields, row.get_row_kind()) for row in back] == [
        (type(row), row._fields, row.get_row_kind()) for row in values
    ]


def test_many_rows_are_written_together_and_stay_apart() -> None:
    row = Row(name="a", amount=1)
    values = [row, row, *(Row(name="b", amount=number) for number in range(1000))]
    back = through(Batch(values)).values
    assert back == values
    back[0]["amount"] = 5
    assert back[1] == row
    one_by_one = sum(len(pickle.dumps(value, 5)) for value in values)
    assert len(dump_values(values, [])) < one_by_one / 4
    assert b"_remake_all" in dump_values(values, [])


def columns(start: int, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({
        "n": pa.array(range(start, start + count), pa.int64()),
        "text": pa.array([None if i % 3 == 0 else f"x{i}" for i in range(start, start + count)]),
        "list": pa.array([[i] * (i % 3) for i in range(start, start + count)], pa.list_(pa.int32())),
    })  # fmt: skip


def test_columns_send_their_schema_once_and_again_when_it_changes() -> None:
    writer, reader = MessageWriter(), MessageReader("peer")
    other = pa.RecordBatch.from_pydict({"only": [1.5]})
    sizes = []
    for batch in (columns(0, 5), columns(5, 5), other, other, columns(0, 5)):
        segments, size = writer.dumps(Batch(batch, list(range(batch.num_rows))))
        sizes.append(size)
        back = reader.loads(bytearray(b"".join(segments)))
        assert columns_of(back).equals(batch)
        assert columns_of(back).schema.equals(batch.schema, check_metadata=True)
        assert isinstance(back.timestamps, np.ndarray)
        assert back.timestamps.tolist() == list(range(batch.num_rows))
    assert sizes[1] < sizes[0] == sizes[4]
    assert sizes[3] < sizes[2]


def test_a_message_that_was_not_sent_does_not_count_as_having_announced_the_schema() -> None:
    writer, reader = MessageWriter(), MessageReader("peer")
    writer.dumps(Batch(columns(0, 5)))
    writer.forget()
    assert columns_of(transfer(Batch(columns(0, 5)), writer, reader)).equals(columns(0, 5))


def test_slices_of_columns_travel_as_slices_without_the_rest() -> None:
    whole = columns(0, 10_000)
    part = whole.slice(5_000, 10)
    _, size = MessageWriter().dumps(Batch(part))
    assert size < 3_000
    assert columns_of(through(Batch(part))).equals(part)


def test_columns_with_dictionaries_and_empty_ones() -> None:
    words = pa.RecordBatch.from_pydict({"w": pa.array(["a", "b", "a"]).dictionary_encode()})
    writer, reader = MessageWriter(), MessageReader("peer")
    for _ in range(2):
        assert columns_of(transfer(Batch(words), writer, reader)).equals(words)
    assert columns_of(transfer(Batch(columns(0, 0)), writer, reader)).equals(columns(0, 0))


def test_columns_are_read_without_a_copy() -> None:
    segments, _ = MessageWriter().dumps(Batch(columns(0, 10_000)))
    data = bytearray(b"".join(segments))
    numbers = columns_of(MessageReader("peer").loads(data)).column(0).to_numpy()
    assert np.shares_memory(numbers, np.frombuffer(data, np.uint8))


def test_what_plain_pickle_refuses_goes_by_cloudpickle() -> None:
    class Local:
        def __init__(self, n: int) -> None:
            self.n = n

    back = through(Batch([Local(1), lambda x: x + 1]))
    assert back.values[0].n == 1
    assert back.values[1](1) == 2


class Slotted:
    __slots__ = ("handle",)

    def __init__(self, handle: Any) -> None:
        self.handle = handle


@pytest.mark.parametrize(
    ("record", "path", "leaf"),
    [
        (threading.Lock(), "it can't be pickled", "_thread.lock"),
        (Order("a", [1, {"k": threading.Lock()}]), r"its lines\[1\]\['k'\] \(a _thread.lock\)", "Order"),
        (("a", Point(1, threading.Lock())), r"its \[1\].y \(a _thread.lock\)", "tuple"),
        (Slotted(threading.Lock()), r"its handle \(a _thread.lock\)", "Slotted"),
    ],
)
def test_an_unpicklable_record_is_named_by_type_and_path(record: Any, path: str, leaf: str) -> None:
    with pytest.raises(SerializationError, match=path) as caught:
        MessageWriter().dumps(Batch([1, "fine", record]))
    assert f"a record of type {leaf}" in str(caught.value).replace(f"{__name__}.", "")
    assert caught.value.__cause__ is not None


class Unreadable:
    def __reduce__(self) -> Any:
        return int, ("not a number",)


def test_records_that_cannot_be_read_here_say_so() -> None:
    with pytest.raises(SerializationError, match="records from slot b can't be unpickled: ValueError") as caught:
        transfer(Batch([Unreadable()]), MessageWriter(), MessageReader("slot b"))
    assert isinstance(caught.value.__cause__, ValueError)


MESSAGES = {
    "list": Batch([1, ("a", 2.5)], [1, 2], [0, 1]),
    "buffers": Batch([np.arange(3000), np.arange(2000)], [1, 2]),
    "columns": Batch(columns(0, 20), list(range(20))),
    "dictionary": Batch(pa.RecordBatch.from_pydict({"w": pa.array(["a", "b"]).dictionary_encode()})),
}


@pytest.mark.parametrize("name", MESSAGES)
@given(data=st.data())
def test_a_message_cut_off_anywhere_is_an_error(name: str, data: Any) -> None:
    segments, size = MessageWriter().dumps(MESSAGES[name])
    cut = data.draw(st.integers(0, size - 1))
    whole = b"".join(segments)
    try:
        back = MessageReader("peer").loads(bytearray(whole[:cut]))
    except (ProtocolError, SerializationError):
        return
    assert not any(whole[cut:]), "only padding may be missing"
    assert len(back) == len(MESSAGES[name])


def test_columns_before_their_schema_are_an_error() -> None:
    writer = MessageWriter()
    writer.dumps(Batch(columns(0, 5)))
    segments, _ = writer.dumps(Batch(columns(0, 5)))
    with pytest.raises(ProtocolError, match="before their schema"):
        MessageReader("peer").loads(bytearray(b"".join(segments)))


def test_unknown_formats_are_an_error() -> None:
    with pytest.raises(ProtocolError, match="unknown format 9"):
        MessageReader("peer").loads(bytearray(b"\x09" + bytes(23)))


@pytest.mark.parametrize(
    "values",
    [
        list(range(1000)),
        [(f"word{i}", i) for i in range(1000)],
        [{"user": f"u{i}", "amount": i * 0.5} for i in range(1000)],
        [Order(f"name{i}", [i, i + 1]) for i in range(1000)],
        [b"x" * (1000 + number % 2) for number in range(1000)],
        [np.zeros(100) for _ in range(100)],
    ],
)
def test_estimates_are_in_the_right_region(values: list[Any]) -> None:
    _, size = MessageWriter().dumps(Batch([*map(lambda value: value, values)]))
    assert size / 3 < batch_bytes(Batch(values)) < size * 3


def test_estimates_survive_records_that_refuse_to_be_looked_at() -> None:
    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("hands off")

    class Loop(list[Any]):
        pass

    endless = Loop()
    endless.append(endless)
    assert record_bytes(Hostile()) > 0
    assert record_bytes(endless) > 0
    assert batch_bytes(Batch([Hostile()])) > 0


class Side(enum.Enum):
    BUY = 1
    SELL = 2


class Guarded:
    """Its attributes are nobody's business."""

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("hands off")


class NoModule:
    __module__ = 5  # type: ignore[assignment]


class Text(str):
    """Derived from a built-in type, with attributes."""


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


BY_REFERENCE: dict[str, Any] = {
    "enum member": Side.BUY,
    "enum class": Side,
    "class": ValueError,
    "function": pytest.fixture,
    "lambda": lambda: None,
    "builtin": len,
    "module": enum,
    "method": Text.join,
    "bound method": Text("a").join,
    "partial": functools.partial(print, end=""),
    "UUID": uuid.uuid4(),
    "regular expression": re.compile("a"),
    "exception": ValueError("a"),
    "weak reference": weakref.ref(Side),
    "generator": (number for number in range(3)),
    "lock": threading.Lock(),
    "attributes refused": Guarded(),
    "module is no text": NoModule(),
    "class of a metaclass": abc.ABC,
    "mapping proxy": vars(Side),
    "deep": nested(100_000),
}


@pytest.mark.parametrize("value", BY_REFERENCE.values(), ids=BY_REFERENCE)
def test_estimates_of_values_that_lead_to_the_interpreter_are_small_and_never_raise(value: Any) -> None:
    for values in ([value] * 100, [("a", value, 1)] * 100, [{"k": [value]}] * 100, [Order("a", [value])] * 100):
        assert 0 < batch_bytes(Batch(list(values))) < 100_000
    assert 0 < record_bytes(value) < 1_000


def test_records_with_enum_members_and_classes_are_estimated_as_others_are() -> None:
    for values in (
        [("ACME", Side.BUY, 10 * number) for number in range(1000)],
        [(f"name{number}", ValueError) for number in range(1000)],
        [(uuid.uuid4(), number) for number in range(1000)],
    ):
        _, size = MessageWriter().dumps(Batch(list(values)))
        assert size / 3 < batch_bytes(Batch(values)) < size * 8


def test_a_record_that_another_thread_changes_is_estimated_all_the_same() -> None:
    error = RuntimeError("dictionary changed size during iteration")
    with mock.patch.object(sizes, "_each", side_effect=error):
        assert 0 < batch_bytes(Batch([{"a": Side.BUY}])) < 1_000


@dataclass(slots=True)
class InSlots:
    name: str
    never_set: str = field(init=False)


class Half:
    """Members and a dictionary; its own methods must not be called."""

    __slots__ = ("__dict__", "body")

    def __init__(self, body: Any) -> None:
        self.body, self.more = "", body

    def __len__(self) -> int:
        raise RuntimeError("hands off")


SKEWED: dict[str, Callable[[str], Any]] = {
    "text": lambda text: text,
    "bytes": lambda text: text.encode(),
    "tuple": lambda text: ("key", text, 1),
    "tuple with an object": lambda text: (datetime(2026, 1, 1), text),
    "list": lambda text: [1] * 50 + [text],
    "dict": lambda text: {str(number): number for number in range(50)} | {"body": text},
    "keys": lambda text: {text: 1},
    "set": lambda text: {text},
    "deep": lambda text: ("key", [{"a": [{"b": (text,)}]}]),
    "row": lambda text: Row(1, text),
    "named row": lambda text: Row(number=1, body=Row(text)),
    "object": lambda text: Order(text, []),
    "slots": InSlots,
    "both": Half,
    "array": lambda text: np.frombuffer(text.encode(), np.uint8),
    "number": lambda text: (int("1" * 10 if len(text) < 100 else "0x1" + "0" * (2 * len(text)), 0), Side.BUY),
    "derived text": lambda text: (Text(text), Side.BUY),
    "deque": lambda text: deque([text, Side.BUY]),
    "exception": lambda text: ValueError(text),
    "partial": lambda text: functools.partial(print, text),
    "array.array": lambda text: array.array("b", text.encode()),
    "array in a tuple": lambda text: ("key", np.frombuffer(text.encode(), np.uint8)),
}


@pytest.mark.parametrize("make", SKEWED.values(), ids=SKEWED)
def test_one_large_record_among_small_ones_is_not_overlooked(make: Callable[[str], Any]) -> None:
    large = 5_000_000
    values = [make(f"small {number}") for number in range(1000)]
    assert batch_bytes(Batch(list(values))) < 1_000_000
    values[333] = make("x" * large)
    assert large < batch_bytes(Batch(list(values))) < large + 1_000_000
    values[500] = make("y" * 20_000_000)  # and the quick look sees that there is much
    assert large + 20_000_000 < batch_bytes(Batch(list(values))) < large + 21_000_000


def test_a_channel_soon_sees_that_quick_estimates_have_turned_wrong() -> None:
    small = [("small", number) for number in range(1000)]
    rare = [*small[:300], ("x" * 5_000_000, 0), *small[300:]]
    measured = BatchSizes()
    for _ in range(20):
        assert measured.measure(Batch(small)) < 100_000
    waits = [measured.measure(Batch(rare)) for _ in range(20)]
    unseen = [size for size in waits if size < 5_000_000]
    assert len(unseen) <= TRUSTED
    assert waits == sorted(waits), "once seen, they are all seen"
    assert measured.measure(Batch(rare[:FEW][-1:] + rare[290:310])) > 5_000_000, "few records are all looked at"


def test_what_records_share_is_counted_once_and_cycles_end() -> None:
    shared = "x" * 1_000_000
    assert batch_bytes(Batch([("a", shared) for _ in range(1000)])) < 1_200_000
    everyone: list[Any] = []
    for number in range(100):
        everyone.append(Order(f"name{number}", everyone))
    assert batch_bytes(Batch([everyone] * 100)) < 1_000_000


def test_objects_in_arrays_of_numpy_count() -> None:
    values = [np.array(["x" * 10_000, Side.BUY], object) for _ in range(100)]
    assert 500_000 < batch_bytes(Batch(values)) < 2_000_000
