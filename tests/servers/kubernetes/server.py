"""A real control plane of Kubernetes for tests: etcd and the API server, and where a test wants them controllers and
the scheduler. There are no nodes: pods are made, and stay pending. Its parts can be killed and made to stand still.

All of it listens on this machine's loopback only, and needs neither root nor namespaces.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.ports import free_ports
from tests.waiting import wait_until

ENSURE = Path(__file__).parent / "ensure-kubernetes.sh"
ETCD, API_SERVER, CONTROLLERS, SCHEDULER = "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"
ISSUER = "https://kubernetes.default.svc"
USERS = {
    "admin": "system:masters",
    CONTROLLERS: "",
    SCHEDULER: "",
    "stranger": "",
}
"""Who is known by a token -> the group."""
_NAMES = {CONTROLLERS: "system:kube-controller-manager", SCHEDULER: "system:kube-scheduler"}
_LOG_BYTES = 4000
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}  # fmt: skip
"""What the API server writes down: what service accounts ask, but those of Kubernetes' own."""


class ControlPlane:
    """See the head of this module.

    Args:
        programs: folder of the programs.
        parts: what is started, in this order.

    Attributes:
        server: base URL of the API server.
        tokens: of ``USERS``.
    """

    def __init__(self, programs: Path, parts: tuple[str, ...] = (ETCD, API_SERVER)) -> None:
        self._programs, self._parts = programs, parts
        self.folder = Path(tempfile.mkdtemp(prefix="kubernetes"))
        self._port, self._store, peer, *others = free_ports(5)
        self.server = f"https://127.0.0.1:{self._port}"
        self.tokens = {user: secrets.token_hex(16) for user in USERS}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._commands = self._make_commands(peer, *others)

    def _make_commands(self, peer: int, controllers: int, scheduler: int) -> dict[str, list[str]]:
        folder, loopback = self.folder, "127.0.0.1"
        subprocess.run(
            ["openssl", "genrsa", "-traditional", "-out", str(folder / "accounts.key"), "2048"],
            check=True,
            capture_output=True,
        )
        lines = [
            f"{self.tokens[user]},{_NAMES.get(user, user)},{user}{f',{group}' if group else ''}"
            for user, group in USERS.items()
        ]
        (folder / "tokens.csv").write_text("\n".join(lines) + "\n")
        (folder / "audit.json").write_text(json.dumps(_AUDIT))
        for user in USERS:
            (folder / f"{user}.kubeconfig").write_text(json.dumps(self.kubeconfig(self.tokens[user])))
        store = f"http://{loopback}:{self._store}"
        key = str(folder / "accounts.key")
        own = ["--leader-elect=false", f"--bind-address={loopback}"]
        return {
            ETCD: [
                f"--data-dir={folder / 'etcd'}", f"--listen-client-urls={store}", f"--advertise-client-urls={store}",
                f"--listen-peer-urls=http://{loopback}:{peer}",
                f"--initial-advertise-peer-urls=http://{loopback}:{peer}",
                f"--initial-cluster=default=http://{loopback}:{peer}", "--unsafe-no-fsync",
            ],
            API_SERVER: [
                f"--etcd-servers={store}", f"--bind-address={loopback}", f"--advertise-address={loopback}",
                "--endpoint-reconciler-type=none", f"--secure-port={self._port}", f"--cert-dir={folder}",
                f"--token-auth-file={folder / 'tokens.csv'}", "--authorization-mode=RBAC",
                f"--service-account-issuer={ISSUER}", f"--service-account-key-file={key}",
                f"--service-account-signing-key-file={key}", "--service-cluster-ip-range=10.217.0.0/24",
                f"--audit-policy-file={folder / 'audit.json'}", f"--audit-log-path={folder / 'audit.log'}",
            ],
            CONTROLLERS: [
                f"--kubeconfig={folder / CONTROLLERS}.kubeconfig", "--use-service-account-credentials=true",
                f"--service-account-private-key-file={key}", f"--root-ca-file={folder / 'apiserver.crt'}",
                f"--secure-port={controllers}", *own,
            ],
            SCHEDULER: [f"--kubeconfig={folder / SCHEDULER}.kubeconfig", f"--secure-port={scheduler}", *own],
        }  # fmt: skip

    def kubeconfig(self, token: str) -> dict[str, Any]:
        """One, for whoever has a token."""
        authority = str(self.folder / "apiserver.crt")
        return {
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.server, "certificate-authority": authority}}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }  # fmt: skip

    # -- life

    def start(self) -> None:
        """The API server takes requests at the return."""
        for name in self._parts:
            self.start_one(name)
            if name == API_SERVER:
                wait_until(self.is_ready, lambda: f"the API server is ready: {self.log(API_SERVER)}")
        if CONTROLLERS in self._parts:
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            wait_until(lambda: self.find(account), lambda: f"controllers work: {self.log(CONTROLLERS)}")

    def start_one(self, name: str) -> None:
        """Start one of its programs."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [str(self._programs / name), *self._commands[name]], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.folder, start_new_session=True,
            )  # fmt: skip

    def is_ready(self) -> bool:
        """Whether the API server and its store answer."""
        for name, process in self._processes.items():
            assert process.poll() is None, f"{name} has ended: {self.log(name)}"
        with suppress(OSError):
            return bool(self.ask("GET", "/readyz", seconds=2.0) == "ok")
        return False

    def ask(self, method: str, path: str, body: object = None, user: str = "admin", seconds: float = 10.0) -> Any:
        """One question, without Firesteel."""
        context = ssl.create_default_context(cafile=str(self.folder / "apiserver.crt"))
        data = None if body is None else json.dumps(body).encode()
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self.tokens[user]}", "Content-Type": kind}
        request = urllib.request.Request(self.server + path, data, headers, method=method)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(request, timeout=seconds) as answer:
            text = answer.read().decode()
        return json.loads(text) if text.startswith("{") else text

    def find(self, path: str) -> Any:
        """An object; None: there is none."""
        try:
            return self.ask("GET", path)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def log(self, name: str) -> str:
        """What one of its programs has said last."""
        with suppress(FileNotFoundError):
            return (self.folder / f"{name}.log").read_text(errors="replace")[-_LOG_BYTES:]
        return ""

    def pid(self, name: str) -> int:
        """Of one of its programs."""
        return self._processes[name].pid

    def kill(self, name: str) -> None:
        """It is gone at once."""
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    @contextmanager
    def stopped(self, *names: str) -> Iterator[None]:
        """Programs stand still, and their connections stay."""
        for name in names:
            os.kill(self.pid(name), signal.SIGSTOP)
        try:
            yield
        finally:
            for name in names:
                os.kill(self.pid(name), signal.SIGCONT)
            wait_until(self.is_ready, lambda: f"the API server is ready again: {self.log(API_SERVER)}")

    @contextmanager
    def away(self, name: str) -> Iterator[None]:
        """A program is killed, and starts again at the end."""
        self.kill(name)
        try:
            yield
        finally:
            self.start_one(name)
            wait_until(self.is_ready, lambda: f"the API server is ready again: {self.log(API_SERVER)}")

    def compact(self) -> None:
        """The store forgets what was before now."""
        url = f"http://127.0.0.1:{self._store}/v3/kv"
        revision = _post(f"{url}/range", {"key": "Lw=="})["header"]["revision"]
        _post(f"{url}/compaction", {"revision": revision, "physical": True})

    def close(self) -> None:
        """Nothing is left of it."""
        for name in reversed(self._parts):
            self.kill(name)
        shutil.rmtree(self.folder)

    # -- settings

    def settings(self, storage: str | Path, cluster: str, lease: float = 4.0, **more: str) -> dict[str, str]:
        """Of a cluster that keeps here what outlives its processes."""
        election = "high-availability.kubernetes.leader-election"
        return {
            "high-availability.type": "kubernetes", "high-availability.storageDir": str(storage),
            "kubernetes.cluster-id": cluster, "kubernetes.config.file": str(self.folder / "admin.kubeconfig"),
            f"{election}.lease-duration": f"{lease:g} s", f"{election}.renew-deadline": f"{lease:g} s",
            f"{election}.retry-period": f"{lease * 250:.0f} ms", **more,
        }  # fmt: skip

    def account(self, name: str, rules: list[dict[str, Any]], namespace: str = "default") -> None:
        """A service account that may do what rules say."""
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        self.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
        self.ask("POST", f"{rbac}/roles", {"metadata": {"name": name}, "rules": rules})
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        self.ask("POST", f"{rbac}/rolebindings", {"metadata": {"name": name}, "subjects": [subject], "roleRef": role})

    def used(self, account: str, namespace: str = "default", where: str | None = None) -> set[tuple[str, str]]:
        """(verb, resource) of all that a service account has asked for until now and was allowed to by its roles.

        Args:
            account: its name.
            namespace: that it is in.
            where: namespace of what it has asked for; None: its own one.

        Raises:
            AssertionError: it has asked for something that it may not.
        """
        name, rights_used = f"system:serviceaccount:{namespace}:{account}", set()
        for line in (self.folder / "audit.log").read_text().splitlines():
            event = json.loads(line)
            what = event.get("objectRef") or {}
            if event["user"]["username"] == name and what.get("namespace") == (where or namespace):
                right = event["verb"], "/".join(filter(None, (what["resource"], what.get("subresource"))))
                assert event["annotations"]["authorization.k8s.io/decision"] == "allow", f"{name} may not {right}"
                rights_used.add(right)
        return rights_used

    def account_token(self, name: str, seconds: int = 600, namespace: str = "default") -> str:
        """A token of a service account."""
        body = {"spec": {"expirationSeconds": seconds}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return str(self.ask("POST", path, body)["status"]["token"])


def rights(rules: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """(verb, resource) of all that a role's rules allow."""
    return {(verb, what) for rule in rules for what in rule["resources"] for verb in rule["verbs"]}


def _post(url: str, body: object) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, json.dumps(body).encode()), timeout=10) as answer:
        return json.loads(answer.read())
