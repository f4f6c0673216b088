"""The kits for providers, high availability, file systems and formats find plug-ins that break their contracts.

Those of sources, sinks, state backends and checkpoint storages are tried beside what they hold: ``connectors``,
``state``, ``checkpoint``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from firesteel.config import Settings
from firesteel.connectors.file_format import StreamFormat
from firesteel.connectors.filesystems.file_system import (
    MakeDurable,
    PartCommitter,
    PartOutput,
    Persisted,
    RecoverableWriter,
    RecoveredPart,
    Refused,
)
from firesteel.connectors.filesystems.local import LocalCommitter, LocalFileSystem, LocalOutput
from firesteel.connectors.malformed import MalformedRecords
from firesteel.connectors.split_reader import Chunk, SplitCursor
from firesteel.core.errors import FleetError
from firesteel.functions.sink import WriterContext
from firesteel.functions.source import Split, Wait
from firesteel.functions.two_phase import COMMITTED, CommitResult
from firesteel.ha.cell_services import CellServices
from firesteel.ha.cells import Change
from firesteel.ha.memory import MemoryCells
from firesteel.ha.payloads import DirectoryPayloads
from firesteel.ha.retrieval import Leader, Listener
from firesteel.protocol.fleet import SlotLaunch, SlotOutcome, WithoutStages
from firesteel.protocol.provider import Provider, WorkerSpec
from firesteel.testing import (
    check_cells,
    check_file_format,
    check_file_system,
    check_high_availability,
    check_provider,
)

# -- high availability


class TwoLeaders(MemoryCells):
    def campaign(self, component: str) -> int | None:
        epoch = super().campaign(component)
        return self._epochs[component] if epoch is None else epoch


class EpochsBeginAnew(MemoryCells):
    def release(self, component: str, epoch: int) -> None:
        super().release(component, epoch)
        self._epochs.pop(component, None)


class NoFence(MemoryCells):
    def change(self, component: str, epoch: int, changes: Sequence[Change]) -> None:
        leader = self._leaders.get(component)
        super().change(component, epoch if leader is None else leader.epoch, changes)


class OneAfterTheOther(MemoryCells):
    def change(self, component: str, epoch: int, changes: Sequence[Change]) -> None:
        for change in changes:
            super().change(component, epoch, [change])


class OneVersionForAll(MemoryCells):
    def change(self, component: str, epoch: int, changes: Sequence[Change]) -> None:
        super().change(component, epoch, changes)
        records = self._records[component]
        self._records[component] = {name: replace(record, version=1) for name, record in records.items()}


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (TwoLeaders, "two lead at the same time"),
        (EpochsBeginAnew, "the epoch fell from 1 to 1"),
        (OneAfterTheOther, "is refused, and something has changed"),
        (OneVersionForAll, "a record has changed and kept its version"),
        (NoFence, "somebody changes a record, and nobody minds"),
    ],
)
def test_the_kit_for_cells_finds_each_broken_rule(kind: type[MemoryCells], rule: str) -> None:
    cells = kind()
    with pytest.raises(AssertionError, match=rule):
        check_cells(lambda: cells)


class TellsNobody(MemoryCells):
    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        listener(self.leader(component))
        return lambda: None


class TellsAll(MemoryCells):
    def _tell(self, component: str) -> None:
        for _, listener in list(self._listeners):
            listener(self._leaders.get(component))


class KeepsAddresses(MemoryCells):
    last: Leader | None = None

    def announce(self, component: str, leader: Leader) -> None:
        super().announce(component, leader)
        self.last = leader

    def leader(self, component: str) -> Leader | None:
        leader = super().leader(component)
        return leader if leader is None or self.last is None else replace(self.last, epoch=leader.epoch)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (TellsNobody, "a leader that was announced is not told"),
        (TellsAll, "the leader of one component is told to those who watch another one"),
        (KeepsAddresses, "the next leader has the address of the last one"),
        (NoFence, "a leader whose time is over .*, and nobody minds"),
    ],
)
def test_the_kit_for_high_availability_finds_each_broken_rule(
    kind: type[MemoryCells], rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firesteel.testing.high_availability_conformance._PATIENCE", 0.05)
    services = CellServices(kind(), DirectoryPayloads(tmp_path))
    with pytest.raises(AssertionError, match=rule):
        check_high_availability(lambda: services, durable=False)


# -- providers


class IdleFleet(WithoutStages):
    """A fleet that is never started."""

    slots_outlive_driver = False

    def executor_for(self, taskmanager_id: str, cores: int) -> None:
        raise FleetError("it does not run")

    def attached_executors(self) -> frozenset[str]:
        return frozenset()

    def start(self) -> None:
        raise AssertionError("the kit starts no fleet")

    def start_slot(self, launch: SlotLaunch) -> None:
        raise FleetError("it does not run")

    def ended_slots(self) -> list[tuple[str, SlotOutcome, str]]:
        return []

    def cancel_slot(self, allocation_id: str) -> None: ...

    def is_alive(self) -> bool:
        return False

    def detach(self) -> None: ...

    def stop(self) -> None: ...


class Machines(Provider):
    """Workers that run for as long as their names are in a set, which outlives the provider."""

    is_active = True

    def __init__(self, running: set[str]) -> None:
        super().__init__(IdleFleet())
        self.running, self.known, self.stopping = running, set[str](), set[str]()

    def recover(self, resourcemanager_address: str) -> list[str]:
        self.known = set(self.running)
        return sorted(self.known)

    def start_worker(self, spec: WorkerSpec) -> None:
        self.known.add(spec.worker_id)
        self.running.add(spec.worker_id)

    def stop_worker(self, worker_id: str) -> None:
        self.running.discard(worker_id)

    def ended_workers(self) -> list[tuple[str, str]]:
        ended = self.known - self.running
        self.known &= self.running
        return [(name, "it was turned off") for name in sorted(ended)]

    def terminate(self) -> None:
        self.running.clear()


class StartsNone(Machines):
    is_active = False


class AliveAtOnce(Machines):
    def __init__(self, running: set[str]) -> None:
        super().__init__(running)
        self.fleet.is_alive = lambda: True  # type: ignore[method-assign]


class EndsTwice(Machines):
    def ended_workers(self) -> list[tuple[str, str]]:
        return super().ended_workers() * 2


class EndsTooEarly(Machines):
    def stop_worker(self, worker_id: str) -> None:
        self.stopping.add(worker_id)

    def ended_workers(self) -> list[tuple[str, str]]:
        return [(name, "it was asked to end") for name in sorted(self.stopping & self.running)]


class NoCause(Machines):
    def ended_workers(self) -> list[tuple[str, str]]:
        return [(name, "") for name, _ in super().ended_workers()]


class StopsAll(Machines):
    def stop_worker(self, worker_id: str) -> None:
        if worker_id in self.running:
            self.running.clear()
            self.known = {worker_id}


class Forgetful(Machines):
    def recover(self, resourcemanager_address: str) -> list[str]:
        return []


class EndsWithItsWorkers(Machines):
    def close(self) -> None:
        self.running.clear()


class LeavesWorkers(Machines):
    def terminate(self) -> None: ...


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (StartsNone, "start_worker.. of a provider that is not active does not raise"),
        (AliveAtOnce, "the fleet is alive before it was started"),
        (EndsTwice, "the end of worker-c0ffee00000a is reported twice"),
        (EndsTooEarly, "worker-c0ffee00000a runs though its end is reported"),
        (NoCause, "is reported without a cause"),
        (StopsAll, "stop_worker.. ended another worker, too"),
        (Forgetful, r"recover\(\) finds \[\] instead of"),
        (EndsWithItsWorkers, r"recover\(\) finds \[\] instead of"),
        (LeavesWorkers, r"run after terminate\(\)"),
    ],
)
def test_the_kit_for_providers_finds_each_broken_rule(kind: type[Machines], rule: str) -> None:
    running: set[str] = set()
    with pytest.raises(AssertionError, match=rule):
        check_provider(lambda: kind(running), running.__contains__, running.discard, patience=0.2)


def test_a_provider_that_keeps_the_contract() -> None:
    running: set[str] = set()
    check_provider(lambda: Machines(running), running.__contains__, running.discard)


# -- file systems


class LocalFiles(LocalFileSystem):
    """The local disk."""

    def __init__(self) -> None:
        super().__init__(Settings())


class ShownAtOnce(LocalFiles):
    def writer(self, base_path: str, context: WriterContext) -> RecoverableWriter:
        writer = super().writer(base_path, context)
        begin = writer.begin

        def shown(folder: str, name: str) -> PartOutput:
            part = begin(folder, name)
            Path(part.path).write_bytes(b"")
            return part

        writer.begin = shown  # type: ignore[method-assign]
        return writer


class CommitsOnce(LocalFiles):
    def committer(self, context: WriterContext) -> PartCommitter:
        class Once(LocalCommitter):
            def commit(self, committables: Sequence[Mapping[str, Any]], *, again: bool) -> list[CommitResult]:
                for plain in committables:
                    Path(plain["from"]).replace(plain["to"])
                return [COMMITTED for _ in committables]

        return Once(context)


class GoesOnBehind(LocalFiles):
    """Takes all that is there of a part, not what the checkpoint has."""

    def writer(self, base_path: str, context: WriterContext) -> RecoverableWriter:
        writer = super().writer(base_path, context)
        recover = writer.recover

        def whole(folder: str, new_name: Callable[[], str], persisted: Persisted) -> RecoveredPart:
            size = Path(persisted.plain["hidden"]).stat().st_size
            return recover(folder, new_name, Persisted(persisted.plain | {"size": size}, persisted.tail))

        writer.recover = whole  # type: ignore[method-assign]
        return writer


class NamesNoPart(LocalFiles):
    def writer(self, base_path: str, context: WriterContext) -> RecoverableWriter:
        writer = super().writer(base_path, context)
        begin = writer.begin

        def nameless(folder: str, name: str) -> PartOutput:
            part = begin(folder, name)
            assert isinstance(part, LocalOutput)
            persist = part.persist

            def without(make_durable: MakeDurable) -> Persisted:
                plain = persist(make_durable).plain
                return Persisted({"hidden": plain["hidden"]})

            part.persist = without  # type: ignore[method-assign]
            return part

        writer.begin = nameless  # type: ignore[method-assign]
        return writer


class KeepsOrphans(LocalFiles):
    def writer(self, base_path: str, context: WriterContext) -> RecoverableWriter:
        writer = super().writer(base_path, context)
        writer.remove_orphans = lambda: None  # type: ignore[method-assign]
        return writer


class ListsHidden(LocalFiles):
    def find(self, path: str, refused: Refused) -> Iterator[tuple[str, int]]:
        yield from super().find(path, refused)
        for file in sorted(Path(path).rglob("_*")):
            yield str(file), file.stat().st_size


class MissesNothing(LocalFiles):
    def check(self, path: str, refused: Refused, *, may_match_nothing: bool = False) -> None: ...


class EmptyWhereNothingIs(LocalFiles):
    def size(self, path: str) -> int:
        return super().size(path) if Path(path).exists() else 0


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (ShownAtOnce, "of a part that is being written"),
        (CommitsOnce, "is to answer CommitOutcome.ALREADY_COMMITTED, and raises"),
        (GoesOnBehind, "a part that went on from a checkpoint holds"),
        (NamesNoPart, "Persisted.plain does not have the path of the part as 'uri'"),
        (KeepsOrphans, r"remove_orphans\(\) leaves"),
        (ListsHidden, "names begin with a dot or an underscore"),
        (MissesNothing, r"check\(\) of nothing: ProgramError is to be raised"),
        (EmptyWhereNothingIs, r"size\(\) of nothing: FileNotFoundError is to be raised"),
    ],
)
def test_the_kit_for_file_systems_finds_each_broken_rule(kind: type[LocalFiles], rule: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_local_files(kind, tmp_path)


def test_the_local_disk_keeps_the_contract(tmp_path: Path) -> None:
    check_local_files(LocalFiles, tmp_path)


def check_local_files(kind: type[LocalFiles], folder: Path) -> None:
    base = folder / "out"
    base.mkdir()
    check_file_system(kind, str(base), leftovers=lambda: sorted(base.rglob("*.inprogress.*")))


# -- formats of files


class Numbers(StreamFormat):
    """A number of four digits in each line of five bytes."""

    splittable = True

    def open_cursor(self, split: Split, malformed: MalformedRecords) -> SplitCursor[int]:
        return NumberCursor(split, malformed)


class NumberCursor(SplitCursor[int]):
    def __init__(self, split: Split, malformed: MalformedRecords) -> None:
        data: Any = split.data
        self.path, self.end, self.malformed = data["path"], data["end"], malformed
        self.position: Any = self.start(data["start"]) if split.position is None else split.position

    def start(self, start: int) -> int:
        return -(-start // 5) * 5

    def read(self, max_records: int) -> Chunk[int] | Wait:
        values: list[Any] = []
        with open(self.path, "rb") as file:
            file.seek(self.position)
            while len(values) < max_records and self.position < self.end:
                line = file.read(5)
                values += [int(line)] if line[:4].isdigit() else self.instead(line)
                self.position += 5
        return Chunk(values, self.position, self.position >= self.end)

    def instead(self, line: bytes) -> list[Any]:
        return list(self.malformed.found(self.path, self.position, "no number", line))


class BackToTheLine(NumberCursor):
    """A range gets the record at its start, wherever that begins."""

    def start(self, start: int) -> int:
        return start // 5 * 5


class NoPosition(NumberCursor):
    def read(self, max_records: int) -> Chunk[int] | Wait:
        chunk = super().read(max_records)
        assert isinstance(chunk, Chunk)
        return replace(chunk, position=0)


class TooMany(NumberCursor):
    def read(self, max_records: int) -> Chunk[int] | Wait:
        return super().read(max_records + 1)


class Silent(NumberCursor):
    def instead(self, line: bytes) -> list[Any]:
        return []


class NeverEnds(NumberCursor):
    def read(self, max_records: int) -> Chunk[int] | Wait:
        chunk = super().read(max_records)
        assert isinstance(chunk, Chunk)
        return replace(chunk, finished=False) if chunk.values else Wait()


NUMBERS = list(range(1000, 1020))


def check_numbers(cursor: type[NumberCursor]) -> None:
    content = b"".join(b"%d\n" % number for number in NUMBERS)
    check_file_format(lambda: numbers_of(cursor), content, NUMBERS, damaged=content.replace(b"1007", b"none"))


def numbers_of(cursor: type[NumberCursor]) -> Numbers:
    file_format = Numbers()
    file_format.open_cursor = cursor  # type: ignore[method-assign]
    return file_format


@pytest.mark.parametrize(
    ("cursor", "rule"),
    [
        (BackToTheLine, "of two ranges that meet at byte"),
        (NoPosition, "record 0 behind position 0 is 1000"),
        (TooMany, r"read\(3\) gave 4 records"),
        (Silent, "damaged data do not raise MalformedDataError"),
        (NeverEnds, "no end after"),
    ],
)
def test_the_kit_for_file_formats_finds_each_broken_rule(
    cursor: type[NumberCursor], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firesteel.testing.file_format_conformance._LONGEST", 1000)
    with pytest.raises(AssertionError, match=rule):
        check_numbers(cursor)


def test_a_format_that_keeps_the_contract() -> None:
    check_numbers(NumberCursor)
