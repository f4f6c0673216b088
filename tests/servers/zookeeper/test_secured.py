"""ZooKeeper that wants TLS with certificates of both sides, and authenticated users (SASL)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError
from firesteel.ha.cells import Put
from firesteel.ha.zookeeper import ZooKeeperCells
from tests.ports import free_ports
from tests.servers.zookeeper.server import ZooKeeper

pytestmark = [
    pytest.mark.timeout(300), pytest.mark.may_skip(reason="there is no openssl"),
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
        given = self.zookeeper.settings(self.folder / "payloads") | {
            "high-availability.zookeeper.quorum": f"localhost:{self.port}", f"{tls}.enabled": "true",
            f"{tls}.ca-file": f"{self.folder}/authority.pem", f"{tls}.certificate-file": f"{self.folder}/client.pem",
            f"{tls}.key-file": f"{self.folder}/client.key",
            "firesteel.zookeeper.sasl.credentials": f"{USER}:{PASSWORD}",
            "high-availability.zookeeper.client.acl": "creator",
            "high-availability.zookeeper.client.connection-timeout": "3 s",
            "high-availability.zookeeper.client.max-retry-attempts": "0",
        }  # fmt: skip
        given |= {name.replace("__", "."): value for name, value in more.items()}
        return Settings({name: value for name, value in given.items() if value})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One server."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl")
    made = Secured(tmp_path_factory.mktemp("secured"))
    try:
        made.zookeeper.start()
        yield made
    finally:
        made.zookeeper.close()


def test_who_shows_certificate_and_password_leads(secured: Secured) -> None:
    cells = ZooKeeperCells(secured.settings())
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
    "wrong",
    [
        {"firesteel__zookeeper__sasl__credentials": f"{USER}:another password"},
        {
            "firesteel__zookeeper__sasl__credentials": "",
            "high-availability__zookeeper__client__acl": "open",
        },
        {"firesteel__zookeeper__tls__ca-file": ""},
    ],
    ids=["wrong password", "no password", "an authority that nobody trusts"],
)
def test_others_are_refused(secured: Secured, wrong: dict[str, str]) -> None:
    cells = ZooKeeperCells(secured.settings(**wrong))
    try:
        with pytest.raises(OSError, match="ZooKeeper") as caught:
            cells.campaign("resourcemanager")
        assert PASSWORD not in str(caught.value)
    finally:
        cells.close()


def test_half_of_the_settings_is_refused(secured: Secured) -> None:
    with pytest.raises(ConfigurationError, match=r"key-file is missing"):
        ZooKeeperCells(secured.settings(**{"firesteel.zookeeper.tls.key-file": ""}))
    with pytest.raises(ConfigurationError, match=r"is of no use without firesteel\.zookeeper\.tls\.enabled"):
        ZooKeeperCells(secured.settings(**{"firesteel.zookeeper.tls.enabled": "false"}))
    with pytest.raises(ConfigurationError, match="user:password is expected"):
        ZooKeeperCells(secured.settings(**{"firesteel.zookeeper.sasl.credentials": "nobody"}))
