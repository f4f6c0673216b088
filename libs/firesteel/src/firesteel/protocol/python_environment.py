"""The Python environment of a job's slots, as it travels from the client to the TaskManagers that prepare it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from firesteel.common.plain import read_plain, to_plain
from firesteel.core.errors import ProtocolError

__all__ = ["PythonArchive", "PythonEnvironment"]


@dataclass(frozen=True)
class PythonArchive:
    """An archive that is unpacked in the working directory of the slots.

    Attributes:
        blob: SHA-256 of the archive.
        target: name of the directory for its content.
        kind: ``zip`` or ``tar``.
    """

    blob: str
    target: str
    kind: str


@dataclass(frozen=True)
class PythonEnvironment:
    """Dependencies of a job; empty: its slots run in the cluster's own environment.

    Attributes:
        requirements: SHA-256 of a requirements.txt, or None.
        packages: SHA-256 of a zip archive with the only packages that pip may take; None: pip asks its index.
        archives: unpacked before the interpreter starts, in this order.
        executable: path of the interpreter, absolute or inside of an archive; None: the cluster's interpreter.
    """

    requirements: str | None = None
    packages: str | None = None
    archives: tuple[PythonArchive, ...] = ()
    executable: str | None = None

    def __bool__(self) -> bool:
        return self != PythonEnvironment()

    @property
    def id(self) -> str:
        """SHA-256 of all dependencies."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def blobs(self) -> list[str]:
        """SHA-256 of all blobs that have to be fetched."""
        names = [self.requirements, self.packages, *(archive.blob for archive in self.archives)]
        return [name for name in names if name is not None]

    def to_plain(self) -> dict[str, Any]:
        """JSON-able data; empty for an empty environment."""
        plain: dict[str, Any] = to_plain(self) if self else {}
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> PythonEnvironment:
        """The inverse of ``to_plain``.

        Raises:
            ProtocolError: the plain form is malformed.
        """
        return read_plain(cls, plain, "python environment", ProtocolError) if plain else cls()
