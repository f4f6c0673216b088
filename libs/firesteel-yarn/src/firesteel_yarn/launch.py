"""What containers are started with: a plain description, which travels with the application, and how YARN is told.

The client makes it; the ApplicationMaster starts TaskManagers by it. It holds no secrets: these are credentials.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from firesteel.config import options
from firesteel.config.kerberos import login_keytab
from firesteel.config.settings import Settings

LAUNCH_FILE: Final = "firesteel-launch.json"
CONF_LINK: Final = "__hadoop_conf__"
PACKAGES_LINK: Final = "__packages__"
ENVIRONMENT_LINK: Final = "__environment__"
FILE, ARCHIVE = "FILE", "ARCHIVE"
APPLICATION, PRIVATE, PUBLIC = "APPLICATION", "PRIVATE", "PUBLIC"


@dataclass(frozen=True)
class Shipped:
    """A file that YARN brings to containers.

    Attributes:
        name: in the container's directory.
        uri: where it is.
        size, timestamp: of it there, bytes and milliseconds; YARN refuses one that was changed.
        kind: FILE, or ARCHIVE, which YARN unpacks.
        visibility: for whom a node keeps it: PUBLIC, PRIVATE (this user), APPLICATION.
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
        master_environment, taskmanager_environment: more of them.
        megabytes, cores: of a TaskManager's container.
        label: of the nodes for TaskManagers; empty: any.
        attempts: how many ApplicationMasters YARN may start.
        staging: the application's own directory, which goes with it.
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
        """What ``to_json`` gave.

        Raises:
            OSError: it can't be read.
            ValueError: it is something else.
        """
        try:
            plain = json.loads(path.read_text())
            return cls(**{**plain, "shipped": tuple(Shipped(**one) for one in plain["shipped"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is no description of containers: {error}") from error

    def command(self, *words: str, out: str) -> str:
        """The shell's line of a container's command.

        Args:
            words: behind the interpreter; ``{{...}}`` and ``<...>`` are YARN's, all else is quoted.
            out: beginning of the names of the files, among the container's logs, for what it prints.
        """
        quoted = [word if word.startswith(("{{", "<LOG_DIR>")) or "{{" in word else shlex.quote(word) for word in words]
        return " ".join(["exec", self.python, "-P", *quoted, f"1><LOG_DIR>/{out}.out", f"2><LOG_DIR>/{out}.err"])


def keytab_of(jvm: Any, settings: Settings, launch: Launch) -> Any:
    """A ``Keytab`` of Java's, where settings name one and Hadoop is secured by Kerberos; else None."""
    keytab, principal = login_keytab(settings), settings.get(options.KERBEROS_PRINCIPAL)
    if keytab is None or principal is None:
        return None
    if not jvm.org.apache.hadoop.security.UserGroupInformation.isSecurityEnabled():
        return None
    return jvm.firesteel.yarn.Keytab(principal, keytab, launch.staging)


def fill(jvm: Any, launch: Launch, more: Iterable[Shipped], environment: Mapping[str, str], command: str) -> Any:
    """A ``Launches`` of Java's with all of it but credentials.

    Args:
        jvm: py4j's view of the JVM.
        launch: for every container.
        more: files of this one.
        environment: more variables of this one.
        command: of ``Launch.command``.
    """
    made = jvm.firesteel.yarn.Launches()
    for one in (*launch.shipped, *more):
        made.resource(one.name, one.uri, one.size, one.timestamp, one.kind, one.visibility)
    for name, value in {**launch.environment, **environment}.items():
        made.variable(name, value)
    made.command(command)
    return made
