"""Options of clusters on YARN."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from firesteel.config.option import BOOL, DURATION, INT, LIST, STRING, Option

_ZERO = timedelta(0)
_MILLISECOND = timedelta(milliseconds=1)

YARN_APPLICATION_ID: Option[str | None] = Option(
    "yarn.application.id",
    STRING,
    None,
    "The application on YARN whose cluster is meant, as `yarn application -list` shows it. Verbs of `firesteel` find "
    "its REST API, and the token for it, by this id.",
)
YARN_NAME: Option[str | None] = Option(
    "yarn.application.name", STRING, None, "Name of the application on YARN. Not set: what kind of cluster it is."
)
YARN_QUEUE: Option[str | None] = Option(
    "yarn.application.queue", STRING, None, "The queue on YARN. Not set: what YARN says."
)
YARN_TYPE = Option("yarn.application.type", STRING, "Firesteel", "Type of the application, as YARN shows it.")
YARN_PRIORITY = Option(
    "yarn.application.priority",
    INT,
    -1,
    "Priority of the application in its queue; greater ones come first. Less than 0: what YARN says.",
)
YARN_TAGS = Option(
    "yarn.tags", STRING, "", "Tags of the application, by which YARN finds it, with commas between them."
)
YARN_NODE_LABEL: Option[str | None] = Option(
    "yarn.application.node-label", STRING, None, "Label of the nodes that the application's containers run on."
)
YARN_TASKMANAGER_NODE_LABEL: Option[str | None] = Option(
    "yarn.taskmanager.node-label",
    STRING,
    None,
    "Label of the nodes that TaskManagers run on. Not set: yarn.application.node-label.",
)
YARN_ATTEMPTS: Option[int | None] = Option(
    "yarn.application-attempts",
    INT,
    None,
    "How often YARN may start the ApplicationMaster. Not set: 2 with high availability on ZooKeeper or in a directory "
    "that hosts share, else 1. YARN's own yarn.resourcemanager.am.max-attempts bounds it.",
    at_least=1,
)
YARN_ATTEMPTS_WINDOW = Option(
    "yarn.application-attempt-failures-validity-interval",
    DURATION,
    timedelta(seconds=10),
    "Only attempts that failed within this time count for yarn.application-attempts. -1: all do.",
    at_least=timedelta(milliseconds=-1),
)
YARN_APPMASTER_VCORES = Option(
    "yarn.appmaster.vcores", INT, 1, "Cores of the ApplicationMaster's container.", at_least=1
)
YARN_VCORES = Option(
    "yarn.containers.vcores",
    INT,
    -1,
    "Cores of a TaskManager's container. -1: as many as it has slots.",
    at_least=-1,
)
YARN_HEARTBEAT = Option(
    "yarn.heartbeat.interval",
    INT,
    5,
    "Seconds between heartbeats of the ApplicationMaster; YARN gives it up after "
    "yarn.am.liveness-monitor.expiry-interval-ms without one.",
    unit="seconds",
    at_least=1,
)
YARN_HURRY = Option(
    "yarn.heartbeat.container-request-interval",
    DURATION,
    timedelta(milliseconds=500),
    "The same while containers are waited for.",
    at_least=_MILLISECOND,
)
YARN_STAGING: Option[str | None] = Option(
    "yarn.staging-directory",
    STRING,
    None,
    "Directory that all nodes see, below which `.firesteel` holds what containers are given. Not set: the user's home "
    "in YARN's default file system.",
)
YARN_REPLICATION = Option(
    "yarn.file-replication",
    INT,
    -1,
    "Replicas of the files that containers are given. -1: what the file system does by itself.",
    at_least=-1,
)
YARN_SHIP_FILES: Option[tuple[str, ...]] = Option(
    "yarn.ship-files",
    LIST,
    (),
    "Files and directories that lie in the working directory of each container, by their names; separated by ;. Paths "
    "with a scheme (hdfs:) are taken from where they are.",
)
YARN_SHIP_ARCHIVES: Option[tuple[str, ...]] = Option(
    "yarn.ship-archives",
    LIST,
    (),
    "Archives (.zip, .tar, .tar.gz, .tgz) that YARN unpacks in the working directory of each container, each into a "
    "directory of its name; separated by ;.",
)
YARN_PYTHON_EXECUTABLE: Option[str | None] = Option(
    "firesteel.yarn.python.executable",
    STRING,
    None,
    "Python of an environment with Firesteel that is on all nodes (an absolute path), or of the archive of "
    "firesteel.yarn.python.archive (relative to it, such as bin/python). Not set: the packages of this command are "
    "shipped, and nodes need firesteel.yarn.python.interpreter.",
    fallback_keys=("yarn.python.executable",),
)
YARN_PYTHON_ARCHIVE: Option[str | None] = Option(
    "firesteel.yarn.python.archive",
    STRING,
    None,
    "A packed environment with Firesteel in it, as of conda-pack or venv-pack: here, or with a scheme (hdfs:). YARN "
    "unpacks it once on each node.",
    fallback_keys=("yarn.python.archive",),
)
YARN_PYTHON_INTERPRETER: Option[str | None] = Option(
    "firesteel.yarn.python.interpreter",
    STRING,
    None,
    "Python of the nodes that runs the packages of this command, of the same minor version; used where neither "
    "firesteel.yarn.python.executable nor firesteel.yarn.python.archive is set. Not set: python3.x, as here, on the "
    "nodes' PATH.",
)
YARN_PROVIDED: Option[tuple[str, ...]] = Option(
    "yarn.provided.lib.dirs",
    LIST,
    (),
    "Directories that all nodes see, with the archives that `firesteel yarn-session` would upload: an archive that is "
    "there by its name is taken from there. Separated by ;.",
)
YARN_VIEW_ACLS: Option[str | None] = Option(
    "yarn.view.acls",
    STRING,
    None,
    "Users and groups that may see the application and its logs, as YARN writes it: user1,user2 group1; * = all.",
)
YARN_MODIFY_ACLS: Option[str | None] = Option(
    "yarn.modify.acls", STRING, None, "The same for those that may kill it.", fallback_keys=("yarn.admin.acls",)
)
YARN_LOGS_INCLUDE: Option[str | None] = Option(
    "yarn.rolled-logs.include-pattern",
    STRING,
    None,
    "Log files, by a Java pattern, that YARN collects while the application still runs. Not set: none.",
)
YARN_LOGS_EXCLUDE: Option[str | None] = Option(
    "yarn.rolled-logs.exclude-pattern", STRING, None, "Of these, those that it leaves out."
)
YARN_SHIP_KEYTAB = Option(
    "yarn.security.kerberos.ship-local-keytab",
    BOOL,
    True,
    "Whether containers are given security.kerberos.login.keytab. If not, it lies on all nodes, at that path.",
)
YARN_LOCALIZED_KEYTAB = Option(
    "yarn.security.kerberos.localized-keytab-path",
    STRING,
    "krb5.keytab",
    "Its name in the working directory of each container.",
)
YARN_NODE_FAILURES = Option(
    "firesteel.yarn.node-failures",
    INT,
    3,
    "A node on which so many TaskManagers have failed within firesteel.yarn.node-exclusion gets no more. 0: any number "
    "may.",
    at_least=0,
)
YARN_NODE_EXCLUSION = Option(
    "firesteel.yarn.node-exclusion",
    DURATION,
    timedelta(minutes=10),
    "For how long such a node gets no TaskManagers.",
    at_least=_MILLISECOND,
)
YARN_JVM_OPTIONS: Option[str | None] = Option(
    "firesteel.yarn.jvm-options",
    STRING,
    None,
    "Options of the JVMs that speak to YARN, of the client and in the ApplicationMaster, such as "
    "-Djava.security.krb5.conf=/etc/krb5.conf.",
)
MASTER_ENVIRONMENT: Final = "containerized.master.env."
"""Prefix of options, each of which names a variable of the ApplicationMaster's environment."""
TASKMANAGER_ENVIRONMENT: Final = "containerized.taskmanager.env."
"""Prefix of options, each of which names a variable of a TaskManager's environment."""
ENVIRONMENT_PREFIXES: Final = (MASTER_ENVIRONMENT, TASKMANAGER_ENVIRONMENT)
