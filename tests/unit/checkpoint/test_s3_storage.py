"""The checkpoint storage ``s3`` on an object store in memory: the contract, and each kind of trouble on the way."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import urllib3

from firesteel.checkpoint import object_states
from firesteel.checkpoint.handles import FileState, InlineState, checksum
from firesteel.checkpoint.memory import MemoryCheckpointStorage
from firesteel.checkpoint.object_store import ObjectStore
from firesteel.checkpoint.storage import CheckpointStorage, StorageParameters, load_checkpoint_storage, storage_name
from firesteel.config import Settings
from firesteel.core.errors import (
    CheckpointCorruptedError,
    CheckpointNumberTakenError,
    CheckpointStorageError,
    ConfigurationError,
)
from firesteel.testing import check_checkpoint_storage
from firesteel.testing.clock import ManualClock
from firesteel_s3 import client as s3_client
from firesteel_s3.storages import S3CheckpointStorage
from tests.unit.checkpoint.fake_s3 import SMALLEST_PART, FakeStore, Request, error, respond

JOB = "ab" * 16
PART = SMALLEST_PART
LARGE = bytes(range(256)) * (PART // 256 * 2) + b"the last part"
SECRET, KEY = "the-secret-of-the-user", "the-key-of-the-user"
SETTINGS = {
    "execution.checkpointing.dir": "s3://bucket/prefix",
    "s3.endpoint": "http://store:9000",
    "s3.access-key": KEY,
    "s3.secret-key": SECRET,
    "s3.upload.min.part.size": "5 mb",
}
ROOT = f"prefix/{JOB}"


class _Time(ManualClock):
    """Pauses take no time, and are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.advance(seconds)


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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Time:
    clock = _Time()
    original = s3_client.S3Client.__init__
    monkeypatch.setattr(
        s3_client.S3Client, "__init__", lambda self, settings: original(self, settings, clock, clock.pause)
    )
    return clock


def storage_of(**more: Any) -> S3CheckpointStorage:
    settings = Settings({**SETTINGS, **{name.replace("__", "."): value for name, value in more.items()}})
    storage = load_checkpoint_storage(StorageParameters(JOB, settings))
    assert isinstance(storage, S3CheckpointStorage)
    return storage


def write_state(storage: S3CheckpointStorage, data: bytes, checkpoint_id: int = 1, shared: bool = False) -> FileState:
    stream = (storage.open_shared_stream if shared else storage.open_state_stream)(checkpoint_id, "Count")
    with stream:
        stream.write(data)
        handle = stream.close()
    assert isinstance(handle, FileState)
    return handle


# -- the contract


@pytest.mark.parametrize("size", [60_000, len(LARGE)])
def test_a_bucket_keeps_the_contract(size: int, store: FakeStore) -> None:
    check_checkpoint_storage(storage_of, large=LARGE[:size])
    assert store.keys == []
    assert store.uploads == {}


def test_a_directory_without_the_jobs_name_keeps_the_contract(store: FakeStore) -> None:
    more = {"execution.checkpointing.create-subdir": "false"}
    check_checkpoint_storage(lambda: storage_of(**more))
    assert store.keys == []


def test_a_listing_of_many_pages_keeps_the_contract(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.page = 2
    monkeypatch.setattr(s3_client, "MOST_OF_A_PAGE", 2)
    check_checkpoint_storage(storage_of)
    assert store.keys == []


def test_metadata_of_state_in_memory_go_to_a_bucket_as_well(store: FakeStore) -> None:
    settings = Settings({**SETTINGS, "execution.checkpointing.storage": "jobmanager"})
    make: Callable[[], Any] = lambda: load_checkpoint_storage(StorageParameters(JOB, settings))  # noqa: E731
    assert isinstance(make(), MemoryCheckpointStorage)
    check_checkpoint_storage(make)
    assert store.keys == []


@pytest.mark.parametrize("named", [None, "filesystem", "s3"])
def test_a_directory_in_a_bucket_is_of_this_storage(named: str | None) -> None:
    more = {} if named is None else {"execution.checkpointing.storage": named}
    assert storage_name(Settings({**SETTINGS, **more})) == "s3"
    assert storage_of(**more).base == storage_of(execution__checkpointing__dir="s3a://bucket//prefix/").base


def test_the_layout_is_that_of_directories(store: FakeStore) -> None:
    storage = storage_of()
    storage.prepare(7)
    own, shared = write_state(storage, b"x" * 100_000, 7), write_state(storage, b"y" * 100_000, 7, shared=True)
    location = storage.write_metadata(7, b"metadata")
    assert location == f"s3://bucket/{ROOT}/chk-7/_metadata"
    assert store.objects["bucket"][f"{ROOT}/chk-7/_metadata"] == b"metadata"
    assert own.path.startswith(f"s3://bucket/{ROOT}/chk-7/")
    assert shared.path.startswith(f"s3://bucket/{ROOT}/shared/7-")
    for place in (location, location.removesuffix("/_metadata"), f"{location.removesuffix('/_metadata')}/"):
        assert storage.read_metadata(place) == (location, b"metadata")
    with pytest.raises(CheckpointCorruptedError, match=r"has no metadata; checkpoints in this directory: chk-7"):
        storage.read_metadata(f"s3://bucket/{ROOT}")


def test_other_storages_read_what_is_in_a_bucket_and_this_one_reads_files(store: FakeStore, tmp_path: Path) -> None:
    bucket = storage_of()
    bucket.prepare(1)
    there = write_state(bucket, LARGE)
    location = bucket.write_metadata(1, b"in the bucket")
    settings = Settings({**SETTINGS, "execution.checkpointing.dir": str(tmp_path)})
    files = load_checkpoint_storage(StorageParameters(JOB, settings))
    files.prepare(1)
    with files.open_state_stream(1) as stream:
        stream.write(LARGE)
        here = stream.close()
    for storage in (bucket, files):
        storage.verify([here, there])
        assert storage.read_state(here) == storage.read_state(there) == LARGE
        assert storage.read_metadata(location)[1] == b"in the bucket"
    files.dispose(location, [there.path])
    assert bucket.read_metadata(location)[1] == b"in the bucket"


# -- settings


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"execution.checkpointing.dir": "s3://"}, "s3://bucket/directory is expected"),
        ({"execution.checkpointing.dir": "s3://store:9000/bucket"}, "is the option s3.endpoint"),
        ({"execution.checkpointing.dir": "s3://bucket/a/../b"}, r"no \. or \.\."),
        ({"execution.checkpointing.dir": "s3://bucket/a?b"}, r"holds no \?"),
        ({"execution.checkpointing.dir": f"s3://{KEY}:{SECRET}@bucket/a"}, "names no user and no secret"),
        ({"s3.endpoint": "ftp://store"}, "a URL of scheme, host and port"),
        ({"s3.endpoint": "http://store:port"}, "a URL of scheme, host and port"),
        ({"s3.endpoint": "http://store/path"}, "a URL of scheme, host and port"),
        ({"s3.endpoint": f"http://{KEY}:{SECRET}@store"}, "without user and password"),
        ({"s3.endpoint.region": "no region"}, "a region's name is expected"),
        ({"s3.secret-key": None}, "s3.secret-key is missing"),
        ({"s3.access-key": None}, "s3.access-key is missing"),
        ({"s3.secret-key": ""}, "must not be empty"),
        ({"s3.upload.min.part.size": "1 mb"}, "at least 5 mb"),
    ],
)  # fmt: skip
def test_wrong_settings_are_found_without_a_request(more: dict[str, Any], message: str, store: FakeStore) -> None:
    settings = {key: value for key, value in {**SETTINGS, **more}.items() if value is not None}
    with pytest.raises(ConfigurationError, match=message) as caught:
        load_checkpoint_storage(StorageParameters(JOB, Settings(settings)))
    assert SECRET not in str(caught.value)
    assert not store.requests


def test_a_storage_opens_no_connection_before_it_has_to(store: FakeStore) -> None:
    storage_of()
    assert not store.pools


def test_secrets_are_never_shown(store: FakeStore) -> None:
    storage = storage_of()
    client = storage._client
    assert isinstance(client, s3_client.S3Client)
    shown = [repr(storage), repr(client), repr(client._credentials), repr(Settings(SETTINGS))]
    shown += [str(Settings(SETTINGS).to_shown())]
    store.fault = lambda request: error(request, 403, "SignatureDoesNotMatch", f"you sent {KEY}")
    with pytest.raises(CheckpointStorageError) as caught:
        storage.prepare(1)
    shown += [str(caught.value), repr(caught.value), repr(caught.value.__cause__)]
    assert [text for text in shown if SECRET in text or KEY in text] == []


def test_the_address_of_a_bucket_is_of_the_style_that_was_asked_for(store: FakeStore) -> None:
    store.fault = lambda request: error(request, 403, "AccessDenied")
    styles = {None: "store:9000", "true": "store:9000", "false": "bucket.store:9000"}
    for style, host in styles.items():
        more = {} if style is None else {"s3.path.style.access": style}
        with pytest.raises(CheckpointStorageError):
            storage_of(**more).prepare(1)
        assert store.requests[-1].host == host
    with pytest.raises(CheckpointStorageError):
        storage_of(**{"s3.endpoint": "s3.amazonaws.com", "s3.endpoint.region": "eu-central-1"}).prepare(1)
    assert store.requests[-1].host == "bucket.s3.eu-central-1.amazonaws.com"


def test_time_outs_and_authorities_reach_the_pool(store: FakeStore, tmp_path: Path) -> None:
    authorities = tmp_path / "ca.pem"
    more = {
        "s3.endpoint": "https://store", "s3.connection.establish.timeout": "2 s", "s3.connection.timeout": "3 s",
        "firesteel.s3.ca-file": str(authorities),
    }  # fmt: skip
    with pytest.raises(CheckpointStorageError, match=f"{authorities} .firesteel.s3.ca-file. can't be read"):
        storage_of(**more).prepare(1)
    authorities.touch()
    storage_of(**more).prepare(1)
    (pool_arguments,) = store.pools
    assert (pool_arguments["ca_certs"], pool_arguments["cert_reqs"], pool_arguments["retries"]) == (
        str(authorities),
        "CERT_REQUIRED",
        False,
    )
    assert (pool_arguments["timeout"].connect_timeout, pool_arguments["timeout"].read_timeout) == (2, 3)


def test_credentials_come_from_files_and_environment(
    store: FakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "MINIO_ACCESS_KEY", "MINIO_ROOT_USER", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    settings = {key: value for key, value in SETTINGS.items() if "-key" not in key}

    def make(more: dict[str, str]) -> CheckpointStorage:
        return load_checkpoint_storage(StorageParameters(JOB, Settings({**settings, **more})))

    def user_of_last_request() -> str:
        return store.requests[-1].headers["authorization"].partition("Credential=")[2].partition("/")[0]

    with pytest.raises(CheckpointStorageError, match="there are no credentials for the object store"):
        make({}).prepare(1)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    make({}).prepare(1)
    assert user_of_last_request() == "of-environment"
    file = tmp_path / "credentials"
    storage = make({"firesteel.s3.credentials-file": str(file)})
    with pytest.raises(CheckpointStorageError, match=f"{file} can't be read"):
        storage.prepare(1)
    file.write_text(f"[default]\naws_access_key_id = first\nnonsense {SECRET}")
    with pytest.raises(CheckpointStorageError, match=r"has no section \[default\]") as caught:
        storage.prepare(1)
    assert SECRET not in str(caught.value)
    for name in ("first", "second-one"):
        file.write_text(f"[default]\naws_access_key_id = {name}\naws_secret_access_key = {SECRET}%\n")
        storage.prepare(1)
        assert user_of_last_request() == name


# -- what the store says


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (404, "NoSuchBucket", r"there is no bucket 'bucket' at http://store:9000. Create it"),
        (403, "InvalidAccessKeyId", "does not know the access key of the options"),
        (403, "SignatureDoesNotMatch", "the secret key does not belong to it"),
        (403, "AccessDenied", "s3:ListBucket"),
        (403, "ExpiredToken", "has expired"),
        (400, "AuthorizationHeaderMalformed", "in another region"),
        (403, "RequestTimeTooSkewed", r"the clocks of \S+ and http://store:9000 differ by 600 s; set them"),
    ],
)
def test_a_definite_refusal_is_not_tried_again(
    status: int, code: str, message: str, store: FakeStore, clock: _Time
) -> None:
    date = "Tue, 14 Nov 2023 22:23:20 GMT"  # ten minutes after the clock of the test
    store.fault = lambda request: error(request, status, code, date=date)
    kind: type[Exception] = CheckpointStorageError if code == "RequestTimeTooSkewed" else ConfigurationError
    with pytest.raises(kind, match=message):
        storage_of().check()
    assert clock.pauses == []
    with pytest.raises(CheckpointStorageError, match=message):
        storage_of().prepare(1)
    assert clock.pauses == []


def test_a_disk_that_is_read_only_is_not_taken_for_wrong_credentials(store: FakeStore, clock: _Time) -> None:
    store.fault = lambda request: error(request, 403, "AccessDenied") if request.method == "PUT" else None
    with pytest.raises(ConfigurationError, match=r"refuses to write .*or the disk of the server is read-only"):
        storage_of().check()
    with pytest.raises(CheckpointStorageError, match=r"refuses to write .*or the disk of the server is read-only"):
        storage_of().prepare(1)
    assert clock.pauses == []


def test_a_request_to_a_full_disk_is_not_tried_again(store: FakeStore, clock: _Time) -> None:
    storage = storage_of()
    storage.prepare(1)
    full = "cause(no space left on device)"
    store.fault = lambda request: error(request, 500, "InternalError", full) if request.method == "PUT" else None
    with pytest.raises(CheckpointStorageError, match=r"state of 'Count': .* is full .*Make room"):
        write_state(storage, b"x" * 100_000)
    assert clock.pauses == []


def _busy(request: Request) -> Any:
    return error(request, 503, "SlowDown")


def _reset(request: Request) -> Any:
    raise urllib3.exceptions.ProtocolError("Connection aborted.", ConnectionResetError(104, "reset by peer"))


def _hangs(request: Request) -> Any:
    raise urllib3.exceptions.ReadTimeoutError(urllib3.HTTPConnectionPool("store"), "/", "Read timed out.")


def _proxy(request: Request) -> Any:
    if request.method == "HEAD":
        return respond(502)
    return respond(502, b"<html>Bad Gateway</html>", kind="text/html")


@pytest.mark.parametrize("fault", [_busy, _reset, _hangs, _proxy])
def test_what_may_pass_is_tried_again(fault: Callable[[Request], Any], store: FakeStore, clock: _Time) -> None:
    """Each request fails twice, and all goes well."""
    seen: dict[str, int] = {}

    def twice(request: Request) -> Any:
        what = f"{request.verb} {request.key} {sorted(request.query.items())}"
        seen[what] = seen.get(what, 0) + 1
        return fault(request) if seen[what] % 3 else None

    store.fault = twice
    storage = storage_of()
    storage.prepare(1)
    handle = write_state(storage, LARGE)
    location = storage.write_metadata(1, b"metadata")
    assert storage.read_state(handle) == LARGE
    storage.verify([handle])
    storage.dispose(location, [handle.path])
    assert store.keys == []
    assert store.uploads == {}
    assert clock.pauses


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (_busy, r"has trouble: server failed with HTTP status code 503 \(6 attempts in"),
        (_reset, r"the connection to http://store:9000 broke .*\(asked from"),
        (_hangs, r"http://store:9000 has not answered within 15 s"),
        (_proxy, "has trouble: server failed with HTTP status code 502"),
    ],
)
def test_attempts_come_to_an_end(fault: Callable[[Request], Any], message: str, store: FakeStore, clock: _Time) -> None:
    store.fault = fault
    with pytest.raises(CheckpointStorageError, match=message):
        storage_of().prepare(1)
    assert len(store.requests) == 6
    assert len(clock.pauses) == 5
    assert clock.pauses[-1] > clock.pauses[0]


def test_no_attempt_begins_when_time_is_up(store: FakeStore, clock: _Time) -> None:
    def hangs(request: Request) -> Any:
        clock.advance(15)
        _hangs(request)

    store.fault = hangs
    with pytest.raises(CheckpointStorageError, match=r"2 attempts in 30\.\d s"):
        storage_of().prepare(1)


def test_a_certificate_that_is_not_trusted_is_named_at_once(store: FakeStore, clock: _Time) -> None:
    def untrusted(request: Request) -> Any:
        raise urllib3.exceptions.SSLError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate")

    store.fault = untrusted
    with pytest.raises(ConfigurationError, match=r"is not trusted: .*self-signed.* Set firesteel.s3.ca-file"):
        storage_of().check()
    assert clock.pauses == []


def test_a_store_that_is_away_is_no_fault_of_the_settings(store: FakeStore, clock: _Time) -> None:
    store.fault = _reset
    with pytest.raises(CheckpointStorageError):
        storage_of().check()
    store.fault = lambda request: None
    storage_of().check()
    assert store.keys == []


# -- nothing half-written


def test_state_goes_up_in_parts_while_it_comes(store: FakeStore) -> None:
    storage = storage_of()
    storage.prepare(1)
    with storage.open_state_stream(1, "Count") as stream:
        stream.write(LARGE[: PART - 1])
        assert store.request_count("POST uploads") == 0
        stream.write(memoryview(LARGE)[PART - 1 :])
        (upload,) = store.uploads.values()
        handle = stream.close()
    assert isinstance(handle, FileState)
    assert handle == FileState(handle.path, len(LARGE), checksum(LARGE))
    assert [len(data) for _, data in sorted(upload[2].items())] == [PART, PART, len(LARGE) - 2 * PART]
    assert not [key for key in store.keys if ".upload" in key]
    assert storage.read_state(handle) == LARGE


def test_parts_grow_so_that_ten_thousand_are_enough(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_states, "_GROWS_EVERY", 1)
    storage = storage_of()
    storage.prepare(1)
    with storage.open_state_stream(1, "Count") as stream:
        stream.write(b"x" * (PART * 7))
        (upload,) = store.uploads.values()
        stream.close()
    assert [len(data) for _, data in sorted(upload[2].items())] == [PART, 2 * PART, 4 * PART]


@pytest.mark.parametrize("verb", ["PUT", "PUT part", "POST upload", "POST uploads", "HEAD"])
def test_a_lost_answer_is_no_failure(verb: str, store: FakeStore, clock: _Time) -> None:
    storage = storage_of()
    storage.prepare(1)
    store.lose_answers = [verb]
    handle = write_state(storage, LARGE)
    assert storage.read_state(handle) == LARGE
    store.lose_answers = ["PUT"]
    assert storage.write_metadata(1, b"metadata").endswith("/chk-1/_metadata")
    assert store.lose_answers == []
    storage.dispose(f"s3://bucket/{ROOT}/chk-1/_metadata", [handle.path])
    assert store.keys == []
    assert store.uploads == {}


@pytest.mark.parametrize("verb", ["POST uploads", "PUT part", "POST upload"])
def test_nothing_is_left_of_an_upload_that_failed(verb: str, store: FakeStore, clock: _Time) -> None:
    storage = storage_of()
    storage.prepare(1)
    store.fault = lambda request: error(request, 403, "AccessDenied") if request.verb == verb else None
    with pytest.raises(CheckpointStorageError, match="state of 'Count'"):
        write_state(storage, LARGE)
    assert store.uploads == {}
    assert store.keys == [f"{ROOT}/chk-1/_open"]


def test_parts_that_could_not_be_removed_at_once_go_with_the_checkpoint(store: FakeStore, clock: _Time) -> None:
    storage = storage_of()
    storage.prepare(1)
    stream = storage.open_state_stream(1, "Count")
    stream.write(LARGE)
    full = "no space left on device"
    store.fault = lambda request: error(request, 500, "InternalError", full) if request.method != "GET" else None
    with pytest.raises(CheckpointStorageError, match="is full") as caught:
        stream.close()
    assert caught.value.__cause__ is not None
    assert "may be left" in caught.value.__cause__.__notes__[0]
    store.fault = lambda request: None
    assert len(store.uploads) == 1
    storage.discard(1)
    assert store.uploads == {}
    assert store.keys == []


def test_a_store_that_hangs_is_not_asked_to_clean_up(store: FakeStore, clock: _Time) -> None:
    storage = storage_of()
    storage.prepare(1)
    stream = storage.open_state_stream(1, "Count")
    stream.write(LARGE)
    store.fault = _hangs
    before = len(store.requests)
    with pytest.raises(CheckpointStorageError, match="has not answered") as caught:
        stream.close()
    assert {request.verb for request in store.requests[before:]} <= {"PUT part", "POST upload"}
    assert "may be left" in caught.value.__cause__.__notes__[0]  # type: ignore[union-attr]
    store.fault = lambda request: None
    storage.discard(1)
    assert store.uploads == {}
    assert store.keys == []


def test_a_complete_that_fails_behind_its_first_line_is_no_success(store: FakeStore, clock: _Time) -> None:
    storage = storage_of()
    storage.prepare(1)
    broken = b"<Error><Code>InternalError</Code></Error>"
    store.fault = lambda request: respond(200, broken) if request.verb == "POST upload" else None
    with pytest.raises(CheckpointStorageError, match="not put together"):
        write_state(storage, LARGE)
    assert store.uploads == {}
    assert store.request_count("POST upload") == 6


def test_parts_of_a_writer_that_died_go_with_the_checkpoint(store: FakeStore) -> None:
    storage = storage_of()
    storage.prepare(1)
    storage.prepare(2)
    own, shared = storage.open_state_stream(1, "dies"), storage.open_shared_stream(1, "dies")
    lives = storage.open_state_stream(2, "lives")
    for stream in (own, shared, lives):
        stream.write(LARGE)
    assert len(store.uploads) == 3
    leftovers = storage_of().left_behind(2)
    assert [number for number, _, _ in leftovers] == [1]
    storage_of().discard(1)
    assert len(store.uploads) == 1
    for stream in (own, shared):
        with pytest.raises(CheckpointStorageError, match="given up meanwhile"):
            stream.close()
    handle = lives.close()
    assert storage.read_state(handle) == LARGE
    assert not [key for key in store.keys if "chk-1/" in key or "/shared/1-" in key]


def test_uploads_of_others_are_left_alone(store: FakeStore) -> None:
    for other in ("cd" * 16, f"{JOB}0"):
        settings = Settings({**SETTINGS, "execution.checkpointing.dir": "s3://bucket/prefix"})
        storage = load_checkpoint_storage(StorageParameters(other, settings))
        storage.prepare(1)
        storage.open_state_stream(1).write(LARGE)
    there = store.keys
    storage = storage_of()
    storage.prepare(1)
    storage.discard(1, [f"s3://bucket/{key}" for key in there], [])
    storage.dispose(f"s3://bucket/{there[0]}", [f"s3://bucket/{key}" for key in there])
    storage.close_job()
    assert store.keys == there
    assert len(store.uploads) == 2


def test_state_for_a_checkpoint_that_was_given_up_is_of_no_use(store: FakeStore) -> None:
    storage, slot = storage_of(), storage_of()
    storage.prepare(1)
    small, large = slot.open_state_stream(1, "late"), slot.open_state_stream(1, "late")
    small.write(b"x" * 100_000)
    large.write(LARGE)
    storage.discard(1)
    for stream in (small, large):
        with pytest.raises(CheckpointStorageError, match="given up meanwhile"):
            stream.close()
    assert store.keys == []
    assert store.uploads == {}


def test_what_comes_late_to_a_store_that_hung_is_removed(store: FakeStore, clock: _Time) -> None:
    """A request that nobody waits for any more is done by a store that was stopped, and goes on."""
    storage = storage_of()
    storage.prepare(1)
    store.fault = lambda request: _hangs(request) if request.headers.get("if-none-match") else None
    with pytest.raises(CheckpointStorageError, match="has not answered"):
        storage.write_metadata(1, b"metadata")
    store.fault = lambda request: None
    storage.discard(1)
    store.objects["bucket"][f"{ROOT}/chk-1/_metadata"] = b"metadata"
    store.objects["bucket"][f"{ROOT}/chk-1/late"] = b"state"
    storage.prepare(2)
    assert f"{ROOT}/chk-1/late" in store.keys
    clock.advance(60)
    storage.prepare(3)
    assert store.keys == [f"{ROOT}/chk-2/_open", f"{ROOT}/chk-3/_open"]


def test_what_a_store_that_is_away_could_not_remove_goes_later(store: FakeStore, clock: _Time) -> None:
    storage = storage_of()
    storage.prepare(1)
    needed, other = write_state(storage, b"x" * 100_000, shared=True), write_state(storage, b"x" * 100_000)
    store.fault = _reset
    with pytest.raises(CheckpointStorageError):
        storage.discard(1, [other.path], [needed.path])
    store.fault = lambda request: None
    clock.advance(60)
    storage.prepare(2)
    storage.verify([needed])
    assert store.keys == [f"{ROOT}/chk-2/_open", needed.path.removeprefix("s3://bucket/")]


def test_metadata_of_somebody_else_are_neither_written_over_nor_removed(store: FakeStore) -> None:
    storage = storage_of()
    storage.prepare(5)
    ours = write_state(storage, LARGE, 5)
    store.objects["bucket"][f"{ROOT}/chk-5/_metadata"] = b"of another"
    with pytest.raises(CheckpointStorageError, match="nothing was overwritten"):
        storage.write_metadata(5, b"ours")
    storage.discard(5, [ours.path])
    assert store.keys == [f"{ROOT}/chk-5/_metadata", f"{ROOT}/chk-5/_open"]
    with pytest.raises(CheckpointNumberTakenError, match="is a checkpoint already, of another run") as caught:
        storage.prepare(5)
    assert caught.value.highest == 5


# -- reading


def test_a_bucket_that_is_away_does_not_make_a_checkpoint_corrupted(store: FakeStore, clock: _Time) -> None:
    storage = storage_of()
    storage.prepare(1)
    handle = write_state(storage, b"x" * 100_000)
    empty = write_state(storage_of(**{"execution.checkpointing.data-inline-threshold": "0"}), b"")
    location = storage.write_metadata(1, b"metadata")
    there = store.objects.pop("bucket")
    reads: list[Callable[[], object]] = [
        lambda: storage.verify([handle]),
        lambda: storage.read_state(handle),
        lambda: storage.read_state(empty),
        lambda: storage.read_metadata(location),
        lambda: storage.prepare(1),
        lambda: storage.left_behind(9),
        lambda: storage.discard(1),
    ]
    for read in reads:
        with pytest.raises(CheckpointStorageError, match="there is no bucket 'bucket'"):
            read()
    store.objects["bucket"] = there
    storage.verify([handle, empty])
    assert storage.read_state(empty) == b""


def test_a_stream_reads_from_any_position(store: FakeStore) -> None:
    storage = storage_of()
    storage.prepare(1)
    data = LARGE * 20
    handle = write_state(storage, data)
    with storage.open_state(handle) as stream:
        assert stream.read(10) == data[:10]
        stream.seek(len(data) - 7)
        assert stream.read() == data[-7:]
        stream.seek(300_000)
        assert stream.read(2_000_000) == data[300_000:2_300_000]
        stream.seek(-5, io.SEEK_END)
        assert stream.read() == data[-5:]
    part = FileState(handle.path, 1_000_000, "", 400_000)
    with storage.open_state(part) as stream:
        assert stream.read() == data[400_000:1_400_000]


def test_a_changed_byte_is_found(store: FakeStore) -> None:
    storage = storage_of()
    storage.prepare(1)
    handle = write_state(storage, b"x" * 100_000)
    (key,) = [key for key in store.keys if not key.endswith("_open")]
    store.objects["bucket"][key] = b"x" * 99_999 + b"y"
    storage.verify([handle])
    with pytest.raises(CheckpointCorruptedError, match="its checksum is wrong"):
        storage.read_state(handle)


@pytest.mark.parametrize(("count", "others"), [(1200, 0), (60, 3000)])
def test_many_files_are_looked_at_by_listing_where_that_is_shorter(count: int, others: int, store: FakeStore) -> None:
    storage = storage_of()
    objects = store.objects["bucket"]
    names = [f"{ROOT}/shared/1-{number:05}" for number in range(count)]
    objects |= {name: b"12345" for name in names}
    objects |= {f"{names[0]}-{number}": b"" for number in range(others)}
    handles = [FileState(f"s3://bucket/{name}", 5, "") for name in names]
    storage.verify(handles)
    if not others:
        assert store.request_count("HEAD") == 0
        assert store.request_count("GET list") == 2
    else:
        assert store.request_count("HEAD") == count - 1  # the first one was among those that were listed
    objects[names[50]] = b"1234"
    with pytest.raises(CheckpointCorruptedError, match=f"{names[50]}: it is cut off: 4 bytes are there of 5"):
        storage.verify(handles)
    for gone in (names[50], names[-1], names[0]):
        there = dict(objects)
        objects[names[50]] = b"12345"
        del objects[gone]
        with pytest.raises(CheckpointCorruptedError, match=f"{gone}: the object is missing"):
            storage.verify(handles)
        objects |= there


def test_small_state_stays_in_its_handle(store: FakeStore) -> None:
    storage = storage_of()
    with storage.open_state_stream(1) as stream:
        stream.write(b"small")
        assert stream.close() == InlineState(b"small")
    assert not store.requests


def test_errors_travel_between_processes(store: FakeStore) -> None:
    store.objects.clear()
    with pytest.raises(CheckpointStorageError) as caught:
        storage_of().prepare(1)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
