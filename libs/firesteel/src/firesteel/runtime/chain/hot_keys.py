"""The most frequent keys of an exchange, from a sample: which key makes how large a share of the records.

The sketch is that of Misra and Gries in its form for batches (Agarwal et al., "Mergeable summaries", 2012): if there
are too many keys, the count of the largest one that has to go is subtracted from all. So a count is never too large,
and too small by at most the records subtracted, the ``1 / (CAPACITY + 1)`` part of all.
"""

from __future__ import annotations

import random
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from firesteel.core.errors import TaskInterrupt
from firesteel.core.short_repr import short_repr

CAPACITY: Final = 64
"""Most keys that a sketch holds, so that it takes a bounded amount of memory."""
SAMPLE: Final = 256
"""Keys that are looked at together, of one large batch or of several small ones that follow each other."""
SAMPLE_SECONDS: Final = 0.1
"""Least time between two samples."""
REST: Final = 300
"""Time between two samples, as a multiple of the time that the former one took (0.1 to 0.3 ms): so
they take a third of a percent of the time of a task, on a loaded machine as well."""
GATHER_SECONDS: Final = 1.0
"""Keys of small batches are gathered for so long: the few records of one say little of the others."""
HALF_LIFE: Final = 30.0
"""Seconds in which a record loses half of its weight, so that the sketch tells of the last minute or so."""
LONGEST_TEXT: Final = 80
"""Characters of a key that are shown."""
_LONG: Final = 1000
"""Texts that are longer are not held, but their beginning and a checksum."""
_NAN: Final = float("nan")
_now = time.monotonic


class HotKey(NamedTuple):
    """A frequent key.

    Attributes:
        text: shortened ``repr`` of the key.
        records: about that many records have it, those of long ago counting less.
        channel: position of the channel to which they go.
    """

    text: str
    records: float
    channel: int


class _LongKey(NamedTuple):
    """Stands for a long text or bytes."""

    beginning: str
    size: int
    checksum: int

    def __repr__(self) -> str:
        return f"{self.beginning}… ({self.size:,} long, {self.checksum:08x})"


def _plain(key: Any) -> Any:
    """Stand-in for keys that can't be held: NaN, which equals nothing, and long texts."""
    if key.__class__ is float:
        return key if key == key else _NAN
    if len(key) <= _LONG:
        return key
    data = key if isinstance(key, bytes) else key.encode("utf-8", "surrogatepass")
    return _LongKey(repr(key[: LONGEST_TEXT // 2]), len(key), zlib.crc32(data))


_STAND_INS: Final = frozenset({float, str, bytes})


class KeySketch:
    """Counts the keys of an output, in a sample of its batches. All methods but ``top`` belong to the task's thread.

    Attributes:
        records: about the number of records, those of long ago counting less.
        lost: records by which the count of a key may be too small.
        refusal: why no keys are counted any more; empty = they are.
        shown: what is shown in place of the text of a key.
    """

    shown: Callable[[str], str] = staticmethod(lambda text: text)

    def __init__(self) -> None:
        self.records = self.lost = 0.0
        self.refusal = ""
        self._counts: dict[Any, float] = {}
        self._channels: dict[Any, int] = {}
        self._texts: dict[int, tuple[Any, str]] = {}
        """Texts of the keys that were shown last, with these keys, by their ids: making one runs the user's code."""
        self._passed = 0
        """Records since the last sample; those of the next one stand for them."""
        self._keys: list[Any] = []
        self._key_channels: list[int] = []
        """Channels of the keys that are gathered for the next sample."""
        self._gathers_since = 0.0
        self._next_at = self._began_at = 0.0
        self._faded_at = _now()
        self._random = random.Random()

    def passed(self, count: int) -> bool:
        """Count the records of a batch; returns whether its keys are to be added."""
        self._passed += count
        self._began_at = _now()
        return self._began_at >= self._next_at and not self.refusal

    def positions(self, count: int) -> Sequence[int]:
        """The positions of a batch whose keys are to be added."""
        return range(count) if count <= SAMPLE else self._random.sample(range(count), SAMPLE)

    def add(self, keys: Sequence[Any], channels: Sequence[int]) -> None:
        """Add keys of a batch, each with the position of its channel.

        Keys are the user's objects, whose methods may raise: then nothing is counted any more.
        """
        now = self._began_at
        if not self._keys:
            self._gathers_since = now
        self._keys += keys
        self._key_channels += channels
        if len(self._keys) < SAMPLE and now - self._gathers_since < GATHER_SECONDS and self.records:
            return
        gathered, key_channels, self._keys, self._key_channels = self._keys, self._key_channels, [], []
        weight, self._passed = self._passed / max(1, len(gathered)), 0
        try:
            plain = [_plain(key) if key.__class__ in _STAND_INS else key for key in gathered]
            self._add(Counter(plain), dict(zip(plain, key_channels, strict=True)), weight, now)
        except TaskInterrupt:
            raise
        except BaseException as error:  # the user's __hash__ or __eq__
            self.refusal = f"a key's comparison raised {type(error).__name__}"
            self._counts, self._channels, self._texts = {}, {}, {}
        ended_at = _now()
        self._next_at = ended_at + max(SAMPLE_SECONDS, REST * (ended_at - now))

    def _add(self, sample: Counter[Any], channels: dict[Any, int], weight: float, now: float) -> None:
        fade = 0.5 ** ((now - self._faded_at) / HALF_LIFE)
        self._faded_at = now
        self.records = self.records * fade + weight * sample.total()
        self.lost *= fade
        counts = {key: count * fade for key, count in self._counts.items()}
        for key, number in sample.items():
            counts[key] = counts.get(key, 0.0) + number * weight
        if len(counts) > CAPACITY:
            cut = sorted(counts.values(), reverse=True)[CAPACITY]
            self.lost += cut
            counts = {key: count - cut for key, count in counts.items() if count > cut}
        self._channels = {key: channels[key] if key in channels else self._channels[key] for key in counts}
        self._counts = counts  # in one assignment, as other threads read it

    def largest(self) -> tuple[float, int] | None:
        """Share of the most frequent key and the position of its channel; None if nothing is known.

        May be called from any thread, and calls no code of the user's.
        """
        counts, channels, records = self._counts, self._channels, self.records
        if not counts or not records:
            return None
        position = max(range(len(counts)), key=list(counts.values()).__getitem__)
        return min(1.0, list(counts.values())[position] / records), list(channels.values())[position]

    def top(self, most: int) -> list[HotKey]:
        """The most frequent keys, the first one first; may be called from any thread. Runs the keys' ``repr``."""
        counts, channels = self._counts, self._channels
        rows = sorted(
            zip(counts.values(), counts.keys(), channels.values(), strict=False), key=lambda row: row[0], reverse=True
        )[:most]
        known = self._texts
        self._texts = {id(key): (key, self._text(key, known)) for _, key, _ in rows}
        return [HotKey(self.shown(self._texts[id(key)][1]), count, channel) for count, key, channel in rows]

    @staticmethod
    def _text(key: Any, known: Mapping[int, tuple[Any, str]]) -> str:
        same, text = known.get(id(key), (None, ""))
        return text if same is key and text else short_repr(key, LONGEST_TEXT)


def masked(secret: str) -> Callable[[str], str]:
    """A function that hides the texts of keys: equal keys of a job have equal checksums, which tell nothing of them."""

    def shown(text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        return f"masked {blake2b(data, digest_size=4, key=secret.encode()[:64]).hexdigest()}"

    return shown
