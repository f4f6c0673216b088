"""Where a stream's timestamps come from: a warning for event-time windows that will never fire."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firesteel.graph.stream_graph import StreamInput

logger = logging.getLogger(__name__)


def warn_without_timestamps(what: str, inputs: tuple[StreamInput, ...]) -> None:
    """Warn if no watermark can ever come to what stands behind these inputs."""
