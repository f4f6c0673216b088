"""The function of all tasks of bounded stages. What a task does is plain data; user code comes as blobs."""

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
    """Partitions and blobs in turn.

    Args:
        task: what the stage does (``firesteel_jobmaster.stages``).
        blobs: of the job, by SHA-256.
        subtask: number of the task in its stage.
        attempt: From 0: runs of all stages before this one, and attempts of Spark before this one in the run.
        elements: what it reads.

    Raises:
        RuntimeError: whatever was raised; holds a plain ``TaskFailure`` behind ``FAILURE``.
    """
    parallelism = read_tasks(next(elements)) if task.get("sized") else task["parallelism"]
    info = TaskInfo(
        task["job_id"], task["job_name"], f"{task['vertex']}_{subtask}_{attempt}", task["name"], subtask,
        parallelism, task["max_parallelism"], attempt, task["job_parameters"],
    )  # fmt: skip
    printed = Printed()
    watch_forks()
    try:
        if task.get("commits"):  # nothing of it is told: what committers print stays in the log of the worker
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
            raise  # Spark wants no more of it; a function of the user that raises one has failed
        end_if_child(error)
        failure = {**describe_failure(error, info).to_plain(), PRINTED: printed.last_of_code()}
        raise RuntimeError(FAILURE + json.dumps(failure)) from None


def blob(blobs: Mapping[str, bytes], name: str) -> bytes:
    """A blob, checked before anything is unpickled.

    Raises:
        ProgramError: it is another one.
    """
    content = blobs[name]
    if hashlib.sha256(content).hexdigest() != name:
        raise ProgramError(f"blob {name} was changed on its way")
    return content


def _prepare(task: Mapping[str, Any], blobs: Mapping[str, bytes]) -> None:
    """The program's own modules are there."""
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
