"""The contract of stores of completed checkpoints: what the next JobMaster of a job knows of its checkpoints.

A store belongs to one job. It holds a short list of completed checkpoints, and a counter of their ids. Its methods may
block, and are called on one thread at a time.

* ``add`` has happened when it returns, and outlives the process (if the store is persistent). The same checkpoint may
  be added again; another one of the same id is refused.
* ``all`` gives the checkpoints in the order of their ids. An entry that is not what was written is left out and named
  in ``damaged``; it hides no other. One that can't be read for now raises.
* ``next_id`` gives each id once, in rising order and above the number that it is given, whatever happens between two
  calls.
* ``remove`` is harmless to repeat. ``clear`` forgets checkpoints and counter: the job has ended for good.
* Whatever can't be done raises ``CheckpointStorageError``: then nobody knows whether it has happened, until ``add`` or
  ``remove`` is repeated and returns. ``FencedError`` says that another JobMaster leads the job: nothing has happened.
* ``renewed`` is for calls that hang: they may have had their effect when it returns, or not, but have none afterwards.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from firesteel.checkpoint.handles import checksum
from firesteel.checkpoint.reading import CheckpointFormatError, member, whole_number
from firesteel.core.errors import CheckpointStorageError
from firesteel.core.files import make_private_directory, replace_file, sync_directory

_ENTRY: Final = re.compile(r"chk-(\d+)\.json")
_FIRST_LINE: Final = re.compile(rb"FIRESTEEL-CHECKPOINTS (\d{1,9}) ([0-9a-f]{32})\n")
VERSION: Final = 1
"""Of the files of ``DirectoryCheckpointStore``: a line with version and checksum, then JSON."""


@dataclass(frozen=True)
class StoredCheckpoint:
    """An entry.

    Attributes:
        checkpoint_id: of the checkpoint.
        location: of its metadata in the checkpoint storage.
        metadata: the metadata themselves, where the storage does not keep them.
        savepoint: it is the user's: none of its files goes with the job. Entries of others do not mention it.
    """

    checkpoint_id: int
    location: str
    metadata: str | None = field(default=None, repr=False)
    savepoint: bool = False

    def to_plain(self) -> dict[str, Any]:
        plain = {"checkpoint_id": self.checkpoint_id, "location": self.location, "metadata": self.metadata}
        return {**plain, "savepoint": True} if self.savepoint else plain

    @classmethod
    def from_plain(cls, plain: Any) -> StoredCheckpoint:
        """The inverse of ``to_plain``.

        Raises:
            CheckpointFormatError: it is malformed.
        """
        given: dict[str, Any] = member(plain, dict, "entry")
        metadata = given.get("metadata")
        return cls(
            whole_number(given.get("checkpoint_id"), "entry.checkpoint_id"),
            member(given.get("location"), str, "entry.location"),
            None if metadata is None else member(metadata, str, "entry.metadata"),
            member(given.get("savepoint", False), bool, "entry.savepoint"),
        )


class CompletedCheckpointStore(ABC):
    """See the head of this module."""

    @abstractmethod
    def next_id(self, above: int = 0) -> int:
        """The id of the next checkpoint, from 1."""

    @abstractmethod
    def add(self, checkpoint: StoredCheckpoint) -> None:
        """Remember a completed checkpoint."""

    @abstractmethod
    def remove(self, checkpoint_id: int) -> None: ...

    @abstractmethod
    def all(self) -> list[StoredCheckpoint]:
        """The checkpoints, in the order of their ids."""

    @property
    @abstractmethod
    def damaged(self) -> tuple[str, ...]:
        """What the last ``all`` could not read, and why."""

    @abstractmethod
    def clear(self) -> None: ...

    def renewed(self) -> CompletedCheckpointStore | None:
        """The same store for later calls. Calls of this object that have not returned change nothing from now on.

        None: that can't be had; whoever has given a call up has to wait for it.
        """
        return None


class MemoryCheckpointStore(CompletedCheckpointStore):
    """For a job that nobody will start again when its JobMaster is gone."""

    def __init__(self) -> None:
        self._checkpoints: dict[int, StoredCheckpoint] = {}
        self._last = 0

    def next_id(self, above: int = 0) -> int:
        self._last = max(self._last, above) + 1
        return self._last

    def add(self, checkpoint: StoredCheckpoint) -> None:
        if self._checkpoints.setdefault(checkpoint.checkpoint_id, checkpoint) != checkpoint:
            raise CheckpointStorageError(f"another checkpoint {checkpoint.checkpoint_id} is in the store already")

    def remove(self, checkpoint_id: int) -> None:
        self._checkpoints.pop(checkpoint_id, None)

    def all(self) -> list[StoredCheckpoint]:
        return [checkpoint for _, checkpoint in sorted(self._checkpoints.items())]

    @property
    def damaged(self) -> tuple[str, ...]:
        return ()

    def clear(self) -> None:
        self._checkpoints.clear()
        self._last = 0


class DirectoryCheckpointStore(CompletedCheckpointStore):
    """A directory of the job's own, of mode 0700: a file for each checkpoint, and one for the counter.

    Args:
        directory: made when it is needed.
        guard: entered for each write; raises ``FencedError`` where the writer leads no more. Gives a folder of the same
            file system that is gone then, so that nothing can be renamed out of it, or into it. Default: nobody else
            writes. ``open`` has to come first where there is one.
    """

    def __init__(self, directory: Path, guard: Callable[[], AbstractContextManager[Path | None]] = nullcontext) -> None:
        self._directory, self._guard = directory, guard
        self._own = f"checkpoints-{uuid.uuid4().hex}"
        """Of this object, in the guard's folder: without it nothing of this object can be written."""
        self._damaged: tuple[str, ...] = ()

    def open(self) -> None:
        """Make room for drafts.

        Raises:
            FencedError: another one leads.
            OSError: it can't be made.
        """
        with self._guard() as held:
            if held is not None:
                (held / self._own).mkdir(mode=0o700)

    @override
    def renewed(self) -> CompletedCheckpointStore | None:
        new = DirectoryCheckpointStore(self._directory, self._guard)
        with self._changing("what earlier calls have begun can't be ended") as drafts:
            if drafts is None:
                return None
            try:
                os.rename(drafts, drafts.with_name(new._own))
            except FileNotFoundError:  # an earlier try, of which nobody heard, has done it
                drafts.with_name(new._own).mkdir(mode=0o700)
        return new

    @contextmanager
    def _changing(self, failed: str) -> Iterator[Path | None]:
        """Something is changed: gives the folder for drafts, and for what goes."""
        try:
            with self._guard() as held:
                yield None if held is None else held / self._own
        except OSError as error:
            raise CheckpointStorageError(f"{failed}: {error.strerror or error}") from error

    def next_id(self, above: int = 0) -> int:
        counter = self._directory / "counter"
        following = max(self._last(counter), above) + 1
        self._write(counter, following, "the counter of checkpoints")
        return following

    def _last(self, counter: Path) -> int:
        try:
            content = counter.read_bytes()
            by_hand = content.strip()
            return int(by_hand) if by_hand.isdigit() else whole_number(_decode(content), "counter")
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, CheckpointFormatError) as error:
            raise CheckpointStorageError(
                f"the counter of checkpoints can't be read: {counter}: {error}. Write the number of the job's last "
                "checkpoint into it"
            ) from error

    def add(self, checkpoint: StoredCheckpoint) -> None:
        path = self._path(checkpoint.checkpoint_id)
        try:
            other = path.exists() and _read(path) != checkpoint
        except OSError as error:
            raise CheckpointStorageError(f"{path} can't be read: {error.strerror or error}") from error
        if other:
            raise CheckpointStorageError(f"{path}: another checkpoint of this id is in the store already")
        self._write(path, checkpoint.to_plain(), f"checkpoint {checkpoint.checkpoint_id}")

    def remove(self, checkpoint_id: int) -> None:
        path = self._path(checkpoint_id)
        with self._changing(f"{path} can't be removed") as drafts:
            if drafts is None:
                path.unlink(missing_ok=True)
            elif path.exists():
                self._drop(path, drafts)

    def _drop(self, path: Path, drafts: Path) -> None:
        gone = drafts / f"{path.name}.{uuid.uuid4().hex}.gone"
        os.rename(path, gone)
        sync_directory(path.parent)
        if gone.is_dir():
            shutil.rmtree(gone)
        else:
            gone.unlink()

    def all(self) -> list[StoredCheckpoint]:
        found: dict[int, StoredCheckpoint] = {}
        damaged = []
        try:
            entries = sorted(self._directory.iterdir()) if self._directory.is_dir() else []
        except OSError as error:
            raise CheckpointStorageError(f"{self._directory} can't be read: {error.strerror or error}") from error
        for path in entries:
            name = _ENTRY.fullmatch(path.name)
            if name is not None:
                try:
                    read = _read(path)
                except OSError as error:  # that may pass: it is not damaged
                    raise CheckpointStorageError(f"{path} can't be read: {error.strerror or error}") from error
                if isinstance(read, StoredCheckpoint) and read.checkpoint_id == int(name[1]):
                    found[read.checkpoint_id] = read
                else:
                    damaged.append(f"{path}: {'an entry of another checkpoint' if not isinstance(read, str) else read}")
        self._damaged = tuple(damaged)
        return [found[checkpoint_id] for checkpoint_id in sorted(found)]

    @property
    def damaged(self) -> tuple[str, ...]:
        return self._damaged

    def clear(self) -> None:
        with self._changing(f"{self._directory} can't be removed") as drafts:
            if not self._directory.is_dir():
                return
            if drafts is not None:
                self._drop(self._directory, drafts)
                return
            for path in self._directory.iterdir():
                path.unlink(missing_ok=True)
            self._directory.rmdir()

    def _path(self, checkpoint_id: int) -> Path:
        return self._directory / f"chk-{checkpoint_id}.json"

    def _write(self, path: Path, content: Any, what: str) -> None:
        with self._changing(f"{what} can't be written to {path}") as drafts:
            make_private_directory(self._directory)
            replace_file(path, _encode(content), drafts=drafts)


def _encode(content: Any) -> bytes:
    body = json.dumps(content).encode() + b"\n"
    return f"FIRESTEEL-CHECKPOINTS {VERSION} {checksum(body)}\n".encode() + body


def _decode(data: bytes) -> Any:
    """Raises:
    ValueError: it is something else, or was changed.
    CheckpointStorageError: another version has written it; nothing is wrong with it.
    """
    first = _FIRST_LINE.match(data)
    if first is None:
        raise ValueError(
            "the file is empty" if not data else "its first line is damaged, or it is no file of this kind"
        )
    if int(first[1]) != VERSION:
        raise CheckpointStorageError(
            f"the store of checkpoints is of version {int(first[1])}, and this Firesteel reads version {VERSION}: let "
            "the one that has written it go on with the job"
        )
    body = data[first.end() :]
    if checksum(body) != first[2].decode():
        raise ValueError("its checksum is wrong: it was cut off, or changed after it was written")
    return json.loads(body)


def _read(path: Path) -> StoredCheckpoint | str:
    """An entry, or what is wrong with it."""
    data = path.read_bytes()
    try:
        return StoredCheckpoint.from_plain(_decode(data))
    except (ValueError, CheckpointFormatError) as error:
        return str(error)
