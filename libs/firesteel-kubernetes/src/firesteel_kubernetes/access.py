"""Finds the API server of a Kubernetes cluster, and the credentials for it: a service account, or a kubeconfig.

Sources of facts: https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/,
https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/ and, for ``exec``,
https://kubernetes.io/docs/reference/config-api/client-authentication.v1/.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml
from typing_extensions import override

from firesteel.config import Settings
from firesteel.config.kubernetes_options import KUBERNETES_CONFIG_FILE, KUBERNETES_CONTEXT, KUBERNETES_NAMESPACE
from firesteel.core.clock import SystemClock
from firesteel.core.errors import ConfigurationError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_SECONDS: Final = 60.0
"""Seconds for which a token read from a file is used; the kubelet replaces it long before it expires."""
_EARLY_SECONDS: Final = 30.0
"""Seconds before its expiry at which a program's token counts as expired."""
_EXEC_SECONDS: Final = 60.0


class Credentials(ABC):
    """The token or certificate of requests to the API server."""

    @abstractmethod
    def token(self) -> str:
        """Token for the header; empty = none is needed. May block.

        Raises:
            OSError: it can't be had.
        """

    def refused(self) -> bool:
        """Forget a token that was refused; True = there may be another one."""
        return False

    def certificate(self) -> tuple[bytes, bytes] | None:
        """Certificate and key of the client, as PEM; None = there is none. May block."""
        return None


class FixedCredentials(Credentials):
    """A token, or a certificate, or neither.

    Args:
        token: for the header; empty = none.
        certificate: with its key.
    """

    def __init__(self, token: str = "", certificate: tuple[bytes, bytes] | None = None) -> None:
        self._token, self._certificate = token, certificate

    @override
    def token(self) -> str:
        return self._token

    @override
    def certificate(self) -> tuple[bytes, bytes] | None:
        return self._certificate


class TokenFile(Credentials):
    """A token in a file that is replaced from time to time.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._token, self._read_at = path, "", 0.0

    @override
    def token(self) -> str:
        now = time.monotonic()
        if not self._token or now - self._read_at > _TOKEN_SECONDS:
            self._token, self._read_at = self._path.read_text().strip(), now
        return self._token

    @override
    def refused(self) -> bool:
        refused_token, self._token = self._token, ""
        try:
            return self.token() != refused_token
        except OSError:
            return False


class CredentialProgram(Credentials):
    """A program that returns a token or a certificate.

    Args:
        command: the program with its arguments.
        environment: variables to add to its environment.
        version: of the exchange with it.
        hint: text for users who do not have the program.
    """

    def __init__(self, command: list[str], environment: Mapping[str, str], version: str, hint: str) -> None:
        self._command, self._environment, self._version, self._hint = command, dict(environment), version, hint
        self._lock = threading.Lock()
        self._answer: dict[str, Any] = {}  # the last ``status`` of the program; empty = it is to be run
        self._ends = 0.0  # when the answer expires, epoch seconds

    @override
    def token(self) -> str:
        return str(self._status().get("token", ""))

    @override
    def certificate(self) -> tuple[bytes, bytes] | None:
        status = self._status()
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        return (certificate.encode(), key.encode()) if certificate and key else None

    @override
    def refused(self) -> bool:
        with self._lock:
            self._answer = {}
        return True

    def _status(self) -> dict[str, Any]:
        with self._lock:
            if not self._answer or SystemClock().epoch_ms() / 1000 >= self._ends:
                self._answer = self._ask()
                ends = self._answer.get("expirationTimestamp")
                self._ends = float("inf") if not ends else _seconds(str(ends)) - _EARLY_SECONDS
            return self._answer

    def _ask(self) -> dict[str, Any]:
        request = {"apiVersion": self._version, "kind": "ExecCredential", "spec": {"interactive": False}}
        environment = {**os.environ, **self._environment, "KUBERNETES_EXEC_INFO": json.dumps(request)}
        name = self._command[0]
        try:
            process = subprocess.run(
                self._command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_EXEC_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise OSError(
                f"{name}, which the kubeconfig names for credentials, can't be run: {error}. {self._hint}"
            ) from (error)
        if process.returncode:
            error_text = process.stderr.decode(errors="replace").strip()[-500:]
            raise OSError(
                f"{name}, which the kubeconfig names for credentials, ended with {process.returncode}: {error_text}"
            )
        try:
            status = json.loads(process.stdout)["status"]
            if not isinstance(status, dict):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            raise OSError(f"{name}, which the kubeconfig names for credentials, returned none") from None
        return status


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


@dataclass(frozen=True)
class ApiServerAccess:
    """How the API server is reached.

    Attributes:
        server: its base URL.
        namespace: of the pod or context; None = neither names one.
        credentials: of the client.
        authority: certificates of those who may sign the server's, as PEM; None = the system's.
        insecure: the server's certificate is not verified.
        server_name: name that the certificate must have; empty = that of the URL.
        proxy: URL of a proxy; empty = none.
        found: source of these facts, for people.
    """

    server: str
    namespace: str | None
    credentials: Credentials = field(repr=False)
    authority: bytes | None = field(default=None, repr=False)
    insecure: bool = False
    server_name: str = ""
    proxy: str = ""
    found: str = ""

    def tls(self) -> ssl.SSLContext:
        """TLS context for connections to the server. May block.

        Raises:
            OSError: a certificate can't be had or read.
        """
        text = None if self.authority is None else self.authority.decode("ascii", "replace")
        context = ssl.create_default_context(cadata=text)
        if self.insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        pair = self.credentials.certificate()
        if pair is not None:
            with tempfile.NamedTemporaryFile() as file:  # ssl reads certificates from files only; this one is 0600
                file.write(pair[0] + b"\n" + pair[1])
                file.flush()
                context.load_cert_chain(file.name)
        return context


def find_access(settings: Settings) -> ApiServerAccess:
    """Find the API server and credentials for processes of a cluster or its clients, as configured.

    Raises:
        ConfigurationError: no API server is configured, or its configuration can't be read.
    """
    configured = settings.get(KUBERNETES_CONFIG_FILE)
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if (
        configured is None
        and settings.get(KUBERNETES_CONTEXT) is None
        and host
        and (SERVICE_ACCOUNT / "token").exists()
    ):
        return _of_pod(f"[{host}]" if ":" in host else host, port)
    named = configured or os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or "~/.kube/config"
    path = Path(os.path.expanduser(named))  # a user without a home has none there, which is no error
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigurationError(
            f"The address of Kubernetes' API server is unknown: the kubeconfig {path} can't be read: {error.strerror}. "
            f"Set {KUBERNETES_CONFIG_FILE.key} or KUBECONFIG; a pod needs its service account's token "
            "(automountServiceAccountToken)."
        ) from error
    return of_kubeconfig(text, path, settings.get(KUBERNETES_CONTEXT))


def namespace_of(settings: Settings, access: ApiServerAccess) -> str:
    """Namespace of the cluster's objects."""
    if settings.is_set(KUBERNETES_NAMESPACE) or access.namespace is None:
        return settings.get(KUBERNETES_NAMESPACE)
    return access.namespace


def _of_pod(host: str, port: str) -> ApiServerAccess:
    try:
        namespace = (SERVICE_ACCOUNT / "namespace").read_text().strip()
        authority = (SERVICE_ACCOUNT / "ca.crt").read_bytes()
    except OSError as error:
        raise ConfigurationError(f"the pod's service account can't be read: {error}") from error
    return ApiServerAccess(
        f"https://{host}:{port}",
        namespace,
        TokenFile(SERVICE_ACCOUNT / "token"),
        authority,
        found="the pod's service account",
    )


def of_kubeconfig(text: str, path: Path, context: str | None = None) -> ApiServerAccess:
    """Read a kubeconfig.

    Args:
        text: its content.
        path: of the file; names in it are relative to it.
        context: name of a context; None = the current one.

    Raises:
        ConfigurationError: it is malformed, or something that is needed is missing.
    """
    try:
        plain = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is no kubeconfig: {error}") from error
    if not isinstance(plain, dict):
        raise ConfigurationError(f"{path} is no kubeconfig")
    chosen = context or plain.get("current-context")
    if not chosen:
        raise ConfigurationError(f"{path} has no current-context; set {KUBERNETES_CONTEXT.key}")
    context_plain = _named(plain, "contexts", "context", str(chosen), path)
    cluster = _named(plain, "clusters", "cluster", str(context_plain.get("cluster", "")), path)
    user = _named(plain, "users", "user", str(context_plain["user"]), path) if context_plain.get("user") else {}
    server = cluster.get("server")
    if not server:
        raise ConfigurationError(f"{path}: the cluster of context {chosen} has no server")
    return ApiServerAccess(
        str(server).rstrip("/"),
        str(context_plain["namespace"]) if context_plain.get("namespace") else None,
        _credentials(user, path),
        _content(cluster, "certificate-authority", path),
        bool(cluster.get("insecure-skip-tls-verify")),
        str(cluster.get("tls-server-name") or ""),
        str(cluster.get("proxy-url") or ""),
        f"context {chosen} of {path}",
    )


def _named(plain: Mapping[str, Any], group: str, key: str, name: str, path: Path) -> dict[str, Any]:
    for entry in plain.get(group) or ():
        if isinstance(entry, dict) and entry.get("name") == name:
            value = entry.get(key) or {}
            if isinstance(value, dict):
                return value
    raise ConfigurationError(f"{path} has no {key} {name!r}")


def _content(plain: Mapping[str, Any], key: str, path: Path) -> bytes | None:
    """Content of ``<key>-data``, or of the file that ``<key>`` names; None = there is neither."""
    data, file = plain.get(f"{key}-data"), plain.get(key)
    try:
        if data:
            return base64.b64decode(str(data), validate=True)
        return (path.parent / str(file)).read_bytes() if file else None
    except (OSError, binascii.Error) as error:
        raise ConfigurationError(f"{path}: {key} can't be read: {error}") from error


def _credentials(user: Mapping[str, Any], path: Path) -> Credentials:
    certificate, key = _content(user, "client-certificate", path), _content(user, "client-key", path)
    pair = (certificate, key) if certificate and key else None
    if user.get("tokenFile"):
        return TokenFile(path.parent / str(user["tokenFile"]))
    if user.get("token") or pair is not None:
        return FixedCredentials(str(user.get("token") or ""), pair)
    program = user.get("exec")
    if isinstance(program, dict) and program.get("command"):
        command = str(program["command"])
        if "/" in command:
            command = str(path.parent / command)
        environment = {str(variable["name"]): str(variable["value"]) for variable in program.get("env") or ()}
        return CredentialProgram(
            [command, *map(str, program.get("args") or ())],
            environment,
            str(program.get("apiVersion") or "client.authentication.k8s.io/v1"),
            str(program.get("installHint") or ""),
        )
    if user:
        ways = ", ".join(sorted(map(str, user)))
        raise ConfigurationError(
            f"{path}: a user is known by token, tokenFile, client-certificate with client-key, or exec; this one "
            f"has: {ways}"
        )
    return FixedCredentials()
