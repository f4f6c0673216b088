"""What a program asks for and its sources can't give."""

from __future__ import annotations

import logging
from datetime import timedelta

from firesteel.config import Settings
from firesteel.config import options as opt
from firesteel.functions.source import Source
from firesteel.graph.stream_graph import StreamGraph

logger = logging.getLogger(__name__)


def warn_of_losses(graph: StreamGraph, settings: Settings) -> None:
    """Warn of sources that lose records at a restart although checkpoints are to be taken exactly once."""
    interval = settings.get(opt.CHECKPOINTING_INTERVAL)
    if interval is None or interval <= timedelta(0) or settings.get(opt.CHECKPOINTING_MODE) != "EXACTLY_ONCE":
        return
    for node in graph.nodes.values():
        source = node.operator.function
        if node.is_source and isinstance(source, Source) and not source.replayable:
            logger.warning(
                "%s can't be replayed: when the job restarts, what it gave since the last checkpoint is lost (at most "
                "once), although exactly once is asked for (%s)",
                node.name,
                opt.CHECKPOINTING_MODE.key,
            )
