"""Archives of ended jobs for history servers: one file for each job, in a directory or in an object store.

A Dispatcher with ``jobmanager.archive.fs.dir`` writes them, whole or not at all; history servers read them, and remove
those that have expired.
"""

from __future__ import annotations

import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from typing_extensions import override

from firesteel.checkpoint.object_stores import open_store
from firesteel.checkpoint.places import ObjectPlace, is_object, object_place
from firesteel.config.settings import Settings
from firesteel.core.errors import CheckpointStorageError, ConfigurationError
from firesteel.core.files import remove_abandoned_drafts, replace_file
from firesteel.ha.documents import DamagedEntryError, decode, encode
from firesteel.rest.archive_cache import Archive

logger = logging.getLogger(__name__)
_KIND: Final = "job-archive"
_NAME: Final = re.compile(r"([0-9a-f]{32})\.archive")


@dataclass(frozen=True)
class JobArchive:
    """A job that has ended, as history servers show it.

    Attributes:
        job_id: of the job.
        ended_ms: epoch ms of the end.
        archive: archive of the job; rows of subtasks are packed.
        environment: machine and Python of the Dispatcher, as in ``/jobmanager/environment``.
        config: settings of the cluster, with stars for secrets.
    """

    job_id: str
    ended_ms: int
    archive: Archive
    environment: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The content of the archive's file."""
        return encode(
            _KIND,
            {
                "job_id": self.job_id,
                "ended_ms": self.ended_ms,
                "archive": dict(self.archive),
                "environment": dict(self.environment),
                "config": dict(self.config),
            },
        )

    @classmethod
    def decode(cls, content: bytes) -> JobArchive:
        """Read the content of a file.

        Raises:
            DamagedEntryError: the content is no archive, or not whole.
        """
        try:
            plain = decode(_KIND, content)
            job_archive = cls(
                str(plain["job_id"]),
                int(plain["ended_ms"]),
                dict(plain["archive"]),
                dict(plain["environment"]),
                {str(key): str(value) for key, value in plain["config"].items()},
            )
            vertices = job_archive.archive["vertices"]
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise DamagedEntryError(f"it holds no archive of a job: {error!r}") from error
        if job_archive.archive.get("jid") != job_archive.job_id or not isinstance(vertices, list):
            raise DamagedEntryError("it holds no archive of a job")
        return job_archive


class ArchivePlace(ABC):
    """A place for archives. Its methods block, and raise ``OSError`` where it can't be read or written for now."""

    @abstractmethod
    def write(self, job_id: str, content: bytes) -> None:
        """Write the archive of a job; a former one is replaced, at once or not at all."""

    @abstractmethod
    def listed(self) -> dict[str, str]:
        """Stamps of all archives by job id; an archive that was replaced has another stamp."""

    @abstractmethod
    def read(self, job_id: str) -> bytes | None:
        """The content of a job's archive; None = there is none any more."""

    @abstractmethod
    def remove(self, job_id: str) -> None:
        """Remove the archive of a job, if there is one."""


class DirectoryPlace(ArchivePlace):
    """A directory that Dispatchers and history servers share.

    Args:
        directory: path of the directory, which the first write makes.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._is_tidy = False

    def __str__(self) -> str:
        return str(self._directory)

    def _path(self, job_id: str) -> Path:
        return self._directory / f"{job_id}.archive"

    @override
    def write(self, job_id: str, content: bytes) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._tidy()
        replace_file(self._path(job_id), content)

    @override
    def listed(self) -> dict[str, str]:
        self._tidy()
        stamps = {}
        try:
            entries = list(os.scandir(self._directory))
        except FileNotFoundError:  # nothing was written yet
            return {}
        for entry in entries:
            match = _NAME.fullmatch(entry.name)
            if match is None:
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue
            stamps[match[1]] = f"{status.st_mtime_ns}-{status.st_size}-{status.st_ino}"
        return stamps

    def _tidy(self) -> None:
        """Remove the drafts of writers that have died; only the first call does."""
        if not self._is_tidy:
            self._is_tidy = True
            remove_abandoned_drafts(self._directory, _NAME)

    @override
    def read(self, job_id: str) -> bytes | None:
        try:
            return self._path(job_id).read_bytes()
        except FileNotFoundError:
            return None

    @override
    def remove(self, job_id: str) -> None:
        self._path(job_id).unlink(missing_ok=True)


class S3ArchivePlace(ArchivePlace):
    """A place in an object store.

    Args:
        place: parent of the archives.
        settings: ``s3.*``.

    Raises:
        ConfigurationError: the settings are wrong.
    """

    def __init__(self, place: ObjectPlace, settings: Settings) -> None:
        self._place, self._client = place, open_store(place, settings)

    def __str__(self) -> str:
        return str(self._place)

    def _object(self, job_id: str) -> ObjectPlace:
        return self._place / f"{job_id}.archive"

    @override
    def write(self, job_id: str, content: bytes) -> None:
        try:
            self._client.put(self._object(job_id), content)
        except CheckpointStorageError as error:
            raise OSError(str(error)) from error

    def listed(self) -> dict[str, str]:
        """Stamps are sizes, since an archive is written once."""
        prefix = f"{self._place.key}/" if self._place.key else ""
        try:
            objects = list(self._client.find(self._place.at(prefix), "/"))
        except CheckpointStorageError as error:
            raise OSError(str(error)) from error
        return {match[1]: str(o.size) for o in objects if (match := _NAME.fullmatch(o.key.removeprefix(prefix)))}

    @override
    def read(self, job_id: str) -> bytes | None:
        from firesteel.checkpoint.object_store import NoSuchObjectError

        try:
            return self._client.get(self._object(job_id))[0]
        except NoSuchObjectError:
            return None
        except CheckpointStorageError as error:
            raise OSError(str(error)) from error

    @override
    def remove(self, job_id: str) -> None:
        try:
            self._client.delete(self._place.bucket, [self._object(job_id).key])
        except CheckpointStorageError as error:
            raise OSError(str(error)) from error


def open_place(text: str, key: str, settings: Settings) -> ArchivePlace:
    """The place that an option names; it is not accessed yet.

    Args:
        text: an absolute path, ``file:``, or ``s3://bucket/directory``.
        key: of the option.
        settings: ``s3.*``.

    Raises:
        ConfigurationError: the text names no place.
    """
    if is_object(text):
        return S3ArchivePlace(object_place(text, key), settings)
    path = urlsplit(text).path if text.startswith("file:") else text
    if "://" in path or not os.path.isabs(path):
        raise ConfigurationError(f"{key} = {text!r}: an absolute path is expected, or s3://bucket/directory")
    return DirectoryPlace(Path(path))
