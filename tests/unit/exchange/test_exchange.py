"""Whole exchanges: who connects, who is refused, what waits, what is left behind."""

from __future__ import annotations

import errno
import os
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.core.errors import ConfigurationError, ProtocolError, SerializationError
from firesteel.runtime.exchange import Exchange
from firesteel.runtime.exchange.channels import ChannelId
from firesteel.runtime.exchange.frames import FrameKind, encode
from firesteel.runtime.exchange.handshake import ConnectingHandshake, Identity
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import END_OF_INPUT
from tests.unit.exchange.support import JOB, SECRET, ManualClock, Slots, batch_of, drain, run_idle, slots


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Slots]:
    with slots(tmp_path) as three_slots:
        yield three_slots


def test_records_pass_both_ways_over_one_connection(two: Slots) -> None:
    two.configure()
    there, back = two["a"].output(0, 0, 1, "b", 100), two["a"].input(1, 1, 0, "b")
    here, forth = two["b"].input(0, 0, 1, "a"), two["b"].output(1, 1, 0, "a", 100)
    there.write(batch_of(1, 2))
    there.end()
    forth.write(batch_of(3))
    forth.flush()
    two.run()
    assert drain(here) == [1, 2]
    assert drain(back) == [3]
    for exchange in two.exchanges.values():
        assert exchange.statistics().connections == 1
        assert exchange.statistics().connections_waiting == 0
    assert two["a"].statistics().bytes_sent == two["b"].statistics().bytes_received
    assert two.failures == {"a": [], "b": []}


def test_slots_may_be_deployed_in_any_order(two: Slots) -> None:
    two.configure("a")
    output = two["a"].output(0, 0, 0, "b", 0)
    output.write(batch_of("early"))
    two.run()
    assert two["b"].statistics().connections_waiting == 1
    two.advance(50)
    two.configure("b")
    two.run()
    channel = two["b"].input(0, 0, 0, "a")
    two.run()
    assert drain(channel) == ["early"]
    assert two.failures == {"a": [], "b": []}


def test_a_peer_that_starts_later_is_tried_again(tmp_path: Path) -> None:
    with slots(tmp_path, "a") as cluster:
        peers = {**cluster.peers, "b": {"unix": f"{tmp_path}/b"}}
        cluster.configure(peers=peers)
        output = cluster["a"].output(0, 0, 0, "b", 0)
        output.write(batch_of(1))
        cluster.advance(1)
        cluster.advance(30)
        late = Exchange(cluster.loop, [f"unix:{tmp_path}/b"], cluster.clock)
        late.configure(JOB, 0, SECRET, "b", peers)
        channel = late.input(0, 0, 0, "a")
        cluster.advance(0.3)
        assert drain(channel) == [1]
        assert cluster.failures == {"a": []}
        late.close()


def test_a_peer_that_never_comes_up_is_named_with_the_last_reason(tmp_path: Path) -> None:
    with slots(tmp_path, "a") as cluster:
        cluster.configure(peers={**cluster.peers, "b": {"unix": f"{tmp_path}/nobody"}})
        cluster["a"].output(0, 0, 0, "b", 0)
        for _ in range(70):
            cluster.advance(10)
        (error,) = cluster.failures["a"]
        assert (
            str(error) == f"slot b (unix:{tmp_path}/nobody): could not connect within 600 s: No such file or directory"
        )


def test_a_peer_that_never_connects_is_named(two: Slots) -> None:
    two.configure("b")
    two["b"].input(0, 0, 0, "a")
    two.advance(599)
    assert two.failures["b"] == []
    two.advance(2)
    (error,) = two.failures["b"]
    assert "it did not connect within 600 s; does code of the job keep its thread?" in str(error)


def test_a_peer_that_never_learns_its_job_is_given_up_by_both(two: Slots) -> None:
    two.configure("a")
    two["a"].output(0, 0, 0, "b", 0)
    two.run()
    two.advance(601)
    (error,) = two.failures["a"]
    assert "could not connect within 600 s" in str(error)
    assert two["b"].statistics().connections_waiting == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"secret": "ab" * 32}, "wrong secret"),
        ({"job_id": "1" * 32}, "it refused the connection: it belongs to job 0"),
        ({"job_attempt": 1}, "it refused the connection: it runs attempt 0 of the job, this slot attempt 1"),
    ],
)
def test_a_handshake_that_fails_names_peer_and_reason(two: Slots, change: dict[str, Any], reason: str) -> None:
    two.configure("a").configure("b", **change)
    two["a"].output(0, 0, 0, "b", 0)
    two.run()
    (error,) = two.failures["a"]
    assert isinstance(error, ProtocolError)
    assert error.peer.startswith("slot b (unix:")
    assert reason in error.reason
    assert two["b"].statistics().connections_refused == 1
    assert two["b"].statistics().connections == two["a"].statistics().connections == 0
    assert two.failures["b"] == []


def test_a_peer_of_a_later_job_attempt_waits(two: Slots) -> None:
    two.configure("b").configure("a", job_attempt=1)
    two["a"].output(0, 0, 0, "b", 0)
    two.run()
    assert two["b"].statistics().connections_waiting == 1


def test_a_peer_that_replaces_another_waits_until_this_slot_hears_of_it(tmp_path: Path) -> None:
    with slots(tmp_path, "abc") as cluster:
        cluster.configure("a").configure("c", peers={"a": {}})
        cluster["b"].configure(JOB, 0, SECRET, "b", cluster.peers)
        cluster["b"].output(0, 0, 0, "c", 0).write(batch_of("from the new one"))
        cluster.run()
        assert cluster["c"].statistics().connections_waiting == 1
        cluster.configure("c")
        channel = cluster["c"].input(0, 0, 0, "b")
        cluster.run()
        assert drain(channel) == ["from the new one"]
        assert not any(cluster.failures.values())


def test_a_peer_that_was_replaced_is_refused(tmp_path: Path) -> None:
    with slots(tmp_path, "abc") as cluster:
        cluster.configure("a", "b", "c").configure("c", peers={"b": cluster.peers["b"]})
        cluster["a"].output(0, 0, 0, "c", 0)
        cluster.run()
        (error,) = cluster.failures["a"]
        assert "expects no connection from it" in str(error)
        assert cluster.failures["c"] == []


def test_channels_to_other_peers_live_on_when_one_is_replaced(tmp_path: Path) -> None:
    with slots(tmp_path, "abc") as cluster:
        cluster.configure()
        staying, gone = cluster["a"].output(0, 0, 0, "b", 0), cluster["a"].output(1, 0, 0, "c", 0)
        channel = cluster["b"].input(0, 0, 0, "a")
        cluster["c"].input(1, 0, 0, "a")
        cluster.run()
        cluster.configure("a", peers={"b": cluster.peers["b"]})
        staying.write(batch_of(1))
        gone.write(batch_of(2))
        cluster.run()
        assert drain(channel) == [1]
        assert cluster["a"].statistics().connections == 1
        assert cluster.failures["a"] == []


@pytest.mark.parametrize("peer", ["a", "b"], ids=["within the slot", "between slots"])
def test_a_later_attempt_uses_the_same_connection(two: Slots, peer: str) -> None:
    two.configure()
    old_output, old_input = two["a"].output(0, 0, 0, peer, 0), two[peer].input(0, 0, 0, "a")
    two.run()
    old_output.write(batch_of("old"))
    output = two["a"].output(0, 0, 0, peer, 0, attempt=1)
    old_output.write(batch_of("old, too"))
    output.write(batch_of("new"))
    two.run()
    channel = two[peer].input(0, 0, 0, "a", attempt=1)
    old_output.write(batch_of("old for ever"))
    two.run()
    assert drain(channel) == ["new"]
    assert old_input is not channel
    assert two.failures == {"a": [], "b": []}
    assert two["b"].statistics().connections == (peer == "b")
    with pytest.raises(ConfigurationError, match=r"has an output already|attempt 1 runs"):
        two["a"].output(0, 0, 0, peer, 0)


class Bomb:
    exploded = False

    def __reduce__(self) -> Any:
        return setattr, (Bomb, "exploded", True)


def connect(exchange: Exchange) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(exchange.address["unix"])
    sock.setblocking(False)
    return sock


@pytest.mark.parametrize("configured", [True, False])
def test_nothing_is_unpickled_or_even_looked_at_before_the_handshake(two: Slots, configured: bool) -> None:
    if configured:
        two.configure("b")
        two["b"].input(0, 0, 0, "a")
    hello = ConnectingHandshake("b", Identity(JOB, 0, "a"), "b", b"guess").start()
    frame = encode(FrameKind.DATA, ChannelId(0, 0, 0), 0, 0, pickle.dumps([Bomb()]))
    for data in (frame, hello + frame, pickle.dumps(Bomb())):
        sock = connect(two["b"])
        sock.send(data)
        two.run()
        sock.close()
        two.run()
    assert not Bomb.exploded
    assert two["b"].statistics().connections == 0
    assert two["b"].statistics().connections_waiting == 0
    assert two.failures["b"] == []  # a stranger can't make the job fail


def test_connections_that_do_not_authenticate_in_time_are_closed(two: Slots) -> None:
    two.configure("b")
    silent, half = connect(two["b"]), connect(two["b"])
    half.send(ConnectingHandshake("b", Identity(JOB, 0, "a"), "b", b"guess").start())
    two.run()
    assert two["b"].statistics().connections_waiting == 2
    two.advance(11)
    assert two["b"].statistics().connections_waiting == 1  # half a handshake may be a slot whose thread is kept
    two.advance(600)
    assert two["b"].statistics().connections_waiting == 0
    assert two["b"].statistics().connections_refused == 2
    silent.close()
    half.close()


def test_more_strangers_than_can_wait_are_turned_away(two: Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.runtime.exchange.acceptor.MAX_WAITING", 3)
    strangers = [connect(two["b"]) for _ in range(5)]
    two.run()
    assert two["b"].statistics().connections_waiting == 3
    assert two["b"].statistics().connections_refused == 2
    for stranger in strangers:
        stranger.close()


def test_a_second_connection_of_a_slot_does_not_replace_the_first(two: Slots) -> None:
    two.configure()
    output, channel = two["a"].output(0, 0, 0, "b", 0), two["b"].input(0, 0, 0, "a")
    two.run()
    sock = connect(two["b"])
    handshake = ConnectingHandshake("b", Identity(JOB, 0, "a"), "b", bytes.fromhex(SECRET))
    sock.send(handshake.start())
    two.run()
    sock.send(handshake.feed(sock.recv(4096)))
    two.run()
    assert two["b"].statistics().connections_refused == 1
    output.write(batch_of(1))
    two.run()
    assert drain(channel) == [1]
    sock.close()


def test_a_lost_connection_is_reported_by_the_side_that_lives(two: Slots) -> None:
    two.configure()
    two["a"].output(0, 0, 0, "b", 0)
    two["b"].input(0, 0, 0, "a")
    two.run()
    two["a"].close()
    two.run()
    (error,) = two.failures["b"]
    assert isinstance(error, ProtocolError)
    assert error.peer.startswith("slot a (unix:")
    assert "it closed the connection: the slot closes its exchange" in error.reason
    assert two.failures["a"] == []


def test_without_on_failure_a_failure_goes_to_the_loop(two: Slots) -> None:
    errors: list[BaseException] = []
    two.loop.on_error = errors.append
    two.configure()
    two["b"].on_failure = None
    two["a"].output(0, 0, 0, "b", 0)
    two["b"].input(0, 0, 0, "a")
    two.run()
    two["a"].close()
    two.run()
    assert [type(error) for error in errors] == [ProtocolError]


def test_an_unpicklable_record_that_waited_reaches_on_failure(two: Slots) -> None:
    two.configure()
    two["a"].output(0, 0, 0, "b", 0).write(batch_of(Unpicklable()))
    two["b"].input(0, 0, 0, "a")
    two.run()
    assert [type(error) for error in two.failures["a"]] == [SerializationError]


class Unpicklable:
    def __reduce__(self) -> Any:
        raise ValueError("not me")


def test_channels_within_a_slot_need_no_connection(two: Slots) -> None:
    two.configure("a")
    output, channel = two["a"].output(0, 0, 0, "a", 100), two["a"].input(0, 0, 0, "a")
    output.write(batch_of(1))
    output.end()
    assert drain(channel) == [1]
    assert two["a"].statistics().connections == 0
    output = two["a"].output(1, 0, 0, "a", 100)
    output.write(batch_of(2))  # the consumer is made after the first record
    channel = two["a"].input(1, 0, 0, "a")
    assert channel.readable
    assert two["a"].statistics().queued_out > 0
    batch = channel.poll()
    assert batch is not END_OF_INPUT


def test_mistakes_are_named(two: Slots) -> None:
    with pytest.raises(ConfigurationError, match="not configured"):
        two["a"].output(0, 0, 0, "b", 0)
    for change, reason in (
        ({"window": 0}, "window 0"),
        ({"max_chunk": 0}, "max chunk"),
        ({"secret": "xyz"}, "not hex"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            two.configure("a", **change)
    two.configure("a")
    with pytest.raises(ConfigurationError, match="slot z is not among the peers of slot a"):
        two["a"].input(0, 0, 0, "z")
    for target in ("a", "b"):
        two["a"].output(0, 0, 0, target, 0)
        two["a"].input(0, 0, 0, target)
        with pytest.raises(ConfigurationError, match="has an output already"):
            two["a"].output(0, 0, 0, target, 0)
        with pytest.raises(ConfigurationError, match="has an input already"):
            two["a"].input(0, 0, 0, target)
    with pytest.raises(ConfigurationError, match="the exchange serves"):
        two["a"].configure("1" * 32, 0, SECRET, "a", two.peers)


@pytest.mark.parametrize("listen", ["", "unix:", "http://x", "unix:" + "x" * 200, "unix:/nowhere/at/all"])
def test_addresses_that_cannot_be_listened_on_are_named(listen: str) -> None:
    loop = TaskLoop(ManualClock())
    with pytest.raises(ConfigurationError, match="can't listen on"):
        Exchange(loop, [listen], ManualClock())
    loop.close()


def test_close_removes_the_socket_file_and_every_socket(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with slots(tmp_path) as cluster:
        cluster.configure()
        cluster["a"].output(0, 0, 0, "b", 0)
        cluster["b"].input(0, 0, 0, "a")
        cluster.run()
        stranger = connect(cluster["b"])
        cluster.run()
        assert sorted(os.listdir(tmp_path)) == ["a", "b"]
        assert os.stat(tmp_path / "a").st_mode & 0o777 == 0o600
        for exchange in cluster.exchanges.values():
            exchange.close()
            exchange.close()
        assert os.listdir(tmp_path) == []
        stranger.close()
        run_idle(cluster.loop)
        with pytest.raises(ConfigurationError, match="closed"):
            cluster["a"].output(5, 0, 0, "b", 0)
    if before:
        assert len(os.listdir("/proc/self/fd")) == before


def test_without_file_descriptors_the_listener_pauses(two: Slots) -> None:
    two.configure()
    calls: list[int] = []

    class Exhausted:
        """A listener whose process has no descriptor left, at first."""

        def __init__(self, listener: Any) -> None:
            self._listener = listener

        def accept(self) -> Any:
            calls.append(1)
            if len(calls) == 1:
                raise OSError(errno.EMFILE, "Too many open files")
            return self._listener.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._listener, name)

    acceptor = two["b"]._acceptor
    acceptor._stop_listening()
    acceptor._listeners[0] = Exhausted(acceptor._listeners[0])  # type: ignore[call-overload]
    acceptor._listen()
    output = two["a"].output(0, 0, 0, "b", 0)
    output.write(batch_of(1))
    channel = two["b"].input(0, 0, 0, "a")
    two.run()
    assert len(calls) == 1
    two.advance(1.1)
    assert drain(channel) == [1]
