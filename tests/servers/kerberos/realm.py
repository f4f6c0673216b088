"""A throw-away Kerberos realm on a loopback port. Nothing of the machine's own Kerberos is used or changed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from tests.ports import free_ports
from tests.waiting import wait_until

ENSURE = Path(__file__).parent / "ensure-kerberos.sh"
ENSURE_GSSAPI = Path(__file__).parent / "ensure-gssapi.sh"
IMPOSSIBLE = 3
REALM = "FIRESTEEL.TEST"


def ensure_kerberos() -> None:
    """It is installed at the return; where it can't be, the test is skipped."""
    _ensure(str(ENSURE))


def ensure_gssapi() -> str:
    """Folder with the package ``gssapi`` for this interpreter; where it can't be had, the test is skipped."""
    return _ensure(str(ENSURE_GSSAPI), sys.executable)


def _ensure(*words: str) -> str:
    done = subprocess.run(["sh", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode == IMPOSSIBLE:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


class Realm:
    """A realm with its key distribution centre.

    Args:
        ticket_seconds: for how long tickets are good.
        renewable_seconds: for how long they can be renewed.

    Attributes:
        krb5_conf: what clients are configured by (``KRB5_CONFIG``, ``java.security.krb5.conf``).
    """

    def __init__(self, ticket_seconds: int = 24 * 3600, renewable_seconds: int = 7 * 24 * 3600) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kerberos"))
        (self._port,) = free_ports(1)
        self.krb5_conf = self.folder / "krb5.conf"
        self.krb5_conf.write_text(
            f"[libdefaults]\n  default_realm = {REALM}\n  dns_lookup_realm = false\n  dns_lookup_kdc = false\n"
            "  rdns = false\n  dns_canonicalize_hostname = false\n  udp_preference_limit = 1\n"
            f"  ticket_lifetime = {ticket_seconds}s\n  renew_lifetime = {renewable_seconds}s\n"
            f"[realms]\n  {REALM} = {{\n    kdc = 127.0.0.1:{self._port}\n  }}\n"
            f"[domain_realm]\n  localhost = {REALM}\n"
        )
        (self.folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n  kdc_listen = 127.0.0.1:{self._port}\n  kdc_tcp_listen = 127.0.0.1:{self._port}\n"
            f"[realms]\n  {REALM} = {{\n    database_name = {self.folder}/principal\n"
            f"    key_stash_file = {self.folder}/stash\n    acl_file = {self.folder}/kadm5.acl\n"
            f"    max_life = {ticket_seconds}s\n    max_renewable_life = {renewable_seconds}s\n"
            "    supported_enctypes = aes256-cts:normal aes128-cts:normal\n  }\n"
        )
        self._variables = {
            "KRB5_CONFIG": str(self.krb5_conf),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "throw-away")

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            words, capture_output=True, text=True, stdin=subprocess.DEVNULL, env={**os.environ, **self._variables}
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    @property
    def java_flags(self) -> list[str]:
        """With which a JVM uses this realm."""
        return [f"-Djava.security.krb5.conf={self.krb5_conf}"]

    def keytab(self, name: str, *principals: str) -> Path:
        """Make principals, and a file with their keys.

        Args:
            name: of the file.
            principals: without the realm, such as ``alice`` or ``hadoop/localhost``.
        """
        path = self.folder / f"{name}.keytab"
        for principal in principals:
            self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
            self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}")
        assert path.exists(), f"{principals} got no keys"
        return path

    def ticket_cache(self, keytab: Path, principal: str, *options: str) -> Path:
        """Log in as ``kinit`` does; the file with the tickets."""
        path = self.folder / f"{keytab.stem}.cache"
        self._run("kinit", "-k", "-t", str(keytab), "-c", f"FILE:{path}", *options, principal)
        return path

    def start(self) -> None:
        """It gives tickets at the return."""
        program = shutil.which("krb5kdc", path=self._variables["PATH"])
        assert program is not None
        with (self.folder / "kdc.log").open("ab") as log:
            self._process = subprocess.Popen(
                [program, "-n"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **self._variables},
            )  # fmt: skip
        wait_until(self._listens, lambda: f"the KDC listens: {(self.folder / 'kdc.log').read_text()}")

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 5):
            return True
        return False

    def stop(self) -> None:
        """It gives no more tickets."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Nothing is left of it."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
