"""Secrets that the settings lead to."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

from firesteel.config.load import CONF_DIR_VARIABLE
from firesteel.config.options import REST_TOKEN_FILE, SECRET_FILE
from firesteel.config.settings import Settings
from firesteel.core import secret as core
from firesteel.core.errors import ConfigurationError


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


def load_rest_token(
    settings: Settings, secret: str | None, config_directory: str | os.PathLike[str] | None = None
) -> str:
    """The token that REST requests carry: that of ``firesteel.rest.token-file``, else the one made from the secret.

    Args:
        settings: of the cluster.
        secret: of the cluster; None where it is not known.
        config_directory: where relative paths begin.

    Raises:
        ConfigurationError: the file can't be used, or neither is there.
    """
    path = settings.get(REST_TOKEN_FILE)
    if path is not None:
        return core.read_secret_file(Path(config_directory or "") / path)
    if secret is None:
        raise ConfigurationError(
            "No token for the REST API is known: set firesteel.rest.token-file or firesteel.security.secret-file."
        )
    return core.rest_token(secret)
