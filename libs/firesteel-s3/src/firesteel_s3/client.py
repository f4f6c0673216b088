"""Requests to an object store by the client ``minio``, with time-outs, repeats and errors that say what to do.

A request without an answer, or whose answer is "too busy" or an error of the server, is repeated after a pause; a
definite refusal is not. A repeated request may have been carried out before: that is harmless, or the caller checks
what the store holds.

This is the only module that uses private members of minio (``Minio._execute``, the steps of a multipart upload,
``_put_object``; checked with 7.2.20, so the distribution takes 7.2 only). The public methods are not enough:
``put_object`` has no condition on an existing object, and hides the steps by which an upload goes on after a failure;
``remove_objects`` is lazy; ``list_objects`` makes an object for each entry.
``tests/unit/checkpoint/test_s3_storage.py`` runs all of it against an object store in memory.
"""

from __future__ import annotations

import email.utils
import logging
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit
from xml.etree import ElementTree

import certifi
from minio import Minio, S3Error
from minio.datatypes import ListMultipartUploadsResult, Part, parse_list_objects
from minio.deleteobjects import DeleteObject
from minio.error import InvalidResponseError, MinioException, ServerError
from typing_extensions import override
from urllib3 import PoolManager, Timeout
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)

from firesteel.checkpoint.object_store import (
    PROBE,
    BeyondEndError,
    Listed,
    NoSuchObjectError,
    NoSuchUploadError,
    ObjectExistsError,
    ObjectStore,
    StoreAwayError,
    StoreRefusedError,
)
from firesteel.checkpoint.places import ObjectPlace
from firesteel.config import Settings, options
from firesteel.core.clock import Clock, SystemClock
from firesteel.core.errors import CheckpointStorageError, ConfigurationError
from firesteel.core.proxies import proxy_for, without_login
from firesteel_s3.credentials import S3Credentials
from firesteel_s3.proxy_pool import proxy_pool

logger = logging.getLogger(__name__)

T = TypeVar("T")

_CLOCK: Final = SystemClock()
AMAZON: Final = "s3.amazonaws.com"
MOST_OF_A_PAGE: Final = 1000
"""Keys in one answer to a listing, and in one request that deletes."""
_FEW_ATTEMPTS: Final = 2
"""Attempts of a check, whose user waits for the answer."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 3.0
_BUSY: Final = frozenset(
    {
        "SlowDown", "SlowDownRead", "SlowDownWrite", "InternalError", "ServiceUnavailable", "RequestTimeout",
        "RequestTimeoutException", "Throttling", "ThrottlingException", "TooManyRequests", "OperationAborted",
        "ConditionalRequestConflict", "XMinioServerNotInitialized", "IncompleteBody", "BadDigest",
    }
)  # fmt: skip
_FULL: Final = ("no space left", "drive path full", "storage backend has reached its minimum free", "disk full")
_FULL_CODES: Final = frozenset({"XMinioStorageFull", "QuotaExceeded", "XMinioAdminBucketQuotaExceeded"})
_MISSING: Final = frozenset({"NoSuchKey", "NoSuchVersion", "ResourceNotFound", "NoSuchObject"})
_CREDENTIALS: Final = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidTokenId"})
_DEFINITE: Final = _CREDENTIALS | {
    "AccessDenied", "NoSuchBucket", "InvalidBucketName", "PermanentRedirect", "AuthorizationHeaderMalformed",
    "AuthorizationQueryParametersError", "InvalidToken", "AllAccessDisabled", "AccountProblem", "BadRequest",
}  # fmt: skip
_OPTION: Final = options.S3_ENDPOINT.key


class S3Client(ObjectStore):
    """An ``ObjectStore`` of one server.

    Args:
        settings: ``s3.*`` and ``firesteel.s3.*`` of the job.
        clock: measures how long a request has been repeated.
        pause: waits so many seconds between two attempts.

    Raises:
        ConfigurationError: a setting is wrong; that is found without I/O.
    """

    scheme = "s3"

    def __init__(self, settings: Settings, clock: Clock = _CLOCK, pause: Callable[[float], None] = time.sleep) -> None:
        self.clock, self._pause = clock, pause
        endpoint = settings.get(options.S3_ENDPOINT)
        self.endpoint, self._host, self._secure = _endpoint(endpoint)
        self._region = settings.get(options.S3_REGION)
        self._path_style = settings.get(options.S3_PATH_STYLE)
        self._ca_file = settings.get(options.S3_CA_FILE)
        self._connect = settings.get(options.S3_CONNECT_TIMEOUT).total_seconds()
        self._read = settings.get(options.S3_READ_TIMEOUT).total_seconds()
        self._attempts = settings.get(options.S3_ATTEMPTS)
        self._patience = settings.get(options.S3_RETRY_TIMEOUT).total_seconds()
        self._connections = settings.get(options.S3_CONNECTIONS)
        proxy = settings.get(options.S3_PROXY)
        self._proxy = None if proxy is None else proxy.reveal()
        proxy_for(self.endpoint, self._proxy)  # raises at once if the option is not the URL of a proxy
        self._credentials = S3Credentials(settings, self._host)
        self.part_size = settings.get(options.S3_PART_SIZE)
        self.concurrent = settings.get(options.S3_CONCURRENT_PARTS)
        self._connecting = threading.Lock()
        self._minio: Minio | None = None
        self._proxied = ""
        """Part of messages that names the proxy; empty if there is none."""
        if self._region and not _is_region(self._region):
            raise ConfigurationError(
                f"{options.S3_REGION.key} = {self._region!r}: a region's name is expected, as us-east-1"
            )

    def __repr__(self) -> str:
        return f"S3Client({self.endpoint})"

    @override
    def check(self, place: ObjectPlace) -> None:
        probe = place / f"{PROBE}{uuid.uuid4().hex}"
        self._page(place, "", None, "", 1, f"{place} can't be listed", _FEW_ATTEMPTS)
        self._put(probe, b"", {}, f"nothing can be written to {place}", _FEW_ATTEMPTS)
        self.delete(place.bucket, [probe.key])

    # -- objects

    @override
    def put(self, place: ObjectPlace, data: bytes, *, new: bool = False) -> None:
        self._put(place, data, {"If-None-Match": "*"} if new else {}, f"{place} can't be written")

    def _put(
        self, place: ObjectPlace, data: bytes, headers: dict[str, Any], failure: str, attempts: int | None = None
    ) -> None:
        headers["Content-Type"] = "application/octet-stream"
        if not data:
            headers["Content-Length"] = "0"
        self._call(
            failure,
            lambda minio: minio._put_object(place.bucket, place.key, data, dict(headers)),
            place,
            writes=True,
            attempts=attempts,
        )

    @override
    def get(self, place: ObjectPlace, start: int = 0, length: int | None = None) -> tuple[bytes, int]:
        headers: dict[str, Any] = {}
        if start or length is not None:
            headers["Range"] = f"bytes={start}-{'' if length is None else start + length - 1}"

        def ask(minio: Minio) -> tuple[bytes, int]:
            response = minio._execute("GET", place.bucket, place.key, headers=dict(headers))
            data = bytes(response.data)
            total = response.headers.get("content-range", "").rpartition("/")[2]
            return data, int(total) if total.isdigit() else start + len(data)

        return self._call(f"{place} can't be read", ask, place)

    @override
    def size(self, place: ObjectPlace) -> int | None:
        def ask(minio: Minio) -> int:
            return int(minio._execute("HEAD", place.bucket, place.key).headers.get("content-length", "0"))

        try:
            return self._call(f"{place} can't be looked at", ask, place)
        except (NoSuchObjectError, StoreRefusedError):
            # The answer to HEAD has no text. A listing says whether the bucket exists, and why something was refused.
            listed = self._page(place, "", None, "", 1, f"{place} can't be looked at")[0]
            return next((entry.size for entry in listed if entry.key == place.key), None)

    @override
    def find(self, place: ObjectPlace, delimiter: str = "", after: str = "") -> Iterator[Listed]:
        token: str | None = None
        while True:
            listed, token = self._page(place, delimiter, token, after, MOST_OF_A_PAGE, f"{place} can't be listed")
            yield from listed
            if token is None:
                return

    def _page(
        self,
        place: ObjectPlace,
        delimiter: str,
        token: str | None,
        after: str,
        most: int,
        failure: str,
        attempts: int | None = None,
    ) -> tuple[list[Listed], str | None]:
        """One page of a listing, and the token of the next page; None = there is none."""
        query: dict[str, Any] = {
            "list-type": "2",
            "encoding-type": "url",
            "max-keys": str(most),
            "prefix": place.key,
            "delimiter": delimiter,
        }
        if token is not None:
            query["continuation-token"] = token
        elif after:
            query["start-after"] = after

        def ask(minio: Minio) -> tuple[list[Listed], str | None]:
            response = minio._execute("GET", place.bucket, query_params=query)
            objects, truncated, following, _ = parse_list_objects(response)
            listed = [Listed(entry.object_name or "", entry.size or 0) for entry in objects]
            return listed, following if truncated else None

        return self._call(failure, ask, place, attempts=attempts)

    @override
    def delete(self, bucket: str, keys: Collection[str]) -> None:
        ordered = sorted(keys)
        for start in range(0, len(ordered), MOST_OF_A_PAGE):
            self._delete(bucket, ordered[start : start + MOST_OF_A_PAGE])

    def _delete(self, bucket: str, keys: Sequence[str]) -> None:
        place = ObjectPlace(bucket, keys[0])
        failure = f"{place} can't be removed" if len(keys) == 1 else f"{place} and others can't be removed"

        def ask(minio: Minio) -> None:
            if len(keys) == 1:
                minio._execute("DELETE", bucket, keys[0])
                return
            result = minio._delete_objects(bucket, [DeleteObject(key) for key in keys], quiet=True)
            failed = [error for error in result.error_list if error.code not in _MISSING]
            if failed:
                raise _PartlyError(failed[0].code, failed[0].message or "", failed[0].name or "", len(failed))

        try:
            self._call(failure, ask, place, writes=True)
        except NoSuchObjectError:
            return

    # -- uploads in parts

    @override
    def begin_upload(self, place: ObjectPlace) -> tuple[str, bool]:
        requests = 0

        def ask(minio: Minio) -> str:
            nonlocal requests
            requests += 1
            return minio._create_multipart_upload(place.bucket, place.key, {})

        upload = self._call(f"{place} can't be written", ask, place, writes=True)
        return upload, requests == 1

    @override
    def upload_part(self, place: ObjectPlace, upload: str, number: int, data: bytes) -> str:
        return self._call(
            f"part {number} of {place} can't be written",
            lambda minio: minio._upload_part(place.bucket, place.key, data, None, upload, number),
            place,
            writes=True,
        )

    @override
    def complete_upload(self, place: ObjectPlace, upload: str, tags: Sequence[str]) -> None:
        parts = [Part(number, tag) for number, tag in enumerate(tags, 1)]

        def ask(minio: Minio) -> None:
            result = minio._complete_multipart_upload(place.bucket, place.key, upload, parts)
            if not result.etag:  # the server began its answer before the error occurred
                raise ServerError("the parts were not put together", 500)

        self._call(f"{place} can't be written", ask, place, writes=True)

    @override
    def abort_uploads(self, place: ObjectPlace) -> None:
        # MinIO lists uploads only for a prefix that is a whole key; other servers list those of longer keys, too.
        for key, upload in self.uploads(place):
            if key == place.key:
                self.abort_upload(place, upload)

    @override
    def abort_upload(self, place: ObjectPlace, upload: str) -> None:
        def ask(minio: Minio) -> None:
            minio._abort_multipart_upload(place.bucket, place.key, upload)

        with suppress(NoSuchUploadError, NoSuchObjectError):
            self._call(f"the parts of {place} can't be removed", ask, place, writes=True)

    @override
    def uploads(self, place: ObjectPlace) -> list[tuple[str, str]]:
        uploads: list[tuple[str, str]] = []
        markers: dict[str, Any] = {}
        while True:
            query = {"uploads": "", "prefix": place.key, "encoding-type": "url", "max-uploads": "1000", **markers}

            def ask(minio: Minio, query: dict[str, Any] = query) -> ListMultipartUploadsResult:
                return ListMultipartUploadsResult(minio._execute("GET", place.bucket, query_params=query))

            page = self._call(f"uploads to {place} can't be listed", ask, place)
            uploads += [(upload.object_name, upload.upload_id or "") for upload in page.uploads]
            if not page.is_truncated or not page.next_key_marker:
                return uploads
            markers = {"key-marker": page.next_key_marker}
            if page.next_upload_id_marker:
                markers["upload-id-marker"] = page.next_upload_id_marker

    # -- requests

    def _connection(self) -> Minio:
        with self._connecting:
            if self._minio is None:
                self._minio = self._connect_minio()
            return self._minio

    def _connect_minio(self) -> Minio:
        authorities = self._ca_file or os.environ.get("SSL_CERT_FILE") or certifi.where()
        if self._secure and not os.access(authorities, os.R_OK):
            raise CheckpointStorageError(
                f"the file of certificates {authorities} ({options.S3_CA_FILE.key}) can't be read on "
                f"{socket.gethostname()}"
            )
        arguments: dict[str, Any] = {
            "maxsize": self._connections,
            "retries": False,
            "timeout": Timeout(connect=self._connect, read=self._read),
            "cert_reqs": "CERT_REQUIRED",
            "ca_certs": authorities if self._secure else None,
        }
        proxy = proxy_for(self.endpoint, self._proxy)
        pool = PoolManager(**arguments) if proxy is None else proxy_pool(proxy, **arguments)
        self._proxied = f" through the proxy {without_login(proxy)}" if proxy else ""
        minio = Minio(
            self._host, secure=self._secure, region=self._region, http_client=pool, credentials=self._credentials
        )
        if self._path_style is not None:
            minio._base_url.virtual_style_flag = not self._path_style
        return minio

    def _call(
        self,
        failure: str,
        ask: Callable[[Minio], T],
        place: ObjectPlace,
        *,
        writes: bool = False,
        attempts: int | None = None,
    ) -> T:
        """Make a request, and repeat it while its error may pass.

        Args:
            failure: what has not worked if the request fails; begins the message.
            ask: makes the request.
            place: what the request is about.
            writes: the request needs the right to write.
            attempts: attempts at most; None = as the options say.
        """
        began = self.clock.monotonic()
        most = attempts or self._attempts
        attempt = 1
        while True:
            try:
                return ask(self._connection())
            except (MinioException, HTTPError, ElementTree.ParseError, OSError, ValueError, _PartlyError) as error:
                _raise_expected(error)
                may_pass = _is_passing(error)
                pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)
                if not may_pass or attempt >= most or self.clock.monotonic() + pause - began > self._patience:
                    text = f"{failure}: {self._reason(error, place, writes)}"
                    if attempt > 1:
                        text += f" ({attempt} attempts in {self.clock.monotonic() - began:.1f} s)"
                    raise _kind(error)(text) from None  # errors of minio hold whole answers
                logger.debug("%s: %s; again in %.2f s", failure, type(error).__name__, pause)
                self._pause(pause)
                attempt += 1

    def _reason(self, error: Exception, place: ObjectPlace, writes: bool) -> str:
        host = socket.gethostname()
        if isinstance(error, (HTTPError, OSError)) and not isinstance(error, S3Error):
            return f"{self._unreachable(error)} (asked from {host})"
        code, message = _code(error), _message(error)
        match code:
            case "NoSuchBucket":
                return (
                    f"there is no bucket {place.bucket!r} at {self.endpoint}. Create it, or correct the path or "
                    f"{_OPTION}"
                )
            case "InvalidBucketName":
                return f"{place.bucket!r} is no valid name of a bucket"
            case "InvalidAccessKeyId":
                return f"{self.endpoint} does not know the access key of {self._credentials.source}"
            case "SignatureDoesNotMatch":
                return (
                    f"{self.endpoint} knows the access key of {self._credentials.source}, and the secret key does not "
                    "belong to it"
                )
            case "ExpiredToken" | "InvalidTokenId" | "InvalidToken":
                return f"the session token of {self._credentials.source} has expired, or is none of {self.endpoint}"
            case "RequestTimeTooSkewed":
                return f"the clocks of {host} and {self.endpoint} differ{self._skew(error)}; set them"
            case "AccessDenied" | "AllAccessDisabled" if writes:
                return (
                    f"{self.endpoint} refuses to write (AccessDenied): the policy of the user of "
                    f"{self._credentials.source} does not allow it in bucket {place.bucket!r}, or the disk of the "
                    "server is read-only (MinIO says the same then)"
                )
            case "AccessDenied" | "AllAccessDisabled":
                return (
                    f"{self.endpoint} refuses it (AccessDenied): the policy of the user of {self._credentials.source} "
                    f"has to allow s3:ListBucket and s3:GetObject for bucket {place.bucket!r}"
                )
            case "AuthorizationHeaderMalformed" | "PermanentRedirect" | "AuthorizationQueryParametersError":
                return f"bucket {place.bucket!r} is in another region ({options.S3_REGION.key}): {message}"
        if isinstance(error, ElementTree.ParseError | ValueError):
            return f"{self.endpoint} does not answer as an object store does ({type(error).__name__}: {error})"
        if _is_full(error):
            return f"the server at {self.endpoint} is full ({code}: {message}). Make room, or keep fewer checkpoints"
        if code == "SlowDownRead":
            return f"{self.endpoint} is too busy, or the data on its disk are damaged (SlowDownRead)"
        if isinstance(error, ServerError):
            return f"{self.endpoint} has trouble: {message}"
        if isinstance(error, InvalidResponseError) or not code:
            return (
                f"{self.endpoint} answers{self._proxied} with status {_status(error)}, and not as an object store does"
            )
        return f"{self.endpoint} says {code or _status(error)}: {message}"

    def _skew(self, error: Exception) -> str:
        if not isinstance(error, S3Error):
            return ""
        try:
            server_time = email.utils.parsedate_to_datetime(error.response.headers.get("date", ""))
        except (TypeError, ValueError):
            return ""
        return f" by {abs(server_time.timestamp() - self.clock.epoch_ms() / 1000):.0f} s"

    def _unreachable(self, error: Exception) -> str:
        if _untrusted(error):
            return (
                f"the certificate of {self.endpoint} is not trusted: {_ssl_text(error)}. Set {options.S3_CA_FILE.key} "
                "to the certificate of the authority that has issued it"
            )
        match error:
            case ProxyError():
                return (
                    f"{self.endpoint} can't be reached{self._proxied} ({_last(error)}), which {options.S3_PROXY.key} "
                    "or HTTPS_PROXY, HTTP_PROXY and NO_PROXY name"
                )
            case SSLError():
                return (
                    f"{self.endpoint} does not speak TLS as expected ({_ssl_text(error)}); is it http:// ({_OPTION})?"
                )
            case NameResolutionError():
                return f"the name of {self.endpoint} can't be resolved ({_OPTION})"
            case NewConnectionError():
                return f"{self.endpoint} takes no connections ({_last(error)})"
            case ConnectTimeoutError():
                return f"{self.endpoint} has not taken a connection within {self._connect:g} s"
            case ReadTimeoutError():
                return f"{self.endpoint} has not answered within {self._read:g} s"
        return f"the connection to {self.endpoint}{self._proxied} broke ({type(error).__name__}: {_last(error)})"


class _PartlyError(Exception):
    """The store has not removed all objects of a request."""

    def __init__(self, code: str, message: str, key: str, count: int) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.key, self.count = code, f"{message} ({key}; {count} objects)", key, count


def _endpoint(text: str | None) -> tuple[str, str, bool]:
    """The URL for messages, host and port, and whether the endpoint speaks TLS."""
    if not text:
        return f"https://{AMAZON}", AMAZON, True
    key = options.S3_ENDPOINT.key
    parts = urlsplit(text if "://" in text else f"https://{text}")
    if "@" in parts.netloc:
        raise ConfigurationError(f"{key}: a URL without user and password is expected, as http://host:9000")
    try:
        port = parts.port
    except ValueError:
        port = -1
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or port == -1
        or parts.path.strip("/")
        or parts.query
        or parts.fragment
    ):
        raise ConfigurationError(f"{key} = {text!r}: a URL of scheme, host and port is expected, as http://host:9000")
    return f"{parts.scheme}://{parts.netloc}", parts.netloc, parts.scheme == "https"


def _is_region(text: str) -> bool:
    return len(text) < 64 and text.replace("-", "").replace("_", "").isalnum() and text.isascii()


def _raise_expected(error: Exception) -> None:
    """Raise the error of the contract that an answer stands for, if there is one."""
    code = _code(error)
    if code in _MISSING:
        raise NoSuchObjectError from None
    if code == "NoSuchUpload":
        raise NoSuchUploadError from None
    if code == "PreconditionFailed" or _status(error) == 412:
        raise ObjectExistsError from None
    if code == "InvalidRange" or _status(error) == 416:
        raise BeyondEndError from None


def _kind(error: Exception) -> type[CheckpointStorageError]:
    """Which error callers get."""
    if _code(error) in _DEFINITE or _untrusted(error):
        return StoreRefusedError
    return StoreAwayError if isinstance(error, HTTPError | OSError) else CheckpointStorageError


def _is_passing(error: Exception) -> bool:
    """Whether another attempt may succeed."""
    if isinstance(error, S3Error | _PartlyError):
        if _is_full(error):
            return False
        return error.code in _BUSY or _status(error) >= 500 or _status(error) == 429
    if isinstance(error, InvalidResponseError | ServerError):
        return _status(error) >= 500 or _status(error) in (408, 425, 429)
    if isinstance(error, HTTPError | OSError):
        return not _untrusted(error)
    return False


def _is_full(error: Exception) -> bool:
    message = _message(error).lower()
    return _code(error) in _FULL_CODES or any(words in message for words in _FULL)


def _untrusted(error: Exception) -> bool:
    return isinstance(error, SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error)


def _code(error: Exception) -> str:
    return str(getattr(error, "code", None) or "")


def _message(error: Exception) -> str:
    text = getattr(error, "message", None)
    return str(text if text else "" if isinstance(error, InvalidResponseError) else error).rstrip(". ")


def _status(error: Exception) -> int:
    if isinstance(error, S3Error):
        return int(error.response.status)
    if isinstance(error, ServerError):
        return error.status_code
    return int(getattr(error, "_code", 0) or 0) if isinstance(error, InvalidResponseError) else 0


def _last(error: Exception) -> str:
    """Text of the innermost error. The texts of urllib3's own errors hold addresses of its objects."""
    inner: BaseException = error
    while (following := inner.__cause__ or inner.__context__) is not None:
        inner = following
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    return str(inner).rpartition(">: ")[2] or type(inner).__name__


def _ssl_text(error: Exception) -> str:
    inner = error.args[0] if error.args else error
    return str(getattr(inner, "verify_message", "") or getattr(inner, "reason", "") or inner)
