"""The description of an application's containers, which travels with the application, and its translation for YARN.

The client writes it, and the ApplicationMaster starts TaskManagers by it. It has no secrets: these are credentials.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from firesteel.config import options
from firesteel.config.derived import login_keytab
from firesteel.config.settings import Settings

LAUNCH_FILE: Final = "firesteel-launch.json"
CONF_LINK: Final = "__hadoop_conf__"
PACKAGES_LINK: Final = "__packages__"
ENVIRONMENT_LINK: Final = "__environment__"
FILE, ARCHIVE = "FILE", "ARCHIVE"
APPLICATION, PRIVATE, PUBLIC = "APPLICATION", "PRIVATE", "PUBLIC"


@dataclass(frozen=True)
class Shipped:
    """A file that YARN copies to containers.

    Attributes:
        name: in the container's directory.
        uri: of the file.
        size: in bytes.
        timestamp: of its last change, milliseconds; YARN refuses a file that was changed later.
        kind: FILE, or ARCHIVE, which YARN unpacks.
        visibility: for whom a node caches it: PUBLIC, PRIVATE (this user), APPLICATION.
    """

    name: str
    uri: str
    size: int
    timestamp: int
    kind: str = FILE
    visibility: str = APPLICATION


@dataclass(frozen=True)
class Launch:
    """How the containers of an application are started.

    Attributes:
        python: command of the interpreter; ``{{PWD}}`` is the container's directory.
        shipped: files of every container.
        environment: variables of every container.
        master_environment: additional variables of the ApplicationMaster.
        taskmanager_environment: additional variables of TaskManagers.
        megabytes: of a TaskManager's container.
        cores: of a TaskManager's container.
        label: of the nodes for TaskManagers; empty = any.
        attempts: number of ApplicationMasters that YARN may start.
        staging: the application's own directory, which is removed with it.
    """

    python: str
    shipped: tuple[Shipped, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    master_environment: Mapping[str, str] = field(default_factory=dict)
    taskmanager_environment: Mapping[str, str] = field(default_factory=dict)
    megabytes: int = 1728
    cores: int = 1
    label: str = ""
    attempts: int = 1
    staging: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, path: Path) -> Launch:
        """Inverse of ``to_json``, from a file.

        Raises:
            OSError: it can't be read.
            ValueError: it is no such description.
        """
        try:
            plain = json.loads(path.read_text())
            return cls(**{**plain, "shipped": tuple(Shipped(**file) for file in plain["shipped"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is no description of containers: {error}") from error

    def command(self, *words: str, out: str) -> str:
        """Command of a container, as a line for the shell.

        Args:
            words: after the interpreter; ``{{...}}`` and ``<...>`` are YARN's, everything else is quoted.
            out: prefix of the names of the container's log files for its output.
        """
        quoted = [word if word.startswith(("{{", "<LOG_DIR>")) or "{{" in word else shlex.quote(word) for word in words]
        return " ".join(["exec", self.python, "-P", *quoted, f"1><LOG_DIR>/{out}.out", f"2><LOG_DIR>/{out}.err"])


def keytab_of(jvm: Any, settings: Settings, launch: Launch) -> Any:
    """A Java ``Keytab``, if one is configured and Hadoop is secured by Kerberos; else None."""
    keytab, principal = login_keytab(settings), settings.get(options.KERBEROS_PRINCIPAL)
    if keytab is None or principal is None:
        return None
    if not jvm.org.apache.hadoop.security.UserGroupInformation.isSecurityEnabled():
        return None
    return jvm.firesteel.yarn.Keytab(principal, keytab, launch.staging)


def fill(jvm: Any, launch: Launch, more: Iterable[Shipped], environment: Mapping[str, str], command: str) -> Any:
    """A Java ``Launches`` with everything but credentials.

    Args:
        jvm: py4j's view of the JVM.
        launch: for every container.
        more: additional files of this one.
        environment: additional variables of this one.
        command: from ``Launch.command``.
    """
    container = jvm.firesteel.yarn.Launches()
    for file in (*launch.shipped, *more):
        container.resource(file.name, file.uri, file.size, file.timestamp, file.kind, file.visibility)
    for name, value in {**launch.environment, **environment}.items():
        container.variable(name, value)
    container.command(command)
    return container
