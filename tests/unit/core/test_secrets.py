from __future__ import annotations

import hashlib
import hmac
import logging
from pathlib import Path

import pytest

from firesteel.config.secret import load_secret
from firesteel.config.settings import Settings
from firesteel.core.environment import scrub, without_secrets
from firesteel.core.errors import ConfigurationError
from firesteel.core.refusals import KEPT_PEERS, MOST_LINES, WINDOW_SECONDS, RefusalLog
from firesteel.core.secret import derive, job_secret, new_salt, rest_token, spark_secret
from firesteel.testing.clock import ManualClock

SECRET = "0123456789abcdef"


def secret_file(path: Path, text: str = SECRET, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_variable_is_read_and_removed() -> None:
    environ = {"FIRESTEEL_SECRET": f" {SECRET}\n", "PATH": "/bin"}
    assert load_secret(Settings(), environ) == SECRET
    assert environ == {"PATH": "/bin"}


def test_the_file_goes_before_the_variable_which_is_removed_all_the_same(tmp_path: Path) -> None:
    file = secret_file(tmp_path / "s", "of the file, long enough")
    environ = {"FIRESTEEL_SECRET": SECRET}
    settings = Settings({"firesteel.security.secret-file": str(file)})
    assert load_secret(settings, environ) == "of the file, long enough"
    assert environ == {}


def test_relative_files_lie_beside_the_configuration(tmp_path: Path) -> None:
    secret_file(tmp_path / "mine")
    settings = Settings({"firesteel.security.secret-file": "mine"})
    assert load_secret(settings, {"FIRESTEEL_CONF_DIR": str(tmp_path)}) == SECRET
    assert load_secret(settings, {}, tmp_path) == SECRET


def test_a_file_of_the_usual_name_is_found(tmp_path: Path) -> None:
    secret_file(tmp_path / "cluster-secret", "the one beside config.yaml")
    assert load_secret(Settings(), {}, tmp_path) == "the one beside config.yaml"
    assert load_secret(Settings(), {"FIRESTEEL_SECRET": SECRET}, tmp_path) == SECRET


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_files_that_others_may_read_are_refused(tmp_path: Path, mode: int) -> None:
    secret_file(tmp_path / "cluster-secret", mode=mode)
    with pytest.raises(ConfigurationError, match=f"mode {mode:04o}"):
        load_secret(Settings(), {}, tmp_path)


def test_the_owner_may_have_no_write_permission(tmp_path: Path) -> None:
    secret_file(tmp_path / "cluster-secret", mode=0o400)
    assert load_secret(Settings(), {}, tmp_path) == SECRET


@pytest.mark.parametrize("text", ["", "   \n", "short", "x" * 5000])
def test_lengths_are_bounded(tmp_path: Path, text: str) -> None:
    secret_file(tmp_path / "cluster-secret", text)
    with pytest.raises(ConfigurationError, match="characters"):
        load_secret(Settings(), {}, tmp_path)
    with pytest.raises(ConfigurationError, match="the variable FIRESTEEL_SECRET"):
        load_secret(Settings(), {"FIRESTEEL_SECRET": text})


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cluster-secret").write_bytes(b"\xff" * 32)
    (tmp_path / "cluster-secret").chmod(0o600)
    with pytest.raises(ConfigurationError, match="does not hold text"):
        load_secret(Settings(), {}, tmp_path)


def test_no_secret_at_all_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"set firesteel\.security\.secret-file"):
        load_secret(Settings(), {}, tmp_path)


def test_derived_keys_differ_by_secret_and_purpose() -> None:
    keys = {derive(secret, purpose) for secret in ("a", "b") for purpose in ("rest", "rpc")}
    assert len(keys) == 4
    assert rest_token("a") == derive("a", "rest")
    assert len(rest_token("a")) == 64


def test_secrets_of_spark_and_of_jobs_follow_from_the_clusters_and_a_salt() -> None:
    secret, salt = "the secret of a cluster", new_salt()
    assert salt != new_salt()
    assert bytes.fromhex(salt)
    # HMAC-SHA256, twice; both ends of a call have to come to the same, in every release that may speak with this one.
    key = hmac.new(secret.encode(), b"job", hashlib.sha256).hexdigest()
    assert job_secret(secret, salt) == hmac.new(key.encode(), salt.encode(), hashlib.sha256).hexdigest()
    derived = {
        make(cluster_secret, other)
        for make in (job_secret, spark_secret)
        for cluster_secret in (secret, "x")
        for other in (salt, "y")
    }
    assert len(derived) == 8
    assert all(len(bytes.fromhex(text)) == 32 for text in derived)
    assert not derived & {derive(secret, purpose) for purpose in ("job", "spark", "rpc", "rest", salt)}


def test_environments_for_user_code_hold_no_secrets() -> None:
    environ = {
        "FIRESTEEL_SECRET": "1",
        "FIRESTEEL_SECRET_OLD": "2",
        "FIRESTEEL_OPTION_S3_SECRET_KEY": "3",
        "PYTHON_WORKER_FACTORY_SECRET": "4",
        "_SPARK_AUTH_SECRET": "5",
        "PATH": "/bin",
        "FIRESTEEL_RUN_DIRECTORY": "/run",
        "SECRET_SAUCE": "the user's own",
    }
    expected = {"PATH": "/bin", "FIRESTEEL_RUN_DIRECTORY": "/run", "SECRET_SAUCE": "the user's own"}
    assert without_secrets(environ) == expected
    assert len(environ) == 8
    scrub(environ)
    assert environ == expected


def test_refusals_are_logged_once_for_each_peer_and_kind(caplog: pytest.LogCaptureFixture) -> None:
    log = RefusalLog(logging.getLogger("test"), "the door")
    for number in range(250):
        log.refused("10.0.0.1", f"garbage {number}", "garbage")
    log.refused("10.0.0.2", "garbage", "garbage")
    log.refused("10.0.0.1", "no signature")
    assert [record.getMessage() for record in caplog.records] == [
        "the door refused 10.0.0.1: garbage 0",
        "the door refused 10.0.0.1 10 times so far: garbage 9",
        "the door refused 10.0.0.1 100 times so far: garbage 99",
        "the door refused 10.0.0.2: garbage",
        "the door refused 10.0.0.1: no signature",
    ]
    assert log.count("10.0.0.1", "garbage") == 250


def test_many_refused_peers_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    log = RefusalLog(logging.getLogger("test"), "the door", clock)
    for number in range(MOST_LINES + 7):
        log.refused(f"peer {number}", "garbage")
    assert len(caplog.records) == MOST_LINES
    clock.advance(WINDOW_SECONDS)
    log.refused("one more", "garbage")
    log.refused("and another", "garbage")
    assert [record.getMessage() for record in caplog.records[MOST_LINES:]] == [
        "the door refused one more: garbage (7 refusals of others before it were not logged)",
        "the door refused and another: garbage",
    ]


def test_the_log_of_refusals_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    log = RefusalLog(logging.getLogger("test"), "the door")
    for number in range(KEPT_PEERS + 10):
        log.refused(f"peer {number}", "garbage")
    assert len(log._counts) == KEPT_PEERS
    assert log.count("peer 0", "garbage") == 0
