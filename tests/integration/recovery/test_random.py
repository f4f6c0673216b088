"""Many deaths: who dies, at which step or moment, of which programs and over which state, is drawn by lot.

Seeds are printed; ``FIRESTEEL_TEST_SEED`` repeats the trials that began with it.
"""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from tests.integration.recovery import steps
from tests.integration.recovery.places import EXECUTOR, JOBMASTER, SLOT, TASKMANAGER, Embedded, Place, Processes
from tests.integration.recovery.programs import PROGRAMS
from tests.integration.recovery.trials import ANY_MOMENT, BACKENDS, Death, Trial

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
KILLS = 10
"""Of one job."""


COMMITS = (steps.BEFORE_COMMIT, steps.WITHIN_COMMIT, steps.AFTER_COMMIT)
AT_THE_END = (*steps.IN_JOBMASTER, *COMMITS)


def first_seed() -> int:
    """As given, or by lot."""
    return int(os.environ.get("FIRESTEEL_TEST_SEED") or secrets.randbelow(1 << 32))


def drawn(place: Place, chance: random.Random, not_at: Collection[str] = ()) -> Death:
    """Who dies, and when."""
    step = chance.choice([step for step in (ANY_MOMENT, *steps.STEPS) if step not in not_at])
    whoever = [*place.victims, SLOT] if step == ANY_MOMENT else [*place.victims, steps.MYSELF]
    if step in steps.IN_JOBMASTER and JOBMASTER not in place.victims:
        whoever.remove(steps.MYSELF)
    return Death(step, chance.choice(whoever))


def trial_of(place: Place, folder: Path, seed: int, backends: Sequence[str] = BACKENDS) -> int:
    """One job; returns how many died."""
    chance = random.Random(seed)
    folder.mkdir()
    if chance.random() < 0.2:
        (name,) = chance.sample(sorted(PROGRAMS), 1)
        trial = Trial(place, folder, [name], chance.choice(backends), seed)
        trial.collect(name, [drawn(place, chance, COMMITS) for _ in range(KILLS // 2)])
        return trial.kills
    programs = chance.sample(sorted(PROGRAMS), chance.randrange(1, 4))
    trial = Trial(place, folder, programs, chance.choice(backends), seed, chance.choice([500, 2000, 4000]))
    deaths = [drawn(place, chance) for _ in range(KILLS)]
    last = deaths[0] if deaths[0].step in AT_THE_END else None
    if last is None and JOBMASTER in place.victims:
        last = Death(steps.CLOSING)
    trial.run(deaths[1:], at_the_end=last)
    return trial.kills


def kill_many(place: Place, folder: Path, kills: int, backends: Sequence[str] = BACKENDS) -> None:
    seed, done = first_seed(), 0
    while done < kills:
        done += trial_of(place, folder / str(seed), seed, backends)
        print(f"{place.name}: {done} kills so far")
        seed += 1


def test_slot_processes_of_the_embedded_cluster_die(here: Embedded, folder: Path) -> None:
    kill_many(here, folder, 110)


def test_slot_processes_die_with_state_in_rocksdb(here: Embedded, folder: Path) -> None:
    kill_many(here, folder, 60, ["rocksdb"])


def test_everybody_dies(there: Processes, folder: Path) -> None:
    assert {EXECUTOR, JOBMASTER, TASKMANAGER} < set(there.victims)
    kill_many(there, folder, 90)
