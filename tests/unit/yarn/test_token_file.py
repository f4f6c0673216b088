"""Secrets in the file with a container's credentials."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from firesteel.core.errors import ConfigurationError
from firesteel_yarn.token_file import LOCATION, SECRET, keep_secret, read_secrets, secret_of_container

TOKEN = b"\x05alias" + b"\x03idn" + b"\x02pw" + b"\x04kind" + b"\x03svc"


def written(secrets: dict[str, bytes], tokens: int = 1) -> bytes:
    """As Hadoop's ``Credentials.writeTokenStorageToStream`` writes it; lengths up to 127, and 128 to 255."""

    def sized(data: bytes) -> bytes:
        return (bytes([len(data)]) if len(data) < 128 else b"\x8f" + bytes([len(data)])) + data

    rows = b"".join(sized(name.encode()) + sized(value) for name, value in secrets.items())
    return b"HDTS\0" + bytes([tokens]) + TOKEN * tokens + bytes([len(secrets)]) + rows


def test_secrets_are_found_behind_tokens() -> None:
    long = bytes(200)
    assert read_secrets(written({"a": b"1", "long": long}, 2)) == {"a": b"1", "long": long}
    assert read_secrets(written({}, 0)) == {}


@pytest.mark.parametrize("content", [b"", b"HDTS\x01\0\0", written({"a": b"12"})[:-1], b"HDTS\0\x01"])
def test_what_is_no_such_file_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"too early|no file of tokens"):
        read_secrets(content)


def test_the_secret_of_a_container_is_kept_for_its_user_alone(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_bytes(written({SECRET: b"the secret of the cluster"}))
    keep_secret({LOCATION: str(file)}, tmp_path, "secret")
    assert (tmp_path / "secret").read_text() == "the secret of the cluster"
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    keep_secret({LOCATION: str(file)}, tmp_path, "secret")  # a second attempt in the same directory


def test_without_credentials_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no container of YARN.*HADOOP_TOKEN_FILE_LOCATION"):
        secret_of_container({})
    with pytest.raises(ConfigurationError, match=r"can't be read: .*No such file"):
        secret_of_container({LOCATION: str(tmp_path / "none")})
    file = tmp_path / "tokens"
    file.write_bytes(written({"another": b"1"}))
    with pytest.raises(ConfigurationError, match="no secret of a cluster"):
        secret_of_container({LOCATION: str(file)})
