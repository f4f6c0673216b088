"""Decides which archives a history server reads, shows and removes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from firesteel.rest import types as t


@dataclass(frozen=True)
class ArchiveRetention:
    """Bounds of the archives that stay.

    Attributes:
        most: number of archives that stay in each place, the newest; None = all.
        age_ms: time since the end of a job after which its archive goes; None = never.
    """

    most: int | None = None
    age_ms: int | None = None


@dataclass(frozen=True)
class ArchiveEntry:
    """An archive that was read.

    Attributes:
        stamp: version of the file that was read.
        ended_ms: epoch ms of the job's end.
        overview: row of ``/jobs/overview``; None = the archive is damaged.
        application: id of the job's application.
    """

    stamp: str
    ended_ms: int = 0
    overview: t.JobRow | None = None
    application: str = ""


@dataclass
class HistoryCore:
    """The archives in all places, as far as they were read.

    Args:
        retention: of archives.
    """

    retention: ArchiveRetention = field(default_factory=ArchiveRetention)
    places: dict[int, dict[str, ArchiveEntry]] = field(default_factory=dict)
    """Archives by number of the place, and by job id."""

    def to_read(self, place: int, listed: Mapping[str, str]) -> list[str]:
        """Jobs whose archives are new or were replaced; archives that are not listed any more are forgotten.

        Args:
            place: number of the place.
            listed: stamps of all archives in the place, by job id.
        """
        entries = self.places.setdefault(place, {})
        for job_id in entries.keys() - listed.keys():
            del entries[job_id]
        return [job_id for job_id, stamp in listed.items() if job_id not in entries or entries[job_id].stamp != stamp]

    def read(self, place: int, job_id: str, entry: ArchiveEntry) -> None:
        """An archive was read."""
        self.places[place][job_id] = entry

    def gone(self, place: int, job_id: str) -> None:
        """An archive was removed before it could be read."""
        self.places[place].pop(job_id, None)

    def expired(self, now_ms: int) -> list[tuple[int, str]]:
        """Place and job id of the archives that have expired; damaged ones stay, so that operators can look at them."""
        expired = []
        for place, entries in self.places.items():
            good = [(job_id, entry) for job_id, entry in entries.items() if entry.overview is not None]
            good.sort(key=lambda job: job[1].ended_ms, reverse=True)
            for position, (job_id, entry) in enumerate(good):
                most, age = self.retention.most, self.retention.age_ms
                if (most is not None and position >= most) or (age is not None and now_ms - entry.ended_ms > age):
                    expired.append((place, job_id))
        return expired

    def place_of(self, job_id: str) -> tuple[int, ArchiveEntry] | None:
        """The place of a job's archive, and the archive: the first good one, else a damaged one."""
        entries = [(place, archives[job_id]) for place, archives in self.places.items() if job_id in archives]
        return min(entries, key=lambda entry: (entry[1].overview is None, entry[0]), default=None)

    def overviews(self) -> list[t.JobRow]:
        """Rows of ``/jobs/overview`` of all jobs, in the order in which they ended."""
        return [entry.overview for entry in self._shown() if entry.overview is not None]

    def applications(self) -> dict[str, list[t.JobRow]]:
        """Rows of jobs by application, in the same order."""
        applications: dict[str, list[t.JobRow]] = {}
        for entry in self._shown():
            if entry.overview is not None:
                applications.setdefault(entry.application, []).append(entry.overview)
        return applications

    def _shown(self) -> list[ArchiveEntry]:
        shown: dict[str, ArchiveEntry] = {}
        for _, entries in sorted(self.places.items(), reverse=True):
            shown |= {job_id: entry for job_id, entry in entries.items() if entry.overview is not None}
        return sorted(shown.values(), key=lambda entry: entry.ended_ms)


def counts(overviews: Iterable[t.JobRow]) -> t.JobCounts:
    """Numbers of jobs for ``/overview``."""
    states = [row["state"] for row in overviews]
    return {
        "jobs-running": 0,
        "jobs-finished": states.count("FINISHED"),
        "jobs-cancelled": states.count("CANCELED"),
        "jobs-failed": states.count("FAILED"),
    }
