"""A service as a process of its own: arguments, settings, logs, signals, exit codes."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from firesteel import __version__
from firesteel.config.load import CONF_DIR_VARIABLE, CONFIG_FILE, load_settings
from firesteel.config.options import CLUSTER_DIRECTORY, LOG_DIRECTORY, RESOURCEMANAGER_PORT, RUN_DIRECTORY
from firesteel.config.secret import load_secret
from firesteel.config.settings import Settings
from firesteel.core.clock import Clock, SystemClock
from firesteel.core.errors import ConfigurationError, RunDirectoryError
from firesteel.core.run_directory import RunDirectory, hold, private_directory
from firesteel.core.running_clusters import name_of_installation
from firesteel.core.secret import rest_token
from firesteel.core.text_output import escape_missing_characters
from firesteel.ha.services import HighAvailabilityServices, LeaderRetrieval, load_high_availability, load_retrieval
from firesteel.service.background import first_of
from firesteel.service.base import Service
from firesteel.service.bearer import tokens_of
from firesteel.service.logs import configure_logging, setup_logging
from firesteel.service.otlp_logs import exported_logs
from firesteel.service.own_output import bound_own_output
from firesteel.service.pid_file import AlreadyRunningError, PidFile
from firesteel.service.process_logs import RecentLog
from firesteel.service.reporting import report_metrics

logger = logging.getLogger(__name__)
R = TypeVar("R", bound=LeaderRetrieval)

EXIT_IN_ORDER, EXIT_FAILED, EXIT_CONFIGURATION = 0, 1, 2
LOOK_SECONDS = 0.1
"""Seconds between two looks at whether a service that starts is waiting for its turn to lead."""
WARNING = "warning: "
"""Prefix of the lines that a service prints about settings that have no effect, or a surprising one."""
STOP_SECONDS = 30.0
"""Seconds after which the process ends although its service has not stopped."""


@dataclass(frozen=True)
class ServiceContext:
    """What a service can take from its process: settings, secret, directories.

    Attributes:
        settings: settings, already checked.
        secret: of the cluster.
        clock: of the machine.
        run_directory: owned by this process; removed when it ends.
        config_directory: directory of ``config.yaml``; None: there is none.
        arguments: command line behind the options of the process.
        log_directory: of the logs of child processes, which stay; None = they log into the run directory.
        at_end: callbacks for the end of the process, which run in reverse order.
    """

    settings: Settings
    secret: str = field(repr=False)
    clock: Clock
    run_directory: RunDirectory
    config_directory: Path | None
    arguments: tuple[str, ...] = ()
    log_directory: Path | None = None
    at_end: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, repr=False)

    @cached_property
    def cluster_directory(self) -> Path:
        """Directory in which the services of this host find again, after a restart, what they had; mode 0700.

        It is made at its first use.

        Raises:
            RunDirectoryError: it can't be made, or belongs to another user.
        """
        directory = cluster_directory(self.settings, self.config_directory)
        logger.info("the cluster directory (%s) is %s", CLUSTER_DIRECTORY.key, directory)
        # By default the directory is below /tmp, where systemd-tmpfiles would remove the files of a cluster that has
        # run for ten days. It leaves directories alone on which a process holds a lock.
        self.at_end.callback(os.close, hold(directory))
        return directory

    @cached_property
    def high_availability(self) -> HighAvailabilityServices:
        """High-availability services, for a service that leads something; closed when this process ends.

        Raises:
            ConfigurationError: they can't be used.
            RunDirectoryError: as for ``cluster_directory``.
        """
        return self._closed_at_the_end(load_high_availability(self.settings, self.cluster_directory))

    @cached_property
    def leaders(self) -> LeaderRetrieval:
        """Says who leads, for a service that leads nothing itself; closed when this process ends.

        Raises:
            ConfigurationError: the services that elect leaders can't be used.
        """
        return self._closed_at_the_end(load_retrieval(self.settings))

    @property
    def tokens(self) -> tuple[str, ...]:
        """Tokens of the REST API that this host knows: it may have no token file."""
        try:
            return tokens_of(self.settings, self.secret, self.config_directory)
        except ConfigurationError as error:
            logger.info("%s", error)
            return (rest_token(self.secret),)

    def _closed_at_the_end(self, opened: R) -> R:
        self.at_end.callback(opened.close)
        return opened


@dataclass(frozen=True)
class ServicePlan:
    """A service, and where it listens.

    Attributes:
        service: not started yet.
        bind_host: address to listen on.
        port: 0 = any free port.
        advertised_host: host name under which others find the service.
        on_listening: called once the service listens.
    """

    service: Service
    bind_host: str = "127.0.0.1"
    port: int = 0
    advertised_host: str = ""
    on_listening: Callable[[], None] = lambda: None


Build = Callable[[ServiceContext], ServicePlan]


def cluster_directory(settings: Settings, config_directory: Path | None) -> Path:
    """The cluster directory of this host; mode 0700, made if it is missing.

    Args:
        settings: may name the directory.
        config_directory: of the cluster. By default each one has a cluster directory of its own, so a copy of it is
            another cluster.

    Raises:
        RunDirectoryError: the directory can't be made, or belongs to another user.
    """
    configured = settings.get(CLUSTER_DIRECTORY)
    if configured is not None:
        return private_directory(Path(configured))
    name = f"cluster-{settings.get(RESOURCEMANAGER_PORT)}"
    if config_directory is None:
        return private_directory(None, name)
    directory = private_directory(None, f"{name}-{name_of_installation(config_directory)}")
    unnamed_directory = directory.with_name(name)
    if (unnamed_directory / "dispatcher").is_dir() and not any(directory.iterdir()):
        logger.warning(
            "%s is new; if the jobs in %s are those of this cluster, set %s to that one",
            directory, unnamed_directory, CLUSTER_DIRECTORY.key,
        )  # fmt: skip
    return directory


def run_service(name: str, build: Build, argv: Sequence[str] | None = None) -> int:
    """Run a service until SIGTERM or SIGINT stops it (a second signal: at once); returns the exit code.

    A signal means that a successor will come, so what the service looks after goes on; see
    ``firesteel.service.leaving``.

    Args:
        name: of the service.
        build: makes the service, before an event loop or any thread runs; may raise ``ConfigurationError``.
        argv: the arguments; by default those of the process.

    Returns:
        0: stopped in order. 1: failed, or could not start. 2: the configuration is wrong.
    """
    parsed = _parser(name).parse_args(argv)
    escape_missing_characters()
    with contextlib.ExitStack() as stack:
        try:
            setup_logging(file=parsed.log_file)
            if parsed.log_file is None:
                logging.getLogger().addHandler(RecentLog())
        except OSError as error:
            return _refuse(name, f"the log file {parsed.log_file} can't be written: {error.strerror or error}")
        try:
            pid_file = stack.enter_context(PidFile(parsed.pid_file)) if parsed.pid_file else None
        except AlreadyRunningError as error:
            return _refuse(name, str(error), EXIT_FAILED)
        except OSError as error:
            return _refuse(name, f"the pid file {parsed.pid_file} can't be written: {error.strerror or error}")
        try:
            context = _context(parsed)
            stack.callback(context.run_directory.remove)
            stack.enter_context(context.at_end)
            context.at_end.enter_context(exported_logs(context.settings, name))
            plan = build(context)
            report_metrics(plan.service, context.settings, context.tokens)
        except (ConfigurationError, RunDirectoryError) as error:
            return _refuse(name, str(error))
        _raise_file_limit()
        return asyncio.run(_serve(name, plan, pid_file, vars(context).get("cluster_directory"), context.settings))


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"firesteel-{name}", description=f"Firesteel's {name} process.")
    parser.add_argument("--version", action="version", version=f"firesteel {__version__}")
    parser.add_argument("--config-dir", type=Path, metavar="DIR", help="directory of config.yaml (FIRESTEEL_CONF_DIR)")
    parser.add_argument(
        "-D", dest="definitions", action="append", default=[], metavar="KEY=VALUE", help="set an option"
    )
    parser.add_argument("--log-file", type=Path, metavar="FILE", help="log there instead of to stderr; rotated")
    parser.add_argument("--pid-file", type=Path, metavar="FILE", help="says which process this is, while it runs")
    parser.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
    return parser


def _context(parsed: argparse.Namespace) -> ServiceContext:
    folder: Path | None = parsed.config_dir
    if folder is None and os.environ.get(CONF_DIR_VARIABLE):
        folder = Path(os.environ[CONF_DIR_VARIABLE])
    settings = load_settings(
        config_file=None if folder is None else folder / CONFIG_FILE, definitions=parsed.definitions
    )
    configure_logging(settings)
    secret = load_secret(settings, os.environ, folder)
    for warning in settings.check():
        logger.warning("%s", warning)
        print(f"{WARNING}{warning}", flush=True)  # the start scripts show it to the user
    logs = _log_directory(settings, parsed.log_file)
    run_directory = RunDirectory.create(settings.get(RUN_DIRECTORY))
    return ServiceContext(settings, secret, SystemClock(), run_directory, folder, tuple(parsed.arguments), logs)


def _log_directory(settings: Settings, log_file: Path | None) -> Path | None:
    """Directory of the logs of a service's child processes.

    Raises:
        ConfigurationError: ``env.log.dir`` is relative, or can't be made.
    """
    configured = settings.get(LOG_DIRECTORY)
    if configured is None:
        return None if log_file is None else log_file.absolute().parent
    if not os.path.isabs(configured):
        raise ConfigurationError(f"{LOG_DIRECTORY.key} has to be an absolute path, not {configured!r}.")
    try:
        Path(configured).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigurationError(f"{LOG_DIRECTORY.key}: {configured} can't be made: {reason}.") from error
    return Path(configured)


async def _serve(
    name: str, plan: ServicePlan, pid_file: PidFile | None, cluster_directory: Path | None, settings: Settings
) -> int:
    service = plan.service
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def signalled(number: signal.Signals) -> None:
        if stop.is_set():
            logger.warning("%s: a second %s: ends at once", name, number.name)
            logging.shutdown()
            os._exit(EXIT_FAILED)
        logger.info("%s: %s: stops", name, number.name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled, number)
    try:
        address = await _start(name, plan, stop, pid_file)
    except ConfigurationError as error:
        return _refuse(name, str(error))
    except OSError as error:
        return _refuse(name, error.strerror or str(error), EXIT_FAILED)
    except Exception as error:  # whatever it is, the process reports it and ends with 1
        logger.exception("%s could not start", name)
        return _refuse(name, f"could not start: {error}", EXIT_FAILED)
    if not address:
        logger.info("%s stopped before it led", name)
        return EXIT_IN_ORDER
    print(f"firesteel-{name} listens on {address}", flush=True)
    if cluster_directory is not None:
        print(f"{CLUSTER_DIRECTORY.key} is {cluster_directory}", flush=True)
    plan.on_listening()
    if pid_file is not None:
        pid_file.listens_on(address)
    service.spawn(bound_own_output(settings), "size of the standard output")
    await first_of(stop.wait(), service.end_wanted())
    stop.set()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await service.stop()
    except TimeoutError:
        logger.error("%s did not stop within %g s", name, STOP_SECONDS)
        return EXIT_FAILED
    if service.failure is not None:
        logger.error("%s failed: %s: %s", name, type(service.failure).__name__, service.failure)
        return _refuse(name, f"{type(service.failure).__name__}: {service.failure}", EXIT_FAILED)
    logger.info("%s stopped", name)
    return service.exit_code


async def _start(name: str, plan: ServicePlan, stop: asyncio.Event, pid_file: PidFile | None) -> str:
    """Start the service; returns its address, or "" if it was stopped while it waited for its turn to lead."""
    loop = asyncio.get_running_loop()
    starting = loop.create_task(plan.service.start(plan.bind_host, plan.port, plan.advertised_host))
    stopping = loop.create_task(stop.wait())
    try:
        has_printed = False
        while not (await asyncio.wait({starting, stopping}, timeout=LOOK_SECONDS, return_when=FIRST_COMPLETED))[0]:
            if plan.service.is_standby and not has_printed:
                has_printed = True
                if pid_file is not None:
                    pid_file.stands_by()
                print(f"firesteel-{name} stands by", flush=True)
        if not starting.done() and plan.service.is_standby:
            starting.cancel()
            await asyncio.wait({starting})
            return ""
        return await starting
    finally:
        stopping.cancel()


def _raise_file_limit() -> None:
    """Raise the limit of open files to the hard limit: a service holds a connection for each peer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _refuse(name: str, sentence: str, code: int = EXIT_CONFIGURATION) -> int:
    logger.error("%s: %s", name, sentence)
    print(f"firesteel-{name}: {sentence}", file=sys.stderr, flush=True)
    return code
