"""Finds the credentials for an object store: in options, the environment, files, or the role of the host."""

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
"""Environment variables by which a platform names the service that gives credentials of a role."""
_AMAZON: Final = re.compile(r"\.amazonaws\.com(\.cn)?(:\d+)?$")
_CONNECT_SECONDS, _READ_SECONDS = 1.0, 5.0
"""The metadata service runs beside the instance and answers fast; on other hosts nothing answers."""


class S3Credentials(Provider):
    """Credentials of the first origin that has some.

    A file is read again when it has changed; credentials that expire are fetched again.

    Args:
        settings: options of the store.
        host: host of the store, with its port.

    Raises:
        ConfigurationError: only one of access key and secret key is set.
    """

    def __init__(self, settings: Settings, host: str) -> None:
        access, secret = settings.get(options.S3_ACCESS_KEY), settings.get(options.S3_SECRET_KEY)
        token = settings.get(options.S3_SESSION_TOKEN)
        if (access is None) != (secret is None):
            access_option, secret_option = options.S3_ACCESS_KEY.key, options.S3_SECRET_KEY.key
            raise ConfigurationError(
                f"{secret_option if access else access_option} is missing: set both {access_option} and "
                f"{secret_option}, or none of them"
            )
        self._of_options: Credentials | None = None
        if access is not None and secret is not None:
            try:
                self._of_options = Credentials(access.reveal(), secret.reveal(), token.reveal() if token else None)
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
        self._role_provider: Provider | None = None
        self._read_file: tuple[tuple[int, int, int], Credentials] | None = None
        self.source = f"the options {options.S3_ACCESS_KEY.key} and {options.S3_SECRET_KEY.key}"
        """Origin of the credentials, for messages."""

    def __repr__(self) -> str:
        return f"credentials of {self.source}"

    def retrieve(self) -> Credentials:
        """The credentials that are valid now.

        Raises:
            CheckpointStorageError: there are no credentials, or a file or service with credentials has none.
            HTTPError: the service that gives credentials does not answer.
        """
        if self._of_options is not None:
            return self._of_options
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
            return self._of_role()
        # Path.expanduser would raise for a user without a home.
        usual = Path(os.path.expanduser(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"))
        if usual.exists():
            return self._of_file(usual)
        if self._at_amazon and os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() != "true":
            self.source = "the role of the instance"
            try:
                return self._of_role()
            except HTTPError:
                pass  # the host is no instance of Amazon
        raise CheckpointStorageError(
            f"there are no credentials for the object store on {socket.gethostname()}: set "
            f"{options.S3_ACCESS_KEY.key} and {options.S3_SECRET_KEY.key}, or {options.S3_CREDENTIALS_FILE.key}"
        )

    def _of_role(self) -> Credentials:
        """Temporary credentials of a role: web identity (STS), container or instance (IMDSv2)."""
        with self._lock:
            if self._role_provider is None:
                environment = os.environ
                service = proxy = None
                if environment.get(_WEB_IDENTITY):
                    service = environment.get("AWS_ENDPOINT_URL_STS")
                    proxy = proxy_for(service or f"https://sts.{self._region}.amazonaws.com", self._proxy)
                elif not any(environment.get(name) for name in _DECLARED):
                    service = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT")
                timeout = Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS)
                # The services of a container or an instance run beside it, so no proxy leads to them.
                pool = (
                    PoolManager(retries=False, timeout=timeout)
                    if proxy is None
                    else proxy_pool(proxy, retries=False, timeout=timeout)
                )
                # minio itself reads AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE from the environment.
                self._role_provider = IamAwsProvider(
                    custom_endpoint=service.rstrip("/") if service else None, http_client=pool, region=self._region
                )
            try:
                return self._role_provider.retrieve()
            except (ValueError, KeyError, OSError, ElementTree.ParseError) as error:
                words = str(error).partition("?")[0][:300]  # the query may hold the token of a web identity
                raise CheckpointStorageError(
                    f"{self.source} gives no credentials on {socket.gethostname()}: {type(error).__name__}: {words}"
                ) from None

    def _of_file(self, path: Path) -> Credentials:
        with self._lock:
            try:
                status = path.stat()
                stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
                if self._read_file is None or self._read_file[0] != stamp:
                    self._read_file = stamp, _parse(path)
            except OSError as error:
                raise CheckpointStorageError(
                    f"the credentials file {path} can't be read on {socket.gethostname()}: {error.strerror or error}"
                ) from error
            self.source = f"the file {path}"
            return self._read_file[1]


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
    except (configparser.Error, KeyError, ValueError):  # the texts of these errors hold secrets of the file
        raise CheckpointStorageError(
            f"the credentials file {path} has no section [default] with aws_access_key_id and aws_secret_access_key"
        ) from None
