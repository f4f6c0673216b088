"""HDFS that Kerberos secures: users by keytab, by ticket cache and by delegation tokens; nobody else."""

from __future__ import annotations

import pytest

from firesteel.checkpoint.object_store import StoreRefusedError
from firesteel.checkpoint.places import ObjectPlace, object_place
from firesteel.checkpoint.storage import StorageParameters, load_checkpoint_storage
from firesteel.config import Settings
from firesteel.core.errors import CheckpointStorageError, ConfigurationError
from firesteel.testing import check_checkpoint_storage
from firesteel_hdfs.client import HdfsClient
from tests.servers.hadoop.server import SERVICE, Hadoop
from tests.servers.kerberos.realm import REALM, Realm

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
KRB5, KEYTAB, PRINCIPAL = (
    "security.kerberos.krb5-conf.path", "security.kerberos.login.keytab", "security.kerberos.login.principal",
)  # fmt: skip
IMPATIENT = {"firesteel.hdfs.request-timeout": "10 s", "firesteel.hdfs.retry-timeout": "2 s"}


@pytest.fixture
def secured(secured_hadoop: Hadoop, monkeypatch: pytest.MonkeyPatch) -> Hadoop:
    """HDFS runs; nobody is logged in."""
    secured_hadoop.start_hdfs()
    for name in ("KRB5CCNAME", "HADOOP_TOKEN_FILE_LOCATION", "HADOOP_USER_NAME"):
        monkeypatch.delenv(name, raising=False)
    assert secured_hadoop.realm is not None
    monkeypatch.setenv("KRB5_CONFIG", str(secured_hadoop.realm.krb5_conf))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{secured_hadoop.folder}/none.cache")
    return secured_hadoop


def realm_of(hadoop: Hadoop) -> Realm:
    assert hadoop.realm is not None
    return hadoop.realm


def settings_of(hadoop: Hadoop, **more: str) -> Settings:
    base = {"env.hadoop.conf.dir": str(hadoop.conf), KRB5: str(realm_of(hadoop).krb5_conf), **IMPATIENT}
    return Settings(base | more)


def home(hadoop: Hadoop, user: str) -> ObjectPlace:
    """A folder that is the user's own, made by who may do everything: the user of the daemons."""
    keytab = realm_of(hadoop).folder / "hadoop.keytab"
    client = HdfsClient(settings_of(hadoop, **{KEYTAB: str(keytab), PRINCIPAL: SERVICE}))
    place = object_place(f"{hadoop.uri}/{user}", "home")
    raw = client._client(place.bucket)
    raw.mkdirs(f"/{user}", 0o700, True)
    raw.set_owner(f"/{user}", user, user)
    return place


def test_a_keytab_is_enough(secured: Hadoop) -> None:
    keytab = realm_of(secured).keytab("alice", "alice")
    mine = {KEYTAB: str(keytab), PRINCIPAL: f"alice@{REALM}"}
    directory = {"execution.checkpointing.dir": str(home(secured, "alice"))}
    settings = settings_of(secured, **mine, **directory)
    check_checkpoint_storage(lambda: load_checkpoint_storage(StorageParameters("ab" * 16, settings)))


def test_clients_that_are_not_logged_in_or_may_not_are_refused(secured: Hadoop) -> None:
    place = home(secured, "carol")
    with pytest.raises(CheckpointStorageError):
        HdfsClient(settings_of(secured)).check(place)
    keytab = realm_of(secured).keytab("bob", "bob")
    with pytest.raises(StoreRefusedError, match=r"refuses it: Permission denied: user=bob"):
        HdfsClient(settings_of(secured, **{KEYTAB: str(keytab), PRINCIPAL: f"bob@{REALM}"})).check(place)
    with pytest.raises(ConfigurationError, match=r"login\.keytab is missing"):
        HdfsClient(settings_of(secured, **{PRINCIPAL: f"bob@{REALM}"}))


def test_a_ticket_cache(secured: Hadoop, monkeypatch: pytest.MonkeyPatch) -> None:
    realm = realm_of(secured)
    cache = realm.ticket_cache(realm.keytab("dave", "dave"), "dave")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    HdfsClient(settings_of(secured)).check(home(secured, "dave"))
