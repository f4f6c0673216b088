"""What an onlooker writes down about jobs with checkpoints, and what must be true of it at every moment.

Nothing here asks the services: it is known which records a source has, what slots have committed, and what has happened
on disk and in the stores, at the moment when it happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from firesteel.checkpoint.handles import FileState
from firesteel.checkpoint.metadata import CheckpointMetadata
from firesteel.checkpoint.savepoints import info_of

Record = tuple[str, int]
"""A split and a number in it."""
Result = tuple[str, Record, str, int]
"""Subtask that counted, the record, its key, how many of this key it was."""
SAVEPOINTS = "/savepoints"
"""Directory of all of them."""


@dataclass
class Account:
    """Of one job.

    Attributes:
        splits: id -> how many records it has.
        subtasks: all of the job, as ``<vertex>_<subtask>``.
        counts: results carry a number, per subtask and key.
        epoch: of the last JobMaster that led.
        last_id: the last one that the counter gave.
        kept: checkpoints in the store -> their files.
        completed: ids of all that ever were in the store.
        completed_at: when the last one came.
        acknowledged: checkpoint -> subtasks that have written their state.
        ended: subtasks that have finished -> run in which they have.
        restored: the checkpoint of the last start; 0 = from the beginning.
        damaged: an older checkpoint had to be used: results are repeated.
        over: the end of the job is safe, so that no JobMaster follows.
        committed: committables.
        results: what is visible.
        stopped: the savepoint with which the job was stopped, in the store; empty = none.
    """

    job_id: str
    splits: Mapping[str, int]
    subtasks: frozenset[str]
    counts: bool
    epoch: int = 0
    last_id: int = 0
    kept: dict[int, set[str]] = field(default_factory=dict)
    completed: set[int] = field(default_factory=set)
    completed_at: float = 0.0
    acknowledged: dict[int, set[str]] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    restored: int = 0
    runs: dict[int, str] = field(default_factory=dict)
    attempts: dict[tuple[str, str], int] = field(default_factory=dict)
    committed_up_to: int = 0
    rots: bool = False
    damaged: bool = False
    over: bool = False
    committed: set[str] = field(default_factory=set)
    results: dict[Record, Result] = field(default_factory=dict)
    numbers: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    restores: int = 0
    stopped: str = ""


@dataclass
class Savepoint:
    """One that was written to its end.

    Attributes:
        account: of its job.
        metadata: of it.
        stop: how the job ends with it.
        told: a user knows of it.
        may_go: a user has it removed.
        claimed: account of the job that goes on from it and has it to itself.
    """

    account: Account
    metadata: CheckpointMetadata
    stop: str
    told: bool = False
    may_go: bool = False
    claimed: Account | None = None


class Ledger:
    """Accounts of all jobs with checkpoints; a method that finds something wrong raises, and tells ``broken``.

    Args:
        now: the time.
        broken: hears of what is wrong, since services may catch what is raised.
        tell: hears of what happens in stores.
    """

    def __init__(
        self, now: Callable[[], float], broken: Callable[[str], None], tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.accounts: dict[str, Account] = {}
        self.savepoints: dict[str, Savepoint] = {}
        """By their directories."""
        self._now, self._broken, self._tell = now, broken, tell

    def open(self, job_id: str, splits: Mapping[str, int], subtasks: Iterable[str], counts: bool) -> None:
        """A job is submitted."""
        self.accounts[job_id] = Account(job_id, dict(splits), frozenset(subtasks), counts)

    def follows(self, job_id: str, former: str, path: str, *, claimed: bool) -> None:
        """A job is submitted that goes on from the savepoint with which a former one was stopped.

        What that one has shown counts, too.
        """
        before, savepoint = self.accounts[former], self.savepoints[path]
        number = savepoint.metadata.checkpoint_id
        account = self.accounts[job_id] = Account(job_id, before.splits, before.subtasks, before.counts)
        account.results, account.numbers, account.committed = before.results, before.numbers, before.committed
        account.rots, account.damaged, account.completed_at = before.rots, before.damaged, self._now()
        account.completed = {number}
        if claimed:
            savepoint.claimed = account

    def _require(self, holds: bool, account: Account, what: str) -> None:
        if not holds:
            text = f"job {account.job_id[:6]}: {what}"
            self._broken(text)
            raise AssertionError(text)

    # -- stores

    def leads(self, job_id: str, epoch: int) -> None:
        """A JobMaster leads a job."""
        account = self.accounts.get(job_id)
        if account is not None:
            self._require(epoch > account.epoch, account, f"epoch {epoch} follows {account.epoch}")
            account.epoch = epoch

    def counted(self, job_id: str, epoch: int, checkpoint_id: int) -> None:
        """The counter gave an id."""
        account = self.accounts[job_id]
        self._leads(account, epoch, "took an id")
        self._require(checkpoint_id > account.last_id, account, f"id {checkpoint_id} follows {account.last_id}")
        account.last_id = checkpoint_id

    def stored(
        self,
        job_id: str,
        epoch: int,
        checkpoint_id: int,
        metadata: CheckpointMetadata | None,
        files: Mapping[str, bytes],
        location: str = "",
    ) -> None:
        """A checkpoint went into the store."""
        account = self.accounts[job_id]
        self._tell(f"leader {epoch} of job {job_id[:6]} stores checkpoint {checkpoint_id}")
        self._leads(account, epoch, f"put checkpoint {checkpoint_id} into the store")
        if metadata is None:
            self._require(False, account, f"checkpoint {checkpoint_id} is in the store and has no metadata")
            return
        self._require(metadata.checkpoint_id == checkpoint_id, account, f"{checkpoint_id} has metadata of another one")
        newest = max(account.completed, default=0)
        self._require(checkpoint_id >= newest, account, f"checkpoint {checkpoint_id} comes behind {newest}")
        self._whole(account, metadata, files)
        if location in self.savepoints:
            account.stopped = location
        account.kept[checkpoint_id] = set(metadata.files())
        account.completed.add(checkpoint_id)
        account.completed_at = self._now()

    def _whole(self, account: Account, metadata: CheckpointMetadata, files: Mapping[str, bytes]) -> None:
        """All files are there, and all tasks have written their state."""
        number = metadata.checkpoint_id
        for handle in metadata.handles():
            if isinstance(handle, FileState):
                there = len(files.get(handle.path, b"")) >= handle.length and handle.path in files
                self._require(there, account, f"checkpoint {number} is complete and {handle.path} is not there")
        done = account.acknowledged.get(number, set()) | set(account.ended)
        missing = sorted(account.subtasks - done)
        self._require(not missing, account, f"checkpoint {number} is complete without {missing}")

    def taken_out(self, job_id: str, epoch: int, checkpoint_id: int) -> None:
        """A checkpoint was removed from the store."""
        account = self.accounts[job_id]
        self._leads(account, epoch, f"took checkpoint {checkpoint_id} out of the store")
        last = checkpoint_id == max(account.kept, default=0) == account.committed_up_to
        may_go = not last or account.over or account.rots
        self._require(may_go, account, f"{checkpoint_id} is taken out, and there is no other one to go on from")
        stopped = self.savepoints.get(account.stopped)
        newest = checkpoint_id == max(account.kept, default=0)
        if stopped is not None and stopped.metadata.checkpoint_id == checkpoint_id and newest and not account.over:
            account.stopped = ""  # it is taken back, and the job goes on
        account.kept.pop(checkpoint_id, None)

    def cleared(self, job_id: str, epoch: int) -> None:
        """The store was cleared."""
        account = self.accounts[job_id]
        self._tell(f"leader {epoch} of job {job_id[:6]} clears the store")
        self._leads(account, epoch, "cleared the store")
        self._require(account.over, account, "the store is cleared, and the end of the job is not safe")
        account.kept.clear()

    def ended_safely(self, job_id: str) -> None:
        """The Dispatcher has stored the end of a job."""
        account = self.accounts.get(job_id)
        if account is not None:
            account.over = True

    def forgotten(self, job_id: str) -> None:
        """A JobMaster has the high-availability services forget a job."""
        account = self.accounts.get(job_id)
        if account is not None:
            self._require(account.over, account, "is forgotten, and its end is not safe")

    def _leads(self, account: Account, epoch: int, what: str) -> None:
        self._require(epoch == account.epoch, account, f"leader {epoch} {what}, and {account.epoch} leads")

    # -- savepoints

    def savepoint_written(self, path: str, metadata: CheckpointMetadata, files: Mapping[str, bytes]) -> None:
        """The metadata of a savepoint are there."""
        account = self.accounts[metadata.job_id]
        self._whole(account, metadata, files)
        info = info_of(metadata)
        assert info is not None
        self._tell(f"savepoint {metadata.checkpoint_id} of job {account.job_id[:6]} is at {path}")
        self.savepoints.setdefault(path, Savepoint(account, metadata, info.stop))

    def savepoint_told(self, path: str, files: Mapping[str, bytes]) -> None:
        """A user is told of it: from now on it is theirs."""
        savepoint = self.savepoints.get(path)
        assert savepoint is not None, f"{path} is said to be complete"
        self._tell(f"{path} is the user's now")
        savepoint.told = True
        self._there(path, files)

    def _there(self, path: str, files: Mapping[str, bytes]) -> None:
        savepoint = self.savepoints[path]
        for file in (*savepoint.metadata.files(), f"{path}/_metadata"):
            self._require(file in files, savepoint.account, f"{path} is a user's, and {file} is not there")

    def check_savepoints(self, files: Mapping[str, bytes]) -> None:
        """Those that users know of, and have not given away, are whole."""
        for path, savepoint in self.savepoints.items():
            if savepoint.told and not savepoint.may_go and savepoint.claimed is None:
                self._there(path, files)

    def _savepoint_file_removed(self, path: str, file: str) -> None:
        savepoint = self.savepoints[path]
        claimed = savepoint.claimed
        if claimed is not None:
            own = claimed.over or max(claimed.completed) > savepoint.metadata.checkpoint_id
            self._require(own, claimed, f"{file} is removed, and the job may still go on from {path}")
        elif savepoint.told and not savepoint.may_go:
            self._require(False, savepoint.account, f"{file} of a user's savepoint is removed")

    def _account_of(self, path: str) -> Account | None:
        root = path.rpartition("/")[0]
        if root in self.savepoints:
            return self.savepoints[root].account
        return self.accounts.get(path.split("/")[2])

    # -- disk

    def file_removed(self, path: str) -> None:
        account, root = self._account_of(path), path.rpartition("/")[0]
        if root in self.savepoints:
            self._savepoint_file_removed(root, path)
        if account is not None and not account.over:  # from then on nobody goes on from any checkpoint
            for checkpoint_id, files in account.kept.items():
                self._require(path not in files, account, f"{path} of checkpoint {checkpoint_id} is removed")

    def file_rots(self, path: str) -> None:
        """A file is not what was written."""
        account = self.accounts.get(path.split("/")[2])
        if account is not None:
            account.rots = True
        elif path.startswith(f"{SAVEPOINTS}/"):  # named by the begin of the job's id
            for account in self.accounts.values():
                account.rots |= path.startswith(f"{SAVEPOINTS}/savepoint-{account.job_id[:6]}-")

    # -- slots

    def deployed(self, job_id: str, run: str, execution_id: str, restored: int) -> None:
        """A task begins, with a checkpoint or (0) from its beginning."""
        account = self.accounts[job_id]
        subtask, _, attempt = execution_id.rpartition("_")
        before = account.attempts.get((run, subtask), -1)
        self._require(int(attempt) > before, account, f"attempt {attempt} of {subtask} follows {before}")
        account.attempts[run, subtask] = int(attempt)
        account.ended.pop(subtask, None)
        account.restores += bool(restored)
        if restored:
            self._require(restored in account.completed, account, f"goes on from {restored}, which was never complete")
        if restored < account.committed_up_to:
            self._require(account.rots, account, f"goes on from {restored}, and {account.committed_up_to} is committed")
            account.damaged = True

    def triggered(self, job_id: str, run: str, checkpoint_id: int) -> None:
        """A barrier sets out: its number is of one JobMaster."""
        account = self.accounts[job_id]
        first = account.runs.setdefault(checkpoint_id, run)
        self._require(first == run, account, f"two JobMasters have taken checkpoint {checkpoint_id}")

    def acknowledged(self, job_id: str, subtask: str, checkpoint_id: int) -> None:
        """A task has written its state."""
        self.accounts[job_id].acknowledged.setdefault(checkpoint_id, set()).add(subtask)

    def ended(self, job_id: str, run: str, subtask: str) -> None:
        """A task has finished."""
        self.accounts[job_id].ended[subtask] = run

    def commits(self, job_id: str, committable: str, checkpoint_id: int, results: Iterable[Result]) -> None:
        """A sink shows results, of a checkpoint that it believes to be complete. Shown before, nothing happens."""
        account = self.accounts[job_id]
        known = checkpoint_id in account.completed
        self._require(known, account, f"results of checkpoint {checkpoint_id} are shown, which never was complete")
        account.committed_up_to = max(account.committed_up_to, checkpoint_id)
        if committable in account.committed:
            return
        account.committed.add(committable)
        for result in results:
            where, record, key, number = result
            again = record in account.results
            self._require(not again or account.damaged, account, f"record {record} is shown twice")
            account.results[record] = result
            if account.counts:
                shown = account.numbers.setdefault((where, key), set())
                self._require(
                    number not in shown or account.damaged, account, f"{key} is {number} in subtask {where} twice"
                )
                shown.add(number)

    def check_finished(self, job_id: str) -> None:
        """The job has FINISHED: every record counts once."""
        account = self.accounts[job_id]
        expected, shown = sum(account.splits.values()), len(account.results)
        if account.damaged:
            return
        assert shown == expected, f"job {job_id[:6]}: {shown} of {expected} records are shown"
        for (where, key), numbers in account.numbers.items():
            assert max(numbers) == len(numbers), f"job {job_id[:6]}: subtask {where} has lost some of {key}"
