"""How long one waits on YARN: for the first record of a program, and for records after the ApplicationMaster's death.

``python -m benchmarks.yarn_bench`` starts a YARN with two nodes on this machine, and a ZooKeeper, from PySpark's jars;
files of containers lie on this machine's disk, so no network is measured. Prints seconds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from firesteel.core.process import is_running, kill
from tests.servers.hadoop.server import Hadoop, ensure_hadoop
from tests.servers.yarn.cluster import MASTER, PROPERTIES, Counting, YarnClient
from tests.servers.zookeeper.server import ZooKeeper
from tests.waiting import wait_until

_PATIENCE = 300.0
_PROGRAM = """
import time
from firesteel.datastream import StreamExecutionEnvironment

def stamped(value):
    with open({out!r}, "w") as file:
        file.write(str(time.time()))
    return value

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1]).map(stamped).print()
env.execute("one")
"""


@contextmanager
def client_of(yarn: Hadoop) -> Iterator[YarnClient]:
    """The command, for this block."""
    made = YarnClient(yarn)
    try:
        yield made
    finally:
        made.close()


def first_record(client: YarnClient) -> tuple[float, float]:
    """Seconds from the command to the first record, and to the command's end."""
    out, program = client.folder / "at", client.folder / "one.py"
    program.write_text(_PROGRAM.format(out=str(out)))
    began = time.time()
    done = client.firesteel("run-application", "-t", "yarn", str(program))
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr + client.logs())
    return float(out.read_text()) - began, time.time() - began


def after_death(client: YarnClient, zookeeper: ZooKeeper) -> tuple[float, float, float]:
    """Seconds from the ApplicationMaster's death to an answer of the REST API, a record, and a checkpoint."""
    session = client.session(**zookeeper.settings(client.folder / "payloads", "12 s"))
    job = Counting(client.folder)
    job.run(session)
    master = session.process(MASTER)
    if master is None:
        raise SystemExit("there is no ApplicationMaster")
    last = session.checkpoint(job.job)
    kill(master)
    died = time.monotonic()
    wait_until(lambda: not is_running(master) and session.state(job.job), "the REST API of the next attempt", _PATIENCE)
    seen = time.monotonic() - died
    wait_until(lambda: _is_replayed(job.read), "records of the job as it goes on", _PATIENCE)
    flows = time.monotonic() - died
    wait_until(lambda: session.checkpoint(job.job) > last, "a checkpoint", _PATIENCE)
    complete = time.monotonic() - died
    job.ends_right(session)
    client.firesteel("yarn-session", "--stop", "-id", session.id)
    return seen, flows, complete


def _is_replayed(read: Path) -> bool:
    """Whether records were read again behind a checkpoint; slots go on until the next attempt restarts the job."""
    values = [int(line.partition(" ")[0]) for line in read.read_text().splitlines() if " " in line]
    return any(one >= other for one, other in pairwise(values))


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--packages", action="store_true", help="ship the packages of this environment, as by default")
    given = parser.parse_args()
    zookeeper = ZooKeeper()
    try:
        zookeeper.start()
        with Hadoop(ensure_hadoop(), memory_mb=6000, vcores=8, properties=PROPERTIES) as yarn:
            yarn.start_yarn()
            with client_of(yarn) as client:
                if given.packages:
                    del client.settings["yarn.python.executable"]
                    base = Path(sys.base_prefix, "bin", f"python3.{sys.version_info[1]}")
                    client.settings["firesteel.yarn.python.interpreter"] = str(base)
                for _ in range(given.runs):
                    record, end = first_record(client)
                    print(f"run-application: {record:.1f} s to the first record, {end:.1f} s to its end", flush=True)
            for _ in range(0 if given.packages else given.runs):
                with client_of(yarn) as client:
                    seen, flows, complete = after_death(client, zookeeper)
                    print(
                        f"ApplicationMaster killed: {seen:.1f} s to the REST API, {flows:.1f} s to a record, "
                        f"{complete:.1f} s to a checkpoint", flush=True,
                    )  # fmt: skip
    finally:
        zookeeper.close()


if __name__ == "__main__":
    main()
