"""Files for an application's containers, in a file system that all nodes share."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from firesteel.config import options
from firesteel.config.settings import Settings
from firesteel_yarn.gateway import CONF_FILES, YarnError, yarn_errors
from firesteel_yarn.launch import APPLICATION, ARCHIVE, FILE, PRIVATE, Shipped
from firesteel_yarn.packages import Packages

FOLDER: Final = ".firesteel"
TOKEN: Final = "rest-token"
ENDED: Final = frozenset({"FINISHED", "FAILED", "KILLED"})
"""Final states of applications on YARN."""
MOST_LOOKED_AT: Final = 100
_APPLICATION: Final = re.compile(r"application_\d+_\d+")
_FORGOTTEN_SECONDS: Final = 24 * 3600.0
ARCHIVES: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".jar")
_OWN_FOLDER, _OWN_FILE = 0o700, 0o600


class Staging:
    """The staging directory of one application, and the cache that applications share beside it.

    Args:
        jvm: py4j's view of the JVM.
        configuration: Hadoop's.
        settings: of the cluster.
        application: its id.
        scratch: directory of this host for archives.
    """

    def __init__(self, jvm: Any, configuration: Any, settings: Settings, application: str, scratch: Path) -> None:
        self._jvm, self._configuration, self._scratch = jvm, configuration, scratch
        self._provided = settings.get(options.YARN_PROVIDED)
        self._replication = settings.get(options.YARN_REPLICATION)
        named = settings.get(options.YARN_STAGING)
        with yarn_errors("the staging directory can't be used"):
            if named is None:
                system = jvm.org.apache.hadoop.fs.FileSystem.get(configuration)
                base = system.getHomeDirectory()
            else:
                base = self._path(named)
                system = base.getFileSystem(configuration)
            self._system = system
            self._shared = self._path(str(system.makeQualified(base).toString()), FOLDER)
            self.path = self._path(str(self._shared.toString()), application)

    def _path(self, *parts: str) -> Any:
        path = self._jvm.org.apache.hadoop.fs.Path(parts[0])
        for part in parts[1:]:
            path = self._jvm.org.apache.hadoop.fs.Path(path, part)
        return path

    @property
    def uri(self) -> str:
        """URI of the application's directory."""
        return str(self.path.toString())

    def make(self) -> None:
        """Create the directory, for this user alone.

        Raises:
            YarnError: it can't be created.
        """
        with yarn_errors(f"the staging directory {self.uri} can't be made"):
            mode = self._jvm.org.apache.hadoop.fs.permission.FsPermission(f"{_OWN_FOLDER:o}")
            self._system.mkdirs(self.path, mode)
            self._system.setPermission(self.path, mode)

    def tokens(self) -> Any:
        """Delegation tokens for the file systems of this directory and of Hadoop's configuration, as ``Credentials``.

        YARN's ResourceManager renews them while the application runs; nodes fetch files with them.
        """
        credentials = self._jvm.org.apache.hadoop.security.Credentials()
        renewer = self._configuration.get("yarn.resourcemanager.principal")
        default = self._jvm.org.apache.hadoop.fs.FileSystem.get(self._configuration)
        for system in (default, self._system):
            system.addDelegationTokens(renewer, credentials)
        return credentials

    def remove(self) -> None:
        """Remove the application's directory.

        Raises:
            YarnError: it can't be removed.
        """
        with yarn_errors(f"the staging directory {self.uri} can't be removed"):
            self._system.delete(self.path, True)

    def upload(self, file: Path, name: str, *, kind: str = FILE, link: str | None = None) -> Shipped:
        """Upload a file of this host, as a file of all containers.

        Args:
            file: of this host.
            name: in the staging directory.
            kind: FILE or ARCHIVE.
            link: name in a container; by default ``name``.

        Raises:
            YarnError: it can't be uploaded.
        """
        target = self._path(self.uri, name)
        with yarn_errors(f"{file} can't be uploaded to {target.toString()}"):
            self._copy(file, target)
            self._system.setPermission(target, self._jvm.org.apache.hadoop.fs.permission.FsPermission(f"{_OWN_FILE:o}"))
        return self._shipped(target, link or name, kind, APPLICATION)

    def upload_text(self, text: str, name: str) -> Shipped:
        """Upload a text, as a file of all containers; see ``upload``."""
        file = self._scratch / name
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWN_FILE), "w") as out:
            out.write(text)
        return self.upload(file, name)

    def ship(self, text: str, link: str | None = None, *, unpacked: bool = False) -> Shipped:
        """Ship a file, a directory or an archive to all containers, from this host or from a URI (``hdfs:``).

        Args:
            text: path or URI.
            link: name in a container; by default its own.
            unpacked: it is an archive to unpack.

        Raises:
            YarnError: it does not exist, or can't be uploaded.
        """
        if ":/" in text and not text.startswith("file:"):
            path = self._path(text)
            name = link or str(path.getName())
            return self._shipped(path, name, ARCHIVE if unpacked else FILE, APPLICATION)
        file = Path(re.sub("^file:(//)?", "", text)).expanduser()  # Hadoop writes file:/path
        name = link or file.name
        if unpacked and not file.name.endswith(ARCHIVES):
            raise YarnError(f"{file} is no archive that YARN can unpack: {', '.join(ARCHIVES)} are")
        if file.is_dir():
            packed = Path(shutil.make_archive(str(self._scratch / f"{name}-directory"), "zip", file))
            return self.upload(packed, packed.name, kind=ARCHIVE, link=name)
        if not file.is_file():
            raise YarnError(f"there is no file {file} to ship")
        staged_name = file.name if link is None else f"{link}-{file.name}"
        return self.upload(file, staged_name, kind=ARCHIVE if unpacked else FILE, link=name)

    def ship_configuration(self, conf: Path, link: str) -> Shipped:
        """Ship Hadoop's configuration of this host, since nodes may have another one."""
        folder = self._scratch / "hadoop-conf"
        folder.mkdir()
        for name in CONF_FILES:
            if (conf / name).is_file():
                shutil.copyfile(conf / name, folder / name)
        packed = shutil.make_archive(str(self._scratch / "hadoop-conf"), "zip", folder)
        return self.upload(Path(packed), "hadoop-conf.zip", kind=ARCHIVE, link=link)

    def ship_packages(self, packages: Packages, link: str) -> Shipped:
        """Ship the packages of an environment; they are uploaded only if they are missing.

        Raises:
            YarnError: they can't be uploaded.
        """
        for folder in (*self._provided, str(self._path(str(self._shared.toString()), "cache").toString())):
            path = self._path(folder, packages.name)
            with yarn_errors(f"{path.toString()} can't be looked at"):
                is_uploaded = path.getFileSystem(self._configuration).exists(path)
            if is_uploaded:
                return self._shipped(path, link, ARCHIVE, PRIVATE)
        file = self._scratch / packages.name
        packages.pack(file)
        draft = self._path(folder, f"{packages.name}.{os.getpid()}")
        with yarn_errors(f"{file} can't be uploaded to {path.toString()}"):
            mode = self._jvm.org.apache.hadoop.fs.permission.FsPermission(f"{_OWN_FOLDER:o}")
            self._system.mkdirs(self._path(folder), mode)
            self._copy(file, draft)
            if not self._system.rename(draft, path):  # another upload was faster
                self._system.delete(draft, False)
        file.unlink()
        return self._shipped(path, link, ARCHIVE, PRIVATE)

    def _copy(self, file: Path, target: Any) -> None:
        self._system.copyFromLocalFile(False, True, self._path(f"file://{file.absolute()}"), target)
        if self._replication > 0:
            self._system.setReplication(target, self._replication)

    def _shipped(self, path: Any, name: str, kind: str, visibility: str) -> Shipped:
        """The description of a file in a file system by which nodes fetch it."""
        with yarn_errors(f"{path.toString()} can't be shipped"):
            system = path.getFileSystem(self._configuration)
            status = system.getFileStatus(path)
            uri = str(system.resolvePath(path).toString())
            return Shipped(name, uri, int(status.getLen()), int(status.getModificationTime()), kind, visibility)

    def left_over(self, state: Callable[[str], str | None], most: int = MOST_LOOKED_AT) -> list[str]:
        """Applications of this user that have ended, but whose directories remain, since YARN has killed them.

        Args:
            state: returns the state of an application on YARN; None = YARN does not know it.
            most: directories to check.

        Raises:
            YarnError: they can't be read.
        """
        names = []
        with yarn_errors(f"{self._shared.toString()} can't be looked at"):
            status_here, own_name = self._system.getFileStatus(self.path), str(self.path.getName())
            for status in self._system.listStatus(self._shared):
                name = str(status.getPath().getName())
                if status.getOwner() != status_here.getOwner() or name == own_name or not _APPLICATION.fullmatch(name):
                    continue
                most -= 1
                if most < 0:
                    break
                age = (int(status_here.getModificationTime()) - int(status.getModificationTime())) / 1000
                if is_left_over(state(name), age, same_yarn=_yarn_of(name) == _yarn_of(own_name)):
                    names.append(name)
        return names


def is_left_over(state: str | None, age: float, *, same_yarn: bool) -> bool:
    """Whether the directory of an application is no longer needed.

    Args:
        state: of the application on YARN; None = YARN does not know it.
        age: seconds since the directory was changed.
        same_yarn: its id was given by this YARN, since its ResourceManager was set up.
    """
    if state is not None:
        return state in ENDED
    # An application that is just being submitted is unknown, too, and several clusters may share a file system.
    return same_yarn and age > _FORGOTTEN_SECONDS


def _yarn_of(application: str) -> str:
    return application.rpartition("_")[0]


def duplicate_name(shipped: Iterable[Shipped]) -> str:
    """A name that two files would have; empty = there is none."""
    names: set[str] = set()
    for file in shipped:
        if file.name in names:
            return file.name
        names.add(file.name)
    return ""
