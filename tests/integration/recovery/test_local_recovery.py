"""Tasks that start again on the same host read copies of their state there, and the storage where these are no good."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.integration.embedded.programs import RUNS
from tests.integration.recovery.places import SLOT, Embedded
from tests.integration.recovery.stepped_storage import STATE_READS
from tests.integration.recovery.trials import ANY_MOMENT, Death, Trial
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(400)
LOCAL = {
    "execution.checkpointing.local-backup.enabled": "true",
    "execution.state-recovery.from-local": "true",
    "execution.checkpointing.data-inline-threshold": "0",
}


def copies() -> list[Path]:
    found = [path for path in RUNS.rglob("local-state/*/*") if not path.name.startswith("draft-")]
    return [path for path in found if path.is_file()]


@pytest.mark.parametrize(
    ("backend", "incremental"),
    [pytest.param("hashmap", "false", marks=pytest.mark.long), ("rocksdb", "true")],
    ids=["hashmap", "rocksdb"],
)
def test_state_is_read_from_local_copies(here: Embedded, folder: Path, backend: str, incremental: str) -> None:
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
