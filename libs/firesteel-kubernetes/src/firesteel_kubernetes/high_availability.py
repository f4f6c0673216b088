"""High availability on Kubernetes alone, with payloads in a directory or an object store.

Each component has two objects of one name, ``<cluster>-<component>``::

    Lease       who leads, renewed all the time; annotations: epoch, address and token of the leader
    ConfigMap   annotations: the last epoch, and who has it; data: the records, each "<version> <value>"

The *ConfigMap* is what fences. Whoever writes it names the resource version that it has read; whoever comes to lead
first writes the next epoch there. So the API server itself refuses what a leader of before writes, whatever that one
believes, and however long its request was on its way.

The *Lease* says when somebody else may come to lead: when nobody holds it, or when it was seen unchanged for the time
that its holder has written into it, by the clock of who looks. A holder leads no more as soon as nine tenths of that
time have passed since it *asked* for the last renewal that was granted, by its own clock: whoever waits has seen that
renewal later. Clocks of hosts are never compared (the times in a Lease are for people), and count while a machine
sleeps.

A write that got no answer may come late. Nothing is told of its cell before another write has followed it, after which
it can only be refused.
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
from firesteel_kubernetes.access import find_access, namespace_of
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
)
from firesteel_kubernetes.names import cluster_id, cluster_labels

logger = logging.getLogger(__name__)
LABEL_KIND: Final = "configmap-type"
HIGH_AVAILABILITY: Final = "high-availability"
LARGEST_MAP: Final = 1 << 20
"""Bytes that a ConfigMap may hold."""
_LEASE: Final = 0.9
"""Of the duration of a lease: the longest time that a leader leads without a renewal."""
_LOOK_SECONDS: Final = 10.0
"""Between two looks at who leads of which Kubernetes has told nothing."""
_LEADER_SECONDS: Final = 5.0
_READ_SECONDS: Final = 15.0
"""For which a question that changes nothing is asked again."""
_CAMPAIGN_SECONDS: Final = 10.0
"""For which one campaign asks again."""
_CLOSE_SECONDS: Final = 5.0
_EPOCH, _HOLDER, _VERSION, _WRITTEN = (f"firesteel/{name}" for name in ("epoch", "holder", "version", "written"))
_ADDRESS, _TOKEN = "firesteel/address", "firesteel/token"
_OBJECT: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def boot_time() -> float:
    """Seconds; those in which the machine sleeps count."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(eq=False)
class _Held:
    """An epoch of this process."""

    component: str
    identity: str
    """In the Lease and the ConfigMap; of this epoch alone."""
    asked: float
    """When the last renewal was asked for that was granted."""
    lease: JsonObject
    epoch: int = 0
    address: str = ""
    token: str = ""
    seen: JsonObject | None = None
    """The ConfigMap, as it was last seen."""
    checked: float = -math.inf
    """When the ConfigMap was looked at last to see who leads."""
    renewing: threading.RLock = field(default_factory=threading.RLock)
    writing: threading.RLock = field(default_factory=threading.RLock)
    ended: threading.Event = field(default_factory=threading.Event)


class _LostError(Exception):
    """The Lease is somebody else's, or gone."""


class KubernetesCells(Cells):
    """See ``Cells`` and the head of this module. Nothing is asked before it is needed.

    Args:
        settings: of the cluster.
        api: that of its Kubernetes; None: as the settings say.
        now: monotonic seconds.

    Raises:
        ConfigurationError: an option is missing or wrong.
    """

    largest_record = 4 << 10

    def __init__(
        self, settings: Settings, api: KubernetesApi | None = None, now: Callable[[], float] = boot_time
    ) -> None:
        self._cluster = cluster_id(settings)
        if api is None:
            access = find_access(settings)
            api, namespace = (
                KubernetesApi(access, settings.get(options.KUBERNETES_USER_AGENT)),
                namespace_of(settings, access),
            )
        else:
            namespace = settings.get(options.KUBERNETES_NAMESPACE)
        self._api, self._now = api, now
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
        self._led: dict[str, _Held] = {}
        self._abandoned: set[str] = set()
        """Identities of this process under which nobody leads any more; some Lease may name them still."""
        self._observed: dict[str, tuple[str, float]] = {}
        """Component -> version of its Lease, and when that was seen first."""
        self._unsure: dict[str, str] = {}
        """Component -> identity whose last write of the ConfigMap got no answer."""
        self._known: dict[str, Leader | None] = {}
        self._watches = PolledWatches(self.leader, _LOOK_SECONDS)
        self._followed: dict[str, tuple[Watched, int]] = {}

    # -- leading

    def campaign(self, component: str) -> int | None:
        """See ``Cells``.

        Raises:
            AwayError: Kubernetes does not answer.
            OSError: it refuses.
        """
        name = self._name(component)
        identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(8)}"
        try:
            held = self._take_lease(component, name, identity)
            if held is None:
                return None
            epoch = self._begin(held, name)
        except (UnreachableError, UnansweredError) as error:
            raise AwayError(str(error)) from error
        if epoch is None:
            return None
        held.epoch = epoch
        with self._lock:
            self._abandoned.discard(identity)
            self._led[component] = held
        try:
            self._renew(held, self._left(held))
        except _LostError:
            self._over(held)
            return None
        except OSError as error:
            logger.info("the epoch of %s is written with the next renewal: %s", component, error)
        threading.Thread(target=self._keep, args=(held,), name=f"lease-{component}", daemon=True).start()
        return epoch

    def _take_lease(self, component: str, name: str, identity: str) -> _Held | None:
        """The Lease is this process's; None: somebody has it."""
        problem: ApiError | None = None
        ends = time.monotonic() + _CAMPAIGN_SECONDS
        for pause in self._pauses():
            if problem is not None:
                self._closed.wait(min(pause, max(0.0, ends - time.monotonic())))
                if time.monotonic() >= ends:
                    break
            try:
                lease, seen = self._find(self._leases, name), self._now()
                asked = self._now()
                if lease is None:
                    body = self._leased({"metadata": {"name": name}}, identity, {})
                    body |= {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
                    self._abandoned.add(identity)  # before it is written: only now may a Lease name it
                    return _Held(component, identity, asked, self._api.ask("POST", self._leases, body))
                if (lease.get("spec") or {}).get("holderIdentity") == identity:  # it was granted without an answer
                    lease = self._leased(lease, identity, {})
                    return _Held(component, identity, asked, self._api.ask("PUT", f"{self._leases}/{name}", lease))
                if not self._is_free(component, lease, seen):
                    return None
                taken = self._leased(lease, identity, {})
                taken["spec"]["acquireTime"] = _timestamp()
                taken["spec"]["leaseTransitions"] = int(taken["spec"].get("leaseTransitions") or 0) + 1
                self._abandoned.add(identity)  # before it is written: only now may a Lease name it
                return _Held(component, identity, asked, self._api.ask("PUT", f"{self._leases}/{name}", taken))
            except (ConflictError, MissingError) as error:
                problem = UnreachableError(str(error))  # what is there now tells
            except (UnreachableError, UnansweredError) as error:
                problem = error
        raise problem or UnreachableError("no try was allowed")

    def _is_free(self, component: str, lease: JsonObject, seen: float) -> bool:
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if not holder or holder in self._abandoned:
            return True
        version = str(lease["metadata"]["resourceVersion"])
        observed = self._observed.get(component)
        if observed is None or observed[0] != version:
            self._observed[component] = version, seen
            return False
        return seen - observed[1] >= float(spec.get("leaseDurationSeconds") or self._duration)

    def _begin(self, held: _Held, name: str) -> int | None:
        """Write the next epoch, which ends the one before; None: somebody else may have the Lease by now."""
        problem: ApiError | None = None
        for pause in self._pauses():
            if problem is not None:
                held.ended.wait(pause)
            try:
                found = self._find(self._maps, name)
                if self._left(held) <= 0:
                    break
                if found is not None and _annotation(found, _HOLDER) == held.identity:
                    held.seen = found
                    return int(_annotation(found, _EPOCH))
                new = deepcopy(found) if found is not None else {"metadata": {"name": name}}
                epoch = int(_annotation(new, _EPOCH) or 0) + 1
                self._label(new, {_EPOCH: str(epoch), _HOLDER: held.identity, _WRITTEN: secrets.token_hex(8)})
                left = min(ASK_SECONDS, self._left(held))
                if found is None:
                    new |= {"apiVersion": "v1", "kind": "ConfigMap"}
                    held.seen = self._api.ask("POST", self._maps, new, seconds=left)
                else:
                    held.seen = self._api.ask("PUT", f"{self._maps}/{name}", new, seconds=left)
                return epoch
            except (ConflictError, MissingError, UnreachableError, UnansweredError) as error:
                problem = error
            except ApiError:
                self._give_back(held)
                raise
        self._give_back(held)
        if isinstance(problem, UnreachableError | UnansweredError):
            raise problem
        return None

    def _leased(self, lease: JsonObject, identity: str, annotations: dict[str, str]) -> JsonObject:
        """A Lease that is held, or is free (no identity)."""
        new = deepcopy(lease)
        for key in (_EPOCH, _ADDRESS, _TOKEN):
            (new["metadata"].get("annotations") or {}).pop(key, None)
        self._label(new, annotations)
        spec = new["spec"] = dict(new.get("spec") or {})
        spec["holderIdentity"], spec["renewTime"] = identity, _timestamp()
        if identity:
            spec["leaseDurationSeconds"] = self._duration
            spec.setdefault("acquireTime", spec["renewTime"])
            spec.setdefault("leaseTransitions", 0)
        return new

    def _label(self, new: JsonObject, annotations: dict[str, str]) -> None:
        metadata = new["metadata"]
        metadata["labels"] = {**(metadata.get("labels") or {}), **self._labels}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}

    def _renew(self, held: _Held, seconds: float) -> None:
        """Have the Lease say what is so.

        Raises:
            _LostError: it is somebody else's.
            ApiError: it could not be written.
        """
        with held.renewing:
            path = f"{self._leases}/{self._name(held.component)}"
            for is_last in (*[False] * self._retries, True):
                asked = self._now()
                told = {_EPOCH: str(held.epoch), _ADDRESS: held.address, _TOKEN: held.token}
                try:
                    held.lease = self._api.ask(
                        "PUT", path, self._leased(held.lease, held.identity, told), seconds=max(0.05, seconds)
                    )
                except MissingError:
                    raise _LostError from None
                except ConflictError:
                    try:
                        found = self._api.ask("GET", path, seconds=max(0.05, seconds))
                    except MissingError:
                        raise _LostError from None
                    if (found.get("spec") or {}).get("holderIdentity") != held.identity:
                        raise _LostError from None
                    held.lease = found
                    if is_last:
                        raise
                    continue
                held.asked = max(held.asked, asked)
                return

    def _keep(self, held: _Held) -> None:
        """Renew the Lease; lose it where that fails for too long."""
        pause = self._period
        while not held.ended.wait(max(0.0, min(pause, self._left(held)))):
            try:
                if self._left(held) > 0:
                    self._renew(held, min(max(self._period, 1.0), self._left(held)))
                pause = self._period
            except _LostError:
                self._lose(held, "its Lease is another one's")
                return
            except OSError as error:
                if pause == self._period:
                    logger.warning("the Lease of %s can't be renewed, it is tried again: %s", held.component, error)
                pause = self._period / 5
            if self._left(held) <= 0:
                self._lose(held, f"Kubernetes has granted no renewal for {self._deadline:.1f} s")
                return

    def _left(self, held: _Held) -> float:
        """Seconds in which this process leads without another renewal."""
        return held.asked + self._deadline - self._now()

    def _lose(self, held: _Held, why: str) -> None:
        if self._over(held):
            logger.error("this process leads %s no more (epoch %d): %s", held.component, held.epoch, why)

    def _over(self, held: _Held) -> bool:
        """Whether it was not over before."""
        with self._lock:
            self._abandoned.add(held.identity)
            held.ended.set()
            if self._led.get(held.component) is not held:
                return False
            del self._led[held.component]
            return True

    def _leads(self, component: str, epoch: int) -> _Held:
        held = self._led.get(component)
        if held is not None and held.epoch == epoch and self._left(held) <= 0:
            self._lose(held, "the time in which nobody else can lead has passed without a renewal")
            held = None
        if held is None or held.epoch != epoch:
            raise FencedError(f"epoch {epoch} of {component} is over, or may be")
        return held

    @override
    def check(self, component: str, epoch: int) -> None:
        held = self._leads(component, epoch)
        now = self._now()
        try:
            self._follow_up(component)
            found = self._find(self._maps, self._name(component), min(ASK_SECONDS, max(0.05, self._left(held))))
        except OSError:
            self._leads(component, epoch)
            raise
        if found is None or _annotation(found, _HOLDER) != held.identity:
            self._over(held)
            raise FencedError(f"epoch {epoch} of {component} is over")
        self._leads(component, epoch)
        held.checked = now

    def poll(self, component: str, epoch: int) -> None:
        """See ``Cells``. The ConfigMap is read as often as the Lease is renewed: whoever deposes takes that, too."""
        held = self._leads(component, epoch)
        if self._now() - held.checked >= self._period or component in self._unsure:
            self.check(component, epoch)

    @override
    def announce(self, component: str, leader: Leader) -> None:
        held = self._leads(component, leader.epoch)
        held.address, held.token = leader.address, leader.token
        problem: OSError | None = None
        for pause in self._pauses():
            if problem is not None and held.ended.wait(pause):
                break
            self._leads(component, leader.epoch)
            try:
                self._renew(held, min(ASK_SECONDS, self._left(held)))
                return
            except _LostError:
                self._over(held)
                raise FencedError(f"epoch {leader.epoch} of {component} is over") from None
            except (ConflictError, UnreachableError, UnansweredError) as error:
                problem = error
        self._leads(component, leader.epoch)
        raise UnsureError(str(problem))

    def release(self, component: str, epoch: int) -> None:
        """See ``Cells``. Where Kubernetes can't be told, the epoch ends with its lease."""
        held = self._led.get(component)
        if held is not None and held.epoch == epoch and self._over(held):
            self._give_back(held)

    def _give_back(self, held: _Held) -> None:
        self._over(held)
        try:
            with held.renewing:
                self._free(held.component, held.identity, _CLOSE_SECONDS)
        except OSError as error:
            logger.warning("that nobody leads %s any more could not be said: %s", held.component, error)

    def _free(self, component: str, identity: str | None, seconds: float) -> None:
        """Nobody has the Lease, or only somebody else."""
        name = self._name(component)

        def free() -> None:
            lease = self._find(self._leases, name, seconds)
            holder = "" if lease is None else (lease.get("spec") or {}).get("holderIdentity") or ""
            if lease is None or not holder or (identity is not None and holder != identity):
                return
            with suppress(MissingError):
                self._api.ask("PUT", f"{self._leases}/{name}", self._leased(lease, "", {}), seconds=seconds)

        self._again(free, seconds)

    @override
    def depose(self, component: str) -> None:
        name = self._name(component)

        def end() -> None:
            found = self._find(self._maps, name)
            if found is not None and _annotation(found, _HOLDER):
                new = deepcopy(found)
                self._label(new, {_HOLDER: "", _WRITTEN: secrets.token_hex(8)})
                with suppress(MissingError):
                    self._api.ask("PUT", f"{self._maps}/{name}", new)

        self._again(end, _READ_SECONDS)
        self._free(component, None, _READ_SECONDS)

    # -- who leads

    def leader(self, component: str) -> Leader | None:
        """See ``Cells``. As long as Kubernetes can't be asked: who has led."""
        try:
            self._known[component] = _leader_of(self._find(self._leases, self._name(component), _LEADER_SECONDS))
        except OSError as error:
            logger.info("who leads %s can't be looked up: %s", component, error)
        return self._known.get(component)

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
        """Have Kubernetes tell when somebody else leads; renewals change nothing."""
        name = self._name(component)
        with self._lock:
            if component in self._followed:
                watched, count = self._followed[component]
                self._followed[component] = watched, count + 1
                return
            told: list[Leader | None] = []

            def changed(watched: Watched) -> None:
                found = _leader_of(watched.snapshot().get(name))
                if told != [found]:
                    told[:] = [found]
                    self._watches.wake()

            query = {"fieldSelector": f"metadata.name={name}"}
            watched = self._api.watch(self._leases, query, changed)
            self._followed[component] = watched, 1

    # -- records

    @override
    def names(self, component: str) -> list[str]:
        found = self._map(component)
        return [] if found is None else sorted([*(found.get("data") or {}), *(found.get("binaryData") or {})])

    @override
    def read(self, component: str, name: str) -> Record | None:
        checked(name, "a record")
        found = self._map(component)
        return None if found is None else _record(found, name)

    def _map(self, component: str) -> JsonObject | None:
        name = self._name(component)

        def look() -> JsonObject | None:
            self._follow_up(component)
            return self._find(self._maps, name)

        found: JsonObject | None = self._again(look, _READ_SECONDS)
        return found

    @override
    def change(self, component: str, epoch: int, changes: Sequence[Change]) -> None:
        held = self._leads(component, epoch)
        with held.writing:
            self._follow_up(component)
            self._write(held, changes)

    def _write(self, held: _Held, changes: Sequence[Change]) -> None:
        component, name = held.component, self._name(held.component)
        mark, is_unsure = secrets.token_hex(8), False
        known, held.seen = held.seen, None
        problem: OSError | None = None
        try:
            for pause in self._pauses():
                if problem is not None and not isinstance(problem, ConflictError):
                    held.ended.wait(min(max(pause, getattr(problem, "retry_after", 0.0)), max(0.0, self._left(held))))
                elif problem is not None:
                    held.ended.wait(min(pause, max(0.0, self._left(held))) * secrets.randbelow(1000) / 1000)
                self._leads(component, held.epoch)
                seconds = min(ASK_SECONDS, max(0.05, self._left(held)))
                is_new = known is None
                try:
                    if known is None:
                        known = self._find(self._maps, name, seconds)
                        if known is None or _annotation(known, _HOLDER) != held.identity:
                            self._over(held)
                            raise FencedError(f"epoch {held.epoch} of {component} is over")
                    if _annotation(known, _WRITTEN) == mark:  # it was done, without an answer
                        held.seen, is_unsure = known, False
                        return
                    new = self._changed(known, component, changes)
                    self._label(new, {_WRITTEN: mark})
                    held.seen = self._api.ask("PUT", f"{self._maps}/{name}", new, seconds=seconds)
                    is_unsure = False
                    return
                except ChangedError:
                    if is_new:
                        held.seen = known
                        raise
                    problem, known = None, None  # as it was seen last; look again
                except (ConflictError, MissingError) as error:
                    problem, known = error, None
                except UnansweredError as error:
                    problem, known, is_unsure = error, None, True
                except UnreachableError as error:
                    problem, known = error, None
        except (FencedError, OSError) as error:
            if is_unsure:
                raise UnsureError(f"whether {component} was changed is not known: {error}") from error
            raise
        finally:
            if is_unsure:
                self._unsure[component] = held.identity
        text = f"{component} can't be changed: {problem}"
        raise UnsureError(text) if is_unsure else OSError(errno.EAGAIN, text)

    def _follow_up(self, component: str) -> None:
        """A write that got no answer is done, or can't be done any more, when this returns."""
        identity = self._unsure.get(component)
        if identity is None:
            return
        name = self._name(component)

        def overwrite() -> None:
            found = self._find(self._maps, name)
            if found is not None and _annotation(found, _HOLDER) == identity:
                new = deepcopy(found)
                self._label(new, {_WRITTEN: secrets.token_hex(8)})
                self._api.ask("PUT", f"{self._maps}/{name}", new)

        self._again(overwrite, _READ_SECONDS)
        if self._unsure.get(component) == identity:
            del self._unsure[component]

    def _changed(self, found: JsonObject, component: str, changes: Sequence[Change]) -> JsonObject:
        """The ConfigMap with changes.

        Raises:
            ChangedError: a record is not as it was expected.
            OSError: it would be too large.
        """
        new = deepcopy(found)
        data, binary = new.setdefault("data", {}) or {}, new.setdefault("binaryData", {}) or {}
        version = int(_annotation(found, _VERSION) or 0)
        for change in changes:
            there = _record(found, checked(change.name, "a record"))
            if (None if there is None else there.version) != change.expected:
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
        new["data"], new["binaryData"] = data, binary
        self._label(new, {_VERSION: str(version)})
        return new

    @override
    def exists(self, component: str) -> bool:
        name = self._name(component)
        found: bool = self._again(
            lambda: self._find(self._maps, name) is not None or self._find(self._leases, name) is not None,
            _READ_SECONDS,
        )
        return found

    @override
    def forget(self, component: str) -> None:
        name = self._name(component)
        with self._lock:
            held = self._led.get(component)
        if held is not None:
            self._over(held)
            with held.renewing:
                pass  # no renewal is on its way
        for path in (self._maps, self._leases):

            def remove(path: str = path) -> None:
                with suppress(MissingError):
                    self._api.ask("DELETE", f"{path}/{name}")

            self._again(remove, _READ_SECONDS)
        self._unsure.pop(component, None)
        self._observed.pop(component, None)

    @override
    def close(self) -> None:
        for held in list(self._led.values()):
            self.release(held.component, held.epoch)
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

    def _find(self, collection: str, name: str, seconds: float = ASK_SECONDS) -> JsonObject | None:
        try:
            return self._api.ask("GET", f"{collection}/{name}", seconds=seconds)
        except MissingError:
            return None

    def _pauses(self) -> Iterator[float]:
        """Before each try; there is a first one, whatever the options say."""
        yield 0.0
        for number in range(self._retries):
            yield min(self._pause * 2**number, self._longest_pause)

    def _again(self, ask: Callable[[], Any], seconds: float) -> Any:
        """Ask until there is an answer, or time is over.

        Raises:
            ApiError: there was none, or Kubernetes refuses.
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


def _annotation(found: JsonObject, key: str) -> str:
    return str((found["metadata"].get("annotations") or {}).get(key, ""))


def _record(found: JsonObject, name: str) -> Record | None:
    text, coded = (found.get("data") or {}).get(name), (found.get("binaryData") or {}).get(name)
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
    """See ``HighAvailabilityServices`` and the head of this module.

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
