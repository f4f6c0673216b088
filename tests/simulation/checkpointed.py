"""Tasks of jobs with checkpoints: a model of what slots do with records, barriers, state and results.

Sources read numbered records of splits. What is behind them counts records by key; the last vertex gives results to a
sink in two phases. Barriers are aligned by the real ``BarrierAligner``; what tasks say is what real ones say.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from firesteel.checkpoint import savepoint_places, savepoints
from firesteel.checkpoint.assign import TaskRestore
from firesteel.checkpoint.handles import InlineState
from firesteel.checkpoint.subtask_state import (
    Committables,
    KeyedState,
    OperatorListState,
    OperatorSubtaskState,
    TaskState,
)
from firesteel.core.errors import CheckpointError
from firesteel.graph.key_groups import key_group_range, operator_index
from firesteel.graph.physical import upstream_channels
from firesteel.graph.specs import PartitionerKind
from firesteel.protocol.checkpoint_messages import DeclineReason
from firesteel.protocol.deployment import TaskFailure
from firesteel.runtime.checkpoints.aligner import Arrived, BarrierAligner
from firesteel.runtime.records.batch import Barrier, CancelBarrier

if TYPE_CHECKING:
    from tests.simulation.ledger import Result
    from tests.simulation.slots import SlotProcess
    from tests.simulation.world import World

KEYS = 5
METRICS = ("start_delay_ms", "alignment_ms", "sync_ms", "async_ms", "state_size", "checkpointed_size")
_END = object()
_COUNTS = ({"name": "counts"},)
_UNION = OperatorListState(({"name": "all", "kind": "union"},))


class _Clock:
    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic(self) -> float:
        return self._world.now

    def epoch_ms(self) -> int:
        return int(1_700_000_000_000 + self._world.now * 1000)


class Channel:
    """From one task to another; what is in it arrives in order."""

    def __init__(self) -> None:
        self.elements: deque[Any] = deque()
        self.reader: CheckpointedTask | None = None

    def send(self, element: Any) -> None:
        self.elements.append(element)
        if self.reader is not None:
            self.reader.wake()


class CheckpointedTask:
    """One execution.

    Args:
        slot: in which it runs.
        plain: its descriptor.
        deployment: that it came with.
    """

    def __init__(self, slot: SlotProcess, plain: Mapping[str, Any], deployment: Mapping[str, Any]) -> None:
        self.slot, self.cluster, self.world = slot, slot.cluster, slot.cluster.world
        self.job_id, self.run = deployment["job_id"], deployment["secret"]
        self.job = self.cluster.checkpointed[self.job_id]
        self.ledger = self.cluster.ledger
        self.execution_id, self.operator_id = plain["execution_id"], plain["vertex_id"]
        self.number, self.attempt = int(plain["subtask"]), int(plain["attempt"])
        self.parallelism, self.max_parallelism = int(plain["parallelism"]), int(plain["max_parallelism"])
        self.subtask = self.execution_id.rpartition("_")[0]
        self.is_source, self.is_sink = plain["is_source"], plain["needs_commit"]
        self.state = "DEPLOYING"
        self._connect(deployment)
        self._splits: list[dict[str, Any]] = []
        self._serial, self._no_more, self._asked = 0, False, False
        self._counts: dict[str, int] = {}
        self._results: list[Result] = []
        self._prepared: dict[int, list[tuple[str, list[Result]]]] = {}
        self._committing: list[tuple[int, str, list[Result]]] = []
        self._passed = 0
        self._aborted: set[int] = set()
        self._writing: dict[int, TaskState] = {}
        self._directories: dict[int, str] = {}
        """Of savepoints."""
        self._stopped_at = 0
        """Behind the barrier of this savepoint it does nothing, until that is complete or given up."""
        self._input_ended = False
        self._first_final: int | None = None
        self._triggered: Barrier | None = None
        self._final_complete = False
        self._awake = self._retrying = False
        restore = plain["restore"]
        self._restore = None if restore is None else TaskRestore.from_plain(restore)
        self.ledger.deployed(self.job_id, self.run, self.execution_id, restore["checkpoint_id"] if restore else 0)

    def _connect(self, deployment: Mapping[str, Any]) -> None:
        self._inputs: list[Channel] = []
        self._outputs: list[tuple[bool, list[Channel]]] = []
        for edge in deployment["edges"]:
            kind, up, down = PartitionerKind(edge["partitioner"]), edge["up_parallelism"], edge["down_parallelism"]
            if edge["target"] == self.operator_id:
                self._inputs += [
                    self._channel(edge["index"], upstream, self.number)
                    for upstream in upstream_channels(kind, self.number, up, down)
                ]
            if edge["source"] == self.operator_id:
                targets = [self.number] if kind is PartitionerKind.FORWARD else range(down)
                channels = [self._channel(edge["index"], self.number, downstream) for downstream in targets]
                self._outputs.append((kind is PartitionerKind.HASH, channels))
        for channel in self._inputs:
            channel.reader = self
        self._aligner = BarrierAligner(len(self._inputs), _Clock(self.world))

    def _channel(self, edge: int, source: int, target: int) -> Channel:
        """Those of one region are of the same attempt."""
        name = self.run, edge, source, target, self.attempt
        return self.cluster.exchange.setdefault(name, Channel())

    # -- life

    @property
    def _lives(self) -> bool:
        return self.slot.alive and self.state in ("INITIALIZING", "RUNNING")

    def _at(self, point: str) -> bool:
        """A step of a checkpoint; False when the task did not survive it."""
        self.cluster.at(point, self.job_id, self)
        return self._lives

    def start(self) -> None:
        self._move("INITIALIZING")
        seconds = self.world.rng.uniform(0.001, 0.2)
        self.world.after(seconds, self._open)

    def _open(self) -> None:
        if not self._lives or not self._at("restore"):
            return
        if self._restore is not None:
            try:
                self._read(self._restore)
            except CheckpointError as error:
                kind = type(error)
                self.fail(f"{kind.__module__}.{kind.__qualname__}", str(error), "external")
                return
        self._move("RUNNING")
        self._commit()
        self.wake()

    def _read(self, restore: TaskRestore) -> None:
        storage = self.cluster.storage(self.job_id)
        self._no_more = restore.finished
        mine = restore.operators.get(self.operator_id)
        if mine is None:
            return
        for part in mine.keyed.get("counts", ()):
            if self.cluster.disk.chance(self.cluster.disk.weather.fails):
                raise CheckpointError("the disk does not answer")
            for handle in part.handles:
                for key, count in json.loads(storage.read_state(handle)).items():
                    self._counts[key] = self._counts.get(key, 0) + count
        self._splits = [] if restore.finished else [dict(split) for split in mine.splits]
        for committables in mine.committables:
            for item in committables.items:
                name, results = json.loads(storage.read_state(item))
                self._committing.append((restore.checkpoint_id, name, [_result(result) for result in results]))

    def _move(self, state: str, error: Mapping[str, Any] | None = None) -> None:
        self.state = state
        self.cluster.changed = True
        if state == "FINISHED":
            self.ledger.ended(self.job_id, self.run, self.subtask)
        self.slot.say(
            {"type": "task_state", "execution_id": self.execution_id, "state": state, "error": error, "metrics": {}}
        )

    def fail(self, kind: str = "builtins.ValueError", message: str = "a record is bad", whose: str = "user") -> None:
        if self._lives:
            self._move("FAILED", TaskFailure(whose, kind, message, f"{message}\n").to_plain())

    def cancel(self) -> None:
        if self._lives:
            self._move("CANCELED")

    def received(self, message: Mapping[str, Any]) -> None:
        if not self._lives:
            return
        match message["type"]:
            case "assign_splits":
                self._splits += [dict(split) for split in message["splits"]]
                self._no_more = self._no_more or message["no_more"]
                self._asked = self._asked and not message["splits"] and not message["no_more"]
                self._serial = max(self._serial, message["serial"])
                self.wake()
            case "trigger_checkpoint":
                self._trigger(Barrier(message["checkpoint_id"], message["timestamp_ms"], message["options"]))
            case "checkpoint_complete":
                self._completed(message["checkpoint_id"])
            case "checkpoint_aborted":
                self._abort(message["checkpoint_id"])

    # -- records

    def wake(self) -> None:
        """There may be something to do."""
        if not self._awake and self._lives and not self._input_ended:
            self._awake = True
            self.world.after(self.world.rng.uniform(*self.cluster.pace()), self._work)

    def _work(self) -> None:
        self._awake = False
        if self.state != "RUNNING" or not self._lives or self._input_ended or self._stopped_at:
            return
        if self.is_source:
            self._poll()
        else:
            self._take()

    def _poll(self) -> None:
        for _ in range(self.world.rng.randint(1, 3)):
            if not self._splits:
                break
            split = self._splits[0]
            position = int(split.get("position") or 0)
            if position < split["data"]["records"]:
                split["position"] = position + 1
                self._process((split["id"], position))
            if position + 1 >= split["data"]["records"]:
                self._splits.pop(0)
        if self._splits:
            self.wake()
        elif self._no_more:
            self._end_input()
        elif not self._asked:
            self._asked = True
            self.slot.say({"type": "request_splits", "execution_id": self.execution_id})

    def _take(self) -> None:
        waiting = sum(len(channel.elements) for channel in self._inputs)
        for _ in range(self.world.rng.randint(1, 6) + waiting // 4):  # the more wait, the faster it is
            ready = [i for i, c in enumerate(self._inputs) if c.elements and i not in self._aligner.blocked]
            if not ready:
                return
            number = self.world.rng.choice(ready)
            element = self._inputs[number].elements.popleft()
            if isinstance(element, Barrier):
                out = self._aligner.barrier(number, element)
            elif isinstance(element, CancelBarrier):
                out = self._aligner.cancelled(number, element.checkpoint_id)
            elif element is _END:
                out = self._aligner.ended(number)
                self._ended = getattr(self, "_ended", 0) + 1
            else:
                self._process(element)
                continue
            for item in out:
                if isinstance(item, Arrived):
                    self._begin(item.barrier)
                elif isinstance(item, CancelBarrier):
                    self._give_up(item.checkpoint_id)
            if not self._lives or self._stopped_at:
                return
            if getattr(self, "_ended", 0) == len(self._inputs):
                self._end_input()
                return
        self.wake()

    def _process(self, element: Any) -> None:
        """A source gives records; the first one behind it counts; a sink keeps results."""
        result: Result
        if len(element) == 2:
            record = element
            key = f"k{(int(record[0]) * 7 + record[1]) % KEYS}"
            if self.is_source and self.job.vertices > 1:
                self._send(record, key)
                return
            count = self._counts[key] = self._counts.get(key, 0) + 1
            result = self.subtask, record, key, count
        else:
            result = element
        if self.is_sink:
            self._results.append(result)
        else:
            self._send(result, result[2])

    def _send(self, element: Any, key: str) -> None:
        for hashed, channels in self._outputs:
            if hashed:
                index = operator_index(_group(key, self.job.max_parallelism), len(channels), self.job.max_parallelism)
            else:
                index = 0 if len(channels) == 1 else self.world.rng.randrange(len(channels))
            channels[index].send(element)

    def _broadcast(self, element: Any) -> None:
        for _, channels in self._outputs:
            for channel in channels:
                channel.send(element)

    def _end_input(self) -> None:
        self._input_ended = True
        self._broadcast(_END)
        self.slot.say({"type": "end_of_data", "execution_id": self.execution_id})
        if self._triggered is not None:
            self._begin(self._triggered)

    # -- checkpoints

    def _trigger(self, barrier: Barrier) -> None:
        number = barrier.checkpoint_id
        self.ledger.triggered(self.job_id, self.run, number)
        if self.state != "RUNNING":
            self._decline(number, DeclineReason.TASK_NOT_READY)
        elif not self.is_source and not self._input_ended:
            self._triggered = barrier
        elif number > self._passed and self._at("barrier"):
            if number in self._aborted:
                self._give_up(number)
            else:
                self._begin(barrier)

    def _begin(self, barrier: Barrier) -> None:
        number = barrier.checkpoint_id
        if number <= self._passed or not self._at("before sync"):
            return
        self._passed = number
        if not self._input_ended:
            self._broadcast(barrier)
        elif self._first_final is None:
            self._first_final = number
        if self.is_sink and self._results:
            name = f"{self.execution_id}-{self.run[:8]}-{number}"
            self._prepared.setdefault(number, []).append((name, self._results))
            self._results = []
        if savepoints.OPTION in barrier.options:
            self._directories[number] = barrier.options[savepoints.OPTION]
        if barrier.options.get(savepoints.STOP_OPTION):
            self._stopped_at = number
        self._writing[number] = self._snapshot()
        if self._at("after sync"):
            self.world.after(self.cluster.disk.seconds() * 4, lambda: self._write(number))

    def _snapshot(self) -> TaskState:
        by_checkpoint: dict[int, list[tuple[str, list[Result]]]] = {n: list(p) for n, p in self._prepared.items()}
        for number, name, results in self._committing:
            by_checkpoint.setdefault(number, []).append((name, results))
        committables = tuple(
            Committables(number, 1, tuple(InlineState(json.dumps(committable).encode()) for committable in prepared))
            for number, prepared in sorted(by_checkpoint.items())
        )
        keyed = {}
        if self._counts:
            groups = key_group_range(self.number, self.parallelism, self.max_parallelism)
            keyed["counts"] = KeyedState(_COUNTS, groups, (InlineState(json.dumps(self._counts).encode()),))
        union = _UNION if self.job.union and not self.is_source else None
        splits = tuple(dict(split) for split in self._splits)
        state = OperatorSubtaskState(keyed, union, splits, committables)
        operators = {} if state.is_empty else {self.operator_id: state}
        return TaskState(operators, self._input_ended, self._serial)

    def _write(self, number: int) -> None:
        """The asynchronous part: what was kept in memory goes into a file."""
        state = self._writing.pop(number, None)
        if state is None or not self._lives or not self._at("before write"):
            return
        mine = state.operators.get(self.operator_id)
        if mine is not None and "counts" in mine.keyed:
            counts = mine.keyed["counts"]
            place: Any = self.cluster.storage(self.job_id)
            if number in self._directories:
                place = savepoint_places.savepoint_directory(self._directories[number])
            try:
                with place.open_state_stream(number, "counts") as stream:
                    stream.write(next(iter(mine.handles())).data)  # type: ignore[union-attr] # kept inline
                    handle = stream.close()
            except CheckpointError as error:
                failure = TaskFailure("external", type(error).__qualname__, str(error), "").to_plain()
                self._decline(number, DeclineReason.ASYNC_EXCEPTION, failure)
                return
            keyed = {"counts": KeyedState(counts.states, counts.key_groups, (handle,))}
            mine = OperatorSubtaskState(keyed, mine.operator, mine.splits, mine.committables)
            state = TaskState({self.operator_id: mine}, state.finished, state.splits_serial)
        if not self._at("after write"):
            return
        self.ledger.acknowledged(self.job_id, self.subtask, number)
        metrics = dict.fromkeys(METRICS, 0)
        said = {"type": "acknowledge_checkpoint", "execution_id": self.execution_id, "checkpoint_id": number}
        self.slot.say({**said, "metrics": metrics}, state.to_bytes())
        self._at("after acknowledge")

    def _decline(self, number: int, reason: DeclineReason, failure: Mapping[str, Any] | None = None) -> None:
        said = {"type": "decline_checkpoint", "execution_id": self.execution_id, "checkpoint_id": number}
        self.slot.say({**said, "reason": reason.value, "failure": failure})

    def _give_up(self, number: int) -> None:
        """A barrier won't come any more."""
        if number > self._passed and not self._input_ended:
            self._broadcast(CancelBarrier(number))
        if number not in self._aborted:
            self._decline(number, DeclineReason.SUBSUMED)

    def _abort(self, number: int) -> None:
        self._aborted.add(number)
        self._writing.pop(number, None)
        if number == self._stopped_at:
            self._stopped_at = 0
        if self._aligner.abort(number):
            self._give_up(number)
        self.wake()

    # -- results

    def _completed(self, number: int) -> None:
        if not self._at("before commit"):
            return
        for prepared in sorted(n for n in self._prepared if n <= number):
            self._committing += [(number, name, results) for name, results in self._prepared.pop(prepared)]
        if self._first_final is not None and number >= self._first_final:
            self._final_complete = True
        if self._stopped_at and number >= self._stopped_at:
            self._final_complete = True
        self._commit()

    def _commit(self) -> None:
        """Ask for all that is to be shown; what can't be now is tried again."""
        rng, left = self.world.rng, []
        for number, name, results in self._committing:
            fate = rng.random() if self.cluster.faults_go_on else 1.0
            if fate >= 0.05:
                self.ledger.commits(self.job_id, name, number, results)
            if fate < 0.1:  # it was not shown, or nobody knows
                left.append((number, name, results))
        shown = len(left) < len(self._committing)
        self._committing = left
        if shown and not self._at("after commit"):
            return
        if left and not self._retrying:
            self._retrying = True
            self.world.after(rng.uniform(0.1, 2.0), self._again)
        if self._final_complete and not left and self._lives:
            self._move("FINISHED")

    def _again(self) -> None:
        self._retrying = False
        if self._lives:
            self._commit()

    @property
    def uncommitted(self) -> int:
        """The oldest checkpoint whose results it has not shown; 0 = none."""
        return min([*self._prepared, *(number for number, _, _ in self._committing)], default=0)


def _group(key: str, max_parallelism: int) -> int:
    return int(key[1:]) * 37 % max_parallelism


def _result(plain: Any) -> Result:
    where, record, key, number = plain
    return where, (record[0], record[1]), key, number
