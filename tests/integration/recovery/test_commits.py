"""Whoever dies while a job without checkpoints commits its results: they are shown, each once.

The jobs have no restart strategy: what dies here is not theirs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.recovery import steps
from tests.integration.recovery.places import JOBMASTER, Embedded, Processes
from tests.integration.recovery.stepped_sink import SteppedAtEnd
from tests.integration.recovery.trials import Death, Trial

pytestmark = pytest.mark.timeout(600)


def test_a_slot_dies_at_each_step(here: Embedded, folder: Path) -> None:
    deaths = [Death(step) for step in (steps.BEFORE_COMMIT, steps.WITHIN_COMMIT, steps.AFTER_COMMIT)]
    Trial(here, folder, []).commit(deaths)


def test_a_slot_dies_with_a_sink_that_knows_no_checkpoints(here: Embedded, folder: Path) -> None:
    Trial(here, folder, []).commit([Death(steps.BEFORE_COMMIT), Death(steps.AFTER_COMMIT)], SteppedAtEnd)


def test_others_die_around_the_point_of_no_return(there: Processes, folder: Path) -> None:
    deaths = [Death(steps.BEFORE_METADATA, JOBMASTER), Death(steps.WITHIN_COMMIT), Death(steps.AFTER_COMMIT, JOBMASTER)]
    Trial(there, folder, []).commit(deaths)


@pytest.mark.long
def test_others_die_at_each_other_step(there: Processes, folder: Path) -> None:
    deaths = [
        Death(steps.ACKNOWLEDGED, JOBMASTER),
        Death(steps.AFTER_METADATA, JOBMASTER),
        Death(steps.BEFORE_COMMIT, JOBMASTER),
        Death(steps.AFTER_COMMIT),
    ]
    Trial(there, folder, []).commit(deaths)
