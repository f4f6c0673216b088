"""Values of users in messages."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.core.short_repr import short_repr


class Unshowable:
    def __repr__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("value", "begin"),
    [
        (Unshowable(), "<Unshowable instance at"),
        ([Unshowable()], "["),
        (list(range(10**6)), "[0, 1, 2"),
        ("x" * 10**6, "'xxx"),
        (b"x" * 10**6, "b'xxx"),
        ({i: i for i in range(10**5)}, "{0: 0"),
    ],
)
def test_records_are_shortened_whatever_they_are(value: Any, begin: str) -> None:
    text = short_repr(value)
    assert text.startswith(begin)
    assert len(text) <= 200


def test_an_object_that_only_looks_like_a_container() -> None:
    # reprlib goes by the name of the class; from Python 3.14 on by that of its module, too
    impostor = type("deque", (), {"__module__": "collections"})()
    assert short_repr(impostor) == "<deque whose repr raises TypeError>"


def test_the_limit() -> None:
    assert short_repr("x" * 300, 10) == "'" + "x" * 8 + "…"
