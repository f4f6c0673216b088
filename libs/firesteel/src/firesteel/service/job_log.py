"""Records of a job in the logs of a process, read at their end or from a moment on; no file is ever loaded as a whole.

A log is in order of time, so the place of a moment is found by bisection: some twenty reads of 64 KiB in a file of
10 GB. From there on it is read in pieces, until enough records are found or ``_MOST_SCANNED`` bytes are read; the
answer then says up to which moment it is complete, and whoever wants more asks from there.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Any, Final

from firesteel.core.errors import ConfigurationError
from firesteel.core.log_levels import level_number
from firesteel.core.text_output import ESCAPED
from firesteel.protocol import messages as m
from firesteel.service.process_logs import ProcessLogs, UnknownLogError

_PIECE: Final = 1 << 20
_PROBE: Final = 1 << 16
_MOST_SCANNED: Final = 1 << 24
_MOST_TEXT: Final = 1 << 21
"""Characters of all messages of an answer."""
_LONGEST: Final = 1 << 16
"""Characters at which a message is cut."""
_BEGIN: Final = re.compile(rb'^(?=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} |\{"time": ")', re.MULTILINE)
"""Where a record begins; lines without it (tracebacks) belong to the record before them."""
_RECORD: Final = re.compile(
    r"(?P<level>\w+) +(?P<logger>\S+?)(?: \[job=\w+(?: task=(?P<task>.*?\)#\d+)| [^\]]*)?\])?: (?P<message>.*)",
    re.DOTALL,
)
_SLOT_LOG: Final = re.compile(r"slot-\d+\.log")


def job_log(logs: ProcessLogs, request: m.ReadJobLog) -> m.JobLog:
    """The records of a job in the logs of this process.

    Args:
        logs: all that the process may show. A log that has the job's id in its name is the job's as a whole; of the
            others these are the records that name the job.
        request: which records.

    Raises:
        ConfigurationError: there is no such level.
    """
    scans = [_Scan(text, request) for text in _texts(logs, request.job_id)]
    forward = request.since >= 0
    for scan in scans:
        if forward:
            scan.read_from(request.since)
        else:
            scan.read_back()
    return merged([m.JobLog(tuple(scan.records), scan.complete_to) for scan in scans], forward, request.limit)


def merged(parts: Sequence[m.JobLog], forward: bool, limit: int) -> m.JobLog:
    """The records of several logs in order of time: as far as all of them are read, and no more than a limit.

    Args:
        parts: records of each log, each in order of time.
        forward: the first records count; else the last ones.
        limit: most records.
    """
    ends = [part.complete_to for part in parts if part.complete_to >= 0]
    end = (min(ends) if forward else max(ends)) if ends else -1
    records = sorted((record for part in parts for record in part.records), key=lambda record: record["time"])
    if end >= 0:
        # Reading on begins at ``end``: forward it is read once more, backward what is older than it.
        records = [record for record in records if (record["time"] < end if forward else record["time"] >= end)]
    if len(records) <= limit:
        return m.JobLog(tuple(records), end)
    if forward:
        end = records[limit]["time"]
        page = [record for record in records if record["time"] < end]
        if not page:  # more records than the limit in one millisecond
            page, end = [record for record in records if record["time"] == end], end + 1
        return m.JobLog(tuple(page), end)
    end = records[-limit]["time"]
    page = (
        [record for record in records if record["time"] > end]
        if records[-limit - 1]["time"] == end
        else records[-limit:]
    )
    if not page:
        page = [record for record in records if record["time"] == end]
    return m.JobLog(tuple(page), page[0]["time"])


class _Text:
    """A log with its rotated files, oldest first, as one text."""

    def __init__(self, logs: ProcessLogs, files: Sequence[tuple[str, int]], is_whole: bool) -> None:
        self._logs, self._names = logs, [name for name, _ in files]
        self._starts = [0, *accumulate(size for _, size in files)]
        self.start, self.size = logs.read(self._names[0], 0, 0).offset, self._starts[-1]
        """Positions of its first byte, which is not 0 where a ring has dropped bytes, and behind its last one."""
        self.is_whole = is_whole
        """Whether all of it is about the job."""

    def read(self, start: int, length: int) -> bytes:
        """Bytes from a position on, fewer at the end; what was rotated away meanwhile is missing."""
        end = min(self.size, start + length)
        parts: list[bytes] = []
        while start < end:
            file = bisect_right(self._starts, start) - 1
            length = min(end, self._starts[file + 1]) - start
            try:
                piece = self._logs.read(self._names[file], start - self._starts[file], length)
            except UnknownLogError:
                return b"".join(parts)
            # What a ring has dropped meanwhile is replaced, so that positions stay what they are.
            lost = min(length, piece.offset - (start - self._starts[file]))
            parts.append(b"\n" * lost + piece.data[: length - lost])
            start += length
        return b"".join(parts)

    def place_of(self, moment: int) -> int:
        """The position of the first record that is not older than a moment, or one a bit before it."""
        low, high = self.start, self.size
        while high - low > _PROBE:
            middle = (low + high) // 2
            time = next((time for time, _ in _records(self.read(middle, _PROBE))), None)
            if time is not None and time < moment:
                low = middle
            else:
                high = middle
        return low


class _Scan:
    """Reads a log, and keeps the records that a request wants."""

    def __init__(self, text: _Text, request: m.ReadJobLog) -> None:
        self._text, self._request = text, request
        self._job = request.job_id.encode()
        self._words = request.text.lower()
        self._least = level_number(request.level) if request.level else 0
        self.records: list[dict[str, Any]] = []
        self.complete_to = -1
        """Moment to which the log is read (forward: exclusive); -1 = all of it."""
        self._characters = 0

    @property
    def _is_full(self) -> bool:
        return len(self.records) > self._request.limit or self._characters > _MOST_TEXT

    def read_from(self, moment: int) -> None:
        """Read from a moment on."""
        at, scanned, last = self._text.place_of(moment), 0, moment
        while at < self._text.size:
            if self._is_full or scanned >= _MOST_SCANNED:
                self.complete_to = max(last, moment + 1)
                return
            data = self._text.read(at, _PIECE)
            is_end = at + len(data) >= self._text.size
            if not is_end:  # the last record may be cut: it is read with the next piece
                begins = [match.start() for match in _BEGIN.finditer(data)]
                data = data[: begins[-1]] if begins and begins[-1] else data
            if not data:
                return
            for time, record in _records(data):
                last = max(last, time)
                if self._request.until >= 0 and time >= self._request.until:
                    return
                if time >= moment:
                    self._look_at(time, record, self.records)
            at, scanned = at + len(data), scanned + len(data)

    def read_back(self) -> None:
        """Read from the end, or from ``until``, back to the beginning."""
        until, end = self._request.until, self._text.size
        if until >= 0:
            end = min(end, self._text.place_of(until) + 2 * _PROBE)
        scanned, first, last = 0, -1, -1
        while end > self._text.start:
            if self._is_full or scanned >= _MOST_SCANNED:
                # Older records of that millisecond may be in what is not read: all of it is read with those.
                self.complete_to = min(first + 1, last)
                return
            start = max(self._text.start, end - _PIECE)
            data = self._text.read(start, end - start)
            match = _BEGIN.search(data) if start > self._text.start else None
            begin = match.start() if match is not None else 0  # a record that is cut is read with the piece before it
            of_piece: list[dict[str, Any]] = []
            for time, record in _records(data[begin:]):
                first, last = time if first < 0 else min(first, time), max(last, time)
                if until < 0 or time < until:
                    self._look_at(time, record, of_piece)
            self.records[:0] = of_piece
            scanned, end = scanned + end - start, start + begin

    def _look_at(self, time: int, record: bytes, into: list[dict[str, Any]]) -> None:
        if not self._text.is_whole and self._job not in record:
            return
        text = record.decode("utf-8", ESCAPED).rstrip("\n")
        if self._words and self._words not in text.lower():
            return
        fields = _fields(text)
        if self._least and _level(fields["level"]) < self._least:
            return
        into.append({"time": time, **fields})
        self._characters += len(fields["message"])


def _texts(logs: ProcessLogs, job_id: str) -> Iterator[_Text]:
    sizes = {log.name: log.size for log in logs.listed()}
    main = logs.main
    for name in sizes:
        is_whole = job_id in name
        if not name.endswith(".log") or (name.startswith("jobmaster-") and not is_whole):
            continue
        if main and _SLOT_LOG.fullmatch(name):
            continue  # what slots log is in the log of their TaskManager
        rotated = [old for old in sizes if re.fullmatch(re.escape(name) + r"\.\d+", old)]
        rotated.sort(key=lambda old: -int(old.rpartition(".")[2]))
        yield _Text(logs, [(file, sizes[file]) for file in (*rotated, name)], is_whole)


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The records of a piece, with their times; what comes before the first one is left out."""
    begins = [match.start() for match in _BEGIN.finditer(data)]
    for begin, end in pairwise([*begins, len(data)]):
        record = data[begin:end]
        time = _time(record)
        if time is not None:
            yield time, record


def _time(record: bytes) -> int | None:
    try:
        if record.startswith(b"{"):
            moment = datetime.fromisoformat(record[10 : record.index(b'"', 10)].decode())
        else:
            moment = datetime.strptime(record[:23].decode(), "%Y-%m-%d %H:%M:%S,%f")
    except ValueError:
        return None
    return round(moment.timestamp() * 1000)


def _fields(text: str) -> dict[str, Any]:
    """Level, logger, task and message of a record."""
    if text.startswith("{"):
        try:
            plain: Mapping[str, Any] = json.loads(text.partition("\n")[0])
        except ValueError:
            return {"level": "INFO", "logger": "", "message": text[:_LONGEST]}
        message = "\n".join(str(plain[key]) for key in ("message", "exception", "stack") if key in plain)
        task = plain.get("task")
        fields = {"level": str(plain.get("level", "INFO")), "logger": str(plain.get("logger", ""))}
    else:
        match = _RECORD.match(text, 24)
        if match is None:
            return {"level": "INFO", "logger": "", "message": text[24:_LONGEST]}
        fields = {"level": match["level"], "logger": match["logger"]}
        message, task = match["message"], match["task"]
    return {**fields, "message": message[:_LONGEST], **({"task": str(task)} if task else {})}


def _level(name: str) -> int:
    try:
        return level_number(name)
    except ConfigurationError:  # a program's own level
        return 0
