"""What an onlooker writes down about the numbers of attempts, over all JobMasters of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firesteel_jobmaster.shell import JobMaster


@dataclass
class Used:
    """By one JobMaster of a job: the smallest and the largest number that slots have heard of."""

    first: int
    last: int


class AttemptsSeen:
    """Numbers of attempts rise: a JobMaster uses none that another one of the job has used, nor one between them.

    Files and transactions of sinks are named by them, so one that came back would take what is another's for its own.

    Args:
        broken: hears of what is wrong.
    """

    def __init__(self, broken: Callable[[str], None]) -> None:
        self._broken = broken
        self._used: dict[str, dict[str, Used]] = {}
        """Job -> secret of its run, which each JobMaster makes anew -> numbers."""

    def deployed(self, job_id: str, run: str, execution_id: str) -> None:
        """A slot has got a task."""
        runs, attempt = self._used.setdefault(job_id, {}), int(execution_id.rpartition("_")[2])
        mine = runs.setdefault(run, Used(attempt, attempt))
        mine.first, mine.last = min(mine.first, attempt), max(mine.last, attempt)
        for other, used in runs.items():
            if other != run and mine.first <= used.last and used.first <= mine.last:
                self._broken(
                    f"job {job_id[:6]}: {execution_id} comes from a JobMaster with attempts {mine.first}-{mine.last}, "
                    f"and another one has used {used.first}-{used.last}"
                )

    def last(self, job_id: str) -> int:
        """The largest number that was used; -1 = none was."""
        return max((used.last for used in self._used.get(job_id, {}).values()), default=-1)


def check_counted(name: str, archive: Mapping[str, Any], jobmasters: Sequence[JobMaster], seen: AttemptsSeen) -> None:
    """Attempts and restarts are counted on from one JobMaster of a job to the next, and people see that.

    Args:
        name: of the job, for people.
        archive: what the last JobMaster says, or has said at the end of the job.
        jobmasters: all that the job has had; each of them restarts tasks as often as the strategy allows.
        seen: numbers that slots have heard of.
    """
    if "told-by" in archive or not jobmasters:
        return  # it is no JobMaster that has told the end
    ended = [jobmaster for jobmaster in jobmasters if jobmaster.core.state.name == archive["state"]]
    last = ended[-1] if ended else jobmasters[-1]  # the one that has told the end; others may have come too late
    graph, before = last.core.graph, last.core.graph.job_attempt
    restarts = sum(jobmaster.core.graph.restarts - jobmaster.core.graph.job_attempt for jobmaster in jobmasters)
    most = restarts + len(jobmasters)
    number = seen.last(archive["jid"])
    assert number < most, f"{name}: attempt {number} of {len(jobmasters)} JobMasters with {restarts} restarts"
    assert archive["restarts"]["numRestarts"] == graph.restarts >= before, f"{name}: {archive['restarts']}"
    entries = archive["exceptions"]
    times = [entry["timestamp"] for entry in entries]
    assert times == sorted(times), f"{name}: the history of exceptions is not in order: {times}"
    assert last.notes.attempts is not None
    first, end = last.notes.attempts.first, graph.next_attempt()
    for failure in [failure_entry for entry in entries for failure_entry in (entry, *entry["concurrent"])]:
        number = int(failure["taskName"].rpartition("#")[2] or first)
        assert first <= number < end, f"{name}: {failure['taskName']} has failed, and attempts are {first}-{end - 1}"
    if archive["exceptions-dropped"]:
        return
    if before:
        assert entries, f"{name}: nobody sees that a JobMaster was lost"
        assert not entries[0]["taskName"], f"{name}: {entries[0]} is not the loss of a JobMaster"
    own = len(entries) - bool(before)
    counted = graph.restarts - before
    if archive["state"] in ("RUNNING", "FINISHED"):
        assert own == counted, f"{name}: {own} failures in the history, and {counted} restarts"
    elif archive["state"] == "FAILED":
        assert own == counted + 1, f"{name}: {own} failures in the history, and {counted} restarts before the end"
