"""Random programs on keyed state against plain dicts, with time-to-live and with snapshots between any two steps."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from firesteel.common.time import Time
from firesteel.common.typeinfo import Types
from firesteel.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from firesteel.state.backend import KeyedStateParameters
from firesteel.state.heap import HeapKeyedState
from firesteel.state.snapshots import StateChunk, StateInfo
from firesteel.testing.clock import ManualClock
from tests.examples import examples
from tests.unit.state.handles import handle

TTL = 100
GROUPS = 4
KEYS = st.integers(0, 5)
NUMBERS = st.integers(0, 9)


class Joined:
    """Keeps what was added, in an accumulator that is changed in place."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> str:
        return ",".join(map(str, accumulator))

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


def descriptors(ttl: StateTtlConfig | None) -> dict[str, Any]:
    by_kind: dict[str, StateDescriptor] = {
        "value": ValueStateDescriptor("value", Types.PICKLED_BYTE_ARRAY()),
        "list": ListStateDescriptor("list", Types.INT()),
        "map": MapStateDescriptor("map", Types.INT(), Types.LONG()),
        "sum": ReducingStateDescriptor("sum", lambda number, other: number + other, Types.LONG()),
        "joined": AggregatingStateDescriptor("joined", Joined(), Types.LIST(Types.INT())),
    }
    if ttl is not None:
        for descriptor in by_kind.values():
            descriptor.enable_time_to_live(ttl)
    return by_kind


class Programs(RuleBasedStateMachine):
    """State of five kinds; the model holds pairs of value and time of last access."""

    ttl: StateTtlConfig | None = None
    shows_expired = False
    reads_extend = False

    @initialize()
    def begin(self) -> None:
        self.clock = ManualClock()
        self.keyed = self.backend(range(GROUPS))
        self.states = self.open(self.keyed)
        self.values: dict[int, tuple[Any, int]] = {}
        self.lists: dict[int, list[tuple[int, int]]] = {}
        self.maps: dict[int, dict[int, tuple[int, int]]] = {}
        self.sums: dict[int, tuple[int, int]] = {}
        self.joined: dict[int, tuple[list[int], int]] = {}
        self.running: Any = None
        self.chunks: list[StateChunk] = []
        self.keyed.key = self.key = 0

    def backend(self, groups: range) -> HeapKeyedState:
        return HeapKeyedState(
            KeyedStateParameters(key_group_of=lambda key: key % GROUPS, key_groups=groups, clock=self.clock)
        )

    def open(self, keyed: HeapKeyedState) -> dict[str, Any]:
        by_kind = descriptors(self.ttl)
        return {
            "value": keyed.get_state(by_kind["value"]),
            "list": keyed.get_list_state(by_kind["list"]),
            "map": keyed.get_map_state(by_kind["map"]),
            "sum": keyed.get_reducing_state(by_kind["sum"]),
            "joined": keyed.get_aggregating_state(by_kind["joined"]),
        }

    @property
    def now(self) -> int:
        return self.clock.epoch_ms()

    def dead(self, stamp: int) -> bool:
        return self.ttl is not None and stamp + TTL <= self.now

    def current_value(self, model: dict[int, tuple[Any, int]]) -> Any:
        """Reads a single value out of the model."""
        if self.key not in model:
            return None
        value, stamp = model[self.key]
        if self.dead(stamp):
            del model[self.key]
            return value if self.shows_expired else None
        if self.reads_extend:
            model[self.key] = value, self.now
        return value

    @rule(key=KEYS)
    def choose(self, key: int) -> None:
        self.keyed.key = self.key = key

    @rule(ms=st.sampled_from([1, 30, 99, 100, 250]))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms / 1000)

    # -- value

    @rule(number=NUMBERS)
    def value_update(self, number: int) -> None:
        self.states["value"].update([number])
        self.values[self.key] = [number], self.now

    @rule(number=NUMBERS)
    def value_change_in_place(self, number: int) -> None:
        value, expected = self.states["value"].value(), self.current_value(self.values)
        assert value == expected
        if value is not None:
            value.append(number)
            self.states["value"].update(value)
            self.values[self.key] = list(value), self.now

    @rule()
    def value_clear(self) -> None:
        self.states["value"].clear()
        self.values.pop(self.key, None)

    # -- list

    @rule(numbers=st.lists(NUMBERS, max_size=3))
    def list_add(self, numbers: list[int]) -> None:
        self.states["list"].add_all(numbers)
        if numbers:
            self.lists.setdefault(self.key, []).extend((n, self.now) for n in numbers)

    @rule(numbers=st.lists(NUMBERS, max_size=3))
    def list_update(self, numbers: list[int]) -> None:
        self.states["list"].update(numbers)
        self.lists[self.key] = [(n, self.now) for n in numbers]

    @rule()
    def list_get(self) -> None:
        pairs = self.lists.get(self.key, [])
        alive = [(n, self.now if self.reads_extend else s) for n, s in pairs if not self.dead(s)]
        expected = [n for n, s in pairs if self.shows_expired or not self.dead(s)]
        assert list(self.states["list"].get()) == expected
        self.lists[self.key] = alive

    # -- map

    @rule(entries=st.dictionaries(NUMBERS, NUMBERS, max_size=3))
    def map_put(self, entries: dict[int, int]) -> None:
        self.states["map"].put_all(entries)
        model = self.maps.setdefault(self.key, {})
        for name, number in entries.items():
            self.map_store(model, name, number)

    def map_store(self, model: dict[int, tuple[int, int]], name: int, number: int) -> None:
        if self.ttl is not None:
            model.pop(name, None)  # to the end: in the order of expiry
        model[name] = number, self.now

    @rule(name=NUMBERS, contains=st.booleans())
    def map_get(self, name: int, contains: bool) -> None:
        state, model = self.states["map"], self.maps.setdefault(self.key, {})
        expected = None
        if name in model:
            number, stamp = model[name]
            if self.dead(stamp):
                del model[name]
                expected = number if self.shows_expired else None
            else:
                expected = number
                if self.reads_extend:
                    self.map_store(model, name, number)
        if contains:
            assert state.contains(name) == (expected is not None)
        else:
            assert state.get(name) == expected

    @rule(name=NUMBERS)
    def map_remove(self, name: int) -> None:
        self.states["map"].remove(name)
        self.maps.get(self.key, {}).pop(name, None)

    @rule()
    def map_items(self) -> None:
        model = self.maps.get(self.key, {})
        expected = [(k, n) for k, (n, s) in model.items() if self.shows_expired or not self.dead(s)]
        assert list(self.states["map"].items()) == expected
        alive = {k: (n, s) for k, (n, s) in model.items() if not self.dead(s)}
        if self.reads_extend:
            alive = {k: (n, self.now) for k, (n, s) in alive.items()}
        self.maps[self.key] = alive

    # -- reducing and aggregating

    @rule(number=NUMBERS)
    def add(self, number: int) -> None:
        self.states["sum"].add(number)
        self.states["joined"].add(number)
        before, stamp = self.sums.get(self.key, (0, self.now))
        self.sums[self.key] = (0 if self.dead(stamp) else before) + number, self.now
        numbers, stamp = self.joined.get(self.key, ([], self.now))
        self.joined[self.key] = [*([] if self.dead(stamp) else numbers), number], self.now

    @rule()
    def combined(self) -> None:
        assert self.states["sum"].get() == self.current_value(self.sums)
        numbers = self.current_value(self.joined)
        assert self.states["joined"].get() == (None if numbers is None else ",".join(map(str, numbers)))

    @rule()
    def combined_clear(self) -> None:
        for name, model in (("sum", self.sums), ("joined", self.joined)):
            self.states[name].clear()
            model.pop(self.key, None)

    # -- snapshots

    @precondition(lambda self: self.running is None)
    @rule(seconds=st.sampled_from([0.0, 0.002]))
    def snapshot(self, seconds: float) -> None:
        self.expected = self.alive()
        self.taken_at = self.now
        self.running, self.chunks = self.keyed.snapshot(seconds), []

    @precondition(lambda self: self.running is not None)
    @rule(parallelism=st.integers(1, GROUPS))
    def slice(self, parallelism: int) -> None:
        part = next(self.running, None)
        if part is None:
            self.check_snapshot(list(self.running.states), self.chunks, parallelism)
            self.running = None
        else:
            self.chunks += part

    @precondition(lambda self: self.running is not None)
    @rule()
    def give_up(self) -> None:
        self.running.close()
        self.running = None

    def alive(self) -> dict[str, dict[int, Any]]:
        """The model as a restored program has to find it, all keys."""
        ones = {"value": self.values, "sum": self.sums, "joined": self.joined}
        contents: dict[str, dict[int, Any]] = {
            name: {key: (value, stamp) for key, (value, stamp) in model.items() if not self.dead(stamp)}
            for name, model in ones.items()
        }
        contents["list"] = {k: [p for p in pairs if not self.dead(p[1])] for k, pairs in self.lists.items()}
        contents["map"] = {k: {n: p for n, p in m.items() if not self.dead(p[1])} for k, m in self.maps.items()}
        return contents

    def check_snapshot(self, states: list[StateInfo], chunks: list[StateChunk], parallelism: int) -> None:
        for subtask in range(parallelism):
            own = range(subtask * GROUPS // parallelism, (subtask + 1) * GROUPS // parallelism)
            keyed = self.backend(own)
            keyed.restore([handle(states, chunks)])
            self.check_restored(keyed, own)

    def check_restored(self, keyed: HeapKeyedState, own: range) -> None:
        opened = self.open(keyed)
        for key in range(6):
            mine = key % GROUPS in own
            for name in ("value", "sum", "joined", "list", "map"):
                expected = self.expected[name].get(key) if mine else None
                stored = keyed._parts[name, "plain"].table.get(key)
                if stored is not None and self.ttl is not None:
                    stored = self.still_alive(name, stored)
                if expected is not None and self.ttl is None:
                    expected = self.without_stamps(name, expected)
                assert (stored or None) == (expected or None), (name, key)
        assert list(opened) == ["value", "list", "map", "sum", "joined"]

    def still_alive(self, name: str, stored: Any) -> Any:
        """What was alive at the time of the snapshot; the rest may be in it or not."""
        limit = self.taken_at - TTL
        if name == "list":
            return [pair for pair in stored if pair[1] > limit]
        if name == "map":
            return {key: pair for key, pair in stored.items() if pair[1] > limit}
        return stored if stored[1] > limit else None

    @staticmethod
    def without_stamps(name: str, expected: Any) -> Any:
        if name == "list":
            return [number for number, _ in expected]
        if name == "map":
            return {key: number for key, (number, _) in expected.items()}
        return expected[0]


def run(machine: type[Programs]) -> None:
    """A busy machine is no reason to fail."""
    chosen = settings(
        max_examples=examples(40), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    run_state_machine_as_test(machine, settings=chosen)


def test_programs_without_time_to_live() -> None:
    run(Programs)


def test_programs_whose_writes_extend_life() -> None:
    class Machine(Programs):
        ttl = StateTtlConfig.new_builder(Time.milliseconds(TTL)).cleanup_incrementally(2, True).build()

    run(Machine)


def test_programs_whose_reads_extend_life() -> None:
    class Machine(Programs):
        ttl = StateTtlConfig.new_builder(Time.milliseconds(TTL)).update_ttl_on_read_and_write().build()
        reads_extend = True

    run(Machine)


def test_programs_that_see_what_has_expired() -> None:
    class Machine(Programs):
        ttl = (
            StateTtlConfig.new_builder(Time.milliseconds(TTL))
            .return_expired_if_not_cleaned_up()
            .disable_cleanup_in_background()
            .cleanup_full_snapshot()
            .build()
        )
        shows_expired = True

    run(Machine)
