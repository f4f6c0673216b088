"""What a program asks for, and its sources or this version can't give."""

from __future__ import annotations

import logging
from datetime import timedelta

from firesteel.config import Settings
from firesteel.config import options as opt
from firesteel.config.options import ALL_OPTIONS
from firesteel.functions.source import Source
from firesteel.graph.stream_graph import StreamGraph
from firesteel.state.backend import backend_in_use

logger = logging.getLogger(__name__)


def warn_of_settings(settings: Settings) -> None:
    """Warn of settings that have no effect in this version, as their options say."""
    for option in ALL_OPTIONS:
        if option.instead and (asked := settings.get(option)) != option.default:
            shown = option.type.show(asked)
            logger.warning("%s = %s has no effect in this version: %s", option.key, shown, option.instead)
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
