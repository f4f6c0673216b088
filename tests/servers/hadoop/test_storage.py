"""The checkpoint storage ``hdfs`` on a real HDFS, and what else is kept there."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firesteel.checkpoint.handles import FileState
from firesteel.checkpoint.object_store import NoSuchUploadError, ObjectExistsError
from firesteel.checkpoint.places import ObjectPlace, object_place
from firesteel.checkpoint.storage import CheckpointStorage, StorageParameters, load_checkpoint_storage
from firesteel.config import Settings
from firesteel.core.errors import CheckpointCorruptedError, CheckpointStorageError, ConfigurationError
from firesteel.ha.cell_services import CellServices
from firesteel.ha.memory import MemoryCells
from firesteel.ha.payloads import payloads_in
from firesteel.testing import check_checkpoint_storage, check_high_availability
from firesteel_dispatcher.programs import UploadedPrograms
from firesteel_hdfs.client import HdfsClient
from tests.servers.hadoop.server import DATANODE, NAMENODE, Hadoop

pytestmark = pytest.mark.timeout(600)
JOB = "ab" * 16
LARGE = os.urandom(3 << 20)
"""Three parts."""
IMPATIENT = {"firesteel.hdfs.request-timeout": "2 s", "firesteel.hdfs.retry-timeout": "2 s"}
BOUND = 60.0
"""Seconds in which whatever is impatient has to be back, on a machine that is busy."""


@pytest.fixture
def place(hdfs: Hadoop, request: pytest.FixtureRequest) -> Iterator[ObjectPlace]:
    """A folder of the test's own, in which nothing is left."""
    name = "".join(character if character.isalnum() else "-" for character in request.node.name)
    place = object_place(f"{hdfs.uri}/storage/{name}", "the test's folder")
    yield place
    assert entries_below(place) == []


def entries_below(place: ObjectPlace) -> list[str]:
    """Files and folders below a place, hidden ones too."""
    client = HdfsClient(Settings())
    if client._client(place.bucket).get_file_info(f"/{place.key.partition('/')[0]}") is None:
        return []
    try:
        return sorted(status.path for status in client._client(place.bucket).list_status(f"/{place.key}", True))
    except FileNotFoundError:
        return []


def storage(place: ObjectPlace, **more: str) -> CheckpointStorage:
    settings = {"execution.checkpointing.dir": str(place), "firesteel.hdfs.part-size": "1 mb", **more}
    return load_checkpoint_storage(StorageParameters(JOB, Settings(settings)))


def written(storage: CheckpointStorage, data: bytes, checkpoint_id: int = 1) -> FileState:
    with storage.open_state_stream(checkpoint_id, "Count") as stream:
        stream.write(data)
        handle = stream.close()
    assert isinstance(handle, FileState)
    return handle


def in_time(call: Callable[[], object]) -> CheckpointStorageError:
    """What it raises, soon."""
    began = time.monotonic()
    with pytest.raises(CheckpointStorageError) as caught:
        call()
    assert time.monotonic() - began < BOUND
    return caught.value


def test_the_contract_is_kept_in_parts(place: ObjectPlace) -> None:
    check_checkpoint_storage(lambda: storage(place), large=LARGE)


@pytest.mark.long
def test_the_contract_is_kept(place: ObjectPlace) -> None:
    check_checkpoint_storage(lambda: storage(place))


class Process(CellServices):
    """One that shares cells with others, and has a host of its own."""

    def __init__(self, cells: MemoryCells, place: ObjectPlace, local: Path) -> None:
        super().__init__(cells, payloads_in(str(place), "default", Settings(), local))

    def close(self) -> None:
        self.payloads.close()


@pytest.mark.long
def test_services_with_payloads_on_hdfs_keep_the_contract(hdfs: Hadoop, tmp_path: Path) -> None:
    place = object_place(f"{hdfs.uri}/payloads", "the test's folder")
    cells, hosts = MemoryCells(), iter(range(100))
    check_high_availability(lambda: Process(cells, place, tmp_path / f"host-{next(hosts)}"))


def test_an_upload_is_completed_by_another_process_while_its_writer_lives(place: ObjectPlace) -> None:
    """The writer is fenced off, and what it has written behind the wanted parts is not in the object."""
    writer, other = HdfsClient(Settings()), HdfsClient(Settings())
    target = place / "object"
    upload, _ = writer.begin_upload(target)
    tags = [writer.upload_part(target, upload, number, data) for number, data in enumerate((b"a" * 700, b"b" * 50), 1)]
    writer.upload_part(target, upload, 3, b"c" * 5000)
    assert writer.size(target) is None
    other.complete_upload(target, upload, tags)
    assert other.get(target) == (b"a" * 700 + b"b" * 50, 750)
    with pytest.raises((CheckpointStorageError, NoSuchUploadError)):
        writer.upload_part(target, upload, 4, b"late")
    with pytest.raises(NoSuchUploadError):
        other.complete_upload(target, upload, tags)
    with pytest.raises(ObjectExistsError):
        other.put(target, b"another", new=True)
    other.delete(target.bucket, [target.key])


def test_what_is_wrong_is_said(hdfs: Hadoop) -> None:
    with pytest.raises(ConfigurationError, match=r"does not say where it is .*env\.hadoop\.conf\.dir"):
        storage(object_place("hdfs://nameservice/jobs", "directory")).check()
    with pytest.raises(ConfigurationError, match=r"hdfs://namenode:8020/directory is expected"):
        storage(ObjectPlace("user@host:8020", "jobs", "hdfs"))
    error = in_time(storage(object_place("hdfs://localhost:1/jobs", "directory"), **IMPATIENT).check)
    assert "Connection refused" in str(error)
    known = storage(ObjectPlace("", "jobs", "hdfs"), **{"env.hadoop.conf.dir": str(hdfs.conf)})
    known.check()  # of core-site.xml


def test_a_program_is_brought_from_there(place: ObjectPlace, tmp_path: Path) -> None:
    client, program = HdfsClient(Settings()), place / "program.py"
    client.put(program, b"print(1)")
    program_file = asyncio.run(UploadedPrograms(tmp_path, "token").fetched(str(program), Settings()))
    assert (program_file.name, program_file.read_bytes()) == ("program.py", b"print(1)")
    client.delete(program.bucket, [program.key])
    with pytest.raises(ConfigurationError, match="is not there"):
        asyncio.run(UploadedPrograms(tmp_path, "token").fetched(str(program), Settings()))


@pytest.mark.long
def test_a_namenode_that_stands_still_or_is_away(hdfs: Hadoop, place: ObjectPlace) -> None:
    impatient = storage(place, **IMPATIENT)
    impatient.prepare(1)
    handle = written(impatient, LARGE)
    for fault in (hdfs.stopped(NAMENODE), hdfs.away(NAMENODE)):
        with fault:
            in_time(lambda: written(impatient, LARGE))
            in_time(lambda: impatient.write_metadata(1, b"metadata"))
    assert storage(place).read_state(handle) == LARGE
    location = storage(place).write_metadata(1, b"metadata")
    assert storage(place).read_metadata(location)[1] == b"metadata"
    storage(place).dispose(location, [handle.path])
    storage(place).close_job()


@pytest.mark.long
def test_a_datanode_that_stands_still_or_is_away(hdfs: Hadoop, place: ObjectPlace) -> None:
    impatient = storage(place, **IMPATIENT)
    impatient.prepare(1)
    handle = written(impatient, LARGE)
    for fault in (hdfs.stopped(DATANODE), hdfs.away(DATANODE)):
        with fault:
            in_time(lambda: written(impatient, LARGE))
            in_time(lambda: impatient.read_state(handle))
            assert not isinstance(in_time(lambda: impatient.read_state(handle)), CheckpointCorruptedError)
    assert storage(place).read_state(handle) == LARGE
    storage(place).discard(1, [handle.path])
    storage(place).close_job()
