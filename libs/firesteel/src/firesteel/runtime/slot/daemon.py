"""The process from which Spark forks its Python workers (``spark.python.daemon.module``).

It is Spark's own daemon, with everything that a slot needs imported before the first fork. So a slot starts in the time
of a fork, and slots share the memory of imported modules. ``gc.freeze`` keeps the collector from touching those pages
in the children, which would copy them.

Run by Spark as ``python -m firesteel.runtime.slot.daemon pyspark.worker``, and by the fleet, beforehand, as
``python -m firesteel.runtime.slot.daemon --prepare <socket>`` (see `firesteel.runtime.slot.prepared_daemon`).
"""

from __future__ import annotations

import json
import os
import sys

from firesteel.runtime.slot import prepared_daemon

PRELOAD_VARIABLE = "FIRESTEEL_PRELOAD"
"""Environment variable with the fleet's own modules to import, separated by commas."""
PATH_VARIABLE = "FIRESTEEL_PATH"
"""Environment variable with the client's ``sys.path`` as a JSON list."""
_SAFE_PATH_MARK = "firesteel"  # set by firesteel.spark.worker_path, like the variables above; siblings are strangers

_PRELOADED = (
    "asyncio",
    "concurrent.futures",
    "ctypes",
    "logging",
    "selectors",
    "socket",
    "traceback",
    "cloudpickle",
    "pyarrow",
    "pyarrow.compute",
    "pyspark.cloudpickle",
    "pyspark.core.broadcast",
    "pyspark.core.context",
    "pyspark.core.files",
    "pyspark.daemon",
    "pyspark.resource",
    "pyspark.serializers",
    "pyspark.taskcontext",
    "pyspark.worker",
)


def preload(own_modules: list[str]) -> None:
    """Import the modules that slots need. None of them may start a thread, which a fork would lose."""
    import importlib
    import traceback

    for name in _PRELOADED:
        importlib.import_module(name)
    for name in own_modules:
        try:
            importlib.import_module(name)
        except Exception:  # a slot that needs it fails with its own message; the daemon must live on
            traceback.print_exc()


def take_settings() -> list[str]:
    """Apply settings in environment variables that are meant for this process only, and remove these variables.

    Returns:
        The fleet's own modules to import.
    """
    if os.environ.get("PYTHONSAFEPATH") == _SAFE_PATH_MARK:
        del os.environ["PYTHONSAFEPATH"]
    path = os.environ.pop(PATH_VARIABLE, None)
    if path is not None:
        sys.path[:] = json.loads(path)
    # Spark puts its jars on the path. Nothing is imported from them, but each import would search them.
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(".jar")]
    if "PYTHONPATH" in os.environ:
        paths = [entry for entry in os.environ["PYTHONPATH"].split(os.pathsep) if not entry.endswith(".jar")]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    return [name for name in os.environ.pop(PRELOAD_VARIABLE, "").split(",") if name]


def serve() -> None:
    """Fork workers for Spark until it closes our standard input; called when everything is loaded."""
    import gc
    import random

    from pyspark.daemon import manager

    from firesteel.core.process import die_with_parent, end_family
    from firesteel.runtime.slot.deaths import watch_children

    me = os.getpid()

    def in_child() -> None:
        if os.getppid() == me:
            die_with_parent(me)
            numpy_random = sys.modules.get("numpy.random")
            if numpy_random is not None:
                numpy_random.seed(random.SystemRandom().getrandbits(32))

    watch_children()
    os.register_at_fork(after_in_child=in_child)
    gc.collect()
    gc.freeze()
    try:
        manager()
    finally:
        # Slots are killed when this process ends, and could not end the processes that they have started.
        if os.getpid() == me:
            end_family()


def main() -> None:
    """Run as the prepared daemon, hand over to a prepared one, or load everything here and serve."""
    if sys.argv[1:2] == ["--prepare"]:
        path = sys.argv[2]
        door = prepared_daemon.listen(path)
        preload(take_settings())
        connection = prepared_daemon.take_over(door, path)
        if connection is not None:
            take_settings()
            serve()
        return
    if prepared_daemon.hand_over():
        return
    to_spark = os.dup(1)
    os.dup2(2, 1)  # Spark reads our socket's address from standard output: a module that prints must not disturb it
    preload(take_settings())
    sys.stdout.flush()
    os.dup2(to_spark, 1)
    os.close(to_spark)
    serve()


if __name__ == "__main__":
    main()
