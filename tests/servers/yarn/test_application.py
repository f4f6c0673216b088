"""One program on YARN: how it ends, what YARN says of it, what is shipped, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.servers.yarn.cluster import Application, YarnClient, wait_for

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
PROGRAM = """
import sys
from firesteel.datastream import StreamExecutionEnvironment
import helper

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2, 3]).map(helper.plus).print()
env.execute("plus")
print("main has", sys.argv[1:], flush=True)
if "fail" in sys.argv:
    raise ValueError("as it was told")
"""
SECRET = re.compile(rb"[0-9a-f]{64}")


def program(client: YarnClient) -> tuple[Path, Path]:
    """A program, and a module that travels with it."""
    path, helper = client.folder / "program.py", client.folder / "helper.py"
    path.write_text(PROGRAM)
    helper.write_text("def plus(value):\n    return value + 40\n")
    return path, helper


def test_a_program_ends_its_application(client: YarnClient) -> None:
    path, helper = program(client)
    keep = {"yarn.application.name": "of a test", "yarn.application.queue": "default"}
    done = client.firesteel("run-application", "-t", "yarn", "-pyfs", str(helper), str(path), "a", "b c", more=keep)
    assert done.returncode == 0, done.stdout + done.stderr + client.logs()
    application = Application(client, client.applications[0])
    ended = application.report()
    assert (ended["state"], ended["finalStatus"], ended["name"]) == ("FINISHED", "SUCCEEDED", "of a test")
    logs = client.firesteel("yarn-logs", application.id)
    assert "main has ['a', 'b c']" in logs.stdout, logs.stdout[-3000:] + logs.stderr
    assert sorted(re.findall(r"^4[0-9]$", logs.stdout, re.MULTILINE)) == ["41", "42", "43"]
    assert not list(client.staging.glob(".firesteel/application_*"))
    wait_for(lambda: not client.processes(), "containers have ended")


def test_what_a_program_raises_is_told_by_yarn(client: YarnClient) -> None:
    path, helper = program(client)
    done = client.firesteel("run-application", "-t", "yarn", "-pyfs", str(helper), str(path), "fail")
    assert done.returncode == 1
    ended = Application(client, client.applications[0]).report()
    assert (ended["state"], ended["finalStatus"]) == ("FINISHED", "FAILED")
    assert "as it was told" in ended["diagnostics"]
    assert "as it was told" in done.stderr


def test_a_detached_program_is_found_by_its_application_and_no_secret_shows(client: YarnClient) -> None:
    path = client.folder / "endless.py"
    path.write_text(
        "from firesteel.datastream import StreamExecutionEnvironment\n"
        "from firesteel.common import WatermarkStrategy\n"
        "from firesteel.datastream.connectors.number_seq import NumberSequenceSource\n"
        "import time\n"
        "def slowly(value):\n    time.sleep(0.1)\n    return value\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "source = NumberSequenceSource(0, 1 << 40)\n"
        "env.from_source(source, WatermarkStrategy.no_watermarks(), 'n').map(slowly).print()\n"
        "env.execute('endless')\n"
    )
    done = client.firesteel("run-application", "-t", "yarn", "-d", str(path))
    assert done.returncode == 0, done.stdout + done.stderr + client.logs()
    application = Application(client, client.applications[0])

    def job() -> str:
        job_ids = [job["jid"] for job in (application.rest("/jobs/overview") or {"jobs": ()})["jobs"]]
        return job_ids[0] if job_ids and application.state(job_ids[0]) == "RUNNING" else ""

    wait_for(job, "its job runs")
    wait_for(lambda: application.process("firesteel_taskmanager") is not None, "a TaskManager runs")
    secret = next(client.yarn.folder.glob("nodemanager-*/local/**/cluster-secret")).read_bytes()
    assert SECRET.fullmatch(secret)
    for process in client.processes():
        for name in ("cmdline", "environ"):
            shown = Path(f"/proc/{process.pid}/{name}")
            assert not shown.exists() or secret not in shown.read_bytes(), f"{name} of {process}"
    assert secret not in client.logs().encode()
    named = client.firesteel("logs", "jobmanager", more=application.named())
    assert named.returncode == 0, named.stderr
    cancelled = client.firesteel("cancel", job(), more=application.named())
    assert cancelled.returncode == 0, cancelled.stdout + cancelled.stderr
    ended = application.wait_ended()
    assert (ended["state"], ended["finalStatus"]) == ("FINISHED", "KILLED"), ended["diagnostics"]


def test_what_can_never_run_is_refused_before_it_is_submitted(client: YarnClient) -> None:
    path, _ = program(client)
    rows = [
        ({"taskmanager.memory.process.size": "900g"}, "a TaskManager needs 921600 .* lower taskmanager.memory"),
        ({"jobmanager.memory.process.size": "900g"}, "the ApplicationMaster needs 921600 .* jobmanager.memory"),
        ({"yarn.ship-files": "/does/not/exist"}, "there is no file /does/not/exist"),
        ({"yarn.application.queue": "nowhere"}, "nowhere"),
        ({"firesteel.yarn.python.executable": "bin/python"}, "has to be an absolute path"),
    ]
    for more, said in rows:
        done = client.firesteel("run-application", "-t", "yarn", str(path), more=more)
        assert done.returncode in (1, 2)
        assert re.search(said, done.stderr), done.stderr
        assert "Traceback" not in done.stderr
    assert not list(client.staging.glob(".firesteel/application_*")), "nothing is left of what was refused"


def environment_of_a_user(folder: Path) -> Path:
    """The Python of an environment with Firesteel and what it needs: this one's packages, and none for development.

    A NodeManager without Hadoop's native library starts a process for each file that it unpacks.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python3.*/site-packages")
    services = ("dispatcher", "resourcemanager", "jobmaster", "taskmanager")
    names_left, seen = ["firesteel", *(f"firesteel-{service}" for service in services)], set[str]()
    while names_left:
        name = canonicalize_name(names_left.pop())
        if name in seen:
            continue
        seen.add(name)
        package = distribution(name)
        needed = map(Requirement, package.requires or ())
        names_left += [
            requirement.name
            for requirement in needed
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        ]
        for part in {file.parts[0] for file in package.files or ()} - {".."}:
            if not (site / part).exists():
                (site / part).symlink_to(Path(str(package.locate_file(part))))
    return folder / "bin" / "python"


def test_packages_are_shipped_once(client: YarnClient) -> None:
    """Nodes have a Python, and nothing else."""
    path, helper = program(client)
    client.command = [str(environment_of_a_user(client.folder / "environment")), "-m", "firesteel"]
    del client.settings["yarn.python.executable"]
    base = Path(sys.base_prefix, "bin", f"python3.{sys.version_info[1]}")
    more = {"firesteel.yarn.python.interpreter": str(base)}
    done = client.firesteel("run-application", "-t", "yarn", "-pyfs", str(helper), str(path), more=more)
    assert done.returncode == 0, done.stdout + done.stderr + client.logs()
    (archive,) = client.staging.glob(".firesteel/cache/packages-*.tar")
    before = archive.stat().st_mtime_ns
    logs = client.firesteel("yarn-logs", client.applications[0])
    assert sorted(re.findall(r"^4[0-9]$", logs.stdout, re.MULTILINE)) == ["41", "42", "43"], logs.stdout[-3000:]
    done = client.firesteel("run-application", "-t", "yarn", "-pyfs", str(helper), str(path), more=more)
    assert done.returncode == 0, done.stdout + done.stderr + client.logs()
    assert archive.stat().st_mtime_ns == before
    provided = client.folder / "provided"
    provided.mkdir()
    archive.rename(provided / archive.name)
    unwanted = {"yarn.application.queue": "nowhere"}  # it is refused when all is shipped
    refused = client.firesteel(
        "run-application", "-t", "yarn", str(path), more={**more, **unwanted, "yarn.provided.lib.dirs": f"{provided}"}
    )
    assert "nowhere" in refused.stderr
    assert not archive.exists(), "those are taken that somebody has put there for all"
    refused = client.firesteel("run-application", "-t", "yarn", str(path), more={**more, **unwanted})
    assert "nowhere" in refused.stderr
    assert archive.exists(), "without them they are shipped"


TRAVELLED = """
import pathlib
from firesteel.datastream import StreamExecutionEnvironment

def look(_):
    found = ("orders.txt", "rules/first.txt", "lookup.zip/names/de.txt")
    return " ".join(pathlib.Path(name).read_text() for name in found)

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1]).map(look).print()
env.execute("look")
print("main:", look(1), flush=True)
"""


def test_a_packed_environment_files_and_archives_travel(client: YarnClient) -> None:
    """Nodes have nothing: neither a Python with Firesteel, nor what the program reads."""
    environment, archive = client.folder / "environment", client.folder / "environment.tar.gz"
    environment_of_a_user(environment)
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(environment, ".")
    (client.folder / "orders.txt").write_text("orders")
    (client.folder / "rules").mkdir()
    (client.folder / "rules" / "first.txt").write_text("rules")
    with zipfile.ZipFile(client.folder / "lookup.zip", "w") as packed_names:
        packed_names.writestr("names/de.txt", "names")
    path = client.folder / "look.py"
    path.write_text(TRAVELLED)
    del client.settings["yarn.python.executable"]
    more = {
        "firesteel.yarn.python.archive": str(archive),
        "yarn.ship-files": f"{client.folder / 'orders.txt'};{client.folder / 'rules'}",
        "yarn.ship-archives": str(client.folder / "lookup.zip"),
    }
    done = client.firesteel("run-application", "-t", "yarn", str(path), more=more)
    assert done.returncode == 0, done.stdout + done.stderr + client.logs()
    logs = client.firesteel("yarn-logs", client.applications[0]).stdout
    assert "main: orders rules names" in logs, logs[-3000:]
    assert re.search(r"^orders rules names$", logs, re.MULTILINE), "slots read them, too"
