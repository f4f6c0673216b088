"""The backend ``rocksdb`` keeps the contract, and what RocksDB is known to do behind one's back."""

from __future__ import annotations

import json
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from firesteel.common.time import Time
from firesteel.common.typeinfo import Types
from firesteel.config import Settings
from firesteel.config.options import ROCKSDB_METRICS, ROCKSDB_STATISTICS
from firesteel.core import plugins
from firesteel.core.clock import SystemClock
from firesteel.core.errors import ConfigurationError, StateDatabaseError, StateRestoreError
from firesteel.functions.state import ListStateDescriptor, MapStateDescriptor, StateTtlConfig, ValueStateDescriptor
from firesteel.runtime.loop.metrics import MetricRegistry
from firesteel.state.backend import KeyedStateParameters, load_state_backend
from firesteel.state.heap import HeapKeyedState
from firesteel.state.snapshots import Purpose
from firesteel.testing.snapshots import RunningSnapshot, SnapshotContents, take_snapshot
from firesteel.testing.state_conformance import check_state_backend
from firesteel_rocksdb.backend import CONTENTS, RocksDBKeyedState, RocksDBStateBackend
from firesteel_rocksdb.database import Linking, RocksDatabase, _links
from firesteel_rocksdb.metrics import _TICKERS, show
from firesteel_rocksdb.settings import RocksDBSettings, memory_of
from tests.examples import examples

GROUPS = 8
VALUE = ValueStateDescriptor("value", Types.PICKLED_BYTE_ARRAY())
NUMBER = ValueStateDescriptor("number", Types.LONG())
ITEMS = ListStateDescriptor("items", Types.LONG())
NAMES = MapStateDescriptor("names", Types.STRING(), Types.LONG())
Make = Callable[..., RocksDBKeyedState]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    states: list[RocksDBKeyedState] = []

    def new(groups: range = range(GROUPS), memory: int = 0, settings: RocksDBSettings | None = None) -> Any:
        parameters = KeyedStateParameters(
            key_group_of=lambda key: key % GROUPS,
            key_groups=groups,
            max_parallelism=GROUPS,
            operator="counting",
            memory=memory,
            directory=str(tmp_path / f"attempt-{len(states)}"),
        )
        states.append(RocksDBKeyedState(parameters, settings or RocksDBSettings()))
        return states[-1]

    yield new
    for keyed in states:
        keyed.close()


def count(keyed: RocksDBKeyedState, keys: Iterable[int], value: int) -> None:
    state = keyed.get_state(NUMBER)
    for key in keys:
        keyed.key = key
        state.update(value)


def counts(keyed: RocksDBKeyedState, keys: range) -> list[Any]:
    state, values = keyed.get_state(NUMBER), []
    for key in keys:
        keyed.key = key
        values.append(state.value())
    return values


def test_the_backend_on_rocksdb_keeps_the_contract() -> None:
    check_state_backend(load_state_backend("rocksdb"), seeds=range(examples(5)), steps=200)


def test_without_the_package_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> Any:
        raise ModuleNotFoundError("No module named 'rocksdict'", name="rocksdict")

    monkeypatch.setattr(plugins, "import_module", missing)
    with pytest.raises(ConfigurationError, match=r"pip install 'firesteel\[rocksdb\]'"):
        load_state_backend("rocksdb")


def test_what_does_not_fit_into_memory_is_on_disk(make: Make) -> None:
    keyed = make(memory=1 << 20)
    keys = range(20_000)
    count(keyed, keys, 1)
    state = keyed.get_state(NUMBER)
    for key in keys:
        keyed.key = key
        state.update(state.value() + key)
    table: Any = keyed._parts["number", "plain"].table
    assert len(table.young) + sum(map(len, table._layers)) + len(table._clean) < 6_000
    assert counts(keyed, keys) == [key + 1 for key in keys]
    assert sorted(keyed.keys(NUMBER)) == list(keys)


class Reads:
    """How often a database was asked, for how many keys."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.single, self.together = 0, list[int]()
        get, get_many = RocksDatabase.get, RocksDatabase.get_many

        def counted(database: RocksDatabase, key: bytes) -> bytes | None:
            self.single += 1
            return get(database, key)

        def counted_many(database: RocksDatabase, keys: list[bytes]) -> list[bytes | None]:
            self.together.append(len(keys))
            return get_many(database, keys)

        patch.setattr(RocksDatabase, "get", counted)
        patch.setattr(RocksDatabase, "get_many", counted_many)


def test_keys_that_come_next_are_read_together(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed = make(memory=1 << 16)
    count(keyed, range(2000), 7)
    reads = Reads(monkeypatch)
    keyed.fetch_ahead(partial(range, 200))
    assert counts(keyed, range(200)) == [7] * 200
    keyed.fetch_ahead(partial(range, 5000, 5100))
    assert counts(keyed, range(5000, 5100)) == [None] * 100
    assert reads.together == [200, 100]
    assert reads.single == 0


def test_what_was_read_ahead_is_not_found_behind_a_change(make: Make) -> None:
    keyed = make(memory=1 << 16)
    count(keyed, range(2000), 7)
    keyed.fetch_ahead(partial(range, 200))
    count(keyed, range(200), 8)  # not asked for before
    count(keyed, range(10_000, 12_000), 9)
    assert counts(keyed, range(200)) == [8] * 200


def test_nothing_is_read_ahead_where_it_is_of_no_use(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what is in memory nor what nobody asks for then: it is tried again later."""
    keyed = make(memory=1 << 16)
    count(keyed, range(2000), 7)
    reads = Reads(monkeypatch)
    for start in range(0, 1280, 20):
        keyed.fetch_ahead(partial(range, start, start + 20))
    assert reads.together == [20]
    keyed.fetch_ahead(partial(range, 20))
    keyed.fetch_ahead(partial(range, 20))
    assert reads.together == [20, 20]
    in_memory = make()
    count(in_memory, range(100), 7)
    requests: list[range] = []

    def keys() -> range:
        requests.append(range(100))
        return requests[-1]

    for _ in range(10):
        in_memory.fetch_ahead(keys)
    assert reads.together == [20, 20]
    assert len(requests) == 1, "nobody works out keys that are not wanted"


def test_lists_and_maps_change_in_place_and_are_found_again(make: Make) -> None:
    keyed = make(memory=1)
    items, names = keyed.get_list_state(ITEMS), keyed.get_map_state(NAMES)
    for number in range(50):
        keyed.key = number % 3
        items.add(number)
        names.put(str(number), number)
    keyed.key = 1
    assert list(items.get()) == list(range(1, 50, 3))
    assert list(names.items()) == [(str(n), n) for n in range(1, 50, 3)]
    contents = take_snapshot(keyed.snapshot(), range(GROUPS))
    later = make()
    later.restore([contents.of(range(GROUPS))])
    later.key = 1
    assert list(later.get_list_state(ITEMS).get()) == list(range(1, 50, 3))


def test_a_default_is_found_as_it_was_changed(make: Make) -> None:
    table = make(memory=1).table("rows")
    for number in range(9):
        table.setdefault(number % 3, []).append(number)
    assert dict(table.items()) == {0: [0, 3, 6], 1: [1, 4, 7], 2: [2, 5, 8]}


def test_state_of_hashmap_is_gone_on_with(make: Make) -> None:
    ttl = ValueStateDescriptor("short", Types.LONG())
    ttl.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
    keyed = HeapKeyedState(KeyedStateParameters(key_group_of=lambda key: key % GROUPS, key_groups=range(GROUPS)))
    for key in range(100):
        keyed.key = key
        keyed.get_state(NUMBER).update(key)
        keyed.get_state(ttl).update(key)
        keyed.store((key, key + 5)).get_list_state(ITEMS).add_all([key, key + 1])
        keyed.table("rows")[key] = {"n": key}
        keyed.timers("t").add(key, key, None)
    contents = take_snapshot(keyed.snapshot(), range(GROUPS))
    for own in (range(GROUPS), range(3, 5)):
        later = make(own, memory=1)
        later.restore([contents.of(own)])
        mine = [key for key in range(100) if key % GROUPS in own]
        assert sorted(later.keys(NUMBER)) == mine
        assert sorted(timer.key for timer in later.timers("t")) == mine
        for key in mine:
            later.key = key
            assert later.get_state(NUMBER).value() == key
            assert later.get_state(ttl).value() == key
            assert list(later.store((key, key + 5)).get_list_state(ITEMS).get()) == [key, key + 1]
            assert later.table("rows")[key] == {"n": key}


def test_files_that_vanish_fail_the_checkpoint_by_name(make: Make, tmp_path: Path) -> None:
    keyed = make()
    count(keyed, range(1000), 1)
    take_snapshot(keyed.snapshot(), range(GROUPS))
    for path in (tmp_path / "attempt-0" / "db").glob("*.sst"):
        path.unlink()
    count(keyed, range(10), 2)
    with pytest.raises(StateDatabaseError, match="'counting'"):
        take_snapshot(keyed.snapshot(), range(GROUPS))
    assert not list((tmp_path / "attempt-0").glob("snapshot-*"))


def test_only_new_files_are_stored_again(make: Make) -> None:
    keyed = make()
    count(keyed, range(5000), 1)
    first = take_snapshot(keyed.snapshot(purpose=Purpose(1, True)), range(GROUPS))
    count(keyed, range(3), 2)
    second = take_snapshot(keyed.snapshot(purpose=Purpose(2, True, 1)), range(GROUPS), first)
    tables = {name for name in first.files if name.endswith(".sst")}
    assert tables
    assert tables <= set(second.files)
    assert sum(len(data) for name, data in second.files.items() if name not in first.files) < 5000
    later = make()
    later.restore([second.of(range(GROUPS))])
    assert counts(later, range(5)) == [2, 2, 2, 1, 1]


def test_files_of_two_attempts_from_one_checkpoint_have_different_names(make: Make) -> None:
    keyed = make()
    count(keyed, range(100), 1)
    first = take_snapshot(keyed.snapshot(purpose=Purpose(1, True)), range(GROUPS))
    snapshots = []
    for value in (2, 3):  # numbers of new files are the same, what is in them is not
        attempt = make()
        attempt.restore([first.of(range(GROUPS))])
        count(attempt, range(50), value)
        snapshots.append(take_snapshot(attempt.snapshot(purpose=Purpose(2, True, 1)), range(GROUPS), first))
    new = [{name for name in contents.files if name.endswith(".sst")} - set(first.files) for contents in snapshots]
    assert new[0]
    assert new[1]
    assert not new[0] & new[1]
    local = [set(json.loads(contents.files[CONTENTS])["files"]) for contents in snapshots]
    assert local[0] == local[1]
    # a checkpoint of the second attempt on top of one of the first: nothing of the first may be taken for its own
    attempt = make()
    attempt.restore([snapshots[0].of(range(GROUPS))])
    count(attempt, range(50, 60), 9)
    third = take_snapshot(attempt.snapshot(purpose=Purpose(3, True, 2)), range(GROUPS), snapshots[1])
    later = make()
    later.restore([third.of(range(GROUPS))])
    assert counts(later, range(0, 100, 49)) == [2, 2, 1]
    assert counts(later, range(50, 60)) == [9] * 10


@pytest.mark.parametrize("steps", [(2, 3), (3, 2), (3, 5, 1, 4, 3), (3, 8, 2)])
def test_other_parallelisms(make: Make, steps: tuple[int, ...]) -> None:
    def split(parallelism: int) -> list[range]:
        return [range(i * GROUPS // parallelism, (i + 1) * GROUPS // parallelism) for i in range(parallelism)]

    keys = range(300)
    before: list[tuple[SnapshotContents, range]] = []
    for value, parallelism in enumerate(steps, 1):
        written = []
        for own in split(parallelism):
            keyed = make(own)
            keyed.restore([contents.of(own) for contents, theirs in before if set(theirs) & set(own)])
            mine = [key for key in keys if key % GROUPS in own]
            state, row = keyed.get_state(NUMBER), keyed.table("rows")
            assert sorted(keyed.keys(NUMBER)) == (mine if before else [])
            for key in mine:
                keyed.key = key
                assert state.value() == (value - 1 if before else None)
                assert row.get(key) == ({"n": value - 1} if before else None)
                state.update(value)
                row[key] = {"n": value}
                keyed.timers("t").add(key, key, None)
            assert len(keyed.timers("t")) == len(mine)
            written.append((take_snapshot(keyed.snapshot(), own), own))
        before = written


def test_what_belongs_to_others_leaves_the_disk(make: Make) -> None:
    keyed = make()
    count(keyed, range(100_000), 1)
    whole = take_snapshot(keyed.snapshot(), range(GROUPS))
    part = make(range(3, 5))
    part.restore([whole.of(range(3, 5))])
    clipped = take_snapshot(part.snapshot(), range(3, 5))
    assert sum(map(len, clipped.files.values())) < 0.4 * sum(map(len, whole.files.values()))
    assert sorted(part.keys(NUMBER)) == [key for key in range(100_000) if key % GROUPS in (3, 4)]


def test_databases_with_files_of_the_same_names_become_one(make: Make) -> None:
    snapshots = []
    for own in (range(4), range(4, 8)):
        keyed = make(own)
        count(keyed, [key for key in range(1000) if key % GROUPS in own], own.start)
        snapshots.append(take_snapshot(keyed.snapshot(), own))
    local = [set(json.loads(contents.files[CONTENTS])["files"]) for contents in snapshots]
    assert local[0] == local[1]
    together = make()
    together.restore([contents.of(range(GROUPS)) for contents in snapshots])
    assert counts(together, range(1000)) == [0 if key % GROUPS < 4 else 4 for key in range(1000)]
    again = make(range(2, 7))
    again.restore([take_snapshot(together.snapshot(), range(GROUPS)).of(range(2, 7))])
    assert sorted(again.keys(NUMBER)) == [key for key in range(1000) if key % GROUPS in range(2, 7)]


def test_a_snapshot_has_the_state_of_its_moment_while_much_is_written(make: Make) -> None:
    keyed = make(memory=1 << 20)
    count(keyed, range(3000), 1)
    keyed.table("dropped")[7] = 0
    running = RunningSnapshot(keyed.snapshot(0.0), range(GROUPS))
    keyed.drop_table("dropped")
    written = 0
    while (contents := running.step()) is None:
        count(keyed, range(written, written + 400), 2)
        written += 400
    count(keyed, range(20_000), 3)
    later = make()
    later.restore([contents.of(range(GROUPS))])
    assert counts(later, range(3000)) == [1] * 3000
    assert sorted(later.keys(NUMBER)) == list(range(3000))
    assert later.table_names() == ["dropped"]
    assert "dropped" not in keyed.table_names()
    assert counts(keyed, range(20_000)) == [3] * 20_000


def test_records_that_changed_while_a_snapshot_was_written_can_be_removed_later(make: Make) -> None:
    keyed = make()
    keyed.key = 1
    records = keyed.timeline("records")
    assert list(records.between(1, 0, 100)) == []  # from here on the table knows that the database has nothing
    records.add(1, 10, "first")
    running = RunningSnapshot(keyed.snapshot(), range(GROUPS))
    records.add(1, 10, "second")
    contents = running.rest()
    records.remove(1, 10)
    earlier, later = make(), make()
    earlier.restore([contents.of(range(GROUPS))])
    later.restore([take_snapshot(keyed.snapshot(), range(GROUPS)).of(range(GROUPS))])
    assert list(earlier.timeline("records").between(1, 0, 100)) == [(10, "first")]
    assert list(later.timeline("records").between(1, 0, 100)) == []


def test_a_table_that_was_dropped_leaves_nothing(make: Make) -> None:
    keyed = make(memory=1)
    for number in range(100):
        keyed.table("window")[number] = [number]
    table: Any = keyed._parts["window", "table"].table
    number = table.number
    keyed.drop_table("window")
    assert keyed.database is not None
    assert keyed.database.read(number.to_bytes(4, "big"), (number + 1).to_bytes(4, "big")) == []
    assert not keyed.table("window")


def test_a_snapshot_that_was_given_up_leaves_no_files(make: Make, tmp_path: Path) -> None:
    keyed = make()
    count(keyed, range(1000), 1)
    keyed.timers("t").add(1, 1, None)
    for _ in range(3):
        running = keyed.snapshot(0.0)
        next(running)
        running.close()
        count(keyed, range(10), 2)
    assert counts(keyed, range(8, 12)) == [2, 2, 1, 1]
    contents = take_snapshot(keyed.snapshot(), range(GROUPS))
    keyed.close()
    assert not list(tmp_path.glob("attempt-0/snapshot-*"))
    later = make()
    later.restore([contents.of(range(GROUPS))])
    assert counts(later, range(8, 12)) == [2, 2, 1, 1]


def test_files_are_stored_although_the_task_is_over(make: Make, tmp_path: Path) -> None:
    keyed = make()
    count(keyed, range(10), 1)
    running = keyed.snapshot()
    for _ in running:
        pass
    keyed.close()
    stored: dict[str, bytes] = {}

    class Files:
        known: dict[str, int] = {}

        def put(self, name: str, path: str) -> None:
            stored[name] = Path(path).read_bytes()

    running.write_files(Files())  # type: ignore[arg-type]
    assert CONTENTS in stored
    assert not (tmp_path / "attempt-0").exists()


# -- what RocksDB does behind one's back


def test_a_corrupt_block_ends_no_scan_silently(make: Make, tmp_path: Path) -> None:
    keyed = make()
    count(keyed, range(20_000), 1)
    contents = take_snapshot(keyed.snapshot(), range(GROUPS))
    keyed.close()
    (name,) = [name for name in contents.files if name.endswith(".sst")]
    data = bytearray(contents.files[name])
    data[len(data) // 2] ^= 0xFF
    contents.files[name] = bytes(data)
    later = make()
    later.restore([contents.of(range(GROUPS))])
    with pytest.raises(StateDatabaseError, match="Corruption"):
        list(later.keys(NUMBER))
    with pytest.raises(StateDatabaseError, match="'counting'"):
        counts(later, range(20_000))


def test_a_lost_database_is_not_an_empty_one(tmp_path: Path) -> None:
    memory = memory_of(RocksDBSettings(), 0)
    (tmp_path / "db").mkdir()
    with pytest.raises(StateDatabaseError, match="does not exist"):
        RocksDatabase(str(tmp_path), "counting", RocksDBSettings(), memory, exists=True)


@pytest.mark.parametrize("which", [".sst", "-CURRENT", "MANIFEST"])
def test_a_file_that_is_missing_is_named(make: Make, which: str) -> None:
    keyed = make()
    count(keyed, range(10), 1)
    contents = take_snapshot(keyed.snapshot(), range(GROUPS))
    (name,) = [name for name in contents.files if which in name]
    del contents.files[name]
    with pytest.raises(StateRestoreError, match=name):
        make().restore([contents.of(range(GROUPS))])


def test_options_count_for_a_restored_database_too(make: Make, tmp_path: Path) -> None:
    keyed = make()
    count(keyed, range(20_000), 1)
    contents = take_snapshot(keyed.snapshot(), range(GROUPS))
    settings = RocksDBSettings(fixed_per_slot=7 << 20, block_size=8 << 10)
    later = make(settings=settings)
    later.restore([contents.of(range(GROUPS))])
    cache = memory_of(settings, 0).cache
    before = cache.get_usage()
    counts(later, range(0, 20_000, 100))
    assert cache.get_usage() > before + 10_000  # else it has a cache of its own
    text = max((tmp_path / "attempt-1" / "db").glob("OPTIONS-*")).read_text()
    assert "block_size=8192" in text
    assert "bloomfilter" in text


def test_all_databases_of_a_process_share_one_memory(make: Make) -> None:
    settings = RocksDBSettings(fixed_per_slot=8 << 20)
    shared = memory_of(settings, 123)
    assert shared is memory_of(settings, 123)
    assert shared.buffers is not None
    for _ in range(3):
        count(make(settings=settings, memory=123), range(30_000), 1)
    assert shared.objects.total + shared.buffers.get_buffer_size() < 8 << 20
    assert 0 < shared.buffers.get_usage() < 8 << 20


def test_the_backend_opens_no_database_before_there_is_state(make: Make, tmp_path: Path) -> None:
    keyed = make()
    assert keyed.database is None
    assert not list(tmp_path.iterdir())
    assert not keyed.snapshot().has_files


def test_errors_of_the_database_can_be_sent() -> None:
    error = pickle.loads(pickle.dumps(StateDatabaseError("one", "/there", "IO error: No space left on device")))
    assert str(error) == "the state of operator 'one' in /there can't be used: IO error: No space left on device"


# -- directories and options


def test_a_local_directory_that_can_not_be_used_is_named(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    keyed = make(settings=RocksDBSettings(directories=(str(tmp_path / "file" / "below"),)))
    with pytest.raises(ConfigurationError, match=r"state\.backend\.rocksdb\.localdir"):
        keyed.get_state(NUMBER)


def test_options_are_read() -> None:
    backend = RocksDBStateBackend()
    backend.configure(
        Settings(
            {
                "state.backend.rocksdb.localdir": "/a, /b",
                "state.backend.rocksdb.memory.fixed-per-slot": "32 mb",
                "state.backend.rocksdb.memory.write-buffer-ratio": "0.25",
                "state.backend.rocksdb.compression.per.level": "zstd_compression",
            },
            "job",
        )
    )
    settings = backend._settings
    assert settings.directories == ("/a", "/b")
    assert settings.fixed_per_slot == 32 << 20
    assert settings.compression == "ZSTD_COMPRESSION"
    memory = memory_of(settings, 0)
    assert memory.buffers is not None
    assert memory.buffers.get_buffer_size() == 4 << 20
    assert memory.objects.total == 16 << 20
    with pytest.raises(ConfigurationError, match="write-buffer-ratio"):
        backend.configure(Settings({"state.backend.rocksdb.memory.write-buffer-ratio": "2"}, "job"))


def test_unmanaged_memory_is_what_the_options_say() -> None:
    settings = RocksDBSettings(managed=False, write_buffer=2 << 20)
    memory = memory_of(settings, 1 << 30)
    assert memory.buffers is None
    assert memory.write_buffer == 2 << 20


def test_a_foreign_directory_is_left_alone(make: Make, tmp_path: Path) -> None:
    keyed = make()
    count(keyed, range(3), 1)
    os.makedirs(tmp_path / "foreign")
    keyed.close()
    keyed.close()
    assert (tmp_path / "foreign").exists()
    assert not (tmp_path / "attempt-0").exists()


def test_closing_waits_for_files_of_a_snapshot_that_was_given_up_before_another(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever removes them is held until somebody waits for that."""
    keyed: Any = make()
    count(keyed, range(3), 1)
    waited, wait = threading.Event(), Linking.wait

    def waits(linking: Linking) -> None:
        waited.set()
        wait(linking)

    def busy_link() -> None:
        waited.wait()

    monkeypatch.setattr(Linking, "wait", waits)
    given_up = keyed.snapshot(0.0, Purpose(1, True, None))
    while given_up._files.linking is None:
        next(given_up)
    given_up._files.linking.files()
    _links.submit(busy_link)
    given_up.close()
    assert keyed._store.free
    keyed.snapshot(0.0, Purpose(2, True, None))
    try:
        keyed.close()
        assert not (tmp_path / "attempt-0").exists()
    finally:
        waited.set()


# -- metrics


def test_metrics_of_the_database_are_shown_when_they_are_asked_for(make: Make) -> None:
    backend = RocksDBStateBackend()
    backend.configure(
        Settings(
            {
                f"state.backend.rocksdb.metrics.{name}": "true"
                for name in ("estimate-num-keys", "num-files-at-level", "bytes-written", "column-family-as-variable")
            },
            "job",
        )
    )
    keyed = make(settings=backend._settings)
    registry = MetricRegistry(SystemClock())
    keyed.show_metrics(registry.group("counting"))
    shown = {name: gauge for name, gauge in registry.values().items() if "rocksdb" in name}
    assert {name.rpartition(".rocksdb.")[2] for name in shown} == {
        "estimate-num-keys",
        "bytes_written",
        *(f"num-files-at-level{level}" for level in range(7)),
    }
    assert set(map(int, shown.values())) == {0}
    count(keyed, range(1000), 1)
    take_snapshot(keyed.snapshot(), range(GROUPS))
    later = make(settings=backend._settings)
    count(later, range(2000), 1)
    take_snapshot(later.snapshot(), range(GROUPS))
    values = registry.values()
    assert int(next(value for name, value in values.items() if name.endswith("estimate-num-keys"))) == 1000
    keyed.close()
    assert int(next(value for name, value in registry.values().items() if name.endswith("estimate-num-keys"))) == 0


def test_each_metric_of_flink_is_one_of_the_database(make: Make) -> None:
    settings = RocksDBSettings(metrics=tuple(ROCKSDB_METRICS), statistics=tuple(ROCKSDB_STATISTICS))
    keyed = make(settings=settings)
    count(keyed, range(100), 1)
    properties: list[str] = []

    def read(name: str) -> str | None:
        assert keyed.database is not None
        value = keyed.database.property(name)
        assert value is not None, name
        properties.append(name)
        return value

    registry = MetricRegistry(SystemClock())
    show(registry.group("counting"), settings, read)
    values = registry.values()
    assert len(values) == len(ROCKSDB_METRICS) + 6 + len(ROCKSDB_STATISTICS)
    assert "rocksdb.options-statistics" in properties
    statistics = keyed.database.property("rocksdb.options-statistics") if keyed.database else ""
    assert all(f"{ticker} COUNT" in (statistics or "") for ticker in _TICKERS.values())
