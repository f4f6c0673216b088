"""Where secrets of a running cluster could leak: environments, command lines, logs, files, calls."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from firesteel.core.secret import derive, job_secret, rest_token, spark_secret
from tests.files import files_below
from tests.integration.processes.cluster import Cluster, running_cluster, wait_until
from tests.integration.processes.wire import Listener
from tests.ports import free_ports

pytestmark = pytest.mark.timeout(400)
CANARY = "a password among the options"
PROGRAM = """
import json
import os
import sys

from firesteel.datastream import StreamExecutionEnvironment


def look(_):
    with open("/proc/self/environ", "rb") as file:
        return json.dumps({"now": dict(os.environ), "at_start": file.read().decode(errors="replace")})


env = StreamExecutionEnvironment.get_execution_environment()
with env.from_collection([1]).key_by(lambda one: one).map(look).execute_and_collect("look") as results:
    for result in results:
        print("slot:", result)
"""


@dataclass(frozen=True)
class Looked:
    """A cluster whose services got their secrets by variables.

    Attributes:
        seen: what a job saw in its slot.
        listener: who heard all calls to the TaskManager; only root can be one.
    """

    cluster: Cluster
    seen: dict[str, object]
    listener: Listener | None


@pytest.fixture(scope="module")
def looked() -> Iterator[Looked]:
    """A cluster that has run a job in two slots."""
    variables = {"FIRESTEEL_OPTION_SECURITY_SSL_INTERNAL_KEY_PASSWORD": CANARY, "GREETING": "hello"}
    (port,) = free_ports(1)
    options = {"taskmanager.rpc.port": port, "firesteel.exchange.transport": "TCP"}
    with ExitStack() as stack:
        listener = stack.enter_context(Listener([port])) if os.geteuid() == 0 else None
        cluster = stack.enter_context(running_cluster(options=options, variables=variables, secret_in_environment=True))
        program = cluster.folder / "look.py"
        program.write_text(PROGRAM)
        done = cluster.firesteel("run", "-p", "2", str(program))
        assert done.returncode == 0, done.stdout + done.stderr + cluster.logs()
        line = next(line for line in done.stdout.splitlines() if line.startswith("slot: "))
        yield Looked(cluster, json.loads(line.removeprefix("slot: ")), listener)


def secrets_of(cluster: Cluster) -> dict[str, str]:
    """Everything that only the cluster may know."""
    driver = json.loads((cluster.cluster_directory / "driver.json").read_text())
    secrets = {name: str(value) for name, value in driver.items() if "secret" in name}
    assert len(secrets) == 1, driver.keys()
    secrets["of Spark"] = spark_secret(cluster.secret, driver["spark_salt"])
    secrets |= {f"derived for {purpose}": derive(cluster.secret, purpose) for purpose in ("rpc", "rest")}
    return {**secrets, "cluster": cluster.secret, "token": rest_token(cluster.secret)}


def test_user_code_finds_none_in_its_environment(looked: Looked) -> None:
    cluster, seen = looked.cluster, looked.seen
    assert "hello" in str(seen["now"]), "the rest of the environment is there"
    for name, secret in {**secrets_of(cluster), "option": CANARY}.items():
        for when, text in seen.items():
            assert secret not in str(text), f"{name} is in the environment of a slot ({when})"
    assert "PYTHON_WORKER_FACTORY_SECRET" not in str(seen["now"])


def test_no_process_shows_one(looked: Looked) -> None:
    cluster = looked.cluster
    processes = cluster.processes()
    assert len(processes) >= 7, "four services, a template of JobMasters, two JVMs"
    for process in processes:
        for kind in ("cmdline", "environ"):
            shown = Path(f"/proc/{process.pid}/{kind}").read_bytes().decode(errors="replace")
            for name, secret in secrets_of(cluster).items():
                assert secret not in shown, f"{name} is in the {kind} of {process.pid}: {shown[:200]}"


def test_no_log_holds_one(looked: Looked) -> None:
    cluster = looked.cluster
    logs = [file for file in files_below(cluster.folder) if ".log" in file.name or file.suffix == ".out"]
    assert len(logs) >= 8
    for file in logs:
        text = file.read_text(errors="replace")
        for name, secret in {**secrets_of(cluster), "option": CANARY}.items():
            assert secret not in text, f"{name} is in {file}"


def test_files_with_secrets_are_private(looked: Looked) -> None:
    cluster = looked.cluster
    known = [secret.encode() for secret in secrets_of(cluster).values()]
    for folder in (cluster.cluster_directory, cluster.run_root):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for file in files_below(folder):
            if file.is_file() and any(secret in file.read_bytes() for secret in known):
                assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


@pytest.mark.may_skip(reason="only root may listen to the loopback device")
def test_a_listener_to_calls_learns_neither_the_secret_of_spark_nor_that_of_a_job(looked: Looked) -> None:
    cluster, listener = looked.cluster, looked.listener
    if listener is None:
        pytest.skip("only root may listen to the loopback device")
    driver = json.loads((cluster.cluster_directory / "driver.json").read_text())
    # The order to start an executor and the tasks of both slots have come by.
    wait_until(lambda: len(salts(listener)["job"]) == 1, "the salt of the job")
    salts_heard, heard = salts(listener), listener.heard()
    assert salts_heard["spark"] == {driver["spark_salt"]}
    secrets = {
        "the cluster's": cluster.secret,
        "that of calls": derive(cluster.secret, "rpc"),
        "Spark's": spark_secret(cluster.secret, driver["spark_salt"]),
        "the job's": job_secret(cluster.secret, salts_heard["job"].pop()),
        "that of the driver's gateway": driver["gateway_secret"],
    }
    for whose, secret in secrets.items():
        assert secret.encode() not in heard, whose


def salts(listener: Listener) -> dict[str, set[str]]:
    """Salts in what was heard."""
    heard = listener.heard()
    by_kind = {"spark": re.findall(rb'"spark_salt":"([0-9a-f]{64})"', heard)}
    by_kind["job"] = re.findall(rb'"salt":"([0-9a-f]{64})"', heard)
    return {kind: {salt.decode() for salt in several} for kind, several in by_kind.items()}
