"""Makes the TaskManager's service."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

from firesteel.config import Settings
from firesteel.config.memory import TaskManagerMemory, has_memory_options, taskmanager_memory
from firesteel.config.options import (
    EXCHANGE_TRANSPORT,
    JAVA_HOME,
    JVM_ARCHIVE,
    JVM_ARCHIVE_IN_BACKGROUND,
    TASKMANAGER_HOST,
)
from firesteel.core.clock import Clock
from firesteel.core.run_directory import RunDirectory
from firesteel.ha.retrieval import LeaderRetrieval
from firesteel.protocol.messages import ExecutorSpec
from firesteel.rpc.process_calls import process_routes
from firesteel.runtime.slot.surroundings import NETWORK_VARIABLE
from firesteel.service.job_log import job_log
from firesteel.spark.executor import ExecutorProcess
from firesteel.spark.hosts import spark_host
from firesteel.spark.jvm import DEFAULT_HEAP_MB
from firesteel_taskmanager.executors import ExecutorFactory
from firesteel_taskmanager.routes import routes
from firesteel_taskmanager.shell import TaskManagerService


def create_service(
    *,
    settings: Settings,
    secret: str,
    clock: Clock,
    run_directory: RunDirectory,
    taskmanager_id: str,
    slots: int,
    leaders: LeaderRetrieval,
    stdout: Callable[[str], None] | None = None,
    executor_id: str = "driver",
    bind_host: str | None = None,
    advertised_host: str = "",
    executors: ExecutorFactory | None = None,
    memory: TaskManagerMemory | None = None,
    log_directory: Path | None = None,
) -> TaskManagerService:
    """A TaskManager, not started yet.

    Args:
        settings: of the cluster.
        secret: the cluster's secret.
        clock: for all timeouts.
        run_directory: for the control socket and blobs; it stays the caller's.
        taskmanager_id: names it in the cluster.
        slots: how many it begins with.
        leaders: say where the ResourceManager is; they stay the caller's.
        stdout: gets what slots print; by default whatever ``sys.stdout`` is at that moment.
        executor_id: Spark's name of the executor on which its slots run, if it has none of its own (``driver`` in
            local mode).
        bind_host: address to which its Spark executors and slots bind. Given for a TaskManager that starts executors
            of its own; then also its memory is read from the settings, if they say it.
        advertised_host: name or address under which others reach them; by default ``bind_host``.
        executors: starts executors in place of Spark's own.
        memory: its memory, in place of what the settings say; each slot is measured against its share.
        log_directory: where the logs of executors stay; by default they go with the run directory.

    Raises:
        ConfigurationError: an option has a bad value.
        RunDirectoryError: the path of the control socket would be too long.
    """
    if bind_host is not None:
        if memory is None and has_memory_options(settings):
            memory = taskmanager_memory(settings)
        if executors is None:
            host = advertised_host or bind_host
            executors = _sparks(settings, secret, run_directory, bind_host, host, memory, log_directory)
    service = TaskManagerService(
        settings=settings,
        secret=secret,
        clock=clock,
        run_directory=run_directory,
        taskmanager_id=taskmanager_id,
        slots=slots,
        leaders=leaders,
        stdout=stdout,
        executor_id=executor_id,
        executors=executors,
        memory=memory,
    )
    of_process = process_routes(secret, clock, service.log_level_changed, functools.partial(job_log, service.logs))
    service.app.add_routes([*routes(service, secret), *of_process])
    return service


def _sparks(
    settings: Settings,
    secret: str,
    run_directory: RunDirectory,
    bind_host: str,
    host: str,
    memory: TaskManagerMemory | None,
    log_directory: Path | None,
) -> ExecutorFactory:
    java_home, archive = settings.get(JAVA_HOME), settings.get(JVM_ARCHIVE)
    make_archive = settings.get(JVM_ARCHIVE_IN_BACKGROUND)
    heap_mb = DEFAULT_HEAP_MB if memory is None else max(memory.executor_heap >> 20, _LEAST_HEAP_MB)
    spark_name = spark_host(host, TASKMANAGER_HOST.key)
    network = {"bind_host": bind_host, "host": host, "transport": settings.get(EXCHANGE_TRANSPORT)}

    def start(spec: ExecutorSpec) -> ExecutorProcess:
        return ExecutorProcess(
            spec,
            secret=secret,
            run_directory=run_directory,
            bind_host=bind_host,
            host=spark_name,
            java_home=java_home,
            memory_mb=heap_mb,
            archive=archive,
            make_archive=make_archive,
            environment={NETWORK_VARIABLE: json.dumps(network)},
            log_directory=log_directory,
        )

    return start


_LEAST_HEAP_MB = 128
"""Spark does not start with less."""
