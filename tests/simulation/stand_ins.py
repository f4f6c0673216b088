"""What stands in for parts of services that would need files or other hosts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from firesteel.connectors import enumerators
from firesteel.core.errors import PeerUnreachableError
from firesteel.functions.source import Split
from tests.simulation.world import Process, World


class Trickle(enumerators.StaticEnumerator):
    """Has its splits one after the other, so that subtasks have to wait."""

    def __init__(self, world: World, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._world = world

    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        return [] if self._world.rng.random() < 0.3 else super().next_splits(subtask, parallelism)


class SimulatedBlobs:
    """In place of ``BlobCache``: blobs are a call to the Dispatcher's host away."""

    def __init__(self, directory: Path, *_: Any, **__: Any) -> None:
        self.process: Process | None = None

    async def fetch(self, session: Any, job_id: str, address: str, names: Any) -> dict[str, str]:
        assert self.process is not None
        world = self.process.world
        callee = world.processes.get(address)
        cut = callee is None or not callee.alive or callee.frozen or world.is_cut(self.process.host, callee.host)
        if cut or world.rng.random() < world.loss:
            raise PeerUnreachableError(f"{address}: no answer")
        return {name: f"/sim/{name}" for name in names}

    def forget(self, job_id: str) -> None:
        pass

    async def close(self) -> None:
        pass
