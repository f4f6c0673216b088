"""What is reported when things go wrong in a slot."""

from __future__ import annotations

import base64
import hashlib
import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from firesteel.common.typeinfo import Types
from firesteel.functions.sink import Sink, SinkWriter
from firesteel.graph.specs import OperatorKind, OutputSpec, PartitionerKind
from tests.integration.runtime.chains import line, numbers, spec, split
from tests.integration.runtime.slot_process import SlotProcess


def fail_of(slot: SlotProcess, *operators: Any) -> dict[str, Any]:
    """Run a chain that fails; the failure."""
    slot.deploy([line(numbers(0, 0), *operators)])
    slot.give_splits([split(0, 1000)])
    error: dict[str, Any] = slot.wait_for_state("FAILED")["error"]
    assert slot.release() == "OUTCOME RETURNED"
    return error


def helper(value: int) -> float:
    return 10 / (value - 5)


def divide(value: int) -> float:
    return helper(value)


def test_a_failing_function_is_named_with_its_record_and_its_own_traceback(slot: SlotProcess) -> None:
    error = fail_of(
        slot,
        spec(OperatorKind.FILTER, lambda n: True, name="keep"),
        spec(OperatorKind.MAP, divide, name="divide"),
        spec(OperatorKind.COLLECT),
    )
    assert error["kind"] == "user"
    assert error["error_class"] == "ZeroDivisionError"
    assert (error["operator"], error["record"]) == ("divide", "5")
    assert (error["vertex_name"], error["subtask"], error["attempt"]) == ("vertex 0", 0, 0)
    assert "helper" in error["traceback"]
    assert "firesteel/runtime" not in error["traceback"]
    assert isinstance(pickle.loads(base64.b64decode(error["pickled"])), ZeroDivisionError)


def test_a_record_that_does_not_fit_its_type(slot: SlotProcess) -> None:
    error = fail_of(
        slot,
        spec(
            OperatorKind.MAP,
            lambda n: (n, "x" if n < 3 else 3.5),
            name="pair",
            output_type=Types.TUPLE([Types.LONG(), Types.STRING()]),
        ),
        spec(OperatorKind.COLLECT),
    )
    assert error["kind"] == "type"
    assert error["operator"] == "pair"
    assert "f1" in error["message"]
    assert "3.5" in error["message"]


def test_a_key_that_cannot_be_one(slot: SlotProcess) -> None:
    chains = [
        line(numbers(0, 0), output=OutputSpec(0, 0, PartitionerKind.HASH, key_selector=lambda n: [n])),
        line(spec(OperatorKind.REDUCE, lambda a, b: a, key_selectors=(lambda n: [n],)), spec(OperatorKind.COLLECT)),
    ]
    slot.deploy(chains, [(0, 1, "HASH")], parallelism=[1, 2])
    slot.give_splits([split(0, 10)])
    error = slot.wait_for_state("FAILED")["error"]
    assert error["kind"] == "user"
    assert "list" in error["message"]
    assert error["record"] == "0"
    slot.release()


def test_a_module_that_the_slot_lacks(slot: SlotProcess, tmp_path: Path) -> None:
    class Lacks:
        def __reduce__(self) -> Any:
            return __import__, ("no_such_module",)

    slot.deploy([line(numbers(0, 0))], pickled=[cloudpickle.dumps(Lacks())])
    error = slot.wait_for_state("FAILED")["error"]
    assert error["kind"] == "user"
    assert "no module 'no_such_module'" in error["message"]
    assert "-pyfs no_such_module.py" in error["message"]
    slot.release()


def test_a_damaged_blob_is_refused_before_it_is_unpickled(slot: SlotProcess) -> None:
    data = cloudpickle.dumps(line(numbers(0, 0), spec(OperatorKind.PRINT)))
    name = slot.blob(data)
    blob = slot.blob

    def damaged(data: bytes) -> str:
        stored = blob(data)
        (slot.directory / stored).write_bytes(data + b"x")
        return stored

    slot.blob = damaged  # type: ignore[method-assign]
    slot.deploy([line(numbers(0, 0))], pickled=[data])
    error = slot.wait_for_state("FAILED")["error"]
    assert error["kind"] == "internal"
    assert name in error["message"]
    assert hashlib.sha256(data + b"x").hexdigest() in error["message"]
    slot.release()


class FolderWriter(SinkWriter[Any]):
    def __init__(self, folder: str, context: Any) -> None:
        self.folder, self.context = Path(folder), context
        self.lines: list[str] = []

    def open(self) -> None:
        self.context.register_temporary_file(str(self.folder / ".part"))
        (self.folder / ".part").touch()

    def write(self, values: Any, timestamps: Any) -> None:
        self.lines += map(str, values)

    def finish(self) -> Any:
        (self.folder / ".part").write_text("\n".join(self.lines))
        return [{"from": ".part", "to": "part"}]

    def commit(self, committables: Any) -> None:
        for move in committables:
            (self.folder / move["from"]).rename(self.folder / move["to"])
        self.context.forget_temporary_file(str(self.folder / ".part"))

    def abort(self) -> None:
        (self.folder / ".part").unlink(missing_ok=True)
        self.context.forget_temporary_file(str(self.folder / ".part"))

    def close(self) -> None:
        (self.folder / "closed").touch()


class FolderSink(Sink[Any]):
    """Writes one file, visible after the commit."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def create_writer(self, context: Any) -> FolderWriter:
        return FolderWriter(self.folder, context)


def test_a_sink_commits_when_told_and_not_before(slot: SlotProcess, tmp_path: Path) -> None:
    (task,) = slot.deploy([line(numbers(0, 0), spec(OperatorKind.SINK, FolderSink(str(tmp_path))))], needs_commit=True)
    assert slot.wait_for("temporary_files")[0]["add"] == [str(tmp_path / ".part")]
    slot.give_splits([split(0, 3)])
    slot.wait_for("end_of_data", lambda m: m["execution_id"] == task)
    assert not (tmp_path / "part").exists()
    assert not (tmp_path / "closed").exists()
    slot.send(
        {"type": "trigger_checkpoint", "execution_ids": [task], "checkpoint_id": 1, "timestamp_ms": 0, "options": {}}
    )
    slot.wait_for("acknowledge_checkpoint")
    assert slot.wait_for("temporary_files")[0]["keep"] == {str(tmp_path / ".part"): 1}
    assert not (tmp_path / "part").exists()
    for _ in range(2):
        slot.send({"type": "checkpoint_complete", "execution_ids": [task], "checkpoint_id": 1})
    slot.wait_for_state("FINISHED", task)
    assert (tmp_path / "part").read_text() == "0\n1\n2"
    assert (tmp_path / "closed").exists()
    assert slot.wait_for("temporary_files")[0]["remove"] == [str(tmp_path / ".part")]
    assert slot.release() == "OUTCOME RETURNED"


@pytest.mark.parametrize("at_end", [False, True])
def test_a_sink_of_a_cancelled_job_shows_nothing(slot: SlotProcess, tmp_path: Path, at_end: bool) -> None:
    (task,) = slot.deploy([line(numbers(0, 0), spec(OperatorKind.SINK, FolderSink(str(tmp_path))))], needs_commit=True)
    slot.wait_for_state("RUNNING")
    if at_end:
        slot.give_splits([split(0, 3)])
        slot.wait_for("end_of_data")
    slot.send({"type": "cancel", "execution_ids": [task], "interval_ms": 1000})
    slot.wait_for_state("CANCELED", task)
    assert [path.name for path in tmp_path.iterdir()] == ["closed"]
    slot.release()


def test_classes_of_main_are_found_by_reference(slot: SlotProcess) -> None:
    source = "class Point:\n    def __init__(self, x): self.x = x\ndef make(n): return Point(n)\n"
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(source, scope)
    (task,) = slot.deploy(
        [
            line(
                numbers(0, 0),
                spec(OperatorKind.MAP, _by_main("make")),
                spec(OperatorKind.MAP, lambda p: (type(p).__module__, __import__("pickle").dumps(p), p.x)),
                spec(OperatorKind.COLLECT),
            )
        ],
        main={"__main__": {"Point": scope["Point"], "make": scope["make"]}},
    )
    slot.give_splits([split(0, 2)])
    (module, pickled, x), _ = slot.collect_all(task)
    assert (module, x) == ("__main__", 0)
    assert b"__main__" in pickled
    assert len(pickled) < 60
    slot.release()


def _by_main(name: str) -> Any:
    class Caller:
        def __call__(self, value: Any) -> Any:
            import sys

            return getattr(sys.modules["__main__"], name)(value)

    return Caller()


def test_log_messages_carry_their_task_and_are_limited(slot: SlotProcess) -> None:
    def complain(value: int) -> int:
        import logging

        logging.getLogger("mine").warning("bad record %s", value)
        return value

    (task,) = slot.deploy([line(numbers(0, 0), spec(OperatorKind.MAP, complain), spec(OperatorKind.PRINT))])
    slot.give_splits([split(0, 500)])
    slot.wait_for_state("FINISHED")
    slot.release()
    while slot.pump(1):
        pass
    logs = [m for m, _ in slot.messages if m["type"] == "log" and m["logger"] == "mine"]
    assert logs[0]["message"] == "bad record 0"
    assert {m["execution_id"] for m in logs[:10]} == {task}
    assert 10 < len(logs) < 100
    assert "450 more messages" in logs[-1]["message"]
