"""YARN and HDFS that are secured by Kerberos: who has a ticket or a keytab runs programs, and nobody else does."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator

import pytest

from tests.servers.hadoop.server import Hadoop, ensure_hadoop
from tests.servers.kerberos.realm import Realm, ensure_kerberos
from tests.servers.yarn.cluster import Application, Counting, YarnClient, wait_for

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture
def realm() -> Iterator[Realm]:
    """A realm, with its centre."""
    ensure_kerberos()
    kerberos_realm = Realm()
    try:
        kerberos_realm.start()
        yield kerberos_realm
    finally:
        kerberos_realm.close()


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


_LONGEST_LIFE = 60.0


def test_an_application_outlives_the_tokens_that_it_was_submitted_with(realm: Realm) -> None:
    """A node that never had its files brings them from HDFS for a TaskManager, when the first tokens are no good."""
    lives: dict[str, object] = {
        "dfs.permissions.enabled": "false",
        "dfs.namenode.delegation.token.max-lifetime": round(_LONGEST_LIFE * 1000),
        "dfs.namenode.delegation.token.renew-interval": round(_LONGEST_LIFE * 500),
    }
    with Hadoop(ensure_hadoop(), realm=realm, memory_mb=2600, vcores=8, properties={"hdfs-site": lives}) as hadoop:
        hadoop.start_hdfs()
        hadoop.start_yarn()
        client = YarnClient(hadoop)  # a node has room for its ApplicationMaster, or for its TaskManager
        try:
            del client.settings["yarn.staging-directory"]
            client.settings |= {
                "security.kerberos.krb5-conf.path": str(realm.krb5_conf),
                "security.kerberos.login.keytab": str(realm.keytab("bob", "bob")),
                "security.kerberos.login.principal": "bob@FIRESTEEL.TEST",
                "taskmanager.memory.process.size": "1500m",
            }
            shipped = realm.folder / "shipped.keytab"
            shutil.copy(client.settings["security.kerberos.login.keytab"], shipped)
            session = client.session(**{"security.kerberos.login.keytab": str(shipped)})
            shipped.unlink()  # containers have it
            began = time.monotonic()
            wait_for(lambda: time.monotonic() - began > _LONGEST_LIFE + 5, "the first tokens are no good any more")
            job = Counting(client.folder)
            job.settings["execution.checkpointing.dir"] = f"{hadoop.uri}/checkpoints"
            job.run(session)
            job.ends_right(session)
            stopped = client.firesteel("yarn-session", "--stop", "-id", session.id)
            assert stopped.returncode == 0, stopped.stdout + stopped.stderr
            ended = session.wait_ended()
            assert (ended["state"], ended["finalStatus"]) == ("FINISHED", "SUCCEEDED"), ended["diagnostics"]
        finally:
            client.close()
