"""Tests a state backend against its contract (``firesteel.state.backend``)."""

from __future__ import annotations

import copy
import random
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from firesteel.common.time import Time
from firesteel.common.typeinfo import Types
from firesteel.core.errors import (
    ProgramError,
    SerializationError,
    StateMigrationError,
    StateRestoreError,
    TypeMismatchError,
)
from firesteel.functions.functions import KeyedStateStore
from firesteel.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from firesteel.state.backend import KeyedStateBackend, KeyedStateParameters, StateBackend, Timer
from firesteel.state.columnar.store import ColumnarState
from firesteel.state.columnar.values import StateColumn
from firesteel.state.heap import HeapStateBackend
from firesteel.state.heap_snapshot import decode
from firesteel.state.heap_timers import timers_in
from firesteel.state.keys import NO_KEY
from firesteel.state.snapshots import NO_CHECKPOINT, SEVERAL, Purpose, StateInfo
from firesteel.testing.clock import ManualClock
from firesteel.testing.columnar_state_conformance import check_columnar_state
from firesteel.testing.rules import require, require_raises
from firesteel.testing.snapshots import RunningSnapshot, SnapshotContents, take_snapshot

GROUPS: Final = 8
_ANY: Final = Types.PICKLED_BYTE_ARRAY()
_KEYS: Final = ("a", "b", 3, 4.5, ("t", 1), "f", "g", "h", 9, 10)


class _Mean:
    """An aggregation whose accumulator is changed in place."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator[0] += value
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator: list[int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return [acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]]


_QUEUES: Final = ("one", "other")
_NUMBER: Final = ValueStateDescriptor("number", Types.LONG())
_THINGS: Final = ValueStateDescriptor("things", _ANY)
_LIST: Final = ListStateDescriptor("list", Types.STRING())
_MAP: Final = MapStateDescriptor("map", Types.STRING(), _ANY)
_SUM: Final = ReducingStateDescriptor("sum", lambda first, second: first + second, Types.LONG())
_MEAN: Final = AggregatingStateDescriptor("mean", _Mean(), _ANY)


def group_of(key: Any) -> int:
    """Return the key group of a key, by a hash of the kit's own."""
    return sum(repr(key).encode()) % GROUPS


def read(keyed: KeyedStateBackend, namespaces: Iterable[Any] = (None,)) -> dict[Any, Any]:
    """Return all state of the kit's keys as plain objects: (key, namespace) -> values by name of the state."""
    state: dict[Any, Any] = {}
    for key in _KEYS:
        keyed.key = key
        for namespace in namespaces:
            store = keyed.store(namespace)
            values = {
                "number": store.get_state(_NUMBER).value(),
                "things": copy.deepcopy(store.get_state(_THINGS).value()),
                "list": list(store.get_list_state(_LIST).get()),
                "map": copy.deepcopy(list(store.get_map_state(_MAP).items())),
                "sum": store.get_reducing_state(_SUM).get(),
                "mean": store.get_aggregating_state(_MEAN).get(),
            }
            values = {name: value for name, value in values.items() if value not in (None, [])}
            if values:
                state[key, namespace] = values
        row = keyed.table("raw").get(key)
        if row is not None:
            state[key, "raw"] = copy.deepcopy(row)
        records = list(keyed.timeline("records").between(key, -(1 << 63), (1 << 63) - 1))
        if records:
            state[key, "records"] = copy.deepcopy(records)
    for name in _QUEUES:
        for timer in keyed.timers(name):
            state[timer.key, name, timer.timestamp, timer.namespace] = "timer"
    keyed.key = NO_KEY
    return state


def _change(keyed: KeyedStateBackend, store: KeyedStateStore, rng: random.Random) -> None:
    """Make a random change to the state of the current key, as programs do."""
    number = rng.randrange(100)
    kind = rng.randrange(20)
    if kind == 0:
        store.get_state(_NUMBER).update(number)
    elif kind == 1:
        things = store.get_state(_THINGS)
        changed = things.value() or {"seen": []}
        changed["seen"].append(number)  # in place, then written back
        things.update(changed)
    elif kind == 2:
        store.get_list_state(_LIST).add(str(number))
    elif kind == 3:
        store.get_list_state(_LIST).update([str(number)] * (number % 3))
    elif kind == 4:
        store.get_map_state(_MAP).put(str(number % 5), [number])
    elif kind == 5:
        entries = store.get_map_state(_MAP)
        inner = entries.get(str(number % 5)) or []
        inner.append(number)
        entries.put(str(number % 5), inner)
    elif kind == 6:
        store.get_map_state(_MAP).remove(str(number % 5))
    elif kind == 7:
        store.get_reducing_state(_SUM).add(number)
    elif kind == 8:
        store.get_aggregating_state(_MEAN).add(number)
    elif kind == 9:
        keyed.table("raw").setdefault(keyed.key, {})[number % 3] = number
    elif kind == 10:
        keyed.table("raw").pop(keyed.key, None)
    elif kind == 14:
        keyed.timers(rng.choice(_QUEUES)).add(number % 20, keyed.key, rng.choice([None, "w1"]))
    elif kind == 15:
        keyed.timers(rng.choice(_QUEUES)).discard(number % 20, keyed.key, rng.choice([None, "w1"]))
    elif kind == 16:
        for _ in keyed.timers(rng.choice(_QUEUES)).due(number % 8):
            pass
    elif kind in (17, 18):
        keyed.timeline("records").add(keyed.key, number % 7 - 3, [number])
    elif kind == 19:
        keyed.timeline("records").remove(keyed.key, number % 7 - 3)
    elif kind == 11:
        store.get_list_state(_LIST).add_all([str(number), "x"])
    elif kind == 12:
        rng.choice(
            [
                store.get_state(_NUMBER),
                store.get_state(_THINGS),
                store.get_list_state(_LIST),
                store.get_map_state(_MAP),
                store.get_reducing_state(_SUM),
                store.get_aggregating_state(_MEAN),
            ]
        ).clear()
    else:
        keyed.clear_namespace("w1")


class _Kit:
    """Makes backends and snapshots for the checks."""

    def __init__(self, backend: StateBackend, folder: Path) -> None:
        self._backend, self._folder = backend, folder
        self._count = 0
        self.clock = ManualClock()

    def make(self, groups: range = range(GROUPS), **parameters: Any) -> KeyedStateBackend:
        self._count += 1
        return self._backend.create_keyed_state(
            KeyedStateParameters(
                key_group_of=group_of,
                key_groups=groups,
                max_parallelism=GROUPS,
                clock=self.clock,
                operator="kit",
                directory=str(self._folder / "state" / str(self._count)),
                **parameters,
            )
        )

    def written(self, keyed: KeyedStateBackend) -> SnapshotContents:
        """Take a complete snapshot of a backend at once."""
        return take_snapshot(keyed.snapshot(), range(GROUPS))

    def later(self, contents: SnapshotContents) -> KeyedStateBackend:
        """Make a backend that is restored from a snapshot."""
        keyed = self.make()
        keyed.restore([contents.of(range(GROUPS))])
        return keyed

    def restored(
        self, contents: SnapshotContents, parallelism: int, memory: int = 0, *, canonical: bool = False
    ) -> dict[Any, Any]:
        """Return the state that subtasks of another parallelism restore; from a canonical snapshot with ``hashmap``."""
        state: dict[Any, Any] = {}
        backend = self._backend
        if canonical:
            require(not contents.files, f"a canonical snapshot has files: {list(contents.files)[:3]}")
            several = [chunk for chunk in contents.chunks if chunk.key_group == SEVERAL]
            require(not several, "a chunk of a canonical snapshot has several key groups")
            _check_groups(contents)
            self._backend = HeapStateBackend()
        try:
            return self._restored(contents, parallelism, memory, state)
        finally:
            self._backend = backend

    def _restored(
        self, contents: SnapshotContents, parallelism: int, memory: int, state: dict[Any, Any]
    ) -> dict[Any, Any]:
        for subtask in range(parallelism):
            key_groups = range(subtask * GROUPS // parallelism, (subtask + 1) * GROUPS // parallelism)
            keyed = self.make(key_groups, memory=memory)
            keyed.restore([contents.of(key_groups)])
            for place, value in read(keyed, (None, "w1", ("w", 2))).items():
                require(
                    group_of(place[0]) in key_groups,
                    f"restore() brought key {place[0]!r} to a subtask that does not own it",
                )
                state[place] = value
            keyed.close()
        return state

    def check_tidy(self) -> None:
        """Check that closed backends leave no directories behind."""
        paths = [str(path) for path in (self._folder / "state").rglob("*")]
        require(not [path for path in paths if Path(path).name.isdigit()], f"close() leaves {paths[:3]}")


def check_state_backend(backend: StateBackend, *, seeds: Iterable[int] = range(12), steps: int = 300) -> None:
    """Check every rule of the contract, and run random programs that take snapshots in slices between their steps.

    Args:
        backend: the backend; it makes empty state each time.
        seeds: seeds of random programs, one program each.
        steps: number of steps of each program.

    Raises:
        AssertionError: the message says which rule is broken.
    """
    with tempfile.TemporaryDirectory() as folder:
        kit = _Kit(backend, Path(folder))
        _check_keys_and_types(kit)
        _check_tables(kit)
        _check_timelines(kit)
        _check_all_kinds_together(kit)
        _check_namespaces(kit)
        _check_timers(kit)
        _check_snapshot_rules(kit)
        _check_what_is_not_restored(kit)
        _check_migration(kit)
        _check_time_to_live(kit)
        for seed in seeds:
            _check_random_program(kit, seed, steps)
        check_columnar_state(backend, seeds)
        kit.check_tidy()


def _check_random_program(kit: _Kit, seed: int, steps: int) -> None:
    rng = random.Random(seed)
    memory = rng.choice((0, 1, 1 << 20))  # with one byte nothing stays in any cache
    keyed = kit.make(memory=memory)
    namespaces = (None, "w1", ("w", 2))
    taking: RunningSnapshot | None = None
    complete: dict[int, SnapshotContents] = {}
    expected: dict[Any, Any] = {}
    for number in range(1, steps + 1):
        if taking is None and rng.random() < 0.08:
            expected = read(keyed, namespaces)
            base = max(complete, default=None) if rng.random() < 0.8 else None
            purpose = Purpose(number, True, base, rng.choice((0.5, 4.0))) if seed % 3 else NO_CHECKPOINT
            if rng.random() < 0.2:  # a savepoint between two checkpoints
                purpose = Purpose(number, canonical=True)
            running = keyed.snapshot(rng.choice((0.0, 0.0, 0.002)), purpose)
            taking = RunningSnapshot(running, range(GROUPS), complete.get(base or 0))
        elif taking is not None and rng.random() < 0.3:
            contents = taking.step()
            if contents is not None:
                restored = kit.restored(contents, rng.choice((1, 2, 3, 8)), memory, canonical=purpose.canonical)
                require(restored == expected, f"seed {seed}: a snapshot holds {restored!r}, the state was {expected!r}")
                if rng.random() < 0.7 and purpose.shares:  # else it counts as never completed
                    complete = {purpose.checkpoint_id: contents}
                taking = None
        elif taking is not None and rng.random() < 0.02:
            taking.snapshot.close()
            taking = None
        keyed.key = rng.choice(_KEYS)
        _change(keyed, keyed.store(rng.choice(namespaces)), rng)
    if taking is not None:
        require(kit.restored(taking.rest(), 2) == expected, f"seed {seed}: the last snapshot is another")
    now = read(keyed, namespaces)
    require(kit.restored(kit.written(keyed), 1) == now, f"seed {seed}: state and snapshot differ at the end")
    keyed.close()


def _check_groups(contents: SnapshotContents) -> None:
    """Check that all entries are in chunks of their key groups."""
    for chunk in contents.chunks:
        info = contents.states[chunk.state]
        if info.kind == "timers":
            keys = [key for _, key, _ in timers_in(chunk.data)]
        else:
            keys = [key[0] if info.namespaced else key for key, _ in decode(chunk.data)]
        require(len(keys) == chunk.count, f"a chunk of {info.name!r} has {len(keys)} entries, and says {chunk.count}")
        wrong = [key for key in keys if group_of(key) != chunk.key_group]
        require(not wrong, f"key {wrong[:1]} of {info.name!r} is in a chunk of key group {chunk.key_group}")


def _check_timers(kit: _Kit) -> None:
    keyed = kit.make()
    queue = keyed.timers("one")
    require(keyed.timers("one") is queue, "timers are another queue the second time")
    for timestamp, key in ((30, "a"), (10, "b"), (10, "a"), (20, "c"), (10, "f")):
        require(queue.add(timestamp, key, None), "a new timer is not new")
    require(not queue.add(10, "a", None), "a timer is there twice")
    require(queue.add(10, "a", "w1") and queue.discard(10, "a", "w1"), "a timer with a namespace is another one")
    require(not queue.discard(10, "never", None) and len(queue) == 5, f"there are {len(queue)} timers instead of 5")
    require(queue.earliest == 10 and keyed.timers("other").earliest is None, "the earliest timestamp is another one")
    fired = []
    for timer in queue.due(20):
        fired.append((timer.timestamp, timer.key))
        if timer.key == "b":
            queue.discard(10, "f", None)
            queue.add(5, "g", None)
    expected = [(10, "b"), (5, "g"), (10, "a"), (20, "c")]
    require(fired == expected, f"due() gives {fired}, not {expected}: by timestamp, then by registration")
    for number in range(1000):
        queue.add(100 + number % 7, number, "w")
    running = RunningSnapshot(keyed.snapshot(0.0), range(GROUPS))
    running.step()
    queue.add(1, "later", None)
    for timer in list(queue.due(102)):
        queue.add(200, timer.key, None)
    contents = running.rest()
    expected_timers = {Timer(30, "a", None), *(Timer(100 + number % 7, number, "w") for number in range(1000))}
    later = kit.later(contents)
    restored_timers = list(later.timers("one"))
    require(
        len(restored_timers) == len(expected_timers) and set(restored_timers) == expected_timers,
        "a snapshot does not hold the timers of its moment",
    )
    times = [timer.timestamp for timer in later.timers("one").due(1000)]
    require(times == sorted(times) and len(times) == 1001, "restored timers do not come in order")
    require(len(later.timers("one")) == 0 and later.timers("one").earliest is None, "timers that fired are still there")
    later.close()
    keyed.close()


def _check_what_is_not_restored(kit: _Kit) -> None:
    unknown = SnapshotContents(
        [StateInfo("strange", "columns", {"keys": ["int64"], "columns": {}})], [], None, range(GROUPS)
    )
    keyed = kit.make()
    handle = unknown.of(range(GROUPS))
    require_raises(StateRestoreError, lambda: keyed.restore([handle]), "columns that nobody has asked for were taken")
    keyed.close()
    strange = kit.make()
    files = SnapshotContents([], [], {"of.another": b"backend"}, range(GROUPS)).of(range(GROUPS))
    error = require_raises(StateRestoreError, lambda: strange.restore([files]), "files of another backend were taken")
    require("kit" in str(error), f"the error does not name the operator: {error}")
    strange.close()


def _check_keys_and_types(kit: _Kit) -> None:
    keyed = kit.make(strict_integers=True)
    number = keyed.get_state(_NUMBER)
    require_raises(ProgramError, number.value, "state without a key does not raise ProgramError")
    keyed.key = 1
    number.update(7)
    keyed.key = 1.0
    require(number.value() == 7, "1 and 1.0 are equal, but have different state")
    require(keyed.get_state(_NUMBER) is number, "a state is another object the second time")
    same_name = ValueStateDescriptor("number", Types.STRING())
    require_raises(ProgramError, lambda: keyed.get_state(same_name), "a name was given a second type")
    require_raises(ProgramError, lambda: keyed.get_state(_LIST), "get_state() took a ListStateDescriptor")  # type: ignore[arg-type]
    error = require_raises(TypeMismatchError, lambda: number.update("x"), "a value of another type was taken")
    require("number" in str(error), f"the error does not name the state: {error}")
    require_raises(TypeMismatchError, lambda: number.update(2**63), "strict integers wrap")
    require(number.value() == 7, "a value that was refused is there")
    number.update(None)
    require(number.value() is None and list(keyed.keys(_NUMBER)) == [], "update(None) does not clear")
    entries = keyed.get_map_state(_MAP)
    for name in "zya":
        entries.put(name, [name])
    entries.put("z", ["again"])
    require(list(entries.keys()) == ["z", "y", "a"], "a map is not iterated in the order of the first put")
    require(list(keyed.keys()) == [1.0], "keys() does not list each key once")
    keyed.close()


def _check_tables(kit: _Kit) -> None:
    keyed = kit.make()
    require(keyed.table("one") is keyed.table("one"), "a table is another object the second time")
    keyed.table("one")["a"] = {"x": [1]}
    keyed.table("two")["b"] = 2
    running = RunningSnapshot(keyed.snapshot(0.0), range(GROUPS))
    keyed.table("one")["a"]["x"].append("changed in place")
    keyed.drop_table("one")
    keyed.drop_table("never made")
    require(keyed.table_names() == ["two"], f"drop_table() leaves {keyed.table_names()}")
    require("a" not in keyed.table("one"), "a table that was dropped is not empty when it is made again")
    contents = running.rest()
    keyed.close()
    later = kit.later(contents)
    require(sorted(later.table_names()) == ["one", "two"], "table_names() does not know restored tables")
    restored = later.table("one").get("a")
    require(restored == {"x": [1]}, f"a table that was dropped during a snapshot is {restored!r} in it")
    later.close()


def _check_timelines(kit: _Kit) -> None:
    keyed = kit.make(memory=1)
    records = keyed.timeline("one")
    require(keyed.timeline("one") is records, "a timeline is another object the second time")
    times = [5, -(1 << 62), 0, -1, 5, 1 << 62, -7, 4]
    for number, time in enumerate(times):
        records.add("a", time, number)
    records.add("b", 5, "of another key")
    records.remove("a", -7)
    records.remove("a", 3)
    keyed.key = "a"
    keyed.clear_namespace(5)
    for first, last in ((-(1 << 63), (1 << 63) - 1), (-1, 5), (0, 4), (5, 5), (6, 7), (7, 6)):
        expected = sorted((time, number) for number, time in enumerate(times) if first <= time <= last and time != -7)
        between = list(records.between("a", first, last))
        require(between == expected, f"records between {first} and {last} are {between}, and are to be {expected}")
    require(len(records) == 7, f"a timeline with records of 7 times and keys says {len(records)}")
    running = RunningSnapshot(keyed.snapshot(0.0), range(GROUPS))
    records.remove("a", 5)
    records.add("a", 4, "later")
    contents = running.rest()
    require(list(records.between("a", 4, 5)) == [(4, 7), (4, "later")], "a timeline is another one after a snapshot")
    keyed.close()
    later = kit.later(contents)
    between = list(later.timeline("one").between("a", 4, 5))
    require(between == [(4, 7), (5, 0), (5, 4)], f"records that were restored are {between}")
    later.close()
    of_format_1 = kit.make()
    of_format_1.table("two")["a"] = {3: ["x", "y"], -4: ["z"]}
    later = kit.later(kit.written(of_format_1))
    of_format_1.close()
    between = list(later.timeline("two").between("a", -10, 10))
    require(between == [(-4, "z"), (3, "x"), (3, "y")], f"records that were restored from a table are {between}")
    require(later.table_names() == [], f"{later.table_names()} is a timeline now, and a table still")
    again = kit.later(kit.written(later))
    later.close()
    between = list(again.timeline("two").between("a", 0, 10))
    require(between == [(3, "x"), (3, "y")], f"records that were in a table, written again, are {between}")
    again.close()


def _check_all_kinds_together(kit: _Kit) -> None:
    def create() -> tuple[KeyedStateBackend, ColumnarState, StateColumn]:
        keyed = kit.make()
        columns = keyed.columns("columns", [pa.int64()])
        return keyed, columns, columns.column("number", pa.int64())

    keyed, columns, numbers = create()
    keyed.key = "a"
    keyed.get_state(_NUMBER).update(1)
    keyed.table("table")["b"] = 2
    keyed.timers("queue").add(3, "a", None)
    numbers.set(columns.slots([pa.array([5])]), [4])
    for purpose in (NO_CHECKPOINT, Purpose(1, shares=True), Purpose(2, shares=True, base=1)):
        contents = take_snapshot(keyed.snapshot(purpose=purpose), range(GROUPS))
        later, columns_then, numbers_then = create()
        later.restore([contents.of(range(GROUPS))])
        later.key = "a"
        slots = columns_then.find([pa.array([5])])
        restored = (
            later.get_state(_NUMBER).value(),
            later.table("table").get("b"),
            list(later.timers("queue").due(3)),
            numbers_then.get(slots[slots >= 0]).tolist(),
        )
        expected = (1, 2, [Timer(3, "a", None)], [4])
        require(
            restored == expected,
            f"value, table, timers and columns of one backend come back as {restored}, not {expected}",
        )
        later.close()
    keyed.close()


def _check_namespaces(kit: _Kit) -> None:
    keyed = kit.make()
    keyed.key = "k"
    for namespace, text in ((None, "plain"), ("w1", "one"), (("w", 2), "two")):
        keyed.store(namespace).get_list_state(_LIST).add(text)
        keyed.store(namespace).get_reducing_state(_SUM).add(1)
        keyed.store(namespace).get_aggregating_state(_MEAN).add(len(text))
    keyed.merge_namespaces(_LIST, "w3", ["w1", ("w", 2), "none"])
    keyed.merge_namespaces(_SUM, "w1", ["w1", ("w", 2)])
    keyed.merge_namespaces(_MEAN, "w1", [("w", 2)])
    elements = list(keyed.store("w3").get_list_state(_LIST).get())
    require(elements == ["one", "two"], f"merge_namespaces() made {elements} of the lists")
    require(keyed.store("w1").get_reducing_state(_SUM).get() == 2, "merge_namespaces() does not reduce")
    require(keyed.store("w1").get_aggregating_state(_MEAN).get() == 3, "merge_namespaces() does not merge accumulators")
    require(keyed.store(("w", 2)).get_reducing_state(_SUM).get() is None, "a merged namespace is still there")
    require_raises(ProgramError, lambda: keyed.merge_namespaces(_MAP, "w1", ["w2"]), "map state was merged")
    keyed.clear_namespace("w1")
    keyed.clear_namespace("w3")
    require(keyed.store("w1").get_reducing_state(_SUM).get() is None, "clear_namespace() leaves state")
    require(list(keyed.get_list_state(_LIST).get()) == ["plain"], "clear_namespace() took state without a namespace")
    keyed.close()


def _check_snapshot_rules(kit: _Kit) -> None:
    keyed = kit.make()
    things = keyed.get_state(_THINGS)
    for key in _KEYS:
        keyed.key = key
        things.update({"in": [key]})
    running = RunningSnapshot(keyed.snapshot(0.0), range(GROUPS))
    require_raises(RuntimeError, keyed.snapshot, "two snapshots run at once")
    for key in _KEYS:
        keyed.key = key
        value: Any = things.value()
        value["in"].append("changed in place, not written back")
        things.clear()
    contents = running.rest()
    if not contents.files:
        require(sum(chunk.count for chunk in contents.chunks) == len(_KEYS), "chunks do not count their entries")
    restored = kit.restored(contents, 2)
    expected = {(key, None): {"things": {"in": [key]}} for key in _KEYS}
    require(restored == expected, f"a change in place is in the snapshot: {restored!r}")
    things.update({"bad": (letter for letter in "x")})
    bad = keyed.snapshot()
    error = require_raises(SerializationError, lambda: list(bad), "what can not be serialised was serialised")
    require("things" in str(error), f"the error does not name the state: {error}")
    things.update({"in": [1]})
    require(kit.restored(kit.written(keyed), 1) == read(keyed), "the next snapshot after a failed one does not work")
    keyed.close()


def _check_migration(kit: _Kit) -> None:
    former_type = ValueStateDescriptor(
        "row", Types.ROW_NAMED(["id", "gone", "n"], [Types.INT(), Types.STRING(), Types.INT()])
    )
    migrated_type = ValueStateDescriptor(
        "row", Types.ROW_NAMED(["n", "id", "added"], [Types.DOUBLE(), Types.LONG(), Types.INT()])
    )
    bad = ValueStateDescriptor("row", Types.ROW_NAMED(["id", "n"], [Types.INT(), Types.STRING()]))
    keyed = kit.make()
    keyed.key = "a"
    keyed.get_state(former_type).update({"id": 1, "gone": "x", "n": 2})
    keyed.get_state(_NUMBER).update(5)
    contents = kit.written(keyed)
    keyed.close()
    later = kit.later(contents)
    later.key = "a"
    row: Any = later.get_state(migrated_type).value()
    require((row.n, row.id, row.added) == (2.0, 1, None) and type(row.n) is float, f"the row was migrated to {row!r}")
    again = kit.written(later)
    later.close()
    last = kit.later(again)
    last.key = "a"
    require(last.get_state(_NUMBER).value() == 5, "state that nobody asked for is not in the next snapshot")
    last.close()
    refused = kit.later(contents)
    error = require_raises(StateMigrationError, lambda: refused.get_state(bad), "an incompatible type was taken")
    require(getattr(error, "field", "") == "n", f"the error does not name the field: {error}")
    refused.close()


def _check_time_to_live(kit: _Kit) -> None:
    config = StateTtlConfig.new_builder(Time.seconds(10)).cleanup_full_snapshot().build()
    single = ValueStateDescriptor("kept", Types.LONG())
    entries = MapStateDescriptor("entries", Types.STRING(), Types.LONG())
    for descriptor in (single, entries):
        descriptor.enable_time_to_live(config)
    keyed = kit.make()
    value, mapped = keyed.get_state(single), keyed.get_map_state(entries)
    for key in _KEYS:
        keyed.key = key
        value.update(1)
        mapped.put("old", 1)
    kit.clock.advance(6)
    keyed.key = "a"
    value.update(2)
    mapped.put("new", 2)
    kit.clock.advance(4)
    require(value.value() == 2, "an entry expired too early")
    require(list(mapped.items()) == [("new", 2)], "each entry of a map lives by itself")
    contents = kit.written(keyed)
    if not contents.files:
        require(sum(chunk.count for chunk in contents.chunks) == 2, "what has expired is in the snapshot")
    for _ in range(4 * len(_KEYS)):
        value.value()
        mapped.get("new")
    require(list(keyed.keys()) == ["a"], f"what has expired is not cleaned up: {list(keyed.keys())}")
    keyed.close()
    later = kit.later(contents)
    later.key = "a"
    without = ValueStateDescriptor("kept", Types.LONG())
    require(later.get_state(without).value() == 2, "time-to-live can't be taken away")
    kit.clock.advance(6)
    require(list(later.get_map_state(entries).items()) == [], "an entry lives anew after a restore")
    later.close()
