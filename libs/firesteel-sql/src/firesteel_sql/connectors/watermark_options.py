"""Options about watermarks, of all tables whose connector makes them."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from firesteel.config.option import DURATION, STRING, Option, enum_of

IDLE_TIMEOUT: Final[Option[timedelta | None]] = Option(
    "scan.watermark.idle-timeout",
    DURATION,
    None,
    "Time without rows after which a split holds back no watermark; `table.exec.source.idle-timeout` if not set.",
)
EMIT_STRATEGY: Final = Option(
    "scan.watermark.emit.strategy", enum_of("on-periodic"), "on-periodic", "Watermarks go out at an interval."
)
ALIGNMENT_GROUP: Final[Option[str | None]] = Option(
    "scan.watermark.alignment.group", STRING, None, "Sources of one group wait for each other."
)
ALIGNMENT_DRIFT: Final[Option[timedelta | None]] = Option(
    "scan.watermark.alignment.max-drift", DURATION, None, "How far a split may be ahead of its group."
)
ALIGNMENT_INTERVAL: Final = Option(
    "scan.watermark.alignment.update-interval",
    DURATION,
    timedelta(seconds=1),
    "Pause between two exchanges of watermarks in a group.",
)
WATERMARK_OPTIONS: Final = (IDLE_TIMEOUT, EMIT_STRATEGY, ALIGNMENT_GROUP, ALIGNMENT_DRIFT, ALIGNMENT_INTERVAL)
