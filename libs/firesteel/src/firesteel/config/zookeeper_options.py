"""Options of high availability on ZooKeeper."""

from __future__ import annotations

from datetime import timedelta

from firesteel.config.option import BOOL, DURATION, INT, SECRET, STRING, Option, Secret, enum_of

_MILLISECOND = timedelta(milliseconds=1)

ZOOKEEPER_QUORUM: Option[str | None] = Option(
    "high-availability.zookeeper.quorum",
    STRING,
    None,
    "Servers of high-availability.type: zookeeper, host:port with commas between them; a path behind the last one "
    "(/apps) goes before high-availability.zookeeper.path.root.",
)
ZOOKEEPER_ROOT = Option(
    "high-availability.zookeeper.path.root",
    STRING,
    "/firesteel",
    "Node of ZooKeeper below which clusters have theirs, each with the name high-availability.cluster-id. Flink's "
    "default is /flink; its own clusters must not have the same.",
)
ZOOKEEPER_SESSION_TIMEOUT = Option(
    "high-availability.zookeeper.client.session-timeout",
    DURATION,
    timedelta(seconds=60),
    "So long after a process was heard last ZooKeeper takes its leadership away; the servers may bring it between "
    "limits of their own. A leader that has not reached ZooKeeper for two thirds of it ends.",
    at_least=_MILLISECOND,
)
ZOOKEEPER_CONNECTION_TIMEOUT = Option(
    "high-availability.zookeeper.client.connection-timeout",
    DURATION,
    timedelta(seconds=15),
    "How long a process waits for a connection before it says that ZooKeeper is not to be reached.",
    at_least=_MILLISECOND,
)
ZOOKEEPER_RETRY_WAIT = Option(
    "high-availability.zookeeper.client.retry-wait",
    DURATION,
    timedelta(seconds=5),
    "How long a question that got no answer waits for a connection before it is asked again, the first time; each time "
    "twice as long as before.",
    at_least=_MILLISECOND,
)
ZOOKEEPER_MAX_RETRY_WAIT = Option(
    "high-availability.zookeeper.client.max-retry-wait",
    DURATION,
    timedelta(seconds=60),
    "The longest such wait.",
    at_least=_MILLISECOND,
)
ZOOKEEPER_RETRIES = Option(
    "high-availability.zookeeper.client.max-retry-attempts",
    INT,
    3,
    "How often a question that got no answer is asked again.",
    at_least=0,
)
ZOOKEEPER_ACL = Option(
    "high-availability.zookeeper.client.acl",
    enum_of("open", "creator"),
    "open",
    "Who may read and write the nodes of the cluster: all (open), or who has made them (creator, which needs "
    "high-availability.zookeeper.client.authorization or firesteel.zookeeper.sasl.credentials).",
)
ZOOKEEPER_AUTHORIZATION: Option[Secret | None] = Option(
    "high-availability.zookeeper.client.authorization",
    SECRET,
    None,
    "What is shown to ZooKeeper, scheme:credentials with commas between several; digest:user:password for the scheme "
    "digest.",
)
ZOOKEEPER_SASL: Option[Secret | None] = Option(
    "firesteel.zookeeper.sasl.credentials",
    SECRET,
    None,
    "user:password by which a connection is authenticated (SASL, DIGEST-MD5). With creator as "
    "high-availability.zookeeper.client.acl the nodes are this user's alone.",
)
ZOOKEEPER_SASL_DISABLE = Option(
    "zookeeper.sasl.disable",
    BOOL,
    False,
    "Whether ZooKeeper is spoken to without Kerberos although security.kerberos.login.contexts names Client.",
)
ZOOKEEPER_SASL_SERVICE = Option(
    "zookeeper.sasl.service-name",
    STRING,
    "zookeeper",
    "First part of the servers' name in Kerberos, before / and the host that high-availability.zookeeper.quorum names.",
)
ZOOKEEPER_TLS = Option(
    "firesteel.zookeeper.tls.enabled",
    BOOL,
    False,
    "Whether connections to ZooKeeper are encrypted. high-availability.zookeeper.quorum then names the servers' secure "
    "ports, by the names that stand in their certificates.",
)
ZOOKEEPER_TLS_CA: Option[str | None] = Option(
    "firesteel.zookeeper.tls.ca-file",
    STRING,
    None,
    "PEM file with the certificates of authorities that the servers' certificates are checked with. Not set: those "
    "that the system trusts.",
)
ZOOKEEPER_TLS_CERTIFICATE: Option[str | None] = Option(
    "firesteel.zookeeper.tls.certificate-file",
    STRING,
    None,
    "PEM file with the certificate that is shown to the servers, where they want one.",
)
ZOOKEEPER_TLS_KEY: Option[str | None] = Option(
    "firesteel.zookeeper.tls.key-file",
    STRING,
    None,
    "PEM file with the key of firesteel.zookeeper.tls.certificate-file.",
)
ZOOKEEPER_TLS_KEY_PASSWORD: Option[Secret | None] = Option(
    "firesteel.zookeeper.tls.key-password", SECRET, None, "Password of that key, if it has one."
)
