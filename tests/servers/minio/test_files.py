"""Files in a real MinIO: the sink shows each record once, whoever dies in an upload or a commit, and leaves no uploads;
the source reads what it has written."""

from __future__ import annotations

import gzip
import io
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from firesteel.common import Configuration, Duration, Encoder, Row, Types, WatermarkStrategy
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from firesteel.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from firesteel.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from tests.integration.embedded.programs import ended, new_environment, rest_of, submitted_to
from tests.integration.processes.cluster import PATIENCE
from tests.integration.recovery import steps
from tests.integration.recovery.places import JOBMASTER, SLOT, TASKMANAGER, Embedded, Processes, embedded, processes
from tests.integration.recovery.stepped_storage import plugin
from tests.integration.recovery.trials import ANY_MOMENT, Death, Trial
from tests.servers.minio.server import BUCKET, MinioServer
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A cluster of processes."""
    with plugin(tmp_path_factory.mktemp("plugin")) as path, processes(path) as place:
        yield place


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """The embedded cluster; its slots are processes, too."""
    with plugin(tmp_path_factory.mktemp("plugin")), embedded() as place:
        yield place


@pytest.fixture
def bucket(minio: MinioServer, request: pytest.FixtureRequest) -> str:
    """A folder of the test's own."""
    return f"{request.node.name.partition('[')[0]}-{random.randrange(1 << 32):x}"


def settings_of(minio: MinioServer) -> dict[str, str]:
    """Of jobs whose files are there."""
    return {key: value for key, value in minio.settings().items() if key.startswith("s3.")}


def texts(minio: MinioServer, prefix: str) -> Counter[str]:
    """Lines of all objects that a reader sees."""
    client = minio.client()
    lines: Counter[str] = Counter()
    for object_ in client.list_objects(BUCKET, f"{prefix}/", recursive=True):
        assert object_.object_name is not None
        if "/_" not in object_.object_name:
            answer = client.get_object(BUCKET, object_.object_name)
            lines.update(answer.data.decode().splitlines())
            answer.close()
            answer.release_conn()
    return lines


def uploads(minio: MinioServer) -> list[str]:
    """Uploads that were begun and not ended, as they are on the server's disk."""
    below = minio.data / ".minio.sys" / "multipart"
    return sorted(str(path.parent.name) for path in below.rglob("xl.meta")) if below.exists() else []


def unfinished(minio: MinioServer, prefix: str) -> list[str]:
    """Records of uploads, and uploads."""
    names = [str(object_.object_name) for object_ in minio.client().list_objects(BUCKET, f"{prefix}/", recursive=True)]
    return [name for name in names if "/_inprogress/" in name] + uploads(minio)


@dataclass
class FilesTrial(Trial):
    """A trial whose results are in MinIO."""

    minio: MinioServer = None  # type: ignore[assignment] # behind arguments with defaults
    prefix: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.out = f"s3://{BUCKET}/{self.prefix}"
        self.settings = {**self.settings, **settings_of(self.minio)}

    def written(self, name: str) -> Counter[str]:
        wait_until(lambda: not unfinished(self.minio, self.prefix), lambda: str(unfinished(self.minio, self.prefix)))
        return texts(self.minio, f"{self.prefix}/{name}")


def test_deaths_in_uploads_and_commits(here: Embedded, minio: MinioServer, bucket: str, tmp_path: Path) -> None:
    trial = FilesTrial(here, tmp_path, ["chain", "keyed"], rate=1000, minio=minio, prefix=bucket)
    mine = (steps.BEFORE_COMMIT, steps.WITHIN_COMMIT, steps.AFTER_COMMIT, steps.SYNC)
    trial.run([*(Death(step) for step in mine), Death(ANY_MOMENT, SLOT)], at_the_end=Death(steps.WITHIN_COMMIT))


def environment_of(minio: MinioServer, more: dict[str, str] | None = None) -> StreamExecutionEnvironment:
    environment = new_environment(2)
    settings = Configuration()
    for key, value in {**settings_of(minio), **(more or {})}.items():
        settings.set_string(key, value)
    environment.configure(settings)
    return environment


def test_what_was_written_is_read(here: Embedded, minio: MinioServer, bucket: str) -> None:
    kinds = Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()])
    rows = [Row(n=number, text=f"{number:x}") for number in range(5000)]
    out = f"s3://{BUCKET}/{bucket}/rows"
    with submitted_to(here.settings()):
        environment = environment_of(minio)
        sink = FileSink.for_bulk_format(out, ParquetBulkWriters.for_row_type(kinds)).build()
        environment.from_collection(rows, kinds).rebalance().sink_to(sink)
        environment.execute("write")
        assert not unfinished(minio, bucket)
        parquet = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(kinds), f"{out}/*/*").build()
        read = environment.from_source(parquet, WatermarkStrategy.no_watermarks(), "rows")
        assert sorted(row.n for row in read.execute_and_collect()) == list(range(5000))

        client = minio.client()
        for name, lines in (("a.log", range(1000)), ("deep/b.log", range(1000, 1500)), ("_c.log", range(9))):
            data = "".join(f"{number}\n" for number in lines).encode()
            client.put_object(BUCKET, f"{bucket}/lines/{name}", io.BytesIO(data), len(data))
        packed = gzip.compress("".join(f"{number}\n" for number in range(1500, 2000)).encode())
        client.put_object(BUCKET, f"{bucket}/lines/c.log.gz", io.BytesIO(packed), len(packed))
        text = FileSource.for_record_stream_format(StreamFormat.text_line_format(), f"s3://{BUCKET}/{bucket}/lines")
        watched = text.set_split_size(500).monitor_continuously(Duration.of_millis(100)).build()
        lines_read = environment.from_source(watched, WatermarkStrategy.no_watermarks(), "lines")
        with lines_read.execute_and_collect() as results:
            numbers = {int(line) for _, line in zip(range(2000), results, strict=False)}
            assert numbers == set(range(2000))
            client.put_object(BUCKET, f"{bucket}/lines/later", io.BytesIO(b"later\n"), 6)
            assert next(iter(results)) == "later"


@pytest.mark.long
def test_a_job_that_is_cancelled_leaves_no_uploads(
    here: Embedded, minio: MinioServer, bucket: str, tmp_path: Path
) -> None:
    more = {"execution.checkpointing.interval": "200 ms", "execution.checkpointing.dir": str(tmp_path)}
    with submitted_to(here.settings()):
        environment = environment_of(minio, more)
        encoder = Encoder.simple_string_encoder()
        sink = FileSink.for_row_format(f"s3://{BUCKET}/{bucket}", encoder).build()
        rate = RateLimiterStrategy.per_second(6000)  # the disk is small
        source = DataGeneratorSource(lambda number: f"{number:0999d}", 10**9, rate, Types.STRING())
        environment.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").sink_to(sink)
        job = environment.execute_async("endless")
        try:
            wait_until(lambda: len(uploads(minio)) >= 2, "uploads have begun")
            wait_until(lambda: int(rest_of(job, "/checkpoints")["counts"]["completed"]) >= 3, "checkpoints have them")
        finally:
            job.cancel().result()
        assert ended(job, PATIENCE) == "CANCELED"
    wait_until(lambda: not unfinished(minio, bucket), lambda: str(unfinished(minio, bucket)))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_deaths_of_all_and_outages_of_the_server(
    seed: int, place: Processes, minio: MinioServer, bucket: str, tmp_path: Path
) -> None:
    trial = FilesTrial(place, tmp_path, ["chain", "keyed", "timers"], rate=1000, minio=minio, prefix=bucket, seed=seed)
    chance = random.Random(seed)
    deaths = [Death(step, chance.choice((steps.MYSELF, SLOT))) for step in steps.STEPS if step != steps.REMOVING]
    deaths += [Death(ANY_MOMENT, victim) for victim in (SLOT, TASKMANAGER, JOBMASTER, SLOT)]
    chance.shuffle(deaths)

    def outages() -> None:
        for _ in range(2):
            with minio.away():
                time.sleep(chance.uniform(0.0, 3.0))
            trial._progress()
        with minio.stopped():
            place.kill(SLOT, tmp_path, chance)
        trial._progress()

    trial.run(deaths, at_the_end=Death(steps.WITHIN_COMMIT), then=outages)
