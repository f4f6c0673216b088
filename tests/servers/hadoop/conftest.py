"""Hadoop clusters. Where Hadoop can be had, it must be; elsewhere these tests are skipped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.hadoop.server import Hadoop, ensure_hadoop
from tests.servers.kerberos.realm import Realm


@pytest.fixture(scope="session")
def hadoop_jars() -> str:
    """Folder with the servers' jars."""
    return ensure_hadoop()


@pytest.fixture(scope="session")
def hadoop(hadoop_jars: str) -> Iterator[Hadoop]:
    """One cluster, which all tests share: `hdfs` and `yarn` start what they need of it."""
    with Hadoop(hadoop_jars) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def hdfs(hadoop: Hadoop) -> Hadoop:
    """HDFS runs. Each test has folders of its own, and starts again what it has killed."""
    hadoop.start_hdfs()
    return hadoop


@pytest.fixture(scope="session")
def yarn(hdfs: Hadoop) -> Hadoop:
    """YARN runs, and HDFS below it. Each test ends its applications, and starts again what it has killed."""
    hdfs.start_yarn()
    return hdfs


@pytest.fixture(scope="session")
def secured_hadoop(hadoop_jars: str, realm: Realm) -> Iterator[Hadoop]:
    """A cluster secured by Kerberos; start of it what is needed."""
    with Hadoop(hadoop_jars, realm=realm) as cluster:
        yield cluster
