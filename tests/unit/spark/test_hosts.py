"""Hosts in the URIs of Spark's endpoints."""

from __future__ import annotations

import socket

import pytest

from firesteel.core.errors import ConfigurationError
from firesteel.spark.hosts import spark_host


@pytest.mark.parametrize(
    ("host", "for_spark"),
    [
        ("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("[::1]", "[::1]"), ("fd00:0:0::5", "[fd00::5]"),
        ("node1", "node1"), ("node-1.example.com", "node-1.example.com"), ("0a1b2c", "0a1b2c"), ("", ""),
    ],
)  # fmt: skip
def test_addresses_of_ipv6_have_brackets_and_names_stay(host: str, for_spark: str) -> None:
    assert spark_host(host, "taskmanager.host") == for_spark


@pytest.mark.parametrize(("address", "for_spark"), [("10.1.2.3", "10.1.2.3"), ("fe80::1%eth0", "[fe80::1]")])
@pytest.mark.parametrize("host", ["task_manager", "-node", "node-.example", "node.1"])
def test_a_name_that_no_uri_can_have_is_replaced_by_its_address(
    monkeypatch: pytest.MonkeyPatch, host: str, address: str, for_spark: str
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (address, 0))])
    assert spark_host(host, "taskmanager.host") == for_spark


def test_a_host_without_an_address_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ConfigurationError, match=r"taskmanager\.host = 'task_manager' is no host name .*its address\."):
        spark_host("task_manager", "taskmanager.host")
