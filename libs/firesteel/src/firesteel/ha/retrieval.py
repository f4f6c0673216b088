"""Who leads what: how services find one another.

A *component* is led by one process at a time: ``dispatcher``, ``resourcemanager``, ``jobmaster-host``, ``job-<id>``.
Its leader announces its address and its fencing token; others look them up here, or watch for changes.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from typing_extensions import override

from firesteel.config import Settings, addresses
from firesteel.core.errors import ConfigurationError

logger = logging.getLogger(__name__)
DISPATCHER: Final = "dispatcher"
RESOURCEMANAGER: Final = "resourcemanager"
JOBMASTER_HOST: Final = "jobmaster-host"
LOOK_SECONDS: Final = 0.2
"""Seconds between two looks at who leads."""


def of_job(job_id: str) -> str:
    """The component that the JobMaster of a job leads."""
    return f"job-{job_id}"


@dataclass(frozen=True)
class Attempts:
    """Attempts of a job's tasks, as one JobMaster leaves them to the next.

    Attributes:
        first_unused: all smaller numbers may have been used.
        taskmanagers: ids of those where tasks of the last attempt may run; None = unknown.
    """

    first_unused: int = 0
    taskmanagers: tuple[str, ...] | None = ()

    def behind(self, earlier: Attempts) -> Attempts:
        """The attempts to note after earlier ones: numbers never fall."""
        return replace(self, first_unused=max(self.first_unused, earlier.first_unused))

    def to_plain(self) -> dict[str, Any]:
        named = self.taskmanagers
        return {"first_unused": self.first_unused, "taskmanagers": None if named is None else list(named)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any] | int) -> Attempts:
        """Inverse of ``to_plain``; also takes a number, which was the form before TaskManagers were noted."""
        if isinstance(plain, int):
            return cls(plain, None if plain else ())
        named = plain["taskmanagers"]
        return cls(int(plain["first_unused"]), None if named is None else tuple(map(str, named)))


@dataclass(frozen=True)
class Leader:
    """The leader of a component.

    Attributes:
        epoch: of the leadership; 0 where leaders are not elected but configured.
        address: base URL; empty until it is announced.
        token: fencing token for calls; empty until it is announced, or where a registration returns it.
    """

    epoch: int
    address: str = ""
    token: str = field(default="", repr=False)

    def to_plain(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "address": self.address, "token": self.token}


Listener = Callable[[Leader | None], None]
"""Called with the leader; None = nobody leads, as far as is known. On any thread; must not block or raise."""


class LeaderRetrieval(ABC):
    """Finds leaders. Answers may be late, and the leader may be dead: fencing is what makes calls safe."""

    @abstractmethod
    def leader(self, component: str) -> Leader | None:
        """Leader of a component; None if there never was one, or the last one has released it.

        Raises:
            ConfigurationError: it can't be found out.
        """

    @abstractmethod
    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        """Call a listener with the leader, once before this returns and after each change from then on.

        Of changes in quick succession the last one is always reported. Returns a function that ends the watch and may
        be called twice; a call of the listener that is under way may still come.

        Raises:
            ConfigurationError: the leader can't be found out.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop calling listeners, and release resources. May be called twice."""


class FixedLeaders(LeaderRetrieval):
    """Leaders that never change.

    Args:
        addresses_by_component: base URLs.
    """

    def __init__(self, addresses_by_component: Mapping[str, str]) -> None:
        self._known = dict(addresses_by_component)

    @override
    def leader(self, component: str) -> Leader | None:
        address = self._address(component)
        return None if address is None else Leader(0, address)

    @override
    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        listener(self.leader(component))
        return lambda: None

    @override
    def close(self) -> None: ...

    def _address(self, component: str) -> str | None:
        return self._known.get(component)


_CONFIGURED: Final[Mapping[str, Callable[[Settings], str]]] = {
    DISPATCHER: addresses.dispatcher_address,
    RESOURCEMANAGER: addresses.resourcemanager_address,
    JOBMASTER_HOST: addresses.jobmaster_address,
}


class ConfiguredLeaders(FixedLeaders):
    """Leaders of a cluster without shared storage: each service has a configured address.

    Args:
        settings: of the cluster; an address is read when it is needed.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__({})
        self._settings = settings

    def _address(self, component: str) -> str | None:
        read = _CONFIGURED.get(component)
        return None if read is None else read(self._settings)


@dataclass(eq=False)
class _Watch:
    component: str
    listener: Listener
    told: Leader | None


class PolledWatches:
    """Watches for services that have to poll: a thread does it, as long as there are watches.

    Args:
        look: returns the leader of a component.
        pause: seconds between two looks.
    """

    def __init__(self, look: Callable[[str], Leader | None], pause: float = LOOK_SECONDS) -> None:
        self._look, self._pause = look, pause
        self._lock = threading.Lock()
        self._watches: list[_Watch] = []
        self._thread: threading.Thread | None = None
        self._closed, self._woken = threading.Event(), threading.Event()
        self._failing: set[str] = set()

    def add(self, component: str, listener: Listener) -> Callable[[], None]:
        """Add a watch, as ``LeaderRetrieval.watch``."""
        watch = _Watch(component, listener, self._look(component))
        listener(watch.told)
        with self._lock:
            self._watches.append(watch)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="leaders", daemon=True)
                self._thread.start()

        def stop() -> None:
            with self._lock:
                if watch in self._watches:
                    self._watches.remove(watch)

        return stop

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        """Stop calling listeners. May be called twice."""
        self._closed.set()
        self._woken.set()
        with self._lock:
            self._watches.clear()
            thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._woken.wait(self._pause)
            self._woken.clear()
            if self._closed.is_set():
                return
            with self._lock:
                watches = list(self._watches)
                if not watches:
                    self._thread = None
                    return
            for component in dict.fromkeys(watch.component for watch in watches):
                self._look_at(component, [watch for watch in watches if watch.component == component])

    def _look_at(self, component: str, watches: list[_Watch]) -> None:
        try:
            leader = self._look(component)
        except (ConfigurationError, OSError) as error:
            if component not in self._failing:
                logger.error("the leader of %s can't be read any more: %s", component, error)
            self._failing.add(component)
            return
        self._failing.discard(component)
        for watch in watches:
            if watch.told != leader:
                watch.told = leader
                watch.listener(leader)
