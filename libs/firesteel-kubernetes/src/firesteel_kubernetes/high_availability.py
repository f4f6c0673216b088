"""High availability on Kubernetes alone, with payloads in a directory or an object store.

Each component has two objects of one name, ``<cluster>-<component>``::

    Lease       the leader, which renews it all the time; annotations: its epoch, address and token
    ConfigMap   annotations: the last epoch and its holder; data: the records, each "<version> <value>"

The *ConfigMap* is the fence. Every write names the resource version that it has read, and a new leader first writes the
next epoch there. So the API server itself refuses writes of a former leader, whatever that one believes, and however
long its request was on its way.

The *Lease* says when somebody else may lead: when nobody holds it, or when a waiting process has seen it unchanged, by
its own clock, for the time that the holder has written into it. A holder leads no more as soon as nine tenths of that
time have passed, by its own clock, since it *asked* for the last renewal that was granted: whoever waits has seen that
renewal later. Clocks of hosts are never compared (the times in a Lease are for people), and they count while a machine
sleeps.

A write without an answer may come late. So its cell is not read before another write has followed it, after which it
can only be refused.
"""

from __future__ import annotations

import base64
import errno
import logging
import math
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from firesteel.config import Settings, options
from firesteel.config.recovery_options import HA_CLUSTER_ID, HA_STORAGE_DIRECTORY
from firesteel.core.errors import ConfigurationError, FencedError
from firesteel.ha.cell_services import CellServices
from firesteel.ha.cells import AwayError, Cells, Change, ChangedError, Put, Record, RemoveRecord, UnsureError, checked
from firesteel.ha.payloads import payloads_in
from firesteel.ha.retrieval import Leader, Listener, PolledWatches
from firesteel_kubernetes.api import (
    ASK_SECONDS,
    ApiError,
    ConflictError,
    JsonObject,
    KubernetesApi,
    MissingError,
    UnansweredError,
    UnreachableError,
    Watched,
    connect,
)
from firesteel_kubernetes.names import cluster_id, cluster_labels

logger = logging.getLogger(__name__)
LABEL_KIND: Final = "configmap-type"
HIGH_AVAILABILITY: Final = "high-availability"
LARGEST_MAP: Final = 1 << 20
"""Bytes that a ConfigMap can store."""
_LEASE: Final = 0.9
"""Longest time that a leader leads without a renewal, as a share of the duration of its lease."""
_LOOK_SECONDS: Final = 10.0
"""Seconds between two looks at a component's leader while Kubernetes reports no change."""
_LEADER_SECONDS: Final = 5.0
_READ_SECONDS: Final = 15.0
"""Seconds for which a request that changes nothing is repeated."""
_CAMPAIGN_SECONDS: Final = 10.0
"""Seconds for which one campaign repeats its requests."""
_CLOSE_SECONDS: Final = 5.0
_EPOCH, _HOLDER, _VERSION, _WRITTEN = (f"firesteel/{name}" for name in ("epoch", "holder", "version", "written"))
_ADDRESS, _TOKEN = "firesteel/address", "firesteel/token"
_OBJECT: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def boot_time() -> float:
    """Seconds since the start of the machine, including those in which it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(eq=False)
class _Term:
    """An epoch in which this process leads a component."""

    component: str
    identity: str
    """Holder in the Lease and the ConfigMap; used for this epoch alone."""
    asked_at: float
    """When the last granted renewal was asked for."""
    lease: JsonObject
    epoch: int = 0
    address: str = ""
    token: str = ""
    config_map: JsonObject | None = None
    """The ConfigMap, as it was last seen."""
    checked_at: float = -math.inf
    """When the ConfigMap was last read to check who leads."""
    renewing: threading.RLock = field(default_factory=threading.RLock)
    writing: threading.RLock = field(default_factory=threading.RLock)
    ended: threading.Event = field(default_factory=threading.Event)


class _LostError(Exception):
    """The Lease has another holder, or is gone."""


class KubernetesCells(Cells):
    """Cells in Leases and ConfigMaps; the head of this module says how. No request is made before it is needed.

    Args:
        settings: of the cluster.
        api: of its Kubernetes; None = as configured.
        now: clock, in monotonic seconds.

    Raises:
        ConfigurationError: an option is missing or wrong.
    """

    largest_record = 4 << 10

    def __init__(
        self, settings: Settings, api: KubernetesApi | None = None, now: Callable[[], float] = boot_time
    ) -> None:
        self._cluster = cluster_id(settings)
        self._api, namespace = connect(settings, api)
        self._now = now
        self._maps = f"/api/v1/namespaces/{namespace}/configmaps"
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._labels = {
            **cluster_labels(self._cluster), LABEL_KIND: HIGH_AVAILABILITY,
        }  # fmt: skip
        duration = settings.get(options.KUBERNETES_LEASE_DURATION).total_seconds()
        deadline = settings.get(options.KUBERNETES_RENEW_DEADLINE).total_seconds()
        self._period = settings.get(options.KUBERNETES_RETRY_PERIOD).total_seconds()
        self._duration = math.ceil(duration)
        self.campaign_seconds = self._period
        self._deadline = min(deadline, duration * _LEASE)
        if self._period >= self._deadline:
            raise ConfigurationError(
                f"{options.KUBERNETES_RETRY_PERIOD.key} ({self._period:g} s) has to be shorter than "
                f"{options.KUBERNETES_RENEW_DEADLINE.key} and nine tenths of {options.KUBERNETES_LEASE_DURATION.key} "
                f"({self._deadline:g} s): a lease is renewed before it is over"
            )
        self._retries = settings.get(options.KUBERNETES_RETRIES)
        self._pause = settings.get(options.KUBERNETES_RETRY_DELAY).total_seconds()
        self._longest_pause = settings.get(options.KUBERNETES_MAX_RETRY_DELAY).total_seconds()
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._led: dict[str, _Term] = {}
        self._abandoned: set[str] = set()
        """Identities of this process under which it no longer leads; a Lease may still name them."""
        self._observed: dict[str, tuple[str, float]] = {}
        """Version of each component's Lease, and when that was first seen."""
        self._unsure: dict[str, str] = {}
        """Identity, of each component, whose last write of the ConfigMap was not answered."""
        self._last_leaders: dict[str, Leader | None] = {}
        self._watches = PolledWatches(self.leader, _LOOK_SECONDS)
        self._followed: dict[str, tuple[Watched, int]] = {}

    # -- leading

    def campaign(self, component: str) -> int | None:
        """Try to lead a component; returns the epoch, or None while somebody leads.

        Raises:
            AwayError: Kubernetes does not answer.
            OSError: it refuses.
        """
        name = self._name(component)
        identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(8)}"
        try:
            term = self._take_lease(component, name, identity)
            if term is None:
                return None
            epoch = self._begin(term, name)
        except (UnreachableError, UnansweredError) as error:
            raise AwayError(str(error)) from error
        if epoch is None:
            return None
        term.epoch = epoch
        with self._lock:
            self._abandoned.discard(identity)
            self._led[component] = term
        try:
            self._renew(term, self._left(term))
        except _LostError:
            self._end(term)
            return None
        except OSError as error:
            logger.info("the epoch of %s is written with the next renewal: %s", component, error)
        threading.Thread(target=self._keep, args=(term,), name=f"lease-{component}", daemon=True).start()
        return epoch

    def _take_lease(self, component: str, name: str, identity: str) -> _Term | None:
        """Take the Lease for this process; None = somebody holds it."""
        problem: ApiError | None = None
        ends = time.monotonic() + _CAMPAIGN_SECONDS
        for pause in self._pauses():
            if problem is not None:
                self._closed.wait(min(pause, max(0.0, ends - time.monotonic())))
                if time.monotonic() >= ends:
                    break
            try:
                lease, seen_at = self._api.find(f"{self._leases}/{name}"), self._now()
                asked_at = self._now()  # before the request: others count from when they see the Lease, which is later
                if lease is None:
                    body = self._leased({"metadata": {"name": name}}, identity, {})
                    body |= {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
                    self._abandoned.add(identity)  # before the write: a Lease may name it from now on
                    return _Term(component, identity, asked_at, self._api.ask("POST", self._leases, body))
                if (lease.get("spec") or {}).get("holderIdentity") == identity:  # it was granted without an answer
                    lease = self._leased(lease, identity, {})
                    return _Term(component, identity, asked_at, self._api.ask("PUT", f"{self._leases}/{name}", lease))
                if not self._is_free(component, lease, seen_at):
                    return None
                new_lease = self._leased(lease, identity, {})
                new_lease["spec"]["acquireTime"] = _timestamp()
                new_lease["spec"]["leaseTransitions"] = int(new_lease["spec"].get("leaseTransitions") or 0) + 1
                self._abandoned.add(identity)  # before the write: a Lease may name it from now on
                return _Term(component, identity, asked_at, self._api.ask("PUT", f"{self._leases}/{name}", new_lease))
            except (ConflictError, MissingError) as error:
                problem = UnreachableError(str(error))  # look again at the Lease that exists now
            except (UnreachableError, UnansweredError) as error:
                problem = error
        raise problem or UnreachableError("no try was allowed")

    def _is_free(self, component: str, lease: JsonObject, seen_at: float) -> bool:
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if not holder or holder in self._abandoned:
            return True
        version = str(lease["metadata"]["resourceVersion"])
        observed = self._observed.get(component)
        if observed is None or observed[0] != version:
            self._observed[component] = version, seen_at
            return False
        return seen_at - observed[1] >= float(spec.get("leaseDurationSeconds") or self._duration)

    def _begin(self, term: _Term, name: str) -> int | None:
        """Write the next epoch, which ends the last one; None = somebody else may hold the Lease by now."""
        problem: ApiError | None = None
        for pause in self._pauses():
            if problem is not None:
                term.ended.wait(pause)
            try:
                config_map = self._api.find(f"{self._maps}/{name}")
                # The Lease may be somebody else's by now, whose epoch must not be overwritten.
                if self._left(term) <= 0:
                    break
                # An earlier attempt has written the epoch, without an answer.
                if config_map is not None and _annotation(config_map, _HOLDER) == term.identity:
                    term.config_map = config_map
                    return int(_annotation(config_map, _EPOCH))
                new_map = deepcopy(config_map) if config_map is not None else {"metadata": {"name": name}}
                epoch = int(_annotation(new_map, _EPOCH) or 0) + 1
                self._label(new_map, {_EPOCH: str(epoch), _HOLDER: term.identity, _WRITTEN: secrets.token_hex(8)})
                seconds = min(ASK_SECONDS, self._left(term))
                if config_map is None:
                    new_map |= {"apiVersion": "v1", "kind": "ConfigMap"}
                    term.config_map = self._api.ask("POST", self._maps, new_map, seconds=seconds)
                else:
                    term.config_map = self._api.ask("PUT", f"{self._maps}/{name}", new_map, seconds=seconds)
                return epoch
            except (ConflictError, MissingError, UnreachableError, UnansweredError) as error:
                problem = error
            except ApiError:
                self._give_back(term)
                raise
        self._give_back(term)
        if isinstance(problem, UnreachableError | UnansweredError):
            raise problem
        return None

    def _leased(self, lease: JsonObject, identity: str, annotations: dict[str, str]) -> JsonObject:
        """A Lease with this holder; without an identity it is free."""
        new_lease = deepcopy(lease)
        for key in (_EPOCH, _ADDRESS, _TOKEN):
            (new_lease["metadata"].get("annotations") or {}).pop(key, None)
        self._label(new_lease, annotations)
        spec = new_lease["spec"] = dict(new_lease.get("spec") or {})
        spec["holderIdentity"], spec["renewTime"] = identity, _timestamp()
        if identity:
            spec["leaseDurationSeconds"] = self._duration
            spec.setdefault("acquireTime", spec["renewTime"])
            spec.setdefault("leaseTransitions", 0)
        return new_lease

    def _label(self, body: JsonObject, annotations: dict[str, str]) -> None:
        metadata = body["metadata"]
        metadata["labels"] = {**(metadata.get("labels") or {}), **self._labels}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}

    def _renew(self, term: _Term, seconds: float) -> None:
        """Renew the Lease, with the current address and token.

        Raises:
            _LostError: it has another holder.
            ApiError: it could not be written.
        """
        with term.renewing:
            path = f"{self._leases}/{self._name(term.component)}"
            for is_last in (*[False] * self._retries, True):
                asked_at = self._now()
                annotations = {_EPOCH: str(term.epoch), _ADDRESS: term.address, _TOKEN: term.token}
                try:
                    term.lease = self._api.ask(
                        "PUT", path, self._leased(term.lease, term.identity, annotations), seconds=max(0.05, seconds)
                    )
                except MissingError:
                    raise _LostError from None
                except ConflictError:
                    try:
                        current = self._api.ask("GET", path, seconds=max(0.05, seconds))
                    except MissingError:
                        raise _LostError from None
                    if (current.get("spec") or {}).get("holderIdentity") != term.identity:
                        raise _LostError from None
                    term.lease = current
                    if is_last:
                        raise
                    continue
                term.asked_at = max(term.asked_at, asked_at)
                return

    def _keep(self, term: _Term) -> None:
        """Renew the Lease again and again; lead no more once that has failed for too long."""
        pause = self._period
        while not term.ended.wait(max(0.0, min(pause, self._left(term)))):
            try:
                if self._left(term) > 0:
                    self._renew(term, min(max(self._period, 1.0), self._left(term)))
                pause = self._period
            except _LostError:
                self._lose(term, "its Lease is another one's")
                return
            except OSError as error:
                if pause == self._period:
                    logger.warning("the Lease of %s can't be renewed, it is tried again: %s", term.component, error)
                pause = self._period / 5
            if self._left(term) <= 0:
                self._lose(term, f"Kubernetes has granted no renewal for {self._deadline:.1f} s")
                return

    def _left(self, term: _Term) -> float:
        """Seconds for which this process leads without another renewal."""
        return term.asked_at + self._deadline - self._now()

    def _lose(self, term: _Term, reason: str) -> None:
        if self._end(term):
            logger.error("this process leads %s no more (epoch %d): %s", term.component, term.epoch, reason)

    def _end(self, term: _Term) -> bool:
        """End the term; False = it had ended before."""
        with self._lock:
            self._abandoned.add(term.identity)
            term.ended.set()
            if self._led.get(term.component) is not term:
                return False
            del self._led[term.component]
            return True

    def _leads(self, component: str, epoch: int) -> _Term:
        term = self._led.get(component)
        if term is not None and term.epoch == epoch and self._left(term) <= 0:
            self._lose(term, "the time in which nobody else can lead has passed without a renewal")
            term = None
        if term is None or term.epoch != epoch:
            raise FencedError(f"epoch {epoch} of {component} is over, or may be")
        return term

    @override
    def check(self, component: str, epoch: int) -> None:
        term = self._leads(component, epoch)
        now = self._now()
        try:
            self._follow_up(component)
            config_map = self._api.find(
                f"{self._maps}/{self._name(component)}", min(ASK_SECONDS, max(0.05, self._left(term)))
            )
        except OSError:
            # A lease that has ended meanwhile is certain, unlike the error.
            self._leads(component, epoch)
            raise
        if config_map is None or _annotation(config_map, _HOLDER) != term.identity:
            self._end(term)
            raise FencedError(f"epoch {epoch} of {component} is over")
        self._leads(component, epoch)
        term.checked_at = now

    def poll(self, component: str, epoch: int) -> None:
        """Like ``check``, but the ConfigMap is read only as often as the Lease is renewed: deposing takes the Lease,
        too.
        """
        term = self._leads(component, epoch)
        if self._now() - term.checked_at >= self._period or component in self._unsure:
            self.check(component, epoch)

    @override
    def announce(self, component: str, leader: Leader) -> None:
        term = self._leads(component, leader.epoch)
        term.address, term.token = leader.address, leader.token
        problem: OSError | None = None
        for pause in self._pauses():
            if problem is not None and term.ended.wait(pause):
                break
            self._leads(component, leader.epoch)
            try:
                self._renew(term, min(ASK_SECONDS, self._left(term)))
                return
            except _LostError:
                self._end(term)
                raise FencedError(f"epoch {leader.epoch} of {component} is over") from None
            except (ConflictError, UnreachableError, UnansweredError) as error:
                problem = error
        self._leads(component, leader.epoch)
        raise UnsureError(str(problem))

    def release(self, component: str, epoch: int) -> None:
        """End the epoch. If Kubernetes can't be told, it ends with its lease."""
        term = self._led.get(component)
        if term is not None and term.epoch == epoch and self._end(term):
            self._give_back(term)

    def _give_back(self, term: _Term) -> None:
        self._end(term)
        try:
            with term.renewing:
                self._free(term.component, term.identity, _CLOSE_SECONDS)
        except OSError as error:
            logger.warning("that nobody leads %s any more could not be said: %s", term.component, error)

    def _free(self, component: str, identity: str | None, seconds: float) -> None:
        """Free the Lease, if this identity holds it; without one, whoever does."""
        name = self._name(component)

        def free() -> None:
            lease = self._api.find(f"{self._leases}/{name}", seconds)
            holder = "" if lease is None else (lease.get("spec") or {}).get("holderIdentity") or ""
            if lease is None or not holder or (identity is not None and holder != identity):
                return
            with suppress(MissingError):
                self._api.ask("PUT", f"{self._leases}/{name}", self._leased(lease, "", {}), seconds=seconds)

        self._repeat(free, seconds)

    @override
    def depose(self, component: str) -> None:
        name = self._name(component)

        def end() -> None:
            config_map = self._api.find(f"{self._maps}/{name}")
            if config_map is not None and _annotation(config_map, _HOLDER):
                new_map = deepcopy(config_map)
                self._label(new_map, {_HOLDER: "", _WRITTEN: secrets.token_hex(8)})
                with suppress(MissingError):
                    self._api.ask("PUT", f"{self._maps}/{name}", new_map)

        self._repeat(end, _READ_SECONDS)
        self._free(component, None, _READ_SECONDS)

    # -- who leads

    def leader(self, component: str) -> Leader | None:
        """Current leader; the last known one while Kubernetes does not answer."""
        try:
            self._last_leaders[component] = _leader_of(
                self._api.find(f"{self._leases}/{self._name(component)}", _LEADER_SECONDS)
            )
        except OSError as error:
            logger.info("who leads %s can't be looked up: %s", component, error)
        return self._last_leaders.get(component)

    @override
    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        end = self._watches.add(component, listener)
        self._follow(component)
        has_ended = threading.Event()

        def stop() -> None:
            end()
            with self._lock:
                if has_ended.is_set():
                    return
                has_ended.set()
                watched, count = self._followed.pop(component)
                if count > 1:
                    self._followed[component] = watched, count - 1
                    return
            with suppress(OSError):
                watched.end()

        return stop

    def _follow(self, component: str) -> None:
        """Watch a component's Lease for another leader; renewals are not reported."""
        name = self._name(component)
        with self._lock:
            if component in self._followed:
                watched, count = self._followed[component]
                self._followed[component] = watched, count + 1
                return
            last_reported: list[Leader | None] = []

            def changed(watched: Watched) -> None:
                leader = _leader_of(watched.snapshot().get(name))
                if last_reported != [leader]:
                    last_reported[:] = [leader]
                    self._watches.wake()

            query = {"fieldSelector": f"metadata.name={name}"}
            watched = self._api.watch(self._leases, query, changed)
            self._followed[component] = watched, 1

    # -- records

    @override
    def names(self, component: str) -> list[str]:
        config_map = self._map(component)
        return (
            []
            if config_map is None
            else sorted([*(config_map.get("data") or {}), *(config_map.get("binaryData") or {})])
        )

    @override
    def read(self, component: str, name: str) -> Record | None:
        checked(name, "a record")
        config_map = self._map(component)
        return None if config_map is None else _record(config_map, name)

    def _map(self, component: str) -> JsonObject | None:
        name = self._name(component)

        def look() -> JsonObject | None:
            self._follow_up(component)
            return self._api.find(f"{self._maps}/{name}")

        config_map: JsonObject | None = self._repeat(look, _READ_SECONDS)
        return config_map

    @override
    def change(self, component: str, epoch: int, changes: Sequence[Change]) -> None:
        term = self._leads(component, epoch)
        with term.writing:
            self._follow_up(component)
            self._write(term, changes)

    def _write(self, term: _Term, changes: Sequence[Change]) -> None:
        component, name = term.component, self._name(term.component)
        mark, is_unsure = secrets.token_hex(8), False
        config_map, term.config_map = term.config_map, None
        problem: OSError | None = None
        try:
            for pause in self._pauses():
                # Writers that got in each other's way pause for random times; else the server decides on the pause.
                if problem is not None and not isinstance(problem, ConflictError):
                    term.ended.wait(min(max(pause, getattr(problem, "retry_after", 0.0)), max(0.0, self._left(term))))
                elif problem is not None:
                    term.ended.wait(min(pause, max(0.0, self._left(term))) * secrets.randbelow(1000) / 1000)
                self._leads(component, term.epoch)
                seconds = min(ASK_SECONDS, max(0.05, self._left(term)))
                is_new = config_map is None
                try:
                    if config_map is None:
                        config_map = self._api.find(f"{self._maps}/{name}", seconds)
                        if config_map is None or _annotation(config_map, _HOLDER) != term.identity:
                            self._end(term)
                            raise FencedError(f"epoch {term.epoch} of {component} is over")
                    # An earlier attempt has written it, without an answer.
                    if _annotation(config_map, _WRITTEN) == mark:
                        term.config_map, is_unsure = config_map, False
                        return
                    new_map = self._changed(config_map, component, changes)
                    self._label(new_map, {_WRITTEN: mark})
                    term.config_map = self._api.ask("PUT", f"{self._maps}/{name}", new_map, seconds=seconds)
                    is_unsure = False
                    return
                except ChangedError:
                    if is_new:
                        term.config_map = config_map
                        raise
                    problem, config_map = None, None  # this was an old copy of the map: read it, and compare again
                except (ConflictError, MissingError) as error:
                    problem, config_map = error, None
                except UnansweredError as error:
                    problem, config_map, is_unsure = error, None, True
                except UnreachableError as error:
                    problem, config_map = error, None
        except (FencedError, OSError) as error:
            if is_unsure:
                raise UnsureError(f"whether {component} was changed is not known: {error}") from error
            raise
        finally:
            if is_unsure:
                self._unsure[component] = term.identity
        text = f"{component} can't be changed: {problem}"
        raise UnsureError(text) if is_unsure else OSError(errno.EAGAIN, text)

    def _follow_up(self, component: str) -> None:
        """Make sure that an unanswered write has happened, or can't happen any more."""
        identity = self._unsure.get(component)
        if identity is None:
            return
        name = self._name(component)

        def overwrite() -> None:
            config_map = self._api.find(f"{self._maps}/{name}")
            if config_map is not None and _annotation(config_map, _HOLDER) == identity:
                new_map = deepcopy(config_map)
                self._label(new_map, {_WRITTEN: secrets.token_hex(8)})
                self._api.ask("PUT", f"{self._maps}/{name}", new_map)

        self._repeat(overwrite, _READ_SECONDS)
        if self._unsure.get(component) == identity:
            del self._unsure[component]

    def _changed(self, config_map: JsonObject, component: str, changes: Sequence[Change]) -> JsonObject:
        """The ConfigMap after changes.

        Raises:
            ChangedError: a record is not as expected.
            OSError: the map would be too large.
        """
        new_map = deepcopy(config_map)
        data, binary = new_map.setdefault("data", {}) or {}, new_map.setdefault("binaryData", {}) or {}
        version = int(_annotation(config_map, _VERSION) or 0)
        for change in changes:
            record = _record(config_map, checked(change.name, "a record"))
            if (None if record is None else record.version) != change.expected:
                raise ChangedError(f"the record {change.name} of {component} has changed")
            if isinstance(change, Put | RemoveRecord):
                data.pop(change.name, None)
                binary.pop(change.name, None)
            if isinstance(change, Put):
                version += 1
                try:
                    data[change.name] = f"{version} {change.value.decode()}"
                except UnicodeDecodeError:
                    binary[change.name] = base64.b64encode(b"%d %b" % (version, change.value)).decode()
        size = sum(len(key) + len(value.encode()) for group in (data, binary) for key, value in group.items())
        if size > LARGEST_MAP and any(isinstance(change, Put) for change in changes):
            raise OSError(
                errno.EFBIG,
                f"the {len(data) + len(binary)} records of {component} would take {size:,} bytes, and a ConfigMap "
                f"holds {LARGEST_MAP:,}: keep fewer ended jobs "
                "(completed-application-store.max-capacity) or checkpoints (execution.checkpointing.num-retained)",
            )
        new_map["data"], new_map["binaryData"] = data, binary
        self._label(new_map, {_VERSION: str(version)})
        return new_map

    @override
    def exists(self, component: str) -> bool:
        name = self._name(component)

        def look() -> bool:
            return any(self._api.find(f"{path}/{name}") is not None for path in (self._maps, self._leases))

        exists: bool = self._repeat(look, _READ_SECONDS)
        return exists

    @override
    def forget(self, component: str) -> None:
        name = self._name(component)
        with self._lock:
            term = self._led.get(component)
        if term is not None:
            self._end(term)
            with term.renewing:
                pass  # no renewal is on its way
        for path in (self._maps, self._leases):

            def remove(path: str = path) -> None:
                with suppress(MissingError):
                    self._api.ask("DELETE", f"{path}/{name}")

            self._repeat(remove, _READ_SECONDS)
        self._unsure.pop(component, None)
        self._observed.pop(component, None)

    @override
    def close(self) -> None:
        for term in list(self._led.values()):
            self.release(term.component, term.epoch)
        self._closed.set()
        self._watches.close()
        self._api.close()

    # -- inside

    def _name(self, component: str) -> str:
        name = f"{self._cluster}-{checked(component, 'a component')}"
        if not _OBJECT.fullmatch(name):
            raise ConfigurationError(
                f"{component!r} can't be part of a name on Kubernetes: lower-case letters, digits, '-' and '.'"
            )
        return name

    def _pauses(self) -> Iterator[float]:
        """Pauses before each attempt; there is at least one, whatever the options say."""
        yield 0.0
        for number in range(self._retries):
            yield min(self._pause * 2**number, self._longest_pause)

    def _repeat(self, ask: Callable[[], Any], seconds: float) -> Any:
        """Call a function until it returns, or time is over.

        Raises:
            ApiError: it never did, or Kubernetes refuses.
        """
        ends = time.monotonic() + seconds
        problem: ApiError | None = None
        for pause in self._pauses():
            if problem is not None:
                self._closed.wait(min(max(pause, problem.retry_after), max(0.0, ends - time.monotonic())))
                if time.monotonic() >= ends:
                    break
            try:
                return ask()
            except (ConflictError, UnreachableError, UnansweredError) as error:
                problem = error
        raise problem or UnreachableError("no try was allowed")


def _annotation(body: JsonObject, key: str) -> str:
    return str((body["metadata"].get("annotations") or {}).get(key, ""))


def _record(config_map: JsonObject, name: str) -> Record | None:
    text, coded = (config_map.get("data") or {}).get(name), (config_map.get("binaryData") or {}).get(name)
    if text is None and coded is None:
        return None
    raw = text.encode() if text is not None else base64.b64decode(coded or "")
    version, _, value = raw.partition(b" ")
    return Record(value, int(version)) if version.isdigit() else Record(raw, 0)  # somebody else has written it


def _leader_of(lease: JsonObject | None) -> Leader | None:
    if lease is None or not (lease.get("spec") or {}).get("holderIdentity"):
        return None
    epoch = _annotation(lease, _EPOCH)
    if not epoch.isdigit():
        return None  # it has not begun yet
    return Leader(int(epoch), _annotation(lease, _ADDRESS), _annotation(lease, _TOKEN))


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class KubernetesServices(CellServices):
    """Services on Kubernetes, with payloads in a directory or an object store.

    Args:
        settings: of the cluster.
        cluster_directory: of this host.
        api: see ``KubernetesCells``.

    Raises:
        ConfigurationError: an option is missing or wrong.
    """

    def __init__(
        self, settings: Settings, cluster_directory: Path | None = None, api: KubernetesApi | None = None
    ) -> None:
        storage = settings.get(HA_STORAGE_DIRECTORY)
        if storage is None:
            raise ConfigurationError(
                f"high-availability.type: kubernetes needs {HA_STORAGE_DIRECTORY.key}, a bucket (s3://bucket/path) or "
                "a volume that all pods of the JobManager reach"
            )
        cluster = cluster_id(settings)
        if settings.is_set(HA_CLUSTER_ID):
            cluster = checked(settings.get(HA_CLUSTER_ID).strip("/") or "default", HA_CLUSTER_ID.key)
        super().__init__(KubernetesCells(settings, api), payloads_in(storage, cluster, settings, cluster_directory))
