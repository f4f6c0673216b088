"""The programs that have to bear it, and what is to come out of them, in plain Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firesteel.common import Duration, Time, Types, WatermarkStrategy
from firesteel.datastream import AsyncDataStream, DataStream, StreamExecutionEnvironment
from firesteel.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from firesteel.expressions import col, count, first, last, max_, min_, sum_
from tests.integration.recovery import functions as f
from tests.integration.recovery.records import LATE_MS, AtOfRecord, Record, Records, read
from tests.integration.recovery.stepped_sink import SteppedSink

LONG_SPLITS: Mapping[str, int | None] = {"a": None, "b": None}
"""As many as there are subtasks: no split begins when time has moved on."""
MANY_SPLITS: Mapping[str, int | None] = {"s": 120, "t": 700, "a": None, "b": None, "u": 90}
"""Some end early, and one begins at the end."""
GAP, TUMBLE, SIZE, SLIDE = 300, 200, 300, 100
"""Of windows, in milliseconds."""
NEAR = 15

Out = str | Callable[[DataStream, str], None] | None
"""See ``World``."""


class World:
    """What programs are made of: sources by name, each once, and sinks.

    Args:
        env: of the program.
        folder: of the orders.
        rate: records a second of each reader.
        out: path of the files of sinks, or what writes a stream of texts of this name elsewhere; None = a folder beside
            the orders.

    Attributes:
        splits: of all sources.
    """

    def __init__(self, env: StreamExecutionEnvironment, folder: Path, rate: int = 2000, out: Out = None) -> None:
        self.env, self.folder, self.rate, self._out = env, folder, rate, out
        self.splits = 0
        self._sources: dict[str, DataStream] = {}

    def source(self, name: str) -> DataStream:
        """Records; those of ``numbers`` have no time, those of ``columns`` are columns."""
        if name not in self._sources:
            columns, timed = name == "columns", name != "numbers"
            splits = dict(LONG_SPLITS if timed else MANY_SPLITS)
            if name == "rules":
                splits = {"r": None}
            self.splits += len(splits)
            rate = self.rate * 2 // f.RECORDS_OF_A_RULE if name == "rules" else self.rate
            source = Records(self.folder, name, splits, max(1, rate), columns)
            strategy = WatermarkStrategy.no_watermarks()
            if timed:
                assigner: Any = col("at") if columns else AtOfRecord()
                late = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(LATE_MS))
                strategy = late.with_timestamp_assigner(assigner)
            stream = self.env.from_source(source, strategy, name)
            if not columns:
                stream = stream.map(f.Watched(self.folder))
            self._sources[name] = stream
        return self._sources[name]

    def sink(self, stream: DataStream, name: str) -> None:
        texts = stream.map(f.Watched(self.folder), Types.STRING())
        if callable(self._out):
            self._out(texts, name)
        else:
            texts.sink_to(SteppedSink(self.folder, name, parts_go_on=len(name) % 2 == 0, out=self._out))


Read = Callable[[str], Iterable[Record]]


@dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
        name: of it, and of its files.
        build: gives texts.
        expected: what they are to be, of what was read of the sources.
    """

    name: str
    build: Callable[[World], DataStream] = field(repr=False)
    expected: Callable[[Read], Iterable[str]] = field(repr=False)


def key_of(value: Any) -> Any:
    """The key of a record."""
    return value[0]


def text_of(value: Any) -> str:
    """Fields with commas between them."""
    return ",".join(str(item) for item in value)


# -- one chain


def chain(world: World) -> DataStream:
    """A chain, with operator state."""
    pairs = world.source("numbers").filter(lambda r: r[3] % 3 != 0 or r[4]).flat_map(f.InPairs())
    return pairs.map(lambda r: f"{r[2]},{r[3]},{r[0] * 2}", Types.STRING())


def chain_expected(read: Read) -> Iterator[str]:
    for r in read("numbers"):
        if r.number % 3 != 0 or r.last:
            yield f"{r.split},{r.number},{r.key * 2}"


# -- keys


def keyed(world: World) -> DataStream:
    """State by key, and another exchange behind it."""
    return world.source("numbers").key_by(key_of).process(f.CountBySplit(), Types.STRING()).rebalance()


def keyed_expected(read: Read) -> Iterator[str]:
    totals: Counter[int] = Counter()
    of_split: dict[tuple[int, str], tuple[int, int]] = {}
    for r in read("numbers"):
        totals[r.key] += 1
        count, before = of_split.get((r.key, r.split), (0, -1))
        of_split[r.key, r.split] = (count + 1, r.number)
        yield f"{r.key},{r.split},{r.number},{count + 1},{before}"
        yield f"{r.key},{totals[r.key]}"


# -- timers


def timers(world: World) -> DataStream:
    """Timers of both kinds."""
    return world.source("events").key_by(key_of).process(f.Timers(), Types.STRING())


def timers_expected(read: Read) -> Iterator[str]:
    for r in read("events"):
        yield f"event,{r.at + 40},{r.split},{r.number}"
        yield f"processing,{r.split},{r.number}"


# -- windows


def windows(world: World) -> DataStream:
    """Tumbling, sliding and session windows."""
    events = world.source("events").key_by(key_of)
    tumbling = TumblingEventTimeWindows.of(Time.milliseconds(TUMBLE))
    sliding = SlidingEventTimeWindows.of(Time.milliseconds(SIZE), Time.milliseconds(SLIDE))
    sessions = EventTimeSessionWindows.with_gap(Time.milliseconds(GAP))
    text = Types.STRING()
    kinds = [
        events.window(assigner).aggregate(f.Sum(), f.Windowed(name), None, text)
        for name, assigner in (("tumbling", tumbling), ("sliding", sliding), ("session", sessions))
    ]
    return kinds[0].union(*kinds[1:], events.window(sliding).process(f.Listed(), text))


def panes(records: Iterable[Record], size: int, slide: int) -> dict[tuple[int, int, int], list[Record]]:
    """Records by key, start and end of their windows."""
    windows: dict[tuple[int, int, int], list[Record]] = defaultdict(list)
    for r in records:
        for start in range(r.at // slide * slide, r.at - size, -slide):
            windows[r.key, start, start + size].append(r)
    return windows


def sessions_of(records: Iterable[Record], gap: int) -> dict[tuple[int, int, int], list[Record]]:
    """The same of sessions."""
    sessions: dict[tuple[int, int, int], list[Record]] = {}
    by_key: dict[int, list[Record]] = defaultdict(list)
    for r in records:
        by_key[r.key].append(r)
    for key, own in by_key.items():
        session: list[Record] = []
        for r in sorted(own, key=lambda record: record.at):
            if session and r.at > session[-1].at + gap:
                sessions[key, session[0].at, session[-1].at + gap] = session
                session = []
            session.append(r)
        if session:
            sessions[key, session[0].at, session[-1].at + gap] = session
    return sessions


def windows_expected(read: Read) -> Iterator[str]:
    records = list(read("events"))
    kinds = {
        "tumbling": panes(records, TUMBLE, TUMBLE),
        "sliding": panes(records, SIZE, SLIDE),
        "session": sessions_of(records, GAP),
    }
    for name, by_window in kinds.items():
        fired: Counter[int] = Counter()
        for (key, start, end), own in sorted(by_window.items(), key=lambda item: item[0][2]):
            fired[key] += 1
            yield f"{name},{key},{start},{end},{len(own)},{sum(r.number for r in own)},{fired[key]}"
    for (key, start, end), own in kinds["sliding"].items():
        yield f"listed,{key},{start},{end},{' '.join(sorted(f'{r.split}{r.number}' for r in own))}"


# -- joins


def joins(world: World) -> DataStream:
    """A window join and an interval join."""
    left, right = world.source("left"), world.source("right")
    window = TumblingEventTimeWindows.of(Time.milliseconds(60))
    same = left.join(right).where(key_of).equal_to(key_of).window(window)
    joined = same.apply(lambda a, b: f"window,{a[2]}{a[3]},{b[2]}{b[3]}", Types.STRING())
    near = left.key_by(key_of).interval_join(right.key_by(key_of))
    return joined.union(
        near.between(Time.milliseconds(-NEAR), Time.milliseconds(NEAR)).process(f.Pairs(), Types.STRING())
    )


def joins_expected(read: Read) -> Iterator[str]:
    by_pane: dict[tuple[int, int], list[Record]] = defaultdict(list)
    near: dict[tuple[int, int], list[Record]] = defaultdict(list)
    for r in read("right"):
        by_pane[r.key, r.at // 60].append(r)
        near[r.key, r.at // NEAR].append(r)
    for left in read("left"):
        for other in by_pane[left.key, left.at // 60]:
            yield f"window,{left.split}{left.number},{other.split}{other.number}"
        for place in (-1, 0, 1):
            for other in near[left.key, left.at // NEAR + place]:
                if abs(other.at - left.at) <= NEAR:
                    yield f"interval,{left.split}{left.number},{other.split}{other.number}"


# -- two inputs


def connected(world: World) -> DataStream:
    """State that both inputs of a function share."""
    left, right = world.source("left").key_by(key_of), world.source("right").key_by(key_of)
    return left.connect(right).process(f.Matched(), Types.STRING())


def connected_expected(read: Read) -> Iterator[str]:
    right = {(r.split, r.number) for r in read("right")}
    for r in read("left"):
        if (r.split, r.number) in right:
            yield f"matched,{r.split}{r.number}"


def broadcast(world: World) -> DataStream:
    """Rules for all subtasks, and records that wait for them."""
    rules = world.source("rules").broadcast(f.RULES)
    return world.source("events").key_by(key_of).connect(rules).process(f.Ruled(), Types.STRING())


def broadcast_expected(read: Read) -> Iterator[str]:
    rules = {r.number: r.at for r in read("rules")}
    for r in read("events"):
        if f.rule_of(r) in rules:
            yield f"ruled,{r.split}{r.number},{rules[f.rule_of(r)]}"


# -- asynchronous calls


def asynchronous(world: World) -> DataStream:
    """Calls in order and out of order."""
    numbers, text, patience = world.source("numbers"), Types.STRING(), Time.seconds(60)
    ordered = AsyncDataStream.ordered_wait(numbers, f.Looked("ordered"), patience, 20, text)
    return ordered.union(AsyncDataStream.unordered_wait(numbers.rebalance(), f.Looked("free"), patience, 20, text))


def asynchronous_expected(read: Read) -> Iterator[str]:
    for r in read("numbers"):
        yield f"ordered,{r.split}{r.number},{r.key}"
        yield f"free,{r.split}{r.number},{r.key}"


# -- columns


def aggregates(world: World) -> DataStream:
    """Running aggregates of columns."""
    counted = world.source("columns").key_by(["key", "split"])
    own = counted.aggregate(
        count().alias("n"),
        sum_("number"),
        max_("at"),
        min_("number"),
        first("number").alias("f"),
        last("at").alias("l"),
    )
    wide = world.source("columns").filter(col("number") % 2 == 0).key_by("key").aggregate(count().alias("n"))
    return own.map(text_of, Types.STRING()).union(wide.map(text_of, Types.STRING()))


def aggregates_expected(read: Read) -> Iterator[str]:
    seen: dict[tuple[int, str], list[Record]] = defaultdict(list)
    sums: Counter[tuple[int, str]] = Counter()
    latest: dict[tuple[int, str], int] = {}
    even: Counter[int] = Counter()
    for r in read("columns"):
        place = r.key, r.split
        seen[place].append(r)
        sums[place] += r.number
        latest[place] = max(latest.get(place, 0), r.at)
        begin = seen[place][0].number
        yield text_of((*place, len(seen[place]), sums[place], latest[place], begin, begin, r.at))
        if r.number % 2 == 0:
            even[r.key] += 1
            yield text_of((r.key, even[r.key]))


def column_windows(world: World) -> DataStream:
    """Tumbling, sliding and session windows over columns."""
    keyed = world.source("columns").key_by("key")
    assigners = {
        "tumbling": TumblingEventTimeWindows.of(Time.milliseconds(TUMBLE)),
        "sliding": SlidingEventTimeWindows.of(Time.milliseconds(SIZE), Time.milliseconds(SLIDE)),
        "session": EventTimeSessionWindows.with_gap(Time.milliseconds(GAP)),
    }
    kinds = [
        keyed.window(assigner)
        .aggregate(count().alias("n"), sum_("number"), min_("at"), max_("at"))
        .map(_named(name), Types.STRING())
        for name, assigner in assigners.items()
    ]
    return kinds[0].union(*kinds[1:])


def _named(name: str) -> Callable[[Any], str]:
    return lambda row: text_of((name, *row))


def column_windows_expected(read: Read) -> Iterator[str]:
    records = list(read("columns"))
    kinds = {
        "tumbling": panes(records, TUMBLE, TUMBLE),
        "sliding": panes(records, SIZE, SLIDE),
        "session": sessions_of(records, GAP),
    }
    for name, by_place in kinds.items():
        for place, own in by_place.items():
            times = [r.at for r in own]
            yield text_of((name, *place, len(own), sum(r.number for r in own), min(times), max(times)))


PROGRAMS = {
    program.name: program
    for program in (
        Program("chain", chain, chain_expected),
        Program("keyed", keyed, keyed_expected),
        Program("timers", timers, timers_expected),
        Program("windows", windows, windows_expected),
        Program("joins", joins, joins_expected),
        Program("connected", connected, connected_expected),
        Program("broadcast", broadcast, broadcast_expected),
        Program("async", asynchronous, asynchronous_expected),
        Program("aggregates", aggregates, aggregates_expected),
        Program("column-windows", column_windows, column_windows_expected),
    )
}


def expected(program: Program, folder: Path) -> Counter[str]:
    """What has to be visible when the job has ended."""
    return Counter(program.expected(lambda source: read(folder, source)))
