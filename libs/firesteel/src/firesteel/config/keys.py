"""Which keys exist: ours, Flink's, and Flink's old names for some of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from importlib import resources

OWN_PREFIX = "firesteel."

RENAMED = {
    "state.checkpoints.dir": "execution.checkpointing.dir",
    "state.savepoints.dir": "execution.checkpointing.savepoint-dir",
    "state.checkpoints.create-subdir": "execution.checkpointing.create-subdir",
    "state.checkpoint-storage": "execution.checkpointing.storage",
    "state.storage.fs.memory-threshold": "execution.checkpointing.data-inline-threshold",
    "state.storage.fs.write-buffer-size": "execution.checkpointing.write-buffer-size",
    "execution.savepoint.path": "execution.state-recovery.path",
    "execution.savepoint-restore-mode": "execution.state-recovery.claim-mode",
    "execution.savepoint.ignore-unclaimed-state": "execution.state-recovery.ignore-unclaimed-state",
    "state.backend": "state.backend.type",
    "state.backend.incremental": "execution.checkpointing.incremental",
    "state.checkpoints.num-retained": "execution.checkpointing.num-retained",
    "high-availability": "high-availability.type",
    "restart-strategy": "restart-strategy.type",
    "pipeline.operator-chaining": "pipeline.operator-chaining.enabled",
    "execution.checkpointing.unaligned": "execution.checkpointing.unaligned.enabled",
    "execution.checkpointing.alignment-timeout": "execution.checkpointing.aligned-checkpoint-timeout",
    "execution.buffer-timeout": "execution.buffer-timeout.interval",
    "state.backend.fs.memory-threshold": "execution.checkpointing.data-inline-threshold",
    "state.backend.fs.write-buffer-size": "execution.checkpointing.write-buffer-size",
    "state.backend.fs.checkpointdir": "execution.checkpointing.dir",
    "savepoints.state.backend.fs.dir": "execution.checkpointing.savepoint-dir",
    "taskmanager.state.local.root-dirs": "execution.checkpointing.local-backup.dirs",
}
"""Old keys and what they are called since."""

_NO_TLS = "Firesteel does not encrypt what it sends: use a network of its own, a tunnel, or a proxy with TLS in front"
REFUSED = {
    "security.ssl.enabled": _NO_TLS,
    "security.ssl.internal.enabled": _NO_TLS,
    "security.ssl.rest.enabled": _NO_TLS,
    "security.ssl.rest.authentication-enabled": _NO_TLS,
    "blob.service.ssl.enabled": _NO_TLS,
    "historyserver.web.ssl.enabled": _NO_TLS,
    "pekko.ssl.enabled": _NO_TLS,
    "taskmanager.data.ssl.enabled": _NO_TLS,
}
"""Flink's keys that protect something there and nothing here: who sets one to true relies on it, so nothing starts."""

RENAMED_PREFIXES = {"akka.": "pekko.", "jobstore.": "completed-application-store."}


def current_name(key: str) -> str:
    """Returns today's name of a key."""
    if key in RENAMED:
        return RENAMED[key]
    for former_prefix, current_prefix in RENAMED_PREFIXES.items():
        if key.startswith(former_prefix):
            return current_prefix + key[len(former_prefix) :]
    return key


@cache
def _flink_keys() -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    lines = resources.files("firesteel.config").joinpath("flink_keys.tsv").read_text("utf-8").split()
    exact = frozenset(line for line in lines if "<" not in line and "#" not in line)
    patterns = []
    for line in lines:
        if line not in exact:
            parts = re.split(r"<[^>]*>|#", line)
            patterns.append(re.compile(".+".join(map(re.escape, parts))))
    return exact, tuple(patterns)


def flink_keys() -> frozenset[str]:
    """All keys of Flink 2.3 that are not patterns."""
    return _flink_keys()[0]


def is_flink_key(key: str) -> bool:
    """Whether Flink 2.3 knows the key, by name or by pattern (``metrics.reporter.<name>.<param>``)."""
    exact, patterns = _flink_keys()
    return key in exact or any(pattern.fullmatch(key) for pattern in patterns)


def near(key: str, candidates: Iterable[str], count: int = 3) -> list[str]:
    """Known keys that look like this one, best first."""
    lower = {name.lower(): name for name in candidates}
    return [lower[match] for match in get_close_matches(key.lower(), lower, n=count, cutoff=0.75)]


def environment_form(key: str) -> str:
    """A key as the end of an environment variable's name: ``rest.port`` is ``REST_PORT``."""
    return re.sub(r"[^A-Z0-9]", "_", key.upper())
