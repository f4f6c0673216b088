"""Compares state backends with a dict, over random sequences of updates, snapshots, restores and rescalings."""

from __future__ import annotations

import copy
import random
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.common.time import Time
from firesteel.common.typeinfo import Types
from firesteel.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from firesteel.state.backend import KeyedStateParameters, StateBackend
from firesteel.state.keys import NO_KEY
from firesteel.state.snapshots import Purpose
from firesteel.testing.clock import ManualClock
from firesteel.testing.rules import require
from firesteel.testing.snapshots import RunningSnapshot, SnapshotContents

GROUPS: Final = 8
_KEYS: Final = range(24)
_NAMESPACES: Final = ("w", ("w", 2))
_QUEUES: Final = ("one", "other")
_TTL_MS: Final = 1000
_RETAINED: Final = 2
"""Number of checkpoints that a job retains."""
_ANY: Final = Types.PICKLED_BYTE_ARRAY()


class _Joined:
    """Aggregation that collects values, in an accumulator that is changed in place."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> tuple[int, ...]:
        return tuple(accumulator)

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


def _short(descriptor: Any) -> Any:
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(_TTL_MS)).build())
    return descriptor


_VALUE: Final = ValueStateDescriptor("value", _ANY)
_LIST: Final = ListStateDescriptor("list", Types.LONG())
_MAP: Final = MapStateDescriptor("map", Types.STRING(), _ANY)
_SUM: Final = ReducingStateDescriptor("sum", lambda first, second: first + second, Types.LONG())
_JOINED: Final = AggregatingStateDescriptor("joined", _Joined(), _ANY)
_SHORT: Final = _short(ValueStateDescriptor("short", Types.LONG()))
_SHORT_LIST: Final = _short(ListStateDescriptor("short-list", Types.LONG()))
_SHORT_MAP: Final = _short(MapStateDescriptor("short-map", Types.STRING(), Types.LONG()))
_OF_WINDOW: Final = ListStateDescriptor("of-window", Types.LONG())


def _groups_of(columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
    return np.asarray(columns[0]).astype(np.int32) % GROUPS


@dataclass
class _Model:
    """The expected state, as dicts by key; values that expire are paired with the time of their last write."""

    values: dict[str, dict[Any, Any]] = field(default_factory=dict)
    timers: set[tuple[str, int, int, Any]] = field(default_factory=set)

    def of(self, name: str) -> dict[Any, Any]:
        return self.values.setdefault(name, {})

    def alive(self, now: int) -> dict[str, dict[Any, Any]]:
        """Return the state that readers see at a time: without expired values."""

        def lives(pair: tuple[Any, int]) -> bool:
            return pair[1] + _TTL_MS > now

        visible = copy.deepcopy(self.values)
        visible["short"] = {key: pair[0] for key, pair in self.of("short").items() if lives(pair)}
        visible["short-list"] = {
            key: [pair[0] for pair in pairs if lives(pair)] for key, pairs in self.of("short-list").items()
        }
        visible["short-map"] = {
            key: [(name, pair[0]) for name, pair in entries.items() if lives(pair)]
            for key, entries in self.of("short-map").items()
        }
        visible["map"] = {key: list(entries.items()) for key, entries in visible.get("map", {}).items()}
        expected = {
            name: {key: value for key, value in model.items() if value not in (None, [])}
            for name, model in visible.items()
        }
        expected["timers"] = dict.fromkeys(self.timers)
        return {name: model for name, model in expected.items() if model}


class _Subtask:
    """One subtask: a backend with its key groups."""

    def __init__(
        self, backend: StateBackend, key_groups: range, directory: Path, memory: int, clock: ManualClock
    ) -> None:
        self.key_groups = key_groups
        self.keyed = backend.create_keyed_state(
            KeyedStateParameters(
                key_group_of=lambda key: key % GROUPS,
                key_groups=key_groups,
                key_groups_of=_groups_of,
                max_parallelism=GROUPS,
                clock=clock,
                operator="kit",
                memory=memory,
                directory=str(directory),
            )
        )
        self.columns = self.keyed.columns("columns", [pa.int64()])
        self.numbers = self.columns.column("number", pa.int64())
        self.taking: RunningSnapshot | None = None

    def read(self, state: dict[str, dict[Any, Any]]) -> None:
        """Add all state of this subtask to ``state``."""
        keyed, times = self.keyed, 0
        for key in [key for key in _KEYS if key % GROUPS in self.key_groups]:
            keyed.key = key
            values = {
                "value": keyed.get_state(_VALUE).value(),
                "list": list(keyed.get_list_state(_LIST).get()),
                "map": list(keyed.get_map_state(_MAP).items()),
                "sum": keyed.get_reducing_state(_SUM).get(),
                "joined": keyed.get_aggregating_state(_JOINED).get(),
                "short": keyed.get_state(_SHORT).value(),
                "short-list": list(keyed.get_list_state(_SHORT_LIST).get()),
                "short-map": list(keyed.get_map_state(_SHORT_MAP).items()),
                "table": keyed.table("rows").get(key),
            }
            for name, value in values.items():
                if value not in (None, []):
                    state.setdefault(name, {})[key] = copy.deepcopy(value)
            for namespace in _NAMESPACES:
                of_window = list(keyed.store(namespace).get_list_state(_OF_WINDOW).get())
                if of_window:
                    state.setdefault("of-window", {})[key, namespace] = of_window
            records = list(keyed.timeline("records").between(key, -(1 << 63), (1 << 63) - 1))
            if records:
                state.setdefault("records", {})[key] = copy.deepcopy(records)
                times += len({time for time, _ in records})
        keyed.key = NO_KEY
        count = len(keyed.timeline("records"))
        require(count == times, f"there are records of {count} times and keys, and {times} of them are its own")
        foreign = [key for key in (*keyed.keys(), *keyed.table("rows")) if key % GROUPS not in self.key_groups]
        require(not foreign, f"keys {foreign[:3]} are in a subtask that does not own them")
        for name in _QUEUES:
            timers = [(name, timer.timestamp, timer.key, timer.namespace) for timer in keyed.timers(name)]
            require(len(timers) == len(keyed.timers(name)), f"{len(keyed.timers(name))} timers are {timers}")
            earliest = min((timer[1] for timer in timers), default=None)
            require(keyed.timers(name).earliest == earliest, f"earliest is {keyed.timers(name).earliest} of {timers}")
            for timer in timers:
                state.setdefault("timers", {})[timer] = None
        for slots in self.columns.pieces():
            keys = self.columns.index.keys(slots)[0].to_pylist()
            state.setdefault("columns", {}).update(zip(keys, self.numbers.get(slots).tolist(), strict=True))


@dataclass
class _Checkpoint:
    number: int
    model: _Model
    taken: list[SnapshotContents]
    canonical: bool


class _Job:
    """A job with some parallelism, over backends that may replace each other, and the model of its state."""

    def __init__(self, backends: Sequence[StateBackend], folder: Path, rng: random.Random, name: str) -> None:
        self._backends, self._folder, self._rng, self._name = backends, folder, rng, name
        self._memory = rng.choice((1, 1 << 20))
        self.clock = ManualClock()
        self._subtask_count = self._number = 0
        self.model = _Model()
        self._complete: list[_Checkpoint] = []
        self._running: _Checkpoint | None = None
        self._story: list[str] = []
        self.backend = rng.choice(backends)
        self.subtasks = self._new(rng.randint(1, 5))

    def _new(self, parallelism: int) -> list[_Subtask]:
        subtasks = []
        for subtask in range(parallelism):
            self._subtask_count += 1
            key_groups = range(subtask * GROUPS // parallelism, (subtask + 1) * GROUPS // parallelism)
            subtasks.append(
                _Subtask(self.backend, key_groups, self._folder / str(self._subtask_count), self._memory, self.clock)
            )
        self._story.append(f"{self.backend.name} x {parallelism}")
        return subtasks

    def of(self, key: int) -> _Subtask:
        """Return the subtask that owns a key, with the key as its current one."""
        (owner,) = (subtask for subtask in self.subtasks if key % GROUPS in subtask.key_groups)
        owner.keyed.key = key
        return owner

    def check(self, when: str) -> None:
        """Check that state and model are equal."""
        state: dict[str, dict[Any, Any]] = {}
        for subtask in self.subtasks:
            subtask.read(state)
        expected = self.model.alive(self.clock.epoch_ms())
        for name in state.keys() | expected.keys():
            value, model = state.get(name, {}), expected.get(name, {})
            require(
                value == model,
                f"{self._name}, {', '.join(self._story)}, {when}: state {name!r} is {value!r}, and is to be {model!r}",
            )

    # -- checkpoints

    def begin(self) -> None:
        """Begin a checkpoint or a savepoint."""
        self._number += 1
        rng, last = self._rng, self._complete[-1] if self._complete else None
        canonical = rng.random() < 0.25
        self._running = _Checkpoint(self._number, copy.deepcopy(self.model), [], canonical)
        for position, subtask in enumerate(self.subtasks):
            base = None
            if last is not None and not last.canonical and position < len(last.taken):
                base = last.taken[position] if last.taken[position].key_groups == subtask.key_groups else None
            purpose = Purpose(self._number, True, last.number if base is not None and last is not None else None)
            if canonical:
                purpose = Purpose(self._number, canonical=True)
            snapshot = subtask.keyed.snapshot(rng.choice((0.0, 0.002)), purpose)
            subtask.taking = RunningSnapshot(snapshot, subtask.key_groups, None if canonical else base)
        self._taken: dict[int, SnapshotContents] = {}

    def go_on(self) -> None:
        """Have some subtask write a slice of the running checkpoint; begin one if none is running."""
        if self._running is None:
            self.begin()
            return
        unfinished = [position for position, index in enumerate(self.subtasks) if index.taking is not None]
        position = self._rng.choice(unfinished)
        subtask = self.subtasks[position]
        assert subtask.taking is not None
        contents = subtask.taking.step()
        if contents is None:
            return
        subtask.taking, self._taken[position] = None, contents
        if len(self._taken) == len(self.subtasks):
            self._running.taken = [self._taken[index] for index in range(len(self.subtasks))]
            self._complete = [*self._complete[1 - _RETAINED :], self._running]
            self._running = None

    def complete(self) -> None:
        """Run a checkpoint to its end."""
        self.go_on()
        while self._running is not None:
            self.go_on()

    def fail(self) -> None:
        """Fail all subtasks, and restart from the last checkpoint, perhaps with another parallelism or backend."""
        for subtask in self.subtasks:
            if subtask.taking is not None:
                subtask.taking.snapshot.close()
            subtask.keyed.close()
        self._running = None
        rng, last = self._rng, self._complete[-1] if self._complete else None
        if last is None or not any(contents.files for contents in last.taken):
            self.backend = rng.choice(self._backends)
        same = rng.random() < 0.3
        self.subtasks = self._new(len(self.subtasks) if same else rng.randint(1, 5))
        self.model = _Model()
        if last is not None:
            self.model = copy.deepcopy(last.model)
            for subtask in self.subtasks:
                parts = [part for part in last.taken if set(part.key_groups) & set(subtask.key_groups)]
                subtask.keyed.restore([part.of(subtask.key_groups) for part in parts])
        self.check("restored")

    def close(self) -> None:
        for subtask in self.subtasks:
            if subtask.taking is not None:
                subtask.taking.snapshot.close()
            subtask.keyed.close()


# -- changes of state; each is applied to the backend and to the model


def _put_value(job: _Job, key: int, rng: random.Random) -> None:
    value = [rng.randrange(100)]
    job.of(key).keyed.get_state(_VALUE).update(value)
    job.model.of("value")[key] = list(value)


def _change_value(job: _Job, key: int, rng: random.Random) -> None:
    state = job.of(key).keyed.get_state(_VALUE)
    value: Any = state.value()
    if value is not None:
        value.append(7)
        state.update(value)
        job.model.of("value")[key] = [*job.model.of("value")[key], 7]


def _add_to_list(job: _Job, key: int, rng: random.Random) -> None:
    numbers = [rng.randrange(100) for _ in range(rng.randrange(3))]
    job.of(key).keyed.get_list_state(_LIST).add_all(numbers)
    if numbers:
        job.model.of("list").setdefault(key, []).extend(numbers)


def _put_into_map(job: _Job, key: int, rng: random.Random) -> None:
    name, number = str(rng.randrange(5)), [rng.randrange(100)]
    job.of(key).keyed.get_map_state(_MAP).put(name, number)
    job.model.of("map").setdefault(key, {})[name] = list(number)


def _remove_from_map(job: _Job, key: int, rng: random.Random) -> None:
    name = str(rng.randrange(5))
    job.of(key).keyed.get_map_state(_MAP).remove(name)
    job.model.of("map").get(key, {}).pop(name, None)


def _add(job: _Job, key: int, rng: random.Random) -> None:
    number = rng.randrange(100)
    keyed = job.of(key).keyed
    keyed.get_reducing_state(_SUM).add(number)
    keyed.get_aggregating_state(_JOINED).add(number)
    job.model.of("sum")[key] = job.model.of("sum").get(key, 0) + number
    job.model.of("joined")[key] = (*job.model.of("joined").get(key, ()), number)


def _clear(job: _Job, key: int, rng: random.Random) -> None:
    keyed = job.of(key).keyed
    states: dict[str, Any] = {
        "value": keyed.get_state(_VALUE),
        "list": keyed.get_list_state(_LIST),
        "map": keyed.get_map_state(_MAP),
        "sum": keyed.get_reducing_state(_SUM),
        "joined": keyed.get_aggregating_state(_JOINED),
        "short": keyed.get_state(_SHORT),
        "short-map": keyed.get_map_state(_SHORT_MAP),
    }
    name = rng.choice(list(states))
    states[name].clear()
    job.model.of(name).pop(key, None)


def _put_short(job: _Job, key: int, rng: random.Random) -> None:
    number, name, now = rng.randrange(100), str(rng.randrange(4)), job.clock.epoch_ms()
    keyed = job.of(key).keyed
    keyed.get_state(_SHORT).update(number)
    keyed.get_list_state(_SHORT_LIST).add(number)
    keyed.get_map_state(_SHORT_MAP).put(name, number)
    job.model.of("short")[key] = number, now
    job.model.of("short-list").setdefault(key, []).append((number, now))
    entries = job.model.of("short-map").setdefault(key, {})
    entries.pop(name, None)  # to the end: in the order of expiry
    entries[name] = number, now


def _wait(job: _Job, key: int, rng: random.Random) -> None:
    job.clock.advance(rng.choice((0.1, 0.5, 0.999)))


def _change_row(job: _Job, key: int, rng: random.Random) -> None:
    number, rows = rng.randrange(100), job.of(key).keyed.table("rows")
    if number % 4:
        rows.setdefault(key, []).append(number)
        job.model.of("table").setdefault(key, []).append(number)
    else:
        rows.pop(key, None)
        job.model.of("table").pop(key, None)


def _add_records(job: _Job, key: int, rng: random.Random) -> None:
    records, model = job.of(key).keyed.timeline("records"), job.model.of("records")
    for _ in range(rng.randrange(4)):
        time, number = rng.randrange(-15, 15), rng.randrange(100)
        records.add(key, time, [number])
        model[key] = sorted([*model.get(key, ()), (time, [number])], key=lambda pair: pair[0])


def _remove_records(job: _Job, key: int, rng: random.Random) -> None:
    model, time = job.model.of("records"), rng.randrange(-15, 15)
    job.of(key).keyed.timeline("records").remove(key, time)
    model[key] = [pair for pair in model.get(key, ()) if pair[0] != time]


def _look_at_records(job: _Job, key: int, rng: random.Random) -> None:
    first, last = rng.randrange(-20, 20), rng.randrange(-20, 20)
    records = list(job.of(key).keyed.timeline("records").between(key, first, last))
    expected = [pair for pair in job.model.of("records").get(key, ()) if first <= pair[0] <= last]
    require(records == expected, f"records of {key} between {first} and {last} are {records}, and are to be {expected}")


def _change_window(job: _Job, key: int, rng: random.Random) -> None:
    keyed, model, namespace = job.of(key).keyed, job.model.of("of-window"), rng.choice(_NAMESPACES)
    number = rng.randrange(100)
    if number % 5 == 0:
        keyed.clear_namespace(namespace)
        model.pop((key, namespace), None)
    elif number % 5 == 1:
        keyed.merge_namespaces(_OF_WINDOW, _NAMESPACES[0], _NAMESPACES[1:])
        merged = [*model.pop((key, _NAMESPACES[0]), []), *model.pop((key, _NAMESPACES[1]), [])]
        if merged:
            model[key, _NAMESPACES[0]] = merged
    else:
        keyed.store(namespace).get_list_state(_OF_WINDOW).add(number)
        model.setdefault((key, namespace), []).append(number)


def _add_timers(job: _Job, key: int, rng: random.Random) -> None:
    name, queue = rng.choice(_QUEUES), job.of(key).keyed
    for _ in range(rng.randrange(1, 4)):
        timer = (name, rng.randrange(-5, 60), key, rng.choice((None, "w")))
        is_new = queue.timers(name).add(*timer[1:])
        require(is_new == (timer not in job.model.timers), f"add() of {timer} gives {is_new}")
        job.model.timers.add(timer)


def _discard_timer(job: _Job, key: int, rng: random.Random) -> None:
    timer = (rng.choice(_QUEUES), rng.randrange(-5, 60), key, rng.choice((None, "w")))
    own_timers = sorted((candidate for candidate in job.model.timers if candidate[2] == key), key=repr)
    if own_timers and rng.random() < 0.7:
        timer = rng.choice(own_timers)
    was_there = job.of(key).keyed.timers(timer[0]).discard(*timer[1:])
    require(was_there == (timer in job.model.timers), f"discard() of {timer} gives {was_there}")
    job.model.timers.discard(timer)


def _fire(job: _Job, key: int, rng: random.Random) -> None:
    name, time, subtask = rng.choice(_QUEUES), rng.randrange(40), job.of(key)
    due, last, again = (
        {fired for fired in job.model.timers if fired[0] == name and fired[1] <= time},
        -100,
        rng.random() < 0.3,
    )
    due = {fired for fired in due if fired[2] % GROUPS in subtask.key_groups}
    queue = subtask.keyed.timers(name)
    for timer in queue.due(time):
        fired = (name, *timer)
        require(fired in due and timer.timestamp >= last, f"{fired} fires behind {last}; those are due: {due}")
        last = timer.timestamp
        due.discard(fired)
        job.model.timers.discard(fired)
        if again:  # one of them registers another one
            again = False
            queue.add(last, timer.key, "again")
            due.add((name, last, timer.key, "again"))
            job.model.timers.add((name, last, timer.key, "again"))
    require(not due, f"timers that are due do not fire: {due}")


def _put_columns(job: _Job, key: int, rng: random.Random) -> None:
    for subtask in job.subtasks:
        keys = rng.sample([key for key in _KEYS if key % GROUPS in subtask.key_groups], 2)
        slots = subtask.columns.slots([pa.array(keys, pa.int64())])
        subtask.columns.touch(slots)
        numbers = [rng.randrange(1 << 40) for _ in keys]
        subtask.numbers.set(slots, numbers)
        job.model.of("columns").update(zip(keys, numbers, strict=True))


def _remove_columns(job: _Job, key: int, rng: random.Random) -> None:
    if key in job.model.of("columns"):
        columns = job.of(key).columns
        columns.release(columns.find([pa.array([key], pa.int64())]))
        del job.model.of("columns")[key]


CHANGES: Final[Sequence[Callable[[_Job, int, random.Random], None]]] = (
    _put_value, _change_value, _add_to_list, _put_into_map, _remove_from_map, _add, _clear, _put_short, _wait,
    _change_row, _add_records, _remove_records, _look_at_records, _change_window, _add_timers, _discard_timer, _fire,
    _put_columns, _remove_columns,
)  # fmt: skip
"""All kinds of changes."""


def check_rescaling(backends: Sequence[StateBackend], *, seeds: Iterable[int] = range(4), steps: int = 300) -> None:
    """Run random programs with all kinds of state on several subtasks that fail and are rescaled; compare with a dict.

    Args:
        backends: one or more backends, between which a job may change with a savepoint.
        seeds: seeds of random programs, one program each.
        steps: number of steps of each program.

    Raises:
        AssertionError: the message says which state is lost or duplicated, and the history of the job.
    """
    for seed in seeds:
        rng = random.Random(seed)
        with tempfile.TemporaryDirectory() as folder:
            job = _Job(backends, Path(folder), rng, f"seed {seed}")
            try:
                _run(job, rng, steps)
            finally:
                job.close()
            paths = [str(path) for path in Path(folder).iterdir()]
            require(not paths, f"seed {seed}: close() leaves {paths[:3]}")


def _run(job: _Job, rng: random.Random, steps: int) -> None:
    for _ in range(steps):
        chance = rng.random()
        if chance < 0.02:
            job.fail()
        elif chance < 0.03:
            job.complete()
        elif chance < 0.25:
            job.go_on()
        else:
            rng.choice(CHANGES)(job, rng.choice(_KEYS), rng)
    job.check("at the end")
    job.complete()
    job.fail()
