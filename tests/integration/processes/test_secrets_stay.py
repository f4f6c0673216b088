"""Where secrets of a running cluster could leak: environments, command lines, logs, files."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.core.secret import derive, rest_token, spark_secret
from tests.files import files_below
from tests.integration.processes.cluster import Cluster, running_cluster

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
with env.from_collection([1]).map(look).execute_and_collect("look") as results:
    for result in results:
        print("slot:", result)
"""


@pytest.fixture(scope="module")
def looked() -> Iterator[tuple[Cluster, dict[str, object]]]:
    """A cluster whose services got their secrets by variables, and what a job saw in its slot."""
    variables = {"FIRESTEEL_OPTION_SECURITY_SSL_INTERNAL_KEY_PASSWORD": CANARY, "GREETING": "hello"}
    with running_cluster(variables=variables, secret_in_environment=True) as cluster:
        program = cluster.folder / "look.py"
        program.write_text(PROGRAM)
        done = cluster.firesteel("run", str(program))
        assert done.returncode == 0, done.stdout + done.stderr + cluster.logs()
        line = next(line for line in done.stdout.splitlines() if line.startswith("slot: "))
        yield cluster, json.loads(line.removeprefix("slot: "))


def secrets_of(cluster: Cluster) -> dict[str, str]:
    """Everything that only the cluster may know."""
    driver = json.loads((cluster.cluster_directory / "driver.json").read_text())
    found = {name: str(value) for name, value in driver.items() if "secret" in name}
    assert len(found) == 1, driver.keys()
    found["of Spark"] = spark_secret(cluster.secret, driver["spark_salt"])
    found |= {f"derived for {purpose}": derive(cluster.secret, purpose) for purpose in ("rpc", "rest")}
    return {**found, "cluster": cluster.secret, "token": rest_token(cluster.secret)}


def test_user_code_finds_none_in_its_environment(looked: tuple[Cluster, dict[str, object]]) -> None:
    cluster, seen = looked
    assert "hello" in str(seen["now"]), "the rest of the environment is there"
    for name, secret in {**secrets_of(cluster), "option": CANARY}.items():
        for when, text in seen.items():
            assert secret not in str(text), f"{name} is in the environment of a slot ({when})"
    assert "PYTHON_WORKER_FACTORY_SECRET" not in str(seen["now"])


def test_no_process_shows_one(looked: tuple[Cluster, dict[str, object]]) -> None:
    cluster, _ = looked
    processes = cluster.processes()
    assert len(processes) >= 7, "four services, a template of JobMasters, two JVMs"
    for process in processes:
        for kind in ("cmdline", "environ"):
            shown = Path(f"/proc/{process.pid}/{kind}").read_bytes().decode(errors="replace")
            for name, secret in secrets_of(cluster).items():
                assert secret not in shown, f"{name} is in the {kind} of {process.pid}: {shown[:200]}"


def test_no_log_holds_one(looked: tuple[Cluster, dict[str, object]]) -> None:
    cluster, _ = looked
    logs = [file for file in files_below(cluster.folder) if ".log" in file.name or file.suffix == ".out"]
    assert len(logs) >= 8
    for file in logs:
        text = file.read_text(errors="replace")
        for name, secret in {**secrets_of(cluster), "option": CANARY}.items():
            assert secret not in text, f"{name} is in {file}"


def test_files_with_secrets_are_private(looked: tuple[Cluster, dict[str, object]]) -> None:
    cluster, _ = looked
    known = [secret.encode() for secret in secrets_of(cluster).values()]
    for folder in (cluster.cluster_directory, cluster.run_root):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for file in files_below(folder):
            if file.is_file() and any(secret in file.read_bytes() for secret in known):
                assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
