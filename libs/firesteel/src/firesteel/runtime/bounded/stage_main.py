"""The function of all tasks of bounded stages. The description of a task is plain data; user code comes as blobs."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from firesteel.core.clock import SystemClock
from firesteel.core.errors import ProgramError
from firesteel.core.forks import end_if_child, watch_forks
from firesteel.protocol.stages import FAILURE, PRINTED
from firesteel.runtime.bounded.blobs import read_tasks
from firesteel.runtime.bounded.bounded_task import BoundedTask
from firesteel.runtime.bounded.buckets import RUN_DIRECTORY_VARIABLE
from firesteel.runtime.bounded.commit import commit
from firesteel.runtime.bounded.printed import Printed
from firesteel.runtime.loop.collector import collecting_seldom
from firesteel.runtime.operator_base.context import TaskInfo
from firesteel.runtime.operator_base.failures import describe_failure, find_site
from firesteel.runtime.slot.user_code import extend_path, load_chain, load_main, unpack


def stage_main(
    task: Mapping[str, Any], blobs: Mapping[str, bytes], subtask: int, attempt: int, elements: Iterator[bytes]
) -> Iterator[bytes]:
    """Run a task; yields partitions and blobs in turn.

    Args:
        task: description of the stage as plain data (``firesteel_jobmaster.stages``).
        blobs: blobs of the job, by SHA-256.
        subtask: number of the task in its stage.
        attempt: attempt from 0: the number of former runs of all stages, and of Spark's former attempts in this run.
        elements: the input.

    Raises:
        RuntimeError: the task failed; the text has a plain ``TaskFailure`` behind ``FAILURE``.
    """
    parallelism = read_tasks(next(elements)) if task.get("sized") else task["parallelism"]
    info = TaskInfo(
        task["job_id"], task["job_name"], f"{task['vertex']}_{subtask}_{attempt}", task["name"], subtask,
        parallelism, task["max_parallelism"], attempt, task["job_parameters"],
    )  # fmt: skip
    printed = Printed()
    watch_forks()
    try:
        if task.get("commits"):  # output of committers is not forwarded: it stays in the log of the worker
            _prepare(task, blobs)
            yield from commit(info, SystemClock(), blobs, list(elements), task["partition"])
            return
        with printed.in_place_of_streams():
            _prepare(task, blobs)
            chain = load_chain(blob(blobs, task["chain"]))
            clock, chain_of = SystemClock(), lambda name: load_chain(blob(blobs, name))
            with collecting_seldom():
                yield from BoundedTask(task, info, chain, clock, chain_of, printed).run(elements)
    except BaseException as error:
        if isinstance(error, GeneratorExit) and find_site(error.__traceback__)[0] is None:
            raise  # Spark needs no more output; but a GeneratorExit that a user's function raises is a failure
        end_if_child(error)
        failure = {**describe_failure(error, info).to_plain(), PRINTED: printed.last_of_code()}
        raise RuntimeError(FAILURE + json.dumps(failure)) from None


def blob(blobs: Mapping[str, bytes], name: str) -> bytes:
    """The content of a blob, checked before anything is unpickled.

    Raises:
        ProgramError: its SHA-256 is not its name.
    """
    content = blobs[name]
    if hashlib.sha256(content).hexdigest() != name:
        raise ProgramError(f"blob {name} was changed on its way")
    return content


def _prepare(task: Mapping[str, Any], blobs: Mapping[str, bytes]) -> None:
    """Make the program's own modules importable, and load its main module."""
    extend_path(task["python_path"])
    for name in task["python_files"]:
        folder = os.path.join(
            os.environ.get(RUN_DIRECTORY_VARIABLE) or tempfile.mkdtemp(prefix="firesteel-"), "python-files"
        )
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            part = f"{path}.{os.getpid()}"
            with open(part, "wb") as file:
                file.write(blob(blobs, name))
            os.replace(part, path)
        extend_path([unpack(path, name)])
    if task["main"]:
        load_main(blob(blobs, task["main"]))
