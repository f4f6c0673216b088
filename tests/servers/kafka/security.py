"""What a secured Kafka and its clients need: an authority, certificates, users, an endpoint that gives tokens."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

USER, PASSWORD = "alice", 'hidden "word"; of alice'
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
CLIENT, CLIENT_SECRET = "reports", "hidden-word-of-reports"
_SECURITY: Final = "org.apache.kafka.common.security"


class Certificates:
    """An authority, a broker's certificate for the loopback interface, and a client's.

    Args:
        folder: for the files.

    Attributes:
        authority: file with its certificate.
        broker: file with key and certificate.
        client, client_key: files; the key is encrypted with ``client_password``.
    """

    client_password = "hidden-word-of-the-key"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.authority, self.broker = folder / "ca.pem", folder / "broker.pem"
        self.client, self.client_key = folder / "client.pem", folder / "client-key.pem"
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
        self._run(
            "req",
            "-x509",
            *curve,
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=authority",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
        )
        for name, more in (("broker", ("-nodes",)), ("client", ("-passout", f"pass:{self.client_password}"))):
            self._run("req", *curve, *more, "-subj", f"/CN={name}", "-keyout", f"{name}-key.pem", "-out", f"{name}.csr")
            (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
            self._run(
                "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-days", "2", "-extfile", "names", "-out", f"{name}.crt",
            )  # fmt: skip
        self.broker.write_text((folder / "broker-key.pem").read_text() + (folder / "broker.crt").read_text())
        self.client.write_text((folder / "client.crt").read_text())

    def _run(self, *words: str) -> None:
        done = subprocess.run(["openssl", *words], cwd=self._folder, capture_output=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr.decode(errors="replace")


def broker_properties(certificates: Certificates) -> dict[str, object]:
    """Of a broker with the listeners ``SASL`` (all mechanisms, over TLS) and ``TLS`` (certificates of clients)."""
    quoted = PASSWORD.replace('"', '\\"')
    logins = {
        "plain": f'{_SECURITY}.plain.PlainLoginModule required user_{USER}="{quoted}";',
        "scram-sha-256": f"{_SECURITY}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{_SECURITY}.scram.ScramLoginModule required;",
        "oauthbearer": f'{_SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="b";',
    }
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates.broker,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.authority,
        "listener.name.tls.ssl.client.auth": "required",
        "listener.name.sasl.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        # In a file of properties a backslash stands for the character behind it.
        **{f"listener.name.sasl.{name}.sasl.jaas.config": text.replace("\\", "\\\\") for name, text in logins.items()},
    }


def storage_options() -> list[str]:
    """Of the tool that formats a broker's storage: the users of SCRAM."""
    words = []
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        words += ["--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]"]
    return words


class TokenEndpoint:
    """Gives tokens that are not signed to the one client that it knows.

    Attributes:
        url: of it.
        given: so many tokens.
        scopes: that were asked for.
    """

    def __init__(self) -> None:
        self.given, self.scopes = 0, list[str]()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                login = base64.b64encode(f"{CLIENT}:{CLIENT_SECRET}".encode()).decode()
                good = self.headers["Authorization"] == f"Basic {login}"
                assert form["grant_type"] == ["client_credentials"]
                outer.scopes += form.get("scope", [])
                outer.given += good
                body = json.dumps({"access_token": token(CLIENT), "expires_in": 600} if good else {}).encode()
                self.send_response(200 if good else 401)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/token"

    @contextmanager
    def serving(self) -> Iterator[TokenEndpoint]:
        thread = threading.Thread(target=self._server.serve_forever, name="tokens")
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def token(subject: str) -> str:
    """One that is not signed."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": subject, "iat": now, "exp": now + 600})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."


def given_token(config: str) -> tuple[str, float]:
    """As users write ``oauth_cb`` for confluent-kafka."""
    subject = config.rpartition(" ")[2]
    return token(subject), time.time() + 600
