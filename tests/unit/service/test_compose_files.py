"""What docker-compose.yml's profile "full" leaves for the services, as a shell and the services read it."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from firesteel.config import options
from firesteel.config.load import load_settings
from firesteel.config.option import Secret
from firesteel.config.reporters import reporters_of
from firesteel.config.s3_options import S3_SECRET_KEY
from firesteel.metrics import Measured
from firesteel.metrics.filters import selection_of
from firesteel.service.base import Service
from firesteel.service.otlp_logs import log_reporters
from firesteel.service.otlp_metrics import FACTORIES, PREFIX, otlp_metric_reporters
from firesteel.service.reporting import report_metrics
from firesteel.traces.settings import trace_reporters

ROOT = Path(__file__).resolve().parents[3]
CONFIG = ROOT / "deploy" / "compose" / "config.yaml"
COLLECTOR = ROOT / "deploy" / "compose" / "full" / "collector.yaml"


@pytest.fixture(scope="module")
def prepare() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prepare_full", ROOT / "deploy" / "compose" / "prepare_full.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_a_shell(script: str, **variables: str) -> dict[str, str]:
    """The variables of options after it has run."""
    done = subprocess.run(
        ["sh", "-euc", f"{script}\nenv"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"} | variables,
    )
    pairs = (line.partition("=") for line in done.stdout.splitlines())
    return {name: value for name, _, value in pairs if name.startswith("FIRESTEEL_OPTION_")}


def test_services_take_the_settings_that_were_left_for_them(prepare: ModuleType) -> None:
    prepared = prepare.settings("http://minio:9000", "firesteel", "it's $secret")
    settings = load_settings(environ=in_a_shell(prepare.script(prepared)), config_file=CONFIG)
    assert settings.check() == []
    assert settings.get(S3_SECRET_KEY) == Secret("it's $secret")
    for reporters, port in ((trace_reporters, 4318), (log_reporters, 4318), (otlp_metric_reporters, 4318)):
        (reporter,) = reporters(settings)
        assert reporter.endpoint.startswith(f"http://collector:{port}/v1/")
    service = Service("taskmanager")
    report_metrics(service, settings, ())
    assert [name for _, name in service._beside] == ["metric reporter otel"]
    assert "/metrics" in {str(resource.canonical) for resource in service.app.router.resources()}


def test_prometheus_gets_all_and_the_collector_nothing_twice(prepare: ModuleType) -> None:
    prepared = prepare.settings("http://minio:9000", "firesteel", "secret")
    settings = load_settings(environ=in_a_shell(prepare.script(prepared)), config_file=CONFIG)
    reporters = reporters_of(settings, options.METRICS_REPORTERS, PREFIX, FACTORIES)
    metrics = [Measured(("jobmanager",), "numRunningJobs", 1)]
    assert {reporter.name: len(selection_of(reporter)(metrics)) for reporter in reporters} == {"prom": 1, "otel": 0}


def test_what_a_container_is_told_wins(prepare: ModuleType) -> None:
    script = prepare.script({"traces.reporters": "otel", "metrics.reporters": "prom;otel"})
    variables = in_a_shell(script, FIRESTEEL_OPTION_TRACES_REPORTERS="mine", FIRESTEEL_OPTION_METRICS_REPORTERS="")
    assert variables == {"FIRESTEEL_OPTION_TRACES_REPORTERS": "mine", "FIRESTEEL_OPTION_METRICS_REPORTERS": ""}


def test_without_the_profile_only_prometheus_is_served() -> None:
    settings = load_settings(environ={}, config_file=CONFIG)
    assert settings.check() == []
    assert (trace_reporters(settings), log_reporters(settings), otlp_metric_reporters(settings)) == ((), (), ())


def test_the_collector_uses_what_it_configures() -> None:
    collector: dict[str, Any] = yaml.safe_load(COLLECTOR.read_text())
    pipelines = collector["service"]["pipelines"]
    assert set(pipelines) == {"traces", "metrics", "logs"}
    for kind in ("receivers", "processors", "exporters"):
        assert {name for pipeline in pipelines.values() for name in pipeline[kind]} == set(collector[kind])


def test_the_entry_point_knows_services_by_name(tmp_path: Path) -> None:
    for name in ("firesteel-standalone-job", "other"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (tmp_path / name).chmod(0o755)

    def entered(*words: str) -> str:
        command = [str(ROOT / "deploy" / "compose" / "with-settings"), *words]
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    assert entered("standalone-job", "--python", "a b.py") == "firesteel-standalone-job --python a b.py\n"
    assert entered("other", "standalone-job") == "other standalone-job\n"


def test_a_user_who_owns_no_directory_of_the_image_gets_others(tmp_path: Path) -> None:
    script = (ROOT / "deploy" / "compose" / "with-settings").read_text()
    for name in ("/run/firesteel", "/var/lib/firesteel"):
        script = script.replace(f"directory {name} ", f"directory {tmp_path}{name} ")
    config = CONFIG.read_text().replace(": /run/", f": {tmp_path}/run/").replace(": /var/", f": {tmp_path}/var/")
    conf = tmp_path / "conf"
    conf.mkdir()
    prefix = "FIRESTEEL_OPTION_FIRESTEEL_"

    def directories(config: str, **variables: str) -> dict[str, str]:
        (conf / "config.yaml").write_text(config)
        variables |= {"TMPDIR": "/scratch", "FIRESTEEL_CONF_DIR": str(conf)}
        options_set = in_a_shell(script, **variables)
        return {name.removeprefix(prefix): value for name, value in options_set.items()}

    others = {"RUN_DIRECTORY": "/scratch/firesteel-run", "CLUSTER_DIRECTORY": "/scratch/firesteel-cluster"}
    assert directories(config) == others, "they can't be written"
    assert directories(config, **{f"{prefix}RUN_DIRECTORY": "/mine"}) == others | {"RUN_DIRECTORY": "/mine"}
    own = config.replace("lib/firesteel\n", "lib/firesteel/cluster\n").replace("run/firesteel\n", "run/firesteel/run\n")
    assert directories(own) == {}, "these are directories of somebody's own configuration"
    for name in ("run/firesteel", "var/lib/firesteel"):
        (tmp_path / name).mkdir(parents=True)
    assert directories(config) == {}, "the user owns them"


def test_application_mode_runs_the_services_in_one_container() -> None:
    files = [ROOT / "docker-compose.yml", ROOT / "deploy" / "compose" / "application.yaml"]
    whole, over = (yaml.safe_load(file.read_text())["services"] for file in files)
    assert over.keys() <= whole.keys()
    assert [name for name, service in over.items() if service.get("profiles") == ["session"]] == [
        "resourcemanager", "jobmaster",
    ]  # fmt: skip
    taskmanager_settings = load_settings(environ=over["taskmanager"]["environment"], config_file=CONFIG)
    assert taskmanager_settings.get(options.RESOURCEMANAGER_ADDRESS) == "dispatcher:8082"
    assert taskmanager_settings.get(options.JOBMASTER_ADDRESS) == "dispatcher:6124"
    assert over["dispatcher"]["restart"] == "no"


def test_the_secret_is_the_users_or_the_one_that_is_there_or_a_new_one(tmp_path: Path) -> None:
    whole = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["secret"]
    assert whole["environment"] == {"FIRESTEEL_SECRET": "${FIRESTEEL_SECRET:-}"}, "nothing has to be exported"
    shell, flag, script = whole["command"]
    script = script.replace("$$", "$").replace("/var/lib/firesteel-secret", str(tmp_path))
    file = tmp_path / "secret"

    def start(secret: str) -> tuple[int, str]:
        environment = {"PATH": "/usr/bin:/bin", "FIRESTEEL_SECRET": secret}
        done = subprocess.run([shell, flag, script], capture_output=True, text=True, check=False, env=environment)
        return done.returncode, done.stdout + done.stderr

    assert start("short") == (2, "FIRESTEEL_SECRET has 5 characters; it needs 16 at least.\n")
    assert not file.exists()
    assert start("") == (0, "Made a cluster secret.\n")
    secret_text = file.read_text()
    assert len(bytes.fromhex(secret_text)) == 32
    assert file.stat().st_mode & 0o777 == 0o600
    assert start("") == (0, "")
    assert file.read_text() == secret_text, "the next start keeps it"
    assert start("one of the user's own") == (0, "")
    assert file.read_text() == "one of the user's own"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]
