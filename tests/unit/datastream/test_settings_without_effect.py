"""Options that have no effect in this version: the reference and a warning say what happens instead."""

from __future__ import annotations

from typing import Any, Final

import pytest

from firesteel.common.configuration import Configuration
from firesteel.config import Option, reference
from firesteel.config.option import BOOL, DURATION, FLOAT, INT, STRING
from firesteel.config.options import ALL_OPTIONS
from firesteel.datastream import StreamExecutionEnvironment

WITHOUT: Final[list[Option[Any]]] = [option for option in ALL_OPTIONS if option.instead]
OTHERS: Final = {BOOL.name: "true", INT.name: "9", FLOAT.name: "0.5", STRING.name: "/x", DURATION.name: "7 s"}
NAMES: Final = ("FLASH_SSD_OPTIMIZED", "ROCKSDB")


def other(option: Option[Any]) -> str:
    """A value that is not the default."""
    return OTHERS.get(option.type.name) or next(name for name in NAMES if name in option.type.name)


def warnings_of(env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    env.from_sequence(1, 2).print()
    env.execute()
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_there_are_some() -> None:
    assert "execution.checkpointing.unaligned.forced" in [option.key for option in WITHOUT]


@pytest.mark.parametrize("option", WITHOUT, ids=lambda option: option.key)
def test_a_setting_without_effect_is_said(
    option: Option[Any], env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    (row,) = [line for line in reference.render().splitlines() if line.startswith(f"| `{option.key}` |")]
    assert f"Has no effect in this version: {option.instead}." in row
    settings = Configuration()
    settings.set_string(option.key, option.type.show(option.default) if option.default is not None else "")
    if option.default is not None:
        env.configure(settings)
        assert warnings_of(env, caplog) == []
    settings.set_string(option.key, other(option))
    env.configure(settings)
    shown = option.type.show(option.parse(other(option)))
    said = f"{option.key} = {shown} has no effect in this version: {option.instead}"
    assert warnings_of(env, caplog) == [said]
