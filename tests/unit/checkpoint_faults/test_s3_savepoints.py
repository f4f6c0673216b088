"""Savepoints in an object store: taken, moved, gone on from, claimed, given up half-way, damaged, removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import urllib3

from firesteel.checkpoint import object_states, savepoint_places, savepoints
from firesteel.checkpoint.object_store import ObjectStore
from firesteel.checkpoint.reader import inspect, read_savepoint
from firesteel.checkpoint.savepoint_places import savepoint_directory
from firesteel.checkpoint.state_reader import StateReader
from firesteel.config import Settings
from firesteel.core.errors import CheckpointCorruptedError, CheckpointStorageError, ConfigurationError
from firesteel_s3 import client as s3_client
from tests.unit.checkpoint.fake_s3 import FakeStore, Request
from tests.unit.checkpoint_faults import test_savepoints
from tests.unit.checkpoint_faults.test_savepoints import CLAIM, ask, begun, going_on, result, until_done
from tests.unit.checkpoint_faults.whole_job import KEYS, WholeJob

_loops_end = test_savepoints._loops_end
TARGET = "s3://bucket/savepoints"
S3: dict[str, Any] = {
    "s3.endpoint": "http://store:9000", "s3.access-key": "the-key", "s3.secret-key": "the-secret",
    "s3.attempts.maximum": "1", "firesteel.s3.retry-timeout": "1 ms",
}  # fmt: skip
SETTINGS = Settings(S3)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    store = FakeStore()
    monkeypatch.setattr(s3_client, "PoolManager", store.pool)
    original = object_states.ObjectStates.__init__

    def with_small_parts(self: object_states.ObjectStates, client: ObjectStore) -> None:
        original(self, client)
        self.part_size //= 64

    monkeypatch.setattr(object_states.ObjectStates, "__init__", with_small_parts)
    return store


def stopped(tmp_path: Path, format: str = "CANONICAL") -> tuple[WholeJob, str]:
    job = begun(tmp_path / "one", 3, **S3)
    ask(job, "suspend", target=TARGET, format=format)
    location = until_done(job)
    assert job.state == "FINISHED"
    job.rest()
    return job, location


def moved(store: FakeStore, location: str, place: str) -> str:
    """The objects of a savepoint under other keys."""
    objects = store.objects["bucket"]
    begin = location.removeprefix("s3://bucket/")
    for key in [key for key in objects if key.startswith(f"{begin}/")]:
        objects[place + key.removeprefix(begin)] = objects.pop(key)
    return f"s3://bucket/{place}"


@pytest.mark.parametrize("format", ["CANONICAL", "NATIVE"])
def test_a_job_stops_and_goes_on_from_where_it_was_moved(format: str, store: FakeStore, tmp_path: Path) -> None:
    job, location = stopped(tmp_path, format)
    name = location.removeprefix(f"{TARGET}/")
    assert name.startswith(f"savepoint-{job.graph.job_id[:6]}-")
    metadata = savepoints.read_savepoint_metadata(location, SETTINGS)
    expected = {file.removeprefix("s3://bucket/") for file in metadata.files()}
    assert expected
    assert set(store.keys) == {*expected, f"savepoints/{name}/_metadata"}, "it is not whole, or something else is there"
    elsewhere = moved(store, location, "moved/to")
    keys_before = sorted(store.keys)
    second = going_on(tmp_path / "two", elsewhere, job, 3, **S3)
    second.to_end()
    assert sorted(store.keys) == keys_before
    savepoint_places.dispose(f"{elsewhere}/_metadata", SETTINGS)
    assert store.keys == []


@pytest.mark.parametrize("claim", ["CLAIM", "NO_CLAIM"])
def test_who_owns_what_a_job_starts_from(claim: str, store: FakeStore, tmp_path: Path) -> None:
    job, location = stopped(tmp_path)
    before = sorted(store.keys)
    second = going_on(tmp_path / "two", location, job, 2, **{CLAIM: claim}, **S3)
    second.until(second.has_completed(1), "a checkpoint of its own")
    second.rest() if second.ended else second.until(lambda: not second.work, "clean-ups")
    assert sorted(store.keys) == ([] if claim == "CLAIM" else before)
    second.to_end()


def test_a_checkpoint_that_was_retained_goes_without_what_others_need(store: FakeStore, tmp_path: Path) -> None:
    more: dict[str, Any] = {
        **S3,
        "execution.checkpointing.dir": "s3://bucket/jobs",
        "execution.checkpointing.num-retained": "3",
        "execution.checkpointing.incremental": "true",
    }
    job = WholeJob(tmp_path, **more)
    job.until(job.has_completed(3), "checkpoints")
    locations = sorted(f"s3://bucket/{key}" for key in store.keys if key.endswith("/_metadata"))
    assert len(locations) > 1
    first, *others = locations
    with pytest.raises(ConfigurationError, match="and no savepoint: nothing was removed"):
        savepoint_places.dispose(first, SETTINGS)
    metadata = [savepoints.read_savepoint_metadata(path, SETTINGS) for path in locations]
    savepoint_directory(first, SETTINGS).remove(metadata[0])
    there = {f"s3://bucket/{key}" for key in store.keys}
    assert first not in there
    for path, other in zip(others, metadata[1:], strict=True):
        assert {path, *other.files()} <= there
    alone = metadata[0].files() - set().union(*(other.files() for other in metadata[1:]))
    assert not alone & there


def test_when_it_is_given_up_nothing_is_left(store: FakeStore, tmp_path: Path) -> None:
    job = begun(tmp_path, 1, **S3)
    ask(job, "suspend", target=TARGET)
    job.until(lambda: bool(store.keys), "its place")
    (mark,) = store.keys
    del store.objects["bucket"][mark]  # as whoever gives it up does
    job.until(lambda: result(job)["status"] != "IN_PROGRESS", "the answer")
    assert "given up meanwhile" in result(job)["failure"]
    job.to_end()
    assert store.keys == []


def test_metadata_that_come_when_it_was_given_up_go_again(store: FakeStore, tmp_path: Path) -> None:
    _, location = stopped(tmp_path)
    metadata = savepoints.read_savepoint_metadata(location, SETTINGS)
    place = location.removeprefix("s3://bucket/")
    written = store.objects["bucket"].pop(f"{place}/_metadata")
    with pytest.raises(CheckpointStorageError, match="given up meanwhile"):
        savepoint_directory(location, SETTINGS).write(metadata)
    assert f"{place}/_metadata" not in store.keys
    store.objects["bucket"][f"{place}/_open"] = b""
    directory = savepoint_directory(location, SETTINGS)
    assert directory.write(metadata) == directory.write(metadata) == location
    assert store.objects["bucket"][f"{place}/_metadata"] == written
    assert f"{place}/_open" not in store.keys
    directory.give_up()
    directory.give_up()
    assert store.keys == []


def test_when_the_place_can_not_be_written_to_the_job_goes_on(store: FakeStore, tmp_path: Path) -> None:
    def refuse(request: Request) -> Any:
        if request.method == "PUT":
            raise urllib3.exceptions.ProtocolError("the connection was cut")
        return None

    store.fault = refuse
    job = begun(tmp_path, **S3)
    ask(job, "suspend", target=TARGET)
    job.until(lambda: result(job)["status"] != "IN_PROGRESS", "the answer")
    assert "s3://bucket/savepoints/savepoint-" in result(job)["failure"]
    job.to_end()


def test_a_damaged_object_is_refused_by_name(store: FakeStore, tmp_path: Path) -> None:
    _, location = stopped(tmp_path)
    objects = store.objects["bucket"]
    for key in sorted(objects):
        whole = objects[key]
        for at in (0, len(whole) // 2, len(whole) - 1):
            damaged = bytearray(whole)
            damaged[at] ^= 1
            objects[key] = bytes(damaged)
            with pytest.raises(CheckpointCorruptedError, match=key.rpartition("/")[2]):
                inspect(location, SETTINGS)
        objects[key] = whole
    assert inspect(location, SETTINGS)["type"] == "savepoint"
    count = dict(read_savepoint(location, SETTINGS).operator("number").state("count"))
    assert sorted(count) == list(range(KEYS))


@pytest.mark.parametrize("length", [50_000, 200_000, 245_760 - 19, 245_760])
def test_what_is_large_goes_up_in_parts_with_head_and_end(length: int, store: FakeStore) -> None:
    place = savepoint_places.make_directory(TARGET, "ab" * 16, SETTINGS)
    directory = savepoint_directory(place, SETTINGS)
    data = bytes(n % 251 for n in range(length))
    with directory.open_state_stream(1, "large") as stream:
        for at in range(0, length, 70_001):
            stream.write(data[at : at + 70_001])
        handle = stream.close()
    reader = StateReader(SETTINGS)
    savepoints.check_file(handle, reader)  # type: ignore[arg-type] # it is in a file
    with reader.open_state(handle) as back:
        assert back.read() == data
    assert not any(key.endswith(".upload") for key in store.keys)
