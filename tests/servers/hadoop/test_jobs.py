"""Jobs on HDFS: files are read and written, each record once, while checkpoints are there; HDFS has trouble."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from firesteel.checkpoint.places import object_place
from firesteel.common import Configuration, Encoder, WatermarkStrategy
from firesteel.config import Settings
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from firesteel_hdfs.client import HdfsClient
from tests.integration.embedded.programs import new_environment, submitted_to
from tests.integration.recovery import steps
from tests.integration.recovery.places import SLOT, Embedded, embedded
from tests.integration.recovery.stepped_storage import plugin
from tests.integration.recovery.trials import ANY_MOMENT, Death, Trial
from tests.servers.hadoop.server import Hadoop
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """The embedded cluster; its slots are processes."""
    with plugin(tmp_path_factory.mktemp("plugin")), embedded() as place:
        yield place


@pytest.fixture
def folder(hdfs: Hadoop, request: pytest.FixtureRequest) -> str:
    """A folder of the test's own."""
    return f"{hdfs.uri}/{request.node.name}-{random.randrange(1 << 32):x}"


def lines(folder: str) -> Counter[str]:
    """Lines of all files that a reader sees."""
    client, place = HdfsClient(Settings()), object_place(folder, "folder")
    lines: Counter[str] = Counter()
    for status in client.find(place / ""):
        if "/_" not in status.key:
            lines.update(client.get(place.at(status.key))[0].decode().splitlines())
    return lines


def files_in(folder: str) -> list[str]:
    client, place = HdfsClient(Settings()), object_place(folder, "folder")
    return [status.key for status in client.find(place / "")]


def unfinished(folder: str) -> list[str]:
    """Records of uploads, and uploads."""
    client, place = HdfsClient(Settings()), object_place(folder, "folder")
    records = [status.key for status in client.find(place / "") if "/_inprogress/" in status.key]
    return records + [upload for _, upload in client.uploads(place / "")]


@dataclass
class FilesTrial(Trial):
    """A trial whose results are on HDFS."""

    base: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.out = self.base
        self.settings = {**self.settings, "firesteel.hdfs.part-size": "64 kb"}

    def written(self, name: str) -> Counter[str]:
        wait_until(lambda: not unfinished(self.base), lambda: str(unfinished(self.base)))
        return lines(f"{self.base}/{name}")


def environment_of(more: dict[str, str]) -> StreamExecutionEnvironment:
    environment = new_environment(2)
    settings = Configuration()
    for key, value in more.items():
        settings.set_string(key, value)
    environment.configure(settings)
    return environment


@pytest.mark.long  # the storage is tested beside it, jobs on storages in servers/minio
def test_what_was_written_is_read(here: Embedded, folder: str) -> None:
    with submitted_to(here.settings()):
        environment = environment_of(
            {
                "execution.checkpointing.dir": f"{folder}/checkpoints",
                "execution.checkpointing.interval": "200 ms",
                "firesteel.hdfs.part-size": "64 kb",
            }
        )
        encoder = Encoder.simple_string_encoder()
        sink = FileSink.for_row_format(f"{folder}/out", encoder).build()
        environment.from_collection([f"{number:064}" for number in range(4000)]).rebalance().sink_to(sink)
        environment.execute("write")
        assert not unfinished(folder)
        assert lines(f"{folder}/out") == Counter(f"{number:064}" for number in range(4000))
        text = FileSource.for_record_stream_format(StreamFormat.text_line_format(), f"{folder}/out/*/part-*").build()
        read = environment.from_source(text, WatermarkStrategy.no_watermarks(), "lines")
        with read.execute_and_collect() as results:
            assert sorted(results) == [f"{number:064}" for number in range(4000)]
    wait_until(lambda: not files_in(f"{folder}/checkpoints"), lambda: str(files_in(f"{folder}/checkpoints")))


@pytest.mark.long
def test_deaths_in_uploads_and_commits(here: Embedded, folder: str, tmp_path: Path) -> None:
    trial = FilesTrial(here, tmp_path, ["chain", "keyed"], rate=1000, base=folder)
    mine = (steps.BEFORE_COMMIT, steps.WITHIN_COMMIT, steps.AFTER_COMMIT, steps.SYNC)
    began = time.monotonic()
    trial.run([*(Death(step) for step in mine), Death(ANY_MOMENT, SLOT)], at_the_end=Death(steps.WITHIN_COMMIT))
    print(f"took {time.monotonic() - began:.0f} s")
