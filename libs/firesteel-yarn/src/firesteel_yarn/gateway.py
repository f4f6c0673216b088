"""A JVM with Hadoop's clients, which are among PySpark's jars; Python uses it through py4j (``Gateway.java``)."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from firesteel.config import options
from firesteel.config.settings import Settings
from firesteel.core.errors import ConfigurationError, FiresteelError
from firesteel.core.files import replace_file
from firesteel.spark.context import reason_of
from firesteel.spark.driver import GatewayAddress, wait_for_gateway
from firesteel.spark.java import find_java
from firesteel.spark.jvm import child_environment, command_line, spark_home
from firesteel.spark.own_classes import JAR
from firesteel.spark.owned_process import OwnedProcess
from firesteel.spark.quiet import without_py4j_log

_JARS: Final = (
    "hadoop-client-api", "hadoop-client-runtime", "py4j", "slf4j-api", "log4j-", "jcl-over-slf4j", "commons-logging",
)  # fmt: skip
"""Jars of PySpark that Hadoop's clients need; the JVM opens these few much faster than all."""
_HEAP_MB: Final = 128
_ANSWER_SECONDS: Final = 120.0
_END_SECONDS: Final = 2.0
_RECORD: Final = "application-master.json"
"""Private file in the cluster's directory with the address of the ApplicationMaster's JVM, for the ResourceManager."""
CONF_VARIABLES: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_KRB5_CONF: Final = "security.kerberos.krb5-conf.path"
CONF_FILES: Final = ("core-site.xml", "hdfs-site.xml", "yarn-site.xml", "ssl-client.xml")


class YarnError(FiresteelError):
    """YARN or the file system below it has refused something; the message says what, and why."""


def hadoop_configuration(settings: Settings) -> Path:
    """The directory with the configuration of Hadoop's clients.

    Raises:
        ConfigurationError: it is not configured, or has no ``yarn-site.xml``.
    """
    named = settings.get(options.HADOOP_CONF_DIR)
    folder = named or next((os.environ[name] for name in CONF_VARIABLES if os.environ.get(name)), None)
    if folder is None:
        raise ConfigurationError(
            "the place of YARN is unknown: set HADOOP_CONF_DIR (or env.hadoop.conf.dir) to the directory with "
            "core-site.xml and yarn-site.xml"
        )
    if not (Path(folder) / "yarn-site.xml").is_file():
        raise ConfigurationError(f"there is no yarn-site.xml in {folder}, which HADOOP_CONF_DIR or settings name")
    return Path(folder).absolute()


class HadoopJvm(OwnedProcess):
    """A JVM with Hadoop's clients. It ends with the process that has started it.

    Args:
        conf: directory of Hadoop's configuration.
        scratch: an existing directory of mode 0700, for its logs and temporary files.
        settings: of the cluster.

    Raises:
        FleetError: it can't be started.
    """

    def __init__(self, conf: Path, scratch: Path, settings: Settings) -> None:
        self._info = scratch / "gateway"
        self._info.unlink(missing_ok=True)
        jars = sorted(path for path in (spark_home() / "jars").glob("*.jar") if path.name.startswith(_JARS))
        command = command_line(
            find_java(settings.get(options.JAVA_HOME)),
            "firesteel.yarn.Gateway",
            scratch=scratch,
            heap_mb=_HEAP_MB,
            flags=[
                "-Djava.net.preferIPv4Stack=true",
                *_kerberos_flags(settings),
                *shlex.split(settings.get(options.YARN_JVM_OPTIONS) or ""),
            ],
            arguments=[str(self._info)],
            on_path=[str(conf), *map(str, jars), str(JAR)],
        )
        super().__init__("Java", command, child_environment(os.environ, {}), scratch / "hadoop.log")

    def is_ready(self) -> bool:
        return self._info.exists()

    def wait_ready(self) -> GatewayAddress:
        """Wait until the JVM listens.

        Raises:
            FleetError: it ended, or was not ready in time.
        """
        return wait_for_gateway(self, self._info)


def _kerberos_flags(settings: Settings) -> list[str]:
    """Flags for a Kerberos configuration that is not in its usual place: Java does not know the variable."""
    named = settings.to_plain().get(_KRB5_CONF) or os.environ.get("KRB5_CONFIG")
    return [] if named is None else [f"-Djava.security.krb5.conf={named}"]


def attach(address: GatewayAddress) -> Any:
    """Connect py4j to such a JVM, whoever has started it. Any number of threads may use the gateway."""
    from py4j.java_gateway import GatewayParameters, JavaGateway

    return JavaGateway(
        gateway_parameters=GatewayParameters(
            port=address.port, auth_token=address.secret, auto_convert=True, read_timeout=_ANSWER_SECONDS
        )
    )


def hang_up(gateway: Any) -> None:
    """Close the connections to a JVM, which goes on running and hears nothing of objects that are forgotten later."""
    gateway.close()
    gateway._gateway_client.is_connected = False


def record_gateway(cluster_directory: Path, address: GatewayAddress) -> None:
    """Record that the attempt is registered with YARN, and the address of its JVM.

    Raises:
        OSError: it can't be written.
    """
    plain = {"port": address.port, "secret": address.secret}
    replace_file(cluster_directory / _RECORD, json.dumps(plain).encode(), durable=False)


def recorded_gateway(cluster_directory: Path) -> GatewayAddress | None:
    """Address that ``record_gateway`` has written; None = the attempt is not registered yet."""
    try:
        plain = json.loads((cluster_directory / _RECORD).read_text())
        return GatewayAddress(plain["port"], plain["secret"])
    except FileNotFoundError:
        return None


@contextmanager
def hadoop_jvm(settings: Settings) -> Iterator[Any]:
    """Run a JVM for this block; yields py4j's gateway to it.

    Raises:
        ConfigurationError: the place of YARN is unknown.
        FleetError: the JVM can't be started.
    """
    conf = hadoop_configuration(settings)
    with TemporaryDirectory(prefix="firesteel-yarn-") as scratch:
        jvm = HadoopJvm(conf, Path(scratch), settings)
        try:
            gateway = attach(jvm.wait_ready())
            try:
                yield gateway
            finally:
                hang_up(gateway)
        finally:
            jvm.end(_END_SECONDS)


@contextmanager
def yarn_errors(problem: str) -> Iterator[None]:
    """Turn Java's errors within this block into one sentence.

    Raises:
        YarnError: an error occurred.
    """
    from py4j.protocol import Py4JError

    try:
        with without_py4j_log():
            yield
    except (Py4JError, OSError) as error:
        reason = reason_of(error).splitlines()[0] if reason_of(error) else type(error).__name__
        raise YarnError(f"{problem}: {reason}") from error
