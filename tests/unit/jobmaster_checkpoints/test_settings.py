"""Which barriers overtake, by the settings of a job."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.config.settings import Settings
from firesteel_jobmaster.checkpoints.settings import CheckpointSettings

UNALIGNED = "execution.checkpointing.unaligned.enabled"
TIMEOUT = "execution.checkpointing.aligned-checkpoint-timeout"
MODE = "execution.checkpointing.mode"


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ({}, {"unaligned": True, "aligned_ms": 30_000, "rescalable": True}),
        ({TIMEOUT: "5 s"}, {"unaligned": True, "aligned_ms": 5_000, "rescalable": True}),
        ({UNALIGNED: "true"}, {"unaligned": True, "aligned_ms": 0}),
        ({UNALIGNED: "true", TIMEOUT: "5 s"}, {"unaligned": True, "aligned_ms": 5_000}),
        ({UNALIGNED: "false"}, {}),
        ({UNALIGNED: "false", TIMEOUT: "5 s"}, {}),
    ],
)
def test_barriers_overtake_after_a_while_unless_the_settings_say_otherwise(
    values: dict[str, str], options: dict[str, Any]
) -> None:
    settings = CheckpointSettings.read(Settings(values))
    assert settings.barrier_options() == {"mode": "EXACTLY_ONCE", **options}


def test_barriers_that_block_nobody_do_not_overtake() -> None:
    settings = CheckpointSettings.read(Settings({MODE: "AT_LEAST_ONCE", UNALIGNED: "true"}))
    assert settings.barrier_options() == {"mode": "AT_LEAST_ONCE"}
