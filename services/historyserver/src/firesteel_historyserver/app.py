"""Makes a history server from settings."""

from __future__ import annotations

import os
from collections.abc import Collection

from firesteel.config import Settings, options
from firesteel.core.clock import Clock
from firesteel.core.errors import ConfigurationError
from firesteel.rest.access import RestAccess, check_binding
from firesteel.rest.job_archives import open_place
from firesteel.service.bearer import tokens_of
from firesteel_historyserver.core import ArchiveRetention
from firesteel_historyserver.routes import history_routes
from firesteel_historyserver.shell import HistoryService, HistorySettings


def create_service(
    *,
    settings: Settings,
    secret: str,
    clock: Clock,
    config_directory: str | os.PathLike[str] | None = None,
    host_names: Collection[str] = (),
) -> HistoryService:
    """A history server, not started yet.

    Args:
        settings: of the cluster, or of the history server alone.
        secret: of the cluster.
        clock: for the age of archives.
        config_directory: base of a relative ``firesteel.rest.token-file``.
        host_names: names that requests may carry in ``Host``, beside the usual ones.

    Raises:
        ConfigurationError: an option has a bad value, or the service would be open to other hosts.
    """
    key = options.HISTORY_DIRECTORIES.key
    configured = settings.get(options.HISTORY_DIRECTORIES) or settings.get(options.ARCHIVE_DIRECTORY) or ""
    texts = [text.strip() for text in configured.split(",") if text.strip()]
    if not texts:
        raise ConfigurationError(
            f"{key} is not set: name the directories whose archives are to be shown, those that Dispatchers write to "
            f"({options.ARCHIVE_DIRECTORY.key})"
        )
    address = settings.get(options.HISTORY_ADDRESS)
    check_binding(settings, address, options.HISTORY_ADDRESS.key)
    most, ttl = settings.get(options.HISTORY_RETAINED_JOBS), settings.get(options.HISTORY_RETAINED_TTL)
    if most == 0:
        raise ConfigurationError(f"{options.HISTORY_RETAINED_JOBS.key} is 0, but has to be -1 (all) or at least 1")
    service = HistoryService(
        [open_place(text, key, settings) for text in texts],
        HistorySettings(
            settings.get(options.HISTORY_REFRESH).total_seconds(),
            int(settings.get(options.HISTORY_WEB_REFRESH).total_seconds() * 1000),
            ArchiveRetention(None if most < 0 else most, None if ttl is None else int(ttl.total_seconds() * 1000)),
            settings.get(options.HISTORY_JOBMANAGER_LOGS) or "",
            settings.get(options.HISTORY_TASKMANAGER_LOGS) or "",
        ),
        clock,
        host_names=host_names,
    )
    service.access = RestAccess(
        tokens_of(settings, secret, config_directory), settings.is_set(options.REST_TOKEN_FILE), service.refusals
    )
    service.app.add_routes(history_routes(service))
    return service
