"""What high availability keeps in an object store beside its small records."""

from __future__ import annotations

from pathlib import Path

import pytest

from firesteel.config import Settings
from firesteel.ha.cell_services import CellServices
from firesteel.ha.memory import MemoryCells
from firesteel.ha.payloads import ObjectPayloads, payloads_in
from firesteel.testing import check_high_availability
from tests.servers.minio.server import BUCKET, MinioServer

IMPATIENT = {
    "s3.connection.timeout": "1 s", "s3.connection.establish.timeout": "1 s", "s3.attempts.maximum": "2",
    "firesteel.s3.retry-timeout": "2 s",
}  # fmt: skip


class Process(CellServices):
    """One that shares cells with others, and has a host of its own."""

    def __init__(self, cells: MemoryCells, minio: MinioServer, local: Path) -> None:
        super().__init__(cells, payloads(minio, local))

    def close(self) -> None:
        self.payloads.close()


def payloads(minio: MinioServer, local: Path) -> ObjectPayloads:
    object_payloads = payloads_in(f"s3://{BUCKET}/ha", "default", Settings({**minio.settings(), **IMPATIENT}), local)
    assert isinstance(object_payloads, ObjectPayloads)
    return object_payloads


def test_services_with_payloads_in_a_bucket_keep_the_contract(minio: MinioServer, tmp_path: Path) -> None:
    cells, hosts = MemoryCells(), iter(range(100))
    check_high_availability(lambda: Process(cells, minio, tmp_path / f"host-{next(hosts)}"))
    store = payloads(minio, tmp_path / "reader")
    for kind in ("checkpoints", cells_of(cells)):
        for name in store.names(kind):
            for version in store.names(name):
                store.remove(version)
            store.remove(name)
    assert [path for path in minio.left() if "/ha/" in path] == []


def cells_of(cells: MemoryCells) -> str:
    record = cells.read("dispatcher", "store")
    assert record is not None
    return record.value.decode()


def test_a_folder_goes_through_the_bucket_to_another_host(minio: MinioServer, tmp_path: Path) -> None:
    first, second = payloads(minio, tmp_path / "one"), payloads(minio, tmp_path / "other")
    received = first.receive()
    (received / "blobs").mkdir()
    (received / "graph.json").write_bytes(b"graph")
    (received / "blobs" / "a").write_bytes(b"blob")
    here = first.store(received, "x/job/1")
    assert (here / "blobs" / "a").read_bytes() == b"blob"
    assert second.names("x/job") == ["x/job/1"]
    there = second.fetch("x/job/1")
    assert there != here
    assert {path.relative_to(there).as_posix(): path.read_bytes() for path in there.rglob("*") if path.is_file()} == {
        "graph.json": b"graph",
        "blobs/a": b"blob",
    }
    first.remove("x/job/1")
    first.remove("x/job/1")
    assert not here.exists()
    assert second.names("x/job") == []
    second.close()
    with pytest.raises(FileNotFoundError):
        second.fetch("x/job/1")
    with pytest.raises(FileNotFoundError):
        second.read("x/none")


def test_a_store_that_is_away_is_an_error_that_passes(minio: MinioServer, tmp_path: Path) -> None:
    store = payloads(minio, tmp_path)
    store.write("x/document", b"content")
    with minio.away():
        for call in (lambda: store.read("x/document"), lambda: store.names("x"), lambda: store.write("x/y", b"")):
            with pytest.raises(OSError, match="127"):
                call()
    assert store.read("x/document") == b"content"
    store.remove("x/document")
