"""What a program asks for, and its sources or this version can't give."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, Final

from firesteel.config import ConfigOption, Settings
from firesteel.config import options as opt
from firesteel.functions.source import Source
from firesteel.graph.stream_graph import StreamGraph
from firesteel.state.backend import backend_in_use

logger = logging.getLogger(__name__)
_NOT_YET: Final[tuple[tuple[ConfigOption[Any], str], ...]] = (
    (opt.CHECKPOINTING_UNALIGNED, "barriers are aligned"),
    (opt.CHECKPOINTING_FORCE_UNALIGNED, "barriers are aligned"),
    (opt.CHECKPOINTING_ALIGNED_TIMEOUT, "barriers stay aligned however long that takes"),
    (opt.CHECKPOINTING_COMPRESSION, "state is written as it is"),
    (opt.STATE_CHANGELOG, "state is written at checkpoints only"),
    (opt.SAVEPOINT_DIRECTORY, "there are no savepoints"),
)
"""Options that are kept with the job, and what happens instead of what they ask for."""


def warn_of_settings(settings: Settings) -> None:
    """Warn of settings of checkpoints that are kept with the job and have no effect in this version."""
    for option, instead in _NOT_YET:
        asked = settings.get(option)
        if asked and asked != option.default:
            logger.warning("%s = %s has no effect in this version: %s", option.key, option.type.show(asked), instead)
    backend = settings.get(opt.STATE_BACKEND)
    if (used := backend_in_use(backend)) != backend:
        logger.warning("%s = %s is not in this version: state is kept by %s", opt.STATE_BACKEND.key, backend, used)


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
