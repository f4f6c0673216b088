"""``firesteel doctor``: asks this host and the cluster for facts, and shows what is wrong with them."""

from __future__ import annotations

import argparse
import os
import platform
import re
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from email.utils import parsedate_to_datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from firesteel import __version__
from firesteel.checkpoint.object_stores import open_store
from firesteel.checkpoint.places import is_object, object_place
from firesteel.client.cli import exit_codes
from firesteel.client.cli.definitions import settings_of
from firesteel.client.cli.doctor_findings import Facts, Level, Place, Port, TaskManagerFacts, findings, is_failed
from firesteel.client.connections import close_connections, cluster_url, connect
from firesteel.client.console import Console
from firesteel.client.rest_client import RestClient
from firesteel.client.waiting import waited
from firesteel.config import options
from firesteel.config.addresses import is_loopback
from firesteel.config.memory import has_memory_options, taskmanager_memory
from firesteel.config.settings import Settings
from firesteel.core.call_pool import CallPool
from firesteel.core.clock import SystemClock
from firesteel.core.errors import (
    CheckpointStorageError,
    ConfigurationError,
    FiresteelError,
    JavaNotFoundError,
    PeerUnreachableError,
)
from firesteel.core.machine import free_memory, physical_memory, usable_cores
from firesteel.core.python_packages import environment_id, installed
from firesteel.core.run_directory import private_directory

_SERVICES: Final = ("dispatcher", "historyserver", "jobmaster", "resourcemanager", "taskmanager")
_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9._-]+")
_PORTS: Final = (
    options.REST_PORT,
    options.JOBMANAGER_RPC_PORT,
    options.RESOURCEMANAGER_PORT,
    options.JOBMASTER_PORT,
)
_PLACES: Final = (
    options.CHECKPOINTING_DIRECTORY,
    options.SAVEPOINT_DIRECTORY,
    options.HA_STORAGE_DIRECTORY,
    options.ARCHIVE_DIRECTORY,
    options.LOG_DIRECTORY,
)


def doctor(parsed: argparse.Namespace, console: Console) -> int:
    """Show findings about this host and the cluster (``firesteel doctor``); fails if one of them is an error."""
    with CallPool("loop of its own", threads=1, deadline=None) as thread:
        if parsed.self_test:
            from firesteel.client.cli.self_test import self_test

            judged = waited(console, "Testing this host", thread.submit(lambda: list(self_test())).result)
        else:
            judged = findings(waited(console, "Looking", thread.submit(look, parsed).result))
    if parsed.json:
        console.say_json(
            {
                "findings": [finding.plain() for finding in judged],
                "ok": not is_failed(judged, parsed.strict),
            }
        )
    else:
        for finding in judged:
            if parsed.all or finding.level is not Level.OK:
                console.say_states(finding.line())
        counts = {level: sum(finding.level is level for finding in judged) for level in Level}
        console.say(
            f"{_counted(counts[Level.ERROR], 'error')}, {_counted(counts[Level.WARNING], 'warning')}, "
            f"{counts[Level.OK]} in order" + ("" if parsed.all else " (--all shows them)")
        )
    return exit_codes.FAILED if is_failed(judged, parsed.strict) else exit_codes.DONE


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def look(parsed: argparse.Namespace) -> Facts:
    """Collect all facts; a fact that can't be found out is noted as a problem, and never raised."""
    facts = Facts(
        sys.version_info[:3],
        __version__,
        versions=dict(_needed()),
        services=dict(_services()),
        physical_memory=physical_memory(),
        free_memory=free_memory(),
        cores=usable_cores(),
        environment=environment_id(),
    )
    facts = _with_spark(facts)
    try:
        settings = settings_of(parsed)
        facts = replace(facts, warnings=tuple(settings.check()))
    except ConfigurationError as error:
        return replace(facts, settings_problem=str(error))
    facts = _with_java(facts, settings)
    facts = replace(
        facts,
        slots=settings.get(options.TASKMANAGER_SLOTS),
        process_size=_process_size(settings),
        places=tuple(_places(settings)),
    )
    return _with_cluster(facts, settings)


def _needed() -> Iterator[tuple[str, str | None]]:
    installed_versions = installed()
    for text in metadata.requires("firesteel") or ():
        requirement, _, marker = text.partition(";")
        match = _REQUIREMENT.match(requirement)
        if match is not None and not marker:  # extras and what other systems need are no duty
            name = match[0].lower().replace("_", "-")
            yield name, installed_versions.get(name)


def _services() -> Iterator[tuple[str, str]]:
    installed_versions = installed()
    for name in _SERVICES:
        if version := installed_versions.get(f"firesteel-{name}"):
            yield name, version


def _with_spark(facts: Facts) -> Facts:
    spec = find_spec("pyspark")
    if spec is None or not spec.origin:
        return replace(facts, spark_problem="pyspark is not installed")
    if not any(Path(spec.origin).parent.glob("jars/spark-core_*.jar")):
        return replace(facts, spark_problem=f"the pyspark in {Path(spec.origin).parent} has no jars")
    return replace(facts, spark=metadata.version("pyspark"))


def _with_java(facts: Facts, settings: Settings) -> Facts:
    from firesteel.spark.java import find_java  # Spark's folder is imported by few verbs

    try:
        java = find_java(settings.get(options.JAVA_HOME))
    except JavaNotFoundError as error:
        return replace(facts, java_problem=str(error))
    return replace(facts, java=f"Java {java.feature} at {java.home}")


def _process_size(settings: Settings) -> int | None:
    if not has_memory_options(settings):
        return None
    try:
        return taskmanager_memory(settings).process_size
    except ConfigurationError:  # settings.check() has said so, or the service will
        return None


# -- storage


def _places(settings: Settings) -> Iterator[Place]:
    yield _local(tempfile.gettempdir(), "the directory for temporary files")
    run = settings.get(options.RUN_DIRECTORY)
    if run is not None:
        yield _local(run, options.RUN_DIRECTORY.key)
    cluster = settings.get(options.CLUSTER_DIRECTORY)
    if cluster is None:
        try:
            cluster = str(private_directory(None))
        except FiresteelError as error:
            yield Place("the directory of this user's clusters", tempfile.gettempdir(), str(error))
    if cluster is not None:
        yield _local(cluster, options.CLUSTER_DIRECTORY.key)
    for option in _PLACES:
        path = settings.get(option)
        if path:
            yield _bucket(path, option.key, settings) if is_object(path) else _local(path, option.key)


def _local(path: str, purpose: str) -> Place:
    folder = Path(urlsplit(path).path if path.startswith("file:") else path)
    if "://" in str(path) and not path.startswith("file:"):
        return Place(purpose, path, "no directory, and no object store that is known: s3://bucket/directory is")
    nearest = folder
    while not nearest.exists() and nearest != nearest.parent:  # it is made when it is needed
        nearest = nearest.parent
    probe = nearest / f".firesteel-doctor-{secrets.token_hex(8)}"
    try:
        free = shutil.disk_usage(nearest).free
        if not nearest.is_dir():
            return Place(purpose, path, f"{nearest} is no directory")
        try:
            probe.write_bytes(b"doctor")
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        return Place(purpose, path, error.strerror or str(error))
    return Place(purpose, path, free=free)


def _bucket(path: str, purpose: str, settings: Settings) -> Place:
    try:
        place = object_place(path, purpose)
        open_store(place, settings).check(place)
    except (ConfigurationError, CheckpointStorageError) as error:
        return Place(purpose, path, str(error))
    return Place(purpose, path)


# -- the cluster


def _with_cluster(facts: Facts, settings: Settings) -> Facts:
    try:
        facts = replace(facts, url=cluster_url(settings))
        connection = connect(settings)
    except ConfigurationError as error:
        return replace(facts, secret_problem=str(error))
    except PeerUnreachableError as error:
        # Behind "...): " the error says what to do; the doctor's own finding says that, too.
        reason = str(error).partition("): ")[0] + ")" if "): " in str(error) else str(error)
        return replace(facts, cluster_problem=reason, ports=tuple(_ports(settings)))
    except FiresteelError as error:
        return replace(facts, cluster_problem=str(error))
    clock = SystemClock()
    try:
        rest, run = connection.rest, connection.loop.run
        about, at = run(rest.contact(), 20), run(rest.date(), 20)
        skew = None if at is None else _skew(at, clock.epoch_ms())
        access = run(rest.get("/config"), 20).get("firesteel-access", {})
        processes = run(rest.get("/firesteel/loglevels"), 60)["processes"]
        silent = {str(process["process"]): str(process["error"]) for process in processes if process.get("error")}
        overview: dict[str, Any] = {"slots-total": 0, "slots-available": 0}
        rows: list[dict[str, Any]] = []
        if "resourcemanager" not in silent:
            overview, rows = run(rest.get("/overview"), 30), run(rest.get("/taskmanagers"), 30)["taskmanagers"]
        slow_checkpoints = run(_slow_checkpoints(rest), 60)
    except (FiresteelError, TimeoutError, KeyError) as error:
        return replace(facts, cluster_problem=f"{facts.url}: {error or 'no answer in time'}")
    finally:
        close_connections()
    return replace(
        facts,
        cluster_version=str(about["firesteel-version"]),
        skew_s=skew,
        slots_total=int(overview["slots-total"]),
        slots_free=int(overview["slots-available"]),
        nodes=tuple(_nodes(rows, clock.epoch_ms())),
        silent=silent,
        slow_checkpoints=slow_checkpoints,
        may_change=access.get("change"),
    )


async def _slow_checkpoints(rest: RestClient) -> dict[str, str]:
    """Running jobs, by name and id, and what is wrong with the pace of their checkpoints."""
    slow: dict[str, str] = {}
    for job in (await rest.get("/jobs/overview"))["jobs"]:
        if job["state"] == "RUNNING":
            try:
                warning = (await rest.get(f"/jobs/{job['jid']}/checkpoints")).get("warning")
            except FiresteelError:
                continue  # it takes none, or has ended meanwhile
            if warning:
                slow[f"{job['name']} ({job['jid']})"] = str(warning)
    return slow


def _skew(date: str, now_ms: int) -> float | None:
    """Seconds by which the cluster's clock is ahead of ours, from a header ``Date``; None if it is unreadable.

    The header has whole seconds, so differences that its rounding explains count as 0.
    """
    try:
        cluster_time = parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return None
    ahead = cluster_time - now_ms / 1000
    return 0.0 if -2.0 < ahead < 1.0 else ahead


def _nodes(rows: Iterable[dict[str, Any]], now_ms: int) -> Iterator[TaskManagerFacts]:
    for row in rows:
        hardware, heard = row.get("hardware", {}), int(row.get("timeSinceLastHeartbeat", 0))
        yield TaskManagerFacts(
            str(row["id"]),
            str(urlsplit(str(row.get("path", ""))).hostname or row.get("path", "?")),
            str(hardware.get("firesteel-environment", "")),
            str(hardware.get("firesteel-python", "")),
            int(hardware.get("freeMemory", 0)),
            int(hardware.get("physicalMemory", 0)),
            max(0.0, (now_ms - heard) / 1000) if heard > 0 else 0.0,
        )


def _ports(settings: Settings) -> Iterator[Port]:
    host = settings.get(options.REST_ADDRESS)
    if not is_loopback(host) and host not in (platform.node(), socket.gethostname()):
        return  # the cluster is to be on another host
    for option in _PORTS:
        port = settings.get(option)
        if port:
            yield Port(option.key, "127.0.0.1", port, _bind_problem("127.0.0.1", port))


def _bind_problem(host: str, port: int) -> str:
    """Why no service can listen at an address; empty = one can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror or os.strerror(error.errno or 0)
    return ""
