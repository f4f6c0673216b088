from __future__ import annotations

from collections.abc import Callable

import pytest

from firesteel.config.addresses import (
    advertised_host,
    dispatcher_address,
    is_loopback,
    is_wildcard,
    jobmaster_address,
    resourcemanager_address,
    rest_address,
)
from firesteel.config.options import DISPATCHER_ADDRESS
from firesteel.config.settings import Settings
from firesteel.core.errors import ConfigurationError
from firesteel.service.middlewares import AcceptedNames

Address = Callable[[Settings], str]
PEERS = [
    (dispatcher_address, "firesteel.dispatcher.address", "jobmanager.rpc.port", 6123),
    (resourcemanager_address, "firesteel.resourcemanager.address", "firesteel.resourcemanager.port", 8082),
    (jobmaster_address, "firesteel.jobmaster.address", "firesteel.jobmaster.port", 6124),
]


@pytest.mark.parametrize(("address", "own", "port", "default"), PEERS)
def test_peers_are_found_by_their_own_address_or_the_common_host(
    address: Address, own: str, port: str, default: int
) -> None:
    assert address(Settings()) == f"http://127.0.0.1:{default}"
    assert address(Settings({"jobmanager.rpc.address": "jm", port: "7000"})) == "http://jm:7000"
    assert address(Settings({"jobmanager.rpc.address": "jm", own: "elsewhere:99"})) == "http://elsewhere:99"
    assert address(Settings({"jobmanager.rpc.address": "::1"})) == f"http://[::1]:{default}"
    assert address(Settings({own: "[::1]:99"})) == "http://[::1]:99"


@pytest.mark.parametrize(("address", "own", "port", "default"), PEERS)
@pytest.mark.parametrize("text", ["host", "host:", ":80", "host:x", "host:0", "http://host:80", "a@host:80", "h:1/x"])
def test_other_forms_are_refused(address: Address, own: str, port: str, default: int, text: str) -> None:
    with pytest.raises(ConfigurationError, match="expected host:port"):
        address(Settings({own: text}))


@pytest.mark.parametrize(("address", "own", "port", "default"), PEERS)
def test_any_port_can_not_be_found(address: Address, own: str, port: str, default: int) -> None:
    with pytest.raises(ConfigurationError, match=f"{port} is 0"):
        address(Settings({port: "0"}))


def test_clients_find_the_rest_api_and_services_their_own_name() -> None:
    assert rest_address(Settings({"rest.address": "front", "rest.port": "80"})) == "http://front:80"
    assert advertised_host(Settings({"jobmanager.rpc.address": "jm"}), DISPATCHER_ADDRESS) == "jm"
    assert advertised_host(Settings({"firesteel.dispatcher.address": "d:1"}), DISPATCHER_ADDRESS) == "d"


def test_a_stand_by_does_not_announce_the_host_that_the_settings_of_another_one_name() -> None:
    elected = {"high-availability.storageDir": "/ha", "jobmanager.rpc.address": "a", "jobmanager.bind-host": "0.0.0.0"}

    def announced(here: bool, **more: str) -> str:
        settings = Settings({**elected, **{key.replace("_", "."): value for key, value in more.items()}})
        return advertised_host(settings, DISPATCHER_ADDRESS, lambda host: here)

    assert announced(here=True) == "a"
    assert announced(here=False, **{"jobmanager.bind-host": "10.0.0.2"}) == "10.0.0.2"
    assert announced(here=False, firesteel_dispatcher_address="b:1") == "b"
    with pytest.raises(ConfigurationError, match=r"jobmanager\.rpc\.address = a is not this host"):
        announced(here=False)
    assert announced(here=False, **{"high-availability.type": "none"}) == "a", "others go where their settings say"


def test_kinds_of_hosts() -> None:
    assert all(is_wildcard(host) for host in ("", "0.0.0.0", "::"))
    assert not any(is_wildcard(host) for host in ("127.0.0.1", "localhost", "10.0.0.1", "host"))
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "10.0.0.1", "host", ""))


def test_names_of_a_service() -> None:
    names = AcceptedNames(["Front"])
    names.add("JobManager")
    for host in ("localhost", "localhost:8081", "127.0.0.1:1", "[::1]:8081", "front:80", "FRONT", "jobmanager:6123"):
        assert names.accepts_host(host), host
    for host in ("", "evil.example", "front.evil.example", "10.0.0.1", "localhost.evil.example:80", "[", "a b"):
        assert not names.accepts_host(host), host


def test_addresses_are_accepted_where_a_service_binds_to_all_of_them() -> None:
    names = AcceptedNames()
    names.any_address = True
    assert names.accepts_host("10.0.0.1:8081")
    assert names.accepts_host("[fe80::1]:8081")
    assert not names.accepts_host("evil.example")
    assert not names.accepts_origin("http://10.0.0.2", "10.0.0.1:8081")
    assert names.accepts_origin("http://10.0.0.1:8081", "10.0.0.1:8081")


def test_origins() -> None:
    names = AcceptedNames(["front"])
    assert names.accepts_origin("http://front", "localhost:1")
    assert names.accepts_origin("http://localhost:3000", "localhost:8081")
    assert names.accepts_origin("https://proxy.example", "proxy.example")
    for origin in ("null", "", "http://evil.example", "http://front.evil.example", "http://["):
        assert not names.accepts_origin(origin, "front"), origin
    assert AcceptedNames(["*"]).accepts_origin("http://any", "localhost")
