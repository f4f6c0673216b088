"""Windows in plain Python, by brute force: what should come out. Written from Flink's description of windows, with
lists of records and nothing else; no timers, no state, no incremental anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

NEVER = -(2**63)
Result = tuple[Any, tuple[int, int], list[Any]]


@dataclass(eq=False)
class Live:
    """A window of a key that is still kept."""

    key: Any
    start: int
    end: int
    records: list[Any] = field(default_factory=list)
    counted: int = 0
    next_fire: int | None = None
    again: bool = False  # Flink's continuous trigger sets its timer anew when sessions merge, also one in the past

    @property
    def last(self) -> int:
        return self.end - 1


class Oracle:
    """Fixed windows (``size``, ``slide``, ``offset``) or sessions (``gap``), in event time.

    Args:
        trigger: ``("event",)``, ``("count", n)``, ``("continuous", interval)``.
        purging: throw records away after each evaluation.
    """

    def __init__(
        self,
        *,
        size: int = 0,
        slide: int = 0,
        offset: int = 0,
        gap: int = 0,
        lateness: int = 0,
        trigger: tuple[Any, ...] = ("event",),
        purging: bool = False,
    ) -> None:
        self.size, self.slide, self.offset, self.gap = size, slide, offset, gap
        self.lateness, self.trigger, self.purging = lateness, trigger, purging
        self.now = NEVER
        self.live: list[Live] = []
        self.late: list[Any] = []

    def over(self, window: Live) -> bool:
        return window.last + self.lateness <= self.now

    def record(self, value: Any, timestamp: int) -> list[Result]:
        key = value[0]
        in_time, results = False, []
        for window in self.windows(key, timestamp):
            if self.over(window):
                if window in self.live:
                    self.live.remove(window)
                continue
            in_time = True
            if window not in self.live:
                self.live.append(window)
            window.records.append(value)
            if self.fires_by_record(window, timestamp):
                results += self.fire(window)
        if not in_time and timestamp + self.lateness <= self.now:
            self.late.append(value)
        return results

    def windows(self, key: Any, timestamp: int) -> list[Live]:
        if self.gap:
            return [self.session(key, timestamp, timestamp + self.gap)]
        live = []
        start = self.offset + (timestamp - self.offset) // self.slide * self.slide
        while start + self.size > timestamp:
            same = [w for w in self.live if (w.key, w.start) == (key, start)]
            live.append(same[0] if same else Live(key, start, start + self.size))
            start -= self.slide
        return live

    def session(self, key: Any, start: int, end: int) -> Live:
        """What the sessions that this one overlaps or touches become."""
        parts = sorted(
            (w for w in self.live if w.key == key and w.start <= end and w.end >= start), key=lambda w: w.start
        )
        if not parts:
            return Live(key, start, end)
        if len(parts) == 1 and parts[0].start <= start and parts[0].end >= end:
            return parts[0]
        fires = [w.next_fire for w in parts if w.next_fire is not None]
        whole = Live(key, min(start, parts[0].start), max(end, *(w.end for w in parts)))
        whole.records = [record for part in parts for record in part.records]
        whole.counted = sum(part.counted for part in parts)
        whole.next_fire = min(fires) if fires else None
        whole.again = whole.next_fire is not None and whole.next_fire <= self.now
        for part in parts:
            self.live.remove(part)
        self.live.append(whole)
        return whole

    def fires_by_record(self, window: Live, timestamp: int) -> bool:
        kind = self.trigger[0]
        if kind == "count":
            window.counted += 1
            if window.counted < self.trigger[1]:
                return False
            window.counted = 0
            return True
        if window.last <= self.now:
            return True
        if kind == "continuous" and window.next_fire is None:
            interval = self.trigger[1]
            window.next_fire = min(timestamp // interval * interval + interval, window.last)
        return False

    def fire(self, window: Live) -> list[Result]:
        if not window.records:
            return []
        result = (window.key, (window.start, window.end), list(window.records))
        if self.purging:
            window.records.clear()
        return [result]

    def watermark(self, time: int) -> list[tuple[int, Result]]:
        """Results with the time at which each is due."""
        before, self.now = self.now, time
        results: list[tuple[int, Result]] = []
        for window in self.live:
            due = set()
            if self.trigger[0] != "count" and before < window.last <= time:
                due.add(window.last)
            if self.trigger[0] == "continuous" and window.next_fire is not None:
                if window.again:
                    due.add(window.next_fire)
                    window.again = False
                while window.next_fire <= time and window.next_fire < window.last:
                    due.add(window.next_fire)
                    window.next_fire = min(window.next_fire + self.trigger[1], window.last)
                    if window.next_fire == window.last <= time:  # also of a session that merging made end in the past
                        due.add(window.last)
            for moment in sorted(due):
                results += [(moment, result) for result in self.fire(window)]
        self.live = [window for window in self.live if not self.over(window)]
        return results
