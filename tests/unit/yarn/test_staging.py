"""What applications leave in the staging directory, and who removes it; Hadoop's file system is a stand-in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from firesteel.config import Settings
from firesteel_yarn.gateway import YarnError
from firesteel_yarn.staging import Staging

YARN = "application_1732402800000"
MINE, NEW = f"{YARN}_0001", f"{YARN}_0009"


@dataclass
class HadoopPath:
    """``org.apache.hadoop.fs.Path``."""

    text: str

    def toString(self) -> str:
        return self.text

    def getName(self) -> str:
        return self.text.rpartition("/")[2]

    def getFileSystem(self, _: object) -> Any:
        return SYSTEM


@dataclass
class Status:
    """``FileStatus``."""

    path: HadoopPath
    owner: str = "me"
    changed_ms: int = 0

    def getPath(self) -> HadoopPath:
        return self.path

    def getOwner(self) -> str:
        return self.owner

    def getModificationTime(self) -> int:
        return self.changed_ms


class System:
    """``FileSystem``."""

    def __init__(self) -> None:
        self.listed: list[Status] = []

    def makeQualified(self, path: HadoopPath) -> HadoopPath:
        return path

    def getFileStatus(self, path: HadoopPath) -> Status:
        return next(status for status in self.listed if status.path.getName() == path.getName())

    def listStatus(self, path: HadoopPath) -> list[Status]:
        assert path.toString() == "hdfs:/home/.firesteel"
        return self.listed


SYSTEM = System()


class Jvm:
    """py4j's view, as far as paths are made."""

    class org:
        class apache:
            class hadoop:
                class fs:
                    @staticmethod
                    def Path(first: Any, *more: str) -> HadoopPath:
                        base = first.text if isinstance(first, HadoopPath) else first
                        return HadoopPath("/".join((base, *more)))


def staging() -> Staging:
    return Staging(Jvm, None, Settings({"yarn.staging-directory": "hdfs:/home"}), NEW, Path())


def at(name: str, owner: str = "me", hours: float = 0.0) -> Status:
    return Status(HadoopPath(f"hdfs:/home/.firesteel/{name}"), owner, round((100 - hours) * 3_600_000))


def test_only_directories_of_the_users_own_ended_applications_are_left_over() -> None:
    other = "application_99_0001"
    SYSTEM.listed = [
        at("cache"), at(NEW), at(MINE), at(f"{YARN}_0002"), at(f"{YARN}_0003", "you"), at(f"{YARN}_0004", hours=30),
        at(f"{YARN}_0005", hours=1), at(other, hours=90),
    ]  # fmt: skip
    states = {MINE: "KILLED", f"{YARN}_0002": "RUNNING", f"{YARN}_0003": "KILLED"}
    assert staging().left_over(states.get) == [MINE, f"{YARN}_0004"]


def test_not_all_of_many_are_asked_for_at_once() -> None:
    SYSTEM.listed = [at(NEW), *(at(f"{YARN}_{number:04}") for number in range(1000, 1010))]
    applications = list[str]()

    def state(application: str) -> str:
        applications.append(application)
        return "KILLED"

    assert len(staging().left_over(state, most=4)) == len(applications) == 4


@pytest.mark.parametrize("uri", ["file:{}", "file://{}"])
def test_files_of_this_host_may_be_named_as_hadoop_writes_their_uris(tmp_path: Path, uri: str) -> None:
    missing = tmp_path / "missing.txt"
    with pytest.raises(YarnError, match=f"there is no file {missing} to ship"):
        staging().ship(uri.format(missing))
