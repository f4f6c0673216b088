"""The fixture itself: what other tests of this folder rely on."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.servers.hadoop.server import DATANODE, NAMENODE, RESOURCEMANAGER, Hadoop
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def _put(hadoop: Hadoop, path: str, data: bytes) -> None:
    url = f"{hadoop.namenode_url}/webhdfs/v1{path}?op=CREATE&overwrite=true&user.name=root"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url + "&noredirect=true", method="PUT")
    with opener.open(request, timeout=30) as answer:
        place = json.load(answer)["Location"]
    with opener.open(urllib.request.Request(place, data=data, method="PUT"), timeout=30) as answer:
        assert answer.status == 201


def _get(hadoop: Hadoop, path: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{hadoop.namenode_url}/webhdfs/v1{path}?op=OPEN&user.name=root", timeout=30) as answer:
        return bytes(answer.read())


def test_daemons_are_killed_and_come_back(yarn: Hadoop) -> None:
    _put(yarn, "/server/file", b"what stays")
    began = time.monotonic()
    with yarn.away(NAMENODE, DATANODE):
        assert not yarn.daemons[NAMENODE].is_alive()
    assert _get(yarn, "/server/file") == b"what stays"
    with yarn.away(RESOURCEMANAGER):
        pass
    yarn.kill("nodemanager-1")
    wait_until(lambda: yarn.metrics()["lostNodes"] == 1, "the ResourceManager misses a node")
    yarn.start("nodemanager-1")
    assert yarn.metrics()["activeNodes"] == 2
    print(f"took {time.monotonic() - began:.1f} s")


def test_a_secured_cluster_serves(secured_hadoop: Hadoop) -> None:
    began = time.monotonic()
    secured_hadoop.start_hdfs()
    secured_hadoop.start_yarn()
    print(f"started in {time.monotonic() - began:.1f} s")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        _put(secured_hadoop, "/server/file", b"only the user of the NameNode may write here")


def test_nothing_is_left(hadoop_jars: str) -> None:
    with Hadoop(hadoop_jars, nodemanagers=1) as hadoop:
        hadoop.start_hdfs()
        folder = hadoop.folder
        pids = [daemon.pid for daemon in hadoop.daemons.values() if daemon.is_alive()]
        pages = list((folder / NAMENODE / "tmp").glob("jetty-*"))
        assert pages, "what a killed daemon leaves is in its own folder"
    assert not folder.exists()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
