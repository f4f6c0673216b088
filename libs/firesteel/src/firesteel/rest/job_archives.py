"""Archives of ended jobs for history servers: one file for each job, in a directory or in an object store.

A Dispatcher with ``jobmanager.archive.fs.dir`` writes them, whole or not at all; history servers read them, and remove
those that nobody is to see any more.
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
    """What is kept of a job.

    Attributes:
        job_id: of the job.
        ended_ms: epoch.
        archive: how it ended; rows of subtasks are packed.
        environment: of the cluster: what ran there.
        config: of the cluster, key -> value; secrets are stars.
    """

    job_id: str
    ended_ms: int
    archive: Archive
    environment: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The content of its file."""
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
            DamagedEntryError: it is none, or not whole.
        """
        try:
            plain = decode(_KIND, content)
            found = cls(
                str(plain["job_id"]),
                int(plain["ended_ms"]),
                dict(plain["archive"]),
                dict(plain["environment"]),
                {str(key): str(value) for key, value in plain["config"].items()},
            )
            vertices = found.archive["vertices"]
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise DamagedEntryError(f"it holds no archive of a job: {error!r}") from error
        if found.archive.get("jid") != found.job_id or not isinstance(vertices, list):
            raise DamagedEntryError("it holds no archive of a job")
        return found


class ArchivePlace(ABC):
    """Where archives lie. Its methods block.

    All raise ``OSError`` when the place does not give or take something for now.
    """

    @abstractmethod
    def write(self, job_id: str, content: bytes) -> None:
        """The archive of a job; one that is there is replaced, at once or not at all."""

    @abstractmethod
    def listed(self) -> dict[str, str]:
        """Id of each job that has one -> a text that is another one when the file was replaced."""

    @abstractmethod
    def read(self, job_id: str) -> bytes | None:
        """The content of one; None = there is none any more."""

    @abstractmethod
    def remove(self, job_id: str) -> None:
        """Remove one, if it is there."""


class DirectoryPlace(ArchivePlace):
    """A directory that its readers see.

    Args:
        directory: made when something is written.
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
        found = {}
        try:
            entries = list(os.scandir(self._directory))
        except FileNotFoundError:  # nothing was written yet
            return {}
        for entry in entries:
            match = _NAME.fullmatch(entry.name)
            if match is None:
                continue
            try:
                about = entry.stat()
            except FileNotFoundError:
                continue
            found[match[1]] = f"{about.st_mtime_ns}-{about.st_size}-{about.st_ino}"
        return found

    def _tidy(self) -> None:
        """Once: remove what writers that have died left."""
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
        place: below which they lie.
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
        """See ``ArchivePlace``; an archive is written once, so its size will do."""
        prefix = f"{self._place.key}/" if self._place.key else ""
        try:
            found = list(self._client.find(self._place.at(prefix), "/"))
        except CheckpointStorageError as error:
            raise OSError(str(error)) from error
        return {match[1]: str(one.size) for one in found if (match := _NAME.fullmatch(one.key.removeprefix(prefix)))}

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
    """The place that an option names; nothing is asked of it.

    Args:
        text: an absolute path, ``file:``, or ``s3://bucket/directory``.
        key: of the option.
        settings: ``s3.*``.

    Raises:
        ConfigurationError: it names none.
    """
    if is_object(text):
        return S3ArchivePlace(object_place(text, key), settings)
    path = urlsplit(text).path if text.startswith("file:") else text
    if "://" in path or not os.path.isabs(path):
        raise ConfigurationError(f"{key} = {text!r}: an absolute path is expected, or s3://bucket/directory")
    return DirectoryPlace(Path(path))
