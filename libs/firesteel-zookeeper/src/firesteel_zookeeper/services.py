"""High availability on Apache ZooKeeper, with payloads in a directory or an object store.

Nodes below ``<high-availability.zookeeper.path.root>/<high-availability.cluster-id>``::

    <component>/epoch           the last epoch
               /held-<epoch>    ephemeral: somebody leads; address and token. It ends with the session of its process
               /records/<name>  see ``firesteel.ha.cells``

Each write is a transaction with the condition that ``held-<epoch>`` exists, so ZooKeeper itself refuses writes of an
epoch that is over. A campaign compares the version of ``epoch``, so that one of two wins.

ZooKeeper ends a session when it has heard nothing for the session time-out. A leader asks it for an answer all the time
(``sync``, which goes through the leader of ZooKeeper), and leads no more as soon as two thirds of the time-out have
passed, on its own clock, since it *asked* for the last answer that it got: ZooKeeper has heard it later than that, so
nobody else can lead yet. The clock counts the time in which the machine sleeps.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionDropped,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    SASLException,
    SessionClosedRequireSaslError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE
from typing_extensions import override

from firesteel.config import Settings, options
from firesteel.config.derived import KEYTAB_VARIABLE, login_keytab
from firesteel.config.recovery_options import HA_CLUSTER_ID, HA_STORAGE_DIRECTORY
from firesteel.core.errors import ConfigurationError, FencedError
from firesteel.ha.cell_services import CellServices
from firesteel.ha.cells import Cells, Change, ChangedError, Put, Record, RemoveRecord, UnsureError, checked
from firesteel.ha.payloads import payloads_in
from firesteel.ha.retrieval import Leader, Listener, PolledWatches

logger = logging.getLogger(__name__)
T = TypeVar("T")
_HELD: Final = "held-"
_LEASE: Final = 2 / 3
"""Longest time that a leader leads without an answer, as a share of the session time-out."""
_LOOK_SECONDS: Final = 5.0
"""Seconds between two looks at a component's leader while ZooKeeper reports no change."""
_TRIES: Final = 10
_AWAY: Final = (
    ConnectionLoss, SessionExpiredError, ConnectionClosedError, OperationTimeoutError, SessionMovedError,
    KazooTimeoutError,
)  # fmt: skip
_CLOSE_SECONDS: Final = 5.0
_KERBEROS: Final = "GSSAPI"


def _now() -> float:
    """Seconds since the start of the machine, including those in which it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ZooKeeperCells(Cells):
    """Cells in ZooKeeper's nodes; the head of this module lists them. The connection is made when it is needed.

    Args:
        settings: of the cluster.

    Raises:
        ConfigurationError: an option is missing or wrong.
    """

    def __init__(self, settings: Settings) -> None:
        quorum = settings.get(options.ZOOKEEPER_QUORUM)
        if not quorum:
            raise ConfigurationError(
                f"high-availability.type: zookeeper needs {options.ZOOKEEPER_QUORUM.key}, as zk1:2181,zk2:2181"
            )
        self._hosts, slash, chroot = quorum.partition("/")
        root = f"{slash}{chroot}".rstrip("/") + "/" + settings.get(options.ZOOKEEPER_ROOT).strip("/")
        cluster = checked(settings.get(HA_CLUSTER_ID).strip("/") or "default", HA_CLUSTER_ID.key)
        self._base = f"{root.rstrip('/')}/{cluster}"
        self._session = settings.get(options.ZOOKEEPER_SESSION_TIMEOUT).total_seconds()
        self._patience = settings.get(options.ZOOKEEPER_CONNECTION_TIMEOUT).total_seconds()
        self._pause = settings.get(options.ZOOKEEPER_RETRY_WAIT).total_seconds()
        self._longest_pause = settings.get(options.ZOOKEEPER_MAX_RETRY_WAIT).total_seconds()
        self._retries = settings.get(options.ZOOKEEPER_RETRIES)
        secret = settings.get(options.ZOOKEEPER_AUTHORIZATION)
        self._authorization = [] if secret is None else _authorization(secret.reveal())
        self._is_open = settings.get(options.ZOOKEEPER_ACL) == "open"
        self._sasl, self._tls = _sasl(settings), _tls(settings)
        if not self._is_open and not self._authorization and self._sasl is None:
            raise ConfigurationError(
                f"{options.ZOOKEEPER_ACL.key}: creator needs {options.ZOOKEEPER_AUTHORIZATION.key}, "
                f"{options.ZOOKEEPER_SASL.key} or {options.KERBEROS_CONTEXTS.key}: Client"
            )
        self._lock = threading.RLock()
        self._zookeeper: KazooClient | None = None
        self._connected, self._closed = threading.Event(), threading.Event()
        self._refusal = ""
        """Why the last server that was reached has refused the connection."""
        self._answered_at = 0.0
        """When the last question was asked that ZooKeeper has answered."""
        self._led: set[tuple[str, int]] = set()
        self._last_change: dict[str, object] = {}
        self._written: dict[str, dict[str, Record]] = {}
        """Records that this process has written to cells that it leads. They need not be read again: nobody else
        changes them before it is deposed, and then its next change is refused."""
        self._last_leaders: dict[str, Leader | None] = {}
        self._watches = PolledWatches(self.leader, _LOOK_SECONDS)
        self._keeper: threading.Thread | None = None

    # -- the connection

    @property
    def _client(self) -> KazooClient:
        with self._lock:
            if self._closed.is_set():
                raise OSError(errno.ENOTCONN, "the connection to ZooKeeper was closed")
            if self._zookeeper is None:
                retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=1.0, ignore_expire=True)
                client = KazooClient(
                    self._hosts,
                    timeout=self._session,
                    connection_retry=retry,
                    command_retry=KazooRetry(max_tries=0),
                    auth_data=self._authorization,
                    default_acl=OPEN_ACL_UNSAFE if self._is_open else CREATOR_ALL_ACL,
                    sasl_options=None if self._sasl is None else dict(self._sasl),
                    **self._tls,
                )
                # kazoo (checked with 2.10) does not offer this: it keeps the granted time-out to itself, and writes the
                # reason of a refusal only to its own log.
                connect = client._connection._connect

                def connect_and_note(*where: Any) -> Any:
                    """Connect, and note the session time-out that the servers grant, or the reason of a refusal."""
                    try:
                        read_timeout, connect_timeout = connect(*where)
                    except (AuthFailedError, SessionClosedRequireSaslError, *_refusals(self._sasl)) as error:
                        self._refused(_why_refused(self._sasl, error))
                        raise ConnectionDropped("ZooKeeper refuses the user") from error  # others would end the client
                    except ConnectionDropped as error:
                        if isinstance(error.__context__, ssl.SSLError):
                            self._refused(f"TLS: {_reason(error.__context__)}: see firesteel.zookeeper.tls.*")
                            _close_socket(error.__context__)
                        raise
                    self._refusal, self._session = "", read_timeout * 1.5 / 1000
                    self._connected.set()
                    return read_timeout, connect_timeout

                client._connection._connect = connect_and_note
                client.add_listener(self._changed)
                client.start_async()
                self._zookeeper = client
            return self._zookeeper

    def _refused(self, reason: str) -> None:
        if reason != self._refusal:
            logger.error("ZooKeeper (%s): %s", self._hosts, reason)
        self._refusal = reason

    def _refusal_hint(self) -> str:
        return f" ({self._refusal})" if self._refusal else ""

    def _changed(self, state: str) -> None:
        if state == "CONNECTED":
            if self._sasl is None:  # with SASL this is reported before the server has accepted the user
                self._connected.set()
        else:
            self._connected.clear()
            if state == "LOST" and not self._closed.is_set():
                self._lose("its session with ZooKeeper is over")
        self._watches.wake()

    def _on_change(self, _: object) -> None:
        """Note that a watched node has changed."""
        self._watches.wake()

    def _ask(self, ask: Callable[[KazooClient], Any], seconds: float | None = None) -> Any:
        """Ask ZooKeeper once, and return its answer.

        Raises:
            UnsureError: no answer came.
            OSError: ZooKeeper refuses, or is unreachable.
        """
        client = self._client
        if not self._connected.wait(self._patience if seconds is None else seconds):
            raise OSError(errno.ENOTCONN, f"ZooKeeper is not to be reached at {self._hosts}{self._refusal_hint()}")
        try:
            return ask(client).get(timeout=self._session if seconds is None else seconds)
        except _AWAY as error:
            raise UnsureError(
                f"ZooKeeper ({self._hosts}) has not answered: {type(error).__name__}{self._refusal_hint()}"
            ) from error
        except (NoNodeError, NodeExistsError, BadVersionError):
            raise
        except KazooException as error:
            raise OSError(f"ZooKeeper ({self._hosts}) refuses: {type(error).__name__} {error}") from error

    def _repeat(self, ask: Callable[[KazooClient], Any]) -> Any:
        """Ask ZooKeeper again and again, which is harmless for this question.

        Raises:
            OSError: no answer came to any attempt.
        """
        for attempt in range(self._retries):
            try:
                return self._ask(ask)
            except UnsureError:
                self._connected.wait(min(self._pause * 2**attempt, self._longest_pause))
        return self._ask(ask)

    def _get(self, path: str, on_change: Callable[[object], None] | None = None) -> Any:
        """Value and status of a node."""
        return self._repeat(lambda client: client.get_async(path, watch=on_change))

    def _status(self, path: str, on_change: Callable[[object], None] | None = None) -> Any:
        """Status of a node; None = there is no such node."""
        return self._repeat(lambda client: client.exists_async(path, watch=on_change))

    def _delete(self, path: str) -> None:
        """Remove a node, if it exists."""
        with suppress(NoNodeError):
            self._repeat(lambda client: client.delete_async(path))

    # -- leading

    @override
    def campaign(self, component: str) -> int | None:
        path = self._cell(component)
        for _ in range(_TRIES):
            try:
                self._make(f"{path}/records")
                self._make(f"{path}/epoch")
                last, status = self._get(f"{path}/epoch")
                if self._is_held(component):
                    return None
                epoch, asked_at = int(last or b"0") + 1, _now()

                def begin(client: KazooClient, epoch: int = epoch, version: int = status.version) -> Any:
                    change = client.transaction()
                    change.set_data(f"{path}/epoch", str(epoch).encode(), version)
                    change.create(f"{path}/{_HELD}{epoch}", b"{}", ephemeral=True)
                    return change.commit_async()

                results = self._ask(begin)
            except (UnsureError, NoNodeError):
                continue  # the nodes that exist now tell the outcome; or the cell was forgotten
            if any(isinstance(result, Exception) for result in results):
                if isinstance(results[0], BadVersionError):
                    return None  # somebody else was faster
                continue
            # The session was alive when the transaction was asked for, so the lease runs from then.
            with self._lock:
                self._answered_at = max(self._answered_at, asked_at)
                self._led.add((component, epoch))
                if self._keeper is None:
                    self._keeper = threading.Thread(target=self._keep, name="zookeeper-lease", daemon=True)
                    self._keeper.start()
            return epoch
        raise UnsureError(
            f"nobody can lead {component} now: ZooKeeper does not answer, or others get in the way"
            f"{self._refusal_hint()}"
        )

    def _is_held(self, component: str) -> bool:
        """Whether somebody leads. Epochs of this process that it does not know of, or led before, are released."""
        path, is_led = self._cell(component), False
        for epoch in self._epochs(component):
            status, own_session = self._status(f"{path}/{_HELD}{epoch}"), self._client.client_id
            is_own = status is not None and own_session is not None and status.ephemeralOwner == own_session[0]
            if is_own and (component, epoch) not in self._led:
                self._delete(f"{path}/{_HELD}{epoch}")
            else:
                is_led = is_led or status is not None
        return is_led

    def _epochs(self, component: str, on_change: Callable[[object], None] | None = None) -> list[int]:
        """Epochs that have not ended: one, or none."""
        path = self._cell(component)
        names = self._repeat(lambda client: client.get_children_async(path, watch=on_change))
        return sorted(int(name.removeprefix(_HELD)) for name in names if name.startswith(_HELD))

    def _keep(self) -> None:
        """Ask ZooKeeper for answers, which prove that this process leads; lead no more once they fail for too long."""
        while not self._closed.wait(min(1.0, self._session / 12)):
            if not self._led:
                continue
            asked_at = _now()
            try:
                self._ask(lambda client: client.sync_async("/"), max(0.01, self._left()))
            except OSError:
                pass
            else:
                self._answered_at = max(self._answered_at, asked_at)
            if self._left() <= 0:
                self._lose(f"ZooKeeper has not answered for {self._session * _LEASE:.1f} s")

    def _left(self) -> float:
        """Seconds for which this process leads without another answer."""
        return self._answered_at + self._session * _LEASE - _now()

    def _lose(self, reason: str) -> None:
        with self._lock:
            lost, self._led = self._led, set()
            self._written.clear()
        for component, epoch in sorted(lost):
            logger.error("this process leads %s no more (epoch %d): %s", component, epoch, reason)

    def _end(self, component: str, epoch: int) -> None:
        with self._lock:
            self._led.discard((component, epoch))
            self._written.pop(component, None)
            self._last_change.pop(component, None)

    def _leads(self, component: str, epoch: int) -> None:
        if (component, epoch) in self._led and self._left() <= 0:
            self._lose("the time in which nobody else can lead has passed without an answer of ZooKeeper")
        if (component, epoch) not in self._led:
            raise FencedError(f"epoch {epoch} of {component} is over, or may be")

    @override
    def check(self, component: str, epoch: int) -> None:
        self._leads(component, epoch)
        path, seconds = f"{self._cell(component)}/{_HELD}{epoch}", self._left()
        try:
            self._ask(lambda client: client.sync_async(path), seconds)
            status = self._ask(lambda client: client.exists_async(path), max(0.01, self._left()))
        except OSError:
            self._leads(component, epoch)
            raise
        if status is None:
            self._end(component, epoch)
            raise FencedError(f"epoch {epoch} of {component} is over")
        self._leads(component, epoch)

    @override
    def announce(self, component: str, leader: Leader) -> None:
        self._leads(component, leader.epoch)
        value = json.dumps({"address": leader.address, "token": leader.token}).encode()
        path = f"{self._cell(component)}/{_HELD}{leader.epoch}"
        try:
            self._repeat(lambda client: client.set_async(path, value))
        except NoNodeError:
            raise FencedError(f"epoch {leader.epoch} of {component} is over") from None

    def release(self, component: str, epoch: int) -> None:
        """End the epoch. If ZooKeeper can't be told, it ends with the session."""
        with self._lock:
            if (component, epoch) not in self._led:
                return
            self._end(component, epoch)
        try:
            with suppress(NoNodeError):
                self._ask(lambda client: client.delete_async(f"{self._cell(component)}/{_HELD}{epoch}"), _CLOSE_SECONDS)
        except OSError as error:
            logger.warning("the epoch of %s could not be ended in ZooKeeper: %s", component, error)

    @override
    def depose(self, component: str) -> None:
        path = self._cell(component)
        self._written.pop(component, None)
        with suppress(NoNodeError):
            for epoch in self._epochs(component):
                self._delete(f"{path}/{_HELD}{epoch}")

    # -- leaders

    def leader(self, component: str) -> Leader | None:
        """Current leader; the last known one while ZooKeeper is unreachable."""
        try:
            self._last_leaders[component] = self._leader(component)
        except OSError as error:
            logger.info("the leader of %s can't be looked up: %s", component, error)
        return self._last_leaders.get(component)

    def _leader(self, component: str) -> Leader | None:
        path = self._cell(component)
        try:
            for epoch in reversed(self._epochs(component, self._on_change)):
                with suppress(NoNodeError):
                    value, _ = self._get(f"{path}/{_HELD}{epoch}", self._on_change)
                    plain = json.loads(value)
                    return Leader(epoch, str(plain.get("address", "")), str(plain.get("token", "")))
        except NoNodeError:
            if self._status(path, self._on_change) is not None:
                self._watches.wake()
        return None

    @override
    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        return self._watches.add(component, listener)

    # -- records

    @override
    def names(self, component: str) -> list[str]:
        path = f"{self._cell(component)}/records"
        try:
            return sorted(self._repeat(lambda client: client.get_children_async(path)))
        except NoNodeError:
            return []

    @override
    def read(self, component: str, name: str) -> Record | None:
        path = self._record(component, name)
        written = self._written.get(component, {}).get(name)
        if written is not None:
            return written
        try:
            value, status = self._get(path)
        except NoNodeError:
            return None
        return Record(value, status.version)

    @override
    def change(self, component: str, epoch: int, changes: Sequence[Change]) -> None:
        self._leads(component, epoch)

        def commit(client: KazooClient) -> Any:
            transaction = client.transaction()
            transaction.check(f"{self._cell(component)}/{_HELD}{epoch}", -1)
            for change in changes:
                path = self._record(component, change.name)
                match change:
                    case Put(expected=None):
                        transaction.create(path, change.value)
                    case Put():
                        transaction.set_data(path, change.value, change.expected)
                    case RemoveRecord():
                        transaction.delete(path, change.expected)
                    case _:
                        transaction.check(path, change.expected)
            return transaction.commit_async()

        with self._lock:
            written = self._written.pop(component, {})  # after an error the records are read again
            own_change = self._last_change[component] = object()
        results = self._ask(commit, max(0.01, self._left()))
        if isinstance(results[0], NoNodeError):
            self._end(component, epoch)
            raise FencedError(f"epoch {epoch} of {component} is over")
        # ZooKeeper marks the operation that failed; all others of the transaction are rolled back.
        for result in results:
            if isinstance(result, NoNodeError | NodeExistsError | BadVersionError):
                raise ChangedError(f"a record of {component} has changed")
        for result in results:
            if isinstance(result, Exception):
                raise OSError(f"ZooKeeper ({self._hosts}) refuses: {type(result).__name__} {result}")
        for change, result in zip(changes, results[1:], strict=True):
            if isinstance(change, Put):
                written[change.name] = Record(change.value, 0 if change.expected is None else result.version)
            elif isinstance(change, RemoveRecord):
                written.pop(change.name, None)
        # A later change may have begun meanwhile, which then knows the records better.
        with self._lock:
            if (component, epoch) in self._led and self._last_change.get(component) is own_change:
                self._written[component] = written

    @override
    def exists(self, component: str) -> bool:
        path = self._cell(component)
        return self._status(path) is not None

    @override
    def forget(self, component: str) -> None:
        path = self._cell(component)
        names = [f"{path}/records/{name}" for name in self.names(component)]
        with suppress(NoNodeError):
            inner = self._repeat(lambda client: client.get_children_async(path))
            names += [f"{path}/{name}" for name in sorted(inner, key=lambda name: name == "records")]
        for name in [*names, path]:
            self._delete(name)
        with self._lock:
            self._led = {term for term in self._led if term[0] != component}
            self._written.pop(component, None)

    @override
    def close(self) -> None:
        for component, epoch in list(self._led):
            self.release(component, epoch)
        self._closed.set()
        self._watches.close()
        with self._lock:
            client, self._zookeeper = self._zookeeper, None
            keeper, self._keeper = self._keeper, None
        if client is not None:
            client.stop()
            client.close()
        if keeper is not None:
            keeper.join()

    # -- inside

    def _cell(self, component: str) -> str:
        return f"{self._base}/{checked(component, 'a component')}"

    def _record(self, component: str, name: str) -> str:
        return f"{self._cell(component)}/records/{checked(name, 'a record')}"

    def _make(self, path: str) -> None:
        if self._status(path) is None:
            self._repeat(lambda client: client.ensure_path_async(path))


def _authorization(text: str) -> list[tuple[str, str]]:
    pairs = []
    for part in text.split(","):
        scheme, colon, credentials = part.strip().partition(":")
        if not (scheme and colon and credentials):
            raise ConfigurationError(
                f"{options.ZOOKEEPER_AUTHORIZATION.key}: scheme:credentials is expected, as digest:user:password"
            )
        pairs.append((scheme, credentials))
    return pairs


def _reason(error: ssl.SSLError) -> str:
    return error.reason or str(error)


def _close_socket(error: ssl.SSLError) -> None:
    """Close a socket that kazoo leaves open after TLS has failed: only the frame that raised has it."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if isinstance(connection := frame.f_locals.get("conn"), ssl.SSLSocket):
            connection.close()


def _refusals(sasl: dict[str, str] | None) -> tuple[type[Exception], ...]:
    """Other errors that are raised when the client can't authenticate."""
    if sasl is None or sasl["mechanism"] != _KERBEROS:
        return ()
    import kerberos

    return (SASLException, kerberos.KrbError)


def _why_refused(sasl: dict[str, str] | None, error: Exception) -> str:
    if sasl is None:
        return f"it wants to know the user: see {options.ZOOKEEPER_SASL.key} and {options.KERBEROS_CONTEXTS.key}"
    if sasl["mechanism"] != _KERBEROS:
        return f"it does not know the user and password of {options.ZOOKEEPER_SASL.key}"
    cause = error.__cause__ or error  # of the two statuses of GSSAPI, texts with codes
    reason = (
        "; ".join(str(status[0] if isinstance(status, tuple) else status) for status in cause.args)
        or type(cause).__name__
    )
    return (
        f"Kerberos: {reason}: see {options.KERBEROS_PRINCIPAL.key}, {options.KERBEROS_KEYTAB.key} (or kinit) and "
        f"{options.ZOOKEEPER_SASL_SERVICE.key} = {sasl['service']}"
    )


def _by_kerberos(settings: Settings) -> dict[str, str] | None:
    """SASL options of the client for the user of ``security.kerberos.login.*``; None = Kerberos is not used."""
    contexts = [context.strip() for context in settings.get(options.KERBEROS_CONTEXTS).split(",")]
    if "Client" not in contexts or settings.get(options.ZOOKEEPER_SASL_DISABLE):
        return None
    missing = [name for name in ("puresasl", "kerberos") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"{options.KERBEROS_CONTEXTS.key}: Client needs the packages 'pure-sasl' and 'pykerberos': pip install "
            "'firesteel[zookeeper-gssapi]' (it is built there, with a C compiler and the headers of MIT's Kerberos)"
        )
    keytab, principal = login_keytab(settings), settings.get(options.KERBEROS_PRINCIPAL)
    if (keytab is None) != (principal is None):
        missing_key = options.KERBEROS_KEYTAB.key if keytab is None else options.KERBEROS_PRINCIPAL.key
        raise ConfigurationError(
            f"{missing_key} is missing: {options.KERBEROS_KEYTAB.key} and {options.KERBEROS_PRINCIPAL.key} are set "
            "both, or none"
        )
    if keytab is not None and not os.access(keytab, os.R_OK):
        raise ConfigurationError(
            f"{options.KERBEROS_KEYTAB.key} = {keytab!r}: there is no such file on {socket.gethostname()}, or it can't "
            "be read"
        )
    if (krb5_conf := settings.get(options.KRB5_CONF)) is not None:
        os.environ["KRB5_CONFIG"] = krb5_conf
    sasl_options = {"mechanism": _KERBEROS, "service": settings.get(options.ZOOKEEPER_SASL_SERVICE)}
    if keytab is not None and principal is not None:
        # MIT's library gets tickets by itself, again and again; they stay in this process.
        os.environ[KEYTAB_VARIABLE] = f"FILE:{keytab}"
        os.environ["KRB5CCNAME"] = f"MEMORY:firesteel-{os.getpid()}"
        sasl_options["principal"] = principal
    return sasl_options


def _sasl(settings: Settings) -> dict[str, str] | None:
    """SASL options of the client; None = it does not authenticate."""
    user_and_password = settings.get(options.ZOOKEEPER_SASL)
    if user_and_password is None:
        return _by_kerberos(settings)
    user, colon, password = user_and_password.reveal().partition(":")
    if not (user and colon and password):
        raise ConfigurationError(f"{options.ZOOKEEPER_SASL.key}: user:password is expected")
    if find_spec("puresasl") is None:
        raise ConfigurationError(
            f"{options.ZOOKEEPER_SASL.key} needs the package 'pure-sasl', which is not installed: pip install "
            "'firesteel[zookeeper]'"
        )
    return {"mechanism": "DIGEST-MD5", "username": user, "password": password}


def _tls(settings: Settings) -> dict[str, Any]:
    """TLS options of the client."""
    files = {
        "ca": options.ZOOKEEPER_TLS_CA,
        "certfile": options.ZOOKEEPER_TLS_CERTIFICATE,
        "keyfile": options.ZOOKEEPER_TLS_KEY,
    }
    paths = {name: (option.key, path) for name, option in files.items() if (path := settings.get(option)) is not None}
    if not settings.get(options.ZOOKEEPER_TLS):
        if paths:
            key, _ = next(iter(paths.values()))
            raise ConfigurationError(f"{key} is of no use without {options.ZOOKEEPER_TLS.key}: true")
        return {}
    for key, path in paths.values():
        if not os.access(path, os.R_OK):
            host = socket.gethostname()
            raise ConfigurationError(f"{key} = {path!r}: there is no such file on {host}, or it can't be read")
    if ("certfile" in paths) != ("keyfile" in paths):
        certificate, key = options.ZOOKEEPER_TLS_CERTIFICATE.key, options.ZOOKEEPER_TLS_KEY.key
        missing = key if "certfile" in paths else certificate
        raise ConfigurationError(f"{missing} is missing: {certificate} and {key} are set both")
    password = settings.get(options.ZOOKEEPER_TLS_KEY_PASSWORD)
    return {
        "use_ssl": True, "verify_certs": True, "check_hostname": True,
        "keyfile_password": None if password is None else password.reveal(),
        **{name: path for name, (_, path) in paths.items()},
    }  # fmt: skip


class ZooKeeperServices(CellServices):
    """Services on ZooKeeper, with payloads in a directory or an object store.

    Args:
        settings: of the cluster.
        cluster_directory: of this host.

    Raises:
        ConfigurationError: an option is missing or wrong.
    """

    def __init__(self, settings: Settings, cluster_directory: Path | None = None) -> None:
        storage = settings.get(HA_STORAGE_DIRECTORY)
        if storage is None:
            raise ConfigurationError(
                f"high-availability.type: zookeeper needs {HA_STORAGE_DIRECTORY.key}, a directory or a bucket "
                "(s3://bucket/path, or hdfs://namenode:8020/path) that all hosts of the JobManager reach"
            )
        cluster = checked(settings.get(HA_CLUSTER_ID).strip("/") or "default", HA_CLUSTER_ID.key)
        super().__init__(ZooKeeperCells(settings), payloads_in(storage, cluster, settings, cluster_directory))
