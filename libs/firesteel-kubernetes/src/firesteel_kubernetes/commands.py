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
    """Go by the cluster on Kubernetes that is named; False: the target is another one.

    Raises:
        ConfigurationError: it is not said which cluster.
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
        found = cluster.find()
    finally:
        cluster.api.close()
    says_where = getattr(parsed, "jobmanager", None) is not None or settings.is_set(options.REST_ADDRESS)
    parsed.definitions += _definitions(found, says_where)
    parsed.target = "remote"
    parsed.definitions.append(f"{options.EXECUTION_TARGET.key}=remote")
    return True


def _definitions(found: Found, says_where: bool) -> list[str]:
    """Where the REST API is, unless it is said how it is reached from here, and a file with its token."""
    folder = Path(tempfile.mkdtemp(prefix="firesteel-token-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "rest-token"
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(found.token)
    made = [f"{options.REST_TOKEN_FILE.key}={file}"]
    if not says_where:
        made += [f"{options.REST_ADDRESS.key}={found.host}", f"{options.REST_PORT.key}={found.port}"]
    return made


# -- clusters that begin


def kubernetes_session(parsed: argparse.Namespace, console: Console) -> int:
    """``firesteel kubernetes-session``."""
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
    """``firesteel run-application -t kubernetes-application``."""
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
    found = cluster.find()
    rest = f"http://{found.host}:{found.port}"
    console.say_result(
        parsed.json and getattr(parsed, "detached", True),
        f"{cluster.name}: {rest}",
        {"cluster-id": cluster.name, "namespace": cluster.namespace, "rest": rest},
    )
    where = (
        f"-D{options.KUBERNETES_CLUSTER_ID.key}={cluster.name} -D{options.KUBERNETES_NAMESPACE.key}={cluster.namespace}"
    )
    if not parsed.json and hasattr(parsed, "stop"):
        console.note(
            f"`firesteel run -t kubernetes-session {where} program.py` runs a program there; `firesteel "
            f"kubernetes-session --stop {where}` ends it. From a host that does not reach {found.host}: `kubectl "
            f"port-forward service/{cluster.name}-rest 8081 --namespace {cluster.namespace}`, and -m 127.0.0.1:8081"
        )
    return exit_codes.DONE


def _settings(parsed: argparse.Namespace) -> Settings:
    folder = os.environ.get(CONF_DIR_VARIABLE)
    settings = load_settings(config_file=Path(folder) / CONFIG_FILE if folder else None, definitions=read(parsed))
    settings.check()
    return settings


def _program(parsed: argparse.Namespace) -> list[str]:
    """The command line of ``firesteel-standalone-job`` in the pod: the program is in the image, or in a store.

    Raises:
        ConfigurationError: it is a file of this host.
    """
    words: list[str] = []
    if parsed.as_module:
        words += ["--pyModule", parsed.program]
    else:
        words += ["--python", _in_pod(parsed.program, "the program")]
    if parsed.python_files is not None:
        files = [_in_pod(one.strip(), "-pyfs") for one in parsed.python_files.split(",") if one.strip()]
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
    given = parsed.arguments[1:] if parsed.arguments[:1] == ["--"] else parsed.arguments
    return [*words, "--", *given]


def _in_pod(path: str, what: str) -> str:
    if path.startswith(_LOCAL):
        return path.removeprefix(_LOCAL)
    if ":/" in path and not path.startswith(_FILE):
        return path
    raise ConfigurationError(
        f"{what} {path}: a cluster on Kubernetes does not see files of this host; name one of the image "
        f"({_LOCAL}/opt/programs/job.py), or of an object store (s3://bucket/job.py)"
    )
