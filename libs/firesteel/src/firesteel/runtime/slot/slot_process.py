"""Runs a slot in the job's own Python environment, in another interpreter than the one that Spark has forked.

The process that Spark has started waits for it, and neither outlives the other.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from typing import Any, Final

from firesteel.protocol.fleet import SlotLaunch, SlotOutcome
from firesteel.runtime.slot.deaths import write_status

__all__ = ["run_in"]

_BEGIN: Final = (
    "import json, sys\n"
    "about = json.loads(sys.argv.pop())\n"
    "sys.path += [entry for entry in about['path'] if entry not in sys.path]\n"
    "from firesteel.runtime.slot.slot_main import serve_in_other_interpreter\n"
    "serve_in_other_interpreter(about)\n"
)


def run_in(launch: SlotLaunch, attempt: int, order: Mapping[str, Any]) -> tuple[SlotOutcome, str]:
    """Run a slot in the environment that the TaskManager has prepared, and wait for its end."""
    about = {
        "launch": vars(launch),
        "attempt": attempt,
        "environment": order["environment"],
        "path": order["path"],
        "parent": os.getpid(),
    }
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    variables["python"] = order["python"]  # as in PyFlink, for functions that start others
    command = [order["python"], "-P", "-c", _BEGIN, json.dumps(about)]
    try:
        process = subprocess.Popen(command, cwd=order["directory"], env=variables, stdin=subprocess.DEVNULL)
    except OSError as error:
        return SlotOutcome.RETURNED, f"{order['python']} could not be started: {error}"
    code = process.wait()
    write_status(launch.control_socket, process.pid, -code if code < 0 else code << 8)
    return SlotOutcome.RETURNED, "" if code == 0 else f"the slot's interpreter ended with code {code}"
