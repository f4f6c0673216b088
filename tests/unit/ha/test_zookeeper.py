"""What is said of ZooKeeper's options before any server is asked; the servers' tests try the rest on a real one."""

from __future__ import annotations

from inspect import signature
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError
from firesteel.ha.payloads import DirectoryPayloads, ObjectPayloads
from firesteel.ha.services import load_high_availability, load_retrieval
from firesteel_zookeeper.services import ZooKeeperServices

CLIENT = "high-availability.zookeeper.client"


def settings(directory: Path, **more: str) -> Settings:
    options = {
        "high-availability.type": "zookeeper", "high-availability.zookeeper.quorum": "zk1:2181,zk2:2181/apps/",
        "high-availability.storageDir": str(directory), **more,
    }  # fmt: skip
    return Settings({key: value for key, value in options.items() if value})


@pytest.mark.parametrize("kind", ["zookeeper", "ZooKeeper", "ZOOKEEPER"])
def test_the_type_is_read_in_any_case(kind: str, tmp_path: Path) -> None:
    services = load_high_availability(settings(tmp_path, **{"high-availability.type": kind}), tmp_path)
    assert isinstance(services, ZooKeeperServices)
    assert services.has_standbys
    services.close()
    retrieval = load_retrieval(settings(tmp_path, **{"high-availability.type": kind}))
    assert isinstance(retrieval, ZooKeeperServices)
    retrieval.close()


def test_nodes_lie_below_path_root_and_cluster_id(tmp_path: Path) -> None:
    services = ZooKeeperServices(settings(tmp_path, **{"high-availability.cluster-id": "/orders"}))
    assert services.cells._base == "/apps/firesteel/orders"  # type: ignore[attr-defined]
    assert services.cells._hosts == "zk1:2181,zk2:2181"  # type: ignore[attr-defined]
    services.close()


def test_payloads_are_in_a_directory_or_a_bucket(tmp_path: Path) -> None:
    uri = {"high-availability.storageDir": f"file://{tmp_path}"}
    with_directory, with_uri = ZooKeeperServices(settings(tmp_path)), ZooKeeperServices(settings(tmp_path, **uri))
    assert isinstance(with_directory.payloads, DirectoryPayloads)
    assert isinstance(with_uri.payloads, DirectoryPayloads)
    assert with_directory.payloads.where == with_uri.payloads.where == str(tmp_path / "default" / "payloads")
    bucket = ZooKeeperServices(settings(tmp_path, **{"high-availability.storageDir": "s3://bucket/ha"}), tmp_path)
    assert isinstance(bucket.payloads, ObjectPayloads)
    assert bucket.payloads.where == "s3://bucket/ha/default/payloads"
    for services in (with_directory, with_uri, bucket):
        services.close()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"high-availability.zookeeper.quorum": ""}, "needs high-availability.zookeeper.quorum"),
        ({"high-availability.storageDir": ""}, "needs high-availability.storageDir"),
        ({"high-availability.cluster-id": "a b"}, "high-availability.cluster-id is made of"),
        ({f"{CLIENT}.acl": "creator"}, f"{CLIENT}.acl: creator needs {CLIENT}.authorization"),
        ({f"{CLIENT}.acl": "creator", f"{CLIENT}.authorization": "secret"}, "as digest:user:password"),
        ({f"{CLIENT}.acl": "mine"}, f"{CLIENT}.acl"),
        ({f"{CLIENT}.session-timeout": "0 s"}, f"{CLIENT}.session-timeout"),
        ({"high-availability.storageDir": "s3://user@bucket"}, "names no user"),
    ],
)
def test_wrong_options_are_named(more: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ZooKeeperServices(settings(tmp_path, **more))


def test_kazoo_connects_by_the_method_that_is_wrapped() -> None:
    """Real servers try what it returns, the granted time-out among it."""
    connect = KazooClient()._connection._connect
    assert list(signature(connect).parameters) == ["host", "hostip", "port"]
