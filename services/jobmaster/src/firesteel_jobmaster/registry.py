"""Files that list the JobMaster processes, so that a host that was killed finds them again.

One file for each job: ``<cluster directory>/jobmasters/<job id>.json``, mode 0600, since it holds fencing tokens. The
JobMaster writes it before its job begins, and again when another Dispatcher adopts the job; it removes it when the
Dispatcher has stored the end and the job's checkpoints are cleaned up. So a file whose process is gone is a JobMaster
that was lost, or that has left something to be done.
"""

from __future__ import annotations

import json
import logging
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firesteel.core.errors import ProtocolError
from firesteel.core.files import remove_abandoned_drafts, replace_file
from firesteel.core.process import ProcessId
from firesteel.core.run_directory import private_directory
from firesteel.protocol import messages as m

logger = logging.getLogger(__name__)
FOLDER = "jobmasters"
_SET_ASIDE = ".corrupt"
_NAME = re.compile(r"[0-9a-f]{32}\.json")


@dataclass(frozen=True)
class RegisteredProcess:
    """A JobMaster process, as its file describes it.

    Attributes:
        job_id: of the job.
        process: the operating system's process.
        address: of the job's calls.
        token: fencing token of the JobMaster.
        start: order with which the JobMaster was started, with the Dispatcher that leads now.
    """

    job_id: str
    process: ProcessId
    address: str
    token: str = field(repr=False)
    start: m.StartJob = field(repr=False)

    def to_plain(self) -> dict[str, Any]:
        return {
            "job_id": self.job_id,
            "process": self.process.to_plain(),
            "address": self.address,
            "token": self.token,
            "start": self.start.to_plain(),
        }

    @classmethod
    def from_plain(cls, plain: Any) -> RegisteredProcess:
        """The inverse of ``to_plain``.

        Raises:
            ProtocolError: it is something else.
        """
        try:
            process = ProcessId.from_plain(plain["process"])
            texts = [plain[name] for name in ("job_id", "address", "token")]
            if not all(isinstance(text, str) for text in texts):
                raise TypeError("job_id, address and token are texts")
            return cls(texts[0], process, texts[1], texts[2], m.StartJob.from_plain(plain["start"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError("file of a JobMaster", f"{type(error).__name__}: {error}") from error


class ProcessRegistry:
    """The files of one host.

    Args:
        cluster_directory: where they lie, in a folder of their own.

    Raises:
        RunDirectoryError: the folder can't be made, or is somebody else's.
    """

    def __init__(self, cluster_directory: Path) -> None:
        self.folder = private_directory(cluster_directory / FOLDER)
        remove_abandoned_drafts(self.folder, _NAME)

    def _path(self, job_id: str) -> Path:
        return self.folder / f"{job_id}.json"

    def has(self, job_id: str) -> bool:
        """Whether the job has a file: it is not over, or not cleaned up."""
        return self._path(job_id).exists()

    def read(self, job_id: str) -> RegisteredProcess | None:
        """The entry of a job; None if there is none, or it can't be read."""
        try:
            return RegisteredProcess.from_plain(json.loads(self._path(job_id).read_bytes()))
        except (OSError, ValueError, ProtocolError):
            return None

    def write(self, entry: RegisteredProcess) -> None:
        """Write the file of a JobMaster; it is on disk when this returns.

        Raises:
            OSError: it could not be written.
        """
        replace_file(self._path(entry.job_id), json.dumps(entry.to_plain(), separators=(",", ":")).encode())

    def remove_own(self, job_id: str, token: str) -> None:
        """Remove the file of the JobMaster with this token; the file of a JobMaster that has followed it stays."""
        entry = self.read(job_id)
        if entry is None or entry.token == token:
            self.remove(job_id)

    def remove(self, job_id: str) -> None:
        """Remove the file of a job. If that fails, the next host finds a file whose process is gone."""
        try:
            self._path(job_id).unlink(missing_ok=True)
        except OSError as error:
            logger.warning("%s can't be removed: %s", self._path(job_id), error.strerror or error)

    def read_all(self) -> list[RegisteredProcess]:
        """All entries; a file that holds something else is set aside and logged, and one that can't be read is logged.

        The others are returned. No job is lost with a file: its JobMaster tells the Dispatcher where it is.
        """
        entries = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                entry = RegisteredProcess.from_plain(json.loads(path.read_bytes()))
                if entry.job_id != path.stem:
                    raise ProtocolError("file of a JobMaster", f"it is of job {entry.job_id[:80]}")
            except FileNotFoundError:
                continue
            except OSError as error:  # that may pass: nothing is wrong with it
                logger.error("%s can't be read: %s", path, error.strerror or error)
                continue
            except (ValueError, ProtocolError) as error:
                logger.error("%s can't be used and is set aside: %s", path, error)
                with suppress(OSError):
                    path.replace(path.with_name(path.name + _SET_ASIDE))
                continue
            entries.append(entry)
        return entries
