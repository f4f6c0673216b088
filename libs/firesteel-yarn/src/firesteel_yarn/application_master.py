"""``python -m firesteel_yarn.application_master``: the ApplicationMaster, in its container.

It runs Dispatcher, ResourceManager and JobMaster host as processes of their own, and restarts those that die. It also
keeps the registration with YARN, which an attempt can make only once: in a JVM (``Master.java``) that lives as long as
this process, and that the ResourceManager's provider uses as well. If this process ends without reporting the end of
the application, YARN starts the next attempt.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from firesteel.config import options
from firesteel.config.load import CONFIG_FILE, load_settings
from firesteel.config.settings import Settings
from firesteel.core.errors import FiresteelError
from firesteel.core.run_directory import private_directory
from firesteel.core.secret import SECRET_FILE_NAME
from firesteel.core.text_output import ESCAPED
from firesteel.service.cluster_status import StatusFile
from firesteel.service.logs import setup_logging
from firesteel.service.supervisor import (
    EXIT_TERMINATED,
    OVER,
    REFUSED,
    SERVICES,
    STOPPED,
    Supervisor,
    service_commands,
)
from firesteel_yarn.gateway import HadoopJvm, attach, hang_up, record_gateway, yarn_errors
from firesteel_yarn.launch import CONF_LINK, LAUNCH_FILE, Launch, keytab_of
from firesteel_yarn.token_file import keep_secret

logger = logging.getLogger(__name__)
NAME: Final = "application-master"
HERE: Final = "{{PWD}}"
"""Stands for the container's directory in values of settings."""
EXIT_FAILED: Final = 1
_ATTEMPT: Final = re.compile(r"container_(?:e\d+_)?\d+_\d+_(\d+)_\d+")
_LOOK_SECONDS: Final = 1.0
_DIAGNOSTICS: Final = 30_000
_PORTS: Final = (options.JOBMANAGER_RPC_PORT, options.RESOURCEMANAGER_PORT, options.JOBMASTER_PORT)
_END_SECONDS: Final = 2.0
_FINAL: Final = {"FINISHED": "SUCCEEDED", "CANCELED": "KILLED"}
"""YARN's final states of an application, by Flink's."""


class ApplicationMaster:
    """One attempt of the application.

    Args:
        folder: the container's directory.
        logs: directory of the container's logs.
        host: of the node.
        container: id of the container.
    """

    def __init__(self, folder: Path, logs: Path, host: str, container: str) -> None:
        self._folder, self._logs, self._host = folder, logs, host
        attempt = _ATTEMPT.fullmatch(container)
        self._attempt = int(attempt[1]) if attempt else 1
        self._application = "application_" + "_".join(container.rpartition("container_")[2].split("_")[-4:-2])
        self._launch = Launch.read(folder / LAUNCH_FILE)
        self._settings: Settings = load_settings(config_file=folder / CONFIG_FILE, environ={})
        self._cluster = private_directory(folder / "cluster")
        self._status_file = StatusFile(self._cluster / "status.json")
        self._jvm: HadoopJvm | None = None
        self._gateway: Any = None
        self._master: Any = None
        self._shown = ""
        self._next_look = 0.0

    def run(self) -> int:
        """Run until the cluster or this attempt ends; returns the exit code."""
        keep_secret(os.environ, self._folder, SECRET_FILE_NAME)
        scratch = private_directory(self._folder / "hadoop")
        self._jvm = HadoopJvm(self._folder / CONF_LINK, scratch, self._settings)
        try:
            logs = {name: self._logs / f"{name}.log" for name in SERVICES}
            commands = service_commands(self._folder, self._definitions(), logs)
            out = {name: log.with_suffix(".out") for name, log in logs.items()}
            return self._ended(Supervisor(commands, out, self._is_over, watch=self._watch).run())
        finally:
            if self._gateway is not None:
                hang_up(self._gateway)
            self._jvm.end(_END_SECONDS)

    def _definitions(self) -> list[str]:
        definitions = {
            options.JOBMANAGER_RPC_ADDRESS.key: self._host,
            options.REST_ADDRESS.key: self._host,
            options.REST_PORT.key: "0",
            options.CLUSTER_DIRECTORY.key: str(self._cluster),
            options.APPLICATION_START_ID.key: self._application,
        }
        for key, text in self._settings.to_plain().items():
            if HERE in text:
                definitions[key] = text.replace(HERE, str(self._folder))
        with ExitStack() as stack:
            for option in _PORTS:
                listener = stack.enter_context(socket.socket())
                listener.bind(("", 0))
                definitions[option.key] = str(listener.getsockname()[1])
        return [*(f"{key}={value}" for key, value in definitions.items()), self._status_file.definition]

    # -- while it runs

    def _watch(self) -> str:
        """Register, publish the dashboard, and check that YARN still wants this attempt; called again and again."""
        assert self._jvm is not None
        if not self._jvm.is_running():
            return f"the JVM that speaks to YARN has ended ({self._jvm.exit_reason()})"
        try:
            if self._master is None:
                if self._jvm.is_ready():
                    self._register()
                return ""
            self._show()
            if time.monotonic() >= self._next_look:
                self._next_look = time.monotonic() + _LOOK_SECONDS
                with yarn_errors("the attempt can't be looked after"):
                    failure = str(self._master.failure())
                return f"YARN gives this attempt up: {failure}" if failure else ""
        except FiresteelError as error:
            return str(error)
        return ""

    def _register(self) -> None:
        assert self._jvm is not None
        address = self._jvm.wait_ready()
        self._gateway = attach(address)
        settings = self._settings
        with yarn_errors("the attempt can't be registered with YARN"):
            master = self._gateway.jvm.firesteel.yarn.Master.begin(
                settings.get(options.YARN_HEARTBEAT) * 1000,
                round(settings.get(options.YARN_HURRY).total_seconds() * 1000),
            )
            master.register(self._host, -1, "")
            workers = str(master.workers()).split("\n")[:-1]
        self._master = master
        record_gateway(self._cluster, address)
        logger.info(
            "attempt %d of %s is registered; it has %d containers", self._attempt, self._application, len(workers)
        )

    def _show(self) -> None:
        """Publish the URL of the dashboard, also after a restart of the Dispatcher."""
        rest = self._status_file.read().rest
        if rest and rest != self._shown:
            with yarn_errors("the URL of the dashboard can't be published"):
                self._master.showAt(rest)
            self._shown = rest
            logger.info("the REST API is %s", rest)

    def _is_over(self) -> bool:
        return self._status_file.read().ends(self._settings)

    # -- at its end

    def _ended(self, reason: str) -> int:
        if reason == OVER:
            status = self._status_file.read()
            texts = [f"{exception.name}: {exception.stacktrace}" for exception in status.exceptions]
            self._unregister(_FINAL.get(status.state, "FAILED"), "\n".join(texts))
            return status.exit_code or 0
        if reason == STOPPED:
            logger.info("stopped by a signal")
            return EXIT_TERMINATED
        text = f"attempt {self._attempt} on {self._host} gives up: {reason}; its logs say more"
        logger.error("%s", text)
        print(text, file=sys.stderr, flush=True)
        if reason.endswith(REFUSED):
            self._unregister("FAILED", f"{text}\n{self._last_words()}")
        elif self._attempt >= self._launch.attempts:
            self._unregister("FAILED", text)
        return EXIT_FAILED

    def _last_words(self) -> str:
        """Last output of the services: one sentence with the reason why they refuse to run."""
        files = [self._logs / f"{name}.out" for name in SERVICES]
        return "\n".join(file.read_text(encoding="utf-8", errors=ESCAPED)[-2000:] for file in files if file.exists())

    def _unregister(self, status: str, diagnostics: str) -> None:
        try:
            if self._master is None:  # the cluster ended before the JVM was ready: nobody else can report why
                self._register()
            self._remove_staging()
            with yarn_errors("the end of the application can't be reported"):
                self._master.unregister(status, diagnostics[:_DIAGNOSTICS], "")
        except FiresteelError as error:
            logger.error("%s", error)

    def _remove_staging(self) -> None:
        """Remove the staging directory; a failure must not keep the end of the application from being reported."""
        if not self._launch.staging:
            return
        jvm = self._gateway.jvm
        try:
            with yarn_errors(f"the staging directory {self._launch.staging} stays"):
                keytab = keytab_of(jvm, self._settings, self._launch)
                if keytab is not None:
                    keytab.deleteDirectory()
                    return
                path = jvm.org.apache.hadoop.fs.Path(self._launch.staging)
                path.getFileSystem(jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()).delete(path, True)
        except FiresteelError as error:
            logger.warning("%s", error)


def main() -> int:
    """Run the ApplicationMaster; returns the exit code."""
    folder, logs = Path.cwd(), Path(os.environ["LOG_DIRS"].partition(",")[0])
    setup_logging(file=logs / f"{NAME}.log")
    try:
        return ApplicationMaster(folder, logs, os.environ["NM_HOST"], os.environ["CONTAINER_ID"]).run()
    except (FiresteelError, OSError, ValueError) as error:
        logger.exception("the ApplicationMaster could not start")
        print(f"firesteel-{NAME}: {error}", file=sys.stderr, flush=True)
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
