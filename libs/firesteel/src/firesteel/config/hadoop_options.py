"""Options of HDFS, and of Kerberos, by which its users are known."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from firesteel.config.option import BOOL, DURATION, MEMORY, STRING, Option

_MILLISECOND = timedelta(milliseconds=1)

HADOOP_CONF_DIR: Option[str | None] = Option(
    "env.hadoop.conf.dir",
    STRING,
    None,
    "Directory with core-site.xml and hdfs-site.xml, on each host, for hdfs:// paths, and with yarn-site.xml for "
    "commands that start clusters on YARN. Not set: the variable HADOOP_CONF_DIR of the processes, else HADOOP_HOME "
    "for paths and YARN_CONF_DIR for YARN; a path that names host and port needs none.",
)
HDFS_REQUEST_TIMEOUT = Option(
    "firesteel.hdfs.request-timeout",
    DURATION,
    timedelta(seconds=15),
    "How long a request to HDFS may take, be it a question or the transfer of a part.",
    at_least=_MILLISECOND,
)
HDFS_RETRY_TIMEOUT = Option(
    "firesteel.hdfs.retry-timeout",
    DURATION,
    timedelta(seconds=20),
    "After this time no further attempt at a request to HDFS begins.",
    at_least=timedelta(0),
)
HDFS_PART_SIZE = Option(
    "firesteel.hdfs.part-size",
    MEMORY,
    4 << 20,
    "State and files on hdfs:// are appended and synced in parts of this size; of very large files, later parts are "
    "larger. A checkpoint holds what file sinks have written behind the last part.",
    unit="bytes",
    at_least=64 << 10,
    at_most=1 << 30,
)
KERBEROS_KEYTAB: Option[str | None] = Option(
    "security.kerberos.login.keytab",
    STRING,
    None,
    "Absolute path of the file with the keys of the user, on each host; with security.kerberos.login.principal.",
)
KERBEROS_PRINCIPAL: Option[str | None] = Option(
    "security.kerberos.login.principal",
    STRING,
    None,
    "The user's name in Kerberos, as flink@EXAMPLE.ORG, of the keys in security.kerberos.login.keytab.",
)
KERBEROS_TICKET_CACHE = Option(
    "security.kerberos.login.use-ticket-cache",
    BOOL,
    True,
    "Without a keytab, be the user whose tickets kinit has got (the variable KRB5CCNAME says where they are). Where it "
    "is off, only a keytab or delegation tokens will do.",
)
KERBEROS_CONTEXTS = Option(
    "security.kerberos.login.contexts",
    STRING,
    "",
    "What the user of Kerberos is shown to beside HDFS and YARN, with commas between: Client = ZooKeeper.",
)
KRB5_CONF: Option[str | None] = Option(
    "security.kerberos.krb5-conf.path",
    STRING,
    None,
    "Path of Kerberos' own configuration. Not set: the variable KRB5_CONFIG of the processes, else /etc/krb5.conf.",
)
HDFS_OPTIONS: Final[tuple[Option[Any], ...]] = (
    HADOOP_CONF_DIR,
    HDFS_PART_SIZE,
    HDFS_REQUEST_TIMEOUT,
    HDFS_RETRY_TIMEOUT,
    KERBEROS_KEYTAB,
    KERBEROS_PRINCIPAL,
    KERBEROS_TICKET_CACHE,
    KRB5_CONF,
)
"""What a client of HDFS reads."""
