"""A checkpoint storage and a store of completed checkpoints that are slow, fail, write a half, lie and rot.

The disk is one that all processes see; it outlives them. Stores are the real ones, in memory, with what can happen on
the way to them.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from firesteel.checkpoint.handles import FileState, InlineState, StateHandle, checksum
from firesteel.checkpoint.metadata import CheckpointMetadata
from firesteel.checkpoint.storage import CheckpointStorage, StateWriter
from firesteel.checkpoint.store import CompletedCheckpointStore, StoredCheckpoint
from firesteel.core.errors import CheckpointCorruptedError, CheckpointStorageError
from firesteel.ha.memory import MemoryServices
from firesteel.ha.services import Leadership
from tests.simulation.blocking import pause

if TYPE_CHECKING:
    from tests.simulation.ledger import Ledger
    from tests.simulation.world import Process, World

METADATA = "_metadata"
_FOR_EVER = 1e9
_HANGS = (_FOR_EVER, _FOR_EVER, _FOR_EVER, 20.0, 100.0, 200.0)
MOST_FOR_EVER = 3
"""As many as a JobMaster bears, and one less."""
Step = Callable[[str, str], None]


@dataclass
class Weather:
    """How storage behaves, as chances of each operation.

    Attributes:
        slow: seconds of an operation, at least and at most.
        fails: it can't be done.
        forgets: it is done, and nobody hears of it.
        halves: what fails leaves a part behind.
        lies: state is cut off or gone, and said to be written.
        rots: state is changed after it was written.
        hangs: nobody hears of it for long, or ever again.
    """

    slow: tuple[float, float] = (0.0005, 0.02)
    fails: float = 0.0
    forgets: float = 0.0
    halves: float = 0.0
    lies: float = 0.0
    rots: float = 0.0
    hangs: float = 0.0


class Disk:
    """Files and directories.

    Args:
        world: whose chance it is.
        ledger: hears of what is removed.
        step: told before and after what the JobMaster does here: the name of the step, and the job.
    """

    def __init__(self, world: World, ledger: Ledger, step: Step = lambda point, job_id: None) -> None:
        self.world, self.ledger, self.step = world, ledger, step
        self.weather = Weather()
        self.files: dict[str, bytes] = {}
        self.directories: set[str] = set()
        self.numbers = itertools.count(1)
        self.hung_for_ever = 0
        self.is_fair = True
        """What is asked for is done, though perhaps not what was asked for."""

    def chance(self, of: float) -> bool:
        return of > 0 and self.world.rng.random() < of

    def seconds(self) -> float:
        return self.world.rng.uniform(*self.weather.slow)

    def begin(self, what: str) -> None:
        """An operation takes its time, and may fail."""
        pause(self.seconds())
        if self.chance(self.weather.hangs):
            self.is_fair = False
            seconds = self.world.rng.choice(_HANGS[3 if self.hung_for_ever >= MOST_FOR_EVER else 0 :])
            self.hung_for_ever += seconds == _FOR_EVER
            self.world.tell(f"{what} hangs")
            pause(seconds)
        if self.chance(self.weather.fails):
            raise CheckpointStorageError(f"{what}: the disk does not answer")

    def answer(self, what: str) -> None:
        """An operation is done; perhaps nobody hears of it."""
        pause(0.0)
        if self.chance(self.weather.forgets):
            raise CheckpointStorageError(f"{what}: no answer came")

    def remove(self, path: str) -> None:
        if path in self.files:
            self.ledger.file_removed(path)
            del self.files[path]

    def remove_tree(self, directory: str, keep: Collection[str]) -> None:
        """A directory goes with all that is in it but for what is kept."""
        inside = [path for path in self.files if path.startswith(f"{directory}/")]
        for path in inside:
            if path not in keep:
                self.remove(path)
        if not any(path in keep for path in inside):
            self.directories.discard(directory)

    def directories_of(self, root: str) -> list[str]:
        return sorted(directory for directory in self.directories if directory.startswith(f"{root}/"))

    def left_of(self, job_id: str) -> list[str]:
        """All files of a job."""
        return sorted(path for path in self.files if path.startswith(f"/disk/{job_id}/"))


def look(disk: Disk, handle: FileState) -> bytes:
    """A file as it is.

    Raises:
        CheckpointCorruptedError: it is not as it was written.
    """
    data = disk.files.get(handle.path)
    if data is None:
        raise CheckpointCorruptedError(handle.path, "the file is missing")
    if len(data) < handle.offset + handle.length:
        raise CheckpointCorruptedError(handle.path, "it is cut off")
    return data


class SimulatedStorage(CheckpointStorage):
    """Of one job; as the file system's, in memory.

    Args:
        disk: where everything is.
        job_id: of the job.
        threshold: state of fewer bytes travels with the messages.
    """

    name = "simulated"

    def __init__(self, disk: Disk, job_id: str, threshold: int = 0) -> None:
        self._disk, self._job_id, self.root, self._threshold = disk, job_id, f"/disk/{job_id}", threshold

    @property
    def persistent(self) -> bool:
        return True

    def directory(self, checkpoint_id: int) -> str:
        return f"{self.root}/chk-{checkpoint_id}"

    def _step(self, point: str) -> None:
        self._disk.step(point, self._job_id)

    # -- slots

    def open_state_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        return Writer(self._disk, self.directory(checkpoint_id), self._threshold)

    def open_state(self, handle: StateHandle) -> BinaryIO:
        if isinstance(handle, InlineState):
            return io.BytesIO(handle.data)
        data = look(self._disk, handle)
        return io.BytesIO(data[handle.offset : handle.offset + handle.length])

    # -- the JobMaster

    def prepare(self, checkpoint_id: int) -> None:
        self._step("prepare")
        self._disk.begin("prepare")
        self._disk.directories.add(self.directory(checkpoint_id))
        self._disk.answer("prepare")

    def verify(self, handles: Iterable[StateHandle]) -> None:
        self._disk.begin("verify")
        for handle in handles:
            if isinstance(handle, FileState):
                look(self._disk, handle)

    def write_metadata(self, checkpoint_id: int, data: bytes) -> str:
        self._step("before metadata")
        disk, directory = self._disk, self.directory(checkpoint_id)
        path = f"{directory}/{METADATA}"
        if disk.chance(disk.weather.halves) and directory in disk.directories:
            disk.files[f"{directory}/.{METADATA}.inprogress"] = data[: len(data) // 2]
            raise CheckpointStorageError(f"{path}: no space is left")
        disk.begin("metadata")
        if directory not in disk.directories:
            raise CheckpointStorageError(f"{directory}: there is no such directory")
        if disk.files.setdefault(path, data) != data:
            raise CheckpointStorageError(f"{path} is there already, and holds something else")
        self._step("after metadata")
        disk.answer("metadata")
        return path

    def read_metadata(self, location: str) -> tuple[str, bytes]:
        self._step("read metadata")
        self._disk.begin("read")
        if location in self._disk.directories:  # of a savepoint
            location = f"{location}/{METADATA}"
        if location not in self._disk.files:
            raise CheckpointCorruptedError(location, "there is no such file")
        return location, self._disk.files[location]

    def left_behind(self, below: int) -> list[tuple[int, str, bytes | None]]:
        disk = self._disk
        disk.begin("look")
        leftovers = []
        for directory in disk.directories_of(self.root):
            number, location = int(directory.rpartition("-")[2]), f"{directory}/{METADATA}"
            if number < below:
                leftovers.append((number, location, disk.files.get(location)))
        return sorted(leftovers)

    def discard(self, checkpoint_id: int, files: Collection[str] = (), keep: Collection[str] = ()) -> None:
        self._step("discard")
        self._disk.begin("discard")
        self._remove(files, keep)
        self._disk.remove_tree(self.directory(checkpoint_id), keep)
        self._disk.answer("discard")

    def dispose(self, location: str, files: Collection[str], keep: Collection[str] = ()) -> None:
        if not location.startswith(f"{self.root}/"):
            return
        self._step("dispose")
        disk = self._disk
        disk.begin("dispose")
        disk.remove(location)
        self._step("between metadata and files")
        disk.begin("dispose")
        self._remove(files, keep)
        disk.remove_tree(location.rpartition("/")[0], keep)
        disk.answer("dispose")

    def _remove(self, files: Collection[str], keep: Collection[str]) -> None:
        for path in sorted(files):
            if path not in keep and path.startswith(f"{self.root}/"):
                self._disk.remove(path)
                directory = path.rpartition("/")[0]
                if not any(other.startswith(f"{directory}/") for other in self._disk.files):
                    self._disk.directories.discard(directory)

    def close_job(self, keep: Collection[str] = ()) -> None:
        self._step("close")
        disk = self._disk
        disk.begin("close")
        for directory in disk.directories_of(self.root):
            if f"{directory}/{METADATA}" not in disk.files:
                disk.remove_tree(directory, keep)
        disk.answer("close")


class Writer(StateWriter):
    """Of a file.

    Args:
        disk: where it is.
        directory: in which it is.
        threshold: state of fewer bytes travels with the messages.
    """

    def __init__(self, disk: Disk, directory: str, threshold: int) -> None:
        self._disk, self._directory, self._threshold = disk, directory, threshold
        self._data = b""
        self._closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closed:
            raise CheckpointStorageError("the writer was closed before")
        self._data += bytes(data)

    def close(self) -> StateHandle:
        disk, data = self._disk, self._data
        if self._closed:
            raise CheckpointStorageError("the writer was closed before")
        self._closed = True
        if len(data) < self._threshold:
            return InlineState(data)
        if self._directory not in disk.directories:
            raise CheckpointStorageError(f"{self._directory}: there is no such directory")
        path = f"{self._directory}/{next(disk.numbers)}"
        if disk.chance(disk.weather.fails):
            if disk.chance(disk.weather.halves):
                disk.files[path] = data[: len(data) // 2]
            raise CheckpointStorageError(f"{path}: no space is left")
        if disk.chance(disk.weather.lies):
            if data and disk.chance(0.5):
                disk.files[path] = data[:-1]
        elif data and disk.chance(disk.weather.rots):
            disk.files[path] = bytes([data[0] ^ 1]) + data[1:]
            disk.ledger.file_rots(path)
        else:
            disk.files[path] = data
        return FileState(path, len(data), checksum(data))

    def abort(self) -> None:
        self._closed = True


class SimulatedHighAvailability:
    """Who leads what, and what leaders of jobs have stored.

    Args:
        disk: whose weather it shares.
    """

    has_standbys = False

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.election = MemoryServices()
        self.announced: dict[str, Process] = {}
        """Component -> who has led it last, and has said so."""
        self.announced_at: dict[str, float] = {}
        self.elected: dict[str, Process] = {}
        """Component -> who has been elected last; it leads, and may not be able to say so yet."""
        self.fails = 0.0
        """How likely a call does not reach it."""
        self.away: set[str] = set()
        """Hosts that can't reach it at all."""
        self.over: set[str] = set()
        """Jobs whose end one of their JobMasters has recorded: no other one may be made."""
        self._forgotten: dict[str, list[StoredCheckpoint]] = {}
        """What was left of jobs when they were forgotten."""

    def reach(self, process: Process, what: str) -> None:
        """A process asks for something.

        Raises:
            OSError: it is not to be had.
        """
        disk = self._disk
        if what.startswith(("campaign for job-", "noting", "forgetting")):
            pause(disk.seconds())
        if process.host in self.away or disk.chance(self.fails):
            if not what.startswith("looking"):
                disk.world.tell(f"{process}: {what} fails")
            raise OSError(5, f"{what}: input/output error")

    def led(self, component: str, epoch: int) -> None:
        """Somebody leads from now on."""
        if component.startswith("job-"):
            self._disk.ledger.leads(component.removeprefix("job-"), epoch)

    def checkpoints(self, job_id: str, leadership: Leadership) -> CompletedCheckpointStore:
        """What the JobMasters of a job have stored."""
        store = self.election.completed_checkpoints(job_id, leadership)
        if job_id not in self._disk.ledger.accounts:
            return store
        return _WatchedStore(store, self._disk, job_id, leadership.epoch)

    def forget(self, job_id: str) -> None:
        """A JobMaster believes that nobody needs anything of the job any more."""
        self._forgotten.setdefault(job_id, self.left_of(job_id))
        self._disk.ledger.forgotten(job_id)
        self.election.forget_job(job_id)

    def left_of(self, job_id: str) -> list[StoredCheckpoint]:
        """What the next leader of a job would find, or would have found when it was forgotten."""
        if job_id in self._forgotten:
            return self._forgotten[job_id]
        leadership = self.election.campaign(f"reader-of-{job_id}")
        assert leadership is not None
        leadership.release()
        return self.election.completed_checkpoints(job_id, leadership).all()


class _WatchedStore(CompletedCheckpointStore):
    """The store of one leader; the ledger hears of what has happened."""

    def __init__(self, store: CompletedCheckpointStore, disk: Disk, job_id: str, epoch: int) -> None:
        self._store, self._disk, self._job_id, self._epoch = store, disk, job_id, epoch
        self._is_renewed = False

    def renewed(self) -> CompletedCheckpointStore:
        self._is_renewed = True
        return _WatchedStore(self._store, self._disk, self._job_id, self._epoch)

    def _begin(self, operation: str) -> None:
        self._disk.begin(operation)
        if self._is_renewed:
            raise CheckpointStorageError("the call was given up, and another object has followed")

    def next_id(self, above: int = 0) -> int:
        self._begin("counter")
        number = self._store.next_id(above)
        self._disk.ledger.counted(self._job_id, self._epoch, number)
        self._disk.answer("counter")
        return number

    def add(self, checkpoint: StoredCheckpoint) -> None:
        disk, where = self._disk, checkpoint.location
        disk.step("before store", self._job_id)
        self._begin("store")
        self._store.add(checkpoint)
        if checkpoint.location in disk.directories:  # of a savepoint
            where = f"{checkpoint.location}/{METADATA}"
        metadata = CheckpointMetadata.from_bytes(disk.files[where], where) if where in disk.files else None
        disk.ledger.stored(
            self._job_id, self._epoch, checkpoint.checkpoint_id, metadata, disk.files, checkpoint.location
        )
        disk.step("after store", self._job_id)
        disk.answer("store")

    def remove(self, checkpoint_id: int) -> None:
        self._disk.step("before remove", self._job_id)
        self._begin("remove")
        self._store.remove(checkpoint_id)
        self._disk.ledger.taken_out(self._job_id, self._epoch, checkpoint_id)
        self._disk.answer("remove")

    def all(self) -> list[StoredCheckpoint]:
        self._disk.step("recover", self._job_id)
        self._disk.begin("all")
        return self._store.all()

    @property
    def damaged(self) -> tuple[str, ...]:
        return self._store.damaged

    def clear(self) -> None:
        self._begin("clear")
        self._store.clear()
        self._disk.ledger.cleared(self._job_id, self._epoch)
        self._disk.answer("clear")
