"""Clusters on Kubernetes: ``firesteel kubernetes-session``, ``run -t kubernetes-session`` and ``run-application -t
kubernetes-application``."""

from __future__ import annotations

import argparse
import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from firesteel.client.cli import exit_codes
from firesteel.client.cli.definitions import read
from firesteel.client.console import Console
from firesteel.config import options
from firesteel.config.load import CONF_DIR_VARIABLE, CONFIG_FILE, load_settings
from firesteel.config.settings import Settings
from firesteel.core.errors import ConfigurationError
from firesteel_kubernetes.clusters import Found, KubernetesCluster

TARGETS: Final = ("kubernetes-session", "kubernetes-application")
_READY_SECONDS: Final = 300.0
_LOCAL, _FILE = "local://", "file:"


# -- verbs that need a cluster


def use_cluster(parsed: argparse.Namespace, console: Console) -> bool:
    """Send the command to the cluster on Kubernetes that it names; False = it has another target.

    Raises:
        ConfigurationError: the cluster is not named.
        KubernetesClusterError: it can't be found.
    """
    target = getattr(parsed, "target", None)
    settings = load_settings(definitions=read(parsed))
    if target is None and settings.is_set(options.EXECUTION_TARGET):
        target = settings.get(options.EXECUTION_TARGET)
    if target not in TARGETS:
        return False
    cluster = KubernetesCluster(settings)
    try:
        rest_api = cluster.find()
    finally:
        cluster.api.close()
    says_where = getattr(parsed, "jobmanager", None) is not None or settings.is_set(options.REST_ADDRESS)
    parsed.definitions += _definitions(rest_api, says_where)
    parsed.target = "remote"
    parsed.definitions.append(f"{options.EXECUTION_TARGET.key}=remote")
    return True


def _definitions(rest_api: Found, says_where: bool) -> list[str]:
    """Address of the REST API, unless one is configured, and a file with its token."""
    folder = Path(tempfile.mkdtemp(prefix="firesteel-token-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "rest-token"
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(rest_api.token)
    definitions = [f"{options.REST_TOKEN_FILE.key}={file}"]
    if not says_where:
        definitions += [f"{options.REST_ADDRESS.key}={rest_api.host}", f"{options.REST_PORT.key}={rest_api.port}"]
    return definitions


# -- new clusters


def kubernetes_session(parsed: argparse.Namespace, console: Console) -> int:
    """Run ``firesteel kubernetes-session``."""
    cluster = KubernetesCluster(_settings(parsed))
    try:
        if parsed.stop:
            cluster.delete()
            console.say(f"{cluster.name} is removed from namespace {cluster.namespace}")
            return exit_codes.DONE
        cluster.create_session()
        return _started(cluster, parsed, console)
    finally:
        cluster.api.close()


def run_application(parsed: argparse.Namespace, console: Console) -> int:
    """Run ``firesteel run-application -t kubernetes-application``."""
    settings = _settings(parsed)
    arguments = _program(parsed)
    cluster = KubernetesCluster(settings)
    try:
        cluster.create_application(arguments)
        code = _started(cluster, parsed, console)
        if parsed.detached:
            return code
        try:
            went_well, how = cluster.await_end()
        except KeyboardInterrupt:
            if parsed.shutdown_on_exit:
                console.note("firesteel run-application: interrupted; the application ends")
                cluster.delete()
            else:
                console.note(
                    f"firesteel run-application: left; the application runs on, and `kubectl delete job/{cluster.name} "
                    f"--namespace {cluster.namespace}` ends it"
                )
            return exit_codes.INTERRUPTED
        console.say(f"application {cluster.name} has ended: {how}")
        return exit_codes.DONE if went_well else exit_codes.FAILED
    finally:
        cluster.api.close()


def _started(cluster: KubernetesCluster, parsed: argparse.Namespace, console: Console) -> int:
    console.note(f"{cluster.name} is made in namespace {cluster.namespace}")
    cluster.await_ready(_READY_SECONDS, console.note)
    rest_api = cluster.find()
    rest = f"http://{rest_api.host}:{rest_api.port}"
    console.say_result(
        parsed.json and getattr(parsed, "detached", True),
        f"{cluster.name}: {rest}",
        {"cluster-id": cluster.name, "namespace": cluster.namespace, "rest": rest},
    )
    cluster_options = (
        f"-D{options.KUBERNETES_CLUSTER_ID.key}={cluster.name} -D{options.KUBERNETES_NAMESPACE.key}={cluster.namespace}"
    )
    if not parsed.json and hasattr(parsed, "stop"):
        console.note(
            f"`firesteel run -t kubernetes-session {cluster_options} program.py` runs a program there; `firesteel "
            f"kubernetes-session --stop {cluster_options}` ends it. From a host that does not reach {rest_api.host}: "
            f"`kubectl port-forward service/{cluster.name}-rest 8081 --namespace {cluster.namespace}`, and -m "
            "127.0.0.1:8081"
        )
    return exit_codes.DONE


def _settings(parsed: argparse.Namespace) -> Settings:
    folder = os.environ.get(CONF_DIR_VARIABLE)
    settings = load_settings(config_file=Path(folder) / CONFIG_FILE if folder else None, definitions=read(parsed))
    settings.check()
    return settings


def _program(parsed: argparse.Namespace) -> list[str]:
    """Command line of ``firesteel-standalone-job`` in the pod. The program must be in the image, or in a store.

    Raises:
        ConfigurationError: the program is a file of this host.
    """
    words: list[str] = []
    if parsed.as_module:
        words += ["--pyModule", parsed.program]
    else:
        words += ["--python", _in_pod(parsed.program, "the program")]
    if parsed.python_files is not None:
        files = [_in_pod(path_.strip(), "-pyfs") for path_ in parsed.python_files.split(",") if path_.strip()]
        words += ["--pyFiles", ",".join(files)]
    elif parsed.as_module:
        raise ConfigurationError(
            f"-pym {parsed.program}: say what of the image holds the module, as -pyfs {_LOCAL}/opt/programs"
        )
    for name, option in (("restore_path", "--fromSavepoint"), ("job_id", "--job-id")):
        if getattr(parsed, name) is not None:
            words += [option, getattr(parsed, name)]
    if parsed.claim_mode is not None:
        words += ["-D", f"{options.STATE_RECOVERY_CLAIM_MODE.key}={parsed.claim_mode.upper()}"]
    if parsed.ignore_unclaimed:
        words.append("--allowNonRestoredState")
    program_arguments = parsed.arguments[1:] if parsed.arguments[:1] == ["--"] else parsed.arguments
    return [*words, "--", *program_arguments]


def _in_pod(path: str, subject: str) -> str:
    if path.startswith(_LOCAL):
        return path.removeprefix(_LOCAL)
    if ":/" in path and not path.startswith(_FILE):
        return path
    raise ConfigurationError(
        f"{subject} {path}: a cluster on Kubernetes does not see files of this host; name one of the image "
        f"({_LOCAL}/opt/programs/job.py), or of an object store (s3://bucket/job.py)"
    )
