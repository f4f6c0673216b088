"""Checkpoints in the core of the JobMaster: from the first trigger to a restart, the end, and the next JobMaster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from firesteel.checkpoint.assign import TaskRestore
from firesteel.checkpoint.handles import InlineState
from firesteel.checkpoint.metadata import CheckpointMetadata
from firesteel.checkpoint.storage import StorageParameters, load_checkpoint_storage
from firesteel.checkpoint.store import CompletedCheckpointStore, MemoryCheckpointStore
from firesteel.checkpoint.subtask_state import KeyedState, KeyKinds, OperatorSubtaskState, TaskState
from firesteel.config import Settings
from firesteel.graph.execution_graph import Execution
from firesteel.graph.job_archive import CLEAN_UP, EVENTS
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol import messages as m
from firesteel.protocol.deployment import TaskFailure
from firesteel.testing.clock import ManualClock
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoints.worker import CheckpointWorker
from firesteel_jobmaster.core import JobMasterCore
from firesteel_jobmaster.settings import JobMasterSettings
from tests.archives import job_archive
from tests.unit.ha.directories import checkpoint_store, kinds_of_records
from tests.unit.jobmaster import jobs

CORRUPTED = "firesteel.core.errors.CheckpointCorruptedError"


class Cluster:
    """A core, and slots that do what it says: acknowledge with a word for each task."""

    def __init__(
        self,
        graph: JobGraph,
        directory: Path,
        store: CompletedCheckpointStore,
        recovers: bool = False,
        takeover: tuple[int, str] = (0, ""),
        **more: str,
    ) -> None:
        settings = {
            "execution.checkpointing.interval": "10 s",
            "execution.checkpointing.dir": str(directory),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "9",
            "restart-strategy.fixed-delay.delay": "1 s",
            **more,
        }
        self.clock = ManualClock()
        self.core = JobMasterCore(
            graph, JobMasterSettings.read(Settings(), settings), self.clock, may_recover=recovers, takeover=takeover
        )
        self.core.validates = True
        parameters = StorageParameters(graph.job_id, Settings(settings))
        self.worker = CheckpointWorker(graph.job_id, lambda: load_checkpoint_storage(parameters), store)
        self.timers: dict[str, float] = {}
        self.out: list[do.Instruction] = []
        self.deployed: dict[str, TaskRestore | None] = {}
        self.silent = False
        self.serial = 0
        """Of the last splits that readers have in their state."""

    @property
    def state(self) -> str:
        return self.core.state.name

    def do(self, instructions: list[do.Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case do.CheckpointWork(work):
                    self.do(self.core.checkpoint_work_done(self.worker.do(work)))
                case do.SetTimer(name, seconds):
                    self.timers[name] = self.clock.monotonic() + seconds
                case do.ClearTimer(name):
                    self.timers.pop(name, None)
                case do.SubmitSlot(_, _, deployment):
                    for task in deployment.tasks:
                        plain = task.restore
                        self.deployed[task.execution_id] = None if plain is None else TaskRestore.from_plain(plain)
                    self.report([t.execution_id for t in deployment.tasks], "RUNNING")
                case do.CancelSlotTasks(_, _, ids):
                    self.report(ids, "CANCELED")
                case do.SendTriggerCheckpoint(checkpoint_id=checkpoint_id) if not self.silent:
                    self.acknowledge_all(checkpoint_id)
                case _:
                    self.out.append(instruction)

    def start(self) -> Cluster:
        self.do(self.core.start())
        offers = tuple(
            m.SlotOffer(i, f"alloc-{i}", {"unix": f"/{i}"}, 100 + i) for i in range(self.core.graph.slots_needed)
        )
        self.do(self.core.resourcemanager_connected())
        self.do(self.core.offer_slots(m.OfferSlots("tm", "http://tm", offers))[1])
        return self

    def report(self, ids: Any, state: str, error: TaskFailure | None = None) -> None:
        plain = error.to_plain() if error else None
        updates = tuple(m.TaskStateUpdate(id_, state, 0, plain) for id_ in ids)
        self.do(self.core.update_task_states(m.UpdateTaskStates("tm", updates)))

    def acknowledge_all(self, checkpoint_id: int) -> None:
        for execution in self.core.graph.executions():
            if execution.state.value == "RUNNING":
                self.acknowledge(execution, checkpoint_id)

    def acknowledge(self, execution: Execution, checkpoint_id: int) -> None:
        word = f"{execution.id} at {checkpoint_id}".encode()
        keyed = {"state": KeyedState(({"name": "s"},), _groups(execution), (InlineState(word),))}
        state = TaskState(
            {execution.vertex.operators[0].id: OperatorSubtaskState(keyed, keys=KeyKinds(("str",)))},
            execution.end_of_data,
            self.serial,
        )
        message = m.AcknowledgeCheckpoint(execution.id, checkpoint_id, {"state_size": 9}, state.to_bytes().decode())
        self.do(self.core.acknowledge_checkpoint(message))

    def advance(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        while due := [(at, name) for name, at in self.timers.items() if at <= end]:
            at, name = min(due)
            self.clock.advance(max(0.0, at - self.clock.monotonic()))
            del self.timers[name]
            self.do(self.core.timer_fired(name))
        self.clock.advance(end - self.clock.monotonic())

    def ask(self, number: int) -> list[str]:
        source = self.core.graph.executions()[0]
        splits, out = self.core.request_splits(m.RequestSplits(source.id, number))
        self.do(out)
        return [str(split["id"]) for split in splits.splits]

    def fail_a_task(
        self, error_class: str = "builtins.RuntimeError", message: str = "once", kind: str = "user"
    ) -> None:
        execution = self.core.graph.executions()[-1]
        self.report([execution.id], "FAILED", TaskFailure(kind, error_class, message, ""))

    def words(self) -> dict[str, str]:
        """What the current attempts were given back, by vertex and subtask."""
        words = {}
        for execution in self.core.graph.executions():
            restore = self.deployed[execution.id]
            for operator in restore.operators.values() if restore else ():
                for part in operator.keyed["state"]:
                    for handle in part.handles:
                        assert isinstance(handle, InlineState)
                        words[f"{execution.vertex.name}/{execution.subtask}"] = handle.data.decode()
        return words

    def keys(self) -> list[KeyKinds | None]:
        """What tasks that go on from state are told of its keys, each once."""
        restores = [self.deployed[execution.id] for execution in self.core.graph.executions()]
        key_kinds = [operator.keys for restore in restores if restore for operator in restore.operators.values()]
        return [kinds for at, kinds in enumerate(key_kinds) if kinds not in key_kinds[:at]]


def _groups(execution: Execution) -> tuple[int, int]:
    half = 128 // execution.vertex.parallelism
    return execution.subtask * half, (execution.subtask + 1) * half - 1


def cluster(directory: Path, store: CompletedCheckpointStore | None = None, **more: Any) -> Cluster:
    return Cluster(jobs.two_by_two(), directory, store or MemoryCheckpointStore(), **more).start()


def _setting(key: str, value: str) -> dict[str, Any]:
    return {key: value}


def _path(path: Path) -> dict[str, Any]:
    return _setting("execution.state-recovery.path", str(path))


def retained(directory: Path) -> list[str]:
    return sorted(path.parent.name for path in directory.glob("*/chk-*/_metadata"))


def test_checkpoints_are_taken_and_the_last_is_kept(tmp_path: Path) -> None:
    job_cluster = cluster(tmp_path)
    assert job_cluster.deployed == {e.id: None for e in job_cluster.core.graph.executions()}
    job_cluster.advance(35)
    assert retained(tmp_path) == ["chk-3"]
    complete = [i for i in job_cluster.out if isinstance(i, do.NotifyCheckpointComplete)]
    assert [i.checkpoint_id for i in complete] == [1, 1, 2, 2, 3, 3]
    assert {id_ for i in complete for id_ in i.execution_ids} == {e.id for e in job_cluster.core.graph.executions()}
    plain = job_archive(job_cluster.core)["checkpoints"]
    assert plain["counts"] == {"restored": 0, "total": 3, "in_progress": 0, "completed": 3, "failed": 0}
    assert [(r["id"], r["discarded"]) for r in plain["history"]] == [(3, False), (2, True), (1, True)]
    assert plain["metrics"]["lastCheckpointFullSize"] == 36


def test_a_restart_goes_on_from_the_last_checkpoint(tmp_path: Path) -> None:
    job_cluster = cluster(tmp_path)
    job_cluster.advance(25)
    job_cluster.fail_a_task()
    assert job_cluster.state == "RESTARTING"
    job_cluster.advance(1)
    assert job_cluster.state == "RUNNING"
    before = {
        f"{e.vertex.name}/{e.subtask}": f"{e.vertex.id}_{e.subtask}_0 at 2" for e in job_cluster.core.graph.executions()
    }
    assert job_cluster.words() == before
    job_cluster.advance(10)
    assert retained(tmp_path) == ["chk-3"]
    archive = job_archive(job_cluster.core)
    assert archive["checkpoints"]["restored"]["id"] == 2
    events = [(event["type"], event["text"]) for event in archive[EVENTS]["events"]]
    assert events[-1] == ("RUNNING", "all 4 tasks run, from checkpoint 2")
    assert "CHECKPOINTS_FAILING" not in dict(events), "those that the restart has given up count for nothing"


def test_without_a_checkpoint_a_restart_begins_anew(tmp_path: Path) -> None:
    job_cluster = cluster(tmp_path)
    job_cluster.fail_a_task()
    job_cluster.advance(1)
    assert job_cluster.words() == {}
    assert all(restore is None for restore in job_cluster.deployed.values())


def test_splits_that_were_given_out_since_the_checkpoint_are_given_out_again(tmp_path: Path) -> None:
    job_cluster = cluster(tmp_path)
    assert job_cluster.ask(1) == ["a"]
    job_cluster.advance(10)  # the reader says that it had got nothing at the barrier
    assert job_cluster.ask(2) == ["b"]
    job_cluster.fail_a_task()
    job_cluster.advance(1)
    assert [job_cluster.ask(number) for number in (1, 2, 3, 4)] == [["a"], ["b"], ["c"], []]


def test_a_jobmaster_that_follows_a_lost_one_gives_out_only_what_is_in_no_state(tmp_path: Path) -> None:
    store = MemoryCheckpointStore()
    first = cluster(tmp_path, store)
    assert [first.ask(1), first.ask(2)] == [["a"], ["b"]]
    first.serial = 2  # both are in the reader's state
    first.advance(10)
    second = cluster(tmp_path, store, recovers=True, takeover=(1, "it was killed"))
    assert [second.ask(1), second.ask(2)] == [["c"], []]


def test_a_job_that_waits_for_its_storage_is_restarted_when_that_is_known(tmp_path: Path) -> None:
    job_cluster = cluster(tmp_path)
    finished_work: list[Any] = []
    work_done = job_cluster.worker.do

    def hold(work: Any, call: Any = None) -> Any:
        done = work_done(work)
        if type(work).__name__ == "Complete":
            finished_work.append(done)
            return type(done)(type("Nothing", (), {})())
        return done

    job_cluster.worker.do = hold  # type: ignore[method-assign]
    job_cluster.advance(10)
    job_cluster.fail_a_task()
    job_cluster.advance(5)
    assert not any(e.attempt == 1 and e.state.value == "RUNNING" for e in job_cluster.core.graph.executions())
    job_cluster.do(job_cluster.core.checkpoint_work_done(finished_work[0]))
    assert job_cluster.words()["V1/0"].endswith("_0 at 1")


@pytest.mark.parametrize(
    ("retention", "cancelled", "left"),
    [
        ("NO_EXTERNALIZED_CHECKPOINTS", True, []),
        ("NO_EXTERNALIZED_CHECKPOINTS", False, []),
        ("DELETE_ON_CANCELLATION", True, []),
        ("DELETE_ON_CANCELLATION", False, ["chk-1"]),
        ("RETAIN_ON_CANCELLATION", True, ["chk-1"]),
        ("RETAIN_ON_CANCELLATION", False, ["chk-1"]),
    ],
)
def test_what_stays_when_a_job_ends(retention: str, cancelled: bool, left: list[str], tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "execution.checkpointing.externalized-checkpoint-retention": retention,
        "restart-strategy.type": "none",
    }
    job_cluster = cluster(tmp_path, **more)
    job_cluster.advance(15)
    if cancelled:
        job_cluster.do(job_cluster.core.cancel("by a test"))
    else:
        job_cluster.fail_a_task()
    assert job_cluster.state == ("CANCELED" if cancelled else "FAILED")
    assert retained(tmp_path) == left
    assert job_archive(job_cluster.core)[CLEAN_UP] == ("keep" if left else "remove"), (
        "whoever comes next would do otherwise"
    )
    assert not left or [p.name for p in tmp_path.iterdir()] == [jobs.JOB]
    assert left or not list(tmp_path.iterdir())
    released = [
        instruction.last_checkpoint for instruction in job_cluster.out if isinstance(instruction, do.ReleaseSlot)
    ]
    assert set(released) == {1 if left else 0}, "sinks' files that only later checkpoints need go"


def test_a_bounded_job_ends_with_a_checkpoint_that_commits(tmp_path: Path) -> None:
    job_cluster = Cluster(jobs.two_by_two(commits=True), tmp_path, MemoryCheckpointStore()).start()
    for execution in job_cluster.core.graph.executions():
        job_cluster.do(job_cluster.core.end_of_data(m.ExecutionRef(execution.id)))
    complete = [i for i in job_cluster.out if isinstance(i, do.NotifyCheckpointComplete)]
    assert {i.checkpoint_id for i in complete} == {1}
    job_cluster.report([e.id for e in job_cluster.core.graph.executions()], "FINISHED")
    assert job_cluster.state == "FINISHED"
    assert not list(tmp_path.iterdir())


def test_the_next_jobmaster_goes_on_from_the_store(tmp_path: Path) -> None:
    store = checkpoint_store(tmp_path / "store")
    first = cluster(tmp_path / "c", store)
    first.advance(25)
    first.do(first.core.suspend("the host stops"))
    assert retained(tmp_path / "c") == ["chk-2"]
    second = cluster(tmp_path / "c", checkpoint_store(tmp_path / "store"), recovers=True)
    assert second.words()["V2/1"].endswith("_1_0 at 2")
    second.advance(10)
    assert retained(tmp_path / "c") == ["chk-3"]
    second.do(second.core.cancel("by a test"))
    assert not list((tmp_path / "c").iterdir())
    assert kinds_of_records(tmp_path / "store") == {"writer"}


def test_a_job_starts_from_a_retained_checkpoint_which_it_does_not_own(tmp_path: Path) -> None:
    keep: dict[str, Any] = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}
    first = cluster(tmp_path / "old", **keep)
    first.advance(25)
    first.do(first.core.cancel("by a test"))
    path = tmp_path / "old" / jobs.JOB / "chk-2"
    second = cluster(tmp_path / "new", **_path(path))
    assert second.words()["V1/1"].endswith("_1_0 at 2")
    second.advance(15)
    assert retained(tmp_path / "new") == ["chk-3"]
    second.do(second.core.cancel("by a test"))
    assert retained(tmp_path / "old") == ["chk-2"]
    third = cluster(tmp_path / "newer", **_path(path))
    third.do(third.core.cancel("by a test"))
    assert {instruction.last_checkpoint for instruction in third.out if isinstance(instruction, do.ReleaseSlot)} == {2}


def test_a_suspended_job_needs_all_its_files(tmp_path: Path) -> None:
    job_cluster = cluster(tmp_path)
    job_cluster.advance(15)
    job_cluster.do(job_cluster.core.suspend("the host stops"))
    assert {
        instruction.last_checkpoint for instruction in job_cluster.out if isinstance(instruction, do.ReleaseSlot)
    } == {None}


def test_state_of_operators_that_the_job_does_not_have_is_not_dropped_silently(tmp_path: Path) -> None:
    keep: dict[str, Any] = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}
    first = cluster(tmp_path / "old", **keep)
    first.advance(15)
    first.do(first.core.cancel("by a test"))
    path: dict[str, Any] = {"execution.state-recovery.path": str(tmp_path / "old" / jobs.JOB / "chk-1")}
    other = jobs.job(jobs.vertex(1, 2, splits=["a"]), jobs.vertex(7, 2))
    refused = Cluster(other, tmp_path / "new", MemoryCheckpointStore(), **path).start()
    assert refused.state == "FAILED"
    message = job_archive(refused.core)["failure"]["message"]
    assert "has state of operators that the job does not have: 'V2'" in message
    assert "-n on the command line" in message
    ignoring: dict[str, Any] = {**path, "execution.state-recovery.ignore-unclaimed-state": "true"}
    successor = Cluster(other, tmp_path / "new", MemoryCheckpointStore(), **ignoring).start()
    assert successor.words().keys() == {"V1/0", "V1/1"}


def test_keys_are_proved_where_another_job_goes_on(tmp_path: Path) -> None:
    keep: dict[str, Any] = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}
    first = cluster(tmp_path / "old", **keep)
    first.advance(15)
    first.fail_a_task()
    first.advance(5)
    assert first.keys() == [KeyKinds(("str",))], "the same program has the same key selectors"
    first.do(first.core.cancel("by a test"))
    path = _path(tmp_path / "old" / jobs.JOB / "chk-1")
    other = Cluster(jobs.two_by_two(), tmp_path / "new", MemoryCheckpointStore(), **path).start()
    assert other.keys() == [KeyKinds(("str",), proved=False)]
    ignoring: dict[str, Any] = {**path, "execution.state-recovery.ignore-unclaimed-state": "true"}
    successor = Cluster(jobs.two_by_two(), tmp_path / "newer", MemoryCheckpointStore(), **ignoring).start()
    assert successor.keys() == [KeyKinds(("str",))]


def test_a_path_without_a_checkpoint_fails_the_job_at_once(tmp_path: Path) -> None:
    path: dict[str, Any] = {"execution.state-recovery.path": str(tmp_path / "nothing")}
    job_cluster = cluster(tmp_path / "new", **path)
    assert job_cluster.state == "FAILED"
    assert "there is no such file or directory" in job_archive(job_cluster.core)["failure"]["message"]


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(tmp_path: Path) -> None:
    store = checkpoint_store(tmp_path / "store")
    more: dict[str, Any] = {"execution.checkpointing.num-retained": "3"}
    first = cluster(tmp_path / "c", store, **more)
    first.advance(35)
    assert retained(tmp_path / "c") == ["chk-1", "chk-2", "chk-3"]
    first.do(first.core.suspend("the host stops"))
    metadata = tmp_path / "c" / jobs.JOB / "chk-3" / "_metadata"
    metadata.write_bytes(metadata.read_bytes()[:-5])
    second = cluster(tmp_path / "c", store, recovers=True, **more)
    assert second.words()["V1/0"].endswith("_0_0 at 2")
    second.fail_a_task(CORRUPTED, "chk-2/x: its checksum is wrong")
    second.advance(1)
    assert second.words()["V1/0"].endswith("_0_0 at 1")
    assert (tmp_path / "c" / jobs.JOB / "chk-2" / "_metadata").exists()
    second.fail_a_task(CORRUPTED, "chk-1/x: its checksum is wrong")
    second.advance(1)
    assert second.state == "FAILED"
    assert "none of them can be read" in str(job_archive(second.core)["exceptions"])


@pytest.mark.parametrize("mode", ["EXACTLY_ONCE", "AT_LEAST_ONCE"])
def test_results_for_the_client_are_no_reason_to_use_the_one_before(tmp_path: Path, mode: str) -> None:
    more: dict[str, Any] = {"execution.checkpointing.num-retained": "2", "execution.checkpointing.mode": mode}
    graph = jobs.job(jobs.vertex(1, 2, splits=["a"]), jobs.vertex(2, 1, collects="f" * 32))
    job_cluster = Cluster(graph, tmp_path, MemoryCheckpointStore(), **more).start()
    job_cluster.advance(25)
    job_cluster.fail_a_task()
    job_cluster.advance(1)
    assert job_cluster.words()["V2/0"].endswith(" at 2")
    job_cluster.fail_a_task(CORRUPTED, "chk-2/x: its checksum is wrong")
    job_cluster.advance(1)
    assert job_cluster.state == "FAILED"
    message = job_archive(job_cluster.core)["failure"]["message"]
    assert "what its sinks (V2) have committed, or given to the program, since would be repeated" in message


def test_storage_that_can_not_be_written_fails_the_job_after_the_tolerated_failures(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    more: dict[str, Any] = {
        "execution.checkpointing.tolerable-failed-checkpoints": "2",
        "restart-strategy.type": "none",
    }
    job_cluster = cluster(tmp_path / "file", **more)
    job_cluster.advance(25)
    assert job_cluster.state == "RUNNING"
    assert job_archive(job_cluster.core)["checkpoints"]["counts"]["failed"] == 2
    failing = job_archive(job_cluster.core)[EVENTS]["events"][-1]
    assert (failing["type"], failing["count"]) == ("CHECKPOINTS_FAILING", 2)
    assert "Not a directory" in failing["text"]
    job_cluster.advance(10)
    assert job_cluster.state == "FAILED"
    message = job_archive(job_cluster.core)["failure"]["message"]
    assert "Exceeded checkpoint tolerable failure threshold" in message
    assert "Not a directory" in message


def test_a_checkpoint_by_hand(tmp_path: Path) -> None:
    job_cluster = cluster(tmp_path, **_setting("execution.checkpointing.interval", "1 h"))
    job_cluster.do(job_cluster.core.trigger_checkpoint(m.TriggerJobCheckpoint("a" * 32)))
    job_cluster.do(job_cluster.core.trigger_checkpoint(m.TriggerJobCheckpoint("a" * 32)))
    plain = job_archive(job_cluster.core)["checkpoints"]
    assert plain["triggers"] == {"a" * 32: {"status": "COMPLETED", "checkpointId": 1}}
    job_cluster.fail_a_task()
    job_cluster.do(job_cluster.core.trigger_checkpoint(m.TriggerJobCheckpoint("b" * 32)))
    refused = job_archive(job_cluster.core)["checkpoints"]["triggers"]["b" * 32]
    assert refused["status"] == "COMPLETED"
    assert refused["failure"].startswith("Not all required tasks are currently running.")
    job_cluster.core.graph.waiting_reason = "2 slots are needed, and the cluster has 1."
    job_cluster.do(job_cluster.core.trigger_checkpoint(m.TriggerJobCheckpoint("c" * 32)))
    refused = job_archive(job_cluster.core)["checkpoints"]["triggers"]["c" * 32]
    assert refused["failure"].endswith("The job waits for slots: 2 slots are needed, and the cluster has 1.")


def test_the_metadata_name_the_job_and_its_operators(tmp_path: Path) -> None:
    job_cluster = cluster(tmp_path)
    job_cluster.advance(10)
    path = next(tmp_path.glob("*/chk-1/_metadata"))
    metadata = CheckpointMetadata.from_bytes(path.read_bytes(), str(path))
    assert metadata.job_id == jobs.JOB
    assert [(o.name, o.parallelism, len(o.subtasks)) for o in metadata.operators] == [("V1", 2, 2), ("V2", 2, 2)]
    enumerator = metadata.operators[0].enumerator
    assert enumerator is not None
    assert [split["id"] for split in enumerator.state] == ["a", "b", "c"]
