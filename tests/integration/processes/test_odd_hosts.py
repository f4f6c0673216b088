"""Hosts as they are found: odd paths, no locale, no entry in /etc/passwd, no home, a company's environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import firesteel
from tests.integration.processes.test_scripts import ROOT, Home, installed

pytestmark = pytest.mark.timeout(400)
ODD = "é #%20 b"
"""A name with what means something in a URI, to a shell, and under LC_ALL=C."""
PROGRAM = Path(__file__).with_name("odd_job.py")
NOBODY = 54321
"""A user id that has no entry in the password database."""
CAPABILITY = "+dac_read_search"
"""Lets the nameless user read an interpreter below root's home, and write nothing."""


def as_nameless_user() -> Sequence[str]:
    """Words in front of a command that then runs as a user without a name; none where this user can't become it."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return ()
    ids = ["--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
    return ["setpriv", *ids, "--inh-caps", CAPABILITY, "--ambient-caps", CAPABILITY]


IPV6_ADDRESS = "fd00:1::5"
IPV6_HOST = f"""\
set -e
ip link set lo up
ip address add {IPV6_ADDRESS}/64 dev lo nodad
echo ready
exec sleep 600
"""


@pytest.fixture(scope="module")
def ipv6_host() -> Iterator[tuple[Sequence[str], str]]:
    """Words in front of a command that then runs on a host whose only address beyond 127.0.0.1 is of IPv6; the address.

    Where this user can't make such a namespace, they are no words and the loopback's address.
    """
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        yield (), "::1"
        return
    with subprocess.Popen(["unshare", "--net", "sh", "-c", IPV6_HOST], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "ready\n"
            yield ("nsenter", f"--net=/proc/{holder.pid}/ns/net"), IPV6_ADDRESS
        finally:
            holder.kill()


def odd_environment(folder: Path) -> dict[str, str]:
    """No home, no locale, and what a company exports to all of its users for another Spark and another Hadoop."""
    hadoop = folder / "hadoop"
    hadoop.mkdir()
    (hadoop / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>hdfs://nowhere.invalid:1</value></property>"
        "</configuration>"
    )
    (hadoop / "spark-defaults.conf").write_text("spark.master spark://nowhere.invalid:7077\nspark.ui.port nonsense\n")
    (hadoop / "log4j2.properties").write_text("rootLogger.level = trace\n")
    removed = ("HOME", "LANG", "XDG_CACHE_HOME", "PYTHONPATH")
    return {
        **{name: value for name, value in os.environ.items() if name not in removed and not name.startswith("LC_")},
        "LC_ALL": "C",
        "TMPDIR": str(folder),
        "FIRESTEEL_OPTION_FIRESTEEL_RUN_DIRECTORY": str(folder / "r"),  # the default one would be too long below it
        "SPARK_HOME": "/opt/nowhere/spark",
        "SPARK_CONF_DIR": str(hadoop),
        "SPARK_LOCAL_DIRS": "/nowhere",
        "SPARK_LOCAL_IP": "192.0.2.1",
        "HADOOP_CONF_DIR": str(hadoop),
        "HADOOP_HOME": "/opt/nowhere/hadoop",
        "PYSPARK_PYTHON": "/opt/nowhere/python",
        "PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell",
        "JAVA_TOOL_OPTIONS": "-Dfile.encoding=ISO-8859-1 -Xmx64m -Duser.timezone=Asia/Kathmandu",
        "TZ": "Asia/Kathmandu",
        "CDPATH": ".:/usr",
        "http_proxy": "http://nowhere.invalid:3128",
        "HTTP_PROXY": "http://nowhere.invalid:3128",
    }


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short directory with an odd name, which everybody may write into."""
    folder = Path(tempfile.mkdtemp(prefix="o", dir="/tmp"))
    odd = folder / ODD
    odd.mkdir()
    for path in (folder, odd):
        path.chmod(0o777)
    try:
        yield odd
    finally:
        shutil.rmtree(folder)
        shutil.rmtree(f"/tmp/firesteel-{NOBODY}", ignore_errors=True)


def interpreter(folder: Path) -> Path:
    """This environment under an odd path: modules, and so Spark's jars, come from there."""
    (folder / "venv").symlink_to(Path(sys.prefix))
    return folder / "venv" / "bin" / "python"


def test_a_program_runs_for_a_nameless_user_without_home_locale_and_ipv4_below_odd_paths(
    folder: Path, ipv6_host: tuple[Sequence[str], str]
) -> None:
    program = folder / f"{ODD}.py"
    shutil.copy(PROGRAM, program)
    sources = folder / "sources"
    sources.symlink_to(Path(firesteel.__file__).parent.parent)
    user = as_nameless_user()
    done = subprocess.run(
        [*ipv6_host[0], *user, interpreter(folder), program, "BATCH", "STREAMING"],
        env=odd_environment(folder) | {"PYTHONPATH": str(sources)},
        cwd="/", text=True, encoding="utf-8", timeout=200, stdin=subprocess.DEVNULL, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    uid = NOBODY if user else os.geteuid()
    assert done.stdout.splitlines() == [f"user {uid}", "BATCH 3 1683", "STREAMING 100 1683"]
    assert (folder / "r" / ".lock").exists(), "sockets and scratch files lie elsewhere"


ODD_MACHINE = """\
set -e
echo no_such_host >/proc/sys/kernel/hostname
mount -t tmpfs -o noexec,mode=1777 tmpfs /tmp
cd /proc
umask 000
ulimit -n 512
exec "$@"
"""


@pytest.mark.long
@pytest.mark.may_skip(reason="namespaces of mounts and host names need root")
def test_a_program_runs_with_a_name_without_address_few_files_and_nothing_to_be_run_or_written() -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root makes namespaces")
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "TMPDIR")}
    done = subprocess.run(
        ["unshare", "-m", "-u", "sh", "-c", ODD_MACHINE, "sh", sys.executable, PROGRAM, "BATCH", "STREAMING"],
        env=environment, text=True, timeout=300, stdin=subprocess.DEVNULL, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["user 0", "BATCH 3 1683", "STREAMING 100 1683"]


@pytest.fixture
def home() -> Iterator[Home]:
    yield from installed()


def test_a_cluster_of_scripts_called_by_links_runs_jobs_of_a_nameless_user_on_an_ipv6_host_below_odd_paths(
    home: Home, folder: Path, ipv6_host: tuple[Sequence[str], str]
) -> None:
    user = as_nameless_user()
    inside, address = ipv6_host
    moved = folder / "home"
    shutil.copytree(home.home, moved)
    config = moved / "conf" / "config.yaml"
    lines = [line for line in config.read_text().splitlines() if "directory" not in line]
    addresses = ("jobmanager.rpc.address", "jobmanager.bind-host", "rest.address", "rest.bind-address")
    lines += [f"{key}: '{address}'" for key in (*addresses, "taskmanager.host", "taskmanager.bind-host")]
    lines += ["firesteel.rest.allow-unauthenticated: true", "firesteel.exchange.transport: tcp"]
    lines += [f"firesteel.cluster.directory: '{folder}/cluster'"]
    config.write_text("\n".join([*lines, ""]))
    (moved / "conf" / "masters").write_text("[::1]:8081\n")
    (moved / "conf" / "workers").write_text("[::1]:8081 # Flink's lists of hosts may have ports\n")
    links = folder / "links"
    links.mkdir()
    for script in (moved / "bin").iterdir():
        (links / script.name).symlink_to(os.path.relpath(script, links))
    if user:
        for path in (moved, *moved.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    program = folder / f"{ODD}.py"
    shutil.copy(PROGRAM, program)
    environment = odd_environment(folder) | {
        **{name: home.environment[name] for name in home.environment if name.startswith("FIRESTEEL_")},
        "FIRESTEEL_PYTHON": str(interpreter(folder)),
    }

    def run(script: str, *arguments: object) -> str:
        done = subprocess.run(
            [*inside, *user, links / script, *map(str, arguments)], env=environment, cwd="/", text=True,
            encoding="utf-8", timeout=200, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        logs = "".join(path.read_text(errors="replace") for path in (moved / "log").rglob("*.log"))
        assert done.returncode == 0, done.stdout + logs
        return done.stdout

    said = run("start-cluster.sh", "-D", "taskmanager.numberOfTaskSlots=2")
    assert f"firesteel.cluster.directory is {folder}/cluster" in said
    said = run("firesteel", "run", program, "BATCH", "STREAMING")
    assert [line for line in said.splitlines() if "1683" in line] == ["BATCH 3 1683", "STREAMING 100 1683"], said
    listed = run("firesteel", "list", "--all")
    assert listed.count("FINISHED") == 2, listed
    said = run("stop-cluster.sh")
    assert said.count("Stopping ") == 4, said


@pytest.mark.parametrize(
    ("line", "host"),
    [
        ("node1", "node1"), ("node1:8081", "node1"), ("10.0.0.1:8081  # first", "10.0.0.1"), ("::1", "::1"),
        ("fd00::5", "fd00::5"), ("[fd00::5]", "fd00::5"), ("[fd00::5]:8081", "fd00::5"),
    ],
)  # fmt: skip
def test_lists_of_hosts_may_have_ports_and_ipv6_addresses(tmp_path: Path, line: str, host: str) -> None:
    (tmp_path / "workers").write_text(f"# workers\n{line}\n\n")
    (tmp_path / "config.yaml").touch()
    done = subprocess.run(
        ["sh", "-c", 'bin=$0; . "$bin/config.sh"; hosts workers', ROOT / "deploy" / "standalone" / "bin"],
        env={"PATH": os.environ["PATH"], "FIRESTEEL_CONF_DIR": str(tmp_path)}, text=True, capture_output=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{host}\n")
