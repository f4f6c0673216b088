"""The status of a cluster, in a file that the Dispatcher writes and its supervisor reads.

The option is ``firesteel.application.status-file``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from firesteel.config import options
from firesteel.config.settings import Settings
from firesteel.core.files import replace_file


class ApplicationException(msgspec.Struct, frozen=True, rename={"name": "exceptionName"}):
    """A failure that ended an application."""

    name: str
    stacktrace: str


class ClusterStatus(msgspec.Struct, frozen=True, rename={"is_over": "over", "exit_code": "exit-code"}):
    """Status of a cluster and of its application; ``id`` is empty in a session, and until the application has one."""

    rest: str = ""
    is_over: bool = False
    id: str = ""
    name: str = ""
    state: str = "FINISHED"
    exit_code: int | None = None
    exceptions: tuple[ApplicationException, ...] = ()

    def ends(self, settings: Settings) -> bool:
        """Whether the services end by themselves, since the cluster is shut down, or ends with its application."""
        return self.is_over or (self.exit_code is not None and settings.get(options.SHUTDOWN_ON_APPLICATION_FINISH))


@dataclass(frozen=True)
class StatusFile:
    """The file of a status. One process writes it; methods that write raise ``OSError`` where it can't be written."""

    path: Path

    @property
    def definition(self) -> str:
        """The setting that makes a Dispatcher write the file."""
        return f"{options.APPLICATION_STATUS_FILE.key}={self.path}"

    def write(self, rest: str, application: Mapping[str, Any] | None = None) -> None:
        """Write the address of the REST API, and the application's record from the Dispatcher's store."""
        plain = {**(application or {}), "rest": rest}
        replace_file(self.path, json.dumps(plain).encode())

    def write_over(self) -> None:
        """Add to the present status that the cluster ends."""
        status = msgspec.structs.replace(self.read(), is_over=True)
        replace_file(self.path, msgspec.json.encode(status))

    def read(self) -> ClusterStatus:
        """The written status; that of a cluster that begins, if the file is missing or damaged."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=ClusterStatus)
        except (OSError, msgspec.MsgspecError):
            return ClusterStatus()
