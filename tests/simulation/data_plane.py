"""Tasks of one job in several slots on one loop: real chains, state, exchange and sockets; crashes at any moment.

Chance makes windows of a few bytes and records of many times that, splits that end with an empty batch, keys that are
NaN, rare large records among small ones, and restores with keys of another kind. Looked at are: what a two-phase sink
shows, that nothing stalls, what is out when all is at rest, how much waits in a slot, and who was opened.
"""

from __future__ import annotations

import math
import random
import tempfile
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard
from unittest import mock

from firesteel.checkpoint import savepoints
from firesteel.common import Types, WatermarkStrategy
from firesteel.functions.async_functions import AsyncFunction
from firesteel.functions.functions import KeyedProcessFunction, KeySelector, MapFunction
from firesteel.functions.source import (
    END,
    NEED_SPLITS,
    Polled,
    ReaderContext,
    SourceBatch,
    Split,
    Wait,
)
from firesteel.functions.state import ListStateDescriptor, ValueStateDescriptor
from firesteel.graph.specs import OperatorKind as K
from firesteel.graph.specs import PartitionerKind as P
from firesteel.runtime.chain import stages
from firesteel.runtime.checkpoints import task_checkpoints
from firesteel.runtime.exchange import Exchange
from firesteel.runtime.exchange import input as exchange_input
from firesteel.runtime.exchange.channels import ChannelId, InputChannel, OutputChannel
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.operators import async_wait
from firesteel.runtime.records.batch import Batch, InBand
from firesteel.runtime.sources import enumerator_input, source_input
from firesteel.runtime.task import task as task_module
from firesteel.runtime.task.bridge import LARGEST_QUEUE
from firesteel.state import snapshots
from tests.simulation.story import StoryError
from tests.unit.exchange.support import JOB, SECRET
from tests.unit.runtime.mini_job import (
    SHELVES,
    Checkpoint,
    ListReader,
    ListSource,
    MiniJob,
    Shelf,
    Task,
    Vertex,
    Wires,
    bridged,
)
from tests.unit.runtime.support import ManualClock
from tests.unit.runtime.test_exactly_once import Second, operator, sink

KINDS_OF_KEYS: tuple[tuple[Any, ...], ...] = (
    (0.0, 1.5, 2.5, float("nan"), 1e9),
    (0, 1, 2, 3, 10**12),
    ("a", "b", "", "long" * 5),
)
MEASURED = (enumerator_input, snapshots, source_input, stages, task_checkpoints, task_module)
"""What looks at how long work takes, to decide how much to do at once."""
WITH_SAVEPOINTS = (1, 2, 4)
"""Seeds that take savepoints, by their rest; the others tell what they told before there were any."""
MOST_SECONDS = 60.0
"""Of the processor, for one attempt; a tenth of a second is usual."""
Record = tuple[Any, int, int, bytes]
"""Key, timestamp, number, ballast."""


class WorkClock:
    """In place of the processor's time: each look at it takes as long as chance wants, so a seed cuts slices the same
    way each time."""

    def __init__(self, chance: random.Random) -> None:
        self._chance, self._now = chance, 0.0

    def __call__(self) -> float:
        self._now += self._chance.choice((1e-6, 1e-5, 1e-3))
        return self._now


@dataclass
class Attempt:
    """What is seen of one attempt of the job.

    Attributes:
        stage: 0: splits halt; 1: those go on that halt behind their last record; 2: all go on.
        last: split -> timestamp of its last record.
        ended: splits that are done.
        splits: that were given to readers.
        has_state: records were counted before the checkpoint from which it goes on.
        other_keys: its keys are of another kind than those of the attempts before.
        readers: all of them.
    """

    stage: int = 0
    last: dict[str, int] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    splits: set[str] = field(default_factory=set)
    has_state: bool = False
    other_keys: bool = False
    readers: list[_Reader] = field(default_factory=list)


class Seen:
    """What functions tell the story of."""

    attempt = Attempt()
    out: set[int] = set()
    """Numbers of the records that have come out of the sorter."""
    elsewhere: list[Callable[[], None]] = []
    chance = random.Random(0)
    order = 0
    """A checksum of what was read and came out, in its order."""

    @classmethod
    def happened(cls, what: object) -> None:
        """One step of the order."""
        cls.order = zlib.crc32(repr(what).encode(), cls.order)


class HaltingSource(ListSource):
    """Splits are lists of records; some halt in the middle until they may go on, some end with an empty batch."""

    def create_reader(self, context: ReaderContext) -> _Reader:
        return _Reader(context)


class _Reader(ListReader):
    def __init__(self, context: ReaderContext) -> None:
        super().__init__(at_once=1)  # each split says itself how many
        self.context = context
        Seen.attempt.readers.append(self)

    def add_splits(self, splits: Sequence[Split]) -> None:
        super().add_splits(splits)
        Seen.attempt.splits |= {split.id for split in splits}
        Seen.attempt.has_state |= any(split.position for split in splits)

    def poll(self, max_records: int) -> Polled[Record]:
        for _ in range(len(self._splits)):
            split = self._splits.pop(0)
            plan: Any = split.data["records"]
            records, halt, at_once, ends_empty = plan
            start: Any = split.position or 0
            if start == halt and Seen.attempt.stage < (1 if halt == len(records) else 2):
                self._splits.append(split)
                continue
            stop = min(start + at_once, len(records), *([halt] if halt > start else []))
            finished = start == stop if ends_empty else stop == len(records)
            if finished:
                Seen.attempt.ended.add(split.id)
            else:
                self._splits.append(split.at(stop))
            batch = [(key, time, number, bytes(size)) for key, time, number, size in records[start:stop]]
            if batch:
                Seen.attempt.last[split.id] = batch[-1][1]
            Seen.happened((split.id, stop))
            return SourceBatch(batch, split.id, stop, [record[1] for record in batch], split_finished=finished)
        return Wait() if self._splits else END if self._no_more else NEED_SPLITS


class Ask(AsyncFunction[Any, Any]):
    """Calls whose answers come later: see ``_Calls``."""

    async def async_invoke(self, value: Any) -> list[Any]:
        raise AssertionError("its answers come from _Calls")


class _Calls:
    """In place of the thread with asyncio: answers come some time later, in whatever order."""

    def __init__(self, name: str, function: Any, timeout: Any, retry: Any, on_done: Callable[[Any, Any], None]) -> None:
        self._on_done, self._elsewhere, self._closed = on_done, Seen.elsewhere, False

    def start(self) -> None: ...

    def do(self, what: Callable[[], Any]) -> None:
        what()

    def call(self, token: Any, value: Any) -> None:
        def answer() -> None:
            if not self._closed:
                self._on_done(token, [value])

        self._elsewhere.insert(Seen.chance.randrange(len(self._elsewhere) + 1), answer)

    def cancel(self) -> None:
        self._closed = True

    def stop(self) -> None: ...


class Opened(MapFunction[Any, Any]):
    """Gives records on, if it was opened."""

    is_open = False

    def open(self, runtime_context: Any) -> None:
        self.is_open = True

    def map(self, value: Any) -> Any:
        assert self.is_open, "a function gets a record and was not opened"
        return value


class Sorter(KeyedProcessFunction[Any, Record, Any]):
    """Gives each record at its time, with its number among those of its key."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Record, ctx: Any) -> Iterator[Any]:
        attempt = Seen.attempt
        assert not (attempt.other_keys and attempt.has_state), "keys of another kind leave all state behind"
        self.waiting.add(value)
        ctx.timer_service().register_event_time_timer(value[1])
        return iter(())

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        waiting = list(self.waiting.get())
        assert min(record[1] for record in waiting) == timestamp, "timers fire in order"
        for record in waiting:
            if record[1] == timestamp:
                count = (self.count.value() or 0) + 1
                self.count.update(count)
                Seen.out.add(record[2])
                Seen.happened(record[2])
                yield _name(record[0]), count, record[2], len(record[3])
        self.waiting.update([record for record in waiting if record[1] > timestamp])


def _name(key: Any) -> Any:
    return "NaN" if key != key else key


class Key(KeySelector[Any, Any]):
    """Gives keys, or others of another kind, if it was opened."""

    is_open = False

    def __init__(self, other: bool) -> None:
        self.other = other

    def open(self, runtime_context: Any) -> None:
        self.is_open = True

    def get_key(self, record: Record) -> Any:
        assert self.is_open, "a key selector gets a record and was not opened"
        key = record[0]
        if not self.other:
            return key
        return len(key) if isinstance(key, str) else repr(key)


class Slots(Wires):
    """Connects tasks that are in several slots, by sockets; those of one slot by pipes.

    Args:
        loop, clock: of all slots.
        directory: for sockets.
        count: of slots.
        window: bytes of each channel.
        max_chunk: bytes of a frame.
        overtakes: barriers may overtake records.

    Attributes:
        has_bridges: some tasks have threads of their own.
    """

    has_bridges = False

    def __init__(
        self,
        loop: TaskLoop,
        clock: ManualClock,
        directory: Path,
        count: int,
        window: int,
        max_chunk: int,
        overtakes: bool,
    ) -> None:
        super().__init__(loop, window)
        self.window, self.overtakes = window, overtakes
        self._exchanges = {f"slot{n}": Exchange(loop, [f"unix:{directory}/{n}"], clock) for n in range(count)}
        self.failures: list[Exception] = []
        peers = {name: exchange.address for name, exchange in self._exchanges.items()}
        for name, exchange in self._exchanges.items():
            exchange.on_failure = lambda error, _: self.failures.append(error)
            exchange.configure(JOB, 0, SECRET, name, peers, window=window, max_chunk=max_chunk)

    def _slot(self, task: Task) -> str:
        return f"slot{(sum(task[0].encode()) + task[1]) % len(self._exchanges)}"

    def output(self, channel: ChannelId, target: Task, owner: Task) -> OutputChannel:
        here, there = self._slot(owner), self._slot(target)
        if here == there:
            return super().output(channel, target, owner)
        return self._exchanges[here].output(*channel, there, 100)

    def input(self, channel: ChannelId, origin: Task, owner: Task) -> InputChannel:
        here, there = self._slot(owner), self._slot(origin)
        if here == there:
            return super().input(channel, origin, owner)
        return self._exchanges[here].input(*channel, there)

    def check(self) -> None:
        """Nothing is broken, and little waits within slots."""
        assert not self.failures, self.failures[0]
        for pipe in self.pipes.values():
            batches = [item for item in pipe.input.inbox.queue if _has_ballast(item)]
            waiting = [sum(len(value[3]) for value in batch.values) for batch in batches]
            # of the first one there is a quick guess, and the last one may be of any size; what is in flight in a chain
            # comes behind it, full or not, before a barrier that overtakes: for a task with a thread of its own that
            # is what waits to be handed over, too
            behind = 1 + self.overtakes + 2 * LARGEST_QUEUE * (self.overtakes and self.has_bridges)
            over = sum(waiting[1:-behind])
            assert over <= 2 * self.window, f"{over} bytes wait in a window of {self.window}"

    def close(self) -> None:
        for exchange in self._exchanges.values():
            exchange.close()


def _has_ballast(item: Batch | InBand) -> TypeGuard[Batch]:
    return isinstance(item, Batch) and len(item) > 0 and isinstance(item.values[0][3], bytes)


class DataPlaneStory:
    """What happens in one seed."""

    kind = "data"

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._chance = chance = random.Random(seed)
        self._window = chance.choice([64, 400, 3000])
        keys = chance.choice(KINDS_OF_KEYS)
        self._slots, self._max_chunk = chance.randint(1, 3), chance.choice([16, 100, 1 << 20])
        self._options = chance.choice([None, {"unaligned": True}, {"unaligned": True, "aligned_ms": 200}])
        self._asks, self._large = chance.random() < 0.5, chance.choice([0.0, 0.02, 0.3])
        self.told: list[str] = []
        """What happened, line by line."""
        self._number = 0
        self._blocking = [name for name in ("ask", "sort", "sink") if random.Random(f"{seed} {name}").random() < 0.3]
        """Vertices whose tasks have threads of their own."""
        self._savepoints = random.Random(seed + 1) if seed % 7 in WITH_SAVEPOINTS else None
        self._splits = [self._split(keys) for _ in range(chance.randint(1, 6))]
        self._records = [record for split in self._splits for record in split[0]]

    def _split(self, keys: Sequence[Any]) -> list[Any]:
        """Records, where it halts (-1: nowhere), records at once, whether its last batch is empty."""
        chance = self._chance
        count = chance.randrange(80)
        records = [self._record(chance.choice(keys), time) for time in sorted(chance.sample(range(1000), count))]
        ends_empty = chance.random() < 0.5
        halt = chance.randint(1, count - 1) if count > 1 and chance.random() < 0.5 else -1
        if ends_empty and count and chance.random() < 0.6:
            halt = count
        return [records, halt, chance.choice([1, 3, 40]), ends_empty]

    def _record(self, key: Any, time: int) -> list[Any]:
        """As ``Record``, with the length of its ballast."""
        self._number += 1
        large = self._chance.random() < self._large
        return [key, time, self._number, self._chance.randrange(6 * self._window) if large else 3]

    def run(self) -> None:
        shelf = SHELVES["shelf"] = Shelf()
        Seen.out, Seen.chance, Seen.order = set(), random.Random(self.seed), 0
        patches: list[AbstractContextManager[Any]] = [
            mock.patch.object(task_module, "STEP_SECONDS", -1.0),  # one batch for each step
            mock.patch.object(exchange_input, "LARGE_MESSAGE", self._chance.choice([50, 1000, 1 << 20])),
            mock.patch.object(async_wait, "AsyncCalls", _Calls),
        ]
        work = WorkClock(random.Random(self.seed))
        patches += [mock.patch.object(module, "_now", work) for module in MEASURED]
        try:
            with ExitStack() as stack:
                for patch in patches:
                    stack.enter_context(patch)
                self._attempts()
            self._check(Counter(shelf.visible))
        except Exception as error:
            again = f"again: python -m tests.simulation data {self.seed}"
            short = str(error).strip().rpartition("\n")[2]  # of a task's failure the line that names it
            tale = "\n".join([*self.told, str(error)])
            raise StoryError(
                f"data seed {self.seed}: {type(error).__name__}: {short}\nagain: {again}\n{tale}"
            ) from error

    def _attempts(self) -> None:
        chance = self._chance
        restore: Checkpoint | None = None
        number, last = 1, chance.randint(0, 3)
        for attempt in range(last + 1):
            other_keys = 0 < attempt < last and restore is not None and chance.random() < 0.3
            Seen.attempt, Seen.elsewhere = Attempt(other_keys=other_keys), []
            from_ = "nothing" if restore is None else f"checkpoint or savepoint {restore.number}"
            self.told.append(f"attempt {attempt} goes on from {from_}{', with other keys' if other_keys else ''}")
            with tempfile.TemporaryDirectory() as directory:
                job = self._job(Path(directory), restore, number, attempt, other_keys)
                try:
                    if other_keys:
                        self._with_other_keys(job)
                    elif attempt < last:
                        self._live(job)
                        if self._savepoints is not None and self._savepoints.random() < 0.6:
                            self._stop(job, self._savepoints)
                    else:
                        for stage in range(3):
                            self._let_go_on(stage)
                            self._to_rest(job)
                        job.to_end()
                    number = job.number + 1
                    restore = job.completed
                    if self._goes_on_from(job.savepoint, restore):
                        restore = job.savepoint
                finally:
                    self.told.append(f"attempt {attempt} ends: {len(Seen.out)} records are out, order {Seen.order:08x}")
                    job.crash()

    def _job(self, directory: Path, restore: Checkpoint | None, number: int, attempt: int, other_keys: bool) -> MiniJob:
        chance = self._chance

        def wires(loop: TaskLoop, clock: ManualClock) -> Slots:
            overtakes = self._options is not None
            slots = bridged(Slots, self._blocking)(
                loop, clock, directory, self._slots, self._window, self._max_chunk, overtakes
            )
            slots.has_bridges = bool(self._blocking)
            return slots

        job = _Watched(
            self._vertices(Key(other_keys)),
            {"source": self._splits},
            chance.randrange(1 << 30),
            restore,
            self._options,
            number,
            attempt,
            Seen.elsewhere,
            wires,
            watermark_interval=0.2,
            same_program=not other_keys,
        )
        job.until = time.process_time() + MOST_SECONDS
        return job

    def _vertices(self, key: Key) -> list[Vertex]:
        chance = self._chance
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
        head = operator("source", K.SOURCE, HaltingSource(), extra={"watermark_strategy": strategy})
        extra = {"ordered": chance.random() < 0.5, "capacity": 5, "timeout_ms": 0, "retry": None}
        ask = [operator("ask", K.ASYNC_WAIT, Ask(), extra=extra)] if self._asks else []
        opened = [operator("opened", K.MAP, Opened())] if not ask or chance.random() < 0.5 else []
        sort = operator("sort", K.KEYED_PROCESS, Sorter(), key_selectors=(key,))
        return [
            Vertex("source", lambda: [head], chance.randint(1, 2)),
            Vertex("ask", lambda: [*ask, *opened], chance.randint(1, 3), [("source", P.REBALANCE, None)]),
            Vertex("sort", lambda: [sort], chance.randint(1, 3), [("ask", P.HASH, key)]),
            Vertex("sink", lambda: [sink()], chance.randint(1, 3), [("sort", P.REBALANCE, None)]),
        ]

    # -- what happens, and what is looked at

    def _live(self, job: MiniJob) -> None:
        for _ in range(self._chance.randrange(1, 8)):
            job.live_for_a_while(self._chance)
            if self._savepoints is not None and self._savepoints.random() < 0.2 and len(job.pending) < 2:
                job.trigger(savepoint=True)
            job.clock.now += self._chance.choice([0.01, 0.3])

    def _goes_on_from(self, savepoint: Checkpoint | None, completed: Checkpoint | None) -> bool:
        """Whether the next attempt goes on from a savepoint that is younger than the last checkpoint."""
        if self._savepoints is None or savepoint is None:
            return False
        if completed is not None and savepoint.number <= completed.number:
            return False
        return self._savepoints.random() < 0.5

    def _stop(self, job: MiniJob, chance: random.Random) -> None:
        """The job stops with a savepoint, or dies while it does; what comes next goes on from it, if it is complete."""
        how = chance.choice([savepoints.SUSPEND, savepoints.SUSPEND, savepoints.DRAIN])
        number = job.trigger(savepoint=True, stop=how)
        self.told.append(f"it stops with savepoint {number}, {how}")
        for _ in range(chance.choice([3, 40, 400, 4000, 4000])):
            job.steps(5)
            job.clock.now += 0.01
            if job.savepoint is not None and job.savepoint.number == number:
                break
        else:
            self.told.append("it is not complete")
            return
        assert job.completed is job.savepoint
        out = set(Seen.out)
        self._rest(job)
        assert Seen.out == out, f"{sorted(Seen.out - out)} come out behind the savepoint with which the job stops"
        self.told.append(f"it is complete, and the job is {'over' if job.finished else 'not over yet'}")
        if how == savepoints.DRAIN:
            undrained = {record[2] for record in self._records if record[2] not in out}
            assert not undrained & self._read(job), (
                f"{sorted(undrained & self._read(job))} were read and are not drained"
            )

    def _read(self, job: MiniJob) -> set[int]:
        """The numbers of records that stand behind no reader of the savepoint."""
        assert job.savepoint is not None
        places = {
            split["id"]: split["position"] or 0
            for state in job.savepoint.states.values()
            for operator in state.operators.values()
            for split in operator.splits
        }
        records_by_split = {f"source-{n}": split[0] for n, split in enumerate(self._splits)}
        return {
            record[2]
            for name, records in records_by_split.items()
            for record in records[: places.get(name, len(records))]
        }

    def _rest(self, job: MiniJob) -> None:
        """Nothing is left to do, however much later it is."""
        for _ in range(4):
            job.rest()
            job.clock.now += 0.3

    def _to_rest(self, job: MiniJob) -> None:
        """Splits halt. What is at or below the watermark is out."""
        self._rest(job)
        attempt = Seen.attempt
        halted = attempt.splits - attempt.ended
        if job.finished or not halted <= set(attempt.last):
            return  # nothing halts, or not every split has told how far it is
        watermark = min((attempt.last[split] - 1 for split in halted), default=1 << 62)
        records_by_split = {f"source-{n}": split[0] for n, split in enumerate(self._splits)}
        for split, records in records_by_split.items():
            read = attempt.last.get(split, -1) if split in halted else 1 << 62
            missing = [record[2] for record in records if record[1] <= min(watermark, read)]
            missing = [record for record in missing if record not in Seen.out]
            assert not missing, f"all is at rest, the watermark is {watermark}, and {missing} of {split} are not out"

    def _let_go_on(self, stage: int) -> None:
        """Halted splits go on."""
        Seen.attempt.stage = stage
        for reader in Seen.attempt.readers:
            reader.context.wake_up()

    def _with_other_keys(self, job: MiniJob) -> None:
        """It fails at its first record, which says that the keys are of another kind; or none comes."""
        try:
            self._live(job)
        except AssertionError:
            assert job.failures
            assert "key" in job.failures[0].traceback, job.failures[0].traceback
            assert "leave all state behind" not in job.failures[0].traceback, job.failures[0].traceback

    def _check(self, visible: Counter[Any]) -> None:
        """Each record counts once."""
        by_key: dict[Any, int] = defaultdict(int)
        for record in self._records:
            by_key[_name(record[0])] += 1
        counts = Counter((key, count) for key, count, _, _ in visible.elements())
        assert Counter((n, s) for _, _, n, s in visible.elements()) == Counter((r[2], r[3]) for r in self._records)
        assert counts == Counter((key, n) for key, total in by_key.items() for n in range(1, total + 1)), counts


class _Watched(MiniJob):
    """Looks at what waits after every step."""

    until = math.inf

    def steps(self, count: int) -> None:
        for _ in range(count):
            super().steps(1)
            self._look()

    def rest(self) -> None:
        super().rest()
        self._look()

    def _look(self) -> None:
        assert time.process_time() < self.until, f"no end after {MOST_SECONDS:g} s of work"
        assert isinstance(self.wires, Slots)
        self.wires.check()
