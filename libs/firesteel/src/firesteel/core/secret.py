"""The cluster's secret, and what is made from it. Whoever knows it, is the cluster."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import MutableMapping
from pathlib import Path

from firesteel.core.environment import SECRET_VARIABLE, take
from firesteel.core.errors import ConfigurationError

SECRET_FILE_NAME = "cluster-secret"
"""Name of the file beside ``config.yaml`` that is read where nothing else is said."""
SHORTEST = 16
"""Fewest characters of a secret."""
LONGEST = 4096


def load_secret(
    secret_file: str | os.PathLike[str] | None,
    environ: MutableMapping[str, str],
    config_directory: str | os.PathLike[str] | None = None,
) -> str:
    """The cluster's secret: of the file, else of ``FIRESTEEL_SECRET``, else ``cluster-secret`` beside ``config.yaml``.

    The variable is removed from ``environ`` in any case, so that no child inherits it.

    Args:
        secret_file: the option ``firesteel.security.secret-file``; relative paths begin in ``config_directory``.
        environ: ``os.environ``.
        config_directory: where ``config.yaml`` lies, if there is one.

    Raises:
        ConfigurationError: there is none, it is too short, or others may read its file.
    """
    from_environment = take(SECRET_VARIABLE, environ)
    if secret_file is not None:
        return read_secret_file(Path(config_directory or "") / secret_file)
    if from_environment is not None:
        return _checked(from_environment, f"the variable {SECRET_VARIABLE}")
    if config_directory is not None and (shared_file := Path(config_directory) / SECRET_FILE_NAME).exists():
        return read_secret_file(shared_file)
    raise ConfigurationError(
        "There is no cluster secret: set firesteel.security.secret-file to a file of mode 0600 that is the same on all "
        f"nodes (bin/start-cluster.sh makes one), or the variable {SECRET_VARIABLE}."
    )


def read_secret_file(path: Path) -> str:
    """The secret or token in a file, without white space around it.

    Raises:
        ConfigurationError: the file can't be read, is open to others, or holds too little.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(LONGEST + 1)
    except OSError as error:
        raise ConfigurationError(f"The secret file {path} can't be read: {error.strerror or error}.") from error
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigurationError(
            f"The secret file {path} has the mode {stat.S_IMODE(mode):04o}: others may read it; chmod 600 it."
        )
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ConfigurationError(f"The secret file {path} does not hold text.") from None
    return _checked(text, f"the secret file {path}")


def derive(secret: str, purpose: str) -> str:
    """A key for one purpose, 64 hex digits: HMAC-SHA256 of the purpose under the secret."""
    return hmac.new(secret.encode(), purpose.encode(), hashlib.sha256).hexdigest()


def spark_secret(secret: str, salt: str) -> str:
    """By which one driver of Spark and its executors know each other, 64 hex digits; who has only the salt does not.

    Args:
        secret: of the cluster.
        salt: of the driver (`new_salt`); no secret.
    """
    return derive(derive(secret, "spark"), salt)


def job_secret(secret: str, salt: str) -> str:
    """By which the slots of one attempt of a job know each other, 64 hex digits; who has only the salt does not.

    Args:
        secret: of the cluster.
        salt: of the attempt (`new_salt`); no secret.
    """
    return derive(derive(secret, "job"), salt)


def new_salt() -> str:
    """A random salt, 64 hex digits."""
    return secrets.token_hex(32)


def rest_token(secret: str) -> str:
    """The token of the REST API that is made from the cluster's secret."""
    return derive(secret, "rest")


def _checked(text: str, origin: str) -> str:
    secret = text.strip()
    if not SHORTEST <= len(secret) <= LONGEST:
        raise ConfigurationError(
            f"The secret in {origin} has {len(secret)} characters; {SHORTEST} to {LONGEST} are expected."
        )
    return secret
