"""What a Dispatcher tells whoever supervises it, in a file (``firesteel.application.status-file``)."""

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
    """Why an application failed."""

    name: str
    stacktrace: str


class ClusterStatus(msgspec.Struct, frozen=True, rename={"is_over": "over", "exit_code": "exit-code"}):
    """How a cluster is, and the program that it runs for itself: ``id`` is empty in a session, or until it has one."""

    rest: str = ""
    is_over: bool = False
    id: str = ""
    name: str = ""
    state: str = "FINISHED"
    exit_code: int | None = None
    exceptions: tuple[ApplicationException, ...] = ()

    def ends(self, settings: Settings) -> bool:
        """Whether the services of the cluster end by themselves: it is shut down, or ends with its application."""
        return self.is_over or (self.exit_code is not None and settings.get(options.SHUTDOWN_ON_APPLICATION_FINISH))


@dataclass(frozen=True)
class StatusFile:
    """The file; one process writes it, and ``OSError`` says that it can't."""

    path: Path

    @property
    def definition(self) -> str:
        """The setting that makes a Dispatcher write the file."""
        return f"{options.APPLICATION_STATUS_FILE.key}={self.path}"

    def write(self, rest: str, application: Mapping[str, Any] | None = None) -> None:
        """Say where the REST API is, and how the application is: its record in the Dispatcher's store."""
        plain = {**(application or {}), "rest": rest}
        replace_file(self.path, json.dumps(plain).encode())

    def write_over(self) -> None:
        """Say that the cluster ends, besides what was said."""
        status = msgspec.structs.replace(self.read(), is_over=True)
        replace_file(self.path, msgspec.json.encode(status))

    def read(self) -> ClusterStatus:
        """What was said; that of a cluster that begins, as long as there is nothing, or nothing whole."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=ClusterStatus)
        except (OSError, msgspec.MsgspecError):
            return ClusterStatus()
