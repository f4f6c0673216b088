"""The provider ``standalone``: TaskManagers, which others start, host the executors of our own Spark."""

from __future__ import annotations

from firesteel.config.options import (
    DRIVER_EARLY,
    DRIVER_ORPHAN_TIMEOUT,
    HEARTBEAT_TIMEOUT,
    JAVA_HOME,
    JVM_ARCHIVE,
    JVM_ARCHIVE_IN_BACKGROUND,
    SPARK_SPARE_CORES,
    SPARK_UI,
)
from firesteel.protocol.provider import Provider, ProviderContext
from firesteel.spark.hosted import HostedFleet


class HostedProvider(Provider):
    """Has the hosted fleet. Those that start TaskManagers, too, are derived from it.

    Args:
        context: what it is made of.

    Raises:
        ConfigurationError: an option has a bad value.
    """

    fleet: HostedFleet

    def __init__(self, context: ProviderContext) -> None:
        settings = context.settings
        self.context = context
        super().__init__(
            HostedFleet(
                slot_main=context.slot_main,
                stage_main=context.stage_main,
                cluster_directory=context.directory,
                secret=context.secret,
                bind_host=context.bind_host,
                advertised_host=context.advertised_host,
                spare_cores=settings.get(SPARK_SPARE_CORES),
                ui=settings.get(SPARK_UI),
                java_home=settings.get(JAVA_HOME),
                archive=settings.get(JVM_ARCHIVE),
                make_archive=settings.get(JVM_ARCHIVE_IN_BACKGROUND),
                orphan_timeout=settings.get(DRIVER_ORPHAN_TIMEOUT).total_seconds(),
                heartbeat_timeout=settings.get(HEARTBEAT_TIMEOUT).total_seconds(),
            )
        )

    def stand_by(self) -> None:
        """See ``Provider``: Spark's driver is up before this ResourceManager leads."""
        if self.context.settings.get(DRIVER_EARLY):
            self.fleet.start_early()
