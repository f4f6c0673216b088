"""Who leads: configured, announced in a directory, in memory; and blobs that are what their names say."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError
from firesteel.ha.blobs import BlobIndex, DamagedBlobError
from firesteel.ha.directory import DirectoryServices
from firesteel.ha.memory import MemoryServices
from firesteel.ha.retrieval import (
    DISPATCHER,
    JOBMASTER_HOST,
    RESOURCEMANAGER,
    ConfiguredLeaders,
    Leader,
    PolledWatches,
    of_job,
)
from firesteel.ha.services import load_retrieval

BLOB = b"chain" * 100
SHA = hashlib.sha256(BLOB).hexdigest()


def test_without_elections_services_are_where_the_settings_say() -> None:
    leaders = ConfiguredLeaders(Settings({"jobmanager.rpc.address": "master", "firesteel.jobmaster.address": "jm:7"}))
    heard: list[Leader | None] = []
    end = leaders.watch(RESOURCEMANAGER, heard.append)
    end()
    leaders.close()
    assert heard == [Leader(0, "http://master:8082")]
    assert leaders.leader(DISPATCHER) == Leader(0, "http://master:6123")
    assert leaders.leader(JOBMASTER_HOST) == Leader(0, "http://jm:7")
    assert leaders.leader(of_job("a" * 32)) is None
    with pytest.raises(ConfigurationError, match=r"firesteel\.resourcemanager\.port is 0"):
        ConfiguredLeaders(Settings({"firesteel.resourcemanager.port": "0"})).leader(RESOURCEMANAGER)


def test_hosts_that_share_nothing_do_not_look_into_a_directory(tmp_path: Path) -> None:
    shared = {"high-availability.type": "directory", "high-availability.storageDir": str(tmp_path / "shared")}
    assert isinstance(load_retrieval(Settings({})), ConfiguredLeaders)
    assert isinstance(load_retrieval(Settings({"high-availability.type": "none"})), ConfiguredLeaders)
    assert isinstance(load_retrieval(Settings({"high-availability.type": "directory"})), ConfiguredLeaders)
    assert isinstance(load_retrieval(Settings(shared)), DirectoryServices)
    without_type = load_retrieval(Settings({"high-availability.storageDir": str(tmp_path / "shared")}))
    assert isinstance(without_type, DirectoryServices), "leaders announce themselves there"
    with pytest.raises(ConfigurationError, match=r"no firesteel\.high_availability plug-in"):
        load_retrieval(Settings({"high-availability.type": "consul"}))
    own = DirectoryServices(Settings({"firesteel.resourcemanager.address": "rm:1"}), tmp_path)
    leadership = own.campaign(RESOURCEMANAGER)
    assert leadership is not None
    leadership.announce("http://rm:2", "token")
    assert own.leader(RESOURCEMANAGER) == Leader(0, "http://rm:1"), "others could not see the announcement"
    own.close()


def test_an_epoch_is_part_of_what_is_told() -> None:
    services = MemoryServices()
    heard: list[Leader | None] = []
    services.watch(DISPATCHER, heard.append)
    for address in ("http://a", "http://b"):
        leadership = services.campaign(DISPATCHER)
        assert leadership is not None
        leadership.announce(address, "t")
        leadership.release()
    assert [None if leader is None else (leader.epoch, leader.address) for leader in heard] == [
        None, (1, ""), (1, "http://a"), None, (2, ""), (2, "http://b"), None,
    ]  # fmt: skip


def test_a_look_that_fails_for_a_while_ends_no_watch(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Leader | Exception | None] = [None, ConfigurationError("damaged"), OSError(5, "away"), Leader(1, "x")]
    leader_seen = threading.Event()
    heard: list[Leader | None] = []

    def look(component: str) -> Leader | None:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def listen(leader: Leader | None) -> None:
        heard.append(leader)
        if leader is not None:
            leader_seen.set()

    watches = PolledWatches(look, pause=0.001)
    watches.add(DISPATCHER, listen)
    assert leader_seen.wait(20)
    watches.close()
    watches.close()
    assert heard == [None, Leader(1, "x")]
    assert caplog.text.count("the leader of dispatcher can't be read any more") == 1


# -- blobs


def folder_of(tmp_path: Path, name: str, content: bytes = BLOB) -> Path:
    folder = tmp_path / name / "blobs"
    folder.mkdir(parents=True)
    (folder / SHA).write_bytes(content)
    return folder


def test_a_blob_is_compared_with_its_name_when_it_is_read(tmp_path: Path) -> None:
    index, folder = BlobIndex(), folder_of(tmp_path, "a")
    index.add(folder)
    assert index.find(SHA) == folder / SHA
    assert index.find("0" * 64) is None
    (folder / SHA).write_bytes(BLOB.swapcase())
    with pytest.raises(DamagedBlobError, match=rf"the blob {SHA} is damaged: the content of .* has the SHA-256"):
        index.find(SHA)
    (folder / SHA).unlink()
    with pytest.raises(DamagedBlobError, match="can't be read"):
        index.find(SHA)


def test_a_damaged_blob_is_taken_from_another_job_that_has_it(tmp_path: Path) -> None:
    index = BlobIndex()
    index.add(folder_of(tmp_path, "a", b"garbage"))
    whole = folder_of(tmp_path, "b")
    index.add(whole)
    assert index.find(SHA) == whole / SHA
    index.remove(tmp_path / "b")
    with pytest.raises(DamagedBlobError):
        index.find(SHA)
    index.remove(tmp_path / "a")
    assert index.find(SHA) is None
