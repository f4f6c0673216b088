"""./dev demo --processes: the demo on a standalone cluster of four processes, made for it and gone after it.

The arguments go to examples/word_count.py.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "deploy" / "standalone" / "bin"


def main() -> int:
    """Start, run, stop, remove; returns the exit code of the program."""
    folder = Path(tempfile.mkdtemp(prefix="firesteel-demo-"))
    environment = os.environ | {
        "FIRESTEEL_CONF_DIR": str(folder / "conf"),
        "FIRESTEEL_LOG_DIR": str(folder / "log"),
        "FIRESTEEL_PID_DIR": str(folder / "run"),
        "FIRESTEEL_PYTHON": sys.executable,
    }
    configure(folder)
    firesteel = Path(sys.executable).with_name("firesteel")
    program = ROOT / "examples" / "word_count.py"
    code = 1
    try:
        if subprocess.run([SCRIPTS / "start-cluster.sh"], env=environment).returncode == 0:
            code = subprocess.run([firesteel, "run", program, *sys.argv[1:]], env=environment).returncode
    except KeyboardInterrupt:
        code = 130
    finally:
        subprocess.run([SCRIPTS / "stop-cluster.sh"], env=environment)
        if code in (0, 130):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"The logs of the cluster are in {folder / 'log'}.", file=sys.stderr)
    return code


def configure(folder: Path) -> None:
    """A configuration with ports that are free, and everything below the folder."""
    slots = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    rpc, resourcemanager, jobmaster, rest = free_ports(4)
    settings = {
        "jobmanager.rpc.port": rpc,
        "firesteel.resourcemanager.port": resourcemanager,
        "firesteel.jobmaster.port": jobmaster,
        "rest.port": rest,
        "firesteel.cluster.directory": folder / "cluster",
        "taskmanager.numberOfTaskSlots": slots,
        "taskmanager.memory.process.size": "1728m",
        "parallelism.default": slots,
    }
    shutil.copytree(ROOT / "deploy" / "standalone" / "conf", folder / "conf", ignore=shutil.ignore_patterns("*secret*"))
    (folder / "conf" / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody has."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


if __name__ == "__main__":
    sys.exit(main())
