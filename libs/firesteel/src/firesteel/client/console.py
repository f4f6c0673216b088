"""Output of a command: result lines that scripts may read, notes for people, one live line, and a question."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
from collections.abc import Mapping
from typing import Any, Final, TextIO

from firesteel.core.text_output import write_text

_CLEAR_LINE: Final = "\r\x1b[2K"
_RED, _GREEN, _YELLOW, _BLUE, _DIM = 31, 32, 33, 34, 2
_COLOURS: Final = {
    "RUNNING": _GREEN, "FINISHED": _BLUE, "FAILED": _RED, "FAILING": _RED, "CANCELED": _DIM, "CANCELLING": _YELLOW,
    "CANCELING": _YELLOW, "RESTARTING": _YELLOW, "INITIALIZING": _YELLOW, "DEPLOYING": _YELLOW, "SCHEDULED": _YELLOW,
    "CREATED": _DIM, "ERROR": _RED, "warning": _YELLOW, "ok": _GREEN,
}  # fmt: skip
"""SGR codes of states of jobs and tasks, and of the findings of ``firesteel doctor``."""
_STATE: Final = re.compile(rf"(?:(?<=  )|(?<=\()|^)({'|'.join(_COLOURS)})(?=[ ):]|$)", re.MULTILINE)
"""A state where it stands alone: in a column, in brackets, or at the beginning of a line; not within a name."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters other than tab and line feed."""


class Console:
    """Standard output is for results, standard error for everything else.

    Args:
        out: standard output; None = the process's own, looked up at each use.
        err: standard error, by the same rule.
        into: standard input, by the same rule.
    """

    quiet_seconds: float = 0.0
    """The progress of a job is not shown before it has run for so long."""
    keeps_last_line: bool = False
    """Whether the live line stays when a job has ended."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None, into: TextIO | None = None) -> None:
        self._fixed_out, self._fixed_err, self._fixed_into = out, err, into
        self._live = False
        self._lock = threading.RLock()
        """Failures of a job are written by another thread than its progress."""

    @property
    def _out(self) -> TextIO:
        return self._fixed_out or sys.stdout

    @property
    def _err(self) -> TextIO:
        return self._fixed_err or sys.stderr

    @property
    def _into(self) -> TextIO:
        return self._fixed_into or sys.stdin

    @property
    def has_live_line(self) -> bool:
        """Whether standard error is a terminal, where a line can be overwritten."""
        return _is_terminal(self._err)

    @property
    def is_terminal(self) -> bool:
        """Whether standard output is a terminal."""
        return _is_terminal(self._out)

    @property
    def can_ask(self) -> bool:
        """Whether a question can be asked: standard error and input are terminals."""
        return _is_terminal(self._err) and _is_terminal(self._into)

    def say(self, text: str) -> None:
        """Write a line to standard output."""
        with self._lock:
            self.clear()
            write_text(self._out, text + "\n")
            self._out.flush()

    def say_states(self, text: str) -> None:
        """Write lines to standard output, with states in colours where that is a terminal which shows them.

        They have names that others have given, to jobs say, which must not command the terminal: their control
        characters are shown as ``\\x1b``.
        """
        if self.is_terminal:
            text = _CONTROL.sub(lambda control: f"\\x{ord(control[0]):02x}", text)
        wants_colours = self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        if wants_colours:
            text = _STATE.sub(lambda match: f"\x1b[{_COLOURS[match[1]]}m{match[1]}\x1b[0m", text)
        self.say(text)

    def say_json(self, value: Any) -> None:
        """Write a JSON document to standard output."""
        self.say(json.dumps(value, indent=2))

    def say_result(self, as_json: bool, text: str, plain: Mapping[str, Any]) -> None:
        """Write a result, as text for people or as JSON for programs."""
        if as_json:
            self.say_json(plain)
        else:
            self.say(text)

    def note(self, text: str) -> None:
        """Write a line to standard error."""
        with self._lock:
            self.clear()
            write_text(self._err, text + "\n")
            self._err.flush()

    def live(self, text: str) -> None:
        """Show this in place of the last live line; only where ``has_live_line``."""
        width = shutil.get_terminal_size().columns
        with self._lock:
            write_text(self._err, _CLEAR_LINE + text[: max(1, width - 1)])
            self._err.flush()
            self._live = True

    def clear(self) -> None:
        """Take the live line away."""
        with self._lock:
            if self._live:
                self._live = False
                self._err.write(_CLEAR_LINE)
                self._err.flush()

    def how_to_cancel(self, job_id: str) -> str:
        """What a person can write here to cancel a job."""
        return f"`firesteel cancel {job_id}`"

    def ask(self, question: str) -> bool | None:
        """A yes-or-no question; no answer is no; None at the end of the input.

        Raises:
            KeyboardInterrupt: Ctrl-C instead of an answer.
        """
        self.clear()
        write_text(self._err, f"{question} [y/N] ")
        self._err.flush()
        answer = self._into.readline()
        return answer.strip().lower() in ("y", "yes") if answer else None


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False
