"""Which archives are read, shown and removed."""

from __future__ import annotations

from firesteel_historyserver.core import ArchiveEntry, ArchiveRetention, HistoryCore, counts
from tests.archives import job_row

A, B, C = "a" * 32, "b" * 32, "c" * 32


def entry(job_id: str, ended_ms: int, stamp: str = "1", state: str = "FINISHED") -> ArchiveEntry:
    return ArchiveEntry(stamp, ended_ms, job_row(job_id, state))


def with_jobs(core: HistoryCore, place: int, **ended: int) -> None:
    ids = {"a": A, "b": B, "c": C}
    core.to_read(place, {ids[name]: "1" for name in ended})
    for name, ended_ms in ended.items():
        core.read(place, ids[name], entry(ids[name], ended_ms))


def test_only_what_is_new_or_was_replaced_is_read() -> None:
    core = HistoryCore()
    assert core.to_read(0, {A: "1", B: "1"}) == [A, B]
    core.read(0, A, entry(A, 5))
    core.read(0, B, ArchiveEntry("1"))  # damaged
    assert core.to_read(0, {A: "1", B: "1"}) == []
    assert core.to_read(0, {A: "1", B: "2", C: "1"}) == [B, C]


def test_what_is_deleted_vanishes_and_what_is_damaged_is_not_shown() -> None:
    core = HistoryCore()
    with_jobs(core, 0, a=5, b=3)
    core.to_read(0, {A: "1", B: "1", C: "1"})
    core.read(0, C, ArchiveEntry("1"))
    assert [overview["jid"] for overview in core.overviews()] == [B, A]
    place = core.place_of(C)
    assert place is not None
    assert place[1].overview is None
    core.to_read(0, {B: "1"})
    assert [overview["jid"] for overview in core.overviews()] == [B]
    assert core.place_of(A) is None


def test_a_good_archive_goes_before_a_damaged_one_of_another_place() -> None:
    core = HistoryCore()
    core.to_read(0, {A: "1"})
    core.read(0, A, ArchiveEntry("1"))
    with_jobs(core, 1, a=7)
    assert core.place_of(A) == (1, entry(A, 7))
    assert [overview["jid"] for overview in core.overviews()] == [A]


def test_jobs_of_one_application_stand_together() -> None:
    core = HistoryCore()
    core.to_read(0, {A: "1", B: "1", C: "1"})
    for job_id, ended_ms, application in ((A, 3, A), (B, 2, C), (C, 4, C)):
        core.read(0, job_id, ArchiveEntry("1", ended_ms, job_row(job_id, "FINISHED"), application))
    assert [overview["jid"] for overview in core.overviews()] == [B, A, C]
    by_application = {application: [job["jid"] for job in jobs] for application, jobs in core.applications().items()}
    assert by_application == {C: [B, C], A: [A]}


def test_the_newest_of_each_place_stay() -> None:
    core = HistoryCore(ArchiveRetention(most=1))
    with_jobs(core, 0, a=5, b=9)
    with_jobs(core, 1, c=1)
    assert core.expired(100) == [(0, A)]


def test_what_ended_long_ago_expires_and_what_is_damaged_does_not() -> None:
    core = HistoryCore(ArchiveRetention(age_ms=10))
    with_jobs(core, 0, a=5, b=9)
    core.to_read(0, {A: "1", B: "1", C: "1"})
    core.read(0, C, ArchiveEntry("1"))
    assert core.expired(16) == [(0, A)]
    assert core.expired(15) == []
    assert HistoryCore().expired(1 << 50) == []


def test_counts_by_state() -> None:
    counted = counts([job_row(A, "FINISHED"), job_row(B, "FAILED"), job_row(C, "FINISHED")])
    assert counted == {"jobs-running": 0, "jobs-finished": 2, "jobs-cancelled": 0, "jobs-failed": 1}
