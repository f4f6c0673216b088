"""Values too large for a record of a cell: graphs and blobs of jobs, archives, metadata. Records name them.

A payload is a *document* (bytes) or a *folder* (files). Each has a name of its own, which is never used again: it is
written once, read, and removed. So writes need no fence: no record names what a former leader writes, and the current
leader removes it some day.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import uuid
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from firesteel.checkpoint.places import ObjectPlace, is_object, object_place
from firesteel.checkpoint.state_files import local_path
from firesteel.config import Settings
from firesteel.config.recovery_options import HA_STORAGE_DIRECTORY
from firesteel.core.errors import CheckpointStorageError
from firesteel.ha.cells import AwayError
from firesteel.ha.disk import Disk

if TYPE_CHECKING:
    from firesteel.checkpoint.object_store import ObjectStore

_INCOMING: Final = ".incoming"


class PayloadsAwayError(AwayError):
    """The place of the payloads is not the store's, as when a file system is not mounted."""


def _marker(store: str) -> str:
    return f"{store}/marker"


class Payloads(ABC):
    """The payloads of a cluster.

    Names are parts with slashes between them. All failures are ``OSError``; that of a missing payload is
    ``FileNotFoundError``. Methods may block, and may be called on several threads at once.
    """

    @property
    @abstractmethod
    def where(self) -> str:
        """Place of the payloads, for people."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Write a new document; it is safe when this returns."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Content of a document."""

    @abstractmethod
    def receive(self) -> Path:
        """Create a folder on this host for the parts of a payload; ``store`` or ``drop`` takes it away."""

    @abstractmethod
    def store(self, received: Path, name: str) -> Path:
        """Make a folder from ``receive`` a payload, safe when this returns; returns its folder on this host.

        Only the folder and its direct sub-folders have files.
        """

    @abstractmethod
    def fetch(self, name: str) -> Path:
        """Folder of a payload's files on this host."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a payload, or all payloads below a name, if there are any."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Names of payloads directly below a name, sorted."""

    @abstractmethod
    def drop(self, received: Path) -> None:
        """Delete a received folder that will not be stored, if it exists."""

    @abstractmethod
    def begin(self) -> None:
        """Begin as the process that receives: folders that others received and did not store are removed."""

    def mark(self, store: str) -> None:
        """Write the marker of a store: it tells a store without payloads from an empty mount point."""
        self.write(_marker(store), store.encode())

    def check(self, store: str) -> None:
        """Check that this is the place of a store that was marked.

        Raises:
            PayloadsAwayError: it is not, or the marker can't be read for now.
        """
        try:
            if self.read(_marker(store)) == store.encode():
                return
            reason = "its marker is another one"
        except OSError as error:
            reason = error.strerror or str(error)
        raise PayloadsAwayError(
            f"{self.where} does not hold the marker of this cluster's store ({_marker(store)}: {reason}): is the file "
            "system of high-availability.storageDir mounted on this host, and is it the same place as before?"
        )

    def check_mounted(self, store: str) -> None:  # noqa: B027 # object stores say themselves that they are away
        """Like ``check``, before each write: a payload written into an empty mount point would never be found again."""

    @abstractmethod
    def close(self) -> None:
        """Release resources on this host. May be called twice."""


class DirectoryPayloads(Payloads):
    """Payloads as files of a directory, which is shared by all hosts that need them.

    Args:
        directory: private to the cluster; created on first use. None = a temporary directory, for the life of this
            object.
        disk: writes files.
    """

    def __init__(self, directory: Path | None, disk: Disk | None = None) -> None:
        self._given, self._disk = directory, disk or Disk()
        self._made: Path | None = None
        self._making = threading.Lock()

    @property
    def directory(self) -> Path:
        if self._given is not None:
            return self._given
        with self._making:
            self._made = self._made or Path(tempfile.mkdtemp(prefix="firesteel-jobs-"))
            return self._made

    @property
    @override
    def where(self) -> str:
        return str(self.directory)

    @override
    def write(self, name: str, content: bytes) -> None:
        path, disk = self.directory / name, self._disk
        disk.make_directory(path.parent)
        part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            disk.write(part, content)
            disk.sync(part)
            disk.rename(part, path)
        except OSError:
            part.unlink(missing_ok=True)
            raise
        disk.sync(path.parent)

    @override
    def read(self, name: str) -> bytes:
        return (self.directory / name).read_bytes()

    @override
    def check_mounted(self, store: str) -> None:
        self.check(store)

    @override
    def receive(self) -> Path:
        path = self.directory / _INCOMING / uuid.uuid4().hex
        self._disk.make_directory(path)
        return path

    @override
    def store(self, received: Path, name: str) -> Path:
        path, disk = self.directory / name, self._disk
        for inner in (*received.glob("*/*"), *received.iterdir(), received):
            disk.sync(inner)
        disk.make_directory(path.parent)
        disk.rename(received, path)
        disk.sync(path.parent)
        return path

    @override
    def fetch(self, name: str) -> Path:
        path = self.directory / name
        path.stat()
        return path

    @override
    def remove(self, name: str) -> None:
        if self._given is None and self._made is None:
            return
        path = self.directory / name
        doomed = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        with suppress(FileNotFoundError):
            self._disk.rename(path, doomed)  # first, so that half a payload is never seen
            self._disk.remove_tree(doomed)

    @override
    def names(self, folder: str) -> list[str]:
        if self._given is None and self._made is None:
            return []  # nothing was written, so no directory is created
        path = self.directory / folder
        entries = path.iterdir() if path.is_dir() else ()
        return sorted(f"{folder}/{entry.name}" for entry in entries if not entry.name.startswith("."))

    @override
    def drop(self, received: Path) -> None:
        self._disk.remove_tree(received)

    @override
    def begin(self) -> None:
        self._disk.make_directory(self.directory)
        self._disk.remove_tree(self.directory / _INCOMING)

    @override
    def close(self) -> None:
        directory, self._made = self._given or self._made, None
        if directory is not None and not self._disk.durable:
            self._disk.remove_tree(directory)


class ObjectPayloads(Payloads):
    """Payloads as objects of an object store; files are copied to this host to be read.

    Args:
        client: of the store.
        place: private to the cluster.
        local: directory of this host for received and copied files; None = a temporary directory.
    """

    def __init__(self, client: ObjectStore, place: ObjectPlace, local: Path | None = None) -> None:
        self._client, self._place = client, place
        self._given = local
        self._made: Path | None = None
        self._making = threading.Lock()

    @property
    @override
    def where(self) -> str:
        return str(self._place)

    @override
    def write(self, name: str, content: bytes) -> None:
        try:
            self._client.put(self._place / name, content)
        except CheckpointStorageError as error:
            raise OSError(str(error)) from error

    @override
    def read(self, name: str) -> bytes:
        return self._get(self._place / name)

    def _get(self, place: ObjectPlace) -> bytes:
        from firesteel.checkpoint.object_store import NoSuchObjectError

        try:
            return self._client.get(place)[0]
        except NoSuchObjectError as error:
            raise FileNotFoundError(f"{place}: there is no such object") from error
        except CheckpointStorageError as error:
            raise OSError(str(error)) from error

    @property
    def _local(self) -> Path:
        with self._making:
            if self._made is None:
                self._made = Path(
                    tempfile.mkdtemp(prefix="firesteel-payloads-") if self._given is None else self._given / "payloads"
                )
            return self._made

    @override
    def receive(self) -> Path:
        path = self._local / _INCOMING / uuid.uuid4().hex
        path.mkdir(mode=0o700, parents=True)
        return path

    @override
    def store(self, received: Path, name: str) -> Path:
        for file in sorted(path for path in (*received.glob("*/*"), *received.iterdir()) if path.is_file()):
            self.write(f"{name}/{file.relative_to(received).as_posix()}", file.read_bytes())
        path = self._local / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        received.rename(path)
        return path

    @override
    def fetch(self, name: str) -> Path:
        path = self._local / name
        if path.is_dir():
            return path
        keys = self._keys(self._place / name / "")
        if not keys:
            raise FileNotFoundError(f"{self._place / name}: there is no such payload")
        received = self.receive()
        try:
            for key in keys:
                file = received / key.removeprefix(f"{(self._place / name).key}/")
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                file.write_bytes(self._get(self._place.at(key)))
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            received.rename(path)
        finally:
            self.drop(received)
        return path

    @override
    def remove(self, name: str) -> None:
        if self._made is not None:
            self.drop(self._made / name)
        place = self._place / name
        try:
            self._client.delete(place.bucket, [*self._keys(place / ""), place.key])
        except CheckpointStorageError as error:
            raise OSError(str(error)) from error

    @override
    def names(self, folder: str) -> list[str]:
        place = self._place / folder / ""
        parts = {key.removeprefix(place.key).partition("/")[0] for key in self._keys(place, "/")}
        return sorted(f"{folder}/{part}" for part in parts if part)

    def _keys(self, place: ObjectPlace, delimiter: str = "") -> list[str]:
        try:
            return [found_object.key for found_object in self._client.find(place, delimiter)]
        except CheckpointStorageError as error:
            raise OSError(str(error)) from error

    @override
    def drop(self, received: Path) -> None:
        shutil.rmtree(received, ignore_errors=True)

    @override
    def begin(self) -> None:
        shutil.rmtree(self._local, ignore_errors=True)

    @override
    def close(self) -> None:
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)


def storage_directory(storage: str) -> Path:
    """The directory that ``high-availability.storageDir`` names, as a path or a ``file:`` URI.

    Raises:
        ConfigurationError: it has another scheme, or is not absolute.
    """
    return local_path(os.path.expanduser(storage), HA_STORAGE_DIRECTORY.key)


def payloads_in(storage: str, cluster: str, settings: Settings, local: Path | None) -> Payloads:
    """Create the payloads of a cluster.

    Args:
        storage: a directory, or a URI of an object store.
        cluster: its name there.
        settings: of the cluster.
        local: directory of this host and cluster.

    Raises:
        ConfigurationError: the storage can't be used.
    """
    if not is_object(storage):
        return DirectoryPayloads(storage_directory(storage) / cluster / "payloads")
    from firesteel.checkpoint.object_stores import open_store

    place = object_place(storage, HA_STORAGE_DIRECTORY.key) / cluster / "payloads"
    return ObjectPayloads(open_store(place, settings), place, local)
