from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.runtime.exchange import handshake
from firesteel.runtime.exchange.handshake import AcceptingHandshake, ConnectingHandshake, Identity, RefusedError

SECRET = b"s" * 32
A = Identity("job", 3, "a")
B = Identity("job", 3, "b")


def hello(
    me: Identity = A, target: str = "b", secret: bytes = SECRET
) -> tuple[ConnectingHandshake, AcceptingHandshake]:
    connecting, accepting = ConnectingHandshake("slot b", me, target, secret), AcceptingHandshake("connection")
    assert accepting.feed(connecting.start()) == b""
    return connecting, accepting


def test_both_sides_agree_and_keep_what_came_behind() -> None:
    connecting, accepting = hello()
    proof = connecting.feed(accepting.answer(B, SECRET, ["a"]))
    welcome = accepting.feed(proof + b"first frame")
    connecting.feed(welcome + b"and its answer")
    assert connecting.done
    assert accepting.done
    assert accepting.leftover == b"first frame"
    assert connecting.leftover == b"and its answer"
    assert accepting.peer == "slot a (connection)"


def test_byte_by_byte() -> None:
    connecting, accepting = ConnectingHandshake("slot b", A, "b", SECRET), AcceptingHandshake("connection")
    for byte in connecting.start():
        assert accepting.hello is None
        accepting.feed(bytes([byte]))
    proof = b"".join(connecting.feed(bytes([byte])) for byte in accepting.answer(B, SECRET, ["a"]))
    welcome = b"".join(accepting.feed(bytes([byte])) for byte in proof)
    for byte in welcome:
        connecting.feed(bytes([byte]))
    assert connecting.done
    assert accepting.done


@pytest.mark.parametrize(
    ("me", "target", "reason", "stale"),
    [
        (replace(A, job_id="other"), "b", "belongs to job other", False),
        (replace(A, job_attempt=2), "b", "attempt 2 of the job, this slot attempt 3", True),
        (replace(A, job_attempt=4), "b", "attempt 4 of the job, this slot attempt 3", False),
        (replace(A, allocation_id="stranger"), "b", "expects no connection", False),
        (A, "c", "looks for slot c", False),
    ],
)
def test_the_accepting_side_refuses_who_does_not_belong_here(
    me: Identity, target: str, reason: str, stale: bool
) -> None:
    connecting, accepting = hello(me, target)
    with pytest.raises(RefusedError, match=reason) as caught:
        accepting.answer(B, SECRET, ["a"])
    assert caught.value.stale is stale
    with pytest.raises(RefusedError, match=f"slot b: it refused the connection: .*{reason}"):
        connecting.feed(caught.value.reply)


def test_the_connecting_side_notices_a_wrong_secret_and_tells() -> None:
    connecting, accepting = hello()
    with pytest.raises(RefusedError, match="slot b: wrong secret") as caught:
        connecting.feed(accepting.answer(B, b"guess", ["a"]))
    with pytest.raises(RefusedError, match=r"slot a .*refused the connection: wrong secret"):
        accepting.feed(caught.value.reply)


def test_the_accepting_side_notices_a_wrong_secret() -> None:
    class Careless(ConnectingHandshake):
        """Believes everybody, as an attacker would."""

        def feed(self, data: bytes) -> bytes:
            answer = json.loads(data[handshake._PREFIX.size :])
            proof = handshake._proof(b"guess", b"connect", self._hello, answer["hello"].encode())
            return handshake._message(handshake.HandshakeMessage.PROOF, proof.encode())

    attacker, accepting = Careless("slot b", A, "b", b"guess"), AcceptingHandshake("connection")
    accepting.feed(attacker.start())
    with pytest.raises(RefusedError, match="wrong secret"):
        accepting.feed(attacker.feed(accepting.answer(B, SECRET, ["a"])))
    assert not accepting.done


def test_the_proof_of_the_other_role_is_no_proof() -> None:
    connecting, accepting = hello()
    challenge = accepting.answer(B, SECRET, ["a"])
    proof = json.loads(challenge[handshake._PREFIX.size :])["proof"]
    with pytest.raises(RefusedError, match="wrong secret"):
        accepting.feed(handshake._message(handshake.HandshakeMessage.PROOF, proof.encode()))
    assert connecting.done is False


def test_what_was_recorded_of_another_connection_is_of_no_use() -> None:
    connecting, accepting = hello()
    challenge = accepting.answer(B, SECRET, ["a"])
    proof = connecting.feed(challenge)
    again, fresh = hello()
    with pytest.raises(RefusedError, match="wrong secret"):
        again.feed(challenge)
    fresh.answer(B, SECRET, ["a"])
    with pytest.raises(RefusedError, match="wrong secret"):
        fresh.feed(proof)


@pytest.mark.parametrize(
    ("answering", "reason"),
    [
        (replace(B, job_id="other"), "belongs to job other"),
        (replace(B, job_attempt=4), "attempt 4"),
        (replace(B, allocation_id="c"), "slot c answered in place of b"),
    ],
)
def test_the_connecting_side_checks_who_answers(
    answering: Identity, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting, accepting = hello()
    monkeypatch.setattr(handshake, "_check_identity", lambda *_: None)
    challenge = accepting.answer(answering, SECRET, ["a"])
    monkeypatch.undo()
    with pytest.raises(RefusedError, match=reason):
        connecting.feed(challenge)


def test_another_version_is_refused_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "VERSION", 7)
    start = ConnectingHandshake("slot b", A, "b", SECRET).start()
    monkeypatch.undo()
    with pytest.raises(RefusedError, match=r"speaks version 7 .*, this side 1") as caught:
        AcceptingHandshake("connection").feed(start)
    monkeypatch.setattr(handshake, "VERSION", 7)
    with pytest.raises(RefusedError, match=r"slot b: it speaks version 1 .*, this side 7"):
        ConnectingHandshake("slot b", A, "b", SECRET).feed(caught.value.reply)


def test_going_on_before_the_answer_is_refused() -> None:
    _, accepting = hello()
    with pytest.raises(RefusedError, match="went on before"):
        accepting.feed(b"\0")


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"no json", "malformed"),
        (b"\xff", "malformed"),
        (b"[]", "malformed"),
        (b"[" * 4000, "malformed"),
        (json.dumps({"job": 1, "attempt": 0, "from": "a", "to": "b", "nonce": ""}).encode(), "malformed"),
        (json.dumps({"job": "j", "attempt": True, "from": "a", "to": "b", "nonce": ""}).encode(), "malformed"),
        (b"x" * 5000, "at most 4096"),
    ],
)
def test_malformed_hellos_are_refused(payload: bytes, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        AcceptingHandshake("connection").feed(handshake._message(handshake.HandshakeMessage.HELLO, payload))


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"FSY"])
def test_other_protocols_get_no_answer(data: bytes) -> None:
    with pytest.raises(RefusedError, match="does not speak the protocol") as caught:
        AcceptingHandshake("connection").feed(data)
    assert caught.value.reply == b""


@given(st.binary(max_size=200), st.integers(0, 5), st.booleans())
def test_garbage_only_ever_is_refused(garbage: bytes, kind: int, framed: bool) -> None:
    data = (
        handshake._PREFIX.pack(handshake.MAGIC, handshake.VERSION, kind, len(garbage)) + garbage if framed else garbage
    )
    sides: list[Any] = [AcceptingHandshake("peer"), ConnectingHandshake("peer", A, "b", SECRET)]
    answered = hello()[1]
    answered.answer(B, SECRET, ["a"])
    for side in [*sides, answered]:
        try:
            side.feed(data)
        except RefusedError as refused:
            reason = refused.reason
            assert reason
        assert not side.done
