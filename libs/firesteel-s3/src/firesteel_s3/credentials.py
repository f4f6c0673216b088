"""By which a user of an object store is known: options, environment, files, or the role of the host."""

from __future__ import annotations

import configparser
import os
import re
import socket
import threading
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from minio.credentials.credentials import Credentials
from minio.credentials.providers import IamAwsProvider, Provider
from urllib3 import PoolManager, Timeout
from urllib3.exceptions import HTTPError

from firesteel.config import Settings, options
from firesteel.core.errors import CheckpointStorageError, ConfigurationError
from firesteel.core.proxies import proxy_for
from firesteel_s3.proxy_pool import proxy_pool

__all__ = ["S3Credentials"]

_WEB_IDENTITY: Final = "AWS_WEB_IDENTITY_TOKEN_FILE"
_DECLARED: Final = (_WEB_IDENTITY, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
"""Variables by which a platform says who gives the credentials of a role."""
_AMAZON: Final = re.compile(r"\.amazonaws\.com(\.cn)?(:\d+)?$")
_CONNECT_SECONDS, _READ_SECONDS = 1.0, 5.0
"""The service of an instance is beside it; where there is none, nobody answers."""


class S3Credentials(Provider):
    """From the first place that has them; a file is read again when it has changed, what runs out is asked for again.

    Args:
        settings: of the store.
        host: of the store, with its port.

    Raises:
        ConfigurationError: half of them is set.
    """

    def __init__(self, settings: Settings, host: str) -> None:
        access, secret = settings.get(options.S3_ACCESS_KEY), settings.get(options.S3_SECRET_KEY)
        token = settings.get(options.S3_SESSION_TOKEN)
        if (access is None) != (secret is None):
            one, other = options.S3_ACCESS_KEY.key, options.S3_SECRET_KEY.key
            raise ConfigurationError(
                f"{other if access else one} is missing: {one} and {other} are set both, or none of them"
            )
        self._given: Credentials | None = None
        if access is not None and secret is not None:
            try:
                self._given = Credentials(access.reveal(), secret.reveal(), token.reveal() if token else None)
            except ValueError:
                raise ConfigurationError(
                    f"{options.S3_ACCESS_KEY.key} and {options.S3_SECRET_KEY.key} must not be empty"
                ) from None
        file = settings.get(options.S3_CREDENTIALS_FILE)
        self._file = Path(file) if file else None
        self._lock = threading.Lock()
        self._region = settings.get(options.S3_REGION)
        proxy = settings.get(options.S3_PROXY)
        self._proxy = None if proxy is None else proxy.reveal()
        self._at_amazon = _AMAZON.search(host) is not None
        self._instance: Provider | None = None
        self._read: tuple[tuple[int, int, int], Credentials] | None = None
        self.source = f"the options {options.S3_ACCESS_KEY.key} and {options.S3_SECRET_KEY.key}"
        """Where they come from, for people."""

    def __repr__(self) -> str:
        return f"credentials of {self.source}"

    def retrieve(self) -> Credentials:
        """Those that are valid now.

        Raises:
            CheckpointStorageError: there are none.
            HTTPError: who gives them does not answer.
        """
        if self._given is not None:
            return self._given
        if self._file is not None:
            return self._of_file(self._file)
        for name, secret, token in (
            ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
            ("MINIO_ACCESS_KEY", "MINIO_SECRET_KEY", "MINIO_SESSION_TOKEN"),
            ("MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD", ""),
        ):
            if os.environ.get(name) and os.environ.get(secret):
                self.source = f"the environment ({name})"
                return Credentials(os.environ[name], os.environ[secret], os.environ.get(token) or None)
        declared = next((name for name in _DECLARED if os.environ.get(name)), None)
        if declared is not None:
            self.source = f"the role of the host ({declared})"
            return self._of_instance()
        # Path.expanduser would raise for a user without a home.
        usual = Path(os.path.expanduser(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"))
        if usual.exists():
            return self._of_file(usual)
        if self._at_amazon and os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() != "true":
            self.source = "the role of the instance"
            try:
                return self._of_instance()
            except HTTPError:
                pass  # it is none of Amazon's
        raise CheckpointStorageError(
            f"there are no credentials for the object store on {socket.gethostname()}: set "
            f"{options.S3_ACCESS_KEY.key} and {options.S3_SECRET_KEY.key}, or {options.S3_CREDENTIALS_FILE.key}"
        )

    def _of_instance(self) -> Credentials:
        """Temporary ones, of a role: web identity (STS), container or instance (IMDSv2)."""
        with self._lock:
            if self._instance is None:
                environment = os.environ
                asked = proxy = None
                if environment.get(_WEB_IDENTITY):
                    asked = environment.get("AWS_ENDPOINT_URL_STS")
                    proxy = proxy_for(asked or f"https://sts.{self._region}.amazonaws.com", self._proxy)
                elif not any(environment.get(name) for name in _DECLARED):
                    asked = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT")
                timeout = Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS)
                # The services of a container or an instance are beside it, and are asked directly.
                pool = (
                    PoolManager(retries=False, timeout=timeout)
                    if proxy is None
                    else proxy_pool(proxy, retries=False, timeout=timeout)
                )
                # What is in a file as well: minio takes AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE from the environment.
                self._instance = IamAwsProvider(
                    custom_endpoint=asked.rstrip("/") if asked else None, http_client=pool, region=self._region
                )
            try:
                return self._instance.retrieve()
            except (ValueError, KeyError, OSError, ElementTree.ParseError) as error:
                words = str(error).partition("?")[0][:300]  # behind it the token of a web identity may stand
                raise CheckpointStorageError(
                    f"{self.source} gives no credentials on {socket.gethostname()}: {type(error).__name__}: {words}"
                ) from None

    def _of_file(self, path: Path) -> Credentials:
        with self._lock:
            try:
                found = path.stat()
                stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
                if self._read is None or self._read[0] != stamp:
                    self._read = stamp, _parse(path)
            except OSError as error:
                raise CheckpointStorageError(
                    f"the credentials file {path} can't be read on {socket.gethostname()}: {error.strerror or error}"
                ) from error
            self.source = f"the file {path}"
            return self._read[1]


def _parse(path: Path) -> Credentials:
    parser = configparser.ConfigParser(interpolation=None, default_section="\0")
    try:
        parser.read_string(path.read_text("utf-8"))
        section = parser[os.environ.get("AWS_PROFILE") or "default"]
        return Credentials(
            section["aws_access_key_id"].strip(),
            section["aws_secret_access_key"].strip(),
            section.get("aws_session_token") or None,
        )
    except (configparser.Error, KeyError, ValueError):  # their texts hold what is in the file
        raise CheckpointStorageError(
            f"the credentials file {path} has no section [default] with aws_access_key_id and aws_secret_access_key"
        ) from None
