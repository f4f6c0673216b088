"""Savepoints on the simulated disk, and users who ask for them, stop jobs with them, go on from them, remove them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

from firesteel.checkpoint import savepoint_places, savepoints
from firesteel.checkpoint.handles import FileState
from firesteel.checkpoint.metadata import CheckpointMetadata
from firesteel.checkpoint.savepoints import relative_to
from firesteel.checkpoint.storage import StateWriter
from firesteel.core.errors import CheckpointStorageError, FiresteelError
from firesteel.graph.job_graph import JobGraph
from firesteel_dispatcher.checkpoint_requests import SavepointRequest
from firesteel_jobmaster.checkpoints.requests import CheckpointRequests
from tests.simulation.ledger import SAVEPOINTS
from tests.simulation.storage import METADATA, Disk, Writer, look

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.story import Story

POLL = 5.0
"""Seconds after which a user looks again whether a job has stopped."""
_WAYS = ("", "", "", savepoints.SUSPEND, savepoints.SUSPEND, savepoints.DRAIN, savepoints.CANCEL)


class SavepointDirectory:
    """As ``firesteel.checkpoint.savepoints.SavepointDirectory`` says.

    Args:
        disk: where it is.
        path: of it.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk, self.root = disk, path.removesuffix(f"/{METADATA}")

    def open_state_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        return Writer(self._disk, self.root, 0)

    def write(self, metadata: CheckpointMetadata) -> str:
        disk, path = self._disk, f"{self.root}/{METADATA}"
        disk.step("before metadata", metadata.job_id)
        disk.begin("savepoint")
        for handle in metadata.handles():
            if isinstance(handle, FileState):
                look(disk, handle)
        if self.root not in disk.directories:
            raise CheckpointStorageError(f"{self.root}: there is no such directory")
        data = relative_to(f"{self.root}/", metadata).to_bytes()
        if disk.files.setdefault(path, data) != data:
            raise CheckpointStorageError(f"{path} is there already, and holds something else")
        disk.ledger.savepoint_written(self.root, metadata, disk.files)
        disk.step("after metadata", metadata.job_id)
        disk.answer("savepoint")
        return self.root

    def remove(self, metadata: CheckpointMetadata) -> None:
        disk = self._disk
        disk.begin("remove a savepoint")
        disk.remove(f"{self.root}/{METADATA}")
        for path in sorted(metadata.files()):
            disk.begin("remove a savepoint")
            disk.remove(path)
        disk.directories.discard(self.root)

    def give_up(self) -> None:
        self._disk.begin("give up a savepoint")
        self._disk.remove_tree(self.root, ())
        self._disk.answer("give up a savepoint")


def read(disk: Disk, path: str) -> CheckpointMetadata:
    """The metadata of a savepoint."""
    place = f"{path.removesuffix(f'/{METADATA}')}/{METADATA}"
    return CheckpointMetadata.from_bytes(disk.files.get(place, b""), place)


@contextmanager
def on_disk(cluster: Callable[[], Cluster]) -> Iterator[None]:
    """Savepoints of all services are there; the ledger hears of what users are told."""

    def make(target: str, job_id: str, settings: Any = None) -> str:
        disk = cluster().disk
        disk.begin("prepare a savepoint")
        path = f"{target}/savepoint-{job_id[:6]}-{next(disk.numbers)}"
        disk.directories.add(path)
        disk.answer("prepare a savepoint")
        return path

    completed = CheckpointRequests.completed

    def told(requests: CheckpointRequests, trigger_id: str, checkpoint_id: int, location: str = "") -> None:
        if location:
            cluster().ledger.savepoint_told(location, cluster().disk.files)
        completed(requests, trigger_id, checkpoint_id, location)

    with ExitStack() as patches:
        for name, replacement in {
            "make_directory": make,
            "savepoint_directory": lambda path, settings=None: SavepointDirectory(cluster().disk, path),
            "read_savepoint_metadata": lambda path, settings=None: read(cluster().disk, path),
        }.items():
            patches.enter_context(mock.patch.object(savepoint_places, name, replacement))
        patches.enter_context(mock.patch.object(CheckpointRequests, "completed", told))
        yield


class Users:
    """Those of one story.

    Args:
        story: whose cluster it is.
        count: how often one of them wants something.
        until: when the last one does, in seconds.
        last: when the last one begins a job from a savepoint.
    """

    def __init__(self, story: Story, count: int, until: float, last: float) -> None:
        self._cluster, self._world, self._until, self._last = story.cluster, story.world, until, last
        self._followed: set[str] = set()
        """Savepoints from which somebody has gone on."""
        for _ in range(count):
            self._world.after(self._world.rng.uniform(40, until), self._want)
        self._world.after(POLL, self._look)

    def _want(self) -> None:
        cluster, rng = self._cluster, self._world.rng
        accounts = cluster.ledger.accounts
        jobs = [id_ for id_ in cluster.checkpointed if accounts[id_].completed_at and not accounts[id_].over]
        if not jobs:
            if self._world.now < self._until:
                self._world.after(rng.uniform(1.0, 5.0), self._want)
            return
        if rng.random() < 0.2:
            self._dispose()
            return
        job_id, stop = rng.choice(jobs), rng.choice(_WAYS)
        if stop == savepoints.CANCEL:
            cluster.cancelled.add(job_id)
        form = rng.choice(savepoints.FORMATS)
        request = SavepointRequest(f"{rng.getrandbits(128):032x}", SAVEPOINTS, form, stop)
        for again in range(rng.choice([1, 1, 2])):  # a client that has got no answer asks again
            self._world.after(again * rng.choice([0.0, 3.0, 20.0]), lambda: self._ask(job_id, request))

    def _ask(self, job_id: str, request: SavepointRequest) -> None:
        cluster = self._cluster
        dispatcher, service = cluster.dispatcher, cluster.dispatcher.service
        if not dispatcher.alive or not service._started or service.stopping:
            return
        cluster.tell(f"a user wants a savepoint of {cluster.short(job_id)}{request.stop and ', to '}{request.stop}")

        async def do() -> None:
            try:
                await service.jobs.trigger_savepoint(job_id, request)
            except (FiresteelError, OSError) as error:
                cluster.tell(f"{dispatcher} asks for no savepoint of {cluster.short(job_id)}: {error}")

        dispatcher.run(do)

    def _dispose(self) -> None:
        cluster = self._cluster
        dispatcher, service = cluster.dispatcher, cluster.dispatcher.service
        seen = cluster.ledger.savepoints
        mine = [
            p for p, savepoint in sorted(seen.items()) if savepoint.told and not savepoint.stop and not savepoint.may_go
        ]
        if not mine or not dispatcher.alive or not service._started or service.stopping:
            return
        path = self._world.rng.choice(mine)
        cluster.tell(f"a user removes {path}")
        seen[path].may_go = True

        async def do() -> None:
            service.disposals.begin(path)

        dispatcher.run(do)

    def _look(self) -> None:
        """Whoever has stopped a job with a savepoint goes on from that."""
        cluster, world = self._cluster, self._world
        world.after(POLL, self._look)
        for job_id in list(cluster.checkpointed):
            account = cluster.ledger.accounts[job_id]
            path = account.stopped
            if account.over and path and path not in self._followed and world.now < self._last:
                self._followed.add(path)
                claim = world.rng.choice(["CLAIM", "NO_CLAIM"])
                world.after(world.rng.uniform(0.0, 10.0), partial(self._go_on, job_id, path, claim))

    def _go_on(self, job_id: str, path: str, claim: str) -> None:
        cluster, rng = self._cluster, self._world.rng
        known = cluster.ledger.savepoints[path].told
        if not known and f"{path}/{METADATA}" not in cluster.disk.files:
            return  # it was taken back, and nobody had been told of it
        former = cluster.graphs[job_id]
        config = {
            **former.config,
            "execution.state-recovery.path": path,
            "execution.state-recovery.claim-mode": claim,
        }
        graph = replace(former, job_id=f"{rng.getrandbits(128):032x}", config=config)
        follow(cluster, job_id, graph, path, claimed=claim == "CLAIM")


def follow(cluster: Cluster, former: str, graph: JobGraph, path: str, *, claimed: bool) -> None:
    """Submit a job that goes on from the savepoint with which another one was stopped."""
    job = cluster.checkpointed[graph.job_id] = cluster.checkpointed[former]
    cluster.ledger.follows(graph.job_id, former, path, claimed=claimed)
    cluster.restarts[graph.job_id] = job.restarts
    if job.endless:
        cluster.endless.add(graph.job_id)
    cluster.submitted.append(graph.job_id)
    cluster.tell(f"{cluster.short(graph.job_id)} goes on from {path} of {cluster.short(former)}")
    cluster.send(graph)


def check_stopped(cluster: Cluster, job_id: str) -> None:
    """A job has FINISHED because somebody stopped it: what its savepoint holds is shown, and that is whole."""
    account, name = cluster.ledger.accounts[job_id], cluster.short(job_id)
    seen = cluster.ledger.savepoints[account.stopped]
    for operator in seen.metadata.operators:
        for state in operator.subtasks.values():
            for committables in state.committables:
                for item in committables.items:
                    shown = committable_name(cluster, job_id, item)
                    assert shown in account.committed, f"{name} was stopped, and {shown} of its savepoint is not shown"


def committable_name(cluster: Cluster, job_id: str, item: Any) -> str:
    """Of a committable of the model's tasks."""
    name, _ = json.loads(cluster.storage(job_id).read_state(item))
    return str(name)
