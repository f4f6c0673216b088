"""Writes what slot processes print and log to this process's output and log."""

from __future__ import annotations

import codecs
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from firesteel.core.text_output import ESCAPED
from firesteel.service.logs import FIELDS, FORMAT, FieldsFilter
from firesteel.service.otlp_logs import TRACE_FIELD
from firesteel.service.output_queue import OutputQueue

_FORMATTER: Final = logging.Formatter(FORMAT)
_FIELDS: Final = FieldsFilter()


class SlotOutput:
    """Text of slots goes to whatever ``sys.stdout`` and ``sys.stderr`` are at that moment.

    So it reaches a notebook's cell, pytest's capture or the terminal. Writing is direct: what a task printed is out
    before anybody hears that the task ended, unless the reader is slow; nobody waits for that.

    Args:
        stdout: gets the text of stdout instead.
        keep: gets a copy of all, with the control channel and ``out`` or ``log``.
    """

    def __init__(
        self, stdout: Callable[[str], None] | None, keep: Callable[[int, str, str], None] = lambda *_: None
    ) -> None:
        self._stdout, self._keep = stdout, keep
        self._out, self._err = OutputQueue("stdout"), OutputQueue("stderr")
        self._decoders: dict[tuple[int, str], codecs.IncrementalDecoder] = {}

    def write(self, channel: int, stream: str, data: bytes) -> None:
        """Write text that a slot has printed; a character may be cut between two messages."""
        key = (channel, stream)
        decoder = self._decoders.get(key)
        if decoder is None:
            decoder = self._decoders[key] = codecs.getincrementaldecoder("utf-8")(ESCAPED)
        text = decoder.decode(data)
        self._keep(channel, "out", text)
        self._put(stream, text)

    def write_of_child(self, channel: int, stream: str, data: bytes) -> None:
        """Write bytes that a child of a slot, or native code, has printed."""
        text = self._decoders.setdefault(
            (channel, f"{stream} of children"), codecs.getincrementaldecoder("utf-8")(ESCAPED)
        ).decode(data)
        self._keep(channel, "out", text)
        self._put(stream, text)

    def log(self, channel: int, message: Mapping[str, Any]) -> None:
        """Log a record of a slot, under the name of its logger there."""
        level = message.get("level")
        if isinstance(level, str):
            level = logging.getLevelNamesMapping().get(level.upper())
        number = level if isinstance(level, int) else logging.INFO
        name = str(message.get("logger") or "firesteel.slot")
        extra = {field: message[field] for field in (*FIELDS, TRACE_FIELD) if message.get(field) is not None}
        text = str(message.get("message", ""))
        record = logging.makeLogRecord(
            {"name": name, "levelno": number, "levelname": logging.getLevelName(number), "msg": text, **extra}
        )
        _FIELDS.filter(record)
        self._keep(channel, "log", _FORMATTER.format(record) + "\n")
        logging.getLogger(name).log(number, "%s", text, extra=extra)

    def forget(self, channel: int) -> None:
        """A channel is closed: write the bytes that are left of a cut character as escapes."""
        for key in [k for k in self._decoders if k[0] == channel]:
            rest = self._decoders.pop(key).decode(b"", final=True)
            self._put(key[1].partition(" ")[0], rest)

    def _put(self, stream: str, text: str) -> None:
        if not text:
            return
        if stream == "stdout" and self._stdout is not None:
            self._stdout(text)
            return
        (self._out if stream == "stdout" else self._err).write(text)

    def drain(self) -> None:
        """Wait until a reader that is slow has all of it, but not for one that has stopped reading."""
        self._out.drain()
        self._err.drain()
