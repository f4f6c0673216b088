"""What somebody asks for who wants a checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.core.errors import ConfigurationError
from firesteel_dispatcher.checkpoint_requests import read_trigger


def read(body: Any) -> tuple[str, bool]:
    return read_trigger(body or {})


def test_all_state_is_asked_for_by_name() -> None:
    assert read({"checkpointType": "FULL", "triggerId": "A" * 32}) == ("a" * 32, True)
    assert read({"checkpointType": "CONFIGURED", "triggerId": "b" * 32}) == ("b" * 32, False)
    assert [read(body)[1] for body in (None, {}, {"checkpointType": "FULL"})] == [False, False, True]


def test_what_can_not_be_asked_for_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"by execution\.checkpointing\.incremental of the job"):
        read({"checkpointType": "INCREMENTAL"})
    with pytest.raises(ConfigurationError, match="32 hex digits"):
        read({"triggerId": "x"})
