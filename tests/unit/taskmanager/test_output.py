"""What slots print, on the TaskManager's own standard output."""

from __future__ import annotations

import io
import sys

import pytest

from firesteel.runtime.slot.stdio import OutputForwarder
from firesteel_taskmanager.output import SlotOutput


def test_text_comes_out_whatever_the_encoding_of_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    output = SlotOutput(None)
    output.write(1, "stdout", "5 €, ".encode())
    output.write(1, "stdout", "é".encode()[:1])  # cut between two messages
    output.write(1, "stdout", "é".encode()[1:] + b"\n")
    assert raw.getvalue() == b"5 \\u20ac, \\xe9\n"


def test_bytes_that_are_no_text_are_shown() -> None:
    text = list[str]()
    forwarder = OutputForwarder(text.append, "stdout")
    euro = "€".encode()
    forwarder.buffer.write(euro[:1])
    forwarder.buffer.write(euro[1:] + b" \xff\n")
    assert "".join(text) == "€ \\xff\n"
