"""What a host tells the process of a JobMaster."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

GO = b'{"go": true}\n'
"""The job may begin."""


@dataclass(frozen=True)
class JobOrder:
    """The job that a new JobMaster process is to run, as the template process hands it over.

    Attributes:
        settings: of the cluster, as text.
        secret: of the cluster.
        bind_host, advertised_host: where it listens, and under which name others find it.
        run_directory: of the host; kept from being removed while this process lives.
        cluster_directory: where its file goes.
        log_file: where it logs.
        start: plain ``StartJob``.
    """

    settings: dict[str, str] = field(repr=False)
    secret: str = field(repr=False)
    bind_host: str
    advertised_host: str
    run_directory: str
    cluster_directory: str
    log_file: str
    start: dict[str, Any] = field(repr=False)

    def to_line(self) -> bytes:
        """The order as a line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":")).encode() + b"\n"
