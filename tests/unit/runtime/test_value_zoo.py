"""Values of all kinds on each way that a record may go: they come out equal and of the same type."""

from __future__ import annotations

import io
import os
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from firesteel.common import Types
from firesteel.common.nan_keys import with_one_nan
from firesteel.common.own_copies import as_given, own_copies, own_copy
from firesteel.common.time import Time
from firesteel.common.types import Row
from firesteel.core.errors import KeyTypeError, SerializationError
from firesteel.core.pickling import dumps, dumps_any
from firesteel.functions.state import ListStateDescriptor, MapStateDescriptor, StateTtlConfig, ValueStateDescriptor
from firesteel.graph.key_groups import KeyGroupAssigner
from firesteel.graph.key_hash import key_group, stable_hash
from firesteel.graph.specs import OutputSpec, PartitionerKind
from firesteel.runtime.bounded import buckets
from firesteel.runtime.bounded.blobs import Shuffled, read_batch
from firesteel.runtime.bounded.buckets import Bucket
from firesteel.runtime.chain.partitioners import create_output
from firesteel.runtime.exchange.serialization import MessageReader, MessageWriter
from firesteel.runtime.operator_base.key_check import KeyCheck
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.sizes import batch_bytes, values_bytes
from firesteel.state.backend import KeyedStateParameters, StateBackend, load_state_backend
from firesteel.state.keys import NO_KEY
from firesteel.state.operator_state import HeapOperatorState, OperatorSnapshot
from firesteel.state.snapshots import NO_CHECKPOINT, Purpose
from firesteel.testing.snapshots import take_snapshot
from tests.examples import examples
from tests.unit.runtime.support import FakeOutput
from tests.unit.state.file_backend import FileBackend
from tests.value_zoo import KEYS, NO_KEYS, VALUES, ZOO, Plain, Point, Touchy, same

PICKLED = Types.PICKLED_BYTE_ARRAY()
EACH = pytest.mark.parametrize("name", ZOO)


def through_messages(values: list[Any]) -> list[Any]:
    segments, _ = MessageWriter().dumps(Batch(values))
    loaded = MessageReader("peer").loads(bytearray(b"".join(segments))).values
    assert isinstance(loaded, list)
    return loaded


def through_blobs(values: list[Any]) -> list[Any]:
    shuffled = Shuffled()
    channel = shuffled.channel(0, 0, 7)
    channel.write(Batch(values))
    shuffled.flush()
    return [value for blob in list(shuffled.take())[1::2] for value in read_batch(blob, "peer").values]


@EACH
def test_the_zoo_knows_a_value_again(name: str) -> None:
    assert same(ZOO[name](), ZOO[name]())
    assert same(pickle.loads(dumps(ZOO[name](), str)), ZOO[name]())
    others = [other for other in ZOO if other != name and same(ZOO[name](), ZOO[other]())]
    assert others == []


@EACH
def test_messages_blobs_copies_and_estimates(name: str) -> None:
    value = ZOO[name]()
    records = [value, ("a", ZOO[name](), 1), {"part": [ZOO[name]()]}]
    expected = [ZOO[name](), ("a", ZOO[name](), 1), {"part": [ZOO[name]()]}]
    assert 0 < values_bytes(records) < 10_000_000
    assert 0 < batch_bytes(Batch(records)) < 10_000_000
    for way in (through_messages, through_blobs, own_copies, own_copy, lambda values: list(map(as_given, values))):
        assert same(way(records), expected), way
        assert same(records, expected), "what was sent is as it was"


def test_what_would_arrive_as_something_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "words.txt"
    path.write_text("to be")
    with path.open() as file, pytest.raises(SerializationError, match=r"its \[1\] .* an open file can't be pickled"):
        through_messages([("a", file)])
    records: Any = np.zeros(2, [("a", "i4"), ("b", "f8")])
    with pytest.raises(SerializationError, match=r"a memoryview of format .* use the object that it is a view of"):
        through_messages([memoryview(records)])
    stream = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", stream)
    assert through_messages([stream]) == [stream], "a standard stream is that of the other process"


def test_a_class_whose_module_is_not_loaded_stays_the_same_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numpy.rec", raising=False)
    data = dumps_any(np.recarray)
    assert data == pickle.dumps(np.recarray, 5), "the class is written as its name"


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(VALUES)
def test_values_in_each_other(value: Any) -> None:
    copied = pickle.loads(dumps(value, str))
    assert same(copied, value)
    assert batch_bytes(Batch([value] * 3)) > 0
    (message,), (blob,) = through_messages([value]), through_blobs([value])
    for again in (message, blob, own_copy(value), as_given(value)):
        assert same(again, copied)
        assert same(value, copied)


@pytest.mark.parametrize("kind", PartitionerKind)
def test_partitioners(kind: PartitionerKind) -> None:
    spec = OutputSpec(0, 0, kind)
    if kind is PartitionerKind.HASH:
        spec = replace(spec, key_selector=lambda value: value[0])
    elif kind is PartitionerKind.CUSTOM:
        spec = replace(spec, key_selector=lambda value: value[0], partition=lambda key, count: len(key) % count)
    channels = [FakeOutput(index) for index in range(3)]
    output = create_output(spec, "op", channels, 128, random.Random(1))
    for channel, batch in output.route(Batch([(name, make()) for name, make in ZOO.items()])):
        channel.write(batch)
    values = sorted((value for channel in channels for value in channel.values), key=lambda value: str(value[0]))
    times = len(channels) if kind is PartitionerKind.BROADCAST else 1
    assert [name for name, _ in values] == [name for name in sorted(ZOO) for _ in range(times)]
    assert all(same(value, ZOO[name]()) for name, value in values)


BACKENDS: dict[str, Callable[[], StateBackend]] = {
    "hashmap": lambda: load_state_backend("hashmap"),
    "rocksdb": lambda: load_state_backend("rocksdb"),
    "files": FileBackend,
}
EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS)
PURPOSES = pytest.mark.parametrize("purpose", [NO_CHECKPOINT, Purpose(canonical=True)], ids=["checkpoint", "savepoint"])
VALUE = ValueStateDescriptor("value", PICKLED)
LIST = ListStateDescriptor("list", PICKLED)
MAP = MapStateDescriptor("map", PICKLED, PICKLED)
GROUPS = 16


def keyed_state(backend: str, directory: Path, own: range) -> Any:
    return BACKENDS[backend]().create_keyed_state(
        KeyedStateParameters(
            key_group_of=lambda key: key_group(key, GROUPS),
            key_groups=own,
            max_parallelism=GROUPS,
            directory=str(directory),
        )
    )


@contextmanager
def rescaled(backend: str, before: Any, purpose: Purpose, tmp_path: Path) -> Iterator[list[Any]]:
    """The state of one subtask as that of two, which are found by ``key_group(key, GROUPS) // (GROUPS // 2)``."""
    before.key = NO_KEY
    written = take_snapshot(before.snapshot(purpose=purpose), range(GROUPS))
    before.close()
    halves = []
    for number in range(2):
        own = range(number * GROUPS // 2, (number + 1) * GROUPS // 2)
        halves.append(keyed_state(backend, tmp_path / f"after-{number}", own))
        halves[-1].restore([written.of(own)])
    yield halves
    for half in halves:
        half.close()


def half_of(halves: list[Any], key: Any) -> Any:
    half = halves[key_group(key, GROUPS) // (GROUPS // 2)]
    half.key = with_one_nan(key)
    return half


@PURPOSES
@EACH_BACKEND
def test_values_in_state(backend: str, purpose: Purpose, tmp_path: Path) -> None:
    before = keyed_state(backend, tmp_path / "before", range(GROUPS))
    for name, make in ZOO.items():
        before.key = name
        if make() is not None:  # which says that there is none, as in Flink
            before.get_state(VALUE).update(make())
            before.get_list_state(LIST).update([make(), (name, make())])
        before.get_map_state(MAP).put(name, make())
    with rescaled(backend, before, purpose, tmp_path) as halves:
        for name, make in ZOO.items():
            after = half_of(halves, name)
            assert same(after.get_state(VALUE).value(), make()), name
            if make() is not None:
                assert same(list(after.get_list_state(LIST).get()), [make(), (name, make())]), name
            assert same(after.get_map_state(MAP).get(name), make()), name


@PURPOSES
@EACH_BACKEND
def test_keys_and_timers(backend: str, purpose: Purpose, tmp_path: Path) -> None:
    """Equal keys have one state and one timer, before and after they were written."""
    before = keyed_state(backend, tmp_path / "before", range(GROUPS))
    names = [name for name in KEYS if name not in EQUAL_TO_OTHERS]
    for time in (1, 2):
        for name in names:
            before.key = key = KeyCheck()(KEYS[name]())
            state = before.get_list_state(LIST)
            state.add((name, time))
            before.timers("queue").add(5, key, None)
            before.get_map_state(MAP).put(KEYS[name](), time)
    with rescaled(backend, before, purpose, tmp_path) as halves:
        assert sum(len(half.timers("queue")) for half in halves) == len(names)
        for name in names:
            after = half_of(halves, KEYS[name]())
            assert list(after.get_list_state(LIST).get()) == [(name, 1), (name, 2)]
        for half in halves:
            for timer in half.timers("queue").due(5):
                half.key = timer.key
                ((name, _), _) = half.get_list_state(LIST).get()
                assert repr(with_one_nan(KEYS[name]())) == repr(timer.key) or KEYS[name]() == timer.key


EQUAL_TO_OTHERS = ("numpy float64", "numpy int8", "IntEnum", "numpy uint64", "numpy bool", "numpy float16", "StrEnum",
                   "derived str", "numpy str", "derived bytes", "numpy bytes", "derived float")  # fmt: skip
"""Names of keys that equal others of the zoo."""


TTL_MAP = MapStateDescriptor("short map", PICKLED, PICKLED)
TTL_MAP.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
NUMBERS = MapStateDescriptor("numbers", Types.DOUBLE(), PICKLED)


@PURPOSES
@EACH_BACKEND
def test_keys_of_maps(backend: str, purpose: Purpose, tmp_path: Path) -> None:
    """Equal ones are one, NaN too, before and after they were written."""
    names = [name for name in KEYS if name not in EQUAL_TO_OTHERS]
    of_map = {MAP: names, TTL_MAP: names, NUMBERS: ["NaN", "float"]}
    before = keyed_state(backend, tmp_path / "before", range(GROUPS))
    before.key = "a"
    for descriptor, chosen in of_map.items():
        state = before.get_map_state(descriptor)
        for time in (1, 2):
            state.put_all({KEYS[name](): (name, 0) for name in chosen})
            for name in chosen:
                state.put(KEYS[name](), (name, time))
        assert sorted(state.values()) == sorted((name, 2) for name in chosen)
    with rescaled(backend, before, purpose, tmp_path) as halves:
        after = half_of(halves, "a")
        for descriptor, chosen in of_map.items():
            state = after.get_map_state(descriptor)
            for name in chosen:
                assert state.get(KEYS[name]()) == (name, 2)
                assert state.contains(KEYS[name]())
                state.put(KEYS[name](), (name, 3))
            assert sorted(state.values()) == sorted((name, 3) for name in chosen)
            assert all(state.get(key) is not None for key in list(state.keys()))
            for name in chosen:
                state.remove(KEYS[name]())
            assert list(state.keys()) == []


def test_values_and_keys_in_operator_state() -> None:
    names = [name for name in ZOO if name != "None"]
    before = HeapOperatorState()
    before.get_list_state(LIST).update([ZOO[name]() for name in names])
    before.get_union_list_state(ListStateDescriptor("union", PICKLED)).update([ZOO[name]() for name in names])
    for name, make in KEYS.items():
        before.get_broadcast_state(MAP).put(make(), name)
        before.get_broadcast_state(MAP).put(make(), name)
    assert len(list(before.get_broadcast_state(MAP).keys())) == len({with_one_nan(make()) for make in KEYS.values()})
    snapshot = before.snapshot()
    chunks = [chunk for some in snapshot for chunk in some]
    after = HeapOperatorState()
    after.restore([OperatorSnapshot(list(snapshot.states), chunks)], 0, 1)
    for state in (after.get_list_state(LIST), after.get_union_list_state(ListStateDescriptor("union", PICKLED))):
        assert same(list(state.get()), [ZOO[name]() for name in names])
    for make in KEYS.values():
        assert after.get_broadcast_state(MAP).contains(make())
        assert after.read_only(MAP).get(make()) is not None
    for make in KEYS.values():
        after.get_broadcast_state(MAP).remove(make())
    assert list(after.get_broadcast_state(MAP).keys()) == []


def test_keys_in_buckets_of_batch_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "HELD_BYTES", 100)
    names = [name for name in KEYS if name not in EQUAL_TO_OTHERS]
    bucket = Bucket([lambda value: value[0]], [lambda value: value[0]])
    for time in (2, 1):
        bucket.add(Batch([(KEYS[name](), name, time) for name in names], [time] * len(names)), 0, 60)
    values = [value[1:] for piece in bucket.pieces() for batch, _ in piece.ordered() for value in batch.values]
    assert len(values) == 2 * len(names)
    assert all(
        values[place : place + 2] == [(values[place][0], 1), (values[place][0], 2)]
        for place in range(0, len(values), 2)
    )


HASHES = """
from tests.value_zoo import KEYS
from firesteel.graph.key_hash import stable_hash
print([stable_hash(make()) for make in KEYS.values()])
"""


def test_keys_hash_alike_in_every_process() -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", HASHES], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == str([stable_hash(make()) for make in KEYS.values()])


@pytest.mark.parametrize("name", NO_KEYS)
def test_what_is_no_key_is_refused_at_the_door(name: str) -> None:
    """``Touchy`` and such like raise when they are hashed, others have another hash in each process."""
    for key in (ZOO[name](), ("a", ZOO[name]())):
        with pytest.raises(KeyTypeError, match="can't be a key"):
            KeyGroupAssigner(2, GROUPS).assign([key])


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "lock in a dataclass": (lambda: Plain("a", [threading.Lock()]), r"its parts\[0\] \(a _thread.lock\)"),
    "generator in a dict": (lambda: {"rows": (number for number in [1])}, r"its \['rows'\] \(a generator\)"),
    "lock in a named tuple": (lambda: Point(threading.Lock()), r"its x \(a _thread.lock\)"),
    "socket in a row": (lambda: Row(a=threading.Lock()), r"\(a _thread.lock\)"),
    "too deep in a dataclass": (lambda: Plain("a", [too_deep()]), r"its parts\[0\].* recursion"),
    "touchy": (lambda: {"a": Touchy(threading.Lock())}, r"its \['a'\].value \(a _thread.lock\)"),
}


def too_deep() -> Any:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize("name", REFUSED)
def test_what_pickle_does_not_take_is_refused_with_its_field(name: str) -> None:
    make, message = REFUSED[name]
    assert batch_bytes(Batch([make()])) > 0
    with pytest.raises(SerializationError, match=message):
        MessageWriter().dumps(Batch([("fine", 1), make()]))
