"""Where the API server is and who asks it, as a pod or a kubeconfig says."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError
from firesteel_kubernetes import access
from firesteel_kubernetes.access import ApiServerAccess, TokenFile, find_access, namespace_of, of_kubeconfig

CONFIG = """
apiVersion: v1
kind: Config
current-context: work
contexts:
- {name: work, context: {cluster: c, user: u, namespace: streams}}
- {name: other, context: {cluster: d, user: v}}
clusters:
- {name: c, cluster: {server: "https://k:6443/", certificate-authority-data: AUTHORITY, tls-server-name: api}}
- {name: d, cluster: {server: "https://d:6443", proxy-url: "http://proxy:1"}}
users:
- {name: u, user: {token: secret-token}}
- {name: v, user: {tokenFile: tokens/v}}
- {name: w, user: {auth-provider: {name: gcp}}}
""".replace("AUTHORITY", base64.b64encode(b"PEM").decode())


def test_a_kubeconfig(tmp_path: Path) -> None:
    path = tmp_path / "config"
    of_config = of_kubeconfig(CONFIG, path)
    assert (of_config.server, of_config.namespace, of_config.authority, of_config.server_name) == (
        "https://k:6443", "streams", b"PEM", "api",
    )  # fmt: skip
    assert of_config.credentials.token() == "secret-token"
    assert "secret-token" not in repr(of_config)
    other = of_kubeconfig(CONFIG, path, "other")
    assert (other.server, other.namespace, other.proxy) == ("https://d:6443", None, "http://proxy:1")
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "v").write_text("first\n")
    assert other.credentials.token() == "first"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "is no kubeconfig"),
        ("- a", "is no kubeconfig"),
        ("{}", "has no current-context"),
        (CONFIG.replace("current-context: work", "current-context: x"), "has no context 'x'"),
        (CONFIG.replace("cluster: c, user: u", "cluster: x, user: u"), "has no cluster 'x'"),
        (CONFIG.replace("user: u,", "user: w,"), "this one has: auth-provider"),
        (CONFIG.replace("server: \"https://k:6443/\", ", ""), "has no server"),
        (CONFIG.replace(base64.b64encode(b"PEM").decode(), "'!'"), "certificate-authority can't be read"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_kubeconfig_is_said(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=said):
        of_kubeconfig(text, tmp_path / "config")


def test_a_token_that_was_refused_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    credentials = TokenFile(file)
    assert credentials.token() == "one"
    file.write_text("two")
    assert credentials.token() == "one"
    assert credentials.refused()
    assert credentials.token() == "two"
    assert not credentials.refused(), "there is no other one"
    file.unlink()
    assert not credentials.refused()


def test_a_pod_asks_as_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "SERVICE_ACCOUNT", tmp_path)
    for name, content in (("token", "t"), ("namespace", "streams"), ("ca.crt", "PEM")):
        (tmp_path / name).write_text(content)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    in_pod = find_access(Settings())
    assert (in_pod.server, in_pod.namespace, in_pod.credentials.token()) == ("https://[fd00::1]:6443", "streams", "t")
    assert namespace_of(Settings(), in_pod) == "streams"
    assert namespace_of(Settings({"kubernetes.namespace": "mine"}), in_pod) == "mine"
    (tmp_path / "config").write_text(CONFIG)
    assert find_access(Settings({"kubernetes.config.file": str(tmp_path / "config")})).server == "https://k:6443"


def test_nothing_says_where_kubernetes_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match=r"the kubeconfig .*none can't be read: No such file"):
        find_access(Settings())


def test_a_certificate_that_is_none_is_said() -> None:
    with pytest.raises((OSError, ValueError)):
        ApiServerAccess("https://k", None, access.FixedCredentials("t"), b"no certificate").tls()
