"""Tests high-availability services against their contract (``firesteel.ha.services``)."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable

from firesteel.checkpoint.store import StoredCheckpoint
from firesteel.core.errors import CheckpointStorageError, FencedError
from firesteel.graph.job_graph import JobGraph, JobVertex, OperatorInfo
from firesteel.ha.jobs import JobStore, RecordedEnd, StoredEnd, StoredJob
from firesteel.ha.retrieval import DISPATCHER, RESOURCEMANAGER, Attempts, Leader, of_job
from firesteel.ha.services import HighAvailabilityServices, Leadership
from firesteel.testing.rules import require, require_some

_JOB = "0123456789abcdef" * 2
_OTHER = "fedcba9876543210" * 2
_FIRST, _LATER, _GONE = "1" * 32, "2" * 32, "3" * 32
_BLOB = b"a blob"
_BLOB_NAME = hashlib.sha256(_BLOB).hexdigest()
_COMPONENT = of_job(_JOB)
_END = RecordedEnd(7, {"state": "FINISHED", "vertices": ["a large job"] * 2000})
_PATIENCE = 20.0
"""Seconds within which watchers must be told of a change of leaders."""


def check_high_availability(make: Callable[[], HighAvailabilityServices], *, durable: bool = True) -> None:
    """Check every rule of the contract.

    Args:
        make: makes services of one cluster, empty at first; each call stands for another process of the cluster, which
            sees what earlier ones have written. Services that are not durable may return the same object again.
        durable: whether everything written outlives the services.

    Raises:
        AssertionError: a rule is broken; the message says which.
    """
    first, second = make(), make()
    try:
        _check_leaders(first, second)
        _check_retrieval(first, second)
        _check_checkpoints(first, second)
        _check_jobs(first, second)
    finally:
        first.close()
        second.close()
    if durable:
        third = make()
        try:
            _check_later(third)
        finally:
            third.close()


def _lead(services: HighAvailabilityServices, component: str) -> Leadership:
    leadership = require_some(services.campaign(component), f"nobody leads {component}, and yet it can't be led")
    require(leadership.component == component, f"a campaign for {component} gave {leadership.component}")
    return leadership


def _check_leaders(first_process: HighAvailabilityServices, second_process: HighAvailabilityServices) -> None:
    require(first_process.leader(_COMPONENT) is None, "somebody leads before anybody campaigned")
    first = _lead(first_process, _COMPONENT)
    require(second_process.campaign(_COMPONENT) is None, "two lead at the same time")
    require(first.holds(), "a leader does not lead")
    first.announce("http://first:1", "token-1")
    leader = require_some(second_process.leader(_COMPONENT), "a leader that was announced is not found")
    require(
        (leader.address, leader.token, leader.epoch) == ("http://first:1", "token-1", first.epoch),
        "another leader is found",
    )
    require(second_process.leader(DISPATCHER) is None, "the leader of one component is found for another one")
    independent = _lead(second_process, of_job(_OTHER))
    first.release()
    first.release()
    require(not first.holds(), "a leadership that was given back holds")
    require(first_process.leader(_COMPONENT) is None, "who has given its leadership back is still found")
    second = _lead(second_process, _COMPONENT)
    require(second.epoch > first.epoch, f"the epoch fell from {first.epoch} to {second.epoch}")
    leader = require_some(first_process.leader(_COMPONENT), "the next leader is not found")
    require((leader.epoch, leader.address) == (second.epoch, ""), "the next leader has the address of the last one")
    _refused(lambda: first.announce("http://stale:1", "stale"), "announces itself")
    leader = require_some(first_process.leader(_COMPONENT), "a stale leader's announcement has changed something")
    require(leader.address == "", "a stale leader's announcement has changed something")
    independent.release()
    second.release()


class _Heard:
    """Watcher that remembers the last leader that it was told of, on any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.last: Leader | None = None
        self.count = 0

    def __call__(self, leader: Leader | None) -> None:
        with self._changed:
            self.last, self.count = leader, self.count + 1
            self._changed.notify_all()

    def waits_for(self, address: str | None) -> bool:
        """Wait until the last leader has this address (None = nobody leads); return whether that came in time."""
        with self._changed:
            return self._changed.wait_for(
                lambda: (None if self.last is None else self.last.address) == address, _PATIENCE
            )


def _check_retrieval(first_process: HighAvailabilityServices, second_process: HighAvailabilityServices) -> None:
    heard, elsewhere = _Heard(), _Heard()
    end = second_process.watch(RESOURCEMANAGER, heard)
    require((heard.count, heard.last) == (1, None), "who watches is not told at once that nobody leads")
    end_elsewhere = second_process.watch(DISPATCHER, elsewhere)
    first = _lead(first_process, RESOURCEMANAGER)
    first.announce("http://first:1", "token-1")
    require(heard.waits_for("http://first:1"), "a leader that was announced is not told")
    require(heard.last == Leader(first.epoch, "http://first:1", "token-1"), f"{heard.last} is told")
    late = _Heard()
    second_process.watch(RESOURCEMANAGER, late)()
    require(late.last == heard.last, "who watches later is not told at once who leads")
    first.release()
    require(heard.waits_for(None), "that a leader has gone is not told")
    second = _lead(first_process, RESOURCEMANAGER)
    second.announce("http://second:1", "token-2")
    require(heard.waits_for("http://second:1"), "the next leader is not told")
    leader = require_some(heard.last, "the next leader is not told")
    require(leader.epoch == second.epoch > first.epoch, f"epoch {leader.epoch} is told, not {second.epoch}")
    require(late.count == 1, "somebody is told who does not watch any more")
    require(elsewhere.last is None, "the leader of one component is told to those who watch another one")
    end()
    end()
    second.release()
    end_elsewhere()


def _check_checkpoints(first_process: HighAvailabilityServices, second_process: HighAvailabilityServices) -> None:
    first = _lead(first_process, _COMPONENT)
    require(first.attempts == Attempts(), "attempts are noted of a job that never ran")
    first.note_attempts(Attempts(3, ("tm-1",)))
    first.note_attempts(Attempts(2, ("tm-1", "tm-2")))
    store = first_process.completed_checkpoints(_JOB, first)
    numbers = [store.next_id() for _ in range(3)]
    require(numbers == sorted(set(numbers)), f"ids of checkpoints do not rise: {numbers}")
    checkpoint = StoredCheckpoint(numbers[1], "file:///a/chk-2")
    store.add(StoredCheckpoint(numbers[0], "file:///a/chk-1"))
    store.add(checkpoint)
    store.remove(numbers[0])
    first_process.depose(_COMPONENT)
    require(not first.holds(), "a leader that was deposed leads")
    stale = {
        "adds a checkpoint": lambda: store.add(StoredCheckpoint(99, "file:///a/chk-99")),
        "removes a checkpoint": lambda: store.remove(numbers[1]),
        "counts checkpoints": lambda: store.next_id(),
        "clears the store": lambda: store.clear(),
        "notes attempts": lambda: first.note_attempts(Attempts(99)),
        "records an end": lambda: first_process.record_end(first, RecordedEnd(9, {"state": "FAILED"})),
    }
    for action, write in stale.items():
        _refused(write, action)
    second = _lead(second_process, _COMPONENT)
    first.release()
    require(second.holds(), "a leader that was deposed takes the next one's leadership along")
    require(second_process.campaign(_COMPONENT) is None, "two lead when one that was deposed has let go")
    require(second.epoch > first.epoch, f"the epoch fell from {first.epoch} to {second.epoch}")
    second.announce("http://second:1", "token-2")
    noted = Attempts(3, ("tm-1", "tm-2"))
    require(second.attempts == noted, f"the next leader knows of {second.attempts}, not of {noted}")
    following = second_process.completed_checkpoints(_JOB, second)
    require(following.all() == [checkpoint], f"the next leader finds {following.all()} instead of {[checkpoint]}")
    number = following.next_id()
    require(number > numbers[-1], f"the next leader counts {number}, which may have been used: {numbers}")
    require(second_process.completed_checkpoints(_OTHER, second).all() == [], "jobs share their checkpoints")
    for action, write in stale.items():
        _refused(write, action)
    require(following.all() == [checkpoint], "a stale leader has changed the store")
    require(first_process.recorded_end(_JOB) is None, "a job has an end that a stale leader has recorded")
    second_process.record_end(second, RecordedEnd(9, {"state": "FAILED"}))
    second_process.record_end(second, _END)
    require(
        first_process.recorded_end(_JOB) == _END,
        f"a job has ended as {first_process.recorded_end(_JOB)}, not as {_END}",
    )
    require(first_process.recorded_end(_OTHER) is None, "the end of one job is that of another one")
    renewed = following.renewed()
    if renewed is not None:
        late = {
            "adds a checkpoint": lambda: following.add(StoredCheckpoint(98, "file:///a/chk-98")),
            "removes a checkpoint": lambda: following.remove(numbers[1]),
            "counts checkpoints": lambda: following.next_id(),
            "clears the store": lambda: following.clear(),
        }
        for action, write in late.items():
            _refused(write, action, CheckpointStorageError)
        require(renewed.all() == [checkpoint], "a call from before the store was renewed has changed it")
        require(renewed.next_id() > number, "a store that was renewed counts anew")
    second.release()


def _check_jobs(first_process: HighAvailabilityServices, second_process: HighAvailabilityServices) -> None:
    leadership = _lead(first_process, DISPATCHER)
    store = first_process.job_store(leadership)
    first = store.open(1000)
    require((first.jobs, first.ends) == ((), ()), "there are jobs in an empty cluster")
    require(second_process.campaign(DISPATCHER) is None, "two Dispatchers lead")
    received = store.receive()
    require(received.is_dir(), "there is no directory for what is received")
    store.drop(received)
    require(not received.exists(), "what was received and is not wanted stays")
    for job_id, submitted_ms in ((_LATER, 7), (_FIRST, 6), (_GONE, 5)):
        _submit(store, job_id, submitted_ms)
    store.set_jobmaster(_FIRST, "http://jobmaster:1", "token-1")
    store.set_cancelled(_LATER)
    store.set_cancelled(_JOB)
    store.remove_job(_GONE)
    store.remove_job(_GONE)
    require(first.application is None, "a new store knows an application")
    for state in ("RUNNING", "FINISHED"):
        store.set_application({"id": "a", "state": state})
    blob = require_some(store.blob(_BLOB_NAME), "a blob of jobs that have not ended is missing")
    require(blob.read_bytes() == _BLOB, "a blob has changed")
    require(store.blob("0" * 64) is None, "there is a blob that nobody has stored")
    store.end(StoredEnd(_OTHER, "ended", "fingerprint", 5, {"state": "FINISHED"}))
    first_process.depose(DISPATCHER)
    _refused(lambda: store.set_cancelled(_JOB), "writes about a job")
    _refused(lambda: store.set_jobmaster(_JOB, "http://stale:1", "stale"), "says where a JobMaster is")
    _refused(lambda: store.end(StoredEnd(_JOB, "stale", "", 9, {"state": "FAILED"})), "stores the end of a job")
    _refused(lambda: store.remove_job(_JOB), "removes a job")
    _refused(lambda: store.forget(_OTHER), "forgets a job")
    _refused(lambda: store.set_application({"id": "stale"}), "notes an application")
    _refused(lambda: store.open(2000), "opens the store")
    require(store.archive(_OTHER) == {"state": "FINISHED"}, "a stale leader has changed the store")
    require(store.archive(_JOB) is None, "a stale leader has changed the store")
    following = _lead(second_process, DISPATCHER)
    next_store = second_process.job_store(following)
    restored = next_store.open(0)
    require(restored.application == {"id": "a", "state": "FINISHED"}, "the application is another one")
    require(restored.term > first.term, f"terms of Dispatchers do not rise: {first.term}, {restored.term}")
    require(not restored.unreadable, f"entries are taken for damaged: {restored.unreadable}")
    jobs = [(job.graph.job_id, job.submitted_ms, job.jobmaster, job.cancel_wanted) for job in restored.jobs]
    expected = [(_FIRST, 6, ("http://jobmaster:1", "token-1"), False), (_LATER, 7, None, True)]
    require(jobs == expected, f"the next leader finds the jobs {jobs}, not {expected}")
    require([end.job_id for end in restored.ends] == [_OTHER], f"the next leader finds the ends {restored.ends}")
    _refused(lambda: store.set_cancelled(_FIRST), "writes about a job that there is")
    _refused(lambda: store.remove_job(_FIRST), "removes a job that there is")
    _refused(lambda: _submit(store, _JOB, 9), "stores a job")
    ended = StoredEnd(_FIRST, "first", "fingerprint", 8, {"state": "FINISHED", "n": 1}, {"a.key": "value"})
    next_store.end(ended)
    next_store.end(ended)
    next_store.end(StoredEnd(_LATER, "later", "fingerprint", 9, {"state": "CANCELED"}))
    next_store.forget(_LATER)
    next_store.forget(_LATER)
    require(next_store.archive(_FIRST) == {"state": "FINISHED", "n": 1}, "how a job ended is not what was stored")
    require(next_store.archive(_LATER) is None, "a job that was forgotten has an end")
    require(next_store.blob(_BLOB_NAME) is None, "a blob is there though all its jobs have ended")
    again = next_store.open(0)
    require(not again.jobs, f"jobs that have ended are found: {again.jobs}")
    require(
        again.ends == (StoredEnd(_OTHER, "ended", "fingerprint", 5, {"state": "FINISHED"}), ended),
        f"other ends are found than were stored: {again.ends}",
    )
    store.close()
    next_store.close()
    leadership.release()
    following.release()


def _submit(store: JobStore, job_id: str, submitted_ms: int) -> None:
    received = store.receive()
    file = received / "part"
    file.write_bytes(_BLOB)
    vertex = JobVertex("1" * 32, "v", 1, 128, "default", _BLOB_NAME, (OperatorInfo("1" * 32, "op", None, "map"),))
    graph = JobGraph(job_id, "a job", (vertex,), (), blobs={_BLOB_NAME: len(_BLOB)})
    try:
        store.put(StoredJob(graph, "fingerprint", submitted_ms), received, {_BLOB_NAME: file})
    finally:
        store.drop(received)


def _check_later(services: HighAvailabilityServices) -> None:
    leadership = _lead(services, _COMPONENT)
    store = services.completed_checkpoints(_JOB, leadership)
    require(
        [entry.location for entry in store.all()] == ["file:///a/chk-2"], "checkpoints did not outlive the services"
    )
    noted = Attempts(3, ("tm-1", "tm-2"))
    require(leadership.attempts == noted, f"attempts did not outlive the services: {leadership.attempts}")
    require(leadership.epoch > 3, f"epochs began anew: {leadership.epoch}")
    leadership.release()
    dispatcher = _lead(services, DISPATCHER)
    jobs = services.job_store(dispatcher)
    ends = [end.job_id for end in jobs.open(3000).ends]
    require(ends == [_OTHER, _FIRST], f"results did not outlive the services: {ends}")
    jobs.close()
    dispatcher.release()
    require(services.recorded_end(_JOB) == _END, "the end of a job did not outlive the services")
    require(services.remembers_job(_JOB), "of a job whose leader is gone nothing is known before it was forgotten")
    services.forget_job(_JOB)
    services.forget_job(_JOB)
    require(not services.remembers_job(_JOB), "a job that was forgotten is remembered")
    require(services.recorded_end(_JOB) is None, "a job that was forgotten has an end")
    again = _lead(services, _COMPONENT)
    require(services.completed_checkpoints(_JOB, again).all() == [], "a job that was forgotten has checkpoints")
    require(again.attempts == Attempts(), "of a job that was forgotten attempts are known")
    again.release()


def _refused(write: Callable[[], object], action: str, error_type: type[Exception] = FencedError) -> None:
    try:
        write()
    except error_type:
        return
    raise AssertionError(f"a leader whose time is over {action}, and nobody minds")
