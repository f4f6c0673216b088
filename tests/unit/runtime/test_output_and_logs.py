"""Forwarded output and logs."""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import Any

import pytest

from firesteel.protocol.stages import STDERR, STDOUT
from firesteel.runtime.bounded.printed import Printed
from firesteel.runtime.slot.slot_logging import LogRateLimiter, SlotLogHandler
from firesteel.runtime.slot.stdio import LARGEST_CHUNK, OutputForwarder
from tests.unit.runtime.support import ManualClock

KEY = ("logger", 20, "file.py", 1)


@pytest.fixture
def sent() -> list[str]:
    return []


def test_complete_lines_are_forwarded_and_the_rest_waits(sent: list[str]) -> None:
    stream = OutputForwarder(sent.append, "stdout")
    print("a", "b", file=stream)
    stream.write("half")
    stream.write(" line\nnext")
    assert sent == ["a b", "\n", "half line\n"] or sent == ["a b\n", "half line\n"]
    stream.flush()
    stream.flush()
    assert "".join(sent) == "a b\nhalf line\nnext"


def test_pieces_are_bounded(sent: list[str]) -> None:
    stream = OutputForwarder(sent.append, "stdout")
    stream.write("x" * (3 * LARGEST_CHUNK + 1) + "\n")
    for _ in range(3):
        stream.write("y" * (LARGEST_CHUNK // 2))
    assert all(len(text) <= LARGEST_CHUNK for text in sent)
    stream.flush()
    assert "".join(sent) == "x" * (3 * LARGEST_CHUNK + 1) + "\n" + "y" * (LARGEST_CHUNK // 2 * 3)


def test_bytes_go_the_same_way(sent: list[str]) -> None:
    stream = OutputForwarder(sent.append, "stdout")
    stream.buffer.write("é\n".encode())
    stream.buffer.write(b"\xff\n")
    stream.buffer.flush()
    assert "".join(sent) == "é\n\\xff\n"
    assert (stream.encoding, stream.name, stream.isatty()) == ("utf-8", "<stdout>", False)


def test_only_text_is_taken(sent: list[str]) -> None:
    with pytest.raises(TypeError, match="must be str, not bytes"):
        OutputForwarder(sent.append, "stdout").write(b"x")  # type: ignore[arg-type]


def test_each_place_in_the_code_has_its_own_budget() -> None:
    clock = ManualClock()
    limiter = LogRateLimiter(clock, burst=2, window=10)
    assert [limiter.admit(KEY)[0] for _ in range(4)] == [True, True, False, False]
    assert limiter.admit(("other", 20, "file.py", 1)) == (True, 0)
    clock.now += 10
    assert limiter.admit(KEY) == (True, 2)
    assert limiter.admit(KEY) == (True, 0)
    limiter.admit(KEY)
    assert limiter.drain() == [(KEY, 1)]
    assert limiter.drain() == []


class Logged:
    """A logger whose messages are kept."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.handler = SlotLogHandler(self.messages.append, ManualClock(), lambda: {"execution_id": "v_0_0"})
        self.logger = logging.Logger("mine", logging.INFO)
        self.logger.addHandler(self.handler)


def test_a_log_message_carries_its_execution() -> None:
    logged = Logged()
    logged.logger.warning("%d of %s", 1, "two")
    assert logged.messages == [
        {"type": "log", "level": "WARNING", "logger": "mine", "message": "1 of two", "execution_id": "v_0_0"}
    ]


def test_an_exception_is_logged_with_its_traceback() -> None:
    logged = Logged()
    try:
        raise KeyError("k")
    except KeyError:
        logged.logger.exception("failed")
    assert "KeyError: 'k'" in logged.messages[0]["message"]
    assert "Traceback" in logged.messages[0]["message"]


def test_what_was_suppressed_is_counted_at_the_end() -> None:
    logged = Logged()
    for i in range(60):
        logged.logger.info("record %d", i)
    assert len(logged.messages) == 50
    logged.handler.close()
    assert len(logged.messages) == 51
    assert logged.messages[-1]["message"].startswith("10 more messages from ")
    assert sys.modules[__name__].__file__ is not None


def test_a_message_that_cannot_be_formatted_hurts_nobody() -> None:
    logged = Logged()
    logged.logger.info("%d", "text")
    assert "could not be formatted" in logged.messages[0]["message"]


def test_a_bounded_task_takes_what_is_written_to_the_descriptor_of_its_streams() -> None:
    printed = Printed()
    with printed.in_place_of_streams():
        print("first")
        os.write(sys.stdout.fileno(), "by a child: é\n".encode())
        os.write(sys.stderr.fileno(), b"\xff\n")
    assert b"".join(piece[1:] for piece in printed.take() if piece[0] == STDOUT) == "first\nby a child: é\n".encode()
    assert dict(printed.last_of_code())[STDERR] == "\\xff\n"


def test_streams_without_a_pipe_say_so(sent: list[str]) -> None:
    with pytest.raises(io.UnsupportedOperation, match="no file descriptor"):
        OutputForwarder(sent.append, "stdout").fileno()


def test_characters_that_utf_8_lacks_are_escaped_in_bounded_tasks_and_in_children(sent: list[str]) -> None:
    text = "name \udc80 €\n"  # of a file, say
    printed = Printed()
    with printed.in_place_of_streams():
        print(text, end="")
    assert [piece[1:].decode() for piece in printed.take() if piece[0] == STDOUT] == ["name \\udc80 €\n"]
    pipe, descriptor = os.pipe()
    stream = OutputForwarder(sent.append, "stdout", lambda: descriptor)
    stream.before_fork()
    stream.after_fork_in_child()
    print(text, end="", file=stream)
    os.close(stream.forget_descriptor())
    with open(pipe, encoding="utf-8") as end:
        assert end.read() == "name \\udc80 €\n"
    assert sent == []
