"""Options of object stores that speak S3, for checkpoints in ``s3://bucket/path``.

Flink gives all of ``s3.<param>`` to its S3 file systems: names that one of those has are used here with its meaning.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from firesteel.config.option import BOOL, DURATION, INT, MEMORY, SECRET, STRING, Option, Secret

_MILLISECOND = timedelta(milliseconds=1)

S3_ENDPOINT: Option[str | None] = Option(
    "s3.endpoint",
    STRING,
    None,
    "URL of the server for s3:// paths, as https://minio.example:9000; without one it is https. Not set: Amazon's.",
)
S3_REGION = Option(
    "s3.endpoint.region",
    STRING,
    "us-east-1",
    "Region of the buckets; requests are signed with it.",
    fallback_keys=("s3.region",),
)
S3_ACCESS_KEY: Option[Secret | None] = Option(
    "s3.access-key",
    SECRET,
    None,
    "Access key (MinIO: the user's name). Not set: firesteel.s3.credentials-file, else the variables AWS_ACCESS_KEY_ID "
    "or MINIO_ACCESS_KEY of the processes, else a web identity or a container's role, else the file "
    "~/.aws/credentials, on each host; else, at Amazon, the instance's role.",
    fallback_keys=("s3.access.key",),
)
S3_SECRET_KEY: Option[Secret | None] = Option(
    "s3.secret-key", SECRET, None, "Secret key that belongs to s3.access-key.", fallback_keys=("s3.secret.key",)
)
S3_SESSION_TOKEN: Option[Secret | None] = Option(
    "s3.session.token", SECRET, None, "Session token that belongs to both, where they are temporary."
)
S3_CREDENTIALS_FILE: Option[str | None] = Option(
    "firesteel.s3.credentials-file",
    STRING,
    None,
    "File with aws_access_key_id, aws_secret_access_key and perhaps aws_session_token in a section [default], which "
    "each host has; it is read again when it changes.",
)
S3_PATH_STYLE: Option[bool | None] = Option(
    "s3.path.style.access",
    BOOL,
    None,
    "Whether buckets are parts of the path (http://host/bucket/key) or of the name of the host "
    "(http://bucket.host/key). Not set: of the host at Amazon, else of the path.",
    fallback_keys=("s3.path-style-access",),
)
S3_CA_FILE: Option[str | None] = Option(
    "firesteel.s3.ca-file",
    STRING,
    None,
    "File of certificates (PEM) that the server's is checked with, on each host. Not set: that of the variable "
    "SSL_CERT_FILE, else the usual authorities.",
)
S3_PROXY: Option[Secret | None] = Option(
    "firesteel.s3.proxy",
    SECRET,
    None,
    "URL of a proxy by which the server is asked, as http://proxy.example:3128, perhaps with user:password@; direct: "
    "none. Not set: HTTPS_PROXY or HTTP_PROXY, and NO_PROXY, of each process, which count for names and addresses of "
    "the internet only. A loopback address is never asked by a proxy.",
)
S3_CONNECT_TIMEOUT = Option(
    "s3.connection.establish.timeout",
    DURATION,
    timedelta(seconds=5),
    "How long to wait for a connection.",
    unit="ms",
    at_least=_MILLISECOND,
)
S3_READ_TIMEOUT = Option(
    "s3.connection.timeout",
    DURATION,
    timedelta(seconds=15),
    "How long to wait for the server to take or send anything.",
    unit="ms",
    at_least=_MILLISECOND,
)
S3_ATTEMPTS = Option(
    "s3.attempts.maximum",
    INT,
    6,
    "Attempts at a request that the server did not answer or was too busy for, with growing pauses between them.",
    at_least=1,
)
S3_RETRY_TIMEOUT = Option(
    "firesteel.s3.retry-timeout",
    DURATION,
    timedelta(seconds=20),
    "After this time no further attempt at a request begins.",
    at_least=timedelta(0),
)
S3_CONNECTIONS = Option(
    "s3.connection.maximum", INT, 32, "Most open connections of a process to the server that are kept.", at_least=1
)
S3_PART_SIZE = Option(
    "s3.upload.min.part.size",
    MEMORY,
    8 << 20,
    "State that is larger goes up in parts of this size while it is written; of very large files, later parts are "
    "larger. A slot holds s3.upload.max.concurrent.uploads parts in memory, and one for each file that it is writing.",
    unit="bytes",
    at_least=5 << 20,
    at_most=1 << 30,
)
S3_CONCURRENT_PARTS = Option(
    "s3.upload.max.concurrent.uploads", INT, 4, "Parts that a slot uploads at once.", at_least=1, at_most=64
)

S3_OPTIONS: Final[tuple[Option[Any], ...]] = (
    S3_ACCESS_KEY,
    S3_ATTEMPTS,
    S3_CA_FILE,
    S3_CONCURRENT_PARTS,
    S3_CONNECTIONS,
    S3_CONNECT_TIMEOUT,
    S3_CREDENTIALS_FILE,
    S3_ENDPOINT,
    S3_PART_SIZE,
    S3_PATH_STYLE,
    S3_PROXY,
    S3_READ_TIMEOUT,
    S3_REGION,
    S3_RETRY_TIMEOUT,
    S3_SECRET_KEY,
    S3_SESSION_TOKEN,
)
"""What a client of such a store reads."""
