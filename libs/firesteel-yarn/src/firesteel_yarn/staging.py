"""What an application's containers are given, in a file system that all nodes see."""

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
"""States of applications on YARN."""
MOST_LOOKED_AT: Final = 100
_APPLICATION: Final = re.compile(r"application_\d+_\d+")
_FORGOTTEN_SECONDS: Final = 24 * 3600.0
ARCHIVES: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".jar")
_OWN_FOLDER, _OWN_FILE = 0o700, 0o600


class Staging:
    """The directory of one application, and what applications share beside it.

    Args:
        jvm: py4j's view of the JVM.
        configuration: Hadoop's.
        settings: of the cluster.
        application: its id.
        scratch: a directory of this host, for what is packed.
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
        made = self._jvm.org.apache.hadoop.fs.Path(parts[0])
        for part in parts[1:]:
            made = self._jvm.org.apache.hadoop.fs.Path(made, part)
        return made

    @property
    def uri(self) -> str:
        """Of the application's directory."""
        return str(self.path.toString())

    def make(self) -> None:
        """Make the directory, for this user alone.

        Raises:
            YarnError: that does not work.
        """
        with yarn_errors(f"the staging directory {self.uri} can't be made"):
            mode = self._jvm.org.apache.hadoop.fs.permission.FsPermission(f"{_OWN_FOLDER:o}")
            self._system.mkdirs(self.path, mode)
            self._system.setPermission(self.path, mode)

    def tokens(self) -> Any:
        """Delegation tokens for the file systems of this directory and of Hadoop's configuration, as ``Credentials``.

        YARN's ResourceManager renews them while the application runs; nodes bring files with them.
        """
        found = self._jvm.org.apache.hadoop.security.Credentials()
        renewer = self._configuration.get("yarn.resourcemanager.principal")
        default = self._jvm.org.apache.hadoop.fs.FileSystem.get(self._configuration)
        for system in (default, self._system):
            system.addDelegationTokens(renewer, found)
        return found

    def remove(self) -> None:
        """Remove the application's directory.

        Raises:
            YarnError: that does not work.
        """
        with yarn_errors(f"the staging directory {self.uri} can't be removed"):
            self._system.delete(self.path, True)

    def upload(self, file: Path, name: str, *, kind: str = FILE, link: str | None = None) -> Shipped:
        """A file of this host becomes one of all containers.

        Args:
            file: here.
            name: in the staging directory.
            kind: FILE or ARCHIVE.
            link: its name in a container; by default ``name``.

        Raises:
            YarnError: it can't be uploaded.
        """
        target = self._path(self.uri, name)
        with yarn_errors(f"{file} can't be uploaded to {target.toString()}"):
            self._copy(file, target)
            self._system.setPermission(target, self._jvm.org.apache.hadoop.fs.permission.FsPermission(f"{_OWN_FILE:o}"))
        return self._there(target, link or name, kind, APPLICATION)

    def upload_text(self, text: str, name: str) -> Shipped:
        """A text becomes a file of all containers; see ``upload``."""
        file = self._scratch / name
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWN_FILE), "w") as out:
            out.write(text)
        return self.upload(file, name)

    def ship(self, text: str, link: str | None = None, *, unpacked: bool = False) -> Shipped:
        """A file, a directory or an archive, of this host or where it is (``hdfs:``), for all containers.

        Args:
            text: path or URI.
            link: its name in a container; by default its own.
            unpacked: it is an archive that is unpacked.

        Raises:
            YarnError: it is not there, or can't be uploaded.
        """
        if ":/" in text and not text.startswith("file:"):
            path = self._path(text)
            name = link or str(path.getName())
            return self._there(path, name, ARCHIVE if unpacked else FILE, APPLICATION)
        file = Path(text.removeprefix("file://")).expanduser()
        name = link or file.name
        if unpacked and not file.name.endswith(ARCHIVES):
            raise YarnError(f"{file} is no archive that YARN can unpack: {', '.join(ARCHIVES)} are")
        if file.is_dir():
            packed = Path(shutil.make_archive(str(self._scratch / f"{name}-directory"), "zip", file))
            return self.upload(packed, packed.name, kind=ARCHIVE, link=name)
        if not file.is_file():
            raise YarnError(f"there is no file {file} to be shipped")
        own = file.name if link is None else f"{link}-{file.name}"
        return self.upload(file, own, kind=ARCHIVE if unpacked else FILE, link=name)

    def ship_configuration(self, conf: Path, link: str) -> Shipped:
        """Hadoop's configuration of this host, for containers whose nodes may have another one."""
        folder = self._scratch / "hadoop-conf"
        folder.mkdir()
        for name in CONF_FILES:
            if (conf / name).is_file():
                shutil.copyfile(conf / name, folder / name)
        packed = shutil.make_archive(str(self._scratch / "hadoop-conf"), "zip", folder)
        return self.upload(Path(packed), "hadoop-conf.zip", kind=ARCHIVE, link=link)

    def ship_packages(self, packages: Packages, link: str) -> Shipped:
        """The packages of an environment; uploaded unless they are there.

        Raises:
            YarnError: they can't be uploaded.
        """
        for folder in (*self._provided, str(self._path(str(self._shared.toString()), "cache").toString())):
            path = self._path(folder, packages.name)
            with yarn_errors(f"{path.toString()} can't be looked at"):
                there = path.getFileSystem(self._configuration).exists(path)
            if there:
                return self._there(path, link, ARCHIVE, PRIVATE)
        file = self._scratch / packages.name
        packages.pack(file)
        draft = self._path(folder, f"{packages.name}.{os.getpid()}")
        with yarn_errors(f"{file} can't be uploaded to {path.toString()}"):
            mode = self._jvm.org.apache.hadoop.fs.permission.FsPermission(f"{_OWN_FOLDER:o}")
            self._system.mkdirs(self._path(folder), mode)
            self._copy(file, draft)
            if not self._system.rename(draft, path):  # another one was faster
                self._system.delete(draft, False)
        file.unlink()
        return self._there(path, link, ARCHIVE, PRIVATE)

    def _copy(self, file: Path, target: Any) -> None:
        self._system.copyFromLocalFile(False, True, self._path(f"file://{file.absolute()}"), target)
        if self._replication > 0:
            self._system.setReplication(target, self._replication)

    def _there(self, path: Any, name: str, kind: str, visibility: str) -> Shipped:
        with yarn_errors(f"{path.toString()} can't be shipped"):
            system = path.getFileSystem(self._configuration)
            status = system.getFileStatus(path)
            uri = str(system.resolvePath(path).toString())
            return Shipped(name, uri, int(status.getLen()), int(status.getModificationTime()), kind, visibility)

    def left_over(self, state: Callable[[str], str | None], most: int = MOST_LOOKED_AT) -> list[str]:
        """Applications of this user that have ended, and whose directories have stayed: YARN has killed them.

        Args:
            state: of an application on YARN; None: YARN does not know it.
            most: so many directories are looked at.

        Raises:
            YarnError: that can't be told.
        """
        found = []
        with yarn_errors(f"{self._shared.toString()} can't be looked at"):
            mine, own = self._system.getFileStatus(self.path), str(self.path.getName())
            for status in self._system.listStatus(self._shared):
                name = str(status.getPath().getName())
                if status.getOwner() != mine.getOwner() or name == own or not _APPLICATION.fullmatch(name):
                    continue
                most -= 1
                if most < 0:
                    break
                age = (int(mine.getModificationTime()) - int(status.getModificationTime())) / 1000
                if is_left_over(state(name), age, same_yarn=_yarn_of(name) == _yarn_of(own)):
                    found.append(name)
        return found


def is_left_over(state: str | None, age: float, *, same_yarn: bool) -> bool:
    """Whether nobody needs the directory of an application any more.

    Args:
        state: of the application, as YARN says; None: YARN does not know it.
        age: seconds since its directory was changed.
        same_yarn: its id is one of this YARN, since its ResourceManager was set up.
    """
    if state is not None:
        return state in ENDED
    # one that is just being submitted is not known either, and several clusters may share a file system
    return same_yarn and age > _FORGOTTEN_SECONDS


def _yarn_of(application: str) -> str:
    return application.rpartition("_")[0]


def twice(shipped: Iterable[Shipped]) -> str:
    """A name that two files would have; empty: there is none."""
    seen: set[str] = set()
    for one in shipped:
        if one.name in seen:
            return one.name
        seen.add(one.name)
    return ""
