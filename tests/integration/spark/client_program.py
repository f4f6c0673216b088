"""A client that starts a fleet with two slots, tells who is there, and waits to be killed.

Run as ``python -m tests.integration.spark.client_program <root of run directories>``.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from firesteel.core.process import descendants
from firesteel.core.run_directory import RunDirectory
from firesteel.spark.embedded import EmbeddedFleet
from tests.integration.spark.slots import Door, obedient


def main() -> None:
    """Start, print one JSON line, wait."""
    run = RunDirectory.create(sys.argv[1])
    fleet = EmbeddedFleet(slots=2, spare_cores=0, slot_main=obedient, run_directory=run)
    starter = threading.Thread(target=fleet.start)
    starter.start()
    starter.join()
    with Door(str(run.socket_path("door"))) as door:
        for name in ("a", "b"):
            fleet.start_slot(door.launch(name))
        slots = [door.wait().pid for _ in range(2)]
        family = [(member.pid, member.start) for member in descendants(os.getpid())]
        print(json.dumps({"run": str(run.path), "slots": slots, "family": family}), flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
