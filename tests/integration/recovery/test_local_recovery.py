"""Tasks that start again on the same host read copies of their state there, and the storage where these are no good."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.embedded.programs import RUNS
from tests.integration.recovery.places import SLOT, Embedded, embedded
from tests.integration.recovery.stepped_storage import STATE_READS
from tests.integration.recovery.trials import ANY_MOMENT, Death, Trial
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(400)
LOCAL = {
    "execution.checkpointing.local-backup.enabled": "true",
    "execution.state-recovery.from-local": "true",
    "execution.checkpointing.data-inline-threshold": "0",
}


@pytest.mark.parametrize(
    ("backend", "incremental", "disks"),
    [pytest.param("hashmap", "false", 0, marks=pytest.mark.long), ("rocksdb", "true", 2)],
    ids=["hashmap", "rocksdb"],
)
def test_state_is_read_from_local_copies(
    plugin_path: str, folder: Path, backend: str, incremental: str, disks: int
) -> None:
    """In the working directory of the TaskManager, or on disks that are named."""
    parents = [folder / f"disk{number}" for number in range(disks)]
    options = {"execution__checkpointing__local_backup__dirs": ", ".join(map(str, parents))} if disks else {}

    def copies() -> list[Path]:
        places = (
            [path for parent in parents for path in parent.glob("firesteel-state-*/*/*/*")]
            if disks
            else [*RUNS.rglob("local-state/*/*")]
        )
        return [path for path in places if path.is_file() and not path.name.startswith("draft-")]

    with embedded(**options) as here:
        _read(here, folder, backend, incremental, copies)
        if disks:
            assert not list(RUNS.rglob("local-state"))
            assert all(list(parent.glob("firesteel-state-*")) for parent in parents)
    assert not [path for parent in parents for path in parent.glob("*")], "the TaskManager leaves nothing"


def _read(here: Embedded, folder: Path, backend: str, incremental: str, copies: Callable[[], list[Path]]) -> None:
    reads = folder / STATE_READS

    def with_damaged_copies() -> None:
        assert not reads.exists(), f"the storage was read: {reads.read_text()}"
        assert copies()
        trial.place.kill(SLOT, folder, trial._chance)

        def damaged() -> bool:
            for path in copies():
                with contextlib.suppress(OSError), path.open("r+b") as file:
                    file.write(b"damaged")
            return reads.exists()

        wait_until(damaged, "the storage is read")
        trial._progress()

    trial = Trial(
        here,
        folder,
        ["keyed", "timers"],
        backend,
        settings={**LOCAL, "execution.checkpointing.incremental": incremental},
    )
    trial.run([Death(ANY_MOMENT, SLOT)], then=with_damaged_copies)
    wait_until(lambda: not copies(), "copies go with their job")
