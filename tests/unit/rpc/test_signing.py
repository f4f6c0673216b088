from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.core.errors import UnauthorizedError
from firesteel.rpc import signing
from firesteel.rpc.signing import ANSWER_HEADER, Signer
from firesteel.testing.clock import ManualClock

SECRET = "a secret of the cluster"
URL = "http://Node1:6123/rpc/echo?x=1"
HOST, PATH = "node1:6123", "/rpc/echo?x=1"


def clock(epoch_ms: int = 1_700_000_000_000) -> ManualClock:
    return ManualClock(epoch_ms=epoch_ms)


def pair() -> tuple[Signer, Signer, ManualClock]:
    time = clock()
    return Signer(SECRET, time), Signer(SECRET, time), time


def test_a_signed_request_is_accepted_once() -> None:
    caller, callee, _ = pair()
    header = caller.headers("POST", URL, b"body")["Authorization"]
    verified = callee.verify("POST", HOST, PATH, header)
    assert verified.digest == hashlib.sha256(b"body").hexdigest()
    with pytest.raises(UnauthorizedError, match="repeat"):
        callee.verify("POST", HOST, PATH, header)
    callee.verify("POST", HOST, PATH, caller.headers("POST", URL, b"body")["Authorization"])


def test_the_secret_is_not_in_the_header() -> None:
    caller, _, _ = pair()
    assert SECRET not in str(caller.headers("POST", URL, b"body"))


@pytest.mark.parametrize(
    ("method", "host", "path"),
    [("GET", HOST, PATH), ("POST", "node2:6123", PATH), ("POST", HOST, "/rpc/other?x=1"), ("POST", HOST, "/rpc/echo")],
)
def test_a_signature_is_for_one_method_host_and_path(method: str, host: str, path: str) -> None:
    caller, callee, _ = pair()
    with pytest.raises(UnauthorizedError, match="secrets differ"):
        callee.verify(method, host, path, caller.headers("POST", URL)["Authorization"])


def changed(position: int) -> Callable[[str], str]:
    def change(header: str) -> str:
        fields = header.split(" ")
        last = fields[position][-1]
        fields[position] = fields[position][:-1] + ("0" if last != "0" else "1")
        return " ".join(fields)

    return change


@pytest.mark.parametrize("position", [1, 2, 3, 4, 5])
def test_no_field_can_be_changed(position: int) -> None:
    caller, callee, _ = pair()
    header = changed(position)(caller.headers("POST", URL, b"body")["Authorization"])
    with pytest.raises(UnauthorizedError, match="secrets differ"):
        callee.verify("POST", HOST, PATH, header)


def test_another_secret_is_refused() -> None:
    _, callee, time = pair()
    with pytest.raises(UnauthorizedError, match="secrets differ"):
        callee.verify("POST", HOST, PATH, Signer("another secret", time).headers("POST", URL)["Authorization"])


@given(st.one_of(st.none(), st.text(max_size=300), st.lists(st.text(max_size=70), max_size=6).map(" ".join)))
def test_whatever_a_header_holds_it_is_refused(header: str | None) -> None:
    with pytest.raises(UnauthorizedError):
        Signer(SECRET, clock()).verify("POST", HOST, PATH, header)


@given(when=st.text(max_size=20), nonce=st.text(min_size=32, max_size=32), mac=st.text(max_size=64))
def test_fields_of_the_right_length_are_refused_too(when: str, nonce: str, mac: str) -> None:
    header = f"Firesteel {when} {nonce} {'0' * 64} - {mac}"
    with pytest.raises(UnauthorizedError):
        Signer(SECRET, clock()).verify("POST", HOST, PATH, header)


@pytest.mark.parametrize(("skew", "text"), [(300_001, r"\+300 s"), (3_600_000, r"\+3600 s"), (-301_000, "-301 s")])
def test_a_clock_that_differs_too_much_is_named(skew: int, text: str) -> None:
    callee = Signer(SECRET, clock())
    header = Signer(SECRET, clock(1_700_000_000_000 + skew)).headers("POST", URL)["Authorization"]
    with pytest.raises(UnauthorizedError, match=f"clock differs from the one here by {text}"):
        callee.verify("POST", HOST, PATH, header)


def test_a_clock_may_differ_by_five_minutes() -> None:
    callee = Signer(SECRET, clock())
    for skew in (-300_000, 0, 300_000):
        header = Signer(SECRET, clock(1_700_000_000_000 + skew)).headers("POST", URL)["Authorization"]
        callee.verify("POST", HOST, PATH, header)
        with pytest.raises(UnauthorizedError, match="repeat"):
            callee.verify("POST", HOST, PATH, header)


def test_repeats_are_refused_as_long_as_the_clock_would_accept_them() -> None:
    caller, callee, time = pair()
    header = caller.headers("POST", URL)["Authorization"]
    callee.verify("POST", HOST, PATH, header)
    for _ in range(30):
        time.advance(10)
        callee.verify("POST", HOST, PATH, caller.headers("POST", URL)["Authorization"])
        with pytest.raises(UnauthorizedError, match="repeat"):
            callee.verify("POST", HOST, PATH, header)
    time.advance(1)
    with pytest.raises(UnauthorizedError, match="clock"):
        callee.verify("POST", HOST, PATH, header)


def test_old_nonces_are_forgotten() -> None:
    caller, callee, time = pair()
    for _ in range(200):
        time.advance(20)
        callee.verify("POST", HOST, PATH, caller.headers("POST", URL)["Authorization"])
    assert len(callee._seen._buckets) <= 17
    assert callee._seen._count == sum(len(bucket) for bucket in callee._seen._buckets.values()) <= 17


def test_nonces_are_bounded_and_what_is_forgotten_too_early_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "MOST_NONCES", 50)
    caller, callee, time = pair()
    first = caller.headers("POST", URL)["Authorization"]
    late = caller.headers("POST", URL)["Authorization"]
    callee.verify("POST", HOST, PATH, first)
    for _ in range(60):
        time.advance(1)
        callee.verify("POST", HOST, PATH, caller.headers("POST", URL)["Authorization"])
    assert callee._seen._count <= 50
    for header in (first, late):
        with pytest.raises(UnauthorizedError, match="repeat"):
            callee.verify("POST", HOST, PATH, header)


def test_an_answer_belongs_to_its_request() -> None:
    caller, callee, time = pair()
    nonce, _ = caller.sign("POST", URL, b"")
    headers = callee.answer_headers(nonce, 200, b"answer")
    assert caller.check_answer(nonce, 200, b"answer", headers)
    assert not caller.check_answer(nonce, 200, b"another", headers)
    assert not caller.check_answer(nonce, 500, b"answer", headers)
    assert not caller.check_answer("0" * 32, 200, b"answer", headers)
    assert not caller.check_answer(nonce, 200, b"answer", {})
    assert not caller.check_answer(nonce, 200, b"answer", {ANSWER_HEADER: "é"})
    foreign = Signer("another secret", time).answer_headers(nonce, 200, b"answer")
    assert not caller.check_answer(nonce, 200, b"answer", foreign)


def test_only_whole_urls_are_signed() -> None:
    with pytest.raises(ValueError, match="whole URL"):
        Signer(SECRET, clock()).headers("GET", "/blobs/1")
