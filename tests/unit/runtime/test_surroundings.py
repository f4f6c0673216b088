"""What a slot takes from its environment, and what it hides from user code."""

from __future__ import annotations

import json

import pytest

from firesteel.core.errors import ConfigurationError
from firesteel.runtime.slot.surroundings import NETWORK_VARIABLE, listen_addresses, remove_wiring


def network(bind_host: str, host: str = "node-1", transport: str = "AUTO") -> dict[str, str]:
    return {NETWORK_VARIABLE: json.dumps({"bind_host": bind_host, "host": host, "transport": transport})}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ["unix:/run/s"]),
        (network("127.0.0.1"), ["unix:/run/s"]),
        (network("localhost"), ["unix:/run/s"]),
        (network("::1"), ["unix:/run/s"]),
        (network("0.0.0.0"), ["unix:/run/s", "tcp:0.0.0.0=node-1"]),
        (network("10.1.2.3"), ["unix:/run/s", "tcp:10.1.2.3=node-1"]),
        (network("node-1"), ["unix:/run/s", "tcp:node-1=node-1"]),
        (network("127.0.0.1", "127.0.0.1", "TCP"), ["tcp:127.0.0.1=127.0.0.1"]),
    ],
)
def test_loopback_needs_unix_sockets_only(environ: dict[str, str], expected: list[str]) -> None:
    assert listen_addresses("/run/s", environ) == expected


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null"])
def test_a_malformed_variable_is_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match=NETWORK_VARIABLE):
        listen_addresses("/run/s", {NETWORK_VARIABLE: text})


def test_user_code_finds_nothing_of_the_cluster() -> None:
    users = {
        "HOME": "/h",
        "PATH": "/bin",
        "AWS_SECRET_ACCESS_KEY": "the user's own",
        "MY_SPARK_JOB": "x",
        "PYTHONPATH": "",
    }
    cluster = {
        **network("127.0.0.1"), "FIRESTEEL_RUN_DIRECTORY": "/r", "FIRESTEEL_CONF_DIR": "/c", "SPARK_EXECUTOR_ID": "1",
        "SPARK_LOCAL_DIRS": "/l", "_PYSPARK_DRIVER_CONN_INFO_PATH": "/d", "PYTHON_WORKER_FACTORY_SOCK_PATH": "/w",
    }  # fmt: skip
    environ = {**users, **cluster}
    remove_wiring(environ)
    assert environ == users
