"""The checkpoint storage ``s3`` on a real MinIO."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import minio.time as minio_time
import pytest
from minio import MinioAdmin
from minio.credentials.providers import StaticProvider

from firesteel.checkpoint.handles import FileState
from firesteel.checkpoint.storage import CheckpointStorage
from firesteel.core.errors import CheckpointStorageError, ConfigurationError
from firesteel.testing import check_checkpoint_storage
from firesteel_s3.storages import S3CheckpointStorage
from tests.servers.minio.server import BUCKET, JOB, MinioServer
from tests.servers.proxy import Proxy

LARGE = os.urandom(11 << 20)
"""Three parts."""
IMPATIENT = {
    "s3.connection.timeout": "1 s", "s3.connection.establish.timeout": "1 s", "s3.attempts.maximum": "2",
    "firesteel.s3.retry-timeout": "2 s",
}  # fmt: skip
BOUND = 60.0
"""Seconds in which whatever is impatient has to be back, on a machine that is busy."""


@pytest.fixture(autouse=True)
def clean(minio: MinioServer) -> Iterator[None]:
    """Each test leaves the bucket empty."""
    yield
    assert minio.left() == []


def written(storage: CheckpointStorage, data: bytes, checkpoint_id: int = 1) -> FileState:
    with storage.open_state_stream(checkpoint_id, "Count") as stream:
        stream.write(data)
        handle = stream.close()
    assert isinstance(handle, FileState)
    return handle


@pytest.mark.parametrize("large", [LARGE[: 256 << 10], LARGE], ids=["whole", "in parts"])
def test_the_contract_is_kept(large: bytes, minio: MinioServer) -> None:
    check_checkpoint_storage(minio.storage, large=large)


def test_buckets_in_the_name_of_the_host(minio: MinioServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts: list[str] = []
    original = socket.getaddrinfo

    def getaddrinfo(host: Any, *arguments: Any, **more: Any) -> Any:
        hosts.append(host)
        return original("127.0.0.1" if str(host).endswith("store.test") else host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    style = {"s3.endpoint": f"http://store.test:{minio.port}", "s3.path.style.access": "false"}
    check_checkpoint_storage(lambda: minio.storage(**style))
    assert set(hosts) == {f"{BUCKET}.store.test"}


def test_tls_with_an_authority_of_ones_own(program: str, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate")
    certificates = tmp_path / "certificates"
    certificates.mkdir()
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=store", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", certificates / "private.key", "-out", certificates / "public.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    server = MinioServer(program, certificates=certificates)
    try:
        server.start()
        trusted = {"firesteel.s3.ca-file": str(certificates / "public.crt")}
        with pytest.raises(ConfigurationError, match=f"there is no bucket '{BUCKET}'"):
            server.storage(**trusted).check()
        with pytest.raises(ConfigurationError, match=r"is not trusted: self.signed .*firesteel\.s3\.ca-file"):
            server.storage().check()
        with pytest.raises(CheckpointStorageError, match=r"answers with status 400"):
            server.storage(**{"s3.endpoint": server.endpoint.replace("https", "http")}, **IMPATIENT).check()
        server.storage(**trusted)._client._connection().make_bucket(BUCKET)  # type: ignore[attr-defined]
        check_checkpoint_storage(lambda: server.storage(**trusted))
    finally:
        server.close()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"s3.access-key": "nobody"}, "does not know the access key"),
        ({"s3.secret-key": "this is another one"}, "the secret key does not belong to it"),
        ({"execution.checkpointing.dir": "s3://nowhere/jobs"}, "there is no bucket 'nowhere'"),
        ({"execution.checkpointing.dir": "s3://B_/jobs"}, "no valid name of a bucket"),
    ],
)
def test_what_is_wrong_is_said(more: dict[str, str], message: str, minio: MinioServer) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        minio.storage(**more).check()
    assert minio.password not in str(caught.value)


def test_tls_where_there_is_none_and_a_port_where_nobody_is(minio: MinioServer) -> None:
    with pytest.raises(CheckpointStorageError, match="does not speak TLS"):
        minio.storage(**{"s3.endpoint": minio.endpoint.replace("http", "https")}, **IMPATIENT).check()
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    with pytest.raises(CheckpointStorageError, match=r"takes no connections .Connection refused"):
        minio.storage(**{"s3.endpoint": f"http://127.0.0.1:{port}"}, **IMPATIENT).check()


def test_a_clock_that_is_wrong_is_said(minio: MinioServer, monkeypatch: pytest.MonkeyPatch) -> None:
    now = minio_time.utcnow
    monkeypatch.setattr(minio_time, "utcnow", lambda: now() + timedelta(minutes=20))
    with pytest.raises(CheckpointStorageError, match=r"the clocks of \S+ and \S+ differ"):
        minio.storage().check()


def test_a_user_who_may_read_only(minio: MinioServer) -> None:
    admin = MinioAdmin(
        endpoint=f"127.0.0.1:{minio.port}", credentials=StaticProvider(minio.user, minio.password), secure=False
    )
    admin.user_add("reader", "the password of the reader")
    admin.attach_policy(["readonly"], user="reader")
    reader = {"s3.access-key": "reader", "s3.secret-key": "the password of the reader"}
    with pytest.raises(ConfigurationError, match="AccessDenied"):
        minio.storage(**reader).check()


def test_a_disk_that_is_read_only_or_full(own_disk: None, minio: MinioServer) -> None:
    storage = minio.storage(**IMPATIENT)
    storage.prepare(1)
    handle = written(storage, LARGE)
    with minio.read_only():
        with pytest.raises(CheckpointStorageError, match="or the disk of the server is read-only"):
            storage.prepare(2)
        with pytest.raises(CheckpointStorageError):
            written(storage, LARGE)
        assert storage.read_state(handle) == LARGE
    with minio.full():
        with pytest.raises(CheckpointStorageError, match=r"is full .*Make room"):
            written(storage, LARGE)
        assert storage.read_state(handle) == LARGE
    location = storage.write_metadata(1, b"metadata")
    storage.verify([handle])
    storage.dispose(location, [handle.path])
    storage.close_job()


def test_a_server_that_is_stopped_keeps_nobody_waiting(minio: MinioServer) -> None:
    storage = minio.storage(**IMPATIENT)
    storage.prepare(1)
    handle = written(storage, LARGE[:100_000])
    stream = storage.open_state_stream(1, "Count")
    stream.write(LARGE[: 6 << 20])
    calls: list[Callable[[], object]] = [
        lambda: storage.write_metadata(1, b"metadata"),
        lambda: storage.read_state(handle),
        lambda: storage.discard(1),
        stream.close,
    ]
    with minio.stopped():
        for call in calls:
            began = time.monotonic()
            with pytest.raises(CheckpointStorageError, match="has not answered within 1 s"):
                call()
            assert time.monotonic() - began < BOUND
    assert storage.read_state(handle) == LARGE[:100_000]
    storage.discard(1)
    storage.close_job()  # also what was done late


def test_a_server_that_is_killed_loses_nothing_that_it_took(minio: MinioServer) -> None:
    storage = minio.storage(**IMPATIENT)
    storage.prepare(1)
    handles = [written(storage, LARGE[number:]) for number in range(2)]
    patient = minio.storage(**{"s3.attempts.maximum": "1000", "firesteel.s3.retry-timeout": "2 min"})
    stream = patient.open_state_stream(1, "Count")
    stream.write(LARGE[: 6 << 20])
    with minio.away(), pytest.raises(CheckpointStorageError, match=r"takes no connections|broke"):
        written(storage, LARGE)
    stream.write(LARGE[6 << 20 :])
    late = stream.close()  # it goes on where it was
    location = storage.write_metadata(1, b"metadata")
    storage.verify([*handles, late])
    assert [storage.read_state(handle) for handle in (*handles, late)] == [LARGE, LARGE[1:], LARGE]
    storage.dispose(location, [handle.path for handle in (*handles, late) if isinstance(handle, FileState)])


def test_of_many_who_write_metadata_one_wins(minio: MinioServer) -> None:
    storages = [minio.storage() for _ in range(8)]
    storages[0].prepare(1)
    won: list[int] = []

    def write(number: int) -> None:
        try:
            storages[number].write_metadata(1, b"metadata of %d" % number)
            won.append(number)
        except CheckpointStorageError as error:
            assert "nothing was overwritten" in str(error)  # noqa: PT017

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = won
    location = f"s3://{BUCKET}/jobs/{JOB}/chk-1/_metadata"
    assert storages[0].read_metadata(location) == (location, b"metadata of %d" % winner)
    storages[0].dispose(location, [])


def test_a_slow_connection_is_slow_and_no_more(minio: MinioServer) -> None:
    proxy = Proxy(minio.port)
    try:
        proxy.rate = 1 << 20
        check_checkpoint_storage(
            lambda: minio.storage(**{"s3.endpoint": f"http://127.0.0.1:{proxy.port}"}), large=LARGE[: 256 << 10]
        )
    finally:
        proxy.close()


def test_many_files_are_verified_and_removed_in_pages(minio: MinioServer) -> None:
    storage = minio.storage(**{"execution.checkpointing.data-inline-threshold": "0"})
    assert isinstance(storage, S3CheckpointStorage)
    storage.prepare(1)
    handles: list[Any] = []

    def write() -> None:
        for _ in range(140):
            with storage.open_shared_stream(1) as stream:
                stream.write(b"state")
                handles.append(stream.close())

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({handle.path for handle in handles}) == 1120
    storage.verify(handles)
    storage.discard(1, [handle.path for handle in handles])


def test_parts_that_nobody_goes_on_with_are_found_by_the_next_jobmaster(minio: MinioServer) -> None:
    storage, slot = minio.storage(), minio.storage()
    assert isinstance(slot, S3CheckpointStorage)
    for number in (1, 2):
        storage.prepare(number)
        slot.open_state_stream(number, "dies").write(LARGE)
        slot.open_shared_stream(number, "dies").write(LARGE)
    later = minio.storage()
    assert len(minio.left()) == 10
    leftovers = later.left_behind(2)
    assert [(number, data) for number, _, data in leftovers] == [(1, None)]
    later.discard(1)
    assert [path for path in minio.left() if "chk-1" in path or "shared/1-" in path] == []
    later.close_job()
