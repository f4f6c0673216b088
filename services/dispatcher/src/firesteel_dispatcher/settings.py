"""The settings of the cluster that concern the Dispatcher."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from firesteel.config import Settings, options
from firesteel.service.cluster_status import StatusFile
from firesteel_dispatcher.application_mode import ApplicationSettings
from firesteel_dispatcher.job import Limits


@dataclass(frozen=True)
class FlameGraphSettings:
    """``rest.flamegraph.*``; times in seconds.

    Attributes:
        enabled: whether flame graphs are made.
        num_samples: looks at the stacks for one graph.
        delay: pause between two looks.
        refresh_interval: age at which a graph is out of date.
        cleanup_interval: time without a request after which a graph is dropped.
        depth: frames of a stack.
    """

    enabled: bool = True
    num_samples: int = 100
    delay: float = 0.05
    refresh_interval: float = 60.0
    cleanup_interval: float = 600.0
    depth: int = 100

    @classmethod
    def from_settings(cls, settings: Settings) -> FlameGraphSettings:
        """Read the options.

        Raises:
            ConfigurationError: one has a bad value.
        """
        return cls(
            enabled=settings.get(options.FLAMEGRAPH_ENABLED),
            num_samples=settings.get(options.FLAMEGRAPH_NUM_SAMPLES),
            delay=settings.get(options.FLAMEGRAPH_DELAY).total_seconds(),
            refresh_interval=settings.get(options.FLAMEGRAPH_REFRESH_INTERVAL).total_seconds(),
            cleanup_interval=settings.get(options.FLAMEGRAPH_CLEANUP_INTERVAL).total_seconds(),
            depth=settings.get(options.FLAMEGRAPH_STACK_DEPTH),
        )


@dataclass(frozen=True)
class DispatcherSettings:
    """Settings of the Dispatcher; times in seconds, sizes in bytes.

    Attributes:
        heartbeat_interval, heartbeat_timeout: ``heartbeat.interval`` and ``heartbeat.timeout``.
        heartbeat_failures: ``heartbeat.rpc-failure-threshold``; 0 = failed calls do not count.
        max_content_length: ``rest.server.max-content-length``.
        details_age: age at which details of a running job are out of date.
        details_patience: time that a request waits for the JobMaster's answer; then it gets the last details.
        limits: of the history and of silence.
        history_in_files: ended jobs are kept in files (``completed-application-store.type``).
        history_cache: bytes of archives of ended jobs that are kept in memory as well.
        metrics_interval: time between two moments of the history of metrics; 0 = there is no history.
        metrics_size: number of moments of the history of metrics.
        shutdown_timeout: ``cluster.services.shutdown-timeout``.
        flame_graphs: settings of flame graphs.
        upload_directory: ``web.upload.dir``; None = a temporary one.
        web_submit: ``web.submit.enable``.
        web_cancel: ``web.cancel.enable``.
        terminate_on_any_job: whether an application ends with the first of its jobs that fails or is cancelled.
        application: the program of a cluster in application mode; None = the cluster is a session.
        status_file: read by the supervisor of this process (``firesteel.application.status-file``).
        takes_over: whether another JobMaster follows one that is lost (``high-availability.type`` is not NONE).
    """

    heartbeat_interval: float = 10.0
    heartbeat_timeout: float = 50.0
    heartbeat_failures: int = 2
    max_content_length: int = 100 << 20
    details_age: float = 0.05
    details_patience: float = 2.0
    limits: Limits = field(default_factory=Limits)
    history_in_files: bool = True
    history_cache: int = 50 << 20
    metrics_interval: float = 5.0
    metrics_size: int = 720
    shutdown_timeout: float = 30.0
    takes_over: bool = True
    flame_graphs: FlameGraphSettings = field(default_factory=FlameGraphSettings)
    upload_directory: Path | None = None
    web_submit: bool = True
    web_cancel: bool = True
    terminate_on_any_job: bool = True
    application: ApplicationSettings | None = None
    status_file: StatusFile | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> DispatcherSettings:
        """Read the options.

        Raises:
            ConfigurationError: one has a bad value.
        """
        application = ApplicationSettings.from_settings(settings)
        return cls(
            heartbeat_interval=settings.get(options.HEARTBEAT_INTERVAL).total_seconds(),
            heartbeat_timeout=settings.get(options.HEARTBEAT_TIMEOUT).total_seconds(),
            heartbeat_failures=max(0, settings.get(options.HEARTBEAT_RPC_FAILURE_THRESHOLD)),
            max_content_length=settings.get(options.REST_MAX_CONTENT_LENGTH),
            limits=Limits(
                max_ended=settings.get(options.COMPLETED_STORE_MAX_CAPACITY),
                expiration=settings.get(options.COMPLETED_STORE_EXPIRATION_TIME).total_seconds(),
                silence=settings.get(options.HEARTBEAT_TIMEOUT).total_seconds(),
            ),
            history_in_files=settings.get(options.COMPLETED_STORE_TYPE) == "File" or application is not None,
            history_cache=settings.get(options.COMPLETED_STORE_CACHE_SIZE),
            metrics_interval=settings.get(options.METRICS_HISTORY_INTERVAL).total_seconds(),
            metrics_size=settings.get(options.METRICS_HISTORY_SIZE),
            shutdown_timeout=settings.get(options.CLUSTER_SHUTDOWN_TIMEOUT).total_seconds(),
            flame_graphs=FlameGraphSettings.from_settings(settings),
            web_submit=settings.get(options.WEB_SUBMIT),
            web_cancel=settings.get(options.WEB_CANCEL),
            upload_directory=None
            if settings.get(options.WEB_UPLOAD_DIR) is None
            else Path(str(settings.get(options.WEB_UPLOAD_DIR))),
            terminate_on_any_job=settings.get(options.TERMINATE_APPLICATION_ON_ANY_JOB),
            application=application,
            status_file=None
            if settings.get(options.APPLICATION_STATUS_FILE) is None
            else StatusFile(Path(str(settings.get(options.APPLICATION_STATUS_FILE)))),
            takes_over=(settings.get(options.HA_TYPE) or "").upper() != "NONE",
        )
