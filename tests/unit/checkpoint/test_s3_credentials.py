"""Credentials that a host has by its role: of an instance (IMDSv2), a container, a web identity."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from urllib3.exceptions import ConnectTimeoutError

from firesteel.config import Settings
from firesteel.core.errors import CheckpointStorageError
from firesteel_s3 import credentials
from firesteel_s3.credentials import S3Credentials

AMAZON, MINIO = "s3.amazonaws.com", "minio:9000"


class Answer:
    def __init__(self, text: str, status: int = 200) -> None:
        self.status, self.data = status, text.encode()
        self.headers: dict[str, str] = {}


class Host:
    """What stands beside a process; ``Host`` is the pool of connections to it."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.answers: dict[str, Answer] = {}
        self.life = datetime.timedelta(hours=1)

    def urlopen(self, method: str, url: str, headers: dict[str, str] | None = None, **_: Any) -> Answer:
        self.requests.append((method, url, dict(headers or {})))
        for part, answer in self.answers.items():
            if part in url:
                return answer
        raise ConnectTimeoutError(None, "nobody answers")

    def keys(self, key: str) -> Answer:
        until = datetime.datetime.now(datetime.UTC) + self.life
        return Answer(
            json.dumps(
                {
                    "Code": "Success",
                    "AccessKeyId": key,
                    "SecretAccessKey": "hidden",
                    "Token": "t",
                    "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
                }
            )
        )


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Host:
    for name in ("AWS_ACCESS_KEY_ID", "MINIO_ACCESS_KEY", "MINIO_ROOT_USER", "AWS_EC2_METADATA_DISABLED", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    web_host = Host()
    monkeypatch.setattr(credentials, "PoolManager", lambda **_: web_host)
    return web_host


def test_an_instance_tells_its_role(host: Host) -> None:
    host.answers = {
        "/api/token": Answer("the-token"),
        "/security-credentials/reports": host.keys("first"),
        "/security-credentials/": Answer("reports"),
    }
    chain = S3Credentials(Settings({}), AMAZON)
    assert chain.retrieve().access_key == "first"
    assert [method for method, _, _ in host.requests] == ["PUT", "GET", "GET"]
    assert host.requests[-1][2] == {"X-aws-ec2-metadata-token": "the-token"}
    assert chain.retrieve().access_key == "first"
    assert len(host.requests) == 3, "they are kept while they are valid"
    assert chain.source == "the role of the instance"
    assert "hidden" not in repr(chain)


def test_what_runs_out_is_asked_for_again(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/creds")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "pass")
    host.life = datetime.timedelta(seconds=1)
    host.answers = {"/creds": host.keys("first")}
    chain = S3Credentials(Settings({}), MINIO)
    assert chain.retrieve().access_key == "first"
    host.answers = {"/creds": host.keys("second")}
    assert chain.retrieve().access_key == "second"
    assert host.requests[0] == ("GET", "http://169.254.170.2/creds", {"Authorization": "pass"})


def test_a_web_identity_is_exchanged(host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "identity").write_text("hidden.web.token")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "identity"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/reports")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://minio:9000/")
    host.answers = {
        "http://minio:9000?": Answer(
            '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            "<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>of-web</AccessKeyId>"
            "<SecretAccessKey>hidden</SecretAccessKey><SessionToken>t</SessionToken>"
            "<Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"
            "</AssumeRoleWithWebIdentityResponse>"
        )
    }
    chain = S3Credentials(Settings({}), MINIO)
    assert chain.retrieve().access_key == "of-web"
    method, url, _ = host.requests[0]
    query = parse_qs(urlsplit(url).query)
    assert (method, query["Action"], query["RoleArn"]) == (
        "POST", ["AssumeRoleWithWebIdentity"], ["arn:aws:iam::1:role/reports"],
    )  # fmt: skip
    host.answers = {"http://minio:9000?": Answer("refused", 403)}
    with pytest.raises(CheckpointStorageError, match=r"AWS_WEB_IDENTITY_TOKEN_FILE.* gives no credentials") as caught:
        S3Credentials(Settings({}), MINIO).retrieve()
    assert "hidden" not in str(caught.value)


def test_a_host_that_declares_a_role_and_does_not_answer_is_away(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/creds")
    with pytest.raises(ConnectTimeoutError):
        S3Credentials(Settings({}), MINIO).retrieve()


def test_only_hosts_of_amazon_have_a_role_that_nobody_declares(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (MINIO, AMAZON, "bucket.s3.cn-north-1.amazonaws.com.cn:443"):
        with pytest.raises(CheckpointStorageError, match="there are no credentials"):
            S3Credentials(Settings({}), place).retrieve()
    assert len(host.requests) == 2
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(CheckpointStorageError, match="there are no credentials"):
        S3Credentials(Settings({}), AMAZON).retrieve()
    assert len(host.requests) == 2
