"""Requests to the API server of Kubernetes, and watches of its objects.

Built on aiohttp, which Firesteel needs anyway, on a thread with a loop of its own: so a request has one time limit over
everything, which leases need, and a watch can be ended at any time. docs/high-availability.md says why none of the
Python clients for Kubernetes is used.

Source of facts: https://kubernetes.io/docs/reference/using-api/api-concepts/.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, Final, TypeVar

import aiohttp

from firesteel.config import Settings, options
from firesteel.core.call_pool import CallPool
from firesteel_kubernetes.access import ApiServerAccess, find_access, namespace_of

logger = logging.getLogger(__name__)
T = TypeVar("T")
JsonObject = dict[str, Any]
ASK_SECONDS: Final = 10.0
"""Seconds that a request waits for its answer by default."""
_WATCH_SECONDS: Final = 120
"""Seconds after which the server ends a watch, and the next one begins."""
_AGAIN_SECONDS: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts after a watch has failed."""
_CLOSE_SECONDS: Final = 5.0
_LAST_SECONDS: Final = 0.02
"""Seconds for connections that were just being made to close."""
_UNAUTHORIZED, _MISSING, _CONFLICT, _GONE, _TOO_MANY, _FAILED = 401, 404, 409, 410, 429, 500
_CREDENTIALS: Final = CallPool("credentials for Kubernetes")


class ApiError(OSError):
    """The server refuses a request, and nothing has happened.

    Attributes:
        status: HTTP status; 0 = the request was not sent.
        reason: Kubernetes' word for the cause, such as ``Forbidden``.
        retry_after: seconds after which the server wants to be asked again; 0 = it does not say.
    """

    def __init__(self, text: str, status: int = 0, reason: str = "", retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.status, self.reason, self.retry_after = status, reason, retry_after


class MissingError(ApiError):
    """There is no such object."""


class ConflictError(ApiError):
    """The object has another version than expected, or exists already."""


class UnreachableError(ApiError):
    """The request could not be sent, or the server wants it later; nothing has happened."""


class UnansweredError(ApiError):
    """The request was sent but not answered: it may have had its effect."""


class KubernetesApi:
    """Connection to one API server. All methods may be called on any thread but its own.

    Args:
        access: address and credentials.
        user_agent: name of the client in requests.
    """

    def __init__(self, access: ApiServerAccess, user_agent: str = "firesteel") -> None:
        self._access, self._agent = access, user_agent
        self.server = access.server
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    # -- questions

    def ask(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        query: Mapping[str, str] | None = None,
        seconds: float = ASK_SECONDS,
    ) -> JsonObject:
        """Send a request, and return its answer.

        Args:
            method: of HTTP.
            path: of the object or collection, from ``/api``.
            body: JSON; for ``PATCH`` a merge patch.
            query: parameters.
            seconds: time limit for everything, from connecting to the last byte.

        Raises:
            ApiError: see its kinds.
        """

        text = b"" if body is None else json.dumps(body).encode()

        async def run() -> JsonObject:
            sent = False
            try:
                async with asyncio.timeout(seconds):
                    headers = await self._headers()
                    if text:
                        kind = "merge-patch+json" if method == "PATCH" else "json"
                        headers["Content-Type"] = f"application/{kind}"
                    session = await self._open()
                    sent = True
                    for is_last in (False, True):
                        async with session.request(
                            method, self.server + path, params=query, headers=headers,
                            data=io.BytesIO(text) if text else None, **self._connection_options(),
                        ) as answer:  # fmt: skip
                            answer_text = await answer.text()
                        if answer.status != _UNAUTHORIZED or is_last:
                            break
                        if not await _CREDENTIALS.call(self._access.credentials.refused):
                            break
                        await self._forget_session()
                        headers, session = headers | await self._headers(), await self._open()
            except aiohttp.ClientConnectorError as error:
                raise UnreachableError(
                    f"Kubernetes is not to be reached at {self.server}: {error.strerror or error}"
                ) from (error)
            except TimeoutError as error:
                problem = f"Kubernetes ({self.server}) has not answered for {seconds:.1f} s"
                raise (UnansweredError(problem) if sent else UnreachableError(problem)) from error
            except (aiohttp.ClientError, ConnectionError) as error:
                raise UnansweredError(f"Kubernetes ({self.server}) has not answered: {error!r}") from error
            return _answered(answer, answer_text, f"{method} {path}")

        return self._run(run(), seconds + _CLOSE_SECONDS)

    def find(self, path: str, seconds: float = ASK_SECONDS) -> JsonObject | None:
        """An object, as ``ask`` with ``GET``; None = there is no such object."""
        try:
            return self.ask("GET", path, seconds=seconds)
        except MissingError:
            return None

    def _connection_options(self) -> dict[str, Any]:
        connection: dict[str, Any] = {}
        if self._access.proxy:
            connection["proxy"] = self._access.proxy
        if self._access.server_name:
            connection["server_hostname"] = self._access.server_name
        return connection

    async def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": self._agent}
        try:
            token = await _CREDENTIALS.call(self._access.credentials.token)
        except OSError as error:
            raise UnreachableError(f"who asks Kubernetes ({self._access.found}) can't be told: {error}") from error
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    async def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            try:
                tls = await _CREDENTIALS.call(self._access.tls)
            except (OSError, ValueError) as error:
                raise UnreachableError(
                    f"certificates for Kubernetes ({self._access.found}) are no use: {error}"
                ) from error
            if self._session is None:
                self._session = aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(ssl=tls, limit=0), timeout=aiohttp.ClientTimeout(total=None)
                )
        return self._session

    async def _forget_session(self) -> None:
        """Close the session if a client certificate was used: a new one needs new connections."""
        if self._access.credentials.certificate() is not None:
            session, self._session = self._session, None
            if session is not None:
                await session.close()

    # -- watches

    def watch(self, path: str, query: Mapping[str, str], changed: Callable[[Watched], None]) -> Watched:
        """Follow the objects of a collection.

        Args:
            path: of the collection.
            query: its selectors.
            changed: called with the known objects after each change, on the thread of this connection; must not block.
        """
        watched = Watched(self, path, dict(query), changed)
        loop = self._running()
        watched.end = lambda: loop.call_soon_threadsafe(task.cancel)
        task: asyncio.Future[Any] = asyncio.run_coroutine_threadsafe(watched.follow(), loop)  # type: ignore[assignment]
        return watched

    async def listed(self, path: str, query: Mapping[str, str]) -> JsonObject:
        """Read a collection; on the loop of this connection."""
        session, headers = await self._open(), await self._headers()
        async with (
            asyncio.timeout(ASK_SECONDS),
            session.get(self.server + path, params=query, headers=headers, **self._connection_options()) as answer,
        ):
            text = await answer.text()
        if answer.status == _UNAUTHORIZED:
            await _CREDENTIALS.call(self._access.credentials.refused)
        return _answered(answer, text, f"GET {path}")

    async def events(self, path: str, query: Mapping[str, str], heard: Callable[[JsonObject], None]) -> None:
        """Report changes of a collection until the server ends the watch; on the loop of this connection."""
        session, headers = await self._open(), await self._headers()
        parameters = {
            **query, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(_WATCH_SECONDS),
        }  # fmt: skip
        async with (
            asyncio.timeout(_WATCH_SECONDS + ASK_SECONDS),
            session.get(self.server + path, params=parameters, headers=headers, **self._connection_options()) as answer,
        ):
            if answer.status >= 400:
                _answered(answer, await answer.text(), f"watch {path}")
            incomplete = b""
            async for part in answer.content.iter_any():
                *lines, incomplete = (incomplete + part).split(b"\n")
                for line in lines:
                    if line.strip():
                        heard(json.loads(line))

    # -- life

    def close(self) -> None:
        """Close the connection. May be called twice."""
        with self._lock:
            self._closed = True
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is None or thread is None:
            return

        async def end() -> None:
            own_task = asyncio.current_task()
            session, self._session = self._session, None
            if session is not None and session.connector is not None:
                await session.connector.close(abort_ssl=True)  # a hung server would never answer a shutdown of TLS
            other_tasks = [task for task in asyncio.all_tasks() if task is not own_task]
            for task in other_tasks:
                task.cancel()
            await asyncio.gather(*other_tasks, return_exceptions=True)
            for open_session in (session, self._session):  # a watch may have opened another one
                if open_session is not None:
                    await open_session.close()
            await asyncio.sleep(_LAST_SECONDS)
            loop.call_soon(loop.stop)

        asyncio.run_coroutine_threadsafe(end(), loop)
        if thread is not threading.current_thread():
            thread.join(_CLOSE_SECONDS)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise UnreachableError(f"the connection to Kubernetes ({self.server}) was closed")
            if self._loop is None:
                loop = self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(loop,), name="kubernetes", daemon=True)
                self._thread.start()
            return self._loop

    def _run(self, coroutine: Coroutine[Any, Any, T], seconds: float) -> T:
        try:
            loop = self._running()
        except ApiError:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result(seconds)
        except CancelledError:
            raise UnansweredError(f"the connection to Kubernetes ({self.server}) was closed") from None
        except TimeoutError:
            future.cancel()
            raise UnansweredError(f"Kubernetes ({self.server}) has not answered") from None


def connect(settings: Settings, api: KubernetesApi | None = None, user_agent: str = "") -> tuple[KubernetesApi, str]:
    """The API server of a cluster, and the namespace of the cluster's objects there.

    Args:
        settings: of the cluster.
        api: a connection that exists already; the namespace is then the configured one.
        user_agent: name of the client in requests; empty = as configured.

    Raises:
        ConfigurationError: no API server is configured, or its configuration can't be read.
    """
    if api is not None:
        return api, settings.get(options.KUBERNETES_NAMESPACE)
    access = find_access(settings)
    agent = user_agent or settings.get(options.KUBERNETES_USER_AGENT)
    return KubernetesApi(access, agent), namespace_of(settings, access)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        with suppress(RuntimeError):
            loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


class Watched:
    """The objects of a collection, as far as they are known; created by ``KubernetesApi.watch``.

    Attributes:
        objects: by name.
        is_known: the collection was read at least once.
        end: function that ends the watch.
    """

    def __init__(
        self, api: KubernetesApi, path: str, query: dict[str, str], changed: Callable[[Watched], None]
    ) -> None:
        self._api, self._path, self._query, self._changed = api, path, query, changed
        self._lock = threading.Lock()
        self._version = ""
        self.objects: dict[str, JsonObject] = {}
        self.is_known = False
        self.end: Callable[[], object] = lambda: None

    def snapshot(self) -> dict[str, JsonObject]:
        """Objects known now, by name."""
        with self._lock:
            return dict(self.objects)

    async def follow(self) -> None:
        """Read the collection, then its changes; again after a failure, or when the server forgot the version."""
        failures = 0
        while True:
            try:
                if not self._version:
                    await self._read()
                await self._api.events(self._path, {**self._query, "resourceVersion": self._version}, self._heard)
                failures = 0
            except ApiError as error:
                if error.status == _GONE:
                    self._version = ""
                    if not failures:
                        failures = 1
                        continue
                logger.info("what changes at Kubernetes can't be seen for now: %s", error)
                await asyncio.sleep(max(error.retry_after, _AGAIN_SECONDS[min(failures, len(_AGAIN_SECONDS) - 1)]))
                failures += 1
            except (aiohttp.ClientError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
                # Also answers of something else than the API server, such as a page of a proxy.
                logger.info("what changes at Kubernetes can't be seen for now: %r", error)
                self._version = ""  # the server may have forgotten what happened meanwhile
                await asyncio.sleep(_AGAIN_SECONDS[min(failures, len(_AGAIN_SECONDS) - 1)])
                failures += 1

    async def _read(self) -> None:
        listed = await self._api.listed(self._path, self._query)
        with self._lock:
            self.objects = {item["metadata"]["name"]: item for item in listed.get("items") or ()}
        self._version, self.is_known = str(listed["metadata"].get("resourceVersion", "")), True
        self._changed(self)

    def _heard(self, event: JsonObject) -> None:
        kind, item = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            status = int(item.get("code", _FAILED))
            raise ApiError(f"Kubernetes ends a watch: {item.get('message', '')}", status, str(item.get("reason", "")))
        self._version = str(item["metadata"].get("resourceVersion", self._version))
        if kind == "BOOKMARK":
            return
        with self._lock:
            if kind == "DELETED":
                self.objects.pop(item["metadata"]["name"], None)
            else:
                self.objects[item["metadata"]["name"]] = item
        self._changed(self)


def _answered(answer: aiohttp.ClientResponse, text: str, request: str) -> JsonObject:
    status = answer.status
    try:
        plain = json.loads(text) if text else {}
    except ValueError:
        plain = {"message": text[:200]}
    if not isinstance(plain, dict):
        plain = {"message": text[:200]}
    if status < 400:
        return plain
    reason = str(plain.get("reason") or answer.reason or "")
    message = f"Kubernetes answers {request} with {status} {reason}: {plain.get('message', '')}"
    try:
        retry_after = float(answer.headers.get("Retry-After", 0))
    except ValueError:
        retry_after = 0.0
    kind: type[ApiError] = ApiError
    if status == _MISSING:
        kind = MissingError
    elif status == _CONFLICT:
        kind = ConflictError
    elif status == _TOO_MANY:
        kind = UnreachableError
    elif status >= _FAILED:
        kind = UnansweredError
    return _raise(kind(message, status, reason, retry_after))


def _raise(error: ApiError) -> JsonObject:
    raise error
