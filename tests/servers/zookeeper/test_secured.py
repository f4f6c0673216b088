"""ZooKeeper that wants TLS with certificates of both sides, and users that show who they are: passwords or Kerberos."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError
from firesteel.ha.cells import Put
from firesteel_zookeeper.services import ZooKeeperCells
from tests.ports import free_ports
from tests.servers.java_server import CACHE
from tests.servers.kerberos.realm import REALM, Realm, ensure_kerberos
from tests.servers.zookeeper.server import ZooKeeper

pytestmark = [
    pytest.mark.timeout(300), pytest.mark.may_skip(reason="there is no openssl, or no Kerberos"),
    # kazoo leaves sockets on which TLS was refused to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]  # fmt: skip
USER, PASSWORD = "firesteel", "a secret of the test"


class Secured:
    """A server with a secure port, and the files of a client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = free_ports(1)
        self._certificate("authority", "-x509", "-subj", "/CN=authority")
        for name in ("server", "client"):
            request = self._certificate(name, "-subj", f"/CN={name}")
            extensions = folder / f"{name}.extensions"
            extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
            self._run(
                "x509", "-req", "-in", request, "-CA", folder / "authority.pem", "-CAkey", folder / "authority.key",
                "-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", folder / f"{name}.pem",
            )  # fmt: skip
        both = (folder / "server.key").read_text() + (folder / "server.pem").read_text()
        (folder / "server-both.pem").write_text(both)
        jaas = folder / "jaas.conf"
        module = "org.apache.zookeeper.server.auth.DigestLoginModule"
        jaas.write_text(f'Server {{ {module} required user_{USER}="{PASSWORD}"; }};\n')
        self.zookeeper = ZooKeeper(
            more=(
                f"secureClientPort={self.port}", "secureClientPortAddress=127.0.0.1",
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
                "ssl.keyStore.type=PEM", f"ssl.keyStore.location={folder}/server-both.pem",
                "ssl.trustStore.type=PEM", f"ssl.trustStore.location={folder}/authority.pem", "ssl.clientAuth=need",
                "ssl.hostnameVerification=false", "sessionRequireClientSASLAuth=true",
                "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            ),
            flags=(f"-Djava.security.auth.login.config={jaas}",),
        )  # fmt: skip

    def _certificate(self, name: str, *words: str) -> Path:
        out = self.folder / (f"{name}.pem" if "-x509" in words else f"{name}.request")
        key = self.folder / f"{name}.key"
        self._run("req", "-newkey", "rsa:2048", "-nodes", "-days", "2", *words, "-keyout", key, "-out", out)
        return out

    @staticmethod
    def _run(*words: object) -> None:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)

    def settings(self, **more: str) -> Settings:
        """Of a client that the server takes."""
        tls = "firesteel.zookeeper.tls"
        options = self.zookeeper.settings(self.folder / "payloads") | {
            "high-availability.zookeeper.quorum": f"localhost:{self.port}", f"{tls}.enabled": "true",
            f"{tls}.ca-file": f"{self.folder}/authority.pem", f"{tls}.certificate-file": f"{self.folder}/client.pem",
            f"{tls}.key-file": f"{self.folder}/client.key",
            "firesteel.zookeeper.sasl.credentials": f"{USER}:{PASSWORD}",
            "high-availability.zookeeper.client.acl": "creator",
            "high-availability.zookeeper.client.connection-timeout": "3 s",
            "high-availability.zookeeper.client.max-retry-attempts": "0",
        }  # fmt: skip
        options |= {name.replace("__", "."): value for name, value in more.items()}
        return Settings({name: value for name, value in options.items() if value})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl")
    secured_zookeeper = Secured(tmp_path_factory.mktemp("secured"))
    try:
        secured_zookeeper.zookeeper.start()
        yield secured_zookeeper
    finally:
        secured_zookeeper.zookeeper.close()


PATIENT = {"high-availability.zookeeper.client.connection-timeout": "20 s"}
"""Of who is to be let in, on a busy machine."""


def test_a_service_that_shows_certificate_and_password_leads(secured: Secured) -> None:
    cells = ZooKeeperCells(secured.settings(**PATIENT))
    try:
        epoch = cells.campaign("dispatcher")
        assert epoch is not None
        cells.change("dispatcher", epoch, [Put("name", b"value", None)])
        record = cells.read("dispatcher", "name")
        assert record is not None
        assert record.value == b"value"
    finally:
        cells.close()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"firesteel__zookeeper__sasl__credentials": f"{USER}:another password"},
            r"does not know the user and password of firesteel\.zookeeper\.sasl\.credentials",
        ),
        (
            {
                "firesteel__zookeeper__sasl__credentials": "",
                "high-availability__zookeeper__client__acl": "open",
            },
            "",
        ),
        (
            {"firesteel__zookeeper__tls__ca-file": ""},
            r"TLS: CERTIFICATE_VERIFY_FAILED: see firesteel\.zookeeper\.tls",
        ),
    ],
    ids=["wrong password", "no password", "an authority that nobody trusts"],
)
def test_services_without_certificate_or_password_are_refused(
    secured: Secured, wrong: dict[str, str], said: str
) -> None:
    cells = ZooKeeperCells(secured.settings(**wrong))
    try:
        with pytest.raises(OSError, match=f"ZooKeeper.*{said}") as caught:
            cells.campaign("resourcemanager")
        assert PASSWORD not in str(caught.value)
    finally:
        cells.close()
    gc.collect()  # a socket that was left open is told now


def test_half_of_the_settings_is_refused(secured: Secured) -> None:
    with pytest.raises(ConfigurationError, match=r"key-file is missing"):
        ZooKeeperCells(secured.settings(**{"firesteel.zookeeper.tls.key-file": ""}))
    with pytest.raises(ConfigurationError, match=r"is of no use without firesteel\.zookeeper\.tls\.enabled"):
        ZooKeeperCells(secured.settings(**{"firesteel.zookeeper.tls.enabled": "false"}))
    with pytest.raises(ConfigurationError, match="user:password is expected"):
        ZooKeeperCells(secured.settings(**{"firesteel.zookeeper.sasl.credentials": "nobody"}))


_CAMPAIGNS = """
import json, sys
from firesteel.config import Settings
from firesteel_zookeeper.services import ZooKeeperCells

cells = ZooKeeperCells(Settings(json.loads(sys.argv[1])))
try:
    print("epoch", cells.campaign("dispatcher"))
except OSError as error:
    print("refused", error)
finally:
    cells.close()
"""


@pytest.mark.long
def test_with_kerberos_the_user_of_a_keytab_leads(tmp_path: Path) -> None:
    ensure_kerberos()
    packages = ensure_module()
    realm = Realm()
    jaas = tmp_path / "jaas.conf"
    zookeeper = ZooKeeper(
        more=(
            "sessionRequireClientSASLAuth=true",
            "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        ),
        flags=(f"-Djava.security.auth.login.config={jaas}", *realm.java_flags),
    )
    try:
        server = realm.keytab("server", "zookeeper/localhost")
        jaas.write_text(
            "Server { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'useTicketCache=false keyTab="{server}" principal="zookeeper/localhost@{REALM}"; }};\n'
        )
        alice, other = realm.keytab("alice", "alice"), realm.keytab("other", "other")
        realm.start()
        zookeeper.start()
        settings = zookeeper.settings(tmp_path / "payloads") | {
            "high-availability.zookeeper.quorum": f"localhost:{zookeeper.servers[0].port}",
            "high-availability.zookeeper.client.acl": "creator",
            "high-availability.zookeeper.client.connection-timeout": "20 s",
            "high-availability.zookeeper.client.max-retry-attempts": "0",
            "security.kerberos.login.contexts": "Client",
            "security.kerberos.login.principal": f"alice@{REALM}",
            "security.kerberos.login.keytab": str(alice),
            "security.kerberos.krb5-conf.path": str(realm.krb5_conf),
        }

        def campaign(**more: str) -> str:
            options = settings | {name.replace("__", "."): value for name, value in more.items()}
            done = subprocess.run(
                [sys.executable, "-c", _CAMPAIGNS, json.dumps(options)], capture_output=True, text=True, timeout=100,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), *sys.path])},
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        assert campaign() == "epoch 1"
        wrong = campaign(security__kerberos__login__keytab=str(other))
        assert wrong.startswith("refused"), wrong
        assert "ZooKeeper is not to be reached at localhost" in wrong, wrong
        assert "(Kerberos: " in wrong, wrong
        assert "see security.kerberos.login.principal" in wrong, wrong
        service = campaign(**{"zookeeper.sasl.service-name": "another"})
        assert "zookeeper.sasl.service-name = another" in service, service
        of_other = {"security__kerberos__login__keytab": str(other), "security__kerberos__login__principal": "other"}
        assert "refuses: NoAuthError" in campaign(**of_other), "nodes are alice's"
        assert campaign() == "epoch 2"
    finally:
        zookeeper.close()
        realm.close()


def ensure_module() -> Path:
    """Folder with the module ``kerberos``, built once."""
    folder = CACHE / f"python{sys.version_info[1]}-kerberos"
    if not folder.exists():
        fresh = folder.with_name(f"{folder.name}.{os.getpid()}")
        base = Path(sys.base_prefix, "bin", f"python3.{sys.version_info[1]}")
        done = subprocess.run(
            ["sh", "-c", _BUILD, str(base), str(fresh)], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            pytest.skip(f"the module kerberos can't be built here: {done.stderr[-300:]}")
        fresh.rename(folder)
    return folder


_BUILD = """
command -v krb5-config cc >/dev/null || { apt-get update -qq && apt-get install -y -qq libkrb5-dev gcc; } >&2 || exit 3
exec "$0" -m pip install -q --no-deps --target "$1" 'pykerberos>=1.2.4,<2' >&2
"""
