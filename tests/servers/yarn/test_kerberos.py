"""YARN and HDFS that are secured by Kerberos: who has a ticket or a keytab runs programs, and nobody else does."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.servers.hadoop.server import Hadoop, ensure_hadoop
from tests.servers.kerberos.realm import Realm, ensure_kerberos
from tests.servers.yarn.cluster import Application, YarnClient

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture
def realm() -> Iterator[Realm]:
    """A realm, with its centre."""
    ensure_kerberos()
    made = Realm()
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_a_user_with_a_keytab_runs_a_program_and_one_without_is_refused(realm: Realm) -> None:
    free = {"hdfs-site": {"dfs.permissions.enabled": "false"}}  # nobody has made a home for alice
    with Hadoop(ensure_hadoop(), realm=realm, nodemanagers=1, memory_mb=6000, vcores=8, properties=free) as hadoop:
        hadoop.start_hdfs()
        hadoop.start_yarn()
        client = YarnClient(hadoop)
        try:
            del client.settings["yarn.staging-directory"]  # in HDFS, in the user's home
            path = client.folder / "one.py"
            path.write_text(
                "from firesteel.datastream import StreamExecutionEnvironment\n"
                "env = StreamExecutionEnvironment.get_execution_environment()\n"
                "env.from_collection([1]).print()\n"
                "env.execute('one')\n"
            )
            client.settings["security.kerberos.krb5-conf.path"] = str(realm.krb5_conf)
            refused = client.firesteel("run-application", "-t", "yarn", str(path))
            assert refused.returncode == 1
            assert re.search("Kerberos|KERBEROS|GSS", refused.stderr), refused.stderr
            keytab = realm.keytab("alice", "alice")
            client.settings |= {
                "security.kerberos.login.keytab": str(keytab),
                "security.kerberos.login.principal": "alice@FIRESTEEL.TEST",
            }
            done = client.firesteel("run-application", "-t", "yarn", str(path))
            assert done.returncode == 0, done.stdout + done.stderr + client.logs()
            ended = Application(client, client.applications[0]).report()
            assert (ended["user"], ended["finalStatus"]) == ("alice", "SUCCEEDED")
        finally:
            client.close()
