"""Which archives a history server shows: listings in, work out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from firesteel.rest import types as t


@dataclass(frozen=True)
class ArchiveRetention:
    """For how long, and how many, archives stay.

    Attributes:
        most: jobs of each place, the newest; None = all.
        age_ms: since the end of a job; None = for ever.
    """

    most: int | None = None
    age_ms: int | None = None


@dataclass(frozen=True)
class ArchiveEntry:
    """An archive that was read.

    Attributes:
        stamp: of the file that was read.
        ended_ms: epoch.
        overview: line of ``/jobs/overview``; None = it is damaged.
        application: that the job belongs to.
    """

    stamp: str
    ended_ms: int = 0
    overview: t.JobRow | None = None
    application: str = ""


@dataclass
class HistoryCore:
    """What is known of the places.

    Args:
        retention: of archives.
    """

    retention: ArchiveRetention = field(default_factory=ArchiveRetention)
    places: dict[int, dict[str, ArchiveEntry]] = field(default_factory=dict)
    """Number of the place -> job -> its archive there."""

    def to_read(self, place: int, listed: Mapping[str, str]) -> list[str]:
        """Jobs whose archives are new or were replaced; what is not listed any more is forgotten.

        Args:
            place: number of the place.
            listed: all of it: job -> stamp.
        """
        known = self.places.setdefault(place, {})
        for job_id in known.keys() - listed.keys():
            del known[job_id]
        return [job_id for job_id, stamp in listed.items() if job_id not in known or known[job_id].stamp != stamp]

    def read(self, place: int, job_id: str, entry: ArchiveEntry) -> None:
        """An archive was read."""
        self.places[place][job_id] = entry

    def gone(self, place: int, job_id: str) -> None:
        """An archive went while it was to be read."""
        self.places[place].pop(job_id, None)

    def expired(self, now_ms: int) -> list[tuple[int, str]]:
        """Place and job of the archives that nobody is to see any more; damaged ones stay, for whoever looks."""
        expired = []
        for place, known in self.places.items():
            good = [(job_id, entry) for job_id, entry in known.items() if entry.overview is not None]
            good.sort(key=lambda job: job[1].ended_ms, reverse=True)
            for position, (job_id, entry) in enumerate(good):
                most, age = self.retention.most, self.retention.age_ms
                if (most is not None and position >= most) or (age is not None and now_ms - entry.ended_ms > age):
                    expired.append((place, job_id))
        return expired

    def place_of(self, job_id: str) -> tuple[int, ArchiveEntry] | None:
        """Where the archive of a job is; the first place that has a good one wins."""
        entries = [(place, known[job_id]) for place, known in self.places.items() if job_id in known]
        return min(entries, key=lambda entry: (entry[1].overview is None, entry[0]), default=None)

    def overviews(self) -> list[t.JobRow]:
        """Of all jobs, in the order in which they ended."""
        return [entry.overview for entry in self._shown() if entry.overview is not None]

    def applications(self) -> dict[str, list[t.JobRow]]:
        """Application -> lines of its jobs, in the same order."""
        applications: dict[str, list[t.JobRow]] = {}
        for entry in self._shown():
            if entry.overview is not None:
                applications.setdefault(entry.application, []).append(entry.overview)
        return applications

    def _shown(self) -> list[ArchiveEntry]:
        shown: dict[str, ArchiveEntry] = {}
        for _, known in sorted(self.places.items(), reverse=True):
            shown |= {job_id: entry for job_id, entry in known.items() if entry.overview is not None}
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
