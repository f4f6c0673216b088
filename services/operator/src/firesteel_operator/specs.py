"""The specs of users' objects: ``FiresteelDeployment`` and ``FiresteelSessionJob``. Pure.

The schemas of the CRDs refuse most mistakes; those found here are reported in the status.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from firesteel.config import Settings, options
from firesteel.core.errors import ConfigurationError

GROUP: Final = "firesteel.io"
VERSION: Final = "v1beta1"
DEPLOYMENTS, SESSION_JOBS = "firesteeldeployments", "firesteelsessionjobs"
ROLLBACK: Final = "kubernetes.operator.deployment.rollback.enabled"
READINESS: Final = "kubernetes.operator.deployment.readiness.timeout"
_OPERATOR: Final = "kubernetes.operator."
"""Prefix of configuration keys for the operator."""
_READINESS_SECONDS: Final = 300.0
_OURS: Final = (
    options.KUBERNETES_CLUSTER_ID, options.KUBERNETES_NAMESPACE, options.HA_CLUSTER_ID, options.APPLICATION_JOB_ID,
    options.SHUTDOWN_ON_APPLICATION_FINISH, options.STATE_RECOVERY_PATH, options.STATE_RECOVERY_CLAIM_MODE,
)  # fmt: skip
"""Options that only the operator may set."""
NOT_A_CHANGE: Final = (
    "state", "upgradeMode", "savepointTriggerNonce", "initialSavepointPath", "allowNonRestoredState",
    "savepointRedeployNonce",
)  # fmt: skip
"""Fields of a job about its upgrades: changing them makes no upgrade necessary."""


class SpecError(ConfigurationError):
    """A spec demands something impossible; the message says what."""


class UpgradeMode(Enum):
    """How a job continues after a change."""

    STATELESS = "stateless"
    LAST_STATE = "last-state"
    SAVEPOINT = "savepoint"


@dataclass(frozen=True)
class JobSpec:
    """``spec.job``.

    Attributes:
        program: path or URI.
        module: module of an archive to run.
        arguments: of the program.
        parallelism: of operators without their own; None = as configured.
        mode: of upgrades.
        suspended: the job shall not run.
        initial_savepoint: savepoint to begin with; empty = none.
        drops_state: drop state of operators that the program no longer has.
        savepoint_nonce: a new value requests a savepoint; None = no request.
        redeploy_nonce: a new value redeploys the job from ``initial_savepoint``.
    """

    program: str
    module: str = ""
    arguments: tuple[str, ...] = ()
    parallelism: int | None = None
    mode: UpgradeMode = UpgradeMode.STATELESS
    suspended: bool = False
    initial_savepoint: str = ""
    drops_state: bool = False
    savepoint_nonce: int | None = None
    redeploy_nonce: int | None = None

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> JobSpec:
        """Read ``spec.job``.

        Raises:
            SpecError: it demands something impossible.
        """
        program = str(plain.get("program") or "")
        if not program:
            raise SpecError("spec.job.program is empty: name a program, such as local:///opt/firesteel/usrlib/job.py")
        try:
            mode = UpgradeMode(plain.get("upgradeMode") or "stateless")
        except ValueError:
            modes = ", ".join(mode_.value for mode_ in UpgradeMode)
            raise SpecError(f"spec.job.upgradeMode is {plain.get('upgradeMode')!r}, but has to be {modes}") from None
        state = plain.get("state") or "running"
        if state not in ("running", "suspended"):
            raise SpecError(f"spec.job.state is {state!r}, but has to be running or suspended")
        return cls(
            program=program,
            module=str(plain.get("module") or ""),
            arguments=tuple(map(str, plain.get("args") or ())),
            parallelism=plain.get("parallelism"),
            mode=mode,
            suspended=state == "suspended",
            initial_savepoint=str(plain.get("initialSavepointPath") or ""),
            drops_state=bool(plain.get("allowNonRestoredState")),
            savepoint_nonce=plain.get("savepointTriggerNonce"),
            redeploy_nonce=plain.get("savepointRedeployNonce"),
        )


@dataclass(frozen=True)
class Spec:
    """The spec of an object of either kind.

    Attributes:
        plain: as it was written.
        job: None = the object is a session cluster.
        session: name of the ``FiresteelDeployment`` in which the job runs; empty = the object is a cluster.
        configuration: options, without those for the operator.
        rollback: undo an upgrade that does not become stable.
        readiness: seconds within which an upgrade must become stable.
    """

    plain: Mapping[str, Any]
    job: JobSpec | None
    session: str = ""
    configuration: Mapping[str, str] = field(default_factory=dict)
    rollback: bool = False
    readiness: float = _READINESS_SECONDS

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], *, session_job: bool = False) -> Spec:
        """Read ``spec``.

        Raises:
            SpecError: it demands something impossible.
        """
        configuration = _flat(plain.get("firesteelConfiguration") or {})
        for option in _OURS:
            if option.key in configuration:
                raise SpecError(f"spec.firesteelConfiguration: {option.key} is set by the operator")
        session = str(plain.get("deploymentName") or "")
        job = None if plain.get("job") is None else JobSpec.from_plain(plain["job"])
        if session_job and (not session or job is None):
            raise SpecError("a FiresteelSessionJob needs spec.deploymentName and spec.job")
        rollback = configuration.get(ROLLBACK, "false").lower()
        if rollback not in ("true", "false"):
            raise SpecError(f"spec.firesteelConfiguration: {ROLLBACK} is {rollback!r}, but has to be true or false")
        try:
            seconds = options.HEARTBEAT_TIMEOUT.parse(
                configuration.get(READINESS, f"{_READINESS_SECONDS:g} s")
            ).total_seconds()
        except ValueError as error:
            raise SpecError(f"spec.firesteelConfiguration: {READINESS}: {error}") from error
        cluster_options = {key: value for key, value in configuration.items() if not key.startswith(_OPERATOR)}
        spec = cls(plain, job, session if session_job else "", cluster_options, rollback == "true", seconds)
        spec._check()
        return spec

    def _check(self) -> None:
        settings = Settings(dict(self.configuration), "spec.firesteelConfiguration")
        try:
            settings.check()
        except ConfigurationError as error:
            raise SpecError(str(error)) from error
        if self.job is None:
            return
        if self.job.mode is not UpgradeMode.STATELESS and not self.session:
            for option in (options.CHECKPOINTING_DIRECTORY, options.SAVEPOINT_DIRECTORY):
                needed = (option is options.SAVEPOINT_DIRECTORY) is (self.job.mode is UpgradeMode.SAVEPOINT)
                if needed and settings.get(option) is None:
                    raise SpecError(f"spec.job.upgradeMode: {self.job.mode.value} needs {option.key}")
        if self.job.mode is UpgradeMode.LAST_STATE and not self.session and not self.is_available:
            raise SpecError(
                f"spec.job.upgradeMode: last-state needs {options.HA_TYPE.key}: kubernetes and "
                f"{options.HA_STORAGE_DIRECTORY.key}: that is where the last checkpoint of a job is known when its "
                "JobManager is gone"
            )

        if self.rollback and not self.session and not self.is_available and self.job.mode is not UpgradeMode.STATELESS:
            raise SpecError(
                f"{ROLLBACK}: true needs {options.HA_TYPE.key}: kubernetes: that is where the last checkpoint of an "
                "upgrade that failed is known"
            )

    @property
    def is_available(self) -> bool:
        """Whether the last checkpoint is recorded in Kubernetes."""
        settings = Settings(dict(self.configuration), "spec")
        return (settings.get(options.HA_TYPE) or "").lower() == "kubernetes"

    @property
    def digest(self) -> str:
        """Digest of everything whose change needs a new incarnation."""
        plain = {name: value for name, value in self.plain.items() if name != "job"}
        if self.plain.get("job") is not None:
            plain["job"] = {name: value for name, value in self.plain["job"].items() if name not in NOT_A_CHANGE}
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def _flat(plain: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested options by their full keys, as text."""
    options_by_key: dict[str, str] = {}
    for key, value in plain.items():
        if isinstance(value, Mapping):
            options_by_key |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, bool):
            options_by_key[f"{prefix}{key}"] = "true" if value else "false"
        else:
            options_by_key[f"{prefix}{key}"] = str(value)
    return options_by_key
