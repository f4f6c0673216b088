"""Where slots listen, and which way leads to them: Unix sockets within a node, TCP to others."""

from __future__ import annotations

from pathlib import Path

import pytest

from firesteel.core.errors import ConfigurationError, ProtocolError
from firesteel.runtime.exchange.sockets import describe, is_numeric, listen_on, node_of, reach
from tests.unit.exchange.support import batch_of, drain, slots


def test_a_socket_in_the_same_directory_of_the_same_machine_is_on_this_node(tmp_path: Path) -> None:
    here = {"unix": f"{tmp_path}/s", "node": node_of(str(tmp_path)), "tcp": ["10.0.0.1", 7]}
    assert reach(here) == {"unix": f"{tmp_path}/s"}
    assert describe(here) == f"unix:{tmp_path}/s"


@pytest.mark.parametrize("case", ["another machine", "another file system", "not to be seen"])
def test_another_node_is_reached_by_tcp(tmp_path: Path, case: str) -> None:
    """Two containers of one machine have the same boot id, and perhaps the same paths."""
    (tmp_path / "other").mkdir()
    boot, device, inode = node_of(str(tmp_path)).rsplit("-", 2)
    node = {
        "another machine": f"{boot[::-1]}-{device}-{inode}",
        "another file system": node_of(str(tmp_path / "other")),
        "not to be seen": node_of(str(tmp_path)),
    }[case]
    folder = tmp_path / "gone" if case == "not to be seen" else tmp_path
    address = {"unix": f"{folder}/s", "node": node, "tcp": ["10.0.0.1", 7]}
    assert reach(address) == {"tcp": ["10.0.0.1", 7]}
    assert describe(address) == "10.0.0.1:7"
    del address["tcp"]
    with pytest.raises(ConfigurationError, match=r"another node or gone.*taskmanager\.bind-host"):
        reach(address)


def test_a_listener_publishes_its_node(tmp_path: Path) -> None:
    sockets, address = listen_on([f"unix:{tmp_path}/s"])
    for sock in sockets:
        sock.close()
    assert address == {"unix": f"{tmp_path}/s", "node": node_of(str(tmp_path))}
    assert reach(address) == {"unix": f"{tmp_path}/s"}


@pytest.mark.parametrize("listen", [["udp:x"], ["unix:"], ["unix:{}/a", "unix:{}/b"], ["unix:{}/no/folder"]])
def test_what_can_not_be_listened_on_is_named(tmp_path: Path, listen: list[str]) -> None:
    listen = [text.format(tmp_path) for text in listen]
    with pytest.raises(ConfigurationError, match="can't listen on") as caught:
        listen_on(listen)
    assert listen[-1] in str(caught.value)


def test_names_are_told_from_addresses() -> None:
    assert [is_numeric(host) for host in ("10.0.0.1", "::1", "localhost", "node-7")] == [True, True, False, False]


@pytest.mark.parametrize("pair", ["ab", "ba"])
def test_a_peer_that_can_not_be_reached_is_an_error_at_once_which_says_what_to_do(tmp_path: Path, pair: str) -> None:
    with slots(tmp_path, "ab") as two:
        foreign = {name: {**address, "node": "elsewhere"} for name, address in two.peers.items()}
        two.configure(peers=foreign)
        two[pair[0]].output(0, 0, 0, pair[1], 0)
        two[pair[1]].input(0, 0, 0, pair[0])
        two.run()
        (error,) = two.failures["a"]  # the smaller id connects
        assert isinstance(error, ProtocolError)
        assert "taskmanager.bind-host" in error.reason
        assert "slot b" in error.peer


def test_slots_of_one_node_use_the_unix_socket(tmp_path: Path) -> None:
    with slots(tmp_path, "ab") as two:
        published = {name: {**address, "tcp": ["192.0.2.1", 9]} for name, address in two.peers.items()}
        two.configure(peers=published)  # nobody listens at that address
        output, channel = two["a"].output(0, 0, 0, "b", 0), two["b"].input(0, 0, 0, "a")
        output.write(batch_of(1, 2))
        two.run()
        assert drain(channel) == [1, 2]
