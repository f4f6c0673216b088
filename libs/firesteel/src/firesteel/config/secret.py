"""Secrets that the settings lead to."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

from firesteel.config.load import CONF_DIR_VARIABLE
from firesteel.config.options import SECRET_FILE
from firesteel.config.settings import Settings
from firesteel.core import secret as core


def load_secret(
    settings: Settings, environ: MutableMapping[str, str], config_directory: str | os.PathLike[str] | None = None
) -> str:
    """The cluster's secret; see ``firesteel.core.secret.load_secret``.

    Args:
        settings: of the cluster.
        environ: ``os.environ``; the secret is removed from it.
        config_directory: where ``config.yaml`` lies; by default ``FIRESTEEL_CONF_DIR``.

    Raises:
        ConfigurationError: there is none, it is too short, or others may read its file.
    """
    folder = config_directory or environ.get(CONF_DIR_VARIABLE)
    return core.load_secret(settings.get(SECRET_FILE), environ, folder)
