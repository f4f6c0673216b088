"""Jobs whose checkpoints are in a real MinIO, which is killed, stopped, full and slow meanwhile: no record is lost or
comes twice, no job ends, and nothing is left."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from minio.commonconfig import CopySource

from firesteel.checkpoint.reader import inspect
from firesteel.checkpoint.savepoint_places import dispose
from firesteel.common import Configuration
from firesteel.config import Settings
from firesteel.core.process import ProcessId
from firesteel.datastream import StreamExecutionEnvironment
from tests.integration.embedded.programs import ended, rest_of, submitted_to
from tests.integration.processes.cluster import PATIENCE
from tests.integration.recovery import steps
from tests.integration.recovery.places import JOBMASTER, PARALLELISM, SLOT, TASKMANAGER, Processes, processes
from tests.integration.recovery.programs import PROGRAMS, World
from tests.integration.recovery.stepped_storage import plugin
from tests.integration.recovery.trials import ANY_MOMENT, Death, Trial
from tests.servers.minio.server import BUCKET, MinioServer, can_mount
from tests.servers.proxy import Proxy
from tests.waiting import the_one_left, wait_until

KILLS = 50
OWN_STEPS = [step for step in steps.IN_SLOTS if step not in (steps.ASYNC, steps.WRITTEN)]
"""Of slots, but for those of the storage of the tests."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, minio: MinioServer) -> Iterator[Processes]:
    """A cluster of processes, which have MinIO's credentials in their environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", minio.user)
        patch.setenv("AWS_SECRET_ACCESS_KEY", minio.password)
        with plugin(tmp_path_factory.mktemp("plugin")) as path, processes(path) as place:
            yield place


@pytest.fixture
def proxy(minio: MinioServer) -> Iterator[Proxy]:
    """Between the job and the server."""
    proxy = Proxy(minio.port)
    yield proxy
    proxy.close()


@dataclass
class S3Trial(Trial):
    """A trial whose checkpoints are in MinIO.

    Args:
        minio: the server.
        port: by which the job reaches it.
        more: settings.
    """

    minio: MinioServer = None  # type: ignore[assignment] # behind arguments with defaults
    port: int = 0
    more: dict[str, str] = field(default_factory=dict)

    def environment(
        self, checkpoints: bool = True, parallelism: int = PARALLELISM, more: Mapping[str, str] | None = None
    ) -> StreamExecutionEnvironment:
        environment = super().environment(checkpoints, parallelism)
        settings = Configuration()
        of_s3 = {
            "execution.checkpointing.storage": "filesystem",
            "execution.checkpointing.tolerable-failed-checkpoints": "1000000",
            "execution.checkpointing.interval": "300 ms",
            "execution.checkpointing.data-inline-threshold": "1 kb",
            "execution.checkpointing.incremental": "true",
            "execution.checkpointing.timeout": "20 s",
            "s3.endpoint": f"http://127.0.0.1:{self.port}",
            "s3.connection.timeout": "2 s",
            "s3.attempts.maximum": "2",
            "firesteel.s3.retry-timeout": "2 s",
        }
        for key, value in {**self.minio.settings(), **of_s3, **self.more, **(more or {})}.items():
            if "-key" not in key or key in self.more:  # credentials come by other ways
                settings.set_string(key, value)
        environment.configure(settings)
        return environment

    def run_through(self, faults: list[Callable[[Any], None]]) -> None:
        """Run the programs while these things happen, each when checkpoints go on again."""
        with submitted_to(self.place.settings()):
            environment = self.environment()
            world = World(environment, self.folder, self.rate, self.out)
            for name in self.programs:
                world.sink(PROGRAMS[name].build(world), name)
            job = environment.execute_async(" and ".join(self.programs))
            try:
                for fault in faults:
                    self._progress()
                    fault(job)
                self._progress()
                self.stop(None, world.splits)
                state = ended(job, PATIENCE)
            except BaseException:
                self._tell(job)
                job.cancel().result()
                raise
            if state != "FINISHED":
                self._tell(job)
            assert state == "FINISHED"
        for name in self.programs:
            self._compare(name, self.written(name))

    def _newest(self) -> int:
        self._seen = max(self._seen, self.minio.newest())
        return self._seen


def failed_checkpoints(job: Any) -> int:
    """So many so far."""
    return int(rest_of(job, "/checkpoints")["counts"]["failed"])


def records_read(job: Any) -> int:
    """By all tasks so far."""
    return sum(int(vertex["metrics"]["read-records"]) for vertex in rest_of(job)["vertices"])


def outage(fault: Callable[[], AbstractContextManager[None]]) -> Callable[[Any], None]:
    """As long as it lasts, checkpoints fail and are counted, and records flow."""

    def happens(job: Any) -> None:
        with fault():
            before = failed_checkpoints(job)
            wait_until(lambda: failed_checkpoints(job) > before, "a checkpoint fails and is counted")
            records = records_read(job)
            wait_until(lambda: records_read(job) > records, "records flow")
            assert rest_of(job)["state"] == "RUNNING"

    return happens


@pytest.mark.parametrize("backend", [pytest.param("hashmap", marks=pytest.mark.long), "rocksdb"])
def test_outages_of_the_server_cost_checkpoints_and_nothing_else(
    backend: str, place: Processes, minio: MinioServer, proxy: Proxy, tmp_path: Path
) -> None:
    file = tmp_path / "credentials"
    file.touch(mode=0o600)
    file.write_text(f"[default]\naws_access_key_id={minio.user}\naws_secret_access_key={minio.password}\n")
    more = {"firesteel.s3.credentials-file": str(file)} if backend == "rocksdb" else {}
    trial = S3Trial(place, tmp_path, ["keyed"], backend, rate=1000, minio=minio, port=proxy.port, more=more)

    @contextmanager
    def cut() -> Iterator[None]:
        proxy.rate = 100  # bytes in a second: nothing comes to an end
        try:
            yield
        finally:
            proxy.rate = None

    def slow(job: Any) -> None:
        proxy.rate = 200_000
        trial._progress()
        proxy.rate = None

    def slot_dies(job: Any) -> None:
        place.kill(SLOT, tmp_path, trial._chance)

    def jobmaster_dies_meanwhile(job: Any) -> None:
        """Its successor waits for the server, and goes on from the last checkpoint."""
        with minio.stopped():
            place.kill(JOBMASTER, tmp_path, trial._chance)
            wait_until(lambda: place._jobmaster() is not None, "there is another JobMaster")

    full = [outage(minio.full)] if can_mount() else []
    faults = {
        "hashmap": [outage(minio.away), slot_dies, outage(minio.stopped), jobmaster_dies_meanwhile],
        "rocksdb": [*full, slot_dies, outage(cut), slow],
    }[backend]
    trial.run_through(faults)
    assert trial._newest() > 2 * len(faults)
    wait_until(lambda: not minio.left(), lambda: f"nothing is left: {minio.left()}")


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_deaths_with_state_of_rocksdb_in_it(place: Processes, minio: MinioServer, tmp_path: Path) -> None:
    """Slots die at each of their own steps, everybody at any moment."""
    chance, done = random.Random(5), 0
    while done < KILLS:
        folder = tmp_path / str(done)
        folder.mkdir()
        trial = S3Trial(place, folder, ["keyed", "timers"], "rocksdb", seed=done, minio=minio, port=minio.port)
        at_steps = [Death(chance.choice(OWN_STEPS)) for _ in range(5)]
        trial.run([*at_steps, *(Death(ANY_MOMENT, victim) for victim in (SLOT, SLOT, TASKMANAGER, SLOT, JOBMASTER))])
        done += trial.kills
        print(f"{done} kills so far")
        wait_until(lambda: not minio.left(), lambda: f"nothing is left: {minio.left()}")


SERVER, STANDS_STILL = "MinIO", "MinIO, which stands still"
"""Who else may die."""
WITH_SLOT, WITH_JOBMASTER = f"{SERVER} and {SLOT}", f"{SERVER} and {JOBMASTER}"
"""The server first; the other one goes on from a checkpoint that it can't read for now."""
KILLS_OF_THE_SERVER = 24


class WithServer(Processes):
    """The cluster, and the server of its checkpoints, which is away for up to some seconds.

    Args:
        place: the cluster.
        minio: the server.
        chance: how long it is away.
    """

    def __init__(self, place: Processes, minio: MinioServer, chance: random.Random) -> None:
        super().__init__(place.cluster)
        self._minio, self._chance = minio, chance

    def kill(self, victim: str, folder: Path, chance: random.Random) -> ProcessId:
        if not victim.startswith(SERVER):
            return super().kill(victim, folder, chance)
        server = self._minio.process
        if victim == STANDS_STILL:
            self._minio.stop()
            return server
        self._minio.kill()
        other = {WITH_SLOT: SLOT, WITH_JOBMASTER: JOBMASTER}.get(victim)
        return super().kill(other, folder, chance) if other else server

    def bring_back(self, victim: str) -> None:
        if not victim.startswith(SERVER):
            super().bring_back(victim)
            return
        # Up to longer than the job waits for it at once (firesteel.s3.retry-timeout): this fault is what is tested.
        time.sleep(self._chance.uniform(0, 4))
        if victim == STANDS_STILL:
            self._minio.go_on()
        else:
            self._minio.start()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_server_dies_in_the_middle_of_checkpoints(place: Processes, minio: MinioServer, tmp_path: Path) -> None:
    """Before, in and behind their synchronous parts, while results are committed, at any moment; slots and JobMasters
    die with it."""
    chance, done = random.Random(6), 0
    steps_of_it = [*OWN_STEPS, ANY_MOMENT, ANY_MOMENT]
    while done < KILLS_OF_THE_SERVER:
        folder = tmp_path / str(done)
        folder.mkdir()
        both = WithServer(place, minio, chance)
        trial = S3Trial(both, folder, ["keyed", "timers"], "rocksdb", seed=done, minio=minio, port=minio.port)
        victims = [SERVER, STANDS_STILL, WITH_SLOT, SERVER, WITH_JOBMASTER, STANDS_STILL, WITH_SLOT, SERVER]
        trial.run([Death(chance.choice(steps_of_it), victim) for victim in victims])
        done += trial.kills
        print(f"{done} kills so far")
        wait_until(lambda: not minio.left(), lambda: f"nothing is left: {minio.left()}")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_ten_minutes_without_the_server(place: Processes, minio: MinioServer, tmp_path: Path) -> None:
    trial = S3Trial(place, tmp_path, ["keyed"], "rocksdb", rate=200, minio=minio, port=minio.port)

    def away_for_long(job: Any) -> None:
        with minio.away():
            end = time.monotonic() + 600
            while time.monotonic() < end:
                failed, records = failed_checkpoints(job), records_read(job)
                wait_until(lambda: failed_checkpoints(job) > failed, "another checkpoint fails", 60)  # noqa: B023
                wait_until(lambda: records_read(job) > records, "records flow", 60)  # noqa: B023
                assert rest_of(job)["state"] == "RUNNING"

    trial.run_through([away_for_long])
    wait_until(lambda: not minio.left(), lambda: f"nothing is left: {minio.left()}")


def test_a_job_goes_on_from_a_retained_checkpoint(place: Processes, minio: MinioServer, tmp_path: Path) -> None:
    retained = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}
    trial = S3Trial(place, tmp_path, ["keyed"], minio=minio, port=minio.port, more=retained)
    with submitted_to(place.settings()):
        environment = trial.environment()
        world = World(environment, tmp_path)
        world.sink(PROGRAMS["keyed"].build(world), "keyed")
        job = environment.execute_async("first")
        trial._progress()
        job.cancel().result()
        assert ended(job, PATIENCE) == "CANCELED"

    def objects() -> list[str]:
        return [object_.object_name or "" for object_ in minio.client().list_objects(BUCKET, recursive=True)]

    metadata = the_one_left(
        lambda: [name for name in objects() if name.endswith("/_metadata")], "one checkpoint is left"
    )
    left = objects()
    trial.more = {"execution.state-recovery.path": f"s3://{BUCKET}/{metadata.removesuffix('/_metadata')}"}
    trial.run_through([])
    for name in left:  # they are the user's
        minio.client().remove_object(BUCKET, name)
    wait_until(lambda: not minio.left(), lambda: f"nothing is left: {minio.left()}")


def test_a_job_stops_with_a_savepoint_that_is_moved_and_goes_on(
    place: Processes, minio: MinioServer, tmp_path: Path
) -> None:
    client, settings = minio.client(), Settings(minio.settings())
    trial = S3Trial(place, tmp_path, ["keyed"], minio=minio, port=minio.port)
    with submitted_to(place.settings()):
        environment = trial.environment()
        world = World(environment, tmp_path)
        world.sink(PROGRAMS["keyed"].build(world), "keyed")
        job = environment.execute_async("first")
        trial._progress()
        target = f"s3://{BUCKET}/savepoints"
        savepoint = job.trigger_savepoint(target).result()
        location = job.stop_with_savepoint(False, target).result()
        assert ended(job, PATIENCE) == "FINISHED"
    description = inspect(location, settings)
    assert (description["format"], description["stop"]) == ("CANONICAL", "suspend")
    below = location.removeprefix(f"s3://{BUCKET}/")
    for object_ in client.list_objects(BUCKET, f"{below}/", recursive=True):
        name = str(object_.object_name)
        client.copy_object(BUCKET, name.replace(below, "moved"), CopySource(BUCKET, name))
    dispose(location, settings)
    trial.more = {
        "execution.state-recovery.path": f"s3://{BUCKET}/moved",
        "execution.state-recovery.claim-mode": "CLAIM",
    }
    trial.run_through([])
    assert inspect(savepoint, settings)["stop"] == ""
    dispose(savepoint, settings)
    wait_until(lambda: not minio.left(), lambda: f"nothing is left: {minio.left()}")


def test_a_job_that_can_take_no_checkpoints_does_not_begin(
    place: Processes, minio: MinioServer, tmp_path: Path
) -> None:
    wrong = {"s3.access-key": minio.user, "s3.secret-key": "this is another one"}
    trial = S3Trial(place, tmp_path, ["keyed"], minio=minio, port=minio.port, more=wrong)
    with submitted_to(place.settings()):
        environment = trial.environment()
        world = World(environment, tmp_path)
        world.sink(PROGRAMS["keyed"].build(world), "keyed")
        job = environment.execute_async("no checkpoints")
        assert ended(job, PATIENCE) == "FAILED"
        exceptions = str(rest_of(job, "/exceptions"))
    assert "The job can't take checkpoints" in exceptions
    assert "the secret key does not belong to it" in exceptions
    for secret in ("this is another one", minio.password):
        assert secret not in exceptions + place.cluster.logs() + place.log()
        shown = [str(rest_of(job, path)) for path in ("", "/config", "/checkpoints", "/checkpoints/config")]
        assert secret not in "".join(shown)
