"""The client's side of applications on YARN: submits, finds, observes and ends them."""

from __future__ import annotations

import logging
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

from firesteel.config import options
from firesteel.config.addresses import is_loopback, leaders_are_announced
from firesteel.config.derived import KEYTAB_VARIABLE
from firesteel.config.load import CONFIG_FILE
from firesteel.config.memory import has_memory_options, taskmanager_memory
from firesteel.config.settings import Settings
from firesteel.core.errors import ConfigurationError
from firesteel.core.secret import rest_token
from firesteel.spark.quiet import without_py4j_log
from firesteel_yarn.gateway import YarnError, hadoop_configuration, hadoop_jvm, yarn_errors
from firesteel_yarn.launch import (
    CONF_LINK,
    ENVIRONMENT_LINK,
    LAUNCH_FILE,
    PACKAGES_LINK,
    Launch,
    Shipped,
    fill,
)
from firesteel_yarn.packages import packages_here
from firesteel_yarn.staging import ENDED, TOKEN, Staging, duplicate_name
from firesteel_yarn.token_file import SECRET

logger = logging.getLogger(__name__)
DEFAULT_PROCESS_SIZE: Final = "1728m"
"""Size of a TaskManager if none is configured, from Flink's own example. A container must have a size."""
_HERE: Final = "{{PWD}}"
_MIB: Final = 1 << 20
_POLL: Final = 0.2
_KEYTAB: Final = "security.kerberos.login.keytab"
_PRINCIPAL: Final = "security.kerberos.login.principal"
_MASTER: Final = "application-master"
_NOT_KNOWN: Final = "ApplicationNotFoundException"
_EVERYWHERE: Final = "0.0.0.0"
_NOT_HANDED_ON: Final = (
    options.REST_ADDRESS, options.REST_PORT, options.JOBMANAGER_RPC_ADDRESS, options.JOBMANAGER_RPC_PORT,
    options.DISPATCHER_ADDRESS, options.RESOURCEMANAGER_ADDRESS, options.RESOURCEMANAGER_PORT,
    options.JOBMASTER_ADDRESS, options.JOBMASTER_PORT, options.TASKMANAGER_HOST, options.TASKMANAGER_RPC_PORT,
    options.TASKMANAGER_RESOURCE_ID, options.SECRET_FILE, options.CLUSTER_DIRECTORY, options.LOG_DIRECTORY,
    options.YARN_APPLICATION_ID, options.EXECUTION_TARGET, options.EXECUTION_ATTACHED,
    options.EXECUTION_SHUTDOWN_ON_ATTACHED_EXIT, options.HADOOP_CONF_DIR, options.REST_TOKEN_FILE,
)  # fmt: skip
"""Options that may come from the config.yaml of another cluster, or that containers find out by themselves."""


@dataclass(frozen=True)
class Report:
    """YARN's report of an application.

    Attributes:
        id: of the application.
        state: NEW, NEW_SAVING, SUBMITTED, ACCEPTED, RUNNING, FINISHED, FAILED or KILLED.
        final: UNDEFINED, SUCCEEDED, FAILED or KILLED.
        kind: its type.
        rest: URL of the REST API; empty until its ApplicationMaster has announced it.
        tracking: URL through YARN's proxy.
        diagnostics: text of YARN, or of the application at its end.
        user: of the application.
        queue: of the application.
        name: of the application.
    """

    id: str
    state: str
    final: str
    kind: str
    rest: str
    tracking: str
    diagnostics: str
    user: str
    queue: str
    name: str

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


@dataclass(frozen=True)
class YarnSubmission:
    """A cluster to submit as an application on YARN.

    Attributes:
        settings: of the cluster, as the client has them.
        name: of the application, unless the settings have one.
        ship: files, directories of this host, or URIs, by their names in the containers.
        token: of the REST API; None = the settings name none.
    """

    settings: Settings
    name: str
    ship: Mapping[str, str] = field(default_factory=dict)
    token: str | None = None


class Yarn:
    """YARN, as this user sees it. Created by ``connected``."""

    def __init__(self, gateway: Any, settings: Settings, conf: Path) -> None:
        self._settings, self._conf, self._gateway = settings, conf, gateway
        self._jvm = gateway.jvm
        with yarn_errors("YARN can't be reached"):
            self._configuration = self._jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
            self._log_in()
            self._user = self._jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser()
            self._client = self._jvm.org.apache.hadoop.yarn.client.api.YarnClient.createYarnClient()
            self._client.init(self._configuration)
            self._client.start()

    def _log_in(self) -> None:
        """Log in with a keytab, if one is configured; else the user with a ticket is used."""
        users = self._jvm.org.apache.hadoop.security.UserGroupInformation
        users.setConfiguration(self._configuration)
        plain = self._settings.to_plain()
        keytab, principal = plain.get(_KEYTAB), plain.get(_PRINCIPAL)
        if users.isSecurityEnabled() and keytab is not None and principal is not None:
            users.loginUserFromKeytab(principal, keytab)

    # -- applications that are there

    def report(self, application: str) -> Report:
        """YARN's report of an application.

        Raises:
            ConfigurationError: this is no id of an application.
            YarnError: YARN does not know the application, or does not answer.
        """
        application_id = self._id(application)
        with yarn_errors(f"YARN does not tell of {application}"):
            report = self._client.getApplicationReport(application_id)
            return Report(
                id=application,
                state=str(report.getYarnApplicationState()),
                final=str(report.getFinalApplicationStatus()),
                kind=str(report.getApplicationType()),
                rest=rest_address(str(report.getOriginalTrackingUrl() or ""), application),
                tracking=str(report.getTrackingUrl() or ""),
                diagnostics=str(report.getDiagnostics() or "").strip(),
                user=str(report.getUser()),
                queue=str(report.getQueue()),
                name=str(report.getName()),
            )

    def _id(self, application: str) -> Any:
        try:
            with without_py4j_log():
                return self._jvm.org.apache.hadoop.yarn.api.records.ApplicationId.fromString(application)
        except Exception as error:  # py4j's, for any text that is no id
            raise ConfigurationError(
                f"{application!r} is no id of an application on YARN, such as application_1732402800000_0001"
            ) from error

    def kill(self, application: str) -> None:
        """Let YARN end an application at once, whatever runs in it.

        Raises:
            YarnError: YARN refuses.
        """
        application_id = self._id(application)
        with yarn_errors(f"{application} can't be killed"):
            self._client.killApplication(application_id)
        Staging(self._jvm, self._configuration, self._settings, application, Path()).remove()

    def token(self, application: str) -> str | None:
        """Token of an application's REST API; None = somebody else submitted it, or it has ended.

        Raises:
            YarnError: the file system does not answer.
        """
        staging = Staging(self._jvm, self._configuration, self._settings, application, Path())
        with yarn_errors(f"the token of {application} can't be read"):
            path = self._jvm.org.apache.hadoop.fs.Path(staging.path, TOKEN)
            system = path.getFileSystem(self._configuration)
            if not system.exists(path):
                return None
            stream = system.open(path)
            try:
                return bytes(stream.readAllBytes()).decode().strip()
            finally:
                stream.close()

    def wait(self, application: str, is_reached: Callable[[Report], bool], say: Callable[[str], None]) -> Report:
        """Wait until a report fulfils a condition, or the application has ended; ``say`` is told reasons for waiting.

        Raises:
            YarnError: YARN does not answer.
        """
        last_note = ""
        while True:
            report = self.report(application)
            if is_reached(report) or report.has_ended:
                return report
            if report.state in ("ACCEPTED", "SUBMITTED") and report.diagnostics and report.diagnostics != last_note:
                last_note = report.diagnostics
                if "not yet activated" in last_note or "exceed" in last_note.lower() or "limit" in last_note.lower():
                    say(f"{application} waits in the queue {report.queue}: {last_note}")
            time.sleep(_POLL)

    def logs(self, application: str, out: Path) -> bool:
        """Write the logs that YARN has collected from containers into a file; False = there are none.

        Raises:
            YarnError: it can't be read.
        """
        application_id = self._id(application)
        report = self.report(application)
        with yarn_errors(f"the logs of {application} can't be read"):
            jvm = self._jvm
            request = jvm.org.apache.hadoop.yarn.logaggregation.ContainerLogsRequest()
            request.setAppId(application_id)
            request.setAppOwner(report.user)
            request.setBytes((1 << 63) - 1)
            request.setLogTypes(jvm.java.util.HashSet())
            reader = jvm.org.apache.hadoop.yarn.logaggregation.LogCLIHelpers()
            reader.setConf(self._configuration)
            stream = jvm.java.io.PrintStream(str(out))
            standard_output = jvm.java.lang.System.out
            jvm.java.lang.System.setOut(stream)
            try:
                code = int(reader.dumpAllContainersLogs(request))
            finally:
                jvm.java.lang.System.setOut(standard_output)
                stream.close()
        return code == 0

    def containers(self, application: str) -> list[tuple[str, str, str]]:
        """The running containers: id, node, URL of the logs.

        Raises:
            YarnError: YARN does not answer.
        """
        application_id = self._id(application)
        with yarn_errors(f"YARN does not tell of the containers of {application}"):
            attempt = self._client.getApplicationReport(application_id).getCurrentApplicationAttemptId()
            return [
                (str(container.getContainerId()), str(container.getAssignedNode()), str(container.getLogUrl() or ""))
                for container in self._client.getContainers(attempt).toArray()
            ]

    # -- a new one

    def submit(self, submission: YarnSubmission) -> str:
        """Submit a cluster; returns the id of its application, before anything of it runs.

        Raises:
            ConfigurationError: the settings are wrong.
            YarnError: YARN or the file system refuses.
        """
        settings = submission.settings
        with yarn_errors("YARN gives no new application"):
            new_application = self._client.createApplication()
            context = new_application.getApplicationSubmissionContext()
            application = str(context.getApplicationId())
            largest = new_application.getNewApplicationResponse().getMaximumResourceCapability()
            most = int(largest.getMemorySize()), int(largest.getVirtualCores())
        cluster = cluster_settings(settings, application)
        sizes = container_sizes(cluster)
        check_sizes(sizes, *most)
        with TemporaryDirectory(prefix="firesteel-yarn-") as scratch:
            staging = Staging(self._jvm, self._configuration, settings, application, Path(scratch))
            staging.make()
            self._tidy(staging)
            try:
                self._submit(submission, cluster, sizes, staging, context)
            except BaseException:
                staging.remove()
                raise
        return application

    def _tidy(self, staging: Staging) -> None:
        """Remove staging directories of applications that YARN has killed: nobody could do that at the time."""
        try:
            for application in staging.left_over(self._state):
                Staging(self._jvm, self._configuration, self._settings, application, Path()).remove()
                logger.info("%s has ended: its staging directory is removed", application)
        except YarnError as error:
            logger.warning("staging directories of ended applications can't be removed: %s", error)

    def _state(self, application: str) -> str | None:
        """State of an application; None = YARN does not know it."""
        try:
            return self.report(application).state
        except YarnError as error:
            if _NOT_KNOWN in str(error):
                return None
            raise

    def _submit(
        self, submission: YarnSubmission, cluster: Settings, sizes: ContainerSizes, staging: Staging, context: Any
    ) -> None:
        settings = submission.settings
        secret = secrets.token_hex(32)
        python, environment, shipped = self._python(settings, staging)
        shipped.append(staging.ship_configuration(self._conf, CONF_LINK))
        shipped += [staging.ship(text) for text in settings.get(options.YARN_SHIP_FILES)]
        shipped += [staging.ship(text, unpacked=True) for text in settings.get(options.YARN_SHIP_ARCHIVES)]
        shipped += [staging.ship(text, name) for name, text in submission.ship.items()]
        token_settings = {}
        if submission.token is not None:
            shipped.append(staging.upload_text(submission.token, TOKEN))
            token_settings[options.REST_TOKEN_FILE.key] = TOKEN
        else:
            staging.upload_text(rest_token(secret), TOKEN)
        plain = {**cluster.to_plain(), **token_settings}
        shipped.append(staging.upload_text(yaml.safe_dump(plain, allow_unicode=True), CONFIG_FILE))
        environment |= {"HADOOP_CONF_DIR": f"{_HERE}/{CONF_LINK}"}
        keytab = settings.get(options.KERBEROS_KEYTAB)
        if self._is_secure() and keytab is not None and settings.get(options.YARN_SHIP_KEYTAB):
            link = settings.get(options.YARN_LOCALIZED_KEYTAB)
            shipped.append(staging.ship(keytab, link))
            environment[KEYTAB_VARIABLE] = f"FILE:{_HERE}/{link}"
        if not self._is_secure():
            environment["HADOOP_USER_NAME"] = str(self._user.getShortUserName())
        attempts = attempts_of(cluster)
        launch = Launch(
            python=python,
            shipped=tuple(shipped),
            environment=environment,
            master_environment=settings.under(options.MASTER_ENVIRONMENT),
            taskmanager_environment=settings.under(options.TASKMANAGER_ENVIRONMENT),
            megabytes=sizes.megabytes,
            cores=sizes.cores,
            label=settings.get(options.YARN_TASKMANAGER_NODE_LABEL) or settings.get(options.YARN_NODE_LABEL) or "",
            attempts=attempts,
            staging=staging.uri,
        )
        if clash := duplicate_name(launch.shipped):
            raise ConfigurationError(f"two files that are shipped to containers have the name {clash}: rename one")
        description = staging.upload_text(launch.to_json(), LAUNCH_FILE)
        command = launch.command("-m", "firesteel_yarn.container", out=_MASTER)
        with yarn_errors(f"{context.getApplicationId()} can't be submitted"):
            container = fill(self._jvm, launch, [description], launch.master_environment, command)
            container.secret(SECRET, secret.encode())
            if self._is_secure():
                container.credentials(staging.tokens())
            if view := settings.get(options.YARN_VIEW_ACLS):
                container.mayView(view)
            if modify := settings.get(options.YARN_MODIFY_ACLS):
                container.mayModify(modify)
            self._describe(context, submission, sizes, attempts)
            context.setAMContainerSpec(container.make())
            self._client.submitApplication(context)

    def _describe(self, context: Any, submission: YarnSubmission, sizes: ContainerSizes, attempts: int) -> None:
        settings, records = submission.settings, self._jvm.org.apache.hadoop.yarn.api.records
        context.setApplicationName(settings.get(options.YARN_NAME) or submission.name)
        context.setApplicationType(settings.get(options.YARN_TYPE))
        if queue := settings.get(options.YARN_QUEUE):
            context.setQueue(queue)
        if (priority := settings.get(options.YARN_PRIORITY)) >= 0:
            context.setPriority(records.Priority.newInstance(priority))
        if tags := {tag.strip() for tag in settings.get(options.YARN_TAGS).split(",") if tag.strip()}:
            tag_set = self._jvm.java.util.HashSet()
            for tag in sorted(tags):
                tag_set.add(tag)
            context.setApplicationTags(tag_set)
        if label := settings.get(options.YARN_NODE_LABEL):
            context.setNodeLabelExpression(label)
        context.setResource(records.Resource.newInstance(sizes.master_megabytes, sizes.master_cores))
        context.setMaxAppAttempts(attempts)
        window = settings.get(options.YARN_ATTEMPTS_WINDOW)
        if attempts > 1:
            context.setKeepContainersAcrossApplicationAttempts(True)
            context.setAttemptFailuresValidityInterval(round(window / timedelta(milliseconds=1)))
        include = settings.get(options.YARN_LOGS_INCLUDE)
        if include is not None:
            logs = records.LogAggregationContext.newInstance(
                "", "", include, settings.get(options.YARN_LOGS_EXCLUDE) or ""
            )
            context.setLogAggregationContext(logs)

    def _is_secure(self) -> bool:
        return bool(self._jvm.org.apache.hadoop.security.UserGroupInformation.isSecurityEnabled())

    def _python(self, settings: Settings, staging: Staging) -> tuple[str, dict[str, str], list[Shipped]]:
        """Interpreter, variables and files of containers."""
        executable, archive = settings.get(options.YARN_PYTHON_EXECUTABLE), settings.get(options.YARN_PYTHON_ARCHIVE)
        if archive is not None:
            relative = executable or "bin/python"
            if relative.startswith("/"):
                raise ConfigurationError(
                    f"{options.YARN_PYTHON_EXECUTABLE.key} = {relative} has to be relative, since "
                    f"{options.YARN_PYTHON_ARCHIVE.key} is set: it is a Python of the archive"
                )
            return (
                f"{_HERE}/{ENVIRONMENT_LINK}/{relative}",
                {},
                [staging.ship(archive, ENVIRONMENT_LINK, unpacked=True)],
            )
        if executable is not None:
            if not executable.startswith("/"):
                raise ConfigurationError(
                    f"{options.YARN_PYTHON_EXECUTABLE.key} = {executable} has to be an absolute path, the same on all "
                    f"nodes, or {options.YARN_PYTHON_ARCHIVE.key} has to be set"
                )
            return executable, {}, []
        interpreter = settings.get(options.YARN_PYTHON_INTERPRETER) or f"python3.{sys.version_info[1]}"
        shipped = staging.ship_packages(packages_here(), PACKAGES_LINK)
        return interpreter, {"PYTHONPATH": f"{_HERE}/{PACKAGES_LINK}"}, [shipped]


@contextmanager
def connected(settings: Settings) -> Iterator[Yarn]:
    """Connect to YARN for this block.

    Raises:
        ConfigurationError: the place of YARN is unknown.
        YarnError: YARN does not answer.
    """
    conf = hadoop_configuration(settings)
    with hadoop_jvm(settings) as gateway:
        yield Yarn(gateway, settings, conf)


def rest_address(tracking: str, application: str) -> str:
    """URL of the REST API of an application's cluster; empty = it is unknown.

    Args:
        tracking: URL announced by the ApplicationMaster. Between two attempts, and after the last, YARN has the URL of
            its own page about the application here.
        application: its id.
    """
    url = tracking.rstrip("/")
    return url if url.startswith("http") and not url.endswith(f"/cluster/app/{application}") else ""


# -- what follows from settings


@dataclass(frozen=True)
class ContainerSizes:
    """MiB and cores of a TaskManager's container, and of the ApplicationMaster's."""

    megabytes: int
    cores: int
    master_megabytes: int
    master_cores: int


def container_sizes(settings: Settings) -> ContainerSizes:
    """Compute the sizes of containers.

    Args:
        settings: of the cluster, from ``cluster_settings``.

    Raises:
        ConfigurationError: memory options contradict each other.
    """
    cores = settings.get(options.YARN_VCORES)
    return ContainerSizes(
        megabytes=-(-taskmanager_memory(settings).process_size // _MIB),
        cores=settings.get(options.TASKMANAGER_SLOTS) if cores < 1 else cores,
        master_megabytes=-(-settings.get(options.JOBMANAGER_MEMORY) // _MIB),
        master_cores=settings.get(options.YARN_APPMASTER_VCORES),
    )


def check_sizes(sizes: ContainerSizes, megabytes: int, cores: int) -> None:
    """Compare sizes with YARN's largest container.

    Raises:
        ConfigurationError: a container is too large.
    """
    rows: Sequence[tuple[str, int, int, str]] = (
        ("the ApplicationMaster", sizes.master_megabytes, megabytes, f"MiB: lower {options.JOBMANAGER_MEMORY.key}"),
        ("the ApplicationMaster", sizes.master_cores, cores, f"cores: lower {options.YARN_APPMASTER_VCORES.key}"),
        ("a TaskManager", sizes.megabytes, megabytes, f"MiB: lower {options.MEMORY_PROCESS_SIZE.key}"),
        ("a TaskManager", sizes.cores, cores, f"cores: lower {options.TASKMANAGER_SLOTS.key} or "
         f"{options.YARN_VCORES.key}"),
    )  # fmt: skip
    for subject, needed, most, unit in rows:
        if needed > most:
            raise ConfigurationError(f"{subject} needs {needed} and YARN's largest container has {most} {unit}")


def attempts_of(settings: Settings) -> int:
    """Number of ApplicationMasters that YARN may start, one after the other."""
    return settings.get(options.YARN_ATTEMPTS) or (2 if leaders_are_announced(settings) else 1)


def cluster_settings(settings: Settings, application: str) -> Settings:
    """Settings for the config.yaml of a cluster.

    Args:
        settings: of the client.
        application: its id, which is the cluster's id in high availability.
    """
    left_out = {option.key for option in _NOT_HANDED_ON}
    plain = {
        key: text
        for key, text in settings.to_plain().items()
        if key not in left_out and not key.startswith(options.ENVIRONMENT_PREFIXES)
    }
    defaults = {options.HA_CLUSTER_ID.key: application}
    if not has_memory_options(settings):
        defaults[options.MEMORY_PROCESS_SIZE.key] = DEFAULT_PROCESS_SIZE
    for option in (options.JOBMANAGER_BIND_HOST, options.TASKMANAGER_BIND_HOST, options.REST_BIND_ADDRESS):
        if is_loopback(settings.get(option)):  # containers are on several hosts
            plain[option.key] = _EVERYWHERE
    if not settings.is_set(options.REST_TOKEN_FILE):
        defaults[options.REST_ALLOW_UNAUTHENTICATED.key] = "true"  # YARN's proxy does not forward tokens
    forced = {options.RESOURCEMANAGER_DRIVER.key: "yarn"}
    return Settings.from_plain({**defaults, **plain, **forced})
